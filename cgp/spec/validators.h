// SPDX-License-Identifier: Apache-2.0
#pragma once
// What options are checked for before anything runs.
#include <CLI/CLI.hpp>
#include <string>

#include "cgp/base/file.h"

namespace cgp::cli {

/// A file that can be written: what takes long to measure is not measured for a path with a typing mistake.
inline CLI::Validator writable() {
  return {[](const std::string& path) {
            const std::string why = write_problem(path);
            return why.empty() ? "" : "cannot write " + path + ": " + why;
          },
          ""};
}

}  // namespace cgp::cli
