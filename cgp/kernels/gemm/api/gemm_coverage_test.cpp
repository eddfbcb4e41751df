// SPDX-License-Identifier: Apache-2.0
// What gemm serves: pairs of values of types, layout, scales, alpha and beta, epilogue, batch, sizes, length
// of sums, leading dimensions and alignment, against loops in double. Nightly: every pair, and random
// combinations on every architecture.
#include <array>
#include <set>

#include "cgp/base/random.h"
#include "cgp/kernels/gemm/bench/gemm_trial.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::kernels::trial;

namespace {

struct Types {
  DType a, b, c;
  GemmPrecision precision = GemmPrecision::standard;
};
constexpr auto kFast = GemmPrecision::fast;
constexpr Types kTypes[] = {{DType::f32, DType::f32, DType::f32},
                            {DType::f32, DType::f32, DType::f32, kFast},
                            {DType::f32, DType::f32, DType::f32, GemmPrecision::strict},
                            {DType::f32, DType::f32, DType::bf16},
                            {DType::f32, DType::f32, DType::e4m3, kFast},
                            {DType::f16, DType::f16, DType::f16},
                            {DType::f16, DType::f16, DType::bf16},
                            {DType::f16, DType::f16, DType::e4m3},
                            {DType::bf16, DType::bf16, DType::bf16},
                            {DType::bf16, DType::bf16, DType::f32},
                            {DType::bf16, DType::bf16, DType::e5m2},
                            {DType::e4m3, DType::e4m3, DType::bf16},
                            {DType::e4m3, DType::e4m3, DType::f32, kFast},
                            {DType::e4m3, DType::e5m2, DType::f16},
                            {DType::e5m2, DType::e4m3, DType::f32},
                            {DType::e5m2, DType::e4m3, DType::bf16, kFast},
                            {DType::e5m2, DType::e5m2, DType::e4m3},
                            {DType::s8, DType::s8, DType::s32},
                            {DType::s8, DType::s8, DType::f32},
                            {DType::s8, DType::s8, DType::bf16},
                            {DType::s8, DType::s8, DType::s8}};
constexpr const char* kLayouts[] = {"nt", "nn", "tn", "tt"};
constexpr std::pair<float, float> kScales[] = {{1.f, 0.f}, {2.f, 0.f}, {1.f, 0.5f}, {-0.5f, 1.f}};
enum class After { none, bias_gelu, rows_relu, residual_silu, largest, interleaved, halves, own };
constexpr int kAfters = int(After::own) + 1;
constexpr std::pair<std::uint64_t, std::uint64_t> kSizes[] = {{40, 136}, {35, 66}, {1, 48}, {5, 2050}};
constexpr std::uint64_t kDepths[] = {0, 1, 40, 136}, kBatches[] = {1, 2};
enum class Rows { dense, apart, misaligned, shifted };
constexpr int kRows = int(Rows::shifted) + 1;

// Numbers of values: types, layout, scales, alpha and beta, epilogue, sizes, k, batch, rows.
constexpr std::array<int, 9> kValues{
    int(std::size(kTypes)),   4,    4, 4, kAfters, int(std::size(kSizes)), int(std::size(kDepths)),
    int(std::size(kBatches)), kRows};
using Combination = std::array<int, 9>;

bool exists(const Combination& c) {
  const auto t = kTypes[c[0]].a;
  return c[2] != int(GemmScaling::block) || t == DType::e4m3 || t == DType::e5m2;
}
Combination any(SplitMix64& random) {
  Combination c;
  do
    for (std::size_t i = 0; i < c.size(); ++i) c[i] = int(random.next() % std::uint64_t(kValues[i]));
  while (!exists(c));
  return c;
}

// Few combinations with every pair of values: of 40 random ones always that with the most new pairs.
std::vector<Combination> pairwise() {
  using Pair = std::array<int, 4>;
  std::set<Pair> left;
  const auto each = [](const Combination& c, auto&& f) {
    for (int i = 0; i < int(c.size()); ++i)
      for (int j = i + 1; j < int(c.size()); ++j) f(Pair{i, c[std::size_t(i)], j, c[std::size_t(j)]});
  };
  SplitMix64 random(7);
  for (int i = 0; i < 20000; ++i) each(any(random), [&](const Pair& p) { left.insert(p); });
  std::vector<Combination> out;
  while (!left.empty()) {
    Combination best{};
    std::size_t most = 0;
    for (int i = 0; i < 40 || most == 0; ++i) {
      const auto c = any(random);
      std::size_t fresh = 0;
      each(c, [&](const Pair& p) { fresh += left.count(p); });
      if (fresh > most) most = fresh, best = c;
    }
    each(best, [&](const Pair& p) { left.erase(p); });
    out.push_back(best);
  }
  return out;
}

GemmProblem problem_of(const Combination& c) {
  const auto& t = kTypes[c[0]];
  auto p = problem(t.a, kLayouts[c[1]], kSizes[c[5]].first, kSizes[c[5]].second, kDepths[c[6]]);
  p.type_b = t.b, p.type_c = t.c, p.precision = t.precision, p.scaling = GemmScaling(c[2]);
  std::tie(p.alpha, p.beta) = kScales[c[3]];
  p.batch = kBatches[c[7]];
  const auto more = Rows(c[8]) == Rows::apart ? 16u : Rows(c[8]) == Rows::misaligned ? 3u : 0u;
  const bool pairs = After(c[4]) == After::interleaved || After(c[4]) == After::halves;
  if (more) {
    p.lda = (p.trans_a ? p.m : p.k) + more, p.ldb = (p.trans_b ? p.k : p.n) + more;
    p.ldc = (pairs ? p.n / 2 : p.n) + more;
  }
  return p;
}

void run(const runtime::Device& d, const Combination& chosen) {
  auto p = problem_of(chosen);
  // Sums of 8-bit integers that f16 and 8-bit floats hold.
  if (p.type == DType::s8 && p.type_c != DType::s32) p.alpha *= p.type_c == DType::s8 ? 0.002f : 0.01f;
  const auto q = p.dense();
  const OnDevice bias(d, DType::bf16, q.n, 11), rows(d, DType::f32, q.m, 12),
      matrix(d, DType::f16, q.batch * q.m * q.n, 13);
  OnDevice blocks(d, DType::f32, q.batch * ((q.m + 127) / 128) * ((q.n + 127) / 128), 14);
  const auto add = [](double v, double& x, double& e) {
    x += v, e += (std::fabs(x) + std::fabs(v)) * 0x1p-23;
  };
  const auto function = [](double (*f)(double), double error) {
    return Step{[=](auto, auto, auto, double& x, double& e) {
      e = 1.13 * e + std::fabs(x) * error;
      x = f(x);
    }};
  };
  const Step of_column{[&](auto, auto, auto j, double&x, double&e) { add(bias.host.at(j), x, e); }},
      of_row{[&](auto, auto i, auto, double&x, double&e) { add(rows.host.at(i), x, e); }},
      of_place{[&](auto z, auto i, auto j, double&x, double&e) {
        add(matrix.host.at((z * q.m + i) * q.n + j), x, e);
      }};
  std::vector<Step> steps;
  using namespace epilogue;
  const auto after = After(chosen[4]);
  switch (after) {
    case After::none:
      break;
    case After::bias_gelu:
      p.epilogue = epilogue::bias(bias.view()) | epilogue::gelu();
      steps = {of_column, function(trial::gelu, 0x1p-21)};
      break;
    case After::rows_relu:
      p.epilogue = bias_rows(rows.view()) | relu();
      steps = {of_row, function([](double x) { return std::max(x, 0.0); }, 0)};
      break;
    case After::residual_silu:
      p.epilogue = residual(matrix.view()) | silu();
      steps = {of_place, function([](double x) { return x / (1 + std::exp(-x)); }, 0x1p-21)};
      break;
    case After::largest:
      p.epilogue = amax(blocks.view());
      break;
    case After::interleaved:
    case After::halves:
      p.epilogue = epilogue::bias(bias.view()) |
                   swiglu(after == After::halves ? Pairing::halves : Pairing::interleaved);
      steps = {of_column, {{}, true}};
      break;
    case After::own:
      p.epilogue = map(
          "cap",
          [](const EpiloguePoint& at, dsl::Val<dsl::f32> x, dsl::Val<dsl::f32> most,
             dsl::In<dsl::bf16> floor) { return dsl::max(dsl::min(x, most), at.of_column(floor)); },
          0.25f, runtime::Arg::address(bias.address()));
      steps = {{[&](auto, auto, auto j, double& x, double&) {
        x = std::max(std::min(x, 0.25), bias.host.at(j));
      }}};
  }
  SCOPED_TRACE(text::cat("combination ", [&] {
    std::string out;
    for (int v : chosen) text::append(out, text::cat(v, " "));
    return out;
  }()));
  try {
    Trial s(d, p, Rows(chosen[8]) == Rows::shifted ? 1 : 0);
    s.steps = std::move(steps);
    s.check_choice(d);
    if (after != After::largest) return;
    const auto seen = blocks.back();
    double most = 0;
    for (std::uint64_t i = 0; i < seen.size(); ++i) most = std::max(most, seen.at(i));
    // Before C is rounded (or cut off at its largest).
    double stored = 0;
    const auto c = s.c.back();
    for (std::uint64_t z = 0; z < s.p.batch; ++z)
      for (std::uint64_t i = 0; i < s.p.m; ++i)
        for (std::uint64_t j = 0; j < s.p.n; ++j)
          stored = std::max(stored, std::fabs(c.at(z * s.p.stride_c + i * s.p.ldc + j)));
    EXPECT_LE(stored, most * 1.13 + 0.51) << s.describe();
    if (stored < 120) {
      EXPECT_GE(stored * 1.15 + 0.51, most) << s.describe();
    }
  } catch (const std::exception& e) {
    ADD_FAILURE() << e.what();
  }
}

}  // namespace

