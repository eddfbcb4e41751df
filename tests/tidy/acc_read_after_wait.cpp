// SPDX-License-Identifier: Apache-2.0
// The accepted twin: every state is used once.
#include "cgp/dsl/kernel.h"
#include "cgp/dsl/mma/wgmma.h"
using namespace cgp::dsl;
using AbRing = Ring<ByThreads, Tile<bf16, 64, 64>, Tile<bf16, 128, 64>>;

void f(Warpgroup& wg, AbRing& ring, Out<f32> c) {
  auto acc = wgmma(wg, fresh<f32, 64, 128>(wg), ring.take(wg)).wait(wg);
  auto busy = wgmma(wg, std::move(acc), ring.take(wg));
  auto done = std::move(busy).wait(wg);
  std::move(done).each_pair(wg, [&](Val<u32> r, Val<u32> col, Val<f32> lo, Val<f32>) { c.st(r + col, lo); });
}
