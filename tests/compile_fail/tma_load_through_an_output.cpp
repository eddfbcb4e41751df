// expect: no matching function|mismatched types|no type named|a source's tile|no viable|cannot convert
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/pipeline/tma.h"
using namespace cgp::dsl;
using A = Tile<bf16, 64, 64>;
void f(Thread& t, TmaOut<A> a) { prefetch(t, at(a, 0, 0)); }
