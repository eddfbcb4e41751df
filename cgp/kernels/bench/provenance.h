// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where and how numbers were measured: what a result file must say about itself.
#include <string>
#include <vector>

#include "cgp/runtime/info.h"

namespace cgp::kernels {

struct Provenance {
  std::string gpu;
  std::string driver;  ///< "580.159.04"; CUDA's version ("CUDA 13.0") where the kernel module does not say
  std::string date;    ///< "2026-11-21", UTC
  std::string commit;  ///< CGP_COMMIT of the environment, else what was built ("-dirty" with changes)
  std::string how;     ///< the command and the method
};

/// `words` is the command line, `method` what it did. `version_file` is the kernel module's.
Provenance provenance(const runtime::DeviceInfo& device, const std::vector<std::string>& words,
                      const std::string& method,
                      const std::string& version_file = "/proc/driver/nvidia/version");
/// `"gpu": "...", "driver": "...", ...`, without braces.
std::string json_fields(const Provenance& p);

}  // namespace cgp::kernels
