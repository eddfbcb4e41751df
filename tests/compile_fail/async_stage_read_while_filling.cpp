// expect: has no member named .*get|no member named 'get'
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/pipeline/async.h"
using namespace cgp::dsl;
void f(Filling<Tile<bf16, 64, 64>>& stage) { (void)stage.get<0>(); }
