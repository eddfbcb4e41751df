// SPDX-License-Identifier: Apache-2.0
// The driver layer against the fake libcuda: what happens when things are missing or fail.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/cuda/fake_driver.h"
#include "cgp/cuda/handles.h"

namespace cgp::cuda {
namespace {

fake::Control& control(const char* library) {
  void* lib = dlopen(library, RTLD_NOW);
  EXPECT_NE(lib, nullptr) << dlerror();
  return *reinterpret_cast<fake::ControlFunction>(dlsym(lib, "fake_control"))();
}

struct cuda_driver : testing::Test {
  fake::Control& fake = control(CGP_FAKE_LIBCUDA);
  ApiPtr api;
  void SetUp() override {
    fake.reset();
    api = Api::load(CGP_FAKE_LIBCUDA);
  }
  void TearDown() override { fake.reset(); }
  void fail(const char* call, int code, int skip = 0) {
    std::snprintf(fake.fail_call, sizeof fake.fail_call, "%s", call);
    fake.fail_code = code;
    fake.fail_skip = skip;
  }
};

constexpr const char* kPtx =
    ".version 8.0\n.target sm_90a\n.visible .entry fill_index(.param .u64 p) { ret; }\n";

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
bool contains(const std::string& s, const std::string& part) { return s.find(part) != std::string::npos; }

TEST(cuda_loading, a_missing_library_is_unsupported_with_the_loaders_reason) {
  const std::string m = message<Unsupported>([] { Api::load("libno_such_cuda.so.1"); });
  EXPECT_TRUE(contains(m, "libno_such_cuda.so.1")) << m;
  EXPECT_TRUE(contains(m, "emu")) << m;
}
TEST(cuda_loading, a_missing_required_symbol_is_named) {
  const std::string m = message<Unsupported>([] { Api::load(CGP_FAKE_LIBCUDA_BROKEN); });
  EXPECT_TRUE(contains(m, "cuStreamQuery")) << m;
}
TEST(cuda_loading, missing_optional_symbols_matter_only_when_called) {
  control(CGP_FAKE_LIBCUDA_OLD).driver_version = 11040;
  const ApiPtr api = Api::load(CGP_FAKE_LIBCUDA_OLD);
  const Context context(api, 0);
  const std::string m = message<Unsupported>([&] {
    int n = 0;
    api->call<&Api::cuOccupancyMaxActiveClusters>(&n, nullptr, nullptr);
  });
  EXPECT_TRUE(contains(m, "cuOccupancyMaxActiveClusters")) << m;
  EXPECT_TRUE(contains(m, "CUDA 11.7")) << m;
  EXPECT_TRUE(contains(m, "CUDA 11.4")) << m;
}
TEST(cuda_loading, no_device_is_unsupported) {
  auto& fake = control(CGP_FAKE_LIBCUDA);
  fake.devices = 0;
  const std::string m = message<Unsupported>([] { Api::load(CGP_FAKE_LIBCUDA); });
  EXPECT_TRUE(contains(m, "CUDA_ERROR_NO_DEVICE (100)")) << m;
  fake.reset();
}

TEST_F(cuda_driver, a_failed_call_says_call_code_name_and_text) {
  fail("cuMemAlloc", kOutOfMemory);
  try {
    CUdeviceptr p = 0;
    api->check(api->cuMemAlloc(&p, 64), "cuMemAlloc", "64 bytes");
    FAIL();
  } catch (const DriverError& e) {
    EXPECT_EQ(e.code(), kOutOfMemory);
    EXPECT_EQ(e.where(), "cuMemAlloc");
    EXPECT_TRUE(contains(e.rule(), "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory")) << e.rule();
    EXPECT_EQ(e.why(), "64 bytes");
    EXPECT_FALSE(e.hint().empty());
  }
}
TEST_F(cuda_driver, an_unknown_code_is_printed_as_a_number) {
  fail("cuCtxSynchronize", 4711);
  const std::string m = message<DriverError>([&] { api->call<&Api::cuCtxSynchronize>(); });
  EXPECT_TRUE(contains(m, "error 4711")) << m;
}
TEST_F(cuda_driver, an_ordinal_out_of_range_says_what_there_is) {
  fake.devices = 2;
  const std::string m = message<Unsupported>([&] { device(*api, 5); });
  EXPECT_TRUE(contains(m, "cuda:5") && contains(m, "cuda:0 to cuda:1")) << m;
}
TEST_F(cuda_driver, an_attribute_the_driver_does_not_know_is_absent) {
  EXPECT_EQ(attribute(*api, 0, DeviceAttribute::memory_pools_supported), std::nullopt);
  EXPECT_EQ(attribute(*api, 0, DeviceAttribute::multiprocessor_count), 132);
}
TEST_F(cuda_driver, handles_are_destroyed_exactly_once) {
  const int before = fake.live_handles;
  {
    const Context c(api, 0);
    Stream s = make_stream(api), t = std::move(s);
    s = std::move(t);
    Event e = make_event(api);
    e = make_event(api);
    const PinnedMemory p = make_pinned(api, 100);
    const Module m = load_cubin(api, compile_ptx(api, kPtx, "k").cubin, "k");
    EXPECT_GT(fake.live_handles, before);
  }
  EXPECT_EQ(fake.live_handles, before);
}
TEST_F(cuda_driver, a_failed_creation_leaks_nothing) {
  const int before = fake.live_handles;
  fail("cuLinkComplete", kInvalidImage);
  EXPECT_THROW(compile_ptx(api, kPtx, "k"), DriverError);
  EXPECT_EQ(fake.live_handles, before);
}
TEST_F(cuda_driver, compilation_gives_code_log_and_time) {
  const Compiled c = compile_ptx(api, kPtx, "k");
  EXPECT_TRUE(contains(c.cubin, "FAKECUBIN"));
  EXPECT_TRUE(contains(c.log, "10 registers"));
  EXPECT_EQ(c.milliseconds, 12.5);
}
TEST_F(cuda_driver, ptx_that_does_not_compile_is_written_to_the_file_the_message_names) {
  const std::string ptx = std::string(kPtx) + "SYNTAX ERROR\n";
  const std::string m = message<DriverError>([&] { compile_ptx(api, ptx, "my kernel"); });
  EXPECT_TRUE(contains(m, "Parsing error near 'SYNTAX'")) << m;
  const std::size_t at = m.find("the PTX is in ");
  ASSERT_NE(at, std::string::npos) << m;
  const std::string rest = m.substr(at + 14), path = rest.substr(0, rest.find('\n'));
  EXPECT_EQ(read_file(path), ptx);
  std::remove(path.c_str());
  Compiled c;
  const std::string direct = message<DriverError>([&] { load_ptx(api, ptx, "my kernel", c); });
  EXPECT_TRUE(contains(direct, "Parsing error")) << direct;
}
TEST_F(cuda_driver, clusters_and_flags_travel_as_launch_attributes) {
  const Context context(api, 0);
  const Module m = load_cubin(api, compile_ptx(api, ".entry plain(", "k").cubin, "k");
  CUfunction f = nullptr;
  api->call<&Api::cuModuleGetFunction>(&f, m.get(), "plain");
  LaunchShape s;
  s.grid[0] = 8;
  s.block[0] = 128;
  launch(*api, f, s, nullptr, nullptr);
  EXPECT_EQ(fake.calls("cuLaunchKernelEx"), 0);
  s.cluster[0] = 2;
  s.cluster[1] = 4;
  s.cooperative = s.programmatic = true;
  launch(*api, f, s, nullptr, nullptr);
  EXPECT_EQ(fake.calls("cuLaunchKernelEx"), 1);
  EXPECT_EQ(fake.last.cluster[0], 2u);
  EXPECT_EQ(fake.last.cluster[1], 4u);
  EXPECT_EQ(fake.last.cluster[2], 1u);
  EXPECT_TRUE(fake.last.cooperative && fake.last.programmatic);
  EXPECT_EQ(fake.last.grid[0], 8u);
  EXPECT_EQ(fake.last.block[0], 128u);
}

}  // namespace
}  // namespace cgp::cuda
