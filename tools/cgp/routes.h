// SPDX-License-Identifier: Apache-2.0
#pragma once
// Spellings of a command line that mean another one.
#include <string>
#include <vector>

namespace cgp::cli {

/// Rewrites the words behind `cgp`. Throws ArgumentError and Unsupported for spellings that mean nothing here.
void route(std::vector<std::string>& args);

}  // namespace cgp::cli
