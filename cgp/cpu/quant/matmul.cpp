// SPDX-License-Identifier: Apache-2.0
#include "cgp/cpu/quant/matmul.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/cpu/gemm/gemm.h"
#include "cgp/cpu/loops/loops.h"
#include "cgp/cpu/quant/matmul_impl.h"
#include "cgp/cpu/quant/panel_impl.h"
#include "cgp/cpu/quant/product_impl.h"
#include "cgp/cpu/threads.h"
#include "cgp/quant/decode.h"

namespace cgp::cpu {
namespace {

using namespace quant_versions;
using quant::Format;
using std::int64_t;
using text::cat;

/// Null where the version, or the format, has no integer product.
const DotsByVectors* dots(Format f, Isa isa) {
#if defined(__x86_64__)
  const DotTable* table = isa >= Isa::avx512_vnni ? &dot_avx512_vnni
                          : isa == Isa::avx_vnni  ? &dot_avx_vnni
                          : isa >= Isa::avx2      ? &dot_avx2
                                                  : nullptr;
  if (table && table->by[int(f)].of[0]) return &table->by[int(f)];
#endif
  (void)f, (void)isa;
  return nullptr;
}

/// The same for activations as they are.
const FloatDotsByVectors* float_dots(Format f, Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::avx512 && float_dot_avx512.by[int(f)].of[0]) return &float_dot_avx512.by[int(f)];
#endif
  (void)f, (void)isa;
  return nullptr;
}

/// Decodes rows as fast as the instruction set allows.
class Decoder {
 public:
  Decoder(Format f, Isa isa)
      : format_(f), block_(int64_t(quant::info(f).elements)), block_bytes_(int64_t(quant::info(f).bytes)) {
#if defined(__x86_64__)
    if (isa >= Isa::avx2) fast_ = decode_avx2.by[int(f)];
#endif
    (void)isa;
  }
  void operator()(Bytes row, int64_t k, float* out) const {
    if (fast_) return fast_(row, k, out);
    quant::decode_blocks(format_, reinterpret_cast<const std::byte*>(row), std::size_t(k / block_), out);
  }

#if defined(__x86_64__)
  /// To `padded` bf16, a multiple of 32; `rest`, if given, gets what rounding took away. AVX-512 BF16.
  void operator()(Bytes row, int64_t k, int64_t padded, std::uint16_t* out, std::uint16_t* rest,
                  float* space) const {
    if (const auto direct = decode_bf16_avx512.by[int(format_)]; direct && k == padded)
      return direct(row, k, out, rest);
    (*this)(row, k, space);
    round_to_bf16_avx512(space, k, padded, out, rest, 32);
  }
#endif
  /// Of the first k elements.
  int64_t bytes(int64_t k) const { return k / block_ * block_bytes_; }

 private:
  Format format_;
  int64_t block_, block_bytes_;
  Decode fast_ = nullptr;
};

struct Problem {
  Bytes weights;
  int64_t row_bytes, m, n, k;
  const float* x;
  float* y;
};

/// A thread takes 16 rows, and meets each with all vectors while it lies in L1.
constexpr int64_t kRows = 16;

/// dots.of[which](row, j, sums): the products of a row with vectors j to j + 2^which - 1.
template <class Dots>
void for_rows(const Problem& p, int threads, const Dots& dots) {
  parallel_for(p.m, kRows, threads, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i)
      for (int64_t j = 0; j < p.n;) {
        const int which = p.n - j >= 4 ? 2 : p.n - j >= 2 ? 1 : 0;
        float sums[4];
        dots(which, p.weights + i * p.row_bytes, j, sums);
        for (int v = 0; v < 1 << which; ++v, ++j) p.y[j * p.m + i] = sums[v];
      }
  });
}

void with_int8(const Problem& p, const DotsByVectors& dots, int threads) {
  RoundedVectors<Int8Activations> x({p.x, std::size_t(p.n * p.k)}, p.n, p.k);
  for_rows(p, threads, [&](int which, Bytes row, int64_t j, float* sums) {
    dots.of[which](row, p.k, x.vector(j), x.stride(), sums);
  });
}

void with_float_dots(const Problem& p, const FloatDotsByVectors& dots, int threads) {
  const int64_t lds = (p.k + 255) / 256 * 16;
  thread_local std::vector<float> of_thread;
  auto& sums_of_16 = of_thread;  // other threads read this one's
  sums_of_16.assign(std::size_t(p.n * lds), 0.0f);
  for (int64_t j = 0; j < p.n; ++j)
    for (int64_t i = 0; i < p.k; ++i) sums_of_16[std::size_t(j * lds + i / 16)] += p.x[j * p.k + i];
  for_rows(p, threads, [&](int which, Bytes row, int64_t j, float* sums) {
    dots.of[which](row, p.k, p.x + j * p.k, p.k, sums_of_16.data() + j * lds, lds, sums);
  });
}