// Every fourth: all of them take 16 s.
TEST(gemm_coverage, pairs_of_values) {
  const auto d = emulator("sm_90a");
  const auto all = pairwise();
  for (std::size_t i = 0; i < all.size(); i += 4) run(d, all[i]);
}

// Shards small enough for compute-sanitizer.
class gemm_coverage_shard : public ::testing::TestWithParam<std::size_t> {};
constexpr std::size_t kCoverageShards = 16;
TEST_P(gemm_coverage_shard, right_and_repeatable_on_a_gpu) {
  const auto d = a_gpu();
  if (!d) GTEST_SKIP() << "no GPU";
  const auto all = pairwise();
  for (std::size_t i = GetParam(); i < all.size(); i += kCoverageShards) run(*d, all[i]);
}
INSTANTIATE_TEST_SUITE_P(all, gemm_coverage_shard, ::testing::Range(std::size_t(0), kCoverageShards));

#ifdef CGP_NIGHTLY_COMBINATIONS
TEST(gemm_coverage, every_pair_of_values) {
  const auto d = emulator("sm_90a");
  for (const auto& c : pairwise()) run(d, c);
}
TEST(gemm_coverage, many_combinations) {
  SplitMix64 random(11);
  for (const char* arch : {"sm_90a", "sm_80", "sm_89", "sm_75", "sm_100a"}) {
    const auto d = emulator(arch);
    SCOPED_TRACE(arch);
    for (int i = 0; i < CGP_NIGHTLY_COMBINATIONS; ++i) run(d, any(random));
  }
}
#endif
