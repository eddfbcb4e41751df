// SPDX-License-Identifier: Apache-2.0
// libcgp_inject.so: loaded into a CUDA program by its driver (CUDA_INJECTION64_PATH), records what the
// program does on the GPU and writes it as lines of JSON (docs/profiler.md, "Events"). It links nothing of
// CUDA, never stops its host program, and writes each failure as an event.
//   CGP_INJECT_OUT      file, to which ".PID" is added
//   CGP_INJECT_MODE     trace (default) or range
//   CGP_INJECT_METRICS  range: names of CUPTI metrics, joined by commas
//   CGP_INJECT_LAUNCHES range: so many launches, then the program runs on as if alone (500)
//   CGP_INJECT_API      all: every call of the driver and runtime, not only those that a timeline needs
//   CGP_INJECT_WINDOW   ON,EVERY: so many milliseconds are recorded of each EVERY; or auto: everything, until
//   that has
//                       cost more than a program should pay (trace_budget.h), then parts of it. Between them
//                       CUPTI is not there at all: what it costs stays as long as it is, whether anything is
//                       recorded or not
//   CGP_INJECT_CUBINS   folder for the machine code of each module
//   CGP_INJECT_STACKS   trace: libcgp_sample.so, where it is loaded, keeps the stacks of launches
#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cgp/profile/cupti/cupti_load.h"
#include "cgp/profile/cupti/trace_budget.h"

namespace {

using namespace cgp::measure::cupti;

std::string escaped(const char* s) {
  std::string out;
  for (; s && *s; ++s) {
    if (*s == '"' || *s == '\\') out += '\\';
    if (static_cast<unsigned char>(*s) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", *s);
      out += code;
    } else {
      out += *s;
    }
  }
  return out;
}

unsigned long long ull(std::uint64_t v) { return v; }

struct Launched {
  std::string name;
  std::uint32_t grid[3] = {0, 0, 0}, block[3] = {0, 0, 0};
};

/// Everything of this process; never destroyed, since CUPTI's threads outlive static destructors.
struct State {
  Functions cupti;
  FILE* out = nullptr;
  std::mutex mutex;
  pid_t owner = 0;
  bool range = false;
  std::map<std::string, int> names;
  std::set<std::pair<std::string, int>> noted;
  std::string cubins;
  // range profiling
  std::vector<std::string> metric_names;
  std::vector<const char*> metrics;
  std::vector<std::uint8_t> config, data;
  std::vector<Launched> launched;
  void* profiler = nullptr;
  void* host = nullptr;
  std::size_t passes = 0, most = 500;
  bool done = false;
  // recording in windows
  int window_on = 0, window_every = 0;  ///< ms; 0: one window without end
  bool adaptive = false;                ///< windows as TraceBudget says
  std::atomic<std::uint64_t> launches{0}, graph_kernels{0}, calls{0};
  bool came_back = false;
  std::atomic<std::size_t> open_calls{0};
  void (*sample_launch)(std::uint32_t correlation) = nullptr;
  std::atomic<std::uint64_t> last_stack{0};         ///< ns
  std::atomic<std::uint16_t> stacks_of[4096] = {};  ///< by the kernel's name
  void* subscriber = nullptr;
  std::mutex spare_mutex;
  std::vector<std::uint8_t*> spare;  ///< buffers of records, used again
  enum Phase { attached, leaving, detached, ended };
  std::atomic<int> phase{attached};
  std::mutex phase_mutex;  ///< held while CUPTI comes and goes
  std::condition_variable left;
};
State& state() {
  static State* s = new State;
  return *s;
}

void failed(const char* where, int code) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  std::fprintf(s.out, "{\"ev\":\"error\",\"where\":\"%s\",\"code\":%d,\"text\":\"%s\"}\n", where, code,
               escaped(result_text(s.cupti, code).c_str()).c_str());
  std::fflush(s.out);
}

/// For calls without which something else is still recorded: each kind of failure is written once.
void noted(const char* where, int code) {
  if (!code) return;
  State& s = state();
  {
    std::lock_guard lock(s.mutex);
    if (!s.noted.emplace(where, code).second) return;
  }
  failed(where, code);
}

