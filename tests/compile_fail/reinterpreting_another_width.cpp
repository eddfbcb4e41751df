// expect: both types must have the same width
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
auto f(Val<u64> a) { return bits<f32>(a); }
