// SPDX-License-Identifier: Apache-2.0
// FAKE_OLD leaves out the optional functions, FAKE_BROKEN a required one.
#include "cgp/cuda/fake_driver.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cgp/cuda/abi.h"

namespace cgp::cuda {
struct CUctx_opaque {};
struct CUmod_opaque {
  std::string text;
  std::map<std::string, std::vector<char>> variables;
  std::vector<CUfunction> functions;
};
struct CUfunc_opaque {
  std::string name;
  int smem_limit = 0;
};
struct CUgraphNode_opaque {
  std::function<CUresult()> work;
};
struct CUgraph_opaque {
  std::vector<CUgraphNode> nodes;
};
struct CUgraphExec_opaque {
  std::vector<std::function<CUresult()>> work;
};
struct CUstream_opaque {
  CUgraph capture = nullptr;
};
struct CUevent_opaque {
  bool recorded = false;
};
struct CUlinkState_opaque {
  std::string ptx, cubin;
  char *info, *error;
  void** wall_time;
};
}  // namespace cgp::cuda

using namespace cgp::cuda;
namespace {

fake::Control control;
std::map<std::string, int> counts;
std::map<CUdeviceptr, std::size_t> allocations;
std::set<void*> pinned;
std::uint64_t used = 0;
CUctx_opaque contexts[8];

CUresult enter(const char* name) {
  const int n = counts[name]++;
  (void)n;
  if (std::strcmp(name, control.fail_call) == 0 && control.fail_skip-- <= 0) return control.fail_code;
  return control.sticky;
}
#define ENTER() \
  if (CUresult r = enter(__func__); r != kSuccess) return r

// Work of a stream: at once, or into the graph being recorded.
CUresult issue(CUstream s, std::function<CUresult()> work) {
  if (s && s->capture) {
    s->capture->nodes.push_back(new CUgraphNode_opaque{std::move(work)});
    return kSuccess;
  }
  return work();
}
void* host(CUdeviceptr p) { return reinterpret_cast<void*>(p); }

bool compile(const std::string& ptx, char* info, char* error, std::string& cubin) {
  ++control.compilations;
  if (ptx.find("SYNTAX ERROR") != std::string::npos) {
    std::snprintf(error, 200, "ptxas application ptx input, line 3; error : Parsing error near 'SYNTAX'");
    return false;
  }
  if (info) std::snprintf(info, 200, "ptxas info : Used 10 registers");
  cubin = "FAKECUBIN\n" + ptx;
  return true;
}

// What the known kernels do.
CUresult run(const std::string& name, const fake::Launch& l, const std::vector<std::uint64_t>& words) {
  ++control.launches;
  control.last = l;
  if (name == "fill_index") {
    auto* out = static_cast<std::uint32_t*>(host(words[0]));
    for (std::uint32_t i = 0; i < std::uint32_t(words[1]); ++i) out[i] = i;
  } else if (name == "add_one") {
    auto* p = static_cast<std::uint32_t*>(host(words[0]));
    for (std::uint32_t i = 0; i < std::uint32_t(words[1]); ++i) p[i] += 1;
  } else if (name == "crash") {
    control.sticky = kIllegalAddress;
  }
  return kSuccess;
}
CUresult launch(CUfunction f, fake::Launch l, CUstream s, void** params) {
  std::snprintf(l.name, sizeof l.name, "%s", f->name.c_str());
  if (l.shared_bytes > 48 * 1024 && int(l.shared_bytes) > f->smem_limit) return kInvalidValue;
  std::vector<std::uint64_t> words;
  if (f->name == "fill_index" || f->name == "add_one") {
    std::uint32_t n = 0;
    words.resize(2);
    std::memcpy(&words[0], params[0], 8);
    std::memcpy(&n, params[1], 4);
    words[1] = n;
  }
  return issue(s, [name = f->name, l, words] { return run(name, l, words); });
}

}  // namespace

extern "C" __attribute__((visibility("default"))) fake::Control* fake_control() {
  control.calls = [](const char* name) { return counts[name]; };
  control.reset = [] {
    const int live = control.live_handles;
    control = fake::Control();
    counts.clear();
    fake_control();
    control.live_handles = live;
  };
  return &control;
}

// Every function is exported under the symbol that api.def looks up.
#define CGP_DRIVER_FN(name, symbol, since, need, params) \
  extern "C" __attribute__((visibility("default"))) CUresult name params __asm__(symbol);
