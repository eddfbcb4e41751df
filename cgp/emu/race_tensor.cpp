// SPDX-License-Identifier: Apache-2.0
#include "cgp/emu/race_tensor.h"

#include <algorithm>

#include "cgp/emu/race_state.h"

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
    if (before(a, lane, s.cluster->index, x)) {
      ordered = x;
      return;
    }
    Spot spot;
    spot.tensor = true;
    spot.rank = cta.rank;
    spot.address = std::uint64_t(group * kRows) << 16 | std::uint64_t(column);
    conflict(a, lane, s.cluster->index, x, other, spot);
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
