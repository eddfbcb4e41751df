// SPDX-License-Identifier: Apache-2.0
#pragma once
// The access that stopped a program because its address was not a multiple of what the instruction asks for
// (movaps, vmovntps, ...). The processor tells no address then: it is computed from the instruction and the
// registers.
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cgp/profile/measure/process.h"

namespace cgp::profile {

/// rax rcx rdx rbx rsp rbp rsi rdi r8 to r15, in the processor's own order.
struct MachineState {
  std::array<std::uint64_t, 16> registers{};
  std::uint64_t instruction = 0, fs = 0, gs = 0;
};

struct VectorAccess {
  std::string name;  ///< "movntps"; "an SSE instruction" for those that are not named here
  std::uint64_t address = 0;
  int bytes = 0;  ///< what the address must be a multiple of
  bool writes = false;
  bool misaligned() const { return bytes > 0 && address % std::uint64_t(bytes) != 0; }
};
/// Of the SSE, AVX or AVX-512 instruction that `code` begins with; none without an operand in memory that it
/// wants aligned.
std::optional<VectorAccess> aligned_access(std::span<const std::uint8_t> code, const MachineState& at);

struct Misaligned {
  VectorAccess access;
  std::uint64_t instruction = 0;
  std::vector<std::string> where;  ///< "main at nt.c:4", inlined functions first; or "program+0x11d4"
};
/// Runs a program at full speed, its output thrown away, until it ends or stops there. Throws Unsupported
/// where following is not permitted. `ended` becomes how it ended.
std::optional<Misaligned> find_misaligned(const std::vector<std::string>& command, double timeout_seconds,
                                          measure::ProcessResult& ended);

}  // namespace cgp::profile
