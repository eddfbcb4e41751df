// expect: compare packed values lane by lane
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
auto f(Val<f16x2> a, Val<f16x2> b) { return a < b; }
