// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/measure/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdlib>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/measure/measure.h"
#include "cgp/profile/measure/pipe.h"

namespace cgp::measure {
namespace {

/// The first and the last half of a stream.
class Kept {
 public:
  explicit Kept(std::size_t limit) : half_(limit / 2) {}
  void add(const char* data, std::size_t n) {
    const std::size_t to_head = std::min(n, half_ - std::min(half_, head_.size()));
    head_.append(data, to_head);
    tail_.append(data + to_head, n - to_head);
    if (tail_.size() > 2 * half_) {
      left_out_ += tail_.size() - half_;
      tail_.erase(0, tail_.size() - half_);
    }
  }
  std::string text() const {
    return left_out_ ? text::cat(head_, "\n... ", left_out_, " bytes left out ...\n", tail_) : head_ + tail_;
  }

 private:
  std::size_t half_, left_out_ = 0;
  std::string head_, tail_;
};

double seconds_of(const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); }

/// While a program runs, Ctrl-C and the like are for it: it has a group of its own, so that the terminal does
/// not tell it, and what it did until then is still wanted. The second time it is ended for good.
class Interruptions {
 public:
  Interruptions() : before_(group_.exchange(0)), told_before_(told_.exchange(0)) {
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      sigaction(kSignals[i], nullptr, &old_[i]);
      if (old_[i].sa_handler != SIG_DFL) continue;  // ignored under nohup; or somebody else's
      struct sigaction pass {};
      pass.sa_handler = forward;
      sigaction(kSignals[i], &pass, nullptr);
    }
  }
  ~Interruptions() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &old_[i], nullptr);
    group_ = before_, told_ = told_before_;
  }
  Interruptions(const Interruptions&) = delete;
  Interruptions& operator=(const Interruptions&) = delete;
  static bool happened() { return told_ > 0; }
  void are_for(pid_t group) {
    group_ = group;
    if (happened()) kill(-group, SIGTERM);
  }

 private:
  static void forward(int signal) {
    const bool again = told_.fetch_add(1) > 0;
    const pid_t group = group_;
    if (!group) return;
    kill(-group, again ? SIGKILL : signal);
    kill(-group, SIGCONT);  // one that was stopped would never hear of it
  }
  static constexpr std::array<int, 3> kSignals{SIGINT, SIGTERM, SIGHUP};
  static inline std::atomic<pid_t> group_{0};
  static inline std::atomic<int> told_{0};
  pid_t before_;
  int told_before_;
  std::array<struct sigaction, 3> old_{};
};

/// Readable when the process has ended; -1 before Linux 5.3.
int end_of(pid_t child) {
#ifdef SYS_pidfd_open
  return int(syscall(SYS_pidfd_open, child, 0));
#else
  return -1;
#endif
}

[[noreturn]] void become(const std::vector<std::string>& command, const ProcessOptions& options, int out,
                         int err, int failure) {
  setpgid(0, 0);                     // a time-out ends what it started, too
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody is left to wait for it
  const int nothing = open("/dev/null", O_RDWR);
  dup2(nothing, STDIN_FILENO);
  if (options.discard || options.capture) {
    dup2(options.discard ? nothing : out, STDOUT_FILENO);
    dup2(options.discard ? nothing : err, STDERR_FILENO);
  }
  for (const auto& [key, value] : options.environment)
    value.empty() ? unsetenv(key.c_str()) : setenv(key.c_str(), value.c_str(), 1);
  std::vector<char*> words;
  for (const auto& w : command) words.push_back(const_cast<char*>(w.c_str()));
  words.push_back(nullptr);
  if (options.folder.empty() || chdir(options.folder.c_str()) == 0) execvp(words[0], words.data());
  const int reason = errno;
  if (write(failure, &reason, sizeof reason) < 0) _exit(126);
  _exit(127);
}

}  // namespace

std::string ProcessResult::describe() const {
  if (interrupted) return "interrupted";
  if (timed_out) return text::cat("timed out after ", double(int(wall_seconds * 10)) / 10, " s");
  if (signal) {
    const char* abbreviation = sigabbrev_np(signal);
    return abbreviation ? text::cat("SIG", abbreviation) : text::cat("signal ", signal);
  }
  return text::cat("exit code ", exit_code);
}

