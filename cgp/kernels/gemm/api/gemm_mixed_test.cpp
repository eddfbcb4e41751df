// SPDX-License-Identifier: Apache-2.0
// Mixed types, scales and epilogues against loops in double; on the emulator, and the same on a GPU.
#include <gtest/gtest.h>

#include <limits>

#include "cgp/base/error.h"
#include "cgp/kernels/gemm/api/gemm_tuning.h"
#include "cgp/kernels/gemm/bench/gemm_trial.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::kernels::trial;

namespace {

// ---------------------------------------------------------------- the problems
void types(const runtime::Device& d, std::uint64_t scale) {
  const std::uint64_t m = 72 * scale, n = 136 * scale, k = 208 * scale;
  for (const char* l : {"nt", "nn", "tn", "tt"}) {
    for (DType t : {DType::f16, DType::bf16}) {
      auto p = problem(t, l, m, n, k);
      p.type_c = DType::f32, p.alpha = 0.5f;
      Trial(d, p).check(d);
    }
    auto tf = problem(DType::f32, l, m, n + 4, k + 4);
    tf.precision = GemmPrecision::fast;
    Trial(d, tf).check(d);
    auto e = problem(DType::e4m3, l, m, n, k);
    e.type_b = DType::e5m2;
    Trial(d, e).check(d);
    Trial(d, problem(DType::s8, l, m, n, k)).check(d);
  }
  for (DType a : {DType::e4m3, DType::e5m2})
    for (DType b : {DType::e4m3, DType::e5m2})
      for (auto precision : {GemmPrecision::standard, GemmPrecision::fast}) {
        auto p = problem(a, "nt", m + 1, n, k);
        p.type_b = b, p.type_c = a == b ? DType::f32 : DType::f16, p.precision = precision;
        p.scaling = GemmScaling::tensor;
        Trial(d, p).check(d);
      }
}
void scales(const runtime::Device& d, std::uint64_t scale) {
  for (auto kind : {GemmScaling::channel, GemmScaling::block}) {
    auto p = problem(DType::e4m3, "nt", 133 * scale, 264, 400 * scale);
    p.scaling = kind, p.batch = 2;
    Trial(d, p).check(d);
    p.precision = GemmPrecision::fast, p.beta = 0.5f, p.batch = 1;
    Trial(d, p).check(d);
  }
  auto s = problem(DType::s8, "nt", 65, 130, 200);
  s.scaling = GemmScaling::channel, s.type_c = DType::bf16;
  Trial(d, s).check(d);
}
void misaligned(const runtime::Device& d) {
  for (DType t : {DType::bf16, DType::e4m3, DType::s8, DType::f32}) {
    auto p = problem(t, "nt", 67, 131, 203);
    p.precision = GemmPrecision::fast;
    p.batch = 2;
    p.type_c = t == DType::s8 ? DType::s32 : DType::f32;
    Trial(d, p).check(d);
    p.beta = t == DType::s8 ? 0 : 2, p.lda = 205, p.ldc = 133;
    Trial(d, p).check(d);
  }
}
void widened(const runtime::Device& d, std::uint64_t scale) {
  for (const char* l : {"nt", "nn", "tn", "tt"}) {
    auto p = problem(DType::f32, l, 70 * scale, 137, 131 * scale);
    p.epilogue = epilogue::relu();
    Trial s(d, p);
    s.steps.push_back({[](auto, auto, auto, double& x, double&) { x = std::max(x, 0.0); }});
    s.check(d);
  }
}

void epilogues(const runtime::Device& d, DType t, DType c, std::uint64_t scale) {
  auto p = problem(t, "nt", 70 * scale, 136 * scale, 136 * scale);
  p.type_c = c;
  const auto dense = p.dense();
  const OnDevice bias(d, DType::bf16, p.n, 11), rows(d, DType::f32, p.m, 12), columns(d, DType::f16, p.n, 13),
      residual(d, DType::bf16, p.m * p.n, 14);
  const auto add_bias = [&](auto, auto, auto j, double& x, double& e) {
    x += bias.host.at(j), e += std::fabs(x) * 0x1p-23;
  };
  const auto function = [](double (*f)(double), double error) {
    return [=](auto, auto, auto, double& x, double& e) {
      e = 1.13 * e + std::fabs(x) * error;
      x = f(x);
    };
  };
  const auto check = [&](const Epilogue& e, std::vector<Step> steps, float beta = 0) {
    p.epilogue = e, p.beta = beta;
    Trial s(d, p);
    s.steps = std::move(steps);
    s.check(d);
  };
  using namespace epilogue;
  check(
      bias_rows(rows.view()) | relu(),
      {{[&](auto, auto i, auto, double& x, double& e) { x += rows.host.at(i), e += std::fabs(x) * 0x1p-23; }},
       {function([](double x) { return std::max(x, 0.0); }, 0)}});
  check(epilogue::bias(bias.view()) | epilogue::gelu(), {{add_bias}, {function(::gelu, 0x1p-21)}}, 0.5f);
  check(epilogue::bias(bias.view()) | epilogue::gelu_tanh(), {{add_bias}, {function(::gelu_tanh, 0x1p-20)}});
  check(gelu_tanh_fast(), {{function(::gelu_tanh, 0x1p-11)}});
  check(
      silu() | epilogue::residual(residual.view()) | scale_columns(columns.view()) | scale_rows(rows.view()),
      {{function([](double x) { return x / (1 + std::exp(-x)); }, 0x1p-21)},
       {[&](auto, auto i, auto j, double& x, double& e) {
         const double v = residual.host.at(i * p.n + j);
         x += v, e += std::fabs(v) * 0x1p-23;
       }},
       {[&](auto, auto i, auto j, double& x, double& e) {
         const double f = columns.host.at(j) * rows.host.at(i);
         x *= f, e *= std::fabs(f);
       }}});
  // One of the user's own.
  check(
      map(
          "cap",
          [](const EpiloguePoint& at, dsl::Val<dsl::f32> x, dsl::Val<dsl::f32> most,
             dsl::In<dsl::bf16> floor) { return dsl::max(dsl::min(x, most), at.of_column(floor)); },
          0.25f, runtime::Arg::address(bias.memory.address())),
      {{[&](auto, auto, auto j, double& x, double&) { x = std::max(std::min(x, 0.25), bias.host.at(j)); }}});
}

void pairs(const runtime::Device& d, DType t, std::uint64_t scale) {
  for (auto how : {Pairing::interleaved, Pairing::halves})
    for (const char* l : {"nt", "nn"}) {
      auto p = problem(t, l, 70 * scale, 272 * scale, 136 * scale);
      const OnDevice bias(d, DType::f32, p.n, 11), rows(d, DType::f32, p.m, 12);
      p.epilogue = epilogue::bias(bias.view()) | epilogue::swiglu(how) | epilogue::scale_rows(rows.view());
      p.beta = l[1] == 'n' ? 0.5f : 0;
      Trial s(d, p);
      s.steps = {{[&](auto, auto, auto j, double& x, double& e) {
                   x += bias.host.at(j), e += std::fabs(x) * 0x1p-23;
                 }},
                 {{}, true},
                 {[&](auto, auto i, auto, double& x, double& e) {
                   x *= rows.host.at(i), e *= std::fabs(rows.host.at(i));
                 }}};
      s.check(d);
    }
}

void largest(const runtime::Device& d, DType t) {
  auto p = problem(t, "nt", 130, 272, 72);
  p.type_c = DType::f32;
  OnDevice blocks(d, DType::f32, 2 * 3, 9);
  p.epilogue = epilogue::amax(blocks.view());
  Trial s(d, p);
  s.check(d);
  const auto c = s.c.back(), got = blocks.back();
  for (std::uint64_t i = 0; i < 2; ++i)
    for (std::uint64_t j = 0; j < 3; ++j) {
      double want = 0;
      for (std::uint64_t r = 128 * i; r < std::min<std::uint64_t>(128 * (i + 1), p.m); ++r)
        for (std::uint64_t q = 128 * j; q < std::min<std::uint64_t>(128 * (j + 1), p.n); ++q)
          want = std::max(want, std::fabs(c.at(r * p.n + q)));
      EXPECT_EQ(got.at(i * 3 + j), want) << i << " " << j;
    }
}

void oddities(const runtime::Device& d, GemmProblem p) {
  Trial s(d, p);
  s.a.host.set(3, std::numeric_limits<double>::quiet_NaN());
  s.b.host.set(5 * s.p.ldb + 1, bytes(p.type) == 1 ? std::numeric_limits<double>::quiet_NaN()
                                                   : std::numeric_limits<double>::infinity());
  s.a.upload(), s.b.upload();
  runtime::Stream stream(d);
  gemm(stream, s.p, s.a.view(), s.b.view(), s.c.view(), {s.fa.view(), s.fb.view()});
  stream.wait();
  const auto got = s.c.back();
  for (std::uint64_t j = 0; j < p.n; ++j) EXPECT_TRUE(std::isnan(got.at(j))) << s.describe() << " " << j;
  for (std::uint64_t i = 1; i < p.m; ++i)
    EXPECT_TRUE(bytes(p.type) == 1 ? std::isnan(got.at(i * p.n + 5)) : std::isinf(got.at(i * p.n + 5)))
        << s.describe() << " " << i;
  EXPECT_TRUE(std::isfinite(got.at(p.n)));
}
void all_oddities(const runtime::Device& d) {
  for (auto precision : {GemmPrecision::standard, GemmPrecision::fast})
    for (DType t : {DType::bf16, DType::f32, DType::e4m3, DType::e5m2}) {
      auto p = problem(t, "nt", 66, 72, 144);
      p.type_c = DType::f32, p.precision = precision;
      oddities(d, p);
    }
}

}  // namespace

