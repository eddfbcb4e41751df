// expect: could not convert|no matching|cannot convert|no viable conversion
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "cgp/runtime/buffer.h"
using namespace cgp::runtime;
void f(Buffer<float>& b, const std::vector<double>& v) { b.upload(v); }