ProcessResult run_process(const std::vector<std::string>& command, const ProcessOptions& options) {
  if (command.empty()) throw ArgumentError("a program to run is needed");
  Pipe out, err, failure;
  Interruptions interruptions;
  const double start = now();
  const pid_t child = fork();
  if (child < 0) throw Error(text::cat("no process could be started: ", strerror(errno)));
  if (child == 0) become(command, options, out.write, err.write, failure.write);
  setpgid(child, child);  // whoever comes first
  interruptions.are_for(child);
  out.close_write(), err.close_write(), failure.close_write();
  int reason = 0;
  if (read(failure.read, &reason, sizeof reason) == sizeof reason) {
    waitpid(child, nullptr, 0);
    throw Error({"the program must be one that can be run", command[0], strerror(reason), {}});
  }
  ProcessResult r;
  Kept kept_out(options.keep_bytes), kept_err(options.keep_bytes);
  std::array<char, 65536> chunk;
  double killed_at = 0, next_watch = start + options.watch_seconds, ended = 0;
  rusage usage{};
  int status = 0, end = end_of(child);
  // The end is an event. To look for it every few milliseconds would round times up to them.
  const double tick = end >= 0 ? 3600 : 0.001;
  for (bool running = true; running || out.read >= 0 || err.read >= 0;) {
    std::array<pollfd, 3> fds{
        {{out.read, POLLIN, 0}, {err.read, POLLIN, 0}, {running ? end : -1, POLLIN, 0}}};
    double wait = running ? tick : 0.05;
    if (running && options.watch) wait = std::min(wait, next_watch - now());
    if (running && options.timeout_seconds > 0)
      wait = std::min(wait, (killed_at ? killed_at + 1 : start + options.timeout_seconds) - now());
    // One that stops itself just after it was told would never hear of it: it is woken until it ends.
    if (running && Interruptions::happened()) wait = std::min(wait, 0.05), kill(-child, SIGCONT);
    const int ready = poll(fds.data(), fds.size(), std::max(0, int(std::ceil(wait * 1000))));
    const double time = now();
    if (running && (end < 0 || fds[2].revents) && wait4(child, &status, WNOHANG, &usage) == child)
      running = false, ended = time;
    for (int i = 0; i < 2; ++i) {
      Pipe& pipe = i ? err : out;
      if (pipe.read < 0 || !(fds[std::size_t(i)].revents & (POLLIN | POLLHUP))) continue;
      const ssize_t n = read(pipe.read, chunk.data(), chunk.size());
      if (n > 0)
        (i ? kept_err : kept_out).add(chunk.data(), std::size_t(n));
      else if (n == 0 || errno != EINTR)
        pipe.close_read();
    }
    // A grandchild may hold the pipes open for ever; what it writes later is not waited for.
    if (!running && (ready == 0 || time - ended > 1)) break;
    if (!running) continue;
    if (options.watch && time >= next_watch) {
      options.watch(child);
      next_watch = now() + std::max(options.watch_seconds, 100 * (now() - time));  // at most 1 % of the time
    }
    if (options.timeout_seconds > 0 && !killed_at && time - start > options.timeout_seconds)
      kill(-child, SIGTERM), killed_at = time, r.timed_out = true;
    if (killed_at && time - killed_at > 1) kill(-child, SIGKILL);
  }
  if (end >= 0) close(end);
  r.interrupted = Interruptions::happened();
  r.wall_seconds = ended - start;
  r.user_seconds = seconds_of(usage.ru_utime);
  r.system_seconds = seconds_of(usage.ru_stime);
  r.peak_rss_bytes = std::uint64_t(usage.ru_maxrss) * 1024;
  r.minor_faults = std::uint64_t(usage.ru_minflt), r.major_faults = std::uint64_t(usage.ru_majflt);
  r.voluntary_switches = std::uint64_t(usage.ru_nvcsw);
  r.involuntary_switches = std::uint64_t(usage.ru_nivcsw);
  if (WIFEXITED(status)) r.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) r.signal = WTERMSIG(status);
  r.out = kept_out.text(), r.err = kept_err.text();
  return r;
}

std::vector<std::string> split_command(const std::string& text) {
  std::vector<std::string> out;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote == '\'') {
      c == '\'' ? void(quote = 0) : word.push_back(c);
    } else if (c == '\\' && i + 1 < text.size() &&
               (!quote || text[i + 1] == '"' || text[i + 1] == '\\' || text[i + 1] == '$')) {
      word.push_back(text[++i]), in_word = true;
    } else if (quote) {
      c == quote ? void(quote = 0) : word.push_back(c);
    } else if (c == '\'' || c == '"') {
      quote = c, in_word = true;
    } else if (c == ' ' || c == '\t' || c == '\n') {
      if (in_word) out.push_back(std::move(word)), word.clear();
      in_word = false;
    } else {
      word.push_back(c), in_word = true;
    }
  }
  if (quote) throw ArgumentError({"quotes in a command are closed", {}, text, {}});
  if (in_word) out.push_back(std::move(word));
  return out;
}

std::string join_command(const std::vector<std::string>& words) {
  std::string out;
  for (const auto& w : words) {
    if (!out.empty()) out += ' ';
    const bool plain = !w.empty() && w.find_first_of(" \t\n'\"\\$`|&;<>()*?[]{}~#!") == std::string::npos;
    if (plain) {
      out += w;
      continue;
    }
    out += '\'';
    for (char c : w) c == '\'' ? out += "'\\''" : out += c;
    out += '\'';
  }
  return out;
}

}  // namespace cgp::measure
