// SPDX-License-Identifier: Apache-2.0
#pragma once
// One line for people about something that no caller can be told (set_log in device.h says where it goes).
#include <string_view>

namespace cgp::runtime {

void log(std::string_view line);

}  // namespace cgp::runtime
