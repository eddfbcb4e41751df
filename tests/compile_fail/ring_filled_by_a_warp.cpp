// expect: no matching function|cannot convert|no viable conversion|invalid initialization
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/wgmma.h"
using namespace cgp::dsl;
using A = Tile<bf16, 64, 64>;
using B = Tile<bf16, 128, 64>;
using RingT = Ring<ByThreads, A, B>;
void f(Warp& w, RingT& ring, TmaIn<A> a, TmaIn<B> b) { ring.fill(w, at(a, 0, 0), at(b, 0, 0)); }
