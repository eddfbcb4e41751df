// expect: use of deleted function|call to (implicitly-)?deleted|no matching function
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/dyn_acc.h"
using namespace cgp::dsl;
void f(Warpgroup& wg, DynRing& ring) {
  (void)wgmma(wg, fresh_accumulator(wg, cgp::ptx::Mod::f32, 64, 200), ring, DynProducts{{0, 1}});
}
