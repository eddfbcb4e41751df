// SPDX-License-Identifier: Apache-2.0
// Tensor memory, tcgen05 and cluster launch control: recorded, verified, and assembled where ptxas is
// installed. Descriptors are compared with the bits of the PTX ISA.
#include <gtest/gtest.h>

#include "cgp/dsl/core/ptxas_test.h"
#include "cgp/dsl/mma/umma_gemms_test.h"

namespace cgp::dsl {
namespace {

void expect_assembles(const BuiltKernel& b) {
  const auto said = ptxas(b);
  if (said == "no ptxas") return;
  EXPECT_EQ(said, "");
}

bool says(const BuiltKernel& b, const char* text) { return b.ptx().find(text) != std::string::npos; }

// ---------------------------------------------------------------- descriptors, against the ISA's tables
TEST(umma_descriptor, fields_of_the_instruction_descriptor) {
  using M = ptx::Mod;
  const auto bits = [](record::UmmaShape s) { return record::umma_descriptor(s).encode(); };
  constexpr Major K = Major::k, N = Major::mn;
  // f32 sums: bit 4. bf16: 1 in bits 7 and 10. N / 8 from bit 17, M / 16 from bit 24.
  EXPECT_EQ(bits({M::bf16, M::bf16, M::f32, 128, 256, 1, K, K, false}), 0x08400490u);
  EXPECT_EQ(bits({M::f16, M::f16, M::f32, 256, 128, 2, K, K, false}), 0x10200010u);
  EXPECT_EQ(bits({M::f16, M::f16, M::f16, 64, 8, 1, N, N, false}), 0x04038000u | 0u);
  EXPECT_EQ(bits({M::tf32, M::tf32, M::f32, 128, 64, 1, K, K, false}), 0x08100910u);
  EXPECT_EQ(bits({M::e5m2, M::e2m1, M::f32, 128, 32, 1, K, K, false}), 0x08081490u);
  EXPECT_EQ(bits({M::s8, M::u8, M::s32, 128, 16, 1, K, K, false}), 0x080400a0u);
  // Block scales: no D format; bit 23 is ue8m0.
  EXPECT_EQ(bits({M::e4m3, M::e4m3, M::f32, 128, 128, 1, K, K, false, M::ue8m0}), 0x08a00000u);
  EXPECT_EQ(bits({M::e2m1x2, M::e2m1x2, M::f32, 128, 128, 1, K, K, false, M::ue4m3}), 0x08200480u);
  EXPECT_EQ(
      (InstructionDescriptor{.m = 128, .n = 8, .scaled = true, .scale_a_id = 2, .scale_b_id = 3}.encode()),
      0x48020030u);
}

TEST(umma_descriptor, shapes_that_exist) {
  using M = ptx::Mod;
  constexpr Major K = Major::k, N = Major::mn;
  const auto ok = [](record::UmmaShape s) { return record::umma_legal(s); };
  EXPECT_TRUE(ok({M::bf16, M::bf16, M::f32, 64, 24, 1, K, N, false}));
  EXPECT_FALSE(ok({M::bf16, M::bf16, M::f32, 128, 24, 1, K, K, false}));
  EXPECT_FALSE(ok({M::bf16, M::f16, M::f32, 128, 32, 1, K, K, false}));
  EXPECT_FALSE(ok({M::bf16, M::bf16, M::f16, 128, 32, 1, K, K, false}));
  EXPECT_TRUE(ok({M::f16, M::f16, M::f16, 128, 32, 1, K, K, false}));
  EXPECT_FALSE(ok({M::tf32, M::tf32, M::f32, 128, 32, 1, N, K, false}));
  EXPECT_TRUE(ok({M::e4m3, M::e5m2, M::f16, 128, 32, 1, N, N, false}));
  EXPECT_FALSE(ok({M::e4m3, M::e2m1, M::f32, 128, 32, 1, K, N, false}));
  EXPECT_TRUE(ok({M::s8, M::s8, M::s32, 128, 32, 1, K, K, false}));
  EXPECT_FALSE(ok({M::s8, M::s8, M::f32, 128, 32, 1, K, K, false}));
  EXPECT_FALSE(ok({M::bf16, M::bf16, M::f32, 256, 64, 1, K, K, false}));
  EXPECT_TRUE(ok({M::bf16, M::bf16, M::f32, 256, 48, 2, K, K, false}));
  EXPECT_FALSE(ok({M::bf16, M::bf16, M::f32, 256, 48, 2, K, K, true}));
  EXPECT_FALSE(ok({M::bf16, M::bf16, M::f32, 64, 64, 2, K, K, false}));
  EXPECT_FALSE(ok({M::e4m3, M::e4m3, M::f32, 64, 64, 1, K, K, false, M::ue8m0}));
  EXPECT_FALSE(ok({M::e4m3, M::e4m3, M::f32, 128, 64, 1, K, K, false, M::ue4m3}));
}

// ---------------------------------------------------------------- whole kernels
TEST(umma_text, one_block) {
  const auto b = build("k", "sm_100a", gemm_sm100<bf16, f32, UmmaTestShape{128, 256, 64}, 2>, 4);
  EXPECT_EQ(b.block[0], 192);
  EXPECT_TRUE(says(b, "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32"));
  EXPECT_TRUE(says(b, ", 0x8400490;"));
  EXPECT_TRUE(says(b, ", 49152;")) << "bytes of a stage";
  EXPECT_TRUE(says(b, "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"));
  EXPECT_TRUE(says(b, "tcgen05.dealloc.cta_group::1.sync.aligned.b32"));
  expect_assembles(b);
}
TEST(umma_text, element_types_and_shapes) {
  expect_assembles(build("k", "sm_100a", gemm_sm100<f16, f32, UmmaTestShape{64, 24, 64}, 1>, 3));
  expect_assembles(build("k", "sm_100a", gemm_sm100<tf32, f32, UmmaTestShape{128, 128, 32}, 2>, 3));
  expect_assembles(build("k", "sm_100a", gemm_sm100<e4m3, f32, UmmaTestShape{128, 64, 128}, 4>, 3));
  expect_assembles(build("k", "sm_100a", gemm_sm100<e2m1_padded, f32, UmmaTestShape{128, 64, 128}, 1>, 3));
  expect_assembles(build("k", "sm_100f", gemm_sm100<e3m2, f32, UmmaTestShape{128, 64, 64}, 2>, 3));
  expect_assembles(build("k", "sm_100a", gemm_sm100<s8, s32, UmmaTestShape{128, 256, 128}, 2>, 3));
  expect_assembles(build("k", "sm_103a", gemm_sm100<bf16, f32, UmmaTestShape{128, 256, 64}, 2>, 3));
}
TEST(umma_text, pair) {
  const auto b =
      build("k", "sm_100a", gemm_sm100_pair<bf16, UmmaTestShape{128, 128, 64}, 2>, PairTuning{4, true});
  EXPECT_TRUE(says(b, "tcgen05.mma.cta_group::2.kind::f16"));
  EXPECT_TRUE(says(b, ", 0x10200490;")) << "M = 256, N = 128";
  EXPECT_TRUE(says(b, "complete_tx::bytes.cta_group::2 ["));
  EXPECT_TRUE(
      says(b, "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64"));
  EXPECT_TRUE(
      says(b,
           "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::"
           "cluster::all.b128"));
  EXPECT_TRUE(says(b, ", 49152;")) << "bytes of both halves: 2 * (128 x 64 + 64 x 64) of bf16";
  expect_assembles(b);
}

TEST(umma_text, block_scales) {
  const auto a = build("k", "sm_100a", ScaledGemm<e4m3, ue8m0, UmmaTestShape{128, 128, 128}>::kernel);
  EXPECT_TRUE(says(a, "kind::mxf8f6f4.block_scale.scale_vec::1X"));
  EXPECT_TRUE(says(a, "tcgen05.cp.cta_group::1.32x128b.warpx4"));
  expect_assembles(a);
  const auto b = build("k", "sm_100a", ScaledGemm<e2m1x2, ue8m0, UmmaTestShape{128, 256, 128}>::kernel);
  EXPECT_TRUE(says(b, "kind::mxf4.block_scale.scale_vec::2X"));
  expect_assembles(b);
  const auto c = build("k", "sm_100a", ScaledGemm<e2m1x2, ue4m3, UmmaTestShape{128, 256, 128}>::kernel);
  EXPECT_TRUE(says(c, "kind::mxf4nvf4.block_scale.scale_vec::4X"));
  expect_assembles(c);
  const auto f = build("k", "sm_100f", ScaledGemm<e2m1x2, ue4m3, UmmaTestShape{128, 128, 128}>::kernel);
  EXPECT_TRUE(says(f, "kind::mxf4nvf4.block_scale.block16"));
  expect_assembles(f);
}

TEST(umma_text, a_in_tensor_memory) {
  const auto b = build("k", "sm_100a", a_in_tensor_memory);
  EXPECT_TRUE(says(b, "tcgen05.st.sync.aligned.32x32b.x16.b32"));
  EXPECT_TRUE(says(b, "tcgen05.wait::st.sync.aligned;"));
  expect_assembles(b);
}

TEST(umma_text, every_shape_of_load) {
  const auto b = build("k", "sm_100a", [](Kernel& k, Out<f32> c) {
    k.block(128);
    Cta cta = k.cta();
    Warpgroup wg = k.warpgroup();
    with_tmem<TmemSlots<TmemAcc<f32, 128, 64>, 1>>(k, [&](auto& tmem) {
      Accumulators accs(k, tmem.template get<0>(), cta);
      cta.one_thread([&](Thread& t) { accs.acquire(t).commit(t); });
      auto acc = accs.take(wg);
      c.st<4>(0, acc.template load_as<TmemShape::matrix16x64, 4>(wg, 0, 16).wait(wg));
      c.st<4>(1, acc.template load_as<TmemShape::matrix16x128, 2>(wg, 8).wait(wg));
      c.st<4>(2, acc.template load_as<TmemShape::matrix16x256, 1>(wg, 8).wait(wg));
      c.st<4>(3, acc.template load_as<TmemShape::lanes32x32, 4>(wg, 60).wait(wg));
      std::move(acc).release(wg);
    });
  });
  for (const char* shape : {"16x64b.x4", "16x128b.x2", "16x256b.x1", "32x32b.x4"})
    EXPECT_TRUE(says(b, (std::string("tcgen05.ld.sync.aligned.") + shape + ".b32").c_str())) << shape;
  expect_assembles(b);
}

TEST(umma_text, shift) {
  const auto b = build("k", "sm_100a", [](Kernel& k) {
    k.block(128);
    Cta cta = k.cta();
    with_tmem<TmemOperand<bf16, 128, 64>>(
        k, [&](auto& tmem) { cta.one_thread([&](Thread& t) { shift_down(t, tmem.template get<0>()); }); });
  });
  EXPECT_TRUE(says(b, "tcgen05.shift.cta_group::1.down"));
  expect_assembles(b);
}

TEST(umma_text, sixteen_bit_sums_and_transposed_b) {
  const auto b = build("k", "sm_100a", one_tile<f16, f16, 128, 128, 64, Major::k, Major::mn>);
  EXPECT_TRUE(says(b, "tcgen05.ld.sync.aligned.32x32b.x4.pack::16b.b32"));
  EXPECT_TRUE(says(b, ", 0x8210000;"));
  expect_assembles(b);
}

}  // namespace
}  // namespace cgp::dsl
