// SPDX-License-Identifier: Apache-2.0
// Who learns what from whom: rendezvous, barriers, cluster barriers, mbarriers, fences.
#include "cgp/emu/core/host_memory.h"
#include "cgp/emu/race/race_state.h"

namespace cgp::emu::race {

// ---------------------------------------------------------------- views
void Views::set(Mask lanes, Mask live, const ViewPtr& v) {
  if (!each_) {
    if (one_ == v) return;
    each_ = std::make_unique<std::array<ViewPtr, kLanes>>();
    each_->fill(one_);
  }
  for_lanes(lanes, [&](int l) { (*each_)[std::size_t(l)] = v; });
  bool same = true;
  for_lanes(live, [&](int l) { same = same && (*each_)[std::size_t(l)] == v; });
  if (same) set_all(ViewPtr(v));
}

void set_view(WarpState& s, Mask lanes, const ViewPtr& v) {
  const Mask live = s.warp->live;
  s.base_of = nullptr;
  if ((lanes & live) == live)
    s.view.set_all(v);
  else
    s.view.set(lanes, live, v);
}

namespace {
Mask covered(const Mark& m, const WarpState& s, Mask lanes) {
  return s.synced >= m.at ? lanes | m.lanes : lanes;
}

}  // namespace

void add_groups(Collector& to, const WarpState& s, Mask lanes, std::uint32_t fence, std::uint32_t limit) {
  const std::pair<Kind, const std::array<std::uint32_t, kLanes>*> all[] = {
      {kCopy, &s.copied}, {kBulkRead, &s.bulk_read}, {kBulkWrite, &s.bulk_written}};
  for (const auto& [kind, clocks] : all) {
    const std::uint32_t warp = party(kind, s.wid << 5) >> 5;
    for (Mask left = lanes, same = 0; left; left &= ~same) {
      same = 0;
      const std::uint32_t waited = (*clocks)[std::size_t(std::countr_zero(left))];
      for_lanes(left, [&](int l) { same |= (*clocks)[std::size_t(l)] == waited ? lane_bit(l) : 0; });
      const std::uint32_t clock = std::min(waited, limit);
      if (clock) to.add(warp, same, clock);
      if (clock && kind == kCopy) to.add_fenced(warp, same, std::min(clock, fence));
    }
  }
}

namespace {
// What the lanes did up to now, with what their view says.
void collect(Collector& to, const WarpState& s, Mask m, const View& v, const Clock& base) {
  to.include(base);
  const bool all = (m & s.warp->live) == s.warp->live;
  if (s.synced && !all) to.add(s.wid, ~Mask(0), s.synced);
  to.add(s.wid, all ? ~Mask(0) : m, s.cluster->now);
  if (s.grouped) add_groups(to, s, m, v.proxied.at, kMaxClock);
  if (!v.proxied.set) return;
  to.include_fenced(v.proxied.base.known);
  to.add_fenced(s.wid, ~Mask(0), v.proxied.synced);
  to.add_fenced(s.wid, covered(v.proxied, s, m), v.proxied.at);
}

void collect(Collector& to, const WarpState& s, Mask lanes, const View& v, const Mark& mark) {
  to.include(mark.base);
  if (mark.synced) to.add(s.wid, ~Mask(0), mark.synced);
  if (mark.at) to.add(s.wid, covered(mark, s, lanes), mark.at);
  if (s.grouped) add_groups(to, s, lanes, v.proxied.at, mark.at);
  if (!v.proxied.set) return;
  to.include_fenced(v.proxied.base.known);
  to.add_fenced(s.wid, ~Mask(0), v.proxied.synced);
  to.add_fenced(s.wid, covered(v.proxied, s, lanes), v.proxied.at);
}
}  // namespace

void Gather::part() {
  if (alike) wide = now;
  alike = false;
}

void Gather::release_only(const WarpState& s, Mask lanes) {
  for_views(s, lanes, [&](const ViewPtr& v, Mask m) {
    if (alike && !(v->now == v->wide)) part();
    collect(now, s, m, *v, v->now);
    if (!alike) collect(wide, s, m, *v, v->wide);
  });
}

void Gather::release(const WarpState& s, Mask lanes) {
  bool firm = all_firm_;
  for_views(s, lanes, [&](const ViewPtr& v, Mask) { firm = firm && !v->any_pending && !v->firm; });
  if (!firm && all_firm_) firm_ = now;
  all_firm_ = firm;
  release_only(s, lanes);
  if (!all_firm_)
    for_views(s, lanes,
              [&](const ViewPtr& v, Mask m) { collect(firm_, s, m, *v, v->firm ? *v->firm : v->now); });
  for_views(s, lanes, [&](const ViewPtr& v, Mask m) {
    // A barrier is taken for the fence that an earlier relaxed read still needs: code that polls in one
    // thread and goes on behind a barrier is everywhere, and works.
    if (v->any_pending) {
      part();
      for (const Clock& p : v->pending) now.include(p);
      wide.include(v->pending_wide);
    }
    if (!v->released_wide.set) return;
    for (std::size_t i = 0; i <= kLevels; ++i) {
      const Mark& mark = i < kLevels ? v->released[i] : v->released_wide;
      if (!mark.set) continue;
      collect(marks_[i], s, m, *v, mark);
      marked_[i] = true;
    }
  });
}

void Gather::release_fenced(const WarpState& s, Mask lanes, Level level) {
  part();
  for_views(s, lanes, [&](const ViewPtr& v, Mask m) {
    if (const Mark& mark = v->released[int(level)]; mark.set) collect(now, s, m, *v, mark);
    if (v->released_wide.set) collect(wide, s, m, *v, v->released_wide);
  });
}

void Gather::include(const Released& r) {
  if (alike && !(r.now == r.wide)) part();
  now.include(r.now);
  if (!all_firm_) firm_.include(r.now);
  if (!alike) wide.include(r.wide);
}

void Gather::add(std::uint32_t warp, Mask mask, std::uint32_t clock) {
  now.add(warp, mask, clock);
  if (!all_firm_) firm_.add(warp, mask, clock);
  if (!alike) wide.add(warp, mask, clock);
}

ViewPtr Gather::finish(const ClusterState& c, const Bases& base) const {
  auto v = std::make_shared<View>();
  v->now = now.finish(c.index, c.ranks, base);
  v->wide = alike || wide == now ? v->now : wide.finish(c.index, c.ranks, base);
  if (!all_firm_ && !(firm_ == now)) v->firm = std::make_shared<Clock>(firm_.finish(c.index, c.ranks, base));
  for (std::size_t i = 0; i <= kLevels; ++i)
    if (marked_[i]) {
      Mark& mark = i < kLevels ? v->released[i] : v->released_wide;
      mark.base = i && marks_[i] == marks_[0] ? v->released[0].base : marks_[i].finish(c.index, c.ranks);
      mark.set = true;
    }
  return v;
}

ReleasedPtr released(const Gather& g, const ClusterState& c) {
  auto r = std::make_shared<Released>();
  r->now = g.now.finish(c.index, c.ranks);
  r->wide = g.alike || g.wide == g.now ? r->now : g.wide.finish(c.index, c.ranks);
  return r;
}

void acquire(WarpState& s, Mask lanes, const ReleasedPtr& r) {
  if (!r) return;
  ClusterState& c = *s.cluster;
  for_views(s, lanes, [&](const ViewPtr& v, Mask m) {
    for (const auto& memo : c.memo)
      if (memo.view == v && memo.released == r) return set_view(s, m, memo.result);
    const Clock now = join(v->now, r->now);
    const Clock wide = v->wide == v->now && r->wide == r->now ? now : join(v->wide, r->wide);
    ViewPtr result = v;
    const Clock firm = v->firm ? join(*v->firm, r->now) : Clock();
    if (!(now == v->now && wide == v->wide && (!v->firm || firm == *v->firm))) {
      auto fresh = std::make_shared<View>(*v);
      fresh->now = now;
      fresh->wide = wide;
      if (v->firm) fresh->firm = std::make_shared<Clock>(firm);
      result = fresh;
    }
    c.memo[c.next_memo++ % c.memo.size()] = {v, r, result};
    if (result != v) set_view(s, m, result);
  });
}

// ---------------------------------------------------------------- lanes of a warp
void on_rendezvous(Warp& w, Mask lanes) {
  WarpState& s = *w.race;
  ClusterState& c = *s.cluster;
  const bool all = lanes == w.live;
  if (s.view.uniform() && !s.group_news) {
    if (all) {
      if (!s.touched) return;
      s.synced = c.now;
      s.touched = s.touched_part = 0;
      c.tick();
      return;
    }
    if (!(s.touched_part & lanes)) return;
  }
  if (!(lanes & (lanes - 1))) return;
  Gather g;
  g.release(s, lanes);
  if (all) {
    s.synced = c.now;
    s.touched = 0;
    s.group_news = false;
  }
  s.touched_part &= ~lanes;
  const ViewPtr v = g.finish(c);
  c.tick();
  set_view(s, lanes, v);
}

// ---------------------------------------------------------------- bar, barrier
namespace {
// Whether an arrival has nothing to tell but the clock: no fences, no groups, one scope like the other.
bool tells_clock_only(const WarpState& s, Mask lanes) {
  if (!s.view.uniform() || lanes != s.warp->live || s.grouped) return false;
  const View& v = *s.view[0];
  return v.now == v.wide && !v.any_pending && !v.firm && !v.released_wide.set && !v.proxied.set;
}

// Makes what was kept in short what release() would have made of it.
void spell_out(BarrierState& b) {
  if (!b.mixed)
    for (const auto& [warp, clock] : b.alike) {
      b.gather.now.include(b.common->now);
      b.gather.now.add(warp, ~Mask(0), clock);
    }
  b.alike.clear();
  b.mixed = true;
}

// All threads have met and knew the same: the block is known up to now.
ViewPtr meet_alike(BarrierState& b, const ClusterState& c, std::uint32_t rank) {
  const Clock& common = b.common->now;
  const Part* before =
      common.known && common.known->parts.size() == 1 ? common.known->find(c.index) : nullptr;
  const bool bases_only = !common.known || (before && before->entries.empty());
  if (kThreadSanitizer || common.fenced || !bases_only) {
    Collector sum;
    sum.include(common);
    auto v = std::make_shared<View>();
    v->now = v->wide = sum.finish(c.index, c.ranks, {{rank, c.now}});
    return v;
  }
  BarrierState::Plain& p = b.plain[b.turn++ % b.plain.size()];
  if (!p.unused()) {
    p = {std::make_shared<View>(), std::make_shared<Knowledge>(), std::make_shared<Part>()};
    p.known->parts.push_back(p.part);
    p.view->now.known = p.view->wide.known = p.known;
    p.part->cluster = c.index;
  }
  std::atomic_thread_fence(std::memory_order_acquire);  // who gave it up may have been another host thread
  if (before)
    p.part->base = before->base;
  else
    p.part->base.assign(c.ranks, 0);
  p.part->raise_base(rank, c.now);
  return p.view;
}
}  // namespace

void barrier_arrive(Warp& w, std::uint32_t id, Mask lanes, bool waits) {
  if (!w.race) return;
  WarpState& s = *w.race;
  BarrierState& b = s.cta->barriers[id];
  if (!b.mixed && waits && tells_clock_only(s, lanes) && (!b.common || b.common == s.view[0])) {
    b.common = s.view[0];
    b.alike.push_back({s.wid, s.cluster->now});
    return;
  }
  if (!b.mixed) spell_out(b);
  b.gather.release(s, lanes);
  if (waits) return;
  b.only_waiters = false;
  s.cluster->tick();
}

void barrier_complete(Cta& cta, std::uint32_t id, bool all_threads) {
  if (!cta.race) return;
  BarrierState& b = cta.race->barriers[id];
  ClusterState& c = *cta.cluster->race;
  if (!b.mixed && all_threads && b.common) {
    b.last = meet_alike(b, c, cta.rank);
    b.alike.clear();
  } else {
    if (!b.mixed) spell_out(b);
    Bases bases;
    if (all_threads && b.only_waiters) bases.push_back({cta.rank, c.now});
    b.last = b.gather.finish(c, bases);
    b.gather = Gather();
    b.only_waiters = true;
  }
  b.mixed = false;
  b.common.reset();
  c.tick();
}

void barrier_leave(Warp& w, std::uint32_t id, Mask lanes) {
  if (!w.race) return;
  const BarrierState& b = w.race->cta->barriers[id];
  if (b.last) set_view(*w.race, lanes, b.last);
}

// ---------------------------------------------------------------- barrier.cluster
void cluster_arrive(Warp& w, Mask lanes, bool relaxed) {
  if (!w.race) return;
  WarpState& s = *w.race;
  ClusterState& c = *s.cluster;
  if (relaxed) {
    c.gather.release_fenced(s, lanes, Level::cluster);
    c.all_release = false;
  } else {
    c.gather.release(s, lanes);
  }
  std::uint32_t& first = c.first_arrival[w.cta->rank];
  if (!first) first = c.now;
  c.tick();
}

void cluster_complete(Cluster& cluster) {
  if (!cluster.race) return;
  ClusterState& c = *cluster.race;
  Bases bases;
  for (std::uint32_t r = 0; r < c.ranks; ++r)
    if (c.all_release && c.first_arrival[r]) bases.push_back({r, c.first_arrival[r]});
  const ViewPtr v = c.gather.finish(c, bases);
  auto last = std::make_shared<Released>();
  last->now = v->now;
  last->wide = v->wide;
  c.last = last;
  c.gather = Gather();
  c.all_release = true;
  std::fill(c.first_arrival.begin(), c.first_arrival.end(), 0);
}

void cluster_leave(Warp& w, Mask lanes, bool relaxed) {
  if (w.race && !relaxed) acquire(*w.race, lanes, w.race->cluster->last);
}

// ---------------------------------------------------------------- mbarrier
namespace {
MbarrierState* state(const Warp& w, const Cta& cta, std::uint32_t offset) {
  return w.race && cta.race ? &cta.race->mbarriers[offset] : nullptr;
}
}  // namespace

void mbarrier_init(Warp& w, const Op& op, int lane, Cta& cta, std::uint32_t offset) {
  MbarrierState* m = state(w, cta, offset);
  if (!m) return;
  *m = MbarrierState();
  m->init = Accessor(*w.race, op, Use::write, lane_bit(lane)).stamp(lane);
}

void mbarrier_use(Warp& w, const Op& op, int lane, Cta& cta, std::uint32_t offset) {
  MbarrierState* m = state(w, cta, offset);
  if (!m || !m->init) return;
  WarpState& s = *w.race;
  std::uint32_t& behind = m->behind[s.wid / kWarpsPerCta];
  const std::uint32_t mine = 1u << s.wid % kWarpsPerCta;
  if (behind & mine) return;
  const Accessor a(s, op, Use::read, lane_bit(lane));
  const std::uint32_t cluster = s.cluster->index;
  const bool ordered = before(a, lane, cluster, m->init);
  if (!ordered) conflict(a, lane, cluster, m->init, Use::write, {true, cta.rank, offset, 8, false});
  // Own lanes are ordered one by one until they have met.
  const bool own_warp = id_of(m->init) >> 5 == s.wid && clock_of(m->init) > s.synced;
  if (!ordered || (s.view.uniform() && !own_warp)) behind |= mine;
}

void mbarrier_arrive(Warp& w, const Op& op, int lane, Cta& cta, std::uint32_t offset) {
  MbarrierState* m = state(w, cta, offset);
  if (!m) return;
  WarpState& s = *w.race;
  const Trait& t = s.cluster->launch->traits[op.inst];
  if (t.release) return m->gather.release_only(s, lane_bit(lane));
  m->gather.release_fenced(s, lane_bit(lane), t.scope);
}

void mbarrier_complete(Warp& w, Cta& cta, std::uint32_t offset) {
  MbarrierState* m = state(w, cta, offset);
  if (!m) return;
  m->last = released(m->gather, *w.race->cluster);
  m->gather = Gather();
  ++m->completed;
}

void copy_issued(Warp& w, const Op& op, int lane, Cta& cta, std::uint32_t offset) {
  if (MbarrierState* m = state(w, cta, offset)) m->unseen = {&w, &op, lane, m->completed};
}

void check_copies_at_exit(Cta& cta) {
  if (!cta.race) return;
  for (const auto& [offset, m] : cta.race->mbarriers)
    if (const MbarrierState::Copy& c = m.unseen; c.op)
      c.warp->report(
          Check::lifetime, "lifetime.shared", *c.op, lane_bit(c.lane),
          "the block ends while this copy into its shared memory may be in flight: nobody has waited "
          "for the phase that it completes, and the next block may own the memory",
          "wait for the last phase of every mbarrier before the block ends, or issue no more copies than "
          "there are waits",
          offset);
}

void mbarrier_acquire(Warp& w, const Op& op, Mask lanes, Cta& cta, std::uint32_t offset) {
  MbarrierState* m = state(w, cta, offset);
  if (m && m->completed > m->unseen.phase) m->unseen = {};
  if (!m || !m->last) return;
  WarpState& s = *w.race;
  if (s.cluster->launch->traits[op.inst].acquire) return acquire(s, lanes, m->last);
  for_views(s, lanes, [&](const ViewPtr& v, Mask same) {
    auto fresh = std::make_shared<View>(*v);
    for (Clock& p : fresh->pending) p = join(p, m->last->now);
    fresh->pending_wide = join(fresh->pending_wide, m->last->wide);
    fresh->any_pending = true;
    set_view(s, same, fresh);
  });
}

void complete_on_mbarrier(Warp& w, Agent agent, Cta& cta, std::uint32_t offset) {
  MbarrierState* m = state(w, cta, offset);
  if (!m || !agent) return;
  m->gather.add(agent.id >> 5, lane_bit(int(agent.id & 31)), agent.clock);
}

namespace {
ReleasedPtr so_far(Warp& w, int lane, std::uint32_t id, std::uint32_t at) {
  Gather g;
  g.release_only(*w.race, lane_bit(lane));
  g.add(id >> 5, lane_bit(int(id & 31)), at);
  return released(g, *w.race->cluster);
}
}  // namespace

ReleasedPtr copies_so_far(Warp& w, int lane) {
  if (!w.race) return nullptr;
  return so_far(w, lane, party(kCopy, w.race->wid << 5 | std::uint32_t(lane)), w.race->cluster->now);
}

ReleasedPtr agent_so_far(Warp& w, int lane, Agent agent) {
  return w.race ? so_far(w, lane, agent.id, agent.clock) : nullptr;
}

void arrive_with(Warp& w, const ReleasedPtr& r, Cta& cta, std::uint32_t offset) {
  MbarrierState* m = state(w, cta, offset);
  if (m && r) m->gather.include(*r);
}

// ---------------------------------------------------------------- fences
void fence(Warp& w, const Op& op) {
  if (!w.race) return;
  WarpState& s = *w.race;
  const int level = int(s.cluster->launch->traits[op.inst].scope);
  for_views(s, w.active, [&](const ViewPtr& v, Mask m) {
    auto fresh = std::make_shared<View>(*v);
    const bool alike = v->now == v->wide;
    // Whichever thread of the block read the flag: such a fence works.
    if (level >= int(Level::gpu)) fresh->firm = nullptr;
    if (v->any_pending) {
      for (int i = 0; i <= level; ++i) {
        fresh->now = join(fresh->now, v->pending[i]);
        fresh->pending[i] = {};
      }
      fresh->wide = join(fresh->wide, v->pending_wide);
      fresh->any_pending = false;
      for (const Clock& p : fresh->pending) fresh->any_pending = fresh->any_pending || p.known;
    }
    if (alike && fresh->now.known == fresh->wide.known) fresh->wide = fresh->now;
    for (int i = 0; i <= level; ++i) fresh->released[i] = {fresh->now, s.synced, s.cluster->now, m, true};
    fresh->released_wide = {fresh->wide, s.synced, s.cluster->now, m, true};
    set_view(s, m, fresh);
  });
  s.cluster->tick();
}

void proxy_fence(Warp& w) {
  if (!w.race) return;
  WarpState& s = *w.race;
  for_views(s, w.active, [&](const ViewPtr& v, Mask m) {
    auto fresh = std::make_shared<View>(*v);
    fresh->proxied = {{v->now.known, nullptr}, s.synced, s.cluster->now, m, true};
    set_view(s, m, fresh);
  });
  s.cluster->tick();
}

}  // namespace cgp::emu::race
