// expect: a source's tile type differs from the ring's
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/wgmma.h"
using namespace cgp::dsl;
using A = Tile<bf16, 64, 64>;
using B = Tile<bf16, 128, 64>;
using RingT = Ring<ByThreads, A, B>;
void f(Thread& t, RingT& ring, TmaIn<A> a, TmaIn<A> b) { ring.fill(t, at(a, 0, 0), at(b, 0, 0)); }
