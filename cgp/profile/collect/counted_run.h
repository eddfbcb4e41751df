// SPDX-License-Identifier: Apache-2.0
#pragma once
// What only another run of a program can count: it makes the program many times slower.
#include <functional>
#include <string>
#include <vector>

#include "cgp/profile/view/document.h"

namespace cgp::profile {

/// `how`: "syscalls" (ptrace), "callgrind", "step" (single steps) or "none". `timeout`: seconds. Results go to `d`;
/// `step` hears how far single steps are.
void count_in_another_run(const std::string& how, const std::vector<std::string>& command, double timeout,
                          Document& d, const std::function<void(const std::string&)>& step);

}  // namespace cgp::profile
