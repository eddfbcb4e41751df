// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/memory/tile.h"

#include <gtest/gtest.h>

#include "cgp/dsl/memory/smem_descriptor.h"

namespace cgp::dsl {
namespace {

// The table of the ISA manual: physical chunk of chunk c in row r.
std::uint32_t by_table(Swizzle s, int row, int chunk) {
  switch (s) {
    case Swizzle::b128:
      return std::uint32_t(row * 128 + (chunk ^ (row & 7)) * 16);
    case Swizzle::b64:
      return std::uint32_t(row * 64 + (chunk ^ ((row >> 1) & 3)) * 16);
    case Swizzle::b32:
      return std::uint32_t(row * 32 + (chunk ^ ((row >> 2) & 1)) * 16);
    default:
      return std::uint32_t(row * 16);
  }
}

template <class TileT>
void expect_layout() {
  constexpr auto t = TileT::layout;
  std::vector<bool> taken(std::size_t(t.bytes()), false);
  const int per_chunk = 16 / t.element_bytes, chunks = t.chunks_per_panel();
  for (int r = 0; r < t.rows; ++r)
    for (int c = 0; c < t.cols; ++c) {
      const int panel = c / (chunks * per_chunk), chunk = c / per_chunk % chunks;
      const std::uint32_t want = std::uint32_t(panel * t.rows * t.span()) + by_table(t.swizzle, r, chunk) +
                                 std::uint32_t(c % per_chunk * t.element_bytes);
      ASSERT_EQ(t.offset(r, c), want) << name(t.swizzle) << " row " << r << " col " << c;
      ASSERT_FALSE(taken[want]);
      taken[want] = true;
    }
}

TEST(tile, layout_is_the_table_of_the_manual) {
  expect_layout<Tile<bf16, 64, 64>>();
  expect_layout<Tile<bf16, 64, 128>>();
  expect_layout<Tile<f16, 32, 32>>();
  expect_layout<Tile<bf16, 32, 16>>();
  expect_layout<Tile<e4m3, 16, 128>>();
  expect_layout<Tile<tf32, 16, 96>>();
  expect_layout<Tile<f32, 8, 24>>();
  expect_layout<Tile<bf16, 16, 64, Swizzle::b16>>();
}

TEST(tile, widest_swizzle_is_derived) {
  static_assert(Tile<bf16, 8, 64>::swizzle == Swizzle::b128);
  static_assert(Tile<bf16, 8, 256>::swizzle == Swizzle::b128);
  static_assert(Tile<bf16, 8, 32>::swizzle == Swizzle::b64);
  static_assert(Tile<s8, 8, 32>::swizzle == Swizzle::b32);
  static_assert(Tile<f32, 8, 3>::swizzle == Swizzle::none);
  static_assert(Tile<bf16, 128, 64>::bytes == 16384 && Tile<bf16, 128, 64>::align == 1024);
}

// Golden vectors: the practical cases of the descriptor table.
TEST(smem_descriptor, constants_match_golden_vectors) {
  constexpr auto k128 = operand_layout(Major::k, Swizzle::b128, 128);
  static_assert(k128.fixed.encode() == 0x4000004000010000ull);
  static_assert(k128.k_step == 32 && k128.k_steps_per_panel == 4);
  constexpr auto k64 = operand_layout(Major::k, Swizzle::b64, 128);
  static_assert(k64.fixed.encode() == (2ull << 62 | 32ull << 32 | 1ull << 16));
  constexpr auto k32 = operand_layout(Major::k, Swizzle::b32, 128);
  static_assert(k32.fixed.encode() == (3ull << 62 | 16ull << 32 | 1ull << 16));
  // MN-major B of 64 k rows: atoms 8192 bytes apart along N, 1024 between groups of 8 k; a k16 step is 2048.
  constexpr auto mn = operand_layout(Major::mn, Swizzle::b128, 64);
  static_assert(mn.fixed.encode() == (1ull << 62 | 64ull << 32 | 512ull << 16));
  static_assert(mn.k_step == 2048);
  // No swizzle, K-major, 64 rows: 16-byte panels of 1024 bytes; core matrices 128 bytes apart along M.
  constexpr auto plain = operand_layout(Major::k, Swizzle::b16, 64);
  static_assert(plain.fixed.encode() == (8ull << 32 | 64ull << 16) && plain.k_step == 2048);
}

TEST(smem_descriptor, fields_round_trip) {
  for (Swizzle s : {Swizzle::b16, Swizzle::b32, Swizzle::b64, Swizzle::b128}) {
    const SmemDescriptor d{0x12340, 8192, 1024, 3, s};
    EXPECT_EQ(SmemDescriptor::decode(d.encode()), d);
  }
}

}  // namespace
}  // namespace cgp::dsl
