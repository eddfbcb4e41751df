// SPDX-License-Identifier: Apache-2.0
// Embedding and its gradient, argmax, cumsum and topk, against the copy of as many bytes.
#include "cgp/base/text.h"
#include "cgp/kernels/argmax/argmax.h"
#include "cgp/kernels/bench/operands.h"
#include "cgp/kernels/bench/rows_list_bench.h"
#include "cgp/kernels/cumsum/cumsum.h"
#include "cgp/kernels/embedding/embedding.h"
#include "cgp/kernels/topk/topk.h"

namespace cgp::kernels {
namespace {

using Bytes = runtime::Buffer<std::uint8_t>;

View view(Bytes& b, DType t) {
  return View(b.address(), b.size() / std::uint64_t(bytes(t)), t, true, b.all().backend());
}

void bench_embedding(BenchTable& b, std::uint64_t rows, std::uint64_t vocab, std::uint64_t cols) {
  const auto shape = text::cat("/bf16/", rows, "x", cols, "_of_", vocab);
  const std::string forward = "embedding" + shape, backward = "embedding_backward" + shape;
  if (!b.wanted(forward) && !b.wanted(backward)) return;
  const auto& d = b.device();
  RandomOperands random(d);
  auto table = random(DType::bf16, vocab * cols, 1), x = random(DType::bf16, rows * cols, 2);
  std::vector<std::int64_t> host(rows);
  for (std::uint64_t r = 0; r < rows; ++r) host[r] = std::int64_t(r % 64 ? r * 2654435761u % vocab : 7);
  auto indices = d.upload<std::int64_t>(host);
  if (b.wanted(forward)) {
    Embedding e;
    e.indices = std::as_const(indices), e.weight = view(table, DType::bf16), e.out = view(x, DType::bf16);
    e.rows = rows, e.vocab = vocab, e.cols = cols;
    const double moved = 4.0 * double(rows * cols);
    CopyPeer copy(d, moved);
    b.run(forward, embedding_variants(e)[0].name, moved,
          {{"cgp", [&](runtime::Stream& s) { embedding(s, e); }}, copy.contender()});
  }
  if (b.wanted(backward)) {
    EmbeddingBackward e;
    auto workspace = d.zeros<std::uint32_t>(embedding_workspace(rows, vocab));
    e.indices = std::as_const(indices), e.dout = view(x, DType::bf16), e.dweight = view(table, DType::bf16);
    e.workspace = workspace, e.rows = rows, e.vocab = vocab, e.cols = cols;
    const double moved = 2.0 * double(rows + vocab) * double(cols);
    CopyPeer copy(d, moved);
    b.run(backward, embedding_backward_variants(e)[1].name, moved,
          {{"cgp", [&](runtime::Stream& s) { embedding_backward(s, e); }}, copy.contender()});
  }
}

void bench_argmax(BenchTable& b, std::uint64_t rows, std::uint64_t cols) {
  const auto name = text::cat("argmax/bf16/", rows, "x", cols);
  if (!b.wanted(name)) return;
  const auto& d = b.device();
  RandomOperands random(d);
  auto x = random(DType::bf16, rows * cols, 1);
  Bytes index(d, rows * 8);
  ArgMax a;
  a.in = view(x, DType::bf16), a.index = view(index, DType::s64), a.rows = rows, a.cols = cols;
  const double moved = 2.0 * double(rows * cols);
  CopyPeer copy(d, moved);
  b.run(name, argmax_variant(a, d.info(), nullptr).name, moved,
        {{"cgp", [&](runtime::Stream& s) { argmax(s, a); }}, copy.contender()});
}

void bench_cumsum(BenchTable& b, std::uint64_t rows, std::uint64_t cols) {
  const auto name = text::cat("cumsum/bf16/", rows, "x", cols);
  if (!b.wanted(name)) return;
  const auto& d = b.device();
  RandomOperands random(d);
  auto x = random(DType::bf16, rows * cols, 1);
  Bytes y(d, rows * cols * 2);
  CumSum c;
  c.x = view(x, DType::bf16), c.out = view(y, DType::bf16), c.rows = rows, c.cols = cols;
  const double moved = 4.0 * double(rows * cols);
  CopyPeer copy(d, moved);
  b.run(name, cumsum_variant(c, nullptr).name, moved,
        {{"cgp", [&](runtime::Stream& s) { cumsum(s, c); }}, copy.contender()});
}

void bench_topk(BenchTable& b, std::uint64_t rows, std::uint64_t cols, std::uint64_t k) {
  const auto name = text::cat("topk/bf16/", rows, "x", cols, "_k", k);
  if (!b.wanted(name)) return;
  const auto& d = b.device();
  RandomOperands random(d);
  auto x = random(DType::bf16, rows * cols, 1);
  Bytes values(d, rows * k * 2), index(d, rows * k * 8);
  TopK t;
  t.in = view(x, DType::bf16), t.values = view(values, DType::bf16), t.index = view(index, DType::s64);
  t.rows = rows, t.cols = cols, t.k = k;
  const double moved = 2.0 * double(rows * cols);
  CopyPeer copy(d, moved);
  b.run(name, topk_variant(t).name, moved,
        {{"cgp", [&](runtime::Stream& s) { topk(s, t); }}, copy.contender()});
}

}  // namespace

void bench_more_rows(BenchTable& b) {
  bench_embedding(b, 65536, 151936, 2048);
  bench_embedding(b, 8192, 32000, 4096);
  for (std::uint64_t cols : {1024, 16384, 131072}) bench_argmax(b, (1ull << 28) / cols, cols);
  for (std::uint64_t cols : {1024, 16384, 131072}) bench_cumsum(b, (1ull << 27) / cols, cols);
  bench_topk(b, 8192, 4096, 50), bench_topk(b, 4096, 32000, 50), bench_topk(b, 512, 151936, 50),
      bench_topk(b, 512, 151936, 1024);
}

}  // namespace cgp::kernels
