// expect: stages of a ring that the tensor core frees
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/umma.h"
using namespace cgp::dsl;
using A = Tile<bf16, 128, 64>;
using B = Tile<bf16, 128, 64>;
using Sums = TmemAcc<f32, 128, 128>;
using Accs = Accumulators<Sums, 2>;
void f(Thread& t, Accs& accs, Ring<ByThreads, A, B>& ring) {
  umma(t, accs.acquire(t), ring.take(t)).commit(t);
}
