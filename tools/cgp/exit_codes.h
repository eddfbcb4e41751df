// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>

namespace cgp::cli {

/// Runs a command. Every exception that can leave it becomes a message on stderr (with `json` also cgp.error/1 on stdout) and the
/// exit code that says what the caller can do about it.
int guarded(const std::function<int()>& body, bool json, bool color);

}  // namespace cgp::cli
