// SPDX-License-Identifier: Apache-2.0
#include "cgp/launch/image.h"

#include <optional>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::launch {
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

}  // namespace

runtime::TensorMapSpec tensor_map_spec(const runtime::KernelImage& image, std::size_t param) {
  if (param >= image.params.size() || !image.params[param].tensor)
    throw ArgumentError(text::cat("parameter ", param, " of ", image.name, " is not a tensor map"));
  return *image.params[param].tensor;
}

runtime::KernelImage image(const dsl::BuiltKernel& built) {
  runtime::KernelImage out;
  out.name = out.entry = built.name;
  out.ptx = std::make_shared<const std::string>(built.ptx());
  for (const auto& p : built.params) out.params.push_back(param(p));
  const auto dim = [](const std::array<int, 3>& d) {
    return runtime::Dim3{std::uint32_t(d[0]), std::uint32_t(d[1]), std::uint32_t(d[2])};
  };
  out.block = dim(built.block);  // zeros mean kFromKernel, "each launch says it", in both
  if (built.cluster[0]) out.cluster = dim(built.cluster);
  out.dynamic_smem = std::uint32_t(built.dynamic_smem);
  return out;
}

}  // namespace cgp::launch
