// SPDX-License-Identifier: Apache-2.0
// An NVIDIA GPU as a device: memory and kernels. Its streams are in stream.cpp.
#include <cctype>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/runtime/cuda/device_impl.h"

namespace cgp::runtime {
namespace {
using cuda::DeviceAttribute;
using cuda::FunctionAttribute;
using text::cat;

// The most specific target: architecture-specific code exists from sm_90 on.
std::string arch_of(int major, int minor) { return cat("sm_", major, minor, major >= 9 ? "a" : ""); }

class CudaModule final : public ModuleState, public std::enable_shared_from_this<CudaModule> {
 public:
  CudaModule(std::shared_ptr<CudaBackend> b, std::string ptx) : b_(std::move(b)), ptx_(std::move(ptx)) {
    b_->context();
    module_ = b_->load_code(ptx_, {}, "module");
  }
  ~CudaModule() override {
    codes_.clear();
    b_->api().cuCtxSetCurrent(b_->raw_context());
    module_.reset();
  }
  std::vector<std::string> entries() const override { return entries_of_ptx(ptx_); }
  std::shared_ptr<const Code> kernel(std::string_view entry) override {
    std::lock_guard lock(mutex_);
    auto it = codes_.find(entry);
    if (it == codes_.end()) {
      b_->context();
      it = codes_
               .emplace(std::string(entry),
                        std::make_unique<CudaCode>(*b_, image_from_ptx(ptx_, entry), module_))
               .first;
    }
    return {shared_from_this(), it->second.get()};
  }
  Slice<std::byte> variable(std::string_view name) override {
    b_->context();
    cuda::CUdeviceptr address = 0;
    std::size_t bytes = 0;
    const cuda::CUresult r =
        b_->api().cuModuleGetGlobal(&address, &bytes, module_->get(), std::string(name).c_str());
    if (r == cuda::kNotFound) throw ArgumentError(cat("the module has no variable ", name));
    b_->api().check(r, "cuModuleGetGlobal", std::string(name));
    return {b_.get(), address, bytes};
  }

