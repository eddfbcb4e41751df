// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/bench/table_bench.h"

#include <cstdio>
#include <fstream>

#include "cgp/kernels/bench/provenance.h"

namespace cgp::kernels {

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

double BenchTable::run(const std::string& name, const std::string& variant, double bytes,
                       const std::vector<prof::Contender>& contenders, int rounds) {
  prof::CompareOptions o;
  o.rounds = rounds ? rounds : rounds_;
  Row r{name, variant, bytes, prof::compare(device_, contenders, o)};
  std::printf("%-36s", name.c_str());
  for (const auto& t : r.timings)
    std::printf("  %-5s %8.4f ms %6.0f GB/s +-%.1f%%", t.name.c_str(), t.summary.median,
                bytes / t.summary.median / 1e6, 100 * t.summary.spread());
  if (r.timings.size() > 1) std::printf("  %.3f", r.timings[1].summary.median / r.timings[0].summary.median);
  std::printf("  %s\n", variant.c_str());
  std::fflush(stdout);
  rows_.push_back(std::move(r));
  return rows_.back().timings[0].summary.median;
}

void BenchTable::write_json(const std::string& path, const std::vector<std::string>& words) const {
  std::ofstream out(path);
  const auto from = provenance(device_.info(), words, "interleaved rounds, cold L2, random data, events");
  out << "{\n  " << json_fields(from) << ",\n  \"rows\": [\n";
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    const Row& row = rows_[r];
    out << "    {\"name\": \"" << row.name << "\", \"variant\": \"" << row.variant
        << "\", \"flops\": 0, \"bytes\": " << row.bytes << ", \"timings\": [";
    for (std::size_t t = 0; t < row.timings.size(); ++t) {
      out << (t ? ", " : "") << "{\"name\": \"" << row.timings[t].name << "\", \"ms\": [";
      for (std::size_t s = 0; s < row.timings[t].milliseconds.size(); ++s)
        out << (s ? ", " : "") << row.timings[t].milliseconds[s];
      out << "]}";
    }
    out << "]}" << (r + 1 < rows_.size() ? "," : "") << "\n";
  }
  out << "  ]\n}\n";
}

}  // namespace cgp::kernels
