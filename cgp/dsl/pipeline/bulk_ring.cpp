// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/pipeline/bulk_ring.h"

#include <bit>

namespace cgp::dsl {
namespace {

void init_barriers(Kernel& k, int first, int count, int arrivals, Here at) {
  auto cta = k.cta();
  cta.one_thread(
      [&](Thread&) {
        for (int i = 0; i < count; ++i)
          record::mbarrier_init(k, {k.smem_addr(first, at), i * 8}, Val<u32>(arrivals), at);
        record::fence_mbarrier_init(k, at);
      },
      at);
}

}  // namespace

BulkRing::BulkRing(Kernel& k, int stages, int stage_bytes, int arrivals, Here at)
    : k_(k),
      stages_(stages),
      stage_bytes_(stage_bytes),
      data_(k.smem(stages * stage_bytes, 128, at)),
      full_(k.smem(stages * 8, 8, at)) {
  init_barriers(k, full_, stages, arrivals, at);
  k.sync(at);
}

BulkRing::BulkRing(Warp& warp, int warps, int stages, int stage_bytes, Here at)
    : k_(warp.k),
      stages_(stages),
      stage_bytes_(stage_bytes),
      data_(k_.smem(warps * stages * stage_bytes, 128, at)),
      full_(k_.smem(warps * stages * 8, 8, at)),
      first_stage_(k_.smem_addr(data_) + warp.index * std::uint32_t(stages * stage_bytes)),
      first_barrier_(k_.smem_addr(full_) + warp.index * std::uint32_t(stages * 8)) {
  warp.one_thread(
      [&](Thread&) {
        for (int i = 0; i < stages; ++i) record::mbarrier_init(k_, {*first_barrier_, i * 8}, Val<u32>(1), at);
        record::fence_mbarrier_init(k_, at);
      },
      at);
  warp.sync(at);
}

record::SharedAddress BulkRing::barrier(const Val<u32>& stage) const {
  const auto first = first_barrier_.value_or(k_.smem_addr(full_));
  if (stages_ == 1) return {first, 0};
  return {Val<u32>(first + stage * 8), 0};
}

void BulkRing::expect(const Val<u32>& stage, const Val<u32>& bytes, Here at) const {
  record::mbarrier_arrive_expect_tx(k_, barrier(stage), bytes, at);
}

void BulkRing::wait(const Cursor& c, Here at) const {
  record::mbarrier_wait(k_, barrier(c.stage_), c.parity_, false, at);
}

BulkRing::Cursor BulkRing::next(const Cursor& c) const {
  const auto wrap = c.stage_ + 1 == std::uint32_t(stages_);
  return Cursor{select(wrap, Val<u32>(0), c.stage_ + 1), select(wrap, c.parity_ ^ 1, c.parity_)};
}

Val<u32> BulkRing::previous(const Cursor& c) const {
  return select(c.stage_ == 0, Val<u32>(stages_ - 1), c.stage_ - 1);
}

ExchangeBarriers::ExchangeBarriers(Kernel& k, int count, Here at)
    : k_(k), count_(count), first_(k.smem(count * 8, 8, at)) {
  if (count < 1 || !std::has_single_bit(unsigned(count)))
    throw BuildError("exchanges rotate over a power of two of barriers", at, text::cat("got ", count));
  init_barriers(k, first_, count, 1, at);
  auto cta = k.cta();
  cluster_sync(cta, at);  // also: the peers run, so their shared memory may be written
}

ExchangeBarriers::Barrier ExchangeBarriers::at(const Exchange& i) const {
  const Val<u32> first = k_.smem_addr(first_);
  return Barrier(i ? first + (*i & std::uint32_t(count_ - 1)) * 8 : first);
}

void ExchangeBarriers::wait(const Exchange& i, Here at) const {
  const Val<u32> parity =
      i ? *i >> std::uint32_t(std::countr_zero(unsigned(count_))) : Val<u32>(0);  // the lowest bit counts
  record::mbarrier_wait(k_, {this->at(i).address_, 0}, parity, true, at);
}

void ExchangeBarriers::Barrier::expect(Thread& t, const Val<u32>& bytes, Here at) const {
  record::mbarrier_arrive_expect_tx(t.k, {address_, 0}, bytes, at);
}

PeerBarrier ExchangeBarriers::Barrier::of_block(const Val<u32>& rank, Here at) const {
  return {Val<u32>(record::mapa(*address_.kernel(), address_, rank, at))};
}

}  // namespace cgp::dsl
