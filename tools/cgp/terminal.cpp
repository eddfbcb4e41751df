// SPDX-License-Identifier: Apache-2.0
#include "tools/cgp/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cgp/base/error.h"

namespace cgp::cli {
namespace {

bool set(const char* variable) {
  const char* v = std::getenv(variable);
  return v && *v;
}
bool capable(int fd) {
  const char* term = std::getenv("TERM");
  return isatty(fd) && term && std::strcmp(term, "dumb") != 0;
}

}  // namespace

bool use_color(ColorWish wish, int fd) {
  if (wish != ColorWish::automatic) return wish == ColorWish::always;
  if (set("NO_COLOR")) return false;
  if (set("CLICOLOR_FORCE")) return true;
  return capable(fd);
}

int terminal_width(int fd) {
  int width = 0;
  winsize size{};
  if (const char* v = std::getenv("COLUMNS")) width = std::atoi(v);
  if (width <= 0 && isatty(fd) && ioctl(fd, TIOCGWINSZ, &size) == 0) width = size.ws_col;
  return std::max(width > 0 ? width : 100, 40);
}

Progress::Progress(bool enabled) {
  if (enabled && capable(STDERR_FILENO)) thread_ = std::thread([this] { show(); });
}

Progress::~Progress() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  wake_.notify_all();
  thread_.join();
  if (shown_) std::fputs("\r\x1b[K", stderr);
}

void Progress::step(const std::string& what) {
  const std::lock_guard lock(mutex_);
  what_ = what;
}

void Progress::show() {
  using clock = std::chrono::steady_clock;
  const auto start = clock::now();
  auto next = start + std::chrono::seconds(2);
  std::unique_lock lock(mutex_);
  while (!wake_.wait_until(lock, next, [this] { return done_; })) {
    const double seconds = std::chrono::duration<double>(clock::now() - start).count();
    std::fprintf(stderr, "\r\x1b[K[%6.1f s] %.60s", seconds, what_.c_str());
    std::fflush(stderr);
    shown_ = true;
    next = clock::now() + std::chrono::milliseconds(200);
  }
}

void write_out(std::string_view text) {
  const bool fine =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!fine) throw Error(std::string("cannot write to standard output: ") + std::strerror(errno));
}

}  // namespace cgp::cli
