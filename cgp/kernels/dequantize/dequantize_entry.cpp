// SPDX-License-Identifier: Apache-2.0
// dequantize in the catalogue, and random weights of every format.
#include <bit>
#include <numeric>

#include "cgp/base/error.h"
#include "cgp/base/float16.h"
#include "cgp/base/text.h"
#include "cgp/kernels/catalog/tensor_case.h"
#include "cgp/kernels/dequantize/dequantize.h"
#include "cgp/kernels/dequantize/dequantize_ref.h"

namespace cgp::kernels {
namespace {

using row::Expected, row::TensorCase;

constexpr std::size_t kFormats = std::size_t(QuantizedFormat::fp8_e5m2) + 1;

HostArray random_bytes(DType t, std::uint64_t elements, std::uint64_t seed) {
  HostArray a(t, {elements});
  SplitMix64 rng(seed);
  for (auto& b : a.bytes) b = std::byte(rng.next() >> 32);
  return a;
}
HostArray random_scales(DType t, std::uint64_t elements, std::uint64_t seed) {
  HostArray a(t, {elements});
  SplitMix64 rng(seed);
  for (std::uint64_t i = 0; i < elements; ++i) a.set(i, 0.001 + 0.01 * double(rng.next() % 1000) / 1000);
  return a;
}

/// Makes the scales of a block small numbers.
void tame(quant::Format f, std::byte* block, SplitMix64& rng) {
  const auto& i = quant::info(f);
  const float scale = 0.001f + 0.01f * float(rng.next() % 1000) / 1000;
  const std::uint16_t bits = half(double(scale)).bits;
  const auto put = [&](std::size_t at) { std::memcpy(block + at, &bits, 2); };
  using F = quant::Format;
  switch (f) {
    case F::f32:
      return (void)std::memcpy(block, &scale, 4);
    case F::f16:
      return put(0);
    case F::bf16:
      return (void)(block[1] = std::byte(std::to_integer<unsigned>(block[1]) & 0xbf));  // below 2
    case F::q8_k:
    case F::nf4:
      return (void)std::memcpy(block, &scale, 4);
    case F::q2_k:
    case F::q3_k:
    case F::q6_k:
    case F::tq1_0:
    case F::tq2_0:
      put(i.bytes - 2);
      if (f == F::q2_k) put(i.bytes - 4);
      return;
    case F::q4_1:
    case F::q5_1:
    case F::q4_k:
    case F::q5_k:
      return put(0), put(2);
    case F::iq1_m:  // the upper four bits of four words
      for (std::size_t n = 0; n < 4; ++n)
        block[49 + 2 * n] = (block[49 + 2 * n] & std::byte(15)) | std::byte((bits >> (4 * n) & 15) << 4);
      return;
    case F::mxfp4:
      block[0] = std::byte(rng.next() % 130);
      return;
    case F::nvfp4:
      for (int n = 0; n < 4; ++n) block[n] = std::byte(rng.next() % 127);
      return;
    default:
      return put(0);
  }
}

std::vector<DType> output_types() { return {DType::bf16, DType::f16, DType::f32}; }

/// On sm_90a every format, elsewhere every fourth.
std::vector<runtime::KernelImage> ships(std::string_view arch) {
  std::vector<Variant> all;
  for (std::size_t f = arch == "sm_90a" ? 0 : arch.back() % 4; f < kFormats; f += arch == "sm_90a" ? 1 : 4) {
    DequantizeConfig c{QuantizedFormat(f), output_types()[f % 3]};
    const auto blocks = block_format(c.format);
    const bool values = blocks && quant::info(*blocks).elements == 1;
    c.align = values ? 16 : blocks ? std::gcd(int(quant::info(*blocks).bytes), 16) : 4;
    c.g_idx = c.format == QuantizedFormat::gptq, c.nested = c.format == QuantizedFormat::bnb_nf4;
    c.checked = !values && f % 2, c.scalar = f % 5 == 0;
    all.push_back(dequantize_variant(c));
    if (blocks || c.format < QuantizedFormat::bnb_nf4) continue;
    c.ragged = true, c.align = 1;
    all.push_back(dequantize_variant(c));
  }
  return images(all, arch);
}

QuantizedWeight shape_of(const Options& o) {
  QuantizedWeight w;
  w.format = quantized_format_named(o.text("format"));
  w.rows = o.size("rows"), w.cols = o.size("cols"), w.group = o.size("group");
  w.scale_rows = o.size("scale_rows"), w.scale_cols = o.size("scale_cols");
  return w;
}

std::unique_ptr<Case> prepare(const runtime::Device& device, const Options& o, const std::vector<NamedArray>&,
                              std::uint64_t seed) {
  const auto shape = shape_of(o);
  const auto host =
      std::make_shared<HostWeight>(random_weight(shape, o.flag("g_idx"), o.flag("nested"), seed));
  auto c = std::make_unique<TensorCase>(device);
  Dequantize d;
  d.weight = host->shape, d.rows = shape.rows;
  const auto give = [&](const char* name, const HostArray& a) {
    return a.shape.empty() ? View{} : c->input(name, a);
  };
  d.weight.codes = give("codes", host->codes), d.weight.scales = give("scales", host->scales);
  d.weight.zeros = give("zeros", host->zeros), d.weight.g_idx = give("g_idx", host->g_idx);
  d.weight.absmax_table = give("absmax_table", host->absmax_table);
  d.weight.absmax_scales = give("absmax_scales", host->absmax_scales);
  const DType type = o.dtype("dtype", output_types());
  d.out = c->output("out", type, {shape.rows, shape.cols});
  c->flops = 2 * double(shape.rows) * double(shape.cols);
  c->runs({dequantize_variant(dequantize_config(d))},
          "the format's kernel, accesses as wide as its alignment");
  c->run = [d](runtime::Stream& s) { dequantize(s, d); };
  c->oracle = [host, type](const TensorCase&) {
    const auto values = decoded(*host);
    HostArray want(type, {values.size()});
    for (std::size_t i = 0; i < values.size(); ++i) want.set(i, double(values[i]));
    return std::vector<Expected>{{"out", want.as_doubles(), std::vector<double>(values.size(), 0)}};
  };
  return c;
}

}  // namespace

HostWeight random_weight(const QuantizedWeight& shape, bool g_idx, bool nested, std::uint64_t seed) {
  const auto need = [&](bool fine) {
    if (!fine)
      throw ArgumentError(
          {text::cat("there is no such weight of ", name(shape.format)),
           {},
           text::cat("rows = ", shape.rows, ", cols = ", shape.cols, ", group = ", shape.group),
           "gptq, awq: rows and group are multiples of 8, cols of group; bnb_nf4: group and rows * cols "
           "are even"});
  };
  if (const auto f = block_format(shape.format)) (void)quant::bytes_of(*f, shape.cols);
  if (shape.format == QuantizedFormat::gptq || shape.format == QuantizedFormat::awq)
    need(shape.group && shape.group % 8 == 0 && shape.cols % shape.group == 0 && shape.rows % 8 == 0);
  if (shape.format == QuantizedFormat::bnb_nf4)
    need(shape.group && shape.group % 2 == 0 && shape.rows * shape.cols % 2 == 0);
  need(shape.scale_rows && shape.scale_cols);
  HostWeight h{shape, {}, {}, {}, {}, {}, {}};
  const auto& w = shape;
  const std::uint64_t n = w.rows * w.cols;
  const auto tiles = [](std::uint64_t a, std::uint64_t b) { return a / b + (a % b != 0); };
  if (const auto f = block_format(w.format)) {
    h.codes = random_bytes(DType::u8, quant::bytes_of(*f, n), seed);
    SplitMix64 rng(seed + 1);
    for (std::uint64_t at = 0; at < h.codes.bytes.size(); at += quant::info(*f).bytes)
      tame(*f, &h.codes.bytes[at], rng);
  } else if (w.format == QuantizedFormat::gptq || w.format == QuantizedFormat::awq) {
    const std::uint64_t groups = w.cols / w.group;
    h.codes = random_bytes(DType::u32, n / 8, seed);
    h.zeros = random_bytes(DType::u32, groups * w.rows / 8, seed + 1);
    h.scales = random_scales(DType::f16, groups * w.rows, seed + 2);
    if (g_idx && w.format == QuantizedFormat::gptq) {
      h.g_idx = HostArray(DType::s32, {w.cols});
      SplitMix64 rng(seed + 3);
      for (std::uint64_t i = 0; i < w.cols; ++i) h.g_idx.set(i, double(rng.next() % groups));
    }
  } else if (w.format == QuantizedFormat::bnb_nf4) {
    const std::uint64_t blocks = tiles(n, w.group);
    h.codes = random_bytes(DType::u8, n / 2, seed);
    h.scales = random_scales(DType::f32, blocks, seed + 1);
    if (nested) {
      h.scales = random_bytes(DType::u8, blocks, seed + 1);
      h.absmax_table = random_array(DType::f32, {256}, seed + 2);
      h.absmax_scales = random_scales(DType::f32, tiles(blocks, w.absmax_block), seed + 3);
      h.shape.absmax_offset = 0.0625f;
    }
  } else {  // codes without NaN and infinity
    h.codes = random_bytes(DType::u8, n, seed);
    const std::uint8_t most = w.format == QuantizedFormat::fp8_e4m3 ? 0x7e : 0x7b;
    for (auto& b : h.codes.bytes)
      if ((std::to_integer<std::uint8_t>(b) & 0x7f) > most) b = std::byte(0x81);
    h.scales = random_scales(DType::f32, tiles(w.rows, w.scale_rows) * tiles(w.cols, w.scale_cols), seed + 1);
  }
  return h;
}

KernelEntry dequantize_entry() {
  KernelEntry e;
  e.name = "dequantize", e.summary = "quantised weights as f32, f16 or bf16";
  e.options = {
      {"format", "q4_k", "q4_0 to q6_k, iq1_s to iq4_xs, mxfp4, nvfp4, gptq, awq, bnb_nf4, fp8_e4m3, ..."},
      {"dtype", "bf16", "of the result: f32, f16 or bf16"},
      {"rows", "1024", "outputs"},
      {"cols", "4096", "inputs"},
      {"group", "64", "inputs that share a scale (gptq, awq), elements that share an absmax (bnb_nf4)"},
      {"g_idx", "0", "gptq: groups by index (act-order)"},
      {"nested", "0", "bnb_nf4: absmax is quantised"},
      {"scale_rows", "128", "fp8: rows that share a scale"},
      {"scale_cols", "128", "fp8: columns that share a scale"}};
  e.images = ships, e.prepare = prepare;
  return e;
}

}  // namespace cgp::kernels
