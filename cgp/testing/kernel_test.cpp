// SPDX-License-Identifier: Apache-2.0
#include "cgp/testing/kernel_test.h"

#include <gtest/gtest.h>

#include <span>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/emu/policy.h"
#include "cgp/kernels/common/variant.h"

namespace cgp::testing {
namespace {

std::string describe(const kernels::KernelEntry& kernel, OptionList options, std::uint64_t seed) {
  std::string s = kernel.name;
  for (const auto& [name, value] : options) text::append(s, text::cat(" ", name, "=", value));
  return text::cat(s, " seed=", seed);
}

kernels::Options make_options(const kernels::KernelEntry& kernel, OptionList options) {
  kernels::Options o(kernel.name, kernel.options);
  for (const auto& [name, value] : options) o.set(name, value);
  return o;
}

// The policies a case runs under, besides the plain run. Every kernel has cases of a few thousand
// instructions, which run under all of them; larger ones under some, by their size, so that the tests stay
// quick.
struct Policy {
  const char *async, *schedule;
};
void apply(runtime::Device& device, std::string_view async, std::string_view schedule) {
  emu::Options o = device.emulator_options();
  emu::parse_async(async).apply(o), emu::parse_schedule(schedule).apply(o);
  device.set_emulator_options(o);
}

constexpr Policy kPolicies[] = {{"late", "adversarial"},     {"random:1", "random:1"}, {"late", "random:2"},
                                {"random:2", "adversarial"}, {"late", "fair"},         {"random:3", "fair"},
                                {"eager", "adversarial"},    {"eager", "random:3"}};
constexpr std::uint64_t kEveryPolicy = 20'000, kTwoPolicies = 200'000;  // warp instructions

std::span<const Policy> policies_for(const emu::Counters& plain) {
  const std::uint64_t n = plain.warp_instructions;
  return std::span(kPolicies).first(n <= kEveryPolicy ? std::size(kPolicies) : n <= kTwoPolicies ? 2 : 0);
}

emu::Counters run(const kernels::KernelEntry& kernel, OptionList options, std::string_view arch,
                  const std::vector<kernels::NamedArray>& inputs, std::uint64_t seed, const Policy* policy) {
  std::string what = text::cat(describe(kernel, options, seed), " on ", arch);
  emu::Counters counters;
  try {
    auto device = runtime::Device::open(text::cat("emu:", arch));
    device.set_findings(runtime::Device::Findings::collect);
    device.keep_results(0);
    if (policy) {
      apply(device, policy->async, policy->schedule);
      text::append(what, text::cat(" ", emu::policy_arguments(device.emulator_options())));
    }
    auto c = kernel.prepare(device, make_options(kernel, options), inputs, seed);
    runtime::Stream stream(device);
    c->launch(stream);
    stream.wait();
    for (const auto& record : device.results()) {
      counters.add(record.result->counters);
      for (const auto& f : record.result->findings)
        ADD_FAILURE() << what << " (" << c->variant << ")\n" << emu::describe(f);
    }
    const auto check = c->verify();
    EXPECT_TRUE(check.pass) << what << " (" << c->variant << ": " << c->why << ")\n" << check.describe();
  } catch (const Error& e) {
    ADD_FAILURE() << what << " threw\n" << e.what();
  }
  return counters;
}

}  // namespace

emu::Counters expect_right(const kernels::KernelEntry& kernel, OptionList options, std::string_view arch,
                           const std::vector<kernels::NamedArray>& inputs, std::uint64_t seed) {
  const emu::Counters plain = run(kernel, options, arch, inputs, seed, nullptr);
  for (const Policy& policy : policies_for(plain)) run(kernel, options, arch, inputs, seed, &policy);
  return plain;
}

runtime::Device emulator_under(std::string_view async, std::string_view schedule) {
  auto device = runtime::Device::open("emu:sm_90a");
  apply(device, async, schedule);
  return device;
}

std::vector<ArchImage> images_for(const std::vector<std::string_view>& archs,
                                  std::span<const kernels::Variant> variants) {
  std::vector<ArchImage> all;
  for (const auto arch : archs)
    for (auto& image : kernels::images(variants, arch)) all.push_back({std::string(arch), std::move(image)});
  return all;
}

bool assembled_clean(const runtime::KernelImage&, const Assembly& a) {
  return a.spill_bytes == 0 && a.stack_bytes == 0 && !a.serialised;
}

void expect_assemble(std::span<const ArchImage> images, const Accept& accept) {
  if (find_ptxas().empty()) GTEST_SKIP() << "ptxas is not installed: nothing was assembled";
  std::vector<AssemblyJob> jobs;
  for (const auto& i : images) jobs.push_back({*i.image.ptx, i.arch});
  const auto results = assemble_all(jobs);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const auto& a = results[i];
    EXPECT_TRUE(a.ok && accept(images[i].image, a))
        << images[i].image.name << " for " << images[i].arch << ": registers " << a.registers << ", spills "
        << a.spill_bytes << ", stack " << a.stack_bytes << "\n"
        << a.log;
  }
}

void expect_assembles(const kernels::KernelEntry& kernel) {
  std::vector<ArchImage> all;
  for (std::string_view arch : kernels::kTargets)
    for (auto& image : kernel.images(arch)) all.push_back({std::string(arch), std::move(image)});
  ASSERT_FALSE(all.empty()) << kernel.name << " ships nothing";
  expect_assemble(all);
}

void expect_right_on_gpu(const kernels::KernelEntry& kernel, std::initializer_list<OptionList> problems) {
  runtime::Device device;
  try {
    device = runtime::Device::open("cuda:0");
  } catch (const Unsupported& e) {
    GTEST_SKIP() << e.what();
  }
  for (const auto& options : problems) {
    const std::string what = describe(kernel, options, 1);
    auto c = kernel.prepare(device, make_options(kernel, options), {}, 1);
    runtime::Stream stream(device);
    c->launch(stream);
    stream.wait();
    const auto check = c->verify();
    EXPECT_TRUE(check.pass) << what << " (" << c->variant << ")\n" << check.describe();
    const auto first = c->outputs();
    c->launch(stream);
    stream.wait();
    const auto second = c->outputs();
    for (std::size_t i = 0; i < first.size(); ++i)
      EXPECT_EQ(first[i].array.bytes, second[i].array.bytes) << what << ": two runs differ";
  }
}

}  // namespace cgp::testing
