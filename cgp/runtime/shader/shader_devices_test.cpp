// SPDX-License-Identifier: Apache-2.0
// The runtime on Vulkan and WebGPU: what holds on every device holds here. Skipped where there is no driver.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "cgp/base/error.h"
#include "cgp/base/float16.h"
#include "cgp/base/text.h"
#include "cgp/runtime/graph.h"
#include "cgp/runtime/host_memory.h"
#include "cgp/runtime/launcher.h"
#include "cgp/runtime/test_kernels.h"

namespace cgp::runtime {
namespace {

/// Parameters: what Device::open takes.
struct ShaderDevice : testing::TestWithParam<const char*> {
  Device d;
  void SetUp() override {
    try {
      d = Device::open(GetParam());
    } catch (const Unsupported& e) {
      GTEST_SKIP() << e.what();
    }
  }
  LoadedKernel axpy() {
    return d.load("axpy", [] {
      KernelImage i = image_from_ptx(axpy_ptx("sm_75"), "axpy");
      i.params = {Param::input("x", DType::f32), Param::output("y", DType::f32),
                  Param::scalar("a", DType::f32), Param::scalar("n", DType::u32)};
      i.block = {64, 1, 1};
      return i;
    });
  }
};
template <class E, class F>
std::string message(F f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}
std::vector<float> ramp(std::size_t n) {
  std::vector<float> v(n);
  std::iota(v.begin(), v.end(), 1.f);
  return v;
}

TEST_P(ShaderDevice, info_says_what_it_is) {
  const DeviceInfo& i = d.info();
  EXPECT_EQ(i.spec, GetParam());
  EXPECT_FALSE(i.name.empty());
  EXPECT_EQ(i.arch, "sm_75");
  EXPECT_EQ(name(i.kind), i.spec.substr(0, i.spec.find(':')));
  EXPECT_FALSE(d.is_emulator());
  EXPECT_FALSE(i.tensor_maps);
  EXPECT_GE(i.max_threads_per_block, 128);
  EXPECT_GE(i.smem_per_block, 16384u);
  bool listed = false;
  for (const DeviceInfo& other : shader_devices()) listed |= other.spec == i.spec && other.name == i.name;
  EXPECT_TRUE(listed);
}
// The shader languages promise no more than 2^-11.
TEST_P(ShaderDevice, sine_and_cosine_are_as_exact_as_in_ptx) {
  KernelImage image = image_from_ptx(R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry sines(.param .u64 .ptr .global .align 4 x, .param .u64 .ptr .global .align 4 y)
.reqntid 256, 1, 1
{
.reg .b64 %rd<5>;
.reg .b32 %r<2>;
.reg .f32 %f<3>;
ld.param.u64 %rd0, [x];
ld.param.u64 %rd1, [y];
mov.u32 %r0, %tid.x;
mul.wide.u32 %rd2, %r0, 4;
add.u64 %rd3, %rd0, %rd2;
ld.global.f32 %f0, [%rd3];
sin.approx.f32 %f1, %f0;
cos.approx.f32 %f2, %f0;
mul.wide.u32 %rd2, %r0, 8;
add.u64 %rd4, %rd1, %rd2;
st.global.f32 [%rd4], %f1;
st.global.f32 [%rd4+4], %f2;
ret;
}
)",
                                     "sines");
  image.params = {Param::input("x", DType::f32), Param::output("y", DType::f32)};
  std::vector<float> x(256);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = i < 200 ? 0.0625f * (float(i) - 100) : 137.25f * (float(i) - 228);
  x[255] = INFINITY;
  const auto in = d.upload<float>(x);
  auto out = d.zeros<float>(512);
  Stream s(d);
  d.load(image)(s, Dim3{1}, in, out);
  s.wait();
  const auto y = out.to_vector();
  for (std::size_t i = 0; i < 255; ++i) {
    EXPECT_NEAR(y[2 * i], std::sin(double(x[i])), 5e-7) << x[i];
    EXPECT_NEAR(y[2 * i + 1], std::cos(double(x[i])), 5e-7) << x[i];
  }
  EXPECT_TRUE(std::isnan(y[510]));
}
// Tensor cores' products, the loads and copies that feed them: two warps of a block, the second with a guard's mask around the copy.
TEST_P(ShaderDevice, products_of_matrices_are_those_of_ptx) {
  for (const char* type : {"f16", "bf16"}) {
    const std::string ptx =
        text::cat(R"(.version 7.8
.target sm_80
.address_size 64
.visible .entry product(.param .u64 .ptr .global .align 16 in, .param .u64 .ptr .global .align 16 out, .param .u32 bytes)
.reqntid 64, 1, 1
{
.reg .b64 %rd<8>;
.reg .b32 %r<24>;
.reg .f32 %f<12>;
.reg .pred %p<2>;
.shared .align 16 .b8 tile[1536];
ld.param.u64 %rd0, [in];
ld.param.u64 %rd1, [out];
ld.param.u32 %r20, [bytes];
mov.u32 %r0, %tid.x;
mov.u32 %r1, tile;
shr.u32 %r2, %r0, 5;
and.b32 %r3, %r0, 31;
mad.lo.u32 %r4, %r2, 768, %r1;
mad.lo.u32 %r5, %r3, 16, %r4;
mul.wide.u32 %rd2, %r0, 16;
add.u64 %rd3, %rd0, %rd2;
cp.async.cg.shared.global [%r5], [%rd3], 16;
setp.lt.u32 %p0, %r3, 16;
@%p0 cp.async.ca.shared.global [%r5+512], [%rd3+1024], 16, %r20;
cp.async.commit_group;
cp.async.wait_group 0;
bar.sync 0;
and.b32 %r6, %r3, 15;
mad.lo.u32 %r7, %r6, 32, %r4;
shr.u32 %r8, %r3, 4;
mad.lo.u32 %r7, %r8, 16, %r7;
ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r7];
mad.lo.u32 %r9, %r6, 16, %r4;
ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r14, %r15}, [%r9+512];
cvt.rn.f32.u32 %f0, %r0;
mov.f32 %f1, 0f3f000000;
mov.f32 %f2, 0fc0000000;
mov.f32 %f3, 0f00000000;
mma.sync.aligned.m16n8k16.row.col.f32.)",
                  type, ".", type,
                  R"(.f32 {%f4, %f5, %f6, %f7}, {%r10, %r11, %r12, %r13}, {%r14, %r15}, {%f0, %f1, %f2, %f3};
mma.sync.aligned.m16n8k8.row.col.f32.)",
                  type, ".", type, R"(.f32 {%f4, %f5, %f6, %f7}, {%r10, %r11}, {%r15}, {%f4, %f5, %f6, %f7};
add.u64 %rd4, %rd1, %rd2;
st.global.v4.f32 [%rd4], {%f4, %f5, %f6, %f7};
ret;
}
)");
    KernelImage image = image_from_ptx(ptx, "product");
    image.params = {Param::input("in", DType::u16), Param::output("out", DType::f32),
                    Param::scalar("bytes", DType::u32)};
    std::vector<std::uint16_t> in(
        1024);  // A of 16 x 16 of both warps; B of 16 x 8 by the same threads and copies
    for (std::size_t i = 0; i < in.size(); ++i) {
      const float v = float(int(std::uint32_t(i) * 2654435761u >> 24) - 128) / 16;
      in[i] = type == std::string_view("f16") ? half(double(v)).bits
                                              : std::uint16_t(std::bit_cast<std::uint32_t>(v) >> 16);
    }
    for (const std::uint32_t bytes : {16u, 14u, 3u, 0u}) {
      const auto on = [&](const Device& device) {
        const auto x = device.upload<std::uint16_t>(in);
        auto y = device.zeros<float>(256);
        Stream s(device);
        device.load(image)(s, Dim3{1}, x, y, bytes);
        s.wait();
        return y.to_vector();
      };
      const auto arch = Device::open(text::cat(GetParam(), ":sm_80"));
      const auto want = on(Device::open("emu:sm_80")), got = on(arch);
      for (std::size_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(got[i], want[i], 1e-3) << type << " " << bytes << " " << i;
    }
  }
}
// A ring of two stages: what a copy under a condition brings is there behind the next wait, not later and not never.
// Bytes that stay, move by different amounts, come from a constant, or are the sign of another.
TEST_P(ShaderDevice, bytes_are_permuted_by_known_selectors) {
  struct Case {
    std::uint32_t x, y, which;
    bool known;  // y
  };
  const Case cases[] = {{0x84a37f01, 0x90c2e3f4, 0x3210, false}, {0x84a37f01, 0x90c2e3f4, 0x7654, false},
                        {0x84a37f01, 0x90c2e3f4, 0x0123, false}, {0x84a37f01, 0x90c2e3f4, 0x5140, false},
                        {0x84a37f01, 0x90c2e3f4, 0xfb8c, false}, {0x84a37f01, 0x4b000000, 0x7442, true},
                        {0x84a37f01, 0x80ff4b00, 0xe1d3, true},  {0x84a37f01, 0x90c2e3f4, 0x2222, false}};
  const Device device = Device::open(GetParam());
  for (const auto& c : cases) {
    std::uint32_t want = 0;
    for (int k = 0; k < 4; ++k) {
      const std::uint32_t n = c.which >> (4 * k) & 15, byte = (n & 4 ? c.y : c.x) >> (8 * (n & 3)) & 255;
      want |= (n & 8 ? byte & 128 ? 255u : 0u : byte) << (8 * k);
    }
    const std::string y = c.known ? std::to_string(c.y) : "%r1";
    KernelImage image = image_from_ptx(R"(.version 7.8
.target sm_75
.address_size 64
.visible .entry permute(.param .u64 .ptr .global .align 16 p)
.reqntid 1, 1, 1
{
.reg .b64 %rd<1>;
.reg .b32 %r<3>;
ld.param.u64 %rd0, [p];
ld.global.v2.b32 {%r0, %r1}, [%rd0];
prmt.b32 %r2, %r0, )" + y + ", " + std::to_string(c.which) +
                                           R"(;
st.global.b32 [%rd0], %r2;
ret;
}
)",
                                       "permute");
    image.params = {Param::output("p", DType::u32)};
    auto words = device.upload<std::uint32_t>(std::vector<std::uint32_t>{c.x, c.y});
    Stream s(device);
    device.load(image)(s, Dim3{1}, words);
    s.wait();
    EXPECT_EQ(words.to_vector()[0], want) << std::hex << c.which;
  }
}
TEST_P(ShaderDevice, copies_into_shared_memory_land_before_their_wait) {
  KernelImage image = image_from_ptx(R"(.version 7.8
.target sm_80
.address_size 64
.visible .entry ring(.param .u64 .ptr .global .align 16 in, .param .u64 .ptr .global .align 16 out, .param .u32 n)
.reqntid 64, 1, 1
{
.reg .b64 %rd<6>;
.reg .b32 %r<12>;
.reg .pred %p<3>;
.shared .align 16 .b8 tile[512];
ld.param.u64 %rd0, [in];
ld.param.u64 %rd1, [out];
ld.param.u32 %r0, [n];
mov.u32 %r1, %tid.x;
mov.u32 %r2, tile;
mul.wide.u32 %rd2, %r1, 4;
add.u64 %rd3, %rd0, %rd2;
add.u64 %rd4, %rd1, %rd2;
mad.lo.u32 %r3, %r1, 4, %r2;
add.u32 %r4, %r1, 1;
and.b32 %r4, %r4, 63;
mad.lo.u32 %r4, %r4, 4, %r2;
mov.u32 %r5, 0;
cp.async.ca.shared.global [%r3], [%rd3], 4;
cp.async.commit_group;
turn:
cp.async.wait_group 0;
bar.sync 0;
add.u32 %r6, %r5, 1;
setp.ge.u32 %p0, %r6, %r0;
@%p0 bra filled;
and.b32 %r7, %r6, 1;
mad.lo.u32 %r8, %r7, 256, %r3;
add.u64 %rd3, %rd3, 256;
cp.async.ca.shared.global [%r8], [%rd3], 4;
filled:
cp.async.commit_group;
and.b32 %r9, %r5, 1;
mad.lo.u32 %r10, %r9, 256, %r4;
ld.shared.b32 %r11, [%r10];
st.global.b32 [%rd4], %r11;
add.u64 %rd4, %rd4, 256;
mov.u32 %r5, %r6;
setp.lt.u32 %p1, %r5, %r0;
@%p1 bra turn;
ret;
}
)",
                                     "ring");
  image.params = {Param::input("in", DType::u32), Param::output("out", DType::u32),
                  Param::scalar("n", DType::u32)};
  const Device device = Device::open(text::cat(GetParam(), ":sm_80"));
  std::vector<std::uint32_t> in(5 * 64);
  std::iota(in.begin(), in.end(), 7u);
  const auto x = device.upload<std::uint32_t>(in);
  auto y = device.zeros<std::uint32_t>(in.size());
  Stream s(device);
  device.load(image)(s, Dim3{1}, x, y, std::uint32_t(5));
  s.wait();
  const auto got = y.to_vector();
  for (std::uint32_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], in[i / 64 * 64 + (i + 1) % 64]) << i;
}
TEST_P(ShaderDevice, copies_are_exact_for_every_length_and_offset) {
  std::vector<std::uint8_t> host(1000);
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = std::uint8_t(i * 7);
  const auto b = d.upload<std::uint8_t>(host);
  EXPECT_EQ(b.to_vector(), host);
  auto c = d.zeros<std::uint8_t>(host.size());
  for (const std::size_t offset : {0, 1, 3, 4, 258})
    for (const std::size_t n : {1, 2, 3, 4, 7, 255}) {
      c.all().slice(offset, n).upload(std::span(host).subspan(3, n));
      std::vector<std::uint8_t> got(n);
      c.all().slice(offset, n).download(got);
      EXPECT_TRUE(std::equal(got.begin(), got.end(), host.begin() + 3)) << offset << " " << n;
    }
  Stream s(d);
  auto e = d.zeros<std::uint8_t>(host.size());
  s.fill(e.all().slice(5, 6).region(), 9).fill(e.all().slice(30, 1).region(), 8);
  s.copy(e.all().slice(101, 99), b.all().slice(7, 99));
  s.wait();
  std::vector<std::uint8_t> want(host.size());
  std::fill_n(want.begin() + 5, 6, std::uint8_t(9));
  want[30] = 8;
  std::copy_n(host.begin() + 7, 99, want.begin() + 101);
  EXPECT_EQ(e.to_vector(), want);
}
TEST_P(ShaderDevice, large_copies_and_rows_of_a_matrix_are_exact) {
  std::vector<std::uint32_t> host(1 << 18);
  std::iota(host.begin(), host.end(), 0u);
  const auto b = d.upload<std::uint32_t>(host);
  EXPECT_EQ(b.to_vector(), host);
  auto c = d.zeros<std::uint32_t>(5 * 8);
  Stream s(d);
  s.copy_2d(c.all(), 8, b.all().slice(3, 100), 10, 7, 5);
  std::vector<std::uint32_t> rows(5 * 6);
  s.download_2d(c.all(), 8, rows, 6, 6, 5).wait();
  for (std::uint32_t r = 0; r < 5; ++r)
    for (std::uint32_t k = 0; k < 6; ++k) EXPECT_EQ(rows[r * 6 + k], 3 + r * 10 + k);
}
TEST_P(ShaderDevice, kernels_run_on_buffers_and_slices) {
  const auto host = ramp(1000);
  const auto x = d.upload<float>(host);
  auto y = d.upload<float>(host);
  Stream s(d);
  axpy()(s, grid_for(990, 64), x.all().slice(3, 990), y.all().slice(5, 990), 2.f, 990u);
  s.wait();
  const auto got = y.to_vector();
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_EQ(got[i], i >= 5 && i < 995 ? host[i] + 2 * host[i - 2] : host[i]) << i;
}
TEST_P(ShaderDevice, one_buffer_may_be_two_arguments) {
  const auto host = ramp(130);
  auto x = d.upload<float>(host);
  axpy()(d.stream(), grid_for(60, 64), x.all().slice(0, 60), x.all().slice(61, 60), 1.f, 60u);
  axpy()(d.stream(), grid_for(130, 64), x, x, 1.f, 130u);
  d.sync();
  const auto got = x.to_vector();
  for (std::size_t i = 0; i < 130; ++i) {
    const float first = i >= 61 && i < 121 ? host[i] + host[i - 61] : host[i];
    EXPECT_EQ(got[i], 2 * first) << i;
  }
}
TEST_P(ShaderDevice, work_of_a_stream_is_done_in_order_however_much_it_is) {
  const auto x = d.upload<float>(std::vector<float>(64, 1.f));
  auto y = d.zeros<float>(64);
  Stream s(d);
  const auto k = axpy();
  for (int i = 0; i < 3000; ++i) k(s, Dim3{1}, x, y, 1.f, 64u);
  s.wait();
  EXPECT_EQ(y.to_vector(), std::vector<float>(64, 3000.f));
}
TEST_P(ShaderDevice, streams_are_ordered_by_events) {
  const auto x = d.upload<float>(std::vector<float>(64, 1.f));
  auto y = d.zeros<float>(64), z = d.zeros<float>(64);
  Stream a(d), b(d);
  Event e(d);
  EXPECT_TRUE(e.is_complete());
  axpy()(a, Dim3{1}, x, y, 3.f, 64u);
  a.record(e);
  b.wait_for(e);
  axpy()(b, Dim3{1}, y, z, 2.f, 64u);
  b.wait();
  e.wait();
  EXPECT_TRUE(e.is_complete());
  EXPECT_EQ(z.to_vector(), std::vector<float>(64, 6.f));
}
TEST_P(ShaderDevice, events_time_the_work_between_them) {
  const auto x = d.upload<float>(ramp(1 << 16));
  auto y = d.zeros<float>(1 << 16);
  Stream s(d);
  Event start(d), stop(d);
  s.record(start);
  axpy()(s, grid_for(1 << 16, 64), x, y, 1.f, std::uint32_t(1 << 16));
  s.record(stop);
  s.wait();
  try {
    const double ms = stop.milliseconds_since(start);
    EXPECT_GT(ms, 0);
    EXPECT_LT(ms, 5000);
  } catch (const Unsupported& e) {
    GTEST_SKIP() << e.what();
  }
}
TEST_P(ShaderDevice, memory_can_be_freed_while_work_that_uses_it_is_queued) {
  auto y = d.zeros<float>(64);
  {
    const auto x = d.upload<float>(std::vector<float>(64, 1.f));
    axpy()(d.stream(), Dim3{1}, x, y, 1.f, 64u);
  }
  d.sync();
  EXPECT_EQ(y.to_vector(), std::vector<float>(64, 1.f));
  const auto before = d.memory();
  const auto b = d.alloc<float>(1 << 16);
  EXPECT_EQ(before.free_bytes - d.memory().free_bytes, 4u << 16);
}
TEST_P(ShaderDevice, blocks_without_a_shape_take_that_of_the_launch) {
  KernelImage i = image_from_ptx(axpy_ptx("sm_75"), "axpy");
  const auto k = d.load(i);
  const auto x = d.upload<float>(std::vector<float>(96, 1.f));
  auto y = d.zeros<float>(96);
  for (const std::uint32_t threads : {32u, 96u, 32u})
    k(d.stream(), Launch{.grid = {96 / threads}, .block = {threads}}, x, y, 1.f, 96u);
  d.sync();
  EXPECT_EQ(y.to_vector(), std::vector<float>(96, 3.f));
}
TEST_P(ShaderDevice, wrong_launches_are_refused_as_everywhere) {
  const auto x = d.zeros<float>(64);
  auto y = d.zeros<float>(64);
  EXPECT_THROW(axpy()(d.stream(), Dim3{1}, x, x, 1.f, 64u), ArgumentError);  // y is written
  EXPECT_THROW(axpy()(d.stream(), Dim3{1}, x, y, 1.f), ArgumentError);
  const Dim3 grid{1, d.info().max_grid.y + 1, 1};
  EXPECT_THROW(axpy()(d.stream(), grid, x, y, 1.f, 64u), ArgumentError);
  const Device emulator = Device::open("emu:sm_75");
  const auto other = emulator.zeros<float>(64);
  EXPECT_THROW(axpy()(d.stream(), Dim3{1}, other, y, 1.f, 64u), ArgumentError);
}
TEST_P(ShaderDevice, what_it_lacks_is_unsupported_by_name) {
  Stream s(d);
  EXPECT_NE(message<Unsupported>([&] { s.capture([](Stream&) {}); }).find("graphs"), std::string::npos);
  EXPECT_NE(message<Unsupported>([&] { GraphBuilder{d}; }).find("graphs"), std::string::npos);
  EXPECT_NE(message<Unsupported>([&] { d.tensor_map({}, 0); }).find("TMA"), std::string::npos);
  EXPECT_NE(message<Unsupported>([&] { d.results(); }).find("emulator"), std::string::npos);
  EXPECT_NE(message<Unsupported>([&] { d.load(image_from_ptx(axpy_ptx("sm_90"), "axpy")); }).find("sm_90"),
            std::string::npos);
  const std::string shared = R"(.version 8.0
.target sm_75
.address_size 64
.visible .entry f(.param .u64 out)
{
  .reg .f64 %d<2>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  ld.global.f64 %d1, [%rd1];
  add.f64 %d1, %d1, %d1;
  st.global.f64 [%rd1], %d1;
  ret;
}
)";
  EXPECT_NE(message<Unsupported>([&] { d.load(image_from_ptx(shared)); }).find("f64"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(vulkan, ShaderDevice, testing::Values("vulkan:0"));
INSTANTIATE_TEST_SUITE_P(wgpu, ShaderDevice, testing::Values("wgpu:0"));

TEST(shader_specs, are_checked) {
  for (const char* spec : {"vulkan:x", "vulkan:-1", "vulkan:0:sm", "vulkan:0:", "vulkan:1e9"})
    EXPECT_THROW(Device::open(spec), ArgumentError) << spec;
  EXPECT_THROW(Device::open("vulkan:9999"), Unsupported);
}

}  // namespace
}  // namespace cgp::runtime
