// expect: a float division names its rounding
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
auto f(Val<f32> a, Val<f32> b) { return div(a, b); }
