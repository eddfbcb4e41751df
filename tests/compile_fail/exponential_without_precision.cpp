// expect: name the precision: ex2<approx>
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
auto f(Val<f32> a) { return ex2(a); }
