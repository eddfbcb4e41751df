// SPDX-License-Identifier: Apache-2.0
#pragma once
// The part of wgpu-native's C interface that cgp uses (webgpu.h and wgpu.h of version 29, 64-bit machines), under our names. The
// interface changes between major versions; Api::load accepts this one alone.
#include <cstddef>
#include <cstdint>

namespace cgp::wgpu {

inline constexpr std::uint32_t kVersion = 29;  // major

using Handle = struct OpaqueHandle*;  // of every kind: instance, adapter, device, buffer, ...
using Flags = std::uint64_t;
using Bool = std::uint32_t;

inline constexpr std::size_t kToTheEnd = ~std::size_t(0);  // WGPU_STRLEN
inline constexpr std::uint32_t kNoQuery = ~std::uint32_t(0);
struct StringView {
  const char* data = nullptr;
  std::size_t length = kToTheEnd;
};
struct ChainedStruct {
  const ChainedStruct* next = nullptr;
  std::uint32_t type = 0;
};
inline constexpr std::uint32_t kShaderSourceWgsl = 2;
struct Future {
  std::uint64_t id;
};
enum class CallbackMode : std::uint32_t { process_events = 2, spontaneous = 3 };
inline constexpr std::uint32_t kStatusSuccess = 1;

struct InstanceExtras {
  ChainedStruct chain{nullptr, 0x00030004};
  Flags backends = 0;
  Flags flags = 1 << 24;  // the defaults
  std::uint32_t d3d12_compiler = 0, gles_version = 0, gl_fences = 0;
  StringView dxc_path;
  std::uint32_t dxc_model = 0, d3d12_presentation = 0;
  const std::uint8_t *budget_creation = nullptr, *budget_loss = nullptr;
  std::uint64_t display[4]{};  // none
};
struct InstanceDescriptor {
  const ChainedStruct* next = nullptr;
  std::size_t feature_count = 0;
  const std::uint32_t* features = nullptr;
  const void* limits = nullptr;
};
struct EnumerateAdapterOptions {
  const ChainedStruct* next = nullptr;
  Flags backends = 0;
};
inline constexpr Flags kBackendsPrimary = 1 | 4 | 8;  // Vulkan, Metal, Direct3D 12

struct AdapterInfo {
  const ChainedStruct* next = nullptr;
  StringView vendor, architecture, device, description;
  std::uint32_t backend = 0, adapter_type = 0, vendor_id = 0, device_id = 0, subgroup_min = 0,
                subgroup_max = 0;
};
inline constexpr std::uint32_t kAdapterCpu = 3;
struct Limits {
  const ChainedStruct* next = nullptr;
  std::uint32_t unused0[11]{};
  std::uint32_t max_storage_buffers = 0;
  std::uint32_t unused1[2]{};
  std::uint64_t max_uniform_binding = 0, max_storage_binding = 0;
  std::uint32_t uniform_alignment = 0, storage_alignment = 0;
  std::uint32_t unused2 = 0;
  std::uint64_t max_buffer = 0;
  std::uint32_t unused3[5]{};
  std::uint32_t max_shared_memory = 0, max_block_threads = 0, max_block[3]{}, max_grid = 0;
  std::uint32_t unused4 = 0;
};
static_assert(offsetof(Limits, max_storage_buffers) == 52 && offsetof(Limits, max_storage_binding) == 72);
static_assert(offsetof(Limits, max_buffer) == 96 && offsetof(Limits, max_shared_memory) == 124);
static_assert(sizeof(Limits) == 152);
enum class Feature : std::uint32_t { timestamp_query = 9 };

struct DeviceLostCallbackInfo {
  const ChainedStruct* next = nullptr;
  CallbackMode mode = CallbackMode::spontaneous;
  void (*callback)(const Handle* device, std::uint32_t reason, StringView message, void*, void*) = nullptr;
  void *user1 = nullptr, *user2 = nullptr;
};
struct UncapturedErrorCallbackInfo {
  const ChainedStruct* next = nullptr;
  void (*callback)(const Handle* device, std::uint32_t type, StringView message, void*, void*) = nullptr;
  void *user1 = nullptr, *user2 = nullptr;
};
inline constexpr std::uint32_t kErrorOutOfMemory = 3;
struct QueueDescriptor {
  const ChainedStruct* next = nullptr;
  StringView label;
};
struct DeviceDescriptor {
  const ChainedStruct* next = nullptr;
  StringView label;
  std::size_t feature_count = 0;
  const Feature* features = nullptr;
  const Limits* limits = nullptr;
  QueueDescriptor queue;
  DeviceLostCallbackInfo lost;
  UncapturedErrorCallbackInfo error;
};
struct RequestDeviceCallbackInfo {
  const ChainedStruct* next = nullptr;
  CallbackMode mode = CallbackMode::spontaneous;
  void (*callback)(std::uint32_t status, Handle device, StringView message, void*, void*) = nullptr;
  void *user1 = nullptr, *user2 = nullptr;
};
struct MapCallbackInfo {
  const ChainedStruct* next = nullptr;
  CallbackMode mode = CallbackMode::spontaneous;
  void (*callback)(std::uint32_t status, StringView message, void*, void*) = nullptr;
  void *user1 = nullptr, *user2 = nullptr;
};

struct BufferDescriptor {
  const ChainedStruct* next = nullptr;
  StringView label;
  Flags usage = 0;
  std::uint64_t size = 0;
  Bool mapped_at_creation = 0;
};
inline constexpr Flags kMapRead = 1, kCopySource = 4, kCopyDestination = 8, kUniform = 0x40, kStorage = 0x80,
                       kQueryResolve = 0x200;
inline constexpr Flags kMapModeRead = 1;

struct ShaderSourceWgsl {
  ChainedStruct chain{nullptr, kShaderSourceWgsl};
  StringView code;
};
struct ShaderModuleDescriptor {
  const ChainedStruct* next = nullptr;
  StringView label;
};
struct ComputePipelineDescriptor {
  const ChainedStruct* next = nullptr;
  StringView label;
  Handle layout = nullptr;  // null: made from the shader
  const ChainedStruct* compute_next = nullptr;
  Handle module = nullptr;
  StringView entry;
  std::size_t constant_count = 0;
  const void* constants = nullptr;
};
struct BindGroupEntry {
  const ChainedStruct* next = nullptr;
  std::uint32_t binding = 0;
  Handle buffer = nullptr;
  std::uint64_t offset = 0, size = 0;
  Handle sampler = nullptr, texture = nullptr;
};
struct BindGroupDescriptor {
  const ChainedStruct* next = nullptr;
  StringView label;
  Handle layout = nullptr;
  std::size_t entry_count = 0;
  const BindGroupEntry* entries = nullptr;
};
struct PassTimestampWrites {
  const ChainedStruct* next = nullptr;
  Handle queries = nullptr;
  std::uint32_t begin = kNoQuery, end = kNoQuery;
};
struct ComputePassDescriptor {
  const ChainedStruct* next = nullptr;
  StringView label;
  const PassTimestampWrites* timestamps = nullptr;
};
struct QuerySetDescriptor {
  const ChainedStruct* next = nullptr;
  StringView label;
  std::uint32_t type = 2;  // timestamps
  std::uint32_t count = 0;
};

}  // namespace cgp::wgpu
