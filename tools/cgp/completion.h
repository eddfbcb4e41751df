// SPDX-License-Identifier: Apache-2.0
#pragma once
// A script with which a shell completes the command line.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace cgp::cli {

/// A function `_cgp` for bash: commands, options, the values of options that say which there are, files, and `kernels` where a
/// command takes one. Hidden commands and options are left out.
std::string bash_completion(const CLI::App& app, const std::vector<std::string>& kernels);

}  // namespace cgp::cli
