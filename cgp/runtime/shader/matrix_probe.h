// SPDX-License-Identifier: Apache-2.0
#pragma once
// How a Vulkan device spreads cooperative matrices over a subgroup: the specification leaves it to the driver, and a kernel's
// registers are where PTX has them.
#include <optional>

#include "cgp/shader/shader.h"
#include "cgp/vulkan/device.h"

namespace cgp::runtime {

/// The layout with which products of cooperative matrices of f16 (or bf16) are right on the device: products of small integers are
/// run and compared. None, with a line in the log, where each fails.
std::optional<shader::MatrixLayout> find_matrix_layout(const vulkan::DevicePtr& device, bool bf16);

}  // namespace cgp::runtime
