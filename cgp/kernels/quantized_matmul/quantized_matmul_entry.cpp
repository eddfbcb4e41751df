// SPDX-License-Identifier: Apache-2.0
// quantized_matmul in the catalogue.
#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/catalog/tensor_case.h"
#include "cgp/kernels/dequantize/dequantize_ref.h"
#include "cgp/kernels/quantized_matmul/gather_columns.h"
#include "cgp/kernels/quantized_matmul/packed_gemv.h"
#include "cgp/kernels/quantized_matmul/quantized_gemv.h"
#include "cgp/kernels/quantized_matmul/quantized_matmul_ref.h"

namespace cgp::kernels {
namespace {

using row::Expected, row::TensorCase;

HostArray packed(const HostWeight& h) {
  QuantizedWeight w = h.shape;
  const auto view = [](const HostArray& a) {
    return a.shape.empty()
               ? View{}
               : View(reinterpret_cast<std::uint64_t>(a.bytes.data()), a.size(), a.dtype, false, nullptr);
  };
  w.codes = view(h.codes), w.scales = view(h.scales), w.zeros = view(h.zeros);
  w.g_idx = view(h.g_idx);
  HostArray out(DType::u8, {packed_size(w)});
  pack_weight(w, out.bytes);
  return out;
}

std::vector<runtime::KernelImage> ships(std::string_view arch) {
  std::vector<Variant> all;
  DequantizeConfig c{QuantizedFormat::q4_k, DType::bf16};
  c.align = 16;
  all.push_back(dequantize_variant(c));
  all.push_back(gather_columns_variant());
  for (const auto f : {QuantizedFormat::q4_k, QuantizedFormat::q8_0, QuantizedFormat::bnb_nf4}) {
    const int align = f == QuantizedFormat::q4_k ? 16 : f == QuantizedFormat::q8_0 ? 2 : 4;
    all.push_back(quantized_gemv_variant({f, DType::f16, DType::f16, 1, align, true}));
    all.push_back(quantized_gemv_variant({f, DType::f16, DType::f16, 1, align, true, true}));
  }
  for (const auto f : {WeightFormat::q4_k, WeightFormat::q8_0, WeightFormat::nf4})
    all.push_back(packed_gemv_variant({f, DType::f16, DType::f16}));
  if (arch == "sm_80")
    for (const auto f : kWeightFormats) {
      WeightOnlyDevice d(108);
      d.cc = 80, d.smem = 163 * 1024;
      all.push_back(weight_only_variant(weight_only_config({f, DType::bf16, 1, 4096, 4096}, d)));
    }
  if (arch == "sm_90a")
    for (const auto f : kWeightFormats) {
      all.push_back(weight_only_variant(weight_only_config({f, DType::bf16, 1, 4096, 4096}, 132)));
      all.push_back(weight_wgmma_variant(weight_wgmma_config({f, DType::bf16, 64, 4096, 4096}, 132)));
    }
  return images(all, arch);
}

std::unique_ptr<Case> prepare(const runtime::Device& device, const Options& o,
                              const std::vector<NamedArray>& given, std::uint64_t seed) {
  QuantizedWeight w;
  w.format = quantized_format_named(o.text("format"));
  w.rows = o.size("n"), w.cols = o.size("k"), w.group = o.size("group");
  const auto host = std::make_shared<HostWeight>(random_weight(w, false, false, seed));
  if (o.flag("g_idx") && w.format == QuantizedFormat::gptq) {  // inputs of a group lie anywhere
    host->g_idx = HostArray(DType::s32, {w.cols});
    std::vector<std::uint64_t> input(w.cols);
    for (std::uint64_t i = 0; i < w.cols; ++i) input[i] = i;
    SplitMix64 rng(seed + 3);
    for (std::uint64_t i = w.cols; i > 1; --i) std::swap(input[i - 1], input[rng.next() % i]);
    for (std::uint64_t i = 0; i < w.cols; ++i) host->g_idx.set(input[i], double(i / w.group));
  }
  auto c = std::make_unique<TensorCase>(device);
  QuantizedMatmul p;
  p.weight = host->shape, p.transposed = o.flag("transposed"), p.m = o.size("m");
  p.workspace_limit = o.size("workspace_mib") << 20;
  const auto give = [&](const char* name, const HostArray& a) {
    return a.shape.empty() ? View{} : c->input(name, a);
  };
  p.weight.codes = give("codes", host->codes), p.weight.scales = give("scales", host->scales);
  p.weight.zeros = give("zeros", host->zeros), p.weight.g_idx = give("g_idx", host->g_idx);
  const double weight_bytes = double(stored_bytes(p.weight));
  const DType type = row::float_option(o, "dtype");
  const std::uint64_t k = p.transposed ? w.rows : w.cols, n = p.transposed ? w.cols : w.rows;
  p.x = c->input("x", input_or_random(given, "x", type, {p.m, k}, seed + 7));
  p.y = c->output("y", type, {p.m, n});
  const auto order = packed_format(p.weight);
  if (order && o.flag("packed")) p.packed = c->input("packed", packed(*host));
  const auto plan = quantized_matmul_plan(p, device.info());
  if (plan.workspace) p.workspace = c->workspace(DType::u8, plan.workspace);
  c->flops = 2 * double(p.m) * double(n) * double(k);
  c->bytes = weight_bytes + double(p.m * (n + k)) * bytes(type);
  if (plan.weight_only) {
    WeightOnlyProblem q{*order, type, p.m, n, k};
    q.gather = host->g_idx.shape.empty() || plan.gather ? 0 : 16;
    const int sms = std::max(1, device.info().sm_count);
    std::vector<Variant> variants{
        plan.wgmma ? weight_wgmma_variant(weight_wgmma_config(q, sms))
                   : weight_only_variant(weight_only_config(q, WeightOnlyDevice(device.info())))};
    if (plan.gather) variants.push_back(gather_columns_variant());
    c->runs(std::move(variants), plan.why);
  } else if (plan.packed_gemv) {
    c->runs({packed_gemv_variant(packed_gemv_config(p, device.info()))}, plan.why);
  } else if (plan.gemv) {
    c->runs({quantized_gemv_variant(quantized_gemv_config(p, device.info()))}, plan.why);
  } else {
    Dequantize d;
    d.weight = p.weight, d.out = View(p.workspace.address, w.rows * w.cols, type, true, p.workspace.backend);
    d.rows = w.rows;
    c->runs({dequantize_variant(dequantize_config(d))}, plan.why);
  }
  c->run = [p](runtime::Stream& s) { quantized_matmul(s, p); };
  c->oracle = [host, p](const TensorCase& t) {
    auto want = quantized_matmul_ref(*host, p, t.host("x"));
    return std::vector<Expected>{{"y", std::move(want.want), std::move(want.tolerance)}};
  };
  return c;
}

}  // namespace

KernelEntry quantized_matmul_entry() {
  KernelEntry e;
  e.name = "quantized_matmul", e.summary = "x times a quantised weight of any format";
  e.options = {
      {"format", "q4_k", "as dequantize's"},
      {"dtype", "bf16", "of x and y: f32, f16 or bf16"},
      {"m", "1", "rows of x"},
      {"n", "4096", "rows of the weight"},
      {"k", "4096", "columns of the weight"},
      {"group", "64", "inputs that share a scale (gptq, awq), elements that share an absmax (bnb_nf4)"},
      {"g_idx", "0", "gptq: inputs of a group lie anywhere (act-order)"},
      {"transposed", "0", "y = x w, with x [m, n], instead of x [m, k] w'"},
      {"packed", "1", "weights are packed for weight_only where it has the format"},
      {"workspace_mib", "64", "most that is dequantised at a time"}};
  e.inputs = {"x"};
  e.images = ships, e.prepare = prepare;
  return e;
}

}  // namespace cgp::kernels
