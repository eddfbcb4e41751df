// SPDX-License-Identifier: Apache-2.0
#pragma once
// Elements whose type is a build-time value instead of a C++ type: for kernels that take every combination.
#include "cgp/base/dtype.h"
#include "cgp/dsl/core/convert.h"
#include "cgp/dsl/kernel.h"

namespace cgp::kernels {

/// A global array parameter of `type`, declared now: call it before the kernel's body.
dsl::Value array_parameter(dsl::Kernel& k, DType type, bool reads, bool writes);

/// Elements of an array that nobody writes (or, `written`, that this kernel also writes).
class AnyIn {
 public:
  AnyIn(dsl::Kernel& k, DType type, bool written = false);
  AnyIn(DType type, const dsl::Val<dsl::u64>& address, bool written);
  DType type() const { return type_; }
  const dsl::Val<dsl::u64>& address() const { return address_; }
  /// Element i + offset as f32 where p holds, else 0. Exact but for s32, u32 and f64. 8-bit floats on any
  /// device: sm_75 has no instruction for them.
  dsl::Val<dsl::f32> load(const dsl::Val<dsl::u64>& i, int offset, const dsl::Val<dsl::pred>& p) const;
  /// Integer types.
  dsl::Val<dsl::s32> load_integer(const dsl::Val<dsl::u64>& i, int offset,
                                  const dsl::Val<dsl::pred>& p) const;

 private:
  DType type_;
  dsl::Val<dsl::u64> address_;
  bool written_;
};

/// The nearest s32 or s8 (ties to even), saturated.
dsl::Val<dsl::s32> nearest_integer(DType type, const dsl::Val<dsl::f32>& x);

/// Rounds to nearest even and stores element i + offset where p holds. Floats above the largest e4m3 or e5m2
/// and integers saturate. e4m3 and e5m2 need sm_89.
void store_any(DType type, const dsl::Val<dsl::u64>& address, const dsl::Val<dsl::u64>& i, int offset,
               const dsl::Val<dsl::pred>& p, const dsl::Val<dsl::f32>& x);

}  // namespace cgp::kernels
