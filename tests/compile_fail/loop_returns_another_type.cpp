// expect: loop body must hand back the state it received
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
void f(Kernel& k, Val<f32> x, Val<u32> n) {
  k.loop(n, x, [&](Val<u32> i, Val<f32>) { return i; });
}
