// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "cgp/base/error.h"
#include "cgp/wgpu/device.h"
#include "cgp/wgpu/wgsl_file.h"

namespace cgp::wgpu {
namespace {

TEST(Wgpu, ALibraryThatIsNotThereOrIsAnotherIsUnsupported) {
  EXPECT_THROW(Api::load("libwgpu_that_is_not_there.so"), Unsupported);
  EXPECT_THROW(Api::load("libm.so.6"), Unsupported);
}

TEST(Wgsl, TextSaysWorkgroupsAndBindings) {
  const auto s = read_wgsl(R"(// @compute fn no() {}
/* @compute /* nested */ fn no() {} */
const kWide = 16u;
@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(1) @binding(kWide) var<uniform> n: u32;
var<workgroup> tile: array<f32, 64>;
@fragment fn shade() {}
@compute @workgroup_size(kWide, 4) fn first(@builtin(global_invocation_id) i: vec3<u32>) { let x = a[i.x]; }
@workgroup_size(8) @compute fn second() {}
)",
                           "f.wgsl");
  ASSERT_EQ(s.entries.size(), 2u);
  EXPECT_EQ(s.entries[0].name, "first");
  EXPECT_EQ(s.entries[0].workgroup, (std::array<std::uint32_t, 3>{16, 4, 1}));
  EXPECT_EQ(s.entries[1].workgroup, (std::array<std::uint32_t, 3>{8, 1, 1}));
  ASSERT_EQ(s.bindings.size(), 2u);
  EXPECT_EQ(s.bindings[0].name, "a");
  EXPECT_FALSE(s.bindings[0].uniform);
  EXPECT_TRUE(s.bindings[1].uniform && s.bindings[1].group == 1 && s.bindings[1].binding == 16);
  EXPECT_THROW(read_wgsl("@group(0) @binding(0) var t: texture_2d<f32>;", "f.wgsl"), Unsupported);
  EXPECT_THROW(read_wgsl("@compute @workgroup_size(x) fn f() {}", "f.wgsl"), ParseError);
  EXPECT_THROW(read_wgsl("@group(", "f.wgsl"), ParseError);
  EXPECT_THROW(read_wgsl("", "f.wgsl").entries.at(0), std::out_of_range);
}

struct WgpuDevice : testing::Test {
  DevicePtr d;
  void SetUp() override {
    try {
      d = std::make_shared<const Device>(Api::get(), 0);
    } catch (const Unsupported& e) {
      GTEST_SKIP() << e.what();
    }
  }
};

TEST_F(WgpuDevice, LimitsMeetWhatTheSpecificationRequires) {
  // "Limits" of the WebGPU specification. A wrong offset in our declarations breaks these.
  const Adapter& a = d->adapter;
  EXPECT_FALSE(a.name.empty());
  EXPECT_GE(a.max_storage_buffers, 8u);
  EXPECT_GE(a.max_storage_binding, 128u << 20);
  EXPECT_GE(a.max_buffer, 256u << 20);
  EXPECT_GE(a.max_shared_memory, 16384u);
  EXPECT_GE(a.max_block_threads, 128u);
  EXPECT_LE(a.max_block_threads, 4096u);
  EXPECT_GE(a.max_grid, 65535u);
  EXPECT_THROW(Device(d->api, 9999), Unsupported);
}

TEST_F(WgpuDevice, AShaderThatIsNotValidIsAnErrorWithLineAndColumn) {
  try {
    d->pipeline("@compute @workgroup_size(1)\nfn f() {\n  let x = 1u + 1.5f;\n}\n", "f");
    ADD_FAILURE() << "nothing was thrown";
  } catch (const DriverError& e) {
    EXPECT_NE(std::string(e.what()).find("3:11"), std::string::npos) << e.what();
    EXPECT_EQ(e.where(), "wgpuDeviceCreateShaderModule, f");
  }
  EXPECT_NO_THROW(d->pipeline("@compute @workgroup_size(1)\nfn f() {\n}\n", "f")) << "the error was taken";
}

TEST_F(WgpuDevice, AShaderFileIsTimed) {
  const std::string text =
      "@group(0) @binding(0) var<storage, read_write> a: array<u32>;\n"
      "@compute @workgroup_size(64) fn f(@builtin(global_invocation_id) i: vec3<u32>) { a[i.x] = a[i.x] + "
      "1u; }\n";
  const auto s = read_wgsl(text, "f.wgsl");
  const auto ms =
      time_wgsl(*d, text, s.entries[0], s.bindings, {std::vector<std::byte>(4096)}, {16, 1, 1}, 3);
  ASSERT_EQ(ms.size(), 3u);
  for (const double t : ms) EXPECT_GT(t, 0);
}

TEST_F(WgpuDevice, BytesThatWereWrittenAreRead) {
  const std::vector<std::uint32_t> words{1, 2, 3, 4};
  const Owned b = d->buffer_of(std::as_bytes(std::span(words)), kCopySource);
  const Owned back = d->buffer(16, kMapRead | kCopyDestination);
  Owned e = d->encoder();
  d->api->wgpuCommandEncoderCopyBufferToBuffer(e.get(), b.get(), 0, back.get(), 0, 16);
  d->submit(std::move(e));
  std::vector<std::uint32_t> got(4);
  d->read(back.get(), std::as_writable_bytes(std::span(got)));
  EXPECT_EQ(got, words);
  e = d->encoder();
  d->api->wgpuCommandEncoderCopyBufferToBuffer(e.get(), b.get(), 0, back.get(), 0, 64);
  EXPECT_THROW(d->submit(std::move(e)), DriverError) << "the copy leaves the buffer";
}

}  // namespace
}  // namespace cgp::wgpu
