// expect: discards qualifiers|passing .* as 'this'|expects an rvalue|no matching|is an lvalue
// SPDX-License-Identifier: Apache-2.0
#include "cgp/runtime/typed_stream.h"
using namespace cgp::runtime;
void f(TypedStream<Recording> s) { (void)s.submit(); }
