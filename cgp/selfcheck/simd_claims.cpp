// SPDX-License-Identifier: Apache-2.0
// Kernels of this processor (cgp/cpu) and cgp profile quant.
#include <fmt/core.h>
#include <time.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "cgp/base/error.h"
#include "cgp/base/random.h"
#include "cgp/cpu/gemm/gemm.h"
#include "cgp/cpu/loops/loops.h"
#include "cgp/cpu/matvec/matvec.h"
#include "cgp/cpu/quant/matmul.h"
#include "cgp/cpu/threads.h"
#include "cgp/profile/measure/measure.h"
#include "cgp/profile/peers/peer_cblas.h"
#include "cgp/profile/roofline/cpu_ceilings.h"
#include "cgp/quant/encode.h"
#include "cgp/selfcheck/claim.h"

namespace cgp::selfcheck {
namespace {

using cpu::Isa;
using fmt::format;
using std::int64_t;

std::vector<float> floats(int64_t n, std::uint64_t seed) {
  SplitMix64 random(seed);
  std::vector<float> v(static_cast<std::size_t>(n));
  for (float& x : v) x = float(random.uniform(-1, 1));
  return v;
}

// --- cgp profile quant ------------------------------------------------------------------------------------

/// The document of Q4_K on 4096 x 4096, measured once, and what the command prints for people.
const json& q4k_profile() {
  static const json seen = [] {
    const std::vector<std::string> words{"profile", "quant",       "--kernel", "q4k_gemv",
                                         "--size",  "4096x1x4096", "--runs",   "2"};
    auto with_json = words;
    with_json.push_back("--json");
    return json{{"document", run_self(with_json).at("json")}, {"text", run_self(words).at("out")}};
  }();
  return seen;
}

double metric(const json& seen, const char* name) {
  return seen.at("document").at("metrics").at(name).at("value");
}
bool near(double a, double b) { return std::fabs(a / b - 1) < 1e-6; }
constexpr double kElements = 4096.0 * 4096;
double seconds_of(const json& seen) { return metric(seen, "wall_clock_time_us") * 1e-6; }

std::string refute_rates(const json& j) {
  const double rate = kElements / 256 / seconds_of(j), seen = metric(j, "superblocks_per_sec");
  if (!near(seen, rate)) return format("{} superblocks/s where the time gives {}", seen, rate);
  if (!(metric(j, "effective_bandwidth_gbps") > 0)) return "no bandwidth";
  if (!(metric(j, "compression_speedup") > 0)) return "no speed-up";
  return j.at("document").at("check").at("pass").get<bool>() ? "" : "the result itself is wrong";
}

std::string refute_bytes(const json& j) {
  if (j.at("document").at("compressed_bytes") != 9437184)
    return j.at("document").at("compressed_bytes").dump() + " bytes";
  if (j.at("text").get<std::string>().find("9.44 MB") == std::string::npos) return "the text has not 9.44 MB";
  const double want = 9437184 / seconds_of(j) * 1e-9;
  return near(metric(j, "effective_bandwidth_gbps"), want)
             ? ""
             : format("{} GB/s where bytes and time give {}", metric(j, "effective_bandwidth_gbps"), want);
}

std::string refute_roofline(const json& j) {
  const auto& r = j.at("document").at("roofline");
  const auto value = [&](const char* name) { return r.at(name).get<double>(); };
  if (!near(value("gflops"), 2 * kElements / seconds_of(j) * 1e-9))
    return "its rate is not 2 M N K over the time";
  if (!near(value("ridge_flop_per_byte"), value("peak_gflops") / value("bandwidth_gbps")))
    return "its ridge is not peak over bandwidth";
  const double ceiling =
      std::min(value("peak_gflops"), value("intensity_flop_per_byte") * value("bandwidth_gbps"));
  if (!near(value("ceiling_gflops"), ceiling)) return "its ceiling is not that of its intensity";
  const bool memory = value("intensity_flop_per_byte") < value("ridge_flop_per_byte");
  if (r.at("bound") != (memory ? "memory" : "compute")) return "it names the wrong side of the ridge";
  for (const char* m : {"peak_compute_tflops", "peak_bandwidth_gbps"})
    if (j.at("document").at("metrics").at(m).at("source") != "measured")
      return std::string(m) + " is not measured";
  return j.at("text").get<std::string>().find("roofline") == std::string::npos
             ? "the text has no such section"
             : "";
}

std::string refute_estimate(const json& j) {
  const auto& e = j.at("document").at("estimate");
  if (e.at("kind") != "estimate" || e.at("assumes").get<std::string>().empty()) return "it is not labelled";
  if (!near(e.at("tokens_per_sec"), 1 / (seconds_of(j) * 1.5e9 / kElements)))
    return "it does not follow from the time";
  if (j.at("document").at("metrics").contains("tokens_per_sec")) return "it stands among the measurements";
  const std::string text = j.at("text");
  const auto at = text.find("tokens/s");
  return at == std::string::npos || text.find("an estimate, no measurement", at) != at + 10
             ? "the text does not call it an estimate"
             : "";
}

void quant_claims(std::vector<Claim>& out) {
  const auto q4k = [] { return q4k_profile(); };
  const std::string by = "profile quant --kernel q4k_gemv --size 4096x1x4096";
  out.push_back({"FALS-074",
                 "Q4_K: superblocks per second are elements over 256 over the time; bandwidth and speed-up",
                 by + ", against its own time", false, false, q4k, refute_rates, [](json& j) {
                   auto& v = j.at("document").at("metrics").at("superblocks_per_sec").at("value");
                   v = 8 * v.get<double>();  // blocks of 32
                 }});
  out.push_back({"FALS-075", "Q4_K: the effective bandwidth counts compressed bytes, 9.44 MB for 4096 x 4096",
                 by + ": 16 blocks of 144 bytes in each of 4096 rows", false, false, q4k, refute_bytes,
                 [](json& j) {  // 4 bits a weight, scales forgotten
                   j.at("document").at("compressed_bytes") = 4096 * 4096 / 2;
                 }});
  out.push_back({"FALS-076q",
                 "Q4_K: there is a roofline, its ceilings are measured, the point lies where it says",
                 by + ", the section's own numbers", false, false, q4k, refute_roofline, [](json& j) {
                   auto& bound = j.at("document").at("roofline").at("bound");
                   bound = bound == "memory" ? "compute" : "memory";
                 }});
  out.push_back({"FALS-077b", "Q4_K: tokens per second are there, and are called an estimate", by, false,
                 false, q4k, refute_estimate,
                 [](json& j) { j.at("document").at("estimate").at("kind") = "measured"; }});
  out.push_back(
      {"FALS-QUANT-ALL-001", "quant --all measures every kernel and sums up",
       "its rows: five kernels, each right; the fastest by their rates", false, false,
       [] {
         return run_self({"profile", "quant", "--all", "--size", "256x1x512", "--runs", "1", "--json"})
             .at("json");
       },
       [](const json& j) -> std::string {
         std::string fastest;
         double best = 0;
         std::vector<std::string> names;
         for (const auto& row : j.at("rows")) {
           if (!row.at("check").at("pass").get<bool>()) return row.at("kernel").dump() + " is wrong";
           names.push_back(row.at("kernel"));
           const double rate = row.at("metrics").at("superblocks_per_sec").at("value");
           if (rate > best) best = rate, fastest = names.back();
         }
         if (names != std::vector<std::string>{"q4k_gemv", "q5k_gemv", "q6k_gemv", "q8_gemv", "nf4_gemv"})
           return "the rows are " + json(names).dump();
         if (j.at("summary").at("kernels") != names.size()) return "the summary counts others";
         return j.at("summary").at("fastest") == fastest ? "" : "the fastest is " + fastest;
       },
       [](json& j) { j.at("rows").erase(2); }});
}

// --- rates ------------------------------------------------------------------------------------------------

double processor_time() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

/// Seconds that this program's threads were ready to run while others had their processors.
double waited() {
  double sum = 0;
  std::error_code ec;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ec)) {
    std::ifstream file(task.path() / "schedstat");
    double ran = 0, queued = 0;
    if (file >> ran >> queued) sum += queued * 1e-9;
  }
  return sum;
}

