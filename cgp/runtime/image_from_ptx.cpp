// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/ptx/module.h"
#include "cgp/ptx/shared_module.h"
#include "cgp/runtime/kernel_image.h"

namespace cgp::runtime {
namespace {

std::optional<DType> dtype_of_ptx(ptx::Mod m) { return parse_dtype(ptx::name(m)); }

Param param_of(const ptx::Module& module, const ptx::Var& v) {
  Param p;
  p.name = module.text(v.name);
  p.bytes = std::uint32_t(v.bytes());
  p.align = v.alignment();
  p.dtype = std::nullopt;
  if (v.is_array) {
    const bool map = p.bytes == 128 && p.align >= 64;
    p.kind = map ? ParamKind::tensor_map : ParamKind::bytes;
    return p;
  }
  if (v.is_ptr) {
    p.kind = ParamKind::pointer;
  } else if (p.bytes == 8 && !ptx::is_float(v.type)) {
    p.kind = ParamKind::word;
  } else {
    p.kind = ParamKind::scalar;
    p.dtype = dtype_of_ptx(v.type);  // absent for .b32: any type of that width
  }
  return p;
}

Dim3 dim3(const std::array<std::uint32_t, 3>& a) { return {a[0], a[1], a[2]}; }

const ptx::Function& find_entry(const ptx::Module& m, std::string_view entry) {
  std::vector<std::string> names;
  const ptx::Function* only = nullptr;
  for (const ptx::Function& f : m.functions) {
    if (!f.entry || !f.has_body) continue;
    if (m.text(f.name) == entry) return f;
    names.push_back(m.text(f.name));
    only = &f;
  }
  if (entry.empty() && names.size() == 1) return *only;
  if (names.empty()) throw ArgumentError("the PTX has no entry: it cannot be launched");
  throw ArgumentError({entry.empty() ? std::string("the PTX has several entries: name one")
                                     : text::cat("the PTX has no entry ", entry),
                       {},
                       text::cat("it has ", text::join(names, ", ")),
                       {}});
}

}  // namespace

KernelImage image_from_ptx(std::string text, std::string_view entry) {
  const auto shared = ptx::share_module(text);
  const ptx::Module& m = *shared;
  const ptx::Function& f = find_entry(m, entry);
  KernelImage image;
  image.name = image.entry = m.text(f.name);
  image.ptx = std::make_shared<const std::string>(std::move(text));
  for (const ptx::Var& v : f.params) image.params.push_back(param_of(m, v));
  if (f.reqntid) image.block = dim3(*f.reqntid);
  if (f.maxntid)
    image.max_threads_per_block = std::uint32_t(std::min<std::uint64_t>(1024, dim3(*f.maxntid).count()));
  if (f.reqnctapercluster) image.cluster = dim3(*f.reqnctapercluster);
  return image;
}

std::vector<std::string> entries_of_ptx(std::string_view ptx) {
  const ptx::Module m = ptx::module_of(ptx);
  std::vector<std::string> names;
  for (const ptx::Function& f : m.functions)
    if (f.entry && f.has_body) names.push_back(m.text(f.name));
  return names;
}

}  // namespace cgp::runtime
