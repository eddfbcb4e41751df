// expect: registers cannot be indexed at run time
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
auto f(RegGroup<f32, 8> g, Val<u32> i) { return g[i]; }
