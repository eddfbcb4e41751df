// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/lint/quant_profile.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/random.h"
#include "cgp/base/text.h"
#include "cgp/cpu/matvec/matvec.h"
#include "cgp/cpu/threads.h"
#include "cgp/profile/measure/measure.h"
#include "cgp/profile/roofline/cpu_ceilings.h"
#include "cgp/profile/view/kernel_table.h"
#include "cgp/profile/view/table.h"
#include "cgp/quant/decode.h"
#include "cgp/quant/encode.h"

namespace cgp::profile {
namespace {

using cpu::Activations;
using fmt::format;
using measure::Metric;
using measure::Source;
using quant::Format;
using text::cat;

constexpr std::pair<const char*, Format> kKernels[] = {{"q4k_gemv", Format::q4_k},
                                                       {"q5k_gemv", Format::q5_k},
                                                       {"q6k_gemv", Format::q6_k},
                                                       {"q8_gemv", Format::q8_0},
                                                       {"nf4_gemv", Format::nf4}};

Format type_of(const std::string& kernel) {
  for (const auto& [name, type] : kKernels)
    if (kernel == name) return type;
  throw ArgumentError(ErrorText{cat("there is no kernel \"", kernel, "\""),
                                {},
                                cat("there are ", text::join(quant_kernels(), ", ")),
                                {}});
}

/// A problem whose weights repeat after some rows: its speed does not depend on the values.
struct Problem {
  Format type;
  std::int64_t m, n, k;
  std::vector<std::byte> weights;
  std::vector<float> wide, x, y, y_wide;  ///< `wide`: the same weights as floats
  cpu::QuantOptions options;

