// SPDX-License-Identifier: Apache-2.0
// Cross-entropy forward and backward, log-softmax and the gradients of both softmaxes.
#include "cgp/base/text.h"
#include "cgp/kernels/bench/operands.h"
#include "cgp/kernels/bench/rows_list_bench.h"
#include "cgp/kernels/cross_entropy/cross_entropy.h"
#include "cgp/kernels/softmax/softmax.h"

namespace cgp::kernels {
namespace {

using Bytes = runtime::Buffer<std::uint8_t>;
View view(Bytes& b, DType t) {
  return {b.address(), b.size() / std::uint64_t(bytes(t)), t, true, b.device().backend().get()};
}

void bench_cross_entropy(BenchTable& b, std::uint64_t rows, std::uint64_t cols) {
  const auto name = text::cat("cross_entropy/bf16/", rows, "x", cols), swept = "sweep/" + name;
  if (!b.wanted(name) && !(b.asked("sweep") && b.wanted(swept))) return;
  const auto& d = b.device();
  RandomOperands random(d);
  auto x = random(DType::bf16, rows * cols, 1);
  Bytes y(d, rows * cols * 2), loss(d, rows * 4);
  std::vector<std::int64_t> t(rows);
  for (std::uint64_t r = 0; r < rows; ++r) t[r] = std::int64_t(r * 7919 % cols);
  auto targets = d.upload<std::int64_t>(t);
  CrossEntropy c;
  c.logits = view(x, DType::bf16), c.dlogits = view(y, DType::bf16), c.targets = targets;
  c.loss = view(loss, DType::f32), c.rows = rows, c.cols = cols;
  const double moved = 4.0 * double(rows * cols);
  CopyPeer copy(d, moved);
  const auto run = [&](const std::string& title, int rounds) {
    const auto variant = cross_entropy_variant(c, d.info(), nullptr).name;
    b.run(title, variant, moved,
          {{"cgp", [&](runtime::Stream& s) { cross_entropy(s, c); }}, copy.contender()}, rounds);
  };
  if (b.wanted(name)) run(name, 0);
  if (!b.asked("sweep") || !b.wanted(swept)) return;
  const std::uint64_t accesses = cols / 8;
  for (int lanes : {256, 512, 1024})
    for (int loads : {2, 3, 4, 5, 6, 8})
      for (int cluster : {1, 2, 4, 8}) {
        const auto fits = std::uint64_t(lanes) * std::uint64_t(loads) * std::uint64_t(cluster);
        if (fits < accesses || fits > accesses + 3 * accesses / 4) continue;
        for (int stages : {0, 2, 3})
          for (int min_blocks : {1, 2, 3, 4}) {
            if (min_blocks * lanes > 1024 || stages * min_blocks * lanes * loads * 16 > 220 * 1024) continue;
            c.config = row::RowConfig{8, lanes, 1, loads, cluster, stages, min_blocks};
            c.config->edges = cols % 8 != 0;
            run(swept, 5);
            if (stages < 3 || cluster == 1) continue;
            c.config->overlap_exchange = true;
            run(swept, 5);
          }
      }
  for (int cluster : {8, 1}) {
    c.config = row::RowConfig{8, 1024, 1, 0, cluster};
    c.config->edges = cols % 8 != 0;
    run(swept, 5);
  }
}

// Contiguous logits of an odd number of classes beside a gradient with padded rows.
void bench_shifted(BenchTable& b, std::uint64_t rows, std::uint64_t cols) {
  const auto name = text::cat("cross_entropy_shifted/bf16/", rows, "x", cols), swept = "sweep/" + name;
  const bool sweep = b.asked("sweep") && b.wanted(swept);
  if (!b.wanted(name) && !sweep) return;
  const auto& d = b.device();
  const std::uint64_t pitch = (cols + 7) / 8 * 8;
  RandomOperands random(d);
  auto x = random(DType::bf16, rows * cols, 1);
  Bytes y(d, rows * pitch * 2);
  std::vector<std::int64_t> t(rows);
  for (std::uint64_t r = 0; r < rows; ++r) t[r] = std::int64_t(r * 7919 % cols);
  auto targets = d.upload<std::int64_t>(t);
  CrossEntropy c;
  c.logits = view(x, DType::bf16), c.dlogits = view(y, DType::bf16), c.targets = targets;
  c.dlogits_layout.pitch = pitch, c.rows = rows, c.cols = cols;
  const double moved = 4.0 * double(rows * cols);
  CopyPeer copy(d, moved);
  const auto run = [&](const std::string& title, int rounds) {
    const auto variant = cross_entropy_variant(c, d.info(), nullptr).name;
    b.run(title, variant, moved,
          {{"cgp", [&](runtime::Stream& s) { cross_entropy(s, c); }}, copy.contender()}, rounds);
  };
  if (b.wanted(name)) run(name, 0);
  if (!sweep) return;
  const std::uint64_t accesses = cols / 8;
  for (int threads : {256, 384, 512, 768, 1024})
    for (int cluster : {1, 2, 4})
      for (bool persistent : {false, true}) {
        const auto team = std::uint64_t(threads * cluster);
        const auto loads = int((accesses + team - 1) / team);
        if (loads > 8 || loads < 2) continue;
        for (int min_blocks = 1; min_blocks * threads <= 1024; min_blocks *= 2) {
          c.config = row::RowConfig{8, threads, 1, loads, cluster, 0, min_blocks, persistent};
          c.config->edges = c.config->shift = true;
          run(swept, 5);
        }
      }
}

void bench_softmax(BenchTable& b, SoftmaxOp op, const char* title, std::uint64_t rows, std::uint64_t cols) {
  const auto name = text::cat(title, "/bf16/", rows, "x", cols);
  if (!b.wanted(name)) return;
  const auto& d = b.device();
  RandomOperands random(d);
  auto x = random(DType::bf16, rows * cols, 1), dy = random(DType::bf16, rows * cols, 2);
  Bytes y(d, rows * cols * 2);
  Softmax r;
  r.in = view(x, DType::bf16), r.out = view(y, DType::bf16), r.rows = rows, r.cols = cols;
  if (op != SoftmaxOp::log_softmax) r.dy = view(dy, DType::bf16);
  const double moved = (op == SoftmaxOp::log_softmax ? 4.0 : 6.0) * double(rows * cols);
  CopyPeer copy(d, moved);
  const auto run = [&](runtime::Stream& s) {
    op == SoftmaxOp::log_softmax        ? log_softmax(s, r)
    : op == SoftmaxOp::softmax_backward ? softmax_backward(s, r)
                                        : log_softmax_backward(s, r);
  };
  b.run(name, softmax_variant(op, r, d.info(), nullptr).name, moved, {{"cgp", run}, copy.contender()});
}

}  // namespace

void bench_losses(BenchTable& b) {
  bench_cross_entropy(b, 8192, 32000);
  bench_cross_entropy(b, 4096, 151936);
  bench_cross_entropy(b, 8192, 50257);
  bench_cross_entropy(b, 8192, 50304);
  bench_shifted(b, 8192, 50257);
  bench_shifted(b, 3000, 17717);
  for (std::uint64_t cols : {1024, 4096, 16384, 32768, 131072, 4097, 50257}) {
    const std::uint64_t rows = (1ull << 27) / cols;
    bench_softmax(b, SoftmaxOp::log_softmax, "log_softmax", rows, cols);
    bench_softmax(b, SoftmaxOp::softmax_backward, "softmax_backward", rows, cols);
    bench_softmax(b, SoftmaxOp::log_softmax_backward, "log_softmax_backward", rows, cols);
  }
}

}  // namespace cgp::kernels
