// SPDX-License-Identifier: Apache-2.0
#pragma once
// The loops of cgp/cpu/loops measured: with one instruction set, and on many threads.
#include <cstddef>
#include <string>

#include "cgp/profile/view/document.h"

namespace cgp::profile {

struct LoopOptions {
  std::string kind;              ///< of the document: simd, scalar, compare, parallel, scaling
  std::string function = "dot";  ///< one of cpu_functions()
  std::size_t size = 4096;       ///< elements of each array
  int threads = 0;               ///< the most; 0: the processor's
  int runs = 7;                  ///< of each number of threads
  /// Fresh processes that profile_loop measures in, each with its own alignment and pages; 1: this process. The
  /// others are this program run as `cgp profile simd --processes 1 --no-count`.
  int processes = 1;
  bool count = true;  ///< the instructions of one call too
};
/// `isa`: scalar, sse2, avx2, avx512. Times of batches of calls, and the instructions of one call.
Document profile_loop(const LoopOptions& o, const std::string& isa);
std::string loop_text(const Document& d);

/// Speed-up over one thread: for 1 and all ("parallel"), or 1, 2, 4, ... ("scaling").
Document profile_threads(const LoopOptions& o);
std::string threads_text(const Document& d, int width);

}  // namespace cgp::profile