  Problem(const QuantProfileOptions& o, Format t) : type(t), m(o.m), n(o.n), k(o.k) {
    const std::int64_t row = std::int64_t(quant::bytes_of(type, std::uint64_t(k))),
                       some = std::min<std::int64_t>(m, 8);
    SplitMix64 random(1);
    std::vector<float> values(std::size_t(some * k));
    for (float& v : values) v = float(random.normal());
    weights.resize(std::size_t(some * row));
    quant::encode(type, values, weights);
    quant::decode(type, weights, values);
    weights.resize(std::size_t(m * row)), wide.resize(std::size_t(m * k));
    for (std::int64_t i = 0; i < m; ++i) {
      if (i >= some) std::copy_n(weights.begin() + i % some * row, row, weights.begin() + i * row);
      std::copy_n(values.begin() + i % some * k, k, wide.begin() + i * k);
    }
    x.resize(std::size_t(n * k)), y.resize(std::size_t(m * n)), y_wide.resize(y.size());
    for (float& v : x) v = float(random.normal());
    const bool integers = o.activations.empty() ? cpu::has_int8(type) : o.activations == "int8";
    options = {.isa = o.isa,
               .activations = integers ? Activations::int8 : Activations::f32,
               .threads = o.threads > 0 ? o.threads : cpu::processors()};
  }
  void run() { cpu::quant_matmul(type, weights, m, n, k, x, y, options); }
  void run_wide() {
    for (std::int64_t j = 0; j < n; ++j)
      cpu::matvec(m, k, wide.data(), k, x.data() + j * k, y_wide.data() + j * m,
                  {.isa = options.isa, .threads = options.threads});
  }
};

/// The first rows and the last against sums in double. A float product may be off by its roundings, one of
/// 8-bit activations by half a step of theirs (the largest activation of 32 over 127) in every term.
nlohmann::ordered_json check(Problem& p) {
  std::fill(p.y.begin(), p.y.end(), std::nanf(""));
  p.run();
  double worst = 0, squares = 0, errors = 0;
  for (std::int64_t j = 0; j < p.n; ++j)
    for (std::int64_t i = 0; i < p.m; i = i < 8 || i == p.m - 1 ? i + 1 : p.m - 1) {
      double sum = 0, magnitude = 0, steps = 0;
      for (std::int64_t e = 0; e < p.k; e += 32) {
        double most = 0, weights = 0, inputs = 0, heaviest = 0;
        for (std::int64_t q = e; q < e + 32; ++q) {
          const double w = p.wide[std::size_t(i * p.k + q)], x = p.x[std::size_t(j * p.k + q)];
          sum += w * x, weights += std::fabs(w), inputs += std::fabs(x);
          heaviest = std::max(heaviest, std::fabs(w));
        }
        magnitude +=
            inputs * 3 * heaviest;  // K formats take step * code and minimum apart, each at most that
        for (std::int64_t q = e; q < e + 32; ++q)
          most = std::max(most, std::fabs(double(p.x[std::size_t(j * p.k + q)])));
        steps += weights * most / 254;
      }
      const double off = std::fabs(p.y[std::size_t(j * p.m + i)] - sum);
      const double bound = (double(p.k) / 8 + 32) * 0x1p-24 * magnitude +
                           (p.options.activations == Activations::int8 ? steps * 1.01 : 0);
      worst = std::max(worst, std::isnan(off) ? 1e9 : off / std::max(bound, 1e-30));
      squares += sum * sum, errors += off * off;
    }
  const double relative = squares > 0 ? std::sqrt(errors / squares) : 0;
  return {{"pass", worst <= 1},
          {"relative_error", relative},
          {"text", format("relative error of the result {:.2g} against double, {} its bound", relative,
                          worst <= 1 ? "within" : "BEYOND")}};
}

void add_roofline(Document& d, const Problem& p, double bytes) {
  const double peak = fma_peak_gflops(p.options.isa, 0.05) * p.options.threads,
               width = read_bandwidth_gbps(std::size_t(bytes), p.options.threads, 0.1);
  d.metrics.set(Metric::peak_compute_tflops, peak * 1e-3, Source::measured,
                "multiply-adds of one core, times the threads");
  d.metrics.set(Metric::peak_bandwidth_gbps, width, Source::measured,
                "an array of the weights' bytes, read again and again by as many threads");
  d.metrics.derive(2.0 * double(p.m * p.n * p.k),
                   bytes + 4.0 * double(p.x.size()) + 4.0 * double(p.y.size()));
  const auto& m = d.metrics;
  d.more["roofline"] = {{"peak_gflops", peak},
                        {"bandwidth_gbps", width},
                        {"ridge_flop_per_byte", m[Metric::ridge_point].number()},
                        {"intensity_flop_per_byte", m[Metric::arithmetic_intensity].number()},
                        {"ceiling_gflops", std::min(peak, width * m[Metric::arithmetic_intensity].number())},
                        {"gflops", m[Metric::gflops].number()},
                        {"efficiency_pct", m.has(Metric::efficiency_pct)
                                               ? nlohmann::ordered_json(m[Metric::efficiency_pct].number())
                                               : nlohmann::ordered_json()},
                        {"conclusion", bound_text(m)},
                        {"bound", std::get<std::string>(*m[Metric::bound].held)}};
  const double share = m[Metric::effective_bandwidth_gbps].number() / width;
  d.more["bottleneck"] =
      share >= 0.6
          ? format("memory: {:.0f} % of the bandwidth that was measured for so many bytes", 100 * share)
          : format("unpacking: the codes' instructions, since only {:.0f} % of the bandwidth is used",
                   100 * share);
}

}  // namespace

std::array<std::int64_t, 3> extents(const std::string& text, const std::string& option) {
  std::vector<std::int64_t> n;
  for (auto part : text::split(text, 'x')) {
    std::int64_t v = 0;
    const auto end = std::from_chars(part.data(), part.data() + part.size(), v);
    if (end.ec != std::errc() || end.ptr != part.data() + part.size() || v < 1) {
      n.clear();
      break;
    }
    n.push_back(v);
  }
  if (n.size() == 1) return {n[0], n[0], n[0]};
  if (n.size() == 3) return {n[0], n[1], n[2]};
  throw ArgumentError(ErrorText{option + " is N or MxNxK", {}, cat("\"", text, "\""), {}});
}

std::vector<std::string> quant_kernels() {
  std::vector<std::string> out;
  for (const auto& [name, type] : kKernels) out.emplace_back(name);
  return out;
}

Document profile_quant(const QuantProfileOptions& o) {
  const Format type = type_of(o.kernel);
  if (o.m < 1 || o.n < 1 || o.k < 1)
    throw ArgumentError(ErrorText{"extents are at least 1", {}, cat(o.m, "x", o.n, "x", o.k), {}});
  if (!o.activations.empty() && o.activations != "f32" && o.activations != "int8")
    throw ArgumentError(ErrorText{"--activations is f32 or int8", {}, cat("\"", o.activations, "\""), {}});
  if (o.activations == "int8" && !cpu::has_int8(type))
    throw Unsupported(ErrorText{cat(quant::info(type).name, " has no product with 8-bit activations"),
                                {},
                                "its values are no multiples of a step",
                                "use f32"});
  cpu::require(o.isa);
  Problem p(o, type);
  Document d = new_document("quant", format("{} {}x{}x{}", o.kernel, o.m, o.n, o.k));
  const auto& f = quant::info(type);
  d.more["kernel"] = o.kernel;
  d.more["size"] = {o.m, o.n, o.k};
  d.more["isa"] = cpu::name(o.isa);
  d.more["activations"] = p.options.activations == Activations::int8 ? "int8" : "f32";
  d.more["compressed_bytes"] = p.weights.size();
  d.more["bits_per_weight"] = f.bits_per_weight();
  d.more["check"] = check(p);

  // in pairs: what else happens on the machine meets both; so many calls that the clock resolves them
  const auto timed = [](int calls, const auto& run) {
    const double start = measure::now();
    for (int c = 0; c < calls; ++c) run();
    return (measure::now() - start) / calls;
  };
  const auto wide = [&] { p.run_wide(); };
  const auto narrow = [&] { p.run(); };
  const int calls = std::clamp(int(5e-4 / std::max(timed(2, narrow), 1e-7)), 1, 1000);
  std::vector<double> ratios;
  timed(calls, wide);
  for (int r = 0; r < o.runs; ++r) {
    const double before = timed(calls, wide);
    ratios.push_back(before / timed(calls, narrow));
  }
  measure::MeasureOptions mo;
  mo.max_seconds = 0.1 * o.runs;
  mo.min_seconds = std::min(mo.min_seconds, mo.max_seconds);
  const auto m = measure::measure([&] { p.run(); }, mo);
  std::vector<double> us;
  for (double t : m.seconds) us.push_back(t * 1e6);
  add_times(d, "time", std::move(us), "steady clock around batches of calls");
  const double seconds = m.summary.median, elements = double(o.m) * double(o.k);
  auto& metrics = d.metrics;
  metrics.set(Metric::num_threads, double(p.options.threads), Source::declared, "asked for, at most");
  metrics.set(Metric::superblocks_per_sec, elements / 256 / seconds, Source::derived,
              "elements over 256 over wall_clock_time_us");
  metrics.set(Metric::effective_bandwidth_gbps, double(p.weights.size()) / seconds * 1e-9, Source::derived,
              "compressed bytes of the weights over wall_clock_time_us");
  metrics.set(Metric::compression_speedup, measure::median(ratios), Source::measured,
              "pairs of runs with 32-bit weights and with these");
  add_roofline(d, p, double(p.weights.size()));
  const double parameters = 1.5e9;
  d.more["estimate"] = {
      {"tokens_per_sec", 1 / (seconds * parameters / elements)},
      {"kind", "estimate"},
      {"assumes", "1.5e9 weights at the rate measured here, one vector each, and nothing else"}};
  return d;
}

std::string quant_text(const Document& d) {
  const auto& m = d.metrics;
  const auto number = [&](Metric id) { return number_text(m[id].number()); };
  const auto& roof = d.more.at("roofline");
  const auto value = [&](const char* name) { return number_text(roof.at(name).get<double>()); };
  std::string out = format("{} with {}, activations {}, {:.0f} threads at most: {}{}\n", d.name,
                           d.more.at("isa").get<std::string>(), d.more.at("activations").get<std::string>(),
                           m[Metric::num_threads].number(), time_text(m[Metric::wall_clock_time_us].number()),
                           interval_text(m));
  out += format("  {:<22}{}\n", "check", d.more.at("check").at("text").get<std::string>());
  out += format("  {:<22}{} B = {:.2f} MB, {} bits per weight\n", "weights",
                d.more.at("compressed_bytes").get<std::uint64_t>(),
                double(d.more.at("compressed_bytes").get<std::uint64_t>()) * 1e-6,
                number_text(d.more.at("bits_per_weight").get<double>()));
  out += format("  {:<22}{:.2f} M/s (elements / 256 / time)\n", "superblocks",
                m[Metric::superblocks_per_sec].number() * 1e-6);
  out += format("  {:<22}{} GB/s of compressed weights\n", "effective bandwidth",
                number(Metric::effective_bandwidth_gbps));
  out += format("  {:<22}{} times the product with 32-bit weights\n", "speed-up",
                number(Metric::compression_speedup));
  out += format("  {:<22}{}\n", "bottleneck", d.more.at("bottleneck").get<std::string>());
  out += format(
      "  {:<22}{} GFLOP/s at {} FLOP/B; ceilings {} GFLOP/s and {} GB/s (measured), ridge {} FLOP/B: "
      "{}\n",
      "roofline", value("gflops"), value("intensity_flop_per_byte"), value("peak_gflops"),
      value("bandwidth_gbps"), value("ridge_flop_per_byte"), roof.at("conclusion").get<std::string>());
  out += format("  {:<22}{} tokens/s: an estimate, no measurement ({})\n", "tokens",
                number_text(d.more.at("estimate").at("tokens_per_sec").get<double>()),
                d.more.at("estimate").at("assumes").get<std::string>());
  return out;
}

}  // namespace cgp::profile
