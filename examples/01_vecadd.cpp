// SPDX-License-Identifier: Apache-2.0
// Rung 1: a kernel from scratch. c[i] = a[i] + b[i].
//   A kernel is a C++ function that records PTX while it runs. Its signature is the kernel's interface: In is
//   read-only memory, Disjoint is written only at indices no other thread holds, Val is a number.
//   C++ control flow happens now, at build time; k.* control flow happens on the GPU.
#include "examples/example.h"

namespace {

using namespace cgp::dsl;

void vecadd(Kernel& k, In<f32> a, In<f32> b, Disjoint<f32> c, Val<u32> n) {
  k.block(256);
  k.each_thread(n, [&](ThreadIndex i) { c.st(i, a.ld(i) + b.ld(i)); });  // threads beyond n do nothing
}

bool run(const cgp::runtime::Device& device) {
  // 1. Record the kernel for this device's architecture. The text is what a driver (or the emulator) gets.
  const auto built = build("vecadd", device.info().arch, vecadd);
  std::printf("%s\n", built.ptx().c_str());

  // 2. Load it.
  const auto fn = device.load(cgp::launch::image(built));

  // 3. Data to the device, launch, results back. Arguments are checked against the signature.
  const std::uint32_t n = 1000;
  const auto host_a = example::small_integers<float>(n, 1), host_b = example::small_integers<float>(n, 2);
  const auto a = device.upload<float>(host_a), b = device.upload<float>(host_b);
  auto c = device.alloc<float>(n);
  fn(device.stream(), cgp::runtime::grid_for(n, 256), a, b, c, n);
  device.sync();  // what went wrong on the device is thrown here

  // 4. The oracle: a plain loop.
  const auto got = c.to_vector();
  for (std::size_t i = 0; i < n; ++i)
    if (got[i] != host_a[i] + host_b[i]) return false;
  return true;
}

}  // namespace

int main(int argc, char** argv) { return example::main_on_device(argc, argv, run); }
