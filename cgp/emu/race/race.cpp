// SPDX-License-Identifier: Apache-2.0
#include "cgp/emu/race/race.h"

#include "cgp/emu/race/race_state.h"

namespace cgp::emu::race {

// ---------------------------------------------------------------- launches
namespace {
using ptx::Mod;
using POp = ptx::Op;

bool is_fence(const ptx::Inst& i) {
  return i.op == POp::fence || i.op == POp::membar || i.op == POp::fence_mbarrier_init ||
         i.op == POp::tensormap_cp_fenceproxy || (i.op == POp::fence_proxy && i.has(Mod::tensormap_generic));
}

Level scope_of(const ptx::Inst& i) {
  if (i.has(Mod::sys)) return Level::system;
  if (i.has(Mod::gpu) || i.has(Mod::gl)) return Level::gpu;
  if (i.has(Mod::cluster)) return Level::cluster;
  if (i.has(Mod::cta)) return Level::cta;
  return i.op == POp::fence_mbarrier_init ? Level::cluster : Level::gpu;
}

Trait trait_of(const ptx::Inst& i) {
  Trait t;
  t.scope = scope_of(i);
  t.rmw = i.op == POp::atom || i.op == POp::red;
  const bool memory = t.rmw || i.op == POp::ld || i.op == POp::st;
  const bool ordered = i.has(Mod::acquire) || i.has(Mod::release) || i.has(Mod::acq_rel);
  t.read_only = i.op == POp::ldu || (i.op == POp::ld && i.has(Mod::nc));
  if (memory) {
    t.strong = t.rmw || ordered || i.has(Mod::relaxed) || i.has(Mod::volatile_) || i.has(Mod::mmio);
    // Cache operators order nothing, but code that polls or publishes past the L1 means a strong access.
    t.cached = !t.strong && (i.has(Mod::cg) || i.has(Mod::cv) || i.has(Mod::wt));
    t.strong = t.strong || t.cached;
    t.acquire = i.has(Mod::acquire) || i.has(Mod::acq_rel);
    t.release = i.has(Mod::release) || i.has(Mod::acq_rel);
    if (i.has(Mod::volatile_) || i.has(Mod::mmio)) t.scope = Level::system;
    return t;
  }
  switch (i.op) {
    case POp::mbarrier_arrive:
    case POp::mbarrier_arrive_drop:
    case POp::mbarrier_test_wait:
    case POp::mbarrier_try_wait:
      t.release = t.acquire = !i.has(Mod::relaxed);
      break;
    case POp::cp_reduce_async_bulk:
    case POp::cp_reduce_async_bulk_tensor:
    case POp::red_async:
      t.strong = t.rmw = t.async = true;
      t.scope = Level::gpu;
      break;
    default:
      break;
  }
  return t;
}

// "old = *p; do { assumed = old; old = atomicCAS(p, assumed, ...) }": the first load only seeds the loop,
// whose atomic checks it. A load through the address of a compare-and-swap of the same function counts as
// relaxed.
void mark_seeds(const ptx::Function& f, std::vector<Trait>& traits, std::uint32_t first,
                const std::vector<InstRef>& insts) {
  const auto address = [](const ptx::Inst& i, std::size_t n) -> const ptx::Operand* {
    return i.operands.size() > n && i.operands[n].kind == ptx::OperandKind::address ? &i.operands[n]
                                                                                    : nullptr;
  };
  std::vector<const ptx::Operand*> swaps;
  for (const ptx::Inst& i : f.body)
    if (i.op == POp::atom && i.has(Mod::cas))
      if (const auto* o = address(i, 1)) swaps.push_back(o);
  if (swaps.empty()) return;
  for (std::size_t n = first; n < insts.size() && insts[n].function == insts[first].function; ++n) {
    const ptx::Inst& i = f.body[insts[n].index];
    const auto* o = i.op == POp::ld ? address(i, 1) : nullptr;
    for (const auto* s : swaps)
      if (o && o->reg == s->reg && o->symbol == s->symbol && o->imm == s->imm) traits[n].strong = true;
  }
}
}  // namespace

std::shared_ptr<LaunchState> make_launch(cgp::emu::LaunchState& launch, bool parallel) {
  auto l = std::make_shared<LaunchState>();
  l->launch = &launch;
  l->parallel = parallel;
  const ProgramImpl& p = *launch.program;
  l->traits.resize(p.insts.size() + 1);
  l->together = p.avx512;
  if (p.avx512)
    l->lanes = {isa_avx512::shared_read,     isa_avx512::shared_write, isa_avx512::shared_read_at,
                isa_avx512::shared_write_at, isa_avx512::group_lanes,  isa_avx512::apart_by,
                isa_avx512::shared_read_by,  isa_avx512::global_read,  isa_avx512::global_write};
  for (std::size_t n = 0; n < p.insts.size(); ++n) {
    const ptx::Inst& i = p.inst(std::uint32_t(n));
    Trait& t = l->traits[n];
    t = trait_of(i);
    if (launch.devices.size() == 1 && t.scope == Level::gpu) t.scope = Level::system;  // there is nobody else
    l->cached = l->cached || t.cached;
    l->orders = l->orders || is_fence(i) || (t.strong && (t.acquire || t.release));
  }
  for (std::size_t n = 0; n < p.insts.size(); ++n)
    if (n == 0 || p.insts[n].function != p.insts[n - 1].function)
      mark_seeds(*p.functions[p.insts[n].function].ptx, l->traits, std::uint32_t(n), p.insts);
  return l;
}

void attach(Cluster& cluster) {
  auto c = std::make_shared<ClusterState>();
  cgp::emu::LaunchState& launch = *cluster.worker->launch;
  c->launch = launch.race.get();
  c->cluster = &cluster;
  const Dim3 g = launch.cluster_grid;
  c->index = std::uint32_t(cluster.device * launch.clusters + cluster.id.x +
                           std::uint64_t(g.x) * (cluster.id.y + std::uint64_t(g.y) * cluster.id.z));
  c->ranks = std::uint32_t(cluster.ctas.size());
  c->first_arrival.assign(c->ranks, 0);
  const auto start = std::make_shared<const View>();
  for (auto& cta : cluster.ctas) {
    c->ctas.push_back(std::make_unique<CtaState>());
    c->ctas.back()->cta = cta.get();
    cta->race = c->ctas.back().get();
    for (auto& w : cta->warps) {
      auto s = std::make_unique<WarpState>();
      s->cluster = c.get();
      s->cta = cta->race;
      s->warp = w.get();
      s->wid = cta->rank * kWarpsPerCta + w->index;
      s->view.set_all(start);
      w->race = s.get();
      c->warps.push_back(std::move(s));
    }
  }
  cluster.race = std::move(c);
}

// ---------------------------------------------------------------- order
namespace {
std::uint32_t base_of(const WarpState& s, const View& v) {
  const Part* p = v.now.known ? v.now.known->find(s.cluster->index) : nullptr;
  return p ? p->base[s.wid / kWarpsPerCta] : 0;
}
std::uint32_t uniform_base(WarpState& s) {
  const View* v = s.view[0].get();
  if (s.base_of != v) {
    s.base_of = v;
    s.base = base_of(s, *v);
  }
  return s.base;
}
}  // namespace

bool whole_warp(Warp& w, const Op& op, RowParty& p) {
  WarpState& s = *w.race;
  const ClusterState& c = *s.cluster;
  if (!s.view.uniform() || w.active != ~Mask(0)) return false;
  if (c.launch->orders && c.launch->traits[op.inst].strong) return false;
  p = {uniform_base(s),     s.synced, c.now, std::min(op.inst, (1u << kInstBits) - 1), c.index + 1, s.wid,
       s.wid / kWarpsPerCta};
  return true;
}

LaneRun lane_run(const RowParty& p) {
  LaneRun r;
  r.limit = r.read_limit = std::uint64_t(p.base + 1) << kClockShift;
  r.rank = p.rank, r.warp = p.warp, r.synced = p.synced, r.clock = p.clock;
  r.thread = r.party = p.warp << 5;
  r.inst = p.inst;
  r.me = p.cluster;
  return r;
}

Accessor::Accessor(WarpState& state, const Op& o, Use u, Mask l)
    : s(state), op(o), trait(state.cluster->launch->traits[o.inst]), use(u), lanes(l) {
  id_base = s.wid << 5;
  inst = std::min(op.inst, (1u << kInstBits) - 1);
  clock = s.cluster->now;
  rank = s.wid / kWarpsPerCta;
  if (trait.read_only) proxy = Proxy::read_only;
  if (s.view.uniform()) {
    base = uniform_base(s);
  } else {
    base = kMaxClock;
    for_views(s, lanes, [&](const ViewPtr& v, Mask) { base = std::min(base, base_of(s, *v)); });
  }
  limit = std::uint64_t(base + 1) << kClockShift;
}

bool before(const Accessor& a, int lane, std::uint32_t cluster, Stamp x) {
  const std::uint32_t who = id_of(x), at = clock_of(x);
  if (cluster == a.s.cluster->index) {
    if (who == (a.s.wid << 5 | std::uint32_t(lane))) return true;
    if (a.agent && a.in_order && who == a.id(lane)) return true;
    if (who >> 5 == a.s.wid && at <= a.s.synced) return true;
    if (a.s.grouped && (who & kLowMask) == (a.s.wid << 5 | std::uint32_t(lane)) &&
        at <= a.s.waited(kind_of(who), lane))
      return true;
  }
  return known(a.s.view[std::size_t(lane)]->now.known, cluster, who) >= at;
}

namespace {
// Whether a fence for the map that `lane` knows of had the access stamped `x` in its past.
bool map_fenced(const Accessor& a, int lane, std::uint32_t cluster, Stamp x) {
  const std::uint32_t who = id_of(x), at = clock_of(x);
  const ClusterState& c = *a.s.cluster;
  for (const MapFence& f : c.map_fences) {
    if (f.address != *a.addr) continue;
    Mask had = known(f.view->now.known, cluster, who) >= at ? f.lanes : 0;
    if (cluster == c.index && who >> 5 == f.wid) had |= at <= f.synced ? f.lanes : 0;
    if (cluster == c.index && who >> 5 == f.wid && at <= f.at) had |= f.lanes & lane_bit(int(who & 31));
    if (f.wid == a.s.wid) {
      if (had & (f.at <= a.s.synced ? ~Mask(0) : lane_bit(lane))) return true;
    }
    if (had & known_lanes(a.s.view[std::size_t(lane)]->now.known, c.index, f.wid, f.at)) return true;
  }
  return false;
}
}  // namespace

bool proxied(const Accessor& a, int lane, std::uint32_t cluster, Stamp x) {
  if (a.proxy == Proxy::read_only) return false;
  if (a.proxy == Proxy::tensor_map) return kind_of(id_of(x)) != kThread || map_fenced(a, lane, cluster, x);
  const std::uint32_t who = id_of(x), at = clock_of(x);
  if (kind_of(who) != kThread && kind_of(who) != kCopy) return true;
  const View& v = *a.s.view[std::size_t(lane)];
  if (known(v.now.fenced, cluster, who) >= at) return true;
  if (!v.proxied.set) return false;
  if (known(v.proxied.base.known, cluster, who) >= at) return true;
  if (cluster != a.s.cluster->index || (who & kLowMask) >> 5 != a.s.wid) return false;
  if (kind_of(who) == kCopy)
    return int(who & 31) == lane && at <= std::min(v.proxied.at, a.s.copied[std::size_t(lane)]);
  return at <= v.proxied.synced ||
         (at <= v.proxied.at && (v.proxied.covered(lane, a.s.synced) >> (who & 31) & 1));
}

// ---------------------------------------------------------------- accesses
namespace {
enum class Space : std::uint8_t { shared, global, other };

Space space_of(Where where, std::uint64_t address) {
  switch (where) {
    case Where::shared:
    case Where::shared_cluster:
      return Space::shared;
    case Where::global:
      return Space::global;
    case Where::generic:
      if (address >> 32 == kSharedWindow >> 32) return Space::shared;
      return address < kSharedWindow ? Space::global : Space::other;
    default:
      return Space::other;
  }
}

void order_strong(WarpState& s, const Accessor& a, Space space, const std::uint64_t* addr, Mask lanes) {
  LaunchState& l = *s.cluster->launch;
  for_lanes(lanes, [&](int lane) {
    if (space == Space::global) return synchronise(s, a.trait, a.use, lane, a.clock, l.locations, addr[lane]);
    const auto low = std::uint32_t(addr[lane]);
    synchronise(s, a.trait, a.use, lane, a.clock, s.cluster->ctas[low >> kRankShift]->locations,
                low & ((1u << kRankShift) - 1));
  });
}

void one_space(Accessor& a, Space space, const std::uint64_t* addr, Mask lanes) {
  a.lanes = lanes;
  if (space == Space::global) return global_access(a, addr);
  std::uint32_t offset[kLanes];
  if (lanes == ~Mask(0)) {
    const auto low = std::uint32_t(addr[0]);
    std::uint32_t apart = 0;
    for (int l = 0; l < kLanes; ++l) {
      offset[l] = std::uint32_t(addr[l]) & ((1u << kRankShift) - 1);
      apart |= (std::uint32_t(addr[l]) ^ low) >> kRankShift;
    }
    if (!apart) return shared_access(a, *a.s.cluster->ctas[low >> kRankShift], offset);
  }
  Mask left = lanes;
  while (left) {  // usually all lanes name one block
    const auto rank = std::uint32_t(addr[std::countr_zero(left)]) >> kRankShift;
    Mask here = 0;
    for_lanes(left, [&](int l) {
      const auto low = std::uint32_t(addr[l]);
      offset[l] = low & ((1u << kRankShift) - 1);
      if (low >> kRankShift == rank) here |= lane_bit(l);
    });
    a.lanes = here;
    shared_access(a, *a.s.cluster->ctas[rank], offset);
    left &= ~here;
  }
}

void all_spaces(Accessor& a, Where where, const std::uint64_t* addr, Mask lanes) {
  while (lanes) {
    const Space space = space_of(where, addr[std::countr_zero(lanes)]);
    Mask same = lanes;
    if (where == Where::generic) {
      same = 0;
      for_lanes(lanes, [&](int l) {
        if (space_of(where, addr[l]) == space) same |= lane_bit(l);
      });
    }
    lanes &= ~same;
    if (space == Space::other) continue;
    if (a.trait.strong && !a.agent && a.s.cluster->launch->orders) {
      // What an acquire learns counts for the access itself; a release includes it.
      one_space(a, space, addr, same);
      order_strong(a.s, a, space, addr, same);
      continue;
    }
    one_space(a, space, addr, same);
  }
}
}  // namespace

void on_access(Warp& w, const Op& op, Where where, const std::uint64_t* addr, std::uint32_t bytes, Use use,
               Mask lanes, std::byte* const* host, SameFn same) {
  if (!lanes) return;
  WarpState& s = *w.race;
  s.touched |= lanes;
  s.touched_part |= lanes;
  Accessor a(s, op, use, lanes);
  a.same = same;
  a.host = host;
  a.addr = addr;
  a.bytes = bytes;
  all_spaces(a, where, addr, lanes);
}

// ---------------------------------------------------------------- agents
Agent bulk_read_agent(Warp& w, int lane) {
  if (!w.race) return {};
  return {party(kBulkRead, w.race->wid << 5 | std::uint32_t(lane)), w.race->cluster->now, true};
}
Agent bulk_write_agent(Warp& w, int lane) {
  if (!w.race) return {};
  return {party(kBulkWrite, w.race->wid << 5 | std::uint32_t(lane)), w.race->cluster->now, true};
}

Agent mbarrier_agent(Warp& w, Cta& cta, std::uint32_t offset) {
  if (!w.race) return {};
  ClusterState& c = *w.race->cluster;
  const std::uint64_t key = std::uint64_t(cta.rank) << 32 | offset;
  // Four parties take turns on a barrier: copies of one phase are told apart.
  const std::uint32_t turn = c.slot_turn[key]++ & 3;
  const auto slot =
      c.slots.try_emplace(key << 2 | turn, std::uint32_t(c.slots.size()) & kLowMask).first->second;
  if (slot >= c.slot_thread.size()) c.slot_thread.resize(slot + 1);
  c.slot_thread[slot] = w.race->wid << 5 | std::uint32_t(std::countr_zero(w.active));
  return {party(kSlot, slot), c.now, false};
}

Agent unit_agent(Warp& w, std::uint32_t unit) {
  if (!w.race) return {};
  return {party(kUnit, w.cta->rank << 10 | (unit & 1023)), w.race->cluster->now, true};
}

void agent_access(Warp& w, const Op& op, int lane, Agent agent, Where where, std::uint64_t address,
                  std::uint64_t bytes, Use use, Proxy proxy) {
  if (!w.race || !agent || !bytes) return;
  WarpState& s = *w.race;
  Accessor a(s, op, use, lane_bit(lane));
  a.agent = true;
  a.id_base = agent.id;
  a.id_step = 0;
  a.in_order = agent.in_order;
  a.clock = agent.clock;
  a.proxy = proxy;
  a.bytes = std::uint32_t(bytes);
  const Space space = space_of(where, address);
  if (space == Space::global) return global_range(a, lane, address, bytes);
  if (space != Space::shared) return;
  const auto low = std::uint32_t(address);
  shared_range(a, lane, *s.cluster->ctas[low >> kRankShift], low & ((1u << kRankShift) - 1), bytes);
}

void copy_access(Warp& w, const Op& op, Where where, const std::uint64_t* addr, std::uint32_t bytes, Use use,
                 Mask lanes) {
  if (!w.race || !lanes) return;
  WarpState& s = *w.race;
  Accessor a(s, op, use, lanes);
  a.agent = true;
  a.id_base = party(kCopy, s.wid << 5);
  a.addr = addr;
  a.bytes = bytes;
  all_spaces(a, where, addr, lanes);
}

void issued(Warp& w) {
  if (w.race) w.race->cluster->tick();
}

// ---------------------------------------------------------------- groups
void commit_group(Warp& w, Group group) {
  if (!w.race) return;
  WarpState& s = *w.race;
  auto& g = s.groups[int(group)];
  if (!g) g = std::make_unique<std::array<std::vector<std::uint32_t>, kLanes>>();
  for_lanes(w.active, [&](int l) { (*g)[std::size_t(l)].push_back(s.cluster->now); });
  s.cluster->tick();
}

void wait_group(Warp& w, Group group, std::int64_t keep, bool read_only) {
  if (!w.race) return;
  WarpState& s = *w.race;
  auto& g = s.groups[int(group)];
  if (!g && keep >= 0) return;
  const auto learn = [&](int l, std::uint32_t clock) {
    s.grouped = s.group_news = true;
    const auto i = std::size_t(l);
    if (group == Group::copy) {
      s.copied[i] = clock;
      return;
    }
    s.bulk_read[i] = clock;
    if (!read_only) s.bulk_written[i] = clock;
  };
  for_lanes(w.active, [&](int l) {
    if (keep < 0) learn(l, s.cluster->now);
    if (!g) return;
    auto& clocks = (*g)[std::size_t(l)];
    const std::size_t left = keep < 0 ? 0 : std::size_t(keep);
    if (clocks.size() <= left) return;
    if (keep >= 0) learn(l, clocks[clocks.size() - left - 1]);
    if (!read_only) clocks.erase(clocks.begin(), clocks.end() - std::ptrdiff_t(left));
  });
  s.cluster->tick();
}

bool same_knowledge(const Warp& a, const Warp& b) {
  return a.race->view.uniform() && b.race->view.uniform() && a.race->view[0] == b.race->view[0];
}

void wait_agent(Warp& w, Agent agent) {
  if (!w.race || !agent) return;
  Gather g;
  g.add(agent.id >> 5, lane_bit(int(agent.id & 31)), agent.clock);
  acquire(*w.race, w.active, released(g, *w.race->cluster));
}

}  // namespace cgp::emu::race
