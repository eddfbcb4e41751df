// expect: constraints not satisfied|no matching|invalid reference
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/pipeline/mbarrier.h"
using namespace cgp::dsl;
void f(Thread& t, Mbarrier<ByArrivals>& b) { b.arrive_expect(t, 128); }
