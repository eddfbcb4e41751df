// expect: mma.sync has no such shape for these types
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/mma.h"
using namespace cgp::dsl;
void f(Warp& w, FragA<bf16, 16, 16> a, FragB<f16, 16, 8> b, FragC<f32, 16, 8> c) {
  (void)mma(w, a, b, std::move(c));
}
