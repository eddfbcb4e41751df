// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/row/entries.h"

#include "cgp/kernels/norm/norm.h"

namespace cgp::kernels {

std::vector<KernelEntry> row_entries() {
  return {layer_norm_entry(), layer_norm_backward_entry(), rms_norm_entry(), rms_norm_backward_entry()};
}

}  // namespace cgp::kernels
