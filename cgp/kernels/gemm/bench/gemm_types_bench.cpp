// SPDX-License-Identifier: Apache-2.0
// Measures products of every type, and what epilogues cost, against the best that a search of cuBLASLt finds.
//   cgp_gemm_types_bench [--json FILE] [--rounds N] [--sweep] [--only PART] [PREFIX...]  e.g. fp8
//   epilogue/bf16
// Beside an epilogue the product without one runs too: over_bare is how many times as long it takes.
// --sweep runs every tile that the kernels have instead of the selected one, --only those whose names contain
// PART, or one of several between commas.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/bench/operands.h"
#include "cgp/kernels/bench/table_bench.h"
#include "cgp/kernels/gemm/api/gemm.h"
#include "cgp/kernels/gemm/api/gemm_tuning.h"
#include "cgp/kernels/gemm/bench/gemm_compile_bench.h"
#include "cgp/kernels/gemm/select/gemm_table.h"
#include "cgp/profile/measure/compare.h"
#include "cgp/profile/peers/peer_cublaslt.h"

namespace {

using namespace cgp;
using namespace cgp::kernels;
using measure::Contender;
using measure::LtEpilogue;
using measure::LtScale;
using runtime::Stream;

class Bench {
 public:
  Bench(runtime::Device d, std::vector<std::string> prefixes, int rounds, bool sweep, std::string only)
      : device_(std::move(d)),
        operands_(device_),
        prefixes_(std::move(prefixes)),
        rounds_(rounds),
        sweep_(sweep),
        only_(std::move(only)) {
    try {
      lt_ = std::make_unique<measure::CublasLt>(device_);
    } catch (const Error& e) {
      std::printf("cuBLASLt: %s\n", e.what());
    }
  }

  bool wanted(const std::string& name) const {
    if (prefixes_.empty()) return true;
    for (const auto& p : prefixes_)
      if (name.rfind(p, 0) == 0) return true;
    return false;
  }

  /// One problem, with every tiling when sweeping.
  void problem(const std::string& name, const GemmProblem& q, LtEpilogue epilogue = LtEpilogue::none,
               bool peer = true) try {
    if (!wanted(name)) return;
    const GemmProblem p = q.dense();
    const auto a = operands_(p.type, p.a_elements(), 1), b = operands_(*p.type_b, p.b_elements(), 2);
    auto c = operands_(*p.type_c, p.c_elements(), 3), theirs = operands_(*p.type_c, p.c_elements(), 3);
    const std::uint64_t kb = (p.k + 127) / 128;
    const auto fa = operands_(DType::f32, p.m * kb, 4), fb = operands_(DType::f32, p.n * kb, 5);
    const GemmAddresses at{a.address(), b.address(), c.address(), fa.address(), fb.address()};
    measure::CublasLtPlan plan;
    measure::CublasLtOperands lt_at{a.address(), b.address(),  theirs.address(),
                                    bias_,       fa.address(), fb.address()};
    bool have = false;
    if (lt_ && peer) try {
        plan = lt_->search(peer_problem(p, epilogue), lt_at, 32);
        have = true;
      } catch (const Error& e) {
        std::printf("%s: cuBLASLt: %s\n", name.c_str(), e.what());
      }
    const auto all = choices(p, at);
    load_all(device_, all);
    // What an epilogue costs: the same product without one runs in the same round.
    std::optional<GemmChoice> bare;
    GemmProblem plain = p;
    plain.epilogue = {}, plain.beta = 0;
    if (!p.epilogue.empty() || p.beta != 0)
      bare = select_gemm(plain, at, device_.info(), GemmTable::shipped(device_.info()));
    const auto rest = operands_(*p.type_c, p.epilogue.pairing() == Pairing::none ? 1 : p.m * p.n, 3);
    for (const auto& choice : all) try {
        std::vector<Contender> contenders{{"cgp", [&](Stream& s) { run_gemm(s, choice, p, at); }}};
        if (have) contenders.push_back({"cublaslt", [&](Stream& s) { plan.run(s, lt_at); }});
        GemmAddresses apart = at;
        if (p.epilogue.pairing() != Pairing::none)
          apart.c = rest.address(), plain.ldc = p.n, plain.stride_c = 0;
        if (bare) contenders.push_back({"bare", [&](Stream& s) { run_gemm(s, *bare, plain, apart); }});
        measure::CompareOptions o;
        o.rounds = rounds_;
        BenchRow r{"gemm_types/" + name, choice.variant.name, p.flops(), 0,
                   measure::compare(device_, contenders, o)};
        r.more = {{"error", error(p, a, b, c)}, {"peer_error", have ? error(p, a, b, theirs) : 0}};
        if (bare) {
          r.more.emplace_back("over_bare", r.timings[0].summary.median / r.timings.back().summary.median);
          r.timings.pop_back();
        }
        print_row(r);
        rows_.push_back(std::move(r));
      } catch (const Error& e) {
        std::printf("%-36s %s: %s\n", name.c_str(), choice.variant.name.c_str(), e.what());
      }
  } catch (const Error& e) {
    std::printf("%s: %s\n", name.c_str(), e.what());
  }
  void set_bias(std::uint64_t address) { bias_ = address; }
  RandomOperands& operands() { return operands_; }
  const runtime::Device& device() const { return device_; }
  const std::vector<BenchRow>& rows() const { return rows_; }

