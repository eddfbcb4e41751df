// SPDX-License-Identifier: Apache-2.0
// gemm any: one thread, one element of C, whatever the types.
//   who      a 16 x 16 block of threads computes a 16 x 16 tile
//   memory   every operand element is read from global memory for each use; strides give all layouts
//   math     fp32 fused multiply-adds, k after k; s8 in s32; 8-bit floats decoded with integer instructions,
//            scales of blocks multiply the elements of A
//   needs    any device. The reference on a GPU, and the path for what nothing faster takes
#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/gemm/api/any_element.h"
#include "cgp/kernels/gemm/api/gemm.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

struct AnyTuning {
  DType a, b, c;
  bool blocks;    ///< scales of blocks
  bool integers;  ///< accumulators are s32 and go to C as they are
  Epilogue epilogue;
};

void gemm_any_kernel(Kernel& k, AnyTuning t, Val<u64> m, Val<u64> n, Val<u64> kk, Val<u64> a_row,
                     Val<u64> a_col, Val<u64> b_row, Val<u64> b_col, Val<u64> ldc, Val<u64> stride_a,
                     Val<u64> stride_b, Val<u64> stride_c, Val<u32> tiles_n, Val<u64> first_batch) {
  k.block(256);
  const AnyIn a(k, t.a), b(k, t.b);
  const Val<u64> c(array_parameter(k, t.c, false, true));
  std::vector<In<f32>> scales;
  if (t.blocks)
    for (int i = 0; i < 2; ++i) scales.push_back(Param<In<f32>>::make(k));
  const EpilogueProgram program(k, t.epilogue);
  const auto pairing = t.epilogue.pairing();

  const auto batch = first_batch + to<u64>(k.ctaid_z());
  const auto row = to<u64>(k.ctaid_x() / tiles_n) * 16 + to<u64>(k.tid() / 16u);
  const auto col = to<u64>(k.ctaid_x() % tiles_n) * 16 + to<u64>(k.tid() % 16u);
  const auto cols = pairing == Pairing::none ? n : n / 2u;
  const auto inside = (row < m) & (col < cols);
  const auto blocks_k = (kk + 127u) / 128u, blocks_n = (n + 127u) / 128u;

  // Element (row, j) of the product.
  const auto sum = [&](const Val<u64>& j) {
    const auto x = batch * stride_a + row * a_row, y = batch * stride_b + j * b_col;
    if (t.a == DType::s8) {
      const auto total = k.loop(kk, Val<s32>(0), [&](Val<u64> p, Val<s32> s) {
        return a.load_integer(x + p * a_col, 0, inside) * b.load_integer(y + p * b_row, 0, inside) + s;
      });
      return t.integers ? bits<f32>(total) : to<f32>(total);
    }
    const auto total = k.loop(kk, Val<f32>(0.f), [&](Val<u64> p, Val<f32> s) {
      auto u = a.load(x + p * a_col, 0, inside);
      if (t.blocks) {
        const auto fa = scales[0].ld_if(inside, (batch * m + row) * blocks_k + p / 128u, Val<f32>(0.f));
        const auto fb =
            scales[1].ld_if(inside, (batch * blocks_n + j / 128u) * blocks_k + p / 128u, Val<f32>(0.f));
        return fma(u * (fa[0] * fb[0]), b.load(y + p * b_row, 0, inside), s);
      }
      return fma(u, b.load(y + p * b_row, 0, inside), s);
    });
    return total;
  };
  const auto at = batch * stride_c + row * ldc + col;
  if (t.integers) {
    Ptr<global, s32>(c).st_if(inside, at, bits<s32>(sum(col)));
    return;
  }
  const EpilogueLine r(row, 0, row < m), out(col, 0, col < cols);
  const EpiloguePoint to_c{r, out, batch, inside};
  if (pairing == Pairing::none) {
    store_any(t.c, c, at, 0, inside, program.apply(to_c, sum(col)));
  } else {
    const auto first = pairing == Pairing::halves ? col : col * 2u,
               second = pairing == Pairing::halves ? col + cols : col * 2u + 1u;
    const EpilogueLine l0(first, 0, col < cols), l1(second, 0, col < cols);
    store_any(t.c, c, at, 0, inside,
              program.apply(to_c, {r, l0, batch, inside}, {r, l1, batch, inside}, sum(first), sum(second)));
  }
  program.finish({k, batch, row, col, false});
}

}  // namespace

GemmVariant gemm_generic(const GemmProblem& p, const Epilogue& whole) {
  const bool integers = p.type == DType::s8 && *p.type_c == DType::s32 && whole.empty();
  const bool blocks = p.scaling == GemmScaling::block;
  const GemmConfig config{.family = GemmFamily::generic,
                          .a = p.type,
                          .b = *p.type_b,
                          .c = *p.type_c,
                          .block_scales = blocks,
                          .epilogue = whole.name()};
  const bool bf = p.type == DType::bf16 || p.type_c == DType::bf16;
  const bool small = *p.type_c == DType::e4m3 || *p.type_c == DType::e5m2;
  return {variant(print(config),
                  small ? 89
                  : bf  ? 80
                        : 75,
                  gemm_any_kernel, AnyTuning{p.type, *p.type_b, *p.type_c, blocks, integers, whole}),
          config};
}

}  // namespace cgp::kernels
