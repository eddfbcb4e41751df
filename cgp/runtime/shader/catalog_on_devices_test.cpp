// SPDX-License-Identifier: Apache-2.0
// The catalogue's kernels on devices that run translated kernels, on ragged shapes, against their oracles with the bound that
// holds for PTX. testdata/cases.txt lists the problems: the first of each kernel that compiles fast runs always, all of them in
// nightly builds and on the devices that CGP_SHADER_DEVICES names ("vulkan:0 vulkan:1"). CGP_SHADER_CASES names another list.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/runtime/buffer.h"

namespace cgp::runtime {
namespace {

const char* kChosen = std::getenv("CGP_SHADER_DEVICES");
#ifdef CGP_NIGHTLY_CASES
constexpr bool kAll = true;
#else
constexpr bool kAll = false;
#endif
/// Each takes a second and more to compile for lavapipe.
const std::set<std::string> kSlow{"embedding_backward", "gemm", "gemm_ladder", "grouped_gemm", "topk"};
/// FALS-WGPU has them.
const std::set<std::string> kElsewhere{"activation_backward", "adamw", "dequantize", "rms_norm_backward",
                                       "rope"};

std::vector<std::string> words(std::string_view line) {
  std::vector<std::string> out;
  for (std::string_view w : text::split(line, ' '))
    if (!w.empty()) out.emplace_back(w);
  return out;
}

/// "softmax dtype=f32 rows=5 cols=33" on the device, against the kernel's oracle.
void expect_right(const Device& device, const std::string& problem_text) {
  SCOPED_TRACE(text::cat(device.info().spec, ": ", problem_text));
  const auto w = words(problem_text);
  try {
    const auto& kernel = kernels::find_kernel(w.at(0));
    kernels::Options options(kernel.name, kernel.options);
    for (std::size_t i = 1; i < w.size(); ++i) {
      const auto equals = w[i].find('=');
      options.set(w[i].substr(0, equals), w[i].substr(equals + 1));
    }
    const auto problem = kernel.prepare(device, options, {}, 7);
    problem->launch(device.stream());
    device.sync();
    const kernels::Check c = problem->verify();
    EXPECT_TRUE(c.pass) << c.wrong << " of " << c.compared << " wrong, worst " << c.worst_got
                        << " instead of " << c.worst_want << " with a tolerance of " << c.worst_tolerance;
  } catch (const Error& e) {
    ADD_FAILURE() << e.what();
  }
}

/// The chosen devices, or the first of each kind.
struct CatalogOnDevices : testing::Test {
  std::vector<std::string> specs;
  std::map<std::string, Device> open;  // by spec
  void SetUp() override {
    std::set<DeviceKind> kinds;
    if (kChosen)
      specs = words(kChosen);
    else
      for (const DeviceInfo& d : shader_devices())
        if (kinds.insert(d.kind).second) specs.push_back(d.spec);
    if (specs.empty())
      GTEST_SKIP() << "there is no Vulkan driver (Debian: mesa-vulkan-drivers) and no wgpu-native";
  }
  const Device& device(const std::string& spec) {
    auto [it, fresh] = open.try_emplace(spec);
    if (fresh) it->second = Device::open(spec);
    return it->second;
  }
  void expect_right_everywhere(std::initializer_list<const char*> problems) {
    for (const std::string& spec : specs)
      for (const char* p : problems) expect_right(device(spec), p);
  }
};

TEST_F(CatalogOnDevices, EveryKernelIsRightOnRaggedShapes) {
  const char* file = std::getenv("CGP_SHADER_CASES");
  const std::string cases = read_file(file ? file : CGP_RUNTIME_TESTDATA "/cases.txt");
  for (const std::string& spec : specs) {
    std::set<std::string> seen;
    int ran = 0;
    for (std::string_view line : text::split(cases, '\n')) {
      const auto w = words(line);
      if (w.empty() || w[0] == "#") continue;
      const bool chosen = !kSlow.contains(w[1]) && !kElsewhere.contains(w[1]) && seen.insert(w[1]).second;
      if (!chosen && !kAll && !kChosen) continue;
      expect_right(device(w[0] == "sm_75" ? spec : text::cat(spec, ":", w[0])),
                   std::string(line.substr(w[0].size())));
      ++ran;
    }
    EXPECT_GT(ran, 0);
    std::printf("%s: %d problems\n", spec.c_str(), ran);
  }
}

// FALS-WGPU-001 to 008: the shaders of training, for sizes that are no powers of two.
TEST_F(CatalogOnDevices, FALS_WGPU_001_SiluBackward) {
  expect_right_everywhere({"activation_backward f=silu dtype=f32 rows=3 cols=333"});
}
TEST_F(CatalogOnDevices, FALS_WGPU_002_GemmBackwardA) {  // dA = dC B'
  expect_right_everywhere({"gemm dtype=f32 layout=nt m=17 n=35 k=23"});
}
TEST_F(CatalogOnDevices, FALS_WGPU_003_GemmBackwardB) {  // dB = A' dC
  expect_right_everywhere({"gemm dtype=f32 layout=tn m=35 n=23 k=17"});
}
TEST_F(CatalogOnDevices, FALS_WGPU_004_RmsNormBackward) {
  expect_right_everywhere({"rms_norm_backward dtype=f32 rows=5 cols=333"});
}
TEST_F(CatalogOnDevices, FALS_WGPU_005_RopeBackward) {
  expect_right_everywhere({"rope dtype=f32 tokens=7 heads=3 dim=38 inverse=1"});
}
TEST_F(CatalogOnDevices, FALS_WGPU_006_AdamwStep) { expect_right_everywhere({"adamw n=1003 step=9"}); }
TEST_F(CatalogOnDevices, FALS_WGPU_007_Nf4Dequant) {
  expect_right_everywhere({"dequantize format=bnb_nf4 dtype=f32 rows=7 cols=192"});
}
TEST_F(CatalogOnDevices, FALS_WGPU_008_BuffersRoundTrip) {
  for (const std::string& spec : specs)
    for (const std::size_t n : {1, 7, 256, 1000, 65537}) {
      std::vector<float> host(n);
      for (std::size_t i = 0; i < n; ++i) host[i] = float(i) * 0.37f - 5;
      EXPECT_EQ(device(spec).upload<float>(host).to_vector(), host) << spec << " " << n;
    }
}

}  // namespace
}  // namespace cgp::runtime
