// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/counters/system_calls.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/measure/measure.h"
#include "cgp/profile/measure/pipe.h"

namespace cgp::measure {
namespace {

struct SystemCallEntry {
  int number;
  const char* name;
  int files;
  Moves moves;
};
constexpr SystemCallEntry kSystemCalls[] = {
#define CGP_SYSTEM_CALL(number, name, files, moves) {number, #name, files, Moves(moves)},
#include "cgp/profile/counters/system_calls.def"
#undef CGP_SYSTEM_CALL
};

const SystemCallEntry* entry_of(int number) {
  const auto at = std::lower_bound(std::begin(kSystemCalls), std::end(kSystemCalls), number,
                                   [](const SystemCallEntry& e, int n) { return e.number < n; });
  return at != std::end(kSystemCalls) && at->number == number ? at : nullptr;
}

[[noreturn]] void tracing_refused(const std::string& why) {
  throw Unsupported({"following system calls needs ptrace",
                     {},
                     why,
                     "allow it (containers: --cap-add=SYS_PTRACE; Yama: sysctl kernel.yama.ptrace_scope)"});
}

#if defined(__x86_64__)
constexpr unsigned kX86_64 = 0xC000003E;  // AUDIT_ARCH_X86_64
// What the kernel uses inside to say "to be begun again": ERESTARTSYS to ERESTART_RESTARTBLOCK.
bool begins_again(std::int64_t result) { return result <= -512 && result >= -516; }

/// A text of another process; what cannot be read ends it.
std::string text_at(pid_t task, std::uint64_t address) {
  std::string out;
  while (address && out.size() < 4096) {
    char part[256];
    iovec here{part, std::min<std::size_t>(sizeof part, 4096 - address % 4096)};
    iovec there{reinterpret_cast<void*>(address), here.iov_len};
    const ssize_t n = process_vm_readv(task, &here, 1, &there, 1, 0);
    if (n <= 0) break;
    const std::size_t end = strnlen(part, std::size_t(n));
    out.append(part, end);
    if (end < std::size_t(n)) break;
    address += std::uint64_t(n);
  }
  return out;
}

/// Ends all tasks when the time is up: they cannot be waited for with a limit.
class Deadline {
 public:
  explicit Deadline(double seconds) {
    if (seconds > 0) thread_ = std::thread([this, seconds] { run(seconds); });
  }
  ~Deadline() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  void add(pid_t task) {
    const std::lock_guard lock(mutex_);
    passed_ ? void(kill(task, SIGKILL)) : void(tasks_.insert(task));
  }
  void remove(pid_t task) {
    const std::lock_guard lock(mutex_);
    tasks_.erase(task);
  }
  bool passed() {
    const std::lock_guard lock(mutex_);
    return passed_;
  }

 private:
  void run(double seconds) {
    std::unique_lock lock(mutex_);
    if (wake_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return done_; })) return;
    passed_ = true;
    for (pid_t task : tasks_) kill(task, SIGKILL);
  }
  std::mutex mutex_;
  std::condition_variable wake_;
  std::set<pid_t> tasks_;
  bool done_ = false, passed_ = false;
  std::thread thread_;
};