#define CGP_TRY(function, ...)                                                                 \
  do {                                                                                         \
    if (!state().cupti.function) return failed(#function, -1), false;                          \
    if (int code = state().cupti.function(__VA_ARGS__)) return failed(#function, code), false; \
  } while (false)

// ---------------------------------------------------------------- tracing
int name_id(State& s, const char* name) {
  const auto [at, fresh] = s.names.emplace(name ? name : "", int(s.names.size()));
  if (fresh)
    std::fprintf(s.out, "{\"ev\":\"name\",\"id\":%d,\"name\":\"%s\"}\n", at->second, escaped(name).c_str());
  return at->second;
}

void write_kernel(State& s, const Kernel& k) {
  ++(k.graph ? s.graph_kernels : s.launches);
  if (!k.end) return;  // still running where a window ends
  const int id = name_id(s, k.name);
  std::fprintf(s.out,
               "{\"ev\":\"kernel\",\"n\":%d,\"t0\":%llu,\"t1\":%llu,\"dev\":%u,\"stream\":%u,\"corr\":%u,"
               "\"grid\":[%d,%d,%d],\"block\":[%d,%d,%d],\"regs\":%u,\"smem_static\":%d,\"smem_dyn\":%d,"
               "\"lmem_thread\":%u,\"graph\":%u}\n",
               id, ull(k.start), ull(k.end), k.device, k.stream, k.correlation, k.grid[0], k.grid[1],
               k.grid[2], k.block[0], k.block[1], k.block[2], k.registers, k.static_shared, k.dynamic_shared,
               k.local_per_thread, k.graph);
}

void write_record(State& s, const void* record) {
  FILE* out = s.out;
  switch (*static_cast<const std::uint32_t*>(record)) {
    case kKernel:
    case kConcurrentKernel:
      return write_kernel(s, *static_cast<const Kernel*>(record));
    case kMemcpy: {
      const auto& m = *static_cast<const Memcpy*>(record);
      std::fprintf(
          out,
          "{\"ev\":\"memcpy\",\"kind\":%u,\"bytes\":%llu,\"t0\":%llu,\"t1\":%llu,\"dev\":%u,\"stream\":%u,"
          "\"corr\":%u,\"src\":%u,\"dst\":%u}\n",
          m.copy_kind, ull(m.bytes), ull(m.start), ull(m.end), m.device, m.stream, m.correlation, m.from_kind,
          m.to_kind);
      return;
    }
    case kMemset: {
      const auto& m = *static_cast<const Memset*>(record);
      std::fprintf(
          out,
          "{\"ev\":\"memset\",\"bytes\":%llu,\"t0\":%llu,\"t1\":%llu,\"dev\":%u,\"stream\":%u,\"corr\":%u}\n",
          ull(m.bytes), ull(m.start), ull(m.end), m.device, m.stream, m.correlation);
      return;
    }
    case kMemory2: {
      const auto& m = *static_cast<const Memory*>(record);
      std::fprintf(out, "{\"ev\":\"alloc\",\"op\":%u,\"mkind\":%u,\"bytes\":%llu,\"addr\":%llu,\"t\":%llu}\n",
                   m.operation, m.memory_kind, ull(m.bytes), ull(m.address), ull(m.timestamp));
      return;
    }
    case kJit: {
      const auto& j = *static_cast<const Jit*>(record);
      std::fprintf(out, "{\"ev\":\"jit\",\"op\":%u,\"entry\":%u,\"t0\":%llu,\"t1\":%llu,\"size\":%llu}\n",
                   j.operation, j.entry, ull(j.start), ull(j.end), ull(j.cache_size));
      return;
    }
    case kOverhead: {
      const auto& o = *static_cast<const Overhead*>(record);
      std::fprintf(out, "{\"ev\":\"overhead\",\"kind\":%u,\"t0\":%llu,\"t1\":%llu}\n", o.overhead_kind,
                   ull(o.start), ull(o.end));
      return;
    }
    case kSynchronization: {
      const auto& y = *static_cast<const Synchronization*>(record);
      std::fprintf(out, "{\"ev\":\"sync\",\"type\":%u,\"t0\":%llu,\"t1\":%llu,\"corr\":%u}\n", y.type,
                   ull(y.start), ull(y.end), y.correlation);
      return;
    }
    case kDriver:
    case kRuntime: {
      const auto& a = *static_cast<const ApiCall*>(record);
      s.calls += s.came_back;
      std::fprintf(
          out,
          "{\"ev\":\"api\",\"domain\":\"%s\",\"cbid\":%u,\"t0\":%llu,\"t1\":%llu,\"tid\":%u,\"corr\":%u,"
          "\"ret\":%u}\n",
          a.kind == kDriver ? "driver" : "runtime", a.callback, ull(a.start), ull(a.end), a.thread,
          a.correlation, a.result);
      return;
    }
    default:
      return;
  }
}

/// Some 2000 launches: a buffer comes back when it is full, and what it cost is known then.
constexpr std::size_t kBufferBytes = 512 << 10;

void buffer_requested(std::uint8_t** buffer, std::size_t* size, std::size_t* records) {
  State& s = state();
  *size = kBufferBytes, *records = 0, *buffer = nullptr;
  {
    std::lock_guard lock(s.spare_mutex);
    if (!s.spare.empty()) *buffer = s.spare.back(), s.spare.pop_back();
  }
  if (!*buffer) *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(64, *size));
}

void buffer_completed(void* context, std::uint32_t stream, std::uint8_t* buffer, std::size_t,
                      std::size_t valid) {
  State& s = state();
  {
    std::lock_guard lock(s.mutex);
    void* record = nullptr;
    while (s.cupti.cuptiActivityGetNextRecord(buffer, valid, &record) == kSuccess) write_record(s, record);
    std::size_t dropped = 0;
    if (s.cupti.cuptiActivityGetNumDroppedRecords &&
        s.cupti.cuptiActivityGetNumDroppedRecords(context, stream, &dropped) != kSuccess)
      dropped = 0;
    // A call in which CUPTI leaves has no end: it is counted when CUPTI is back.
    const std::size_t left_open = std::min<std::size_t>(dropped, s.open_calls);
    dropped -= left_open, s.open_calls -= left_open;
    if (dropped) std::fprintf(s.out, "{\"ev\":\"dropped\",\"n\":%zu}\n", dropped);
    std::fflush(s.out);  // what was written stays when the program crashes
  }
  std::lock_guard lock(s.spare_mutex);
  s.spare.push_back(buffer);
}

bool start_trace() {
  State& s = state();
  CGP_TRY(cuptiActivityRegisterCallbacks, buffer_requested, buffer_completed);
  // Not kSynchronization: it made launches cost 2 us more each (CUPTI 13.0, H200), and three of four launch
  // calls were no longer recorded. The calls that wait are there without it.
  for (const auto& [kind, where] : {std::pair{kConcurrentKernel, "records of kernels"},
                                    {kMemcpy, "records of copies"},
                                    {kMemset, "records of memory sets"},
                                    {kMemory2, "records of allocations"},
                                    {kJit, "records of compilation"},
                                    {kOverhead, "records of CUPTI's overhead"}})
    noted(where, s.cupti.cuptiActivityEnable(kind));
  const char* api = std::getenv("CGP_INJECT_API");
  // Single calls that were on when CUPTI left are not recorded after it came back, whole kinds are.
  const bool all = (api && !std::strcmp(api, "all")) || s.came_back ||
                   !s.cupti.cuptiActivityEnableDriverApi || !s.cupti.cuptiActivityEnableRuntimeApi;
  if (all) {
    for (std::uint32_t kind : {kRuntime, kDriver})
      noted("records of calls", s.cupti.cuptiActivityEnable(kind));
  } else {
    for (std::uint32_t id : kTracedDriverCalls)
      noted("records of the driver's calls", s.cupti.cuptiActivityEnableDriverApi(id, 1));
    for (std::uint32_t id : kTracedRuntimeCalls)
      noted("records of the runtime's calls", s.cupti.cuptiActivityEnableRuntimeApi(id, 1));
  }
  if (s.cupti.cuptiActivityFlushPeriod) s.cupti.cuptiActivityFlushPeriod(200);
  return true;
}

// ---------------------------------------------------------------- counters, launch by launch
bool begin_range(void* context) {
  State& s = state();
  auto initialize = CGP_CUPTI_PARAMS(Params, priv);
  CGP_TRY(cuptiProfilerInitialize, &initialize);
  std::uint32_t device = 0;
  CGP_TRY(cuptiGetDeviceId, context, &device);
  auto chip = CGP_CUPTI_PARAMS(ChipName, chip);
  chip.device = device;
  CGP_TRY(cuptiDeviceGetChipName, &chip);
  auto availability = CGP_CUPTI_PARAMS(Availability, image);
  availability.context = context;
  CGP_TRY(cuptiProfilerGetCounterAvailability, &availability);
  std::vector<std::uint8_t> available(availability.image_size);
  availability.image = available.data();
  CGP_TRY(cuptiProfilerGetCounterAvailability, &availability);
  auto host = CGP_CUPTI_PARAMS(HostInitialize, host);
  host.chip = chip.chip;
  host.availability = available.data();
  CGP_TRY(cuptiProfilerHostInitialize, &host);
  s.host = host.host;
  auto add = CGP_CUPTI_PARAMS(HostAddMetrics, count);
  add.host = s.host, add.names = s.metrics.data(), add.count = s.metrics.size();
  CGP_TRY(cuptiProfilerHostConfigAddMetrics, &add);
  auto size = CGP_CUPTI_PARAMS(HostConfigImageSize, image_size);
  size.host = s.host;
  CGP_TRY(cuptiProfilerHostGetConfigImageSize, &size);
  s.config.resize(size.image_size);
  auto image = CGP_CUPTI_PARAMS(HostConfigImage, image);
  image.host = s.host, image.image_size = s.config.size(), image.image = s.config.data();
  CGP_TRY(cuptiProfilerHostGetConfigImage, &image);
  auto passes = CGP_CUPTI_PARAMS(HostPasses, passes);
  passes.image_size = s.config.size(), passes.image = s.config.data();
  CGP_TRY(cuptiProfilerHostGetNumOfPasses, &passes);
  s.passes = passes.passes;
  auto enable = CGP_CUPTI_PARAMS(RangeEnable, profiler);
  enable.context = context;
  CGP_TRY(cuptiRangeProfilerEnable, &enable);
  void* const profiler = enable.profiler;
  auto data = CGP_CUPTI_PARAMS(RangeDataSize, data_size);
  data.profiler = profiler, data.names = s.metrics.data(), data.count = s.metrics.size();
  data.ranges = s.most, data.nodes = std::uint32_t(s.most);
  CGP_TRY(cuptiRangeProfilerGetCounterDataSize, &data);
  s.data.resize(data.data_size);
  auto fresh = CGP_CUPTI_PARAMS(RangeDataInitialize, data);
  fresh.profiler = profiler, fresh.data_size = s.data.size(), fresh.data = s.data.data();
  CGP_TRY(cuptiRangeProfilerCounterDataImageInitialize, &fresh);
  auto config = CGP_CUPTI_PARAMS(RangeConfig, target_level);
  config.profiler = profiler;
  config.config_size = s.config.size(), config.config = s.config.data();
  config.data_size = s.data.size(), config.data = s.data.data();
  config.range = 1, config.replay = 2;
  config.ranges_per_pass = s.most;
  config.nesting_levels = config.lowest_level = config.target_level = 1;
  CGP_TRY(cuptiRangeProfilerSetConfig, &config);
  auto start = CGP_CUPTI_PARAMS(RangeObject, profiler);
  start.profiler = profiler;
  CGP_TRY(cuptiRangeProfilerStart, &start);
  s.profiler = profiler;
  std::lock_guard lock(s.mutex);
  std::fprintf(s.out, "{\"ev\":\"plan\",\"chip\":\"%s\",\"metrics\":%zu,\"passes\":%zu}\n", chip.chip,
               s.metrics.size(), s.passes);
  return true;
}

bool end_range() {
  State& s = state();
  if (!s.profiler || s.done) return false;
  s.done = true;
  auto stop = CGP_CUPTI_PARAMS(RangeStop, all_submitted);
  stop.profiler = s.profiler;
  CGP_TRY(cuptiRangeProfilerStop, &stop);
  auto decode = CGP_CUPTI_PARAMS(RangeDecode, dropped);
  decode.profiler = s.profiler;
  CGP_TRY(cuptiRangeProfilerDecodeData, &decode);
  auto info = CGP_CUPTI_PARAMS(RangeDataInfo, ranges);
  info.data = s.data.data(), info.data_size = s.data.size();
  CGP_TRY(cuptiRangeProfilerGetCounterDataInfo, &info);
  for (std::size_t i = 0; i < info.ranges; ++i) {
    std::vector<double> values(s.metrics.size());
    auto evaluate = CGP_CUPTI_PARAMS(HostEvaluate, values);
    evaluate.host = s.host, evaluate.data = s.data.data(), evaluate.data_size = s.data.size();
    evaluate.range = i, evaluate.names = s.metrics.data(), evaluate.count = s.metrics.size();
    evaluate.values = values.data();
    CGP_TRY(cuptiProfilerHostEvaluateToGpuValues, &evaluate);
    std::lock_guard lock(s.mutex);
    const Launched l = i < s.launched.size() ? s.launched[i] : Launched{};
    std::fprintf(s.out,
                 "{\"ev\":\"range\",\"index\":%zu,\"passes\":%zu,\"name\":\"%s\",\"grid\":[%u,%u,%u],"
                 "\"block\":[%u,%u,%u],\"values\":{",
                 i, s.passes, escaped(l.name.c_str()).c_str(), l.grid[0], l.grid[1], l.grid[2], l.block[0],
                 l.block[1], l.block[2]);
    const char* comma = "";
    for (std::size_t m = 0; m < values.size(); ++m) {
      if (values[m] != values[m]) continue;  // CUPTI could not tell
      std::fprintf(s.out, "%s\"%s\":%.17g", comma, s.metrics[m], values[m]);
      comma = ",";
    }
    std::fprintf(s.out, "}}\n");
  }
  std::lock_guard lock(s.mutex);
  if (decode.dropped) std::fprintf(s.out, "{\"ev\":\"dropped\",\"n\":%zu}\n", decode.dropped);
  std::fflush(s.out);
  return true;
}

template <std::size_t N>
bool one_of(std::uint32_t id, const std::uint32_t (&ids)[N]) {
  for (std::uint32_t i : ids)
    if (i == id) return true;
  return false;
}

void launch_callback(std::uint32_t id, const CallbackData& call) {
  State& s = state();
  if (call.site != 0 || !s.profiler || s.done) return;
  if (s.launched.size() >= s.most) {
    end_range();
    std::lock_guard lock(s.mutex);
    std::fprintf(s.out, "{\"ev\":\"limit\",\"launches\":%zu}\n", s.most);
    return;
  }
  Launched l;
  l.name = call.symbol ? call.symbol : "";
  if (one_of(id, kGraphLaunch)) {
    l.name = "(graph)";
  } else if (call.params && one_of(id, kLaunchKernelEx)) {
    const auto* config = *static_cast<const LaunchConfig* const*>(call.params);
    std::memcpy(l.grid, config->grid, sizeof l.grid);
    std::memcpy(l.block, config->block, sizeof l.block);
  } else if (call.params) {
    const auto* params = static_cast<const LaunchParams*>(call.params);
    std::memcpy(l.grid, params->grid, sizeof l.grid);
    std::memcpy(l.block, params->block, sizeof l.block);
  }
  s.launched.push_back(std::move(l));
}

/// The stacks of each kernel's first launches, and of a thousand in a second.
void sample_launch(State& s, const CallbackData& call) {
  constexpr std::uint16_t kFirst = 32;
  auto& of_kernel = s.stacks_of[(reinterpret_cast<std::uintptr_t>(call.symbol) >> 3) % 4096];
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  const std::uint64_t now = std::uint64_t(t.tv_sec) * 1000000000u + std::uint64_t(t.tv_nsec);
  if (of_kernel >= kFirst && now - s.last_stack < 1000000) return;
  if (of_kernel < kFirst) ++of_kernel;
  s.last_stack = now;
  s.sample_launch(call.correlation);
}

void save_module(const ModuleData& m) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  std::fprintf(s.out, "{\"ev\":\"module\",\"id\":%u,\"cubin_bytes\":%zu}\n", m.module, m.bytes);
  if (s.cubins.empty() || !m.cubin) return;
  const std::string path =
      s.cubins + "/" + std::to_string(getpid()) + "-" + std::to_string(m.module) + ".cubin";
  if (FILE* f = std::fopen(path.c_str(), "wb")) {
    std::fwrite(m.cubin, 1, m.bytes, f);
    std::fclose(f);
  }
}

