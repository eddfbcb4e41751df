// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/sampling/cpu_sampler.h"

#include <fcntl.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/profile/sampling/stack_reader.h"

namespace cgp::profile {
namespace {

/// Of each processor: plenty, else what a user may lock (perf_event_mlock_kb).
constexpr std::size_t kPages[] = {1024, 128};
constexpr std::size_t kMostKept = std::size_t(32) << 20;  // records that wait to be read

std::string reason(int error) {
  if (error == EACCES || error == EPERM)
    return "sampling is not permitted: lower /proc/sys/kernel/perf_event_paranoid to 2, or allow "
           "perf_event_open in the container";
  if (error == ENOSYS || error == ENOENT) return "this kernel has no perf_event_open";
  return text::cat("perf_event_open: ", std::strerror(error));
}

perf_event_attr attributes(double rate, bool kernel, std::size_t pages) {
  perf_event_attr a;
  std::memset(&a, 0, sizeof a);
  a.size = sizeof a;
  a.type = PERF_TYPE_SOFTWARE, a.config = PERF_COUNT_SW_CPU_CLOCK;
  a.sample_period = std::uint64_t(1e9 / rate);
  a.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CALLCHAIN;
  if (kUnwindTables) {  // the stack has the program's callers: the kernel need not walk them too
    a.sample_type |= PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
    a.sample_regs_user = sampled_registers();
    a.sample_stack_user = kStackBytes;
    a.exclude_callchain_user = 1;
  }
  a.disabled = 1, a.inherit = 1, a.enable_on_exec = 1;
  a.mmap = 1, a.mmap2 = 1, a.comm = 1, a.comm_exec = 1, a.task = 1, a.sample_id_all = 1;
  a.exclude_kernel = !kernel, a.exclude_callchain_kernel = !kernel, a.exclude_hv = 1;
  a.watermark = 1, a.wakeup_watermark = std::uint32_t(pages * 4096 / 8);
  return a;
}

/// A sample each time that a thread stops running, and a record each time that it goes on.
perf_event_attr switch_attributes(std::size_t pages) {
  perf_event_attr a = attributes(1, true, pages);
  a.config = PERF_COUNT_SW_CONTEXT_SWITCHES, a.sample_period = 1;
  a.mmap = a.mmap2 = a.comm = a.comm_exec = a.task = 0, a.context_switch = 1;
  return a;
}

/// What a process measures of itself comes with the kernel's ticks.
std::uint64_t tick_ns() {
  timespec t{};
  clock_getres(CLOCK_MONOTONIC_COARSE, &t);
  return std::uint64_t(t.tv_sec) * 1000000000u + std::uint64_t(t.tv_nsec);
}

/// The ring that the kernel writes the records of one processor into.
struct Ring {
  int fd = -1;
  perf_event_mmap_page* page = nullptr;
  std::size_t size = 0;
  bool switches = false;
  std::vector<char> kept;

  void drain() {
    const auto head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE);
    auto tail = page->data_tail;
    const char* data = reinterpret_cast<const char*>(page) + sysconf(_SC_PAGESIZE);
    while (tail < head) {
      const std::size_t at = tail % size, n = std::min<std::uint64_t>(head - tail, size - at);
      kept.insert(kept.end(), data + at, data + at + n);
      tail += n;
    }
    __atomic_store_n(&page->data_tail, tail, __ATOMIC_RELEASE);
  }
};

}  // namespace

struct CpuSampler::Impl {
  CpuRecording recording;
  StackReader reader{recording};
  std::vector<Ring> rings;
  int wake = -1;
  std::thread thread;

  std::vector<std::pair<std::string, std::string>> environment;
  std::string program_files;  // prefix of what libcgp_sample.so writes

  void open(const SamplerOptions& o) {
    recording.rate = o.rate;
    const char* forced = std::getenv("CGP_SAMPLER");
    if (forced && std::string_view(forced) == "timer")
      recording.absent = "CGP_SAMPLER is timer";
    else
      open_clock(o);
    if (!recording.absent.empty()) open_timer(o);
    if (o.launches && kUnwindTables && !o.library.empty()) {
      let_program_write(o);
      environment.emplace_back("CGP_INJECT_STACKS", "1");
    }
    if (o.python) name_python(o);
  }

  void open_clock(const SamplerOptions& o) {
    const auto opened = [&] {
      for (const bool kernel : {true, false})
        for (const std::size_t pages : kPages)
          if (open(attributes(o.rate, kernel, pages), pages)) {
            recording.kernel = kernel, recording.absent.clear();
            return true;
          }
      return false;
    };
    if (!opened() || !o.waits) return;
    const std::size_t clocks = rings.size();
    for (const std::size_t pages : kPages)
      if (!recording.waits_watched && recording.kernel)
        recording.waits_watched = open(switch_attributes(pages), pages);
    if (!recording.waits_watched)
      recording.waits_absent =
          "the operating system's part must be visible: lower /proc/sys/kernel/perf_event_paranoid to 1";
    recording.absent.clear();
    for (std::size_t i = clocks; i < rings.size(); ++i) rings[i].switches = true;
  }

  /// The program samples itself.
  void open_timer(const SamplerOptions& o) {
    if (!kUnwindTables || o.library.empty()) return;
    const std::uint64_t period = std::max(tick_ns(), std::uint64_t(1e9 / o.rate));
    recording.timer = std::exchange(recording.absent, {});
    recording.rate = 1e9 / double(period);
    if (o.waits) recording.waits_absent = recording.timer;
    let_program_write(o);
    environment.emplace_back("CGP_SAMPLE_PERIOD_NS", std::to_string(period));
  }

