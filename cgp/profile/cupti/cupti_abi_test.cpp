// SPDX-License-Identifier: Apache-2.0
// Our declarations against NVIDIA's headers, where they are installed.
#include "cgp/profile/cupti/cupti_abi.h"

#include <gtest/gtest.h>

#if __has_include(<cupti.h>) && __has_include(<cupti_range_profiler.h>)
#pragma GCC diagnostic ignored "-Wpedantic"
#include <cupti.h>
#include <cupti_profiler_host.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

namespace ours = cgp::measure::cupti;

#define SAME_FIELD(our, field, their, name)                              \
  EXPECT_EQ(offsetof(ours::our, field), offsetof(their, name)) << #name; \
  EXPECT_EQ(sizeof(ours::our::field), sizeof(their::name)) << #name

TEST(cupti_abi, records_lie_as_in_the_header) {
  SAME_FIELD(Kernel, registers, CUpti_ActivityKernel10, registersPerThread);
  SAME_FIELD(Kernel, start, CUpti_ActivityKernel10, start);
  SAME_FIELD(Kernel, end, CUpti_ActivityKernel10, end);
  SAME_FIELD(Kernel, device, CUpti_ActivityKernel10, deviceId);
  SAME_FIELD(Kernel, stream, CUpti_ActivityKernel10, streamId);
  EXPECT_EQ(offsetof(ours::Kernel, grid), offsetof(CUpti_ActivityKernel10, gridX));
  EXPECT_EQ(offsetof(ours::Kernel, block), offsetof(CUpti_ActivityKernel10, blockX));
  SAME_FIELD(Kernel, static_shared, CUpti_ActivityKernel10, staticSharedMemory);
  SAME_FIELD(Kernel, dynamic_shared, CUpti_ActivityKernel10, dynamicSharedMemory);
  SAME_FIELD(Kernel, local_per_thread, CUpti_ActivityKernel10, localMemoryPerThread);
  SAME_FIELD(Kernel, correlation, CUpti_ActivityKernel10, correlationId);
  SAME_FIELD(Kernel, name, CUpti_ActivityKernel10, name);
  SAME_FIELD(Kernel, graph, CUpti_ActivityKernel10, graphId);
  SAME_FIELD(Memcpy, copy_kind, CUpti_ActivityMemcpy6, copyKind);
  SAME_FIELD(Memcpy, bytes, CUpti_ActivityMemcpy6, bytes);
  SAME_FIELD(Memcpy, start, CUpti_ActivityMemcpy6, start);
  SAME_FIELD(Memcpy, correlation, CUpti_ActivityMemcpy6, correlationId);
  SAME_FIELD(Memset, bytes, CUpti_ActivityMemset4, bytes);
  SAME_FIELD(Memset, correlation, CUpti_ActivityMemset4, correlationId);
  SAME_FIELD(Memory, operation, CUpti_ActivityMemory4, memoryOperationType);
  SAME_FIELD(Memory, address, CUpti_ActivityMemory4, address);
  SAME_FIELD(Memory, bytes, CUpti_ActivityMemory4, bytes);
  SAME_FIELD(Memory, timestamp, CUpti_ActivityMemory4, timestamp);
  SAME_FIELD(ApiCall, callback, CUpti_ActivityAPI, cbid);
  SAME_FIELD(ApiCall, start, CUpti_ActivityAPI, start);
  SAME_FIELD(ApiCall, thread, CUpti_ActivityAPI, threadId);
  SAME_FIELD(ApiCall, correlation, CUpti_ActivityAPI, correlationId);
  SAME_FIELD(Overhead, overhead_kind, CUpti_ActivityOverhead3, overheadKind);
  SAME_FIELD(Overhead, start, CUpti_ActivityOverhead3, start);
  SAME_FIELD(Jit, operation, CUpti_ActivityJit2, jitOperationType);
  SAME_FIELD(Jit, start, CUpti_ActivityJit2, start);
  SAME_FIELD(Jit, cache_size, CUpti_ActivityJit2, cacheSize);
  SAME_FIELD(Synchronization, start, CUpti_ActivitySynchronization2, start);
  SAME_FIELD(ModuleData, cubin, CUpti_ModuleResourceData, pCubin);
  SAME_FIELD(ResourceData, descriptor, CUpti_ResourceData, resourceDescriptor);
  SAME_FIELD(CallbackData, symbol, CUpti_CallbackData, symbolName);
  SAME_FIELD(CallbackData, params, CUpti_CallbackData, functionParams);
  SAME_FIELD(CallbackData, correlation, CUpti_CallbackData, correlationId);
}

