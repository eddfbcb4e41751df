// SPDX-License-Identifier: Apache-2.0
#include "cgp/base/program.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "cgp/base/text.h"

namespace cgp {

std::string find_program(const std::string& name, const std::vector<std::string>& more_folders) {
  const auto runs = [](const std::string& path) {
    struct stat s {};
    return stat(path.c_str(), &s) == 0 && S_ISREG(s.st_mode) && access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) return runs(name) ? name : "";
  std::vector<std::string> folders;
  if (const char* path = std::getenv("PATH"))
    for (auto part : text::split(path, ':')) folders.emplace_back(part.empty() ? "." : part);
  folders.insert(folders.end(), more_folders.begin(), more_folders.end());
  for (const auto& folder : folders)
    if (const auto path = text::cat(folder, "/", name); runs(path)) return path;
  return {};
}

std::string find_cuda_program(const std::string& name, const char* variable) {
  if (const char* given = variable ? std::getenv(variable) : nullptr; given && *given) return given;
  std::vector<std::string> folders;
  for (const char* home : {std::getenv("CUDA_HOME"), std::getenv("CUDA_PATH")})
    if (home && *home) folders.push_back(text::cat(home, "/bin"));
  folders.push_back("/usr/local/cuda/bin");
  return find_program(name, folders);
}

}  // namespace cgp