  void let_program_write(const SamplerOptions& o) {
    if (!program_files.empty()) return;
    std::error_code ec;
    program_files =
        (std::filesystem::temp_directory_path(ec) / text::cat("cgp-samples-", getpid(), "-")).string();
    preload(o.library);
    environment.emplace_back("CGP_SAMPLE_OUT", program_files);
  }

  void name_python(const SamplerOptions& o) {
    // Python 3.12 and later do it themselves.
    if (!std::getenv("PYTHONPERFSUPPORT")) environment.emplace_back("PYTHONPERFSUPPORT", "1");
    if (!kUnwindTables || o.library.empty()) return;
    preload(o.library);
    environment.emplace_back("CGP_SAMPLE_PYTHON", "1");
  }

  void preload(const std::string& library) {
    for (const auto& [name, value] : environment)
      if (name == "LD_PRELOAD") return;
    const char* others = std::getenv("LD_PRELOAD");
    environment.emplace_back("LD_PRELOAD", others && *others ? text::cat(library, ":", others) : library);
  }

  /// A ring for each processor, or none.
  bool open(perf_event_attr a, std::size_t pages) {
    const std::size_t before = rings.size();
    int error = ENOENT;
    for (int cpu = 0, count = int(sysconf(_SC_NPROCESSORS_CONF)); cpu < count; ++cpu) {
      const int fd = int(syscall(SYS_perf_event_open, &a, 0, cpu, -1, PERF_FLAG_FD_CLOEXEC));
      if (fd < 0 && errno == ENODEV) continue;  // a processor that is off
      if (fd < 0) {
        error = errno;
        break;
      }
      Ring ring;
      ring.fd = fd, ring.size = pages * std::size_t(sysconf(_SC_PAGESIZE));
      void* page = mmap(nullptr, ring.size + std::size_t(sysconf(_SC_PAGESIZE)), PROT_READ | PROT_WRITE,
                        MAP_SHARED, fd, 0);
      error = errno;
      if (page == MAP_FAILED) {
        ::close(fd);
        break;
      }
      error = 0;
      ring.page = static_cast<perf_event_mmap_page*>(page);
      rings.push_back(std::move(ring));
    }
    if (error == 0) return true;
    recording.absent = reason(error);
    close_from(before);
    return false;
  }

  void close_from(std::size_t first) {
    for (std::size_t i = first; i < rings.size(); ++i) {
      munmap(rings[i].page, rings[i].size + std::size_t(sysconf(_SC_PAGESIZE)));
      ::close(rings[i].fd);
    }
    rings.resize(first);
  }

  void digest() {
    std::vector<StackReader::Records> all;
    for (const auto& r : rings)
      all.push_back({{r.kept.data(), r.kept.size()},
                     r.switches ? StackReader::Records::From::switches : StackReader::Records::From::clock});
    reader.read(all);
    for (auto& r : rings) r.kept.clear();
  }

  /// One file for each program that a process was, in the order of their numbers.
  void read_program_files() {
    namespace fs = std::filesystem;
    const fs::path prefix(program_files);
    std::error_code ec;
    std::vector<fs::path> files;
    for (const auto& e : fs::directory_iterator(prefix.parent_path(), ec))
      if (e.path().filename().string().rfind(prefix.filename().string(), 0) == 0) files.push_back(e.path());
    std::sort(files.begin(), files.end());
    for (const auto& file : files) {
      const std::string bytes = read_file(file.string());
      reader.read({{bytes, StackReader::Records::From::program}});
      fs::remove(file, ec);
    }
    if (files.empty() && !recording.timer.empty())
      recording.absent =
          text::cat(recording.timer,
                    "; and the program did not load libcgp_sample.so (it is linked statically, "
                    "or has the timer signal SIGPROF for itself)");
  }

  void run() {
    std::vector<pollfd> all{{wake, POLLIN, 0}};
    for (const auto& r : rings) all.push_back({r.fd, POLLIN, 0});
    while (!(all[0].revents & POLLIN)) {
      if (poll(all.data(), all.size(), -1) < 0 && errno != EINTR) return;
      for (std::size_t i = 0; i < rings.size(); ++i) {
        if (all[i + 1].revents) rings[i].drain();
        if (all[i + 1].revents & (POLLHUP | POLLERR)) all[i + 1].fd = -1;
      }
      std::size_t kept = 0;
      for (const auto& r : rings) kept += r.kept.size();
      if (kept > kMostKept) digest();
    }
  }
};

CpuSampler::CpuSampler(const SamplerOptions& options) : impl_(std::make_unique<Impl>()) {
  impl_->open(options);
  if (impl_->rings.empty()) return;
  impl_->wake = eventfd(0, EFD_CLOEXEC);
  impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
}

CpuSampler::~CpuSampler() {
  if (impl_) stop();
}

const std::vector<std::pair<std::string, std::string>>& CpuSampler::environment() const {
  return impl_->environment;
}

CpuRecording CpuSampler::stop() {
  Impl& i = *impl_;
  if (i.thread.joinable()) {
    const std::uint64_t one = 1;
    if (write(i.wake, &one, sizeof one) == sizeof one) i.thread.join();
    ::close(i.wake);
    for (auto& r : i.rings) r.drain();
    i.digest();
    i.close_from(0);
  }
  if (!i.program_files.empty()) i.read_program_files();
  i.program_files.clear();
  return std::move(i.recording);
}

}  // namespace cgp::profile
