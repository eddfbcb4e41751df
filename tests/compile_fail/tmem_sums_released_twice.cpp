// expect: discards qualifiers|rvalue|passing|no matching
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/umma.h"
using namespace cgp::dsl;
using A = Tile<bf16, 128, 64>;
using B = Tile<bf16, 128, 64>;
using Sums = TmemAcc<f32, 128, 128>;
using Accs = Accumulators<Sums, 2>;
void f(Warpgroup& wg, Accs& accs) {
  auto acc = accs.take(wg);
  acc.release(wg);
}
