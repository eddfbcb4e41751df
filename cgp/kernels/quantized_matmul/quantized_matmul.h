// SPDX-License-Identifier: Apache-2.0
#pragma once
// Products with quantised weights of any format (dequantize.h), any number of rows, on every GPU from sm_75 on.
//   y [m, n] = x [m, k] w'     w [n, k]
//   y [m, k] = x [m, n] w      with `transposed`: the gradient of the input of a layer whose weight is frozen
// The fastest way there is: weight_only where packed weights are given (sm_90: up to 16 rows on mma, more on wgmma; else from
// sm_80 on few rows); up to 4 rows packed_gemv (packed weights) or quantized_gemv on every other GPU, where they have the
// format; else slabs of the weight (of its rows; transposed: of its columns) are dequantised to x's type in a workspace and
// multiplied by gemm. An element of y is one sum over the whole depth either way.
#include "cgp/kernels/dequantize/dequantize.h"
#include "cgp/kernels/weight_only/weight_only_wgmma.h"

namespace cgp::kernels {

struct QuantizedMatmul {
  QuantizedWeight weight;
  /// u8 [packed_size()] as pack_weight() makes them of the weight, optional; formats of packed_format().
  View packed{};
  bool transposed = false;
  View x, y;                           ///< x: f32, f16 or bf16; y: the same or f32
  std::uint64_t m = 0;                 ///< rows of x
  row::Layout x_layout{}, y_layout{};  ///< pitch alone
  View workspace{};                    ///< u8 [quantized_matmul_plan().workspace], at a multiple of 256
  std::uint64_t workspace_limit = std::uint64_t(64)
                                  << 20;  ///< bytes; more only where one least slab needs more
  View error_flag{};                      ///< as Dequantize::error_flag; the weights are dequantised then
};
struct QuantizedMatmulPlan {
  bool weight_only = false;     ///< packed weights are multiplied as they are
  bool packed_gemv = false;     ///< packed_gemv(): packed weights without tensor cores
  bool gemv = false;            ///< quantized_gemv(): decoded in registers
  bool wgmma = false;           ///< ... by weight_wgmma_gemm(), which rounds each to x's type
  bool gather = false;          ///< ... after columns of x were gathered in the workspace (act-order)
  std::uint64_t slab = 0;       ///< rows (transposed: columns) of the weight that are dequantised at a time
  std::uint64_t workspace = 0;  ///< bytes
  std::string why;
};
/// The format of packed weights; none: weight_only does not have it. Those that a device packs: q4_0, q8_0, q4_k, q5_k and q6_k.
std::optional<WeightFormat> packed_format(QuantizedFormat f);
/// And blocks of nf4, mxfp4 and iq4_nl, GPTQ and AWQ with groups of 32, 64 or 128 inputs, and NF4 with blocks of 64 in rows of whole blocks.
std::optional<WeightFormat> packed_format(const QuantizedWeight& w);
/// Bytes of the packed weight, 0: it cannot be packed (of g_idx: a group has not `group` inputs). With a g_idx out of order the inputs'
/// order lies behind the tiles (packed_inputs()). The views are addresses of host memory.
std::uint64_t packed_size(const QuantizedWeight& host);
/// The views of `host` are addresses of host memory. ArgumentError where they do not fit the weight or `packed` is not of packed_size();
/// Unsupported without a packed_format().
void pack_weight(const QuantizedWeight& host, std::span<std::byte> packed);
/// The same on the device: the views are those of device memory. Unsupported also for what the host alone packs: g_idx, absmax that is
/// quantised.
void pack_weight(runtime::Stream& s, const QuantizedWeight& w, const View& packed);
/// The selector: a function of formats, shapes and the device. Views need types and layouts alone.
QuantizedMatmulPlan quantized_matmul_plan(const QuantizedMatmul& p, const runtime::DeviceInfo& d);
/// ArgumentError naming the argument that does not fit; nothing is written then.
void quantized_matmul(runtime::Stream& s, const QuantizedMatmul& p);

KernelEntry quantized_matmul_entry();

}  // namespace cgp::kernels
