// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory accesses one by one: what the static analysis says of each from its addresses alone
// (cgp/ptx/analysis/memory.h), beside what was counted when it ran. Where the two differ, an assumption of
// the analysis does not hold, and that is what costs.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cgp/emu/emu.h"
#include "cgp/profile/view/document.h"
#include "cgp/ptx/analysis/analyse.h"

namespace cgp::profile {

enum class Agreement : std::uint8_t {
  equal,      ///< the prediction is one number, and it was counted
  within,     ///< it is a range or an upper bound, and what was counted lies in it
  differs,    ///< counted outside of the prediction
  unknown,    ///< the analysis cannot follow the address
  never_ran,  ///< nothing was counted
};
std::string_view name(Agreement a);

/// Costs are a warp's, per execution: 32-byte sectors of global memory, passes of shared memory.
struct AccessCheck {
  std::string function, opcode, text;  ///< "ld.global.v4.f32", the whole instruction
  int ptx_line = 0;
  std::string file;  ///< from .loc; empty without
  int line = 0;
  bool shared = false;
  std::uint64_t requests = 0;
  double counted = 0;          ///< mean
  double needed = 0;           ///< mean, if the bytes asked for lay side by side
  double least = 0, most = 0;  ///< predicted
  Agreement agreement = Agreement::unknown;
  std::string why;  ///< of unknown, and what a difference means
};

/// `kernel` is an entry of `program`; its accesses in program order, and those of functions that it calls. Throws
/// VerifyError for PTX that is malformed.
std::vector<AccessCheck> check_predictions(const emu::Program& program, const std::string& kernel,
                                           const emu::Counters& counted,
                                           const ptx::LaunchAssumptions& launch);

/// The same beside what ncu counted of the machine instructions of `kernel` (a report with the section
/// SourceCounters, or its source page; the launch's shape is the report's, 256 threads where it has none).
/// ptxas keeps loads and stores apart and mostly in order: where there are as many of a kind in the PTX as in
/// the machine code, they are taken in order, else they are not compared, and `why` has both numbers. Throws
/// ArgumentError when the report has no instructions of that kernel, VerifyError for PTX that is malformed.
std::vector<AccessCheck> check_machine_code(const emu::Program& program, const std::string& kernel,
                                            const Document& report);

/// "4", "4 to 5", "?".
std::string predicted_text(const AccessCheck& c);
nlohmann::ordered_json to_json(const std::vector<AccessCheck>& all);
/// What a saved profile of a kernel has of them, over all its launches.
std::vector<AccessCheck> accesses_of(const Document& d);
/// Alike ones in one row, the dearest first; empty without any that ran.
std::string predictions_text(const std::vector<AccessCheck>& all, int width, std::size_t most = 16);
/// What was counted beyond the prediction: "predicted 4 sectors, counted 16".
std::vector<Waste> prediction_waste(const std::vector<AccessCheck>& all, const std::string& kernel);

}  // namespace cgp::profile
