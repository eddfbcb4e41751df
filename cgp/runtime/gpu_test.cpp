// SPDX-License-Identifier: Apache-2.0
// The runtime on a real GPU; skips where there is none. Needs no file beside the binary.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <numeric>

#include "cgp/base/error.h"
#include "cgp/runtime/device_pool.h"
#include "cgp/runtime/graph.h"
#include "cgp/runtime/host_memory.h"
#include "cgp/runtime/launcher.h"
#include "cgp/runtime/test_kernels.h"

namespace cgp::runtime {
namespace {

struct gpu : testing::Test {
  Device d;
  std::filesystem::path cache = std::filesystem::path(testing::TempDir()) / "cgp_gpu_test_cache";
  void SetUp() override {
    setenv("CGP_CACHE_DIR", cache.c_str(), 1);
    try {
      d = Device::open("cuda");
    } catch (const Unsupported& e) {
      GTEST_SKIP() << e.what();
    }
  }
  LoadedKernel axpy() {
    return d.load("axpy", [] {
      KernelImage i = image_from_ptx(axpy_ptx("sm_80"), "axpy");
      i.params = {Param::input("x", DType::f32), Param::output("y", DType::f32),
                  Param::scalar("a", DType::f32), Param::scalar("n", DType::u32)};
      i.block = {256, 1, 1};
      return i;
    });
  }
};

TEST_F(gpu, info_is_plausible) {
  const DeviceInfo& i = d.info();
  EXPECT_GE(i.cc(), 75);
  EXPECT_GT(i.sm_count, 0);
  EXPECT_GT(i.memory_bytes, 1ull << 30);
  EXPECT_GE(i.smem_per_block_optin, i.smem_per_block);
  EXPECT_EQ(i.warp_size, 32);
  EXPECT_EQ(i.max_block, (Dim3{1024, 1024, 64}));
  std::printf("%s %s: %d SMs, %.0f GB, %.0f GB/s, driver %d\n", i.name.c_str(), i.arch.c_str(), i.sm_count,
              double(i.memory_bytes) / 1e9, i.memory_bandwidth_gbps.value_or(0),
              i.driver_version.value_or(0));
}
TEST_F(gpu, a_launch_computes) {
  const std::size_t n = (1 << 20) + 77;
  std::vector<float> x(n), y(n), got(n);
  std::iota(x.begin(), x.end(), 0.f);
  std::iota(y.begin(), y.end(), 5.f);
  const Buffer<float> bx = d.upload<float>(x);
  Buffer<float> by = d.upload<float>(y);
  Stream s(d);
  Event start(d), end(d);
  s.record(start);
  axpy()(s, grid_for(n, 256), bx, by, 2.f, std::uint32_t(n));
  s.record(end).download(by, got).wait();
  for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(got[i], std::fma(2.f, x[i], y[i])) << i;
  EXPECT_GT(end.milliseconds_since(start), 0);
  EXPECT_GT(axpy().attributes().registers.value_or(0), 0);
  EXPECT_GT(axpy().blocks_per_sm(), 0);
}
TEST_F(gpu, copies_of_all_kinds_agree) {
  std::vector<std::uint32_t> host((20 << 20) / 4 + 5), back(host.size());
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = std::uint32_t(i * 2654435761u);
  Buffer<std::uint32_t> a = d.alloc<std::uint32_t>(host.size()), b = d.alloc<std::uint32_t>(host.size());
  Stream s(d);
  s.upload(a, host).copy(b, a).download(b, back).wait();  // pageable: staged
  EXPECT_EQ(back, host);
  Pinned<std::uint32_t> pinned(d, host.size());
  s.download(b, pinned.span()).wait();
  EXPECT_TRUE(std::equal(host.begin(), host.end(), pinned.data()));
  EXPECT_EQ(b.slice(1000, 3).to_vector(), (std::vector<std::uint32_t>{host[1000], host[1001], host[1002]}));
  std::vector<std::uint32_t> tile(6);
  s.download_2d(b.slice(0, 100), 10, std::span(tile), 2, 2, 3).wait();
  EXPECT_EQ(tile, (std::vector<std::uint32_t>{host[0], host[1], host[10], host[11], host[20], host[21]}));
  s.zero(a).wait();
  EXPECT_EQ(a.to_vector()[12345], 0u);
}
TEST_F(gpu, synchronous_copies_come_after_what_streams_were_given) {
  Buffer<float> x = d.upload<float>(std::vector<float>(1 << 22, 1.f)), y = d.zeros<float>(1 << 22);
  Stream s(d);
  for (int i = 0; i < 20; ++i) axpy()(s, grid_for(x.size(), 256), x, y, 1.f, std::uint32_t(x.size()));
  EXPECT_EQ(y.slice(x.size() - 1, 1).to_vector()[0], 20.f);
}
TEST_F(gpu, the_cache_saves_the_second_compilation) {
  d = Device();  // the process's last reference: the next open starts over
  std::filesystem::remove_all(cache);
  {
    d = Device::open("cuda");
    axpy();
    EXPECT_EQ(d.load_counts().jit_compilations, 1u);
    EXPECT_GT(d.load_counts().jit_milliseconds, 0);
  }
  d = Device();
  d = Device::open("cuda");
  axpy();
  EXPECT_EQ(d.load_counts().jit_compilations, 0u);
  EXPECT_EQ(d.load_counts().cache_hits, 1u);
  for (const auto& f : std::filesystem::directory_iterator(cache))
    std::filesystem::resize_file(f.path(), 100);
  d = Device();
  d = Device::open("cuda");
  axpy();
  EXPECT_EQ(d.load_counts().jit_compilations, 1u);
}
TEST_F(gpu, architecture_specific_ptx_links) {
  if (d.info().arch != "sm_90a") GTEST_SKIP() << "needs sm_90a, this is " << d.info().arch;
  d.load(image_from_ptx(axpy_ptx("sm_90a"), "axpy"));
}
TEST_F(gpu, broken_ptx_gives_the_compilers_words) {
  std::string ptx = axpy_ptx("sm_80");
  ptx.replace(ptx.find("fma.rn.f32"), 10, "fma.up.f32");
  KernelImage i = image_from_ptx(axpy_ptx("sm_80"), "axpy");
  i.ptx = std::make_shared<const std::string>(ptx);
  try {
    d.load(i);
    FAIL();
  } catch (const DriverError& e) {
    const std::string m = e.what();
    EXPECT_NE(m.find("the PTX is in "), std::string::npos) << m;
    EXPECT_NE(m.find("fma"), std::string::npos) << m;
    const std::string rest = m.substr(m.find("the PTX is in ") + 14);
    std::filesystem::remove(rest.substr(0, rest.find('\n')));
  }
}
TEST_F(gpu, shared_memory_above_48_kib) {
  const LoadedKernel f = d.load(image_from_ptx(axpy_ptx("sm_80"), "big_shared"));
  Buffer<std::uint32_t> out = d.zeros<std::uint32_t>(1);
  const std::uint32_t most = d.info().smem_per_block_optin;
  f(d.stream(), Launch{.grid = {1}, .block = {32}, .dynamic_smem = most}, out.all());
  EXPECT_EQ(out.to_vector()[0], most);
  EXPECT_THROW(f(d.stream(), Launch{.grid = {1}, .block = {32}, .dynamic_smem = most + 16}, out.all()),
               ArgumentError);
}
TEST_F(gpu, clusters_cooperative_and_dependent_launches_go_through) {
  const LoadedKernel f = d.load(image_from_ptx(axpy_ptx("sm_80"), "big_shared"));
  Buffer<std::uint32_t> out = d.zeros<std::uint32_t>(1);
  f(d.stream(), Launch{.grid = {4}, .block = {32}, .dynamic_smem = 64, .cooperative = true}, out.all());
  if (d.info().max_cluster > 1) {
    f(d.stream(), Launch{.grid = {4}, .block = {32}, .cluster = {2}, .dynamic_smem = 128}, out.all());
    f(d.stream(), Launch{.grid = {16}, .block = {32}, .cluster = {16}, .dynamic_smem = 128}, out.all());
    f(d.stream(), Launch{.grid = {4}, .block = {32}, .dynamic_smem = 128, .programmatic = true}, out.all());
    EXPECT_GT(f.max_active_clusters(Launch{.grid = {4}, .block = {32}, .cluster = {2}}), 0);
  }
  d.sync();
}
TEST_F(gpu, graphs_replay) {
  const Buffer<float> x = d.upload<float>(std::vector<float>(256, 1.f));
  Buffer<float> y = d.zeros<float>(256), z = d.zeros<float>(256);
  Stream s(d), t(d);
  Event fork(d), join(d);
  const LoadedKernel f = axpy();
  const Graph g = s.capture([&](Stream& c) {
    f(c, Dim3{1}, x, y, 3.f, 256u);
    c.record(fork);
    t.wait_for(fork).copy(z, y).record(join);
    c.wait_for(join);
  });
  EXPECT_EQ(g.size(), 2u);
  EXPECT_EQ(y.to_vector()[0], 0.f);
  s.replay(g).replay(g).wait();
  EXPECT_EQ(z.to_vector()[255], 6.f);
  GraphBuilder b(d);
  const auto zeroed = b.fill(y.all().region(), 0);
  const auto k = b.kernel(f, Launch{.grid = {1}}, {zeroed}, x, y, 5.f, 256u);
  b.copy(z.all(), y.all(), {k});
  const Graph by_hand = b.finish();
  s.replay(by_hand).replay(by_hand).wait();
  EXPECT_EQ(z.to_vector(), std::vector<float>(256, 5.f));
}
TEST_F(gpu, modules_have_variables) {
  const LoadedModule m = d.load_module(axpy_ptx("sm_80"));
  const LoadedKernel count = m.kernel("count_calls");
  for (int i = 0; i < 3; ++i) count(d.stream(), Launch{.grid = {1}, .block = {1}});
  EXPECT_EQ(m.variable("calls").to_vector()[0], std::byte(3));
}
TEST_F(gpu, tensor_maps_encode) {
  if (!d.info().tensor_maps) GTEST_SKIP() << "needs sm_90, this is " << d.info().arch;
  Buffer<bfloat16> a = d.alloc<bfloat16>(4096 * 512);
  const TensorMap m = d.tensor_map(TensorMapSpec::matrix(DType::bf16, 4096, 512, 128, 64, Swizzle::b128), a);
  EXPECT_NE(m.words[0], 0u);
  for (Swizzle s : {Swizzle::none, Swizzle::b32, Swizzle::b64, Swizzle::b128})
    for (std::uint32_t cols : {8u, 16u, 32u, 64u, 128u}) {  // our rules and the driver's agree
      const TensorMapSpec spec = TensorMapSpec::matrix(DType::bf16, 4096, 512, 16, cols, s);
      if (!reject(spec, a.address()).empty()) continue;
      EXPECT_NO_THROW(d.tensor_map(spec, a)) << cols;
    }
}
TEST_F(gpu, nothing_leaks) {
  axpy();
  const auto round = [&] {
    Stream s(d);
    Event e(d);
    Buffer<float> x = d.zeros<float>(1 << 20), y = d.zeros<float>(1 << 20);
    axpy()(s, grid_for(1 << 20, 256), x, y, 1.f, 1u << 20);
    s.record(e).wait();
  };
  round();
  const std::uint64_t before = d.memory().free_bytes;
  for (int i = 0; i < 200; ++i) round();
  EXPECT_EQ(d.memory().free_bytes, before);
}
TEST_F(gpu, managed_memory_is_shared) {
  if (!d.info().managed_memory) GTEST_SKIP() << "no managed memory";
  Managed<float> y(d, 1024);
  for (float& v : y.span()) v = 1.f;
  const Buffer<float> x = d.upload<float>(std::vector<float>(1024, 2.f));
  try {
    y.prefetch_to_device(d.stream());
  } catch (const DriverError&) {  // not on systems without concurrent access
  }
  axpy()(d.stream(), grid_for(1024, 256), x, y.all(), 10.f, 1024u);
  d.sync();
  EXPECT_EQ(y.span()[1023], 21.f);
}
TEST_F(gpu, pooled_buffers_compute) {
  DevicePool pool(d, 64 << 20);
  Stream s(d);
  for (int i = 0; i < 50; ++i) {
    Buffer<float> x = pool.alloc<float>(1 << 20, s), y = pool.alloc<float>(1 << 20, s);
    s.zero(x).zero(y);
    axpy()(s, grid_for(1 << 20, 256), x, y, 1.f, 1u << 20);
    pool.release(std::move(x), s);
    pool.release(std::move(y), s);
  }
  s.wait();
  EXPECT_LE(pool.stats().peak_used_pages, pool.stats().pages);
}
TEST_F(gpu, a_peer_takes_copies) {
  Device e;
  try {
    e = Device::open("cuda:1");
  } catch (const Unsupported& why) {
    GTEST_SKIP() << why.what();
  }
  Buffer<int> a = d.upload<int>(std::vector<int>{1, 2, 3}), b = e.alloc<int>(3);
  b.copy_from(a);
  EXPECT_EQ(b.to_vector(), (std::vector<int>{1, 2, 3}));
  if (d.can_access_peer(e)) d.enable_peer(e);
}
TEST_F(gpu, two_streams_overlap_copies_and_kernels) {
  const std::size_t n = 16 << 20;
  Buffer<float> x = d.zeros<float>(n), y = d.zeros<float>(n), z = d.zeros<float>(n);
  Pinned<float> host(d, n);
  Stream s(d), t(d);
  const LoadedKernel f = axpy();
  const auto kernels = [&] {
    for (int i = 0; i < 60; ++i) f(s, grid_for(n, 256), x, y, 1.f, std::uint32_t(n));
  };
  const auto copies = [&] {
    for (int i = 0; i < 4; ++i) t.download(z, host.span());
  };
  const auto time = [&](const std::function<void()>& work) {  // from before until both streams are done
    d.sync();
    Event start(d), done(d), other(d);
    s.record(start);
    t.wait_for(start);
    work();
    t.record(other);
    s.wait_for(other).record(done);
    return done.milliseconds_since(start);
  };
  time([&] { kernels(), copies(); });
  const double k = time(kernels), c = time(copies), both = time([&] { kernels(), copies(); });
  EXPECT_LT(both, 0.9 * (k + c)) << "kernels " << k << " ms, copies " << c << " ms";
}

}  // namespace
}  // namespace cgp::runtime
