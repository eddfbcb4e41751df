// SPDX-License-Identifier: Apache-2.0
// The warp-specialised Hopper GEMM: TMA ring, wgmma with one group in flight, roles with register budgets.
// Records, verifies and assembles for sm_90a.
#include <gtest/gtest.h>

#include "cgp/dsl/kernel.h"
#include "cgp/dsl/ptxas_check.h"
#include "cgp/dsl/wgmma.h"

namespace cgp::dsl {
namespace {

// C[m,n] = A[m,k] B[n,k]^T. One producer thread, BM / 64 math warpgroups of 64 rows each.
template <int BM, int BN, int BK>
void gemm(Kernel& k, int stages, TmaIn<Tile<bf16, BM, BK>> a, TmaIn<Tile<bf16, BN, BK>> b, Out<f32> c,
          Val<u32> n, Val<u32> k_tiles) {
  auto load = k.role<Warpgroup>(1, /*registers=*/40);
  auto math = k.role<Warpgroup>(BM / 64, /*registers=*/232);
  Ring<ByThreads, Tile<bf16, BM, BK>, Tile<bf16, BN, BK>> ring(k, stages, load, math);
  auto m0 = k.ctaid_y() * BM, n0 = k.ctaid_x() * BN;

  load.one_thread([&](Thread& t) {
    k.loop(k_tiles, [&](Val<u32> kt) { ring.fill(t, at(a, m0, kt * BK), at(b, n0, kt * BK)); });
  });

  math.run([&](Warpgroup& wg) {
    // From here the accumulator and the stage belong to the tensor core.
    auto first = wgmma(wg, fresh<f32, 64, BN>(wg), ring.take(wg));
    // One product stays in flight: issue the next, then free the stage of the one before it.
    auto last = k.loop(k_tiles - 1, std::move(first),
                       [&](Val<u32>, auto busy) { return std::move(busy).then(wg, ring.take(wg)); });
    auto acc = std::move(last).wait(wg);  // only now is it readable

    auto row0 = m0 + wg.index * 64;
    std::move(acc).each_pair(wg, [&](Val<u32> r, Val<u32> col, Val<f32> lo, Val<f32> hi) {
      c.st<2>((row0 + r) * (n / 2) + (n0 + col) / 2, Vec<f32, 2>(lo, hi));
    });
  });
}

TEST(gemm_sm90, assembles_without_spills_or_serialised_wgmma) {
  const auto b = build("gemm_bf16_sm90", "sm_90a", gemm<128, 256, 64>, 4);
  EXPECT_EQ(b.block[0], 384);
  EXPECT_EQ(b.dynamic_smem, 4 * 49152 + 64);
  ASSERT_TRUE(b.params[1].tensor_map);
  EXPECT_EQ(b.params[1].tensor_map->box, (std::array<std::uint32_t, 5>{64, 256}));
  EXPECT_EQ(b.params[1].tensor_map->swizzle, Swizzle::b128);
  const auto said = ptxas(b);
  if (said == "no ptxas") GTEST_SKIP() << said;
  EXPECT_EQ(said, "") << b.ptx();
}

}  // namespace
}  // namespace cgp::dsl
