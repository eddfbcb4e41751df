// SPDX-License-Identifier: Apache-2.0
#pragma once
// Joules of the processor's package (RAPL, by /sys/class/powercap; $CGP_POWERCAP names another folder) and of
// the GPUs (NVML) between two moments: of everything that ran meanwhile, not of one program alone.
#include <memory>
#include <string>

#include "cgp/profile/view/document.h"

namespace cgp::profile {

class EnergyMeter {
 public:
  EnergyMeter();  ///< starts
  ~EnergyMeter();
  /// Into d.more["energy"] (each number, or null and why) and joules_per_inference, one run being the
  /// iteration.
  void stop(Document& d) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// One line for each counter, absent ones with the reason.
std::string energy_text(const Document& d);

}  // namespace cgp::profile
