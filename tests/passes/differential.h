// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs a random program before and after passes and compares every byte that it wrote.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cgp/emu/emu.h"
#include "cgp/ptx/module.h"
#include "cgp/ptx/passes/passes.h"

namespace cgp::passes_test {

/// What a program left in its output buffer; `problem` when it did not run to a clean end.
struct Outcome {
  std::vector<std::byte> out;
  std::string problem;
};

/// One emulated device with the two buffers of Shape; the inputs come from `seed`.
class Runner {
 public:
  explicit Runner(bool checked = true);
  Outcome run(const std::string& ptx, std::uint64_t seed);

 private:
  emu::Machine machine_{"sm_90a"};
  emu::Options options_;
  std::uint64_t in_ = 0, out_ = 0;
};

/// What is wrong with the module after the passes: illegal, not clean, or different. Empty: nothing. `before`
/// is the outcome of the module as it is, if it is known.
std::string compare(Runner& runner, const ptx::Module& m, const ptx::PassOptions& passes, std::uint64_t seed,
                    const Outcome* before = nullptr, ptx::PassStatistics* statistics = nullptr);

/// The smallest module got by dropping instructions for which compare() still complains, and which runs clean
/// itself.
ptx::Module shrink(Runner& runner, ptx::Module m, const ptx::PassOptions& passes, std::uint64_t seed);

}  // namespace cgp::passes_test
