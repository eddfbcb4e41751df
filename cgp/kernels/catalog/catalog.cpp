// SPDX-License-Identifier: Apache-2.0
// The only list of kernels. Explicit, because registration by static initialisers vanishes when a static
// library is linked.
#include "cgp/kernels/catalog/catalog.h"

#include <algorithm>

#include "cgp/kernels/attention/attention.h"
#include "cgp/kernels/catalog/entries.h"
#include "cgp/kernels/gemm/api/gemm.h"
#include "cgp/kernels/gemm_ladder/gemm_ladder.h"
#include "cgp/kernels/grouped_gemm/grouped_gemm.h"
#include "cgp/kernels/reduce/reduce.h"
#include "cgp/kernels/transpose/transpose.h"
#include "cgp/kernels/vecadd/vecadd.h"

namespace cgp::kernels {

std::span<const KernelEntry> catalog() {
  static const std::vector<KernelEntry> all = [] {
    std::vector<KernelEntry> list{attention_entry(),    gemm_entry(),   gemm_ladder_entry(),
                                  grouped_gemm_entry(), reduce_entry(), transpose_entry(),
                                  vecadd_entry()};
    for (auto& e : row_entries()) list.push_back(std::move(e));
    std::sort(list.begin(), list.end(),
              [](const KernelEntry& a, const KernelEntry& b) { return a.name < b.name; });
    return list;
  }();
  return all;
}

}  // namespace cgp::kernels
