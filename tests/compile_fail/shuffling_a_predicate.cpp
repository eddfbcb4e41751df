// expect: a predicate is shared with vote
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
auto f(Warp& w, Val<pred> p) { return shfl<bfly>(w, p, 1); }
