// SPDX-License-Identifier: Apache-2.0
// Copies rows of 16-bit elements from one leading dimension to another: operands and results whose rows are
// not 16-byte aligned go through scratch memory whose rows are. Up to three matrices in one launch.
//   who      a block copies 2048 elements: rows of 256, 512, 1024 or 2048, whichever the matrix fills best
//   memory   two bytes a lane: 64 contiguous bytes a warp, whatever the alignment; L2 puts the lines together
#include "cgp/base/text.h"
#include "cgp/dsl/core/arith.h"
#include "cgp/dsl/kernel.h"
#include "cgp/kernels/gemm/api/gemm.h"
#include "cgp/kernels/gemm/api/gemm_tuning.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr int kCopyThreads = 256, kCopyEach = 8;

// One of the matrices: blocks up to `end` of the launch are its or those before's; 2^lanes threads a row.
struct CopyJob {
  In<b16> source;
  Out<b16> target;
  Val<u64> rows, cols, from_ld, from_stride, to_ld, to_stride;
  Val<u32> lanes, blocks_per_row, end;
  static CopyJob parameters(Kernel& k) {
    const auto wide = [&] { return Param<Val<u64>>::make(k); };
    const auto word = [&] { return Param<Val<u32>>::make(k); };
    return {Param<In<b16>>::make(k),
            Param<Out<b16>>::make(k),
            wide(),
            wide(),
            wide(),
            wide(),
            wide(),
            wide(),
            word(),
            word(),
            word()};
  }
};

struct PackConfig {
  int matrices = 1;
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.number("matrices", "x", c.matrices);
  }
};

void gemm_pack_kernel(Kernel& k, PackConfig config) {
  k.block(kCopyThreads);
  std::vector<CopyJob> all;
  for (int i = 0; i < config.matrices; ++i) all.push_back(CopyJob::parameters(k));
  // The job of this block.
  const auto of = [&](auto member) {
    std::vector now{all[0].*member};
    for (std::size_t i = 1; i < all.size(); ++i) {
      const auto before = k.ctaid_x() < all[i - 1].end;
      const auto& next = all[i].*member;
      if constexpr (requires { next.address(); })
        now.emplace_back(select(before, now.back().address(), next.address()));
      else
        now.push_back(select(before, now.back(), next));
    }
    return now.back();
  };
  std::vector<Val<u32>> first{Val<u32>(0)};
  for (std::size_t i = 1; i < all.size(); ++i)
    first.push_back(select(k.ctaid_x() < all[i - 1].end, first.back(), all[i - 1].end));
  const auto block = k.ctaid_x() - first.back(), lanes = of(&CopyJob::lanes),
             blocks_per_row = of(&CopyJob::blocks_per_row);
  const auto row = to<u64>(shl(block / blocks_per_row, Val<u32>(8) - lanes) + shr(k.tid(), lanes)),
             batch = to<u64>(k.ctaid_y());
  const auto across = shl(Val<u32>(1), lanes);
  const auto lane = k.tid() & (across - 1u);
  const auto col = to<u64>(shl(block % blocks_per_row, lanes + 3u) + lane), step = to<u64>(across);
  const auto cols = of(&CopyJob::cols);
  const auto there = row < of(&CopyJob::rows);
  std::vector<In<b16>> source{
      of(&CopyJob::source).at(batch * of(&CopyJob::from_stride) + row * of(&CopyJob::from_ld) + col)};
  std::vector<Out<b16>> target{
      of(&CopyJob::target).at(batch * of(&CopyJob::to_stride) + row * of(&CopyJob::to_ld) + col)};
  std::vector<Val<b16>> held;
  std::vector<Val<pred>> inside;
  for (int j = 0; j < kCopyEach; ++j) {
    if (j) source.push_back(source.back().at(step)), target.push_back(target.back().at(step));
    inside.push_back(there & (col + step * std::uint64_t(j) < cols));
    held.push_back(source.back().template ld_if<1, nc>(inside.back(), 0, Val<b16>(0))[0]);
  }
  for (std::size_t j = 0; j < held.size(); ++j) target[j].st_if(inside[j], 0, held[j]);
}

