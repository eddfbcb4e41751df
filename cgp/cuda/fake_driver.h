// SPDX-License-Identifier: Apache-2.0
#pragma once
// A libcuda for tests on machines without a GPU: "device" memory is host memory, streams work at once, and a
// few kernels are known by name. It counts calls, can be told to fail, and notices leaks. These are the extra
// functions of the shared object; look them up with dlsym.
#include <cstdint>

namespace cgp::cuda::fake {

struct Launch {
  char name[64];
  unsigned grid[3], block[3], cluster[3], shared_bytes;
  bool cooperative, programmatic;
};

/// Everything a test can look at or set; fake_control() gives the one instance.
struct Control {
  // settings
  int devices = 1;
  int driver_version = 13000;
  int compute_capability = 90;
  std::uint64_t memory_bytes = 1ull << 30;
  char fail_call[64] = "";  ///< this function fails ...
  int fail_code = 0;        ///< ... with this result ...
  int fail_skip = 0;        ///< ... after this many successes
  bool busy = false;        ///< queries answer "not ready"
  // observations
  int live_handles = 0;  ///< streams, events, modules, graphs, allocations, retained contexts
  int compilations = 0;  ///< PTX compiled, by either way
  int launches = 0;
  int opted_in_smem = 0;  ///< last MAX_DYNAMIC_SHARED_SIZE_BYTES
  int sticky = 0;         ///< after a bad kernel, every call gives this
  Launch last{};
  int (*calls)(const char* function) = nullptr;
  void (*reset)() = nullptr;  ///< settings and counts back to the beginning (live handles stay)
};

using ControlFunction = Control* (*)();

}  // namespace cgp::cuda::fake
