// SPDX-License-Identifier: Apache-2.0
// What cuBLASLt reaches on this GPU, type by type and epilogue by epilogue: its heuristics' first proposal,
// the best that a search finds, cublasGemmEx where it has the type, and the error at random places.
//   cgp_cublaslt_bench [PREFIX...]     e.g. cgp_cublaslt_bench bf16 e4m3
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/bench/operands.h"
#include "cgp/kernels/bench/table_bench.h"
#include "cgp/profile/measure/compare.h"
#include "cgp/profile/peers/peer_cublas.h"
#include "cgp/profile/peers/peer_cublaslt.h"

namespace {

using namespace cgp;
using namespace cgp::kernels;
using measure::CublasLtGemm;
using measure::LtEpilogue;
using measure::LtScale;
using runtime::Buffer;

std::string_view name(LtEpilogue e) {
  constexpr std::string_view names[] = {"", "/relu", "/gelu", "/bias", "/relu_bias", "/gelu_bias"};
  return names[int(e)];
}
std::string_view name(LtScale s) {
  constexpr std::string_view names[] = {"", "/scale_tensor", "/scale_rows", "/scale_blocks"};
  return names[int(s)];
}
std::string title(const CublasLtGemm& g) {
  return text::cat(cgp::name(g.a), g.a == g.b ? "" : "x", g.a == g.b ? "" : cgp::name(g.b),
                   g.tf32 ? ":tf32" : "", g.fast_accum ? ":fast" : "", g.c == g.a ? "" : ">",
                   g.c == g.a ? "" : cgp::name(g.c), "/", g.trans_a ? "t" : "n", g.trans_b ? "t" : "n", "/",
                   g.batch > 1 ? text::cat(g.batch, "x") : "", g.m, "x", g.n, "x", g.k, name(g.epilogue),
                   name(g.scale));
}

double activate(LtEpilogue e, double v) {
  if (e == LtEpilogue::relu || e == LtEpilogue::relu_bias) return v > 0 ? v : 0;
  if (e == LtEpilogue::gelu || e == LtEpilogue::gelu_bias)
    return 0.5 * v * (1 + std::tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
  return v;
}

struct Operands {
  Buffer<std::uint8_t> a, b, c, bias, scale_a, scale_b;
  measure::CublasLtOperands at() const {
    return {a.address(), b.address(), c.address(), bias.address(), scale_a.address(), scale_b.address()};
  }
};

// k values from element `first` on, `step` apart.
std::vector<double> values(const Buffer<std::uint8_t>& from, DType t, std::uint64_t first, std::uint64_t step,
                           std::uint64_t k) {
  const auto size = std::uint64_t(bytes(t));
  std::vector<double> out;
  const auto raw = step == 1 ? from.slice(first * size, k * size).to_vector() : std::vector<std::uint8_t>();
  for (std::uint64_t i = 0; i < k; ++i)
    out.push_back(step == 1
                      ? load_as_double(t, raw.data(), i)
                      : load_as_double(t, from.slice((first + i * step) * size, size).to_vector().data(), 0));
  return out;
}

// Largest error over what the type of C and k fp32 (or tf32) products allow: up to 1 is right.
double error_at_places(const CublasLtGemm& g, const Operands& o) {
  double worst = 0;
  std::uint64_t state = 7;
  const auto m = std::uint64_t(g.m), n = std::uint64_t(g.n), k = std::uint64_t(g.k);
  for (int place = 0; place < 6; ++place) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const std::uint64_t i = (state >> 33) % m, j = (state >> 11) % n, z = std::uint64_t(g.batch) - 1;
    double sum = 0, size = 0;
    const auto a = values(o.a, g.a, z * m * k + (g.trans_a ? i : i * k), g.trans_a ? m : 1, k);
    const auto b = values(o.b, g.b, z * n * k + (g.trans_b ? j * k : j), g.trans_b ? 1 : n, k);
    for (std::uint64_t x = 0; x < k; ++x) sum += a[x] * b[x], size += std::fabs(a[x] * b[x]);
    if (g.epilogue >= LtEpilogue::bias) sum += values(o.bias, g.c, j, 1, 1)[0];
    const double want = activate(g.epilogue, sum), got = values(o.c, g.c, z * m * n + i * n + j, 1, 1)[0];
    const double input = g.tf32                            ? 0x1p-10
                         : g.fast_accum || bytes(g.a) == 1 ? 0x1p-12
                                                           : double(k + 16) * 0x1p-24;
    const double allowed = size * input + 2 * unit_roundoff(g.c) * std::fabs(want) + 1e-30;
    worst = std::max(worst, std::fabs(got - want) / allowed);
  }
  return worst;
}

class Table {
 public:
  explicit Table(const runtime::Device& d) : device_(d), random_(d), lt_(d) {
    std::printf("%s, cuBLASLt %zu\n", d.info().name.c_str(), lt_.version());
    try {
      cublas_ = std::make_unique<measure::Cublas>();
    } catch (const Unsupported& e) {
      std::printf("%s\n", e.what());
    }
  }
  void row(const CublasLtGemm& g) try {
    const auto elements = [](std::int64_t x, std::int64_t y, std::int64_t z) {
      return std::uint64_t(x) * std::uint64_t(y) * std::uint64_t(z);
    };
    const auto ones = [&](std::uint64_t n) {
      const std::vector<float> host(n, 1.0f);
      Buffer<std::uint8_t> b(device_, n * 4);
      b.upload({reinterpret_cast<const std::uint8_t*>(host.data()), n * 4});
      return b;
    };
    const std::uint64_t scales = elements(std::max(g.m, g.n), (g.k + 127) / 128, 1);
    const Operands o{random_(g.a, elements(g.m, g.k, g.batch), 1),
                     random_(g.b, elements(g.k, g.n, g.batch), 2),
                     Buffer<std::uint8_t>(device_, elements(g.m, g.n, g.batch) * std::uint64_t(bytes(g.c))),
                     random_(g.c, std::uint64_t(g.n), 3),
                     ones(scales),
                     ones(scales)};
    const auto at = o.at();
    const auto best = lt_.search(g, at), first = lt_.heuristics(g, at, 1)[0];
    best.run(device_.stream(), at);
    device_.stream().wait();
    const double error = g.m * g.k < (1 << 26) ? error_at_places(g, o) : 0;
    std::vector<measure::Contender> contenders{{"best", [&](runtime::Stream& s) { best.run(s, at); }},
                                               {"first", [&](runtime::Stream& s) { first.run(s, at); }}};
    const bool gemm_ex = cublas_ && g.a == g.b && g.a == g.c && bytes(g.a) > 1 && !g.tf32 && g.batch == 1 &&
                         g.epilogue == LtEpilogue::none;
    const measure::CublasGemm old{
        g.a, g.trans_a, g.trans_b, g.m, g.n, g.k, g.trans_a ? g.m : g.k, g.trans_b ? g.k : g.n, g.n, 1, 0};
    if (gemm_ex)
      contenders.push_back(
          {"cublas", [&](runtime::Stream& s) { cublas_->gemm(s.native_handle(), old, at.a, at.b, at.c); }});
    measure::CompareOptions options;
    options.rounds = g.flops() > 1e12 ? 9 : 21;
    const auto timings = measure::compare(device_, contenders, options);
    std::printf("%-44s", title(g).c_str());
    for (const auto& t : timings)
      std::printf(" %s %8.4f ms %7.1f TF", t.name.c_str(), t.summary.median,
                  g.flops() / t.summary.median / 1e9);
    std::printf("  of %d, %s, error %.2g%s\n", best.candidates, best.text().c_str(), error,
                error <= 1 ? "" : " WRONG");
    std::fflush(stdout);
  } catch (const Unsupported& e) {
    std::printf("%-44s %s\n", title(g).c_str(), e.what());
  }

