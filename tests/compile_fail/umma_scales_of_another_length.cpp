// expect: one scale for every 32 elements of K
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/umma.h"
using namespace cgp::dsl;
using A = Tile<bf16, 128, 64>;
using B = Tile<bf16, 128, 64>;
using Sums = TmemAcc<f32, 128, 128>;
using Accs = Accumulators<Sums, 2>;
using T = Tile<e4m3, 128, 128>;
using S = ScaleTile<ue8m0, 128, 8>;
using Where = ScalePair<TmemScales<ue8m0, 128, 8>, TmemScales<ue8m0, 128, 8>>;
void f(Thread& t, Accs& accs, Ring<ByUmma, T, T, S, S>& ring, Where where) {
  auto d = umma_scaled(t, accs.acquire(t), ring.take(t), where);
}
