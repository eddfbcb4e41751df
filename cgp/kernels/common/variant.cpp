// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/common/variant.h"

#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/passes.h"
#include "cgp/kernels/common/build_only.h"
#include "cgp/kernels/pack/cubin_pack.h"
#include "cgp/launch/image.h"

namespace cgp::kernels {
namespace {

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

std::string reject(const Variant& v, std::string_view arch) {
  if (!v.only.empty() && v.only != arch)
    return text::cat(v.name, " is for ", v.only, " alone, this is ", arch);
  if (capability(arch) < v.min_sm)
    return text::cat(v.name, " needs sm_", v.min_sm, " or later, this is ", arch);
  return {};
}

runtime::KernelImage image(const Variant& v, std::string_view arch) {
  if (auto why = reject(v, arch); !why.empty()) throw Unsupported(std::move(why));
  return launch::image(v.build(v.name, std::string(arch)));
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
    if (device.info().kind == runtime::DeviceKind::cuda) attach_embedded(made, device.info().arch);
    return made;
  });
}

}  // namespace cgp::kernels
