// SPDX-License-Identifier: Apache-2.0
// Synchronisation through memory: release and acquire operations, fences with relaxed (and volatile)
// accesses, release sequences. PTX ISA, "Memory Consistency Model": release and acquire patterns, morally
// strong.
#include <atomic>

#include "cgp/emu/race/race_state.h"

namespace cgp::emu::race {

namespace {
std::uint64_t own_cta(const WarpState& s) {
  return std::uint64_t(s.cluster->index) * 16 + s.wid / kWarpsPerCta;
}

// The block, cluster and device that a location's clocks of each level are kept for.
std::uint64_t group(const WarpState& s, std::size_t level) {
  if (level == std::size_t(Level::cta)) return own_cta(s);
  return level == std::size_t(Level::cluster) ? s.cluster->index : s.cluster->cluster->device;
}
// A level that says no more than its neighbours is not kept: clusters of one block, launches on one device.
bool is_kept(const WarpState& s, std::size_t level) {
  if (level == std::size_t(Level::cluster)) return s.cluster->ranks > 1;
  return level != std::size_t(Level::gpu) || s.cluster->launch->launch->devices.size() > 1;
}

const Clock* find(const std::vector<std::pair<std::uint64_t, Clock>>& v, std::uint64_t key) {
  for (const auto& [k, c] : v)
    if (k == key) return &c;
  return nullptr;
}

void learn_anew(WarpState& s, const Trait& t, int lane, const Location& l) {
  const ViewPtr& v = s.view[std::size_t(lane)];
  // What this thread may see, by the scope that a fence needs to acquire it.
  const Clock* seen[kLevels] = {};
  for (std::size_t i = 0; i < l.within.size() && i <= std::size_t(t.scope); ++i)
    if (is_kept(s, i)) seen[i] = find(l.within[i], group(s, i));
  if (t.scope == Level::system) seen[kLevels - 1] = &l.system;
  Clock now = v->now, wide = v->wide, pending[kLevels], pending_wide = v->pending_wide;
  Clock firm = v->firm ? *v->firm : Clock();
  for (std::size_t i = 0; i < kLevels; ++i) {
    pending[i] = v->pending[i];
    if (seen[i]) (t.acquire ? now : pending[i]) = join(t.acquire ? now : pending[i], *seen[i]);
    if (seen[i] && t.acquire && v->firm) firm = join(firm, *seen[i]);
  }
  (t.acquire ? wide : pending_wide) = join(t.acquire ? wide : pending_wide, l.wide);
  bool same =
      now == v->now && wide == v->wide && pending_wide == v->pending_wide && (!v->firm || firm == *v->firm);
  for (std::size_t i = 0; i < kLevels; ++i) same = same && pending[i] == v->pending[i];
  if (same) return;
  auto fresh = std::make_shared<View>(*v);
  fresh->now = now;
  if (v->firm) fresh->firm = std::make_shared<Clock>(firm);
  fresh->wide = now.known == wide.known ? now : wide;
  for (std::size_t i = 0; i < kLevels; ++i) fresh->pending[i] = pending[i];
  fresh->pending_wide = pending_wide;
  fresh->any_pending = fresh->any_pending || !t.acquire;
  set_view(s, lane_bit(lane), fresh);
}

// Who polls meets the same location again and again.
void learn(WarpState& s, const Trait& t, int lane, const Location& l) {
  if (!s.learned) s.learned = std::make_unique<std::array<WarpState::Learned, kLanes>>();
  WarpState::Learned& last = (*s.learned)[std::size_t(lane)];
  const ViewPtr& v = s.view[std::size_t(lane)];
  if (last.view == v && last.version == l.version && last.scope == t.scope && last.acquire == t.acquire)
    return;
  learn_anew(s, t, lane, l);
  last = {s.view[std::size_t(lane)], l.version, t.scope, t.acquire};
}

Clock mark_clock(const WarpState& s, int lane, const View& v, const Mark& m) {
  Collector c;
  c.include(m.base);
  if (m.synced) c.add(s.wid, ~Mask(0), m.synced);
  if (m.at) c.add(s.wid, m.covered(lane, s.synced), m.at);
  if (s.grouped) add_groups(c, s, lane_bit(lane), v.proxied.at, m.at);
  if (v.proxied.set) {
    c.include_fenced(v.proxied.base.known);
    c.add_fenced(s.wid, ~Mask(0), v.proxied.synced);
    c.add_fenced(s.wid, v.proxied.covered(lane, s.synced), v.proxied.at);
  }
  return c.finish(s.cluster->index, s.cluster->ranks);
}

// What the lane's last fences cover: by scope, and (kLevels) by any.
const std::array<Clock, kLevels + 1>& fenced(WarpState& s, int lane) {
  if (!s.fenced) s.fenced = std::make_unique<std::array<WarpState::Fenced, kLanes>>();
  WarpState::Fenced& f = (*s.fenced)[std::size_t(lane)];
  const ViewPtr& v = s.view[std::size_t(lane)];
  if (f.view == v && f.synced == s.synced) return f.clock;
  f.view = v;
  f.synced = s.synced;
  f.clock = {};
  for (std::size_t i = kLevels; i-- > 0;) {
    if (!v->released[i].set) continue;
    const bool as_wider = i + 1 < kLevels && v->released[i + 1].set &&
                          v->released[i].at == v->released[i + 1].at &&
                          v->released[i].base == v->released[i + 1].base;
    f.clock[i] = as_wider ? f.clock[i + 1] : mark_clock(s, lane, *v, v->released[i]);
  }
  if (v->released_wide.set)
    f.clock[kLevels] =
        v->released_wide.base == v->released[0].base && v->released_wide.at == v->released[0].at
            ? f.clock[0]
            : mark_clock(s, lane, *v, v->released_wide);
  return f.clock;
}

std::uint64_t next_version() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

// Whether `to` did not say so before.
bool add(Clock& to, const Clock& c) {
  const Clock sum = join(to, c);
  if (sum == to) return false;
  to = sum;
  return true;
}

bool put(std::vector<std::pair<std::uint64_t, Clock>>& v, std::uint64_t key, const Clock& c) {
  for (auto& [k, old] : v)
    if (k == key) return add(old, c);
  v.push_back({key, c});
  return true;
}

// A strong write to global memory; `behind_fence`: it published what a fence of `scope` covered.
void note_write(WarpState& s, const Trait& t, int lane, std::uint32_t clock, std::uint64_t key,
                bool behind_fence, Level scope) {
  LaunchState& l = *s.cluster->launch;
  const std::lock_guard lock(l.observed_mutex);
  if (!t.rmw) l.observed.erase(key);
  if (!behind_fence) return;
  Observed& o = l.observed[key];
  const std::uint64_t thread =
      std::uint64_t(s.cluster->index) << kIdBits | (s.wid << 5 | std::uint32_t(lane));
  o.writes[thread] = {clock, ++o.count, scope};
}

void note_read(WarpState& s, const Trait& t, int lane, std::uint32_t clock, std::uint64_t key) {
  LaunchState& l = *s.cluster->launch;
  const std::lock_guard lock(l.observed_mutex);
  const auto it = l.observed.find(key);
  if (it == l.observed.end()) return;
  Observed& o = it->second;
  const std::uint32_t id = s.wid << 5 | std::uint32_t(lane);
  for (const Observed::Read& r : o.reads)
    if (r.cluster == s.cluster->index && r.id == id && r.number == o.count && r.scope == t.scope) return;
  if (o.reads.size() == Observed::kMostReads) o.reads.pop_front();
  o.reads.push_back({s.cluster->index, id, clock, o.count, t.scope});
}

Level widest(const std::array<Clock, kLevels + 1>& out) {
  std::size_t i = kLevels - 1;
  while (i && !out[i].known) --i;
  return Level(i);
}

void publish(WarpState& s, const Trait& t, int lane, std::uint32_t clock, Locations& at, std::uint64_t key) {
  std::array<Clock, kLevels + 1> out;  // by level; in any scope
  Clock& any = out[kLevels];
  const ViewPtr& v = s.view[std::size_t(lane)];
  if (t.release) {
    const Mark now{v->now, s.synced, s.cluster->now, 0, true},
        wide{v->wide, s.synced, s.cluster->now, 0, true};
    out[0] = mark_clock(s, lane, *v, now);
    any = v->now == v->wide ? out[0] : mark_clock(s, lane, *v, wide);
    for (std::size_t i = 1; i <= std::size_t(t.scope); ++i) out[i] = out[0];
    s.cluster->tick();
  } else if (v->released_wide.set) {
    out = fenced(s, lane);
    for (std::size_t i = std::size_t(t.scope) + 1; i < kLevels; ++i) out[i] = {};
  }
  if (&at == &s.cluster->launch->locations)
    note_write(s, t, lane, clock, key, !t.release && any.known, widest(out));
  if (!any.known) {
    // A plain relaxed store ends what earlier writes published; an atomic continues it.
    if (!t.rmw) at.erase(key);
    return;
  }
  Location& l = at[key];
  bool news = !t.rmw;
  if (!t.rmw) l.system = l.wide = {};
  if (out[kLevels - 1].known) news = add(l.system, out[kLevels - 1]) || news;
  news = add(l.wide, any) || news;
  for (std::size_t i = 0; i < l.within.size(); ++i) {
    if (!t.rmw) l.within[i].clear();
    if (out[i].known && is_kept(s, i)) news = put(l.within[i], group(s, i), out[i]) || news;
  }
  if (news) l.version = next_version();
}
}  // namespace

void synchronise(WarpState& s, const Trait& t, Use use, int lane, std::uint32_t clock, Locations& at,
                 std::uint64_t key) {
  if (use != Use::write)
    if (const auto it = at.find(key); it != at.end()) {
      learn(s, t, lane, it->second);
      if (&at == &s.cluster->launch->locations) note_read(s, t, lane, clock, key);
    }
  if (use != Use::read) publish(s, t, lane, clock, at, key);
}

bool observed(const Accessor& a, int lane, std::uint32_t cluster, Stamp x, std::uint64_t address) {
  LaunchState& l = *a.s.cluster->launch;
  const std::lock_guard lock(l.observed_mutex);
  const std::uint32_t me = a.s.wid << 5 | std::uint32_t(lane);
  for (const std::uint64_t key : {address, address & ~std::uint64_t(3), address & ~std::uint64_t(7)}) {
    const auto o = l.observed.find(key);
    if (o == l.observed.end()) continue;
    const auto w = o->second.writes.find(std::uint64_t(cluster) << kIdBits | id_of(x));
    if (w == o->second.writes.end() || w->second.clock != clock_of(x)) continue;
    for (const Observed::Read& r : o->second.reads) {
      const Level scope = std::min(r.scope, w->second.scope);
      if (r.number < w->second.number) continue;
      if (scope < Level::system && !l.same_device(r.cluster, cluster)) continue;
      if (scope < Level::gpu && r.cluster != cluster) continue;
      if (scope < Level::cluster && r.id >> 10 != id_of(x) >> 10) continue;
      // The own read comes before this access in program order, and the write before the read in observation order: that is
      // causality order, whether or not the read acquires anything else.
      if (r.cluster == a.s.cluster->index && r.id == me) return true;
      if (before(a, lane, r.cluster, make_stamp(r.clock, r.id, 0))) return true;
    }
  }
  return false;
}

void Section::enter(Warp& w, const Op& op) {
  LaunchState& l = *w.race->cluster->launch;
  if (!l.orders || !l.traits[op.inst].strong) return;
  if (op.where != Where::global && op.where != Where::generic) return;
  mutex_ = &l.strong;
  mutex_->lock();
}
void Section::leave() { mutex_->unlock(); }

}  // namespace cgp::emu::race
