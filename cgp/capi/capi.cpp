// SPDX-License-Identifier: Apache-2.0
// The C interface: errors, devices, memory, streams.
#include <cstring>
#include <new>

#include "cgp/base/dtype.h"
#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/capi/handles.h"
#include "cgp/kernels/kv_cache/kv_pages.h"

namespace cgp::capi {
namespace {

static_assert(int(CGP_U8) == int(DType::u8) && int(CGP_BF16) == int(DType::bf16) &&
              int(CGP_E5M2) == int(DType::e5m2) && kDTypeCount == int(CGP_E5M2) + 1);

struct LastError {
  std::string text = "no call of this thread has failed", parts[4];
};
LastError& last_error() {
  thread_local LastError e;
  return e;
}

cgp_status code_of(const std::exception& e) {
  if (dynamic_cast<const Unsupported*>(&e)) return CGP_UNSUPPORTED;
  if (dynamic_cast<const ArgumentError*>(&e) || dynamic_cast<const ParseError*>(&e) ||
      dynamic_cast<const VerifyError*>(&e))
    return CGP_INVALID_ARGUMENT;
  if (dynamic_cast<const DriverError*>(&e)) return CGP_DRIVER;
  if (dynamic_cast<const EmuFault*>(&e)) return CGP_FAULT;
  if (dynamic_cast<const std::bad_alloc*>(&e)) return CGP_OUT_OF_MEMORY;
  if (const auto* kv = dynamic_cast<const kernels::KvError*>(&e))
    return kv->kind() == kernels::KvFailure::exhausted ? CGP_OUT_OF_MEMORY : CGP_INVALID_ARGUMENT;
  return CGP_INTERNAL;
}

}  // namespace

cgp_status failed(const std::exception& e) noexcept {
  try {
    auto& last = last_error();
    last.text = e.what();
    const auto* ours = dynamic_cast<const Error*>(&e);
    last.parts[CGP_RULE] = ours ? ours->rule() : e.what();
    last.parts[CGP_WHERE] = ours ? ours->where() : "";
    last.parts[CGP_WHY] = ours ? ours->why() : "";
    last.parts[CGP_HINT] = ours ? ours->hint() : "";
  } catch (...) {  // no memory for the text
  }
  return code_of(e);
}

void require(const void* p, const char* what) {
  if (!p) throw ArgumentError(text::cat(what, " is NULL"));
}
void bad_options(const char* what, std::size_t size) {
  throw ArgumentError({text::cat("the options of ", what, " have a size that this library does not know"),
                       {},
                       text::cat("size = ", size),
                       "set it to sizeof the structure, and the members that you do not use to 0"});
}

namespace {
runtime::Region region(const cgp_device* d, std::uint64_t address, std::uint64_t bytes) {
  return {d->device.backend().get(), address, bytes};
}
void copy_text(char* to, std::size_t size, std::string_view from) {
  const std::size_t n = std::min(size - 1, from.size());
  std::memcpy(to, from.data(), n);
  to[n] = 0;
}
}  // namespace
}  // namespace cgp::capi

using namespace cgp;
using capi::guarded;
using capi::require;

uint32_t cgp_abi_version(void) { return CGP_ABI_VERSION; }
const char* cgp_version(void) { return CGP_VERSION; }
const char* cgp_last_error(void) { return capi::last_error().text.c_str(); }
const char* cgp_last_error_part(int32_t part) {
  return part >= CGP_RULE && part <= CGP_HINT ? capi::last_error().parts[part].c_str() : "";
}

cgp_status cgp_device_open(const char* spec, cgp_device** out) {
  return guarded([&] {
    require(spec, "spec"), require(out, "out");
    *out = new cgp_device{runtime::Device::open(spec)};
  });
}
void cgp_device_free(cgp_device* device) { delete device; }

cgp_status cgp_device_get_info(cgp_device* device, cgp_device_info* out) {
  return guarded([&] {
    require(device, "device"), require(out, "out");
    const auto& d = device->device.info();
    cgp_device_info info{};
    info.size = std::min(out->size, sizeof info);
    info.is_emulator = d.kind == runtime::DeviceKind::emulator;
    info.compute_capability = d.cc();
    info.sm_count = d.sm_count;
    info.memory_bytes = device->device.memory().total_bytes;
    capi::copy_text(info.name, sizeof info.name, d.name);
    capi::copy_text(info.arch, sizeof info.arch, d.arch);
    std::memcpy(out, &info, info.size);
  });
}
cgp_status cgp_device_jit_count(cgp_device* device, uint64_t* out) {
  return guarded([&] {
    require(device, "device"), require(out, "out");
    *out = device->device.load_counts().jit_compilations;
  });
}

cgp_status cgp_alloc(cgp_device* device, uint64_t bytes, uint64_t* address) {
  return cgp_alloc_named(device, bytes, "memory of the C interface", address);
}
cgp_status cgp_alloc_named(cgp_device* device, uint64_t bytes, const char* name, uint64_t* address) {
  return guarded([&] {
    require(device, "device"), require(name, "name"), require(address, "address");
    *address = 0;
    if (!bytes) return;
    auto memory = runtime::Memory::alloc(device->device, bytes, 1, name);
    const std::lock_guard lock(device->mutex);
    *address = memory.address();
    device->memory[*address] = std::move(memory);
  });
}
void cgp_free(cgp_device* device, uint64_t address) {
  if (!device || !address) return;
  const std::lock_guard lock(device->mutex);
  device->memory.erase(address);
}
cgp_status cgp_upload(cgp_device* device, uint64_t to, const void* from, uint64_t bytes) {
  return guarded([&] {
    require(device, "device");
    if (!bytes) return;
    require(from, "from");
    runtime::detail::copy_to_device(capi::region(device, to, bytes), from);
  });
}
cgp_status cgp_download(cgp_device* device, void* to, uint64_t from, uint64_t bytes) {
  return guarded([&] {
    require(device, "device");
    if (!bytes) return;
    require(to, "to");
    runtime::detail::copy_to_host(to, capi::region(device, from, bytes));
  });
}

cgp_status cgp_stream_new(cgp_device* device, cgp_stream** out) {
  return guarded([&] {
    require(device, "device"), require(out, "out");
    *out = new cgp_stream{device->device, runtime::Stream(device->device)};
  });
}
cgp_status cgp_stream_borrow(cgp_device* device, void* cu_stream, cgp_stream** out) {
  return guarded([&] {
    require(device, "device"), require(out, "out");
    *out = new cgp_stream{device->device, runtime::Stream::borrow(device->device, cu_stream)};
  });
}
void cgp_stream_free(cgp_stream* stream) { delete stream; }
cgp_status cgp_stream_wait(cgp_stream* stream) {
  return guarded([&] {
    require(stream, "stream");
    stream->stream.wait();
  });
}
cgp_status cgp_stream_set_scratch(cgp_stream* stream, cgp_scratch source, void* user) {
  return guarded([&] {
    require(stream, "stream");
    if (!source) return stream->stream.set_scratch_source({});
    stream->stream.set_scratch_source([source, user](std::size_t bytes) {
      const std::uint64_t address = source(user, bytes);
      if (!address && bytes)
        throw Error({"the caller's source of scratch memory gave none", {}, text::bytes(bytes), {}});
      if (address % 256)
        throw ArgumentError({"scratch memory begins at a multiple of 256 bytes", {}, text::hex(address), {}});
      return address;
    });
  });
}
