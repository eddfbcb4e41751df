// expect: the parts must fill the whole
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
auto f(Val<u32> a) { return unpack<u64>(a); }
