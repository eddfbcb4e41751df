// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/catalog/entries.h"

#include "cgp/kernels/activation/activation.h"
#include "cgp/kernels/argmax/argmax.h"
#include "cgp/kernels/bias_gradient/bias_gradient.h"
#include "cgp/kernels/cross_entropy/cross_entropy.h"
#include "cgp/kernels/cumsum/cumsum.h"
#include "cgp/kernels/dequantize/dequantize.h"
#include "cgp/kernels/dropout/dropout.h"
#include "cgp/kernels/embedding/embedding.h"
#include "cgp/kernels/norm/norm.h"
#include "cgp/kernels/optimizer/adamw.h"
#include "cgp/kernels/quantized_matmul/quantized_matmul.h"
#include "cgp/kernels/rope/rope.h"
#include "cgp/kernels/softmax/softmax.h"
#include "cgp/kernels/topk/topk.h"

namespace cgp::kernels {

std::vector<KernelEntry> row_entries() {
  return {activation_entry(),
          adamw_entry(),
          activation_backward_entry(),
          cross_entropy_entry(),
          argmax_entry(),
          cumsum_entry(),
          dequantize_entry(),
          dropout_entry(),
          bias_gradient_entry(),
          embedding_entry(),
          embedding_backward_entry(),
          gated_entry(),
          gated_backward_entry(),
          layer_norm_entry(),
          layer_norm_backward_entry(),
          log_softmax_entry(),
          log_softmax_backward_entry(),
          quantized_matmul_entry(),
          rms_norm_entry(),
          rms_norm_backward_entry(),
          rope_entry(),
          softmax_entry(),
          softmax_backward_entry(),
          topk_entry()};
}

}  // namespace cgp::kernels
