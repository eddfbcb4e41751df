// SPDX-License-Identifier: Apache-2.0
// gemm_ladder, the steps with wmma: each warp has 16 x 16 of C and walks over K in steps of 16.
//   warp      one warp a block; its tiles of A and B go through shared memory, padded with zeros at the edges
//   cta32     2 x 2 warps share what they load
//   cta64     4 x 4 warps: half the traffic of cta32 for each product
//   ahead     the next tiles are loaded into registers before this one is multiplied; two buffers, one
//   barrier copies    cp.async: the tiles go from global to shared memory without passing registers
#include "cgp/base/text.h"
#include "cgp/dsl/core/convert.h"
#include "cgp/dsl/mma/wmma.h"
#include "cgp/dsl/pipeline/async.h"
#include "cgp/kernels/gemm_ladder/gemm_ladder.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr int kK = 16, kPitch = 24;  // elements; rows of 48 bytes spread over the banks
using Accumulator = WmmaAcc<f32, 16, 16, 16>;

// Rows of one operand, `Rows` x 16 elements, one element a thread and access.
template <int Rows>
struct Panel {
  Kernel& k;
  In<f16> src;
  Val<u32> first, rows, depth;
  int threads;

  int loads() const { return Rows * kK / threads; }
  Val<u32> row(int j) const { return k.tid() / std::uint32_t(kK) + std::uint32_t(j * threads / kK); }
  Val<u32> col() const { return k.tid() % std::uint32_t(kK); }
  std::vector<Val<f16>> load(const Val<u32>& k0) const {
    std::vector<Val<f16>> out;
    for (int j = 0; j < loads(); ++j) {
      const auto r = first + row(j), p = k0 + col();
      out.push_back(
          src.ld_if((r < rows) & (p < depth), to<u64>(r) * to<u64>(depth) + to<u64>(p), Val<f16>(0.f))[0]);
    }
    return out;
  }
  void store(const Ptr<shared, f16>& to, const std::vector<Val<f16>>& v) const {
    for (int j = 0; j < loads(); ++j) to.st(row(j) * std::uint32_t(kPitch) + col(), v[std::size_t(j)]);
  }
};

// This warp's accumulator through shared memory, so that the edges of C can be masked.
void store_accumulator(Warp& w, const Accumulator& acc, const Ptr<shared, f32>& place, const InOut<f16>& c,
                       const Val<u32>& row0, const Val<u32>& col0, const Val<u32>& m, const Val<u32>& n) {
  const auto warp_tile = place.at(w.index * 256u);
  wmma_store(w, warp_tile, acc, Val<u32>(16));
  w.sync();
  for (int i = 0; i < 8; ++i) {
    const auto at = w.lane() + std::uint32_t(i * 32);
    const auto row = row0 + at / 16u, col = col0 + at % 16u;
    c.st_if((row < m) & (col < n), to<u64>(row) * to<u64>(n) + to<u64>(col), to<f16>(warp_tile.ld(at)));
  }
}

