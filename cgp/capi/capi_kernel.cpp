// SPDX-License-Identifier: Apache-2.0
// The C interface of kernels that callers bring as PTX.
#include <algorithm>
#include <cstring>
#include <deque>
#include <type_traits>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/capi/handles.h"
#include "cgp/capi/tensor.h"
#include "cgp/ptx/shared_module.h"
#include "cgp/runtime/launcher.h"

struct cgp_module {
  cgp::runtime::Device device;
  std::shared_ptr<const cgp::ptx::Module> parsed;  // kernels are opened without parsing the text again
  cgp::runtime::LoadedModule module;
  std::vector<std::string> kernels;
};
struct cgp_kernel {
  cgp::runtime::LoadedModule module;
  cgp::runtime::LoadedKernel kernel;
  std::vector<std::uint32_t> pointer_align;  // of each parameter; 0: not declared
};

static_assert(int(CGP_PARAMETER_SCALAR) == int(cgp::runtime::ParamKind::scalar) &&
              int(CGP_PARAMETER_POINTER) == int(cgp::runtime::ParamKind::pointer) &&
              int(CGP_PARAMETER_TENSOR_MAP) == int(cgp::runtime::ParamKind::tensor_map) &&
              int(CGP_PARAMETER_BYTES) == int(cgp::runtime::ParamKind::bytes) &&
              int(CGP_PARAMETER_WORD) == int(cgp::runtime::ParamKind::word));

namespace cgp::capi {
namespace {
using text::cat;

runtime::Dim3 dim3(const std::uint32_t (&d)[3]) { return {d[0], d[1], d[2]}; }
void copy_dim3(std::uint32_t (&to)[3], runtime::Dim3 d) { to[0] = d.x, to[1] = d.y, to[2] = d.z; }

/// Writes the members that the caller's structure has.
template <class Info>
void give(Info info, Info* out) {
  info.size = std::min(out->size, sizeof info);
  std::memcpy(out, &info, info.size);
}

/// One of the `names` that stand for the numbers `bytes`.
template <class E>
E one_of(const std::string& where, const char* what, std::int32_t given,
         std::initializer_list<std::pair<std::int32_t, E>> known) {
  std::vector<std::string> numbers;
  for (const auto& [bytes, value] : known) {
    if (bytes == given) return value;
    numbers.push_back(cat(bytes));
  }
  throw ArgumentError({cat(what, " must be ", text::join(numbers, ", ")), where, cat("it is ", given), {}});
}

class Arguments {
 public:
  Arguments(const cgp_kernel& kernel, const runtime::Device& device) : kernel_(kernel), device_(device) {}

  runtime::Arg arg(const cgp_argument& a, std::size_t index) {
    where_ = name_of(index);
    switch (a.kind) {
      case CGP_ARGUMENT_SCALAR:
        require(a.data, "the value of a scalar");
        if (a.dtype < 0 || a.dtype >= kDTypeCount) fail(cat("has the unknown dtype ", a.dtype));
        return runtime::Arg::scalar(DType(a.dtype), a.data);
      case CGP_ARGUMENT_TENSOR:
        return pointer(static_cast<const cgp_tensor*>(a.data), index);
      case CGP_ARGUMENT_BYTES:
        require(a.data, "the bytes of a struct");
        if (a.bytes > 32764) fail(cat("has ", a.bytes, " bytes; parameters have at most 32764"));
        return runtime::Arg::raw(a.data, std::uint32_t(a.bytes));
      case CGP_ARGUMENT_TENSOR_MAP:
        return tensor_map(static_cast<const cgp_tensor_map*>(a.data));
      default:
        fail(cat("has the unknown kind ", a.kind));
    }
  }

 private:
  std::string name_of(std::size_t index) const {
    const auto& params = kernel_.kernel.image().params;
    return index < params.size() ? cat("argument ", index, " (", params[index].name, ")")
                                 : cat("argument ", index);
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw ArgumentError(cat(kernel_.kernel.name(), ": ", where_, " ", what));
  }

  runtime::Arg pointer(const cgp_tensor* t, std::size_t index) const {
    if (!t) return runtime::Arg::address(0);
    const Tensor tensor(t, kernel_.kernel.name().c_str(), where_.c_str());
    const std::uint32_t align = index < kernel_.pointer_align.size() ? kernel_.pointer_align[index] : 0;
    if (align > 1 && t->address % align)
      throw ArgumentError(
          {"memory has the alignment that the kernel declares", cat(kernel_.kernel.name(), ": ", where_),
           cat("the parameter has .ptr .align ", align, ", the address is ", text::hex(t->address)),
           "pass memory that begins at such a multiple, not a view into its middle"});
    return runtime::Arg::pointer(t->address, tensor.dtype(), true, device_.backend().get());
  }
  runtime::Arg tensor_map(const cgp_tensor_map* given) {
    require(given, "a tensor map");
    const cgp_tensor_map m = known(given, cgp_tensor_map{}, "a tensor map");
    const Tensor t(m.tensor, kernel_.kernel.name().c_str(), where_.c_str());
    t.expect_rank(1, 5);
    if (t.size(-1) > 1 && t.stride(-1) != 1) t.fail("its last dimension must be contiguous");
    runtime::TensorMapSpec spec;
    spec.type = runtime::tensor_type(t.dtype());
    for (int i = t.rank() - 1; i >= 0; --i) {
      spec.dims.push_back(t.size(i));
      if (i < t.rank() - 1) spec.strides.push_back(t.stride(i) * std::uint64_t(bytes(t.dtype())));
      spec.box.push_back(m.box[i]);
    }
    using runtime::L2Promotion, runtime::Swizzle;
    spec.swizzle =
        one_of<Swizzle>(where_, "swizzle", m.swizzle,
                        {{0, Swizzle::none}, {32, Swizzle::b32}, {64, Swizzle::b64}, {128, Swizzle::b128}});
    spec.l2 = one_of<L2Promotion>(
        where_, "l2_promotion", m.l2_promotion,
        {{0, L2Promotion::none}, {64, L2Promotion::b64}, {128, L2Promotion::b128}, {256, L2Promotion::b256}});
    spec.oob = m.nan_fill ? runtime::OobFill::nan : runtime::OobFill::zeros;
    return runtime::Arg::tensor_map(maps_.emplace_back(device_.tensor_map(spec, t.address())));
  }

