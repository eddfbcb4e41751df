// expect: no match for .operator\+.|invalid operands
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
auto f(Val<f32> x, Val<u32> n) { return x + n; }
