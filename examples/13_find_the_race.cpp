// SPDX-License-Identifier: Apache-2.0
// Rung 13: a race, found without a GPU.
//   A block adds up 64 numbers: each of its two warps leaves its sum in shared memory, then one thread adds the sums. A barrier
//   between the two is missing. On a GPU the result is often right. The emulator names both accesses, the lines below that
//   made them, and the edge that is missing. Put `k.sync();` where it belongs: the finding is gone.
#include "examples/example.h"

namespace {

using namespace cgp::dsl;
constexpr int kThreads = 64, kWarps = kThreads / 32;

void sum(Kernel& k, In<f32> x, Out<f32> total) {
  k.block(kThreads);
  Warp warp = k.warp();
  auto lanes = x.ld(k.tid());
  const auto pair = lanes + shfl<bfly>(warp, lanes, 1);
  const auto four = pair + shfl<bfly>(warp, pair, 2);
  const auto eight = four + shfl<bfly>(warp, four, 4);
  const auto half = eight + shfl<bfly>(warp, eight, 8);
  const auto whole = half + shfl<bfly>(warp, half, 16);

  const auto partial = k.shared<f32>(kWarps);
  partial.st_if(warp.lane() == 0u, warp.index, whole);
  k.if_(k.tid() == 0u, [&] {
    std::vector<Val<f32>> sums{partial.ld(0)};
    for (int w = 1; w < kWarps; ++w) sums.push_back(sums.back() + partial.ld(w));
    total.st(0, sums.back());
  });
}

bool run(const cgp::runtime::Device& device) {
  using cgp::runtime::Device;
  if (!device.is_emulator()) throw cgp::Unsupported("this rung is about the emulator's findings");
  device.set_findings(Device::Findings::collect);  // default: thrown as an EmuFault by the next wait
  const auto x = device.upload<float>(example::small_integers<float>(kThreads, 1));
  auto total = device.alloc<float>(1);
  const auto fn = device.load(cgp::launch::image(build("sum", device.info().arch, sum)));
  fn(device.stream(), cgp::runtime::Dim3{1}, x, total);
  device.sync();

  bool race = false;
  for (const auto& f : device.last_result().result->findings) {
    std::printf("%s\n", cgp::emu::describe(f).c_str());
    race |= f.cls == "race.shared" && f.file.find("13_find_the_race.cpp") != std::string::npos;
  }
  return race;
}

}  // namespace

int main(int argc, char** argv) { return example::main_on_device(argc, argv, run); }
