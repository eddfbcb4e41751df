// expect: a predicate is no parameter
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
void f(Kernel&, Val<pred>) {}
auto g() { return build("f", "sm_90", f); }
