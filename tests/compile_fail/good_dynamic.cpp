// SPDX-License-Identifier: Apache-2.0
// What the refusals of tiles with build-time shapes are the wrong twins of.
#include "cgp/dsl/mma/dyn_epilogue.h"
using namespace cgp::dsl;

DynAcc multiply(Kernel& k, Warpgroup& wg, DynRing& ring, Val<u32> n) {
  auto fresh = fresh_accumulator(wg, cgp::ptx::Mod::f32, 64, 200);
  auto last = k.loop(n, wgmma(wg, std::move(fresh), ring.take(wg), DynProducts{{0, 1}}),
                     [&](Val<u32>, InFlight<DynAcc, 1> busy) {
                       return std::move(busy).then(wg, ring.take(wg), DynProducts{{0, 1}});
                     });
  auto stage = ring.take(wg);
  auto again = std::move(stage);
  std::move(again).release(wg);
  return std::move(last).wait(wg);
}
PendingStore store(Warpgroup& wg, DynStaging& s, DynTmaOut c, PendingStore p, const DynAcc& acc) {
  return s.store(wg, std::move(p), at(c, 0, 0, 0),
                 [&](const DynSmemTile& tile) { store_tile(wg, acc, tile); });
}
