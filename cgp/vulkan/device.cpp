// SPDX-License-Identifier: Apache-2.0
#include "cgp/vulkan/device.h"

#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::vulkan {
namespace {
using text::cat;

constexpr std::uint32_t kBindCompute = 1;

VkDevice make_device(const Api& api, const PhysicalDevice& p) {
  std::vector<std::string> missing;
  if (p.compute_family < 0) missing.emplace_back("a queue for compute");
  if (!p.device_address) missing.emplace_back("bufferDeviceAddress");
  if (!p.int64) missing.emplace_back("shaderInt64");
  if (!missing.empty())
    throw Unsupported({"kernels need Vulkan 1.2 with bufferDeviceAddress and shaderInt64",
                       p.name,
                       cat("the device has no ", text::join(missing, ", no ")),
                       {}});
  Vulkan12Features v12;
  v12.device_address = 1;
  v12.storage8 = p.storage8;
  v12.float16 = p.float16;
  Vulkan11Features v11;
  v11.next = &v12;
  v11.storage16 = p.storage16;
  std::vector<const char*> extensions;
  const auto enable = [&](auto& feature, const char* extension) {
    feature.next = v12.next;
    v12.next = &feature;
    extensions.push_back(extension);
  };
  WorkgroupMemoryExplicitLayoutFeatures layout;
  layout.layout = 1;
  layout.access8 = layout.access16 = p.narrow_shared;
  CooperativeMatrixFeatures matrix;
  matrix.matrices = 1;
  ShaderBfloat16Features bf16;
  bf16.bf16 = bf16.matrices = 1;
  if (p.wide_shared) enable(layout, kExtensionWideShared);
  if (p.matrix_f16 || p.matrix_bf16) enable(matrix, kExtensionMatrices);
  if (p.matrix_bf16) enable(bf16, kExtensionBfloat16);
  Features2 features;
  features.next = &v11;
  features.features.int64 = 1;
  const float priority = 1;
  DeviceQueueCreateInfo queue;
  queue.family = std::uint32_t(p.compute_family);
  queue.count = 1;
  queue.priorities = &priority;
  DeviceCreateInfo info;
  info.next = &features;
  info.queue_count = 1;
  info.queues = &queue;
  info.extension_count = std::uint32_t(extensions.size());
  info.extensions = extensions.data();
  VkDevice device = nullptr;
  check(api.vkCreateDevice(p.handle, &info, nullptr, &device), "vkCreateDevice", p.name);
  return device;
}

/// The first memory type that has the flags of the first wish that any has.
std::uint32_t choose_memory(const MemoryProperties& m, std::uint32_t allowed,
                            std::initializer_list<std::uint32_t> wishes) {
  for (const std::uint32_t flags : wishes)
    for (std::uint32_t i = 0; i < m.type_count; ++i)
      if ((allowed >> i & 1) && (m.types[i].flags & flags) == flags) return i;
  throw Unsupported("the Vulkan driver offers no memory type for a buffer");
}

}  // namespace

// ---------------------------------------------------------------- Device
Device::Device(ApiPtr a, PhysicalDevice p)
    : api(std::move(a)), physical(std::move(p)), handle(make_device(*api, physical)), fn(*api, handle) {
  fn.vkGetDeviceQueue(handle, std::uint32_t(physical.compute_family), 0, &queue);
}
Device::~Device() { fn.vkDestroyDevice(handle, nullptr); }

