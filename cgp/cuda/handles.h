// SPDX-License-Identifier: Apache-2.0
#pragma once
// Owners of the driver's objects: created in the constructor, destroyed in the destructor, move-only. A
// Context must outlive what was made in it; the runtime sees to that.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cgp/cuda/api.h"

namespace cgp::cuda {

using ApiPtr = std::shared_ptr<const Api>;

/// A driver handle and the function that destroys it. Failures of destruction are ignored: after a sticky
/// error every call fails, and at process exit the driver may be gone.
template <class H, CUresult (*Api::*Destroy)(H)>
class Handle {
 public:
  Handle() = default;
  Handle(ApiPtr api, H handle) : api_(std::move(api)), handle_(handle) {}
  Handle(Handle&& o) noexcept : api_(std::move(o.api_)), handle_(std::exchange(o.handle_, H())) {}
  Handle& operator=(Handle&& o) noexcept {
    std::swap(api_, o.api_);
    std::swap(handle_, o.handle_);
    return *this;
  }
  ~Handle() {
    if (handle_) (*api_.*Destroy)(handle_);
  }
  H get() const { return handle_; }
  explicit operator bool() const { return handle_ != H(); }
  const Api& api() const { return *api_; }

 private:
  ApiPtr api_;
  H handle_ = H();
};

using Stream = Handle<CUstream, &Api::cuStreamDestroy>;
using Event = Handle<CUevent, &Api::cuEventDestroy>;
using Graph = Handle<CUgraph, &Api::cuGraphDestroy>;
using GraphExec = Handle<CUgraphExec, &Api::cuGraphExecDestroy>;
using Module = Handle<CUmodule, &Api::cuModuleUnload>;
using DeviceMemory = Handle<CUdeviceptr, &Api::cuMemFree>;
using PinnedMemory = Handle<void*, &Api::cuMemFreeHost>;

Stream make_stream(
    const ApiPtr& api);  ///< ordered after the legacy default stream, as cuStreamCreate(0) makes it
Event make_event(const ApiPtr& api, bool timing = true);
PinnedMemory make_pinned(const ApiPtr& api, std::size_t bytes);

/// A device's primary context, shared with everything else in the process that uses it (torch, cuBLAS).
class Context {
 public:
  Context(ApiPtr api, int ordinal);
  Context(const Context&) = delete;
  ~Context();
  void make_current() const { api_->check(api_->cuCtxSetCurrent(context_), "cuCtxSetCurrent"); }
  CUcontext get() const { return context_; }
  CUdevice device() const { return device_; }
  const ApiPtr& api() const { return api_; }

 private:
  ApiPtr api_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

/// The number of an attribute; absent when this driver does not know it.
std::optional<int> attribute(const Api& api, CUdevice device, DeviceAttribute a);
int device_count(const Api& api);
/// The device of an ordinal; throws Unsupported naming how many there are.
CUdevice device(const Api& api, int ordinal);

struct Compiled {
  std::string cubin;        ///< empty if the driver could only load it directly
  std::string log;          ///< what the compiler said: registers, spills, warnings
  double milliseconds = 0;  ///< its own measure of the time it took
};
/// Compiles PTX for the current context's device. Throws DriverError with the compiler's log, and with the
/// path of a file that the PTX was written to.
Compiled compile_ptx(const ApiPtr& api, const std::string& ptx, std::string_view name);
/// Loads machine code; never compiles.
Module load_cubin(const ApiPtr& api, const std::string& cubin, std::string_view name);
/// Loads PTX through the driver's own compiler: a whole program, whose machine code stays with the driver.
Module load_ptx(const ApiPtr& api, const std::string& ptx, std::string_view name, Compiled& out);

struct LaunchShape {
  std::uint32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, cluster[3] = {1, 1, 1};
  std::uint32_t shared_bytes = 0;
  bool cooperative = false, programmatic = false;
};
/// `params` points at the arguments' values, in order.
void launch(const Api& api, CUfunction f, const LaunchShape& shape, CUstream stream, void** params);
int max_active_clusters(const Api& api, CUfunction f, const LaunchShape& shape);
CUgraphNode add_kernel_node(const Api& api, CUgraph graph, const CUgraphNode* after, std::size_t after_count,
                            CUfunction f, const LaunchShape& shape, void** params);
/// Writes `text` where a person can find it, and gives the path; empty if that is impossible.
std::string dump_failed(std::string_view text, std::string_view name);

}  // namespace cgp::cuda
