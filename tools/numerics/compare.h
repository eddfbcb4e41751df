// SPDX-License-Identifier: Apache-2.0
#pragma once
// Answers of two devices, or of a device and a fixture.
#include "runner.h"

namespace cgp::numerics {

struct Difference {
  std::uint32_t thread = 0;
  std::size_t output = 0;
  int element = 0;
  std::uint64_t expected = 0, got = 0;
};
struct Comparison {
  std::uint64_t values = 0, different = 0;  ///< approximate forms: beyond the documented error
  std::vector<Difference> first;            ///< a few
  std::array<std::uint64_t, 6> ulps{};      ///< approximate forms: 0, 1, 2, 3-4, 5-16, more units apart
  double worst = 0;                         ///< largest error as a share of the documented one
};
/// `expected` from hardware, `got` from the emulator.
Comparison compare(const Case& c, const Answer& expected, const Answer& got);
/// The inputs of a thread, for messages: "0x3f800000 0x7fc00000".
std::string inputs_of(const Case& c, std::uint32_t thread);

// ---- the fixture: one line per form, its text and a hash of all its outputs; approximate forms have some
// outputs instead.
std::uint64_t hash(const Answer& a);
std::string fixture_line(const Case& c, const Answer& a);
/// key -> rest of the line. Throws Error when the file cannot be read.
std::map<std::string, std::string> read_fixture(const std::string& path);
/// Empty when the emulator's answer agrees with the line.
std::string disagrees(const Case& c, const std::string& line, const Answer& got);

}  // namespace cgp::numerics
