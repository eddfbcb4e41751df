// SPDX-License-Identifier: Apache-2.0
#pragma once
// The part of the Vulkan 1.2 ABI on 64-bit machines that cgp uses, under our names: structures, constants and handle
// types (Vulkan 1.3 specification; the field order is the specification's). abi_test.cpp compares it with
// vulkan_core.h where that is installed. Members that are not read are padding.
#include <cstddef>
#include <cstdint>

namespace cgp::vulkan {

// Dispatchable handles are pointers, the others 64-bit numbers.
using VkInstance = struct VkInstanceHandle*;
using VkPhysicalDevice = struct VkPhysicalDeviceHandle*;
using VkDevice = struct VkDeviceHandle*;
using VkQueue = struct VkQueueHandle*;
using VkCommandBuffer = struct VkCommandBufferHandle*;
using VkHandle = std::uint64_t;
using VkResult = int;
using VkFunction = void (*)();

inline constexpr VkResult kSuccess = 0, kNotReady = 1, kTimeout = 2, kOutOfDeviceMemory = -2,
                          kDeviceLost = -4;

enum class StructureType : std::uint32_t {
  application_info = 0,
  instance_create_info = 1,
  device_queue_create_info = 2,
  device_create_info = 3,
  submit_info = 4,
  memory_allocate_info = 5,
  fence_create_info = 8,
  query_pool_create_info = 11,
  buffer_create_info = 12,
  shader_module_create_info = 16,
  pipeline_shader_stage_create_info = 18,
  compute_pipeline_create_info = 29,
  pipeline_layout_create_info = 30,
  command_pool_create_info = 39,
  command_buffer_allocate_info = 40,
  command_buffer_begin_info = 42,
  memory_barrier = 46,
  vulkan11_features = 49,
  vulkan11_properties = 50,
  vulkan12_features = 51,
  features2 = 1000059000,
  properties2 = 1000059001,
  memory_allocate_flags_info = 1000060000,
  sm_builtins_properties_nv = 1000154001,
  shader_bfloat16_features = 1000141000,
  float_controls_properties = 1000197000,
  buffer_device_address_info = 1000244001,
  workgroup_memory_explicit_layout_features = 1000336000,
  cooperative_matrix_features = 1000506000,
  cooperative_matrix_properties = 1000506001,
};

struct ApplicationInfo {
  StructureType type = StructureType::application_info;
  const void* next = nullptr;
  const char* application = "cgp";
  std::uint32_t application_version = 0;
  const char* engine = nullptr;
  std::uint32_t engine_version = 0;
  std::uint32_t api_version = (1u << 22) | (2u << 12);  // 1.2: buffer device addresses are core
};
struct InstanceCreateInfo {
  StructureType type = StructureType::instance_create_info;
  const void* next = nullptr;
  std::uint32_t flags = 0;
  const ApplicationInfo* application = nullptr;
  std::uint32_t layer_count = 0;
  const char* const* layers = nullptr;
  std::uint32_t extension_count = 0;
  const char* const* extensions = nullptr;
};

struct Limits {
  std::uint32_t unused0[7];
  std::uint32_t max_storage_buffer, max_push_constants;
  std::uint32_t unused1[45];
  std::uint32_t max_shared_memory, max_grid[3], max_block_threads, max_block[3];
  std::uint32_t unused2[20];
  std::uint64_t storage_buffer_alignment;
  std::uint32_t unused3[22];
  float timestamp_period;
  std::uint32_t unused4[19];
};
struct Properties {
  std::uint32_t api_version, driver_version, vendor, device, type;
  char name[256];
  std::uint8_t uuid[16];
  Limits limits;
  std::uint32_t sparse[5];
};
struct Properties2 {
  StructureType type = StructureType::properties2;
  void* next = nullptr;
  Properties properties{};
};
struct Vulkan11Properties {
  StructureType type = StructureType::vulkan11_properties;
  void* next = nullptr;
  std::uint8_t device_uuid[16]{}, driver_uuid[16]{}, luid[8]{};
  std::uint32_t node_mask = 0, luid_valid = 0;
  std::uint32_t subgroup_size = 0, subgroup_stages = 0, subgroup_operations = 0, subgroup_quad_all = 0;
  std::uint32_t unused[5]{};
  std::uint64_t max_allocation = 0;
};
struct SmBuiltinsProperties {  // VK_NV_shader_sm_builtins
  StructureType type = StructureType::sm_builtins_properties_nv;
  void* next = nullptr;
  std::uint32_t sm_count = 0, warps_per_sm = 0;
};
struct FloatControlsProperties {
  StructureType type = StructureType::float_controls_properties;
  void* next = nullptr;
  std::uint32_t denormal_independence = 0,
                rounding_independence = 0;  ///< kIndependenceNone: all widths alike
  std::uint32_t unused0[3]{};
  std::uint32_t denormals16 = 0;  ///< kept where a shader asks for it
  std::uint32_t unused1[5]{};
  std::uint32_t nearest16 = 0;  ///< rounds to nearest even where a shader asks for it
  std::uint32_t unused2[5]{};
};
inline constexpr std::uint32_t kIndependenceNone = 2;
struct Features {
  std::uint32_t unused0[40];
  std::uint32_t int64;
  std::uint32_t unused1[14];
};
struct Features2 {
  StructureType type = StructureType::features2;
  void* next = nullptr;
  Features features{};
};
struct Vulkan11Features {
  StructureType type = StructureType::vulkan11_features;
  void* next = nullptr;
  std::uint32_t storage16 = 0;
  std::uint32_t unused[11]{};
};
struct Vulkan12Features {
  StructureType type = StructureType::vulkan12_features;
  void* next = nullptr;
  std::uint32_t unused0[2]{};
  std::uint32_t storage8 = 0;
  std::uint32_t unused1[4]{};
  std::uint32_t float16 = 0;
  std::uint32_t unused3[30]{};
  std::uint32_t device_address = 0;
  std::uint32_t unused2[8]{};
};
struct WorkgroupMemoryExplicitLayoutFeatures {  // VK_KHR_workgroup_memory_explicit_layout
  StructureType type = StructureType::workgroup_memory_explicit_layout_features;
  void* next = nullptr;
  std::uint32_t layout = 0, scalar_blocks = 0, access8 = 0, access16 = 0;
};
struct CooperativeMatrixFeatures {  // VK_KHR_cooperative_matrix
  StructureType type = StructureType::cooperative_matrix_features;
  void* next = nullptr;
  std::uint32_t matrices = 0, robust_access = 0;
};
struct CooperativeMatrixProperties {
  StructureType type = StructureType::cooperative_matrix_properties;
  void* next = nullptr;
  std::uint32_t m = 0, n = 0, k = 0, a = 0, b = 0, c = 0, result = 0, saturating = 0, scope = 0;
};
inline constexpr std::uint32_t kFloat16 = 0, kFloat32 = 1, kBfloat16 = 1000141000, kScopeSubgroup = 3;
struct ShaderBfloat16Features {  // VK_KHR_shader_bfloat16
  StructureType type = StructureType::shader_bfloat16_features;
  void* next = nullptr;
  std::uint32_t bf16 = 0, dot_products = 0, matrices = 0;
};
struct QueueFamily {
  std::uint32_t flags, count, timestamp_bits, granularity[3];
};
struct MemoryProperties {
  std::uint32_t type_count;
  struct {
    std::uint32_t flags, heap;
  } types[32];
  std::uint32_t heap_count;
  struct {
    std::uint64_t size;
    std::uint32_t flags;
  } heaps[16];
};
struct ExtensionProperties {
  char name[256];
  std::uint32_t version;
};
inline constexpr std::uint32_t kQueueCompute = 2, kHeapDeviceLocal = 1;
inline constexpr std::uint32_t kMemoryDeviceLocal = 1, kMemoryHostVisible = 2, kMemoryHostCoherent = 4,
                               kMemoryHostCached = 8;
inline constexpr std::uint32_t kSubgroupVote = 2, kSubgroupArithmetic = 4, kSubgroupBallot = 8,
                               kSubgroupShuffle = 16;

struct DeviceQueueCreateInfo {
  StructureType type = StructureType::device_queue_create_info;
  const void* next = nullptr;
  std::uint32_t flags = 0, family = 0, count = 0;
  const float* priorities = nullptr;
};
struct DeviceCreateInfo {
  StructureType type = StructureType::device_create_info;
  const void* next = nullptr;
  std::uint32_t flags = 0, queue_count = 0;
  const DeviceQueueCreateInfo* queues = nullptr;
  std::uint32_t layer_count = 0;
  const char* const* layers = nullptr;
  std::uint32_t extension_count = 0;
  const char* const* extensions = nullptr;
  const Features* features = nullptr;
};

struct BufferCreateInfo {
  StructureType type = StructureType::buffer_create_info;
  const void* next = nullptr;
  std::uint32_t flags = 0;
  std::uint64_t size = 0;
  std::uint32_t usage = 0, sharing = 0, family_count = 0;
  const std::uint32_t* families = nullptr;
};
inline constexpr std::uint32_t kBufferTransferSource = 1, kBufferTransferDestination = 2,
                               kBufferStorage = 0x20, kBufferDeviceAddress = 0x20000;
struct MemoryRequirements {
  std::uint64_t size, alignment;
  std::uint32_t type_bits;
};
struct MemoryAllocateFlagsInfo {
  StructureType type = StructureType::memory_allocate_flags_info;
  const void* next = nullptr;
  std::uint32_t flags = 2;  // VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT
  std::uint32_t device_mask = 0;
};
struct MemoryAllocateInfo {
  StructureType type = StructureType::memory_allocate_info;
  const void* next = nullptr;
  std::uint64_t size = 0;
  std::uint32_t memory_type = 0;
};
struct BufferDeviceAddressInfo {
  StructureType type = StructureType::buffer_device_address_info;
  const void* next = nullptr;
  VkHandle buffer = 0;
};
struct BufferCopy {
  std::uint64_t source, destination, size;
};
inline constexpr std::uint64_t kWholeSize = ~std::uint64_t(0);

struct ShaderModuleCreateInfo {
  StructureType type = StructureType::shader_module_create_info;
  const void* next = nullptr;
  std::uint32_t flags = 0;
  std::size_t bytes = 0;
  const std::uint32_t* code = nullptr;
};
struct PushConstantRange {
  std::uint32_t stages = 0, offset = 0, size = 0;
};
inline constexpr std::uint32_t kStageCompute = 0x20;
struct PipelineLayoutCreateInfo {
  StructureType type = StructureType::pipeline_layout_create_info;
  const void* next = nullptr;
  std::uint32_t flags = 0, set_count = 0;
  const VkHandle* sets = nullptr;
  std::uint32_t range_count = 0;
  const PushConstantRange* ranges = nullptr;
};
struct PipelineShaderStageCreateInfo {
  StructureType type = StructureType::pipeline_shader_stage_create_info;
  const void* next = nullptr;
  std::uint32_t flags = 0, stage = kStageCompute;
  VkHandle module = 0;
  const char* entry = nullptr;
  const void* specialization = nullptr;
};
struct ComputePipelineCreateInfo {
  StructureType type = StructureType::compute_pipeline_create_info;
  const void* next = nullptr;
  std::uint32_t flags = 0;
  PipelineShaderStageCreateInfo stage;
  VkHandle layout = 0, base = 0;
  std::int32_t base_index = -1;
};

struct CommandPoolCreateInfo {
  StructureType type = StructureType::command_pool_create_info;
  const void* next = nullptr;
  std::uint32_t flags = 0, family = 0;
};
struct CommandBufferAllocateInfo {
  StructureType type = StructureType::command_buffer_allocate_info;
  const void* next = nullptr;
  VkHandle pool = 0;
  std::uint32_t level = 0, count = 1;
};
struct CommandBufferBeginInfo {
  StructureType type = StructureType::command_buffer_begin_info;
  const void* next = nullptr;
  std::uint32_t flags = 1;  // VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT
  const void* inheritance = nullptr;
};
struct MemoryBarrier {
  StructureType type = StructureType::memory_barrier;
  const void* next = nullptr;
  std::uint32_t source = 0, destination = 0;
};
inline constexpr std::uint32_t kAccessHostRead = 0x2000, kAccessMemoryRead = 0x8000,
                               kAccessMemoryWrite = 0x10000;
inline constexpr std::uint32_t kPipelineBottom = 0x2000, kPipelineHost = 0x4000,
                               kPipelineAllCommands = 0x10000;
struct SubmitInfo {
  StructureType type = StructureType::submit_info;
  const void* next = nullptr;
  std::uint32_t wait_count = 0;
  const VkHandle* waits = nullptr;
  const std::uint32_t* wait_stages = nullptr;
  std::uint32_t command_count = 0;
  const VkCommandBuffer* commands = nullptr;
  std::uint32_t signal_count = 0;
  const VkHandle* signals = nullptr;
};
struct FenceCreateInfo {
  StructureType type = StructureType::fence_create_info;
  const void* next = nullptr;
  std::uint32_t flags = 0;
};
struct QueryPoolCreateInfo {
  StructureType type = StructureType::query_pool_create_info;
  const void* next = nullptr;
  std::uint32_t flags = 0, query_type = 2;  // VK_QUERY_TYPE_TIMESTAMP
  std::uint32_t count = 0, statistics = 0;
};
inline constexpr std::uint32_t kQuery64 = 1, kQueryWait = 2;

}  // namespace cgp::vulkan
