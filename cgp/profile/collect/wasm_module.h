// SPDX-License-Identifier: Apache-2.0
#pragma once
// A WebAssembly module (core specification 2.0, binary format, https://webassembly.github.io/spec/core/binary/), read as far as
// counting its instructions needs: and written again with counters in it.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cgp::profile {

struct WasmFunction {
  std::string name;                     ///< as it is exported
  std::vector<std::string> parameters;  ///< "i32", "i64", "f32", "f64", others as "0x7b"
};
struct WasmModule {
  std::vector<WasmFunction> exported;
  std::vector<std::string> imports;                                      ///< "module.name"
  std::uint64_t functions = 0, instructions = 0, simd_instructions = 0;  ///< in the file
  std::string counted;  ///< the same module, which counts what it executes (kWasmCounters)
};
/// Exported globals (i64, mutable) of WasmModule::counted: executed instructions, without `end` and `else`; the same as wasmtime
/// counts fuel (none for nop, drop, block, loop, unreachable, return, else, end; one for every other); those of SIMD128. A
/// stretch of instructions without a branch is counted where it begins, so that a trap within counts all of it.
inline constexpr const char* kWasmCounters[] = {"cgp_instructions", "cgp_fuel", "cgp_simd"};

/// Throws ParseError for what is no module or damaged, Unsupported for instructions beyond version 2.0 with tail calls, relaxed
/// SIMD and threads (garbage collection, exceptions).
WasmModule read_wasm(std::string_view bytes, const std::string& origin);

}  // namespace cgp::profile