void write_window(State& s, bool begins) {
  std::uint64_t stamp = 0;
  s.cupti.cuptiGetTimestamp(&stamp);
  std::lock_guard lock(s.mutex);
  std::fprintf(s.out, "{\"ev\":\"window\",\"begins\":%s,\"t\":%llu}\n", begins ? "true" : "false",
               ull(stamp));
  std::fflush(s.out);
}

/// CUPTI may leave where a call of the driver ends.
void leave(const CallbackData& call) {
  State& s = state();
  int expected = State::leaving;
  if (call.site != 1 || s.phase != expected) return;
  std::lock_guard lock(s.phase_mutex);
  if (!s.phase.compare_exchange_strong(expected, State::detached)) return;
  write_window(s, false);
  ++s.open_calls;
  noted("the records of a part", s.cupti.cuptiActivityFlushAll(1));
  noted("cuptiFinalize", s.cupti.cuptiFinalize());
  s.left.notify_all();
}

void callback(void*, std::uint32_t domain, std::uint32_t id, const void* data) {
  State& s = state();
  if (getpid() != s.owner) return;  // a forked child without a driver of its own
  if (domain == kDriverDomain && s.sample_launch && static_cast<const CallbackData*>(data)->site == 0 &&
      (one_of(id, kLaunchKernel) || one_of(id, kLaunchCooperative) || one_of(id, kLaunchKernelEx) ||
       one_of(id, kGraphLaunch)))
    sample_launch(s, *static_cast<const CallbackData*>(data));
  if (domain == kDriverDomain && s.window_on) return leave(*static_cast<const CallbackData*>(data));
  if (domain == kDriverDomain && s.range) return launch_callback(id, *static_cast<const CallbackData*>(data));
  if (domain != kResourceDomain) return;
  const auto& resource = *static_cast<const ResourceData*>(data);
  if (id == kContextCreated && s.range && !s.profiler && !s.done) begin_range(resource.context);
  if (id == kContextDestroyStarting && s.range) end_range();
  if (id == kModuleLoaded) save_module(*static_cast<const ModuleData*>(resource.descriptor));
}

