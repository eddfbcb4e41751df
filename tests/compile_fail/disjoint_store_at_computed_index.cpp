// expect: no matching
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
void f(Kernel& k, In<f32> a, Disjoint<f32> c, Val<u32> n) {
  k.grid_stride(n, [&](ThreadIndex i) { c.st(i + 1, a.ld(i)); });
}
