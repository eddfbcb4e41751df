// SPDX-License-Identifier: Apache-2.0
#pragma once
// What this build is.
#include <string>

namespace cgp::cli {

inline constexpr const char* kVersion = CGP_VERSION;
inline constexpr const char* kPtxIsa = "9.0";  ///< newest .version that the opcode table describes
/// PTX targets that kernels ship for.
inline constexpr const char* kTargets[] = {"sm_75",  "sm_80",   "sm_86",  "sm_89",
                                           "sm_90a", "sm_100a", "sm_120a"};
/// The linker's hash of this program, as `file` and debuggers show it.
std::string build_id();

}  // namespace cgp::cli
