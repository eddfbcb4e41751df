// expect: has no member named .*values|no member named 'values'
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/dyn_acc.h"
using namespace cgp::dsl;
void f(Warpgroup& wg, DynRing& ring) {
  auto stage = ring.take(wg);
  auto busy = wgmma(wg, fresh_accumulator(wg, cgp::ptx::Mod::f32, 64, 200), std::move(stage), {{0, 1}});
  (void)busy.values();
}
