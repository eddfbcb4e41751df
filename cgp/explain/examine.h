// SPDX-License-Identifier: Apache-2.0
#pragma once
// What can be said about a PTX module without running it; cmd_explain.cpp shows it.
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/emu/emu.h"
#include "cgp/explain/assembled.h"
#include "cgp/ptx/analysis/analyse.h"
#include "cgp/ptx/analysis/estimate.h"
#include "cgp/ptx/occupancy.h"
#include "cgp/ptx/passes/allocate.h"
#include "cgp/ptx/pressure.h"

namespace cgp::explain {

struct OccupancyFacts {
  std::string arch;
  int block_threads = 0;
  ptx::Occupancy value;
};

struct EntryFacts {
  std::string name;
  std::uint64_t instructions = 0;  ///< static, of the entry and the functions it calls
  std::map<std::string, std::uint64_t> by_family, by_opcode;
  std::map<std::string, std::uint64_t> declared;  ///< virtual registers by type
  ptx::PressureReport pressure;                   ///< of the entry or the called function that needs most
  std::vector<std::string> params;                ///< "x u64"
  std::uint32_t param_bytes = 0, static_shared = 0, local_bytes = 0;
  bool dynamic_shared = false;
  std::optional<std::array<std::uint32_t, 3>> maxntid, reqntid, cluster;
  std::vector<std::string> uses;  ///< "TMA tensor copies", "wgmma"
  OccupancyFacts occupancy;
  ptx::RegisterEstimate registers;
  ptx::Allocation allocation;  ///< a linear scan in the order of the text, for its spills
  std::shared_ptr<const ptx::Analysis>
      analysis;  ///< null when the block shape cannot be; refers to the program
  bool assumed_block = false;
  std::string unsupported;  ///< why the emulator cannot run it
};

struct ModuleFacts {
  std::shared_ptr<const emu::Program> program;
  std::string name, version, required_version, target;
  std::uint64_t global_bytes = 0, const_bytes = 0;
  std::vector<EntryFacts> entries;
  std::vector<std::string> needs;     ///< "mma.sync....: PTX 7.0, sm_80", what asks for most first
  std::vector<std::string> problems;  ///< rules of the ISA that it breaks
  Assembled assembled{"ptxas was not asked", {}};  ///< set by who wants it: ptxas takes its time
};

struct ExamineOptions {
  std::string entry;                                        ///< empty: all
  std::optional<std::array<std::uint32_t, 3>> block, grid;  ///< block absent: as declared, else 256
  std::uint32_t dynamic_smem = 0;
  std::uint32_t pointer_alignment = 256;
  std::map<std::string, std::int64_t> parameters;  ///< values of integer parameters
};
/// Throws ParseError, and ArgumentError with the entries there are.
ModuleFacts examine_module(const std::string& name, std::string_view ptx, const ExamineOptions& options);

}  // namespace cgp::explain
