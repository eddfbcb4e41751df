// expect: no matching function
// SPDX-License-Identifier: Apache-2.0
#include "cgp/runtime/launcher.h"
using namespace cgp::runtime;
void f(Stream& s, const LoadedKernel& k, const float* p) { k(s, Dim3{1}, p); }
