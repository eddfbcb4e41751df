// expect: cache words are for global memory
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
void f(Kernel& k) { k.shared<f32>(32).ld<evict_last>(0); }
