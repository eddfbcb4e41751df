// SPDX-License-Identifier: Apache-2.0
// Measures products of quantised weights on a GPU beside the driver's copy of as many bytes as the weights have in the
// file, cold L2, medians.
#include "cgp/base/text.h"
#include "cgp/kernels/bench/operands.h"
#include "cgp/kernels/bench/table_bench.h"
#include "cgp/kernels/weight_only/weight_only.h"

namespace cgp::kernels {
namespace {

using Bytes = runtime::Buffer<std::uint8_t>;

void run_all(BenchTable& b) {
  struct Shape {
    std::uint64_t n, k;
  };
  RandomOperands random(b.device());
  for (const Shape& s :
       {Shape{4096, 4096}, {14336, 4096}, {4096, 14336}, {28672, 8192}, {8192, 28672}, {128256, 4096}})
    for (WeightFormat f : kWeightFormats) {
      const auto& l = layout(f);
      const double bytes = double(s.n) * double(s.k) / l.file_block * l.file_bytes;
      Bytes w = random(DType::bf16, packed_bytes(f, s.n, s.k) / 2 + 8, 1);
      CopyPeer copy(b.device(), bytes);
      for (std::uint64_t m : {1, 8, 16, 32}) {
        Bytes x = random(DType::bf16, m * s.k, 2), y(b.device(), m * s.n * 2);
        WeightOnlyProblem p{f, DType::bf16, m, s.n, s.k, x.address(), 0, w.address(), y.address(), 0};
        const auto name = text::cat("weight_only/", l.name, "/", m, "x", s.n, "x", s.k);
        if (!b.wanted(name) || !reject(p).empty()) continue;
        b.run(name, weight_only_variant(weight_only_config(p, b.device().info().sm_count)).name, bytes,
              {{"cgp", [&](runtime::Stream& st) { weight_only_gemm(st, p); }}, copy.contender()});
      }
    }
}

}  // namespace
}  // namespace cgp::kernels

int main(int argc, char** argv) {
  return cgp::kernels::bench_main("cgp_weight_only_bench", argc, argv, 15, cgp::kernels::run_all);
}
