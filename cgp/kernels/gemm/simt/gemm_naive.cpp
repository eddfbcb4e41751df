// SPDX-License-Identifier: Apache-2.0
// gemm naive: one thread, one element of C.
//   who      a 16 x 16 block of threads computes a 16 x 16 tile
//   memory   every operand element is read from global memory for each use; strides give all layouts
//   needs    any device (bf16: sm_80). The bottom of the ladder, and the path for k = 0
#include "cgp/kernels/gemm/api/gemm.h"
#include "cgp/kernels/gemm/epilogue/gemm_epilogue.h"
#include "cgp/kernels/gemm/simt/gemm_params_simt.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

template <class T>
void gemm_naive_kernel(Kernel& k) {
  const auto p = declare_params<GemmNaiveParams<OnDevice, T>>(k);
  const auto &m = *p.m, &n = *p.n;
  const auto& tiles_n = *p.tiles_n;
  k.block(256);
  const auto batch = to<u64>(k.ctaid_z());
  const auto row = to<u64>(k.ctaid_x() / tiles_n) * 16 + to<u64>(k.tid() / 16u);
  const auto col = to<u64>(k.ctaid_x() % tiles_n) * 16 + to<u64>(k.tid() % 16u);
  const GemmOutput<T> out{InOut<T>(p.c->at(batch * *p.stride_c)), m, n, *p.ldc, *p.alpha, *p.beta};
  k.if_((row < m) & (col < n), [&] {
    const auto x = p.a->at(batch * *p.stride_a + row * *p.a_row),
               y = p.b->at(batch * *p.stride_b + col * *p.b_col);
    const auto sum = k.loop(*p.k, Val<f32>(0.f), [&](Val<u64> at, Val<f32> sum) {
      return fma(to<f32>(x.ld(at * *p.a_col)), to<f32>(y.ld(at * *p.b_row)), sum);
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
