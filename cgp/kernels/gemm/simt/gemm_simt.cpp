// SPDX-License-Identifier: Apache-2.0
// gemm simt: register-blocked, no tensor cores.
//   who      256 threads compute a 128 x 128 tile of C, each 8 x 8 of it (two groups of 4 rows by two of 4
//   columns) memory   tiles of A and B as f32 in shared memory, K outermost, so that a thread reads 4
//   neighbours at once; the
//            next tiles are loaded into registers while this one is multiplied
//   sync     two stages of shared memory, one block barrier per 8 steps of K
//   needs    any device (bf16: sm_80); every layout and alignment, one element an access
#include "cgp/base/text.h"
#include "cgp/dsl/passes.h"
#include "cgp/kernels/gemm/api/gemm.h"
#include "cgp/kernels/gemm/epilogue/gemm_direct_store.h"
#include "cgp/kernels/gemm/epilogue/gemm_epilogue.h"
#include "cgp/kernels/gemm/simt/gemm_params_simt.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr int kTile = 128, kDepth = 8, kThreads = 256, kPitch = kTile + 4;
constexpr int kLoads = kTile * kDepth / kThreads;

// One operand as a tile of [kDepth][kTile] values: element (p, i) is src[i * inner + p * outer] for i <
// extent. Threads run along the contiguous direction, so a warp reads whole sectors in either layout.
template <class T, bool KContiguous>
struct Panel {
  Kernel& k;
  In<T> src;
  Val<u64> extent, depth, pitch, first;  ///< first: of this block along m or n

  Val<u32> depth_of(int j) const {
    return KContiguous ? k.tid() % std::uint32_t(kDepth)
                       : k.tid() / std::uint32_t(kTile) + std::uint32_t(j * (kThreads / kTile));
  }
  Val<u32> index_of(int j) const {
    return KContiguous ? k.tid() / std::uint32_t(kDepth) + std::uint32_t(j * (kThreads / kDepth))
                       : k.tid() % std::uint32_t(kTile);
  }
  std::vector<Val<f32>> load(const Val<u64>& from) const {
    std::vector<Val<f32>> out;
    for (int j = 0; j < kLoads; ++j) {
      const auto p = from + to<u64>(depth_of(j)), i = first + to<u64>(index_of(j));
      const auto at = KContiguous ? i * pitch + p : p * pitch + i;
      out.push_back(to<f32>(src.ld_if((p < depth) & (i < extent), at, Val<T>(0.f))[0]));
    }
    return out;
  }
  void store(const Ptr<shared, f32>& tile, const std::vector<Val<f32>>& v) const {
    for (int j = 0; j < kLoads; ++j) tile.st(depth_of(j) * kPitch + index_of(j), v[std::size_t(j)]);
  }
};

using Accumulators = std::vector<Val<f32>>;  // 8 x 8, row-major

// accumulators += outer products of the staged tiles.
Accumulators multiply(const Ptr<shared, f32>& a, const Ptr<shared, f32>& b, const Val<u32>& ty,
                      const Val<u32>& tx, Accumulators accumulators) {
  const auto rows = a.at(ty * 4), cols = b.at(tx * 4);
  for (int p = 0; p < kDepth; ++p) {
    std::vector<Val<f32>> x, y;
    for (int half = 0; half < 2; ++half) {
      const auto xs = rows.at(p * kPitch + half * 64).template ld<4>(),
                 ys = cols.at(p * kPitch + half * 64).template ld<4>();
      for (int i = 0; i < 4; ++i) x.push_back(xs[i]), y.push_back(ys[i]);
    }
    Accumulators next;
    for (int i = 0; i < 8; ++i)
      for (int j = 0; j < 8; ++j)
        next.push_back(fma(x[std::size_t(i)], y[std::size_t(j)], accumulators[std::size_t(i * 8 + j)]));
    accumulators.swap(next);
  }
  return accumulators;
}

// The tile's accumulators; row 4 ty + i % 4 + i / 4 * 64, column 4 tx + j % 4 + j / 4 * 64 is number 8 i + j.
struct Threads {
  Val<u32> tx, ty;  ///< a quarter warp shares its rows: lanes 0..15 run along the columns of C
};
template <class T, bool TransA, bool TransB>
Accumulators tile_accumulators(Kernel& k, const Panel<T, !TransA>& panel_a, const Panel<T, TransB>& panel_b,
                               const Val<u64>& kk, const Threads& t) {
  constexpr int stage = kDepth * kPitch;
  auto smem_a = k.shared<f32>(2 * stage), smem_b = k.shared<f32>(2 * stage);
  panel_a.store(smem_a, panel_a.load(Val<u64>(0)));
  panel_b.store(smem_b, panel_b.load(Val<u64>(0)));
  k.sync();
  return k
      .loop(range(Val<u64>(0), kk, Val<u64>(kDepth)), std::pair(Accumulators(64, Val<f32>(0.f)), Val<u32>(0)),
            [&](Val<u64> p, auto s) {
              const auto now = s.second, then = Val<u32>(stage) - now;
              const auto next_a = panel_a.load(p + kDepth), next_b = panel_b.load(p + kDepth);
              auto out = multiply(smem_a.at(now), smem_b.at(now), t.ty, t.tx, std::move(s.first));
              panel_a.store(smem_a.at(then), next_a);
              panel_b.store(smem_b.at(then), next_b);
              k.sync();
              return std::pair<Accumulators, Val<u32>>(std::move(out), then);
            })
      .first;
}

