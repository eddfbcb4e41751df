// expect: deleted function
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
void f(Kernel&, Out<f32> c, Val<u32> i, Val<u32> n) {
  if (i < n) c.st(i, 0.f);
}
