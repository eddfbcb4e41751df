// SPDX-License-Identifier: Apache-2.0
#pragma once
// Parameters of the Hopper GEMMs, for the kernels and for their launches (common/params.h).
#include "cgp/kernels/common/params.h"

namespace cgp::kernels {

struct GemmPersistentForm {
  bool source;      ///< beta times the source C is added
  bool persistent;  ///< blocks walk over the tiles
};
template <class Side>
struct GemmPersistentParams {
  Field<Side, dsl::DynTmaIn> a, b;
  Field<Side, dsl::DynTmaOut> c;
  Field<Side, dsl::DynTmaIn> source;
  Field<Side, dsl::Val<dsl::u32>> k_tiles;
  Field<Side, dsl::Val<dsl::f32>> alpha, beta;
  Field<Side, dsl::Val<dsl::u32>> rows, cols, tiles;  ///< of C, in tiles of a whole cluster; with batches

  template <class F>
  void visit(F&& f, const GemmPersistentForm& form) {
    f(a, b, c);
    if (form.source) f(source);
    f(k_tiles, alpha);
    if (form.source) f(beta);
    if (form.persistent) f(rows, cols, tiles);
  }
};

/// Maps: those of HopperOperand and of the store tile. On the host: any.
template <class Side, class MapA = AnyTensorMap, class MapB = AnyTensorMap, class MapC = AnyTensorMap>
struct GemmStreamKParams {
  Field<Side, MapA> a;
  Field<Side, MapB> b;
  Field<Side, MapC> c;
  Field<Side, dsl::Val<dsl::u32>> k_tiles;
  Field<Side, dsl::Val<dsl::f32>> alpha;
  Field<Side, dsl::Val<dsl::u32>> rows, cols;  ///< of C, in tiles
  Field<Side, dsl::Val<dsl::u32>> whole;       ///< tiles that a block computes by itself
  Field<Side, dsl::Val<dsl::u32>> tiles;       ///< all, with batches

  template <class F>
  void visit(F&& f) {
    f(a, b, c, k_tiles, alpha, rows, cols, whole, tiles);
  }
};

/// Of the kernels that store C from registers: sm90, sm90_cluster_split_k, sm90_small_m. Maps as above.
template <class Side, class T = dsl::f32, class MapA = AnyTensorMap, class MapB = AnyTensorMap>
struct GemmDirectParams {
  Field<Side, MapA> a;
  Field<Side, MapB> b;
  Field<Side, dsl::InOut<T>> c;
  Field<Side, dsl::Val<dsl::u32>> m, n;
  Field<Side, dsl::Val<dsl::u64>> ldc, stride_c;
  Field<Side, dsl::Val<dsl::u32>> k_tiles;
  Field<Side, dsl::Val<dsl::f32>> alpha, beta;
  Field<Side, dsl::Val<dsl::u32>> tiles_m, tiles_n;
  Field<Side, dsl::Val<dsl::u32>>
      paired;  ///< a block for each tile: neighbours of a row of C are an aligned word
  Field<Side, dsl::Val<dsl::u32>> tiles;  ///< blocks walk over the tiles: all of them, with batches

  template <class F>
  void visit(F&& f, bool persistent) {
    f(a, b, c, m, n, ldc, stride_c, k_tiles, alpha, beta, tiles_m, tiles_n);
    persistent ? f(tiles) : f(paired);
  }
};

}  // namespace cgp::kernels
