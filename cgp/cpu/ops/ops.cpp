// SPDX-License-Identifier: Apache-2.0
#include "cgp/cpu/ops/ops.h"

#include <algorithm>
#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/cpu/ops/ops_impl.h"
#include "cgp/cpu/threads.h"

namespace cgp::cpu {
namespace {

using std::int64_t;
using text::cat;

void same_size(const char* what, std::size_t there, std::size_t needed) {
  if (there != needed)
    throw ArgumentError(ErrorText{
        cat("the size of ", what, " must fit"), {}, cat("it is ", there, ", needed are ", needed), {}});
}

/// Rows of n in x. ArgumentError unless they fill it.
int64_t rows_of(std::size_t size, int64_t n) {
  if (n < 1 || int64_t(size) % n != 0)
    throw ArgumentError(ErrorText{"x holds whole rows", {}, cat(size, " elements in rows of ", n), {}});
  return int64_t(size) / n;
}

/// body(row) on as many threads as the work is worth.
template <class Body>
void for_rows(int64_t rows, int64_t n, int threads, const Body& body) {
  const int64_t chunk = std::max<int64_t>(1, 4096 / std::max<int64_t>(n, 1));
  parallel_for(rows, chunk, threads_for(rows * n, kOpWorkPerThread, threads), [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) body(i);
  });
}

/// body(from, count): pieces of [0, n).
template <class Body>
void for_pieces(int64_t n, int threads, const Body& body) {
  parallel_for(n, 4096, threads_for(n, kOpWorkPerThread, threads),
               [&](int64_t from, int64_t to) { body(from, to - from); });
}

}  // namespace

const ops_versions::Ops& ops_versions::version(Isa isa) {
  require(isa);
#if defined(__x86_64__)
  if (isa >= Isa::avx512) return avx512;
  if (isa >= Isa::avx2) return avx2;
#endif
  return scalar;
}

void rms_norm(std::span<const float> x, std::span<const float> weight, float epsilon, std::span<float> y,
              const OpOptions& o) {
  const auto n = int64_t(weight.size()), rows = rows_of(x.size(), n);
  same_size("y", y.size(), x.size());
  const auto run = ops_versions::version(o.isa).rms_norm;
  for_rows(rows, n, o.threads,
           [&](int64_t i) { run(x.data() + i * n, weight.data(), epsilon, n, y.data() + i * n); });
}

void layer_norm(std::span<const float> x, std::span<const float> weight, std::span<const float> bias,
                float epsilon, std::span<float> y, const OpOptions& o) {
  const auto n = int64_t(weight.size()), rows = rows_of(x.size(), n);
  same_size("y", y.size(), x.size());
  if (!bias.empty()) same_size("the bias", bias.size(), weight.size());
  const auto run = ops_versions::version(o.isa).layer_norm;
  const float* b = bias.empty() ? nullptr : bias.data();
  for_rows(rows, n, o.threads,
           [&](int64_t i) { run(x.data() + i * n, weight.data(), b, epsilon, n, y.data() + i * n); });
}

void softmax(std::span<const float> x, int64_t n, float scale, std::span<float> y, const OpOptions& o) {
  const auto rows = rows_of(x.size(), n);
  same_size("y", y.size(), x.size());
  const auto run = ops_versions::version(o.isa).softmax;
  for_rows(rows, n, o.threads, [&](int64_t i) { run(x.data() + i * n, scale, n, y.data() + i * n); });
}

void activate(Activation activation, std::span<const float> x, std::span<const float> up, std::span<float> y,
              const OpOptions& o) {
  same_size("y", y.size(), x.size());
  if (!up.empty()) same_size("up", up.size(), x.size());
  const auto run = ops_versions::version(o.isa).activate[int(activation)];
  for_pieces(int64_t(x.size()), o.threads, [&](int64_t from, int64_t count) {
    run(x.data() + from, up.empty() ? nullptr : up.data() + from, count, y.data() + from);
  });
}

std::vector<float> rope_frequencies(int64_t dims, float base) {
  if (dims < 0 || dims % 2 != 0 || !(base > 0))
    throw ArgumentError(ErrorText{"rotary dimensions are even and the base is positive",
                                  {},
                                  cat(dims, " dimensions, base ", base),
                                  {}});
  std::vector<float> out(std::size_t(dims / 2));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = float(std::pow(double(base), -2.0 * double(i) / double(dims)));
  return out;
}