TEST(gemm_mixed, types_on_hopper) { types(emulator("sm_90a"), 1); }
TEST(gemm_mixed, tiles_of_every_form) {
  const auto d = emulator("sm_90a");
  const auto check = [&](DType t, DType c, const char* layout, GemmMixedTuning tile,
                         GemmPrecision precision = GemmPrecision::fast) {
    auto p = problem(t, layout, 136, 264, precision == GemmPrecision::fast ? 208 : 400);
    p.type_c = c, p.precision = precision;
    Trial s(d, p);
    s.tile = tile;
    s.check(d);
  };
  check(DType::bf16, DType::f32, "nn", {.bm = 64, .bn = 64, .stages = 3});
  check(DType::bf16, DType::f32, "tt", {.bm = 128, .bn = 96, .stages = 3, .buffers = 3});
  check(DType::f16, DType::bf16, "tn", {.bm = 64, .bn = 256, .stages = 3});
  check(DType::f32, DType::f32, "nt", {.bm = 128, .bn = 64, .stages = 3});
  check(DType::e4m3, DType::bf16, "nt", {.bm = 128, .bn = 256, .stages = 3});
  check(DType::e5m2, DType::e4m3, "nt", {.bm = 64, .bn = 128, .stages = 3, .buffers = 1});
  check(DType::s8, DType::s32, "nt", {.bm = 128, .bn = 160, .stages = 3, .buffers = 1});
  // The last columns of each tile are stored twice.
  check(DType::s8, DType::s32, "nt", {.bm = 128, .bn = 176, .stages = 4});
  check(DType::e4m3, DType::bf16, "nt", {.bm = 128, .bn = 176, .stages = 5, .buffers = 1});
  check(DType::bf16, DType::f32, "nt", {.bm = 128, .bn = 176, .stages = 4});
  check(DType::s8, DType::bf16, "nt", {.bm = 128, .bn = 64, .stages = 3, .buffers = 1});
  // Sums of 128 of K, added up in registers.
  constexpr auto standard = GemmPrecision::standard;
  check(DType::e4m3, DType::bf16, "nt", {.bm = 128, .bn = 128, .stages = 3}, standard);
  check(DType::e5m2, DType::bf16, "nt", {.bm = 64, .bn = 128, .stages = 2}, standard);
  check(DType::e4m3, DType::f32, "tn", {.bm = 64, .bn = 64, .stages = 3}, standard);
  check(DType::e4m3, DType::e4m3, "nt", {.bm = 128, .bn = 128, .stages = 3, .buffers = 1}, standard);
}
// Positive operands: accumulators that stay in the tensor cores outgrow the 14 bits that those keep.
TEST(gemm_mixed, accumulators_of_8_bit_floats_are_promoted) {
  const auto d = emulator("sm_90a");
  const auto worst = [&](GemmProblem p, std::optional<GemmMixedTuning> tile) {
    p.type_c = DType::f32;
    Trial s(d, p);
    s.tile = tile;
    for (auto* x : {&s.a, &s.b, &s.fa, &s.fb}) {
      for (std::uint64_t i = 0; i < x->host.size(); ++i) x->host.set(i, 1 + x->values[i] / 2);
      x->upload();
    }
    return s.largest_relative_error(d);
  };
  auto p = problem(DType::e4m3, "nt", 72, 72, 2176);  // 17 stages
  p.precision = GemmPrecision::fast;
  EXPECT_GT(worst(p, GemmMixedTuning{.bm = 64, .bn = 128, .stages = 4}), 0x1p-6)
      << "this would not notice sums that are not promoted";
  p.precision = GemmPrecision::standard;
  p.type_b = DType::e5m2;
  EXPECT_LT(worst(p, {}), 0x1p-7);
  p.type_b = DType::e4m3;
  for (auto scaling : {GemmScaling::none, GemmScaling::block}) {
    p.scaling = scaling;
    std::vector<GemmMixedTuning> tiles{{.bm = 64, .bn = 128, .stages = 4, .overlapped = true},
                                       {.bm = 64, .bn = 256, .stages = 3, .promote = 2}};
    if (scaling == GemmScaling::none)
      tiles.insert(tiles.end(), {{.bm = 64, .bn = 64, .stages = 4},
                                 {.bm = 64, .bn = 128, .stages = 4, .promote = 2, .overlapped = true}});
    for (const auto& t : tiles)
      EXPECT_LT(worst(p, t), 0x1p-7) << t.bm << " x " << t.bn << " in " << t.promote;
  }
}
TEST(gemm_mixed, scales_on_hopper) { scales(emulator("sm_90a"), 1); }
TEST(gemm_mixed, misaligned_rows_on_hopper) { misaligned(emulator("sm_90a")); }
TEST(gemm_mixed, f32_as_three_bf16) { widened(emulator("sm_90a"), 1); }
TEST(gemm_mixed, epilogues_on_hopper) {
  epilogues(emulator("sm_90a"), DType::bf16, DType::bf16, 1);
  epilogues(emulator("sm_90a"), DType::e4m3, DType::e4m3, 1);
}
TEST(gemm_mixed, pairs_on_hopper) { pairs(emulator("sm_90a"), DType::bf16, 1); }
TEST(gemm_mixed, largest_of_blocks) {
  largest(emulator("sm_90a"), DType::f16);
  largest(emulator("sm_75"), DType::f16);
  largest(emulator("sm_86"), DType::f16);
}
TEST(gemm_mixed, nan_and_infinity_propagate) { all_oddities(emulator("sm_90a")); }

