// SPDX-License-Identifier: Apache-2.0
// Rooflines, the loops of profile simd, and the search for SIMD accesses without a guarantee.
#include <gtest/gtest.h>

#include <cmath>

#include "cgp/base/error.h"
#include "cgp/profile/lint/simd_lint.h"
#include "cgp/profile/measure/count.h"
#include "cgp/profile/roofline/cpu_ceilings.h"
#include "cgp/profile/roofline/peaks.h"
#include "cgp/profile/roofline/roofline_points.h"
#include "cgp/profile/timeline/timeline.h"

using namespace cgp;
using namespace cgp::profile;

namespace {

Roofline rtx4090() {
  Roofline r;
  r.title = "a & b";
  r.lines = {{"HBM", true, 1008, false}, {"FP16", false, 330000, false}, {"FP32", false, 82600, false}};
  return r;
}

}  // namespace

TEST(roofline, ridge_and_sides_are_those_of_the_data_sheet) {
  const Roofline r = rtx4090();
  EXPECT_NEAR(r.ridge(), 327.4, 0.05);
  EXPECT_NEAR(r.ceiling(8), 8064, 1e-9) << "memory-bound: intensity times bandwidth";
  EXPECT_NEAR(r.ceiling(500), 330000, 1e-9) << "compute-bound: the peak";
  EXPECT_THROW(r.ceiling(0), ArgumentError);
  EXPECT_THROW(r.ceiling(std::nan("")), ArgumentError);
  EXPECT_THROW(Roofline().ridge(), ArgumentError);
}

