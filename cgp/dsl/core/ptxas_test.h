// SPDX-License-Identifier: Apache-2.0
#pragma once
// For tests: assembles a kernel with ptxas where one is installed. Empty result = accepted; "no ptxas" where
// there is none; else what it said. Spills and serialised wgmma pipelines count as refused.
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "cgp/base/program.h"
#include "cgp/dsl/core/build.h"

namespace cgp::dsl {

inline std::string ptxas(const BuiltKernel& b) {
  const std::string program = find_ptxas();
  if (program.empty()) return "no ptxas";
  char path[] = "cgp_ptxas_XXXXXX";
  const int fd = mkstemp(path);
  if (fd < 0) return "cannot make a temporary file";
  close(fd);
  std::ofstream(path) << b.ptx();
  const std::string command =
      "'" + program + "' -arch=" + b.target + " -v -warn-spills " + path + " -o /dev/null 2>&1";
  std::string said;
  if (FILE* p = popen(command.c_str(), "r")) {
    char line[512];
    while (std::fgets(line, sizeof line, p)) said += line;
    const int rc = pclose(p);
    std::remove(path);
    const bool slow = said.find("(C7") != std::string::npos || said.find("spilled") != std::string::npos;
    return rc == 0 && !slow ? "" : said;
  }
  return "cannot run ptxas";
}

}  // namespace cgp::dsl
