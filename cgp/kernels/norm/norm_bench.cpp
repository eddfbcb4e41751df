// SPDX-License-Identifier: Apache-2.0
#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/bench/operands.h"
#include "cgp/kernels/bench/rows_list_bench.h"
#include "cgp/kernels/norm/norm.h"

namespace cgp::kernels {
namespace {

using Bytes = runtime::Buffer<std::uint8_t>;

View view(Bytes& b, DType t) {
  return {b.address(), b.size() / std::uint64_t(bytes(t)), t, true, b.device().backend().get()};
}

struct Problem {
  BenchTable& b;
  RandomOperands random;
  Bytes x, dy, z, w, bias, y, more, dweight, dbias, mean, rstd, workspace;
  std::uint64_t rows, cols;
  DType t;

  Problem(BenchTable& b, DType t, std::uint64_t rows, std::uint64_t cols)
      : b(b), random(b.device()), rows(rows), cols(cols), t(t) {
    const auto& d = b.device();
    const std::uint64_t size = std::uint64_t(bytes(t));
    x = random(t, rows * cols, 1), dy = random(t, rows * cols, 2);
    w = random(t, cols, 3), bias = random(t, cols, 4);
    y = Bytes(d, rows * cols * size), more = Bytes(d, rows * cols * size);
    dweight = Bytes(d, cols * size), dbias = Bytes(d, cols * size);
    mean = Bytes(d, rows * 4), rstd = random(DType::f32, rows, 5);
    mean.zero();
    workspace = Bytes(d, 256u << 20);
  }
  double matrix() const { return double(x.bytes()); }

