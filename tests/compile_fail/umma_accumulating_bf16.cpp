// expect: tensor cores accumulate f32, f16 or s32
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/umma.h"
using namespace cgp::dsl;
using A = Tile<bf16, 128, 64>;
using B = Tile<bf16, 128, 64>;
using Sums = TmemAcc<f32, 128, 128>;
using Accs = Accumulators<Sums, 2>;
using Bad = TmemSlots<TmemAcc<bf16, 128, 128>, 1>;
constexpr int n = Bad::columns;
