// SPDX-License-Identifier: Apache-2.0
// Claims that only a GPU decides.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <tuple>

#include "cgp/base/file.h"
#include "cgp/profile/measure/process.h"
#include "cgp/profile/measure/stats.h"
#include "cgp/selfcheck/claim.h"

namespace cgp::selfcheck {
namespace {

using fmt::format;

constexpr const char* kVecadd[] = {"run",      "vecadd", "n=67108864", "dtype=f32",
                                   "--device", "cuda",   "--repeat",   "1"};

/// Name to launches, grid, block, median time and operations over bytes of memory, as a profile has them.
json kernels_in(const json& profile) {
  json out = json::object();
  for (const auto& k : profile.at("kernels")) {
    json& one = out[k.at("name").get<std::string>()];
    for (const char* key : {"launches", "grid", "block"}) one[key] = k.at(key);
    const json& m = k.at("metrics");
    for (const char* key : {"wall_clock_time_us", "arithmetic_intensity"})
      if (m.contains(key) && m.at(key).contains("value")) one[key] = m.at(key).at("value");
  }
  return out;
}

/// The same program under ncu, which is asked for what it takes to say that; and under our recorder, by
/// `arguments`.
json beside_ncu(const std::vector<std::string>& arguments, const std::string& metrics) {
  std::string ncu = find_program("ncu");
  if (ncu.empty()) ncu = "/usr/local/cuda/bin/ncu";
  const std::string report = scratch() + "/beside",
                    self = std::filesystem::read_symlink("/proc/self/exe").string();
  std::vector<std::string> command{ncu,    "--clock-control", "none",  "-f", "-o",
                                   report, "--metrics",       metrics, self};
  command.insert(command.end(), std::begin(kVecadd), std::end(kVecadd));
  const auto r = measure::run_process(command);
  if (!r.ok() || !std::filesystem::exists(report + ".ncu-rep"))
    throw NotHere("needs ncu and leave to read counters: " + r.describe());
  std::vector<std::string> ours = arguments;
  ours.push_back(self);
  ours.insert(ours.end(), std::begin(kVecadd), std::end(kVecadd));
  const json theirs = run_self({"import", report + ".ncu-rep", "--json"}), seen = run_self(ours);
  return {{"ncu", kernels_in(answer(theirs))}, {"ours", kernels_in(answer(seen))}};
}

bool close_to(const json& a, const json& b, double share) {
  return a.is_number() && b.is_number() && b.get<double>() > 0 &&
         std::fabs(a.get<double>() / b.get<double>() - 1) < share;
}

/// Ceilings of this GPU, declared and measured; once.
const json& ceilings() {
  static const json seen = [] {
    return answer(run_self({"roofline", "--target", "cuda", "--empirical", "--json"}));
  }();
  return seen;
}

/// "HBM" of a data sheet, "HBM copy" and "HBM read" measured.
bool of_main_memory(const json& line) { return line.at("name").get<std::string>().rfind("HBM", 0) == 0; }

json bench(const char* shape, bool peer) {
  std::vector<std::string> a{"bench", "gemm",     "--shapes", shape,   "--dtype",
                             "bf16",  "--rounds", "8",        "--json"};
  if (!peer) a.push_back("--no-peer");
  return answer(run_self(a));
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
  return measure::median(values);
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
  out.push_back({"FALS-020",
                 "measured bandwidth of main memory is between 85 % and 100 % of the data sheet's",
                 "roofline --empirical: 4.8 TB/s are declared for an H200", true, true,
                 [] {
                   const json& r = ceilings();
                   json seen{{"declared", nullptr}, {"measured", nullptr}};
                   for (const auto& l : r.at("lines"))
                     if (l.at("value").is_number() && of_main_memory(l)) {
                       auto& slot = seen[l.at("source").get<std::string>()];
                       if (slot.is_null() || slot < l.at("value"))
                         slot = l.at("value");  // a ceiling is the most that was reached
                     }
                   if (seen["declared"].is_null())
                     throw NotHere("this device is not in the table of data sheets");
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
                   if (python.empty() || !measure::run_process({python, "-c", "import torch"}).ok())
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
  out.push_back({"FALS-022", "a kernel's operations for each byte of memory are within 10 % of ncu's",
                 "ncu and our counters on 2^26 additions that no cache holds", true, true,
                 [] {
                   const std::string op = "smsp__sass_thread_inst_executed_op_", on = "_pred_on.sum";
                   std::string metrics = "dram__bytes_read.sum,dram__bytes_write.sum";
                   for (const char* name : {"fadd", "fmul", "ffma", "dadd", "dmul", "dfma"})
                     metrics += "," + op + name + on;
                   return beside_ncu(
                       {"profile", "binary", "--counters", metrics, "--launches", "4", "--json", "--"},
                       metrics);
                 },
                 [](const json& j) -> std::string {
                   if (j.at("ncu").empty()) return "ncu saw no kernel";
                   for (const auto& [name, k] : j.at("ncu").items()) {
                     const json ours = j.at("ours").value(name, json::object());
                     if (!close_to(ours.value("arithmetic_intensity", json()),
                                   k.value("arithmetic_intensity", json()), 0.1))
                       return name + ": " + ours.dump() + " where ncu has " + k.dump();
                   }
                   return "";
                 },
                 [](json& j) {
                   for (auto& k : j.at("ours"))
                     k["arithmetic_intensity"] = 1.2 * k.value("arithmetic_intensity", 0.1);
                 }});
  out.push_back({"FALS-043", "a program's kernels have the names, launches, grids and times that ncu finds",
                 "ncu's report of the same program beside our recorder's; times within 10 %", true, true,
                 [] {
                   return beside_ncu({"profile", "binary", "--json", "--"}, "gpu__time_duration.sum");
                 },
                 [](const json& j) -> std::string {
                   if (j.at("ncu").empty()) return "ncu saw no kernel";
                   if (j.at("ncu").size() != j.at("ours").size()) return "other kernels: " + j.dump();
                   for (const auto& [name, k] : j.at("ncu").items()) {
                     const json ours = j.at("ours").value(name, json::object());
                     for (const char* key : {"launches", "grid", "block"})
                       if (ours.value(key, json()) != k.at(key)) return name + ": another " + key;
                     if (!close_to(ours.value("wall_clock_time_us", json()),
                                   k.value("wall_clock_time_us", json()), 0.1))
                       return name + ": another time: " + ours.dump() + " where ncu has " + k.dump();
                   }
                   return "";
                 },
                 [](json& j) {
                   for (auto& k : j.at("ours")) k["launches"] = k.value("launches", 0) + 1;
                 }});
  out.push_back({"FALS-EMPIRICAL-013",
                 "roofline has the data sheet's ceilings and measured ones side by side",
                 "roofline --empirical of this GPU: memory and bf16, each declared and measured", true, true,
                 [] {
                   json seen = json::object();
                   for (const auto& l : ceilings().at("lines"))
                     if (l.at("value").is_number()) {
                       const std::string name = l.at("name");
                       const char* what = of_main_memory(l)                        ? "memory"
                                          : name.find("bf16") != std::string::npos ? "bf16"
                                                                                   : nullptr;
                       if (what) seen[what][l.at("source").get<std::string>()] = l.at("value");
                     }
                   return seen;
                 },
                 [](const json& j) -> std::string {
                   for (const char* what : {"memory", "bf16"})
                     for (const char* source : {"declared", "measured"})
                       if (!j.contains(what) || !j.at(what).contains(source))
                         return std::string("no ") + source + " ceiling of " + what;
                   return "";
                 },
                 [](json& j) { j.at("bf16").erase("measured"); }});
  out.push_back({"FALS-PIPELINE-003",
                 "a product of 1024 by 1024 by 1024 exceeds 55 TFLOP/s, and a sixth of the data sheet's rate",
                 "cgp bench gemm, median; 55 of the 330 of an RTX 4090 are a sixth", true, false,
                 [] {
                   const double ms = median_of(timings(bench("1024x1024x1024", false)).at(0).at("ms"));
                   json seen{{"tflops", 2.0 * 1024 * 1024 * 1024 / (ms * 1e-3) * 1e-12}, {"sheet", nullptr}};
                   for (const auto& l : ceilings().at("lines"))
                     if (l.at("source") == "declared" &&
                         l.at("name").get<std::string>().find("bf16") != std::string::npos)
                       seen["sheet"] = l.at("value").get<double>() / 1000;
                   if (seen["sheet"].is_null())
                     throw NotHere("this device is not in the table of data sheets");
                   return seen;
                 },
                 [](const json& j) -> std::string {
                   const double least = std::max(55.0, j.at("sheet").get<double>() / 6);
                   return j.at("tflops") > least
                              ? ""
                              : format("{} TFLOP/s of {:.0f}", j.at("tflops").dump(), least);
                 },
                 [](json& j) { j.at("tflops") = 54.9; }});
  out.push_back(
      {"FALS-PIPELINE-005",
       "from 512 to 4096 every product is right, and a larger one is no slower for its work",
       "cgp bench gemm: five sizes, their errors over what sums in fp32 allow, their rates", true, true,
       [] {
         json rows = json::array();
         for (const char* size :
              {"512x512x512", "1024x1024x1024", "2048x2048x2048", "3072x3072x3072", "4096x4096x4096"}) {
           const json b = bench(size, false);
           const double ms = median_of(timings(b).at(0).at("ms"));
           rows.push_back({{"error", first(b, "error_over_bound")},
                           {"tflops", first(b, "flops").get<double>() / ms * 1e-9}});
         }
         return json{{"rows", rows}};
       },
       [](const json& j) -> std::string {
         if (j.at("rows").size() != 5) return "not all sizes were measured";
         double before = 0;
         for (const auto& row : j.at("rows")) {
           if (!row.at("error").is_number() || row.at("error") > 1) return "wrong: " + row.dump();
           if (row.at("tflops") < 0.9 * before) return "slower: " + j.at("rows").dump();
           before = row.at("tflops");
         }
         return "";
       },
       [](json& j) { j.at("rows").at(2).at("error") = 1.5; }});
  out.push_back(
      {"FALS-FLASH-ATTN-002", "fused attention is at least 1.3 times as fast as two products and a softmax",
       "16 heads of 2048 rows and 128 columns, bf16: attention against gemm, softmax and gemm of cgp", true,
       true,
       [] {
         const auto us = [](std::vector<std::string> a) {
           a.insert(a.begin(), {"profile", "kernel"});
           a.insert(a.end(), {"--device", "cuda", "--repeat", "10", "--json"});
           return answer(run_self(a)).at("metrics").at("wall_clock_time_us").at("value").get<double>();
         };
         const auto product = [](const char* shape) {
           return 1e3 * median_of(timings(bench(shape, false)).at(0).at("ms"));
         };
         return json{{"fused", us({"attention", "batch=1", "heads=16", "n=2048", "d=128", "lse=0"})},
                     {"scores", product("16x2048x2048x128")},
                     {"softmax", us({"softmax", "rows=32768", "cols=2048"})},
                     {"values", product("16x2048x128x2048")}};
       },
       [](const json& j) -> std::string {
         const double apart =
             j.at("scores").get<double>() + j.at("softmax").get<double>() + j.at("values").get<double>();
         return apart > 1.3 * j.at("fused").get<double>()
                    ? ""
                    : format("{:.2f} times", apart / j.at("fused").get<double>());
       },
       [](json& j) {
         j.at("fused") = 2 * j.at("softmax").get<double>() + 2 * j.at("scores").get<double>() +
                         2 * j.at("values").get<double>();
       }});
  out.push_back(
      {"FALS-TG-002", "emitted PTX is loaded and launched, and its result is right",
       "run vecadd --device cuda", true, false,
       [] {
         return json{
             {"code", run_self({"run", "vecadd", "n=100003", "--device", "cuda", "--json"}).at("code")}};
       },
       [](const json& j) -> std::string {
         return j.at("code") == 0 ? "" : "exit code " + j.at("code").dump();
       },
       [](json& j) { j.at("code") = 1; }});
  for (const auto& [id, size, least] :
       {std::tuple{"FALS-TG-005", "1024", 30.0}, std::tuple{"FALS-TG-006", "4096", 50.0}})
    out.push_back({id, format("a product of {0} by {0} by {0} reaches {1:.0f} TFLOP/s", size, least),
                   "cgp bench gemm, median", true, false,
                   [size = std::string(size)] {
                     const double n = std::stod(size);
                     const double ms = median_of(
                         timings(bench((size + "x" + size + "x" + size).c_str(), false)).at(0).at("ms"));
                     return json{{"tflops", 2 * n * n * n / (ms * 1e-3) * 1e-12}};
                   },
                   [least = least](const json& j) -> std::string {
                     return j.at("tflops") >= least ? "" : j.at("tflops").dump() + " TFLOP/s";
                   },
                   [least = least](json& j) { j.at("tflops") = 0.99 * least; }});
  out.push_back(
      {"FALS-TG-007", "a measured kernel lies under the measured roof",
       "profile kernel softmax, 268 MB, and roofline --empirical", true, true,
       [] {
         const json r = run_self(
             {"profile", "kernel", "softmax", "rows=32768", "cols=2048", "--device", "cuda", "--json"});
         json seen{{"gbps", answer(r).at("metrics").at("bandwidth_gbps").at("value")}, {"roof", nullptr}};
         for (const auto& l : ceilings().at("lines"))
           if (l.at("bandwidth").get<bool>() && l.at("source") == "measured" && l.at("value").is_number() &&
               (seen["roof"].is_null() || l.at("value") < seen["roof"]))
             seen["roof"] = l.at("value");
         return seen;
       },
       [](const json& j) -> std::string {
         if (!j.at("gbps").is_number() || !j.at("roof").is_number()) return "it was not measured";
         const double share = j.at("gbps").get<double>() / j.at("roof").get<double>();
         return share > 0.3 && share < 1.1 ? "" : format("{:.2f} of the ceiling of memory", share);
       },
       [](json& j) { j.at("gbps") = 1.2 * j.at("roof").get<double>(); }});
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

}  // namespace cgp::selfcheck
