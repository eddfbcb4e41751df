// SPDX-License-Identifier: Apache-2.0
#include "cgp/tune/gemm_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/gemm/api/gemm_launch.h"
#include "cgp/kernels/gemm/select/gemm_calibration.h"
#include "cgp/runtime/device.h"

namespace cgp::tune {
namespace {

using kernels::GemmChoice;
using nlohmann::ordered_json;

// From NVIDIA's data sheets: SMs, boost clock, memory; and the products and sums that the tensor cores of one
// SM do in a clock with dense 16-bit operands and fp32 sums.
struct Card {
  const char *arch, *name;
  int sms;
  double ghz, gbytes_per_s;
  int flop_per_clock;
};
constexpr Card kCards[] = {
    {"sm_75", "Tesla T4", 40, 1.59, 320, 1024},    {"sm_80", "A100 SXM", 108, 1.41, 2039, 2048},
    {"sm_86", "RTX 3090", 82, 1.695, 936, 512},    {"sm_89", "RTX 4090", 128, 2.52, 1008, 512},
    {"sm_90a", "H200", 132, 1.83, 4800, 4096},     {"sm_100a", "B200", 148, 1.85, 8000, 8192},
    {"sm_120a", "RTX 5090", 170, 2.407, 1792, 512}};
constexpr int kFp32PerClock = 256;  // 128 lanes, a product and a sum each (64 lanes before sm_86: half)

const Card* card(const std::string& arch) {
  for (const auto& c : kCards)
    if (arch == c.arch) return &c;
  return nullptr;
}

double operand_bytes(const kernels::GemmProblem& q) {
  const auto p = q.dense();
  const double a = double(p.m) * double(p.k), b = double(p.k) * double(p.n),
               c = double(p.m) * double(p.columns());
  return double(p.batch) * (a * cgp::bytes(p.type) + b * cgp::bytes(*p.type_b) +
                            c * cgp::bytes(*p.type_c) * (p.beta != 0 ? 2 : 1));
}

std::vector<std::string> packed_names(const GemmChoice& c) {
  std::vector<std::string> names;
  for (const auto& [on, name] : {std::pair{c.pack_a, "a"}, {c.pack_b, "b"}, {c.pack_c, "c"}})
    if (on) names.emplace_back(name);
  return names;
}

ordered_json choice_json(const GemmChoice& c, double floor_us) {
  ordered_json j = {{"kind", kernels::name(c.kind)}, {"variant", c.variant.name}};
  j["predicted_us"] = c.microseconds > 0 ? ordered_json(c.microseconds) : ordered_json();
  j["over_floor"] =
      c.microseconds > 0 && floor_us > 0 ? ordered_json(c.microseconds / floor_us) : ordered_json();
  j["packed"] = packed_names(c);
  return j;
}

std::vector<std::string> step_names(const GemmChoice& c) {
  std::vector<std::string> out;
  for (const auto step : kernels::gemm_steps(c)) out.emplace_back(kernels::name(step));
  return out;
}

std::string prediction(const GemmChoice& c) {
  return c.microseconds > 0 ? fmt::format("{:.1f} us", c.microseconds) : "not predicted";
}

}  // namespace

runtime::DeviceInfo device_for_arch(const std::string& arch) {
  const Card* c = card(arch);
  if (!c) {
    std::vector<std::string> known;
    for (const auto& each : kCards) known.emplace_back(each.arch);
    throw ArgumentError(
        {text::cat("there are no kernels for ", arch), {}, {}, "known: " + text::join(known, " ")});
  }
  runtime::DeviceInfo d = runtime::Device::open("emu:" + arch).info();
  d.name = text::cat(c->name, " (", arch, ")"), d.sm_count = c->sms;
  d.memory_bandwidth_gbps = c->gbytes_per_s, d.clock_khz = int(c->ghz * 1e6);
  return d;
}

GemmFloor gemm_floor(const kernels::GemmProblem& p, const runtime::DeviceInfo& d) {
  return least_time(p.flops(), operand_bytes(p), p.type, p.precision == kernels::GemmPrecision::fast, d);
}

GemmFloor least_time(double flops, double moved, DType type, bool tf32, const runtime::DeviceInfo& d) {
  GemmFloor f;
  f.flops = flops, f.bytes = moved;
  const Card* c = card(d.arch);
  if (!c) c = &kCards[0];
  const double ghz = d.clock_khz ? double(*d.clock_khz) * 1e-6 : c->ghz;
  double per_clock = c->flop_per_clock;
  if (type == DType::f32 && tf32)
    per_clock /= 2;
  else if (type == DType::f32)
    per_clock = d.cc() < 86 ? kFp32PerClock / 2 : kFp32PerClock;
  if (bytes(type) == 1) per_clock *= 2;
  f.flop_per_s = per_clock * ghz * 1e9 * (d.sm_count ? d.sm_count : c->sms);
  f.bytes_per_s = d.memory_bandwidth_gbps.value_or(c->gbytes_per_s) * 1e9;
  f.assumed = fmt::format("{} SMs at {:.2f} GHz, {:.0f} GB/s", d.sm_count ? d.sm_count : c->sms, ghz,
                          f.bytes_per_s * 1e-9);
  f.compute_us = f.flops / f.flop_per_s * 1e6, f.memory_us = f.bytes / f.bytes_per_s * 1e6;
  return f;
}

std::string floor_text(const GemmFloor& f) {
  return fmt::format("floor      {:.1f} us by {}: {:.3g} GFLOP {:.1f} us, {:.3g} MB {:.1f} us ({})\n", f.us(),
                     f.compute_us > f.memory_us ? "arithmetic" : "memory", f.flops * 1e-9, f.compute_us,
                     f.bytes * 1e-6, f.memory_us, f.assumed);
}

ordered_json floor_json(const GemmFloor& f) {
  return {{"us", f.us()},
          {"flops", f.flops},
          {"bytes", f.bytes},
          {"compute_us", f.compute_us},
          {"memory_us", f.memory_us},
          {"flop_per_s", f.flop_per_s},
          {"bytes_per_s", f.bytes_per_s},
          {"device", f.assumed}};
}

GemmPlan plan_gemm(const kernels::GemmProblem& q, const kernels::GemmAddresses& at,
                   const runtime::DeviceInfo& d, const kernels::GemmTable& table) {
  if (const auto why = kernels::reject(q); !why.empty()) throw ArgumentError(text::cat("gemm: ", why));
  GemmPlan plan;
  plan.problem = q.dense();
  plan.device = d.name, plan.arch = d.arch;
  plan.chosen = kernels::select_gemm(plan.problem, at, d, table);
  for (auto& c : kernels::gemm_candidates(plan.problem, at, d)) {
    if (c.variant.name == plan.chosen.variant.name) {
      if (plan.chosen.microseconds == 0) plan.chosen.microseconds = c.microseconds;
    } else {
      plan.others.push_back(std::move(c));
    }
  }
  std::stable_sort(plan.others.begin(), plan.others.end(), [](const GemmChoice& x, const GemmChoice& y) {
    return (x.microseconds > 0 ? x.microseconds : 1e30) < (y.microseconds > 0 ? y.microseconds : 1e30);
  });
  // Kernels of typed problems take whatever the device can; their choice says why not those that are faster.
  for (const auto& f : kernels::gemm_families()) {
    if (!plan.problem.plain() || f.family == plan.chosen.kind || f.for_mixed) continue;
    if (const auto why = kernels::reject(f.family, plan.problem, at, d); !why.empty())
      plan.rejected.emplace_back(f.name, why);
  }
  plan.floor = gemm_floor(plan.problem, d);
  plan.calibration = kernels::describe_calibration(d);
  if (const auto* row = table.find(plan.problem)) plan.measured_us = row->microseconds;
  return plan;
}

std::string plan_text(const GemmPlan& plan) {
  const auto& f = plan.floor;
  std::string out = fmt::format("gemm {} on {}\n\n", kernels::gemm_key(plan.problem), plan.device);
  out += fmt::format("variant    {}\n", plan.chosen.variant.name);
  if (!plan.chosen.rule.empty()) out += fmt::format("rule       {}\n", plan.chosen.rule);
  out += fmt::format("why        {}\n", plan.chosen.why);
  out += fmt::format("steps      {}\n", text::join(step_names(plan.chosen), ", "));
  if (const auto names = packed_names(plan.chosen); !names.empty())
    out += fmt::format("copied     {}: through scratch memory, with rows at multiples of 16 bytes\n",
                       text::join(names, ", "));
  if (plan.measured_us > 0)
    out +=
        fmt::format("measured   {:.1f} us, {:.2f}x the floor\n", plan.measured_us, plan.measured_us / f.us());
  if (plan.chosen.microseconds > 0)
    out += fmt::format("predicted  {:.1f} us, {:.2f}x the floor\n", plan.chosen.microseconds,
                       f.us() > 0 ? plan.chosen.microseconds / f.us() : 0);
  out += fmt::format("constants  {}\n", plan.calibration);
  out += floor_text(f);
  if (!plan.others.empty()) out += "\nothers\n";
  for (const auto& c : plan.others)
    out += fmt::format("  {:<58} {:>14}{}\n", c.variant.name, prediction(c),
                       c.microseconds > 0 && plan.chosen.microseconds > 0
                           ? fmt::format("  {:+.0f} %", 100 * (c.microseconds / plan.chosen.microseconds - 1))
                           : "");
  if (!plan.rejected.empty()) out += "\ncannot\n";
  for (std::size_t i = 0; i < plan.rejected.size(); ++i) {  // kinds with the same reason share a line
    const auto& [kind, why] = plan.rejected[i];
    std::string kinds = kind;
    while (i + 1 < plan.rejected.size() && plan.rejected[i + 1].second == why)
      kinds += ", " + plan.rejected[++i].first;
    out += fmt::format("  {}: {}\n", kinds, why);
  }
  return out;
}

ordered_json plan_json(const GemmPlan& plan) {
  const auto& f = plan.floor;
  ordered_json j = {{"schema", "cgp.plan/1"},
                    {"problem", kernels::gemm_key(plan.problem)},
                    {"device", plan.device},
                    {"arch", plan.arch},
                    {"chosen", choice_json(plan.chosen, f.us())}};
  j["chosen"]["rule"] = plan.chosen.rule;
  j["chosen"]["why"] = plan.chosen.why;
  j["chosen"]["steps"] = step_names(plan.chosen);
  j["chosen"]["config"] = ordered_json::parse(kernels::json(plan.chosen.variant.config));
  j["chosen"]["measured_us"] = plan.measured_us > 0 ? ordered_json(plan.measured_us) : ordered_json();
  j["constants"] = plan.calibration;
  j["floor"] = floor_json(f);
  j["others"] = ordered_json::array();
  for (const auto& c : plan.others) j["others"].push_back(choice_json(c, f.us()));
  j["rejected"] = ordered_json::array();
  for (const auto& [kind, why] : plan.rejected) j["rejected"].push_back({{"kind", kind}, {"why", why}});
  return j;
}

}  // namespace cgp::tune
