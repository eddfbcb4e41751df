// SPDX-License-Identifier: Apache-2.0
#pragma once
// Random PTX kernels that end, are free of races and give the same result under every schedule: each thread
// reads its own inputs, writes its own slots in global, shared and local memory, and reads its neighbours'
// shared slots between two barriers only. The same seed gives the same text in one build; compilers
// differ in the order in which they evaluate arguments.
#include <cstdint>
#include <string>

namespace cgp::passes_test {

/// How such a kernel is launched: entry "program", grid and block, two buffers, one scalar.
struct Shape {
  static constexpr std::uint32_t blocks = 2, threads = 64;
  static constexpr std::uint32_t in_words = 16, out_words = 64;  ///< per thread
  static constexpr std::uint32_t in_bytes = blocks * threads * in_words * 4;
  static constexpr std::uint32_t out_bytes = blocks * threads * out_words * 4;
};

struct ProgramOptions {
  int statements = 40;    ///< about, at the outermost level
  int depth = 3;          ///< of nested branches and loops
  bool constant = false;  ///< starts from literals instead of inputs, so that much of it can be folded
};

/// PTX text of the kernel; `target` is an architecture of sm_90 or later.
std::string random_program(std::uint64_t seed, const ProgramOptions& options = {});

}  // namespace cgp::passes_test
