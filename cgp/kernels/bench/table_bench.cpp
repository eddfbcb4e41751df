// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/bench/table_bench.h"

#include <cstdio>
#include <cstring>
#include <fstream>

#include "cgp/base/error.h"
#include "cgp/kernels/bench/provenance.h"

namespace cgp::kernels {

void print_row(const BenchRow& r) {
  std::printf("%-38s", r.name.c_str());
  for (const auto& t : r.timings) {
    const double ms = t.summary.median;
    std::printf("  %-7s %9.4f ms %7.1f %s ±%.1f%%", t.name.c_str(), ms,
                r.flops > 0 ? r.flops / ms / 1e9 : r.bytes / ms / 1e6, r.flops > 0 ? "TFLOP/s" : "GB/s",
                100 * t.summary.spread());
  }
  if (r.timings.size() > 1)
    std::printf("  ratio %.3f", r.timings[1].summary.median / r.timings[0].summary.median);
  for (const auto& [name, value] : r.more) std::printf("  %s %.2e", name.c_str(), value);
  std::printf("  %s\n", r.variant.c_str());
  std::fflush(stdout);
}

void write_results(const std::string& path, const runtime::DeviceInfo& device,
                   const std::vector<std::string>& words, const std::vector<BenchRow>& rows,
                   const std::string& method) {
  std::ofstream out(path);
  out << "{\n  " << json_fields(provenance(device, words, method)) << ",\n  \"rows\": [\n";
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const BenchRow& row = rows[r];
    out << "    {\"name\": \"" << row.name << "\", \"variant\": \"" << row.variant
        << "\", \"flops\": " << row.flops << ", \"bytes\": " << row.bytes;
    for (const auto& [name, value] : row.more) out << ", \"" << name << "\": " << value;
    out << ", \"timings\": [";
    for (std::size_t t = 0; t < row.timings.size(); ++t) {
      out << (t ? ", " : "") << "{\"name\": \"" << row.timings[t].name << "\", \"ms\": [";
      const auto& ms = row.timings[t].milliseconds;
      for (std::size_t s = 0; s < ms.size(); ++s) out << (s ? ", " : "") << ms[s];
      out << "]}";
    }
    out << "]}" << (r + 1 < rows.size() ? "," : "") << "\n";
  }
  out << "  ]\n}\n";
  if (!out.flush()) throw Error({"the results must be written", path, "writing failed", {}});
}

bool BenchTable::wanted(const std::string& name) const {
  if (prefixes_.empty()) return true;
  for (const auto& p : prefixes_)
    if (name.rfind(p, 0) == 0) return true;
  return false;
}
bool BenchTable::asked(const std::string& family) const {
  for (const auto& p : prefixes_)
    if (p.rfind(family, 0) == 0) return true;
  return false;
}

double BenchTable::run(const std::string& name, const std::string& variant, double flops, double bytes,
                       const std::vector<measure::Contender>& contenders, int rounds) {
  measure::CompareOptions o;
  o.rounds = rounds ? rounds : rounds_;
  rows_.push_back({name, variant, flops, bytes, measure::compare(device_, contenders, o)});
  print_row(rows_.back());
  return rows_.back().timings[0].summary.median;
}

int guarded(const std::function<void()>& run) try {
  run();
  return 0;
} catch (const Unsupported& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 3;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}

int bench_main(const std::string& program, int argc, char** argv, int rounds,
               const std::function<void(BenchTable&)>& run) {
  std::vector<std::string> prefixes;
  std::string json;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--json") && i + 1 < argc) {
      json = argv[++i];
    } else if (!std::strcmp(argv[i], "--rounds") && i + 1 < argc && std::atoi(argv[i + 1]) > 0) {
      rounds = std::atoi(argv[++i]);
    } else if (argv[i][0] == '-') {
      std::printf("usage: %s [--json FILE] [--rounds N] [PREFIX...]\n", argv[0]);
      return 2;
    } else {
      prefixes.push_back(argv[i]);
    }
  }
  return guarded([&] {
    BenchTable b(runtime::Device::open("cuda:0"), prefixes, rounds);
    std::printf("%s\n", b.device().info().name.c_str());
    run(b);
    if (json.empty()) return;
    std::vector<std::string> words{program};
    words.insert(words.end(), argv + 1, argv + argc);
    write_results(json, b.device().info(), words, b.rows());
  });
}

}  // namespace cgp::kernels