std::uint64_t copy_up(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

// Threads of a row, as a power of two.
std::uint32_t lanes_of(std::uint64_t cols) {
  std::uint32_t lanes = 5;
  while (lanes < 8 && (std::uint64_t(kCopyEach) << lanes) < cols) ++lanes;
  return lanes;
}

}  // namespace

Variant gemm_pack(int matrices) {
  return config_variant("gemm_pack", PackConfig{matrices}, 75, gemm_pack_kernel);
}

std::uint64_t gemm_pack_blocks(const GemmCopy& c) {
  const auto lanes = lanes_of(c.cols);
  return copy_up(c.rows, 256u >> lanes) * copy_up(c.cols, std::uint64_t(kCopyEach) << lanes);
}

void run_gemm_pack(runtime::Stream& s, std::span<const GemmCopy> copies, std::uint64_t batch) {
  std::uint64_t all = 0;
  for (const auto& c : copies) all += gemm_pack_blocks(c);
  // A grid has at most 2^31 - 1 blocks in x and 65535 in y.
  if (all > 0x7fffffffull) {
    for (const auto& c : copies) {
      auto part = c;
      const auto most = copies.size() > 1 ? c.rows : c.rows / 2;
      for (std::uint64_t r = 0; r < c.rows; r += most) {
        part.rows = std::min(most, c.rows - r);
        part.from.address = c.from.address + r * c.from.ld * 2,
        part.to.address = c.to.address + r * c.to.ld * 2;
        run_gemm_pack(s, {&part, 1}, batch);
      }
    }
    return;
  }
  const auto fn = load(s.device(), gemm_pack(int(copies.size())));
  for (std::uint64_t b = 0; b < batch; b += 65535) {
    std::vector<runtime::Arg> args;
    std::uint64_t end = 0;
    for (const auto& c : copies) {
      const auto lanes = lanes_of(c.cols);
      for (const auto& m : {c.from, c.to})
        args.push_back(runtime::Arg::address(m.address + b * m.stride * 2));
      for (std::uint64_t v : {c.rows, c.cols, c.from.ld, c.from.stride, c.to.ld, c.to.stride})
        args.push_back(runtime::arg(v));
      for (std::uint64_t v : {std::uint64_t(lanes), copy_up(c.cols, std::uint64_t(kCopyEach) << lanes),
                              end += gemm_pack_blocks(c)})
        args.push_back(runtime::arg(std::uint32_t(v)));
    }
    const runtime::Dim3 grid{std::uint32_t(end), std::uint32_t(std::min<std::uint64_t>(65535, batch - b)), 1};
    fn.launch(s, runtime::Launch{.grid = grid}, args);
  }
}

void pack_gemm_operands(runtime::Stream& s, const GemmChoice& choice, GemmProblem& p, GemmAddresses& at) {
  struct Operand {
    bool packed, filled;
    std::uint64_t &address, &ld, &stride;
    std::uint64_t rows, cols;
    std::uint64_t elements(std::uint64_t batch) const { return packed ? batch * rows * packed_ld(cols) : 0; }
  };
  const Operand all[] = {
      {choice.pack_a, true, at.a, p.lda, p.stride_a, p.trans_a ? p.k : p.m, p.trans_a ? p.m : p.k},
      {choice.pack_b, true, at.b, p.ldb, p.stride_b, p.trans_b ? p.n : p.k, p.trans_b ? p.k : p.n},
      {choice.pack_c, p.beta != 0, at.c, p.ldc, p.stride_c, p.m, p.n}};
  std::uint64_t elements = 0;
  for (const auto& o : all) elements += o.elements(p.batch);
  std::uint64_t to = s.scratch(elements * std::uint64_t(cgp::bytes(p.type)));
  std::vector<GemmCopy> copies;
  for (const auto& o : all) {
    if (!o.packed) continue;
    const GemmRows from{o.address, o.ld, o.stride};
    o.address = to, o.ld = packed_ld(o.cols), o.stride = o.rows * o.ld;
    to += o.elements(p.batch) * std::uint64_t(cgp::bytes(p.type));
    if (o.filled) copies.push_back({from, {o.address, o.ld, o.stride}, o.rows, o.cols});
  }
  if (!copies.empty()) run_gemm_pack(s, copies, p.batch);
  at.padded_ldc = choice.pack_c;
}

}  // namespace cgp::kernels
