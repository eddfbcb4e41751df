// SPDX-License-Identifier: Apache-2.0
// quantized_matmul on the host: which way a product goes, and its launches.
#include "cgp/kernels/quantized_matmul/quantized_matmul.h"

#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/gemm/api/gemm.h"
#include "cgp/kernels/quantized_matmul/gather_columns.h"
#include "cgp/kernels/quantized_matmul/packed_gemv.h"
#include "cgp/kernels/quantized_matmul/quantized_gemv.h"
#include "cgp/kernels/weight_only/weight_only_pack.h"
#include "cgp/kernels/weight_only/weight_only_tensors.h"

namespace cgp::kernels {
namespace {

constexpr std::uint64_t kLeastSlab =
    256;  // a tile of the product or more, and a multiple of every column_step()

// Rows of x whose columns the product gathers itself; of more a launch before is faster.
constexpr std::uint64_t kMostGathering = 4;

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

struct Sizes {
  std::uint64_t n, k;  ///< of y and of the sums
};
Sizes sizes(const QuantizedMatmul& p) {
  return p.transposed ? Sizes{p.weight.cols, p.weight.rows} : Sizes{p.weight.rows, p.weight.cols};
}

WeightOnlyProblem weight_only_problem(const QuantizedMatmul& p) {
  WeightOnlyProblem w;
  w.format = *packed_format(p.weight), w.type = p.x.dtype;
  w.m = p.m, w.n = p.weight.rows, w.k = p.weight.cols;
  w.x = p.x.address, w.ldx = p.x_layout.pitch, w.w = p.packed.address;
  w.y = p.y.address, w.ldy = p.y_layout.pitch;
  if (p.weight.g_idx.given)
    if (const auto tiles = packed_bytes(w.format, w.n, w.k); p.packed.elements > tiles)
      w.gather = w.w + tiles;
  return w;
}
/// With its columns gathered in the workspace.
WeightOnlyProblem gathered(WeightOnlyProblem w, const QuantizedMatmul& p) {
  w.gather = 0, w.x = p.workspace.address, w.ldx = w.k;
  return w;
}

/// Why weight_only does not run it; empty: it does.
std::string reject_weight_only(const QuantizedMatmul& p, const runtime::DeviceInfo& d) {
  if (!packed_format(p.weight)) return text::cat("weight_only has no ", name(p.weight.format));
  if (d.cc() < 80) return text::cat("weight_only is for sm_80 and later, this is ", d.arch);
  if (d.kind == runtime::DeviceKind::vulkan || d.kind == runtime::DeviceKind::wgpu)
    return "weight_only is for CUDA";  // few rows of packed_gemv are faster there
  if (p.transposed) return "weight_only sums over the columns of the weight";
  if (!p.packed.given) return "no packed weights";
  if (p.error_flag.given) return "scales are to be checked";
  if (p.x.dtype != p.y.dtype) return "y has another type than x";
  const auto problem = weight_only_problem(p);
  if (d.cc() != 90) return reject(problem, WeightOnlyDevice(d));
  return weight_wgmma_serves(problem) || (problem.gather && reject_wgmma(gathered(problem, p)).empty())
             ? std::string()
             : reject(problem);
}

QuantizedMatmul checked(QuantizedMatmul p) {
  const row::Checker c{"quantized_matmul"};
  check(p.weight, c.op);
  const auto [n, k] = sizes(p);
  c.present("x", p.x, row::kFloats, false), c.present("y", p.y, {p.x.dtype, DType::f32}, true);
  if (p.x_layout.inner > 1 || p.y_layout.inner > 1)
    c.fail("x", "and y cannot have their rows in groups", "inner > 1");
  p.x_layout = c.rows("x", p.x, p.m, k, p.x_layout), p.y_layout = c.rows("y", p.y, p.m, n, p.y_layout);
  if (p.packed.given) {
    const auto f = packed_format(p.weight);
    if (!f) c.fail("packed", text::cat("is nothing of ", name(p.weight.format)), "it was given");
    c.present("packed", p.packed, {DType::u8}, false);
    c.vector("packed", p.packed, packed_bytes(*f, p.weight.rows, p.weight.cols));
    if (p.weight.g_idx.given && p.packed.elements != packed_bytes(*f, p.weight.rows, p.weight.cols))
      c.vector("packed", p.packed, packed_bytes(*f, p.weight.rows, p.weight.cols) + 4 * p.weight.cols);
  }
  return p;
}

QuantizedMatmulPlan plan_of(const QuantizedMatmul& p, const runtime::DeviceInfo& d) {
  QuantizedMatmulPlan plan;
  if (plan.why = reject_weight_only(p, d); plan.why.empty()) {
    plan.weight_only = true;
    if (d.cc() != 90) {
      plan.why = text::cat("few rows of packed weights on ", d.arch);
      return plan;
    }
    plan.wgmma = weight_wgmma_serves(weight_only_problem(p));
    if (const auto w = weight_only_problem(p); w.gather && (w.m > kMostGathering || !reject(w).empty()))
      plan.wgmma = weight_wgmma_serves(gathered(w, p)), plan.gather = true,
      plan.workspace = ceil_div(w.m * w.k * 2, 256) * 256;
    plan.why = plan.wgmma ? "packed weights on sm_90, wgmma" : "few rows of packed weights on sm_90";
    return plan;
  }
  if (reject_packed_gemv(p, d).empty()) {
    plan.packed_gemv = true, plan.why = text::cat("few rows of packed weights: ", plan.why);
    return plan;
  }
  if (reject_gemv(p, d).empty()) {
    plan.gemv = true, plan.why = text::cat("few rows, decoded in registers: ", plan.why);
    return plan;
  }
  const auto [n, k] = sizes(p);
  const std::uint64_t each = std::max<std::uint64_t>(k, 1) * std::uint64_t(bytes(p.x.dtype));
  const std::uint64_t most = std::max(p.workspace_limit / each / kLeastSlab, std::uint64_t(1)) * kLeastSlab;
  const std::uint64_t slabs = ceil_div(std::max<std::uint64_t>(n, 1), most);
  plan.slab = std::min(ceil_div(ceil_div(n, slabs), kLeastSlab) * kLeastSlab, n);
  plan.workspace = plan.slab * each;
  plan.why = text::cat("dequantised in ", slabs, slabs == 1 ? " slab: " : " slabs: ", plan.why);
  return plan;
}

template <class T>
std::span<const T> host(const View& v) {
  return {reinterpret_cast<const T*>(v.address),
          std::size_t(v.elements)};  // NOLINT(performance-no-int-to-ptr)
}

quant::Gptq gptq(const QuantizedWeight& w) {
  return {.rows = w.rows,
          .cols = w.cols,
          .group = w.group,
          .qweight = host<std::uint32_t>(w.codes),
          .qzeros = host<std::uint32_t>(w.zeros),
          .scales = host<std::uint16_t>(w.scales),
          .g_idx = host<std::int32_t>(w.g_idx),
          .zeros_minus_one = w.zeros_minus_one};
}

}  // namespace

std::optional<WeightFormat> packed_format(QuantizedFormat f) {
  for (const auto w : kWeightFormats)
    if (layout(w).name == name(f)) return w;
  return {};
}

std::optional<WeightFormat> packed_format(const QuantizedWeight& w) {
  if (w.format == QuantizedFormat::nf4) return WeightFormat::nf4;
  if (w.format == QuantizedFormat::mxfp4) return WeightFormat::mxfp4;
  if (w.format == QuantizedFormat::iq4_nl) return WeightFormat::iq4_nl;
  if (w.format == QuantizedFormat::bnb_nf4)
    return w.group == 64 && w.cols % 64 == 0 ? std::optional(WeightFormat::nf4) : std::nullopt;
  if (w.format != QuantizedFormat::gptq && w.format != QuantizedFormat::awq) return packed_format(w.format);
  return int4_format(w.group);
}

std::uint64_t packed_size(const QuantizedWeight& w) {
  const auto f = packed_format(w);
  if (!f) return 0;
  try {
    return w.g_idx.given ? packed_bytes(gptq(w)) : packed_bytes(*f, w.rows, w.cols);
  } catch (const Unsupported&) {
    return 0;
  }
}

void pack_weight(const QuantizedWeight& w, std::span<std::byte> packed) {
  check(w, "pack_weight");
  const auto f = packed_format(w);
  if (!f)
    throw Unsupported({text::cat("this weight of ", name(w.format), " cannot be packed"),
                       {},
                       "packed weights are q4_0, q8_0, q4_k, q5_k, q6_k, nf4, mxfp4, iq4_nl, gptq and awq "
                       "with groups of 32, "
                       "64 or 128 in order, bnb_nf4 with blocks of 64",
                       "use the weight as it is: it is dequantised for each product"});
  if (w.format == QuantizedFormat::gptq) return pack_weights(gptq(w), packed);
  if (w.format == QuantizedFormat::awq)
    return pack_weights(quant::Awq{w.rows, w.cols, w.group, host<std::uint32_t>(w.codes),
                                   host<std::uint32_t>(w.zeros), host<std::uint16_t>(w.scales)},
                        packed);
  if (w.format != QuantizedFormat::bnb_nf4)
    return pack_weights(*f, w.rows, w.cols, host<std::byte>(w.codes), packed);
  quant::BnbNf4 b{w.rows, w.cols, w.group, host<std::uint8_t>(w.codes)};
  if (w.scales.dtype == DType::f32)
    b.absmax = host<float>(w.scales);
  else
    b.absmax_codes = host<std::uint8_t>(w.scales), b.absmax_table = host<float>(w.absmax_table),
    b.absmax_scales = host<float>(w.absmax_scales), b.absmax_block = w.absmax_block,
    b.absmax_offset = w.absmax_offset;
  pack_weights(b, packed);
}

void pack_weight(runtime::Stream& s, const QuantizedWeight& w, const View& packed) {
  const row::Checker c{"pack_weight"};
  check(w, c.op);
  const auto f = packed_format(w);
  const bool nested = w.format == QuantizedFormat::bnb_nf4 && w.scales.dtype != DType::f32;
  if (!f || w.g_idx.given || nested)
    throw Unsupported({text::cat("this weight of ", name(w.format), " cannot be packed on a device"),
                       {},
                       w.g_idx.given ? "it has a g_idx"
                       : nested      ? "its absmax are quantised"
                                     : "packed weights have other formats",
                       "pack it on the host"});
  c.present("packed", packed, {DType::u8}, true),
      c.vector("packed", packed, packed_bytes(*f, w.rows, w.cols));
  WeightPack p{*f, w.rows, w.cols, w.codes.address, 0, packed.address};
  p.source = w.format == QuantizedFormat::gptq      ? WeightSource::gptq
             : w.format == QuantizedFormat::awq     ? WeightSource::awq
             : w.format == QuantizedFormat::bnb_nf4 ? WeightSource::bnb
                                                    : WeightSource::blocks;
  p.scales = w.scales.address, p.zeros = w.zeros.address, p.zeros_minus_one = w.zeros_minus_one;
  pack_weights(s, p);
}

QuantizedMatmulPlan quantized_matmul_plan(const QuantizedMatmul& p, const runtime::DeviceInfo& d) {
  return plan_of(p, d);
}

void quantized_matmul(runtime::Stream& s, const QuantizedMatmul& given) {
  const auto p = checked(given);
  const row::Checker c{"quantized_matmul"};
  const auto [n, k] = sizes(p);
  const auto plan = plan_of(p, s.device().info());
  if (plan.workspace && p.m) {
    c.present("workspace", p.workspace, {DType::u8}, true),
        c.vector("workspace", p.workspace, plan.workspace);
    if (p.workspace.address % 256)
      c.fail("workspace", "must lie at a multiple of 256 bytes",
             text::cat("its address is ", p.workspace.address));
  }
  if (!p.m || !n) return;
  if (plan.gather) {
    const auto w = weight_only_problem(p);
    gather_columns(s, {w.x, w.ldx, w.gather, p.workspace.address, w.m, w.k});
    return plan.wgmma ? weight_wgmma_gemm(s, gathered(w, p)) : weight_only_gemm(s, gathered(w, p));
  }
  if (plan.wgmma) return weight_wgmma_gemm(s, weight_only_problem(p));
  if (plan.packed_gemv) return packed_gemv(s, p);
  if (plan.gemv) return quantized_gemv(s, p);
  if (plan.weight_only) return weight_only_gemm(s, weight_only_problem(p));
  const auto x_size = std::uint64_t(bytes(p.x.dtype)), y_size = std::uint64_t(bytes(p.y.dtype));
  for (std::uint64_t at = 0; at < n; at += plan.slab) {
    const std::uint64_t wide = std::min(plan.slab, n - at);
    // [wide, k], or transposed [k, wide]
    Dequantize d;
    d.weight = p.weight, d.error_flag = p.error_flag;
    d.out = View(p.workspace.address, plan.workspace / x_size, p.x.dtype, true, p.workspace.backend);
    (p.transposed ? d.first_col : d.first_row) = at, (p.transposed ? d.cols : d.rows) = wide;
    (p.transposed ? d.rows : d.cols) = k;
    if (k) dequantize(s, d);
    GemmProblem g{.type = p.x.dtype, .trans_b = !p.transposed, .m = p.m, .n = wide, .k = k};
    g.lda = p.x_layout.pitch, g.ldc = p.y_layout.pitch, g.type_c = p.y.dtype;
    gemm(s, g, {p.x.address, p.x.elements, p.x.dtype}, {p.workspace.address, wide * k, p.x.dtype},
         {p.y.address + at * y_size, p.y.elements - at, p.y.dtype});
  }
}

}  // namespace cgp::kernels
