// SPDX-License-Identifier: Apache-2.0
#pragma once
// How a Vulkan device spreads cooperative matrices over a subgroup: the specification leaves it to the driver, and a kernel's
// registers are where PTX has them.
#include "cgp/vulkan/device.h"

namespace cgp::runtime {

/// Whether products of cooperative matrices of f16 (or bf16) whose elements lie as mma.sync's registers are right on the device:
/// one product of small integers is run and compared. False, with a line in the log, where it fails.
bool matrices_lie_as_in_ptx(const vulkan::DevicePtr& device, bool bf16);

}  // namespace cgp::runtime