// ---------------------------------------------------------------- Buffer
Buffer::Buffer(DevicePtr device, std::uint64_t bytes, Location where, const std::string& name)
    : device_(std::move(device)), bytes_(bytes) {
  const Device& d = *device_;
  const std::string detail = cat(text::bytes(bytes), name.empty() ? "" : " for ", name);
  try {
    BufferCreateInfo info;
    info.size = (bytes + 15) / 16 * 16;  // the last words are read whole
    info.usage = kBufferTransferSource | kBufferTransferDestination | kBufferStorage | kBufferDeviceAddress;
    check(d.fn.vkCreateBuffer(d.handle, &info, nullptr, &buffer_), "vkCreateBuffer", detail);
    MemoryRequirements needs{};
    d.fn.vkGetBufferMemoryRequirements(d.handle, buffer_, &needs);
    const std::uint32_t host = kMemoryHostVisible | kMemoryHostCoherent;
    MemoryAllocateFlagsInfo flags;
    MemoryAllocateInfo memory;
    memory.next = &flags;
    memory.size = needs.size;
    const MemoryProperties& types = d.physical.memory;
    memory.memory_type = where == Location::device
                             ? choose_memory(types, needs.type_bits, {kMemoryDeviceLocal, 0})
                         : where == Location::download
                             ? choose_memory(types, needs.type_bits, {host | kMemoryHostCached, host})
                             : choose_memory(types, needs.type_bits, {host});
    check(d.fn.vkAllocateMemory(d.handle, &memory, nullptr, &memory_), "vkAllocateMemory", detail);
    check(d.fn.vkBindBufferMemory(d.handle, buffer_, memory_, 0), "vkBindBufferMemory", detail);
    if (where != Location::device) {
      void* p = nullptr;
      check(d.fn.vkMapMemory(d.handle, memory_, 0, kWholeSize, 0, &p), "vkMapMemory", detail);
      host_ = static_cast<std::byte*>(p);
    }
    BufferDeviceAddressInfo address;
    address.buffer = buffer_;
    address_ = d.fn.vkGetBufferDeviceAddress(d.handle, &address);
  } catch (...) {
    drop();
    throw;
  }
}
Buffer::~Buffer() { drop(); }
void Buffer::drop() noexcept {
  device_->fn.vkDestroyBuffer(device_->handle, buffer_, nullptr);  // null handles are legal
  device_->fn.vkFreeMemory(device_->handle, memory_, nullptr);
}

// ---------------------------------------------------------------- Pipeline
Pipeline::Pipeline(DevicePtr device, std::span<const std::uint32_t> spirv, const std::string& entry,
                   std::uint32_t push_constant_bytes)
    : device_(std::move(device)) {
  const Device& d = *device_;
  VkHandle module = 0;
  try {
    ShaderModuleCreateInfo code;
    code.bytes = spirv.size_bytes();
    code.code = spirv.data();
    check(d.fn.vkCreateShaderModule(d.handle, &code, nullptr, &module), "vkCreateShaderModule", entry);
    const PushConstantRange range{kStageCompute, 0, push_constant_bytes};
    PipelineLayoutCreateInfo layout;
    layout.range_count = push_constant_bytes ? 1 : 0;
    layout.ranges = &range;
    check(d.fn.vkCreatePipelineLayout(d.handle, &layout, nullptr, &layout_), "vkCreatePipelineLayout", entry);
    ComputePipelineCreateInfo info;
    info.stage.module = module;
    info.stage.entry = entry.c_str();
    info.layout = layout_;
    check(d.fn.vkCreateComputePipelines(d.handle, 0, 1, &info, nullptr, &pipeline_),
          "vkCreateComputePipelines", entry);
  } catch (...) {
    d.fn.vkDestroyShaderModule(d.handle, module, nullptr);
    drop();
    throw;
  }
  d.fn.vkDestroyShaderModule(d.handle, module, nullptr);
}
Pipeline::~Pipeline() { drop(); }
void Pipeline::drop() noexcept {
  device_->fn.vkDestroyPipeline(device_->handle, pipeline_, nullptr);
  device_->fn.vkDestroyPipelineLayout(device_->handle, layout_, nullptr);
}