TEST(cupti_abi, numbers_are_those_of_the_header) {
  EXPECT_EQ(int(ours::kConcurrentKernel), int(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
  EXPECT_EQ(int(ours::kMemory2), int(CUPTI_ACTIVITY_KIND_MEMORY2));
  EXPECT_EQ(int(ours::kJit), int(CUPTI_ACTIVITY_KIND_JIT));
  EXPECT_EQ(int(ours::kOverhead), int(CUPTI_ACTIVITY_KIND_OVERHEAD));
  EXPECT_EQ(int(ours::kSynchronization), int(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION));
  EXPECT_EQ(int(ours::kRuntime), int(CUPTI_ACTIVITY_KIND_RUNTIME));
  EXPECT_EQ(int(ours::kModuleLoaded), int(CUPTI_CBID_RESOURCE_MODULE_LOADED));
  EXPECT_EQ(int(ours::kDriverDomain), int(CUPTI_CB_DOMAIN_DRIVER_API));
  EXPECT_EQ(int(ours::kLaunchKernelEx[0]), int(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx));
  EXPECT_EQ(int(ours::kLaunchKernel[0]), int(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel));
  EXPECT_EQ(int(ours::kGraphLaunch[1]), int(CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz));
  EXPECT_EQ(1, int(CUPTI_AutoRange));
  EXPECT_EQ(2, int(CUPTI_KernelReplay));
}

#define SAME_SIZE(our, last, their) \
  EXPECT_EQ(CGP_CUPTI_SIZE(ours::our, last), std::size_t(their##_STRUCT_SIZE)) << #their

TEST(cupti_abi, parameters_have_the_sizes_of_the_header) {
  SAME_SIZE(Params, priv, CUpti_Profiler_Initialize_Params);
  SAME_SIZE(ChipName, chip, CUpti_Device_GetChipName_Params);
  SAME_SIZE(Availability, image, CUpti_Profiler_GetCounterAvailability_Params);
  SAME_SIZE(HostInitialize, host, CUpti_Profiler_Host_Initialize_Params);
  SAME_SIZE(HostObject, host, CUpti_Profiler_Host_Deinitialize_Params);
  SAME_SIZE(HostAddMetrics, count, CUpti_Profiler_Host_ConfigAddMetrics_Params);
  SAME_SIZE(HostConfigImageSize, image_size, CUpti_Profiler_Host_GetConfigImageSize_Params);
  SAME_SIZE(HostConfigImage, image, CUpti_Profiler_Host_GetConfigImage_Params);
  SAME_SIZE(HostPasses, passes, CUpti_Profiler_Host_GetNumOfPasses_Params);
  SAME_SIZE(HostEvaluate, values, CUpti_Profiler_Host_EvaluateToGpuValues_Params);
  SAME_SIZE(HostChips, chips, CUpti_Profiler_Host_GetSupportedChips_Params);
  SAME_SIZE(HostProperties, type, CUpti_Profiler_Host_GetMetricProperties_Params);
  SAME_SIZE(RangeEnable, profiler, CUpti_RangeProfiler_Enable_Params);
  SAME_SIZE(RangeObject, profiler, CUpti_RangeProfiler_Start_Params);
  SAME_SIZE(RangeStop, all_submitted, CUpti_RangeProfiler_Stop_Params);
  SAME_SIZE(RangeDecode, dropped, CUpti_RangeProfiler_DecodeData_Params);
  SAME_SIZE(RangeDataSize, data_size, CUpti_RangeProfiler_GetCounterDataSize_Params);
  SAME_SIZE(RangeDataInitialize, data, CUpti_RangeProfiler_CounterDataImage_Initialize_Params);
  SAME_SIZE(RangeDataInfo, ranges, CUpti_RangeProfiler_GetCounterDataInfo_Params);
  SAME_SIZE(RangeConfig, target_level, CUpti_RangeProfiler_SetConfig_Params);
}
#else
TEST(cupti_abi, needs_the_headers) { GTEST_SKIP() << "CUPTI's headers are not installed"; }
#endif
