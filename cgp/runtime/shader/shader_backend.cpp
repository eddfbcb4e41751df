// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cstring>
#include <new>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/ptx/shared_module.h"
#include "cgp/ptx/target.h"
#include "cgp/runtime/shader/shader_backend_impl.h"

namespace cgp::runtime {
namespace {
using text::cat;

class ShaderModule final : public ModuleState, public std::enable_shared_from_this<ShaderModule> {
 public:
  ShaderModule(std::shared_ptr<ShaderBackend> b, std::string ptx) : b_(std::move(b)), ptx_(std::move(ptx)) {
    entries_ = entries_of_ptx(ptx_);
  }
  ~ShaderModule() override { codes_.clear(); }
  std::vector<std::string> entries() const override { return entries_; }
  std::shared_ptr<const Code> kernel(std::string_view entry) override {
    std::lock_guard lock(mutex_);
    auto it = codes_.find(entry);
    if (it == codes_.end())
      it = codes_.emplace(std::string(entry), b_->make_code(image_from_ptx(ptx_, entry))).first;
    return {shared_from_this(), it->second.get()};
  }
  Slice<std::byte> variable(std::string_view) override {
    b_->lacks("addresses of a module's variables", "pass the data in a buffer");
  }

 private:
  const std::shared_ptr<ShaderBackend> b_;
  const std::string ptx_;
  std::vector<std::string> entries_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Code>, std::less<>> codes_;
};

}  // namespace

ShaderSpec parse_shader_spec(std::string_view spec, std::string_view kind) {
  ShaderSpec out{0, std::string(kShaderArch)};
  std::string_view rest = spec.substr(kind.size());
  if (rest.starts_with(':')) rest.remove_prefix(1);
  const auto colon = rest.find(':');
  const std::string_view digits = rest.substr(0, colon);
  if (!digits.empty()) {
    const auto r = std::from_chars(digits.data(), digits.data() + digits.size(), out.ordinal);
    if (r.ec != std::errc() || r.ptr != digits.data() + digits.size() || out.ordinal < 0) out.ordinal = -1;
  }
  if (colon != rest.npos) out.arch = rest.substr(colon + 1);
  if (out.ordinal < 0 || !ptx::parse_target(out.arch))
    throw ArgumentError(
        {cat("\"", spec, "\" is not a device"),
         {},
         {},
         cat("\"", kind, ":0\", or \"", kind, ":0:sm_80\" to choose kernels as for another architecture")});
  return out;
}

DeviceInfo shader_device_info(DeviceKind kind, const ShaderSpec& s) {
  DeviceInfo i;
  i.kind = kind;
  i.spec = cat(name(kind), ":", s.ordinal, s.arch == kShaderArch ? "" : cat(":", s.arch));
  i.arch = s.arch;
  const int cc = ptx::parse_target(s.arch)->sm;
  i.cc_major = cc / 10;
  i.cc_minor = cc % 10;
  return i;
}

// ---------------------------------------------------------------- code
ShaderCode::ShaderCode(Backend& b, const KernelImage& k) : Code(b, k), module_(ptx::share_module(*k.ptx)) {
  if (std::string why = reject_target(target_of_ptx(*k.ptx), b.info().arch); !why.empty())
    throw Unsupported({cat("kernel ", k.name, " does not run on ", b.info().spec),
                       {},
                       why,
                       cat("open \"", b.info().spec, ":", target_of_ptx(*k.ptx), "\"")});
  const ptx::Function* f = module_->find(k.entry);
  if (!f || !f->entry) throw ArgumentError(cat("the PTX of ", k.name, " has no entry ", k.entry));
  if (f->params.size() != k.params.size())
    throw ArgumentError({cat("the image of ", k.name, " must describe the entry's parameters"),
                         {},
                         cat("it names ", k.params.size(), ", the PTX declares ", f->params.size()),
                         {}});
  std::uint64_t at = 0;
  for (const ptx::Var& v : f->params) {
    at = (at + v.alignment() - 1) / v.alignment() * v.alignment();
    offsets_.push_back(std::uint32_t(at));
    at += v.bytes();
  }
}
KernelAttributes ShaderCode::attributes() const {
  KernelAttributes a;
  a.static_smem = static_smem;
  a.max_threads_per_block = std::min(int(image.max_threads_per_block), backend.info().max_threads_per_block);
  a.code_arch = backend.info().kind == DeviceKind::vulkan ? "SPIR-V" : "WGSL";
  return a;
}
int ShaderCode::blocks_per_sm(Dim3 block, std::uint32_t dynamic_smem) const {
  const DeviceInfo& i = backend.info();
  const std::uint64_t smem = std::uint64_t(dynamic_smem) + static_smem;
  int n = std::min(i.max_blocks_per_sm, i.max_threads_per_sm / int(block.count()));
  if (smem) n = std::min(n, int(i.smem_per_sm / smem));
  return n;
}
int ShaderCode::max_active_clusters(const Shape& s) const {
  return blocks_per_sm(s.block, s.dynamic_smem) * backend.info().sm_count;
}
std::vector<std::byte> ShaderCode::pack(std::span<const Arg> args, std::uint32_t bytes) const {
  std::vector<std::byte> out(bytes);
  for (std::size_t k = 0; k < args.size(); ++k) {
    const void* from = args[k].data ? args[k].data : static_cast<const void*>(&args[k].word);
    std::memcpy(out.data() + offsets_[k], from, image.params[k].bytes);
  }
  return out;
}
shader::ShaderOptions ShaderCode::options() const {
  shader::ShaderOptions o;
  if (image.block != kFromKernel) o.block = {image.block.x, image.block.y, image.block.z};
  o.dynamic_shared = image.dynamic_smem;
  return o;
}
shader::Shader ShaderCode::translate(const shader::ShaderOptions& o, bool wgsl) const {
  const DeviceInfo& i = backend.info();
  const std::string rule = cat("kernel ", image.name, " does not run on ", i.spec);
  shader::Shader s;
  try {
    s = wgsl ? shader::translate_wgsl(*module_, image.entry, o)
             : shader::translate_spirv(*module_, image.entry, o);
  } catch (const BuildError& e) {
    throw Unsupported({rule, e.where(), cat(e.rule(), e.why().empty() ? "" : ": ", e.why()), e.hint()});
  }
  if (s.needs.shared_bytes > i.smem_per_block_optin)
    throw Unsupported({rule,
                       {},
                       cat("its shader needs ", s.needs.shared_bytes,
                           " bytes of shared memory for a block, the device has ", i.smem_per_block_optin),
                       {}});
  if (s.needs.threads > std::uint32_t(i.max_threads_per_block))
    throw Unsupported(
        {rule,
         {},
         cat("its blocks have ", s.needs.threads, " threads, the device allows ", i.max_threads_per_block),
         {}});
  return s;
}

// ---------------------------------------------------------------- backend
void ShaderBackend::lacks(std::string_view what, std::string hint) const {
  throw Unsupported({cat(name(info_.kind), " devices have no ", what),
                     {},
                     cat("the device is ", info_.spec),
                     std::move(hint)});
}
void* ShaderBackend::alloc_pinned(std::size_t bytes) { return ::operator new(bytes, std::align_val_t(4096)); }
void ShaderBackend::free_pinned(void* p) noexcept { ::operator delete(p, std::align_val_t(4096)); }
std::uint64_t ShaderBackend::alloc_managed(std::size_t) {
  lacks("managed memory", "use a Buffer and copies");
}
std::byte* ShaderBackend::host_pointer(std::uint64_t, std::size_t) { lacks("managed memory"); }
void ShaderBackend::prefetch(Queue&, std::uint64_t, std::size_t, bool) { lacks("managed memory"); }
void ShaderBackend::attach(Queue&, std::uint64_t) { lacks("managed memory"); }
void ShaderBackend::advise(std::uint64_t, std::size_t, MemoryAdvice) { lacks("managed memory"); }
std::unique_ptr<GraphBuilderState> ShaderBackend::make_graph_builder() {
  lacks("graphs", "issue the launches on a stream");
}
std::shared_ptr<ModuleState> ShaderBackend::load_module(std::string ptx) {
  return std::make_shared<ShaderModule>(std::static_pointer_cast<ShaderBackend>(shared_from_this()),
                                        std::move(ptx));
}
LoadCounts ShaderBackend::load_counts() const { return counts_; }
TensorMap ShaderBackend::encode(const TensorMapSpec&, std::uint64_t) { lacks("tensor maps (TMA)"); }

void ShaderQueue::begin_capture() { lacks_.lacks("graphs", "issue the launches on a stream"); }
std::shared_ptr<GraphState> ShaderQueue::end_capture() { lacks_.lacks("graphs"); }
void ShaderQueue::replay(GraphState&) { lacks_.lacks("graphs"); }

}  // namespace cgp::runtime
