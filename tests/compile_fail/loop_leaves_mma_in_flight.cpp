// expect: loop body must hand back the state it received
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/wgmma.h"
using namespace cgp::dsl;
using A = Tile<bf16, 64, 64>;
using B = Tile<bf16, 128, 64>;
using RingT = Ring<ByThreads, A, B>;
void f(Kernel& k, Warpgroup& wg, RingT& ring, Val<u32> n) {
  auto r = k.loop(n, zeros<f32, 64, 128>(wg),
                  [&](Val<u32>, auto acc) { return wgmma(wg, std::move(acc), ring.take(wg)); });
}
