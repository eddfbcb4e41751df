// SPDX-License-Identifier: Apache-2.0
// Blackwell. expect_right runs small problems under every policy, so every step of the ladder is.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cgp/base/error.h"
#include "cgp/kernels/gemm/api/gemm.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::testing;

namespace {

constexpr const char* kSteps[] = {"sm100_tiled",       "sm100_swizzled",   "sm100_pipelined",
                                  "sm100_specialised", "sm100_persistent", "sm100_stealing",
                                  "sm100_multicast",   "sm100_pair"};

struct Shape {
  const char *m, *n, *k;
};
void run(const char* variant, const char* dtype, const char* layout, const Shape& s, const char* alpha = "1",
         const char* beta = "0", const char* batch = "1", const char* columns = "0") {
  expect_right(gemm_entry(),
               {{"variant", variant},
                {"dtype", dtype},
                {"layout", layout},
                {"m", s.m},
                {"n", s.n},
                {"k", s.k},
                {"alpha", alpha},
                {"beta", beta},
                {"batch", batch},
                {"columns", columns}},
               "sm_100a");
}

}  // namespace

TEST(gemm_sm100, every_step_of_the_ladder_on_ragged_shapes) {
  for (const char* step : kSteps) {
    run(step, "bf16", "nt", {"136", "264", "72"});
  }
  for (const char* step : {"sm100_pipelined", "sm100_persistent", "sm100_pair"})  // rings wrap, batches
    run(step, "f16", "nt", {"144", "72", "456"}, "0.5", "0", "2");
}

TEST(gemm_sm100, every_layout_beta_and_alignment) {
  for (const char* l : {"nn", "nt", "tn", "tt"}) {
    run("sm100_stealing", "bf16", l, {"136", "264", "72"});
    run("sm100_pair", "bf16", l, {"264", "72", "72"}, "0.5");
    run("auto", "f16", l, {"64", "72", "200"}, "0.5", "2");  // beta: stored directly
  }
  run("sm100_stealing", "bf16", "nt", {"1", "9", "8"});  // rows of c are not whole 16 bytes
  run("auto", "bf16", "nt", {"257", "264", "72"});
  run("auto", "bf16", "nt", {"129", "1", "65"});  // nor rows of a and b
  run("auto", "bf16", "nt", {"40", "40", "64"}, "1", "0", "3");
  run("sm100_specialised", "f16", "nt", {"40", "41", "64"}, "1", "1", "3");
}

TEST(gemm_sm100, wide_tiles_where_there_are_many) {
  for (const char* step :
       {"sm100_specialised", "sm100_persistent", "sm100_stealing", "sm100_multicast", "sm100_pair"})
    run(step, "bf16", "nt", {"136", "264", "72"}, "1", "0", "1", "256");
  run("sm100_pair", "f16", "tn", {"136", "264", "72"}, "1", "0", "1", "256");
  runtime::DeviceInfo d;
  d.arch = "sm_100a", d.cc_major = 10, d.sm_count = 4;
  const GemmProblem p{.type = DType::bf16, .trans_b = true, .m = 512, .n = 512, .k = 64};
  EXPECT_EQ(select_gemm(p, {}, d).tile_n, 256u);
  EXPECT_EQ(select_gemm(p, {}, d).kind, GemmFamily::sm100_pair);
  d.sm_count = 148;
  EXPECT_EQ(select_gemm(p, {}, d).tile_n, 128u);
}

TEST(gemm_sm100, nan_and_infinity_propagate_and_beta_zero_ignores_c) {
  HostArray a(DType::bf16, {1, 32, 32}), b(DType::bf16, {1, 32, 32}), c(DType::bf16, {1, 32, 32});
  for (std::uint64_t i = 0; i < 1024; ++i) a.set(i, 1), b.set(i, 1), c.set(i, NAN);
  a.set(5 * 32 + 3, INFINITY);
  a.set(7 * 32 + 2, NAN);
  for (const char* v : {"sm100_specialised", "sm100_pair"})
    expect_right(gemm_entry(), {{"variant", v}, {"layout", "nt"}}, "sm_100a", {{"a", a}, {"b", b}, {"c", c}});
}

TEST(gemm_sm100, another_device_says_what_it_needs) {
  runtime::DeviceInfo d;
  d.arch = "sm_90a", d.cc_major = 9, d.sm_count = 132;
  const GemmProblem p{.type = DType::bf16, .trans_b = true, .m = 128, .n = 128, .k = 64};
  EXPECT_EQ(reject(GemmFamily::sm100_pair, p, {}, d),
            "needs sm_100a: tcgen05 and tensor memory, this is sm_90a");
}
