// expect: no matching function for call to
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/dyn_epilogue.h"
using namespace cgp::dsl;
void f(Warpgroup& wg, DynRing& ring, DynSmemTile& tile) {
  auto stage = ring.take(wg);
  auto busy =
      wgmma(wg, fresh_accumulator(wg, cgp::ptx::Mod::f32, 64, 200), std::move(stage), DynProducts{{0, 1}});
  store_tile(wg, busy, tile);
}