// ---------------------------------------------------------------- Commands
Commands::Commands(DevicePtr device) : device_(std::move(device)) {
  const Device& d = *device_;
  try {
    CommandPoolCreateInfo pool;
    pool.family = std::uint32_t(d.physical.compute_family);
    check(d.fn.vkCreateCommandPool(d.handle, &pool, nullptr, &pool_), "vkCreateCommandPool");
    CommandBufferAllocateInfo commands;
    commands.pool = pool_;
    check(d.fn.vkAllocateCommandBuffers(d.handle, &commands, &commands_), "vkAllocateCommandBuffers");
    const FenceCreateInfo fence;
    check(d.fn.vkCreateFence(d.handle, &fence, nullptr, &fence_), "vkCreateFence");
    if (d.physical.timestamp_bits) {
      QueryPoolCreateInfo queries;
      queries.count = kTimestamps;
      check(d.fn.vkCreateQueryPool(d.handle, &queries, nullptr, &queries_), "vkCreateQueryPool");
    }
  } catch (...) {
    drop();
    throw;
  }
}
Commands::~Commands() {
  if (submitted_) device_->fn.vkWaitForFences(device_->handle, 1, &fence_, 1, ~std::uint64_t(0));
  drop();
}
void Commands::drop() noexcept {
  const Device& d = *device_;
  d.fn.vkDestroyQueryPool(d.handle, queries_, nullptr);
  d.fn.vkDestroyFence(d.handle, fence_, nullptr);
  d.fn.vkDestroyCommandPool(d.handle, pool_, nullptr);  // frees its command buffer
}
void Commands::begin() {
  const Device& d = *device_;
  check(d.fn.vkResetCommandPool(d.handle, pool_, 0), "vkResetCommandPool");
  const CommandBufferBeginInfo info;
  check(d.fn.vkBeginCommandBuffer(commands_, &info), "vkBeginCommandBuffer");
  if (queries_) d.fn.vkCmdResetQueryPool(commands_, queries_, 0, kTimestamps);
  timestamps_ = 0;
}
void Commands::barrier() {
  MemoryBarrier all;
  all.source = kAccessMemoryWrite;
  all.destination = kAccessMemoryRead | kAccessMemoryWrite;
  device_->fn.vkCmdPipelineBarrier(commands_, kPipelineAllCommands, kPipelineAllCommands, 0, 1, &all, 0,
                                   nullptr, 0, nullptr);
}
void Commands::copy(VkHandle source, VkHandle destination, std::span<const BufferCopy> regions) {
  barrier();
  device_->fn.vkCmdCopyBuffer(commands_, source, destination, std::uint32_t(regions.size()), regions.data());
}
void Commands::fill(VkHandle buffer, std::uint64_t offset, std::uint64_t bytes, std::uint8_t value) {
  barrier();
  device_->fn.vkCmdFillBuffer(commands_, buffer, offset, bytes, 0x01010101u * value);
}
void Commands::dispatch(const Pipeline& p, std::span<const std::byte> push, std::uint32_t x, std::uint32_t y,
                        std::uint32_t z) {
  barrier();
  device_->fn.vkCmdBindPipeline(commands_, kBindCompute, p.handle());
  if (!push.empty())
    device_->fn.vkCmdPushConstants(commands_, p.layout(), kStageCompute, 0, std::uint32_t(push.size()),
                                   push.data());
  device_->fn.vkCmdDispatch(commands_, x, y, z);
}
std::uint32_t Commands::timestamp() {
  device_->fn.vkCmdWriteTimestamp(commands_, kPipelineBottom, queries_, timestamps_);
  return timestamps_++;
}
void Commands::submit() {
  const Device& d = *device_;
  MemoryBarrier host;  // the host reads what was downloaded once the fence is signalled
  host.source = kAccessMemoryWrite;
  host.destination = kAccessHostRead;
  d.fn.vkCmdPipelineBarrier(commands_, kPipelineAllCommands, kPipelineHost, 0, 1, &host, 0, nullptr, 0,
                            nullptr);
  check(d.fn.vkEndCommandBuffer(commands_), "vkEndCommandBuffer");
  SubmitInfo info;
  info.command_count = 1;
  info.commands = &commands_;
  check(d.fn.vkResetFences(d.handle, 1, &fence_), "vkResetFences");
  check(d.fn.vkQueueSubmit(d.queue, 1, &info, fence_), "vkQueueSubmit");
  submitted_ = true;
}
bool Commands::done() {
  if (!submitted_) return true;
  const VkResult r = device_->fn.vkGetFenceStatus(device_->handle, fence_);
  check(r, "vkGetFenceStatus");
  if (r == kSuccess) submitted_ = false;
  return r == kSuccess;
}
void Commands::wait() {
  if (!submitted_) return;
  check(device_->fn.vkWaitForFences(device_->handle, 1, &fence_, 1, ~std::uint64_t(0)), "vkWaitForFences");
  submitted_ = false;
}
std::vector<std::uint64_t> Commands::ticks() const {
  const Device& d = *device_;
  std::vector<std::uint64_t> out(timestamps_);
  if (out.empty()) return out;
  check(d.fn.vkGetQueryPoolResults(d.handle, queries_, 0, timestamps_, out.size() * 8, out.data(), 8,
                                   kQuery64 | kQueryWait),
        "vkGetQueryPoolResults");
  return out;
}

}  // namespace cgp::vulkan
