// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/quantized_matmul/quantized_matmul.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "cgp/base/error.h"
#include "cgp/kernels/dequantize/dequantize_ref.h"
#include "cgp/kernels/quantized_matmul/packed_gemv.h"
#include "cgp/kernels/quantized_matmul/quantized_grouped.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::testing;
using ::testing::HasSubstr;

namespace {

void run(const char* format, const char* type, const char* m, const char* n, const char* k,
         std::string_view arch = "sm_90a", const char* transposed = "0", const char* group = "32",
         const char* packed = "1") {
  expect_right(quantized_matmul_entry(),
               {{"format", format},
                {"dtype", type},
                {"m", m},
                {"n", n},
                {"k", k},
                {"group", group},
                {"transposed", transposed},
                {"packed", packed}},
               arch);
}
void run_unpacked(const char* format, const char* type, const char* m, const char* n, const char* k,
                  std::string_view arch, const char* group = "32") {
  run(format, type, m, n, k, arch, "0", group, "0");
}
template <class F>
std::string message(const F& f) {
  try {
    f();
  } catch (const ArgumentError& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST(quantized_matmul, every_way_matches_the_oracle) {
  run("q4_k", "bf16", "1", "40", "512"), run("q6_k", "f16", "16", "24", "256"),
      run("q4_k", "bf16", "33", "40", "512"), run("q6_k", "f16", "70", "40", "256");
  run("iq2_s", "f16", "3", "20", "256"), run("mxfp4", "bf16", "5", "24", "96"),
      run("gptq", "f16", "4", "24", "96");
  run("awq", "bf16", "20", "64", "64"), run("bnb_nf4", "bf16", "9", "16", "72"),
      run("fp8_e4m3", "f32", "2", "7", "9");
  run("q8_0", "f32", "3", "33", "64"), run("f16", "f32", "2", "5", "7"), run("q4_0", "bf16", "0", "8", "32");
}
// Inputs of a group lie anywhere: columns of x are gathered by the product of few rows, before that of many, and weights are
// dequantised elsewhere.
TEST(quantized_matmul, act_order) {
  const auto act = [](const char* type, const char* m, const char* k, const char* group, const char* arch,
                      const char* transposed = "0") {
    expect_right(quantized_matmul_entry(),
                 {{"format", "gptq"},
                  {"dtype", type},
                  {"m", m},
                  {"n", "40"},
                  {"k", k},
                  {"group", group},
                  {"g_idx", "1"},
                  {"transposed", transposed}},
                 arch);
  };
  act("bf16", "1", "512", "128", "sm_90a"), act("f16", "5", "352", "32", "sm_90a");
  act("bf16", "16", "320", "64", "sm_90a"), act("bf16", "19", "384", "128", "sm_90a");
  act("f16", "70", "96", "32", "sm_90a"), act("f16", "3", "96", "32", "sm_80");
  act("bf16", "4", "128", "64", "sm_90a", "1"), act("f16", "2", "96", "48", "sm_90a");
}
TEST(quantized_matmul, the_gradient_of_the_input) {
  run("q4_k", "bf16", "5", "24", "512", "sm_90a", "1"), run("gptq", "f16", "9", "16", "64", "sm_90a", "1");
  run("bnb_nf4", "f32", "3", "6", "20", "sm_80", "1", "64");
}
// One to four rows of every format that the GEMV has, with columns that are no multiple of a warp's 256, and more rows of the weight
// than blocks have warps.
TEST(quantized_matmul, one_to_four_rows_are_decoded_in_registers) {
  for (auto format : {"q4_0", "q8_0", "q5_1"})
    run_unpacked(format, "f16", "2", "9", "96", "sm_75"),
        run_unpacked(format, "f32", "1", "17", "320", "sm_80");
  run_unpacked("nf4", "f16", "2", "9", "128", "sm_75"), run_unpacked("mxfp4", "f32", "2", "9", "96", "sm_75"),
      run_unpacked("q4_k", "f16", "1", "3", "768", "sm_75"),
      run_unpacked("q6_k", "bf16", "4", "3", "256", "sm_80");
  run_unpacked("bnb_nf4", "f16", "1", "9", "72", "sm_75", "64"),
      run_unpacked("bnb_nf4", "f32", "3", "2", "64", "sm_86", "8");
  QuantizedMatmul p;
  p.weight.format = QuantizedFormat::q4_k, p.weight.rows = p.weight.cols = 4096;
  p.x = p.y = View::stand_in(DType::f16), p.m = 4;
  const auto info = runtime::Device::open("emu:sm_75").info();
  EXPECT_TRUE(quantized_matmul_plan(p, info).gemv);
  EXPECT_EQ(quantized_matmul_plan(p, info).workspace, 0u);
  p.m = 5;
  EXPECT_FALSE(quantized_matmul_plan(p, info).gemv);
  p.m = 4, p.x = p.y = View::stand_in(DType::bf16);
  EXPECT_FALSE(quantized_matmul_plan(p, info).gemv);  // no rounding to bf16 before sm_80
}
// Packed weights without tensor cores: rows of the weight that end within a tile and within a block's tiles, columns that end within
// a tile, blocks whose warps have no tile of columns, every format.
TEST(quantized_matmul, one_to_four_rows_of_packed_weights_need_no_tensor_cores) {
  run("q4_0", "f16", "1", "17", "96", "sm_75"), run("q4_0", "f32", "3", "33", "2336", "sm_80");
  run("q8_0", "f16", "1", "40", "800", "sm_75"), run("q8_0", "f16", "1", "33", "2336", "sm_75"),
      run("q8_0", "bf16", "2", "5", "64", "sm_86");
  run("q4_k", "f16", "1", "19", "512", "sm_75"), run("q4_k", "f32", "4", "32", "768", "sm_89");
  run("q5_k", "bf16", "1", "9", "256", "sm_80"), run("q6_k", "f16", "2", "21", "768", "sm_75");
  run("nf4", "f16", "1", "18", "128", "sm_75"), run("iq4_nl", "f32", "2", "7", "288", "sm_75");
  run("bnb_nf4", "f16", "1", "20", "320", "sm_75", "0", "64");
  run("gptq", "f16", "1", "24", "352", "sm_75", "0", "32"),
      run("gptq", "bf16", "2", "8", "320", "sm_80", "0", "64");
  run("awq", "f16", "1", "64", "384", "sm_75", "0", "128"), run("q4_k", "f32", "1", "16", "256", "sm_90a");
  QuantizedMatmul p;
  p.weight.format = QuantizedFormat::q8_0, p.weight.rows = p.weight.cols = 4096;
  p.x = p.y = View::stand_in(DType::f16), p.packed = View::stand_in(DType::u8), p.m = 4;
  const auto info = runtime::Device::open("emu:sm_75").info();
  EXPECT_TRUE(quantized_matmul_plan(p, info).packed_gemv);
  EXPECT_EQ(packed_gemv_config(p, info).warps, 16);
  p.m = 1;
  for (auto format : {QuantizedFormat::q8_0, QuantizedFormat::q4_k}) {  // what a browser has
    p.weight.format = format;
    auto browser = info;
    browser.kind = runtime::DeviceKind::wgpu;
    EXPECT_LE(packed_gemv_config(p, browser).warps, 8);
    EXPECT_LE(packed_gemv_config(p, browser).shared_bytes(), 16 << 10);
  }
  p.m = 5;
  EXPECT_FALSE(quantized_matmul_plan(p, info).packed_gemv);
  p.m = 1, p.weight.format = QuantizedFormat::mxfp4;
  EXPECT_TRUE(quantized_matmul_plan(p, info).gemv);
}
TEST(quantized_matmul, runs_on_every_architecture) {
  for (auto arch : kTargets)
    run("q4_k", "f16", "4", "16", "256", arch), run("awq", "f32", "3", "16", "64", arch);
}

TEST(quantized_matmul, right_on_a_gpu) {
  expect_right_on_gpu(
      quantized_matmul_entry(),
      {{{"format", "q4_0"}, {"dtype", "bf16"}, {"m", "1"}, {"n", "1000"}, {"k", "1024"}, {"transposed", "0"}},
       {{"format", "q4_k"}, {"dtype", "bf16"}, {"m", "8"}, {"n", "1000"}, {"k", "1024"}, {"transposed", "0"}},
       {{"format", "q6_k"}, {"dtype", "f16"}, {"m", "16"}, {"n", "1000"}, {"k", "1024"}, {"transposed", "0"}},
       {{"format", "q4_k"},
        {"dtype", "bf16"},
        {"m", "300"},
        {"n", "1000"},
        {"k", "1024"},
        {"transposed", "0"}},
       {{"format", "q8_0"},
        {"dtype", "bf16"},
        {"m", "33"},
        {"n", "1000"},
        {"k", "1024"},
        {"transposed", "1"}},
       {{"format", "iq2_s"}, {"dtype", "f32"}, {"m", "3"}, {"n", "1000"}, {"k", "1024"}, {"transposed", "0"}},
       {{"format", "mxfp4"},
        {"dtype", "bf16"},
        {"m", "65"},
        {"n", "1000"},
        {"k", "1024"},
        {"transposed", "0"}},
       {{"format", "gptq"}, {"dtype", "f16"}, {"m", "9"}, {"n", "1000"}, {"k", "1024"}, {"transposed", "0"}},
       {{"format", "awq"}, {"dtype", "bf16"}, {"m", "40"}, {"n", "1000"}, {"k", "1024"}, {"transposed", "1"}},
       {{"format", "bnb_nf4"},
        {"dtype", "bf16"},
        {"m", "128"},
        {"n", "1000"},
        {"k", "1024"},
        {"transposed", "0"}},
       {{"format", "fp8_e4m3"},
        {"dtype", "bf16"},
        {"m", "17"},
        {"n", "1000"},
        {"k", "1030"},
        {"transposed", "0"}}});
}

// Slabs of a small workspace: the same bits as in one, nothing behind the rows of y written.
TEST(quantized_matmul, slabs_and_pitches) {
  const auto device = runtime::Device::open("emu:sm_80");
  QuantizedWeight w;
  w.format = QuantizedFormat::q5_1, w.rows = 600, w.cols = 544;
  const auto host = random_weight(w, false, false, 5);
  auto codes = device.upload<std::uint8_t>(typed<std::uint8_t>(host.codes));
  for (bool transposed : {false, true}) {
    const std::uint64_t k = transposed ? w.rows : w.cols, n = transposed ? w.cols : w.rows, m = 5;
    const auto x_host = random_array(DType::f32, {m * (k + 1)}, 3);
    auto x = device.upload<float>(typed<float>(x_host));
    std::vector<float> seen[2];
    for (int i = 0; i < 2; ++i) {
      auto y = device.upload<float>(std::vector<float>(m * (n + 5), -9.f));
      QuantizedMatmul p;
      p.weight = w, p.weight.codes = std::as_const(codes), p.transposed = transposed;
      p.x = std::as_const(x), p.y = y, p.m = m, p.x_layout.pitch = k + 1, p.y_layout.pitch = n + 5;
      if (i) p.workspace_limit = 1;
      const auto plan = quantized_matmul_plan(p, device.info());
      EXPECT_EQ(plan.slab, i ? 256u : n);
      EXPECT_EQ(plan.workspace, plan.slab * k * 4);
      auto workspace = device.zeros<std::uint8_t>(plan.workspace);
      p.workspace = workspace;
      quantized_matmul(device.stream(), p);
      device.sync();
      seen[i] = y.to_vector();
      for (std::uint64_t r = 0; r < m; ++r)
        for (std::uint64_t c = n; c < n + 5; ++c) EXPECT_EQ(seen[i][r * (n + 5) + c], -9.f);
    }
    for (std::size_t e = 0; e < seen[0].size(); ++e)
      EXPECT_NEAR(seen[0][e], seen[1][e], 1e-4 * std::fabs(seen[0][e]) + 1e-4) << e;
  }
}

TEST(quantized_matmul, the_selector_says_which_way_and_why) {
  const auto device = runtime::Device::open("emu:sm_90a");
  QuantizedMatmul p;
  p.weight.format = QuantizedFormat::q4_k, p.weight.rows = 4096, p.weight.cols = 4096;
  p.x = p.y = View::stand_in(DType::bf16), p.packed = View::stand_in(DType::u8), p.m = 1;
  EXPECT_TRUE(quantized_matmul_plan(p, device.info()).weight_only);
  p.m = 33;
  auto plan = quantized_matmul_plan(p, device.info());
  EXPECT_TRUE(plan.weight_only && plan.wgmma);
  EXPECT_EQ(plan.workspace, 0u);
  p.packed = {};
  plan = quantized_matmul_plan(p, device.info());
  EXPECT_FALSE(plan.weight_only);
  EXPECT_EQ(plan.workspace, 4096u * 4096 * 2);
  EXPECT_THAT(plan.why, HasSubstr("no packed weights"));
  p.weight.rows = 128256;
  plan = quantized_matmul_plan(p, device.info());
  EXPECT_LE(plan.workspace, 64u << 20);
  p.m = 1, p.weight.format = QuantizedFormat::iq2_s;
  EXPECT_THAT(quantized_matmul_plan(p, device.info()).why, HasSubstr("weight_only has no iq2_s"));
  p.weight.format = QuantizedFormat::q4_k;
  p.packed = View::stand_in(DType::u8);
  EXPECT_THAT(quantized_matmul_plan(p, runtime::Device::open("emu:sm_75").info()).why, HasSubstr("sm_75"));
  const auto ampere = runtime::Device::open("emu:sm_80").info();
  EXPECT_TRUE(quantized_matmul_plan(p, ampere).weight_only);
  p.m = 33;
  EXPECT_FALSE(quantized_matmul_plan(p, ampere).weight_only);
  EXPECT_THAT(quantized_matmul_plan(p, ampere).why, HasSubstr("at most 32 rows"));
  p.m = 16, p.weight.cols = 14336;
  EXPECT_THAT(quantized_matmul_plan(p, ampere).why, HasSubstr("shared memory of a block"));
}

// Three experts, one of them without rows, rows behind the last end: packed on sm_90 and dequantised elsewhere.
void check_grouped(const char* arch, QuantizedFormat f, std::uint64_t n, std::uint64_t k, bool wide,
                   bool packs) {
  const auto device = runtime::Device::open(std::string("emu:") + arch);
  QuantizedWeight w;
  w.format = f, w.rows = 3 * n, w.cols = k;
  const auto host = random_weight(w, false, false, 5);
  auto codes = device.upload<std::uint8_t>(typed<std::uint8_t>(host.codes));
  const std::uint64_t m = 23, ends[] = {9, 9, 21};
  const auto x_host = random_array(DType::bf16, {m * k}, 3);
  auto x = device.upload<std::uint16_t>(typed<std::uint16_t>(x_host));
  HostArray y_host = random_array(DType::bf16, {m * n}, 4);
  const HostArray before = y_host;
  auto y = device.upload<std::uint16_t>(typed<std::uint16_t>(y_host));
  auto narrow = device.upload<std::uint32_t>(std::vector<std::uint32_t>{9, 9, 21});
  auto wider = device.upload<std::uint64_t>(std::vector<std::uint64_t>{9, 9, 21});
  auto at_host = w;
  at_host.codes = View(reinterpret_cast<std::uint64_t>(host.codes.bytes.data()), host.codes.size(), DType::u8,
                       false, nullptr);
  std::vector<std::byte> bytes_of(packed_size(at_host) + 1);
  if (bytes_of.size() > 1) pack_weight(at_host, std::span(bytes_of).first(bytes_of.size() - 1));
  auto packed = device.alloc<std::byte>(bytes_of.size());
  packed.upload(bytes_of);
  const auto backend = device.backend().get();
  QuantizedGrouped p;
  p.weight = w, p.weight.codes = std::as_const(codes), p.groups = 3, p.m = m;
  p.ends = wide ? View(wider.address(), 3, DType::u64, false, backend)
                : View(narrow.address(), 3, DType::u32, false, backend);
  p.x = View(x.address(), m * k, DType::bf16, false, backend);
  p.y = View(y.address(), m * n, DType::bf16, true, backend);
  if (bytes_of.size() > 1) p.packed = View(packed.address(), bytes_of.size() - 1, DType::u8, false, backend);
  const auto plan = quantized_grouped_plan(p, device.info());
  EXPECT_EQ(plan.weight_only, packs) << plan.why;
  auto workspace = device.zeros<std::uint8_t>(plan.workspace + 1);
  p.workspace = workspace;
  quantized_grouped(device.stream(), p);
  device.sync();
  const auto got = y.to_vector();
  std::memcpy(y_host.bytes.data(), got.data(), y_host.bytes.size());
  const auto values = decoded(host);
  for (std::uint64_t r = 0, g = 0; r < m; ++r) {
    while (g < 3 && r >= ends[g]) ++g;
    for (std::uint64_t j = 0; j < n; ++j) {
      if (g == 3) {
        EXPECT_EQ(y_host.at(r * n + j), before.at(r * n + j));
        continue;
      }
      double sum = 0, size = 0;
      for (std::uint64_t e = 0; e < k; ++e) {
        const double v = x_host.at(r * k + e) * double(values[(g * n + j) * k + e]);
        sum += v, size += std::fabs(v);
      }
      // A minimum is a part of a weight of Q4_K that its value does not show.
      const double bound = unit_roundoff(DType::bf16) * (1.01 * std::fabs(sum) + 8 * size + 0.1);
      EXPECT_NEAR(y_host.at(r * n + j), sum, bound) << name(f) << " " << r << " " << j;
    }
  }
  if (!packs) {
    p.workspace = {};
    EXPECT_THAT(message([&] { quantized_grouped(device.stream(), p); }),
                HasSubstr("workspace must be given"));
  }
  p.groups = 7;
  EXPECT_THAT(message([&] { quantized_grouped(device.stream(), p); }), HasSubstr("must divide the rows"));
}
TEST(quantized_matmul, experts_of_a_mixture) {
  check_grouped("sm_90a", QuantizedFormat::q4_0, 64, 512, false, true);
  check_grouped("sm_90a", QuantizedFormat::q8_0, 32, 96, true, true);
  check_grouped("sm_90a", QuantizedFormat::q4_0, 24, 64, false, false);  // packed experts have 32 rows
  check_grouped("sm_80", QuantizedFormat::q8_0, 40, 64, true, false);
}

TEST(quantized_matmul, what_does_not_fit_is_named_and_nothing_is_written) {
  const auto device = runtime::Device::open("emu:sm_90a");
  QuantizedWeight w;
  w.format = QuantizedFormat::q8_0, w.rows = 8, w.cols = 64;
  auto host = random_weight(w, false, false, 5);
  auto codes = device.upload<std::uint8_t>(typed<std::uint8_t>(host.codes));
  auto x = device.zeros<float>(5 * 64), y = device.zeros<float>(5 * 8);
  auto workspace = device.zeros<std::uint8_t>(8 * 64 * 4);
  QuantizedMatmul good;
  good.weight = w, good.weight.codes = std::as_const(codes), good.m = 5;
  good.x = std::as_const(x), good.y = y, good.workspace = workspace;
  const auto why = [&](const QuantizedMatmul& p) {
    return message([&] { quantized_matmul(device.stream(), p); });
  };
  EXPECT_EQ(why(good), "");
  auto p = good;
  p.weight.cols = 96;
  EXPECT_THAT(why(p), HasSubstr("codes of q8_0 [8, 96] must have 816 bytes"));
  p = good, p.m = 6;
  EXPECT_THAT(why(p), HasSubstr("x must hold all rows"));
  p = good, p.workspace = {};
  EXPECT_THAT(why(p), HasSubstr("workspace must be given"));
  p = good, p.workspace.elements -= 1;
  EXPECT_THAT(why(p), HasSubstr("workspace must hold 2048 elements"));
  p = good, p.packed = p.workspace, p.packed.elements = 1;
  EXPECT_THAT(why(p), HasSubstr("packed must hold"));
  p = good, p.y.dtype = DType::bf16;
  EXPECT_THAT(why(p), HasSubstr("y must be one of"));
}

TEST(quantized_matmul, scales_that_are_no_numbers_are_flagged) {
  const auto device = runtime::Device::open("emu:sm_90a");
  QuantizedWeight w;
  w.format = QuantizedFormat::q8_0, w.rows = 8, w.cols = 64;
  auto host = random_weight(w, false, false, 5);
  for (std::uint32_t bad : {0u, 1u}) {
    if (bad) host.codes.set(35, 0x7f);  // d of block 1
    auto codes = device.upload<std::uint8_t>(typed<std::uint8_t>(host.codes));
    auto x = device.zeros<float>(64), y = device.zeros<float>(8);
    auto workspace = device.zeros<std::uint8_t>(8 * 64 * 4);
    auto error_flag = device.zeros<std::uint32_t>(1);
    QuantizedMatmul p;
    p.weight = w, p.weight.codes = std::as_const(codes), p.m = 1, p.x = std::as_const(x), p.y = y;
    p.workspace = workspace, p.error_flag = error_flag;
    quantized_matmul(device.stream(), p);
    device.sync();
    EXPECT_EQ(error_flag.to_vector()[0], bad);
  }
}
