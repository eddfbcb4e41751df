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
#include "cgp/kernels/common/config.h"
#include "cgp/launch/image.h"
#include "cgp/runtime/launcher.h"

namespace cgp::kernels {

using launch::tensor_map_spec;

/// The architectures that variants are claimed, assembled and emulated for.
inline constexpr std::string_view kTargets[] = {"sm_75",  "sm_80",   "sm_86",  "sm_89",
                                                "sm_90a", "sm_100a", "sm_120a"};

/// What is known of configs of one type, by the names of variants.
struct ConfigType {
  /// The name that the config parsed from `name` has: `name` itself, else the fields do not tell all.
  std::string (*round_trip)(std::string_view family, std::string_view name);
  std::string (*json)(std::string_view family, std::string_view name);
};
template <class C>
inline constexpr ConfigType kConfigType{[](std::string_view family, std::string_view name) {
                                          return config_name(family, parse_config<C>(family, name));
                                        },
                                        [](std::string_view family, std::string_view name) {
                                          return config_json(parse_config<C>(family, name));
                                        }};

struct Variant {
  std::string name;  ///< "<family>_<fields of its config>": names the entry symbol too
  int min_sm = 75;   ///< lowest compute capability times ten
  std::string only;  ///< "sm_90a": exactly this architecture; empty: min_sm and later
  std::function<dsl::BuiltKernel(const std::string& name, const std::string& target)> build;
  const ConfigType* config = nullptr;  ///< of variants that were made from a config
  std::size_t family = 0;              ///< letters of the name before the config's fields
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

/// Variant named by the fields of its config, which the kernel function takes as its build-time choices.
template <class C, class... Ps>
Variant config_variant(std::string_view family, const C& config, int min_sm,
                       void (*fn)(dsl::Kernel&, C, Ps...)) {
  Variant v = variant(config_name(family, config), min_sm, fn, config);
  v.config = &kConfigType<C>, v.family = family.size();
  return v;
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
