// SPDX-License-Identifier: Apache-2.0
#include "cgp/wgpu/device.h"

#include <cstring>
#include <utility>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::wgpu {
namespace {
using text::cat;

constexpr std::uint32_t kLostDestroyed = 2;  // by its release

Adapter adapter_of(const Api& api, std::size_t ordinal) {
  auto all = adapters(api);
  if (ordinal >= all.size())
    throw Unsupported({cat("there is no device wgpu:", ordinal), api.path,
                       cat("wgpu-native lists ", all.size()),
                       "WebGPU needs a Vulkan driver, such as mesa-vulkan-drivers"});
  return all[ordinal];
}
StringView view(const std::string& s) { return {s.data(), s.size()}; }

}  // namespace

void Device::on_error(const Handle*, std::uint32_t type, StringView message, void* self, void*) {
  const auto* d = static_cast<const Device*>(self);
  if (!d->error_.empty()) return;  // the first one is the cause
  d->error_ = text_of(message);
  d->error_type_ = type;
}
void Device::on_lost(const Handle*, std::uint32_t reason, StringView message, void* self, void*) {
  if (reason == kLostDestroyed) return;
  const auto* d = static_cast<const Device*>(self);
  if (d->error_.empty()) d->error_ = cat("the device is lost: ", text_of(message));
}

Device::Device(ApiPtr a, std::size_t ordinal) : api(std::move(a)), adapter(adapter_of(*api, ordinal)) {
  const EnumerateAdapterOptions options{nullptr, kBackendsPrimary};
  std::vector<Handle> handles(api->wgpuInstanceEnumerateAdapters(api->instance, &options, nullptr));
  api->wgpuInstanceEnumerateAdapters(api->instance, &options, handles.data());
  Limits limits;
  api->wgpuAdapterGetLimits(handles.at(ordinal), &limits);
  const Feature timestamps = Feature::timestamp_query;
  DeviceDescriptor d;
  d.feature_count = adapter.timestamps ? 1 : 0;
  d.features = &timestamps;
  d.limits = &limits;
  d.lost.callback = &Device::on_lost;
  d.lost.user1 = this;
  d.error.callback = &Device::on_error;
  d.error.user1 = this;
  RequestDeviceCallbackInfo done;
  done.callback = [](std::uint32_t status, Handle device, StringView message, void* self, void*) {
    auto* that = static_cast<Device*>(self);
    if (status == kStatusSuccess)
      that->handle = device;
    else
      that->error_ = text_of(message);
  };
  done.user1 = this;
  api->wgpuAdapterRequestDevice(handles[ordinal], &d, done);  // wgpu-native answers before it returns
  for (Handle h : handles) api->wgpuAdapterRelease(h);
  check("wgpuAdapterRequestDevice", adapter.name);
  queue = api->wgpuDeviceGetQueue(handle);
  if (adapter.timestamps) timestamp_period = api->wgpuQueueGetTimestampPeriod(queue);
}
Device::~Device() {
  if (queue) api->wgpuQueueRelease(queue);
  if (handle) api->wgpuDeviceRelease(handle);
}
void Device::check(const char* call, const std::string& detail) const {
  if (error_.empty()) return;
  const std::string why = std::exchange(error_, {});
  throw DriverError(
      int(std::exchange(error_type_, 0)),
      {cat(call, " failed"), detail.empty() ? std::string(call) : cat(call, ", ", detail), why, {}});
}
Owned Device::buffer(std::uint64_t bytes, Flags usage, const std::string& detail) const {
  BufferDescriptor d;
  d.usage = usage;
  d.size = bytes;
  Owned out(api->wgpuDeviceCreateBuffer(handle, &d), api->wgpuBufferRelease);
  check("wgpuDeviceCreateBuffer", cat(text::bytes(bytes), detail.empty() ? "" : " for ", detail));
  return out;
}
Owned Device::buffer_of(std::span<const std::byte> data, Flags usage) const {
  BufferDescriptor d;
  d.usage = usage;
  d.size = data.size();
  d.mapped_at_creation = 1;
  Owned out(api->wgpuDeviceCreateBuffer(handle, &d), api->wgpuBufferRelease);
  check("wgpuDeviceCreateBuffer", text::bytes(data.size()));
  std::memcpy(api->wgpuBufferGetMappedRange(out.get(), 0, data.size()), data.data(), data.size());
  api->wgpuBufferUnmap(out.get());
  return out;
}
Owned Device::pipeline(const std::string& wgsl, const std::string& entry) const {
  ShaderSourceWgsl source;
  source.code = view(wgsl);
  ShaderModuleDescriptor m;
  m.next = &source.chain;
  const Owned module(api->wgpuDeviceCreateShaderModule(handle, &m), api->wgpuShaderModuleRelease);
  check("wgpuDeviceCreateShaderModule", entry);
  ComputePipelineDescriptor d;
  d.module = module.get();
  d.entry = view(entry);
  Owned out(api->wgpuDeviceCreateComputePipeline(handle, &d), api->wgpuComputePipelineRelease);
  check("wgpuDeviceCreateComputePipeline", entry);
  return out;
}
Owned Device::encoder() const {
  return {api->wgpuDeviceCreateCommandEncoder(handle, nullptr), api->wgpuCommandEncoderRelease};
}
void Device::submit(Owned encoder) const {
  const Owned commands(api->wgpuCommandEncoderFinish(encoder.get(), nullptr), api->wgpuCommandBufferRelease);
  check("wgpuCommandEncoderFinish");
  const Handle one = commands.get();
  api->wgpuQueueSubmit(queue, 1, &one);
  check("wgpuQueueSubmit");
}
void Device::wait() const {
  api->wgpuDevicePoll(handle, 1, nullptr);
  check("wgpuDevicePoll");
}
void Device::read(Handle buffer, std::span<std::byte> out) const {
  std::uint32_t status = 0;
  MapCallbackInfo done;
  done.callback = [](std::uint32_t s, StringView, void* to, void*) { *static_cast<std::uint32_t*>(to) = s; };
  done.user1 = &status;
  const std::size_t size = (out.size() + 3) / 4 * 4;
  api->wgpuBufferMapAsync(buffer, kMapModeRead, 0, size, done);
  api->wgpuDevicePoll(handle, 1, nullptr);
  check("wgpuBufferMapAsync", text::bytes(out.size()));
  if (status != kStatusSuccess)
    throw DriverError(int(status),
                      {"wgpuBufferMapAsync failed", "wgpuBufferMapAsync", cat("status ", status), {}});
  std::memcpy(out.data(), api->wgpuBufferGetConstMappedRange(buffer, 0, size), out.size());
  api->wgpuBufferUnmap(buffer);
}

}  // namespace cgp::wgpu