/// What misses its bar while others had the processors is not refuted: it was not measured.
class Contention {
 public:
  void decide(bool met) const {
    const double share = (waited() - waited_) / ((measure::now() - start_) * cpu::processors());
    if (!met && share > 0.1)
      throw NotHere(format("other programs had the processors for {:.0f} % of the time", 100 * share));
  }

 private:
  double waited_ = waited(), start_ = measure::now();
};

constexpr int64_t kSide = 1024;
constexpr double kWork = 2.0 * kSide * kSide * kSide;

struct Square {
  std::vector<float> a = floats(kSide * kSide, 1), b = floats(kSide * kSide, 2), ours = a, theirs = a;
  void run(int threads) {
    cpu::gemm(cpu::Transpose::no, cpu::Transpose::no, kSide, kSide, kSide, 1, a.data(), kSide, b.data(),
              kSide, 0, ours.data(), kSide, {.threads = threads});
  }
  void run(const measure::Cblas& peer) {
    peer.gemm(false, false, kSide, kSide, kSide, 1, a.data(), kSide, b.data(), kSide, 0, theirs.data(),
              kSide);
  }
};

/// One thread of each in turns, by the thread's own processor time: what else runs here disturbs that least.
json against(const std::vector<std::string>& libraries) {
  const measure::Cblas peer = [&] {
    try {
      return measure::Cblas(libraries);
    } catch (const Unsupported& e) {
      throw NotHere(e.what());
    }
  }();
  if (!peer.set_threads(1)) throw NotHere(peer.name() + " cannot be told to use one thread");
  Square s;
  std::vector<double> ratios;
  double best_ours = 1e9, best_theirs = 1e9;
  for (int r = 0; r < 41; ++r) {
    double ours = 0, theirs = 0;
    for (bool mine : {r % 2 == 0, r % 2 != 0}) {
      const double start = processor_time();
      mine ? s.run(1) : s.run(peer);
      (mine ? ours : theirs) = processor_time() - start;
    }
    if (r == 0) continue;
    ratios.push_back(theirs / ours), best_ours = std::min(best_ours, ours),
                                     best_theirs = std::min(best_theirs, theirs);
  }
  double off = 0;
  for (std::size_t i = 0; i < s.ours.size(); ++i)
    off = std::max(off, std::fabs(double(s.ours[i]) - s.theirs[i]));
  return {{"peer", peer.name()},
          {"isa", cpu::name(cpu::chosen_isa())},
          {"ratio", measure::median(ratios)},
          {"gflops", kWork / best_ours * 1e-9},
          {"peer_gflops", kWork / best_theirs * 1e-9},
          {"difference", off}};
}

