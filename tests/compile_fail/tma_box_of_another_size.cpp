// expect: the box of a tile must hold exactly the tile's elements
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/wgmma.h"
using namespace cgp::dsl;
using A = Tile<bf16, 64, 64>;
using B = Tile<bf16, 128, 64>;
using RingT = Ring<ByThreads, A, B>;
auto f(TmaIn<A, 2, 64, 64> a) { return at(a, 0, 0, 0); }
