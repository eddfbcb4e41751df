// SPDX-License-Identifier: Apache-2.0
#pragma once
// The threads of a row agree on its statistics: shuffles in a warp, slots in shared memory between the warps
// of a block, asynchronous stores into the slots of the other blocks of a cluster. Rows use sets of slots in
// rotation: two sets (between blocks four with overlap_exchange), so that one barrier a row is enough.
#include <functional>
#include <optional>

#include "cgp/dsl/pipeline/bulk_ring.h"
#include "cgp/kernels/row/row_kernel.h"

namespace cgp::kernels::row {

class RowExchange {
 public:
  /// The number of a row that this block visits, as next() counts; nothing: there is one row.
  using Visit = std::optional<Val<u32>>;
  /// `fold` may be null: then there is nothing to exchange.
  RowExchange(Kernel& k, const RowConfig& c, const Fold* fold);
  /// `all_arrived` is recorded where every thread of the block has come here.
  Stat operator()(const Stat& own, const Visit& visit, const std::function<void()>& all_arrived) const;
  /// In a cluster the same in two steps; the next row may be sent before this one is received.
  void send(const Stat& own, const Visit& visit, const std::function<void()>& all_arrived) const;
  Stat receive(const Visit& visit) const;
  Val<u32> next(const Val<u32>& visit) const { return (visit + 1) & (2 * peer_sets() - 1); }

 private:
  Stat in_block(dsl::Warp& w, const Stat& of_warp, const Visit& visit,
                const std::function<void()>& all_arrived) const;
  std::uint32_t peer_sets() const { return c_.overlap_exchange ? 4 : 2; }
  /// This row's among `sets` sets of slots.
  Ptr<dsl::shared, f32> set(int offset, int size, std::uint32_t sets, const Visit& visit) const;
  Kernel& k_;
  const RowConfig& c_;
  const Fold* fold_;
  int size_ = 0, warps_ = 1;
  int slots_ = 0, peer_slots_ = 0;  // offsets in shared memory
  std::optional<dsl::ExchangeBarriers> barriers_;
};

}  // namespace cgp::kernels::row