  const cgp_kernel& kernel_;
  const runtime::Device& device_;
  std::string where_;
  std::deque<runtime::TensorMap> maps_;  // until the launch is queued
};

}  // namespace
}  // namespace cgp::capi

using namespace cgp;
using capi::guarded;
using capi::require;

cgp_status cgp_module_load(cgp_device* device, const char* ptx, uint64_t bytes, cgp_module** out) {
  return guarded([&] {
    require(device, "device"), require(ptx, "ptx"), require(out, "out");
    std::string text(ptx, bytes);
    auto parsed = ptx::share_module(text);
    auto module = device->device.load_module(std::move(text));
    auto kernels = module.entries();
    *out = new cgp_module{device->device, std::move(parsed), std::move(module), std::move(kernels)};
  });
}
void cgp_module_free(cgp_module* module) { delete module; }
cgp_status cgp_module_kernel_count(cgp_module* module, uint64_t* out) {
  return guarded([&] {
    require(module, "module"), require(out, "out");
    *out = module->kernels.size();
  });
}
cgp_status cgp_module_kernel_name(cgp_module* module, uint64_t index, const char** out) {
  return guarded([&] {
    require(module, "module"), require(out, "out");
    if (index >= module->kernels.size())
      throw ArgumentError(text::cat("the module has ", module->kernels.size(), " kernels, not ", index + 1));
    *out = module->kernels[index].c_str();
  });
}

cgp_status cgp_kernel_open(cgp_module* module, const char* name, cgp_kernel** out) {
  return guarded([&] {
    require(module, "module"), require(out, "out");
    if (!name) {
      if (module->kernels.size() != 1)
        throw ArgumentError({"the PTX has one kernel, or the caller names one",
                             {},
                             module->kernels.empty()
                                 ? "it has none"
                                 : text::cat("it has ", text::join(module->kernels, ", ")),
                             {}});
      name = module->kernels[0].c_str();
    }
    auto kernel = std::make_unique<cgp_kernel>(cgp_kernel{module->module, module->module.kernel(name), {}});
    if (const ptx::Function* f = module->parsed->find(name))
      for (const ptx::Var& v : f->params) kernel->pointer_align.push_back(v.is_ptr ? v.ptr_align : 0);
    *out = kernel.release();
  });
}
void cgp_kernel_free(cgp_kernel* kernel) { delete kernel; }
cgp_status cgp_kernel_get_info(cgp_kernel* kernel, cgp_kernel_info* out) {
  return guarded([&] {
    require(kernel, "kernel"), require(out, "out");
    const auto& image = kernel->kernel.image();
    const auto attributes = kernel->kernel.attributes();
    cgp_kernel_info info{};
    info.name = image.name.c_str();
    info.parameters = image.params.size();
    capi::copy_dim3(info.block, image.block);
    capi::copy_dim3(info.cluster, image.cluster);
    info.max_threads = image.max_threads_per_block;
    info.static_shared_bytes = attributes.static_smem;
    info.registers = attributes.registers.value_or(attributes.estimated_registers.value_or(-1));
    capi::give(info, out);
  });
}
cgp_status cgp_kernel_parameter(cgp_kernel* kernel, uint64_t index, cgp_parameter_info* out) {
  return guarded([&] {
    require(kernel, "kernel"), require(out, "out");
    const auto& params = kernel->kernel.image().params;
    if (index >= params.size())
      throw ArgumentError(text::cat("kernel ", kernel->kernel.name(), " has ", params.size(),
                                    " parameters, not ", index + 1));
    cgp_parameter_info info{};
    info.name = params[index].name.c_str();
    info.kind = std::int32_t(params[index].kind);
    info.dtype = params[index].dtype ? std::int32_t(*params[index].dtype) : -1;
    info.bytes = params[index].bytes;
    info.pointer_align = kernel->pointer_align[index];
    capi::give(info, out);
  });
}

cgp_status cgp_kernel_launch(cgp_stream* s, cgp_kernel* kernel, const cgp_argument* arguments, uint64_t count,
                             const cgp_launch* launch) {
  return guarded([&] {
    require(s, "stream"), require(kernel, "kernel"), require(launch, "launch");
    if (count) require(arguments, "arguments");
    const cgp_launch shape = capi::known(launch, cgp_launch{}, "a launch");
    capi::Arguments all(*kernel, s->device);
    std::vector<runtime::Arg> args;
    for (std::uint64_t i = 0; i < count; ++i) args.push_back(all.arg(arguments[i], i));
    runtime::Launch l;
    l.grid = capi::dim3(shape.grid);
    l.block = capi::dim3(shape.block);
    l.cluster = capi::dim3(shape.cluster);
    l.dynamic_smem = shape.shared_bytes;
    l.cooperative = shape.cooperative != 0;
    kernel->kernel.launch(s->stream, l, args);
  });
}