using Library = std::vector<std::string> (*)();

/// Against the fastest of these libraries.
Claim compared(const std::string& id, const std::string& text, double share,
               const std::vector<Library>& libraries) {
  return {id,
          text,
          "1024 x 1024 x 1024, 40 rounds in turns, median of the ratios of processor time; the results agree",
          false,
          true,
          [libraries] {
            json least;
            for (const Library l : libraries)
              if (json seen = against(l()); least.is_null() || seen.at("ratio") < least.at("ratio"))
                least = std::move(seen);
            return least;
          },
          [share](const json& j) -> std::string {
            // both sums have 1024 terms of at most 1, rounded at most 1024 times each
            if (!(j.at("difference") < 2.0 * kSide * kSide * 0x1p-24)) return "the results differ";
            return j.at("ratio") >= share ? "" : format("{:.3f} times its rate", j.at("ratio").get<double>());
          },
          [share](json& j) { j.at("ratio") = share - 0.01; }};
}

/// The products of one token of a model of 1.5 billion weights: 28 layers and the head, each weight in memory
/// of its own, so that no cache holds them from one token to the next.
json composite() {
  struct Matrix {
    int64_t m, k;
  };
  std::vector<Matrix> products;
  for (int layer = 0; layer < 28; ++layer)
    for (const Matrix& p : {Matrix{1536, 1536}, Matrix{256, 1536}, Matrix{256, 1536}, Matrix{1536, 1536},
                            Matrix{8960, 1536}, Matrix{8960, 1536}, Matrix{1536, 8960}})
      products.push_back(p);
  products.push_back({151936, 1536});
  int64_t bytes = 0, weights = 0;
  for (const auto& p : products)
    bytes += std::int64_t(quant::bytes_of(quant::Format::q4_k, std::uint64_t(p.m * p.k))),
        weights += p.m * p.k;
  std::vector<std::byte> pattern(std::size_t(quant::bytes_of(quant::Format::q4_k, 256 * 64)));
  quant::encode(quant::Format::q4_k, floats(256 * 64, 3), pattern);
  std::vector<std::byte> all(static_cast<std::size_t>(bytes));
  for (std::size_t i = 0; i < all.size(); i += pattern.size())
    std::memcpy(&all[i], pattern.data(), std::min(pattern.size(), all.size() - i));
  const auto x = floats(8960, 4);
  std::vector<float> y(151936);
  const Contention others;
  double best = 1e9;
  for (int token = 0; token < 4; ++token) {
    const double start = measure::now();
    std::size_t at = 0;
    for (const auto& p : products) {
      const auto size = std::size_t(quant::bytes_of(quant::Format::q4_k, std::uint64_t(p.m * p.k)));
      cpu::quant_matmul(quant::Format::q4_k, std::span(all).subspan(at, size), p.m, 1, p.k,
                        std::span(x).first(std::size_t(p.k)), std::span(y).first(std::size_t(p.m)),
                        {.activations = cpu::Activations::int8, .threads = 0});
      at += size;
    }
    best = std::min(best, measure::now() - start);
  }
  others.decide(1 / best > 5);
  return {{"weights", weights}, {"tokens_per_sec", 1 / best}};
}

