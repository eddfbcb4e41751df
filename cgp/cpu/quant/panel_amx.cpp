// SPDX-License-Identifier: Apache-2.0
// AMX: 32 vectors by 32 rows of weights in four tiles of sums; each step takes 32 elements of both.
#include <immintrin.h>

#include "cgp/cpu/quant/panel_impl.h"

namespace cgp::cpu {
namespace {

using std::int64_t;

struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

}  // namespace

namespace quant_versions {

void panel_product_amx(const std::uint32_t* panel, int64_t depth, int64_t rows, const std::uint16_t* x,
                       int64_t ldx, int64_t n, float* y, int64_t ldy, bool add) {
  // The intrinsic of g++ 12 says that it reads 8 bytes, and the stores of the others vanish. The configuration belongs to
  // the thread, and others in this program may have set theirs.
  static constexpr TileConfig kConfig;
  __asm__ volatile("ldtilecfg %0" ::"m"(kConfig));
  alignas(64) float sums[32][32];
  for (int64_t j = 0; j < n; j += 32) {
    const bool second = n - j > 16;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t e = 0; e < depth; e += 32) {
      _tile_loadd(4, x + j * ldx + e, 2 * ldx);  // 16 vectors of 32 elements
      _tile_loadd(6, panel + 16 * e, 128);       // 16 pairs of 16 rows
      _tile_loadd(7, panel + 16 * e + 16, 128);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      if (second) {
        _tile_loadd(5, x + (j + 16) * ldx + e, 2 * ldx);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
    }
    _tile_stored(0, &sums[0][0], 128);
    _tile_stored(1, &sums[0][16], 128);
    _tile_stored(2, &sums[16][0], 128);
    _tile_stored(3, &sums[16][16], 128);
    const int64_t vectors = n - j < 32 ? n - j : 32;
    for (int64_t v = 0; v < vectors; ++v) {
      float* to = y + (j + v) * ldy;
      for (int64_t r = 0; r < rows; ++r) to[r] = add ? to[r] + sums[v][r] : sums[v][r];
    }
  }
  _tile_release();
}

}  // namespace quant_versions
}  // namespace cgp::cpu
