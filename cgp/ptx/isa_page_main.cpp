// SPDX-License-Identifier: Apache-2.0
// Writes the table of instructions to standard output, or to the file named on the command line.
#include <cstdio>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/ptx/isa_page.h"

int main(int argc, char** argv) try {
  const std::string page = cgp::ptx::isa_markdown();
  if (argc > 1)
    cgp::write_file(argv[1], page);
  else
    std::fwrite(page.data(), 1, page.size(), stdout);
  return 0;
} catch (const cgp::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