void rate_claims(std::vector<Claim>& out) {
  out.push_back({"FALS-090", "a parallel product of 1024 x 1024 x 1024 exceeds 100 GFLOP/s",
                 "all processors, the best of the runs in 4 s", false, true,
                 [] {
                   if (cpu::processors() < 2) throw NotHere("needs two processors");
                   if (!cpu::has(Isa::avx2)) throw NotHere("needs a processor with AVX2");
                   Square s;
                   double best = 0;
                   const Contention others;
                   for (const double end = measure::now() + 4; measure::now() < end;) {
                     const double start = measure::now();
                     s.run(0);
                     best = std::max(best, kWork / (measure::now() - start) * 1e-9);
                   }
                   others.decide(best > 100);
                   return json{{"gflops", best}, {"processors", cpu::processors()}};
                 },
                 [](const json& j) -> std::string {
                   return j.at("gflops") > 100.0 ? ""
                                                 : format("{:.1f} GFLOP/s", j.at("gflops").get<double>());
                 },
                 [](json& j) { j.at("gflops") = 99; }});
  out.push_back(compared("FALS-090b",
                         "one thread's product reaches 0.95 of OpenBLAS's rate (NumPy's library)", 0.95,
                         {measure::Cblas::openblas}));
  out.push_back(compared("FALS-091", "one thread's product reaches 0.9 of BLIS's rate (for ndarray's class)",
                         0.9, {measure::Cblas::blis}));
  out.push_back(compared(
      "FALS-094", "one thread's product reaches 0.9 of the faster of OpenBLAS and BLIS (for faer's class)",
      0.9, {measure::Cblas::openblas, measure::Cblas::blis}));
  out.push_back({"FALS-092",
                 "Q4_K: the products of a 1.5-billion-weight model take less than 200 ms for a token",
                 "28 layers and the head, 868 MB of weights, the best of 4 tokens; no attention", false, true,
                 composite,
                 [](const json& j) -> std::string {
                   if (j.at("weights") < 1'500'000'000)
                     return "these are " + j.at("weights").dump() + " weights";
                   return j.at("tokens_per_sec") > 5.0
                              ? ""
                              : format("{:.1f} tokens/s", j.at("tokens_per_sec").get<double>());
                 },
                 [](json& j) { j.at("tokens_per_sec") = 4.9; }});
  out.push_back(
      {"FALS-093",
       "one thread's product reaches 120 GFLOP/s, or three quarters of the core's multiply-adds where these "
       "stay below 160",
       "1024 x 1024 x 1024 by processor time beside the measured multiply-adds, best of 20", false, true,
       [] {
         if (!cpu::has(Isa::avx2)) throw NotHere("needs a processor with AVX2");
         Square s;
         double best = 0, peak = 0;
         for (int r = 0; r < 20; ++r) {
           const double start = processor_time();
           s.run(1);
           best = std::max(best, kWork / (processor_time() - start) * 1e-9);
           peak = std::max(peak, profile::fma_peak_gflops(cpu::chosen_isa(), 0.02));
         }
         return json{{"gflops", best}, {"peak_gflops", peak}};
       },
       [](const json& j) -> std::string {
         const double bar = std::min(120.0, 0.75 * j.at("peak_gflops").get<double>());
         return j.at("gflops") >= bar ? ""
                                      : format("{:.1f} of {:.1f} GFLOP/s", j.at("gflops").get<double>(), bar);
       },
       [](json& j) { j.at("gflops") = 0.5 * std::min(120.0, j.at("peak_gflops").get<double>()); }});
}

// --- results ----------------------------------------------------------------------------------------------

/// The largest error of y (m sums of n products) over its bound: n + 1 roundings of every term's magnitude.
double excess(int64_t m, int64_t n, const float* a, const float* x, int64_t x_step, const float* y,
              int64_t y_step) {
  double worst = 0;
  for (int64_t i = 0; i < m; ++i) {
    double sum = 0, magnitude = 0;
    for (int64_t j = 0; j < n; ++j) {
      const double t = double(a[i * n + j]) * x[j * x_step];
      sum += t, magnitude += std::fabs(t);
    }
    const double off = std::fabs(y[i * y_step] - sum) / (double(n + 1) * 0x1p-24 * magnitude + 1e-30);
    worst = std::max(worst, std::isnan(off) ? 1e9 : off);
  }
  return worst;
}

double gemm_excess(Isa isa, int64_t m, int64_t n, int64_t k, int threads) {
  const auto a = floats(m * k, 5), b = floats(k * n, 6);
  std::vector<float> c(std::size_t(m * n), std::nanf(""));
  cpu::gemm(cpu::Transpose::no, cpu::Transpose::no, m, n, k, 1, a.data(), k, b.data(), n, 0, c.data(), n,
            {.isa = isa, .threads = threads});
  double worst = 0;
  for (int64_t j = 0; j < n; j = j < 40 || j == n - 1 ? j + 1 : n - 1)
    worst = std::max(worst, excess(m, k, a.data(), b.data() + j, n, c.data() + j, n));
  return worst;
}

std::string within(const json& j) {
  return j.at("worst") <= 1.0 ? "" : format("an error of {} times its bound", j.at("worst").get<double>());
}
void beyond(json& j) { j.at("worst") = 1.1; }

json tiles() {
  double worst = 0;
  json registers = json::array();
  for (Isa isa : cpu::all_isas()) {
    if (!cpu::has(isa)) continue;
    for (auto [m, n, k, threads] : {std::array<int64_t, 4>{44, 44, 44, 1},
                                    {64, 6, 64, 1},
                                    {6, 64, 64, 1},
                                    {256, 256, 256, 1},
                                    {256, 256, 256, 2},
                                    {44, 700, 300, 2}})
      worst = std::max(worst, gemm_excess(isa, m, n, k, int(threads)));
    const auto t = cpu::gemm_tile(isa);
    registers.push_back({{"isa", cpu::name(isa)}, {"used", t.sums + t.operands}, {"there", t.registers}});
  }
  return {{"worst", worst}, {"registers", registers}};
}

json wide_matvec() {
  if (!cpu::has(Isa::avx512)) throw NotHere("needs a processor with AVX-512");
  double worst = 0;
  for (int64_t n : {1, 15, 16, 17, 63, 64, 65, 80, 96, 128, 130, 1000})
    for (int64_t m : {1, 7, 64}) {
      const auto a = floats(m * n, 7), x = floats(n, 8);
      std::vector<float> y(std::size_t(m + 1), std::nanf(""));
      cpu::matvec(m, n, a.data(), n, x.data(), y.data(), {.isa = Isa::avx512});
      worst = std::max(worst, excess(m, n, a.data(), x.data(), 1, y.data(), 1));
      if (!std::isnan(y.back())) worst = 1e9;  // one beyond the end was written
    }
  return {{"worst", worst}};
}

json projections() {
  if (!cpu::has(Isa::avx2)) throw NotHere("needs a processor with AVX2");
  double worst = 0;
  const int64_t hidden = 200, heads[] = {200, 72, 72};
  const auto x = floats(hidden, 9);
  for (int64_t rows : heads) {  // Q, K and V of grouped heads
    const auto w = floats(rows * hidden, 10 + std::uint64_t(rows));
    std::vector<float> wide(std::size_t(rows), 0.0f), plain = wide;
    cpu::matvec(rows, hidden, w.data(), hidden, x.data(), wide.data(), {.isa = Isa::avx2});
    cpu::matvec(rows, hidden, w.data(), hidden, x.data(), plain.data(), {.isa = Isa::scalar});
    for (const auto* y : {&wide, &plain})
      worst = std::max(worst, excess(rows, hidden, w.data(), x.data(), 1, y->data(), 1));
  }
  return {{"worst", worst}};
}

/// Elements that differ between one thread and three, one row below the size that takes a second thread, at
/// it and above.
json thresholds() {
  const int64_t n = 512, edge = 2 * cpu::kMatvecWorkPerThread / n;
  json seen{{"different", 0}, {"threads", json::array()}};
  int different = 0;
  for (int64_t m : {edge - 1, edge, edge + 1}) {
    const auto a = floats(m * n, 11), x = floats(m + n, 12);
    std::vector<float> results[2];
    for (int threads : {1, 3}) {
      auto& y = results[threads == 3];
      y.assign(std::size_t(m + n + m * n), std::nanf(""));
      cpu::matvec(m, n, a.data(), n, x.data(), y.data(), {.threads = threads});
      cpu::vecmat(m, n, x.data(), a.data(), n, y.data() + m, {.threads = threads});
      cpu::transpose(m, n, a.data(), n, y.data() + m + n, m, threads);
    }
    for (std::size_t i = 0; i < results[0].size(); ++i) different += !(results[0][i] == results[1][i]);
    seen["threads"].push_back(cpu::threads_for(m * n, cpu::kMatvecWorkPerThread, 3));
  }
  seen["different"] = different;
  return seen;
}

void result_claims(std::vector<Claim>& out) {
  out.push_back(
      {"FALS-CODEGEN",
       "every inner kernel of the product is right (44, 64 x 6, 256, B shared by threads) and fits its "
       "registers",
       "sums in double, every instruction set there is; sums and operands counted", false, false, tiles,
       [](const json& j) -> std::string {
         for (const auto& r : j.at("registers"))
           if (r.at("used") > r.at("there")) return r.at("isa").dump() + " needs " + r.at("used").dump();
         return within(j);
       },
       [](json& j) { j.at("registers").at(0).at("used") = 33; }});
  out.push_back(
      {"FALS-GEMV512",
       "products with a vector are right with AVX-512 for the sizes of attention and with remainders",
       "sums in double, 1 to 1000 columns; nothing beyond the end is written", false, false, wide_matvec,
       within, beyond});
  out.push_back({"FALS-SIMD-001b", "projections to Q, K and V agree with and without vectors",
                 "both against sums in double", false, false, projections, within, beyond});
  out.push_back(
      {"FALS-PARALLEL-001..003",
       "transposition and products with a vector give one thread's bits on either side of the size that "
       "takes a second one",
       "512 columns; one row less, as many, one more; one thread and three", false, false, thresholds,
       [](const json& j) -> std::string {
         if (j.at("threads") != json{1, 2, 2}) return "the threshold is elsewhere: " + j.at("threads").dump();
         return j.at("different") == 0 ? "" : j.at("different").dump() + " elements differ";
       },
       [](json& j) { j.at("different") = 1; }});
}

}  // namespace

