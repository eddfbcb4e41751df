// expect: incomplete type|undefined template
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
void f(Kernel&, int*) {}
auto g() { return build("f", "sm_90", f); }
