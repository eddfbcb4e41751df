// expect: inc and dec count in u32
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
void f(Out<f32> a) { atom<inc>(a, 0, 1.f); }
