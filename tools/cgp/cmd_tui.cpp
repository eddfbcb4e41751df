// SPDX-License-Identifier: Apache-2.0
// cgp tui: profiles in a terminal. What is on the screen comes from profile/screen.h; here is the terminal.
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <utility>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/profile/collect/program.h"
#include "cgp/profile/import/import.h"
#include "cgp/profile/kernel/kernel_profile.h"
#include "cgp/profile/view/screen.h"
#include "tools/cgp/profiler_commands.h"
#include "tools/cgp/terminal.h"

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

/// Keys one by one, also of several that arrive together.
class Keys {
 public:
  /// The next one, or "" after a while.
  std::string next() {
    if (waiting_.empty()) {
      pollfd p{STDIN_FILENO, POLLIN, 0};
      if (poll(&p, 1, 250) <= 0) return {};
      char c[64];
      const ssize_t n = read(STDIN_FILENO, c, sizeof c);
      if (n <= 0) return "q";  // the terminal is gone
      waiting_.assign(c, std::size_t(n));
    }
    for (const auto& [code, name] : kSequences)
      if (waiting_.rfind(code, 0) == 0) {
        waiting_.erase(0, code.size());
        return std::string(name);
      }
    const char c = waiting_[0];
    if (c == '\x1b' && waiting_.size() > 1) {  // a key that means nothing here
      waiting_.clear();
      return {};
    }
    waiting_.erase(0, 1);
    return c == '\x1b'                ? "escape"
           : c == '\n' || c == '\r'   ? "enter"
           : c == '\t'                ? "tab"
           : c == '\x7f' || c == '\b' ? "backspace"
                                      : std::string(1, c);
  }

 private:
  static constexpr std::pair<std::string_view, std::string_view> kSequences[] = {
      {"\x1b[A", "up"}, {"\x1b[B", "down"}, {"\x1bOA", "up"}, {"\x1bOB", "down"}};
  std::string waiting_;
};

/// What the profile is of, measured now.
profile::Document measured_again(const profile::Document& d) {
  if (d.kind == "kernel") {
    profile::KernelProfileOptions k;
    k.kernel = d.name, k.settings = d.command;
    k.device = d.machine.at("device").at("spec").get<std::string>();
    return profile::profile_catalogue_kernel(k);
  }
  if ((d.kind != "binary" && d.kind != "python") || d.command.empty())
    throw Unsupported(ErrorText{"only profiles of kernels and programs can be measured again", {}, "", {}});
  const auto run = profile::run_program(d.command, {});
  auto again = profile::document_of(run.timeline, d.kind, d.name, d.command);
  again.metrics.merge(run.metrics);
  again.samples = {{"wall", "us", {run.process.wall_seconds * 1e6}}};
  return again;
}

/// e and r: what goes beyond the screen. What happened, for the last line.
std::string done_for(const std::string& key, profile::ScreenModel& model) {
  try {
    if (key == "r") {
      model.documents.push_back(measured_again(model.documents.back()));
      return "measured again: 4 compares the first profile with the others";
    }
    profile::save(model.documents.back(), "cgp-export.json");
    const std::string picture = profile::roofline_picture(model);
    if (picture.empty()) return "wrote cgp-export.json";
    write_file("cgp-export.svg", picture);
    return "wrote cgp-export.json and cgp-export.svg";
  } catch (const Error& e) {
    return text::cat(e.rule(), e.why().empty() ? "" : ": ", e.why());
  }
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
  if (const char* term = std::getenv("TERM"); term && std::string(term) == "dumb")
    throw Unsupported(
        ErrorText{"the tabs need a terminal with a cursor", {}, "TERM is dumb", "--dump TAB prints one"});
  std::signal(SIGTERM, end);
  std::signal(SIGINT, end);
  const RawTerminal terminal;
  std::string shown;
  Keys keys;
  const auto show = [&] {
    window(width, height);
    std::string screen = "\x1b[H";
    const auto lines = profile::render(model, state, width, height, context.color_out);
    for (std::size_t i = 0; i < lines.size(); ++i)
      screen += lines[i] + "\x1b[K" + (i + 1 < lines.size() ? "\r\n" : "");
    if (screen != shown) write_out(shown = screen);
  };
  for (bool going = true; going && !g_ended;) {
    show();
    const std::string key = keys.next();
    if (key.empty()) continue;
    const bool typing = state.typing;
    going = profile::press(state, model, key);
    if (typing || (key != "e" && key != "r")) continue;
    state.message = key == "r" ? "measuring ..." : "";
    show();
    state.message = done_for(key, model);
  }
  return kClean;
}

}  // namespace cgp::cli
