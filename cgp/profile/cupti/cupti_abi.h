// SPDX-License-Identifier: Apache-2.0
#pragma once
// The part of CUPTI's binary interface that is used here, so that neither building nor starting needs a CUDA
// toolkit: beginnings of records (those fields lie alike in CUDA 9 to 13), parameter structs of the profiler
// interface with the size that CUPTI 13.0 gives them, and the functions. cupti_abi_test.cpp compares all of
// it with NVIDIA's headers where they are installed.
#include <cstddef>
#include <cstdint>

namespace cgp::measure::cupti {

inline constexpr int kSuccess = 0, kMaxLimitReached = 12;

// ---- activity records: CUpti_ActivityKernel4..10, Memcpy6, Memset4, Memory4, API, Overhead3, Jit2, ...
enum ActivityKind : std::uint32_t {
  kMemcpy = 1,
  kMemset = 2,
  kKernel = 3,
  kDriver = 4,
  kRuntime = 5,
  kConcurrentKernel = 10,
  kMarker = 12,
  kOverhead = 17,
  kSynchronization = 38,
  kMemory2 = 49,
  kJit = 52,
};

struct Kernel {
  std::uint32_t kind;
  std::uint8_t cache, shared_config;
  std::uint16_t registers;
  std::uint32_t partitioned[2];
  std::uint64_t start, end, completed;
  std::uint32_t device, context, stream;
  std::int32_t grid[3], block[3];
  std::int32_t static_shared, dynamic_shared;
  std::uint32_t local_per_thread, local_total, correlation;
  std::int64_t grid_id;
  const char* name;
  void* reserved;
  std::uint64_t queued, submitted;
  std::uint8_t launch_type, carveout[2], padding;
  std::uint32_t shared_executed;
  std::uint64_t graph_node;
  std::uint32_t shared_limit, graph;
};
struct Memcpy {
  std::uint32_t kind;
  std::uint8_t copy_kind, from_kind, to_kind, flags;
  std::uint64_t bytes, start, end;
  std::uint32_t device, context, stream, correlation;
};
struct Memset {
  std::uint32_t kind, value;
  std::uint64_t bytes, start, end;
  std::uint32_t device, context, stream, correlation;
};
struct Memory {
  std::uint32_t kind, operation, memory_kind, correlation;
  std::uint64_t address, bytes, timestamp;
};
struct ApiCall {
  std::uint32_t kind, callback;
  std::uint64_t start, end;
  std::uint32_t process, thread, correlation, result;
};
struct Overhead {
  std::uint32_t kind, overhead_kind, object_kind, object[3];
  std::uint64_t start, end;
};
struct Jit {
  std::uint32_t kind, entry, operation, device;
  std::uint64_t start, end;
  std::uint32_t correlation, padding;
  std::uint64_t operation_correlation, cache_size;
  const char* cache_path;
};
struct Synchronization {
  std::uint32_t kind, type;
  std::uint64_t start, end;
  std::uint32_t correlation, context, stream;
};

// ---- callbacks
enum : std::uint32_t { kDriverDomain = 1, kResourceDomain = 3 };
enum : std::uint32_t { kContextCreated = 1, kContextDestroyStarting = 2, kModuleLoaded = 6 };
struct ResourceData {
  void* context;
  void* handle;
  void* descriptor;
};
struct ModuleData {
  std::uint32_t module;
  std::size_t bytes;
  const char* cubin;
};
struct CallbackData {
  std::uint32_t site;  ///< 0 enter, 1 exit
  const char* function;
  const void* params;
  void* result;
  const char* symbol;
  void* context;
  std::uint32_t context_id;
  std::uint64_t* correlation_data;
  std::uint32_t correlation;
};
struct LaunchParams {  ///< cuLaunchKernel, cuLaunchCooperativeKernel
  void* function;
  std::uint32_t grid[3], block[3], shared;
};
struct LaunchConfig {  ///< cuLaunchKernelEx: its first parameter is the address of one
  std::uint32_t grid[3], block[3], shared;
};

// Callback ids of the driver (cupti_driver_cbid.h) and runtime (cupti_runtime_cbid.h) calls that a timeline
// needs.
inline constexpr std::uint32_t kLaunchKernel[] = {307, 442}, kLaunchCooperative[] = {477, 478},
                               kLaunchKernelEx[] = {652, 653}, kGraphLaunch[] = {514, 515},
                               kWaits[] = {17, 126, 440};  ///< for a context, for a stream
inline constexpr std::uint32_t kTracedDriverCalls[] = {17,  121, 126, 276, 277, 278, 279, 306, 307, 418,
                                                       421, 422, 440, 442, 477, 478, 514, 515, 652, 653};
inline constexpr std::uint32_t kTracedRuntimeCalls[] = {31,  41,  51,  131, 137, 165, 211, 214,
                                                        225, 239, 269, 311, 312, 430, 431};

// ---- profiler parameters: each begins with its own size
struct Params {
  std::size_t size;
  void* priv;
};
struct ChipName {
  std::size_t size;
  void* priv;
  std::size_t device;
  const char* chip;
};
struct Availability {
  std::size_t size;
  void* priv;
  void* context;
  std::size_t image_size;
  std::uint8_t* image;
};
struct HostInitialize {
  std::size_t size;
  void* priv;
  std::uint32_t type;  ///< 0 range profiler, 1 PM sampling
  const char* chip;
  const std::uint8_t* availability;
  void* host;
};
struct HostObject {
  std::size_t size;
  void* priv;
  void* host;
};
struct HostAddMetrics {
  std::size_t size;
  void* priv;
  void* host;
  const char** names;
  std::size_t count;
};
struct HostConfigImageSize {
  std::size_t size;
  void* priv;
  void* host;
  std::size_t image_size;
};
struct HostConfigImage {
  std::size_t size;
  void* priv;
  void* host;
  std::size_t image_size;
  std::uint8_t* image;
};
struct HostPasses {
  std::size_t size;
  void* priv;
  std::size_t image_size;
  std::uint8_t* image;
  std::size_t passes;
};
struct HostEvaluate {
  std::size_t size;
  void* priv;
  void* host;
  const std::uint8_t* data;
  std::size_t data_size, range;
  const char** names;
  std::size_t count;
  double* values;
};
struct HostChips {
  std::size_t size;
  void* priv;
  std::size_t count;
  const char* const* chips;
};
struct HostProperties {
  std::size_t size;
  void* priv;
  void* host;
  const char* metric;
  const char* description;
  const char* hardware_unit;
  const char* unit;
  std::uint32_t type;
};
struct RangeEnable {
  std::size_t size;
  void* priv;
  void* context;
  void* profiler;
};
struct RangeObject {
  std::size_t size;
  void* priv;
  void* profiler;
};
struct RangeStop {
  std::size_t size;
  void* priv;
  void* profiler;
  std::size_t pass, nesting;
  std::uint8_t all_submitted;
};
struct RangeDecode {
  std::size_t size;
  void* priv;
  void* profiler;
  std::size_t dropped;
};
struct RangeDataSize {
  std::size_t size;
  void* priv;
  void* profiler;
  const char** names;
  std::size_t count, ranges;
  std::uint32_t nodes;
  std::size_t data_size;
};
struct RangeDataInitialize {
  std::size_t size;
  void* priv;
  void* profiler;
  std::size_t data_size;
  std::uint8_t* data;
};
struct RangeDataInfo {
  std::size_t size;
  void* priv;
  const std::uint8_t* data;
  std::size_t data_size, ranges;
};
struct RangeConfig {
  std::size_t size;
  void* priv;
  void* profiler;
  std::size_t config_size;
  const std::uint8_t* config;
  std::size_t data_size;
  std::uint8_t* data;
  std::uint32_t range, replay;  ///< 1 auto range; 2 kernel replay
  std::size_t ranges_per_pass;
  std::uint16_t nesting_levels, lowest_level;
  std::size_t pass;
  std::uint16_t target_level;
};

/// `size` is the end of the last field, as CUPTI computes it.
template <class T>
T make(std::size_t size) {
  T t{};
  t.size = size;
  return t;
}
#define CGP_CUPTI_SIZE(type, last) (offsetof(type, last) + sizeof(type::last))
#define CGP_CUPTI_PARAMS(type, last) ::cgp::measure::cupti::make<type>(CGP_CUPTI_SIZE(type, last))

using BufferRequested = void (*)(std::uint8_t**, std::size_t*, std::size_t*);
using BufferCompleted = void (*)(void*, std::uint32_t, std::uint8_t*, std::size_t, std::size_t);
using Callback = void (*)(void*, std::uint32_t, std::uint32_t, const void*);

/// X(name, parameters): every function returns CUptiResult, an int.
#define CGP_CUPTI_FUNCTIONS(X)                                                 \
  X(cuptiGetVersion, (std::uint32_t*))                                         \
  X(cuptiGetResultString, (int, const char**))                                 \
  X(cuptiSubscribe, (void**, Callback, void*))                                 \
  X(cuptiEnableCallback, (std::uint32_t, void*, std::uint32_t, std::uint32_t)) \
  X(cuptiFinalize, ())                                                         \
  X(cuptiGetTimestamp, (std::uint64_t*))                                       \
  X(cuptiGetDeviceId, (void*, std::uint32_t*))                                 \
  X(cuptiActivityRegisterCallbacks, (BufferRequested, BufferCompleted))        \
  X(cuptiActivityEnable, (std::uint32_t))                                      \
  X(cuptiActivityEnableDriverApi, (std::uint32_t, std::uint8_t))               \
  X(cuptiActivityEnableRuntimeApi, (std::uint32_t, std::uint8_t))              \
  X(cuptiActivityGetNextRecord, (std::uint8_t*, std::size_t, void**))          \
  X(cuptiActivityFlushAll, (std::uint32_t))                                    \
  X(cuptiActivityFlushPeriod, (std::uint32_t))                                 \
  X(cuptiActivityGetNumDroppedRecords, (void*, std::uint32_t, std::size_t*))   \
  X(cuptiDeviceGetChipName, (ChipName*))                                       \
  X(cuptiProfilerInitialize, (Params*))                                        \
  X(cuptiProfilerGetCounterAvailability, (Availability*))                      \
  X(cuptiProfilerHostGetSupportedChips, (HostChips*))                          \
  X(cuptiProfilerHostInitialize, (HostInitialize*))                            \
  X(cuptiProfilerHostDeinitialize, (HostObject*))                              \
  X(cuptiProfilerHostGetMetricProperties, (HostProperties*))                   \
  X(cuptiProfilerHostConfigAddMetrics, (HostAddMetrics*))                      \
  X(cuptiProfilerHostGetConfigImageSize, (HostConfigImageSize*))               \
  X(cuptiProfilerHostGetConfigImage, (HostConfigImage*))                       \
  X(cuptiProfilerHostGetNumOfPasses, (HostPasses*))                            \
  X(cuptiProfilerHostEvaluateToGpuValues, (HostEvaluate*))                     \
  X(cuptiRangeProfilerEnable, (RangeEnable*))                                  \
  X(cuptiRangeProfilerDisable, (RangeObject*))                                 \
  X(cuptiRangeProfilerStart, (RangeObject*))                                   \
  X(cuptiRangeProfilerStop, (RangeStop*))                                      \
  X(cuptiRangeProfilerSetConfig, (RangeConfig*))                               \
  X(cuptiRangeProfilerDecodeData, (RangeDecode*))                              \
  X(cuptiRangeProfilerGetCounterDataSize, (RangeDataSize*))                    \
  X(cuptiRangeProfilerCounterDataImageInitialize, (RangeDataInitialize*))      \
  X(cuptiRangeProfilerGetCounterDataInfo, (RangeDataInfo*))

struct Functions {
#define CGP_CUPTI_DECLARE(name, parameters) int(*name) parameters = nullptr;
  CGP_CUPTI_FUNCTIONS(CGP_CUPTI_DECLARE)
#undef CGP_CUPTI_DECLARE
};

}  // namespace cgp::measure::cupti
