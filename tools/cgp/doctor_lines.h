// SPDX-License-Identifier: Apache-2.0
#pragma once
// What doctor says about one thing.
#include <string>
#include <vector>

namespace cgp::cli {

struct DoctorLine {
  std::string name;
  bool ok = false;
  std::string found;    ///< what is there, or why it is not
  std::string meaning;  ///< what follows for cgp
  std::string hint;     ///< how to change it; only for absent ones
};
/// What measuring needs: counters, valgrind, CUPTI, the recorder, a quiet machine. Each is tried, not only
/// looked for.
std::vector<DoctorLine> measuring_lines();

}  // namespace cgp::cli