void with_floats_of_16_bits(const Problem& p, float (*dot)(Bytes, int64_t, const float*), int threads) {
  parallel_for(p.m, kRows, threads, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i)
      for (int64_t j = 0; j < p.n; ++j)
        p.y[j * p.m + i] = dot(p.weights + i * p.row_bytes, p.k, p.x + j * p.k);
  });
}

void with_f32(const Problem& p, const Decoder& decode, Isa isa, int threads) {
  const auto dot = loops(isa).dot;
  constexpr int64_t kPart = 2048;  // decoded weights stay in L1; a multiple of every block
  parallel_for(p.m, kRows, threads, [&](int64_t from, int64_t to) {
    alignas(64) float part[kPart];
    for (int64_t i = from; i < to; ++i) {
      for (int64_t j = 0; j < p.n; ++j) p.y[j * p.m + i] = 0;
      for (int64_t first = 0; first < p.k; first += kPart) {
        const int64_t count = std::min(kPart, p.k - first);
        decode(p.weights + i * p.row_bytes + decode.bytes(first), count, part);
        for (int64_t j = 0; j < p.n; ++j)
          p.y[j * p.m + i] += dot(part, p.x + j * p.k + first, std::size_t(count));
      }
    }
  });
}

/// Many vectors: rows decoded to f32, and a product of matrices.
void with_f32_panels(const Problem& p, const Decoder& decode, Isa isa, int threads) {
  constexpr int64_t kPanel = 128;
  parallel_for(p.m, kPanel, threads, [&](int64_t from, int64_t to) {
    thread_local AlignedBuffer memory;
    memory.at_least(std::size_t((to - from) * p.k) * sizeof(float));
    auto* panel = memory.as<float>();
    for (int64_t i = from; i < to; ++i) decode(p.weights + i * p.row_bytes, p.k, panel + (i - from) * p.k);
    gemm(Transpose::no, Transpose::yes, p.n, to - from, p.k, 1, p.x, std::max<int64_t>(p.k, 1), panel,
         std::max<int64_t>(p.k, 1), 0, p.y + from, p.m, {.isa = isa});
  });
}

#if defined(__x86_64__)
/// One or two bf16 for each number. Of two, the product of both second ones is left out.
enum class Terms { one, two };

void with_bf16_panels(const Problem& p, const Decoder& decode, PanelProduct product, Terms terms,
                      int threads) {
  const bool two = terms == Terms::two;
  const int64_t padded = (p.k + kPanelStep - 1) / kPanelStep * kPanelStep, group = kGroup * padded,
                groups = (p.n + 31) / 32 * 2, of_term = groups * group;
  AlignedBuffer rounded(std::size_t(of_term) * (two ? 4 : 2));
  auto* x = rounded.as<std::uint16_t>();
  auto* x_rest = two ? x + of_term : nullptr;
  for (auto* all : {x, x_rest})
    if (all) std::memset(all + p.n / kGroup * group, 0, std::size_t((groups - p.n / kGroup) * group) * 2);
  parallel_for(p.n, kGroup, threads, [&](int64_t from, int64_t to) {
    for (int64_t j = from; j < to; ++j) {
      const int64_t at = j / kGroup * group + j % kGroup * 32;
      round_to_bf16_avx512(p.x + j * p.k, p.k, padded, x + at, two ? x_rest + at : nullptr, kGroup * 32);
    }
  });
  const int64_t panels = std::clamp<int64_t>(p.m / (2 * threads * kPanelRows), 1, kMostPanels);
  parallel_for(p.m, panels * kPanelRows, threads, [&](int64_t from, int64_t to) {
    constexpr int64_t kPanel = kPanelRows / 2 * kPanelDepth;
    thread_local AlignedBuffer memory;
    auto* sums = static_cast<float*>(memory.at_least(
        std::size_t((p.n + 31) / 32 * 32 * kSumStride + 2 * kMostPanels * kPanel + kPanelDepth) * 4));
    auto* panel = reinterpret_cast<std::uint32_t*>(sums + (p.n + 31) / 32 * 32 * kSumStride);
    auto* panel_rest = panel + kMostPanels * kPanel;
    auto* row = reinterpret_cast<float*>(panel_rest + kMostPanels * kPanel);
    alignas(64) std::uint16_t rows[2][kPanelRows * kRowStride];
    const int64_t count = (to - from + kPanelRows - 1) / kPanelRows;
    for (int64_t first = 0; first < p.k; first += kPanelDepth) {
      const int64_t elements = std::min(kPanelDepth, p.k - first),
                    depth = std::min(kPanelDepth, padded - first);
      for (int64_t r = 0; r < count; ++r) {
        const int64_t r0 = from + r * kPanelRows, here = std::min(kPanelRows, to - r0);
        for (int64_t i = 0; i < here; ++i) {
          decode(p.weights + (r0 + i) * p.row_bytes + decode.bytes(first), elements, depth,
                 rows[0] + i * kRowStride, two ? rows[1] + i * kRowStride : nullptr, row);
        }
        for (int t = 0; t < (two ? 2 : 1); ++t) {
          std::memset(rows[t] + here * kRowStride, 0, std::size_t((kPanelRows - here) * kRowStride) * 2);
          pack_panel_avx512(rows[t], depth, (t ? panel_rest : panel) + r * kPanelRows * (depth / 2));
        }
      }
      product(panel, depth, count, x + first * kGroup, group, p.n, sums, first > 0);
      if (!two) continue;
      product(panel_rest, depth, count, x + first * kGroup, group, p.n, sums, true);
      product(panel, depth, count, x_rest + first * kGroup, group, p.n, sums, true);
    }
    for (int64_t j = 0; j < p.n; ++j)
      std::memcpy(p.y + j * p.m + from, sums + j * kSumStride, std::size_t(to - from) * 4);
  });
}
#endif

}  // namespace

