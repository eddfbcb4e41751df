// SPDX-License-Identifier: Apache-2.0
// The readers of global memory for which a word has no place: a short list per 32 units, in entries that hold
// a whole warp's access.
#include "cgp/emu/race/race_state.h"

namespace cgp::emu::race {

namespace {
constexpr std::uint32_t kSample = 8;  // of readers beyond kMost one in so many gets a place
constexpr std::size_t kLook = 4;      // newest entries that a new one may join
constexpr std::uint8_t kOneLane = 5;  // LaneMap::shift: all units are of lane `first`

// Makes `map` say that `unit` is of `lane`, besides `known`, of which it says so already.
bool fit(LaneMap& map, std::uint32_t known, std::uint32_t unit, std::uint32_t lane) {
  if (map.lane(unit) == lane) return true;
  if (known & (known - 1)) return false;
  const auto other = std::uint32_t(std::countr_zero(known));
  const std::uint32_t others_lane = map.lane(other);
  for (std::uint8_t shift = 0; shift < kOneLane; ++shift) {
    const LaneMap m{shift, std::uint8_t((lane - (unit >> shift)) & 31), 0};
    if (m.lane(other) != others_lane) continue;
    map = m;
    return true;
  }
  return false;
}
}  // namespace

void OlderReaders::add(const RowMark& mark, std::uint32_t units) {
  if (list.size() == kMost && ++turn % kSample) return;
  for (std::size_t i = list.size(); i-- > 0 && i + kLook >= list.size();) {
    Reader& r = list[i];
    if (r.mark.cluster != mark.cluster || r.mark.warp != mark.warp || r.mark.map != mark.map) continue;
    if (r.mark.clock == mark.clock && r.mark.inst == mark.inst) {
      r.units |= units;
      return;
    }
    if (r.mark.clock <= mark.clock && !(r.units & ~units)) {  // the same lanes, later
      r = {mark, units};
      return;
    }
  }
  if (list.size() < kMost)
    list.push_back({mark, units});
  else
    list[kMost / 2 + turn / kSample % (kMost / 2)] = {mark, units};
}

void OlderReaders::join(const RowMark& mark, std::uint32_t units) {
  if (!list.empty()) {
    Reader& r = list.back();
    if (r.mark.cluster == mark.cluster && r.mark.warp == mark.warp && r.mark.clock == mark.clock &&
        r.mark.inst == mark.inst && r.mark.map == mark.map) {
      r.units |= units;
      return;
    }
  }
  if (list.size() < kMost)
    list.push_back({mark, units});
  else if (++turn % kSample == 0)
    list[kMost / 2 + turn / kSample % (kMost / 2)] = {mark, units};
}

void OlderReaders::add(std::uint32_t unit, std::uint32_t cluster, Stamp x) {
  const std::uint32_t bit = std::uint32_t(1) << unit, lane = id_of(x) & 31;
  const RowMark mark{clock_of(x), inst_of(x), cluster, std::uint16_t(id_of(x) >> 5),
                     LaneMap{kOneLane, std::uint8_t(lane), 0}};
  if (!list.empty()) {
    Reader& r = list.back();
    if (r.mark.cluster == cluster && r.mark.warp == mark.warp && r.mark.clock == mark.clock &&
        r.mark.inst == mark.inst && fit(r.mark.map, r.units, unit, lane)) {
      r.units |= bit;
      return;
    }
  }
  add(mark, bit);
}

bool GlobalPage::has_more(std::uint32_t first, std::uint32_t count) const {
  for (std::uint32_t u = first; !more.empty() && u < first + count; u = (u / 32 + 1) * 32)
    if (!more[u / 32].list.empty()) return true;
  return false;
}

}  // namespace cgp::emu::race
