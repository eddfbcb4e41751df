// SPDX-License-Identifier: Apache-2.0
#pragma once
// One step of AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", with the form of torch.optim.AdamW):
//   m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
//   w = (1 - rate decay) w - rate / (1 - beta1^step) * m / (sqrt(v / (1 - beta2^step)) + epsilon)
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/kernels/common/view.h"

namespace cgp::kernels {

struct AdamW {
  View weight, m, v;  ///< f32 [count], read and written; they do not overlap
  View gradient;      ///< f32 [count]
  std::uint64_t count = 0;
  double rate = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, decay = 1e-2;
  std::uint64_t step = 1;  ///< from 1 on
};
/// Queues the step; any count, 0 included, any alignment of the views. Throws ArgumentError naming the argument.
void adamw(runtime::Stream& s, const AdamW& a);

KernelEntry adamw_entry();

}  // namespace cgp::kernels
