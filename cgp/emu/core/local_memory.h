// SPDX-License-Identifier: Apache-2.0
#pragma once
// The stacks of a warp's lanes: Warp::local holds their bytes, lane after lane, and behind them one more byte
// for each, that says whether it was written.
#include <algorithm>
#include <cstring>

#include "cgp/emu/core/machine_impl.h"

namespace cgp::emu {

/// The buffer that findings in local memory name.
inline constexpr std::string_view kLocalBuffer = "local memory";

inline std::byte* local_marks(const Warp& w, int lane, std::uint64_t at) {
  return w.local.get() + (std::size_t(kLanes) + std::size_t(lane)) * w.local_stride + at;
}
inline void mark_local(Warp& w, int lane, std::uint64_t at, std::uint64_t bytes, bool written = true) {
  if (bytes) std::memset(local_marks(w, lane, at), written, bytes);
}
inline bool marked_local(const Warp& w, int lane, std::uint64_t at, std::uint64_t bytes) {
  return !bytes || !std::memchr(local_marks(w, lane, at), 0, bytes);
}
/// What counts as written of an element: any of its bytes, since compilers copy the padding of structures
/// along.
inline bool partly_marked_local(const Warp& w, int lane, std::uint64_t at, std::uint64_t bytes) {
  return at + bytes > w.local_stride || std::memchr(local_marks(w, lane, at), 1, bytes);
}
/// is_written() for what `lane` sees at `addr`: in local memory, partly.
bool is_written_for(Warp& w, int lane, Where where, std::uint64_t addr, std::uint64_t bytes);

}  // namespace cgp::emu
