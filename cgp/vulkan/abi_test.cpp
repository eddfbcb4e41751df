// SPDX-License-Identifier: Apache-2.0
// Our declarations against the specification's header, on machines that have it (package libvulkan-dev).
#include "cgp/vulkan/abi.h"

#if __has_include(<vulkan/vulkan_core.h>)
#include <vulkan/vulkan_core.h>
#define CGP_SAME(ours, theirs) static_assert(std::uint64_t(ours) == std::uint64_t(theirs))
#define CGP_FIELD(O, o, T, t) \
  static_assert(offsetof(O, o) == offsetof(T, t) && sizeof(O::o) == sizeof(T::t), #T "::" #t)
#define CGP_SIZE(O, T) static_assert(sizeof(O) == sizeof(T))

namespace o = cgp::vulkan;
using S = o::StructureType;
CGP_SAME(S::application_info, VK_STRUCTURE_TYPE_APPLICATION_INFO);
CGP_SAME(S::instance_create_info, VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO);
CGP_SAME(S::device_queue_create_info, VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO);
CGP_SAME(S::device_create_info, VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO);
CGP_SAME(S::submit_info, VK_STRUCTURE_TYPE_SUBMIT_INFO);
CGP_SAME(S::memory_allocate_info, VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO);
CGP_SAME(S::fence_create_info, VK_STRUCTURE_TYPE_FENCE_CREATE_INFO);
CGP_SAME(S::query_pool_create_info, VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO);
CGP_SAME(S::buffer_create_info, VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO);
CGP_SAME(S::shader_module_create_info, VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO);
CGP_SAME(S::pipeline_shader_stage_create_info, VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO);
CGP_SAME(S::compute_pipeline_create_info, VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO);
CGP_SAME(S::pipeline_layout_create_info, VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO);
CGP_SAME(S::command_pool_create_info, VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO);
CGP_SAME(S::command_buffer_allocate_info, VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO);
CGP_SAME(S::command_buffer_begin_info, VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO);
CGP_SAME(S::memory_barrier, VK_STRUCTURE_TYPE_MEMORY_BARRIER);
CGP_SAME(S::vulkan11_features, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES);
CGP_SAME(S::vulkan11_properties, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES);
CGP_SAME(S::vulkan12_features, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES);
CGP_SAME(S::features2, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2);
CGP_SAME(S::properties2, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2);
CGP_SAME(S::memory_allocate_flags_info, VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO);
CGP_SAME(S::sm_builtins_properties_nv, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV);
CGP_SAME(S::buffer_device_address_info, VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO);
CGP_SAME(o::kDeviceLost, VK_ERROR_DEVICE_LOST);
CGP_SAME(o::kOutOfDeviceMemory, VK_ERROR_OUT_OF_DEVICE_MEMORY);
CGP_SAME(o::kQueueCompute, VK_QUEUE_COMPUTE_BIT);
CGP_SAME(o::kHeapDeviceLocal, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT);
CGP_SAME(o::kMemoryHostVisible, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT);
CGP_SAME(o::kMemoryHostCoherent, VK_MEMORY_PROPERTY_HOST_COHERENT_BIT);
CGP_SAME(o::kMemoryHostCached, VK_MEMORY_PROPERTY_HOST_CACHED_BIT);
CGP_SAME(o::kSubgroupVote, VK_SUBGROUP_FEATURE_VOTE_BIT);
CGP_SAME(o::kSubgroupBallot, VK_SUBGROUP_FEATURE_BALLOT_BIT);
CGP_SAME(o::kSubgroupShuffle, VK_SUBGROUP_FEATURE_SHUFFLE_BIT);
CGP_SAME(o::kBufferStorage, VK_BUFFER_USAGE_STORAGE_BUFFER_BIT);
CGP_SAME(o::kBufferDeviceAddress, VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT);
CGP_SAME(o::kStageCompute, VK_SHADER_STAGE_COMPUTE_BIT);
CGP_SAME(o::kAccessHostRead, VK_ACCESS_HOST_READ_BIT);
CGP_SAME(o::kAccessMemoryRead, VK_ACCESS_MEMORY_READ_BIT);
CGP_SAME(o::kAccessMemoryWrite, VK_ACCESS_MEMORY_WRITE_BIT);
CGP_SAME(o::kPipelineBottom, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT);
CGP_SAME(o::kPipelineHost, VK_PIPELINE_STAGE_HOST_BIT);
CGP_SAME(o::kPipelineAllCommands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT);
CGP_SAME(o::kQuery64, VK_QUERY_RESULT_64_BIT);
CGP_SAME(o::kQueryWait, VK_QUERY_RESULT_WAIT_BIT);
CGP_SAME(o::QueryPoolCreateInfo().query_type, VK_QUERY_TYPE_TIMESTAMP);
CGP_SAME(o::MemoryAllocateFlagsInfo().flags, VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT);
CGP_SAME(o::CommandBufferBeginInfo().flags, VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT);
CGP_FIELD(o::Limits, max_storage_buffer, VkPhysicalDeviceLimits, maxStorageBufferRange);
CGP_FIELD(o::Limits, max_push_constants, VkPhysicalDeviceLimits, maxPushConstantsSize);
CGP_FIELD(o::Limits, max_shared_memory, VkPhysicalDeviceLimits, maxComputeSharedMemorySize);
CGP_FIELD(o::Limits, max_grid, VkPhysicalDeviceLimits, maxComputeWorkGroupCount);
CGP_FIELD(o::Limits, max_block_threads, VkPhysicalDeviceLimits, maxComputeWorkGroupInvocations);
CGP_FIELD(o::Limits, max_block, VkPhysicalDeviceLimits, maxComputeWorkGroupSize);
CGP_FIELD(o::Limits, storage_buffer_alignment, VkPhysicalDeviceLimits, minStorageBufferOffsetAlignment);
CGP_FIELD(o::Limits, timestamp_period, VkPhysicalDeviceLimits, timestampPeriod);
CGP_SIZE(o::Limits, VkPhysicalDeviceLimits);
CGP_FIELD(o::Properties, limits, VkPhysicalDeviceProperties, limits);
CGP_FIELD(o::Properties, name, VkPhysicalDeviceProperties, deviceName);
CGP_FIELD(o::Properties2, properties, VkPhysicalDeviceProperties2, properties);
CGP_SIZE(o::Properties2, VkPhysicalDeviceProperties2);
CGP_FIELD(o::Vulkan11Properties, subgroup_size, VkPhysicalDeviceVulkan11Properties, subgroupSize);
CGP_FIELD(o::Vulkan11Properties, subgroup_stages, VkPhysicalDeviceVulkan11Properties,
          subgroupSupportedStages);
CGP_FIELD(o::Vulkan11Properties, subgroup_operations, VkPhysicalDeviceVulkan11Properties,
          subgroupSupportedOperations);
CGP_FIELD(o::Vulkan11Properties, max_allocation, VkPhysicalDeviceVulkan11Properties, maxMemoryAllocationSize);
CGP_SIZE(o::Vulkan11Properties, VkPhysicalDeviceVulkan11Properties);
CGP_FIELD(o::SmBuiltinsProperties, sm_count, VkPhysicalDeviceShaderSMBuiltinsPropertiesNV, shaderSMCount);
CGP_SIZE(o::SmBuiltinsProperties, VkPhysicalDeviceShaderSMBuiltinsPropertiesNV);
CGP_FIELD(o::FloatControlsProperties, rounding_independence, VkPhysicalDeviceFloatControlsProperties,
          roundingModeIndependence);
CGP_FIELD(o::FloatControlsProperties, denormals16, VkPhysicalDeviceFloatControlsProperties,
          shaderDenormPreserveFloat16);
CGP_FIELD(o::FloatControlsProperties, nearest16, VkPhysicalDeviceFloatControlsProperties,
          shaderRoundingModeRTEFloat16);
CGP_SIZE(o::FloatControlsProperties, VkPhysicalDeviceFloatControlsProperties);
CGP_FIELD(o::Features, int64, VkPhysicalDeviceFeatures, shaderInt64);
CGP_SIZE(o::Features2, VkPhysicalDeviceFeatures2);
CGP_FIELD(o::Vulkan11Features, storage16, VkPhysicalDeviceVulkan11Features, storageBuffer16BitAccess);
CGP_SIZE(o::Vulkan11Features, VkPhysicalDeviceVulkan11Features);
CGP_FIELD(o::Vulkan12Features, storage8, VkPhysicalDeviceVulkan12Features, storageBuffer8BitAccess);
CGP_FIELD(o::Vulkan12Features, device_address, VkPhysicalDeviceVulkan12Features, bufferDeviceAddress);
CGP_FIELD(o::Vulkan12Features, float16, VkPhysicalDeviceVulkan12Features, shaderFloat16);
CGP_SIZE(o::Vulkan12Features, VkPhysicalDeviceVulkan12Features);
#ifdef VK_KHR_workgroup_memory_explicit_layout
CGP_SAME(S::workgroup_memory_explicit_layout_features,
         VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_WORKGROUP_MEMORY_EXPLICIT_LAYOUT_FEATURES_KHR);
CGP_FIELD(o::WorkgroupMemoryExplicitLayoutFeatures, access16,
          VkPhysicalDeviceWorkgroupMemoryExplicitLayoutFeaturesKHR, workgroupMemoryExplicitLayout16BitAccess);
CGP_SIZE(o::WorkgroupMemoryExplicitLayoutFeatures, VkPhysicalDeviceWorkgroupMemoryExplicitLayoutFeaturesKHR);
#endif
#ifdef VK_KHR_cooperative_matrix
CGP_SAME(S::cooperative_matrix_features, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR);
CGP_SAME(S::cooperative_matrix_properties, VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR);
CGP_SIZE(o::CooperativeMatrixFeatures, VkPhysicalDeviceCooperativeMatrixFeaturesKHR);
CGP_FIELD(o::CooperativeMatrixProperties, scope, VkCooperativeMatrixPropertiesKHR, scope);
CGP_SIZE(o::CooperativeMatrixProperties, VkCooperativeMatrixPropertiesKHR);
CGP_SAME(o::kFloat32, VK_COMPONENT_TYPE_FLOAT32_KHR);
#endif
#ifdef VK_KHR_shader_bfloat16
CGP_SAME(S::shader_bfloat16_features, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR);
CGP_FIELD(o::ShaderBfloat16Features, matrices, VkPhysicalDeviceShaderBfloat16FeaturesKHR,
          shaderBFloat16CooperativeMatrix);
CGP_SAME(o::kBfloat16, VK_COMPONENT_TYPE_BFLOAT16_KHR);
#endif
CGP_SIZE(o::QueueFamily, VkQueueFamilyProperties);
CGP_SIZE(o::MemoryProperties, VkPhysicalDeviceMemoryProperties);
CGP_FIELD(o::MemoryProperties, heaps, VkPhysicalDeviceMemoryProperties, memoryHeaps);
CGP_SIZE(o::ExtensionProperties, VkExtensionProperties);
CGP_SIZE(o::ApplicationInfo, VkApplicationInfo);
CGP_SIZE(o::InstanceCreateInfo, VkInstanceCreateInfo);
CGP_SIZE(o::DeviceQueueCreateInfo, VkDeviceQueueCreateInfo);
CGP_FIELD(o::DeviceCreateInfo, queues, VkDeviceCreateInfo, pQueueCreateInfos);
CGP_SIZE(o::DeviceCreateInfo, VkDeviceCreateInfo);
CGP_FIELD(o::BufferCreateInfo, usage, VkBufferCreateInfo, usage);
CGP_SIZE(o::BufferCreateInfo, VkBufferCreateInfo);
CGP_SIZE(o::MemoryRequirements, VkMemoryRequirements);
CGP_SIZE(o::MemoryAllocateFlagsInfo, VkMemoryAllocateFlagsInfo);
CGP_FIELD(o::MemoryAllocateInfo, memory_type, VkMemoryAllocateInfo, memoryTypeIndex);
CGP_SIZE(o::BufferDeviceAddressInfo, VkBufferDeviceAddressInfo);
CGP_SIZE(o::BufferCopy, VkBufferCopy);
CGP_FIELD(o::ShaderModuleCreateInfo, code, VkShaderModuleCreateInfo, pCode);
CGP_FIELD(o::PipelineLayoutCreateInfo, ranges, VkPipelineLayoutCreateInfo, pPushConstantRanges);
CGP_FIELD(o::PipelineShaderStageCreateInfo, entry, VkPipelineShaderStageCreateInfo, pName);
CGP_FIELD(o::ComputePipelineCreateInfo, layout, VkComputePipelineCreateInfo, layout);
CGP_SIZE(o::ComputePipelineCreateInfo, VkComputePipelineCreateInfo);
CGP_FIELD(o::CommandPoolCreateInfo, family, VkCommandPoolCreateInfo, queueFamilyIndex);
CGP_FIELD(o::CommandBufferAllocateInfo, count, VkCommandBufferAllocateInfo, commandBufferCount);
CGP_SIZE(o::CommandBufferBeginInfo, VkCommandBufferBeginInfo);
CGP_SIZE(o::MemoryBarrier, VkMemoryBarrier);
CGP_FIELD(o::SubmitInfo, commands, VkSubmitInfo, pCommandBuffers);
CGP_SIZE(o::SubmitInfo, VkSubmitInfo);
CGP_SIZE(o::FenceCreateInfo, VkFenceCreateInfo);
CGP_FIELD(o::QueryPoolCreateInfo, count, VkQueryPoolCreateInfo, queryCount);
CGP_SIZE(o::QueryPoolCreateInfo, VkQueryPoolCreateInfo);
#endif
