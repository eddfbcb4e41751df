// SPDX-License-Identifier: Apache-2.0
// The only list of kernels. Explicit, because registration by static initialisers vanishes when a static
// library is linked.
#include "cgp/kernels/catalog.h"

#include "cgp/kernels/attention/attention.h"
#include "cgp/kernels/gemm/gemm.h"
#include "cgp/kernels/grouped_gemm/grouped_gemm.h"
#include "cgp/kernels/reduce/reduce.h"
#include "cgp/kernels/softmax/softmax.h"
#include "cgp/kernels/transpose/transpose.h"
#include "cgp/kernels/vecadd/vecadd.h"

namespace cgp::kernels {

std::span<const KernelEntry> catalog() {
  static const std::vector<KernelEntry> all{attention_entry(), gemm_entry(),    grouped_gemm_entry(),
                                            reduce_entry(),    softmax_entry(), transpose_entry(),
                                            vecadd_entry()};
  return all;
}

}  // namespace cgp::kernels
