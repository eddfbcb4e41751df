// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/kernel/kernel_args.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/common/build_only.h"
#include "cgp/kernels/gemm/api/gemm_tuning.h"

namespace cgp::profile {

using text::cat;

std::pair<std::string, std::string> split_setting(const std::string& text, const std::string& what) {
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    throw ArgumentError(ErrorText{cat(what, " must be NAME=VALUE"), {}, cat("it is \"", text, "\""), {}});
  return {text.substr(0, equals), text.substr(equals + 1)};
}

kernels::Options parse_settings(const kernels::KernelEntry& kernel,
                                const std::vector<std::string>& settings) {
  kernels::Options options(kernel.name, kernel.options);
  for (const auto& s : settings) {
    const auto [name, value] = split_setting(s, "a kernel's option");
    options.set(name, value);
  }
  return options;
}

std::vector<runtime::KernelImage> select_images(const kernels::KernelEntry& kernel, const std::string& arch,
                                                const std::string& variant,
                                                const std::vector<std::string>& settings) {
  const auto options = parse_settings(kernel, settings);
  if (variant.empty()) {
    const auto device = runtime::Device::open("emu:" + arch);
    return kernel.prepare(device, options, {}, 1)->images;
  }
  std::vector<std::string> names;
  const kernels::BuildOnly only(variant);
  for (auto& image : kernel.images(arch)) {
    if (image.name == variant || image.entry == variant) return {std::move(image)};
    names.push_back(image.name);
  }
  // Tiles of the persistent families are too many to list: every config that has a kernel is built.
  if (kernel.name == "gemm" && variant.starts_with("gemm_")) {
    const auto c = kernels::choose_persistent_sm90(kernels::parse_gemm_config(variant));
    if (c && kernels::reject(c->variant, arch).empty()) return {kernels::image(c->variant, arch)};
  }
  const auto near = text::closest(variant, names, 3);
  throw ArgumentError(ErrorText{cat(kernel.name, " has no variant \"", variant, "\" for ", arch),
                                {},
                                cat("there are: ", text::join(names, ", ")),
                                near.empty() ? "" : cat("did you mean ", text::join(near, " or "), "?")});
}

}  // namespace cgp::profile
