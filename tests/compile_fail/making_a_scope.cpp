// expect: private|protected
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
void f(Kernel& k) { Warp w(k, Val<u32>(0)); }
