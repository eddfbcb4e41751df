// SPDX-License-Identifier: Apache-2.0
#pragma once
// Glue between a kernel function of the DSL and the runtime: a Variant is a named way to build one kernel, an
// image is it built for an architecture, load() gives it ready to launch (built and compiled once per
// device).
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cgp/dsl/kernel.h"
#include "cgp/launch/image.h"
#include "cgp/runtime/launcher.h"

namespace cgp::kernels {

using launch::tensor_map_spec;

/// The architectures that variants are claimed, assembled and emulated for.
inline constexpr std::string_view kTargets[] = {"sm_75",  "sm_80",   "sm_86",  "sm_89",
                                                "sm_90a", "sm_100a", "sm_120a"};

struct Variant {
  std::string name;  ///< "<op>_<types>[_<idea>][__<config>]": names the entry symbol too
  int min_sm = 75;   ///< lowest compute capability times ten
  std::string only;  ///< "sm_90a": exactly this architecture; empty: min_sm and later
  std::function<dsl::BuiltKernel(const std::string& name, const std::string& target)> build;
};

/// Variant whose kernel function takes no build-time choices, or (second form) the choices given.
template <class... Ps>
Variant variant(std::string name, int min_sm, void (*fn)(dsl::Kernel&, Ps...)) {
  return {std::move(name), min_sm, {}, [fn](const std::string& n, const std::string& target) {
            return dsl::build(n, target, fn);
          }};
}
template <class Tune, class... Ps>
Variant variant(std::string name, int min_sm, void (*fn)(dsl::Kernel&, Tune, Ps...),
                std::type_identity_t<Tune> tune) {
  return {std::move(name), min_sm, {}, [fn, tune](const std::string& n, const std::string& target) {
            return dsl::build(n, target, fn, tune);
          }};
}

/// Why the variant does not run on `arch`; empty: it does.
std::string reject(const Variant& v, std::string_view arch);
/// Built for `arch`. Throws Unsupported with reject()'s sentence, BuildError from the kernel.
runtime::KernelImage image(const Variant& v, std::string_view arch);
/// All of them that run on `arch`, each name once.
std::vector<runtime::KernelImage> images(std::span<const Variant> variants, std::string_view arch);

/// Built and compiled at the first call on each device, then looked up by name.
runtime::LoadedKernel load(const runtime::Device& device, const Variant& v);

}  // namespace cgp::kernels
