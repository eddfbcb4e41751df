// expect: deleted
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
void f(Kernel& k, In<f32> a, Val<u32> n) {
  Val<f32> s = 0.f;
  k.loop(n, [&](Val<u32> i) { s = s + a.ld(i); });
}
