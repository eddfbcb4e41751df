// SPDX-License-Identifier: Apache-2.0
// Measures the kernels on a GPU against their peers, in one run: row and element kernels against the device's
// own copy of as many bytes, gemm against the best algorithm of cuBLASLt (cuBLAS where that is missing).
// Prints a table; --json FILE keeps every sample.
//   cgp_kernel_bench [--json FILE] [--rounds N] [PREFIX...]     e.g. cgp_kernel_bench gemm/bf16 softmax
#include <cstdio>
#include <memory>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/bench/table_bench.h"
#include "cgp/kernels/gemm/api/gemm.h"
#include "cgp/kernels/gemm/select/gemm_table.h"
#include "cgp/kernels/reduce/reduce.h"
#include "cgp/kernels/softmax/softmax.h"
#include "cgp/kernels/transpose/transpose_tile.h"
#include "cgp/kernels/vecadd/vecadd.h"
#include "cgp/profile/peers/peer_cublas.h"
#include "cgp/profile/peers/peer_cublaslt.h"

namespace {

using namespace cgp;
using namespace cgp::kernels;
using measure::Contender;
using runtime::Buffer;
using runtime::Stream;

// A pool of values on the device, repeated: random data without a long wait on the host.
template <class T>
Buffer<T> random_buffer(const runtime::Device& d, std::uint64_t n, std::uint64_t seed) {
  const std::uint64_t pool = std::min<std::uint64_t>(n, (1 << 22) - 3);  // odd: rows do not repeat
  const auto host = random_array(dtype_of<T>, {pool}, seed);
  Buffer<T> b(d, n);
  Stream s(d);
  s.upload<T>(b.slice(0, pool), typed<T>(host));
  for (std::uint64_t have = pool; have < n;) {
    const std::uint64_t more = std::min(have, n - have);
    s.copy<T>(b.slice(have, more), b.slice(0, more));
    have += more;
  }
  s.wait();
  return b;
}

template <class T>
void bench_vecadd(BenchTable& b, std::uint64_t n) {
  const auto name = text::cat("vecadd/", cgp::name(dtype_of<T>), "/", n);
  if (!b.wanted(name)) return;
  const auto x = random_buffer<T>(b.device(), n, 1), y = random_buffer<T>(b.device(), n, 2);
  Buffer<T> z(b.device(), n);
  const double bytes = 3.0 * double(n) * sizeof(T);
  CopyPeer copy(b.device(), bytes);
  b.run(name, "", 0, bytes, {{"cgp", [&](Stream& s) { vecadd<T>(s, x, y, z); }}, copy.contender()});
}

template <class T>
void bench_reduce(BenchTable& b, ReduceOp op, const ReduceShape& shape) {
  const auto name = text::cat("reduce/", cgp::kernels::name(op), "/", cgp::name(dtype_of<T>), "/",
                              shape.outer, "x", shape.n, "x", shape.inner);
  if (!b.wanted(name)) return;
  const std::uint64_t n = shape.outer * shape.n * shape.inner;
  const auto x = random_buffer<T>(b.device(), n, 1);
  Buffer<T> y(b.device(), shape.outer * shape.inner);
  const auto plan = plan_reduce(dtype_of<T>, shape, true, b.device().info());
  Buffer<float> workspace(b.device(), reduce_workspace(plan, shape));
  const double bytes = double(x.bytes() + y.bytes());
  CopyPeer copy(b.device(), bytes);
  b.run(name, plan.why, 0, bytes,
        {{"cgp", [&](Stream& s) { reduce<T>(s, op, x, y, shape, workspace); }}, copy.contender()});
}

template <class T>
void bench_transpose(BenchTable& b, const TransposeShape& shape) {
  const auto name =
      text::cat("transpose/", cgp::name(dtype_of<T>), "/", shape.batch, "x", shape.rows, "x", shape.cols);
  if (!b.wanted(name)) return;
  const auto x = random_buffer<T>(b.device(), shape.batch * shape.rows * shape.cols, 1);
  Buffer<T> y(b.device(), x.size());
  const double bytes = 2.0 * double(x.bytes());
  CopyPeer copy(b.device(), bytes);
  const auto choice = select_transpose(sizeof(T), shape, x.address(), y.address(), b.device().info());
  b.run(name, choice.variant.name, 0, bytes,
        {{"cgp", [&](Stream& s) { transpose<T>(s, x, y, shape); }}, copy.contender()});
}

template <class T>
void sweep_transpose(BenchTable& b, const TransposeShape& shape) {
  const auto name = text::cat("sweep/transpose/", cgp::name(dtype_of<T>), "/", shape.rows, "x", shape.cols);
  if (!b.wanted(name)) return;
  const auto x = random_buffer<T>(b.device(), shape.rows * shape.cols, 1);
  Buffer<T> y(b.device(), x.size());
  CopyPeer copy(b.device(), 2.0 * double(x.bytes()));
  constexpr int size = sizeof(T), v = 16 / size;
  const auto run = [&](TransposeAccess access, TransposeConfig t) {
    t.access = access, t.bits = 8 * size;
    const TransposeChoice choice{transpose_variant(t), t, {}};
    b.run(name, choice.variant.name, 0, 2.0 * double(x.bytes()),
          {{"cgp", [&](Stream& s) { run_transpose(s, choice, shape, runtime::arg(x), runtime::arg(y)); }},
           copy.contender()},
          7);
  };
  const bool vector = shape.rows % v == 0 && shape.cols % v == 0;
  const auto fits = [](int min_blocks, int tile_bytes) {
    return (min_blocks + !min_blocks) * tile_bytes <= 220 * 1024;
  };
  for (int strip : {0, 1, 2, 4})
    for (int min_blocks : {0, 2, 3, 4, 6, 8}) {
      if (vector) {
        for (int down : {1, 2})
          for (int across : {1, 2})
            if (down * across * v <= 16 && fits(min_blocks, down * across * v * 16 * v * 16 * size))
              run(TransposeAccess::vector, {down * v * 16, across * v * 16, strip, min_blocks});
      } else {
        for (int side : {64, 128})
          if (fits(min_blocks, side * (side + 4) * size))
            run(TransposeAccess::element, {side, side, strip, min_blocks});
        TransposeConfig t = transpose_impl::sectors_config(size);
        t.strip = strip, t.min_blocks = min_blocks;
        if (min_blocks == 2 || min_blocks == 3) run(TransposeAccess::sector, t);
      }
    }
}

template <class T>
void bench_softmax(BenchTable& b, std::uint64_t rows, std::uint64_t cols) {
  const auto name = text::cat("softmax/", cgp::name(dtype_of<T>), "/", rows, "x", cols);
  if (!b.wanted(name)) return;
  const auto x = random_buffer<T>(b.device(), rows * cols, 1);
  Buffer<T> y(b.device(), x.size());
  Softmax r;
  r.in = x, r.out = y, r.rows = rows, r.cols = cols;
  const double bytes = 2.0 * double(x.bytes());
  CopyPeer copy(b.device(), bytes);
  const auto variant = softmax_variant(SoftmaxOp::softmax, r, b.device().info(), nullptr);
  b.run(name, variant.name, 0, bytes, {{"cgp", [&](Stream& s) { softmax(s, r); }}, copy.contender()});
}

measure::CublasGemm cublas_problem(const GemmProblem& p) {
  const auto n = [](std::uint64_t v) { return std::int64_t(v); };
  return {p.type, p.trans_a, p.trans_b, n(p.m), n(p.n), n(p.k), n(p.lda), n(p.ldb), n(p.ldc), 1, 0};
}

// The largest error of a result at 32 places, over what the rounding of the type and k fp32 additions allow:
// at most 1 for a right one. Layout nt only, whose rows and columns are slices.
template <class T>
double error_at_places(const Buffer<T>& a, const Buffer<T>& b, const Buffer<T>& c, const GemmProblem& p) {
  double worst = 0;
  std::uint64_t state = 1;
  for (int place = 0; place < 32; ++place) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const std::uint64_t i = (state >> 33) % p.m, j = (state >> 11) % p.n;
    const auto row = a.slice(i * p.lda, p.k).to_vector(), col = b.slice(j * p.ldb, p.k).to_vector();
    double sum = 0, size = 0;
    for (std::uint64_t k = 0; k < p.k; ++k) {
      const double v = double(row[k]) * double(col[k]);
      sum += v, size += std::fabs(v);
    }
    const double got = double(c.slice(i * p.ldc + j, 1).to_vector()[0]);
    const double allowed = size * double(p.k + 16) * 0x1p-24 + unit_roundoff(dtype_of<T>) * std::fabs(sum);
    worst = std::max(worst, std::fabs(got - sum) / allowed);
  }
  return worst;
}

