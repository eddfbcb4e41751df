// SPDX-License-Identifier: Apache-2.0
#pragma once
// spirv-val of the package spirv-tools, for tests.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/shader/shader.h"

namespace cgp::shader {

inline bool have_spirv_val() {
  static const bool have = std::system("spirv-val --version > /dev/null 2>&1") == 0;
  return have;
}

/// What the validator says against a module for Vulkan 1.2; empty: nothing.
inline std::string invalid(const Shader& s) {
  namespace fs = std::filesystem;
  const std::string base = (fs::path(::testing::TempDir()) / "shader").string();
  std::string bytes(reinterpret_cast<const char*>(s.spirv.data()), s.spirv.size() * 4);
  write_file(base + ".spv", bytes);
  const int status = std::system(
      text::cat("spirv-val --target-env vulkan1.2 '", base, ".spv' > '", base, ".txt' 2>&1").c_str());
  return status == 0 ? "" : "spirv-val: " + read_file(base + ".txt");
}

}  // namespace cgp::shader
