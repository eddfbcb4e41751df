// expect: deleted
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/pipeline/async.h"
using namespace cgp::dsl;
void f(const Ready<Tile<bf16, 64, 64>>& stage) { auto kept = stage; }
