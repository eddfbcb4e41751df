// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/roofline/amx.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/roofline/cpu_ceilings.h"

namespace cgp::profile {
namespace {

#if defined(__x86_64__)
constexpr int kTileRows = 16, kTileBytes = 64, kTileChains = 6;

/// Palette 1: eight tiles of 16 rows of 64 bytes.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileShapes) == 64);

struct alignas(64) Tile {
  std::uint32_t words[kTileRows][kTileBytes / 4];
};

std::string find_reason() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kBf16 = 1u << 22, kTiles = 1u << 24, kInt8 = 1u << 25, kAll = kBf16 | kTiles | kInt8;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kAll) != kAll)
    return "this processor has no AMX (Intel Xeons from Sapphire Rapids on have)";
  constexpr long kAskForState = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, Linux 5.16
  if (syscall(SYS_arch_prctl, kAskForState, kTileData) != 0)
    return text::cat("the kernel does not give the tiles' registers: ", std::strerror(errno));
  return {};
}

/// `rounds` products into each of six tiles; the last tile is left in `out`.
template <bool kFloats>
__attribute__((target("amx-tile,amx-bf16,amx-int8"))) void multiply_tiles(const Tile& ab, std::size_t rounds,
                                                                          Tile& out) {
  TileShapes shapes;
  std::fill_n(shapes.row_bytes, 8, std::uint16_t(kTileBytes));
  std::fill_n(shapes.rows, 8, std::uint8_t(kTileRows));
  // g++'s intrinsics do not say what memory they read and write.
  asm volatile("" : : "r"(&shapes), "r"(&ab), "r"(&out) : "memory");
  _tile_loadconfig(&shapes);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_loadd(6, &ab, kTileBytes);
  _tile_loadd(7, &ab, kTileBytes);
  for (std::size_t r = 0; r < rounds; ++r) {
    if constexpr (kFloats) {
      _tile_dpbf16ps(0, 6, 7);
      _tile_dpbf16ps(1, 6, 7);
      _tile_dpbf16ps(2, 6, 7);
      _tile_dpbf16ps(3, 6, 7);
      _tile_dpbf16ps(4, 6, 7);
      _tile_dpbf16ps(5, 6, 7);
    } else {
      _tile_dpbssd(0, 6, 7);
      _tile_dpbssd(1, 6, 7);
      _tile_dpbssd(2, 6, 7);
      _tile_dpbssd(3, 6, 7);
      _tile_dpbssd(4, 6, 7);
      _tile_dpbssd(5, 6, 7);
    }
  }
  _tile_stored(5, &out, kTileBytes);
  _tile_release();
  asm volatile("" : : : "memory");
}
#endif

}  // namespace

const std::string& amx_reject() {
#if defined(__x86_64__)
  static const std::string why = find_reason();
#else
  static const std::string why = "AMX is of x86-64";
#endif
  return why;
}

double amx_peak([[maybe_unused]] AmxType type, [[maybe_unused]] double seconds,
                [[maybe_unused]] const std::function<double()>& clock) {
  if (!amx_reject().empty()) throw Unsupported(ErrorText{"products with AMX", {}, amx_reject(), {}});
#if defined(__x86_64__)
  constexpr std::size_t kRounds = 4000;
  const bool floats = type == AmxType::bf16;
  const int depth = floats ? 32 : 64;  // elements in a row of A
  Tile ones, out{};
  for (auto& row : ones.words) std::fill(std::begin(row), std::end(row), floats ? 0x3f803f80u : 0x01010101u);
  const double rate = best_rate(
      seconds,
      [&] {
        floats ? multiply_tiles<true>(ones, kRounds, out) : multiply_tiles<false>(ones, kRounds, out);
        return 2.0 * kTileRows * kTileRows * depth * kTileChains * double(kRounds);
      },
      clock);
  for (const auto& row : out.words)
    for (const std::uint32_t word : row) {
      float real = 0;
      std::memcpy(&real, &word, sizeof real);
      const double got = floats ? double(real) : double(word), want = double(depth) * double(kRounds);
      if (got != want)
        throw Unsupported(
            ErrorText{"products with AMX are wrong here", {}, text::cat(got, " for ", want), {}});
    }
  return rate * 1e-9;
#else
  return 0;
#endif
}

}  // namespace cgp::profile
