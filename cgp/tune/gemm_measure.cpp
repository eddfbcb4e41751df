// SPDX-License-Identifier: Apache-2.0
#include "cgp/tune/gemm_measure.h"

#include <algorithm>
#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::tune {
namespace {

using kernels::GemmProblem;
using measure::Contender;
using runtime::Buffer;
using runtime::Stream;

measure::CublasLtGemm peer_problem(const GemmTask& task) {
  const GemmProblem& p = task.problem;
  const auto n = [](std::uint64_t v) { return std::int64_t(v); };
  const bool fast = p.precision == kernels::GemmPrecision::fast;
  measure::CublasLtGemm g;
  g.a = p.type, g.b = *p.type_b, g.c = *p.type_c;
  g.tf32 = fast && p.type == DType::f32;
  g.fast_accum = fast && p.type != DType::f32;
  g.trans_a = p.trans_a, g.trans_b = p.trans_b;
  g.m = n(p.m), g.n = n(p.n), g.k = n(p.k), g.batch = n(p.batch);
  g.lda = n(p.lda), g.ldb = n(p.ldb), g.ldc = n(p.ldc);
  g.stride_a = n(p.stride_a), g.stride_b = n(p.stride_b), g.stride_c = n(p.stride_c);
  g.scale = measure::LtScale(int(p.scaling));
  constexpr std::pair<std::string_view, measure::LtEpilogue> epilogues[] = {
      {"relu", measure::LtEpilogue::relu},
      {"gelu", measure::LtEpilogue::gelu},
      {"bias", measure::LtEpilogue::bias},
      {"bias_relu", measure::LtEpilogue::relu_bias},
      {"bias_gelu", measure::LtEpilogue::gelu_bias}};
  for (const auto& [word, e] : epilogues)
    if (task.epilogue == word) g.epilogue = e;
  return g;
}
static_assert(int(measure::LtScale::tensor) == int(kernels::GemmScaling::tensor) &&
              int(measure::LtScale::rows) == int(kernels::GemmScaling::channel) &&
              int(measure::LtScale::blocks) == int(kernels::GemmScaling::block));

bool has_bias(const GemmTask& t) { return t.epilogue.rfind("bias", 0) == 0; }

// The tanh form of GELU, as cuBLASLt has it.
kernels::Epilogue epilogue_of(const GemmTask& t, const Buffer<std::uint8_t>& bias) {
  namespace e = kernels::epilogue;
  kernels::Epilogue out;
  if (has_bias(t)) out = e::bias(kernels::DeviceArray(bias.address(), t.problem.n, *t.problem.type_c));
  if (t.epilogue.find("relu") != t.epilogue.npos) return out | e::relu();
  if (t.epilogue.find("gelu") != t.epilogue.npos)
    return out | (bytes(*t.problem.type_c) <= 2 ? e::gelu_tanh_fast() : e::gelu_tanh());
  return out;
}

double activated(const GemmTask& t, double v) {
  if (t.epilogue.find("relu") != t.epilogue.npos) return v > 0 ? v : 0;
  if (t.epilogue.find("gelu") != t.epilogue.npos)
    return 0.5 * v * (1 + std::tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
  return v;
}

// What the way of adding leaves open, as a share of the sum of |a * b|.
double sum_error(const GemmProblem& p) {
  if (p.type == DType::s8) return 0;
  if (p.type == DType::f32 && p.precision == kernels::GemmPrecision::fast) return 0x1p-10;
  if (bytes(p.type) == 1) return 0x1p-12;
  return double(p.k + 16) * 0x1p-24;
}

// `count` elements from `first` on, `step` apart.
std::vector<double> elements(const Buffer<std::uint8_t>& from, DType t, std::uint64_t first,
                             std::uint64_t step, std::uint64_t count) {
  const auto size = std::uint64_t(bytes(t));
  std::vector<double> out(count);
  if (step == 1) {
    const auto raw = from.slice(first * size, count * size).to_vector();
    for (std::uint64_t i = 0; i < count; ++i) out[i] = load_as_double(t, raw.data(), i);
    return out;
  }
  Stream& s = from.device().stream();
  std::vector<std::uint8_t> raw(count * size);
  s.download_2d<const std::uint8_t>(from.slice(first * size, ((count - 1) * step + 1) * size), step * size,
                                    raw, size, size, count);
  s.wait();
  for (std::uint64_t i = 0; i < count; ++i) out[i] = load_as_double(t, raw.data(), i);
  return out;
}

}  // namespace

double gemm_error_at_places(const GemmTask& task, const Buffer<std::uint8_t>& a,
                            const Buffer<std::uint8_t>& b, const Buffer<std::uint8_t>& c,
                            const Buffer<std::uint8_t>& bias, int places) {
  const GemmProblem& p = task.problem;
  double worst = 0;
  std::uint64_t state = 1;
  for (int place = 0; place < places; ++place) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const std::uint64_t i = (state >> 33) % p.m, j = (state >> 11) % p.n, z = (state >> 21) % p.batch;
    const auto row =
        elements(a, p.type, z * p.stride_a + (p.trans_a ? i : i * p.lda), p.trans_a ? p.lda : 1, p.k);
    const auto col =
        elements(b, *p.type_b, z * p.stride_b + (p.trans_b ? j * p.ldb : j), p.trans_b ? 1 : p.ldb, p.k);
    double sum = 0, size = 0;
    for (std::uint64_t k = 0; k < p.k; ++k) sum += row[k] * col[k], size += std::fabs(row[k] * col[k]);
    if (has_bias(task)) sum += elements(bias, *p.type_c, j, 1, 1)[0];
    const double want = activated(task, sum),
                 got = elements(c, *p.type_c, z * p.stride_c + i * p.ldc + j, 1, 1)[0];
    double allowed = size * sum_error(p) + kernels::unit_roundoff(*p.type_c) * std::fabs(want);
    if (task.epilogue.find("gelu") != task.epilogue.npos) allowed += std::fabs(sum) * 0x1p-10;  // tanh.approx
    worst = std::max(worst, std::fabs(got - want) / std::max(allowed, 1e-300));
  }
  return worst;
}

