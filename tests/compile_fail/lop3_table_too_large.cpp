// expect: lop3: the table has 8 bits
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
auto f(Val<u32> a) { return lop3<256>(a, a, a); }
