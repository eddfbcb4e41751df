// SPDX-License-Identifier: Apache-2.0
#include "cgp/cuda/handles.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::cuda {
using text::cat;

Stream make_stream(const ApiPtr& api) {
  CUstream s = nullptr;
  api->call<&Api::cuStreamCreate>(&s, kStreamDefault);
  return {api, s};
}
Event make_event(const ApiPtr& api, bool timing) {
  CUevent e = nullptr;
  api->call<&Api::cuEventCreate>(&e, timing ? kEventDefault : kEventDisableTiming);
  return {api, e};
}
PinnedMemory make_pinned(const ApiPtr& api, std::size_t bytes) {
  void* p = nullptr;
  api->check(api->cuMemHostAlloc(&p, bytes, kHostAllocPortable), "cuMemHostAlloc", text::bytes(bytes));
  return {api, p};
}

Context::Context(ApiPtr api, int ordinal) : api_(std::move(api)), device_(cuda::device(*api_, ordinal)) {
  api_->check(api_->cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain",
              cat("cuda:", ordinal));
  make_current();
}
Context::~Context() {
  if (context_) api_->cuDevicePrimaryCtxRelease(device_);
}

std::optional<int> attribute(const Api& api, CUdevice device, DeviceAttribute a) {
  int v = 0;
  const CUresult r = api.cuDeviceGetAttribute(&v, a, device);
  if (r == kInvalidValue) return std::nullopt;  // an older driver
  api.check(r, "cuDeviceGetAttribute", cat("attribute ", int(a)));
  return v;
}
int device_count(const Api& api) {
  int n = 0;
  api.call<&Api::cuDeviceGetCount>(&n);
  return n;
}
CUdevice device(const Api& api, int ordinal) {
  const int n = device_count(api);
  if (ordinal < 0 || ordinal >= n)
    throw Unsupported({cat("there is no device cuda:", ordinal),
                       {},
                       n == 0   ? std::string("the driver sees no GPU")
                       : n == 1 ? std::string("the driver sees 1 GPU, cuda:0")
                                : cat("the driver sees ", n, " GPUs, cuda:0 to cuda:", n - 1),
                       {}});
  CUdevice d = 0;
  api.call<&Api::cuDeviceGet>(&d, ordinal);
  return d;
}

// ---------------------------------------------------------------- launches
namespace {

struct Attributes {
  LaunchAttribute list[3] = {};
  unsigned count = 0;
  explicit Attributes(const LaunchShape& s) {
    if (s.cluster[0] != 1 || s.cluster[1] != 1 || s.cluster[2] != 1) {
      list[count].id = LaunchAttributeId::cluster_dimension;
      list[count++].value.cluster_dim = {s.cluster[0], s.cluster[1], s.cluster[2]};
    }
    if (s.cooperative) {
      list[count].id = LaunchAttributeId::cooperative;
      list[count++].value.cooperative = 1;
    }
    if (s.programmatic) {
      list[count].id = LaunchAttributeId::programmatic_stream_serialization;
      list[count++].value.programmatic_stream_serialization_allowed = 1;
    }
  }
};
LaunchConfig config_of(const LaunchShape& s, CUstream stream, Attributes& a) {
  return {s.grid[0],  s.grid[1],      s.grid[2], s.block[0], s.block[1],
          s.block[2], s.shared_bytes, stream,    a.list,     a.count};
}
std::string shape_text(const LaunchShape& s) {
  return cat("grid ", s.grid[0], " x ", s.grid[1], " x ", s.grid[2], ", block ", s.block[0], " x ",
             s.block[1], " x ", s.block[2], ", cluster ", s.cluster[0], " x ", s.cluster[1], " x ",
             s.cluster[2], ", ", s.shared_bytes, " bytes of dynamic shared memory");
}

}  // namespace

void launch(const Api& api, CUfunction f, const LaunchShape& s, CUstream stream, void** params) {
  Attributes a(s);
  if (a.count == 0) {
    const CUresult r = api.cuLaunchKernel(f, s.grid[0], s.grid[1], s.grid[2], s.block[0], s.block[1],
                                          s.block[2], s.shared_bytes, stream, params, nullptr);
    if (r != kSuccess) api.fail(r, "cuLaunchKernel", shape_text(s));
    return;
  }
  if (!api.cuLaunchKernelEx) detail::missing(api, detail::function_info<&Api::cuLaunchKernelEx>);
  const LaunchConfig c = config_of(s, stream, a);
  const CUresult r = api.cuLaunchKernelEx(&c, f, params, nullptr);
  if (r != kSuccess) api.fail(r, "cuLaunchKernelEx", shape_text(s));
}
int max_active_clusters(const Api& api, CUfunction f, const LaunchShape& s) {
  Attributes a(s);
  const LaunchConfig c = config_of(s, nullptr, a);
  int n = 0;
  api.call<&Api::cuOccupancyMaxActiveClusters>(&n, f, &c);
  return n;
}
CUgraphNode add_kernel_node(const Api& api, CUgraph graph, const CUgraphNode* after, std::size_t after_count,
                            CUfunction f, const LaunchShape& s, void** params) {
  if (s.programmatic)
    throw Unsupported({"a graph built by hand has no programmatic dependent launches",
                       {},
                       {},
                       "record the launches with Stream::capture"});
  const KernelNodeParams p{f,          s.grid[0],      s.grid[1], s.grid[2], s.block[0], s.block[1],
                           s.block[2], s.shared_bytes, params,    nullptr,   nullptr,    nullptr};
  CUgraphNode node = nullptr;
  api.call<&Api::cuGraphAddKernelNode>(&node, graph, after, after_count, &p);
  Attributes a(s);
  for (unsigned i = 0; i < a.count; ++i)
    api.call<&Api::cuGraphKernelNodeSetAttribute>(node, a.list[i].id, &a.list[i].value);
  return node;
}

}  // namespace cgp::cuda