void at_exit() {
  State& s = state();
  if (getpid() != s.owner) return;
  std::uint64_t stamp = 0;
  {
    std::lock_guard lock(s.phase_mutex);
    if (s.cupti.cuptiGetTimestamp) s.cupti.cuptiGetTimestamp(&stamp);
    const bool there = s.phase.exchange(State::ended) != State::detached;
    s.left.notify_all();
    if (s.range) end_range();
    if (!s.range && there && s.cupti.cuptiActivityFlushAll)
      noted("the last records", s.cupti.cuptiActivityFlushAll(1));
  }
  std::lock_guard lock(s.mutex);
  std::fprintf(s.out, "{\"ev\":\"end\",\"t\":%llu}\n", ull(stamp));
  std::fflush(s.out);
}

void say_hello() {
  State& s = state();
  std::uint32_t version = 0;
  std::uint64_t stamp = 0;
  if (s.cupti.cuptiGetVersion) s.cupti.cuptiGetVersion(&version);
  timespec monotonic{};
  clock_gettime(CLOCK_MONOTONIC, &monotonic);
  if (s.cupti.cuptiGetTimestamp) s.cupti.cuptiGetTimestamp(&stamp);
  std::fprintf(
      s.out,
      "{\"ev\":\"hello\",\"pid\":%d,\"cupti\":%u,\"mode\":\"%s\",\"timestamp\":%llu,\"monotonic\":%llu}\n",
      int(getpid()), version, s.range ? "range" : "trace", ull(stamp),
      ull(std::uint64_t(monotonic.tv_sec) * 1000000000u + std::uint64_t(monotonic.tv_nsec)));
  std::fflush(s.out);
}

