// SPDX-License-Identifier: Apache-2.0
#include "cgp/runtime/launcher.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/runtime/backend_impl.h"

namespace cgp::runtime {
namespace {
using text::cat;

bool is_integer(DType t) { return !is_float(t); }
bool is_signed(DType t) { return t == DType::s8 || t == DType::s16 || t == DType::s32 || t == DType::s64; }

std::string type_text(std::optional<DType> t) { return t ? std::string(name(*t)) : std::string("any type"); }
std::string describe(const Param& p) {
  switch (p.kind) {
    case ParamKind::scalar:
      return cat("a scalar of type ", type_text(p.dtype));
    case ParamKind::pointer:
      return cat(p.writable ? "a writable buffer of " : "a buffer of ", type_text(p.dtype));
    case ParamKind::tensor_map:
      return "a tensor map";
    case ParamKind::bytes:
      return cat("a struct of ", p.bytes, " bytes");
    case ParamKind::word:
      return cat("a scalar or an address of ", p.bytes, " bytes");
  }
  return {};
}
std::string describe(const Arg& a) {
  switch (a.kind) {
    case ParamKind::scalar:
      return cat("a scalar of type ", type_text(a.dtype));
    case ParamKind::pointer:
      return cat(a.writable ? "a buffer of " : "a const buffer of ", type_text(a.dtype));
    case ParamKind::tensor_map:
      return "a tensor map";
    default:
      return cat("a struct of ", a.bytes, " bytes");
  }
}

// Integers of equal width pass for each other as long as the value means the same in both.
bool scalar_fits(const Param& p, const Arg& a) {
  if (p.dtype == a.dtype) return true;
  if (!p.dtype || !a.dtype) return p.bytes == a.bytes;
  if (!is_integer(*p.dtype) || !is_integer(*a.dtype) || bytes(*p.dtype) != bytes(*a.dtype)) return false;
  const bool top = a.word >> (bytes(*a.dtype) * 8 - 1) & 1;
  return is_signed(*p.dtype) == is_signed(*a.dtype) || !top;
}
bool elements_fit(const Param& p, const Arg& a) {
  if (!p.dtype || !a.dtype || p.dtype == a.dtype) return true;
  return is_integer(*p.dtype) && is_integer(*a.dtype) && bytes(*p.dtype) == bytes(*a.dtype);
}

// Empty: the argument fits the parameter; else why not (the caller adds which).
std::string reject_arg(const Param& p, const Arg& a, const Backend* device) {
  const bool word =
      p.kind == ParamKind::word && (a.kind == ParamKind::scalar || a.kind == ParamKind::pointer);
  if (p.kind != a.kind && !word) return cat("is ", describe(p), ", the argument is ", describe(a));
  if (a.kind == ParamKind::pointer) {
    if (word && p.bytes != 8) return cat("is ", describe(p), ", the argument is an address (8 bytes)");
    if (!word && !elements_fit(p, a)) return cat("is ", describe(p), ", the argument is ", describe(a));
    if (!word && p.writable && !a.writable)
      return cat("is written by the kernel, the argument is ", describe(a));
    if (a.device && a.device != device && !(device && device->uses_peer(*a.device)))
      return cat("needs memory of ", device ? device->info().spec : "the stream's device",
                 ", the argument's is on ", a.device->info().spec,
                 a.device->info().spec == (device ? device->info().spec : "") ? " (another one)" : "",
                 device && device->can_access_peer(*a.device)
                     ? " (Device::enable_peer lets kernels use memory of another device)"
                     : "");
    return {};
  }
  if (p.kind == ParamKind::scalar && !scalar_fits(p, a)) {
    const bool sign =
        p.dtype && a.dtype && is_integer(*p.dtype) && is_integer(*a.dtype) && p.bytes == a.bytes;
    return cat("is ", describe(p), ", the argument is ", describe(a),
               sign ? " with a value that one cannot hold" : "");
  }
  if (a.bytes != p.bytes) return cat("has ", p.bytes, " bytes, the argument ", a.bytes);
  return {};
}

bool given(Dim3 d) { return d != kFromKernel; }
std::string text_of(Dim3 d) { return cat(d.x, " x ", d.y, " x ", d.z); }

}  // namespace

// ---------------------------------------------------------------- Arg
Arg Arg::scalar(DType t, const void* value) {
  Arg a;
  a.dtype = t;
  a.bytes = std::uint32_t(cgp::bytes(t));
  std::memcpy(&a.word, value, a.bytes);
  return a;
}
Arg Arg::pointer(std::uint64_t address, std::optional<DType> t, bool writable, const Backend* device) {
  Arg a;
  a.kind = ParamKind::pointer;
  a.dtype = t;
  a.writable = writable;
  a.device = device;
  a.bytes = 8;
  a.word = address;
  return a;
}
Arg Arg::tensor_map(const TensorMap& map) {
  Arg a;
  a.kind = ParamKind::tensor_map;
  a.bytes = sizeof map;
  a.data = &map;
  return a;
}
Arg Arg::raw(const void* data, std::uint32_t bytes) {
  Arg a;
  a.kind = ParamKind::bytes;
  a.bytes = bytes;
  a.data = data;
  return a;
}

// ---------------------------------------------------------------- checks
std::string reject_args(const KernelImage& image, const Backend* device, std::span<const Arg> args) {
  if (args.size() != image.params.size()) {
    std::vector<std::string> names;
    for (const Param& p : image.params) names.push_back(p.name);
    return cat("it has ", image.params.size(), " parameters (", text::join(names, ", "), "), the call ",
               args.size(), " arguments");
  }
  for (std::size_t i = 0; i < args.size(); ++i)
    if (std::string why = reject_arg(image.params[i], args[i], device); !why.empty())
      return cat("parameter ", i, " \"", image.params[i].name, "\" ", why);
  return {};
}

namespace {
std::string reject_block(const DeviceInfo& info, const KernelImage& image, Dim3 block) {
  if (!given(block)) return "the kernel has no fixed block shape: the launch must give one";
  if (given(image.block) && image.block != block)
    return cat("it was built for blocks of ", text_of(image.block), ", the launch has ", text_of(block));
  if (block.count() == 0) return cat("a block has at least one thread, this one is ", text_of(block));
  const std::uint64_t limit =
      std::min<std::uint64_t>(std::uint64_t(info.max_threads_per_block), image.max_threads_per_block);
  if (block.count() > limit)
    return cat("a block has at most ", limit, " threads", limit < 1024 ? " in this kernel" : "",
               ", this one is ", text_of(block), " = ", block.count());
  if (block.x > info.max_block.x || block.y > info.max_block.y || block.z > info.max_block.z)
    return cat("a block has at most ", text_of(info.max_block), " threads, this one is ", text_of(block));
  return {};
}
std::string reject_cluster(const DeviceInfo& info, const KernelImage& image, Dim3 cluster, Dim3 grid) {
  if (cluster.count() == 0) return cat("a cluster has at least one block, this one is ", text_of(cluster));
  if (image.cluster.count() > 1 && image.cluster != cluster)
    return cat("it was built for clusters of ", text_of(image.cluster), ", the launch has ",
               text_of(cluster));
  if (cluster.count() > std::uint64_t(info.max_cluster))
    return info.max_cluster <= 1 ? cat("clusters need sm_90 or later, this device is ", info.arch)
                                 : cat("a cluster has at most ", info.max_cluster, " blocks, this one is ",
                                       text_of(cluster), " = ", cluster.count());
  if (grid.x % cluster.x || grid.y % cluster.y || grid.z % cluster.z)
    return cat("the grid must be a multiple of the cluster in each dimension: grid ", text_of(grid),
               ", cluster ", text_of(cluster));
  return {};
}
Shape resolve(const KernelImage& image, const Launch& l) {
  Shape s;
  s.grid = l.grid;
  s.block = given(l.block) ? l.block : image.block;
  s.cluster = given(l.cluster) ? l.cluster : given(image.cluster) ? image.cluster : Dim3{1, 1, 1};
  s.dynamic_smem = l.dynamic_smem.value_or(image.dynamic_smem);
  s.cooperative = l.cooperative || image.cooperative;
  s.programmatic = l.programmatic;
  return s;
}
}  // namespace

std::string reject_shape(const DeviceInfo& info, const KernelImage& image, const Launch& launch,
                         std::uint32_t static_smem) {
  const Shape s = resolve(image, launch);
  if (std::string why = reject_block(info, image, s.block); !why.empty()) return why;
  if (s.grid.count() == 0) return cat("a grid has at least one block, this one is ", text_of(s.grid));
  if (s.grid.x > info.max_grid.x || s.grid.y > info.max_grid.y || s.grid.z > info.max_grid.z)
    return cat("a grid has at most ", text_of(info.max_grid), " blocks, this one is ", text_of(s.grid));
  if (std::string why = reject_cluster(info, image, s.cluster, s.grid); !why.empty()) return why;
  if (std::uint64_t(s.dynamic_smem) + static_smem > info.smem_per_block_optin)
    return cat("it needs ", s.dynamic_smem, " + ", static_smem,
               " bytes of shared memory (dynamic + static) for a block, ", info.arch, " has at most ",
               info.smem_per_block_optin);
  if (s.cooperative && !info.cooperative_launch) return cat(info.spec, " has no cooperative launch");
  return {};
}

Shape check_launch(const Code& code, const Backend* device, const Launch& launch, std::span<const Arg> args) {
  const auto refuse = [&](std::string why, std::string hint) {
    throw ArgumentError({cat("kernel ", code.image.name, " cannot be launched like this"),
                         {},
                         std::move(why),
                         std::move(hint)});
  };
  if (&code.backend != device)
    refuse(cat("it was loaded on ", code.backend.info().spec, ", the stream is on ", device->info().spec,
               code.backend.info().spec == device->info().spec ? " (another one)" : ""),
           "load it on the stream's device: stream.device().load(...)");
  if (std::string why = reject_args(code.image, device, args); !why.empty()) refuse(std::move(why), {});
  if (std::string why = reject_shape(device->info(), code.image, launch, code.static_smem); !why.empty())
    refuse(std::move(why), {});
  return resolve(code.image, launch);
}

// ---------------------------------------------------------------- LoadedKernel, LoadedModule
namespace {
const Code& need(const std::shared_ptr<const Code>& c) {
  if (!c) throw ArgumentError({"this LoadedKernel is empty", {}, {}, "load one: device.load(image)"});
  return *c;
}
}  // namespace

void LoadedKernel::launch(Stream& s, const Launch& launch, std::span<const Arg> args) const {
  const Code& c = need(code_);
  Queue& queue = s.queue();
  queue.launch(c, check_launch(c, s.backend(), launch, args), args);
}
const KernelImage& LoadedKernel::image() const { return need(code_).image; }
Device LoadedKernel::device() const { return Device(need(code_).backend.shared_from_this()); }
KernelAttributes LoadedKernel::attributes() const { return need(code_).attributes(); }
int LoadedKernel::blocks_per_sm(Dim3 block, std::optional<std::uint32_t> dynamic_smem) const {
  const Code& c = need(code_);
  const Launch l{.grid = c.image.cluster, .block = block, .dynamic_smem = dynamic_smem};
  if (std::string why = reject_shape(c.backend.info(), c.image, l, c.static_smem); !why.empty()) return 0;
  const Shape s = resolve(c.image, l);
  return c.blocks_per_sm(s.block, s.dynamic_smem);
}
int LoadedKernel::max_active_clusters(const Launch& launch) const {
  const Code& c = need(code_);
  if (std::string why = reject_shape(c.backend.info(), c.image, launch, c.static_smem); !why.empty())
    return 0;
  return c.max_active_clusters(resolve(c.image, launch));
}

std::vector<std::string> LoadedModule::entries() const { return state_->entries(); }
LoadedKernel LoadedModule::kernel(std::string_view entry) const {
  return LoadedKernel(state_->kernel(entry));
}
Slice<std::byte> LoadedModule::variable(std::string_view name) const { return state_->variable(name); }

}  // namespace cgp::runtime
