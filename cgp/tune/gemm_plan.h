// SPDX-License-Identifier: Apache-2.0
#pragma once
// What gemm would do with a problem on a device, and how far that is from what the device could do. Pure: it
// needs no GPU.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cgp/kernels/gemm/select/gemm_table.h"

namespace cgp::tune {

/// The least time: every operand moved once, every product done at the tensor cores' rate.
struct GemmFloor {
  double flops = 0, bytes = 0;
  double flop_per_s = 0, bytes_per_s = 0;  ///< of the device
  std::string assumed;                     ///< where those come from, when the device does not say
  double compute_us = 0, memory_us = 0;
  double us() const { return compute_us > memory_us ? compute_us : memory_us; }
};
GemmFloor gemm_floor(const kernels::GemmProblem& p, const runtime::DeviceInfo& d);
/// The same of any work: `flops` at the tensor cores' rate for the type (`tf32`: f32 at theirs), `bytes`
/// once.
GemmFloor least_time(double flops, double bytes, DType type, bool tf32, const runtime::DeviceInfo& d);
std::string floor_text(const GemmFloor& f);  ///< a line
nlohmann::ordered_json floor_json(const GemmFloor& f);

struct GemmPlan {
  kernels::GemmProblem problem;
  std::string device, arch;
  kernels::GemmChoice chosen;
  std::vector<kernels::GemmChoice> others;  ///< fastest prediction first, those without one last
  std::vector<std::pair<std::string, std::string>> rejected;  ///< kinds and why they cannot
  GemmFloor floor;
  double measured_us = 0;   ///< from the table; 0: not measured
  std::string calibration;  ///< whose constants predict the times
};
GemmPlan plan_gemm(const kernels::GemmProblem& p, const kernels::GemmAddresses& at,
                   const runtime::DeviceInfo& d, const kernels::GemmTable& table);

std::string plan_text(const GemmPlan& plan);
/// cgp.plan/1.
nlohmann::ordered_json plan_json(const GemmPlan& plan);

/// A device to plan for without having it: the emulator's description of the architecture, with the clock and
/// bandwidth of its best known card. Throws ArgumentError for an architecture that there is no kernel for.
runtime::DeviceInfo device_for_arch(const std::string& arch);

}  // namespace cgp::tune
