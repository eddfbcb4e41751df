// SPDX-License-Identifier: Apache-2.0
// Claims that only a GPU decides.
#include <fmt/core.h>

#include <cmath>

#include "cgp/base/file.h"
#include "cgp/prof/process.h"
#include "cgp/prof/stats.h"
#include "falsify/claim.h"

namespace cgp::falsify {
namespace {

using fmt::format;

json bench(const char* shape, bool peer) {
  std::vector<std::string> a{"bench", "gemm",     "--shapes", shape,   "--dtype",
                             "bf16",  "--rounds", "8",        "--json"};
  if (!peer) a.push_back("--no-peer");
  const json r = run_self(a);
  if (r.at("json").is_null()) throw std::runtime_error(r.at("err").get<std::string>());
  return r.at("json");
}

/// The first number under a key anywhere in `j`.
json first(const json& j, const std::string& key) {
  if (j.is_object())
    for (const auto& [k, v] : j.items()) {
      if (k == key && v.is_number()) return v;
      if (json found = first(v, key); !found.is_null()) return found;
    }
  if (j.is_array())
    for (const auto& v : j)
      if (json found = first(v, key); !found.is_null()) return found;
  return nullptr;
}

/// The first non-empty list of timings anywhere in `j`.
json timings(const json& j) {
  if (j.is_object() && j.contains("timings")) return j.at("timings");
  if (j.is_structured())
    for (const auto& v : j)
      if (json found = timings(v); !found.is_null()) return found;
  return nullptr;
}

double median_of(const json& samples) {
  const auto values = samples.get<std::vector<double>>();
  return prof::median(values);
}

}  // namespace

void add_gpu_claims(std::vector<Claim>& out) {
  out.push_back({"FALS-001", "a product of 512 by 512 by 512 on tensor cores exceeds 9 TFLOP/s",
                 "cgp bench gemm, median", true, false,
                 [] {
                   const json b = bench("512x512x512", false);
                   const double ms = median_of(timings(b).at(0).at("ms"));
                   return json{{"tflops", 2.0 * 512 * 512 * 512 / (ms * 1e-3) * 1e-12}};
                 },
                 [](const json& j) -> std::string {
                   return j.at("tflops").is_number() && j.at("tflops") > 9.0
                              ? ""
                              : j.at("tflops").dump() + " TFLOP/s";
                 },
                 [](json& j) { j.at("tflops") = 8.9; }});
  out.push_back(
      {"FALS-020", "measured bandwidth of main memory is between 85 % and 100 % of the data sheet's",
       "roofline --empirical: 4.8 TB/s are declared for an H200", true, true,
       [] {
         const json r = run_self({"roofline", "--target", "cuda", "--empirical", "--json"}).at("json");
         json seen{{"declared", nullptr}, {"measured", nullptr}};
         for (const auto& l : r.at("lines"))
           if (l.at("bandwidth").get<bool>() && l.at("value").is_number() &&
               (l.at("name").get<std::string>().find("emory") != std::string::npos ||
                l.at("name").get<std::string>().find("HBM") != std::string::npos)) {
             auto& slot = seen[l.at("source").get<std::string>()];
             if (slot.is_null()) slot = l.at("value");
           }
         if (seen["declared"].is_null()) throw NotHere("this device is not in the table of data sheets");
         return seen;
       },
       [](const json& j) -> std::string {
         if (j.at("measured").is_null()) return "it was not measured";
         const double share = j.at("measured").get<double>() / j.at("declared").get<double>();
         return share > 0.85 && share <= 1.0 ? "" : format("{:.3f} of it", share);
       },
       [](json& j) { j.at("measured") = 2 * j.at("declared").get<double>(); }});
  out.push_back(
      {"FALS-040", "a product of 512 by 512 by 512 is faster than on one core without vectors",
       "both measured; the core at the rate of its dot product", true, false,
       [] {
         const json gpu =
             run_self({"profile", "kernel", "gemm", "m=512", "n=512", "k=512", "--device", "cuda", "--json"})
                 .at("json");
         const json cpu =
             run_self({"profile", "scalar", "--function", "dot", "--size", "4096", "--json"}).at("json");
         return json{{"gpu_us", gpu.at("metrics").at("wall_clock_time_us").at("value")},
                     {"cpu_us", 2.0 * 512 * 512 * 512 /
                                    (cpu.at("metrics").at("gflops").at("value").get<double>() * 1e3)}};
       },
       [](const json& j) -> std::string { return j.at("gpu_us") < j.at("cpu_us") ? "" : j.dump(); },
       [](json& j) { std::swap(j.at("gpu_us"), j.at("cpu_us")); }});
  out.push_back(
      {"FALS-042",
       "against cuBLASLt at 4096 the ratio is reported as the raw times have it, whichever is faster",
       "medians of cgp bench gemm's samples", true, true,
       [] {
         const json b = bench("4096x4096x4096", true);
         return json{{"ratio", first(b, "ratio")}, {"times", timings(b)}};
       },
       [](const json& j) -> std::string {
         if (!j.at("ratio").is_number() || j.at("times").size() < 2) return "there is no ratio";
         const double ratio =
             median_of(j.at("times").at(1).at("ms")) / median_of(j.at("times").at(0).at("ms"));
         return std::fabs(j.at("ratio").get<double>() / ratio - 1) < 0.02
                    ? ""
                    : format("{} where the times give {}", j.at("ratio").dump(), ratio);
       },
       [](json& j) { j.at("ratio") = 1.1 * j.at("ratio").get<double>(); }});
  out.push_back({"FALS-044", "a Python script's torch.mm is profiled: its kernel and its time",
                 "profile python", true, true,
                 [] {
                   const std::string python = find_program("python3");
                   if (python.empty() || !prof::run_process({python, "-c", "import torch"}).ok())
                     throw NotHere("needs Python with PyTorch");
                   write_file(
                       scratch() + "/mm.py",
                       "import torch\na = torch.randn(2048, 2048, device='cuda', dtype=torch.bfloat16)\n"
                       "for _ in range(5): b = torch.mm(a, a)\ntorch.cuda.synchronize()\n");
                   const json r = run_self({"profile", "python", "--json", "--", "mm.py"}).at("json");
                   json names = json::array();
                   for (const auto& k : r.at("kernels")) names.push_back(k.at("name"));
                   return json{{"kernels", names}};
                 },
                 [](const json& j) -> std::string {
                   for (const auto& k : j.at("kernels"))
                     for (const char* word : {"gemm", "nvjet", "cutlass", "xmma"})
                       if (k.get<std::string>().find(word) != std::string::npos) return "";
                   return "no product among " + j.at("kernels").dump();
                 },
                 [](json& j) { j.at("kernels") = json::array({"void fill()"}); }});
  out.push_back({"FALS-060", "a kernel is profiled in less than 30 s", "profile kernel softmax --device cuda",
                 true, false,
                 [] {
                   const json r = run_self({"profile", "kernel", "softmax", "--device", "cuda", "--json"});
                   return json{{"seconds", r.at("seconds")}, {"code", r.at("code")}};
                 },
                 [](const json& j) -> std::string {
                   if (j.at("code") != 0) return "exit code " + j.at("code").dump();
                   return j.at("seconds") < 30 ? "" : j.at("seconds").dump() + " s";
                 },
                 [](json& j) { j.at("seconds") = 31; }});
}

}  // namespace cgp::falsify