GemmMeasure::GemmMeasure(const runtime::Device& device, bool peer)
    : device_(device), random_(device), sampler_(device.info()) {
  if (device.is_emulator())
    throw Unsupported({"times are measured on a GPU; the emulator has exact counters instead of a clock",
                       {},
                       text::cat("the device is ", device.info().name),
                       "on a machine with a GPU: --device cuda. Without one: cgp plan gemm predicts"});
  if (!peer) {
    no_peer_ = "not asked for";
    return;
  }
  try {
    peer_ = std::make_unique<measure::CublasLt>(device);
  } catch (const Unsupported& e) {
    no_peer_ = e.what();
  }
}

std::string GemmMeasure::peer_version() const {
  if (!peer_) return {};
  const auto v = peer_->version();
  return text::cat(v / 10000, ".", v % 10000 / 100, ".", v % 100);
}

GemmMeasure::Operands GemmMeasure::operands(const GemmProblem& p) {
  Operands o{random_(p.type, p.a_elements(), 1),
             random_(*p.type_b, p.b_elements(), 2),
             Buffer<std::uint8_t>(device_, p.c_elements() * std::uint64_t(bytes(*p.type_c))),
             random_(*p.type_c, p.n, 3),
             {}};
  if (p.scaling != kernels::GemmScaling::none) {
    const std::vector<float> ones(std::max(p.m, p.n) * ((p.k + 127) / 128) * p.batch, 1.0f);
    o.factors = Buffer<std::uint8_t>(device_, ones.size() * 4);
    o.factors.upload({reinterpret_cast<const std::uint8_t*>(ones.data()), ones.size() * 4});
  }
  return o;
}

