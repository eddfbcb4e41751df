// expect: no matching function|cannot convert|invalid initialization
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/wgmma.h"
using namespace cgp::dsl;
using A = Tile<bf16, 64, 64>;
void f(Warp& w, Warpgroup& wg, SmemTile<A> a) { (void)wgmma(w, fresh<f32, 64, 64>(wg), a, a); }
