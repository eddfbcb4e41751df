// SPDX-License-Identifier: Apache-2.0
#pragma once
// What doctor says about one thing.
#include <string>
#include <vector>

namespace cgp::profile {

struct DoctorLine {
  std::string name;
  bool ok = false;
  std::string found;    ///< what is there, or why it is not
  std::string meaning;  ///< what follows for cgp
  std::string hint;     ///< how to change it; only for absent ones
};
/// Whether times can be trusted: identical work differs by less than 5 %, and a processor is free for it.
bool is_quiet(double spread, double load, int processors);
/// What measuring needs: counters, valgrind, CUPTI, the recorder, a quiet machine. Each is tried, not only
/// looked for.
std::vector<DoctorLine> measuring_lines();

}  // namespace cgp::profile