bool attach() {
  State& s = state();
  s.subscriber = nullptr;
  CGP_TRY(cuptiSubscribe, &s.subscriber, callback, nullptr);
  for (std::uint32_t id : {kContextCreated, kContextDestroyStarting, kModuleLoaded})
    noted("contexts and modules", s.cupti.cuptiEnableCallback(1, s.subscriber, kResourceDomain, id));
  if (s.range || s.sample_launch)
    for (const auto& ids : {kLaunchKernel, kLaunchCooperative, kLaunchKernelEx, kGraphLaunch})
      for (int i = 0; i < 2; ++i)
        noted("launches", s.cupti.cuptiEnableCallback(1, s.subscriber, kDriverDomain, ids[i]));
  if (s.range) return true;
  if (s.window_on) write_window(s, true);
  return start_trace();
}

/// What was recorded is written, so that little is left where the program waits for it, and the next launch
/// or wait lets CUPTI go. The lock is held: callbacks that come already while phase is attached do nothing
/// and do not wait.
bool ask_to_leave(State& s) {
  s.cupti.cuptiActivityFlushAll(0);
  for (const auto& ids : {kLaunchKernel, kLaunchCooperative, kLaunchKernelEx, kGraphLaunch})
    for (int i = 0; i < 2; ++i) s.cupti.cuptiEnableCallback(1, s.subscriber, kDriverDomain, ids[i]);
  for (std::uint32_t id : kWaits) s.cupti.cuptiEnableCallback(1, s.subscriber, kDriverDomain, id);
  int expected = State::attached;
  return s.phase.compare_exchange_strong(expected, State::leaving);
}

