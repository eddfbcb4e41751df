// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reads NVIDIA's ELF files (cubins) without any of NVIDIA's programs: what each kernel needs and how much
// code it has. Section names and attributes as ptxas 11 to 13 writes them for sm_70 and later.
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cgp::profile {

struct CubinKernel {
  std::string name;
  std::uint64_t code_bytes = 0;    ///< of .text.NAME
  std::uint64_t code_offset = 0;   ///< in the file
  std::uint64_t instructions = 0;  ///< code_bytes / 16: every instruction has 128 bits
  std::optional<std::uint32_t> registers, stack_bytes, parameter_bytes, barriers, max_registers;
  std::uint64_t shared_bytes = 0;     ///< static, as the program declares it
  std::uint64_t shared_reserved = 0;  ///< by the system, in the same section (sm_90 and later: 1 KiB)
  std::map<int, std::uint64_t> constant_banks;  ///< bytes by bank; bank 0 holds the parameters
  std::optional<std::array<std::uint32_t, 3>> max_threads, required_threads;
  bool entry = false;  ///< a kernel; otherwise a function that kernels call
};

struct Cubin {
  int sm = 0;  ///< 90
  int abi = 0;
  std::uint64_t global_bytes = 0;               ///< .nv.global and .nv.global.init
  std::map<int, std::uint64_t> constant_banks;  ///< of the module: bank 3 is __constant__ data
  std::vector<CubinKernel> kernels;             ///< in order of the file
};

/// Throws ParseError when it is no cubin, with what it is where that is known (a fat binary, a host program).
Cubin read_cubin(std::string_view file, const std::string& path);

/// What the first eight bytes of an instruction of sm_70 or later do to memory: "LDG", "STG", "LDS", "STS",
/// "LDL", "STL"; "" for all others.
std::string_view memory_opcode(std::uint64_t instruction);

/// Machine instructions by opcode ("LDG", "HMMA"), by kernel, from what nvdisasm -c prints.
using SassMix = std::map<std::string, std::map<std::string, std::uint64_t>>;
SassMix sass_mix(std::string_view listing);
/// "memory, global" for LDG; "other" for what is not known.
std::string_view sass_group(std::string_view opcode);

}  // namespace cgp::profile
