// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/gemm/api/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cgp/base/error.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::testing;

namespace {

constexpr const char* kLayouts[] = {"nn", "nt", "tn", "tt"};

emu::Counters run(const char* variant, const char* dtype, const char* layout, const char* m, const char* n,
                  const char* k, std::string_view arch, const char* alpha = "1", const char* beta = "0",
                  const char* batch = "1") {
  return expect_right(gemm_entry(),
                      {{"variant", variant},
                       {"dtype", dtype},
                       {"layout", layout},
                       {"m", m},
                       {"n", n},
                       {"k", k},
                       {"alpha", alpha},
                       {"beta", beta},
                       {"batch", batch}},
                      arch);
}

}  // namespace

TEST(gemm_naive, every_layout_type_and_edge) {
  for (const char* l : kLayouts) {
    for (const char* t : {"f32", "f16", "bf16"}) run("naive", t, l, "17", "33", "9", "sm_80", "2", "-0.5");
    run("naive", "f32", l, "3", "5", "0", "sm_75", "1", "0.5", "2");
  }
  run("naive", "f32", "nn", "0", "5", "7", "sm_80");
  run("naive", "f32", "nn", "5", "0", "7", "sm_80");
}

TEST(gemm_simt, every_layout_and_ragged_shape) {
  for (const char* l : kLayouts) {
    run("simt", "f32", l, "129", "65", "19", "sm_75", "1.5", "0.25");
    run("simt", "bf16", l, "33", "130", "7", "sm_80");
  }
  run("simt", "f32", "nn", "1", "1", "1", "sm_90a");
  run("simt", "f16", "nt", "40", "40", "40", "sm_75", "1", "1", "3");
}

TEST(gemm_simt, shared_memory_has_no_bank_conflicts_where_it_matters) {
  const auto c = run("simt", "f32", "nn", "128", "128", "64", "sm_90a");
  // 64 steps of K, 8 warps: each step reads four 16-byte vectors; A's are the same address for half a warp.
  EXPECT_EQ(c.shared_load_conflicts, 0u);
}

TEST(gemm_sm80, every_layout_and_ragged_shape) {
  for (const char* l : kLayouts) {
    run("sm80", "bf16", l, "136", "72", "40", "sm_80", "1", "0");
    run("sm80", "f16", l, "128", "136", "104", "sm_90a", "0.5", "2");
  }
  run("sm80", "bf16", "nt", "1", "9", "8", "sm_86");  // n odd: single stores
  run("sm80", "bf16", "nt", "129", "257", "136", "sm_89");
  run("sm80", "f16", "nn", "64", "64", "256", "sm_120a", "1", "0", "3");
}

TEST(gemm_sm90, every_layout_and_ragged_shape) {
  for (const char* l : kLayouts) {
    run("sm90", "bf16", l, "136", "264", "72", "sm_90a", "1", "0");
    run("auto", "f16", l, "64", "72", "200", "sm_90a", "0.5", "2");
  }
  run("sm90", "bf16", "nt", "1", "9", "8", "sm_90a");
  run("sm90", "bf16", "nt", "257", "513", "264", "sm_90a");
  run("auto", "bf16", "nt", "40", "40", "64", "sm_90a", "1", "1", "3");
}

TEST(gemm_persistent_sm90, every_layout_and_ragged_shape) {
  for (const char* l : kLayouts) {
    run("sm90_persistent", "bf16", l, "136", "264", "72", "sm_90a");
    run("sm90_persistent", "f16", l, "400", "72", "136", "sm_90a", "0.5");
  }
  run("sm90_persistent", "bf16", "nt", "1", "8", "8", "sm_90a");
  run("sm90_persistent", "bf16", "nt", "300", "520", "264", "sm_90a");
  run("auto", "bf16", "nt", "40", "40", "64", "sm_90a", "1", "0", "3");
}

TEST(gemm_skinny, every_tile_and_ragged_shape) {
  run("skinny", "bf16", "nt", "1", "40", "1000", "sm_80");
  run("skinny", "f16", "nt", "16", "100", "328", "sm_90a", "0.5", "2");
  run("skinny", "bf16", "nt", "9", "65", "8", "sm_120a", "1", "0", "3");
  run("skinny", "f16", "nt", "7", "33", "2048", "sm_86");
  run("skinny", "bf16", "nt", "70", "130", "136", "sm_90a", "0.5", "1", "2");
}