/// A thread that lets CUPTI go and come back.
void record_in_windows() {
  using namespace std::chrono;
  State& s = state();
  const auto start = steady_clock::now();
  const auto elapsed = [&] { return std::uint64_t(nanoseconds(steady_clock::now() - start).count()); };
  cgp::measure::TraceBudget budget;
  for (auto begin = start;; begin = steady_clock::now()) {
    std::unique_lock lock(s.phase_mutex, std::defer_lock);
    for (bool enough = false; !enough;) {
      std::this_thread::sleep_for(milliseconds(s.window_on));
      lock.lock();
      if (s.phase != State::attached) return;
      if (s.adaptive) {
        s.cupti.cuptiActivityFlushAll(0);
        budget.launches = s.launches, budget.graph_kernels = s.graph_kernels, budget.calls = s.calls;
      }
      enough = !s.adaptive || !budget.left_at(elapsed());
      if (!enough) lock.unlock();
    }
    if (!ask_to_leave(s)) return;
    // A program that calls nothing meanwhile pays nothing, and its window goes on.
    s.left.wait(lock, [&] { return s.phase != State::leaving; });
    lock.unlock();
    if (s.adaptive) {
      budget.launches = s.launches, budget.graph_kernels = s.graph_kernels, budget.calls = s.calls;
      while (!budget.enough_to_return(elapsed())) std::this_thread::sleep_for(milliseconds(10));
      ++budget.attached_again;
    } else {
      std::this_thread::sleep_until(begin + milliseconds(s.window_every));
    }
    lock.lock();
    s.came_back = true;
    if (s.phase != State::detached || !attach()) return;
    s.phase = State::attached;
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  State& s = state();
  if (s.out) return 1;
  const char* out = std::getenv("CGP_INJECT_OUT");
  s.owner = getpid();
  s.out = out ? std::fopen((std::string(out) + "." + std::to_string(s.owner)).c_str(), "w") : stderr;
  if (!s.out) s.out = stderr;
  const char* mode = std::getenv("CGP_INJECT_MODE");
  s.range = mode && !std::strcmp(mode, "range");
  if (const char* folder = std::getenv("CGP_INJECT_CUBINS")) s.cubins = folder;
  if (std::getenv("CGP_INJECT_STACKS") && !s.range)
    s.sample_launch = reinterpret_cast<void (*)(std::uint32_t)>(dlsym(RTLD_DEFAULT, "cgp_sample_launch"));
  if (const char* most = std::getenv("CGP_INJECT_LAUNCHES")) s.most = std::strtoul(most, nullptr, 10);
  if (s.most == 0) s.most = 1;
  if (const char* window = std::getenv("CGP_INJECT_WINDOW"); window && !std::strcmp(window, "auto"))
    s.window_on = 20, s.adaptive = true;
  else if (window && std::sscanf(window, "%d,%d", &s.window_on, &s.window_every) == 2 &&
           (s.window_on <= 0 || s.window_every <= s.window_on))
    s.window_on = 0;
  if (const char* list = std::getenv("CGP_INJECT_METRICS")) {
    std::string word;
    for (const char* c = list;; ++c) {
      if (*c && *c != ',') {
        word += *c;
        continue;
      }
      if (!word.empty()) s.metric_names.push_back(word);
      word.clear();
      if (!*c) break;
    }
  }
  for (const auto& name : s.metric_names) s.metrics.push_back(name.c_str());
  if (const std::string why = load(s.cupti); !why.empty()) {
    std::fprintf(s.out, "{\"ev\":\"error\",\"where\":\"libcupti\",\"code\":-1,\"text\":\"%s\"}\n",
                 escaped(why.c_str()).c_str());
    std::fflush(s.out);
    return 1;
  }
  say_hello();
  if (!s.cupti.cuptiFinalize || s.range) s.window_on = 0;
  std::atexit(at_exit);
  if (!attach()) return 1;
  if (s.window_on) try {
      std::thread(record_in_windows).detach();
    } catch (const std::exception&) {  // no thread to be had: one window without end
    }
  return 1;
}
