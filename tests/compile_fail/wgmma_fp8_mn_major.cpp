// expect: wgmma has no such combination
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/wgmma.h"
using namespace cgp::dsl;
using A = Tile<e4m3, 64, 128>;
void f(Warpgroup& wg, SmemTile<A> a, SmemTile<Tile<e4m3, 128, 64>> b) {
  (void)wgmma<Major::k, Major::mn>(wg, fresh<f32, 64, 64>(wg), a, b).wait(wg);
}
