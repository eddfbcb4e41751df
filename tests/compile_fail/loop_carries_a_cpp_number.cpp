// expect: loop state must be a Val
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
void f(Kernel& k, Val<u32> n) {
  k.loop(n, 0, [&](Val<u32>, int i) { return i + 1; });
}
