// SPDX-License-Identifier: Apache-2.0
// cgp plan: what would run, why, and how far that is from the device's limits. Needs no GPU.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/kernel/kernel_plan.h"
#include "cgp/runtime/device.h"
#include "cgp/spec/report/json_text.h"
#include "cgp/tune/gemm_plan.h"
#include "tools/cgp/commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {

namespace {

int plan_of_kernel(const Context& context, const PlanOptions& o) {
  const auto& kernel = kernels::find_kernel(o.what);
  if (!o.of_gemm.empty())
    throw ArgumentError({text::cat(o.of_gemm.front(), " is an option of cgp plan gemm"),
                         {},
                         text::cat("asked for a plan of ", o.what),
                         text::cat("NAME=VALUE as for cgp run; cgp list ", o.what, " names them")});
  tune::device_for_arch(o.arch);  // says which there are
  const auto device = runtime::Device::open(o.device.empty() ? "emu:" + o.arch : o.device);
  const auto made = profile::plan_kernel(kernel, device, o.settings);
  write_out(context.json ? spec::dumped(profile::plan_json(made), 2) + "\n" : profile::plan_text(made));
  return kClean;
}

}  // namespace

int plan(const Context& context, const PlanOptions& o) {
  if (o.what != "gemm") return plan_of_kernel(context, o);
  if (!o.settings.empty())
    throw ArgumentError({text::cat("cgp plan gemm takes no ", o.settings.front()),
                         {},
                         {},
                         "sizes and types are its options: see cgp plan --help"});
  auto p = kernels::parse_gemm_key(
      text::cat(o.dtype, "/", o.layout, "/",
                o.shape.empty() ? text::cat(o.batch, "x", o.m, "x", o.n, "x", o.k) : o.shape));
  p.lda = o.lda ? o.lda : p.lda, p.ldb = o.ldb ? o.ldb : p.ldb, p.ldc = o.ldc ? o.ldc : p.ldc;
  p.stride_a = p.stride_b = p.stride_c = 0;
  p.beta = o.beta;
  runtime::DeviceInfo info =
      o.device.empty() ? tune::device_for_arch(o.arch) : runtime::Device::open(o.device).info();
  if (o.sms) info.sm_count = o.sms;
  kernels::GemmTable table;
  if (o.table != "none") table = kernels::GemmTable::shipped(info);
  std::string unreadable;
  if (o.table == "user" && !o.device.empty()) table.merge(kernels::load_gemm_table(info, &unreadable));
  if (!unreadable.empty()) std::fputs((unreadable + "\n").c_str(), stderr);
  const auto made = tune::plan_gemm(p, {}, info, table);
  write_out(context.json ? spec::dumped(tune::plan_json(made), 2) + "\n" : tune::plan_text(made));
  return kClean;
}

}  // namespace cgp::cli
