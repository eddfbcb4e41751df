// SPDX-License-Identifier: Apache-2.0
// cgp tui: profiles in a terminal. What is on the screen comes from profile/screen.h; here is the terminal.
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <csignal>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "profile/import.h"
#include "profile/screen.h"
#include "profiler_commands.h"
#include "terminal.h"

namespace cgp::cli {
namespace {

volatile std::sig_atomic_t g_ended = 0;
void end(int) { g_ended = 1; }

/// Raw input on the other screen; restored with the object.
class RawTerminal {
 public:
  RawTerminal() {
    tcgetattr(STDIN_FILENO, &before_);
    termios raw = before_;
    raw.c_lflag &= ~tcflag_t(ICANON | ECHO);
    raw.c_cc[VMIN] = 0, raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    write_out("\x1b[?1049h\x1b[?25l");
  }
  ~RawTerminal() {
    tcsetattr(STDIN_FILENO, TCSANOW, &before_);
    const char* back = "\x1b[?25h\x1b[?1049l";
    if (write(STDOUT_FILENO, back, 14) < 0) return;
  }
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

 private:
  termios before_{};
};

void window(int& width, int& height) {
  winsize w{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0;
  width = known ? w.ws_col : 80, height = known ? w.ws_row : 24;
}

/// One key, or "" after a while.
std::string read_key() {
  pollfd p{STDIN_FILENO, POLLIN, 0};
  if (poll(&p, 1, 250) <= 0) return {};
  char c[8] = {};
  const ssize_t n = read(STDIN_FILENO, c, sizeof c - 1);
  if (n <= 0) return "q";  // the terminal is gone
  const std::string s(c, std::size_t(n));
  if (s == "\x1b[A" || s == "k") return s == "k" ? "k" : "up";
  if (s == "\x1b[B") return "down";
  if (s == "\x1b") return "escape";
  if (s == "\n" || s == "\r") return "enter";
  if (s == "\t") return "tab";
  if (s == "\x7f" || s == "\b") return "backspace";
  return s;
}

profile::Tab tab_named(const std::string& word) {
  constexpr const char* words[] = {"roofline", "timeline", "kernel", "compare", "contract"};
  for (int i = 0; i < profile::kTabs; ++i)
    if (word == words[i]) return profile::Tab(i);
  throw ArgumentError(ErrorText{"--dump is roofline, timeline, kernel, compare or contract", {}, word, {}});
}

}  // namespace

int tui(const Context& context, const TuiOptions& o) {
  if (o.files.empty())
    throw ArgumentError(ErrorText{"profiles to look at are needed", {}, {}, "cgp tui a.json b.json"});
  profile::ScreenModel model;
  for (const auto& f : o.files) {
    const auto dot = f.rfind('.');
    const std::string kind = dot == std::string::npos ? "" : f.substr(dot);
    if (kind == ".yaml" || kind == ".yml")
      model.contracts.push_back(profile::parse_contract(read_file(f), f));
    else
      model.documents.push_back(profile::load_any(f));
  }
  if (model.documents.empty())
    throw ArgumentError(ErrorText{
        "profiles to look at are needed", {}, "only contracts were given", "cgp tui a.json rows.yaml"});
  profile::ScreenState state;
  int width = o.width, height = o.height;
  if (!o.dump.empty()) {
    state.tab = tab_named(o.dump);
    std::string out;
    for (const auto& line : profile::render(model, state, width > 0 ? width : context.width,
                                            height > 0 ? height : 30, context.color_out))
      out += line + "\n";
    write_out(out);
    return kClean;
  }
  if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
    throw Unsupported(
        ErrorText{"the tabs need a terminal", {}, "input or output is none", "--dump TAB prints one"});
  std::signal(SIGTERM, end);
  std::signal(SIGINT, end);
  const RawTerminal terminal;
  std::string shown;
  for (bool going = true; going && !g_ended;) {
    window(width, height);
    std::string screen = "\x1b[H";
    const auto lines = profile::render(model, state, width, height, true);
    for (std::size_t i = 0; i < lines.size(); ++i)
      screen += lines[i] + "\x1b[K" + (i + 1 < lines.size() ? "\r\n" : "");
    if (screen != shown) write_out(shown = screen);
    const std::string key = read_key();
    if (key.empty()) continue;
    going = profile::press(state, model, key);
    if (key == "e" && !state.typing) {
      profile::save(model.documents.back(), "cgp-export.json");
      state.message = "wrote cgp-export.json";
    }
  }
  return kClean;
}

}  // namespace cgp::cli
