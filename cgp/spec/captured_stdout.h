// SPDX-License-Identifier: Apache-2.0
#pragma once
// The driver writes what kernels print to this process's standard output. Reports go there too, and may be
// JSON: while one of these lives, standard output is a file whose text can be had.
#include <string>

namespace cgp::spec {

class CapturedStdout {
 public:
  CapturedStdout();  ///< does nothing if the system has no file to give
  ~CapturedStdout();
  CapturedStdout(const CapturedStdout&) = delete;
  CapturedStdout& operator=(const CapturedStdout&) = delete;
  /// Restores standard output; what was written meanwhile.
  std::string finish();

 private:
  int saved_ = -1, file_ = -1;
};

}  // namespace cgp::spec
