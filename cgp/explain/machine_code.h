// SPDX-License-Identifier: Apache-2.0
#pragma once
// What compiled files hold: kernels in a cubin, vector instructions in a program for x86.
#include <nlohmann/json.hpp>
#include <string>

namespace cgp::explain {

struct MachineCodeView {
  std::string text;
  nlohmann::ordered_json json;  ///< cgp.explain_cubin/1, cgp.explain_x86/1
};
/// What machine code for a GPU needs, kernel by kernel; `entry` empty: all. Opcodes need nvdisasm or cuobjdump.
MachineCodeView explain_cubin(const std::string& file, const std::string& entry);
/// Which vector instructions a program, library or object file holds, function by function; `function` empty:
/// all. The text has 25 rows unless `all_rows`. Needs objdump; throws Unsupported without it.
MachineCodeView explain_x86(const std::string& file, const std::string& function, bool all_rows, int width);

}  // namespace cgp::explain
