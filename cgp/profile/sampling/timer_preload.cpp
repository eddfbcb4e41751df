// SPDX-License-Identifier: Apache-2.0
// Part of libcgp_sample.so, which is loaded before a program's libraries (LD_PRELOAD): where perf_event_open is refused the
// program samples itself, each thread at a timer of its own processor time. The signal's context has the registers, and the top of the
// stack is kept, so that stack_reader.h reads the file as it reads the kernel's records. libcgp_inject.so asks for the stack
// of a kernel's launch.
//   CGP_SAMPLE_OUT        files, to which the process and a number are added; without it nothing is sampled
//   CGP_SAMPLE_PERIOD_NS  of processor time, the kernel's tick at least; without it there is no timer
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
namespace {

constexpr std::size_t kStackBytes = 8192;    // as in stack_reader.h
constexpr std::uint16_t kOfLaunch = 0x8000;  // as in stack_reader.cpp
constexpr off_t kMostBytes = off_t(256) << 20;
constexpr unsigned kMapsEvery = 16;  // samples, at least, between two looks at the mappings
/// In the order of perf's bits, as stack_reader.cpp has them.
constexpr int kRegisters[] = {REG_RAX, REG_RBX, REG_RCX, REG_RDX, REG_RSI, REG_RDI, REG_RBP, REG_RSP, REG_RIP,
                              REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
constexpr std::size_t kRegisterCount = sizeof kRegisters / sizeof *kRegisters;

struct Ids {
  std::uint32_t process, thread;
  std::uint64_t time;
};
struct Sample {
  perf_event_header header;
  std::uint64_t ip;
  Ids ids;
  std::uint64_t chain, abi, registers[kRegisterCount], room;
};
struct Mapped {
  perf_event_header header;
  std::uint32_t process, thread;
  std::uint64_t begin, length, offset, device, inode, generation, mode;
};
struct Named {
  perf_event_header header;
  std::uint32_t process, thread;
  char name[16];
  Ids ids;
};
struct Lost {
  perf_event_header header;
  std::uint64_t id, count;
  Ids ids;
};

char prefix[4096];
std::int64_t period = 0;
int file = -1;
bool begun = false;
off_t at = 0;
pthread_key_t timer_key;  // of a thread: its timer and 1
bool busy = false;        // one thread at a time; the others' samples count as lost
std::uint64_t lost = 0;
unsigned since_maps = 0;
struct Range {
  std::uint64_t begin, end;
} ranges[1024];  // of code that is known
std::size_t range_count = 0;
// initial-exec: the first access of a thread must not allocate
thread_local bool named __attribute__((tls_model("initial-exec"))) = false;

Ids ids_now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return {std::uint32_t(getpid()), std::uint32_t(syscall(SYS_gettid)),
          std::uint64_t(t.tv_sec) * 1000000000u + std::uint64_t(t.tv_nsec)};
}

void put(const void* bytes, std::size_t n) {
  if (pwrite(file, bytes, n, at) == ssize_t(n)) at += off_t(n);
}

void put_name(bool of_program) {
  Named r{};
  r.header = {PERF_RECORD_COMM, std::uint16_t(of_program ? PERF_RECORD_MISC_COMM_EXEC : 0), sizeof r};
  r.ids = ids_now();
  r.process = r.ids.process, r.thread = r.ids.thread;
  prctl(PR_GET_NAME, r.name);
  put(&r, sizeof r);
}

std::uint64_t hex(const char*& p) {
  std::uint64_t v = 0;
  for (;; ++p) {
    const int digit = *p >= '0' && *p <= '9' ? *p - '0' : *p >= 'a' && *p <= 'f' ? *p - 'a' + 10 : -1;
    if (digit < 0) return v;
    v = v * 16 + std::uint64_t(digit);
  }
}

/// "begin-end rwxp offset device inode  path"
void put_mapping(const char* line) {
  Mapped r{};
  r.begin = hex(line);
  if (*line++ != '-') return;
  const std::uint64_t end = hex(line);
  if (std::strlen(line) < 6 || line[3] != 'x') return;
  line += 6;
  r.offset = hex(line);
  const char* path = std::strchr(line, '/');
  if (!path) path = std::strchr(line, '[');
  if (!path) path = "//anon";
  const Ids ids = ids_now();
  r.process = ids.process, r.thread = ids.thread, r.length = end - r.begin;
  char name[4096] = {};
  std::strncpy(name, path, sizeof name - 1);
  const std::size_t room = (std::strlen(name) + 8) & ~std::size_t(7);
  r.header = {PERF_RECORD_MMAP2, 0, std::uint16_t(sizeof r + room + sizeof ids)};
  put(&r, sizeof r), put(name, room), put(&ids, sizeof ids);
  if (range_count < sizeof ranges / sizeof *ranges) ranges[range_count++] = {r.begin, end};
}

/// Neither stdio nor the heap: a signal may have interrupted them.
void put_mappings() {
  since_maps = 0, range_count = 0;
  const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return;
  static char text[1 << 14];
  std::size_t have = 0;
  for (ssize_t got; (got = read(maps, text + have, sizeof text - have - 1)) > 0;) {
    have += std::size_t(got);
    text[have] = 0;
    char* begin = text;
    for (char* end; (end = std::strchr(begin, '\n')); begin = end + 1) *end = 0, put_mapping(begin);
    have = std::size_t(text + have - begin);
    std::memmove(text, begin, have);
  }
  close(maps);
}

bool known(std::uint64_t ip) {
  for (std::size_t i = 0; i < range_count; ++i)
    if (ip >= ranges[i].begin && ip < ranges[i].end) return true;
  return false;
}

/// `ip`: what stands in its place is the launch's number in a sample of a launch.
void put_sample(std::uint16_t what, std::uint64_t ip, const greg_t* registers) {
  Sample r{};
  r.ip = ip;
  if (++since_maps >= kMapsEvery && !known(std::uint64_t(registers[REG_RIP]))) put_mappings();
  if (!named) named = true, put_name(false);
  // write() never faults: it ends where the stack does
  const ssize_t got =
      pwrite(file, reinterpret_cast<const void*>(registers[REG_RSP]), kStackBytes, at + off_t(sizeof r));
  const std::uint64_t kept = got > 0 ? std::uint64_t(got) : 0;
  r.room = kStackBytes;
  r.header = {PERF_RECORD_SAMPLE, what, std::uint16_t(sizeof r + kStackBytes + sizeof kept)};
  r.ids = ids_now();
  r.abi = PERF_SAMPLE_REGS_ABI_64;
  for (std::size_t i = 0; i < kRegisterCount; ++i) r.registers[i] = std::uint64_t(registers[kRegisters[i]]);
  if (pwrite(file, &r, sizeof r, at) != sizeof r ||
      pwrite(file, &kept, sizeof kept, at + off_t(sizeof r + kStackBytes)) != sizeof kept)
    return;
  at += r.header.size;
}

void on_tick(int, siginfo_t* info, void* context) {
  const int saved = errno;
  if (__atomic_test_and_set(&busy, __ATOMIC_ACQUIRE)) {
    __atomic_fetch_add(&lost, 1, __ATOMIC_RELAXED);
    return;
  }
  if (at > kMostBytes)
    __atomic_fetch_add(&lost, 1, __ATOMIC_RELAXED);
  else if (file >= 0) {
    const auto* registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
    const int ticks = 1 + (info->si_overrun < 1000 ? info->si_overrun : 1000);
    put_sample(std::uint16_t(ticks), std::uint64_t(registers[REG_RIP]), registers);
  }
  __atomic_clear(&busy, __ATOMIC_RELEASE);
  errno = saved;
}

/// One timer for all would tick for the thread whose processor looks first.
void begin_thread() {
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID, event.sigev_signo = SIGPROF;
  event._sigev_un._tid = pid_t(syscall(SYS_gettid));
  timer_t timer{};
  if (timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer) != 0) return;
  pthread_setspecific(timer_key, static_cast<char*>(timer) + 1);
  itimerspec every{};
  every.it_interval = {time_t(period / 1000000000), long(period % 1000000000)};
  every.it_value = every.it_interval;
  timer_settime(timer, 0, &every, nullptr);
}

