// SPDX-License-Identifier: Apache-2.0
// Copies rows of 16-bit elements from one leading dimension to another: operands and results whose rows are
// not 16-byte aligned go through scratch memory whose rows are.
//   who      a block copies 2048 neighbouring elements of a row, a thread every 256th of them
//   memory   two bytes a lane: 64 contiguous bytes a warp, whatever the alignment; L2 puts the lines together
#include "cgp/dsl/arith.h"
#include "cgp/kernels/gemm/gemm.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr int kThreads = 256, kEach = 8;

void gemm_copy_rows(Kernel& k, In<b16> from, Out<b16> to, Val<u64> cols, Val<u64> from_ld,
                    Val<u64> from_stride, Val<u64> to_ld, Val<u64> to_stride, Val<u32> pieces) {
  k.block(kThreads);
  const auto row = dsl::to<u64>(k.ctaid_x() / pieces), batch = dsl::to<u64>(k.ctaid_y());
  const auto col =
      dsl::to<u64>(k.ctaid_x() % pieces) * std::uint64_t(kThreads * kEach) + dsl::to<u64>(k.tid());
  const auto source = from.at(batch * from_stride + row * from_ld + col);
  const auto target = to.at(batch * to_stride + row * to_ld + col);
  std::vector<Val<b16>> held;
  std::vector<Val<pred>> inside;
  for (int j = 0; j < kEach; ++j) {
    inside.push_back(col + std::uint64_t(j * kThreads) < cols);
    held.push_back(source.ld_if<1, nc>(inside.back(), j * kThreads, Val<b16>(0))[0]);
  }
  for (int j = 0; j < kEach; ++j) target.st_if(inside[std::size_t(j)], j * kThreads, held[std::size_t(j)]);
}

}  // namespace

Variant gemm_pack() { return variant("gemm_copy_rows_b16", 75, gemm_copy_rows); }

void run_gemm_pack(runtime::Stream& s, const GemmRows& from, const GemmRows& to, std::uint64_t rows,
                   std::uint64_t cols, std::uint64_t batch) {
  const std::uint64_t pieces = (cols + kThreads * kEach - 1) / (kThreads * kEach);
  // A grid has at most 2^31 - 1 blocks in x and 65535 in y.
  const std::uint64_t most = 0x7fffffffull / pieces;
  const auto fn = load(s.device(), gemm_pack());
  for (std::uint64_t b = 0; b < batch; b += 65535)
    for (std::uint64_t r = 0; r < rows; r += most) {
      const auto at = [&](const GemmRows& m) {
        return runtime::Arg::address(m.address + (b * m.stride + r * m.ld) * 2);
      };
      const runtime::Dim3 grid{std::uint32_t(std::min(most, rows - r) * pieces),
                               std::uint32_t(std::min<std::uint64_t>(65535, batch - b)), 1};
      fn(s, grid, at(from), at(to), cols, from.ld, from.stride, to.ld, to.stride, std::uint32_t(pieces));
    }
}

}  // namespace cgp::kernels
