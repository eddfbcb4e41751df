// SPDX-License-Identifier: Apache-2.0
#include "profile/cpu_ceilings.h"

#include <algorithm>
#include <cmath>
#include <functional>
#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// g++ 12 takes the "undefined" vectors of its own intrinsics for a mistake of their user (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#endif

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/prof/measure.h"
#include "cgp/prof/system.h"

namespace cgp::profile {
namespace {

using text::cat;

#if defined(__x86_64__)
constexpr int kChains = 12;  // latency of 4 cycles on two ports needs 8

__attribute__((target("avx512f"))) double fma_avx512(std::size_t rounds) {
  __m512 x[kChains];
  for (int i = 0; i < kChains; ++i) x[i] = _mm512_set1_ps(float(i));
  const __m512 half = _mm512_set1_ps(0.5f), one = _mm512_set1_ps(1.0f);
  for (std::size_t r = 0; r < rounds; ++r)
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) x[i] = _mm512_fmadd_ps(x[i], half, one);
  float sum = 0;
  for (int i = 0; i < kChains; ++i) sum += _mm512_cvtss_f32(x[i]);
  prof::keep(sum);
  return 2.0 * 16 * kChains * double(rounds);
}

__attribute__((target("avx2,fma"))) double fma_avx2(std::size_t rounds) {
  __m256 x[kChains];
  for (int i = 0; i < kChains; ++i) x[i] = _mm256_set1_ps(float(i));
  const __m256 half = _mm256_set1_ps(0.5f), one = _mm256_set1_ps(1.0f);
  for (std::size_t r = 0; r < rounds; ++r)
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) x[i] = _mm256_fmadd_ps(x[i], half, one);
  float sum = 0;
  for (int i = 0; i < kChains; ++i) sum += _mm256_cvtss_f32(x[i]);
  prof::keep(sum);
  return 2.0 * 8 * kChains * double(rounds);
}

__attribute__((target("avx512f"))) float dot_avx512(const float* a, const float* b, std::size_t n) {
  __m512 s[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
  std::size_t i = 0;
  for (; i + 64 <= n; i += 64)
    for (std::size_t j = 0; j < 4; ++j)
      s[j] = _mm512_fmadd_ps(_mm512_loadu_ps(a + i + 16 * j), _mm512_loadu_ps(b + i + 16 * j), s[j]);
  float sum = _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(s[0], s[1]), _mm512_add_ps(s[2], s[3])));
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}
__attribute__((target("avx2,fma"))) float dot_avx2(const float* a, const float* b, std::size_t n) {
  __m256 s[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
  std::size_t i = 0;
  for (; i + 32 <= n; i += 32)
    for (std::size_t j = 0; j < 4; ++j)
      s[j] = _mm256_fmadd_ps(_mm256_loadu_ps(a + i + 8 * j), _mm256_loadu_ps(b + i + 8 * j), s[j]);
  float lanes[8];
  _mm256_storeu_ps(lanes, _mm256_add_ps(_mm256_add_ps(s[0], s[1]), _mm256_add_ps(s[2], s[3])));
  float sum = 0;
  for (float x : lanes) sum += x;
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}
float dot_sse2(const float* a, const float* b, std::size_t n) {
  __m128 s[4] = {_mm_setzero_ps(), _mm_setzero_ps(), _mm_setzero_ps(), _mm_setzero_ps()};
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (std::size_t j = 0; j < 4; ++j)
      s[j] = _mm_add_ps(s[j], _mm_mul_ps(_mm_loadu_ps(a + i + 4 * j), _mm_loadu_ps(b + i + 4 * j)));
  float lanes[4];
  _mm_storeu_ps(lanes, _mm_add_ps(_mm_add_ps(s[0], s[1]), _mm_add_ps(s[2], s[3])));
  float sum = lanes[0] + lanes[1] + lanes[2] + lanes[3];
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}
__attribute__((target("avx512f"))) void axpy_avx512(const float* a, float* b, std::size_t n) {
  const __m512 f = _mm512_set1_ps(0.5f);
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16)
    _mm512_storeu_ps(b + i, _mm512_fmadd_ps(f, _mm512_loadu_ps(a + i), _mm512_loadu_ps(b + i)));
  for (; i < n; ++i) b[i] += 0.5f * a[i];
}
__attribute__((target("avx2,fma"))) void axpy_avx2(const float* a, float* b, std::size_t n) {
  const __m256 f = _mm256_set1_ps(0.5f);
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(b + i, _mm256_fmadd_ps(f, _mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i)));
  for (; i < n; ++i) b[i] += 0.5f * a[i];
}
void axpy_sse2(const float* a, float* b, std::size_t n) {
  const __m128 f = _mm_set1_ps(0.5f);
  std::size_t i = 0;
  for (; i + 4 <= n; i += 4)
    _mm_storeu_ps(b + i, _mm_add_ps(_mm_loadu_ps(b + i), _mm_mul_ps(f, _mm_loadu_ps(a + i))));
  for (; i < n; ++i) b[i] += 0.5f * a[i];
}
#endif

/// Kept scalar: the compiler must not see the whole loop.
float dot_scalar(const float* a, const float* b, std::size_t n) {
  float sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    sum += a[i] * b[i];
    asm volatile("" : "+m"(sum));
  }
  return sum;
}
void axpy_scalar(const float* a, float* b, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    b[i] += 0.5f * a[i];
    asm volatile("" : : : "memory");
  }
}