TEST(gemm_cluster_split_k_sm90, every_layout_split_and_ragged_shape) {
  for (const char* l : kLayouts) {
    run("sm90_cluster_split_k", "bf16", l, "72", "136", "328", "sm_90a");
    run("sm90_cluster_split_k", "f16", l, "24", "72", "136", "sm_90a", "0.5", "2");
  }
  run("sm90_cluster_split_k", "bf16", "nt", "1", "9", "8", "sm_90a");
  run("sm90_cluster_split_k", "bf16", "nt", "1", "255", "1024", "sm_90a", "1", "0", "2");
  run("sm90_cluster_split_k", "bf16", "nt", "70", "134", "64", "sm_90a");
}

TEST(gemm_split_k_candidates_sm90, ragged_shapes) {
  run("sm90_split_k", "bf16", "nt", "72", "136", "336", "sm_90a");
  run("sm90_split_k", "f16", "tn", "136", "72", "144", "sm_90a", "0.5", "2");
}

TEST(gemm_stream_k_sm90, every_layout_width_and_ragged_shape) {
  const auto wide = [](const char* layout, const char* columns, const char* m, const char* n, const char* k,
                       const char* batch = "1") {
    expect_right(gemm_entry(), {{"variant", "sm90_stream_k"},
                                {"layout", layout},
                                {"columns", columns},
                                {"m", m},
                                {"n", n},
                                {"k", k},
                                {"alpha", "0.5"},
                                {"batch", batch}});
  };
  for (const char* l : kLayouts) run("sm90_stream_k", "bf16", l, "136", "264", "328", "sm_90a");
  wide("nt", "176", "130", "360", "72");
  wide("nt", "112", "64", "232", "136");
  wide("nt", "208", "72", "216", "72");
  wide("nt", "240", "72", "248", "72");
  wide("nn", "192", "72", "200", "72");
  wide("tn", "128", "136", "136", "200");
  wide("nt", "128", "120", "520", "328", "3");
  run("sm90_stream_k", "f16", "nt", "1", "8", "64", "sm_90a");
}

TEST(gemm_small_m_sm90, every_layout_tile_and_ragged_shape) {
  run("sm90_small_m", "bf16", "nt", "1", "200", "200", "sm_90a");
  run("sm90_small_m", "f16", "nt", "16", "100", "328", "sm_90a", "0.5", "2");
  run("sm90_small_m", "bf16", "nn", "30", "136", "136", "sm_90a", "1", "0", "2");
  run("sm90_small_m", "bf16", "nt", "65", "33", "40", "sm_90a");
}

TEST(gemm, nan_and_infinity_propagate_and_beta_zero_ignores_c) {
  HostArray a(DType::bf16, {1, 16, 16}), b(DType::bf16, {1, 16, 16}), c(DType::bf16, {1, 16, 16});
  for (std::uint64_t i = 0; i < 256; ++i) a.set(i, 1), b.set(i, 1), c.set(i, NAN);
  a.set(5 * 16 + 3, INFINITY);
  a.set(7 * 16 + 2, NAN);
  for (const char* v : {"naive", "simt", "sm80", "sm90", "sm90_cluster_split_k", "sm90_persistent",
                        "sm90_stream_k", "sm90_small_m"})
    expect_right(gemm_entry(), {{"variant", v}}, "sm_90a", {{"a", a}, {"b", b}, {"c", c}});
}

