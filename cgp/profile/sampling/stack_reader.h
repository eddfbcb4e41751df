// SPDX-License-Identifier: Apache-2.0
#pragma once
// Records in the layout of perf_event_open(2), as the kernel and libcgp_sample.so write them, become stacks. A sample has
// IP, TID, TIME, CALLCHAIN and, on x86-64, REGS_USER and STACK_USER; the other records end with TID and TIME.
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "cgp/profile/sampling/cpu_sampler.h"

namespace cgp::profile {

/// Whether samples keep registers and stack, so that callers are found by unwind tables.
#if defined(__x86_64__)
inline constexpr bool kUnwindTables = true;
#else
inline constexpr bool kUnwindTables = false;
#endif
/// Of the stack, in each sample.
inline constexpr std::uint32_t kStackBytes = 8192;
/// The registers in each sample, as perf's bits; none without unwind tables.
std::uint64_t sampled_registers();

class StackReader {
 public:
  explicit StackReader(CpuRecording& out);
  ~StackReader();
  StackReader(const StackReader&) = delete;
  StackReader& operator=(const StackReader&) = delete;

  struct Records {
    std::string_view bytes;  ///< whole records; what is damaged ends the reading
    enum class From : std::uint8_t {
      clock,
      switches,  ///< samples are of threads that stop
      program  ///< by libcgp_sample.so: `misc` of a sample's header is how many it stands for, or that it is a launch's
    } from = From::clock;
  };
  /// Of one stretch of time: all are put in order. A record of an earlier stretch may still come: only mappings matter,
  /// and they come long before their samples.
  void read(const std::vector<Records>& all);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cgp::profile