/// The best rate of several blocks: a ceiling is a maximum.
double best_rate(double seconds, const std::function<double()>& work) {
  double best = 0;
  work();
  const double end = prof::now() + seconds;
  for (int i = 0; i < 5 || prof::now() < end; ++i) {
    const double start = prof::now(), amount = work();
    best = std::max(best, amount / (prof::now() - start));
  }
  return best;
}

double read_sum(const std::vector<double>& data, std::size_t repeats) {
  double s[8] = {};
  for (std::size_t r = 0; r < repeats; ++r) {
    for (std::size_t i = 0; i + 8 <= data.size(); i += 8)
      for (std::size_t j = 0; j < 8; ++j) s[j] += data[i + j];
    asm volatile("" : : : "memory");
  }
  for (double x : s) prof::keep(x);
  return double(data.size() / 8 * 8 * sizeof(double) * repeats);
}

}  // namespace

std::vector<std::string> cpu_isas() { return {"scalar", "sse2", "avx2", "avx512"}; }

bool has_isa(const std::string& isa) {
#if defined(__x86_64__)
  if (isa == "scalar" || isa == "sse2") return true;
  if (isa == "avx2") return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (isa == "avx512") return __builtin_cpu_supports("avx512f");
  return false;
#else
  return isa == "scalar";
#endif
}

std::vector<std::string> cpu_functions() { return {"axpy", "dot"}; }

float run_cpu_function(const std::string& function, const std::string& isa, const float* a, float* b,
                       std::size_t n) {
  const auto isas = cpu_isas(), functions = cpu_functions();
  if (std::find(isas.begin(), isas.end(), isa) == isas.end())
    throw ArgumentError(ErrorText{"the instruction set is scalar, sse2, avx2 or avx512", {}, isa, {}});
  if (std::find(functions.begin(), functions.end(), function) == functions.end())
    throw ArgumentError(ErrorText{cat("there is no function \"", function, "\""),
                                  {},
                                  "there are axpy and dot",
                                  "programs of your own: cgp profile binary --count step -- PROGRAM"});
  if (!has_isa(isa))
    throw Unsupported(ErrorText{cat("this processor has no ", isa), {}, prof::machine_facts().cpu, {}});
#if defined(__x86_64__)
  if (function == "dot") {
    if (isa == "avx512") return dot_avx512(a, b, n);
    if (isa == "avx2") return dot_avx2(a, b, n);
    if (isa == "sse2") return dot_sse2(a, b, n);
  } else {
    if (isa == "avx512") return axpy_avx512(a, b, n), b[0];
    if (isa == "avx2") return axpy_avx2(a, b, n), b[0];
    if (isa == "sse2") return axpy_sse2(a, b, n), b[0];
  }
#endif
  if (function == "dot") return dot_scalar(a, b, n);
  axpy_scalar(a, b, n);
  return b[0];
}

double cpu_flops(const std::string&, std::size_t n) { return 2.0 * double(n); }
double cpu_bytes(const std::string& function, std::size_t n) {
  return (function == "dot" ? 8.0 : 12.0) * double(n);
}

std::vector<CpuCeiling> cpu_ceilings(double seconds) {
  std::vector<CpuCeiling> out;
  const double each = seconds / 8;
#if defined(__x86_64__)
  if (has_isa("avx512"))
    out.push_back({"AVX-512 fp32 FMA", false, best_rate(each, [] { return fma_avx512(20000); }) * 1e-9,
                   "12 independent chains, one core"});
  if (has_isa("avx2"))
    out.push_back({"AVX2 fp32 FMA", false, best_rate(each, [] { return fma_avx2(20000); }) * 1e-9,
                   "12 independent chains, one core"});
#endif
  out.push_back({"scalar fp64", false,
                 best_rate(each,
                           [] {
                             double x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
                             for (int r = 0; r < 20000; ++r)
                               for (double& v : x) {
                                 v = v * 0.5 + 1;
                                 asm volatile("" : "+x"(v));
                               }
                             for (double v : x) prof::keep(v);
                             return 2.0 * 8 * 20000;
                           }) *
                     1e-9,
                 "8 chains of a multiplication and an addition"});
  // Half of each level; the last level of a virtual machine may be shared with others.
  for (const auto& [level, bytes] : prof::machine_facts().caches) {
    const std::size_t size = std::min<std::uint64_t>(bytes / 2, 64u << 20);
    std::vector<double> data(size / sizeof(double), 1.0);
    const std::size_t repeats = std::max<std::size_t>(1, (4u << 20) / size);
    out.push_back({level + " read", true, best_rate(each, [&] { return read_sum(data, repeats); }) * 1e-9,
                   text::bytes(size) + " read again and again by one core"});
  }
  std::vector<double> large(64u << 20, 1.0), other(64u << 20, 2.0);
  out.push_back({"memory read", true, best_rate(each, [&] { return read_sum(large, 1); }) * 1e-9,
                 "512 MiB read by one core"});
  out.push_back({"memory triad", true,
                 best_rate(each,
                           [&] {
                             for (std::size_t i = 0; i < large.size(); ++i)
                               large[i] = other[i] + 0.5 * large[i];
                             prof::keep(large[0]);
                             return 24.0 * double(large.size());
                           }) *
                     1e-9,
                 "a[i] = b[i] + s * a[i] over 1 GiB"});
  return out;
}

}  // namespace cgp::profile