#include "cgp/cuda/api.def"

CUresult cuInit(unsigned) {
  ENTER();
  return control.devices == 0 ? int(kNoDevice) : int(kSuccess);
}
CUresult cuDriverGetVersion(int* v) {
  ENTER();
  *v = control.driver_version;
  return kSuccess;
}
CUresult cuGetErrorName(CUresult e, const char** s) {
  switch (e) {
    case kInvalidValue:
      *s = "CUDA_ERROR_INVALID_VALUE";
      return kSuccess;
    case kOutOfMemory:
      *s = "CUDA_ERROR_OUT_OF_MEMORY";
      return kSuccess;
    case kNoDevice:
      *s = "CUDA_ERROR_NO_DEVICE";
      return kSuccess;
    case kInvalidImage:
      *s = "CUDA_ERROR_INVALID_IMAGE";
      return kSuccess;
    case kInvalidPtx:
      *s = "CUDA_ERROR_INVALID_PTX";
      return kSuccess;
    case kNotFound:
      *s = "CUDA_ERROR_NOT_FOUND";
      return kSuccess;
    case kIllegalAddress:
      *s = "CUDA_ERROR_ILLEGAL_ADDRESS";
      return kSuccess;
    default:
      *s = nullptr;
      return kInvalidValue;
  }
}
CUresult cuGetErrorString(CUresult e, const char** s) {
  *s = e == kOutOfMemory      ? "out of memory"
       : e == kIllegalAddress ? "an illegal memory access was encountered"
                              : nullptr;
  return *s ? int(kSuccess) : int(kInvalidValue);
}
CUresult cuDeviceGetCount(int* n) {
  ENTER();
  *n = control.devices;
  return kSuccess;
}
CUresult cuDeviceGet(CUdevice* d, int ordinal) {
  ENTER();
  *d = ordinal;
  return kSuccess;
}
CUresult cuDeviceGetName(char* name, int bytes, CUdevice) {
  ENTER();
  std::snprintf(name, std::size_t(bytes), "Fake GPU");
  return kSuccess;
}
CUresult cuDeviceTotalMem(std::size_t* bytes, CUdevice) {
  ENTER();
  *bytes = control.memory_bytes;
  return kSuccess;
}
CUresult cuDeviceGetAttribute(int* v, DeviceAttribute a, CUdevice) {
  ENTER();
  using A = DeviceAttribute;
  static const std::map<A, int> values = {{A::max_threads_per_block, 1024},
                                          {A::max_block_dim_x, 1024},
                                          {A::max_block_dim_y, 1024},
                                          {A::max_block_dim_z, 64},
                                          {A::max_grid_dim_x, 0x7fffffff},
                                          {A::max_grid_dim_y, 65535},
                                          {A::max_grid_dim_z, 65535},
                                          {A::max_shared_memory_per_block, 49152},
                                          {A::warp_size, 32},
                                          {A::max_registers_per_block, 65536},
                                          {A::clock_rate_khz, 1980000},
                                          {A::multiprocessor_count, 132},
                                          {A::memory_clock_rate_khz, 3201000},
                                          {A::global_memory_bus_width, 6144},
                                          {A::l2_cache_size, 62914560},
                                          {A::max_threads_per_multiprocessor, 2048},
                                          {A::max_shared_memory_per_multiprocessor, 233472},
                                          {A::max_registers_per_multiprocessor, 65536},
                                          {A::managed_memory, 1},
                                          {A::cooperative_launch, 1},
                                          {A::max_shared_memory_per_block_optin, 232448},
                                          {A::max_blocks_per_multiprocessor, 32},
                                          {A::reserved_shared_memory_per_block, 1024},
                                          {A::cluster_launch, 1}};
  if (a == A::compute_capability_major) {
    *v = control.compute_capability / 10;
  } else if (a == A::compute_capability_minor) {
    *v = control.compute_capability % 10;
  } else if (auto it = values.find(a); it != values.end()) {
    *v = it->second;
  } else {
    return kInvalidValue;
  }
  return kSuccess;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* c, CUdevice d) {
  ENTER();
  *c = &contexts[d];
  ++control.live_handles;
  return kSuccess;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice) {
  --control.live_handles;
  return kSuccess;
}
CUresult cuCtxSetCurrent(CUcontext) {
  counts[__func__]++;
  return kSuccess;
}
CUresult cuCtxSynchronize() {
  ENTER();
  return kSuccess;
}
// ---- modules
CUresult cuModuleLoadData(CUmodule* m, const void* image) {
  ENTER();
  const std::string text = static_cast<const char*>(image);
  if (text.compare(0, 9, "FAKECUBIN") != 0) return kInvalidImage;
  *m = new CUmod_opaque{text, {}, {}};
  ++control.live_handles;
  return kSuccess;
}
CUresult cuModuleLoadDataEx(CUmodule* m, const void* image, unsigned n, JitOption* options, void** values) {
  ENTER();
  char *info = nullptr, *error = nullptr;
  for (unsigned i = 0; i < n; ++i) {
    if (options[i] == JitOption::info_log_buffer) info = static_cast<char*>(values[i]);
    if (options[i] == JitOption::error_log_buffer) error = static_cast<char*>(values[i]);
  }
  std::string cubin;
  if (!compile(static_cast<const char*>(image), info, error, cubin)) return kInvalidPtx;
  *m = new CUmod_opaque{cubin, {}, {}};
  ++control.live_handles;
  return kSuccess;
}
CUresult cuModuleUnload(CUmodule m) {
  for (CUfunction f : m->functions) delete f;
  delete m;
  --control.live_handles;
  return kSuccess;
}
CUresult cuModuleGetFunction(CUfunction* f, CUmodule m, const char* name) {
  ENTER();
  if (m->text.find(std::string(".entry ") + name + "(") == std::string::npos) return kNotFound;
  m->functions.push_back(new CUfunc_opaque{name, 0});
  *f = m->functions.back();
  return kSuccess;
}
CUresult cuModuleGetGlobal(CUdeviceptr* p, std::size_t* bytes, CUmodule m, const char* name) {
  ENTER();
  if (m->text.find(std::string(" ") + name + "[16]") == std::string::npos) return kNotFound;
  auto& v = m->variables[name];
  v.resize(16);
  *p = reinterpret_cast<CUdeviceptr>(v.data());
  *bytes = 16;
  return kSuccess;
}
CUresult cuFuncGetAttribute(int* v, FunctionAttribute a, CUfunction) {
  ENTER();
  *v = a == FunctionAttribute::num_regs                ? 10
       : a == FunctionAttribute::max_threads_per_block ? 1024
       : a == FunctionAttribute::binary_version        ? control.compute_capability
                                                       : 0;
  return kSuccess;
}
CUresult cuFuncSetAttribute(CUfunction f, FunctionAttribute a, int v) {
  ENTER();
  if (a == FunctionAttribute::max_dynamic_shared_size_bytes) f->smem_limit = control.opted_in_smem = v;
  return kSuccess;
}
CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned smem, CUstream s, void** params, void**) {
  ENTER();
  return launch(f, {{}, {gx, gy, gz}, {bx, by, bz}, {1, 1, 1}, smem, false, false}, s, params);
}
// ---- memory
CUresult cuMemGetInfo(std::size_t* free, std::size_t* total) {
  ENTER();
  *free = control.memory_bytes - used;
  *total = control.memory_bytes;
  return kSuccess;
}
CUresult cuMemAlloc(CUdeviceptr* p, std::size_t bytes) {
  ENTER();
  if (used + bytes > control.memory_bytes) return kOutOfMemory;
  void* m = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(m, 0xa5, bytes);
  *p = reinterpret_cast<CUdeviceptr>(m);
  allocations[*p] = bytes;
  used += bytes;
  ++control.live_handles;
  return kSuccess;
}
CUresult cuMemFree(CUdeviceptr p) {
  auto it = allocations.find(p);
  if (it == allocations.end()) return kInvalidValue;
  used -= it->second;
  allocations.erase(it);
  std::free(host(p));
  --control.live_handles;
  return kSuccess;
}
CUresult cuMemHostAlloc(void** p, std::size_t bytes, unsigned) {
  ENTER();
  *p = std::malloc(bytes);
  pinned.insert(*p);
  ++control.live_handles;
  return kSuccess;
}
CUresult cuMemFreeHost(void* p) {
  if (!pinned.erase(p)) return kInvalidValue;
  std::free(p);
  --control.live_handles;
  return kSuccess;
}
CUresult cuMemcpyHtoD(CUdeviceptr d, const void* s, std::size_t n) {
  ENTER();
  std::memcpy(host(d), s, n);
  return kSuccess;
}
CUresult cuMemcpyDtoH(void* d, CUdeviceptr s, std::size_t n) {
  ENTER();
  std::memcpy(d, host(s), n);
  return kSuccess;
}
CUresult cuMemcpyDtoD(CUdeviceptr d, CUdeviceptr s, std::size_t n) {
  ENTER();
  std::memmove(host(d), host(s), n);
  return kSuccess;
}
CUresult copy_work(void* d, const void* s, std::size_t n, CUstream stream) {
  return issue(stream, [=] {
    std::memmove(d, s, n);
    return int(kSuccess);
  });
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr d, const void* s, std::size_t n, CUstream stream) {
  ENTER();
  return copy_work(host(d), s, n, stream);
}
CUresult cuMemcpyDtoHAsync(void* d, CUdeviceptr s, std::size_t n, CUstream stream) {
  ENTER();
  return copy_work(d, host(s), n, stream);
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr d, CUdeviceptr s, std::size_t n, CUstream stream) {
  ENTER();
  return copy_work(host(d), host(s), n, stream);
}
CUresult cuMemcpy2DAsync(const Memcpy2d* c, CUstream s) {
  ENTER();
  return issue(s, [c = *c] {
    auto* d = static_cast<char*>(c.dst_type == MemoryType::host ? c.dst_host : host(c.dst_device));
    auto* f = static_cast<const char*>(c.src_type == MemoryType::host ? c.src_host : host(c.src_device));
    for (std::size_t r = 0; r < c.height; ++r)
      std::memcpy(d + r * c.dst_pitch, f + r * c.src_pitch, c.width_bytes);
    return int(kSuccess);
  });
}
CUresult cuMemsetD8(CUdeviceptr d, unsigned char v, std::size_t n) {
  ENTER();
  std::memset(host(d), v, n);
  return kSuccess;
}
CUresult cuMemsetD8Async(CUdeviceptr d, unsigned char v, std::size_t n, CUstream s) {
  ENTER();
  return issue(s, [=] {
    std::memset(host(d), v, n);
    return int(kSuccess);
  });
}
// ---- streams and events
#ifndef FAKE_BROKEN
CUresult cuStreamQuery(CUstream) {
  ENTER();
  return control.busy ? int(kNotReady) : int(kSuccess);
}
#endif
CUresult cuStreamCreate(CUstream* s, unsigned) {
  ENTER();
  *s = new CUstream_opaque;
  ++control.live_handles;
  return kSuccess;
}
CUresult cuStreamDestroy(CUstream s) {
  delete s;
  --control.live_handles;
  return kSuccess;
}
CUresult cuStreamSynchronize(CUstream) {
  ENTER();
  return kSuccess;
}
CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned) {
  ENTER();
  return kSuccess;
}
CUresult cuEventCreate(CUevent* e, unsigned) {
  ENTER();
  *e = new CUevent_opaque;
  ++control.live_handles;
  return kSuccess;
}
CUresult cuEventDestroy(CUevent e) {
  delete e;
  --control.live_handles;
  return kSuccess;
}
CUresult cuEventRecord(CUevent e, CUstream) {
  ENTER();
  e->recorded = true;
  return kSuccess;
}
CUresult cuEventSynchronize(CUevent) {
  ENTER();
  return kSuccess;
}
CUresult cuEventQuery(CUevent) {
  ENTER();
  return control.busy ? int(kNotReady) : int(kSuccess);
}
CUresult cuEventElapsedTime(float* ms, CUevent a, CUevent b) {
  ENTER();
  if (!a->recorded || !b->recorded) return kInvalidValue;
  *ms = 1.5f;
  return kSuccess;
}