TEST(gemm_mixed, every_type_on_every_device) {
  for (const char* arch : {"sm_75", "sm_80", "sm_89", "sm_100a"}) {
    const auto d = emulator(arch);
    for (DType t : {DType::f16, DType::f32, DType::e4m3, DType::e5m2, DType::s8}) {
      auto p = problem(t, "tn", 19, 34, 150);
      p.type_c = t == DType::s8 ? DType::s8 : DType::f32, p.alpha = t == DType::s8 ? 0.001f : 2,
      p.beta = 0.5f;
      if (t == DType::e4m3) p.scaling = GemmScaling::block;
      Trial(d, p).check(d);
    }
    pairs(d, DType::f16, 1);
    for (const char* l : {"nt", "nn", "tn", "tt"}) {
      for (DType t : {DType::f16, DType::f32, DType::s8, DType::e4m3}) {
        auto p = problem(t, l, 130, 133, 152);
        p.precision = GemmPrecision::fast;
        if (t == DType::e4m3) p.type_c = DType::f32;
        Trial(d, p).check(d);
      }
      auto p = problem(DType::f32, l, 33, 131, 29);
      p.epilogue = epilogue::relu();
      Trial s(d, p);
      s.steps.push_back({[](auto, auto, auto, double& x, double&) { x = std::max(x, 0.0); }});
      s.check(d);
    }
  }
}