void end_thread(void* timer_and_1) { timer_delete(static_cast<char*>(timer_and_1) - 1); }

struct Start {
  void* (*function)(void*);
  void* argument;
};
void* run_thread(void* p) {
  const Start start = *static_cast<Start*>(p);
  std::free(p);
  if (file >= 0) begin_thread();
  return start.function(start.argument);
}

void begin() {
  begun = true;
  file = -1, at = 0, busy = false, lost = 0, named = true;
  char name[4200];
  for (int n = 0; file < 0 && n < 1000;
       ++n) {  // a process that becomes another program goes on in another file
    std::snprintf(name, sizeof name, "%s%010d.%03d", prefix, int(getpid()), n);
    file = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0 && errno != EEXIST) return;
  }
  if (file < 0) return;
  put_name(true);
  put_mappings();
  if (period > 0) begin_thread();
}

void in_child() {
  file = -1, begun = false;
  if (period > 0) begin();
}

/// Libraries that were loaded last have their code in the file too.
void end() {
  if (file < 0) return;
  while (__atomic_test_and_set(&busy, __ATOMIC_ACQUIRE)) continue;
  put_mappings();
  if (lost > 0) {
    Lost r{};
    r.header = {PERF_RECORD_LOST, 0, sizeof r};
    r.count = lost, r.ids = ids_now();
    put(&r, sizeof r);
  }
  file = -1;
  __atomic_clear(&busy, __ATOMIC_RELEASE);
}