template <int WM, int WN>
void ladder_wmma(Kernel& k, bool ahead, In<f16> a, In<f16> b, InOut<f16> c, Val<u32> m, Val<u32> n,
                 Val<u32> kk, Val<u32> tiles_n) {
  constexpr int threads = 32 * WM * WN, bm = 16 * WM, bn = 16 * WN, stage = (bm + bn) * kPitch;
  k.block(threads);
  Warp w = k.warp();
  const auto m0 = k.ctaid_x() / tiles_n * std::uint32_t(bm), n0 = k.ctaid_x() % tiles_n * std::uint32_t(bn);
  const auto wm = w.index / std::uint32_t(WN) * 16u, wn = w.index % std::uint32_t(WN) * 16u;
  const Panel<bm> pa{k, a, m0, m, kk, threads};
  const Panel<bn> pb{k, b, n0, n, kk, threads};
  const auto tiles = k.shared<f16>(stage * (ahead ? 2 : 1), 128);
  const auto staging = k.shared<f32>(256 * WM * WN, 128);
  const auto put = [&](const Val<u32>& at, const std::vector<Val<f16>>& va, const std::vector<Val<f16>>& vb) {
    pa.store(tiles.at(at), va);
    pb.store(tiles.at(at + std::uint32_t(bm * kPitch)), vb);
  };
  const auto multiply = [&](const Val<u32>& at, Accumulator acc) {
    auto fa = wmma_load_a<f16, 16, 16, 16>(w, tiles.at(at + wm * std::uint32_t(kPitch)), Val<u32>(kPitch));
    auto fb = wmma_load_b<f16, 16, 16, 16>(w, tiles.at(at + (wn + std::uint32_t(bm)) * std::uint32_t(kPitch)),
                                           Val<u32>(kPitch));
    return wmma_mma(w, fa, fb, std::move(acc));
  };
  auto zero = wmma_zeros<f32, 16, 16, 16>(w);
  if (!ahead) {
    auto acc = k.loop(range(Val<u32>(0), kk, Val<u32>(kK)), std::move(zero), [&](Val<u32> k0, Accumulator s) {
      const auto va = pa.load(k0), vb = pb.load(k0);
      k.sync();
      put(Val<u32>(0), va, vb);
      k.sync();
      return multiply(Val<u32>(0), std::move(s));
    });
    return store_accumulator(w, acc, staging, c, m0 + wm, n0 + wn, m, n);
  }
  put(Val<u32>(0), pa.load(Val<u32>(0)), pb.load(Val<u32>(0)));
  k.sync();
  auto last = k.loop(range(Val<u32>(0), kk, Val<u32>(kK)), std::pair(Val<u32>(0), std::move(zero)),
                     [&](Val<u32> k0, std::pair<Val<u32>, Accumulator> s) {
                       const auto then = Val<u32>(stage) - s.first;
                       const auto va = pa.load(k0 + kK), vb = pb.load(k0 + kK);
                       auto acc = multiply(s.first, std::move(s.second));
                       put(then, va, vb);
                       k.sync();
                       return std::pair<Val<u32>, Accumulator>(then, std::move(acc));
                     });
  store_accumulator(w, last.second, staging, c, m0 + wm, n0 + wn, m, n);
}

void ladder_copies(Kernel& k, In<f16> a, In<f16> b, InOut<f16> c, Val<u32> m, Val<u32> n, Val<u32> kk,
                   Val<u32> tiles_n) {
  using T = Tile<f16, 64, kK, Swizzle::none>;
  k.block(512);
  Cta cta = k.cta();
  Warp w = k.warp();
  AsyncRing<T, T> ring(k, 2);
  const auto m0 = k.ctaid_x() / tiles_n * 64u, n0 = k.ctaid_x() % tiles_n * 64u;
  const auto wm = w.index / 4u * 16u, wn = w.index % 4u * 16u;
  TileSource<T> source_a(cta, a, kk, m, kk), source_b(cta, b, kk, n, kk);
  const auto staging = k.shared<f32>(256 * 16, 128);
  auto acc = ring.loop(
      cta, (kk + (kK - 1)) / kK, wmma_zeros<f32, 16, 16, 16>(w),
      [&](auto& stage, const Val<u32>& kt) {
        stage.template copy<0>(source_a, m0, kt * kK);
        stage.template copy<1>(source_b, n0, kt * kK);
      },
      [&](const auto& stage, const Val<u32>&, Accumulator acc) {
        const auto at = [&](const auto& tile, const Val<u32>& row) {
          return Ptr<shared, f16>(tile.address()).at(row * std::uint32_t(kK));
        };
        auto fa = wmma_load_a<f16, 16, 16, 16>(w, at(stage.template get<0>(), wm), Val<u32>(kK));
        auto fb = wmma_load_b<f16, 16, 16, 16>(w, at(stage.template get<1>(), wn), Val<u32>(kK));
        return wmma_mma(w, fa, fb, std::move(acc));
      });
  store_accumulator(w, acc, staging, c, m0 + wm, n0 + wn, m, n);
}

}  // namespace

Variant gemm_ladder_wmma(std::string_view step) {
  auto name = text::cat("gemm_ladder_f16_wmma_", step);
  if (step == "warp") return variant(std::move(name), 75, ladder_wmma<1, 1>, false);
  if (step == "cta32") return variant(std::move(name), 75, ladder_wmma<2, 2>, false);
  if (step == "copies") return variant(std::move(name), 80, ladder_copies);
  return variant(std::move(name), 75, ladder_wmma<4, 4>, step == "ahead");
}

}  // namespace cgp::kernels
