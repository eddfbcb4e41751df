// expect: A and B tiles disagree on the K extent
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/wgmma.h"
using namespace cgp::dsl;
using A = Tile<bf16, 64, 64>;
using B = Tile<bf16, 128, 64>;
using RingT = Ring<ByThreads, A, B>;
void f(Warpgroup& wg, SmemTile<A> a, SmemTile<Tile<bf16, 128, 32>> b) {
  (void)wgmma(wg, fresh<f32, 64, 128>(wg), a, b).wait(wg);
}
