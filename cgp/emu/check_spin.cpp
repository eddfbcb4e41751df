// SPDX-License-Identifier: Apache-2.0
// Warps that run without getting anywhere.
#include "cgp/emu/machine_impl.h"

namespace cgp::emu {

void note_changes(Warp& w, int count, int bytes, int cell, const Loc* rows, std::byte* const* to,
                  Mask lanes) {
  for (int i = 0; i < count && !w.changed; ++i)
    for_lanes(lanes, [&](int l) {
      std::uint64_t v = cell == 32 ? w.row<std::uint32_t>(rows[i])[l] : w.row<std::uint64_t>(rows[i])[l];
      if (cell == 128 || std::memcmp(to[l] + i * bytes, &v, std::size_t(bytes)) != 0) w.changed = true;
    });
}

}  // namespace cgp::emu
