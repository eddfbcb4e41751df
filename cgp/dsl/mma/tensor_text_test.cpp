// SPDX-License-Identifier: Apache-2.0
// Forms that no emulator test reaches: recorded, verified, and assembled where ptxas is installed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cgp/dsl/core/ptxas_test.h"
#include "cgp/dsl/mma/gemms_test.h"
#include "cgp/dsl/pipeline/cluster.h"
#include "cgp/dsl/pipeline/tensor_map_edit.h"

namespace cgp::dsl {
namespace {

using testing::HasSubstr;

void expect_assembles(const BuiltKernel& b) {
  const auto said = ptxas(b);
  if (said == "no ptxas") return;
  EXPECT_EQ(said, "") << b.ptx();
}

TEST(tensor_text, tensor_map_edited_and_used_on_the_device) {
  using T = Tile<bf16, 64, 64>;
  const auto b =
      build("edit", "sm_90a", [](Kernel& k, TmaIn<T> a, InOut<u32> maps, In<bf16> data, Val<u32> rows) {
        k.block(128);
        Cta cta = k.cta();
        Ring<ByThreads, T> ring(k, 1, cta, a);
        cta.one_warp([&](Warp& w) {
          TensorMapEdit edit(w, a);
          edit.address(data).extent(0, rows).stride(0, Val<u64>(256));
          auto fresh_map = std::move(edit).publish(w, maps.at(32));
          auto mine = fresh_map.acquire(a);
          w.one_thread([&](Thread& t) { ring.fill(t, at(mine, 0, 0)); });
        });
        auto wg = k.warpgroup();
        ring.take(wg).release(wg);
      });
  EXPECT_THAT(b.ptx(), HasSubstr("tensormap.replace.tile.global_dim.shared::cta.b1024.b32"));
  EXPECT_THAT(b.ptx(), HasSubstr("fence.proxy.tensormap::generic.acquire.gpu"));
  expect_assembles(b);
}

template <class T, class TC, int N, int K>
void all_n(Kernel& k, Out<TC> c) {
  auto math = k.role<Warpgroup>(1);
  auto a = shared_tile<Tile<T, 64, K>>(k);
  auto b = shared_tile<Tile<T, N, K>>(k);
  math.run([&](Warpgroup& wg) {
    auto acc = wgmma(wg, fresh<TC, 64, N>(wg), a, b).wait(wg);
    c.st(0, acc[0]);
  });
}
TEST(tensor_text, wgmma_shapes_and_types) {
  expect_assembles(build("k", "sm_90a", all_n<bf16, f32, 8, 16>));
  expect_assembles(build("k", "sm_90a", all_n<f16, f32, 248, 64>));
  expect_assembles(build("k", "sm_90a", all_n<tf32, f32, 136, 32>));
  expect_assembles(build("k", "sm_90a", all_n<e4m3, f32, 256, 128>));
  expect_assembles(build("k", "sm_90a", all_n<e5m2, f32, 64, 32>));
  expect_assembles(build("k", "sm_90a", all_n<s8, s32, 224, 64>));
  expect_assembles(build("k", "sm_90a", all_n<u8, s32, 24, 64>));
}

TEST(tensor_text, mma_on_older_targets) {
  const auto text = build("k", "sm_89", gemm_sm80<e4m3, f32, AmpereShape{64, 64, 64}>, 3).ptx();
  EXPECT_THAT(text, HasSubstr("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"));
  expect_assembles(build("k", "sm_89", gemm_sm80<e5m2, f32, AmpereShape{64, 64, 64}>, 3));
  expect_assembles(build("k", "sm_80", gemm_sm80<s8, s32, AmpereShape{128, 128, 64}>, 3));
  expect_assembles(build("k", "sm_86", gemm_sm80<tf32, f32, AmpereShape{64, 128, 32}>, 3));
  EXPECT_THROW(build("k", "sm_80", gemm_sm80<e4m3, f32, AmpereShape{64, 64, 64}>, 3), BuildError);
}

TEST(tensor_text, a_stage_costs_one_barrier_and_its_copies) {
  const auto text = build("k", "sm_90a", gemm_sm90_persistent<bf16, bf16, HopperShape{128, 256, 64}, 64>,
                          PersistentTuning{4, 2, 2})
                        .ptx();
  EXPECT_THAT(text, HasSubstr(", 49152;")) << "bytes of a stage: 128 x 64 and 256 x 64 of bf16";
  EXPECT_THAT(text, HasSubstr("cp.async.bulk.wait_group.read 1;"))
      << "two staging buffers: one store may be pending";
  EXPECT_THAT(text, HasSubstr("mbarrier.arrive.release.cta.shared::cluster.b64 _"));
  // 2 math warpgroups of 4 warps in each of 2 blocks free a stage.
  EXPECT_THAT(text, testing::ContainsRegex("mbarrier.init.shared::cta.b64 .*, 16;"));
}

}  // namespace
}  // namespace cgp::dsl
