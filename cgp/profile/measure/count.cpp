// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/measure/count.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/profile/measure/measure.h"
#include "cgp/profile/measure/process.h"

namespace cgp::measure {
namespace {

/// What the classification needs of an x86 instruction.
struct Decoded {
  std::uint8_t opcode = 0;
  int map = 0;        ///< 0 one byte, 1 0F, 2 0F38, 3 0F3A
  int prefix = 0;     ///< 0 none, 1 66, 2 F3, 3 F2
  bool wide = false;  ///< VEX.W
  int width = 0;      ///< vector bits; 0: no vector instruction
  bool vex = false;
};

Decoded decode(const std::uint8_t* p) {
  Decoded d;
  for (;; ++p) {
    if (*p == 0x66)
      d.prefix = std::max(d.prefix, 1);
    else if (*p == 0xF3)
      d.prefix = 2;
    else if (*p == 0xF2)
      d.prefix = 3;
    else if (*p != 0x2E && *p != 0x3E && *p != 0x36 && *p != 0x26 && *p != 0x64 && *p != 0x65 && *p != 0xF0)
      break;
  }
  if (*p == 0xC5) {
    d.vex = true, d.map = 1, d.prefix = p[1] & 3, d.width = p[1] & 4 ? 256 : 128, d.opcode = p[2];
  } else if (*p == 0xC4) {
    d.vex = true, d.map = p[1] & 31, d.wide = p[2] & 0x80, d.prefix = p[2] & 3;
    d.width = p[2] & 4 ? 256 : 128, d.opcode = p[3];
  } else if (*p == 0x62) {
    d.vex = true, d.map = p[1] & 7, d.wide = p[2] & 0x80, d.prefix = p[2] & 3;
    d.width = 128 << std::min((p[3] >> 5) & 3, 2), d.opcode = p[4];
  } else {
    if ((*p & 0xF0) == 0x40) d.wide = *p & 8, ++p;
    if (*p != 0x0F) {
      d.opcode = *p;
      return d;
    }
    ++p, d.map = 1;
    if (*p == 0x38 || *p == 0x3A) d.map = *p == 0x38 ? 2 : 3, ++p;
    d.opcode = *p;
    // SSE's share of the 0F map; the rest are jumps, sets, bit and string operations.
    const bool sse = d.map > 1 || (d.opcode >= 0x10 && d.opcode <= 0x17) ||
                     (d.opcode >= 0x28 && d.opcode <= 0x2F) || (d.opcode >= 0x50 && d.opcode <= 0x7F) ||
                     d.opcode >= 0xD0;
    if (sse) d.width = 128;
  }
  // VEX's prefix field orders 66, F3, F2 as we do.
  return d;
}

bool is_arithmetic(std::uint8_t opcode) {
  return opcode == 0x51 || opcode == 0x58 || opcode == 0x59 || (opcode >= 0x5C && opcode <= 0x5F);
}
bool is_fma(const Decoded& d) {
  const int low = d.opcode & 15, high = d.opcode >> 4;
  return d.vex && d.map == 2 && d.prefix == 1 && (high == 9 || high == 10 || high == 11) && low >= 6;
}

void add_floating(InstructionMix& mix, int width, bool real64, std::uint64_t n) {
  auto& w = width == 0 ? mix.scalar : width == 128 ? mix.v128 : width == 256 ? mix.v256 : mix.v512;
  (real64 ? w.real64 : w.single) += n;
}

InstructionMix minus(InstructionMix a, const InstructionMix& b) {
  const auto take = [](std::uint64_t& x, std::uint64_t y) { x -= std::min(x, y); };
  take(a.instructions, b.instructions), take(a.branches, b.branches);
  take(a.loads_or_stores, b.loads_or_stores), take(a.vector_other, b.vector_other);
  for (auto w :
       {&InstructionMix::scalar, &InstructionMix::v128, &InstructionMix::v256, &InstructionMix::v512})
    take((a.*w).single, (b.*w).single), take((a.*w).real64, (b.*w).real64);
  return a;
}

[[noreturn]] void not_permitted(const std::string& why) {
  throw Unsupported({"counting by single steps needs ptrace",
                     {},
                     why,
                     "allow it (containers: --cap-add=SYS_PTRACE), or use callgrind"});
}

#if defined(__x86_64__)
/// Waits for the child's next stop: its signal, or 0 when it ended.
int next_stop(pid_t child) {
  int status = 0;
  pid_t got;
  while ((got = waitpid(child, &status, 0)) < 0 && errno == EINTR) {
  }
  return got == child && WIFSTOPPED(status) ? WSTOPSIG(status) : 0;
}
/// Whether the child stopped with raise(SIGSTOP), which is how our own code says where it begins and ends.
/// Others may send that signal, too: a shell, a debugger.
bool raised_stop(pid_t child) {
  siginfo_t info{};
  return !ptrace(PTRACE_GETSIGINFO, child, nullptr, &info) && info.si_code == SI_TKILL &&
         info.si_pid == child;
}

/// Steps the stopped child until it ends, the limit is reached, or (own_code) it raises SIGSTOP.
InstructionMix step(pid_t child, std::uint64_t limit, bool own_code, double seconds = 1e9,
                    const StepProgress& progress = {}) {
  InstructionMix mix;
  const double start = now();
  double told = 0;
  bool done = false;
  while (!done && mix.instructions < limit) {
    user_regs_struct registers{};
    if (ptrace(PTRACE_GETREGS, child, nullptr, &registers)) break;
    if (mix.instructions % 4096 == 4095) {
      const double since = now() - start;
      if (progress && since - told > 0.5) progress(mix.instructions, told = since);
      if (since > seconds) {
        mix.truncated = true;
        break;
      }
    }
    if (own_code) {
      classify(reinterpret_cast<const std::uint8_t*>(registers.rip), mix);
    } else {
      std::uint8_t code[16] = {};
      iovec here{code, sizeof code}, there{reinterpret_cast<void*>(registers.rip), sizeof code};
      if (process_vm_readv(child, &here, 1, &there, 1, 0) <= 0) {
        there.iov_len = 4096 - registers.rip % 4096;  // the last instruction of a page
        process_vm_readv(child, &here, 1, &there, 1, 0);
      }
      classify(code, mix);
    }
    // A signal comes before the instruction, which the step that delivers it then executes. Signals are the
    // program's own business (single steps count the handler, too), but a stop would be ours to end.
    for (int signal = 0; !done;) {
      if (ptrace(PTRACE_SINGLESTEP, child, nullptr, long(signal))) done = true;
      signal = done ? SIGTRAP : next_stop(child);
      if (signal == 0) return mix;
      if (signal == SIGTRAP) break;
      if (signal != SIGSTOP) continue;
      done = own_code && raised_stop(child);
      signal = 0;
    }
  }
  mix.truncated |= mix.instructions >= limit;
  kill(child, SIGKILL);
  while (next_stop(child)) {
  }
  return mix;
}

InstructionMix step_fork(const std::function<void()>& f, std::uint64_t limit) {
  const pid_t child = fork();
  if (child < 0) not_permitted(std::strerror(errno));
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr)) _exit(125);
    raise(SIGSTOP);
    f();
    raise(SIGSTOP);
    _exit(0);
  }
  for (;;) {
    const int signal = next_stop(child);
    if (signal == SIGSTOP && raised_stop(child)) break;
    if (!signal || ptrace(PTRACE_CONT, child, nullptr, long(signal == SIGSTOP ? 0 : signal)))
      not_permitted("the child could not be traced");
  }
  return step(child, limit, true);
}
#endif

}  // namespace

