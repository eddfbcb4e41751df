// SPDX-License-Identifier: Apache-2.0
#include "cgp/runtime/tensor_map.h"

#include <gtest/gtest.h>

#include "cgp/base/error.h"
#include "cgp/emu/async/tensor_map.h"
#include "cgp/runtime/device.h"

namespace cgp::runtime {
namespace {

bool contains(const std::string& s, const std::string& part) { return s.find(part) != std::string::npos; }
TensorMapSpec good() { return TensorMapSpec::matrix(DType::bf16, 4096, 2048, 64, 64, Swizzle::b128); }

// The driver's rules (cuda.h, cuTensorMapEncodeTiled), each broken alone.
TEST(tensor_map, every_limit_is_named) {
  struct Case {
    const char* says;
    void (*damage)(TensorMapSpec&);
    std::uint64_t address = 4096;
  };
  const Case cases[] = {
      {"1 to 5 dimensions, not 0", [](TensorMapSpec& s) { s.dims.clear(); }},
      {"1 to 5 dimensions, not 6", [](TensorMapSpec& s) { s.dims.assign(6, 16); }},
      {"box has 1 dimensions", [](TensorMapSpec& s) { s.box.pop_back(); }},
      {"has 1 strides", [](TensorMapSpec& s) { s.strides.push_back(16); }},
      {"element strides", [](TensorMapSpec& s) { s.element_strides = {1}; }},
      {"element stride 1 is 9",
       [](TensorMapSpec& s) {
         s.element_strides = {1, 9};
       }},
      {"dimension 1 is 0", [](TensorMapSpec& s) { s.dims[1] = 0; }},
      {"2^32", [](TensorMapSpec& s) { s.dims[1] = (1ull << 32) + 1; }},
      {"box dimension 1 is 257", [](TensorMapSpec& s) { s.box[1] = 257; }},
      {"box dimension 0 is 0", [](TensorMapSpec& s) { s.box[0] = 0; }},
      {"multiple of 16; pad", [](TensorMapSpec& s) { s.strides[0] = 4088; }},
      {"below 2^40", [](TensorMapSpec& s) { s.strides[0] = 1ull << 40; }},
      {"60 x 2 = 120 bytes", [](TensorMapSpec& s) { s.box[0] = 60; }},
      {"at most 128", [](TensorMapSpec& s) { s.box[0] = 72; }},
      {"at most 32", [](TensorMapSpec& s) { s.swizzle = Swizzle::b32; }},
      {"16-byte alignment", [](TensorMapSpec&) {}, 4104},
      {"at least 3 dimensions", [](TensorMapSpec& s) { s.interleave = Interleave::b16; }},
      {"floating-point",
       [](TensorMapSpec& s) {
         s.type = TensorType::u16;
         s.oob = OobFill::nan;
       }},
  };
  EXPECT_EQ(reject(good(), 4096), "");
  for (const Case& c : cases) {
    TensorMapSpec s = good();
    c.damage(s);
    EXPECT_TRUE(contains(reject(s, c.address), c.says))
        << "\"" << reject(s, c.address) << "\" should say " << c.says;
  }
}
TEST(tensor_map, a_dense_stride_that_tma_cannot_use_says_pad) {
  TensorMapSpec s = TensorMapSpec::matrix(DType::bf16, 100, 100, 64, 64, Swizzle::b128);
  EXPECT_TRUE(contains(reject(s), "200 bytes"));
  s = TensorMapSpec::matrix(DType::bf16, 100, 100, 64, 64, Swizzle::b128, 104);
  EXPECT_EQ(reject(s), "");
}
TEST(tensor_map, a_load_is_credited_with_the_full_box) {
  EXPECT_EQ(good().box_bytes(), 64u * 64 * 2);
  TensorMapSpec s = good();
  s.element_strides = {1, 3};
  EXPECT_EQ(s.box_bytes(), 64u * 22 * 2);
}
TEST(tensor_map, types_of_8_bits_travel_as_bytes) {
  EXPECT_EQ(tensor_type(DType::e4m3), TensorType::u8);
  EXPECT_EQ(tensor_type(DType::bf16), TensorType::bf16);
  for (int i = 0; i < kDTypeCount; ++i) EXPECT_EQ(bytes(tensor_type(DType(i))), cgp::bytes(DType(i)));
}
TEST(tensor_map, the_emulators_encoding_says_the_same) {
  const Device d = Device::open("emu");
  TensorMapSpec s = good();
  s.strides.clear();
  s.l2 = L2Promotion::b256;
  const TensorMap map = d.tensor_map(s, 1 << 20);
  emu::TensorMap back;
  std::string why;
  ASSERT_TRUE(emu::TensorMap::decode(
      std::span<const std::byte, 128>(reinterpret_cast<const std::byte*>(map.words), 128), back, why))
      << why;
  EXPECT_EQ(back.rank, 2);
  EXPECT_EQ(back.address, 1u << 20);
  EXPECT_EQ(back.dims[0], 2048u);
  EXPECT_EQ(back.dims[1], 4096u);
  EXPECT_EQ(back.strides[1], 4096u);
  EXPECT_EQ(back.box[0], 64u);
  EXPECT_EQ(back.type, emu::TensorMapType::bf16);
  EXPECT_EQ(back.swizzle, emu::TensorMapSwizzle::b128);
  EXPECT_EQ(back.l2, emu::TensorMapL2::b256);
}
TEST(tensor_map, needs_sm_90) { EXPECT_THROW(Device::open("emu:sm_80").tensor_map(good(), 0), Unsupported); }

}  // namespace
}  // namespace cgp::runtime
