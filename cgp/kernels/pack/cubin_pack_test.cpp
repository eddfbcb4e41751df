// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/pack/cubin_pack.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "cgp/base/error.h"
#include "cgp/kernels/gemm/select/gemm_table.h"
#include "cgp/runtime/device.h"

namespace cgp::kernels {
namespace {

std::span<const std::byte> bytes_of(const std::string& s) { return std::as_bytes(std::span(s)); }

TEST(CubinPack, FindsWhatWasPutIn) {
  CubinPackWriter w;
  for (int i = 0; i < 100; ++i)
    w.add("ptx " + std::to_string(i), i % 2 ? "sm_80" : "sm_90a", std::string(i, char(i)));
  const auto block = w.bytes();
  const CubinPack pack(bytes_of(block));
  ASSERT_EQ(pack.size(), 100u);
  for (int i = 0; i < 100; ++i) {
    const auto text = "ptx " + std::to_string(i);
    EXPECT_EQ(pack.find(text, i % 2 ? "sm_80" : "sm_90a"), std::string(i, char(i)));
    EXPECT_FALSE(pack.find(text, i % 2 ? "sm_90a" : "sm_80"));        // another architecture
    EXPECT_FALSE(pack.find(text + " ", i % 2 ? "sm_80" : "sm_90a"));  // another kernel
  }
  EXPECT_FALSE(CubinPack().find("ptx 1", "sm_80"));
  EXPECT_EQ(CubinPack(bytes_of(CubinPackWriter().bytes())).size(), 0u);
}

TEST(CubinPack, RefusesWhatIsNone) {
  CubinPackWriter w;
  w.add("ptx", "sm_80", "machine code");
  const auto good = w.bytes();
  EXPECT_THROW(CubinPack(bytes_of("nothing")), ArgumentError);
  const auto cut = good.substr(0, good.size() - 1);
  EXPECT_THROW(CubinPack{bytes_of(cut)}, ArgumentError);
  auto other = good;
  other[7] = '2';
  EXPECT_THROW(CubinPack{bytes_of(other)}, ArgumentError);
  auto many = good;
  many[8] = char(0xff);
  EXPECT_THROW(CubinPack{bytes_of(many)}, ArgumentError);
}

TEST(CubinPack, AnImageGetsTheCodeOfItsOwnPtx) {
  const auto v = gemm_naive(DType::f32);
  auto made = image(v, "sm_90a");
  CubinPackWriter w;
  w.add(*made.ptx, "sm_90a", "machine code");
  const auto block = w.bytes();
  set_embedded_cubins(bytes_of(block));
  attach_embedded(made, "sm_90a");
  ASSERT_EQ(made.cubins.size(), 1u);
  EXPECT_EQ(made.cubins[0].bytes, "machine code");
  auto other = image(gemm_naive(DType::f16), "sm_90a");
  attach_embedded(other, "sm_90a");
  EXPECT_TRUE(other.cubins.empty());
  set_embedded_cubins({});
  EXPECT_EQ(embedded_cubins().size(), 0u);
}

// On the stand-in for libcuda, whose driver takes any bytes for machine code: after a start with a pack, a
// sweep of problems compiles nothing.
TEST(CubinPack, NothingIsCompiledWhenEverythingIsEmbedded) {
  setenv("CGP_LIBCUDA", CGP_FAKE_LIBCUDA, 1);
  setenv("CGP_CACHE_DIR", "off", 1);
  const auto device = runtime::Device::open("cuda:0");
  const auto& info = device.info();
  CubinPackWriter w;
  for (const auto& i : images(gemm_selected_variants(info.arch), info.arch))
    w.add(*i.ptx, info.arch, "FAKECUBIN\n" + *i.ptx);
  const auto block = w.bytes();
  set_embedded_cubins(bytes_of(block));
  auto& stream = device.stream();
  const runtime::Buffer<std::uint8_t> room(device, 1 << 20);
  for (const char* key : {"bf16/nt/512x512x512", "f16/nn/64x128x256", "f32/tn/33x65x17", "bf16/nt/1x256x512",
                          "f32/nn/512x512x512", "f32:fast/nn/256x256x256", "e4m3/tn/128x256x256",
                          "e4m3@block/nt/256x256x256", "s8/nn/256x256x256", "bf16_bf16_f32/nt/256x256x256"}) {
    const auto p = parse_gemm_key(key);
    const GemmAddresses at{room.address(), room.address(), room.address(), room.address(), room.address()};
    run_gemm(stream, select_gemm(p, at, info), p, at);
    EXPECT_EQ(device.load_counts().jit_compilations, 0u) << key;
  }
  auto linear = parse_gemm_key("bf16/nt/512x512x512");
  linear.epilogue = epilogue::bias({room.address(), 512, DType::bf16}) | epilogue::gelu();
  const GemmAddresses at{room.address(), room.address(), room.address()};
  run_gemm(stream, select_gemm(linear, at, info), linear, at);
  set_embedded_cubins({});
  EXPECT_EQ(device.load_counts().jit_compilations, 0u);
  EXPECT_GE(device.load_counts().embedded_cubins, 3u);
}

}  // namespace
}  // namespace cgp::kernels
