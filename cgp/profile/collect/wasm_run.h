// SPDX-License-Identifier: Apache-2.0
#pragma once
// A function of a WebAssembly module, run by Node.js (V8): its time, and exactly how many instructions it executes.
#include <string>
#include <vector>

#include "cgp/profile/view/document.h"

namespace cgp::profile {

struct WasmRequest {
  std::string file, function;          ///< empty function: `_start`, or the only one
  std::vector<std::string> arguments;  ///< numbers, one for each parameter
  double seconds = 1;                  ///< to spend on timing
};
/// Metrics: time, instruction_count, fuel_consumed, simd128_detected; section "wasm" (docs/profiler.md). Throws
/// ArgumentError for functions and arguments that the module does not have, Unsupported without node or for imports other than
/// WASI's, Error where the function traps.
Document profile_wasm(const WasmRequest& request);

}  // namespace cgp::profile