template <class T, bool TransA, bool TransB>
void gemm_simt_kernel(Kernel& k) {
  const auto p = declare_params<GemmPointerParams<OnDevice, u64, T>>(k);
  const auto &m = *p.m, &n = *p.n, &kk = *p.k;
  const auto& tiles_n = *p.tiles_n;
  k.block(kThreads);
  const auto batch = to<u64>(k.ctaid_z());
  const auto m0 = to<u64>(k.ctaid_x() / tiles_n) * kTile, n0 = to<u64>(k.ctaid_x() % tiles_n) * kTile;
  const Panel<T, !TransA> panel_a{k, p.a->at(batch * *p.stride_a), m, kk, *p.lda, m0};
  const Panel<T, TransB> panel_b{k, p.b->at(batch * *p.stride_b), n, kk, *p.ldb, n0};
  const Threads t{k.tid() % 16u, k.tid() / 16u};
  const auto accumulators = tile_accumulators<T, TransA, TransB>(k, panel_a, panel_b, kk, t);
  const GemmOutput<T> output{InOut<T>(p.c->at(batch * *p.stride_c)), m, n, *p.ldc, *p.alpha, *p.beta};
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 8; ++j)
      output.put(k, m0 + to<u64>(t.ty * 4 + std::uint32_t(i % 4 + i / 4 * 64)),
                 n0 + to<u64>(t.tx * 4 + std::uint32_t(j % 4 + j / 4 * 64)),
                 accumulators[std::size_t(i * 8 + j)]);
}

// The same with an epilogue and any type of C.
template <bool TransA, bool TransB>
void gemm_mixed_simt_kernel(Kernel& k, DirectTuning tune, In<f32> a, In<f32> b, Val<u64> m, Val<u64> n,
                            Val<u64> kk, Val<u64> lda, Val<u64> ldb, Val<u64> stride_a, Val<u64> stride_b,
                            Val<u32> tiles_n) {
  k.block(kThreads);
  const auto batch = to<u64>(k.ctaid_z());
  const DirectStore out(k, tune, m, n, batch);
  const auto work = [&] {
    const auto m0 = to<u64>(k.ctaid_x() / tiles_n) * kTile, n0 = to<u64>(k.ctaid_x() % tiles_n) * kTile;
    const Panel<f32, !TransA> panel_a{k, a.at(batch * stride_a), m, kk, lda, m0};
    const Panel<f32, TransB> panel_b{k, b.at(batch * stride_b), n, kk, ldb, n0};
    const Threads t{k.tid() % 16u, k.tid() / 16u};
    const auto accumulators = tile_accumulators<f32, TransA, TransB>(k, panel_a, panel_b, kk, t);
    const auto row0 = m0 + to<u64>(t.ty * 4), col0 = n0 + to<u64>(t.tx * 4);
    std::vector<EpilogueLine> rows;
    for (int i = 0; i < 8; ++i) rows.push_back(out.row(row0, i % 4 + i / 4 * 64));
    for (int j = 0; j < 8; j += 2) {
      const auto columns = out.columns(col0, j % 4 + j / 4 * 64);
      for (int i = 0; i < 8; ++i)
        out.put(rows[std::size_t(i)], columns, accumulators[std::size_t(8 * i + j)],
                accumulators[std::size_t(8 * i + j + 1)]);
    }
    out.finish(m0, n0, true);
  };
  if (tune.guarded)
    k.if_(Param<In<u32>>::make(k).ld(0) != 0u, work);
  else
    work();
}

template <class T>
Variant make(const std::string& name, int min_sm, bool ta, bool tb) {
  if (ta)
    return tb ? variant(name, min_sm, gemm_simt_kernel<T, true, true>)
              : variant(name, min_sm, gemm_simt_kernel<T, true, false>);
  return tb ? variant(name, min_sm, gemm_simt_kernel<T, false, true>)
            : variant(name, min_sm, gemm_simt_kernel<T, false, false>);
}

}  // namespace

GemmVariant gemm_simt(DType t, bool trans_a, bool trans_b) {
  const GemmConfig config{.family = GemmFamily::simt, .a = t, .layout = gemm_layout(trans_a, trans_b)};
  const auto name = print(config);
  Variant v = t == DType::f32   ? make<f32>(name, 75, trans_a, trans_b)
              : t == DType::f16 ? make<f16>(name, 75, trans_a, trans_b)
                                : make<bf16>(name, 80, trans_a, trans_b);
  // Shifts for products and addresses computed once give ptxas a better schedule of this loop: measured on an
  // H200, nowhere else (docs/passes.md).
  v.build = [build = std::move(v.build)](const std::string& name, const std::string& target) {
    auto kernel = build(name, target);
    // Of all passes those that find something here.
    static const auto passes = ptx::parse_passes("fold,copy,cse,strength,mad,hoist,dead");
    return target == "sm_90a" ? dsl::optimised(std::move(kernel), passes) : kernel;
  };
  return {std::move(v), config};
}

Variant gemm_mixed_simt(bool trans_a, bool trans_b, std::string name, const DirectTuning& t) {
  if (trans_a)
    return trans_b ? variant(std::move(name), 75, gemm_mixed_simt_kernel<true, true>, t)
                   : variant(std::move(name), 75, gemm_mixed_simt_kernel<true, false>, t);
  return trans_b ? variant(std::move(name), 75, gemm_mixed_simt_kernel<false, true>, t)
                 : variant(std::move(name), 75, gemm_mixed_simt_kernel<false, false>, t);
}

}  // namespace cgp::kernels
