// SPDX-License-Identifier: Apache-2.0
#pragma once
// Optimisation of PTX modules. Every pass keeps what the program computes, bit for bit, but `fma`, which is
// off unless asked for by name. A pass leaves alone what it does not know, and moves nothing across it.
// docs/passes.md has the list, the rules and what each pass is worth on a GPU.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/ptx/module.h"

namespace cgp::ptx {

/// In the order in which the pipeline runs them. It starts over while something changes, at most
/// PassOptions::rounds times: unrolled loops have constants to fold, folded ones have dead code.
enum class Pass : std::uint8_t {
  split,     ///< independent values that share a register get registers of their own
  fold,      ///< constants: instructions of constants, x + 0, constant branches, offsets into addresses
  copy,      ///< reads of a copy read the original
  cse,       ///< what was computed before, on every path here, is not computed again
  strength,  ///< mul, div and rem by powers of two
  mad,       ///< integer mul + add of one use
  fma,       ///< floating mul + add of one use: rounds once instead of twice, so results change
  convert,   ///< short branches around cheap instructions become selp and guards
  unroll,    ///< loops with a small constant number of trips
  hoist,     ///< what a loop computes anew each trip with the same result moves in front of it
  address,   ///< multiples of a loop counter become additions
  vector,    ///< neighbouring loads or stores of aligned addresses become .v2 and .v4
  dead,      ///< results that nothing reads, blocks that nothing reaches
  kCount
};
std::string_view name(Pass p);
/// One sentence for `--help` and docs.
std::string_view summary(Pass p);

struct PassOptions {
  std::array<bool, std::size_t(Pass::kCount)> on{};  ///< all off
  int rounds = 3;
  int unroll_trips = 32;          ///< longest loop that is unrolled
  int unroll_instructions = 512;  ///< most instructions that an unrolled loop may have
  int convert_instructions = 4;   ///< most instructions of a branch that is converted
  bool fuse_rounded = false;  ///< fma also where .rn forbids it (without .rn PTX leaves it to the compiler)

  bool has(Pass p) const { return on[std::size_t(p)]; }
  PassOptions& set(Pass p, bool v = true) {
    on[std::size_t(p)] = v;
    return *this;
  }
  bool any() const;
  static PassOptions none() { return {}; }
  static PassOptions all();  ///< every pass that keeps results: all but fma
  static PassOptions only(Pass p) { return PassOptions().set(p); }
};
/// "all", "none", or names joined by commas, each optionally with a leading '-' to take it away
/// ("all,-hoist", "all,fma"). Throws ArgumentError naming the closest pass.
PassOptions parse_passes(std::string_view text);
std::string name(const PassOptions& o);

struct PassStatistics {
  struct One {
    std::uint64_t changes = 0;      ///< in the unit of the pass: instructions, loops, branches
    std::int64_t instructions = 0;  ///< added, or (negative) removed
    double seconds = 0;
  };
  std::array<One, std::size_t(Pass::kCount)> of{};
  std::uint64_t before = 0, after = 0;  ///< instructions of the functions
  int rounds = 0;

  One& operator[](Pass p) { return of[std::size_t(p)]; }
  const One& operator[](Pass p) const { return of[std::size_t(p)]; }
  std::uint64_t changes() const;
  void add(const PassStatistics& other);
};
/// A table, one line for each pass that changed something.
std::string describe(const PassStatistics& s);

/// Runs the passes that are on over every function with a body.
PassStatistics optimise(Module& m, const PassOptions& options);
PassStatistics optimise(Module& m, Function& f, const PassOptions& options);

}  // namespace cgp::ptx
