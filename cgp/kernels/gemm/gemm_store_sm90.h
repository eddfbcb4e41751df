// SPDX-License-Identifier: Apache-2.0
#pragma once
// The end of the typed Hopper kernels: sums of a warpgroup, 64 rows at a time, through the epilogue, into
// staging tiles of the type of C, and by TMA into C, clipped at its edges. The type of C is a build-time
// value.
#include <memory>

#include "cgp/dsl/epilogue.h"
#include "cgp/kernels/gemm/epilogue.h"

namespace cgp::kernels {

/// Types of C that leave through staging.
inline bool stages_results(DType t) {
  return t == DType::f32 || t == DType::s32 || t == DType::f16 || t == DType::bf16 || t == DType::e4m3 ||
         t == DType::e5m2;
}

struct HopperPlace {
  dsl::Val<dsl::u32> batch, m0, n0;  ///< first row, first column of the product's tile
};

class HopperStore {
 public:
  /// Declares the tensor map of C (box of 64 rows x 128 bytes) and then the epilogue's parameters.
  HopperStore(dsl::Kernel& k, DType c, const Epilogue& e, const dsl::Val<dsl::u32>& m,
              const dsl::Val<dsl::u32>& n);
  ~HopperStore();
  /// Staging tiles for each member of the role.
  void open(const dsl::Role<dsl::Warpgroup>& math, int buffers);
  dsl::PendingStore idle();
  /// `sums`: the registers of 64 x cols sums as wgmma leaves them, f32 or (C is s32) s32. Stores one piece of
  /// 128 bytes of columns after the other: a loop's body stores a multiple of `buffers` of them.
  dsl::PendingStore store(dsl::Warpgroup& wg, dsl::PendingStore pending, const std::vector<dsl::Value>& sums,
                          int cols, const HopperPlace& at);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cgp::kernels
