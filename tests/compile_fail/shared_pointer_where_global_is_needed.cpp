// expect: could not convert|no viable conversion|cannot convert|no known conversion
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
void g(Out<f32> p);
void f(Kernel& k) { g(k.shared<f32>(32)); }
