// SPDX-License-Identifier: Apache-2.0
#pragma once
// One kernel of the catalogue, prepared, run and measured: what profile kernel, bench, compare and contracts
// share.
#include <string>
#include <vector>

#include "cgp/profile/view/document.h"

namespace cgp::profile {

struct KernelProfileOptions {
  std::string kernel;
  std::vector<std::string> settings;
  std::string device = "auto";
  int repeat = 20;
  bool hot = true;        ///< time with warm caches too
  bool roofline = false;  ///< on the emulator: the ceilings of the device that its architecture is known by
  std::vector<std::string> counters;  ///< on a GPU: CUPTI metrics, by running this program again
};
/// On a GPU times, on the emulator exact counters and waste. The result is checked against the kernel's
/// oracle; a wrong one is a note and the metric-less defect "wrong result".
Document profile_catalogue_kernel(const KernelProfileOptions& o);

/// --size as settings: of products m, n and k, of rows rows and cols, else n. Empty: none.
std::vector<std::string> size_settings(const std::string& kernel, const std::string& size);

}  // namespace cgp::profile
