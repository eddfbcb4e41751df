// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/collect/probe_kernel.h"

#include <cstring>

namespace cgp::profile {

ProbeRun run_probe(const std::string& statements, emu::Dim3 grid, emu::Dim3 block, std::uint64_t offset,
                   std::uint8_t filled) {
  ProbeRun out;
  out.program = emu::Program::load(
      ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 x)\n{\n"
      ".reg .pred %p<4>;\n.reg .b32 %r<20>;\n.reg .f32 %f<20>;\n.reg .b64 %rd<20>;\n" +
      statements + "ret;\n}\n");
  emu::Machine machine("sm_80");
  constexpr std::uint64_t size = 1 << 22;
  const auto x = machine.alloc(size, "x");
  machine.fill(x, filled, size);
  const auto given = x + offset;
  std::byte params[8];
  std::memcpy(params, &given, 8);
  emu::Launch launch;
  launch.entry = "k", launch.grid = grid, launch.block = block, launch.params = params;
  emu::Options options;
  options.checks = emu::CheckSet::none();
  options.workers = 1;
  out.counters = machine.launch(machine.load(out.program), launch, options).counters;
  return out;
}

}  // namespace cgp::profile
