// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/collect/misaligned.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/program.h"
#include "cgp/base/text.h"
#include "cgp/profile/measure/measure.h"

namespace cgp::profile {
namespace {

using fmt::format;

/// Prefixes of an instruction, as far as its operand in memory depends on them.
struct Prefix {
  bool vector = false, evex = false;  ///< VEX or EVEX
  int map = 0, bytes = 16;            ///< opcode map, bytes of a vector
  int r = 0, x = 0, b = 0;            ///< high bits of ModRM's and SIB's registers
  bool operand = false;               ///< 66
  char segment = 0;
  bool repeated = false;  ///< F2 or F3: scalars, which need no alignment
};

/// Moves `i` to the opcode; false for what is no vector instruction.
bool read_prefix(std::span<const std::uint8_t> c, std::size_t& i, Prefix& p) {
  for (; i < c.size(); ++i) {
    if (c[i] == 0x66)
      p.operand = true;
    else if (c[i] == 0xf2 || c[i] == 0xf3)
      p.repeated = true;
    else if (c[i] == 0x64)
      p.segment = 'f';
    else if (c[i] == 0x65)
      p.segment = 'g';
    else if (c[i] != 0x2e && c[i] != 0x36 && c[i] != 0x3e && c[i] != 0x26)
      break;
  }
  const auto pp = [&](std::uint8_t v) { p.operand |= (v & 3) == 1, p.repeated |= (v & 3) > 1; };
  if (i + 4 >= c.size()) return false;
  if (c[i] == 0xc5) {
    p.vector = true, p.map = 1, p.r = !(c[i + 1] & 0x80), p.bytes = c[i + 1] & 4 ? 32 : 16;
    pp(c[i + 1]);
    i += 2;
    return true;
  }
  if (c[i] == 0xc4) {
    p.vector = true, p.map = c[i + 1] & 31;
    p.r = !(c[i + 1] & 0x80), p.x = !(c[i + 1] & 0x40), p.b = !(c[i + 1] & 0x20);
    p.bytes = c[i + 2] & 4 ? 32 : 16;
    pp(c[i + 2]);
    i += 3;
    return true;
  }
  if (c[i] == 0x62) {
    p.vector = p.evex = true, p.map = c[i + 1] & 7;
    p.r = !(c[i + 1] & 0x80), p.x = !(c[i + 1] & 0x40), p.b = !(c[i + 1] & 0x20);
    p.bytes = 16 << (c[i + 3] >> 5 & 3);
    pp(c[i + 2]);
    i += 4;
    return true;
  }
  if ((c[i] & 0xf0) == 0x40) p.r = c[i] >> 2 & 1, p.x = c[i] >> 1 & 1, p.b = c[i] & 1, ++i;
  if (c[i] != 0x0f) return false;
  ++i;
  p.map = 1;
  if (c[i] == 0x38)
    p.map = 2, ++i;
  else if (c[i] == 0x3a)
    p.map = 3, ++i;
  return true;
}

struct Known {
  int map, opcode;
  bool operand, writes;
  const char* name;
};
constexpr Known kKnown[] = {{1, 0x28, false, false, "movaps"}, {1, 0x28, true, false, "movapd"},
                            {1, 0x29, false, true, "movaps"},  {1, 0x29, true, true, "movapd"},
                            {1, 0x2b, false, true, "movntps"}, {1, 0x2b, true, true, "movntpd"},
                            {1, 0x6f, true, false, "movdqa"},  {1, 0x7f, true, true, "movdqa"},
                            {1, 0xe7, true, true, "movntdq"},  {2, 0x2a, true, false, "movntdqa"}};

std::int64_t signed_at(std::span<const std::uint8_t> c, std::size_t i, int bytes) {
  std::int32_t v = 0;
  if (bytes == 1) return std::int8_t(c[i]);
  std::memcpy(&v, &c[i], 4);
  return v;
}

/// What runs there: functions and lines by addr2line where there is one, else the file and the distance.
std::vector<std::string> place_of(pid_t pid, std::uint64_t instruction) {
  std::string maps;
  try {
    maps = read_file(format("/proc/{}/maps", pid));
  } catch (const Error&) {
    return {format("{:#x}", instruction)};
  }
  for (std::string_view line : text::split(maps, '\n')) {
    unsigned long long begin = 0, end = 0, offset = 0;
    int at = 0;
    if (std::sscanf(std::string(line).c_str(), "%llx-%llx %*4s %llx %*s %*s %n", &begin, &end, &offset, &at) <
        3)
      continue;
    if (instruction < begin || instruction >= end) continue;
    const std::string object(text::trim(line.substr(std::size_t(at))));
    const std::uint64_t in_file = instruction - begin + offset;
    const std::string tool = find_program("addr2line");
    for (const std::uint64_t address :
         {in_file, std::uint64_t(instruction)}) {  // the latter for a program at a fixed place
      if (tool.empty() || object.empty()) break;
      const auto r =
          measure::run_process({tool, "-f", "-i", "-s", "-C", "-e", object, format("{:#x}", address)});
      const auto lines = text::split(text::trim(r.out), '\n');
      std::vector<std::string> where;
      for (std::size_t i = 0; r.ok() && i + 1 < lines.size() && lines[i] != "??"; i += 2)
        where.push_back(
            text::cat(lines[i], lines[i + 1].substr(0, 2) == "??" ? "" : text::cat(" at ", lines[i + 1])));
      if (!where.empty()) return where;
    }
    return {format("{}+{:#x}", std::filesystem::path(object).filename().string(), in_file)};
  }
  return {format("{:#x}", instruction)};
}

std::optional<Misaligned> look(pid_t task, pid_t pid) {
  siginfo_t info{};
  user_regs_struct r{};
  if (ptrace(PTRACE_GETSIGINFO, task, nullptr, &info) || info.si_code != SI_KERNEL) return std::nullopt;
  if (ptrace(PTRACE_GETREGS, task, nullptr, &r)) return std::nullopt;
  MachineState at;
  at.registers = {r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi,
                  r.r8,  r.r9,  r.r10, r.r11, r.r12, r.r13, r.r14, r.r15};
  at.instruction = r.rip, at.fs = r.fs_base, at.gs = r.gs_base;
  std::uint8_t code[24] = {};
  iovec here{code, 16}, there{reinterpret_cast<void*>(r.rip), 16};
  if (process_vm_readv(task, &here, 1, &there, 1, 0) <= 0) return std::nullopt;
  const auto access = aligned_access(code, at);
  if (!access || !access->misaligned()) return std::nullopt;
  return Misaligned{*access, r.rip, place_of(pid, r.rip)};
}

}  // namespace

std::optional<VectorAccess> aligned_access(std::span<const std::uint8_t> c, const MachineState& at) {
  std::size_t i = 0;
  Prefix p;
  if (!read_prefix(c, i, p) || i + 7 > c.size()) return std::nullopt;
  const int opcode = c[i++], modrm = c[i++], mod = modrm >> 6;
  if (mod == 3 || p.repeated) return std::nullopt;
  VectorAccess access;
  access.bytes = p.bytes;
  for (const auto& k : kKnown)
    if (k.map == p.map && k.opcode == opcode && k.operand == p.operand) {
      access.name = (p.vector ? "v" : "") + std::string(k.name), access.writes = k.writes;
      if (p.evex && access.name == "vmovdqa") access.name = "vmovdqa32";
    }
  if (access.name.empty()) {
    if (p.vector) return std::nullopt;  // the others of AVX take any address
    access.name = "an SSE instruction";
  }
  int base = modrm & 7;
  std::uint64_t address = 0;
  int displacement = mod == 1 ? 1 : mod == 2 ? 4 : 0;
  bool relative = false;
  if (base == 4) {
    const int sib = c[i++], index = (sib >> 3 & 7) | p.x << 3;
    base = sib & 7;
    if (index != 4) address += at.registers[std::size_t(index)] << (sib >> 6);
    if (base == 5 && mod == 0)
      displacement = 4;
    else
      address += at.registers[std::size_t(base | p.b << 3)];
  } else if (base == 5 && mod == 0) {
    relative = true, displacement = 4;
  } else {
    address += at.registers[std::size_t(base | p.b << 3)];
  }
  if (i + 4 > c.size()) return std::nullopt;
  if (displacement) {
    const std::int64_t scale = p.evex && displacement == 1 ? p.bytes : 1;  // EVEX counts in vectors
    address += std::uint64_t(signed_at(c, i, displacement) * scale);
    i += std::size_t(displacement);
  }
  if (relative) address += at.instruction + i + (p.map == 3);
  access.address = address + (p.segment == 'f' ? at.fs : p.segment == 'g' ? at.gs : 0);
  return access;
}

std::optional<Misaligned> find_misaligned(const std::vector<std::string>& command, double timeout_seconds,
                                          measure::ProcessResult& ended) {
  const std::string program = find_program(command[0]);
  if (program.empty())
    throw ArgumentError(ErrorText{"the program must be one that can be run", command[0], "not found", {}});
  std::vector<char*> words;
  for (const auto& w : command) words.push_back(const_cast<char*>(w.c_str()));
  words.push_back(nullptr);
  const pid_t pid = fork();
  if (pid < 0) throw Error("a process must be to be had");
  if (pid == 0) {
    const int nothing = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; ++fd) dup2(nothing, fd);
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr)) _exit(126);
    execv(program.c_str(), words.data());
    _exit(127);
  }
  int status = 0;
  std::optional<Misaligned> found;
  waitpid(pid, &status, 0);
  if (WIFEXITED(status))
    throw Unsupported(ErrorText{"following a program takes ptrace", {}, "it is not permitted here", {}});
  ptrace(PTRACE_SETOPTIONS, pid, nullptr, PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE);
  ptrace(PTRACE_CONT, pid, nullptr, nullptr);
  const double start = measure::now();
  for (;;) {
    const pid_t task = waitpid(-1, &status, __WALL | (timeout_seconds > 0 ? WNOHANG : 0));
    if (task == 0) {
      if (measure::now() - start > timeout_seconds)
        ended.timed_out = true, kill(pid, SIGKILL), timeout_seconds = 0;
      usleep(2000);
      continue;
    }
    if (task < 0) break;
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
      if (task != pid) continue;
      ended.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
      ended.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
      break;
    }
    int deliver = WSTOPSIG(status);
    if (deliver == SIGSEGV && !found) found = look(task, pid);
    if (deliver == SIGTRAP || deliver == SIGSTOP)
      deliver = 0;  // an event of ours, or a new thread's beginning
    ptrace(PTRACE_CONT, task, nullptr, deliver);
  }
  return found;
}

}  // namespace cgp::profile