// The libraries that gemm is measured against, where they are installed.
struct GemmPeers {
  std::unique_ptr<measure::Cublas> cublas;
  std::unique_ptr<measure::CublasLt> cublaslt;

  explicit GemmPeers(const runtime::Device& d) {
    (void)d.stream().native_handle();  // cuBLAS takes the current context
    try {
      cublas = std::make_unique<measure::Cublas>();
      std::printf("cuBLAS %d\n", cublas->version());
    } catch (const Unsupported& e) {
      std::printf("%s\n", e.what());
    }
    try {
      cublaslt = std::make_unique<measure::CublasLt>(d);
      std::printf("cuBLASLt %zu: the best of what its heuristics propose\n", cublaslt->version());
    } catch (const Unsupported& e) {
      std::printf("%s\n", e.what());
    }
  }
};

measure::CublasLtGemm cublaslt_problem(const GemmProblem& p) {
  const auto n = [](std::uint64_t v) { return std::int64_t(v); };
  return {.a = p.type,
          .b = p.type,
          .c = p.type,
          .trans_a = p.trans_a,
          .trans_b = p.trans_b,
          .m = n(p.m),
          .n = n(p.n),
          .k = n(p.k),
          .lda = n(p.lda),
          .ldb = n(p.ldb),
          .ldc = n(p.ldc)};
}

