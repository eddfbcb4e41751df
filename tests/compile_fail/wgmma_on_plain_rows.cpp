// expect: wgmma reads swizzled tiles
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/wgmma.h"
using namespace cgp::dsl;
using A = Tile<bf16, 64, 64, Swizzle::none>;
void f(Warpgroup& wg, SmemTile<A> a) { (void)wgmma(wg, fresh<f32, 64, 64>(wg), a, a).wait(wg); }
