// SPDX-License-Identifier: Apache-2.0
#pragma once
// Stages in shared memory that bulk copies fill, addressed at run time: the body of a loop over rows is
// recorded once, whatever the number of stages. Each stage has a barrier that counts bytes; that a stage may
// be filled again is known from the exchange between the row's warps.
#include "cgp/dsl/pipeline/tma.h"
#include "cgp/kernels/row/row_kernel.h"

namespace cgp::kernels::row {

class BulkRing {
 public:
  BulkRing(Kernel& k, int stages, int stage_bytes)
      : k_(k),
        stage_bytes_(stage_bytes),
        data_(k.smem(stages * stage_bytes, 128)),
        full_(k.smem(stages * 8, 8)) {
    auto cta = k.cta();
    cta.one_thread([&](dsl::Thread&) {
      for (int s = 0; s < stages; ++s)
        dsl::record::mbarrier_init(k, {k.smem_addr(full_), s * 8}, Val<u32>(1), Here::now());
      dsl::record::fence_mbarrier_init(k, Here::now());
    });
    k.sync();
  }
  /// Announces the bytes of a stage's next filling; copies follow.
  void expect(dsl::Thread&, const Val<u32>& stage, const Val<u32>& bytes) const {
    dsl::record::mbarrier_arrive_expect_tx(k_, bar(stage), bytes, Here::now());
  }
  /// `bytes` bytes (a multiple of 16) from `from` to `offset` bytes into the stage.
  void copy(dsl::Thread&, const Val<u32>& stage, int offset, const In<b8>& from,
            const Val<u32>& bytes) const {
    const auto to = this->stage(stage, offset);
    dsl::record::bulk_load(k_, {to.base(), int(to.offset())}, {from.base(), from.offset()}, bytes, bar(stage),
                           dsl::L2Hint::none, Here::now());
  }
  void wait(const Val<u32>& stage, const Val<u32>& parity) const {
    dsl::record::mbarrier_wait(k_, bar(stage), parity, false, Here::now());
  }
  Ptr<dsl::shared, b8> stage(const Val<u32>& stage, int offset) const {
    return Ptr<dsl::shared, b8>(k_.smem_addr(data_)).at(stage * std::uint32_t(stage_bytes_)).at(offset);
  }

 private:
  dsl::record::SharedAddress bar(const Val<u32>& stage) const {
    return {Val<u32>(k_.smem_addr(full_) + stage * 8), 0};
  }
  Kernel& k_;
  int stage_bytes_, data_, full_;
};

}  // namespace cgp::kernels::row