template <class T>
void bench_gemm(BenchTable& b, const GemmPeers* peers, const char* layout, std::uint64_t m, std::uint64_t n,
                std::uint64_t k) {
  const auto name = text::cat("gemm/", cgp::name(dtype_of<T>), "/", layout, "/", m, "x", n, "x", k);
  if (!b.wanted(name)) return;
  GemmProblem p{
      .type = dtype_of<T>, .trans_a = layout[0] == 't', .trans_b = layout[1] == 't', .m = m, .n = n, .k = k};
  p = p.dense();
  const auto x = random_buffer<T>(b.device(), m * k, 1), y = random_buffer<T>(b.device(), k * n, 2);
  Buffer<T> ours(b.device(), m * n), theirs(b.device(), m * n);
  const auto choice = select_gemm(p, {x.address(), y.address(), ours.address()}, b.device().info(),
                                  GemmTable::shipped(b.device().info()));
  std::vector<Contender> contenders{{"cgp", [&](Stream& s) { gemm<T>(s, p, x, y, ours); }}};
  const auto peer = cublas_problem(p);
  const measure::CublasLtOperands at{x.address(), y.address(), theirs.address()};
  measure::CublasLtPlan best;
  const bool compared = peers && (peers->cublaslt || peers->cublas);
  if (peers && peers->cublaslt) {
    best = peers->cublaslt->search(cublaslt_problem(p), at);
    contenders.push_back({"cublaslt", [&](Stream& s) { best.run(s, at); }});
  } else if (compared) {
    contenders.push_back(
        {"cublas", [&](Stream& s) { peers->cublas->gemm(s.native_handle(), peer, at.a, at.b, at.c); }});
  }
  const int rounds = p.flops() > 1e12 ? 20 : 0;
  b.run(name, choice.variant.name, p.flops(), double(x.bytes() + y.bytes() + ours.bytes()), contenders,
        rounds);
  if (layout == std::string("nt") && p.type != DType::f32) {
    const double wrong = error_at_places(x, y, ours, p),
                 theirs_wrong = compared ? error_at_places(x, y, theirs, p) : 0;
    if (!(wrong <= 1))
      throw Error({text::cat(name, " is wrong"), {}, text::cat(wrong, " times the allowed error"), {}});
    if (theirs_wrong > 1)
      std::printf("  note: cuBLAS is off by %.0f times what fp32 sums allow; ours by %.2f\n", theirs_wrong,
                  wrong);
  }
}

