// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/bench/provenance.h"

#include <cstdlib>
#include <ctime>
#include <regex>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp_commit.h"  // written by cmake/git_commit.cmake

namespace cgp::kernels {
namespace {

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char out[16];
  return std::string(out, std::strftime(out, sizeof out, "%Y-%m-%d", &utc));
}

std::string driver(const runtime::DeviceInfo& device, const std::string& version_file) {
  try {
    std::smatch found;
    const std::string text = read_file(version_file);
    if (std::regex_search(text, found, std::regex("Kernel Module[^\\n]*?\\s(\\d+\\.\\d+(\\.\\d+)?)")))
      return found[1];
  } catch (const Error&) {
    // no such file in containers that hide it
  }
  const int version = device.driver_version.value_or(0);
  return text::cat("CUDA ", version / 1000, ".", version % 1000 / 10);
}

std::string quoted(const std::string& s) {
  std::string out = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

}  // namespace

Provenance provenance(const runtime::DeviceInfo& device, const std::vector<std::string>& words,
                      const std::string& method, const std::string& version_file) {
  Provenance p;
  p.gpu = device.name;
  p.driver = driver(device, version_file);
  p.date = today();
  const char* given = std::getenv("CGP_COMMIT");
  p.commit = given && *given ? given : CGP_BUILT_COMMIT;
  p.how = text::cat(text::join(words, " "), ": ", method);
  return p;
}

std::string json_fields(const Provenance& p) {
  return text::cat("\"gpu\": ", quoted(p.gpu), ", \"driver\": ", quoted(p.driver),
                   ", \"date\": ", quoted(p.date), ", \"commit\": ", quoted(p.commit),
                   ", \"how\": ", quoted(p.how));
}

}  // namespace cgp::kernels
