// SPDX-License-Identifier: Apache-2.0
#pragma once
// The threads of a row agree on its statistics: shuffles in a warp, slots in shared memory between the warps
// of a block, asynchronous stores into the slots of the other blocks of a cluster. Slots are used in turn by
// two sets (between blocks four where rows lag), so that one barrier a row is enough.
#include <functional>
#include <optional>

#include "cgp/kernels/row/row_kernel.h"

namespace cgp::kernels::row {

class RowExchange {
 public:
  /// `fold` may be null: then there is nothing to exchange.
  RowExchange(Kernel& k, const RowTuning& t, const Fold* fold);
  /// `turn` counts the rows of this block modulo turns() (nothing: there is one). `all_here` is recorded
  /// where every thread of the block has come here.
  Stat operator()(const Stat& mine, const std::optional<Val<u32>>& turn,
                  const std::function<void()>& all_here) const;
  /// In a cluster the same in two steps; the next row may be sent before this one is received.
  void send(const Stat& mine, const std::optional<Val<u32>>& turn,
            const std::function<void()>& all_here) const;
  Stat receive(const std::optional<Val<u32>>& turn) const;
  std::uint32_t turns() const { return 2 * peer_sets(); }

 private:
  Stat in_block(dsl::Warp& w, const Stat& of_warp, const std::optional<Val<u32>>& turn,
                const std::function<void()>& all_here) const;
  std::uint32_t peer_sets() const { return t_.lag ? 4 : 2; }
  /// This row's among `sets` sets of slots.
  Ptr<dsl::shared, f32> set(int offset, int size, std::uint32_t sets,
                            const std::optional<Val<u32>>& turn) const;
  Val<u32> barrier(const std::optional<Val<u32>>& turn) const;
  Kernel& k_;
  const RowTuning& t_;
  const Fold* fold_;
  int size_ = 0, warps_ = 1;
  int slots_ = 0, peer_slots_ = 0, barriers_ = 0;  // offsets in shared memory
};

}  // namespace cgp::kernels::row
