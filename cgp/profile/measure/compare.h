// SPDX-License-Identifier: Apache-2.0
#pragma once
// Times contenders against each other in one run: rounds in which each runs once, in an order that rotates,
// after the caches were flushed. Interleaving gives every contender the same clocks, heat and neighbours, so
// that the ratio of medians means something on a machine that is never quiet.
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cgp/profile/measure/stats.h"
#include "cgp/runtime/device.h"
#include "cgp/runtime/stream.h"

namespace cgp::measure {

struct Contender {
  std::string name;
  std::function<void(runtime::Stream&)> run;  ///< queues the work; must not wait
};

struct CompareOptions {
  int warmup = 3;                          ///< untimed rounds
  int rounds = 40;                         ///< timed rounds
  bool cold_l2 = true;                     ///< overwrite `flush_bytes` of device memory before each timed run
  std::uint64_t flush_bytes = 256u << 20;  ///< several times the L2 of every GPU there is
};

struct Timing {
  std::string name;
  std::vector<double> milliseconds;  ///< one per round, GPU time between two events around run()
  Summary summary;
};

/// Throws Unsupported on the emulator, which has no clock; whatever a contender throws.
std::vector<Timing> compare(const runtime::Device& device, std::span<const Contender> contenders,
                            const CompareOptions& options = {});

}  // namespace cgp::measure
