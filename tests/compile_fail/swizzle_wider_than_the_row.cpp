// expect: a 128-byte swizzle needs rows of a multiple of 128 bytes
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/memory/tile.h"
using namespace cgp::dsl;
Tile<bf16, 128, 32, Swizzle::b128> t;
int bytes = decltype(t)::bytes;
