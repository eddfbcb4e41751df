// SPDX-License-Identifier: Apache-2.0
// The catalogue's kernels on devices that run translated kernels, on ragged shapes, against their oracles with the bound that
// holds for PTX. testdata/cases.txt lists the problems: the first of each kernel runs always, all of them in nightly builds and
// on the devices that CGP_SHADER_DEVICES names ("vulkan:0 vulkan:1").
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/kernels/catalog/catalog.h"

namespace cgp::runtime {
namespace {

const char* kChosen = std::getenv("CGP_SHADER_DEVICES");
#ifdef CGP_NIGHTLY_CASES
constexpr bool kAll = true;
#else
constexpr bool kAll = false;
#endif

std::vector<std::string> words(std::string_view line) {
  std::vector<std::string> out;
  for (std::string_view w : text::split(line, ' '))
    if (!w.empty()) out.emplace_back(w);
  return out;
}

void run_catalog(const std::string& spec) {
  std::map<std::string, Device> devices;  // by architecture
  std::set<std::string> seen;
  int ran = 0;
  const std::string cases = read_file(std::getenv("CGP_SHADER_CASES") ? std::getenv("CGP_SHADER_CASES")
                                                                      : CGP_RUNTIME_TESTDATA "/cases.txt");
  for (std::string_view line : text::split(cases, '\n')) {
    const auto w = words(line);
    if (w.empty() || w[0] == "#" || (!kAll && !kChosen && !seen.insert(w[1]).second)) continue;
    SCOPED_TRACE(text::cat(spec, ": ", line));
    try {
      auto [device, fresh] = devices.try_emplace(w[0]);
      if (fresh) device->second = Device::open(w[0] == "sm_75" ? spec : text::cat(spec, ":", w[0]));
      const auto& kernel = kernels::find_kernel(w[1]);
      kernels::Options options(kernel.name, kernel.options);
      for (std::size_t i = 2; i < w.size(); ++i) {
        const auto equals = w[i].find('=');
        options.set(w[i].substr(0, equals), w[i].substr(equals + 1));
      }
      const auto problem = kernel.prepare(device->second, options, {}, 7);
      problem->launch(device->second.stream());
      device->second.sync();
      const kernels::Check c = problem->verify();
      EXPECT_TRUE(c.pass) << c.wrong << " of " << c.compared << " wrong, worst " << c.worst_got
                          << " instead of " << c.worst_want << " with a tolerance of " << c.worst_tolerance;
      ++ran;
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
    }
  }
  EXPECT_GE(ran, 26);
  std::printf("%s: %d problems\n", spec.c_str(), ran);
}

std::vector<std::string> specs() {
  if (kChosen) return words(kChosen);
  std::vector<std::string> out;
  std::set<DeviceKind> kinds;
  for (const DeviceInfo& d : shader_devices())
    if (kinds.insert(d.kind).second) out.push_back(d.spec);
  return out;
}

TEST(catalog_on_shader_devices, every_kernel_is_right_on_ragged_shapes) {
  const auto devices = specs();
  if (devices.empty()) GTEST_SKIP() << "there is no Vulkan driver (Debian: mesa-vulkan-drivers) and no wgpu-native";
  for (const std::string& spec : devices) run_catalog(spec);
}

}  // namespace
}  // namespace cgp::runtime
