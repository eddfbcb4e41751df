// SPDX-License-Identifier: Apache-2.0
// Our declarations against NVIDIA's header, on machines that have it.
#include "cgp/cuda/abi.h"

#include <gtest/gtest.h>

#include "cgp/cuda/api.h"

#if __has_include(<cuda.h>)
#include <cuda.h>
#define CGP_SAME(ours, theirs) static_assert(int(ours) == int(theirs))
#define CGP_FIELD(O, o, T, t) \
  static_assert(offsetof(O, o) == offsetof(T, t) && sizeof(O::o) == sizeof(T::t), #T "::" #t)

namespace ours = cgp::cuda;
using A = ours::DeviceAttribute;
CGP_SAME(A::max_threads_per_block, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
CGP_SAME(A::max_block_dim_x, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
CGP_SAME(A::max_block_dim_z, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
CGP_SAME(A::max_grid_dim_x, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
CGP_SAME(A::max_grid_dim_z, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
CGP_SAME(A::max_shared_memory_per_block, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
CGP_SAME(A::warp_size, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
CGP_SAME(A::max_registers_per_block, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
CGP_SAME(A::clock_rate_khz, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
CGP_SAME(A::multiprocessor_count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
CGP_SAME(A::memory_clock_rate_khz, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
CGP_SAME(A::global_memory_bus_width, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
CGP_SAME(A::l2_cache_size, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
CGP_SAME(A::max_threads_per_multiprocessor, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
CGP_SAME(A::compute_capability_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
CGP_SAME(A::compute_capability_minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
CGP_SAME(A::max_shared_memory_per_multiprocessor, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
CGP_SAME(A::max_registers_per_multiprocessor, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
CGP_SAME(A::managed_memory, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
CGP_SAME(A::concurrent_managed_access, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS);
CGP_SAME(A::cooperative_launch, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH);
CGP_SAME(A::max_shared_memory_per_block_optin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
CGP_SAME(A::max_blocks_per_multiprocessor, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
CGP_SAME(A::reserved_shared_memory_per_block, CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
CGP_SAME(A::memory_pools_supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
CGP_SAME(A::cluster_launch, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH);
CGP_SAME(A::tensor_map_access_supported, CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED);
using F = ours::FunctionAttribute;
CGP_SAME(F::max_threads_per_block, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
CGP_SAME(F::shared_size_bytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
CGP_SAME(F::local_size_bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
CGP_SAME(F::num_regs, CU_FUNC_ATTRIBUTE_NUM_REGS);
CGP_SAME(F::ptx_version, CU_FUNC_ATTRIBUTE_PTX_VERSION);
CGP_SAME(F::binary_version, CU_FUNC_ATTRIBUTE_BINARY_VERSION);
CGP_SAME(F::max_dynamic_shared_size_bytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
CGP_SAME(F::preferred_shared_memory_carveout, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
CGP_SAME(F::non_portable_cluster_size_allowed, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
CGP_SAME(ours::kInvalidValue, CUDA_ERROR_INVALID_VALUE);
CGP_SAME(ours::kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
CGP_SAME(ours::kDeinitialized, CUDA_ERROR_DEINITIALIZED);
CGP_SAME(ours::kNoDevice, CUDA_ERROR_NO_DEVICE);
CGP_SAME(ours::kInvalidImage, CUDA_ERROR_INVALID_IMAGE);
CGP_SAME(ours::kNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU);
CGP_SAME(ours::kPeerAccessUnsupported, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
CGP_SAME(ours::kInvalidPtx, CUDA_ERROR_INVALID_PTX);
CGP_SAME(ours::kUnsupportedPtxVersion, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
CGP_SAME(ours::kNotFound, CUDA_ERROR_NOT_FOUND);
CGP_SAME(ours::kNotReady, CUDA_ERROR_NOT_READY);
CGP_SAME(ours::kIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
CGP_SAME(ours::kLaunchOutOfResources, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
CGP_SAME(ours::kPeerAccessAlreadyEnabled, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
CGP_SAME(ours::kMisalignedAddress, CUDA_ERROR_MISALIGNED_ADDRESS);
CGP_SAME(ours::kLaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
CGP_SAME(ours::kCooperativeLaunchTooLarge, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
CGP_SAME(ours::kStreamCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
CGP_SAME(ours::LaunchAttributeId::cooperative, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
CGP_SAME(ours::LaunchAttributeId::cluster_dimension, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
CGP_SAME(ours::LaunchAttributeId::programmatic_stream_serialization,
         CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
CGP_SAME(ours::JitOption::wall_time, CU_JIT_WALL_TIME);
CGP_SAME(ours::JitOption::info_log_buffer, CU_JIT_INFO_LOG_BUFFER);
CGP_SAME(ours::JitOption::info_log_buffer_bytes, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES);
CGP_SAME(ours::JitOption::error_log_buffer, CU_JIT_ERROR_LOG_BUFFER);
CGP_SAME(ours::JitOption::error_log_buffer_bytes, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
CGP_SAME(ours::JitOption::log_verbose, CU_JIT_LOG_VERBOSE);
CGP_SAME(ours::JitOption::generate_line_info, CU_JIT_GENERATE_LINE_INFO);
CGP_SAME(ours::JitInput::ptx, CU_JIT_INPUT_PTX);
CGP_SAME(ours::MemoryType::host, CU_MEMORYTYPE_HOST);
CGP_SAME(ours::MemoryType::device, CU_MEMORYTYPE_DEVICE);
CGP_SAME(ours::kLocationDevice, CU_MEM_LOCATION_TYPE_DEVICE);
CGP_SAME(ours::kLocationHost, CU_MEM_LOCATION_TYPE_HOST);
CGP_SAME(ours::kCaptureRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
CGP_SAME(ours::kEventDisableTiming, CU_EVENT_DISABLE_TIMING);
CGP_SAME(ours::kAttachGlobal, CU_MEM_ATTACH_GLOBAL);
CGP_SAME(ours::kAttachSingle, CU_MEM_ATTACH_SINGLE);
CGP_SAME(ours::kHostAllocPortable, CU_MEMHOSTALLOC_PORTABLE);
CGP_SAME(ours::kPointerMemoryType, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
CGP_SAME(ours::MemAdvice::set_accessed_by, CU_MEM_ADVISE_SET_ACCESSED_BY);
CGP_SAME(ours::MemAdvice::set_preferred_location, CU_MEM_ADVISE_SET_PREFERRED_LOCATION);
static_assert(sizeof(ours::LaunchConfig) == sizeof(CUlaunchConfig));
CGP_FIELD(ours::LaunchConfig, shared_bytes, CUlaunchConfig, sharedMemBytes);
CGP_FIELD(ours::LaunchConfig, stream, CUlaunchConfig, hStream);
CGP_FIELD(ours::LaunchConfig, attributes, CUlaunchConfig, attrs);
CGP_FIELD(ours::LaunchConfig, attribute_count, CUlaunchConfig, numAttrs);
static_assert(sizeof(ours::LaunchAttribute) == sizeof(CUlaunchAttribute));
CGP_FIELD(ours::LaunchAttribute, value, CUlaunchAttribute, value);
static_assert(sizeof(ours::Memcpy2d) == sizeof(CUDA_MEMCPY2D));
CGP_FIELD(ours::Memcpy2d, src_device, CUDA_MEMCPY2D, srcDevice);
CGP_FIELD(ours::Memcpy2d, src_pitch, CUDA_MEMCPY2D, srcPitch);
CGP_FIELD(ours::Memcpy2d, dst_host, CUDA_MEMCPY2D, dstHost);
CGP_FIELD(ours::Memcpy2d, dst_device, CUDA_MEMCPY2D, dstDevice);
CGP_FIELD(ours::Memcpy2d, dst_pitch, CUDA_MEMCPY2D, dstPitch);
CGP_FIELD(ours::Memcpy2d, height, CUDA_MEMCPY2D, Height);
static_assert(sizeof(ours::Memcpy3d) == sizeof(CUDA_MEMCPY3D));
CGP_FIELD(ours::Memcpy3d, src_device, CUDA_MEMCPY3D, srcDevice);
CGP_FIELD(ours::Memcpy3d, src_height, CUDA_MEMCPY3D, srcHeight);
CGP_FIELD(ours::Memcpy3d, dst_device, CUDA_MEMCPY3D, dstDevice);
CGP_FIELD(ours::Memcpy3d, dst_height, CUDA_MEMCPY3D, dstHeight);
CGP_FIELD(ours::Memcpy3d, depth, CUDA_MEMCPY3D, Depth);
static_assert(sizeof(ours::KernelNodeParams) == sizeof(CUDA_KERNEL_NODE_PARAMS));
CGP_FIELD(ours::KernelNodeParams, params, CUDA_KERNEL_NODE_PARAMS, kernelParams);
CGP_FIELD(ours::KernelNodeParams, context, CUDA_KERNEL_NODE_PARAMS, ctx);
static_assert(sizeof(ours::MemsetNodeParams) == sizeof(CUDA_MEMSET_NODE_PARAMS));
CGP_FIELD(ours::MemsetNodeParams, element_size, CUDA_MEMSET_NODE_PARAMS, elementSize);
CGP_FIELD(ours::MemsetNodeParams, height, CUDA_MEMSET_NODE_PARAMS, height);
static_assert(sizeof(ours::MemLocation) == sizeof(CUmemLocation));
static_assert(sizeof(ours::TensorMapBits) == sizeof(CUtensorMap) &&
              alignof(ours::TensorMapBits) == alignof(CUtensorMap));

TEST(cuda_abi, layouts_and_constants_are_those_of_cuda_h) { SUCCEED() << CUDA_VERSION; }
#else
TEST(cuda_abi, layouts_and_constants_are_those_of_cuda_h) { GTEST_SKIP() << "no cuda.h on this machine"; }
#endif
