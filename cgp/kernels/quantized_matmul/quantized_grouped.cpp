// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/quantized_matmul/quantized_grouped.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/grouped_gemm/grouped_gemm.h"

namespace cgp::kernels {
namespace {

WeightOnlyProblem weight_only_problem(const QuantizedGrouped& p) {
  WeightOnlyProblem w;
  w.format = *packed_format(p.weight), w.type = p.x.dtype;
  w.m = p.m, w.n = p.weight.rows / p.groups, w.k = p.weight.cols;
  w.x = p.x.address, w.w = p.packed.address, w.y = p.y.address;
  w.groups = p.groups, w.ends = p.ends.address, w.wide_ends = bytes(p.ends.dtype) == 8;
  return w;
}

/// Why the experts are dequantised; empty: they are not.
std::string reject_packed(const QuantizedGrouped& p, const runtime::DeviceInfo& d) {
  if (!packed_format(p.weight)) return text::cat("weight_only has no ", name(p.weight.format));
  if (d.cc() != 90) return text::cat("weight_only is for sm_90, this is ", d.arch);
  if (!p.packed.given) return "no packed weights";
  if (p.weight.g_idx.given) return "experts with act-order";
  if (const auto n = p.weight.rows / p.groups; n % 32)
    return text::cat("an expert has ", n, " rows: packed weights of several have a multiple of 32");
  auto w = weight_only_problem(p);
  if (!w.ends) w.ends = 8;  // of a plan
  return reject_wgmma(w);
}

QuantizedGrouped checked(QuantizedGrouped p) {
  const row::Checker c{"quantized_grouped"};
  check(p.weight, c.op);
  if (!p.groups || p.weight.rows % p.groups)
    c.fail("groups", "must divide the rows of the weight",
           text::cat(p.groups, " groups, ", p.weight.rows, " rows"));
  c.present("x", p.x, row::kFloats, false), c.present("y", p.y, {p.x.dtype}, true);
  c.vector("x", p.x, p.m * p.weight.cols), c.vector("y", p.y, p.m * (p.weight.rows / p.groups));
  c.present("ends", p.ends, {DType::u32, DType::u64}, false), c.vector("ends", p.ends, p.groups);
  if (p.packed.given) {
    const auto f = packed_format(p.weight);
    if (!f) c.fail("packed", text::cat("is nothing of ", name(p.weight.format)), "it was given");
    c.present("packed", p.packed, {DType::u8}, false);
    c.vector("packed", p.packed, packed_bytes(*f, p.weight.rows, p.weight.cols));
  }
  return p;
}

}  // namespace

QuantizedGroupedPlan quantized_grouped_plan(const QuantizedGrouped& p, const runtime::DeviceInfo& d) {
  QuantizedGroupedPlan plan;
  if (plan.why = reject_packed(p, d); plan.why.empty()) {
    plan.weight_only = true, plan.why = "packed experts on sm_90";
    return plan;
  }
  plan.workspace = p.weight.rows * p.weight.cols * std::uint64_t(bytes(p.x.dtype));
  plan.why = text::cat("dequantised: ", plan.why);
  return plan;
}

void quantized_grouped(runtime::Stream& s, const QuantizedGrouped& given) {
  const auto p = checked(given);
  const row::Checker c{"quantized_grouped"};
  const auto plan = quantized_grouped_plan(p, s.device().info());
  const std::uint64_t n = p.weight.rows / p.groups, k = p.weight.cols;
  if (plan.workspace && p.m) {
    c.present("workspace", p.workspace, {DType::u8}, true),
        c.vector("workspace", p.workspace, plan.workspace);
    if (p.workspace.address % 256)
      c.fail("workspace", "must lie at a multiple of 256 bytes",
             text::cat("its address is ", p.workspace.address));
  }
  if (!p.m || !n) return;
  if (plan.weight_only) return weight_wgmma_gemm(s, weight_only_problem(p));
  if (k) {
    Dequantize d;
    d.weight = p.weight, d.rows = p.weight.rows, d.cols = k;
    d.out = View(p.workspace.address, p.weight.rows * k, p.x.dtype, true, p.workspace.backend);
    dequantize(s, d);
  }
  const GroupedProblem g{.type = p.x.dtype,
                         .trans_b = true,
                         .groups = p.groups,
                         .rows = p.m,
                         .n = n,
                         .k = k,
                         .wide_ends = bytes(p.ends.dtype) == 8};
  grouped_gemm(s, g, {p.x.address, p.workspace.address, p.y.address, p.ends.address});
}

}  // namespace cgp::kernels
