// SPDX-License-Identifier: Apache-2.0
// Copies a matrix whose rows are not 16-byte aligned into one whose rows are, for the variants that need it.
//   who      a thread writes 8 elements; blocks walk along rows
//   memory   reads single elements, which L1 puts together; writes 16 bytes
#include "cgp/dsl/arith.h"
#include "cgp/kernels/gemm/gemm.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr int kThreads = 256, kElements = 8;

void gemm_pack_kernel(Kernel& k, In<b16> from, Out<b16> to, Val<u64> rows, Val<u64> cols, Val<u64> ld,
                      Val<u64> stride, Val<u64> out_ld) {
  k.block(kThreads);
  // Columns from cols to out_ld are written too, as zeros: they are never products, but never junk either.
  const auto pieces = out_ld / std::uint64_t(kElements);
  const auto i = dsl::to<u64>(k.ctaid_x()) * std::uint64_t(kThreads) + dsl::to<u64>(k.tid());
  const auto row = i / pieces, col = i % pieces * std::uint64_t(kElements);
  const auto batch = dsl::to<u64>(k.ctaid_y());
  k.if_(row < rows, [&] {
    const auto source = from.at(batch * stride + row * ld + col);
    std::vector<Val<b16>> e;
    for (int j = 0; j < kElements; ++j)
      e.push_back(source.ld_if<1, nc>(col + std::uint64_t(j) < cols, j, Val<b16>(0))[0]);
    to.at((batch * rows + row) * out_ld + col)
        .st<kElements>(0, RegGroup<b16, kElements>::generate([&](int j) { return e[std::size_t(j)]; }));
  });
}

}  // namespace

Variant gemm_pack() { return variant("gemm_pack_b16", 75, gemm_pack_kernel); }

void run_gemm_pack(runtime::Stream& s, std::uint64_t from, std::uint64_t to, std::uint64_t rows,
                   std::uint64_t cols, std::uint64_t ld, std::uint64_t batch, std::uint64_t stride,
                   std::uint64_t out_ld) {
  auto grid = runtime::grid_for(rows * (out_ld / kElements), kThreads);
  grid.y = std::uint32_t(batch);
  load(s.device(), gemm_pack())(s, grid, runtime::Arg::address(from), runtime::Arg::address(to), rows, cols,
                                ld, stride, out_ld);
}

}  // namespace cgp::kernels
