// SPDX-License-Identifier: Apache-2.0
// Recorded derivatives on the emulator, against closed forms in double.
#include "cgp/dsl/core/derivative.h"

#include "cgp/dsl/core/on_emulator_test.h"

namespace cgp::dsl {
namespace {

using F = std::function<Val<f32>(const Val<f32>&)>;
struct Case {
  const char* what;
  F f;
  std::function<double(double)> slope;
};

void expect_slopes(const std::vector<Case>& cases) {
  std::vector<float> x{-3.5f, -1.25f, -0.3f, 0.2f, 0.8f, 1.5f, 2.75f};
  const auto k = build("k", "sm_80", [&](Kernel& k, In<f32> in, Out<f32> out) {
    const auto v = in.ld(k.tid());
    for (std::size_t c = 0; c < cases.size(); ++c)
      out.st(k.tid() + std::uint32_t(x.size() * c), with_slope(v, cases[c].f).slope);
  });
  std::vector<float> got(x.size() * cases.size());
  EmulatorRun run(k);
  RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), (emu::Dim3{std::uint32_t(x.size()), 1, 1}), buf(x), buf(got));
  for (std::size_t c = 0; c < cases.size(); ++c)
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double want = cases[c].slope(double(x[i]));
      EXPECT_NEAR(double(got[c * x.size() + i]), want, 2e-6 * (1 + std::fabs(want)))
          << cases[c].what << " at " << x[i];
    }
}

TEST(derivative, of_every_instruction_that_has_one) {
  using V = Val<f32>;
  expect_slopes({
      {"x", [](const V& x) { return x; }, [](double) { return 1; }},
      {"a number", [](const V&) { return V(3.0f); }, [](double) { return 0; }},
      {"sums", [](const V& x) { return (x + 1.0f) - (2.0f - x) - x * 0.5f; }, [](double) { return 1.5; }},
      {"x^3", [](const V& x) { return x * x * x; }, [](double x) { return 3 * x * x; }},
      {"fma", [](const V& x) { return fma(x, x, -x); }, [](double x) { return 2 * x - 1; }},
      {"1 / (2 + x^2)", [](const V& x) { return V(1.0f) / fma(x, x, V(2.0f)); },
       [](double x) { return -2 * x / std::pow(2 + x * x, 2); }},
      {"x / (5 - x)", [](const V& x) { return x / (5.0f - x); },
       [](double x) { return 5 / std::pow(5 - x, 2); }},
      {"rcp", [](const V& x) { return rcp<rn>(x + 5.0f); }, [](double x) { return -1 / std::pow(x + 5, 2); }},
      {"sqrt", [](const V& x) { return sqrt<rn>(x + 5.0f); },
       [](double x) { return 0.5 / std::sqrt(x + 5); }},
      {"rsqrt", [](const V& x) { return rsqrt<approx>(x + 5.0f); },
       [](double x) { return -0.5 * std::pow(x + 5, -1.5); }},
      {"ex2", [](const V& x) { return ex2<approx>(-x); },
       [](double x) { return -std::log(2) * std::exp2(-x); }},
      {"lg2", [](const V& x) { return lg2<approx>(x + 5.0f); },
       [](double x) { return 1 / std::log(2) / (x + 5); }},
      {"sin", [](const V& x) { return sin<approx>(x * 2.0f); }, [](double x) { return 2 * std::cos(2 * x); }},
      {"cos", [](const V& x) { return cos<approx>(x * 2.0f); },
       [](double x) { return -2 * std::sin(2 * x); }},
      {"corners", [](const V& x) { return max(min(x * 2.0f, V(1.5f)), abs(x) - 3.0f); },
       [](double x) { return x < -1     ? -1.0
                             : x < 0.75 ? 2.0
                                        : 0.0; }},
      {"select", [](const V& x) { return select(x > 0.0f, x * x, V(7.0f)); },
       [](double x) { return x > 0 ? 2 * x : 0; }},
      {"what masks has no slope", [](const V& x) { return select(x > 0.0f, x * x, V(-INFINITY)); },
       [](double x) { return 2 * x; }},
      {"whole numbers", [](const V& x) { return x * to<f32>(cvt<rzi, s32>(x)); },
       [](double x) { return std::trunc(x); }},
  });
}

TEST(derivative, of_a_soft_cap_by_exponentials) {
  const float cap = 1.5f;
  expect_slopes({{"cap",
                  [&](const Val<f32>& x) {
                    const auto e = ex2<approx>(x * (2 * 1.4426950408889634f / cap));
                    return fma(rcp<rn>(e + 1.0f), -2.0f, Val<f32>(1.0f)) * cap;
                  },
                  [&](double x) { return 1 - std::pow(std::tanh(x / cap), 2); }}});
}

TEST(derivative, slopes_of_0_and_1_are_literals) {
  (void)build("k", "sm_80", [](Kernel&, In<f32> in, Out<f32> out) {
    const auto x = in.ld(0);
    const auto biased = with_slope(x, [](const Val<f32>& s) { return s - 3.0f; });
    EXPECT_TRUE(biased.slope.is_literal());
    EXPECT_EQ(biased.slope.bits(), 0x3f800000u);
    const auto flat = with_slope(x, [](const Val<f32>& s) { return to<f32>(cvt<rni, s32>(s)); });
    EXPECT_TRUE(flat.slope.is_literal());
    EXPECT_EQ(flat.slope.bits(), 0u);
    out.st(0, biased.value + flat.value);
  });
}

std::string refusal(const std::function<Val<f32>(Kernel&, const Val<f32>&, const In<f32>&)>& f) try {
  (void)build("k", "sm_80", [&](Kernel& k, In<f32> in, Out<f32> out) {
    out.st(0, with_slope(in.ld(0), [&](const Val<f32>& x) { return f(k, x, in); }).slope);
  });
  return "none";
} catch (const BuildError& e) {
  return e.why();
}

TEST(derivative, is_refused_where_it_cannot_be_recorded) {
  using ::testing::HasSubstr;
  EXPECT_THAT(refusal([](Kernel& k, const Val<f32>& x, const In<f32>&) {
                return k.if_(
                    x > 0.0f, [&] { return x * 2.0f; }, [&] { return x; });
              }),
              HasSubstr("a branch"));
  EXPECT_THAT(
      refusal([](Kernel&, const Val<f32>& x, const In<f32>&) { return bits<f32>(bits<u32>(x) + 1u); }),
      HasSubstr("add.u32"));
  EXPECT_THAT(refusal([](Kernel&, const Val<f32>& x, const In<f32>&) { return to<f32>(to<f16>(x)); }),
              HasSubstr("a conversion to f16"));
  // A place found by rounding is flat.
  EXPECT_EQ(
      refusal([](Kernel&, const Val<f32>& x, const In<f32>& in) { return in.ld(cvt<rzi, u32>(x)) * x; }),
      "none");
}

}  // namespace
}  // namespace cgp::dsl
