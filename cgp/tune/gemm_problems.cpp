// SPDX-License-Identifier: Apache-2.0
#include "cgp/tune/gemm_problems.h"

#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/gemm/select/gemm_table.h"

namespace cgp::tune {
namespace {

using text::cat;

std::vector<std::string> set_sizes(std::string_view set) {
  std::vector<std::string> out;
  const auto add = [&](const auto&... n) { out.push_back(cat(n...)); };
  if (set == "square") {
    for (int n : {256, 512, 1024, 2048, 4096, 8192, 16384}) add(n, "x", n, "x", n);
  } else if (set == "llm") {
    for (int m : {1, 16, 64, 256, 1024, 4096, 8192})
      for (const char* nk :
           {"4096x4096", "14336x4096", "4096x14336", "28672x8192", "8192x28672", "151936x4096"})
        add(m, "x", nk);
  } else if (set == "misaligned") {
    out = {"4095x4097x4104", "1000x3001x5003", "127x255x8191", "1000x3000x5000"};
  } else if (set == "batched") {
    out = {"64x512x512x512"};
  } else if (set == "all") {
    for (const char* s : {"square", "llm", "misaligned", "batched"})
      for (auto& size : set_sizes(s))
        if (std::find(out.begin(), out.end(), size) == out.end()) out.push_back(std::move(size));
  } else {
    throw ArgumentError(
        {"a set of shapes is square, llm, misaligned, batched or all", {}, std::string(set), {}});
  }
  return out;
}

std::vector<std::string> words(const std::string& list) {
  std::vector<std::string> out;
  for (const auto word : text::split(list, ','))
    if (!text::trim(word).empty()) out.emplace_back(text::trim(word));
  return out;
}

constexpr std::string_view kEpilogues[] = {"none", "relu", "gelu", "bias", "bias_relu", "bias_gelu"};

}  // namespace

std::string GemmTask::name() const {
  return kernels::gemm_key(problem) + (epilogue == "none" ? std::string() : "+" + epilogue);
}

std::vector<GemmTask> gemm_tasks(const GemmSelection& s) {
  std::vector<GemmTask> out;
  const auto wanted = words(s.epilogue);
  for (const auto& e : wanted)
    if (std::find(std::begin(kEpilogues), std::end(kEpilogues), e) == std::end(kEpilogues))
      throw ArgumentError(
          {"an epilogue to measure is none, relu, gelu, bias, bias_relu or bias_gelu", {}, e, {}});
  for (const auto& p : gemm_problems(s))
    for (const auto& e : wanted) out.push_back({p, e});
  return out;
}

std::vector<kernels::GemmProblem> gemm_problems(const GemmSelection& s) {
  std::vector<std::string> sizes = words(s.shapes);
  if (sizes.empty())
    for (const auto& set : words(s.set))
      for (auto& size : set_sizes(set)) sizes.push_back(std::move(size));
  std::vector<kernels::GemmProblem> out;
  for (const auto& type : words(s.dtype))
    for (const auto& layout : words(s.layout))
      for (const auto& size : sizes) {
        const auto p = kernels::parse_gemm_key(cat(type, "/", layout, "/", size));
        if (const auto why = kernels::reject(p); !why.empty()) throw ArgumentError(cat("gemm: ", why));
        out.push_back(p);
      }
  if (out.empty()) throw ArgumentError("there is nothing to run: no shape, type or layout is left");
  return out;
}

}  // namespace cgp::tune