 private:
  static measure::CublasLtGemm peer_problem(const GemmProblem& p, LtEpilogue epilogue) {
    const auto n = [](std::uint64_t v) { return std::int64_t(v); };
    measure::CublasLtGemm g;
    g.a = p.type, g.b = *p.type_b, g.c = *p.type_c;
    g.tf32 = p.type == DType::f32 && p.precision == GemmPrecision::fast;
    g.fast_accum = p.precision == GemmPrecision::fast;
    g.trans_a = p.trans_a, g.trans_b = p.trans_b;
    g.m = n(p.m), g.n = n(p.n), g.k = n(p.k), g.lda = n(p.lda), g.ldb = n(p.ldb), g.ldc = n(p.ldc);
    g.epilogue = epilogue;
    g.scale = p.scaling == GemmScaling::tensor    ? LtScale::tensor
              : p.scaling == GemmScaling::channel ? LtScale::rows
              : p.scaling == GemmScaling::block   ? LtScale::blocks
                                                  : LtScale::none;
    return g;
  }

  std::vector<GemmChoice> choices(const GemmProblem& p, const GemmAddresses& at) const {
    if (!sweep_) return {select_gemm(p, at, device_.info())};
    std::vector<GemmChoice> all;
    if (p.plain() || p.precision == GemmPrecision::strict) all.push_back(select_gemm(p, at, device_.info()));
    std::vector<GemmMixedTuning> tunings{
        {128, 128, 5, 1, 2, 8},  {128, 128, 6, 1, 2, 8},  {128, 128, 6, 2, 2, 8},  {128, 128, 2, 1, 2, 8},
        {128, 128, 2, 2, 2, 8},  {128, 192, 4, 1, 2, 8},  {128, 192, 5, 1, 1, 8},  {128, 192, 4, 2, 2, 8},
        {128, 192, 5, 2, 1, 8},  {128, 192, 4, 1, 2, 16}, {128, 176, 5, 1, 1, 8},  {128, 176, 5, 1, 1, 16},
        {128, 176, 4, 1, 2, 16}, {128, 192, 5, 1, 1, 16}, {128, 192, 5, 1, 1, 12}, {128, 192, 4, 1, 2, 12},
        {128, 128, 6, 1, 2, 16}};
    for (const auto& [bm, bn] : {std::pair{128, 256},
                                 {128, 224},
                                 {128, 160},
                                 {128, 96},
                                 {128, 64},
                                 {64, 128},
                                 {64, 64},
                                 {64, 256},
                                 {192, 128},
                                 {192, 192},
                                 {256, 128},
                                 {256, 192}}) {
      const int subtiles = (bm == 256 ? 2 : 1) * bn * bytes(*p.type_c) / 128;
      if (bn * bytes(*p.type_c) % 128) continue;
      GemmMixedTuning t{bm, bn};
      t.buffers = subtiles % 2 == 0 ? 2 : subtiles % 3 == 0 ? 3 : 1;
      t.stages = std::min(8, (225 * 1024 - std::min(bm / 64, 3) * t.buffers * 8192) / ((bm + bn) * 128));
      if (t.stages >= 3) tunings.push_back(t);
    }
    for (int i = 0; i < int(tunings.size()); ++i) {
      auto& t = tunings[std::size_t(i)];
      if (p.precision == GemmPrecision::strict) continue;
      if (t.stages == 2 || is_promoted(p)) continue;  // promoted: below
      if (p.epilogue.pairing() != Pairing::none && t.bn == 192) continue;
      try {
        all.push_back(choose_mixed_sm90(p, at, device_.info(), t));
      } catch (const Error& e) {
        std::printf("%s\n", e.what());
      }
    }
    if (is_promoted(p)) promoted_choices(p, at, all);
    if (p.type == DType::e4m3 && p.precision == GemmPrecision::fast && p.scaling == GemmScaling::none)
      for (int group : {8, 16})
        for (GemmPersistentShape s : {GemmPersistentShape{.rows = 256, .cols = 200, .swap_ab = true},
                                      {.rows = 256, .cols = 176, .swap_ab = true},
                                      {.rows = 256, .cols = 128, .swap_ab = true},
                                      {.rows = 128, .cols = 256, .swap_ab = true},
                                      {.rows = 256, .cols = 176},
                                      {.rows = 256, .cols = 192},
                                      {.rows = 128, .cols = 256, .cluster = 2},
                                      {.rows = 128, .cols = 256}}) {
          s.group = group;
          all.push_back(choose_persistent_sm90(p.type, p.trans_a, p.trans_b, s));
        }
    const auto words = text::split(only_, ',');
    std::erase_if(all, [&](const GemmChoice& c) {
      return std::none_of(words.begin(), words.end(),
                          [&](auto part) { return c.variant.name.find(part) != std::string::npos; });
    });
    return all;
  }
  static bool is_promoted(const GemmProblem& p) {
    return (p.type == DType::f32 && p.precision == GemmPrecision::standard) ||
           ((p.type == DType::e4m3 || p.type == DType::e5m2) &&
            (p.precision == GemmPrecision::standard || p.scaling == GemmScaling::block));
  }
  // Tiles whose accumulators are promoted, in column slices and with one multiplied while another is added.
  void promoted_choices(const GemmProblem& p, const GemmAddresses& at, std::vector<GemmChoice>& all) const {
    struct Form {
      int bm, bn, promote;
      bool overlapped = false;
    };
    const int terms = p.type == DType::f32 ? 3 : 1;
    for (const auto& f : {Form{128, 128, 1},
                          {128, 128, 1, true},
                          {128, 128, 2, true},
                          {128, 256, 2},
                          {128, 256, 4, true},
                          {128, 192, 2},
                          {128, 192, 2, true},
                          {192, 128, 1},
                          {256, 128, 2},
                          {64, 128, 1},
                          {64, 128, 1, true},
                          {64, 256, 2},
                          {128, 64, 1},
                          {128, 64, 1, true},
                          {64, 64, 1}}) {
      GemmMixedTuning t{f.bm, f.bn};
      const int subtiles = (f.bm == 256 ? 2 : 1) * f.bn * bytes(*p.type_c) / 128;
      t.promote = f.promote, t.overlapped = f.overlapped;
      t.buffers = subtiles % 2 == 0 ? 2 : subtiles % 3 == 0 ? 3 : 1;
      t.stages = std::min(
          8, (225 * 1024 - std::min(f.bm / 64, 3) * t.buffers * 8192) / ((f.bm + f.bn) * 128 * terms));
      if (t.stages < 2 || f.bn * bytes(*p.type_c) % 128) continue;
      try {
        all.push_back(choose_mixed_sm90(p, at, device_.info(), t));
      } catch (const Error&) {  // slices across blocks of 128
      }
    }
  }

