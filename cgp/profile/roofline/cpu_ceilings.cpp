// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/roofline/cpu_ceilings.h"

#include <algorithm>
#include <functional>
#include <numeric>
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
#include "cgp/cpu/loops/loops.h"
#include "cgp/cpu/threads.h"
#include "cgp/profile/measure/measure.h"
#include "cgp/profile/measure/system.h"
#include "cgp/profile/roofline/amx.h"

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
  measure::keep(sum);
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
  measure::keep(sum);
  return 2.0 * 8 * kChains * double(rounds);
}

__attribute__((target("avx512f"))) std::uint64_t read_avx512(const char* data, std::size_t bytes) {
  __m512i x[8] = {};
  for (std::size_t i = 0; i < bytes; i += sizeof x)
#pragma GCC unroll 8
    for (std::size_t j = 0; j < 8; ++j) x[j] = _mm512_xor_si512(x[j], _mm512_load_si512(data + i + 64 * j));
  alignas(64) std::uint64_t words[8];
  for (int j = 1; j < 8; ++j) x[0] = _mm512_xor_si512(x[0], x[j]);
  _mm512_store_si512(words, x[0]);
  return std::accumulate(words, words + 8, std::uint64_t(0), std::bit_xor<>());
}

__attribute__((target("avx2"))) std::uint64_t read_avx2(const char* data, std::size_t bytes) {
  __m256i x[8] = {};
  for (std::size_t i = 0; i < bytes; i += sizeof x)
#pragma GCC unroll 8
    for (std::size_t j = 0; j < 8; ++j)
      x[j] = _mm256_xor_si256(x[j], _mm256_load_si256(reinterpret_cast<const __m256i*>(data + i + 32 * j)));
  alignas(32) std::uint64_t words[4];
  for (int j = 1; j < 8; ++j) x[0] = _mm256_xor_si256(x[0], x[j]);
  _mm256_store_si256(reinterpret_cast<__m256i*>(words), x[0]);
  return std::accumulate(words, words + 4, std::uint64_t(0), std::bit_xor<>());
}

/// `bytes` is a multiple of 128, both ends lie at multiples of 32.
template <bool kStreaming>
__attribute__((target("avx2"))) void copy_avx2(const char* from, char* into, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 128)
#pragma GCC unroll 4
    for (std::size_t j = 0; j < 128; j += 32) {
      const __m256i v = _mm256_load_si256(reinterpret_cast<const __m256i*>(from + i + j));
      auto* to = reinterpret_cast<__m256i*>(into + i + j);
      kStreaming ? _mm256_stream_si256(to, v) : _mm256_store_si256(to, v);
    }
  if (kStreaming) _mm_sfence();
}
#endif

double fma_scalar(std::size_t rounds) {
  double a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8;
  const auto step = [](double& v) {
    v = v * 0.5 + 1;
    asm volatile("" : "+x"(v));  // or two of them become a vector
  };
  for (std::size_t r = 0; r < rounds; ++r)
    step(a), step(b), step(c), step(d), step(e), step(f), step(g), step(h);
  measure::keep(a + b + c + d + e + f + g + h);
  return 2.0 * 8 * double(rounds);
}

/// `bytes`, rounded down to 512, aligned to a line of the cache.
class Block {
 public:
  explicit Block(std::size_t bytes)
      : bytes_(std::max<std::size_t>(512, bytes / 512 * 512)), storage_(bytes_ / 8 + 8, 1) {
    const auto at = reinterpret_cast<std::uintptr_t>(storage_.data());
    data_ = storage_.data() + (64 - at % 64) % 64 / 8;
  }
  std::size_t size() const { return bytes_; }
  char* data() const { return reinterpret_cast<char*>(data_); }
  /// Reads all of it so often; how many bytes that were.
  double read(cpu::Isa isa, std::size_t repeats) const {
    for (std::size_t r = 0; r < repeats; ++r) measure::keep(read_all(isa, data_, bytes_));
    return double(bytes_) * double(repeats);
  }

 private:
  std::size_t bytes_;
  std::vector<std::uint64_t> storage_;
  std::uint64_t* data_;
};

std::string loads_of(cpu::Isa isa) {
  return isa >= cpu::Isa::avx512 ? "64-byte loads" : isa >= cpu::Isa::avx2 ? "32-byte loads" : "plain loads";
}

}  // namespace

double best_rate(double seconds, const std::function<double()>& work, const std::function<double()>& clock) {
  double best = 0;
  work();
  const double end = clock() + seconds;
  for (int i = 0; i < 5 || clock() < end; ++i) {
    const double start = clock(), amount = work();
    best = std::max(best, amount / (clock() - start));
  }
  return best;
}

bool has_isa(const std::string& isa) { return cpu::has(cpu::isa_of(isa)); }

std::vector<std::string> cpu_functions() { return {"axpy", "dot", "reciprocal", "square_root"}; }

float run_cpu_function(const std::string& function, const std::string& isa, const float* a, float* b,
                       std::size_t n) {
  const cpu::Loops& loops = cpu::loops(cpu::isa_of(isa));
  if (function == "dot") return loops.dot(a, b, n);
  if (function == "axpy")
    loops.axpy(0.5f, a, b, n);
  else if (function == "reciprocal")
    loops.reciprocal(a, b, n);
  else if (function == "square_root")
    loops.square_root(a, b, n);
  else
    throw ArgumentError(ErrorText{cat("there is no function \"", function, "\""),
                                  {},
                                  cat("there are ", text::join(cpu_functions(), ", ")),
                                  "programs of your own: cgp profile binary --count step -- PROGRAM"});
  return n ? b[0] : 0;
}