bool has_int8(Format f) {
#if defined(__x86_64__)
  return dot_avx2.by[int(f)].of[0] != nullptr;
#else
  return (void)f, false;
#endif
}

void quant_matmul(Format format, std::span<const std::byte> weights, int64_t m, int64_t n, int64_t k,
                  std::span<const float> x, std::span<float> y, const QuantOptions& o) {
  require(o.isa);
  const int64_t row_bytes = check_weights(format, weights, m, k);
  const int threads = check_product(m, n, k, x.size(), y.size(), o.threads);
  if (y.empty()) return;
  const Problem p{reinterpret_cast<Bytes>(weights.data()), row_bytes, m, n, k, x.data(), y.data()};
  const Decoder decode(format, o.isa);
  const bool many = n >= kPanelVectors && k > 0;
#if defined(__x86_64__)
  const auto product = o.isa >= Isa::amx ? panel_product_amx : panel_product_avx512;
  if (many && o.activations == Activations::int8 && o.isa >= Isa::avx512_bf16)
    return with_bf16_panels(p, decode, product, Terms::one, threads);
  if (many && o.activations == Activations::int16 && o.isa >= Isa::avx512_bf16)
    return with_bf16_panels(p, decode, product, Terms::two, threads);
#endif
  // Without vpdpbusd a product of many vectors is faster in f32.
  const bool vnni = o.isa == Isa::avx_vnni || o.isa >= Isa::avx512_vnni;
  const bool rounds = o.activations == Activations::int8 && (vnni || n < 4 * kPanelVectors);
  if (const auto* dot = rounds ? dots(format, o.isa) : nullptr) return with_int8(p, *dot, threads);
  if (many) return with_f32_panels(p, decode, o.isa, threads);
#if defined(__x86_64__)
  if (o.isa >= Isa::avx2 && format == Format::f16) return with_floats_of_16_bits(p, dot_f16_avx2, threads);
  if (o.isa >= Isa::avx2 && format == Format::bf16) return with_floats_of_16_bits(p, dot_bf16_avx2, threads);
#endif
  if (const auto* dot = float_dots(format, o.isa)) return with_float_dots(p, *dot, threads);
  with_f32(p, decode, o.isa, threads);
}

void quant_rows(Format format, std::span<const std::byte> table, int64_t rows, int64_t k,
                std::span<const std::int32_t> ids, std::span<float> out, Isa isa) {
  require(isa);
  const int64_t row_bytes = check_weights(format, table, rows, k);
  agree("result", out.size(), int64_t(ids.size()) * k);
  for (std::size_t j = 0; j < ids.size(); ++j)
    if (ids[j] < 0 || ids[j] >= rows)
      throw ArgumentError(ErrorText{
          "a row's number is below that of the rows", {}, cat("ids[", j, "] is ", ids[j], " of ", rows), {}});
  const Decoder decode(format, isa);
  if (k == 0) return;
  for (std::size_t j = 0; j < ids.size(); ++j)
    decode(reinterpret_cast<Bytes>(table.data()) + ids[j] * row_bytes, k, out.data() + int64_t(j) * k);
}

}  // namespace cgp::cpu
