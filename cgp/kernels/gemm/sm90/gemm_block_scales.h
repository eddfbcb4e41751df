// SPDX-License-Identifier: Apache-2.0
#pragma once
// Scales of blocks for DynamicMainloop::accumulate_promoted: 1 x 128 of op(A), 128 x 128 of op(B), as gemm.h has
// them.
#include "cgp/dsl/core/convert.h"
#include "cgp/kernels/gemm/epilogue/epilogue.h"
#include "cgp/kernels/gemm/sm90/gemm_dynamic_sm90.h"

namespace cgp::kernels {

/// The word of wgmma for elements of a type; f32 are rounded to tf32.
inline ptx::Mod wgmma_word(DType t) { return t == DType::f32 ? ptx::Mod::tf32 : *ptx::parse_mod(name(t)); }

/// Of the product: which column stands at column `at` of a tile that begins at n0.
inline dsl::Val<dsl::u32> product_column(int cols, Pairing pairing, const dsl::Val<dsl::u32>& n0,
                                         const dsl::Val<dsl::u32>& n, std::uint32_t at) {
  const auto half = std::uint32_t(cols / 2), in_half = at % half;
  switch (pairing) {
    case Pairing::none:
      return n0 + at;
    case Pairing::interleaved:
      return n0 + (2 * in_half + (at < half ? 0 : 1));
    default:
      return n0 / 2u + in_half + (at < half ? dsl::Val<dsl::u32>(0) : n / 2u);
  }
}

class BlockScales {
 public:
  BlockScales(const dsl::In<dsl::f32>& a, const dsl::In<dsl::f32>& b, const dsl::Val<dsl::u32>& k_tiles)
      : a_(a), b_(b), depth_(dsl::to<dsl::u64>(k_tiles)) {}
  /// One of the thread's rows: which of A's.
  void row(const dsl::Val<dsl::u64>& number, const dsl::Val<dsl::pred>& inside) {
    rows_.emplace_back(number * depth_, inside);
  }
  /// Each slice of a tile's columns, which lies inside a block of 128.
  void columns(const DynamicTile& t, int slices, Pairing pairing, const dsl::Val<dsl::u64>& batch,
               const dsl::Val<dsl::u32>& n0, const dsl::Val<dsl::u32>& n) {
    const auto blocks = (n + 127u) / 128u;
    for (int p = 0; p < slices; ++p) {
      const auto block = product_column(t.cols, pairing, n0, n, std::uint32_t(p * t.cols / slices)) / 128u;
      cols_.emplace_back((batch * dsl::to<dsl::u64>(blocks) + dsl::to<dsl::u64>(block)) * depth_,
                         block < blocks);
    }
  }
  std::vector<dsl::Val<dsl::f32>> operator()(const dsl::Val<dsl::u32>& k_tile) const {
    std::vector<dsl::Val<dsl::f32>> f;
    const auto kt = dsl::to<dsl::u64>(k_tile);
    const auto load = [&](const dsl::In<dsl::f32>& from, const auto& lines) {
      for (const auto& [at, inside] : lines)
        f.push_back(from.ld_if(inside, at + kt, dsl::Val<dsl::f32>(0.f))[0]);
    };
    load(a_, rows_);
    load(b_, cols_);
    return f;
  }

 private:
  dsl::In<dsl::f32> a_, b_;
  dsl::Val<dsl::u64> depth_;
  std::vector<std::pair<dsl::Val<dsl::u64>, dsl::Val<dsl::pred>>> rows_, cols_;
};

}  // namespace cgp::kernels
