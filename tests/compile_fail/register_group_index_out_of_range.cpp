// expect: register group index out of range
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
auto f(RegGroup<f32, 8> g) { return g.get<8>(); }