TEST(roofline, pictures_have_lines_and_points) {
  Roofline r = rtx4090();
  r.points = {{"soft<max>", 1.25, 1000}, {"none", 0, 0}};
  const std::string svg = roofline_svg(r);
  EXPECT_NE(svg.find("a &amp; b"), std::string::npos);
  EXPECT_NE(svg.find("soft&lt;max&gt;"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  const std::string text = roofline_text(r, 80, 16);
  EXPECT_NE(text.find("A  soft<max>: 1000 GFLOP/s"), std::string::npos) << text;
  EXPECT_NE(text.find("79 % of the ceiling"), std::string::npos) << text;
}

TEST(roofline, points_carry_the_bytes_of_each_level) {
  Document d;
  d.name = "softmax", d.more["flops"] = 2e9;
  d.metrics.set(measure::Metric::arithmetic_intensity, 2.0, measure::Source::derived, "x");
  d.metrics.set(measure::Metric::gflops, 4000.0, measure::Source::derived, "x");
  KernelUse k;
  k.name = "softmax_rows", k.launches = 1, k.us = {500};
  k.counters = {{"dram__bytes_read.sum", 6e8},
                {"dram__bytes_write.sum", 4e8},
                {"lts__t_bytes.sum", 2e9},
                {"l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", 1e7}};
  d.kernels = {k};
  Roofline r = rtx4090();
  r.lines.push_back({"L2 read", true, 10000, true});
  r.points = roof_points(d);
  ASSERT_EQ(r.points.size(), 1u);
  const auto& levels = r.points[0].levels;
  ASSERT_EQ(levels.size(), 3u) << "L1 was not counted";
  EXPECT_DOUBLE_EQ(levels[0].intensity, 2) << "2e9 operations over 1e9 bytes";
  EXPECT_DOUBLE_EQ(levels[1].intensity, 1);
  EXPECT_DOUBLE_EQ(levels[2].bytes, 1.28e9);
  const std::string text = roofline_text(r, 80, 16), svg = roofline_svg(r);
  EXPECT_NE(text.find("2000 MB: 1.00 FLOP/B, 4000 GB/s, 40 % of L2 read"), std::string::npos) << text;
  EXPECT_NE(text.find("198 % of HBM"), std::string::npos) << text;
  EXPECT_NE(svg.find(">shared</text>"), std::string::npos);

  // A program's kernels, by what counters saw of them; tensor cores that nobody counted make it unknown.
  Document program;
  k.metrics.set(measure::Metric::wall_clock_time_us, 500.0, measure::Source::measured, "x");
  for (const char* op : {"fadd", "fmul", "ffma", "dadd", "dmul", "dfma"})
    k.counters[std::string("smsp__sass_thread_inst_executed_op_") + op + "_pred_on.sum"] = 1e6;
  EXPECT_DOUBLE_EQ(counted_operations(k.counters), 8e6);
  k.counters["smsp__sass_thread_inst_executed_op_hfma_pred_on.sum"] = 1e6;
  EXPECT_DOUBLE_EQ(counted_operations(k.counters), 8e6) << "constants that are moved";
  k.counters["smsp__sass_thread_inst_executed_op_hfma_pred_on.sum"] = 1e7;
  EXPECT_DOUBLE_EQ(counted_operations(k.counters), 4.8e7);
  k.counters.erase("smsp__sass_thread_inst_executed_op_hfma_pred_on.sum");
  k.counters["sm__ops_path_tensor_src_bf16_dst_fp32.sum"] = 2e6;
  EXPECT_DOUBLE_EQ(counted_operations(k.counters), 1e7);
  k.counters.erase("sm__ops_path_tensor_src_bf16_dst_fp32.sum");
  k.counters["sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"] = 3;
  EXPECT_TRUE(std::isnan(counted_operations(k.counters)));
  k.counters.erase("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active");
  k.counters.erase("smsp__sass_thread_inst_executed_op_ffma_pred_on.sum");
  EXPECT_TRUE(std::isnan(counted_operations(k.counters)));
  program.kernels = {k};
  EXPECT_TRUE(roof_points(program).empty());
}

TEST(peaks, devices_are_found_by_their_names) {
  ASSERT_TRUE(device_peaks("NVIDIA H200"));
  EXPECT_EQ(device_peaks("NVIDIA H200")->memory_gbps, 4800);
  EXPECT_EQ(device_peaks("NVIDIA H100 PCIe")->memory_gbps, 2000) << "not that of the SXM board";
  EXPECT_EQ(device_peaks("NVIDIA H100 80GB HBM3")->memory_gbps, 3350);
  EXPECT_EQ(device_peaks("a toaster"), nullptr);
}

TEST(cpu_loops, every_width_computes_the_same) {
  for (std::size_t n : {1u, 15u, 16u, 63u, 64u, 1000u}) {
    std::vector<float> a(n), b(n);
    double want = 0;
    for (std::size_t i = 0; i < n; ++i) a[i] = float(i % 7), b[i] = float(i % 5), want += double(a[i]) * b[i];
    for (const char* isa : {"scalar", "sse2", "avx2", "avx512"}) {
      if (!has_isa(isa)) continue;
      EXPECT_EQ(run_cpu_function("dot", isa, a.data(), b.data(), n), float(want)) << isa << " " << n;
      std::vector<float> c = b;
      run_cpu_function("axpy", isa, a.data(), c.data(), n);
      for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(c[i], b[i] + 0.5f * a[i]) << isa << " " << n << " " << i;
    }
  }
  float x = 0;
  EXPECT_THROW(run_cpu_function("dot", "mmx", &x, &x, 1), ArgumentError);
  EXPECT_THROW(run_cpu_function("gemm", "scalar", &x, &x, 1), ArgumentError);
}

// A ceiling is what straight code reaches: multiply-adds that stay in registers, and hardly anything between
// them.
TEST(cpu_ceilings, chains_are_multiply_adds_and_little_else) {
#if CGP_SANITIZED
  GTEST_SKIP() << "instrumented";
#endif
  for (const cpu::Isa isa : {cpu::Isa::scalar, cpu::Isa::avx2, cpu::Isa::avx512}) {
    if (!cpu::has(isa)) continue;
    constexpr std::uint64_t kRounds = 100;
    measure::InstructionMix mix;
    try {
      mix = measure::step_function([isa] { measure::keep(multiply_adds(isa, kRounds)); });
    } catch (const Unsupported& e) {
      GTEST_SKIP() << e.what();
    }
    EXPECT_GE(mix.instructions, (isa == cpu::Isa::scalar ? 16 : 12) * kRounds) << cpu::name(isa);
    EXPECT_LE(mix.instructions, (isa == cpu::Isa::scalar ? 20 : 16) * kRounds + 200) << cpu::name(isa);
    EXPECT_LE(mix.loads_or_stores, 4 * kRounds) << cpu::name(isa);
  }
}

TEST(cpu_ceilings, every_width_reads_every_word) {
  alignas(64) std::uint64_t data[64 * 5];
  for (std::size_t bytes : {512u, 1024u, 2560u}) {
    std::uint64_t want = 0, word = 12345;
    for (std::size_t i = 0; i < bytes / 8; ++i)
      data[i] = word = word * 6364136223846793005u + 1442695040888963407u, want ^= word;
    for (cpu::Isa isa : cpu::all_isas())
      if (cpu::has(isa)) {
        EXPECT_EQ(read_all(isa, data, bytes), want) << cpu::name(isa) << " " << bytes;
      }
  }
}

TEST(simd_lint, streaming_stores_without_a_guarantee_are_found) {
  const auto risks = simd_risks(
      "void f(float* p, __m256 v) {\n"
      "  _mm256_stream_ps(p, v);\n"
      "}\n"
      "void g(float* p, __m256 v) {\n"
      "  if (reinterpret_cast<uintptr_t>(p) % 32 != 0) return;\n"
      "  _mm256_stream_ps(p, v);\n"
      "}\n"
      "void h(float* p, __m512 v) {\n"
      "  if ((uintptr_t(p) & 31) == 0) _mm512_store_ps(p, v);  // 32 is not enough for 64\n"
      "}\n"
      "void i(float* p, __m128 v) {\n"
      "  alignas(64) float tile[16];\n"
      "  _mm_store_ps(tile, v);\n"
      "  _mm_storeu_ps(p, v);\n"
      "  // _mm_stream_ps(p, v);\n"
      "  puts(\"_mm_stream_ps(p, v)\");\n"
      "}\n",
      "f.cpp");
  ASSERT_EQ(risks.size(), 2u);
  EXPECT_EQ(risks[0].line, 2);
  EXPECT_EQ(risks[0].bytes, 32);
  EXPECT_EQ(risks[1].line, 9);
  EXPECT_EQ(risks[1].intrinsic, "_mm512_store_ps");
}
