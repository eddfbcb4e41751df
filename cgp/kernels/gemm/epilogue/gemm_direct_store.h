// SPDX-License-Identifier: Apache-2.0
#pragma once
// The end of typed kernels that store from registers: the epilogue, then C of any type at any alignment.
#include "cgp/kernels/common/variant.h"
#include "cgp/kernels/gemm/api/any_element.h"
#include "cgp/kernels/gemm/epilogue/epilogue.h"

namespace cgp::kernels {

/// Build-time values of such a kernel.
struct DirectTuning {
  DType c;
  Epilogue epilogue;      ///< pairs are neighbours in the product as the kernel sees it
  bool integers = false;  ///< s32 sums go to C as they are
  bool guarded = false;   ///< simt: does nothing where the word it is given is 0
};

class DirectStore {
 public:
  /// Declares C, the elements between its rows and batches, and the epilogue's parameters.
  DirectStore(dsl::Kernel& k, const DirectTuning& t, const dsl::Val<dsl::u64>& m, const dsl::Val<dsl::u64>& n,
              const dsl::Val<dsl::u64>& batch)
      : k_(k),
        tuning_(t),
        c_(array_parameter(k, t.c, false, true)),
        ld_(dsl::Param<dsl::Val<dsl::u64>>::make(k)),
        stride_(dsl::Param<dsl::Val<dsl::u64>>::make(k)),
        program_(k, t.epilogue),
        m_(m),
        n_(n),
        batch_(batch) {}

  EpilogueLine row(const dsl::Val<dsl::u64>& base, int offset) const {
    return EpilogueLine(base, offset, base + std::uint32_t(offset) < m_);
  }
  /// Columns 2 j and 2 j + 1 of the product; `base` is even.
  struct Columns {
    EpilogueLine first, second;        ///< of the product, for loads of the epilogue
    std::vector<EpilogueLine> result;  ///< of C: both, or one for the pair
  };
  Columns columns(const dsl::Val<dsl::u64>& base, int offset) const {
    using namespace dsl;
    const auto line = [&](int o) { return EpilogueLine(base, o, base + std::uint32_t(o) < n_); };
    if (tuning_.epilogue.pairing() == Pairing::none)
      return {line(offset), line(offset + 1), {line(offset), line(offset + 1)}};
    const auto half = n_ / 2u, j = (base + std::uint32_t(offset)) / 2u;
    const EpilogueLine c(j, 0, j < half);
    if (tuning_.epilogue.pairing() == Pairing::interleaved) return {line(offset), line(offset + 1), {c}};
    return {EpilogueLine(j, 0, j < half), EpilogueLine(j + half, 0, j < half), {c}};
  }
  /// Sums (f32, or s32 when they go to C as they are) of the two columns in a row.
  void put(const EpilogueLine& r, const Columns& c, const dsl::Value& x, const dsl::Value& y) const {
    using namespace dsl;
    if (tuning_.epilogue.pairing() != Pairing::none) {
      const auto inside = r.inside() & c.result[0].inside();
      const EpiloguePoint at{r, c.result[0], batch_, inside};
      store(at, program_.apply(at, {r, c.first, batch_, inside}, {r, c.second, batch_, inside}, Val<f32>(x),
                               Val<f32>(y)));
      return;
    }
    for (int e = 0; e < 2; ++e) {
      const auto& line = c.result[std::size_t(e)];
      const EpiloguePoint at{r, line, batch_, r.inside() & line.inside()};
      const auto& sum = e ? y : x;
      if (tuning_.integers)
        Ptr<global, s32>(at.place(c_, 4, ld_, stride_)).st_if(at.inside, line.offset(), Val<s32>(sum));
      else
        store(at, program_.apply(at, Val<f32>(sum)));
    }
  }
  /// All elements of a warp's part of a block of 128 x 128 have been put.
  void finish(const dsl::Val<dsl::u64>& row, const dsl::Val<dsl::u64>& col, bool whole_warp) const {
    using namespace dsl;
    const bool pairs = tuning_.epilogue.pairing() != Pairing::none;
    program_.finish({k_, batch_, row, pairs ? col / 2u : col, whole_warp});
  }

 private:
  void store(const EpiloguePoint& at, const dsl::Val<dsl::f32>& x) const {
    store_any(tuning_.c, at.place(c_, bytes(tuning_.c), ld_, stride_), dsl::Val<dsl::u64>(0), at.col.offset(),
              at.inside, x);
  }
  dsl::Kernel& k_;
  DirectTuning tuning_;
  dsl::Val<dsl::u64> c_, ld_, stride_;
  EpilogueProgram program_;
  dsl::Val<dsl::u64> m_, n_, batch_;
};

/// mma.sync: 16-bit types in all layouts; s8, tf32 (type f32) and on sm_89 8-bit floats, K contiguous.
Variant gemm_mixed_mma(DType a, DType b, bool trans_a, bool trans_b, std::string name, const DirectTuning& t);
/// fp32 fused multiply-adds.
Variant gemm_mixed_simt(bool trans_a, bool trans_b, std::string name, const DirectTuning& t);

}  // namespace cgp::kernels
