// SPDX-License-Identifier: Apache-2.0
#pragma once
// The kernels of gemm_collective, and their parameters.
#include <array>

#include "cgp/kernels/collective/exchange.h"
#include "cgp/kernels/common/params.h"
#include "cgp/kernels/common/variant.h"
#include "cgp/kernels/gemm/sm90/gemm_dynamic_sm90.h"

namespace cgp::kernels {

inline constexpr std::uint32_t kGatheredRows = 32;  ///< that are sent, and waited for, at once

struct GemmCollectiveConfig {
  enum class Op : std::uint8_t { all_gather_gemm, gemm_reduce_scatter };
  Op op{};
  DType type = DType::bf16;
  bool transposed = true;
  int ranks = 2;
  int rows = 128, cols = 256, cluster = 2, group = 8;
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    static constexpr std::string_view ops[] = {"all_gather_gemm", "gemm_reduce_scatter"};
    v.choice("op", ops, c.op);
    v.type("type", "", c.type);
    v.flag("transposed", c.transposed);
    v.number("ranks", "ranks", c.ranks);
    v.number("rows", "rows", c.rows);
    v.number("cols", "cols", c.cols);
    v.number("cluster", "cluster", c.cluster, 1);
    v.number("group", "group", c.group);
  }
  bool gathers() const { return op == Op::all_gather_gemm; }
  DynamicTile tile() const;
};

template <class Side>
struct GemmCollectiveParams {
  Field<Side, dsl::DynTmaIn> x, w;
  Field<Side, dsl::DynTmaIn> gathered;  ///< staging memory: [slots * ranks, rows of a part, k]
  Field<Side, dsl::DynTmaOut> y;
  std::array<Field<Side, dsl::DynTmaOut>, kMostRanks> to;  ///< this rank's part of each rank's staging memory
  Field<Side, dsl::In<dsl::b32>> own;                      ///< x, for who sends it
  Field<Side, dsl::In<dsl::u64>> table;
  Field<Side, dsl::Val<dsl::u64>> slot, pitch;  ///< bytes of staging memory: of a slot, of a part
  Field<Side, dsl::Val<dsl::u32>> rank;
  Field<Side, dsl::Val<dsl::u32>> part, n, k;  ///< rows of a part, columns, depth
  Field<Side, dsl::Val<dsl::u32>> rows, cols,
      tiles;  ///< of a part, in tiles of a whole cluster; with all parts

  template <class F>
  void visit(F&& f, const GemmCollectiveConfig& c) {
    f(x, w, y);
    if (c.gathers())
      f(gathered, own);
    else
      for (int r = 0; r < c.ranks; ++r) f(to[std::size_t(r)]);
    f(table, slot, pitch, rank, part, n, k, rows, cols, tiles);
  }
};

Variant gemm_collective_variant(const GemmCollectiveConfig& c);

}  // namespace cgp::kernels
