// expect: wmma has no such shape
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/wmma.h"
using namespace cgp::dsl;
void f(Warp& w, In<tf32> a) { (void)wmma_load_a<tf32, 16, 16, 16>(w, a, 16); }
