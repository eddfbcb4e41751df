// expect: constraints not satisfied|unsatisfied constraints|no matching|invalid reference
// SPDX-License-Identifier: Apache-2.0
#include "cgp/runtime/typed_stream.h"
using namespace cgp::runtime;
void f(TypedStream<Submitted> s) { (void)std::move(s).begin(); }
