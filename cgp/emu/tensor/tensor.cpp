// SPDX-License-Identifier: Apache-2.0
// Registers the tensor-core and asynchronous instruction families.
#include "cgp/emu/decode/tensor_families.h"
#include "cgp/emu/tensor/tcgen05.h"

namespace cgp::emu {

void add_tensor_families(Table& t) {
  add_matrix(t);
  add_cp_async(t);
  add_mbarrier(t);
  add_bulk(t);
  add_tensor_copy(t);
  add_tensor_map(t);
  add_wgmma(t);
  add_cluster(t);
  add_launch_control(t);
  add_tcgen05_alloc(t);
  add_tcgen05_transfer(t);
  add_tcgen05_mma(t);
  add_tcgen05_copy(t);
  add_tcgen05_order(t);
}

}  // namespace cgp::emu