TEST(gemm_mixed, k_of_0_leaves_the_epilogue) {
  const auto d = emulator("sm_90a");
  auto p = problem(DType::bf16, "nt", 33, 40, 0);
  const OnDevice bias(d, DType::f32, p.n, 11);
  p.epilogue = epilogue::bias(bias.view());
  Trial s(d, p);
  s.steps = {{[&](auto, auto, auto j, double& x, double&) { x += bias.host.at(j); }}};
  s.check(d);
}

TEST(gemm_mixed, a_residual_with_wide_tiles) {
  const auto d = emulator("sm_90a");
  auto p = problem(DType::bf16, "nt", 136, 200, 136);
  p.trans_b = true;
  const OnDevice added(d, DType::bf16, p.m * p.n, 12);
  p.epilogue = epilogue::residual(added.view());
  Trial s(d, p);
  s.steps = {{[&](auto, auto i, auto j, double& x, double&) { x += added.host.at(i * 200 + j); }}};
  for (int columns : {192, 176}) {
    s.tile = GemmMixedTuning{.bm = 128, .bn = columns, .stages = 5, .buffers = 1};
    s.check(d);
  }
}

TEST(gemm_mixed, bad_arguments_name_the_argument) {
  const auto why = [](GemmProblem p) { return reject(p); };
  EXPECT_NE(why({.type = DType::bf16, .type_b = DType::f16}).find("type_b"), std::string::npos);
  EXPECT_NE(why({.type = DType::bf16, .type_c = DType::s32}).find("type_c"), std::string::npos);
  EXPECT_NE(why({.type = DType::bf16, .scaling = GemmScaling::block}).find("scaling"), std::string::npos);
  EXPECT_NE(why({.m = 2, .n = 3, .k = 4, .epilogue = epilogue::swiglu(Pairing::halves)}).find("n = 3"),
            std::string::npos);
  EXPECT_NE(why({.m = 2, .n = 8, .k = 4, .epilogue = epilogue::bias(DeviceArray(16, 7, DType::f32))})
                .find("bias has 7"),
            std::string::npos);
  EXPECT_THROW((void)(epilogue::swiglu(Pairing::halves) | epilogue::swiglu(Pairing::halves)), ArgumentError);
}

