// expect: nodiscard|ignoring return
// SPDX-License-Identifier: Apache-2.0
#pragma GCC diagnostic error "-Wunused-result"
#pragma GCC diagnostic error "-Wunused-value"
#include "cgp/runtime/typed_stream.h"
using namespace cgp::runtime;
void f(TypedStream<Recording> s) { std::move(s).submit(); }
