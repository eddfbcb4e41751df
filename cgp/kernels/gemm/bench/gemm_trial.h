// SPDX-License-Identifier: Apache-2.0
#pragma once
// For tests: a gemm problem of any types, scales and epilogue with random operands, run on a device and
// compared with loops in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <thread>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/gemm/api/gemm.h"
#include "cgp/runtime/device.h"

namespace cgp::kernels::trial {

using Bytes = runtime::Buffer<std::byte>;

struct OnDevice {
  HostArray host;
  std::vector<double> values;
  std::uint64_t skipped = 0;  ///< bytes before the first element
  Bytes memory;
  /// `skip`: elements before the first.
  OnDevice(const runtime::Device& d, DType t, std::uint64_t n, std::uint64_t seed, double scale = 1,
           std::uint64_t skip = 0)
      : host(t, {std::max<std::uint64_t>(n, 1)}),
        skipped(skip * std::uint64_t(bytes(t))),
        memory(d, std::max<std::size_t>(host.bytes.size() + skipped, 16)) {
    SplitMix64 random(seed);
    for (std::uint64_t i = 0; i < host.size(); ++i) {
      const double u = double(random.next() >> 11) * 0x1p-53 * 2 - 1;
      host.set(i, t == DType::s8 ? std::floor(u * 100) : u * scale);
    }
    upload();
  }
  void upload() {
    values = host.as_doubles();
    memory.slice(skipped, host.bytes.size()).upload(host.bytes);
  }
  std::uint64_t address() const { return memory.address() + skipped; }
  DeviceArray view() const { return {address(), host.size(), host.dtype}; }
  HostArray back() const {
    HostArray h = host;
    memory.slice(skipped, host.bytes.size()).download(h.bytes);
    return h;
  }
};

// What an epilogue does, for the oracle: value and error, in place. Pairs: of the first two of `v`.
struct Step {
  std::function<void(std::uint64_t z, std::uint64_t i, std::uint64_t j, double& x, double& error)> map;
  bool pair = false;
};

struct Checked {
  double worst = 0;  ///< error over tolerance
  std::string where;
  std::vector<std::byte> bytes;
  std::string variant;
};

/// row(i, into) for every i below `rows`, on all processors where there is much to do (`work` products): what
/// a GPU makes in a millisecond takes one of them a minute.
template <class F>
Checked over_rows(std::uint64_t rows, double work, F&& row) {
  const std::uint64_t workers =
      work < 2e7 ? 1 : std::clamp<std::uint64_t>(std::thread::hardware_concurrency(), 1, rows);
  std::vector<Checked> by_worker(workers);
  const auto part = [&](std::uint64_t w) {
    for (std::uint64_t i = w; i < rows; i += workers) row(i, by_worker[w]);
  };
  std::vector<std::thread> threads;
  for (std::uint64_t w = 1; w < workers; ++w) threads.emplace_back(part, w);
  part(0);
  for (auto& t : threads) t.join();
  return *std::max_element(by_worker.begin(), by_worker.end(),
                           [](const Checked& x, const Checked& y) { return x.worst < y.worst; });
}

inline double type_error(DType t, double want) {
  switch (t) {
    case DType::f16:
      return std::fabs(want) * 0x1p-11 + 0x1p-25;
    case DType::bf16:
      return std::fabs(want) * 0x1p-8;
    case DType::e4m3:
      return std::fabs(want) * 0x1p-4 + 0x1p-10;
    case DType::e5m2:
      return std::fabs(want) * 0x1p-3 + 0x1p-17;
    case DType::s8:
      return 0.5;
    default:
      return std::fabs(want) * 0x1p-24;
  }
}

struct Trial {
  GemmProblem p;  ///< epilogue set by the caller
  std::vector<Step> steps;
  OnDevice a, b, c, fa, fb;
  bool gate_interleaved = false;
  std::optional<GemmMixedTuning> tile;  ///< instead of the selected one
  std::optional<GemmChoice> forced;     ///< likewise

  static std::uint64_t factor_count(const GemmProblem& p, bool of_a) {
    const std::uint64_t kb = (p.k + 127) / 128;
    switch (p.scaling) {
      case GemmScaling::none:
        return 0;
      case GemmScaling::tensor:
        return 1;
      case GemmScaling::channel:
        return of_a ? p.m : p.n;
      default:
        return of_a ? p.batch * p.m * kb : p.batch * ((p.n + 127) / 128) * kb;
    }
  }
  /// `skip`: elements before the first of a, b and c.
  Trial(const runtime::Device& d, const GemmProblem& q, std::uint64_t skip = 0)
      : p(q.dense()),
        a(d, p.type, p.a_elements(), 1, 1, skip),
        b(d, *p.type_b, p.b_elements(), 2, 1, skip),
        c(d, *p.type_c, p.c_elements(), 3, 1, skip),
        fa(d, DType::f32, factor_count(p, true), 4),
        fb(d, DType::f32, factor_count(p, false), 5) {}

