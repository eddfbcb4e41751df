// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/gemm/select/gemm_config.h"

namespace cgp::kernels {

std::string print(const GemmConfig& c) { return config_name("gemm", c); }
GemmConfig parse_gemm_config(std::string_view name) { return parse_config<GemmConfig>("gemm", name); }
std::size_t hash(const GemmConfig& c) { return config_hash(c); }
std::string json(const GemmConfig& c) { return config_json(c); }

std::span<const std::string_view> gemm_family_names() {
  static constexpr std::string_view names[] = {
#define GEMM_FAMILY(name, ...) #name,
#include "cgp/kernels/gemm/select/gemm_families.def"
#undef GEMM_FAMILY
  };
  return names;
}

}  // namespace cgp::kernels
