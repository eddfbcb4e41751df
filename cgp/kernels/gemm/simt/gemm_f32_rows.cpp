// SPDX-License-Identifier: Apache-2.0
// gemm skinny in f32: few rows of A, layout nt, fused multiply-adds in fp32.
//   who      a warp computes 1 to 8 rows by 4 or 8 columns of C: its lanes share K, four neighbours each
//   memory   B straight from global memory, 16 bytes a lane, every byte read once for each 8 rows; A from L1
//   sync     none; the lanes' accumulators meet in a butterfly
//   order    fixed: the same bits every time; chains are K / 32 long, so errors are those of 32 slices
//   needs    K and the rows of A and B in whole groups of 16 bytes
#include "cgp/kernels/gemm/simt/gemm_f32_rows.h"
#include "cgp/kernels/gemm/simt/gemm_params_simt.h"

#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/sync/warp.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr int kWarps = 4;

struct RowsTile {
  int rows, cols;
};
constexpr RowsTile kRowsTiles[] = {{1, 8}, {2, 8}, {4, 4}, {8, 4}};

void gemm_f32_rows_kernel(Kernel& k, RowsTile tile) {
  const auto p = declare_params<GemmPointerParams<OnDevice, u32>>(k);
  const auto &m = *p.m, &n = *p.n, &kk = *p.k;
  const auto& beta = *p.beta;
  k.block(32 * kWarps);
  auto warp = k.warp();
  const auto lane = warp.lane();
  const auto row0 = k.ctaid_x() * std::uint32_t(tile.rows),
             col0 = (k.ctaid_y() * std::uint32_t(kWarps) + warp.index) * std::uint32_t(tile.cols);
  const auto batch = to<u64>(k.ctaid_z());
  // Rows and columns outside are read as the last ones, and not stored.
  std::vector<In<f32>> rows, cols;
  for (int i = 0; i < tile.rows; ++i)
    rows.push_back(
        p.a->at(batch * *p.stride_a + to<u64>(dsl::min(row0 + std::uint32_t(i), m - 1u)) * *p.lda));
  for (int j = 0; j < tile.cols; ++j)
    cols.push_back(
        p.b->at(batch * *p.stride_b + to<u64>(dsl::min(col0 + std::uint32_t(j), n - 1u)) * *p.ldb));
  using Accumulators = std::vector<Val<f32>>;
  const auto accumulators = k.loop(
      range(Val<u32>(0), kk, Val<u32>(128)), Accumulators(std::size_t(tile.rows * tile.cols), Val<f32>(0.f)),
      [&](Val<u32> from, Accumulators held) {
        const auto at = from + lane * 4u;
        const auto inside = at < kk;
        std::vector<RegGroup<f32, 4>> x, y;
        for (const auto& col : cols) y.push_back(col.at(at).template ld_if<4, nc>(inside, 0, Val<f32>(0.f)));
        for (const auto& row : rows) x.push_back(row.at(at).template ld_if<4, nc>(inside, 0, Val<f32>(0.f)));
        for (int l = 0; l < 4; ++l) {
          Accumulators next;
          for (int i = 0; i < tile.rows; ++i)
            for (int j = 0; j < tile.cols; ++j)
              next.push_back(fma(x[std::size_t(i)][l], y[std::size_t(j)][l], held[next.size()]));
          held.swap(next);
        }
        return held;
      });
  for (int i = 0; i < tile.rows; ++i)
    for (int j = 0; j < tile.cols; ++j) {
      const auto total = reduce(warp, accumulators[std::size_t(i * tile.cols + j)],
                                [](const Val<f32>& x, const Val<f32>& y) { return x + y; });
      const auto row = row0 + std::uint32_t(i), col = col0 + std::uint32_t(j);
      const auto writes = (lane == std::uint32_t(i * tile.cols + j)) & (row < m) & (col < n);
      const auto to_c = p.c->at(batch * *p.stride_c + to<u64>(row) * *p.ldc + to<u64>(col));
      const auto old = to_c.ld_if(writes & (beta != 0.f), 0, Val<f32>(0.f))[0];
      to_c.st_if(writes, 0, fma(*p.alpha, total, select(beta != 0.f, beta * old, Val<f32>(0.f))));
    }
}

