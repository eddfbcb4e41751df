// SPDX-License-Identifier: Apache-2.0
#pragma once
// What recording a program's launches may cost it, and when it is let run alone for a while. Header only,
// because the library that is loaded into other programs uses it and links nothing else of cgp.
#include <cstdint>

namespace cgp::measure {

/// Times in ns. What a record costs was measured on an H200's host with CUDA 13.0: 1.5 us a launch in a quiet
/// hour, up to 3 in a busy one (docs/profiler.md, "What tracing costs"). It is the price that decides, not a
/// clock.
struct TraceBudget {
  static constexpr std::uint64_t kLaunch = 2500, kGraphKernel = 500, kAttach = 15'000'000;
  static constexpr std::uint64_t kCredit = 40'000'000;  ///< for every program, however short
  static constexpr double kShare = 0.025;               ///< and of its time
  static constexpr std::uint64_t kWorthwhile = 15'000'000;

  static constexpr std::uint64_t kCall = 700;  ///< where every call is recorded, not only those of a timeline

  std::uint64_t launches = 0, graph_kernels = 0, attached_again = 0, calls = 0;

  std::uint64_t spent() const {
    return launches * kLaunch + graph_kernels * kGraphKernel + attached_again * kAttach + calls * kCall;
  }
  std::uint64_t allowed(std::uint64_t elapsed) const {
    return kCredit + std::uint64_t(kShare * double(elapsed));
  }
  /// Recording goes on.
  bool left_at(std::uint64_t elapsed) const { return spent() <= allowed(elapsed); }
  /// Enough has been saved to come back and record something.
  bool enough_to_return(std::uint64_t elapsed) const {
    return spent() + kAttach + kWorthwhile <= allowed(elapsed);
  }
};

}  // namespace cgp::measure