class Follower {
 public:
  Follower(pid_t program, const SystemCallOptions& options)
      : program_(program), deadline_(options.timeout_seconds) {
    constexpr long kFollow = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
                             PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SEIZE, program, nullptr, kFollow) ||
        ptrace(PTRACE_INTERRUPT, program, nullptr, nullptr)) {
      const std::string why = strerror(errno);
      kill(program, SIGKILL);
      waitpid(program, nullptr, 0);
      tracing_refused(why);
    }
    add(program, "0");
  }

  /// To the end of all; `release` lets the program begin, once its first stop has been seen.
  void run(const std::function<void()>& release) {
    bool waiting = true;
    while (!tasks_.empty()) {
      int status = 0;
      rusage usage{};
      const pid_t task = wait4(-1, &status, __WALL | __WNOTHREAD, &usage);
      if (task < 0 && errno == EINTR) continue;
      if (task < 0) break;
      if (WIFSTOPPED(status)) {
        stopped(task, status);
        if (waiting) release(), waiting = false;
      } else {
        ended(task, status, usage);
      }
    }
    trace_.process.timed_out = deadline_.passed();
  }

  SystemCallTrace result() { return std::move(trace_); }

 private:
  struct Task {
    std::size_t index = 0;
    bool inside = false;  ///< its last call has not returned
    int processes = 0, threads = 0;
  };

  void add(pid_t pid, std::string id) {
    tasks_[pid].index = trace_.tasks.size();
    trace_.tasks.push_back({std::move(id), {}});
    deadline_.add(pid);
  }
  std::vector<SystemCall>& calls_of(const Task& t) { return trace_.tasks[t.index].calls; }
  void go_on(pid_t pid, int signal = 0) { ptrace(PTRACE_SYSCALL, pid, nullptr, long(signal)); }

  void stopped(pid_t pid, int status) {
    const int signal = WSTOPSIG(status), event = status >> 16;
    const auto at = tasks_.find(pid);
    if (at == tasks_.end()) {  // its parent has not told of it yet
      early_.insert(pid);
      return;
    }
    if (event == PTRACE_EVENT_STOP) {
      const bool group = signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
      group ? void(ptrace(PTRACE_LISTEN, pid, nullptr, nullptr)) : go_on(pid);
    } else if (event == PTRACE_EVENT_CLONE || event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK) {
      begun(pid, event);
      go_on(pid);
    } else if (event == PTRACE_EVENT_EXEC) {
      replaced(pid);
      go_on(pid);
    } else if (signal == (SIGTRAP | 0x80)) {
      called(pid, at->second);
      go_on(pid);
    } else {
      go_on(pid, event ? 0 : signal);
    }
  }

  void begun(pid_t parent, int event) {
    unsigned long message = 0;
    ptrace(PTRACE_GETEVENTMSG, parent, nullptr, &message);
    const pid_t child = pid_t(message);
    Task& p = tasks_[parent];
    // A clone event is a thread when it shares the thread group, which /proc tells of both alike.
    const bool thread = event == PTRACE_EVENT_CLONE &&
                        access(text::cat("/proc/", parent, "/task/", child).c_str(), F_OK) == 0;
    const std::string id =
        text::cat(trace_.tasks[p.index].id, thread ? ":" : ".", thread ? ++p.threads : ++p.processes);
    add(child, id);
    if (early_.erase(child)) go_on(child);
  }

  /// A new program. Called from another thread than the first, that thread takes the place of the first,
  /// which is gone.
  void replaced(pid_t pid) {
    unsigned long former = 0;
    ptrace(PTRACE_GETEVENTMSG, pid, nullptr, &former);
    if (pid_t(former) != pid && tasks_.count(pid_t(former))) {
      tasks_[pid] = tasks_[pid_t(former)];
      tasks_.erase(pid_t(former));
      deadline_.remove(pid_t(former));
    }
    if (pid == program_ && !recording_) {
      recording_ = true;
      record(tasks_[pid], exec_number_, {exec_file_});
    }
  }

  void record(Task& t, int number, std::vector<std::string> files) {
    calls_of(t).push_back({number, std::move(files), 0, false});
    t.inside = true;
  }

  void called(pid_t pid, Task& t) {
    __ptrace_syscall_info info{};
    const long got = ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info);
    if (got <= 0) return;  // killed meanwhile
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
      const int number = info.arch == kX86_64 ? int(info.entry.nr) : -1 - int(info.entry.nr);
      std::vector<std::string> files;
      if (const auto* e = entry_of(number))
        for (unsigned i = 0; i < 6; ++i)
          if (e->files >> i & 1) files.push_back(text_at(pid, info.entry.args[i]));
      if (recording_)
        record(t, number, std::move(files));
      else
        exec_number_ = number, exec_file_ = files.empty() ? "" : files[0];
    } else if (info.op == PTRACE_SYSCALL_INFO_EXIT && t.inside) {
      t.inside = false;
      auto& call = calls_of(t).back();
      call.result = info.exit.rval, call.returned = true;
      if (begins_again(call.result)) calls_of(t).pop_back();
    }
  }

  void ended(pid_t pid, int status, const rusage& usage) {
    if (pid == program_) {
      auto& p = trace_.process;
      if (WIFEXITED(status)) p.exit_code = WEXITSTATUS(status);
      if (WIFSIGNALED(status)) p.signal = WTERMSIG(status);
      p.peak_rss_bytes = std::uint64_t(usage.ru_maxrss) * 1024;
    }
    tasks_.erase(pid);
    deadline_.remove(pid);
  }

  pid_t program_;
  Deadline deadline_;
  SystemCallTrace trace_;
  std::map<pid_t, Task> tasks_;
  std::set<pid_t> early_;
  bool recording_ = false;
  int exec_number_ = 0;  ///< of the call that is going on before the program runs
  std::string exec_file_;
};

[[noreturn]] void become_traced(const std::string& path, const std::vector<std::string>& command,
                                bool discard, int gate, int failure) {
  setpgid(0, 0);  // as run_process
  personality(ADDR_NO_RANDOMIZE);
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  if (discard) dup2(nothing, STDOUT_FILENO), dup2(nothing, STDERR_FILENO);
  std::vector<char*> words;
  for (const auto& w : command) words.push_back(const_cast<char*>(w.c_str()));
  words.push_back(nullptr);
  char go = 0;
  if (read(gate, &go, 1) == 1) execv(path.c_str(), words.data());
  const int reason = errno;
  if (write(failure, &reason, sizeof reason) < 0) _exit(126);
  _exit(127);
}
#endif

}  // namespace

std::string system_call_name(int number) {
  if (number < 0) return text::cat("i386 call ", -1 - number);
  const auto* e = entry_of(number);
  return e ? e->name : text::cat("call ", number);
}

std::string error_name(int error) {
  const char* name = strerrorname_np(error);
  return name ? name : text::cat("errno ", error);
}

Moves system_call_moves(int number) {
  const auto* e = entry_of(number);
  return e ? e->moves : Moves::nothing;
}

SystemCallTrace trace_system_calls(const std::vector<std::string>& command,
                                   const SystemCallOptions& options) {
  if (command.empty()) throw ArgumentError("a program to run is needed");
#if defined(__x86_64__)
  const std::string path = find_program(command[0]);
  if (path.empty()) throw Error({"the program must be one that can be run", command[0], "not found", {}});
  Pipe gate, failure;
  const double start = now();
  const pid_t child = fork();
  if (child < 0) throw Error(text::cat("no process could be started: ", strerror(errno)));
  if (child == 0) become_traced(path, command, options.discard, gate.read, failure.write);
  gate.close_read(), failure.close_write();
  Follower follower(child, options);
  follower.run([&] {
    if (write(gate.write, "g", 1) != 1) kill(child, SIGKILL);
  });
  int reason = 0;
  if (read(failure.read, &reason, sizeof reason) == sizeof reason)
    throw Error({"the program must be one that can be run", command[0], strerror(reason), {}});
  SystemCallTrace trace = follower.result();
  trace.process.wall_seconds = now() - start;
  return trace;
#else
  tracing_refused("the calls of this processor are not known");
#endif
}

}  // namespace cgp::measure