json poisoned_results() {
  int different = 0, strange = 0;
  const auto a = floats(96 * 128, 13), x = floats(128, 14);
  std::vector<float> positive = x;
  for (float& v : positive) v = std::fabs(v) + 0.5f;
  std::vector<std::byte> w(std::size_t(quant::bytes_of(quant::Format::q4_k, 12 * 1024)));
  quant::encode(quant::Format::q4_k, a, w);
  std::vector<float> first;
  for (float poison : {std::nanf(""), std::numeric_limits<float>::infinity(), 1e30f, 0.0f}) {
    std::vector<float> y(600, poison);
    cpu::loops().square_root(positive.data(), y.data(), 100);
    cpu::loops().reciprocal(positive.data(), y.data() + 100, 100);
    cpu::matvec(96, 128, a.data(), 128, x.data(), y.data() + 200);
    cpu::vecmat(96, 128, x.data(), a.data(), 128, y.data() + 300);
    cpu::gemm(cpu::Transpose::no, cpu::Transpose::no, 10, 10, 50, 1, a.data(), 50, a.data(), 10, 0,
              y.data() + 430, 10);
    cpu::quant_matmul(quant::Format::q4_k, w, 48, 1, 256, std::span(a).first(256),
                      std::span(y).subspan(530, 48));
    y.resize(578), y.erase(y.begin() + 428, y.begin() + 430), y.erase(y.begin() + 296, y.begin() + 300);
    if (first.empty()) first = y;
    for (std::size_t i = 0; i < y.size(); ++i)
      different += !(y[i] == first[i]), strange += !(std::fabs(y[i]) < 1e6f);
  }
  return {{"different", different}, {"strange", strange}};
}

void add_simd_claims(std::vector<Claim>& out) {
  quant_claims(out);
  rate_claims(out);
  result_claims(out);
}

}  // namespace cgp::selfcheck
