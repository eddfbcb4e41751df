// expect: constraints not satisfied|associated constraints are not satisfied|no matching
// SPDX-License-Identifier: Apache-2.0
#include "cgp/runtime/typed_stream.h"
using namespace cgp::runtime;
void f(TypedStream<Idle> s, const LoadedKernel& k) { s.launch(k, Dim3{1}); }
