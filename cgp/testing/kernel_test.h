// SPDX-License-Identifier: Apache-2.0
#pragma once
// What every kernel's test does: run problems on the emulator with all checks, compare with the oracle, and
// assemble everything that ships for every architecture it claims. Tests only.
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cgp/emu/emu.h"
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/runtime/device.h"
#include "cgp/testing/assemble.h"

namespace cgp::kernels {
struct Variant;
}

namespace cgp::testing {

using OptionList = std::initializer_list<std::pair<const char*, std::string>>;

/// Runs `kernel` with these options on "emu:<arch>", all checks on; fails the test (with options, seed and
/// the worst element) when the result is wrong or there is a finding. Small problems run again under late and
/// random asynchronous operations and adversarial and random schedules. Returns the counters of the plain
/// run.
emu::Counters expect_right(const kernels::KernelEntry& kernel, OptionList options,
                           std::string_view arch = "sm_90a",
                           const std::vector<kernels::NamedArray>& inputs = {}, std::uint64_t seed = 1);

/// "emu:sm_90a" with asynchronous operations and a schedule as --async and --schedule name them.
runtime::Device emulator_under(std::string_view async, std::string_view schedule);

/// Every image the kernel ships for every architecture: ptxas accepts it, no spills, no stack, no serialised
/// wgmma. Skips (with the reason) without ptxas.
void expect_assembles(const kernels::KernelEntry& kernel);

/// The same for images gathered otherwise, with what else `accept` allows or asks.
struct ArchImage {
  std::string arch;
  runtime::KernelImage image;
};
std::vector<ArchImage> images_for(const std::vector<std::string_view>& archs,
                                  std::span<const kernels::Variant> variants);
using Accept = std::function<bool(const runtime::KernelImage&, const Assembly&)>;
bool assembled_clean(const runtime::KernelImage& image, const Assembly& a);
void expect_assemble(std::span<const ArchImage> images, const Accept& accept = assembled_clean);

/// On a GPU if there is one (else a skip with the reason): the same problems, launched twice, bit-identical.
void expect_right_on_gpu(const kernels::KernelEntry& kernel, std::initializer_list<OptionList> problems);

}  // namespace cgp::testing
