// SPDX-License-Identifier: Apache-2.0
// Kernels on rows and elements on a GPU, against the device's own copy of as many bytes, in one run. Prefixes
// that start with "sweep" try tunings beside the selected one.
//   cgp_rows_bench [--json FILE] [--rounds N] [PREFIX...]     e.g. cgp_rows_bench rms_norm sweep/rms_norm
#include "cgp/kernels/bench/rows_list_bench.h"
#include "cgp/kernels/bench/table_bench.h"

int main(int argc, char** argv) {
  using namespace cgp::kernels;
  return bench_main("cgp_rows_bench", argc, argv, 25, [](BenchTable& b) {
    bench_norms(b);
    bench_losses(b);
    bench_activations(b);
    bench_more_rows(b);
  });
}
