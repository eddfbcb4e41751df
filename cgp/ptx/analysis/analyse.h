// SPDX-License-Identifier: Apache-2.0
#pragma once
// All static analyses of one kernel and the functions it calls. `cgp explain` prints the result.
#include <memory>
#include <string>
#include <vector>

#include "cgp/ptx/analysis/barriers.h"
#include "cgp/ptx/analysis/bugs.h"
#include "cgp/ptx/analysis/memory.h"
#include "cgp/ptx/analysis/values.h"

namespace cgp::ptx {

/// A jump whose condition is not the same in all threads of a warp.
struct DivergentBranch {
  std::uint32_t inst = 0;
  std::string condition;  ///< "tid.x", "ld.global of line 12", as the values that it depends on
  /// Known conditions: of 32 lanes' issue slots between here and where the sides meet, the share that does
  /// work, averaged over the warps that split. Absent for conditions that depend on data.
  std::optional<double> efficiency;
  std::size_t warps = 0;  ///< that split, of known conditions
  /// One thread of a warp issues what takes one thread (bulk copies and prefetches, mbarriers, tcgen05) while the others skip
  /// it: how such code is written, and no bug.
  bool elected = false;
};

/// One function (the kernel first) with what was found in it. The parts refer to each other and to the
/// Module.
struct FunctionAnalysis {
  const Function* function = nullptr;
  Cfg cfg;
  Ssa ssa;
  std::unique_ptr<ThreadValues> values;
  std::vector<Collective> collectives;
  std::vector<DivergentBranch> branches;
  std::vector<MemoryAccess> memory;
};

struct Analysis {
  std::vector<std::unique_ptr<FunctionAnalysis>> functions;
  std::vector<BugReport> bugs;  ///< most severe first, then in program order
};

struct AnalysisLimits {
  std::optional<std::uint64_t> shared_bytes;  ///< static and dynamic, of the launch
  std::optional<int> registers;               ///< that a thread needs, for the spill class
  int register_limit = 255;
};

/// The module must have passed check() and outlive the result. Throws ArgumentError for a block shape that cannot be.
Analysis analyse(const Module& m, const Function& kernel, const LaunchAssumptions& a,
                 const AnalysisLimits& l = {});

/// "B08,B11" or "shared.race": classes that are not to be reported. Throws as parse_bug.
std::vector<Bug> parse_bugs(std::string_view list);

}  // namespace cgp::ptx