double cpu_flops(const std::string& function, std::size_t n) {
  return (function == "dot" || function == "axpy" ? 2.0 : 1.0) * double(n);
}
double cpu_bytes(const std::string& function, std::size_t n) {
  return (function == "axpy" ? 12.0 : 8.0) * double(n);
}

std::uint64_t read_all([[maybe_unused]] cpu::Isa isa, const void* data, std::size_t bytes) {
#if defined(__x86_64__)
  if (isa >= cpu::Isa::avx512) return read_avx512(static_cast<const char*>(data), bytes);
  if (isa >= cpu::Isa::avx2) return read_avx2(static_cast<const char*>(data), bytes);
#endif
  const auto* words = static_cast<const std::uint64_t*>(data);
  return std::accumulate(words, words + bytes / 8, std::uint64_t(0), std::bit_xor<>());
}

double multiply_adds(cpu::Isa isa, std::size_t rounds) {
#if defined(__x86_64__)
  if (isa >= cpu::Isa::avx512) return fma_avx512(rounds);
  if (isa >= cpu::Isa::avx2) return fma_avx2(rounds);
#endif
  return fma_scalar(rounds);
}

double fma_peak_gflops(cpu::Isa isa, double seconds, const std::function<double()>& clock) {
  return best_rate(
             seconds, [isa] { return multiply_adds(isa, 20000); }, clock) *
         1e-9;
}

double read_bandwidth_gbps(std::size_t bytes, int threads, double seconds,
                           const std::function<double()>& clock) {
  const std::size_t n = std::max<std::size_t>(bytes / sizeof(float), 16);
  std::vector<float> data(n, 1.0f);
  const auto dot = cpu::loops().dot;
  const std::size_t calls = std::max<std::size_t>(1, (1u << 20) / (n * sizeof(float)));
  return best_rate(
             seconds,
             [&] {
               cpu::run_on_threads(threads, [&](int t, int count) {
                 const std::size_t from = n * std::size_t(t) / std::size_t(count),
                                   to = n * std::size_t(t + 1) / std::size_t(count);
                 for (std::size_t c = 0; c < calls; ++c)
                   measure::keep(dot(data.data() + from, data.data() + from, to - from));
               });
               return double(n * sizeof(float) * calls);
             },
             clock) *
         1e-9;
}

std::vector<CpuCeiling> cpu_ceilings(double seconds) {
  std::vector<CpuCeiling> out;
  const double each = seconds / 8;
  for (const auto& [isa, called] :
       {std::pair{cpu::Isa::avx512, "AVX-512 fp32 FMA"}, std::pair{cpu::Isa::avx2, "AVX2 fp32 FMA"}})
    if (cpu::has(isa))
      out.push_back({called, false, fma_peak_gflops(isa, each), "12 independent chains, one core"});
  if (amx_reject().empty())
    for (const auto& [type, called] :
         {std::pair{AmxType::bf16, "AMX bf16"}, std::pair{AmxType::int8, "AMX int8"}})
      out.push_back({called, false, amx_peak(type, each), "products into 6 tiles of 16 x 16, one core"});
  out.push_back({"scalar fp64", false, fma_peak_gflops(cpu::Isa::scalar, each),
                 "8 chains of a multiplication and an addition"});
  const cpu::Isa isa = cpu::has(cpu::Isa::avx512) ? cpu::Isa::avx512
                       : cpu::has(cpu::Isa::avx2) ? cpu::Isa::avx2
                                                  : cpu::Isa::scalar;
  // Half of each level; the last level of a virtual machine may be shared with others.
  for (const auto& [level, bytes] : measure::machine_facts().caches) {
    const std::size_t size = std::min<std::uint64_t>(bytes / 2, 64u << 20);
    const Block data(size);
    const std::size_t repeats = std::max<std::size_t>(1, (4u << 20) / size);
    out.push_back({level + " read", true, best_rate(each, [&] { return data.read(isa, repeats); }) * 1e-9,
                   text::bytes(size) + " read again and again by one core with " + loads_of(isa)});
  }
  {
    const Block data(512u << 20);
    out.push_back({"memory read", true, best_rate(each, [&] { return data.read(isa, 1); }) * 1e-9,
                   "512 MiB read by one core with " + loads_of(isa)});
  }
#if defined(__x86_64__)
  if (cpu::has(cpu::Isa::avx2)) {
    const Block from(256u << 20), into(256u << 20);
    for (const auto& [copy, stores] :
         {std::pair{&copy_avx2<false>, "stores"}, std::pair{&copy_avx2<true>, "streaming stores"}})
      out.push_back({text::cat("memory copy, ", stores), true,
                     best_rate(each,
                               [&, copy = copy] {
                                 copy(from.data(), into.data(), from.size());
                                 measure::keep(into.data()[0]);
                                 return 2.0 * double(from.size());
                               }) *
                         1e-9,
                     text::cat("256 MiB by one core, both directions, 32-byte ", stores)});
  }
#endif
  std::vector<double> large(64u << 20, 1.0), other(64u << 20, 2.0);
  out.push_back({"memory triad", true,
                 best_rate(each,
                           [&] {
                             for (std::size_t i = 0; i < large.size(); ++i)
                               large[i] = other[i] + 0.5 * large[i];
                             measure::keep(large[0]);
                             return 24.0 * double(large.size());
                           }) *
                     1e-9,
                 "a[i] = b[i] + s * a[i] over 1 GiB"});
  return out;
}

}  // namespace cgp::profile