namespace {

/// Of one position.
void angles_of(RopePairs pairs, std::int32_t position, std::span<const float> frequencies, float magnitude,
               float* cosines, float* sines) {
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double angle = double(position) * double(frequencies[i]);
    const auto c = float(magnitude * std::cos(angle)), s = float(magnitude * std::sin(angle));
    if (pairs == RopePairs::neighbours)
      cosines[2 * i] = cosines[2 * i + 1] = c, sines[2 * i] = -s, sines[2 * i + 1] = s;
    else
      cosines[i] = c, sines[i] = s;
  }
}

/// Elements of x, which has `tokens` of these heads. ArgumentError where they do not agree.
void check_heads(std::span<const float> x, int64_t tokens, int64_t heads, int64_t head_dim, int64_t half) {
  if (heads < 0 || head_dim < 1 || 2 * half > head_dim)
    throw ArgumentError(ErrorText{"the rotary dimensions lie in the head",
                                  {},
                                  cat(2 * half, " of ", head_dim, ", ", heads, " heads"),
                                  {}});
  int64_t size = 0;
  if (__builtin_mul_overflow(tokens * heads, head_dim, &size))
    throw ArgumentError(ErrorText{"extents beyond 2^63 elements", {}, cat(tokens, " tokens"), {}});
  same_size("x", x.size(), std::size_t(size));
}

}  // namespace

void rope(RopePairs pairs, std::span<float> x, int64_t heads, int64_t head_dim,
          std::span<const std::int32_t> positions, std::span<const float> frequencies, const OpOptions& o) {
  const auto half = int64_t(frequencies.size()), tokens = int64_t(positions.size());
  check_heads(x, tokens, heads, head_dim, half);
  const auto run = ops_versions::version(o.isa).rope[int(pairs)];
  for_rows(tokens, heads * head_dim, o.threads, [&](int64_t t) {
    thread_local std::vector<float> cosines, sines;
    cosines.resize(std::size_t(2 * half)), sines.resize(cosines.size());
    angles_of(pairs, positions[std::size_t(t)], frequencies, 1, cosines.data(), sines.data());
    for (int64_t h = 0; h < heads; ++h)
      run(x.data() + (t * heads + h) * head_dim, cosines.data(), sines.data(), half);
  });
}

void rope_angles(RopePairs pairs, std::span<const std::int32_t> positions, std::span<const float> frequencies,
                 float magnitude, std::span<float> cosines, std::span<float> sines) {
  const std::size_t run = 2 * frequencies.size();
  same_size("the cosines", cosines.size(), positions.size() * run);
  same_size("the sines", sines.size(), positions.size() * run);
  for (std::size_t t = 0; t < positions.size(); ++t)
    angles_of(pairs, positions[t], frequencies, magnitude, cosines.data() + t * run, sines.data() + t * run);
}

void rotate(RopePairs pairs, std::span<float> x, int64_t heads, int64_t head_dim,
            std::span<const float> cosines, std::span<const float> sines, const OpOptions& o) {
  if (heads < 1 || head_dim < 1 || int64_t(x.size()) % (heads * head_dim) != 0)
    throw ArgumentError(ErrorText{
        "x holds whole tokens", {}, cat(x.size(), " elements, ", heads, " heads of ", head_dim), {}});
  const int64_t tokens = int64_t(x.size()) / (heads * head_dim);
  if (tokens == 0) return;
  const int64_t floats = int64_t(cosines.size()) / tokens;
  same_size("the cosines", cosines.size(), std::size_t(floats / 2 * 2 * tokens));
  same_size("the sines", sines.size(), cosines.size());
  check_heads(x, tokens, heads, head_dim, floats / 2);
  const auto run = ops_versions::version(o.isa).rope[int(pairs)];
  for_rows(tokens, heads * head_dim, o.threads, [&](int64_t t) {
    for (int64_t h = 0; h < heads; ++h)
      run(x.data() + (t * heads + h) * head_dim, cosines.data() + t * floats, sines.data() + t * floats,
          floats / 2);
  });
}

void to_f16(std::span<const float> x, std::span<std::uint16_t> y, const OpOptions& o) {
  same_size("y", y.size(), x.size());
  const auto run = ops_versions::version(o.isa).to_f16;
  for_pieces(int64_t(x.size()), o.threads,
             [&](int64_t from, int64_t count) { run(x.data() + from, count, y.data() + from); });
}
void to_bf16(std::span<const float> x, std::span<std::uint16_t> y, const OpOptions& o) {
  same_size("y", y.size(), x.size());
  const auto run = ops_versions::version(o.isa).to_bf16;
  for_pieces(int64_t(x.size()), o.threads,
             [&](int64_t from, int64_t count) { run(x.data() + from, count, y.data() + from); });
}

}  // namespace cgp::cpu