__attribute__((constructor)) void start() {
  const char* out = std::getenv("CGP_SAMPLE_OUT");
  const char* ns = std::getenv("CGP_SAMPLE_PERIOD_NS");
  if (!out || std::strlen(out) >= sizeof prefix) return;
  std::strcpy(prefix, out);
  period = ns ? std::atoll(ns) : 0;
  if (period > 0) {
    struct sigaction before {};
    if (sigaction(SIGPROF, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) return;
    struct sigaction ours {};
    ours.sa_sigaction = on_tick, ours.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
    sigaction(SIGPROF, &ours, nullptr);
    if (pthread_key_create(&timer_key, end_thread) != 0) return;
    begin();
  }
  pthread_atfork(nullptr, nullptr, in_child);
  std::atexit(end);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t* thread,
                                                                     const pthread_attr_t* attributes,
                                                                     void* (*function)(void*),
                                                                     void* argument) noexcept {
  static const auto create = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  auto* start = period > 0 ? static_cast<Start*>(std::malloc(sizeof(Start))) : nullptr;
  if (!start) return create(thread, attributes, function, argument);
  *start = {function, argument};
  const int error = create(thread, attributes, run_thread, start);
  if (error != 0) std::free(start);
  return error;
}

/// The caller's stack, as that of the launch with this number.
extern "C" __attribute__((visibility("default"))) void cgp_sample_launch(std::uint32_t correlation) {
  ucontext_t here;
  if (prefix[0] == 0 || getcontext(&here) != 0) return;
  while (__atomic_test_and_set(&busy, __ATOMIC_ACQUIRE)) sched_yield();
  if (!begun) {
    begin();
    __atomic_test_and_set(&busy, __ATOMIC_ACQUIRE);
  }
  if (file >= 0 && at <= kMostBytes) put_sample(kOfLaunch, correlation, here.uc_mcontext.gregs);
  __atomic_clear(&busy, __ATOMIC_RELEASE);
}
#endif
