// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a kernel of the catalogue would run for a problem, in its selector's words. The problem is prepared as
// for `cgp run` (its arrays are allocated), but not run; no GPU is needed.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cgp/kernels/catalog/catalog.h"
#include "cgp/tune/gemm_plan.h"

namespace cgp::profile {

struct KernelPlan {
  std::string kernel, settings;  ///< settings: those that were given, "n=4096 causal=1"
  std::string device, arch;
  int sms = 0;
  std::string variant, why;
  std::vector<std::string> modules;  ///< what a launch runs, in order
  tune::GemmFloor floor;
  /// Of kernels with an option "variant": what the others are, and why some cannot.
  std::vector<std::pair<std::string, std::string>> others, rejected;
};
/// Errors are those of the kernel's options and of its selector.
KernelPlan plan_kernel(const kernels::KernelEntry& kernel, const runtime::Device& device,
                       const std::vector<std::string>& settings);

std::string plan_text(const KernelPlan& plan);
/// cgp.plan/1.
nlohmann::ordered_json plan_json(const KernelPlan& plan);

}  // namespace cgp::profile