std::uint64_t InstructionMix::floating() const {
  std::uint64_t sum = 0;
  for (const Width* w : {&scalar, &v128, &v256, &v512}) sum += w->single + w->real64;
  return sum;
}

double InstructionMix::vector_percent() const {
  const std::uint64_t all = floating();
  return all ? 100.0 * double(all - scalar.single - scalar.real64) / double(all) : 0;
}

void InstructionMix::add_to(MetricSet& into, const std::string& from) const {
  const auto put = [&](Metric m, std::uint64_t v) { into.set(m, double(v), Source::counted, from); };
  put(Metric::instructions, instructions);
  put(Metric::branches, branches);
  put(Metric::fp_arith_scalar_single, scalar.single);
  put(Metric::fp_arith_128b_packed_single, v128.single);
  put(Metric::fp_arith_256b_packed_single, v256.single);
  put(Metric::fp_arith_512b_packed_single, v512.single);
  if (floating())
    into.set(Metric::simd_utilization_pct, vector_percent(), Source::derived, from);
  else
    into.absent(Metric::simd_utilization_pct, "no floating-point arithmetic was executed");
}

void classify(const std::uint8_t* code, InstructionMix& mix) {
  ++mix.instructions;
  const Decoded d = decode(code);
  if (d.map == 0) {
    const bool jump = (d.opcode >= 0x70 && d.opcode <= 0x7F) || d.opcode == 0xE8 || d.opcode == 0xE9 ||
                      d.opcode == 0xEB || d.opcode == 0xC3 || d.opcode == 0xC2 ||
                      (d.opcode >= 0xE0 && d.opcode <= 0xE3);
    mix.branches += jump;
    return;
  }
  if (d.map == 1 && !d.vex && d.opcode >= 0x80 && d.opcode <= 0x8F) {
    ++mix.branches;
    return;
  }
  if (d.map == 1 && d.width && is_arithmetic(d.opcode)) {
    add_floating(mix, d.prefix >= 2 ? 0 : d.width, d.prefix == 1 || d.prefix == 3, 1);
  } else if (is_fma(d)) {
    const bool scalar = (d.opcode & 15) >= 9 && (d.opcode & 1);
    add_floating(mix, scalar ? 0 : d.width, d.wide, 2);
  } else if (d.width) {
    ++mix.vector_other;
  }
}

InstructionMix step_function(const std::function<void()>& f, std::uint64_t limit) {
#if defined(__x86_64__)
  const InstructionMix frame = step_fork([] {}, limit);
  return minus(step_fork(f, limit), frame);
#else
  throw Unsupported("single steps are decoded for x86-64 only");
#endif
}

