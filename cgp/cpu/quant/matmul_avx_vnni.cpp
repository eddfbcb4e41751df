// SPDX-License-Identifier: Apache-2.0
// AVX-VNNI: four products of a byte and a signed byte per lane and instruction (vpdpbusd).
#include "cgp/cpu/quant/dot_int8_256_impl.h"

namespace cgp::cpu {
namespace {

struct Vpdpbusd {
  static constexpr bool kAnyCode = true;
  static __m256i dot(__m256i codes, __m256i x) {
    return _mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), codes, x);
  }
};

constexpr quant_versions::DotTable dots() {
  quant_versions::DotTable t{};
  for_formats<Dots<Vpdpbusd>::Of>(t.by);
  return t;
}

}  // namespace

namespace quant_versions {
constinit const DotTable dot_avx_vnni = dots();
}
}  // namespace cgp::cpu
