// SPDX-License-Identifier: Apache-2.0
// A program of another project: a kernel of its own, recorded and run on the emulator.
#include <cstdint>
#include <cstdio>
#include <vector>

#include <cgp/launch/image.h>

namespace {

using namespace cgp::dsl;

void saxpy(Kernel& k, Val<f32> alpha, In<f32> x, Disjoint<f32> y, Val<u32> n) {
  k.block(128);
  k.each_thread(n, [&](ThreadIndex i) { y.st(i, fma(alpha, x.ld(i), y.ld(i))); });
}

}  // namespace

int main() {
  const auto device = cgp::runtime::Device::open("emu:sm_90a");
  const auto fn = device.load(cgp::launch::image(build("saxpy", device.info().arch, saxpy)));
  const std::uint32_t n = 1000;
  const std::vector<float> ones(n, 1);
  const auto x = device.upload<float>(ones);
  auto y = device.upload<float>(ones);
  fn(device.stream(), cgp::runtime::grid_for(n, 128), 2.0f, x, y, n);
  device.sync();
  for (float v : y.to_vector())
    if (v != 3) return std::printf("y is %g, should be 3\n", double(v)), 1;
  std::printf("right\n");
}