InstructionMix step_program(const std::vector<std::string>& command, std::uint64_t limit, double seconds,
                            const StepProgress& progress) {
#if defined(__x86_64__)
  const std::string path = command.empty() ? "" : find_program(command[0]);
  if (path.empty())
    throw Error(
        {"the program must be one that can be run", command.empty() ? "" : command[0], "not found", {}});
  const pid_t child = fork();
  if (child < 0) not_permitted(std::strerror(errno));
  if (child == 0) {
    personality(ADDR_NO_RANDOMIZE);  // the same count every time
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDOUT_FILENO), dup2(nowhere, STDERR_FILENO);
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr)) _exit(125);
    std::vector<char*> words;
    for (const auto& w : command) words.push_back(const_cast<char*>(w.c_str()));
    words.push_back(nullptr);
    execv(path.c_str(), words.data());
    _exit(126);
  }
  while (const int signal = next_stop(child)) {
    if (signal == SIGTRAP) return step(child, limit, false, seconds, progress);  // exec
    if (ptrace(PTRACE_CONT, child, nullptr, long(signal == SIGSTOP ? 0 : signal))) break;
  }
  not_permitted("the program could not be traced");
#else
  throw Unsupported("single steps are decoded for x86-64 only");
#endif
}

CallgrindCounts callgrind(const std::vector<std::string>& command, bool model, const std::string& function) {
  const std::string valgrind = find_program("valgrind");
  if (valgrind.empty())
    throw Unsupported(
        {"counting instructions needs valgrind", {}, "it is not on PATH", "apt install valgrind"});
  const std::string out =
      (std::filesystem::temp_directory_path() / text::cat("cgp-callgrind-", getpid())).string();
  std::vector<std::string> all{valgrind, "--tool=callgrind", "--callgrind-out-file=" + out};
  if (model) all.insert(all.end(), {"--cache-sim=yes", "--branch-sim=yes"});
  if (!function.empty()) all.insert(all.end(), {"--collect-atstart=no", "--toggle-collect=" + function});
  all.insert(all.end(), command.begin(), command.end());
  ProcessOptions options;
  // The environment moves the stack, and libraries choose code by the processor: both held still.
  options.environment = {{"GLIBC_TUNABLES", "glibc.cpu.x86_rep_movsb_threshold=2048"}};
  const ProcessResult r = run_process(all, options);
  CallgrindCounts c;
  std::string file;
  try {
    file = read_file(out);
  } catch (const Error&) {
    throw Error({"the program must run under callgrind", join_command(command), r.describe(),
                 "callgrind cannot execute AVX-512: use --count step"});
  }
  std::filesystem::remove(out);
  if (r.signal == SIGILL)
    throw Error({"the program must run under callgrind", join_command(command), "SIGILL",
                 "callgrind cannot execute AVX-512: use --count step"});
  std::vector<std::string> names;
  for (auto line : text::split(file, '\n')) {
    const auto value_of = [&](std::string_view key) { return line.substr(key.size()); };
    if (line.rfind("creator: ", 0) == 0) c.version = std::string(value_of("creator: "));
    if (line.rfind("events: ", 0) == 0)
      for (auto w : text::split(value_of("events: "), ' ')) names.emplace_back(w);
    if (line.rfind("totals: ", 0) == 0 || line.rfind("summary: ", 0) == 0) {
      std::size_t i = 0;
      for (auto w : text::split(line.substr(line.find(' ') + 1), ' ')) {
        std::uint64_t v = 0;
        std::from_chars(w.data(), w.data() + w.size(), v);
        if (i < names.size()) c.events[names[i++]] = v;
      }
    }
  }
  if (!c.events.count("Ir"))
    throw Error({"callgrind must have counted instructions", out, r.describe(),
                 function.empty() ? "" : text::cat("does the program have a function ", function, "?")});
  c.instructions = c.events["Ir"];
  return c;
}

void add_callgrind(const CallgrindCounts& c, MetricSet& into) {
  const auto event = [&](const char* name) {
    const auto at = c.events.find(name);
    return at == c.events.end() ? 0.0 : double(at->second);
  };
  into.set(Metric::instructions, double(c.instructions), Source::counted, c.version);
  if (c.events.count("Bc")) {
    into.set(Metric::branches, event("Bc") + event("Bi"), Source::counted, c.version);
    into.set(Metric::branch_misses, event("Bcm") + event("Bim"), Source::simulated,
             c.version + " predictor model");
  }
  if (c.events.count("D1mr")) {
    const std::string from = c.version + " cache model";
    into.set(Metric::cache_references, event("Dr") + event("Dw"), Source::simulated, from);
    into.set(Metric::l1_dcache_load_misses, event("D1mr"), Source::simulated, from);
    into.set(Metric::llc_loads, event("D1mr"), Source::simulated, from);
    into.set(Metric::cache_misses, event("DLmr") + event("DLmw"), Source::simulated, from);
  }
}

}  // namespace cgp::measure