  // The largest error of a plain nt product at 24 places, over the sum of the products' magnitudes.
  double error(const GemmProblem& p, const runtime::Buffer<std::uint8_t>& a,
               const runtime::Buffer<std::uint8_t>& b, const runtime::Buffer<std::uint8_t>& c) const {
    if (!p.epilogue.empty() || p.beta != 0 || p.scaling != GemmScaling::none || p.trans_a || !p.trans_b)
      return 0;
    double worst = 0;
    std::uint64_t state = 1;
    const auto row = [&](const runtime::Buffer<std::uint8_t>& m, DType t, std::uint64_t first,
                         std::uint64_t n) {
      const auto size = std::uint64_t(bytes(t));
      return m.slice(first * size, n * size).to_vector();
    };
    for (int place = 0; place < 24; ++place) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      const std::uint64_t i = (state >> 33) % p.m, j = (state >> 11) % p.n;
      const auto x = row(a, p.type, i * p.lda, p.k), y = row(b, *p.type_b, j * p.ldb, p.k),
                 z = row(c, *p.type_c, i * p.ldc + j, 1);
      double sum = 0, size = 0;
      for (std::uint64_t k = 0; k < p.k; ++k) {
        const double v = load_as_double(p.type, x.data(), k) * load_as_double(*p.type_b, y.data(), k);
        sum += v, size += std::fabs(v);
      }
      const double e = std::fabs(load_as_double(*p.type_c, z.data(), 0) - sum) / (size + 1e-300);
      worst = std::isnan(e) ? INFINITY : std::max(worst, e);
    }
    return worst;
  }

