// SPDX-License-Identifier: Apache-2.0
// Rung 11: the emulator as a debugger.
//   This kernel should reverse each block of 64 numbers. It has two bugs of the kind that often passes on a
//   GPU: a store one element behind the end of a buffer, and a read of shared memory that nobody wrote.
//   The emulator reports both with instruction, thread, buffer, and the line below that caused it. Find and
//   fix them: the example passes as long as both are there to be found.
#include <algorithm>

#include "examples/example.h"

namespace {

using namespace cgp::dsl;
constexpr int kThreads = 64;

void reverse(Kernel& k, In<f32> x, Out<f32> y, Val<u32> n) {
  k.block(kThreads);
  const auto tile = k.shared<f32>(kThreads);
  const auto i = k.ctaid_x() * kThreads + k.tid();
  const auto value = x.ld_if(i < n, i, Val<f32>(0.f))[0];
  tile.st_if(k.tid() < std::uint32_t(kThreads - 1), k.tid(), value);
  k.sync();
  const auto reversed = tile.ld(Val<u32>(kThreads - 1) - k.tid());
  y.st_if(i <= n, i, reversed);
}

bool run(const cgp::runtime::Device& device) {
  using cgp::runtime::Device;
  if (!device.is_emulator()) throw cgp::Unsupported("this rung is about the emulator's findings");
  device.set_findings(Device::Findings::collect);  // default: thrown as an EmuFault by the next wait
  const std::uint32_t n = 2 * kThreads;
  const auto x = device.upload<float>(example::small_integers<float>(n, 1));
  auto y = device.zeros<float>(n);
  const auto fn = device.load(cgp::launch::image(build("reverse", device.info().arch, reverse)));
  fn(device.stream(), cgp::runtime::grid_for(n + 1, kThreads), x, y, n);
  device.sync();

  const auto& findings = device.last_result().result->findings;
  for (const auto& f : findings) std::printf("%s\n", cgp::emu::describe(f).c_str());
  const auto found = [&](const char* cls, const char* in) {
    return std::any_of(findings.begin(), findings.end(), [&](const cgp::emu::Finding& f) {
      return f.cls == cls && f.file.find(in) != std::string::npos && f.line > 0;
    });
  };
  return findings.size() == 2 && found("oob.global", "11_find_the_bug.cpp") &&
         found("uninit.shared", "11_find_the_bug.cpp");
}

}  // namespace

int main(int argc, char** argv) { return example::main_on_device(argc, argv, run); }
