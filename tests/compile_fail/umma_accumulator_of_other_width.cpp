// expect: the accumulator is as wide as the B tile has rows
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/umma.h"
using namespace cgp::dsl;
using A = Tile<bf16, 128, 64>;
using B = Tile<bf16, 128, 64>;
using Sums = TmemAcc<f32, 128, 128>;
using Accs = Accumulators<Sums, 2>;
void f(Thread& t, Accs& accs, SmemTile<A> a, SmemTile<Tile<bf16, 64, 64>> b) {
  auto d = umma(t, accs.acquire(t), a, b);
}
