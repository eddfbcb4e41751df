// expect: ld.nc is for data nobody writes
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
void f(In<f32> a) { a.ld<acquire, gpu, nc>(0); }
