// SPDX-License-Identifier: Apache-2.0
// quantized_gemv: a warp has one row of the weight, a lane eight consecutive elements of every 256; a butterfly adds the lanes. Of few
// rows each has a block.
//   memory   the weight once, as wide as its blocks' alignment lets reads be; x from L1 and L2
//   needs    any device; shaders too
#include "cgp/kernels/quantized_matmul/quantized_gemv.h"

#include <bit>
#include <numeric>

#include "cgp/base/text.h"
#include "cgp/dsl/core/arith.h"
#include "cgp/dsl/sync/block.h"
#include "cgp/dsl/sync/warp.h"
#include "cgp/kernels/dequantize/block_decoder.h"
#include "cgp/kernels/row/elements.h"

namespace cgp::kernels {
namespace {

using namespace dsl;
using dequantize_code::Bytes, dequantize_code::Eight;

constexpr std::uint32_t kThreads = 256, kWarps = kThreads / 32, kEach = 8;
constexpr std::uint64_t kMostRows = 4;
constexpr std::uint64_t kWarpsOfSm = 64;  // that a row each keeps busy

/// Eight elements of x from `i` on, a multiple of eight where they are read wide.
Eight eight_of_x(const QuantizedGemvConfig& c, const In<b8>& x, const Val<u64>& i) {
  Eight out;
  if (c.wide_x) {
    const int each = 16 / bytes(c.type);
    for (int part = 0; part < int(kEach) / each; ++part) {
      const auto words = x.as<const b32>().ld<4>(i / std::uint64_t(each) + std::uint64_t(part));
      for (const auto& v : row::floats({c.type, each}, {words[0], words[1], words[2], words[3]}))
        out.push_back(v);
    }
    return out;
  }
  for (std::uint64_t e = 0; e < kEach; ++e) {
    if (c.type == DType::f32)
      out.push_back(x.as<const f32>().ld(i + e));
    else
      out.push_back(row::floats({c.type, 1}, {bits<b32>(to<u32>(x.as<const dsl::u16>().ld(i + e)))})[0]);
  }
  return out;
}

template <int M>
void product(Kernel& k, const QuantizedGemvConfig& c, const In<b8>& codes, const In<b8>& scales,
             const In<b8>& x, const Out<b8>& y, const Val<u64>& n, const Val<u64>& cols,
             const Val<u64>& x_pitch, const Val<u64>& y_pitch, const Val<u32>& group_log2) {
  k.block(int(kThreads));
  Warp w = k.warp();
  Cta cta = k.cta();
  const bool bnb = c.format == QuantizedFormat::bnb_nf4, nf4 = bnb || c.format == QuantizedFormat::nf4;
  std::optional<Ptr<shared, f32>> table;
  if (nf4) table.emplace(dequantize_code::nf4_table(k));
  const auto own = c.block_a_row ? to<u64>(k.ctaid_x())
                                 : to<u64>(k.ctaid_x()) * std::uint64_t(kWarps) + to<u64>(k.warp_index());
  const auto row = select(own < n, own, n - 1u);  // no warp stands aside: shaders add lanes with barriers
  const auto decoded = [&](const Val<u64>& first) -> Eight {
    if (bnb) {
      const auto absmax = scales.as<const f32>().ld(first >> group_log2);
      return dequantize_code::nf4_values(
          *table, Bytes(codes.at(first / 2u), c.align).words(1, k.tid() & 0u, 0, 4)[0], absmax);
    }
    const auto& i = quant::info(*block_format(c.format));
    const Bytes at(codes.at((first >> std::uint32_t(std::countr_zero(i.elements))) * i.bytes), c.align);
    const auto e = to<u32>(first) & std::uint32_t(i.elements - 1);
    std::vector<Val<f32>> read;
    if (!nf4) return dequantize_code::decode_eight(k, i.format, at, e, read);
    const auto absmax = bits<f32>(at.words(1, e & 0u, 0, 16)[0]);
    return dequantize_code::nf4_values(*table, at.words(1, e / 2u, 4, 4)[0], absmax);
  };
  const auto acc = k.loop(range((c.block_a_row ? k.tid() : k.laneid()) * kEach, to<u32>(cols),
                                Val<u32>((c.block_a_row ? kThreads : 32) * kEach)),
                          RegGroup<f32, M>::splat(Val<f32>(0.f)), [&](Val<u32> col, RegGroup<f32, M> sum) {
                            const auto weights = decoded(row * cols + to<u64>(col));
                            return RegGroup<f32, M>::generate([&](int r) {
                              const auto of_x = eight_of_x(c, x, x_pitch * std::uint64_t(r) + to<u64>(col));
                              std::vector<Val<f32>> s{sum[r]};
                              for (std::size_t e = 0; e < kEach; ++e)
                                s.push_back(fma(weights[e], of_x[e], s.back()));
                              return s.back();
                            });
                          });
  for (int r = 0; r < M; ++r) {
    const auto add = [](Val<f32> a, Val<f32> b) { return a + b; };
    const auto total = c.block_a_row ? reduce(cta, acc[r], add, Val<f32>(0.f)) : reduce(w, acc[r], add);
    row::store({c.type_y, 1}, y, y_pitch * std::uint64_t(r) + row,
               (own < n) & ((c.block_a_row ? k.tid() : k.laneid()) == 0u), row::pack({c.type_y, 1}, {total}));
  }
}

void gemv_kernel(Kernel& k, QuantizedGemvConfig c, In<b8> codes, In<b8> scales, In<b8> x, Out<b8> y,
                 Val<u64> n, Val<u64> cols, Val<u64> x_pitch, Val<u64> y_pitch, Val<u32> group_log2) {
  switch (c.rows) {
    case 1:
      return product<1>(k, c, codes, scales, x, y, n, cols, x_pitch, y_pitch, group_log2);
    case 2:
      return product<2>(k, c, codes, scales, x, y, n, cols, x_pitch, y_pitch, group_log2);
    case 3:
      return product<3>(k, c, codes, scales, x, y, n, cols, x_pitch, y_pitch, group_log2);
    default:
      return product<4>(k, c, codes, scales, x, y, n, cols, x_pitch, y_pitch, group_log2);
  }
}

}  // namespace

std::string reject_gemv(const QuantizedMatmul& p, const runtime::DeviceInfo& d) {
  const auto& w = p.weight;
  const auto power = [](std::uint64_t n) { return n && (n & (n - 1)) == 0; };
  if (p.transposed) return "the GEMV sums over the columns of the weight";
  if (p.m > kMostRows) return text::cat("the GEMV has at most ", kMostRows, " rows");
  if (p.error_flag.given) return "scales are to be checked";
  if (p.y.dtype == DType::bf16 && d.cc() < 80) return text::cat(d.arch, " does not round to bf16");
  if (w.cols >> 32) return "the GEMV has less than 2^32 columns";
  if (w.format == QuantizedFormat::bnb_nf4) {
    if (w.scales.dtype == DType::u8) return "absmax is quantised";
    if (w.cols % kEach || w.group % kEach || !power(w.group)) return "groups of NF4 must be powers of two";
    return {};
  }
  const auto f = block_format(w.format);
  return !f || quant::info(*f).elements < kEach ? text::cat("the GEMV has no ", name(w.format))
                                                : std::string();
}

QuantizedGemvConfig quantized_gemv_config(const QuantizedMatmul& p, const runtime::DeviceInfo& d) {
  const auto f = block_format(p.weight.format);
  const std::uint64_t unit = f ? quant::info(*f).bytes : 4, size = std::uint64_t(bytes(p.x.dtype));
  QuantizedGemvConfig c{p.weight.format, p.x.dtype, p.y.dtype, int(p.m)};
  c.align = int(std::gcd(std::gcd(p.weight.codes.address, unit), std::uint64_t(16)));
  c.wide_x = p.x.address % 16 == 0 && (p.m == 1 || p.x_layout.pitch * size % 16 == 0);
  c.block_a_row = p.weight.cols > 32 * kEach && p.weight.rows < std::uint64_t(d.sm_count) * kWarpsOfSm;
  return c;
}

Variant quantized_gemv_variant(const QuantizedGemvConfig& c) {
  return config_variant("quantized_gemv", c, c.type_y == DType::bf16 ? 80 : 75, gemv_kernel);
}

void quantized_gemv(runtime::Stream& s, const QuantizedMatmul& p) {
  const auto& w = p.weight;
  const auto config = quantized_gemv_config(p, s.device().info());
  const auto blocks = config.block_a_row ? w.rows : (w.rows + kWarps - 1) / kWarps;
  load(s.device(), quantized_gemv_variant(config))(s, runtime::Launch{.grid = {std::uint32_t(blocks)}},
                                                   w.codes.arg(), w.scales.arg(), p.x.arg(), p.y.arg(),
                                                   w.rows, w.cols, p.x_layout.pitch, p.y_layout.pitch,
                                                   std::uint32_t(std::countr_zero(w.group)));
}

}  // namespace cgp::kernels