  runtime::Device device_;
  RandomOperands operands_;
  std::vector<std::string> prefixes_;
  int rounds_;
  bool sweep_;
  std::string only_;
  std::uint64_t bias_ = 0;
  std::unique_ptr<measure::CublasLt> lt_;
  std::vector<BenchRow> rows_;
};

void types(Bench& b) {
  for (auto [m, n, k] : {std::array<std::uint64_t, 3>{4096, 4096, 4096},
                         {8192, 8192, 8192},
                         {4096, 14336, 4096},
                         {1024, 1024, 1024}}) {
    const auto size = text::cat("/", m, "x", n, "x", k);
    GemmProblem p{.type = DType::e4m3, .trans_b = true, .m = m, .n = n, .k = k};
    p.precision = GemmPrecision::fast;
    b.problem(text::cat("fp8/fast", size), p);
    p.precision = GemmPrecision::standard;
    b.problem(text::cat("fp8/standard", size), p);
    p.scaling = GemmScaling::block;
    b.problem(text::cat("fp8/blocks", size), p, LtEpilogue::none, false);
    p.scaling = GemmScaling::channel;
    b.problem(text::cat("fp8/channels", size), p);
    GemmProblem t{.type = DType::f32, .trans_b = true, .m = m, .n = n, .k = k};
    t.precision = GemmPrecision::fast;
    b.problem(text::cat("tf32", size), t);
    t.precision = GemmPrecision::standard;
    b.problem(text::cat("f32", size), t);
    if (m < 8192) {
      t.precision = GemmPrecision::strict;
      b.problem(text::cat("strict", size), t);
    }
    GemmProblem s{.type = DType::s8, .trans_b = true, .m = m, .n = n, .k = k};
    b.problem(text::cat("s8", size), s);
    GemmProblem h{.type = DType::bf16, .trans_b = true, .m = m, .n = n, .k = k};
    h.type_c = DType::f32;
    b.problem(text::cat("bf16_f32", size), h);
  }
}

void epilogues(Bench& b) {
  const GemmProblem plain{.type = DType::bf16, .trans_b = true, .m = 4096, .n = 14336, .k = 4096};
  const auto& d = b.device();
  const auto bias = b.operands()(DType::bf16, plain.n, 11),
             residual = b.operands()(DType::bf16, plain.m * plain.n, 12);
  const auto blocks = b.operands()(DType::f32, 32 * 112, 13);
  (void)d;
  const DeviceArray columns{bias.address(), plain.n, DType::bf16},
      matrix{residual.address(), plain.m * plain.n, DType::bf16},
      amax{blocks.address(), 32 * 112, DType::f32};
  b.set_bias(bias.address());
  const auto row = [&](const char* name, const Epilogue& e, LtEpilogue peer, bool has_peer) {
    GemmProblem p = plain;
    p.epilogue = e;
    b.problem(text::cat("epilogue/", name), p, peer, has_peer);
  };
  using namespace epilogue;
  row("none", {}, LtEpilogue::none, true);
  row("bias", epilogue::bias(columns), LtEpilogue::bias, true);
  row("bias_gelu_tanh", epilogue::bias(columns) | gelu_tanh(), LtEpilogue::gelu_bias, true);
  row("bias_gelu_tanh_fast", epilogue::bias(columns) | gelu_tanh_fast(), LtEpilogue::gelu_bias, true);
  row("bias_gelu", epilogue::bias(columns) | gelu(), LtEpilogue::none, false);
  row("bias_relu", epilogue::bias(columns) | relu(), LtEpilogue::relu_bias, true);
  row("residual", epilogue::residual(matrix), LtEpilogue::none, false);
  row("silu_amax", silu() | epilogue::amax(amax), LtEpilogue::none, false);
  row("swiglu", swiglu(Pairing::halves), LtEpilogue::none, false);
  GemmProblem beta = plain;
  beta.beta = 0.5f;
  b.problem("epilogue/beta", beta);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> prefixes, words(argv, argv + argc);
  std::string json, only;
  int rounds = 20;
  bool sweep = false;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--json") && i + 1 < argc)
      json = argv[++i];
    else if (!std::strcmp(argv[i], "--rounds") && i + 1 < argc)
      rounds = std::atoi(argv[++i]);
    else if (!std::strcmp(argv[i], "--only") && i + 1 < argc)
      only = argv[++i];
    else if (!std::strcmp(argv[i], "--sweep"))
      sweep = true;
    else
      prefixes.emplace_back(argv[i]);
  }
  return guarded([&] {
    Bench b(runtime::Device::open("cuda:0"), prefixes, rounds, sweep, only);
    epilogues(b);
    types(b);
    if (!json.empty()) write_results(json, b.device().info(), words, b.rows());
  });
}