#ifndef FAKE_OLD
CUresult cuDeviceGetPCIBusId(char* id, int bytes, CUdevice d) {
  ENTER();
  std::snprintf(id, std::size_t(bytes), "0000:%02x:00.0", d + 1);
  return kSuccess;
}
CUresult cuDeviceCanAccessPeer(int* can, CUdevice, CUdevice) {
  ENTER();
  *can = 1;
  return kSuccess;
}
// Addresses of another process mean nothing here: they are only looked at.
CUresult cuMemGetAddressRange(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr p) {
  ENTER();
  auto it = allocations.upper_bound(p);
  if (it == allocations.begin()) return kInvalidValue;
  --it;
  *base = it->first;
  *bytes = it->second;
  return kSuccess;
}
CUresult cuIpcGetMemHandle(IpcHandle* handle, CUdeviceptr p) {
  ENTER();
  *handle = {};
  std::memcpy(handle, &p, sizeof p);
  return kSuccess;
}
CUresult cuIpcOpenMemHandle(CUdeviceptr* p, IpcHandle handle, unsigned) {
  ENTER();
  std::memcpy(p, &handle, sizeof *p);
  ++control.live_handles;
  return kSuccess;
}
CUresult cuIpcCloseMemHandle(CUdeviceptr) {
  ENTER();
  --control.live_handles;
  return kSuccess;
}
CUresult cuCtxEnablePeerAccess(CUcontext, unsigned) {
  ENTER();
  return kSuccess;
}
CUresult cuLinkCreate(unsigned n, JitOption* options, void** values, CUlinkState* state) {
  ENTER();
  auto* s = new CUlinkState_opaque{};
  for (unsigned i = 0; i < n; ++i) {
    if (options[i] == JitOption::info_log_buffer) s->info = static_cast<char*>(values[i]);
    if (options[i] == JitOption::error_log_buffer) s->error = static_cast<char*>(values[i]);
    if (options[i] == JitOption::wall_time) s->wall_time = &values[i];
  }
  ++control.live_handles;
  *state = s;
  return kSuccess;
}
CUresult cuLinkAddData(CUlinkState s, JitInput, void* data, std::size_t, const char*, unsigned, JitOption*,
                       void**) {
  ENTER();
  return compile(static_cast<const char*>(data), s->info, s->error, s->cubin) ? int(kSuccess)
                                                                              : int(kInvalidPtx);
}
CUresult cuLinkComplete(CUlinkState s, void** cubin, std::size_t* bytes) {
  ENTER();
  const float ms = 12.5f;
  std::memcpy(s->wall_time, &ms, sizeof ms);
  *cubin = s->cubin.data();
  *bytes = s->cubin.size() + 1;
  return kSuccess;
}
CUresult cuLinkDestroy(CUlinkState s) {
  delete s;
  --control.live_handles;
  return kSuccess;
}
CUresult cuLaunchKernelEx(const LaunchConfig* c, CUfunction f, void** params, void**) {
  ENTER();
  fake::Launch l{{},
                 {c->grid_x, c->grid_y, c->grid_z},
                 {c->block_x, c->block_y, c->block_z},
                 {1, 1, 1},
                 c->shared_bytes,
                 false,
                 false};
  for (unsigned i = 0; i < c->attribute_count; ++i) {
    const LaunchAttribute& a = c->attributes[i];
    if (a.id == LaunchAttributeId::cluster_dimension) {
      l.cluster[0] = a.value.cluster_dim.x;
      l.cluster[1] = a.value.cluster_dim.y;
      l.cluster[2] = a.value.cluster_dim.z;
    } else if (a.id == LaunchAttributeId::cooperative) {
      l.cooperative = a.value.cooperative != 0;
    } else {
      l.programmatic = a.value.programmatic_stream_serialization_allowed != 0;
    }
  }
  return launch(f, l, c->stream, params);
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* n, CUfunction, int threads, std::size_t smem) {
  ENTER();
  const int by_threads = 2048 / threads, by_smem = int(233472 / (smem + 1024));
  *n = by_threads < by_smem ? by_threads : by_smem;
  return kSuccess;
}
CUresult cuOccupancyMaxActiveClusters(int* n, CUfunction, const LaunchConfig*) {
  ENTER();
  *n = 66;
  return kSuccess;
}
CUresult cuMemAllocManaged(CUdeviceptr* p, std::size_t bytes, unsigned) {
  ENTER();
  return cuMemAlloc(p, bytes);
}
CUresult cuMemcpyPeer(CUdeviceptr d, CUcontext, CUdeviceptr s, CUcontext, std::size_t n) {
  ENTER();
  std::memcpy(host(d), host(s), n);
  return kSuccess;
}
CUresult cuPointerGetAttribute(void* data, int, CUdeviceptr p) {
  ENTER();
  if (!pinned.count(host(p))) return kInvalidValue;
  *static_cast<int*>(data) = 1;
  return kSuccess;
}
CUresult cuMemPrefetchAsync(CUdeviceptr, std::size_t, MemLocation, unsigned, CUstream) {
  ENTER();
  return kSuccess;
}
CUresult cuMemAdvise(CUdeviceptr, std::size_t, MemAdvice, MemLocation) {
  ENTER();
  return kSuccess;
}
CUresult cuStreamAttachMemAsync(CUstream, CUdeviceptr, std::size_t, unsigned) {
  ENTER();
  return kSuccess;
}
// ---- graphs
CUresult cuStreamBeginCapture(CUstream s, int) {
  ENTER();
  s->capture = new CUgraph_opaque;
  ++control.live_handles;
  return kSuccess;
}
CUresult cuStreamIsCapturing(CUstream s, int* status) {
  ENTER();
  *status = s && s->capture ? 1 : 0;
  return kSuccess;
}
CUresult cuStreamEndCapture(CUstream s, CUgraph* g) {
  ENTER();
  *g = s->capture;
  s->capture = nullptr;
  return kSuccess;
}
CUresult cuGraphCreate(CUgraph* g, unsigned) {
  ENTER();
  *g = new CUgraph_opaque;
  ++control.live_handles;
  return kSuccess;
}
CUresult cuGraphDestroy(CUgraph g) {
  for (CUgraphNode n : g->nodes) delete n;
  delete g;
  --control.live_handles;
  return kSuccess;
}
CUresult cuGraphGetNodes(CUgraph g, CUgraphNode*, std::size_t* n) {
  ENTER();
  *n = g->nodes.size();
  return kSuccess;
}
CUresult cuGraphAddKernelNode(CUgraphNode* n, CUgraph g, const CUgraphNode*, std::size_t,
                              const KernelNodeParams* p) {
  ENTER();
  CUstream_opaque s{g};
  const fake::Launch l{{},
                       {p->grid_x, p->grid_y, p->grid_z},
                       {p->block_x, p->block_y, p->block_z},
                       {1, 1, 1},
                       p->shared_bytes,
                       false,
                       false};
  const CUresult r = launch(p->function, l, &s, p->params);
  if (r == kSuccess) *n = g->nodes.back();
  return r;
}
CUresult cuGraphAddMemcpyNode(CUgraphNode* n, CUgraph g, const CUgraphNode*, std::size_t, const Memcpy3d* c,
                              CUcontext) {
  ENTER();
  CUstream_opaque s{g};
  copy_work(host(c->dst_device), host(c->src_device), c->width_bytes * c->height * c->depth, &s);
  *n = g->nodes.back();
  return kSuccess;
}
CUresult cuGraphAddMemsetNode(CUgraphNode* n, CUgraph g, const CUgraphNode*, std::size_t,
                              const MemsetNodeParams* p, CUcontext) {
  ENTER();
  CUstream_opaque s{g};
  cuMemsetD8Async(p->dst, static_cast<unsigned char>(p->value), p->width * p->height, &s);
  *n = g->nodes.back();
  return kSuccess;
}
CUresult cuGraphKernelNodeSetAttribute(CUgraphNode, LaunchAttributeId, const LaunchAttributeValue*) {
  ENTER();
  return kSuccess;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* e, CUgraph g, unsigned long long) {
  ENTER();
  *e = new CUgraphExec_opaque;
  for (CUgraphNode n : g->nodes) (*e)->work.push_back(n->work);
  ++control.live_handles;
  return kSuccess;
}
CUresult cuGraphLaunch(CUgraphExec e, CUstream) {
  ENTER();
  for (auto& w : e->work)
    if (CUresult r = w(); r != kSuccess) return r;
  return kSuccess;
}
CUresult cuGraphExecDestroy(CUgraphExec e) {
  delete e;
  --control.live_handles;
  return kSuccess;
}
CUresult cuTensorMapEncodeTiled(TensorMapBits* map, int type, std::uint32_t rank, void* address,
                                const std::uint64_t* dims, const std::uint64_t* strides,
                                const std::uint32_t* box, const std::uint32_t*, int interleave, int swizzle,
                                int l2, int oob) {
  ENTER();
  // Only so that a test sees what arrived.
  map->words[0] = reinterpret_cast<std::uint64_t>(address);
  map->words[1] = std::uint64_t(type) | std::uint64_t(rank) << 8 | std::uint64_t(interleave) << 16 |
                  std::uint64_t(swizzle) << 24 | std::uint64_t(l2) << 32 | std::uint64_t(oob) << 40;
  for (std::uint32_t i = 0; i < rank; ++i) {
    map->words[2 + i] = dims[i];
    map->words[7 + i] = box[i];
    if (i) map->words[11 + i] = strides[i - 1];
  }
  return kSuccess;
}
#endif
