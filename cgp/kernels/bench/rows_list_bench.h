// SPDX-License-Identifier: Apache-2.0
#pragma once
// The families that cgp_rows_bench measures.
#include "cgp/kernels/bench/table_bench.h"

namespace cgp::kernels {

void bench_norms(BenchTable& b);
void bench_losses(BenchTable& b);
void bench_activations(BenchTable& b);
void bench_more_rows(BenchTable& b);

}  // namespace cgp::kernels
