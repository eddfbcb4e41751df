// expect: shared memory has 32-bit addresses
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
void f(Kernel& k, Val<u64> i) { k.shared<f32>(32).ld(i); }
