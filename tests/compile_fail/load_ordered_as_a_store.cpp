// expect: a load is never release
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
void f(Out<f32> a) { a.ld<release, gpu>(0); }
