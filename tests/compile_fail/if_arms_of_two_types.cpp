// expect: both arms of if_ must return the same type
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
void f(Kernel& k, Val<f32> x, Val<u32> n) {
  k.if_(
      n == 0, [&] { return x; }, [&] { return n; });
}
