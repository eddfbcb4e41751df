// SPDX-License-Identifier: Apache-2.0
#pragma once
// The part of the CUDA driver's binary interface that we call: types, struct layouts and constants, declared
// here because the build must not need cuda.h. abi_test.cpp compares them with cuda.h where there is one.
#include <cstddef>
#include <cstdint>

namespace cgp::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_opaque*;
using CUmodule = struct CUmod_opaque*;
using CUfunction = struct CUfunc_opaque*;
using CUstream = struct CUstream_opaque*;
using CUevent = struct CUevent_opaque*;
using CUgraph = struct CUgraph_opaque*;
using CUgraphNode = struct CUgraphNode_opaque*;
using CUgraphExec = struct CUgraphExec_opaque*;
using CUlinkState = struct CUlinkState_opaque*;

// ---- results
enum : CUresult {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kDeinitialized = 4,
  kNoDevice = 100,
  kInvalidImage = 200,
  kNoBinaryForGpu = 209,
  kPeerAccessUnsupported = 217,
  kInvalidPtx = 218,
  kUnsupportedPtxVersion = 222,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchOutOfResources = 701,
  kPeerAccessAlreadyEnabled = 704,
  kMisalignedAddress = 716,
  kLaunchFailed = 719,
  kCooperativeLaunchTooLarge = 720,
  kStreamCaptureUnsupported = 900,
};

// ---- device attributes
enum class DeviceAttribute : int {
  max_threads_per_block = 1,
  max_block_dim_x = 2,
  max_block_dim_y = 3,
  max_block_dim_z = 4,
  max_grid_dim_x = 5,
  max_grid_dim_y = 6,
  max_grid_dim_z = 7,
  max_shared_memory_per_block = 8,
  warp_size = 10,
  max_registers_per_block = 12,
  clock_rate_khz = 13,
  multiprocessor_count = 16,
  memory_clock_rate_khz = 36,
  global_memory_bus_width = 37,
  l2_cache_size = 38,
  max_threads_per_multiprocessor = 39,
  compute_capability_major = 75,
  compute_capability_minor = 76,
  max_shared_memory_per_multiprocessor = 81,
  max_registers_per_multiprocessor = 82,
  managed_memory = 83,
  concurrent_managed_access = 89,
  cooperative_launch = 95,
  max_shared_memory_per_block_optin = 97,
  max_blocks_per_multiprocessor = 106,
  reserved_shared_memory_per_block = 111,
  memory_pools_supported = 115,
  cluster_launch = 120,
  tensor_map_access_supported = 127,
};

enum class FunctionAttribute : int {
  max_threads_per_block = 0,
  shared_size_bytes = 1,
  local_size_bytes = 3,
  num_regs = 4,
  ptx_version = 5,
  binary_version = 6,
  max_dynamic_shared_size_bytes = 8,
  preferred_shared_memory_carveout = 9,
  non_portable_cluster_size_allowed = 14,
};

// ---- launches
enum class LaunchAttributeId : int {
  cooperative = 2,
  cluster_dimension = 4,
  programmatic_stream_serialization = 6
};
union LaunchAttributeValue {
  char pad[64];
  int cooperative;
  struct {
    unsigned int x, y, z;
  } cluster_dim;
  int programmatic_stream_serialization_allowed;
};
struct LaunchAttribute {
  LaunchAttributeId id;
  char pad[4];
  LaunchAttributeValue value;
};
static_assert(sizeof(LaunchAttribute) == 72 && offsetof(LaunchAttribute, value) == 8);
struct LaunchConfig {
  unsigned int grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  CUstream stream;
  LaunchAttribute* attributes;
  unsigned int attribute_count;
};
static_assert(sizeof(LaunchConfig) == 56 && offsetof(LaunchConfig, stream) == 32);

// ---- copies
enum class MemoryType : int { host = 1, device = 2 };
struct Memcpy2d {
  std::size_t src_x_bytes, src_y;
  MemoryType src_type;
  const void* src_host;
  CUdeviceptr src_device;
  void* src_array;
  std::size_t src_pitch;
  std::size_t dst_x_bytes, dst_y;
  MemoryType dst_type;
  void* dst_host;
  CUdeviceptr dst_device;
  void* dst_array;
  std::size_t dst_pitch;
  std::size_t width_bytes, height;
};
static_assert(sizeof(Memcpy2d) == 128 && offsetof(Memcpy2d, dst_x_bytes) == 56);
struct Memcpy3d {
  std::size_t src_x_bytes, src_y, src_z, src_lod;
  MemoryType src_type;
  const void* src_host;
  CUdeviceptr src_device;
  void* src_array;
  void* reserved0;
  std::size_t src_pitch, src_height;
  std::size_t dst_x_bytes, dst_y, dst_z, dst_lod;
  MemoryType dst_type;
  void* dst_host;
  CUdeviceptr dst_device;
  void* dst_array;
  void* reserved1;
  std::size_t dst_pitch, dst_height;
  std::size_t width_bytes, height, depth;
};
static_assert(sizeof(Memcpy3d) == 200 && offsetof(Memcpy3d, dst_x_bytes) == 88);
struct MemLocation {
  int type;  // kLocationDevice, kLocationHost
  int id;
};
static_assert(sizeof(MemLocation) == 8);
inline constexpr int kLocationDevice = 1, kLocationHost = 2;

// ---- graphs
struct KernelNodeParams {
  CUfunction function;
  unsigned int grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  void** params;
  void** extra;
  void* kernel;
  CUcontext context;
};
static_assert(sizeof(KernelNodeParams) == 72 && offsetof(KernelNodeParams, params) == 40);
struct MemsetNodeParams {
  CUdeviceptr dst;
  std::size_t pitch;
  unsigned int value, element_size;
  std::size_t width, height;
};
static_assert(sizeof(MemsetNodeParams) == 40);
/// CU_STREAM_CAPTURE_MODE_RELAXED: loading and allocating stay legal.
inline constexpr int kCaptureRelaxed = 2;

// ---- compilation
enum class JitOption : int {
  wall_time = 2,
  info_log_buffer = 3,
  info_log_buffer_bytes = 4,
  error_log_buffer = 5,
  error_log_buffer_bytes = 6,
  log_verbose = 12,
  generate_line_info = 13,
};
enum class JitInput : int { cubin = 0, ptx = 1 };

// ---- flags
inline constexpr unsigned kEventDefault = 0, kEventDisableTiming = 2;
inline constexpr unsigned kStreamDefault = 0;
inline constexpr unsigned kAttachGlobal = 1, kAttachSingle = 4;
inline constexpr unsigned kHostAllocPortable = 1;
inline constexpr int kPointerMemoryType = 2;
enum class MemAdvice : int {
  set_read_mostly = 1,
  unset_read_mostly = 2,
  set_preferred_location = 3,
  unset_preferred_location = 4,
  set_accessed_by = 5,
  unset_accessed_by = 6,
};

// ---- tensor maps
/// Memory of one process, for others.
struct IpcHandle {
  char reserved[64];
};
constexpr unsigned kIpcEnablePeerAccess = 1;

struct alignas(128) TensorMapBits {
  std::uint64_t words[16];
};
static_assert(sizeof(TensorMapBits) == 128);

}  // namespace cgp::cuda
