// expect: vectors have 1, 2, 4, 8
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
void f(In<f32> a) { a.ld<3>(0); }