TEST(gemm_mixed, variants_assemble_without_spills) {
  std::vector<cgp::testing::ArchImage> wanted;
  const DeviceArray vector(16, 1024, DType::bf16), matrix(16, 1024 * 1024, DType::bf16);
  std::vector<GemmProblem> all;
  for (DType t : {DType::bf16, DType::f32, DType::e4m3, DType::s8})
    for (auto precision : {GemmPrecision::standard, GemmPrecision::fast}) {
      for (std::uint64_t n : {1024, 8192}) {
        auto p = problem(t, "nt", n, n, 1024);
        p.precision = precision;
        all.push_back(p);
      }
    }
  auto p = problem(DType::bf16, "nn", 1024, 1024, 1024);
  p.epilogue = epilogue::bias(vector) | epilogue::gelu();
  all.push_back(p);
  p.m = 128 * 132;  // tiles of 128 x 192 or 256
  all.push_back(p);
  p.m = 1024;
  p.epilogue = epilogue::residual(matrix);
  all.push_back(p);
  p.epilogue = epilogue::swiglu(Pairing::halves);
  all.push_back(p);
  auto blocks = problem(DType::e4m3, "nt", 1024, 1024, 1024);
  blocks.scaling = GemmScaling::block;
  all.push_back(blocks);
  for (const auto& [arch, cc] : {std::pair("sm_90a", 90), {"sm_80", 80}, {"sm_89", 89}, {"sm_75", 75}}) {
    runtime::DeviceInfo d;
    d.arch = arch, d.cc_major = cc / 10, d.cc_minor = cc % 10, d.sm_count = 132;
    for (const auto& q : all) {
      const auto c =
          q.plain() && !prefers_mixed_gemm(q, d) ? select_gemm(q, {}, d) : select_mixed_gemm(q, {}, d);
      if (!reject(c.variant, arch).empty()) continue;
      wanted.push_back({arch, image(c.variant, arch)});
    }
  }
  runtime::DeviceInfo h;
  h.arch = "sm_90a", h.cc_major = 9, h.sm_count = 132;
  for (DType t : {DType::bf16, DType::e4m3, DType::s8}) {
    auto wide = problem(t, "nt", 4096, 4096, 4096);
    wide.precision = GemmPrecision::fast, wide.type_c = t == DType::bf16 ? DType::f32 : DType::bf16;
    const auto c = choose_mixed_sm90(wide, {}, h, {.bm = 128, .bn = 176, .stages = 5, .buffers = 1});
    wanted.push_back({"sm_90a", image(c.variant, "sm_90a")});
  }
  auto added = problem(DType::bf16, "nt", 4096, 4096, 4096);
  for (const auto& e : {epilogue::residual(DeviceArray(16, 4096 * 4096, DType::bf16)),
                        epilogue::bias(DeviceArray(16, 4096, DType::bf16)) | epilogue::gelu()}) {
    added.epilogue = e;
    const auto c = choose_mixed_sm90(added, {}, h, {.bm = 128, .bn = 176, .stages = 5, .buffers = 1});
    wanted.push_back({"sm_90a", image(c.variant, "sm_90a")});
  }
  added.epilogue = {};
  added.beta = 1;
  const auto cluster_n = choose_mixed_sm90(added, {}, h, {.bm = 128, .bn = 176, .stages = 5, .buffers = 1});
  wanted.push_back({"sm_90a", image(cluster_n.variant, "sm_90a")});
  const auto shared = choose_mixed_sm90(added, {}, h, {.bm = 128, .bn = 256});
  wanted.push_back({"sm_90a", image(shared.variant, "sm_90a")});
  cgp::testing::expect_assemble(wanted);
}

