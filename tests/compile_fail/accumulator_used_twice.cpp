// expect: deleted
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/wgmma.h"
using namespace cgp::dsl;
using A = Tile<bf16, 64, 64>;
using B = Tile<bf16, 128, 64>;
using RingT = Ring<ByThreads, A, B>;
void f(Warpgroup& wg, RingT& ring) {
  auto acc = zeros<f32, 64, 128>(wg);
  auto busy = wgmma(wg, acc, ring.take(wg));
}
