// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

namespace cgp::profile {

/// Which time of a program counts, as a user asks for it.
struct TimingOptions {
  std::string clock = "wall";  ///< or "cpu"
  std::string regex;           ///< the program prints its time: the first group of this expression
  std::string unit = "ms";     ///< of that time: s, ms, us, ns
  double timeout_seconds = 0;
};

}  // namespace cgp::profile
