// expect: use of deleted function|call to (implicitly-)?deleted
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/pipeline/dyn_ring.h"
using namespace cgp::dsl;
void f(Warpgroup& wg, DynRing& ring) {
  auto stage = ring.take(wg);
  auto twice = stage;
  std::move(stage).release(wg);
}