  double at_a(std::uint64_t z, std::uint64_t i, std::uint64_t l) const {
    const double x = a.values.at(z * p.stride_a + (p.trans_a ? l * p.lda + i : i * p.lda + l));
    if (p.scaling != GemmScaling::block) return x;
    return x * fa.host.at((z * p.m + i) * ((p.k + 127) / 128) + l / 128);
  }
  double at_b(std::uint64_t z, std::uint64_t l, std::uint64_t j) const {
    const double x = b.values.at(z * p.stride_b + (p.trans_b ? j * p.ldb + l : l * p.ldb + j));
    if (p.scaling != GemmScaling::block) return x;
    return x * fb.host.at((z * ((p.n + 127) / 128) + j / 128) * ((p.k + 127) / 128) + l / 128);
  }
  // Element (i, j) of the scaled product and the error that its sum may have.
  std::pair<double, double> product(std::uint64_t z, std::uint64_t i, std::uint64_t j) const {
    double sum = 0, size = 0;
    for (std::uint64_t l = 0; l < p.k; ++l) {
      const double x = at_a(z, i, l) * at_b(z, l, j);
      sum += x, size += std::fabs(x);
    }
    double relative = double(p.k + 16) * 0x1p-24;
    if (p.type == DType::f32 && p.precision == GemmPrecision::fast) relative += 0x1p-9;
    if (p.type == DType::e4m3 || p.type == DType::e5m2) relative += 0x1p-11;
    if (p.type == DType::s8) relative = 0x1p-23;
    double f = p.alpha;
    if (p.scaling == GemmScaling::tensor) f *= fa.host.at(0) * fb.host.at(0);
    if (p.scaling == GemmScaling::channel) f *= fa.host.at(i) * fb.host.at(j);
    const bool exact = p.type == DType::s8 && p.type_c == DType::s32 && p.alpha == 1 && p.beta == 0 &&
                       p.scaling == GemmScaling::none;
    return {f * sum, exact ? 0 : std::fabs(f) * size * relative};
  }
  Checked run(const runtime::Device& d) {
    runtime::Stream s(d);
    c.upload();
    const GemmAddresses at{a.address(), b.address(), c.address(), fa.address(), fb.address()};
    const auto choice = forced ? *forced
                        : tile ? choose_mixed_sm90(p, at, d.info(), *tile)
                               : select_gemm(p, at, d.info());
    if (tile || forced)
      run_gemm(s, choice, p, at);
    else
      gemm(s, p, a.view(), b.view(), c.view(), {fa.view(), fb.view()});
    s.wait();
    const HostArray got = c.back();
    const bool halves = p.epilogue.pairing() == Pairing::halves,
               pairs = p.epilogue.pairing() != Pairing::none;
    const auto old = [&](std::uint64_t z, std::uint64_t i, std::uint64_t j, double& x, double& e) {
      if (p.beta == 0) return;
      const double o = p.beta * c.host.at(z * p.stride_c + i * p.ldc + j);
      x += o, e += std::fabs(o) * 0x1p-23;
    };
    Checked r =
        over_rows(p.batch * p.m, double(p.batch * p.m) * double(p.columns()) * double(p.k),
                  [&](std::uint64_t row, Checked& into) {
                    const std::uint64_t z = row / p.m, i = row % p.m;
                    for (std::uint64_t j = 0; j < p.columns(); ++j) {
                      const std::uint64_t first = !pairs   ? j
                                                  : halves ? j
                                                           : 2 * j,
                                          second = halves ? j + p.n / 2 : 2 * j + 1;
                      auto [x, e] = product(z, i, first);
                      auto [y, ey] = pairs ? product(z, i, second) : std::pair(0.0, 0.0);
                      if (!pairs) old(z, i, j, x, e);
                      bool combined = !pairs;
                      for (const auto& step : steps) {
                        if (step.pair) {
                          const double g = x / (1 + std::exp(-x));
                          e = 1.1 * e * std::fabs(y) + std::fabs(g) * ey + std::fabs(g * y) * 0x1p-20;
                          x = g * y;
                          combined = true;
                        } else if (combined) {
                          step.map(z, i, j, x, e);
                        } else {
                          step.map(z, i, first, x, e);
                          step.map(z, i, second, y, ey);
                        }
                      }
                      if (pairs) old(z, i, j, x, e);
                      double want = x;
                      if (p.type_c == DType::e4m3) want = std::clamp(want, -448.0, 448.0);
                      if (p.type_c == DType::s8) want = std::clamp(want, -128.0, 127.0);
                      // s32 that went through floats are rounded.
                      const double rounded = p.type_c == DType::s32 && e > 0 ? 0.5 : 0;
                      const double tolerance = e * 1.01 + std::fabs(x) * 0x1p-22 +
                                               type_error(*p.type_c, want) * 1.001 + rounded + 0x1p-120;
                      const double have = got.at(z * p.stride_c + i * p.ldc + j);
                      const double ratio = std::isnan(have) ? 1e30 : std::fabs(have - want) / tolerance;
                      if (ratio > into.worst) {
                        into.worst = ratio;
                        into.where = text::cat("[", z, "][", i, "][", j, "] is ", have, ", oracle ", want,
                                               ", allowed ", tolerance);
                      }
                    }
                  });
    r.bytes = got.bytes;
    r.variant = choice.variant.name;
    for (std::uint64_t i = 0; i < p.c_elements(); ++i)  // between the rows
      if (i % p.stride_c % p.ldc >= p.columns() && got.at(i) != c.host.at(i))
        r.worst = 1e30, r.where = text::cat("element ", i, " behind a row of c was overwritten");
    return r;
  }
  /// Of results without an epilogue.
  double largest_relative_error(const runtime::Device& d) {
    (void)run(d);
    const HostArray got = c.back();
    double most = 0;
    for (std::uint64_t i = 0; i < p.m; ++i)
      for (std::uint64_t j = 0; j < p.n; ++j) {
        const double want = product(0, i, j).first;
        most = std::max(most, std::fabs(got.at(i * p.ldc + j) - want) / std::fabs(want));
      }
    return most;
  }
  void check(const runtime::Device& d) {
    check_choice(d);
    // Small problems are selected smaller tiles than those that large ones run.
    const bool fp8 = p.type == DType::e4m3 || p.type == DType::e5m2;
    if (d.info().arch != "sm_90a" || tile || forced || p.k == 0 || p.epilogue.pairing() != Pairing::none ||
        (p.precision != GemmPrecision::fast && (fp8 || p.type == DType::f32)) ||
        p.scaling == GemmScaling::block)
      return;
    const bool narrow = bytes(*p.type_c) == 1 || p.beta != 0 || !steps.empty();
    tile = {.bm = 128, .bn = narrow ? 128 : 192, .stages = 4, .buffers = narrow ? 1 : 2};
    check_choice(d);
    tile.reset();
  }
  void check_choice(const runtime::Device& d) {
    const auto r = run(d);
    EXPECT_LE(r.worst, 1) << describe() << " " << r.variant << ": " << r.where;
    if (d.is_emulator()) return;
    EXPECT_EQ(r.bytes, run(d).bytes) << describe() << " " << r.variant << ": two runs differ";
  }
  std::string describe() const {
    return text::cat(name(p.type), "*", name(*p.type_b), "->", name(*p.type_c), " ", p.trans_a ? "t" : "n",
                     p.trans_b ? "t" : "n", " ", p.m, "x", p.n, "x", p.k, " batch ", p.batch, " ld ", p.lda,
                     " ", p.ldb, " ", p.ldc, " ", name(p.precision), " ", name(p.scaling), " beta ", p.beta,
                     " ", p.epilogue.name());
  }
};

inline GemmProblem problem(DType t, const char* layout, std::uint64_t m, std::uint64_t n, std::uint64_t k) {
  GemmProblem p{.type = t, .m = m, .n = n, .k = k};
  p.trans_a = layout[0] == 't', p.trans_b = layout[1] == 't';
  return p;
}

inline double gelu(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }
inline double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

inline runtime::Device emulator(std::string_view arch) {
  return runtime::Device::open(text::cat("emu:", arch));
}

/// None without a GPU.
inline std::optional<runtime::Device> a_gpu() try {
  return runtime::Device::open("cuda:0");
} catch (const Unsupported&) {
  return std::nullopt;
}

}  // namespace cgp::kernels::trial
