// SPDX-License-Identifier: Apache-2.0
// The register estimate against ptxas: over the corpus, whose specs carry what ptxas 13.0 said, and over the
// kernels of the repository, assembled here. CGP_REGISTERS=all takes every kernel and architecture instead of
// a sample.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cgp/base/file.h"
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/kernels/common/variant.h"
#include "cgp/ptx/analysis/estimate.h"
#include "cgp/ptx/parse.h"
#include "cgp/ptx/target.h"
#include "cgp/testing/assemble.h"

namespace cgp {
namespace {

struct Estimated {
  std::string name;
  int ptxas = 0, estimate = 0;
  double error() const { return std::abs(double(estimate - ptxas)) / ptxas; }
};

/// Prints the distribution of the relative error; returns the median.
double median_error(const char* what, std::vector<Estimated> all) {
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.error() < b.error(); });
  const auto at = [&](double share) {
    return 100 * all[std::size_t(share * double(all.size() - 1))].error();
  };
  const auto within = std::count_if(all.begin(), all.end(), [](const auto& e) { return e.error() <= 0.1; });
  std::printf(
      "%s: %zu kernels, relative error: median %.1f%%, p75 %.1f%%, p90 %.1f%%, worst %.0f%% (%s: %d, ptxas "
      "%d); "
      "%.0f%% within 10%%\n",
      what, all.size(), at(0.5), at(0.75), at(0.9), at(1), all.back().name.c_str(), all.back().estimate,
      all.back().ptxas, 100.0 * double(within) / double(all.size()));
  return at(0.5);
}

void estimate(const std::string& name, const std::string& ptx, const std::string& entry, int ptxas,
              std::vector<Estimated>& out) {
  const ptx::Module m = ptx::parse(ptx);
  const int sm = ptx::parse_target(m.target).value().sm;
  out.push_back({name, ptxas, ptx::estimate_registers(*m.find(entry), sm).registers});
}

std::vector<Estimated> corpus() {
  std::vector<Estimated> out;
  for (const auto& file : std::filesystem::directory_iterator(CGP_CORPUS_DATA)) {
    if (file.path().extension() != ".json") continue;
    const auto spec = nlohmann::json::parse(read_file(file.path().string()));
    if (!spec.contains("ptxas_registers")) continue;
    auto ptx = file.path();
    const std::string text = read_file(ptx.replace_extension(".ptx").string());
    for (const auto& [entry, registers] : spec["ptxas_registers"].items())
      estimate(file.path().stem().string() + "/" + entry, text, entry, registers, out);
  }
  return out;
}

// Percent, of the median. Achieved with ptxas 13.0: see docs/analyses.md.
constexpr double kCorpusBound = 10, kAllBound = 8;

TEST(Registers, Corpus) { EXPECT_LE(median_error("corpus", corpus()), kCorpusBound); }

TEST(Registers, Kernels) {
  if (find_ptxas().empty()) GTEST_SKIP() << "ptxas is not installed";
  const char* setting = std::getenv("CGP_REGISTERS");
  const bool every = setting && std::string(setting) == "all";
  std::vector<runtime::KernelImage> images;
  std::vector<std::string_view> archs;
  // Of each kernel every third architecture: recording all of them to choose 44 would take most of the time.
  std::size_t n = 0, turn = 0;
  for (const auto& kernel : kernels::catalog()) {
    ++turn;
    for (std::string_view arch : kernels::kTargets)
      if (every || turn++ % 3 == 0)
        for (auto& image : kernel.images(arch))
          if (every || n++ % 20 == 0) images.push_back(std::move(image)), archs.push_back(arch);
  }
  std::vector<testing::AssemblyJob> jobs;
  for (std::size_t i = 0; i < images.size(); ++i) jobs.push_back({*images[i].ptx, archs[i]});
  const auto assembled = testing::assemble_all(jobs);
  std::vector<Estimated> out;
  for (std::size_t i = 0; i < images.size(); ++i) {
    ASSERT_TRUE(assembled[i].ok) << assembled[i].log;
    estimate(images[i].name + " " + std::string(archs[i]), *images[i].ptx, images[i].entry,
             assembled[i].registers, out);
  }
  ASSERT_FALSE(out.empty());
  median_error("kernels", out);
  const auto others = corpus();
  out.insert(out.end(), others.begin(), others.end());
  const double all = median_error("all", out);
  // A sample of the kernels weighs less against the corpus.
  EXPECT_LE(all, every ? kAllBound : kCorpusBound);
}

}  // namespace
}  // namespace cgp
