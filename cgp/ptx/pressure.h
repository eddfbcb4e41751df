// SPDX-License-Identifier: Apache-2.0
#pragma once
// How many registers a function needs at its worst point, and what an instruction mix it has.
#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "cgp/ptx/module.h"

namespace cgp::ptx {

/// Registers live at the same time, by class. A 16-bit value takes a whole 32-bit register.
struct RegisterCount {
  int pred = 0, b16 = 0, b32 = 0, b64 = 0, b128 = 0;
  /// In 32-bit registers, predicates apart.
  int total() const { return b16 + b32 + 2 * b64 + 4 * b128; }
};

struct PressureReport {
  RegisterCount at_peak;  ///< where total() is largest
  RegisterCount largest;  ///< each class by itself, at different points
  std::uint32_t peak =
      kNone;  ///< instruction of the peak, index into the body; kNone when there are no registers
  std::uint32_t ptx_line = 0;  ///< of that instruction, 0 when not parsed
  std::uint32_t loc = kNone;   ///< index into Module::locs
  int limit = 255;         ///< registers a thread may have: 255, or .maxnreg, or what the block size leaves
  int excess = 0;          ///< at_peak.total() - limit when positive: values that must be spilled
  double utilisation = 0;  ///< at_peak.total() / limit
};

/// An estimate from liveness: ptxas reorders instructions, rematerialises values and needs a few registers
/// itself.
PressureReport pressure(const Function& f);
std::string describe(const Module& m, const Function& f, const PressureReport& r);

/// The family of an instruction, by its types where the opcode has several (add.f32 is floating point).
Family family(const Inst& i);

struct Mix {
  std::array<std::uint32_t, std::size_t(Family::kCount)> by_family{};
  std::map<std::string, std::uint32_t> by_opcode;  ///< "ld.global.v4.f32" -> count
  std::uint32_t total = 0;
};
/// Static counts: every instruction of the body once.
Mix mix(const Function& f);

}  // namespace cgp::ptx
