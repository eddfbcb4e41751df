// SPDX-License-Identifier: Apache-2.0
// The GPU side of the runtime on the stand-in libcuda: what is called, cached, freed and reported.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "cgp/base/error.h"
#include "cgp/cuda/fake_driver.h"
#include "cgp/runtime/device_pool.h"
#include "cgp/runtime/graph.h"
#include "cgp/runtime/host_memory.h"
#include "cgp/runtime/jit_cache.h"
#include "cgp/runtime/launch_together.h"
#include "cgp/runtime/launcher.h"

namespace cgp::runtime {
namespace {

using cuda::fake::Control;
namespace fs = std::filesystem;

constexpr const char* kPtx = R"(.version 8.0
.target sm_90a
.address_size 64
.visible .global .align 4 .b8 table[16];
.visible .entry fill_index(.param .u64 out, .param .u32 n) { ret; }
.visible .entry add_one(.param .u64 out, .param .u32 n) { ret; }
.visible .entry crash() { ret; }
)";

KernelImage image(const std::string& entry, const std::string& ptx = kPtx) {
  KernelImage i;
  i.name = i.entry = entry;
  i.ptx = std::make_shared<const std::string>(ptx);
  if (entry != "crash") i.params = {Param::output("out", DType::u32), Param::scalar("n", DType::u32)};
  i.block = {128, 1, 1};
  return i;
}

struct fake_gpu : testing::Test {
  fs::path cache = fs::path(testing::TempDir()) / "cgp_fake_gpu_cache";
  Control* fake = nullptr;
  std::vector<std::string> logged;
  int live_before = 0;
  void SetUp() override {
    setenv("CGP_LIBCUDA", CGP_FAKE_LIBCUDA, 1);
    setenv("CGP_CACHE_DIR", cache.c_str(), 1);
    fs::remove_all(cache);
    void* lib = dlopen(CGP_FAKE_LIBCUDA, RTLD_NOW);
    ASSERT_NE(lib, nullptr) << dlerror();
    fake = (*reinterpret_cast<cuda::fake::ControlFunction>(dlsym(lib, "fake_control")))();
    fake->reset();
    live_before = fake->live_handles;
    set_log([this](std::string_view s) { logged.emplace_back(s); });
  }
  void TearDown() override {
    EXPECT_EQ(fake->live_handles, live_before) << "something was not given back to the driver";
    fake->reset();
    set_log({});
    fs::remove_all(cache);
  }
  void fail(const char* call, int code, int skip = 0) {
    std::snprintf(fake->fail_call, sizeof fake->fail_call, "%s", call);
    fake->fail_code = code;
    fake->fail_skip = skip;
  }
};
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

TEST_F(fake_gpu, info_is_the_drivers) {
  const Device d = Device::open("cuda");
  const DeviceInfo& i = d.info();
  EXPECT_EQ(i.spec, "cuda:0");
  EXPECT_EQ(i.name, "Fake GPU");
  EXPECT_EQ(i.arch, "sm_90a");
  EXPECT_EQ(i.sm_count, 132);
  EXPECT_EQ(i.max_block, (Dim3{1024, 1024, 64}));
  EXPECT_EQ(i.max_grid, (Dim3{0x7fffffff, 65535, 65535}));
  EXPECT_NEAR(i.memory_bandwidth_gbps.value(), 2 * 3.201e9 * 768 / 1e9, 1e-6);
  EXPECT_TRUE(i.tensor_maps);
  EXPECT_EQ(i.driver_version, 13000);
  EXPECT_EQ(Device::open("cuda:0"), d) << "a GPU is one device in a process";
  EXPECT_EQ(devices().front().spec, "cuda:0");
  EXPECT_EQ(Device::open("auto"), d);
}
TEST_F(fake_gpu, an_absent_ordinal_says_what_there_is) {
  const std::string m = message<Unsupported>([] { Device::open("cuda:7"); });
  EXPECT_TRUE(contains(m, "cuda:7") && contains(m, "1 GPU")) << m;
}
TEST_F(fake_gpu, copies_go_there_and_back_with_offsets) {
  const Device d = Device::open("cuda");
  std::vector<int> host(1000);
  std::iota(host.begin(), host.end(), 0);
  Buffer<int> a = d.upload<int>(host);
  EXPECT_EQ(a.to_vector(), host);
  a.upload(std::vector<int>{-1, -2}, 998);
  EXPECT_EQ(a.slice(997, 3).to_vector(), (std::vector<int>{997, -1, -2}));
  EXPECT_THROW(a.upload(host, 1), ArgumentError);
  EXPECT_THROW(a.slice(1, 1000), ArgumentError);
  EXPECT_THROW(a.slice(1001, 0), ArgumentError);
  EXPECT_THROW(a.upload(std::span<const int>(host).first(5)), ArgumentError);
  Buffer<int> none = d.alloc<int>(0);
  EXPECT_EQ(none.address(), 0u);
  EXPECT_TRUE(none.to_vector().empty());
  none.zero();
}
TEST_F(fake_gpu, large_pageable_copies_are_staged_in_order) {
  const Device d = Device::open("cuda");
  std::vector<std::uint32_t> host((9 << 20) / 4 + 3), back(host.size());
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = std::uint32_t(i * 2654435761u);
  Buffer<std::uint32_t> a = d.alloc<std::uint32_t>(host.size());
  Stream s(d);
  s.upload(a, host).download(a, back).wait();
  EXPECT_EQ(back, host);
  EXPECT_EQ(fake->calls("cuMemcpyHtoDAsync"), 3);
  EXPECT_EQ(fake->calls("cuMemcpyDtoHAsync"), 3);
  Pinned<std::uint32_t> pinned(d, host.size());
  s.download(a, pinned.span()).wait();
  EXPECT_EQ(fake->calls("cuMemcpyDtoHAsync"), 4) << "pinned memory needs no staging";
  EXPECT_TRUE(std::equal(host.begin(), host.end(), pinned.data()));
}
TEST_F(fake_gpu, work_issued_together_is_submitted_when_all_is_loaded) {
  const Device d = Device::open("cuda");
  Buffer<std::uint32_t> a = d.zeros<std::uint32_t>(8), b = d.zeros<std::uint32_t>(8);
  std::vector<std::uint32_t> first(8), second(8);
  Stream one(d), two(d);
  launch_together([&] {
    Event filled(d);
    d.load(image("fill_index"))(one, Launch{.grid = {1}}, a, 8u);
    one.record(filled).download(a, first);
    two.wait_for(filled).zero(b);
    d.load(image("add_one"))(two, Launch{.grid = {1}}, b, 8u);
    two.download(b, second);
    {
      Stream gone(d);
      gone.zero(a);
    }  // what a stream was given is not lost with it
    EXPECT_EQ(fake->launches, 0) << "a kernel may wait for one that is not loaded yet";
    EXPECT_EQ(first[3], 0u);
    EXPECT_TRUE(contains(message<ArgumentError>([&] { one.wait(); }), "inside launch_together"));
  });
  EXPECT_EQ(fake->launches, 2);
  EXPECT_EQ(first[3], 3u);
  EXPECT_EQ(second, std::vector<std::uint32_t>(8, 1u));
  EXPECT_THROW(launch_together([&] {
                 d.load(image("add_one"))(two, Launch{.grid = {1}}, b, 8u);
                 throw std::runtime_error("no");
               }),
               std::runtime_error);
  EXPECT_EQ(fake->launches, 2) << "nothing is run then";
}
TEST_F(fake_gpu, pitched_copies_move_rows) {
  const Device d = Device::open("cuda");
  std::vector<int> host(12);
  std::iota(host.begin(), host.end(), 0);
  Buffer<int> a = d.zeros<int>(15);
  Stream s(d);
  s.upload_2d(a.all(), 5, host, 4, 3, 3);
  std::vector<int> back(6, -1);
  s.download_2d(a.all(), 5, std::span(back), 2, 2, 3).wait();
  EXPECT_EQ(a.to_vector(), (std::vector<int>{0, 1, 2, 0, 0, 4, 5, 6, 0, 0, 8, 9, 10, 0, 0}));
  EXPECT_EQ(back, (std::vector<int>{0, 1, 4, 5, 8, 9}));
  EXPECT_THROW(s.upload_2d(a.all(), 2, host, 4, 3, 3), ArgumentError);
  EXPECT_THROW(s.upload_2d(a.all(), 5, host, 4, 3, 4), ArgumentError);
}
TEST_F(fake_gpu, out_of_memory_is_an_error_with_numbers_and_leaves_nothing) {
  const Device d = Device::open("cuda");
  const MemoryUse before = d.memory();
  try {
    d.alloc<char>(std::size_t(2) << 30);
    FAIL();
  } catch (const DriverError& e) {
    EXPECT_EQ(e.code(), 2);
    EXPECT_TRUE(contains(e.what(), "2 GiB wanted")) << e.what();
  }
  EXPECT_THROW(d.alloc<double>(std::size_t(1) << 61), ArgumentError);
  EXPECT_EQ(d.memory().free_bytes, before.free_bytes);
  for (int i = 0; i < 50; ++i) d.alloc<char>(1 << 20);
  EXPECT_EQ(d.memory().free_bytes, before.free_bytes);
}
TEST_F(fake_gpu, a_kernel_is_compiled_once_and_then_found) {
  const Device d = Device::open("cuda");
  const LoadedKernel f = d.load(image("fill_index"));
  EXPECT_EQ(fake->compilations, 1);
  EXPECT_EQ(d.load_counts().jit_compilations, 1u);
  EXPECT_EQ(d.load_counts().jit_milliseconds, 12.5);
  EXPECT_EQ(&d.load(image("fill_index")).code(), &f.code());
  int built = 0;
  for (int i = 0; i < 3; ++i)
    d.load("by key", [&] {
      ++built;
      return image("fill_index");
    });
  EXPECT_EQ(built, 1);
  EXPECT_EQ(fake->compilations, 1);
  Buffer<std::uint32_t> out = d.alloc<std::uint32_t>(10);
  f(d.stream(), grid_for(10, 128), out, 10);
  d.sync();
  EXPECT_EQ(out.to_vector(), (std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(fake->last.block[0], 128u);
  EXPECT_EQ(f.attributes().registers, 10);
  EXPECT_EQ(f.attributes().code_arch, "sm_90");
}
TEST_F(fake_gpu, the_second_process_takes_machine_code_from_the_disk) {
  for (int round = 0; round < 2; ++round) {
    const Device d = Device::open("cuda");
    d.load(image("fill_index"));
    EXPECT_EQ(d.load_counts().cache_hits, std::uint64_t(round));
  }
  EXPECT_EQ(fake->compilations, 1);
}
TEST_F(fake_gpu, a_damaged_cache_entry_is_rebuilt) {
  Device::open("cuda").load(image("fill_index"));
  ASSERT_EQ(std::distance(fs::directory_iterator(cache), fs::directory_iterator()), 1);
  const fs::path file = fs::directory_iterator(cache)->path();
  const std::uintmax_t size = fs::file_size(file);
  for (const std::uintmax_t keep : {size - 1, size / 2, std::uintmax_t(3), std::uintmax_t(0)}) {
    const int before = fake->compilations;
    fs::resize_file(file, keep);
    Device::open("cuda").load(image("fill_index"));
    EXPECT_EQ(fake->compilations, before + 1) << "cut to " << keep;
    EXPECT_EQ(fs::file_size(file), size);
  }
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary)
      .seekp(std::streamoff(size) - 5)
      .put('!');
  const int before = fake->compilations;
  Device::open("cuda").load(image("fill_index"));
  EXPECT_EQ(fake->compilations, before + 1);
}
TEST_F(fake_gpu, an_intact_entry_that_the_driver_refuses_is_compiled_again) {
  const JitCache c(cache.string());
  c.store({kPtx, "sm_90a", 13000}, "not machine code");
  const Device d = Device::open("cuda");
  d.load(image("fill_index"));
  EXPECT_EQ(fake->compilations, 1);
  EXPECT_EQ(d.load_counts().cache_hits, 0u);
  EXPECT_EQ(logged.size(), 1u);
}
TEST_F(fake_gpu, another_driver_or_architecture_does_not_share_the_entry) {
  Device::open("cuda").load(image("fill_index"));
  fake->driver_version = 13010;  // the process's Api has read 13000 already: ask the cache itself
  const JitCache c(cache.string());
  EXPECT_TRUE(c.find({kPtx, "sm_90a", 13000}));
  EXPECT_FALSE(c.find({kPtx, "sm_90a", 13010}));
  EXPECT_FALSE(c.find({kPtx, "sm_100a", 13000}));
}
TEST_F(fake_gpu, a_cache_that_cannot_be_written_is_logged_and_harmless) {
  std::ofstream(cache.string()).put('x');  // a file where the folder should be
  Device::open("cuda").load(image("fill_index"));
  Device::open("cuda").load(image("fill_index"));
  EXPECT_EQ(fake->compilations, 2);
  EXPECT_LE(logged.size(), 1u);
}
TEST_F(fake_gpu, registers_that_move_between_warps_need_a_whole_program) {
  const Device d = Device::open("cuda");
  d.load(image("fill_index", std::string(kPtx) + "// setmaxnreg"));
  EXPECT_EQ(fake->calls("cuLinkAddData"), 0) << "the linker would ignore setmaxnreg";
  EXPECT_EQ(fake->calls("cuModuleLoadDataEx"), 1);
  EXPECT_EQ(d.load_counts().jit_compilations, 1u);
  EXPECT_TRUE(logged.empty());
}
TEST_F(fake_gpu, an_embedded_cubin_never_meets_the_compiler) {
  KernelImage i = image("fill_index");
  i.cubins = {{"sm_80", "FAKECUBIN wrong"}, {"sm_90", std::string("FAKECUBIN\n") + kPtx}};
  const Device d = Device::open("cuda");
  d.load(i);
  EXPECT_EQ(fake->compilations, 0);
  EXPECT_EQ(d.load_counts().embedded_cubins, 1u);
  EXPECT_EQ(d.load_counts().jit_compilations, 0u);
}
TEST_F(fake_gpu, a_linker_that_fails_is_gone_round) {
  fail("cuLinkComplete", 999);
  const Device d = Device::open("cuda");
  d.load(image("fill_index"));
  EXPECT_EQ(d.load_counts().jit_compilations, 1u);
  ASSERT_EQ(logged.size(), 1u);
  EXPECT_TRUE(contains(logged[0], "error 999")) << logged[0];
  const std::string rest = logged[0].substr(logged[0].find("the PTX is in ") + 14);
  EXPECT_TRUE(fs::remove(rest.substr(0, rest.find('\n'))));
}
TEST_F(fake_gpu, the_linker_is_not_asked_to_place_dynamic_behind_static_shared_memory) {
  fail("cuLinkComplete", 999);  // would be logged
  const std::string dynamic = ".extern .shared .align 1024 .b8 raw[];\n",
                    own = ".shared .align 8 .b8 bar[24];\n";
  const Device d = Device::open("cuda");
  d.load(image("fill_index", kPtx + dynamic + own));
  EXPECT_EQ(d.load_counts().jit_compilations, 1u);
  EXPECT_TRUE(logged.empty()) << logged[0];
  d.load(image("fill_index", kPtx + dynamic));
  ASSERT_EQ(logged.size(), 1u);  // one of them alone is where it should be
  const std::string rest = logged[0].substr(logged[0].find("the PTX is in ") + 14);
  EXPECT_TRUE(fs::remove(rest.substr(0, rest.find('\n'))));
}
TEST_F(fake_gpu, broken_ptx_gives_the_compilers_words) {
  const std::string m = message<DriverError>(
      [] { Device::open("cuda").load(image("fill_index", std::string(kPtx) + "SYNTAX ERROR")); });
  EXPECT_TRUE(contains(m, "Parsing error near 'SYNTAX'")) << m;
  const std::size_t at = m.find("the PTX is in ");
  ASSERT_NE(at, std::string::npos) << m;
  const std::string rest = m.substr(at + 14);
  EXPECT_TRUE(fs::remove(rest.substr(0, rest.find('\n'))));
}
TEST_F(fake_gpu, ptx_for_another_architecture_is_refused_before_the_driver_sees_it) {
  std::string ptx = kPtx;
  ptx.replace(ptx.find("sm_90a"), 6, "sm_100a");
  const std::string m = message<Unsupported>([&] { Device::open("cuda").load(image("fill_index", ptx)); });
  EXPECT_TRUE(contains(m, "sm_100a") && contains(m, "sm_90a")) << m;
  EXPECT_EQ(fake->compilations, 0);
}
TEST_F(fake_gpu, shared_memory_above_48_kib_is_opted_in_once) {
  const Device d = Device::open("cuda");
  const LoadedKernel f = d.load(image("fill_index"));
  Buffer<std::uint32_t> out = d.alloc<std::uint32_t>(4);
  f(d.stream(), Launch{.grid = {1}, .dynamic_smem = 40000}, out, 4);
  EXPECT_EQ(fake->calls("cuFuncSetAttribute"), 0);
  for (int i = 0; i < 3; ++i) f(d.stream(), Launch{.grid = {1}, .dynamic_smem = 200000}, out, 4);
  EXPECT_EQ(fake->calls("cuFuncSetAttribute"), 1);
  EXPECT_EQ(fake->opted_in_smem, 200000);
  const std::string m =
      message<ArgumentError>([&] { f(d.stream(), Launch{.grid = {1}, .dynamic_smem = 240000}, out, 4); });
  EXPECT_TRUE(contains(m, "232448")) << m;
}
TEST_F(fake_gpu, launches_that_overlap_divide_l1_alike) {
  const Device d = Device::open("cuda");
  const LoadedKernel f = d.load(image("fill_index"));
  Buffer<std::uint32_t> out = d.alloc<std::uint32_t>(4);
  for (int i = 0; i < 2; ++i) f(d.stream(), Launch{.grid = {1}, .programmatic = true}, out, 4);
  EXPECT_EQ(fake->calls("cuFuncSetAttribute"), 1);
}
TEST_F(fake_gpu, clusters_above_8_are_allowed_first) {
  const Device d = Device::open("cuda");
  const LoadedKernel f = d.load(image("crash"));
  const Launch l{.grid = {32}, .cluster = {16, 1, 1}};
  EXPECT_EQ(f.max_active_clusters(l), 66);
  EXPECT_EQ(fake->calls("cuFuncSetAttribute"), 1);
}
TEST_F(fake_gpu, a_crash_surfaces_at_the_wait_with_a_hint) {
  const Device d = Device::open("cuda");
  Stream s(d);
  d.load(image("crash"))(s, Dim3{1});
  const std::string m = message<DriverError>([&] { s.wait(); });
  EXPECT_TRUE(contains(m, "CUDA_ERROR_ILLEGAL_ADDRESS (700)") && contains(m, "emulator")) << m;
  EXPECT_THROW(s.is_complete(), DriverError);
  { Stream dropped(std::move(s)); }
  EXPECT_EQ(logged.size(), 1u) << "a destructor records, it does not throw";
  fake->sticky = 0;
}
TEST_F(fake_gpu, not_ready_is_running_and_everything_else_an_error) {
  const Device d = Device::open("cuda");
  Stream s(d);
  fake->busy = true;
  EXPECT_FALSE(s.is_complete());
  fake->busy = false;
  EXPECT_TRUE(s.is_complete());
  fail("cuStreamQuery", 719);
  EXPECT_THROW(s.is_complete(), DriverError);
}
TEST_F(fake_gpu, events_time_the_work_between_them) {
  const Device d = Device::open("cuda");
  Event a(d), b(d);
  Stream s(d);
  s.record(a).record(b);
  EXPECT_EQ(b.milliseconds_since(a), 1.5);
  Stream t(d);
  t.wait_for(b);
  EXPECT_EQ(fake->calls("cuStreamWaitEvent"), 1);
}
TEST_F(fake_gpu, a_borrowed_stream_is_used_and_left_alone) {
  const Device d = Device::open("cuda");
  Stream own(d);
  void* const handle = own.native_handle();
  const int made = fake->calls("cuStreamCreate"), destroyed = fake->calls("cuStreamDestroy");
  {
    Stream s = Stream::borrow(d, handle);
    EXPECT_EQ(s.native_handle(), handle);
    Buffer<std::uint32_t> out = d.alloc<std::uint32_t>(4);
    d.load(image("fill_index"))(s, grid_for(4, 128), out, 4);
    s.wait();
    EXPECT_EQ(out.to_vector(), (std::vector<std::uint32_t>{0, 1, 2, 3}));
    std::vector<std::size_t> asked;
    s.set_scratch_source([&](std::size_t bytes) {
      asked.push_back(bytes);
      return std::uint64_t(0x1000);
    });
    EXPECT_EQ(s.scratch(77), 0x1000u);
    Stream moved = std::move(s);
    EXPECT_EQ(moved.scratch(7), 0x1000u);
    EXPECT_EQ(asked, (std::vector<std::size_t>{77, 7}));
  }
  EXPECT_EQ(fake->calls("cuStreamCreate"), made);
  EXPECT_EQ(fake->calls("cuStreamDestroy"), destroyed);
}
TEST_F(fake_gpu, captured_work_runs_at_replay_only) {
  const Device d = Device::open("cuda");
  const LoadedKernel fill = d.load(image("fill_index")), add = d.load(image("add_one"));
  Buffer<std::uint32_t> out = d.zeros<std::uint32_t>(4);
  Graph g;
  {
    Stream s(d);
    g = s.capture([&](Stream& c) {
      fill(c, Dim3{1}, out, 4);
      add(c, Dim3{1}, out, 4);
      EXPECT_TRUE(is_capturing(Stream::borrow(d, c.native_handle())));
    });
    EXPECT_FALSE(is_capturing(s));
    EXPECT_EQ(out.to_vector(), (std::vector<std::uint32_t>{0, 0, 0, 0}));
    EXPECT_EQ(g.size(), 2u);
    s.replay(g).replay(g).wait();
    EXPECT_EQ(out.to_vector(), (std::vector<std::uint32_t>{1, 2, 3, 4}));
    std::vector<std::uint32_t> pageable(4);
    EXPECT_THROW(s.capture([&](Stream& c) { c.download(out, pageable); }), ArgumentError);
    s.zero(out).wait();
    EXPECT_EQ(out.to_vector()[3], 0u) << "the stream works again after a capture that failed";
  }
}
TEST_F(fake_gpu, graphs_are_built_by_hand_too) {
  const Device d = Device::open("cuda");
  const LoadedKernel add = d.load(image("add_one"));
  Buffer<std::uint32_t> a = d.alloc<std::uint32_t>(3), b = d.alloc<std::uint32_t>(3);
  GraphBuilder g(d);
  const auto zeroed = g.fill(a.all().region(), 0);
  const auto added = g.kernel(add, Launch{.grid = {1}}, {zeroed}, a, 3);
  g.copy(b.all(), a.all(), {added});
  EXPECT_THROW(g.fill(a.all().region(), 0, {{99}}), ArgumentError);
  const Graph graph = g.finish();
  EXPECT_EQ(graph.size(), 3u);
  d.stream().replay(graph).wait();
  EXPECT_EQ(b.to_vector(), (std::vector<std::uint32_t>{1, 1, 1}));
}
TEST_F(fake_gpu, modules_share_variables_between_entries) {
  const Device d = Device::open("cuda");
  const LoadedModule m = d.load_module(kPtx);
  EXPECT_EQ(m.entries(), (std::vector<std::string>{"fill_index", "add_one", "crash"}));
  const Slice<std::byte> table = m.variable("table");
  EXPECT_EQ(table.size(), 16u);
  table.upload(std::vector<std::byte>(16, std::byte(7)));
  EXPECT_EQ(m.variable("table").to_vector()[15], std::byte(7));
  EXPECT_THROW(m.variable("no_such"), ArgumentError);
  EXPECT_THROW(m.kernel("no_such"), ArgumentError);
  const LoadedKernel f = m.kernel("fill_index");
  Buffer<std::uint32_t> out = d.alloc<std::uint32_t>(2);
  f(d.stream(), Launch{.grid = {1}, .block = {32}}, out, 2);
  EXPECT_EQ(out.to_vector(), (std::vector<std::uint32_t>{0, 1}));
}
TEST_F(fake_gpu, buffers_kernels_and_graphs_keep_the_device_alive) {
  Buffer<int> b;
  LoadedKernel f;
  {
    const Device d = Device::open("cuda");
    b = d.upload<int>(std::vector<int>{1, 2, 3});
    f = d.load(image("fill_index"));
  }
  EXPECT_EQ(b.to_vector(), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(f.blocks_per_sm(), 16);
}
TEST_F(fake_gpu, tensor_maps_reach_the_driver_as_they_were_meant) {
  const Device d = Device::open("cuda");
  Buffer<bfloat16> a = d.alloc<bfloat16>(128 * 256);
  TensorMapSpec spec = TensorMapSpec::matrix(DType::bf16, 128, 256, 64, 64, Swizzle::b128);
  spec.l2 = L2Promotion::b256;
  const TensorMap m = d.tensor_map(spec, a);
  EXPECT_EQ(m.words[0], a.address());
  EXPECT_EQ(m.words[1], 9ull | 2ull << 8 | 3ull << 24 | 3ull << 32);
  EXPECT_EQ(m.words[2], 256u);
  EXPECT_EQ(m.words[3], 128u);
  EXPECT_EQ(m.words[7], 64u);
  EXPECT_EQ(m.words[12], 512u);
  spec.box[0] = 128;
  const std::string why = message<ArgumentError>([&] { d.tensor_map(spec, a); });
  EXPECT_TRUE(contains(why, "256 bytes") && contains(why, "at most 128")) << why;
}
TEST_F(fake_gpu, memory_of_another_device_is_refused_and_copied) {
  fake->devices = 2;
  const Device d = Device::open("cuda:0"), e = Device::open("cuda:1"), emu = Device::open("emu");
  EXPECT_TRUE(d.can_access_peer(e));
  EXPECT_FALSE(d.can_access_peer(emu));
  EXPECT_THROW(d.enable_peer(emu), Unsupported);
  Buffer<std::uint32_t> a = d.upload<std::uint32_t>(std::vector<std::uint32_t>{5, 6}),
                        b = e.alloc<std::uint32_t>(2), c = emu.alloc<std::uint32_t>(2);
  const std::string m =
      message<ArgumentError>([&] { d.load(image("fill_index"))(d.stream(), Dim3{1}, b, 2); });
  EXPECT_TRUE(contains(m, "\"out\"") && contains(m, "cuda:1")) << m;
  EXPECT_THROW(d.load(image("fill_index"))(e.stream(), Dim3{1}, b, 2), ArgumentError);
  b.copy_from(a);
  EXPECT_EQ(fake->calls("cuMemcpyPeer"), 1);
  c.copy_from(b);
  EXPECT_EQ(c.to_vector(), (std::vector<std::uint32_t>{5, 6}));
}
TEST_F(fake_gpu, memory_of_an_enabled_peer_is_an_argument_in_that_direction_alone) {
  fake->devices = 3;
  const Device d = Device::open("cuda:0"), e = Device::open("cuda:1"), f = Device::open("cuda:2");
  Buffer<std::uint32_t> on_d = d.alloc<std::uint32_t>(2), on_e = e.alloc<std::uint32_t>(2),
                        on_f = f.alloc<std::uint32_t>(2);
  const LoadedKernel on = d.load(image("fill_index")), back = e.load(image("fill_index"));
  EXPECT_THROW(on(d.stream(), Dim3{1}, on_e, 2), ArgumentError);
  d.enable_peer(e);
  d.enable_peer(e);  // the driver says that it is enabled already; so is the second call's answer
  EXPECT_EQ(fake->calls("cuCtxEnablePeerAccess"), 2);
  EXPECT_NO_THROW(on(d.stream(), Dim3{1}, on_e, 2));
  const std::string other = message<ArgumentError>([&] { on(d.stream(), Dim3{1}, on_f, 2); });
  EXPECT_TRUE(contains(other, "cuda:2") && contains(other, "enable_peer")) << other;
  EXPECT_THROW(back(e.stream(), Dim3{1}, on_d, 2), ArgumentError);
}
TEST_F(fake_gpu, managed_memory_is_one_address_and_bounded) {
  const Device d = Device::open("cuda");
  Managed<std::uint32_t> m(d, 4);
  m.span()[2] = 9;
  m.prefetch_to_device(d.stream());
  m.advise(MemoryAdvice::read_mostly);
  m.attach_to(d.stream());
  EXPECT_EQ(fake->calls("cuStreamAttachMemAsync"), 1);
  d.load(image("add_one"))(d.stream(), Dim3{1}, m.all(), 4);
  d.sync();
  EXPECT_EQ(m.span()[2], 10u);
  EXPECT_THROW(Managed<char>(d, std::size_t(2) << 30), Unsupported);
}
TEST_F(fake_gpu, pooled_buffers_share_one_block_and_respect_stream_order) {
  const Device d = Device::open("cuda");
  PoolOptions o;
  o.page_bytes = 1024;
  DevicePool pool(d, 4 * 1024, o);
  const int allocations = fake->calls("cuMemAlloc_v2") + fake->calls("cuMemAlloc");
  Stream s(d), t(d);
  {
    Buffer<char> a = pool.alloc<char>(1500), b = pool.alloc<char>(1, s);
    EXPECT_EQ(b.address(), a.address() + 2048);
    EXPECT_EQ(pool.stats().used_pages, 3u);
    const std::uint64_t where = b.address();
    fake->busy = true;  // the stream has not passed the release
    pool.release(std::move(b), s);
    EXPECT_EQ(pool.pending(), 1u);
    Buffer<char> other = pool.alloc<char>(1, t);
    EXPECT_NE(other.address(), where);
    Buffer<char> same = pool.alloc<char>(1, s);
    EXPECT_EQ(same.address(), where);
    pool.release(std::move(same), s);
    fake->busy = false;
    EXPECT_EQ(pool.alloc<char>(1, t).address(), where);
    EXPECT_EQ(pool.pending(), 0u);
  }
  EXPECT_EQ(pool.stats().used_pages, 0u);
  EXPECT_THROW(pool.alloc<char>(5 * 1024), PoolError);
  EXPECT_EQ(fake->calls("cuMemAlloc_v2") + fake->calls("cuMemAlloc"), allocations);
}

}  // namespace
}  // namespace cgp::runtime
