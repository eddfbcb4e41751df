// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the terminal can do, and a progress line for slow work.
#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace cgp::cli {

enum class ColorWish { automatic, always, never };
/// --color first, then NO_COLOR (set and not empty: off), CLICOLOR_FORCE, then whether `fd` is a terminal
/// that is not dumb.
bool use_color(ColorWish wish, int fd);

/// COLUMNS, else the width of the terminal behind `fd`, else 100; never below 40.
int terminal_width(int fd);

/// After two seconds shows what is going on and for how long, on stderr, redrawn in place. Silent when stderr
/// is not a terminal. The line is gone when the object is.
class Progress {
 public:
  explicit Progress(bool enabled = true);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void step(const std::string& what);

 private:
  void show();
  std::mutex mutex_;
  std::condition_variable wake_;
  std::string what_;
  bool done_ = false, shown_ = false;
  std::thread thread_;
};

/// Writes all of `text` to stdout; an Error if that fails (a full disk must not look like success).
void write_out(std::string_view text);

}  // namespace cgp::cli
