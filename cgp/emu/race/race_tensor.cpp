// SPDX-License-Identifier: Apache-2.0
#include "cgp/emu/race/race_tensor.h"

#include <algorithm>

#include "cgp/emu/race/race_state.h"

namespace cgp::emu::race {

namespace {
// One column of 16 lanes: what ld and st of 16 lanes, and the halves of M = 64, can tell apart.
constexpr int kRows = 16, kGroups = 8, kColumns = 512;

struct Cell {
  static constexpr std::size_t kReaders = 6;
  Stamp write = 0;
  std::array<Stamp, kReaders> read{};  // the last of each party since the write
};

struct TensorShadow {
  std::vector<Cell> cells = std::vector<Cell>(std::size_t(kGroups * kColumns));
};
TensorShadow& shadow(Cta& cta) {
  return state_of<TensorShadow>(cta, std::uint32_t(ptx::Family::tcgen05) + 128);
}

void note_read(Cell& c, Stamp s) {
  Stamp* oldest = &c.read[0];
  for (Stamp& r : c.read) {
    if (!r || id_of(r) == id_of(s)) {
      r = s;
      return;
    }
    if (clock_of(r) < clock_of(*oldest)) oldest = &r;
  }
  *oldest = s;
}
}  // namespace

namespace {
struct TensorFences {
  std::array<ViewPtr, kLanes> after;  // what each lane knew at its last fence
  struct Before {
    std::uint32_t clock;
    Mask lanes;
  };
  std::vector<Before> before;  // oldest first
  bool dropped = false;        // there were older ones
};
constexpr std::size_t kFencesKept = 512;

TensorFences& fences_of(Warp& w) {
  return state_of<TensorFences>(w, std::uint32_t(ptx::Family::tcgen05) + 160);
}

// The warp whose loads or stores an agent stands for; nullptr for the tensor unit.
Warp* transfer_warp(ClusterState& c, std::uint32_t id) {
  const std::uint32_t unit = id & 1023, rank = (id & kLowMask) >> 10;
  if (kind_of(id) != kUnit || unit < kTensorLoads) return nullptr;
  return c.ctas[rank]->cta->warps[(unit - kTensorLoads) % 32].get();
}

// Whether a `before` fence of `by` that `view` knows of followed the operation stamped `x`.
bool fenced_before(Warp& by, const WarpState& s, const View& view, Stamp x) {
  const TensorFences& f = fences_of(by);
  auto at =
      std::lower_bound(f.before.begin(), f.before.end(), clock_of(x),
                       [](const TensorFences::Before& b, std::uint32_t clock) { return b.clock < clock; });
  if (f.dropped && at == f.before.begin()) return true;
  for (; at != f.before.end(); ++at)
    if (known_lanes(view.now.known, s.cluster->index, by.race->wid, at->clock) & at->lanes) return true;
  return false;
}

enum class Fences { fine, no_after, no_before };

// What the warp lacks to rely on the access stamped `x`, which happens before. The fence of any lane counts
// for all: who waits and who issues are often two lanes with a rendezvous between them.
Fences thread_fences(Warp& w, Stamp x) {
  WarpState& s = *w.race;
  Warp* const by = transfer_warp(*s.cluster, id_of(x));
  if (by == &w) return Fences::fine;
  bool after = false;
  const View* last = nullptr;
  for (const ViewPtr& v : fences_of(w).after) {
    if (!v || v.get() == last) continue;
    last = v.get();
    if (known(v->now.known, s.cluster->index, id_of(x)) < clock_of(x)) continue;
    if (!by || fenced_before(*by, s, *v, x)) return Fences::fine;
    after = true;
  }
  return after ? Fences::no_before : Fences::no_after;
}
}  // namespace

void tensor_fence(Warp& w, bool after) {
  if (!w.race) return;
  WarpState& s = *w.race;
  TensorFences& f = fences_of(w);
  if (after) return for_lanes(w.active, [&](int l) { f.after[std::size_t(l)] = s.view[std::size_t(l)]; });
  if (!f.before.empty() && f.before.back().clock == s.cluster->now) {
    f.before.back().lanes |= w.active;
    return;
  }
  if (f.before.size() == kFencesKept) {
    f.before.erase(f.before.begin(), f.before.begin() + kFencesKept / 2);
    f.dropped = true;
  }
  f.before.push_back({s.cluster->now, w.active});
}

void tensor_access(Warp& w, const Op& op, int lane, Agent agent, Cta& cta, const TensorRange& r, Use use) {
  if (!w.race) return;
  WarpState& s = *w.race;
  Accessor a(s, op, use, lane_bit(lane));
  if (agent) {
    a.agent = true;
    a.id_base = agent.id;
    a.id_step = 0;
    a.in_order = agent.in_order;
    a.clock = agent.clock;
  }
  a.proxy = Proxy::async;
  const Stamp mine = a.stamp(lane);
  TensorShadow& t = shadow(cta);
  Stamp ordered = 0;  // neighbours mostly have the same history
  const auto check = [&](Stamp x, Use other, int group, int column) {
    if (!x || x == ordered) return;
    Spot spot;
    spot.tensor = true;
    spot.rank = cta.rank;
    spot.address = std::uint64_t(group * kRows) << 16 | std::uint64_t(column);
    if (!before(a, lane, s.cluster->index, x)) return conflict(a, lane, s.cluster->index, x, other, spot);
    ordered = x;
    if (!agent || id_of(x) == agent.id) return;
    const Fences fences = thread_fences(w, x);
    if (fences != Fences::fine)
      missing_thread_fence(a, lane, s.cluster->index, x, other, spot, fences == Fences::no_after);
  };
  for (int g = r.lane / kRows; g * kRows < r.lane + r.lanes; ++g)
    for (int c = r.column; c < r.column + r.columns; ++c) {
      Cell& cell = t.cells[std::size_t(g * kColumns + c)];
      check(cell.write, Use::write, g, c);
      if (use == Use::read) {
        note_read(cell, mine);
        continue;
      }
      for (Stamp x : cell.read) check(x, Use::read, g, c);
      cell.write = mine;
      cell.read = {};
    }
}

void tensor_allocated(Cta& cta, int column, int columns) {
  TensorShadow& t = shadow(cta);
  for (int g = 0; g < kGroups; ++g) std::fill_n(t.cells.begin() + g * kColumns + column, columns, Cell{});
}

}  // namespace cgp::emu::race
