// expect: ldmatrix.trans moves 16-bit elements
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/mma.h"
using namespace cgp::dsl;
void f(Warp& w) { WarpB<Tile<s8, 32, 64>, 32, Major::mn> b(w, 0); }
