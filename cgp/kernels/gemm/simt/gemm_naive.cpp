// SPDX-License-Identifier: Apache-2.0
// gemm naive: one thread, one element of C.
//   who      a 16 x 16 block of threads computes a 16 x 16 tile
//   memory   every operand element is read from global memory for each use; strides give all layouts
//   needs    any device (bf16: sm_80). The bottom of the ladder, and the path for k = 0
#include "cgp/kernels/gemm/api/gemm.h"
#include "cgp/kernels/gemm/epilogue/gemm_epilogue.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

template <class T>
void gemm_naive_kernel(Kernel& k, In<T> a, In<T> b, InOut<T> c, Val<u64> m, Val<u64> n, Val<u64> kk,
                       Val<u64> a_row, Val<u64> a_col, Val<u64> b_row, Val<u64> b_col, Val<u64> ldc,
                       Val<u64> stride_a, Val<u64> stride_b, Val<u64> stride_c, Val<f32> alpha, Val<f32> beta,
                       Val<u32> tiles_n) {
  k.block(256);
  const auto batch = to<u64>(k.ctaid_z());
  const auto row = to<u64>(k.ctaid_x() / tiles_n) * 16 + to<u64>(k.tid() / 16u);
  const auto col = to<u64>(k.ctaid_x() % tiles_n) * 16 + to<u64>(k.tid() % 16u);
  const GemmOutput<T> out{InOut<T>(c.at(batch * stride_c)), m, n, ldc, alpha, beta};
  k.if_((row < m) & (col < n), [&] {
    const auto x = a.at(batch * stride_a + row * a_row), y = b.at(batch * stride_b + col * b_col);
    const auto sum = k.loop(kk, Val<f32>(0.f), [&](Val<u64> p, Val<f32> sum) {
      return fma(to<f32>(x.ld(p * a_col)), to<f32>(y.ld(p * b_row)), sum);
    });
    out.put(k, row, col, sum);
  });
}

}  // namespace

GemmVariant gemm_naive(DType t) {
  const GemmConfig config{.family = GemmFamily::naive, .a = t};
  const auto name = print(config);
  return {t == DType::f32   ? variant(name, 75, gemm_naive_kernel<f32>)
          : t == DType::f16 ? variant(name, 75, gemm_naive_kernel<f16>)
                            : variant(name, 80, gemm_naive_kernel<bf16>),
          config};
}

}  // namespace cgp::kernels
