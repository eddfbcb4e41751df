// SPDX-License-Identifier: Apache-2.0
// AMX: tiles 0 to 3 are sums, 4 and 5 vectors, 6 and 7 weights.
#include <immintrin.h>

#include "cgp/cpu/quant/panel_tiles_impl.h"

namespace cgp::cpu {
namespace {

struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

// The intrinsics are macros that want a number spelled out.
struct Amx {
  static void zero() {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  template <int kWhich>
  static void load_vectors(const void* p, std::int64_t stride) {
    if constexpr (kWhich == 0)
      _tile_loadd(4, p, stride);
    else
      _tile_loadd(5, p, stride);
  }
  template <int kWhich>
  static void load_weights(const void* p, std::int64_t stride) {
    if constexpr (kWhich == 0)
      _tile_loadd(6, p, stride);
    else
      _tile_loadd(7, p, stride);
  }
  template <int kVectors, int kWeights>
  static void multiply() {
    if constexpr (kVectors == 0 && kWeights == 0)
      _tile_dpbf16ps(0, 4, 6);
    else if constexpr (kVectors == 0)
      _tile_dpbf16ps(1, 4, 7);
    else if constexpr (kWeights == 0)
      _tile_dpbf16ps(2, 5, 6);
    else
      _tile_dpbf16ps(3, 5, 7);
  }
  template <int kVectors, int kWeights>
  static void load(const float* p, std::int64_t stride) {
    if constexpr (kVectors == 0 && kWeights == 0)
      _tile_loadd(0, p, stride);
    else if constexpr (kVectors == 0)
      _tile_loadd(1, p, stride);
    else if constexpr (kWeights == 0)
      _tile_loadd(2, p, stride);
    else
      _tile_loadd(3, p, stride);
  }
  static void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }
  template <int kVectors, int kWeights>
  static void store(float* p, std::int64_t stride) {
    if constexpr (kVectors == 0 && kWeights == 0)
      _tile_stored(0, p, stride);
    else if constexpr (kVectors == 0)
      _tile_stored(1, p, stride);
    else if constexpr (kWeights == 0)
      _tile_stored(2, p, stride);
    else
      _tile_stored(3, p, stride);
  }
};

}  // namespace

namespace quant_versions {

void panel_product_amx(const std::uint32_t* panels, std::int64_t depth, std::int64_t count,
                       const std::uint16_t* x, std::int64_t group, std::int64_t n, float* sums, bool add) {
  // The intrinsic of g++ 12 says that it reads 8 bytes, and the stores of the others vanish. The configuration belongs to
  // the thread, and others in this program may have set theirs.
  static constexpr TileConfig kConfig;
  __asm__ volatile("ldtilecfg %0" ::"m"(kConfig));
  Amx tiles;
  product_of_tiles(tiles, panels, depth, count, x, group, n, sums, add);
  _tile_release();
}

}  // namespace quant_versions
}  // namespace cgp::cpu