void run_all(BenchTable& b) {
  const bool sweeping = b.asked("sweep");
  bench_vecadd<float>(b, 1u << 28);
  bench_vecadd<half>(b, 1u << 29);
  bench_vecadd<bfloat16>(b, (1u << 29) + 5);
  for (ReduceOp op : {ReduceOp::sum, ReduceOp::max}) bench_reduce<float>(b, op, {1, 1u << 28, 1});
  bench_reduce<bfloat16>(b, ReduceOp::sum, {1, 1u << 29, 1});
  bench_reduce<float>(b, ReduceOp::sum, {1u << 16, 1u << 12, 1});
  bench_reduce<bfloat16>(b, ReduceOp::sum, {1u << 22, 128, 1});
  bench_reduce<float>(b, ReduceOp::sum, {1, 1u << 14, 1u << 14});
  bench_reduce<bfloat16>(b, ReduceOp::sum, {64, 1u << 11, 1u << 12});
  bench_transpose<float>(b, {1, 16384, 16384});
  bench_transpose<bfloat16>(b, {1, 16384, 32768});
  bench_transpose<double>(b, {1, 8192, 16384});
  bench_transpose<std::uint8_t>(b, {1, 32768, 32768});
  bench_transpose<std::uint8_t>(b, {1, 32763, 32761});
  bench_transpose<bfloat16>(b, {1, 16383, 32761});
  bench_transpose<float>(b, {1, 16383, 16381});
  bench_transpose<double>(b, {1, 8191, 16381});
  for (std::uint64_t cols : {1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 4097, 50257}) {
    bench_softmax<bfloat16>(b, (1ull << 28) / cols, cols);
    bench_softmax<float>(b, (1ull << 28) / cols, cols);
  }
  if (sweeping) {
    sweep_transpose<std::uint8_t>(b, {1, 32768, 32768});
    sweep_transpose<bfloat16>(b, {1, 16384, 32768});
    sweep_transpose<float>(b, {1, 16384, 16384});
    sweep_transpose<double>(b, {1, 8192, 16384});
    sweep_transpose<std::uint8_t>(b, {1, 32763, 32761});
    sweep_transpose<bfloat16>(b, {1, 16383, 32761});
    sweep_transpose<float>(b, {1, 16383, 16381});
    sweep_transpose<double>(b, {1, 8191, 16381});
  }
  std::unique_ptr<GemmPeers> peers;
  if (b.prefixes().empty() || b.asked("gemm")) peers = std::make_unique<GemmPeers>(b.device());
  for (const char* layout : {"nt", "nn", "tn", "tt"})
    for (std::uint64_t n : {256, 512, 1024, 2048, 4096, 8192, 16384})
      if (layout == std::string("nt") || n == 4096 || n == 8192)
        bench_gemm<bfloat16>(b, peers.get(), layout, n, n, n);
  for (std::uint64_t n : {4096, 8192}) bench_gemm<half>(b, peers.get(), "nt", n, n, n);
  for (std::uint64_t m : {1, 16, 64, 256, 1024, 4096, 8192})
    for (auto [n, k] : {std::pair<std::uint64_t, std::uint64_t>{4096, 4096},
                        {14336, 4096},
                        {4096, 14336},
                        {28672, 8192},
                        {8192, 28672}})
      if (m != n || n != k) bench_gemm<bfloat16>(b, peers.get(), "nt", m, n, k);
  bench_gemm<bfloat16>(b, peers.get(), "nt", 4095, 4097, 4104);
  bench_gemm<bfloat16>(b, peers.get(), "nt", 1000, 3001, 5003);
  bench_gemm<bfloat16>(b, peers.get(), "nt", 127, 255, 8191);
  bench_gemm<bfloat16>(b, peers.get(), "nn", 1000, 3001, 5003);
  bench_gemm<bfloat16>(b, peers.get(), "nt", 1000, 3000, 5000);
  bench_gemm<float>(b, peers.get(), "nn", 4096, 4096, 4096);
}

}  // namespace

int main(int argc, char** argv) { return bench_main("cgp_kernel_bench", argc, argv, 40, run_all); }
