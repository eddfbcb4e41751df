// expect: a block has 1 to 1024 threads
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
void f(Kernel& k) { k.block<1025>(); }