GemmRow GemmMeasure::row(const GemmTask& task, const kernels::GemmTable& table, int rounds) {
  const Operands o = operands(task.problem);
  const auto at = o.at();
  GemmProblem p = task.problem;
  p.epilogue = epilogue_of(task, o.bias);
  const auto choice = kernels::select_gemm(p, at, device_.info(), table);
  GemmRow r{.key = task.name(), .variant = choice.variant.name, .flops = p.flops()};
  r.bytes = double(o.a.bytes() + o.b.bytes() + o.c.bytes());
  kernels::run_gemm(device_.stream(), choice, p, at);
  device_.stream().wait();
  if (p.m && p.n && p.k) r.error = gemm_error_at_places(task, o.a, o.b, o.c, o.bias);
  std::vector<Contender> contenders{{"cgp", [&](Stream& s) { kernels::run_gemm(s, choice, p, at); }}};
  Buffer<std::uint8_t> theirs;
  measure::CublasLtPlan best;
  measure::CublasLtOperands to{at.a, at.b, 0, o.bias.address(), at.scale_a, at.scale_b};
  if (peer_) try {
      theirs = Buffer<std::uint8_t>(device_, o.c.bytes());
      to.c = theirs.address();
      best = peer_->search(peer_problem(task), to);
      r.peer = best.text(), r.peer_candidates = best.candidates;
      best.run(device_.stream(), to);
      device_.stream().wait();
      r.peer_error = gemm_error_at_places(task, o.a, o.b, theirs, o.bias);
      contenders.push_back({"cublaslt", [&best, &to](Stream& s) { best.run(s, to); }});
    } catch (const Unsupported& e) {  // a product that cuBLASLt does not have
      r.peer = text::cat("none: ", e.rule());
    }
  measure::CompareOptions options;
  options.rounds = rounds ? rounds : p.flops() > 1e12 ? 20 : 40;
  (void)sampler_.take();
  r.timings = measure::compare(device_, contenders, options);
  r.state = sampler_.take();
  return r;
}

std::vector<GemmMeasure::Timed> GemmMeasure::candidates(const GemmProblem& p, int rounds,
                                                        std::string& selected) {
  const Operands o = operands(p);
  const auto at = o.at();
  std::vector<Timed> runs, failed;
  for (auto& c : kernels::gemm_candidates(p, at, device_.info())) {
    if (runs.empty() && failed.empty()) selected = c.variant.name;
    try {
      kernels::run_gemm(device_.stream(), c, p, at);
      device_.stream().wait();
      runs.push_back({c, {}, {}});
    } catch (const Error& e) {
      failed.push_back({c, {}, e.what()});
    }
  }
  const auto time = [&](std::size_t from, std::size_t count, int warmup, int n) {
    std::vector<Contender> contenders;
    for (std::size_t i = from; i < from + count; ++i)
      contenders.push_back(
          {runs[i].choice.variant.name, [&, i](Stream& s) { kernels::run_gemm(s, runs[i].choice, p, at); }});
    measure::CompareOptions options;
    options.warmup = warmup, options.rounds = n;
    auto timings = measure::compare(device_, contenders, options);
    for (std::size_t i = 0; i < count; ++i) runs[from + i].timing = std::move(timings[i]);
  };
  if (!runs.empty()) {
    const auto faster = [](const Timed& x, const Timed& y) {
      return x.timing.summary.median < y.timing.summary.median;
    };
    time(0, runs.size(), 1, std::max(3, rounds / 4));
    std::stable_sort(runs.begin(), runs.end(), faster);
    const std::size_t leaders = std::min<std::size_t>(3, runs.size());
    time(0, leaders, 1, rounds);
    std::stable_sort(runs.begin(), runs.begin() + std::ptrdiff_t(leaders), faster);
  }
  runs.insert(runs.end(), failed.begin(), failed.end());
  return runs;
}

}  // namespace cgp::tune