  Norm forward(bool layer, bool residual) {
    Norm n;
    n.x = view(x, t), n.y = view(y, t), n.weight = view(w, t), n.rstd = view(rstd, DType::f32);
    n.rows = rows, n.cols = cols;
    if (layer) n.bias = view(bias, t), n.mean = view(mean, DType::f32);
    if (residual) n.residual = view(dy, t), n.sum = view(more, t);
    return n;
  }
  NormBackward backward(bool layer) {
    NormBackward n;
    n.x = view(x, t), n.dy = view(dy, t), n.weight = view(w, t), n.rstd = view(rstd, DType::f32);
    n.dx = view(y, t), n.dweight = view(dweight, t), n.workspace = view(workspace, DType::f32);
    if (layer) n.mean = view(mean, DType::f32), n.dbias = view(dbias, t);
    n.rows = rows, n.cols = cols;
    return n;
  }
  void run_forward(const std::string& name, const Norm& n, bool layer, CopyPeer& copy, int rounds) {
    const double moved = matrix() * (n.residual.given ? 4 : 2);
    b.run(name, norm_steps(n, layer, b.device().info()).variants[0].name, moved,
          {{"cgp", [&](runtime::Stream& s) { layer ? layer_norm(s, n) : rms_norm(s, n); }}, copy.contender()},
          rounds);
  }
  void run_backward(const std::string& name, const NormBackward& n, bool layer, CopyPeer& copy, int rounds) {
    b.run(name, norm_backward_steps(n, layer, b.device().info()).variants[0].name, matrix() * 3,
          {{"cgp", [&](runtime::Stream& s) { layer ? layer_norm_backward(s, n) : rms_norm_backward(s, n); }},
           copy.contender()},
          rounds);
  }
};

std::string title(const char* op, DType t, std::uint64_t rows, std::uint64_t cols) {
  return text::cat(op, "/", name(t), "/", rows, "x", cols);
}

// Tunings of the three skeletons that hold a row of `accesses`.
std::vector<row::RowConfig> candidates(int elements, std::uint64_t accesses, int inputs, int accumulators,
                                       int smem) {
  std::vector<row::RowConfig> all;
  for (int lanes : {32, 64, 128, 256, 512, 1024})
    for (int loads : {1, 2, 4, 8})
      for (int cluster : {1, 2, 4, 8}) {
        const std::uint64_t fits = std::uint64_t(lanes) * std::uint64_t(loads) * std::uint64_t(cluster);
        if (fits < accesses || fits >= 2 * accesses || (cluster > 1 && lanes < 256)) continue;
        const int words = loads * 4 * inputs + loads * elements * accumulators;
        row::RowConfig t{elements, lanes, lanes == 32 ? 4 : 1, loads, cluster};
        const int threads = t.threads * t.rows;
        if (threads > (words > 64 ? 512 : 1024)) continue;
        std::vector<int> residents;
        for (int registers : {32, 40, 48, 56, 64, 80, 96, 128, 168}) {
          const int min_blocks = 65536 / registers / threads;
          if (registers < loads * elements * (accumulators ? accumulators : 0) + 4 * loads * inputs + 16 ||
              min_blocks < 1)
            continue;
          if (min_blocks * threads > 2048 || (!residents.empty() && residents.back() == min_blocks)) continue;
          residents.push_back(min_blocks);
        }
        for (int min_blocks : residents) {
          t.min_blocks = min_blocks, t.stages = 0, t.persistent = false, t.hold_columns = false,
          t.overlap_exchange = false;
          if (!accumulators) all.push_back(t);
          if (lanes == 32 && accumulators) {
            t.persistent = true;
            all.push_back(t);
            continue;
          }
          if (lanes < 128 || min_blocks * threads > 1024) continue;
          for (int stages : {2, 3, 4})
            for (bool hold : {false, true}) {
              if (hold && (!accumulators || loads * elements > 16)) continue;
              const int bytes = stages * lanes * loads * 16 * inputs + 2048;
              if (min_blocks * bytes > smem) continue;
              if (stages == 4 && (accumulators == 0 || bytes > 96 * 1024)) continue;
              t.stages = stages, t.hold_columns = hold, t.overlap_exchange = false;
              all.push_back(t);
              t.overlap_exchange = true;
              if (cluster > 1 && stages > 2) all.push_back(t);
            }
        }
      }
  return all;
}

int columns_of(const Norm& n) { return n.bias.given ? 2 : 1; }
int columns_of(const NormBackward&) { return 1; }

// Rings that hold `columns` column vectors in registers.
std::vector<row::RowConfig> held(int elements, std::uint64_t accesses, int inputs, int columns,
                                 int accumulators) {
  std::vector<row::RowConfig> all;
  for (int lanes : {256, 512, 1024})
    for (int loads : {2, 4, 8})
      for (int cluster : {1, 2, 4, 8})
        for (int min_blocks : {1, 2}) {
          const std::uint64_t fits = std::uint64_t(lanes) * std::uint64_t(loads) * std::uint64_t(cluster);
          const int threads = lanes * min_blocks, stage = lanes * loads * 16 * inputs;
          const int words = loads * 4 * columns + loads * elements * accumulators;
          if (fits < accesses || fits >= 2 * accesses || threads < 512 || threads > 1024) continue;
          if (words > (threads == 512 ? 80 : 20)) continue;
          const int most = std::min(6, (225 * 1024 / min_blocks - 2048) / stage);
          for (int stages : most > 3 ? std::vector<int>{3, most} : std::vector<int>{most})
            for (bool lag : {false, true}) {
              if (stages < 2 || (lag && (cluster == 1 || stages < 3)) || (!lag && stages > 3)) continue;
              row::RowConfig t{elements, lanes, 1, loads, cluster, stages, min_blocks};
              t.hold_columns = true, t.overlap_exchange = lag;
              all.push_back(t);
            }
        }
  return all;
}

template <class N, class Run>
void sweep(const std::string& name, N n, int inputs, int accumulators, BenchTable& b, Run run) {
  const int elements = 16 / bytes(n.x.dtype);
  const auto accesses = n.cols / std::uint64_t(elements);
  for (const auto& t : b.asked("held") ? held(elements, accesses, inputs, columns_of(n), accumulators)
                                       : candidates(elements, accesses, inputs, accumulators, 225 * 1024)) {
    n.config = t;
    try {
      run(name, n);
    } catch (const Error& e) {
      std::printf("%s %s: %s\n", name.c_str(), row::describe(t).c_str(), e.what());
    }
  }
  (void)b;
}

}  // namespace

void bench_norms(BenchTable& b) {
  for (DType t : {DType::bf16, DType::f32})
    for (std::uint64_t cols : {1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 1023, 8191, 32767}) {
      const std::uint64_t rows = (1ull << 27) / cols;
      const auto names = [&](const char* prefix) {
        std::vector<std::string> all;
        for (const char* op :
             {"rms_norm", "layer_norm", "rms_norm_residual", "rms_norm_backward", "layer_norm_backward"})
          all.push_back(title(text::cat(prefix, op).c_str(), t, rows, cols));
        return all;
      };
      const bool sweeping = cols % 8 == 0 && (b.asked("sweep") || b.asked("held"));
      const auto plain = names(""), swept = names(b.asked("held") ? "held/" : "sweep/");
      bool any = false;
      for (const auto& n : plain) any = any || b.wanted(n);
      for (const auto& n : swept) any = any || (sweeping && b.wanted(n));
      if (!any) continue;
      Problem p(b, t, rows, cols);
      CopyPeer two(b.device(), 2 * p.matrix()), three(b.device(), 3 * p.matrix()),
          four(b.device(), 4 * p.matrix());
      if (b.wanted(plain[0])) p.run_forward(plain[0], p.forward(false, false), false, two, 0);
      if (b.wanted(plain[1])) p.run_forward(plain[1], p.forward(true, false), true, two, 0);
      if (b.wanted(plain[2])) p.run_forward(plain[2], p.forward(false, true), false, four, 0);
      try {
        if (b.wanted(plain[3])) p.run_backward(plain[3], p.backward(false), false, three, 0);
        if (b.wanted(plain[4])) p.run_backward(plain[4], p.backward(true), true, three, 0);
      } catch (const Unsupported& e) {
        std::printf("%s: %s\n", plain[4].c_str(), e.what());
      }
      if (!sweeping) continue;
      const auto forward = [&](bool layer, CopyPeer& copy) {
        return [&p, layer, &copy](const std::string& name, const Norm& n) {
          p.run_forward(name, n, layer, copy, 5);
        };
      };
      const auto backward = [&](bool layer) {
        return [&p, layer, &three](const std::string& name, const NormBackward& n) {
          p.run_backward(name, n, layer, three, 5);
        };
      };
      if (b.wanted(swept[0])) sweep(swept[0], p.forward(false, false), 1, 0, b, forward(false, two));
      if (b.wanted(swept[1])) sweep(swept[1], p.forward(true, false), 1, 0, b, forward(true, two));
      if (b.wanted(swept[2])) sweep(swept[2], p.forward(false, true), 2, 0, b, forward(false, four));
      if (b.wanted(swept[3])) sweep(swept[3], p.backward(false), 2, 1, b, backward(false));
      if (b.wanted(swept[4])) sweep(swept[4], p.backward(true), 2, 2, b, backward(true));
    }
}

}  // namespace cgp::kernels
