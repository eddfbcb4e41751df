// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/kernel/kernel_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/kernel/kernel_args.h"

namespace cgp::profile {
namespace {

using nlohmann::ordered_json;

/// The values of the option "variant", as its help lists them ("auto, simt, mma or sm90"), but for "auto".
std::vector<std::string> kinds_of(const kernels::KernelEntry& kernel) {
  std::vector<std::string> kinds;
  for (const auto& option : kernel.options) {
    if (option.name != "variant") continue;
    std::string word;
    for (const char c : option.help + ",") {
      if (c != ',' && c != ' ') {
        word += c;
        continue;
      }
      if (!word.empty() && word != "or" && word != "auto") kinds.push_back(word);
      word.clear();
    }
  }
  return kinds;
}

bool sets(const std::vector<std::string>& settings, const std::string& option) {
  return std::any_of(settings.begin(), settings.end(),
                     [&](const std::string& s) { return s.rfind(option + "=", 0) == 0; });
}

DType dtype_of(const kernels::Options& options) {
  for (const auto& option : options.all())
    for (int t = 0; option.name == "dtype" && t < kDTypeCount; ++t)
      if (option.value == name(DType(t))) return DType(t);
  return DType::f32;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

ordered_json variant_json(const ordered_json& kind, const std::string& variant) {
  return {{"kind", kind}, {"variant", variant}, {"predicted_us", nullptr}, {"over_floor", nullptr}};
}

}  // namespace

KernelPlan plan_kernel(const kernels::KernelEntry& kernel, const runtime::Device& device,
                       const std::vector<std::string>& settings) {
  const auto options = parse_settings(kernel, settings);
  const auto info = device.info();
  KernelPlan plan;
  plan.kernel = kernel.name, plan.settings = text::join(settings, " ");
  plan.device = device.is_emulator() ? info.arch : text::cat(info.name, " (", info.arch, ")");
  plan.arch = info.arch, plan.sms = info.sm_count;
  const auto problem = kernel.prepare(device, options, {}, 1);
  plan.variant = problem->variant, plan.why = problem->why;
  for (const auto& image : problem->images) plan.modules.push_back(image.name);
  plan.floor = tune::least_time(problem->flops, problem->bytes, dtype_of(options), false, info);
  if (sets(settings, "variant")) return plan;
  for (const auto& kind : kinds_of(kernel)) {
    auto asked = settings;
    asked.push_back("variant=" + kind);
    try {
      const auto other = kernel.prepare(device, parse_settings(kernel, asked), {}, 1);
      if (other->variant != plan.variant) plan.others.emplace_back(kind, other->variant);
    } catch (const Error& e) {
      plan.rejected.emplace_back(kind, first_line(e.what()));
    }
  }
  return plan;
}

std::string plan_text(const KernelPlan& plan) {
  std::string out = fmt::format("{}{}{} on {}, {} SMs\n\n", plan.kernel, plan.settings.empty() ? "" : " ",
                                plan.settings, plan.device, plan.sms);
  out += fmt::format("variant    {}\n", plan.variant);
  out += fmt::format("why        {}\n", plan.why.empty() ? "there is no other" : plan.why);
  if (plan.modules.size() > 1) out += fmt::format("launches   {}\n", text::join(plan.modules, ", then "));
  out += tune::floor_text(plan.floor);
  if (!plan.others.empty()) out += "\nothers\n";
  for (const auto& [kind, variant] : plan.others) out += fmt::format("  {:<10} {}\n", kind, variant);
  if (!plan.rejected.empty()) out += "\ncannot\n";
  for (const auto& [kind, why] : plan.rejected) out += fmt::format("  {}: {}\n", kind, why);
  return out;
}

ordered_json plan_json(const KernelPlan& plan) {
  ordered_json j = {{"schema", "cgp.plan/1"},
                    {"problem", plan.kernel + (plan.settings.empty() ? "" : " " + plan.settings)},
                    {"device", plan.device},
                    {"arch", plan.arch},
                    {"chosen", variant_json(nullptr, plan.variant)}};
  j["chosen"]["why"] = plan.why;
  j["chosen"]["measured_us"] = nullptr;
  j["chosen"]["modules"] = plan.modules;
  j["floor"] = tune::floor_json(plan.floor);
  j["others"] = ordered_json::array();
  for (const auto& [kind, variant] : plan.others) j["others"].push_back(variant_json(kind, variant));
  j["rejected"] = ordered_json::array();
  for (const auto& [kind, why] : plan.rejected) j["rejected"].push_back({{"kind", kind}, {"why", why}});
  return j;
}

}  // namespace cgp::profile
