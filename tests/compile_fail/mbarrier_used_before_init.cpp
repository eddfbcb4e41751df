// expect: has no member named .*wait|no member named 'wait'
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/pipeline/mbarrier.h"
using namespace cgp::dsl;
void f(Kernel& k) { mbarrier<ByBytes>(k).wait(0); }
