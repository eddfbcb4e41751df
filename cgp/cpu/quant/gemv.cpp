// SPDX-License-Identifier: Apache-2.0
#include "cgp/cpu/quant/gemv.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/cpu/quant/gemv_impl.h"
#include "cgp/cpu/threads.h"

namespace cgp::cpu {
namespace {

using quant_versions::Version;
using std::int64_t;
using text::cat;

const Version& version(Isa isa, Activations activations) {
  require(isa);
#if defined(__x86_64__)
  if (isa >= Isa::avx512_vnni || (isa >= Isa::avx512 && activations == Activations::f32))
    return quant_versions::avx512;
  if (isa >= Isa::avx2) return quant_versions::avx2;
#endif
  (void)activations;
  return quant_versions::scalar;
}

void check(QuantType type, std::span<const std::byte> weights, int64_t m, int64_t n, int64_t k,
           std::span<const float> x, std::span<float> y) {
  if (m < 0 || n < 0 || k < 0)
    throw ArgumentError(ErrorText{"extents are not negative", {}, cat(m, " x ", n, " x ", k), {}});
  int64_t bytes = 0, in = 0, out = 0;
  if (__builtin_mul_overflow(quantized_bytes(type, k), m, &bytes) || __builtin_mul_overflow(n, k, &in) ||
      __builtin_mul_overflow(m, n, &out))
    throw ArgumentError(ErrorText{"extents beyond 2^63 bytes", {}, cat(m, " x ", n, " x ", k), {}});
  const auto agree = [](const char* what, std::size_t there, int64_t needed) {
    if (int64_t(there) != needed)
      throw ArgumentError(ErrorText{cat("the size of the ", what, " must be that of the product"),
                                    {},
                                    cat("it is ", there, ", needed are ", needed),
                                    {}});
  };
  agree("weights (bytes)", weights.size(), bytes);
  agree("vectors", x.size(), in);
  agree("result", y.size(), out);
}

/// Rows in turns of 16, whichever thread comes; each row against every vector while it lies in L1.
template <class Dot>
void for_rows(int64_t m, int64_t n, int threads, std::span<float> y, const Dot& dot) {
  std::atomic<int64_t> next{0};
  run_on_threads(threads, [&](int, int) {
    for (int64_t first; (first = next.fetch_add(16, std::memory_order_relaxed)) < m;)
      for (int64_t i = first; i < std::min(first + 16, m); ++i)
        for (int64_t j = 0; j < n; ++j) y[std::size_t(j * m + i)] = dot(i, j);
  });
}

}  // namespace

void quant_gemv(QuantType type, std::span<const std::byte> weights, int64_t m, int64_t n, int64_t k,
                std::span<const float> x, std::span<float> y, const QuantGemvOptions& options) {
  check(type, weights, m, n, k, x, y);
  if (type == QuantType::nf4 && options.activations == Activations::int8)
    throw Unsupported(ErrorText{
        "nf4 has no product with 8-bit activations", {}, "its values are no multiples of a step", "use f32"});
  const Version& v = version(options.isa, options.activations);
  if (m == 0 || n == 0) return;
  const QuantFacts& f = facts(type);
  const int64_t blocks = k / f.elements, row_bytes = blocks * f.bytes;
  const int threads = threads_for(m * n * k, kQuantWorkPerThread, options.threads);
  const auto row = [&](int64_t i) { return weights.data() + i * row_bytes; };
  if (options.activations == Activations::f32) {
    std::vector<float> sums(std::size_t(n * k / 16));
    for (std::size_t j = 0; j < sums.size(); ++j)
      for (std::size_t e = 0; e < 16; ++e) sums[j] += x[16 * j + e];
    const auto dot = v.f32[int(type)];
    for_rows(m, n, threads, y, [&](int64_t i, int64_t j) {
      return dot(row(i), blocks, x.data() + j * k, sums.data() + j * k / 16);
    });
  } else if (type == QuantType::q8_0) {
    std::vector<BlockQ80> q(std::size_t(n * blocks));
    quantize_activations(x, q);
    for_rows(m, n, threads, y,
             [&](int64_t i, int64_t j) { return v.q80(row(i), blocks, q.data() + j * blocks); });
  } else {
    std::vector<BlockQ8K> q(std::size_t(n * blocks));
    quantize_activations(x, q);
    const auto dot = v.q8k[int(type)];
    for_rows(m, n, threads, y,
             [&](int64_t i, int64_t j) { return dot(row(i), blocks, q.data() + j * blocks); });
  }
}

}  // namespace cgp::cpu
