// expect: an atomic ends with its operation
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
void f(Out<u32> a) { atom<relaxed, gpu>(a, 0, 1u); }
