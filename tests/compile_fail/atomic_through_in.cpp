// expect: constraints not satisfied|no matching
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
void f(In<u32> a) { atom<op::add>(a, 0, 1u); }
