// expect: no match for .operator\+.|invalid operands
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
auto f(Val<u8> a, Val<u8> b) { return a + b; }
