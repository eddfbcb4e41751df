// expect: umma has no such combination of element types
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/umma.h"
using namespace cgp::dsl;
using A = Tile<bf16, 128, 64>;
using B = Tile<bf16, 128, 64>;
using Sums = TmemAcc<f32, 128, 128>;
using Accs = Accumulators<Sums, 2>;
void f(Thread& t, Accs& accs, SmemTile<Tile<tf32, 128, 32>> a, SmemTile<Tile<tf32, 32, 128>> b) {
  auto d = umma<Major::k, Major::mn>(t, accs.acquire(t), a, b);
}