// Slices of K (gemm_split_k_f32.cpp): with a rest, rows that must be copied, every layout, an old C; and no
// error of a long sum of positive numbers, which tensor cores cut off a little at every step.
void f32_split_k(const runtime::Device& d) {
  int i = 0;
  for (DType t : {DType::bf16, DType::f16, DType::f32, DType::e4m3})
    for (auto precision : {GemmPrecision::standard, GemmPrecision::fast, GemmPrecision::strict}) {
      if (t != DType::f32 && precision != (t == DType::e4m3 ? GemmPrecision::fast : GemmPrecision::standard))
        continue;
      for (const char* layout : {"nt", "nn", "tn", "tt"}) {
        auto p = problem(t, layout, 7 + std::uint64_t(i % 3), 9, i % 2 ? 1027 : 1024);
        p.type_c = t == DType::e4m3 ? DType::bf16 : DType::f32, p.precision = precision, p.alpha = 0.5f,
        p.beta = i % 3 ? 0 : 2, p.ldc = 9 + i % 4;
        Trial s(d, p, i % 5 == 0 ? 1 : 0);
        const GemmAddresses at{s.a.address(), s.b.address(), s.c.address()};
        const auto c = select_gemm(s.p, at, d.info());
        EXPECT_TRUE(c.split_k > 1 || c.kind == GemmFamily::simt_small_m) << s.describe();
        s.check_choice(d);
        ++i;
      }
    }
}
// Few rows in f32 (gemm_f32_rows.cpp): every tile, rows and columns behind the last, batches, an old C.
void f32_rows(const runtime::Device& d) {
  for (std::uint64_t m : {1, 2, 3, 7, 20}) {
    auto p = problem(DType::f32, "nt", m, 37, m == 3 ? 4 : 260);
    p.alpha = 0.5f, p.beta = m == 2 ? 0 : 2, p.ldc = 41, p.batch = m == 7 ? 2 : 1, p.lda = p.k + 4;
    Trial s(d, p);
    const GemmAddresses at{s.a.address(), s.b.address(), s.c.address()};
    EXPECT_EQ(select_gemm(s.p, at, d.info()).kind, GemmFamily::simt_small_m) << s.describe();
    s.check_choice(d);
  }
}
TEST(gemm_mixed, small_m_in_f32) { f32_rows(emulator("sm_75")); }
TEST(gemm_mixed, f32_results_of_slices_of_k) { f32_split_k(emulator("sm_90a")); }
TEST(gemm_mixed, long_k_of_positive_numbers) {
  const auto d = emulator("sm_90a");
  auto p = problem(DType::bf16, "nt", 8, 8, 8192);
  p.type_c = DType::f32;
  Trial s(d, p);
  for (auto* x : {&s.a, &s.b}) {
    for (std::uint64_t i = 0; i < x->host.size(); ++i) x->host.set(i, std::fabs(x->host.at(i)));
    x->upload();
  }
  (void)s.run(d);
  const auto c = s.c.back();
  for (std::uint64_t i = 0; i < 64; ++i) {
    const double sum = s.product(0, i / 8, i % 8).first;
    EXPECT_LT(std::fabs(c.at(i) - sum), 1e-6 * sum);  // as a whole: 2.7e-5
  }
}

