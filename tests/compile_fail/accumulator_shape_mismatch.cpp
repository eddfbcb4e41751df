// expect: accumulator width must equal the rows of the B tile
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/wgmma.h"
using namespace cgp::dsl;
using A = Tile<bf16, 64, 64>;
using B = Tile<bf16, 128, 64>;
using RingT = Ring<ByThreads, A, B>;
void f(Warpgroup& wg, RingT& ring) { (void)wgmma(wg, fresh<f32, 64, 256>(wg), ring.take(wg)).wait(wg); }
