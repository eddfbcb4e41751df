// expect: a pointer points to whole bytes
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
void f(In<e2m1> a) { a.ld(0); }