// Shards small enough for compute-sanitizer.
class gemm_mixed_case : public ::testing::TestWithParam<int> {};
TEST_P(gemm_mixed_case, right_and_repeatable_on_a_gpu) {
  const auto d = a_gpu();
  if (!d) GTEST_SKIP() << "no GPU";
  switch (GetParam()) {
    case 0:
      return types(*d, 3);
    case 1:
      return scales(*d, 3);
    case 2:
      return misaligned(*d);
    case 3:
      return widened(*d, 3);
    case 4:
      return epilogues(*d, DType::bf16, DType::bf16, 3);
    case 5:
      return epilogues(*d, DType::f16, DType::f32, 3);
    case 6:
      return epilogues(*d, DType::e4m3, DType::e4m3, 3);
    case 7:
      return pairs(*d, DType::bf16, 3);
    case 8:
      return largest(*d, DType::bf16);
    case 9:
      f32_rows(*d);
      return f32_split_k(*d);
    default:
      return all_oddities(*d);
  }
}
INSTANTIATE_TEST_SUITE_P(all, gemm_mixed_case, ::testing::Range(0, 11));

// ---------------------------------------------------------------- plain problems
TEST(gemm_misaligned, every_tile_layout_width_and_ragged_shape) {
  const auto d = emulator("sm_90a");
  struct Shape {
    std::uint64_t m, n, k, pad, batch;
    float beta;
  };
  int i = 0;
  for (const Shape& s : {Shape{37, 45, 301, 0, 1, 0},
                         {34, 70, 134, 0, 1, 0.5f},
                         {36, 68, 132, 4, 2, 0},
                         {7, 33, 1030, 1, 1, 0}})
    for (const char* layout : {"nn", "nt", "tn", "tt"}) {
      auto p = problem(i % 2 ? DType::f16 : DType::bf16, layout, s.m, s.n, s.k);
      p.alpha = 0.5f, p.beta = s.beta, p.batch = s.batch;
      p.lda = (p.trans_a ? p.m : p.k) + s.pad, p.ldb = (p.trans_b ? p.k : p.n) + s.pad, p.ldc = p.n + s.pad;
      for (int tile = i % 2; tile < 4; tile += 2) {
        Trial t(d, p, i % 3 == 0 ? 1 : 0);  // from the second element on
        const GemmAddresses at{t.a.address(), t.b.address(), t.c.address()};
        t.forced = choose_misaligned(t.p, at, d.info(), tile, s.batch == 1 && i % 2 ? 2 : 1);
        t.check(d);
      }
      ++i;
    }
}

