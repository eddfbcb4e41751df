// SPDX-License-Identifier: Apache-2.0
// The whole runtime on the emulator.
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>

#include "cgp/base/error.h"
#include "cgp/emu/emu.h"
#include "cgp/runtime/device_pool.h"
#include "cgp/runtime/graph.h"
#include "cgp/runtime/host_memory.h"
#include "cgp/runtime/launcher.h"
#include "cgp/runtime/test_kernels.h"
#include "cgp/runtime/typed_stream.h"

namespace cgp::runtime {
namespace {

bool contains(const std::string& s, const std::string& part) { return s.find(part) != std::string::npos; }
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

struct emulator : testing::Test {
  Device d = Device::open("emu");
  std::vector<std::string> logged;
  void SetUp() override {
    set_log([this](std::string_view s) { logged.emplace_back(s); });
  }
  void TearDown() override { set_log({}); }
  LoadedKernel axpy() {
    return d.load("axpy", [] {
      KernelImage i = image_from_ptx(axpy_ptx("sm_80"), "axpy");
      i.params = {Param::input("x", DType::f32), Param::output("y", DType::f32),
                  Param::scalar("a", DType::f32), Param::scalar("n", DType::u32)};
      i.block = {64, 1, 1};
      return i;
    });
  }
};

TEST_F(emulator, specs_open_what_they_say) {
  EXPECT_EQ(d.info().arch, "sm_90a");
  EXPECT_EQ(d.info().spec, "emu:sm_90a");
  EXPECT_TRUE(d.is_emulator());
  for (const DeviceInfo& i : devices()) {
    if (i.kind != DeviceKind::emulator) continue;
    const Device e = Device::open(i.spec);
    EXPECT_EQ(e.info().arch, i.arch);
    EXPECT_GT(e.info().sm_count, 0);
    EXPECT_GE(e.info().smem_per_block_optin, e.info().smem_per_block);
    EXPECT_EQ(e.info().tensor_maps, e.info().cc() >= 90);
    EXPECT_EQ(e.info().max_cluster > 1, e.info().cc() >= 90);
  }
  EXPECT_THROW(Device::open("emu:sm_20"), Unsupported);
  EXPECT_THROW(Device::open("metal"), ArgumentError);
  EXPECT_THROW(Device::open("cuda:x"), ArgumentError);
  EXPECT_THROW(Device::open("cuda:"), ArgumentError);
  EXPECT_NE(Device::open("emu"), d) << "each emulator is its own machine";
  EXPECT_THROW(Device().info(), ArgumentError);
}

TEST_F(emulator, a_launch_computes) {
  const std::size_t n = 1000;
  std::vector<float> x(n), y(n);
  std::iota(x.begin(), x.end(), 0.f);
  std::iota(y.begin(), y.end(), 100.f);
  const Buffer<float> bx = d.upload<float>(x);
  Buffer<float> by = d.upload<float>(y);
  Stream s(d);
  axpy()(s, grid_for(n, 64), bx, by, 2.f, std::uint32_t(n));
  std::vector<float> got(n);
  s.download(by, got);
  s.wait();
  for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(got[i], 2.f * x[i] + y[i]) << i;
  const LaunchRecord& r = d.last_result();
  EXPECT_EQ(r.kernel, "axpy");
  EXPECT_EQ(r.grid.x, 16u);
  EXPECT_EQ(r.block.x, 64u);
  EXPECT_GT(r.result->counters.warp_instructions, 0u);
  EXPECT_EQ(r.result->counters.global_store_bytes, n * 4);
}

TEST_F(emulator, findings_are_thrown_by_the_next_wait_and_once) {
  Buffer<float> x = d.zeros<float>(64), y = d.zeros<float>(64);
  Stream s(d);
  axpy()(s, Dim3{1}, x, y, 1.f, 64u);
  s.wait();
  axpy()(s, Dim3{2}, x, y, 1.f, 65u);  // one element past the end
  const std::string m = message<EmuFault>([&] { s.wait(); });
  EXPECT_TRUE(contains(m, "axpy") && contains(m, "oob.global")) << m;
  s.wait();
  axpy()(s, Dim3{2}, x, y, 1.f, 65u);
  EXPECT_THROW(x.to_vector(), EmuFault) << "copies that wait report too";
  axpy()(s, Dim3{2}, x, y, 1.f, 65u);
  EXPECT_THROW(d.sync(), EmuFault);
  axpy()(s, Dim3{2}, x, y, 1.f, 65u);
  EXPECT_THROW(s.is_complete(), EmuFault);
  {
    Stream dropped(d);
    axpy()(dropped, Dim3{2}, x, y, 1.f, 65u);
  }
  ASSERT_EQ(logged.size(), 1u);
  EXPECT_TRUE(contains(logged[0], "oob.global")) << logged[0];
}
TEST_F(emulator, findings_can_be_collected) {
  d.set_findings(Device::Findings::collect);
  Buffer<float> x = d.zeros<float>(64), y = d.zeros<float>(64);
  axpy()(d.stream(), Dim3{2}, x, y, 1.f, 65u);
  d.sync();
  ASSERT_FALSE(d.last_result().result->findings.empty());
  EXPECT_EQ(d.last_result().result->findings[0].cls, "oob.global");
  d.keep_results(3);
  for (std::uint32_t i = 1; i <= 5; ++i) axpy()(d.stream(), Dim3{i}, x, y, 1.f, 64u);
  ASSERT_EQ(d.results().size(), 3u);
  EXPECT_EQ(d.results()[0].grid.x, 3u);
  EXPECT_EQ(d.last_result().grid.x, 5u);
  d.clear_results();
  EXPECT_THROW(d.last_result(), ArgumentError);
}
TEST_F(emulator, options_reach_the_launches) {
  emu::Options o;
  o.checks = emu::CheckSet::all() - emu::Check::uninit;
  d.set_emulator_options(o);
  Buffer<float> x = d.alloc<float>(64), y = d.alloc<float>(64);
  axpy()(d.stream(), Dim3{1}, x, y, 1.f, 64u);
  d.sync();
  d.set_emulator_options({});
  axpy()(d.stream(), Dim3{1}, d.alloc<float>(64), y, 1.f, 64u);
  const std::string m = message<EmuFault>([&] { d.sync(); });
  EXPECT_TRUE(contains(m, "uninit.global")) << m;
}

TEST_F(emulator, a_wrong_argument_is_refused_by_name) {
  const LoadedKernel f = axpy();
  const Buffer<float> x = d.zeros<float>(64);
  Buffer<float> y = d.zeros<float>(64);
  Stream s(d);
  const auto refused = [&](auto call, const char* parameter) {
    const std::string m = message<ArgumentError>(call);
    EXPECT_TRUE(contains(m, parameter)) << m;
  };
  refused([&] { f(s, Dim3{1}, x, x, 1.f, 64u); }, "\"y\"");
  refused([&] { f(s, Dim3{1}, x, y, 1.0, 64u); }, "\"a\"");
  refused([&] { f(s, Dim3{1}, x, y, 1.f, -1); }, "\"n\"");
  refused([&] { f(s, Dim3{1}, x, y, 1.f); }, "(x, y, a, n)");
  refused([&] { f(s, Dim3{1}, 5ull, y, 1.f, 64u); }, "\"x\"");
  const Device other = Device::open("emu");
  Buffer<float> z = other.zeros<float>(64);
  refused([&] { f(s, Dim3{1}, x, z, 1.f, 64u); }, "\"y\"");
  EXPECT_THROW(f(other.stream(), Dim3{1}, x, y, 1.f, 64u), ArgumentError);
  EXPECT_THROW(s.copy(y, z), ArgumentError);
  f(s, Dim3{1}, x, y, 1.f, 64);
  s.wait();
}
TEST_F(emulator, an_image_that_lies_about_the_entry_is_refused) {
  KernelImage i = image_from_ptx(axpy_ptx("sm_80"), "axpy");
  i.params.pop_back();
  EXPECT_THROW(d.load(i), ArgumentError);
  i.params.push_back(Param::scalar("n", DType::u64));
  EXPECT_THROW(d.load(i), ArgumentError);
  EXPECT_THROW(d.load(KernelImage()), ArgumentError);
  EXPECT_THROW(Device::open("emu:sm_80").load(image_from_ptx(axpy_ptx("sm_90a"), "axpy")), Unsupported);
}

TEST_F(emulator, captured_work_is_replayed) {
  const Buffer<float> x = d.upload<float>(std::vector<float>(64, 1.f));
  Buffer<float> y = d.zeros<float>(64), z = d.zeros<float>(64);
  Stream s(d), t(d);
  Event fork(d), join(d);
  const Graph g = s.capture([&](Stream& c) {
    axpy()(c, Dim3{1}, x, y, 3.f, 64u);
    c.record(fork);
    t.wait_for(fork);
    t.copy(z, y);  // on another stream, inside the capture by way of the event
    t.record(join);
    c.wait_for(join);
  });
  EXPECT_EQ(g.size(), 2u);
  EXPECT_EQ(y.to_vector()[0], 0.f);
  s.replay(g).replay(g).wait();
  EXPECT_EQ(y.to_vector()[63], 6.f);
  EXPECT_EQ(z.to_vector()[63], 6.f);
  t.zero(z);
  EXPECT_EQ(z.to_vector()[63], 0.f) << "the other stream has left the capture";
  EXPECT_THROW(s.capture([](Stream&) { throw std::runtime_error("stop"); }), std::runtime_error);
  s.zero(y).wait();
  EXPECT_EQ(y.to_vector()[0], 0.f);
  EXPECT_THROW(s.replay(Graph()), ArgumentError);
  EXPECT_FALSE(is_capturing(s));
  EXPECT_THROW(s.capture([](Stream& c) {
    EXPECT_TRUE(is_capturing(c));
    c.wait();
  }),
               ArgumentError);
}
TEST_F(emulator, a_graph_outlives_the_stream_that_recorded_it) {
  const Buffer<float> x = d.upload<float>(std::vector<float>(64, 1.f));
  Buffer<float> y = d.alloc<float>(64);
  std::vector<float> got(64);
  Graph g;
  {
    Stream s(d);
    g = s.capture([&](Stream& c) {
      c.zero(y);
      axpy()(c, Dim3{1}, x, y, 3.f, 64u);
      c.download(y, got);
    });
  }
  d.stream().replay(g).wait();
  EXPECT_EQ(got, std::vector<float>(64, 3.f));
}
TEST_F(emulator, graphs_are_built_by_hand) {
  const Buffer<float> x = d.upload<float>(std::vector<float>(64, 1.f));
  Buffer<float> y = d.alloc<float>(64), z = d.alloc<float>(64);
  GraphBuilder b(d);
  const auto zero = b.fill(y.all().region(), 0);
  const auto k = b.kernel(axpy(), Launch{.grid = {1}}, {zero}, x, y, 5.f, 64u);
  b.copy(z.all(), y.all(), {k});
  const Graph g = b.finish();
  for (int i = 0; i < 2; ++i) d.stream().replay(g);
  EXPECT_EQ(z.to_vector(), std::vector<float>(64, 5.f));
  EXPECT_THROW(b.kernel(axpy(), Launch{.grid = {1}}, {}, x, y, 5.f), ArgumentError);
}

TEST_F(emulator, entries_of_a_module_share_its_variables) {
  const LoadedModule m = d.load_module(axpy_ptx("sm_80")), other = d.load_module(axpy_ptx("sm_80"));
  EXPECT_EQ(m.entries(), (std::vector<std::string>{"axpy", "count_calls", "big_shared"}));
  const LoadedKernel count = m.kernel("count_calls");
  const auto calls = [](const LoadedModule& module) {
    std::uint32_t n = 0;
    const auto bytes = module.variable("calls").to_vector();
    std::memcpy(&n, bytes.data(), 4);
    return n;
  };
  for (int i = 0; i < 3; ++i) count(d.stream(), Launch{.grid = {1}, .block = {1}});
  EXPECT_EQ(calls(m), 3u);
  EXPECT_EQ(calls(other), 0u);
  EXPECT_THROW(m.variable("nothing"), ArgumentError);
  EXPECT_THROW(m.kernel("axpi"), ArgumentError);
}

TEST_F(emulator, memory_is_bounded_and_given_back) {
  const MemoryUse before = d.memory();
  try {
    d.alloc<std::byte>(before.free_bytes + 1);
    FAIL();
  } catch (const DriverError& e) {
    EXPECT_EQ(e.code(), 2);
  }
  EXPECT_THROW(d.alloc<double>(std::size_t(1) << 62), ArgumentError);
  for (int i = 0; i < 20; ++i) {
    Buffer<int> a = d.upload<int>(std::vector<int>(1000, i)), b = std::move(a);
    EXPECT_TRUE(a.empty());
    a = std::move(b);
    EXPECT_EQ(a.to_vector()[999], i);
    EXPECT_EQ(d.memory().free_bytes, before.free_bytes - 4000);
  }
  EXPECT_EQ(d.memory().free_bytes, before.free_bytes);
}
TEST_F(emulator, empty_buffers_are_legal_everywhere) {
  Buffer<float> none = d.alloc<float>(0), also = d.upload<float>({});
  Stream s(d);
  s.copy(none, also).zero(none).upload(none, {}).wait();
  EXPECT_TRUE(none.to_vector().empty());
  EXPECT_EQ(none.slice(0, 0).size(), 0u);
  axpy()(s, grid_for(0, 64), none, also, 1.f, 0u);
  s.wait();
}
TEST_F(emulator, buffers_outlive_the_last_device_handle) {
  Buffer<int> b = Device::open("emu").upload<int>(std::vector<int>{1, 2});
  EXPECT_EQ(b.to_vector(), (std::vector<int>{1, 2}));
  EXPECT_EQ(b.device().info().arch, "sm_90a");
  Stream s = b.device().make_stream();
  s.zero(b).wait();
  EXPECT_EQ(b.to_vector()[1], 0);
}
TEST_F(emulator, managed_and_pinned_memory_work) {
  Managed<float> y(d, 64);
  for (float& v : y.span()) v = 1.f;
  const Buffer<float> x = d.upload<float>(std::vector<float>(64, 2.f));
  axpy()(d.stream(), Dim3{1}, x, y.all(), 10.f, 64u);
  d.sync();
  EXPECT_EQ(y.span()[63], 21.f);
  Pinned<float> p(d, 64);
  d.stream().download(x, p.span()).wait();
  EXPECT_EQ(p[5], 2.f);
}
TEST_F(emulator, time_is_not_to_be_had) {
  Event a(d), b(d);
  d.stream().record(a).record(b);
  EXPECT_TRUE(b.is_complete());
  EXPECT_THROW(b.milliseconds_since(a), Unsupported);
}
TEST_F(emulator, occupancy_follows_threads_blocks_and_shared_memory) {
  const LoadedKernel f = axpy();
  EXPECT_EQ(f.blocks_per_sm(), 32);
  EXPECT_EQ(f.blocks_per_sm(kFromKernel, 100 * 1024), 2);
  EXPECT_EQ(f.blocks_per_sm(kFromKernel, 228 * 1024), 0) << "more than a block may have";
  EXPECT_GE(f.attributes().estimated_registers.value_or(0), 8);
  EXPECT_EQ(f.attributes().registers, std::nullopt) << "nothing is allocated, so nothing is claimed";
}

TEST_F(emulator, a_typed_stream_goes_round) {
  const Buffer<float> x = d.upload<float>(std::vector<float>(64, 1.f));
  Buffer<float> y = d.zeros<float>(64);
  std::vector<float> got(64);
  TypedStream<Recording> recording =
      TypedStream<Idle>(d).begin().launch(axpy(), Dim3{1}, x, y, 2.f, 64u).with([&](Stream& s) {
        axpy()(s, Dim3{1}, x, y, 3.f, 64u);
      });
  recording.download(y, got);
  TypedStream<Submitted> submitted = std::move(recording).submit();
  EXPECT_TRUE(submitted.is_complete());
  TypedStream<Idle> idle = std::move(submitted).wait();
  EXPECT_EQ(got, std::vector<float>(64, 5.f));
  idle = std::move(idle).begin().zero(y).sync();
  EXPECT_EQ(y.to_vector()[0], 0.f);
  Stream plain = std::move(idle).release();
  plain.wait();
}
TEST_F(emulator, a_typed_stream_reports_at_its_wait) {
  Buffer<float> x = d.zeros<float>(64), y = d.zeros<float>(64);
  auto submitted = TypedStream<Idle>(d).begin().launch(axpy(), Dim3{2}, x, y, 1.f, 65u).submit();
  EXPECT_THROW((void)std::move(submitted).wait(), EmuFault);
}

TEST(no_driver, cuda_is_unsupported_with_a_reason) {
  bool gpu = false;
  for (const DeviceInfo& i : devices()) gpu |= i.kind == DeviceKind::cuda;
  if (gpu) GTEST_SKIP() << "this machine has a GPU";
  const std::string m = message<Unsupported>([] { Device::open("cuda"); });
  EXPECT_TRUE(contains(m, "emu")) << m;
  EXPECT_TRUE(Device::open("auto").is_emulator());
}

}  // namespace
}  // namespace cgp::runtime
