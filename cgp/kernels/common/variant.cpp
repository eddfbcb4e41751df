// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/common/variant.h"

#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/passes.h"
#include "cgp/kernels/common/build_only.h"
#include "cgp/kernels/pack/cubin_pack.h"

namespace cgp::kernels {
namespace {

std::optional<DType> dtype(ptx::Mod t) { return parse_dtype(ptx::name(t)); }

runtime::TensorMapSpec tensor_spec(const dsl::TensorMapSchema& s) {
  runtime::TensorMapSpec out;
  out.type = s.element == ptx::Mod::tf32 ? runtime::TensorType::tf32
                                         : runtime::tensor_type(dtype(s.element).value_or(DType::u8));
  out.box.assign(s.box.begin(), s.box.begin() + s.rank);
  switch (s.swizzle) {
    case dsl::Swizzle::b128:
      out.swizzle = runtime::Swizzle::b128;
      break;
    case dsl::Swizzle::b64:
      out.swizzle = runtime::Swizzle::b64;
      break;
    case dsl::Swizzle::b32:
      out.swizzle = runtime::Swizzle::b32;
      break;
    default:
      out.swizzle = runtime::Swizzle::none;
  }
  return out;
}

runtime::Param param(const dsl::ParamInfo& p) {
  using Kind = dsl::ParamInfo::Kind;
  runtime::Param out;
  out.name = p.name;
  out.bytes = p.size;
  out.align = p.align;
  out.dtype = dtype(p.type);
  out.writable = p.writes;
  switch (p.kind) {
    case Kind::scalar:
      out.kind = runtime::ParamKind::scalar;
      break;
    case Kind::pointer:
      out.kind = runtime::ParamKind::pointer;
      break;
    case Kind::tensor_map:
      out.kind = runtime::ParamKind::tensor_map;
      out.tensor = tensor_spec(*p.tensor_map);
      break;
    case Kind::structure:
      out.kind = runtime::ParamKind::bytes;
      break;
  }
  return out;
}

thread_local const BuildOnly* build_only = nullptr;

runtime::KernelImage name_alone(const Variant& v) {
  runtime::KernelImage out;
  out.name = out.entry = v.name;
  return out;
}

int capability(std::string_view arch) {
  int v = 0;
  for (char c : arch.substr(arch.find('_') + 1))
    if (c >= '0' && c <= '9') v = v * 10 + (c - '0');
  return v;
}

}  // namespace

runtime::TensorMapSpec tensor_map_spec(const runtime::KernelImage& image, std::size_t param) {
  if (param >= image.params.size() || !image.params[param].tensor)
    throw ArgumentError(text::cat("parameter ", param, " of ", image.name, " is no tensor map"));
  return *image.params[param].tensor;
}

runtime::KernelImage image(const dsl::BuiltKernel& k) {
  runtime::KernelImage out;
  out.name = out.entry = k.name;
  out.ptx = std::make_shared<const std::string>(k.ptx());
  for (const auto& p : k.params) out.params.push_back(param(p));
  const auto dim = [](const std::array<int, 3>& d) {
    return runtime::Dim3{std::uint32_t(d[0]), std::uint32_t(d[1]), std::uint32_t(d[2])};
  };
  out.block = dim(k.block);  // zeros mean kFromKernel, "each launch says it", in both
  if (k.cluster[0]) out.cluster = dim(k.cluster);
  out.dynamic_smem = std::uint32_t(k.dynamic_smem);
  return out;
}

std::string reject(const Variant& v, std::string_view arch) {
  if (!v.only.empty() && v.only != arch)
    return text::cat(v.name, " is for ", v.only, " alone, this is ", arch);
  if (capability(arch) < v.min_sm)
    return text::cat(v.name, " needs sm_", v.min_sm, " or later, this is ", arch);
  return {};
}

runtime::KernelImage image(const Variant& v, std::string_view arch) {
  if (auto why = reject(v, arch); !why.empty()) throw Unsupported(std::move(why));
  return image(v.build(v.name, std::string(arch)));
}

std::vector<runtime::KernelImage> images(std::span<const Variant> variants, std::string_view arch) {
  std::vector<runtime::KernelImage> out;
  const auto have = [&](const Variant& v) {
    return std::any_of(out.begin(), out.end(), [&](const auto& i) { return i.name == v.name; });
  };
  const BuildOnly* only = BuildOnly::current();
  for (const auto& v : variants) {
    if (only) only->meet(v);
    if (reject(v, arch).empty() && !have(v))
      out.push_back(only && only->variant() != v.name ? name_alone(v) : image(v, arch));
  }
  return out;
}

BuildOnly::BuildOnly(std::string variant) : variant_(std::move(variant)), outer_(build_only) {
  build_only = this;
}
BuildOnly::~BuildOnly() { build_only = outer_; }
const BuildOnly* BuildOnly::current() { return build_only; }

runtime::LoadedKernel load(const runtime::Device& device, const Variant& v) {
  // Passes make another kernel of it.
  const std::string key = dsl::passes().any() ? text::cat(v.name, " ", name(dsl::passes())) : v.name;
  return device.load(key, [&] {
    auto made = image(v, device.info().arch);
    if (!device.is_emulator()) attach_embedded(made, device.info().arch);
    return made;
  });
}

}  // namespace cgp::kernels
