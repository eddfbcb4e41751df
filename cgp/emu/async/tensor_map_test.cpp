// SPDX-License-Identifier: Apache-2.0
#include "cgp/emu/async/tensor_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "cgp/base/error.h"
#include "cgp/emu/tensor/smem_descriptor.h"

namespace cgp::emu {
namespace {
using ::testing::HasSubstr;

TensorMap matrix() {
  TensorMap m;
  m.type = TensorMapType::bf16;
  m.rank = 2;
  m.address = 0x1000000;
  m.dims = {4096, 512, 1, 1, 1};
  m.strides = {0, 8192, 0, 0, 0};
  m.box = {64, 128, 1, 1, 1};
  m.swizzle = TensorMapSwizzle::b128;
  return m;
}

TEST(TensorMap, RoundTrip) {
  TensorMap m = matrix();
  m.rank = 5;
  m.type = TensorMapType::f32;
  m.dims = {1ull << 32, 3, 5, 7, 9};
  m.strides = {0, 1ull << 35, (1ull << 40) - 16, 48, 64};
  m.box = {4, 256, 1, 2, 3};
  m.element_strides = {1, 8, 2, 1, 1};
  m.swizzle = TensorMapSwizzle::b32;
  m.l2 = TensorMapL2::b256;
  m.fill = TensorMapFill::nan;
  const auto bytes = m.encode();
  TensorMap back;
  std::string why;
  ASSERT_TRUE(TensorMap::decode(bytes, back, why)) << why;
  EXPECT_EQ(back.type, m.type);
  EXPECT_EQ(back.rank, 5);
  EXPECT_EQ(back.dims, m.dims);
  EXPECT_EQ(back.strides, m.strides);
  EXPECT_EQ(back.box, m.box);
  EXPECT_EQ(back.element_strides, m.element_strides);
  EXPECT_EQ(back.swizzle, m.swizzle);
  EXPECT_EQ(back.l2, m.l2);
  EXPECT_EQ(back.fill, m.fill);
  EXPECT_EQ(back.address, m.address);
  EXPECT_EQ(back.box_bytes(), 4u * 4 * 32 * 1 * 2 * 3);  // 256 elements at stride 8 are 32
}

TEST(TensorMap, MadeFieldByFieldFromZeros) {
  std::array<std::byte, 128> bytes{};
  const TensorMap want = matrix();
  const auto put = [&](TensorMapField f, int d, std::uint64_t v) {
    EXPECT_EQ(TensorMap::replace(bytes, f, d, v), "");
  };
  put(TensorMapField::global_address, 0, want.address);
  put(TensorMapField::rank, 0, 1);
  put(TensorMapField::box, 0, 64);
  put(TensorMapField::box, 1, 128);
  put(TensorMapField::global_dim, 0, 4096);
  put(TensorMapField::global_dim, 1, 512);
  put(TensorMapField::global_stride, 0, 8192);
  put(TensorMapField::element_stride, 0, 1);
  put(TensorMapField::element_stride, 1, 1);
  put(TensorMapField::type, 0, 10);
  put(TensorMapField::interleave, 0, 0);
  put(TensorMapField::swizzle, 0, 3);
  put(TensorMapField::fill, 0, 0);
  EXPECT_EQ(bytes, want.encode());
  // Anything else is not a map to begin with.
  bytes = {};
  bytes[100] = std::byte(1);
  EXPECT_THAT(TensorMap::replace(bytes, TensorMapField::rank, 0, 1), HasSubstr("nor 128 zeros"));
}

TEST(TensorMap, GarbageIsNamed) {
  std::array<std::byte, 128> junk{};
  TensorMap m;
  std::string why;
  EXPECT_FALSE(TensorMap::decode(junk, m, why));
  EXPECT_THAT(why, HasSubstr("not a tensor map"));
}

TEST(TensorMap, LimitsOfTheDriver) {
  EXPECT_EQ(matrix().reject(), "");
  const auto refuse = [](const char* expected, const std::function<void(TensorMap&)>& change) {
    TensorMap m = matrix();
    change(m);
    EXPECT_THAT(m.reject(), HasSubstr(expected));
    EXPECT_THROW(m.encode(), ArgumentError);
  };
  refuse("rank", [](TensorMap& m) { m.interleave = TensorMapInterleave::b16; });
  refuse("1 to 5 dimensions", [](TensorMap& m) { m.rank = 6; });
  refuse("1 to 5 dimensions", [](TensorMap& m) { m.rank = 0; });
  refuse("multiple of 16", [](TensorMap& m) { m.address += 8; });
  refuse("dims[1] = 0", [](TensorMap& m) { m.dims[1] = 0; });
  refuse("dims[0] = 4294967297", [](TensorMap& m) { m.dims[0] = (1ull << 32) + 1; });
  refuse("strides[1] = 8200", [](TensorMap& m) { m.strides[1] = 8200; });
  refuse("2^40", [](TensorMap& m) { m.strides[1] = 1ull << 40; });
  refuse("box[1] = 257", [](TensorMap& m) { m.box[1] = 257; });
  refuse("box[0] = 0", [](TensorMap& m) { m.box[0] = 0; });
  refuse("not a multiple of 16", [](TensorMap& m) { m.box[0] = 12; });
  refuse("more than the swizzle's 128", [](TensorMap& m) { m.box[0] = 72; });
  refuse("more than the swizzle's 64", [](TensorMap& m) { m.swizzle = TensorMapSwizzle::b64; });
  refuse("more than the swizzle's 32", [](TensorMap& m) { m.swizzle = TensorMapSwizzle::b32; });
  refuse("element_strides[1] = 9", [](TensorMap& m) { m.element_strides[1] = 9; });
  refuse("NaN", [](TensorMap& m) { m.type = TensorMapType::u16, m.fill = TensorMapFill::nan; });
  refuse("shared memory", [](TensorMap& m) {
    m.swizzle = TensorMapSwizzle::none, m.box = {256, 256, 2, 1, 1}, m.rank = 3, m.strides[2] = 1 << 20;
  });
}

// The table of chunk permutations as the manuals print it: chunk c of row r goes to c ^ f(r).
TEST(Swizzle, ChunkTables) {
  for (std::uint32_t r = 0; r < 64; ++r) {
    for (std::uint32_t c = 0; c < 8; ++c)
      EXPECT_EQ(swizzled(r * 128 + c * 16, 3), r * 128 + (c ^ (r % 8)) * 16);
    for (std::uint32_t c = 0; c < 4; ++c)
      EXPECT_EQ(swizzled(r * 64 + c * 16, 2), r * 64 + (c ^ (r / 2 % 4)) * 16);
    for (std::uint32_t c = 0; c < 2; ++c)
      EXPECT_EQ(swizzled(r * 32 + c * 16, 1), r * 32 + (c ^ (r / 4 % 2)) * 16);
  }
}

TEST(SmemDescriptor, Fields) {
  // The constant part that kernels use for K-major, 128-byte swizzle: LBO field 1, SBO 1024 bytes.
  const SmemDescriptor d = SmemDescriptor::decode(0x4000004000010000ull | 0x12340 >> 4);
  EXPECT_EQ(d.start, 0x12340u);
  EXPECT_EQ(d.leading, 16u);
  EXPECT_EQ(d.stride, 1024u);
  EXPECT_EQ(d.base_offset, 0);
  EXPECT_EQ(d.swizzle_bits, 3);
  EXPECT_EQ(SmemDescriptor::decode(2ull << 62).swizzle_bits, 2);
  EXPECT_EQ(SmemDescriptor::decode(3ull << 62).swizzle_bits, 1);
  EXPECT_EQ(SmemDescriptor::decode(0).swizzle_bits, 0);
  EXPECT_EQ(SmemDescriptor::decode(5ull << 49).base_offset, 5);
}

// A tile written row by row as TMA writes it (row pitch = swizzle width, chunk tables above) must be found by
// the descriptor element by element.
TEST(SmemDescriptor, KMajorReadsWhatTmaWrites) {
  for (int b : {1, 2, 3}) {
    const std::uint32_t width = 16u << b, base = 4096;
    const std::uint64_t mode = std::uint64_t(4 - b) << 62;
    for (std::uint32_t step = 0; step < width / 32; ++step) {
      const SmemDescriptor d = SmemDescriptor::decode(mode | std::uint64_t(8 * width / 16) << 32 | 1 << 16 |
                                                      (base + 32 * step) >> 4);
      for (std::uint32_t row = 0; row < 256; ++row)
        for (std::uint32_t byte = 0; byte < 32; ++byte) {
          const std::uint32_t in_row = 32 * step + byte, chunk = in_row / 16;
          const std::uint32_t f = b == 3 ? row % 8 : b == 2 ? row / 2 % 4 : row / 4 % 2;
          EXPECT_EQ(d.k_major(row, byte), base + row * width + (chunk ^ f) * 16 + byte % 16);
        }
    }
  }
}

TEST(SmemDescriptor, CoreMatricesWithoutSwizzle) {
  // 8 x 16-byte core matrices: K neighbours 2048 bytes apart, row groups 128 bytes apart.
  const SmemDescriptor d =
      SmemDescriptor::decode(std::uint64_t(128 / 16) << 32 | (2048 / 16) << 16 | 1024 / 16);
  EXPECT_EQ(d.k_major(0, 0), 1024u);
  EXPECT_EQ(d.k_major(3, 5), 1024u + 3 * 16 + 5);
  EXPECT_EQ(d.k_major(3, 21), 1024u + 2048 + 3 * 16 + 5);
  EXPECT_EQ(d.k_major(19, 21), 1024u + 2048 + 2 * 128 + 3 * 16 + 5);
  // MN-major: LBO between groups of eight k rows, SBO between 16-byte columns.
  EXPECT_EQ(d.mn_major(0, 0), 1024u);
  EXPECT_EQ(d.mn_major(2, 4), 1024u + 2 * 16 + 4);
  EXPECT_EQ(d.mn_major(10, 4), 1024u + 2048 + 2 * 16 + 4);
  EXPECT_EQ(d.mn_major(10, 36), 1024u + 2048 + 2 * 128 + 2 * 16 + 4);
}

TEST(SmemDescriptor, MnMajorReadsWhatTmaWrites) {
  // B as [K = 64][N], boxes of 64 n x 64 k one after the other (8192 bytes each), 128-byte swizzle.
  const std::uint32_t base = 2048;
  for (std::uint32_t step = 0; step < 4; ++step) {
    const SmemDescriptor d = SmemDescriptor::decode(1ull << 62 | std::uint64_t(1024 / 16) << 32 |
                                                    (8192 / 16) << 16 | (base + 2048 * step) >> 4);
    for (std::uint32_t k = 0; k < 16; ++k)
      for (std::uint32_t n = 0; n < 256; ++n) {
        const std::uint32_t row = 16 * step + k, in_row = n % 64 * 2;
        const std::uint32_t want =
            base + n / 64 * 8192 + row * 128 + ((in_row / 16) ^ (row % 8)) * 16 + in_row % 16;
        ASSERT_EQ(d.mn_major(k, n * 2), want) << step << " " << k << " " << n;
      }
  }
}

}  // namespace
}  // namespace cgp::emu
