// expect: discards qualifiers|constraints not satisfied|no matching|not marked const
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "cgp/runtime/buffer.h"
using namespace cgp::runtime;
void f(const Buffer<float>& b, const std::vector<float>& v) { b.upload(v); }
