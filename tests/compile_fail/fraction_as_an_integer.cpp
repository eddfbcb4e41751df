// expect: could not convert|no viable conversion
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;
Val<u32> f() { return 1.5f; }
