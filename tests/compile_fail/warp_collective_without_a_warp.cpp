// expect: no matching
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
auto f(Kernel& k, Val<u32> v) { return redux<op::add>(k, v); }
