// SPDX-License-Identifier: Apache-2.0
#pragma once
// A pipe that programs started meanwhile do not inherit.
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <cerrno>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::measure {

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC)) throw Error(text::cat("no pipe could be made: ", strerror(errno)));
    read = fds[0], write = fds[1];
  }
  ~Pipe() { close_read(), close_write(); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_read() {
    if (read >= 0) close(read);
    read = -1;
  }
  void close_write() {
    if (write >= 0) close(write);
    write = -1;
  }
};

}  // namespace cgp::measure
