// expect: constraints not satisfied|no matching
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
void f(Kernel&, In<f32> a, Val<u32> i) { a.st(i, 1.f); }
