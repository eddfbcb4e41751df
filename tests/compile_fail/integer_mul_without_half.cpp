// expect: an integer mul names the half it keeps
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
auto f(Val<u32> a, Val<u32> b) { return mul(a, b); }
