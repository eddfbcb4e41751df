// SPDX-License-Identifier: Apache-2.0
#pragma once
// Instruction counts where no hardware counts them: the same on every run, so that a gate needs no
// statistics. callgrind runs a program up to AVX2 some 50 times slower; single steps run anything, AVX-512
// included, some 10,000 times slower, and say which vector widths the floating-point work used.
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cgp/profile/measure/metric.h"

namespace cgp::measure {

struct InstructionMix {
  std::uint64_t instructions = 0, branches = 0, loads_or_stores = 0;
  /// Floating-point arithmetic instructions, fused multiply-adds twice: by width, single and double
  /// precision.
  struct Width {
    std::uint64_t single = 0, real64 = 0;
  };
  Width scalar, v128, v256, v512;
  std::uint64_t vector_other = 0;  ///< VEX, EVEX or SSE instructions that are no floating-point arithmetic
  bool truncated = false;          ///< the limit of instructions or of time was reached

  std::uint64_t floating() const;
  /// Share of floating() that works on vectors, in percent; 0 without floating-point work.
  double vector_percent() const;
  void add_to(MetricSet& into, const std::string& from) const;
};

/// One instruction into the mix. At most 15 bytes are read from `code`; those that follow the instruction may
/// be anything.
void classify(const std::uint8_t* code, InstructionMix& mix);

/// Counts the instructions of `f` in a forked child by single steps. What the fork and the stop cost is
/// measured with an empty function and taken away. Throws Unsupported where single steps are not permitted.
InstructionMix step_function(const std::function<void()>& f, std::uint64_t limit = 20'000'000);

inline constexpr std::uint64_t kMostSteps = 20'000'000;
inline constexpr double kMostStepSeconds = 60;
/// Hears about twice a second how many instructions were stepped, in how many seconds.
using StepProgress = std::function<void(std::uint64_t instructions, double seconds)>;
/// A whole program, from its first instruction, until it ends, the limit or so many seconds are reached. Children
/// are not followed, and what it prints is dropped.
InstructionMix step_program(const std::vector<std::string>& command, std::uint64_t limit = kMostSteps,
                            double seconds = kMostStepSeconds, const StepProgress& progress = {});

struct CallgrindCounts {
  std::uint64_t instructions = 0;
  std::map<std::string, std::uint64_t> events;  ///< Ir, Dr, Dw, D1mr, ..., Bc, Bcm
  std::string version;
};
/// Runs a program under callgrind. `model`: its cache and branch models too, which are models. `function`:
/// only inside this function. Throws Unsupported without valgrind, Error when the program failed under it.
CallgrindCounts callgrind(const std::vector<std::string>& command, bool model = false,
                          const std::string& function = {});
void add_callgrind(const CallgrindCounts& c, MetricSet& into);

}  // namespace cgp::measure
