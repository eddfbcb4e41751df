// expect: deleted
// SPDX-License-Identifier: Apache-2.0
#include "cgp/runtime/typed_stream.h"
using namespace cgp::runtime;
void f(TypedStream<Recording>& s) { TypedStream<Recording> twin = s; }