 private:
  std::shared_ptr<CudaBackend> b_;
  std::string ptx_;
  std::shared_ptr<const cuda::Module> module_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<CudaCode>, std::less<>> codes_;
};

}  // namespace

DeviceInfo describe_cuda(const cuda::Api& api, int ordinal) {
  const cuda::CUdevice d = cuda::device(api, ordinal);
  const auto get = [&](DeviceAttribute a) { return cuda::attribute(api, d, a); };
  const auto value = [&](DeviceAttribute a) { return get(a).value_or(0); };
  const auto positive = [&](DeviceAttribute a) {
    auto v = get(a);
    return v && *v > 0 ? v : std::nullopt;
  };
  DeviceInfo i;
  i.spec = cat("cuda:", ordinal);
  char text[256] = "";
  api.call<&cuda::Api::cuDeviceGetName>(text, int(sizeof text), d);
  i.name = text;
  i.kind = DeviceKind::cuda;
  i.cc_major = value(DeviceAttribute::compute_capability_major);
  i.cc_minor = value(DeviceAttribute::compute_capability_minor);
  i.arch = arch_of(i.cc_major, i.cc_minor);
  i.sm_count = value(DeviceAttribute::multiprocessor_count);
  std::size_t total = 0;
  api.call<&cuda::Api::cuDeviceTotalMem>(&total, d);
  i.memory_bytes = total;
  i.l2_bytes = std::uint64_t(value(DeviceAttribute::l2_cache_size));
  i.warp_size = value(DeviceAttribute::warp_size);
  i.max_threads_per_block = value(DeviceAttribute::max_threads_per_block);
  i.max_threads_per_sm = value(DeviceAttribute::max_threads_per_multiprocessor);
  i.max_blocks_per_sm = get(DeviceAttribute::max_blocks_per_multiprocessor).value_or(i.max_blocks_per_sm);
  const auto dim = [&](DeviceAttribute x) {
    return Dim3{std::uint32_t(value(x)), std::uint32_t(value(DeviceAttribute(int(x) + 1))),
                std::uint32_t(value(DeviceAttribute(int(x) + 2)))};
  };
  i.max_block = dim(DeviceAttribute::max_block_dim_x);
  i.max_grid = dim(DeviceAttribute::max_grid_dim_x);
  const bool clusters = value(DeviceAttribute::cluster_launch) != 0;
  i.max_cluster = !clusters ? 1 : i.cc_major <= 10 ? 16 : 8;
  i.smem_per_block = std::uint32_t(value(DeviceAttribute::max_shared_memory_per_block));
  i.smem_per_block_optin = std::uint32_t(value(DeviceAttribute::max_shared_memory_per_block_optin));
  i.smem_per_sm = std::uint32_t(value(DeviceAttribute::max_shared_memory_per_multiprocessor));
  i.smem_reserved_per_block = std::uint32_t(value(DeviceAttribute::reserved_shared_memory_per_block));
  i.registers_per_sm = std::uint32_t(value(DeviceAttribute::max_registers_per_multiprocessor));
  i.registers_per_block = std::uint32_t(value(DeviceAttribute::max_registers_per_block));
  i.cooperative_launch = value(DeviceAttribute::cooperative_launch) != 0;
  i.managed_memory = value(DeviceAttribute::managed_memory) != 0;
  i.tensor_maps = i.cc_major >= 9 && api.cuTensorMapEncodeTiled;
  i.clock_khz = positive(DeviceAttribute::clock_rate_khz);
  i.memory_clock_khz = positive(DeviceAttribute::memory_clock_rate_khz);
  i.memory_bus_bits = positive(DeviceAttribute::global_memory_bus_width);
  if (i.memory_clock_khz && i.memory_bus_bits)
    i.memory_bandwidth_gbps = 2.0 * *i.memory_clock_khz * 1e3 * (*i.memory_bus_bits / 8.0) / 1e9;
  if (char id[32] = "";
      api.cuDeviceGetPCIBusId && api.cuDeviceGetPCIBusId(id, int(sizeof id), d) == cuda::kSuccess)
    i.pci_bus_id = id;
  i.driver_version = api.driver_version;
  return i;
}

// ---------------------------------------------------------------- code
CudaCode::CudaCode(CudaBackend& b, const KernelImage& image, std::shared_ptr<const cuda::Module> m)
    : Code(b, image), owner(b), module(std::move(m)) {
  const cuda::CUresult r = b.api().cuModuleGetFunction(&function, module->get(), image.entry.c_str());
  if (r != cuda::kSuccess)
    b.api().fail(r, "cuModuleGetFunction", cat("entry ", image.entry, " of kernel ", image.name));
  static_smem = std::uint32_t(attribute(FunctionAttribute::shared_size_bytes));
}
int CudaCode::attribute(FunctionAttribute a) const {
  int v = 0;
  owner.api().call<&cuda::Api::cuFuncGetAttribute>(&v, a, function);
  return v;
}
KernelAttributes CudaCode::attributes() const {
  owner.context();
  KernelAttributes a;
  a.registers = attribute(FunctionAttribute::num_regs);
  a.local_bytes = std::uint32_t(attribute(FunctionAttribute::local_size_bytes));
  a.static_smem = static_smem;
  a.max_threads_per_block = attribute(FunctionAttribute::max_threads_per_block);
  a.code_arch = cat("sm_", attribute(FunctionAttribute::binary_version));
  return a;
}
cuda::LaunchShape CudaCode::prepare(const Shape& s) const {
  const cuda::Api& api = owner.api();
  if (s.dynamic_smem > dynamic_smem_ || s.cluster.count() > 8 || (s.programmatic && !most_smem_)) {
    std::lock_guard lock(mutex_);
    // Up to 48 KiB in all needs no opting in; more is refused at launch without it.
    if (s.dynamic_smem > dynamic_smem_ && s.dynamic_smem + static_smem > owner.info().smem_per_block) {
      const cuda::CUresult r = api.cuFuncSetAttribute(
          function, FunctionAttribute::max_dynamic_shared_size_bytes, int(s.dynamic_smem));
      api.check(r, "cuFuncSetAttribute",
                cat(s.dynamic_smem, " bytes of dynamic shared memory for ", image.name, ", ", static_smem,
                    " static"));
      dynamic_smem_ = s.dynamic_smem;
    }
    if (s.cluster.count() > 8 && !large_clusters_) {
      api.call<&cuda::Api::cuFuncSetAttribute>(function, FunctionAttribute::non_portable_cluster_size_allowed,
                                               1);
      large_clusters_ = true;
    }
    // Launches that overlap share multiprocessors, which must be empty before they divide L1 in another way.
    if (s.programmatic && !most_smem_) {
      api.call<&cuda::Api::cuFuncSetAttribute>(function, FunctionAttribute::preferred_shared_memory_carveout,
                                               100);
      most_smem_ = true;
    }
  }
  return {{s.grid.x, s.grid.y, s.grid.z},
          {s.block.x, s.block.y, s.block.z},
          {s.cluster.x, s.cluster.y, s.cluster.z},
          s.dynamic_smem,
          s.cooperative,
          s.programmatic};
}
int CudaCode::blocks_per_sm(Dim3 block, std::uint32_t dynamic_smem) const {
  owner.context();
  prepare({.grid = {}, .block = block, .cluster = {}, .dynamic_smem = dynamic_smem});
  int n = 0;
  owner.api().call<&cuda::Api::cuOccupancyMaxActiveBlocksPerMultiprocessor>(&n, function, int(block.count()),
                                                                            std::size_t(dynamic_smem));
  return n;
}
int CudaCode::max_active_clusters(const Shape& s) const {
  owner.context();
  return cuda::max_active_clusters(owner.api(), function, prepare(s));
}

// ---------------------------------------------------------------- backend
CudaBackend::CudaBackend(cuda::ApiPtr api, int ordinal) : context_(std::move(api), ordinal) {
  info_ = describe_cuda(*context_.api(), ordinal);
}
CudaBackend::~CudaBackend() {
  api().cuCtxSetCurrent(context_.get());  // modules are unloaded from the current context
  drop_children();
}

std::uint64_t CudaBackend::alloc(std::size_t bytes, std::string_view name) {
  context();
  cuda::CUdeviceptr p = 0;
  if (const cuda::CUresult r = api().cuMemAlloc(&p, bytes); r != cuda::kSuccess) {
    std::size_t free = 0, total = 0;
    api().cuMemGetInfo(&free, &total);
    api().fail(r, "cuMemAlloc",
               cat(text::bytes(bytes), " wanted", name.empty() ? "" : cat(" for ", name), ", ",
                   text::bytes(free), " of ", text::bytes(total), " free"));
  }
  return p;
}
void CudaBackend::release(std::uint64_t address) noexcept {
  try {
    context();
    const cuda::CUresult r = api().cuMemFree(address);
    if (r != cuda::kSuccess && r != cuda::kDeinitialized) api().fail(r, "cuMemFree", text::hex(address));
  } catch (const std::exception& e) {
    log(cat("freeing memory of ", info_.spec, ": ", e.what()));
  }
}
MemoryUse CudaBackend::memory() const {
  context();
  std::size_t free = 0, total = 0;
  api().call<&cuda::Api::cuMemGetInfo>(&free, &total);
  return {free, total};
}
void CudaBackend::copy_to_device(std::uint64_t dst, const void* src, std::size_t n) {
  context();
  api().check(api().cuMemcpyHtoD(dst, src, n), "cuMemcpyHtoD", text::bytes(n));
}
void CudaBackend::copy_to_host(void* dst, std::uint64_t src, std::size_t n) {
  context();
  api().check(api().cuMemcpyDtoH(dst, src, n), "cuMemcpyDtoH", text::bytes(n));
}
void CudaBackend::copy(std::uint64_t dst, std::uint64_t src, std::size_t n) {
  context();
  api().check(api().cuMemcpyDtoD(dst, src, n), "cuMemcpyDtoD", text::bytes(n));
}
void CudaBackend::fill(std::uint64_t dst, std::uint8_t value, std::size_t n) {
  context();
  api().check(api().cuMemsetD8(dst, value, n), "cuMemsetD8", text::bytes(n));
}
bool CudaBackend::copy_from_peer(std::uint64_t dst, Backend& peer, std::uint64_t src, std::size_t n) {
  auto* other = dynamic_cast<CudaBackend*>(&peer);
  if (!other || !api().cuMemcpyPeer) return false;
  context();  // the driver goes through the host by itself where there is no direct way
  api().call<&cuda::Api::cuMemcpyPeer>(dst, context_.get(), src, other->context_.get(), n);
  return true;
}
bool CudaBackend::can_access_peer(const Backend& other) const {
  const auto* o = dynamic_cast<const CudaBackend*>(&other);
  if (!o || !api().cuDeviceCanAccessPeer) return false;
  if (o == this) return true;
  int can = 0;
  api().call<&cuda::Api::cuDeviceCanAccessPeer>(&can, context_.device(), o->context_.device());
  return can != 0;
}
void CudaBackend::enable_peer(Backend& other) {
  if (!can_access_peer(other)) return Backend::enable_peer(other);
  if (&other == this) return;
  context();
  if (!api().cuCtxEnablePeerAccess) return Backend::enable_peer(other);
  const cuda::CUresult r = api().cuCtxEnablePeerAccess(static_cast<CudaBackend&>(other).context_.get(), 0);
  if (r != cuda::kPeerAccessAlreadyEnabled) api().check(r, "cuCtxEnablePeerAccess", other.info().spec);
  note_peer(other);
}
SharedMemory CudaBackend::share(std::uint64_t address) {
  if (!api().cuIpcGetMemHandle || !api().cuMemGetAddressRange) return Backend::share(address);
  context();
  cuda::CUdeviceptr base = 0;
  std::size_t bytes = 0;
  api().call<&cuda::Api::cuMemGetAddressRange>(&base, &bytes, address);
  cuda::IpcHandle handle{};
  api().call<&cuda::Api::cuIpcGetMemHandle>(&handle, address);
  SharedMemory out{.offset = address - base};
  std::memcpy(out.handle.data(), &handle, sizeof handle);
  return out;
}
std::uint64_t CudaBackend::open_shared(const SharedMemory& memory) {
  if (!api().cuIpcOpenMemHandle || !api().cuIpcCloseMemHandle) return Backend::open_shared(memory);
  context();
  cuda::IpcHandle handle{};
  std::memcpy(&handle, memory.handle.data(), sizeof handle);
  cuda::CUdeviceptr base = 0;
  api().call<&cuda::Api::cuIpcOpenMemHandle>(&base, handle, cuda::kIpcEnablePeerAccess);
  return base + memory.offset;
}
void CudaBackend::close_shared(std::uint64_t address, const SharedMemory& memory) noexcept {
  try {
    context();
    const cuda::CUresult r = api().cuIpcCloseMemHandle(address - memory.offset);
    if (r != cuda::kSuccess && r != cuda::kDeinitialized)
      api().fail(r, "cuIpcCloseMemHandle", text::hex(address));
  } catch (const std::exception& e) {
    log(cat("closing memory of another process: ", e.what()));
  }
}
void* CudaBackend::alloc_pinned(std::size_t bytes) {
  context();
  void* p = nullptr;
  api().check(api().cuMemHostAlloc(&p, bytes, cuda::kHostAllocPortable), "cuMemHostAlloc",
              text::bytes(bytes));
  return p;
}
void CudaBackend::free_pinned(void* p) noexcept {
  try {
    context();
    api().cuMemFreeHost(p);
  } catch (const std::exception& e) {
    log(cat("freeing pinned memory: ", e.what()));
  }
}
std::uint64_t CudaBackend::alloc_managed(std::size_t bytes) {
  context();
  cuda::CUdeviceptr p = 0;
  api().call<&cuda::Api::cuMemAllocManaged>(&p, bytes, cuda::kAttachGlobal);
  return p;
}
std::byte* CudaBackend::host_pointer(std::uint64_t address, std::size_t) {
  return reinterpret_cast<std::byte*>(std::uintptr_t(address));  // managed memory has one address
}
void CudaBackend::prefetch(Queue& q, std::uint64_t address, std::size_t bytes, bool to_host) {
  context();
  const cuda::MemLocation to{to_host ? cuda::kLocationHost : cuda::kLocationDevice,
                             to_host ? 0 : context_.device()};
  api().call<&cuda::Api::cuMemPrefetchAsync>(address, bytes, to, 0u, raw_stream(q));
}
void CudaBackend::attach(Queue& q, std::uint64_t address) {
  context();
  api().call<&cuda::Api::cuStreamAttachMemAsync>(raw_stream(q), address, std::size_t(0), cuda::kAttachSingle);
}
void CudaBackend::advise(std::uint64_t address, std::size_t bytes, MemoryAdvice advice) {
  context();
  const cuda::MemLocation device{cuda::kLocationDevice, context_.device()}, host{cuda::kLocationHost, 0};
  switch (advice) {
    case MemoryAdvice::read_mostly:
      return api().call<&cuda::Api::cuMemAdvise>(address, bytes, cuda::MemAdvice::set_read_mostly, device);
    case MemoryAdvice::prefer_device:
      return api().call<&cuda::Api::cuMemAdvise>(address, bytes, cuda::MemAdvice::set_preferred_location,
                                                 device);
    case MemoryAdvice::prefer_host:
      return api().call<&cuda::Api::cuMemAdvise>(address, bytes, cuda::MemAdvice::set_preferred_location,
                                                 host);
    case MemoryAdvice::accessed_by_device:
      return api().call<&cuda::Api::cuMemAdvise>(address, bytes, cuda::MemAdvice::set_accessed_by, device);
  }
}

std::unique_ptr<Queue> CudaBackend::make_queue() { return make_cuda_queue(*this); }
std::unique_ptr<Queue> CudaBackend::borrow_queue(void* native) { return borrow_cuda_queue(*this, native); }
std::shared_ptr<EventState> CudaBackend::make_event() { return make_cuda_event(*this); }
std::unique_ptr<GraphBuilderState> CudaBackend::make_graph_builder() {
  return make_cuda_graph_builder(*this);
}
void CudaBackend::sync() {
  context();
  api().call<&cuda::Api::cuCtxSynchronize>();
}

namespace {
// Whether the module has shared variables of its own beside dynamic shared memory.
bool places_dynamic_shared(std::string_view ptx) {
  constexpr std::string_view directive = ".shared", external = ".extern";
  bool own = false, dynamic = false;
  for (std::size_t at = ptx.find(directive); at != ptx.npos; at = ptx.find(directive, at + 1)) {
    const auto blank = [&](std::size_t i) { return i < ptx.size() && std::isspace(std::uint8_t(ptx[i])); };
    if (!blank(at + directive.size()) || (at && !blank(at - 1))) continue;  // part of an instruction
    std::size_t end = at;
    while (end && blank(end - 1)) --end;
    const bool is_external =
        end >= external.size() && ptx.substr(end - external.size(), external.size()) == external;
    (is_external ? dynamic : own) = true;
  }
  return own && dynamic;
}

// The linker compiles every input as one of several units. That is the slow way for what counts on being
// alone: ptxas then ignores setmaxnreg "to maintain compatibility across compilation units", spills, and runs
// the wgmmas one by one (attention at 200 instead of 700 TFLOP/s). It is also the wrong way for dynamic
// shared memory behind a module's own: the linker starts it at the next multiple of 16, whatever its .align
// says.
bool must_be_whole(const std::string& ptx) {
  return ptx.find("setmaxnreg") != std::string::npos || places_dynamic_shared(ptx);
}
}  // namespace

std::shared_ptr<const cuda::Module> CudaBackend::compile(const std::string& ptx, const std::string& name) {
  const CacheKey key{ptx, info_.arch, api().driver_version};
  const bool whole = must_be_whole(ptx);  // its machine code stays in the driver's own cache
  if (const auto cubin = whole ? std::nullopt : cache_.find(key)) try {
      auto module = std::make_shared<const cuda::Module>(cuda::load_cubin(api_ptr(), *cubin, name));
      std::lock_guard lock(counts_mutex_);
      ++counts_.cache_hits;
      return module;
    } catch (const DriverError& e) {  // intact, but not what this driver takes: compiled again below
      log(cat("cubin cache: ", e.what()));
    }
  cuda::Compiled compiled;
  std::shared_ptr<const cuda::Module> module;
  const bool linker =
      !whole && api().cuLinkCreate && api().cuLinkAddData && api().cuLinkComplete && api().cuLinkDestroy;
  if (linker) try {
      compiled = cuda::compile_ptx(api_ptr(), ptx, name);
      module = std::make_shared<const cuda::Module>(cuda::load_cubin(api_ptr(), compiled.cubin, name));
      cache_.store(key, compiled.cubin);
    } catch (const DriverError& e) {
      if (e.code() == cuda::kInvalidPtx || e.code() == cuda::kUnsupportedPtxVersion) throw;
      log(cat("the driver's linker refuses ", name, ", loading its PTX directly: ", e.what()));
    }
  if (!module) {
    module = std::make_shared<const cuda::Module>(cuda::load_ptx(api_ptr(), ptx, name, compiled));
  }
  std::lock_guard lock(counts_mutex_);
  ++counts_.jit_compilations;
  counts_.jit_milliseconds += compiled.milliseconds;
  return module;
}

std::shared_ptr<const cuda::Module> CudaBackend::load_code(const std::string& ptx,
                                                           const std::vector<Cubin>& cubins,
                                                           const std::string& name) {
  if (const Cubin* c = choose_cubin(cubins, info_.arch)) {
    auto module = std::make_shared<const cuda::Module>(cuda::load_cubin(api_ptr(), c->bytes, name));
    std::lock_guard lock(counts_mutex_);
    ++counts_.embedded_cubins;
    return module;
  }
  if (const std::string target = target_of_ptx(ptx); !target.empty())
    if (std::string why = reject_target(target, info_.arch); !why.empty())
      throw Unsupported({cat("kernel ", name, " does not run on ", info_.spec), {}, why, {}});
  return compile(ptx, name);
}
std::unique_ptr<Code> CudaBackend::make_code(const KernelImage& image) {
  context();
  return std::make_unique<CudaCode>(*this, image, load_code(*image.ptx, image.cubins, image.name));
}
std::shared_ptr<ModuleState> CudaBackend::load_module(std::string ptx) {
  return std::make_shared<CudaModule>(std::static_pointer_cast<CudaBackend>(shared_from_this()),
                                      std::move(ptx));
}
LoadCounts CudaBackend::load_counts() const {
  std::lock_guard lock(counts_mutex_);
  return counts_;
}

TensorMap CudaBackend::encode(const TensorMapSpec& s, std::uint64_t address) {
  context();
  const std::size_t rank = s.rank();
  std::uint64_t strides[5] = {}, inner = s.dims[0] * std::uint64_t(bytes(s.type));
  std::uint32_t steps[5] = {1, 1, 1, 1, 1};
  for (std::size_t i = 1; i < rank; ++i) {
    strides[i - 1] = s.strides.empty() ? inner : s.strides[i - 1];
    inner = strides[i - 1] * s.dims[i];
  }
  for (std::size_t i = 0; i < s.element_strides.size(); ++i) steps[i] = s.element_strides[i];
  cuda::TensorMapBits bits{};
  // The enumerators of TensorType, Interleave, Swizzle, L2Promotion and OobFill have the driver's values.
  api().call<&cuda::Api::cuTensorMapEncodeTiled>(
      &bits, int(s.type), std::uint32_t(rank), reinterpret_cast<void*>(std::uintptr_t(address)),
      s.dims.data(), strides, s.box.data(), steps, int(s.interleave), int(s.swizzle), int(s.l2), int(s.oob));
  TensorMap map;
  static_assert(sizeof map.words == sizeof bits.words);
  std::copy(std::begin(bits.words), std::end(bits.words), map.words);
  return map;
}

// ---------------------------------------------------------------- opening
std::shared_ptr<Backend> open_cuda(int ordinal) {
  // One backend per GPU and process: kernels are loaded once, and equal Devices are the same device.
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<Backend>> open;
  std::lock_guard lock(mutex);
  if (auto b = open[ordinal].lock()) return b;
  auto b = std::make_shared<CudaBackend>(cuda::Api::get(), ordinal);
  open[ordinal] = b;
  return b;
}
std::vector<DeviceInfo> cuda_devices() {
  std::vector<DeviceInfo> out;
  if (!cuda::available()) return out;
  const auto api = cuda::Api::get();
  for (int i = 0, n = cuda::device_count(*api); i < n; ++i) out.push_back(describe_cuda(*api, i));
  return out;
}

}  // namespace cgp::runtime
