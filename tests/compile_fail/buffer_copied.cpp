// expect: deleted
// SPDX-License-Identifier: Apache-2.0
#include "cgp/runtime/buffer.h"
using namespace cgp::runtime;
Buffer<float> f(const Buffer<float>& b) { return b; }