TEST(gemm_misaligned, one_row_of_a) {
  const auto d = emulator("sm_90a");
  for (const char* layout : {"nt", "nn", "tn"}) {
    auto p = problem(layout[1] == 't' ? DType::f16 : DType::bf16, layout, 1, 37, 601);
    p.batch = 2, p.beta = 0.5f, p.lda = layout[0] == 't' ? 3 : 0;
    Trial t(d, p);
    const GemmAddresses at{t.a.address(), t.b.address(), t.c.address()};
    t.forced = gemm_misaligned_candidates(t.p, at, d.info())[0];
    EXPECT_EQ(t.forced->tile_m, 1u);
    t.check(d);
  }
}

TEST(gemm_misaligned, vectors_are_canonicalized_to_rows) {
  const auto d = emulator("sm_90a");
  for (auto [layout, m, n, k] : {std::tuple{"nn", 70, 1, 72},
                                 {"tn", 1, 33, 71},
                                 {"tt", 9, 1, 19},
                                 {"nt", 1, 40, 65},
                                 {"nn", 5, 7, 1}}) {
    auto p = problem(DType::bf16, layout, std::uint64_t(m), std::uint64_t(n), std::uint64_t(k));
    p.beta = 0.5f;
    EXPECT_TRUE(canonicalize_gemm(p).changed || n > 1) << layout << " " << m << "x" << n << "x" << k;
    Trial(d, p).check(d);
  }
  auto strided = problem(DType::bf16, "nn", 9, 1, 16);  // a column of C that is none of neighbours
  strided.ldc = 3, strided.ldb = 2;
  EXPECT_FALSE(canonicalize_gemm(strided).changed);
  Trial(d, strided).check(d);
}

TEST(gemm_persistent_sm90, eight_bit_floats) {
  const auto d = emulator("sm_90a");
  using S = GemmPersistentShape;
  for (const S& s : {S{.rows = 256, .cols = 72, .swap_ab = true},
                     {.rows = 128, .cols = 96, .cluster = 2},
                     {.rows = 64, .cols = 88, .non_persistent = true}}) {
    auto p = problem(DType::e4m3, "nt", 200, 272, 144);
    p.precision = GemmPrecision::fast, p.alpha = 0.5f;
    Trial t(d, p);
    t.forced = choose_persistent_sm90(p.type, p.trans_a, p.trans_b, s);
    t.check(d);
  }
  runtime::DeviceInfo h;
  h.arch = "sm_90a", h.cc_major = 9, h.sm_count = 132;
  for (std::uint64_t size : {4096, 8192}) {  // 2.5 and 9.9 waves of tiles of 200 x 256
    auto p = problem(DType::e4m3, "nt", size, size, size);
    p.precision = GemmPrecision::fast;
    EXPECT_EQ(select_gemm(p, {}, h).kind,
              size == 8192 ? GemmFamily::sm90_persistent : GemmFamily::sm90_pingpong);
  }
}

TEST(gemm_persistent_sm90, old_results_through_the_ring) {
  const auto d = emulator("sm_90a");
  using S = GemmPersistentShape;
  int i = 0;
  for (S s : {S{.rows = 128, .cols = 128},
              {.rows = 128, .cols = 72, .swap_ab = true, .non_persistent = true},
              {.rows = 64, .cols = 112, .non_persistent = true},
              {.rows = 192, .cols = 88, .swap_ab = true},
              {.rows = 128, .cols = 104, .swap_ab = true, .cluster = 2, .non_persistent = true},
              {.rows = 256, .cols = 64, .cluster = 2, .shared = GemmShared::a},
              {.rows = 64, .cols = 184, .swap_ab = true},
              {.rows = 192, .cols = 64, .non_persistent = true}})
    for (const char* layout : {i % 2 ? "nn" : "nt", i % 4 < 2 ? "tn" : "tt"}) {
      auto p = problem(i % 3 ? DType::f16 : DType::bf16, layout, 200, 264, 136);
      p.alpha = 0.5f, p.beta = -0.75f, p.batch = i % 4 == 0 ? 2 : 1, p.ldc = 272;
      s.source_c = true;
      Trial t(d, p);
      t.forced = choose_persistent_sm90(p.type, p.trans_a, p.trans_b, s);
      t.check(d);
      ++i;
    }
}
