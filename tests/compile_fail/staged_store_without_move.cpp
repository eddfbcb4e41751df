// expect: deleted
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/epilogue.h"
using namespace cgp::dsl;
using C = Tile<bf16, 64, 64>;
void f(Warpgroup& wg, Staging<C>& s, TmaOut<C> c, PendingStore& p) {
  (void)s.store(wg, p, at(c, 0, 0), [](auto&) {});
}
