// SPDX-License-Identifier: Apache-2.0
#include "cgp/spec/captured_stdout.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace cgp::spec {

CapturedStdout::CapturedStdout() {
  std::fflush(stdout);
  const char* folder = std::getenv("TMPDIR");
  std::string name = std::string(folder && *folder ? folder : "/tmp") + "/cgp_printed_XXXXXX";
  file_ = mkstemp(name.data());
  if (file_ < 0) return;
  unlink(name.c_str());
  saved_ = dup(STDOUT_FILENO);
  if (saved_ < 0 || dup2(file_, STDOUT_FILENO) < 0) finish();
}

CapturedStdout::~CapturedStdout() { finish(); }

std::string CapturedStdout::finish() {
  std::string text;
  if (saved_ >= 0) {
    std::fflush(stdout);
    dup2(saved_, STDOUT_FILENO);
    close(saved_);
    saved_ = -1;
    char buffer[4096];
    lseek(file_, 0, SEEK_SET);
    for (ssize_t n; (n = read(file_, buffer, sizeof buffer)) > 0;) text.append(buffer, std::size_t(n));
  }
  if (file_ >= 0) close(file_);
  file_ = -1;
  return text;
}

}  // namespace cgp::spec