GemmVariant f32_rows_variant(const RowsTile& t) {
  const GemmConfig config{.family = GemmFamily::simt_small_m,
                          .a = DType::f32,
                          .layout = GemmLayout::nt,
                          .tile_m = t.rows,
                          .tile_n = t.cols};
  return {variant(print(config), 75, gemm_f32_rows_kernel, t), config};
}

}  // namespace

std::vector<Variant> gemm_f32_rows_variants() {
  std::vector<Variant> all;
  for (const auto& t : kRowsTiles) all.push_back(f32_rows_variant(t));
  return all;
}

std::optional<GemmChoice> select_f32_rows(const GemmProblem& p, const GemmAddresses& at) {
  const bool whole = p.type == DType::f32 && p.type_c == DType::f32 && p.precision != GemmPrecision::fast &&
                     p.scaling == GemmScaling::none && p.epilogue.empty() && (!p.trans_a || p.m == 1) &&
                     p.trans_b;
  if (!whole || !p.m || !p.n || !p.k || p.batch > 65535 || p.n > 65535 * 16 || p.k > 0x7fffffff) return {};
  // Measured on an H200: 256^3 8.9 us (f32 as three bf16 29), 512^3 30. Few warps take long for long K.
  const double results = double(p.m) * double(p.n) * double(p.batch);
  if (p.m > 64 && results > 40000 && results * double(p.k) > 7e7) return {};
  if (p.k > 4096 && (p.m + 7) / 8 * ((p.n + 7) / 8) * p.batch < 256) return {};
  if (p.trans_a && p.lda != 1) return {};  // one row whose elements lie apart
  const auto apart = p.batch > 1 ? p.stride_a | p.stride_b : 0;
  if (p.k % 4 || (at.a | at.b) % 16 || (p.m > 1 && p.lda % 4) || p.ldb % 4 || apart % 4) return {};
  const auto& t = *std::find_if(std::begin(kRowsTiles), std::end(kRowsTiles) - 1,
                                [&](const RowsTile& x) { return std::uint64_t(x.rows) >= p.m; });
  GemmChoice c{GemmFamily::simt_small_m, f32_rows_variant(t),
               text::cat(p.m, p.m == 1 ? " row" : " rows", " of A: B is read straight into registers"),
               std::uint32_t(t.cols)};
  c.tile_m = std::uint32_t(t.rows);
  return c;
}

void run_f32_rows(runtime::Stream& s, const GemmChoice& choice, const GemmProblem& p,
                  const GemmAddresses& at) {
  if (!select_f32_rows(p, at))
    throw Unsupported("gemm: f32 rows needs layout nt, few rows, and K and rows in groups of 16 bytes");
  const auto up = [](std::uint64_t a, std::uint64_t b) { return std::uint32_t((a + b - 1) / b); };
  const auto word = [](std::uint64_t v) { return std::uint32_t(v); };
  const runtime::Dim3 grid{up(p.m, choice.tile_m), up(p.n, choice.tile_n * kWarps), word(p.batch)};
  GemmPointerParams<OnHost, u32> args;
  args.a = at.a, args.b = at.b, args.c = at.c, args.m = word(p.m), args.n = word(p.n), args.k = word(p.k);
  args.lda = p.lda, args.ldb = p.ldb, args.ldc = p.ldc;
  args.stride_a = p.stride_a, args.stride_b = p.stride_b, args.stride_c = p.stride_c;
  args.alpha = p.alpha, args.beta = p.beta;
  launch(s, load(s.device(), choice.variant), grid, args);
}

}  // namespace cgp::kernels
