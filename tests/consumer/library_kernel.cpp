// SPDX-License-Identifier: Apache-2.0
// A program of another project: a kernel of the library, on the emulator.
#include <cstdio>
#include <vector>

#include <cgp/kernels/vecadd/vecadd.h>

int main() {
  const auto device = cgp::runtime::Device::open("emu:sm_90a");
  const std::vector<float> ones(1000, 1);
  const auto a = device.upload<float>(ones);
  auto c = device.alloc<float>(ones.size());
  cgp::kernels::vecadd<float>(device.stream(), a.all(), a.all(), c.all());
  device.sync();
  for (float v : c.to_vector())
    if (v != 2) return std::printf("c is %g, should be 2\n", double(v)), 1;
  std::printf("right\n");
}
