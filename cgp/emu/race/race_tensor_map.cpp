// SPDX-License-Identifier: Apache-2.0
// Tensor maps that a kernel changes: the copies that use them read through a proxy of their own.
// PTX ISA, "fence.proxy": .tensormap::generic.acquire. Whoever uses a changed map needs the fence between the
// change and the use, in its own thread or in one that it has synchronised with.
#include <algorithm>

#include "cgp/emu/race/race_state.h"

namespace cgp::emu::race {

void map_fence(Warp& w, const Op&, const std::uint64_t* address) {
  if (!w.race) return;
  WarpState& s = *w.race;
  ClusterState& c = *s.cluster;
  for_views(s, w.active, [&](const ViewPtr& v, Mask left) {
    while (left) {
      const std::uint64_t at = address[std::countr_zero(left)];
      Mask same = 0;
      for_lanes(left, [&](int l) { same |= address[l] == at ? lane_bit(l) : 0; });
      left &= ~same;
      // What lanes know only grows: the newest fence says all that their earlier ones did.
      std::erase_if(c.map_fences, [&](MapFence& f) {
        if (f.address == at && f.wid == s.wid) f.lanes &= ~same;
        return f.lanes == 0;
      });
      c.map_fences.push_back({at, v, s.wid, s.synced, c.now, same});
    }
  });
  s.touched |= w.active, s.touched_part |= w.active;
  c.tick();
}

void map_use(Warp& w, const Op& op, int lane, std::uint64_t address, std::uint32_t bytes) {
  if (!w.race) return;
  WarpState& s = *w.race;
  s.touched |= lane_bit(lane), s.touched_part |= lane_bit(lane);
  Accessor a(s, op, Use::read, lane_bit(lane));
  std::uint64_t all[kLanes];
  std::fill_n(all, kLanes, address);
  a.proxy = Proxy::tensor_map;
  a.addr = all;
  a.bytes = bytes;
  global_range(a, lane, address, bytes);
}

}  // namespace cgp::emu::race
