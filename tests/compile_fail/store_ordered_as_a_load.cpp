// expect: a store is never acquire
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
void f(Out<f32> a) { a.st<acquire, gpu>(0, 1.f); }