TEST(gemm, selection_is_a_pure_function_with_reasons) {
  runtime::DeviceInfo h;
  h.arch = "sm_90a", h.cc_major = 9, h.sm_count = 132;
  GemmProblem p{.type = DType::bf16, .trans_b = true, .m = 4096, .n = 4096, .k = 4096};
  EXPECT_EQ(select_gemm(p, {}, h).tile_n, 256u);
  EXPECT_EQ(select_gemm(p, {}, h).kind, GemmFamily::sm90_stream_k);  // which is measured fastest too
  p.m = p.n = 512;
  EXPECT_EQ(select_gemm(p, {}, h).kind, GemmFamily::sm90_cluster_split_k);
  p.m = 1, p.n = 4096;
  EXPECT_EQ(select_gemm(p, {}, h).kind, GemmFamily::sm90_small_m);
  p.n = 512;
  EXPECT_EQ(select_gemm(p, {}, h).kind, GemmFamily::skinny);
  p.n = 4096;
  p.m = 512, p.k = 4097;
  const auto copied = select_gemm(p, {}, h);
  EXPECT_TRUE(copied.pack_a && copied.pack_b);
  EXPECT_NE(copied.why.find("rows of a, b"), std::string::npos) << copied.why;
  p.n = 4097, p.k = 4096;
  EXPECT_TRUE(select_gemm(p, {}, h).pack_c);
  p.beta = 1;  // the old c goes through scratch memory too
  EXPECT_TRUE(select_gemm(p, {}, h).pack_c);
  EXPECT_TRUE(select_gemm(p, {}, h).variant.config.source_c);
  p.n = 4096, p.beta = 0;
  p.k = 0;
  EXPECT_EQ(select_gemm(p, {}, h).kind, GemmFamily::naive);
  p.m = p.n = 100, p.k = 64, h.arch = "sm_89", h.cc_major = 8, h.cc_minor = 9;
  EXPECT_EQ(select_gemm(p, {}, h).kind, GemmFamily::sm80);
  EXPECT_EQ(select_gemm(p, {8, 0, 0}, h).kind, GemmFamily::misaligned);  // too small to copy
}

TEST(gemm, operands_with_misaligned_rows_are_copied) {
  run("packed", "bf16", "nt", "255", "129", "257", "sm_90a");
  run("packed", "f16", "tn", "129", "200", "301", "sm_90a", "0.5", "2");
  run("packed", "bf16", "nn", "160", "255", "255", "sm_80", "1", "0", "2");
  run("packed", "bf16", "tt", "131", "264", "264", "sm_90a");
  run("packed", "bf16", "nt", "1000", "1001", "520", "sm_90a");  // large: c goes through scratch memory too
  run("packed", "bf16", "nn", "1001", "1001", "520", "sm_90a", "2", "0.5");
}

TEST(gemm, bad_arguments_name_the_argument) {
  const auto why = [](GemmProblem p) { return reject(p); };
  EXPECT_EQ(why({.type = DType::f32, .m = 2, .n = 3, .k = 4}), "");
  EXPECT_NE(why({.type = DType::f32, .m = 2, .n = 3, .k = 4, .lda = 3}).find("lda = 3"), std::string::npos);
  EXPECT_NE(why({.type = DType::f32, .trans_b = true, .m = 2, .n = 3, .k = 4, .ldb = 3}).find("ldb = 3"),
            std::string::npos);
  EXPECT_NE(why({.type = DType::f32, .m = 2, .n = 3, .k = 4, .ldc = 2}).find("ldc = 2"), std::string::npos);
  EXPECT_NE(why({.type = DType::f64}).find("f64"), std::string::npos);
  auto device = runtime::Device::open("emu");
  auto a = device.zeros<float>(7), b = device.zeros<float>(12), c = device.zeros<float>(6);
  EXPECT_THROW(gemm<float>(device.stream(), {.type = DType::f32, .m = 2, .n = 3, .k = 4}, a, b, c),
               ArgumentError);
}

TEST(gemm, right_and_repeatable_on_a_gpu) {
  expect_right_on_gpu(
      gemm_entry(),
      {{{"m", "512"}, {"n", "768"}, {"k", "640"}},
       {{"layout", "nn"}, {"m", "300"}, {"n", "264"}, {"k", "1000"}},
       {{"layout", "tn"}, {"m", "136"}, {"n", "520"}, {"k", "72"}, {"beta", "1"}},
       {{"layout", "tt"}, {"dtype", "f16"}, {"m", "256"}, {"n", "256"}, {"k", "256"}, {"batch", "3"}},
       {{"m", "127"}, {"n", "255"}, {"k", "3331"}},
       {{"m", "1"}, {"n", "4096"}, {"k", "4096"}},
       {{"m", "11"}, {"n", "1000"}, {"k", "1000"}},
       {{"m", "64"}, {"n", "4096"}, {"k", "4096"}},
       {{"m", "512"}, {"n", "1000"}, {"k", "2504"}},
       {{"variant", "sm80"}, {"m", "520"}, {"n", "392"}, {"k", "520"}},
       {{"dtype", "f32"}, {"m", "257"}, {"n", "129"}, {"k", "100"}}});
}

TEST(gemm, every_variant_assembles_without_spills) { expect_assembles(gemm_entry()); }
