// SPDX-License-Identifier: Apache-2.0
#pragma once
// AsyncStages: stages in shared memory that a warp fills by cp.async, as many tiles ahead as there are stages, and
// reads again (alone, or with the warps beside it). It is AsyncRing for warps that go on by themselves: which stage
// comes next, and for how many groups of copies to wait, are derived.
//   AsyncStages ring(k, base, stages, bytes);
//   for (int s = 0; s < ring.stages(); ++s) copy tile s to ring.stage(s), cp_async_commit
//   ring.loop(range(first, end, step), state, next, meet, body, refill)
#include <tuple>

#include "cgp/dsl/pipeline/async.h"

namespace cgp::dsl {

class AsyncStages {
 public:
  /// `stages` times `bytes` bytes at shared address `base`.
  AsyncStages(Kernel& k, const Val<u32>& base, int stages, int bytes)
      : k_(k), base_(base), stages_(stages), bytes_(bytes) {}
  int stages() const { return stages_; }
  const Val<u32>& base() const { return base_; }
  Val<u32> stage(int s) const { return base_ + std::uint32_t(s * bytes_); }

  /// For each tile:
  ///   next(tile) -> {the tile that takes this stage's place, what the one behind it needs}, before the wait
  ///   meet()     the warps that read the stage have come together: its copies have landed, later its reads
  ///   body(offset, tile, state) -> state; `offset` is that of the stage, in bytes from the first
  ///   refill(tile, x, address)  issues the copies and commits them; x is what next() said an iteration before
  /// `first` is x of the first iteration. Each iteration commits one group of copies, an empty one too.
  template <class S, class X, class Next, class Meet, class Body, class Refill>
  S loop(const Range<mod::u32>& tiles, S init, const X& first, Next&& next, Meet&& meet, Body&& body,
         Refill&& refill) {
    auto done =
        k_.loop(tiles, std::tuple(std::move(init), Val<u32>(0), first),
                [&](Val<u32> tile, std::tuple<S, Val<u32>, X> now) {
                  const auto offset = std::get<1>(now);
                  const auto [later, x] = next(tile);
                  cp_async_wait(k_, stages_ - 1);
                  meet();
                  auto state = body(offset, tile, std::move(std::get<0>(now)));
                  meet();
                  refill(later, std::get<2>(now), base_ + offset);
                  const auto after = offset + std::uint32_t(bytes_);
                  return std::tuple(std::move(state),
                                    select(after == std::uint32_t(stages_ * bytes_), Val<u32>(0), after), x);
                });
    cp_async_wait_all(k_);
    return std::get<0>(std::move(done));
  }

 private:
  Kernel& k_;
  Val<u32> base_;
  int stages_, bytes_;
};

}  // namespace cgp::dsl
