// SPDX-License-Identifier: Apache-2.0
#include "cgp/testing/assemble.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"

namespace cgp::testing {
namespace fs = std::filesystem;

std::optional<std::string> find_ptxas() {
  std::vector<std::string> candidates;
  if (const char* p = std::getenv("CGP_PTXAS"); p && *p) candidates.push_back(p);
  if (const char* path = std::getenv("PATH"))
    for (auto dir : text::split(path, ':')) candidates.push_back(text::cat(dir, "/ptxas"));
  if (const char* home = std::getenv("CUDA_HOME")) candidates.push_back(text::cat(home, "/bin/ptxas"));
  candidates.push_back("/usr/local/cuda/bin/ptxas");
  for (const auto& c : candidates)
    if (::access(c.c_str(), X_OK) == 0) return c;
  return std::nullopt;
}

namespace {

// The number before `word` in every place it occurs, summed: "12 bytes spill stores".
// ptxas's warnings repeat what its report says.
int sum_before(const std::string& log, std::string_view word) {
  int sum = 0;
  for (std::size_t at = log.find(word); at != std::string::npos; at = log.find(word, at + 1)) {
    const auto line = log.rfind('\n', at) + 1;  // npos + 1 is 0: the first line
    if (log.compare(line, 13, "ptxas warning") == 0) continue;
    std::size_t end = at;
    while (end > 0 && log[end - 1] == ' ') --end;
    std::size_t begin = end;
    while (begin > 0 && log[begin - 1] >= '0' && log[begin - 1] <= '9') --begin;
    if (begin < end) sum += std::stoi(log.substr(begin, end - begin));
  }
  return sum;
}

}  // namespace

Assembly assemble(std::string_view ptx, std::string_view arch) {
  const auto ptxas = find_ptxas();
  if (!ptxas)
    throw Unsupported(
        {"ptxas is not installed", {}, "looked on PATH and in /usr/local/cuda/bin", "set CGP_PTXAS"});
  static std::atomic<int> serial{0};
  const auto stem =
      (fs::temp_directory_path() / text::cat("cgp_assemble_", ::getpid(), "_", serial++)).string();
  write_file(stem + ".ptx", ptx);
  const auto command = text::cat("'", *ptxas, "' -arch=", arch, " -v -warn-spills '", stem, ".ptx' -o '",
                                 stem, ".cubin' > '", stem, ".log' 2>&1");
  Assembly a;
  a.ok = std::system(command.c_str()) == 0;
  a.log = read_file(stem + ".log");
  a.spill_bytes = sum_before(a.log, "bytes spill stores") + sum_before(a.log, "bytes spill loads");
  a.stack_bytes = sum_before(a.log, "bytes stack frame");
  a.registers = sum_before(a.log, "registers");
  a.serialised = a.log.find("(C7") != std::string::npos;
  for (const char* suffix : {".ptx", ".log", ".cubin"}) fs::remove(stem + suffix);
  return a;
}

}  // namespace cgp::testing