 private:
  runtime::Device device_;
  RandomOperands random_;
  measure::CublasLt lt_;
  std::unique_ptr<measure::Cublas> cublas_;
};

std::vector<CublasLtGemm> problems() {
  std::vector<CublasLtGemm> all;
  const auto add = [&](DType a, DType b, DType c, std::int64_t m, std::int64_t n, std::int64_t k) -> auto& {
    all.push_back({.a = a, .b = b, .c = c, .trans_b = true, .m = m, .n = n, .k = k});
    return all.back();
  };
  using enum DType;
  for (DType t : {bf16, f16}) {
    for (std::int64_t n : {256, 512, 1024, 2048, 4096, 8192}) add(t, t, t, n, n, n);
    for (std::int64_t m : {1, 16, 256}) add(t, t, t, m, 14336, 4096);
    add(t, t, t, 1000, 3001, 5003);
    add(t, t, t, 512, 512, 512).batch = 64;
  }
  add(bf16, bf16, bf16, 4096, 4096, 4096).trans_b = false;
  add(bf16, bf16, f32, 4096, 4096, 4096);
  for (auto e : {LtEpilogue::relu, LtEpilogue::gelu, LtEpilogue::bias, LtEpilogue::relu_bias,
                 LtEpilogue::gelu_bias, LtEpilogue::none})
    add(bf16, bf16, bf16, 4096, 14336, 4096).epilogue = e;
  for (bool tf32 : {false, true}) {
    add(f32, f32, f32, 2048, 2048, 2048).tf32 = tf32;
    add(f32, f32, f32, 4096, 4096, 4096).tf32 = tf32;
  }
  for (auto [a, b] : {std::pair{e4m3, e4m3}, {e4m3, e5m2}, {e5m2, e4m3}}) add(a, b, bf16, 4096, 4096, 4096);
  for (bool fast : {false, true}) {
    add(e4m3, e4m3, bf16, 2048, 2048, 2048).fast_accum = fast;
    add(e4m3, e4m3, bf16, 8192, 8192, 8192).fast_accum = fast;
    add(e4m3, e4m3, bf16, 16, 14336, 4096).fast_accum = fast;
  }
  for (auto s : {LtScale::tensor, LtScale::rows, LtScale::blocks})
    add(e4m3, e4m3, bf16, 4096, 4096, 4096).scale = s;
  for (std::int64_t n : {1024, 4096, 8192}) add(s8, s8, s32, n, n, n);
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  return guarded([&] {
    Table table(runtime::Device::open("cuda:0"));
    for (const auto& g : problems()) {
      bool wanted = argc == 1;
      for (int i = 1; i < argc; ++i) wanted |= title(g).rfind(argv[i], 0) == 0;
      if (wanted) table.row(g);
    }
  });
}
