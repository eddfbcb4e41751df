// SPDX-License-Identifier: Apache-2.0
#pragma once
// What can be said about a PTX module without running it; cmd_explain.cpp shows it.
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cgp::cli {

/// Blocks that fit one SM by threads, blocks, shared memory and registers.
struct Occupancy {
  std::string arch;
  std::uint32_t block_threads = 0;
  int registers = 0;  ///< per thread, estimated; 0: not part of the sum
  int blocks = 0, warps = 0, max_warps = 0;
  std::string limit;  ///< "threads", "blocks", "shared memory", "registers"
};

struct Pressure {
  int registers = 0;  ///< 32-bit registers live at the same time, at most
  int ptx_line = 0;
};

struct EntryFacts {
  std::string name;
  std::uint64_t instructions = 0;  ///< static, of the entry and the functions it calls
  std::map<std::string, std::uint64_t> by_family, by_opcode;
  std::map<std::string, std::uint64_t> declared;  ///< virtual registers by type
  std::optional<Pressure> pressure;
  std::vector<std::string> params;  ///< "x u64"
  std::uint32_t param_bytes = 0, static_shared = 0, local_bytes = 0;
  bool dynamic_shared = false;
  std::optional<std::array<std::uint32_t, 3>> maxntid, reqntid, cluster;
  std::vector<std::string> features;  ///< "TMA (sm_90)", "wgmma (sm_90a)"
  Occupancy occupancy;
  std::string unsupported;  ///< why the emulator cannot run it
};

struct ModuleFacts {
  std::string name, version, required_version, target;
  std::uint64_t global_bytes = 0, const_bytes = 0;
  std::vector<EntryFacts> entries;
  std::vector<std::string> problems;  ///< rules of the ISA that it breaks
};

/// `entry` empty: all. `block_threads` absent: as declared, else 256. Throws ParseError, and ArgumentError
/// with the entries there are.
ModuleFacts examine_module(const std::string& name, std::string_view ptx, const std::string& entry,
                           std::optional<std::uint32_t> block_threads, std::uint32_t dynamic_smem = 0);

Occupancy occupancy(const std::string& arch, std::uint32_t block_threads, std::uint32_t shared_bytes,
                    int registers);

}  // namespace cgp::cli
