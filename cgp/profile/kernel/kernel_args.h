// SPDX-License-Identifier: Apache-2.0
#pragma once
// What emit, run and explain share when they are given a kernel's name.
#include <string>
#include <vector>

#include "cgp/kernels/catalog/catalog.h"

namespace cgp::profile {

/// "NAME=VALUE" -> {NAME, VALUE}; `what` names the option in errors.
std::pair<std::string, std::string> split_setting(const std::string& text, const std::string& what);
/// The kernel's defaults with the NAME=VALUE texts over them.
kernels::Options parse_settings(const kernels::KernelEntry& kernel, const std::vector<std::string>& settings);
/// The modules of one variant, or (variant empty) those that the selector takes for these options on `arch`.
std::vector<runtime::KernelImage> select_images(const kernels::KernelEntry& kernel, const std::string& arch,
                                                const std::string& variant,
                                                const std::vector<std::string>& settings);

}  // namespace cgp::profile
