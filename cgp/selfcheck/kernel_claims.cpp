// SPDX-License-Identifier: Apache-2.0
// Planted defects, which must be named, and kernels of the catalogue: what their PTX says and what they
// compute.
#include <fmt/core.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <regex>
#include <set>

#include "cgp/base/file.h"
#include "cgp/profile/collect/probe_kernel.h"
#include "cgp/profile/measure/process.h"
#include "cgp/profile/timeline/waste.h"
#include "cgp/selfcheck/claim.h"
#include "cgp/spec/npy.h"

namespace cgp::selfcheck {
namespace {

using fmt::format;
using measure::Metric;

/// Metrics and waste of four blocks of 128 threads on the emulator. %r2 is the thread, %r1 the thread in the
/// grid, %rd1 the buffer; %f1 is stored.
json emulated(const std::string& declarations, const std::string& body) {
  const auto [program, counters] = profile::run_probe(
      declarations + profile::kProbeThreads + body +
          "mul.wide.u32 %rd4, %r1, 4;\nadd.u64 %rd5, %rd1, %rd4;\nst.global.f32 [%rd5], %f1;\n",
      {4, 1, 1}, {128, 1, 1});
  measure::MetricSet m;
  profile::emulator_metrics(counters, m);
  json waste = json::array(), seen;
  for (const auto& w : profile::emulator_waste(counters, *program, "k"))
    waste.push_back(w.kind + ": " + w.title);
  seen["waste"] = waste;
  for (Metric id :
       {Metric::divergent_branches, Metric::shared_bank_conflicts, Metric::global_load_efficiency_pct})
    seen[std::string(measure::info(id).name)] = m.has(id) ? json(m[id].number()) : json();
  return seen;
}

bool names(const json& j, const char* waste) { return j.at("waste").dump().find(waste) != std::string::npos; }
void forget_waste(json& j) { j.at("waste") = json::array(); }

void defect_claims(std::vector<Claim>& out) {
  out.push_back(
      {"FALS-051", "a branch on tid % 2 is motion, with divergent branches counted", "planted, emulated",
       false, false,
       [] {
         return emulated(
             "",
             "and.b32 %r5, %r2, 1;\nsetp.eq.u32 %p1, %r5, 0;\nmov.f32 %f1, 0f3F800000;\n"
             "@%p1 bra EVEN;\nadd.f32 %f1, %f1, %f1;\nadd.f32 %f1, %f1, %f1;\nadd.f32 %f1, %f1, %f1;\n"
             "bra JOIN;\nEVEN:\nmul.f32 %f1, %f1, %f1;\nmul.f32 %f1, %f1, %f1;\nmul.f32 %f1, %f1, "
             "%f1;\nJOIN:\n");
       },
       [](const json& j) -> std::string {
         if (j.at("divergent_branches") != 16)
           return j.at("divergent_branches").dump() + " divergent branches, and 16 warps came";
         return names(j, "motion: divergence") ? "" : "named " + j.at("waste").dump();
       },
       forget_waste});
  out.push_back(
      {"FALS-052", "shared memory at a stride of 32 floats has bank conflicts",
       "planted, emulated: 31 extra passes for each of 48 accesses", false, false,
       [] {
         return emulated(
             ".shared .align 4 .b8 tile[4096];\n",
             "shl.b32 %r5, %r2, 7;\nand.b32 %r5, %r5, 4095;\nmov.u32 %r6, tile;\nadd.u32 %r6, %r6, %r5;\n"
             "mov.f32 %f1, 0f3F800000;\nst.shared.f32 [%r6], %f1;\nld.shared.f32 %f2, [%r6];\nld.shared.f32 "
             "%f3, [%r6];\n"
             "add.f32 %f1, %f2, %f3;\n");
       },
       [](const json& j) -> std::string {
         if (j.at("shared_bank_conflicts") != 16 * 3 * 31)
           return j.at("shared_bank_conflicts").dump() + " conflicts";
         return names(j, "transport: bank conflicts") ? "" : "named " + j.at("waste").dump();
       },
       forget_waste});
  out.push_back(
      {"FALS-053", "loads 128 bytes apart use less than 25 % of what they move",
       "planted, emulated: 4 of each 32 bytes", false, false,
       [] {
         return emulated(
             "", "mul.wide.u32 %rd2, %r1, 128;\nadd.u64 %rd3, %rd1, %rd2;\nld.global.f32 %f1, [%rd3];\n");
       },
       [](const json& j) -> std::string {
         if (j.at("global_load_efficiency_pct") != 12.5)
           return j.at("global_load_efficiency_pct").dump() + " %";
         return names(j, "transport: uncoalesced access") ? "" : "named " + j.at("waste").dump();
       },
       [](json& j) { j.at("global_load_efficiency_pct") = 100; }});
}

/// 64 floats that are all live under .maxnreg 32.
std::string spilling_ptx() {
  std::string body =
      ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 x)\n.maxnreg 32\n{\n"
      ".reg .f32 %f<70>;\n.reg .b64 %rd<3>;\nld.param.u64 %rd1, [x];\n";
  for (int i = 0; i < 64; ++i) body += format("ld.volatile.global.f32 %f{}, [%rd1+{}];\n", i, 4 * i);
  for (int i = 63; i >= 0; --i) body += format("st.volatile.global.f32 [%rd1+{}], %f{};\n", 4 * i + 4096, i);
  return body + "ret;\n}\n";
}

int bytes_of(const std::string& text, const char* pattern) {
  std::smatch m;
  return std::regex_search(text, m, std::regex(pattern)) ? std::stoi(m[1]) : -1;
}

void spill_claim(std::vector<Claim>& out) {
  out.push_back(
      {"FALS-050", "64 live floats under .maxnreg 32 spill, and that is transport",
       "explain's linear scan; ptxas -v where there is one", false, false,
       [] {
         write_file(scratch() + "/spill.ptx", spilling_ptx());
         const json e = run_self({"explain", scratch() + "/spill.ptx", "--json"}).at("json");
         json seen{{"bytes", e.at("modules").at(0).at("entries").at(0).at("spill_bytes")},
                   {"ptxas", nullptr}};
         if (const auto path = find_ptxas(); !path.empty())
           seen["ptxas"] = bytes_of(measure::run_process({path, "-arch=sm_80", "-v", scratch() + "/spill.ptx",
                                                          "-o", scratch() + "/spill.cubin"})
                                        .err,
                                    "(\\d+) bytes spill stores");
         measure::MetricSet m;
         m.set(Metric::register_spills, seen["bytes"].get<double>(), measure::Source::counted, "linear scan");
         seen["waste"] = json::array();
         for (const auto& w : profile::metric_waste(m, "k")) seen["waste"].push_back(w.kind + ": " + w.title);
         return seen;
       },
       [](const json& j) -> std::string {
         // more than 32 values do not fit, whoever allocates
         if (j.at("bytes") < 4 * (64 - 32)) return j.at("bytes").dump() + " bytes";
         if (j.at("ptxas").is_number() && j.at("ptxas") < 4 * (64 - 32))
           return "ptxas spills " + j.at("ptxas").dump() + " bytes";
         return names(j, "transport: spills") ? "" : "named " + j.at("waste").dump();
       },
       forget_waste});
}

json ran(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "run");
  arguments.push_back("--json");
  const json r = run_self(arguments);
  return {{"code", r.at("code")}, {"err", r.at("err")}};
}
std::string clean(const json& j) {
  return j.at("code") == 0 ? "" : "exit code " + j.at("code").dump() + " " + j.at("err").get<std::string>();
}
void fails(json& j) { j.at("code") = 1; }

std::string emitted(const std::vector<std::string>& arguments) {
  std::vector<std::string> all{"emit"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  const std::string file = scratch() + "/emitted.ptx";
  all.insert(all.end(), {"-o", file});
  const json r = run_self(all);
  if (r.at("code") != 0) throw std::runtime_error(r.at("err").get<std::string>());
  return read_file(file);
}

const std::vector<std::string> kTensorGemm = {"gemm",       "m=128",  "n=128", "k=64",
                                              "dtype=bf16", "--arch", "sm_80"};

/// Types with which the registers of A and B of the text's first mma.sync are declared.
json operand_types(const std::string& ptx) {
  std::smatch m;
  if (!std::regex_search(ptx, m, std::regex(R"(mma\.sync[^{]*\{[^}]*\},\s*\{([^}]*)\},\s*\{([^}]*)\})")))
    return json::array();
  json types = json::array();
  const std::string registers = m[1].str() + "," + m[2].str();
  static const std::regex one(R"(%([a-z]+)\d+)");
  for (std::sregex_iterator i(registers.begin(), registers.end(), one), end; i != end; ++i) {
    std::smatch d;
    const std::regex declared("\\.reg\\s+\\.(\\w+)\\s+%" + (*i)[1].str() + "<");
    types.push_back(std::regex_search(ptx, d, declared) ? d[1].str() : "undeclared");
  }
  return types;
}

std::string assemble(const std::string& ptx, const char* arch) {
  const std::string path = find_ptxas();
  if (path.empty()) throw NotHere("needs ptxas: a CUDA toolkit, or CGP_PTXAS");
  write_file(scratch() + "/a.ptx", ptx);
  const auto r = measure::run_process(
      {path, std::string("-arch=") + arch, scratch() + "/a.ptx", "-o", scratch() + "/a.cubin"});
  return r.ok() ? "" : r.err + r.out;
}

void tensor_claims(std::vector<Claim>& out) {
  out.push_back({"FALS-MMA-SYNC-001", "operands of mma.sync for bf16 are .b32",
                 "declarations in the emitted text", false, false,
                 [] {
                   return json{{"types", operand_types(emitted(kTensorGemm))}};
                 },
                 [](const json& j) -> std::string {
                   if (j.at("types").size() < 6) return "there is no mma.sync with 4 + 2 registers";
                   for (const auto& t : j.at("types"))
                     if (t != "b32") return "one is " + t.get<std::string>();
                   return "";
                 },
                 [](json& j) { j.at("types").at(0) = "u32"; }});
  out.push_back({"FALS-MMA-SYNC-002", "PTX with mma.sync assembles", "ptxas -arch=sm_80", false, false,
                 [] {
                   return json{{"error", assemble(emitted(kTensorGemm), "sm_80")},
                               {"cut", assemble(emitted(kTensorGemm).substr(0, 2000), "sm_80").empty()}};
                 },
                 [](const json& j) -> std::string {
                   if (j.at("cut").get<bool>()) return "half the text assembles as well";
                   return j.at("error");
                 },
                 [](json& j) { j.at("error") = "ptxas fatal"; }});
  out.push_back({"FALS-MMA-SYNC-003", "products by mma.sync are right",
                 "the kernel's oracle in double, on the emulator with all checks", false, false,
                 [] {
                   return ran({"gemm", "m=100", "n=72", "k=64", "dtype=bf16", "--device", "emu:sm_80"});
                 },
                 clean, fails});
  out.push_back({"FALS-PIPELINE-001", "the pipelined product uses mma.sync, cp.async and cp.async.wait_group",
                 "the emitted text", false, false,
                 [] {
                   const std::string ptx = emitted(kTensorGemm);
                   json seen;
                   for (const char* word : {"mma.sync", "cp.async.c", "cp.async.wait_group"})
                     seen[word] = ptx.find(word) != std::string::npos;
                   return seen;
                 },
                 [](const json& j) -> std::string {
                   for (const auto& [word, there] : j.items())
                     if (!there.get<bool>()) return "no " + word;
                   return "";
                 },
                 [](json& j) { j.at("cp.async.wait_group") = false; }});
  out.push_back({"FALS-PIPELINE-002", "its error is below the bound, for sizes that no tile divides too",
                 "the kernel's oracle, three sizes", false, false,
                 [] {
                   for (const char* size : {"m=128 n=128 k=128", "m=65 n=33 k=48", "m=16 n=136 k=200"}) {
                     std::vector<std::string> a{"gemm", "dtype=bf16", "--device", "emu:sm_80"};
                     const auto words = measure::split_command(size);
                     a.insert(a.end(), words.begin(), words.end());
                     if (const json j = ran(a); j.at("code") != 0) return j;
                   }
                   return json{{"code", 0}, {"err", ""}};
                 },
                 clean, fails});
  out.push_back(
      {"FALS-PIPELINE-004",
       "the pipelined product's shared memory is that of its stages' tiles, and not a byte more",
       "the declaration in the text against tile and stages of its name; the original's padded "
       "tile of 64 x 128 in two stages had 18432",
       false, false,
       [] {
         std::smatch m;
         const std::string ptx = emitted(kTensorGemm);
         if (!std::regex_search(ptx, m, std::regex("smem_gemm\\w+_(\\d+)x(\\d+)x(\\d+)_s(\\d+)\\[(\\d+)\\]")))
           throw std::runtime_error("the text declares no shared memory for its stages");
         json seen;
         int i = 0;
         for (const char* key : {"m", "n", "k", "stages", "bytes"}) seen[key] = std::stoi(m[++i]);
         return seen;
       },
       [](const json& j) -> std::string {
         const auto of = [&](const char* key) { return j.at(key).get<int>(); };
         const int want = of("stages") * (of("m") + of("n")) * of("k") * 2;
         return of("bytes") == want ? "" : format("{} bytes for {}", of("bytes"), want);
       },
       [](json& j) { j.at("bytes") = j.at("bytes").get<int>() + 16; }});
}

/// Rows of attention's output for values that are all 1.
json weight_sums() {
  spec::HostArray v;
  v.dtype = DType::f32;
  v.shape = {1, 1, 40, 16};
  v.bytes.resize(40 * 16 * 4);
  for (int i = 0; i < 40 * 16; ++i) {
    const float one = 1;
    std::memcpy(v.bytes.data() + 4 * i, &one, 4);
  }
  spec::write_array(scratch() + "/v.npy", v);
  const json r = run_self({"run", "attention", "dtype=f32", "batch=1", "heads=1", "n=33", "n_kv=40", "d=16",
                           "--in", "v=v.npy", "--out", "o=o.npy"});
  if (r.at("code") != 0)
    throw std::runtime_error(r.at("err").get<std::string>() + r.at("out").get<std::string>());
  const auto o = spec::read_array(scratch() + "/o.npy", DType::f32);
  double worst = 0;
  for (std::size_t i = 0; i + 4 <= o.bytes.size(); i += 4) {
    float x;
    std::memcpy(&x, o.bytes.data() + i, 4);
    worst = std::max(worst, std::fabs(double(x) - 1));
  }
  return {{"rows", o.bytes.size() / 64}, {"worst", worst}};
}

void kernel_claims(std::vector<Claim>& out) {
  out.push_back(
      {"FALS-002..003", "inside its tiles gemm works with all lanes, and over 60 % of what it loads is used",
       "exact counters, 128 x 128 x 64 on the emulator", false, false,
       [] {
         const json m = run_self({"profile", "kernel", "gemm", "m=128", "n=128", "k=64", "--device",
                                  "emu:sm_80", "--json"})
                            .at("json")
                            .at("metrics");
         return json{{"lanes", m.at("warp_execution_efficiency_pct").at("value")},
                     {"loads", m.at("global_load_efficiency_pct").at("value")}};
       },
       [](const json& j) -> std::string {
         if (!j.at("lanes").is_number() || j.at("lanes") != 100)
           return "lanes: " + j.at("lanes").dump() + " %";
         // absent: all loads are asynchronous copies, which the counters list apart
         return j.at("loads").is_null() || j.at("loads") > 60 ? "" : "loads: " + j.at("loads").dump() + " %";
       },
       [](json& j) { j.at("lanes") = 96.9; }});
  out.push_back({"FALS-FLASH-ATTN-001", "fused attention equals the unfused one",
                 "its oracle in double, 65 queries and 70 keys", false, false,
                 [] {
                   return ran({"attention", "dtype=f32", "batch=1", "heads=2", "n=65", "n_kv=70", "d=32"});
                 },
                 clean, fails});
  out.push_back({"FALS-FLASH-ATTN-004", "attention's weights sum to 1",
                 "with values that are all 1 every output is 1 within 1e-5", false, false, weight_sums,
                 [](const json& j) -> std::string {
                   if (j.at("rows") != 33) return j.at("rows").dump() + " rows";
                   return j.at("worst") < 1e-5 ? "" : "off by " + j.at("worst").dump();
                 },
                 [](json& j) { j.at("worst") = 0.01; }});
  out.push_back(
      {"FALS-UNINIT",
       "softmax, normalisation and attention read nothing that was not written, nor do roots, reciprocals "
       "and "
       "products (Q4_K too) on the processor; a planted read is found",
       "the emulator's shadow memory; on the processor the same bits after four poisons of the result", false,
       false,
       [] {
         const std::string ptx =
             ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 x)\n{\n.reg .f32 "
             "%f<2>;\n"
             ".reg .b64 %rd<2>;\nld.param.u64 %rd1, [x];\nld.global.f32 %f1, [%rd1];\nst.global.f32 "
             "[%rd1+4], %f1;\nret;\n}\n";
         write_file(scratch() + "/uninit.ptx", ptx);
         json seen;
         seen["softmax"] = ran({"softmax", "rows=5", "cols=100"});
         seen["rms_norm"] = ran({"rms_norm", "rows=3", "cols=72"});
         seen["attention"] = ran({"attention", "dtype=f32", "batch=1", "heads=1", "n=17", "d=16"});
         seen["processor"] = poisoned_results();
         seen["planted"] =
             ran({scratch() + "/uninit.ptx", "--grid", "1", "--block", "1", "--arg", "scratch:u8:64"});
         return seen;
       },
       [](const json& j) -> std::string {
         for (const char* k : {"softmax", "rms_norm", "attention"})
           if (j.at(k).at("code") != 0) return k + (": " + clean(j.at(k)));
         if (j.at("processor").at("different") != 0 || j.at("processor").at("strange") != 0)
           return "a poison shows: " + j.at("processor").dump();
         return j.at("planted").at("code") == 1
                    ? ""
                    : "the planted read ended with " + j.at("planted").at("code").dump() +
                          j.at("planted").at("err").get<std::string>();
       },
       [](json& j) { j.at("planted").at("code") = 0; }});
  out.push_back({"FALS-DIK-001", "dimensions are run-time values: one text serves all shapes of a tile",
                 "the PTX of gemm for two shapes that take tiles of 128 x 128: equal", false, false,
                 [] {
                   const auto text = [](const char* m, const char* n) {
                     return emitted({"gemm", m, n, "k=512", "dtype=bf16", "--arch", "sm_80"});
                   };
                   return json{{"a", text("m=8192", "n=4096")}, {"b", text("m=2176", "n=2304")}};
                 },
                 [](const json& j) -> std::string { return j.at("a") == j.at("b") ? "" : "they differ"; },
                 [](json& j) { j.at("b") = "other"; }});
  out.push_back({"FALS-DIK-004", "one text is right for other shapes than it was emitted for",
                 "the oracle, three shapes of softmax", false, false,
                 [] {
                   for (const char* cols : {"cols=64", "cols=100", "cols=257"})
                     if (const json j = ran({"softmax", "rows=7", cols}); j.at("code") != 0) return j;
                   return json{{"code", 0}, {"err", ""}};
                 },
                 clean, fails});
  out.push_back({"FALS-TG-001", "emitted PTX is valid for every target",
                 "ptxas, gemm for sm_80 and sm_90a; one with a word replaced is refused", false, false,
                 [] {
                   const std::string ptx =
                       emitted({"gemm", "m=4096", "n=4096", "k=4096", "dtype=bf16", "--arch", "sm_90a"});
                   std::string broken = ptx;
                   broken.replace(broken.find("ld.param"), 8, "ld.parum");
                   return json{{"sm_80", assemble(emitted(kTensorGemm), "sm_80")},
                               {"sm_90a", assemble(ptx, "sm_90a")},
                               {"broken", assemble(broken, "sm_90a")}};
                 },
                 [](const json& j) -> std::string {
                   if (j.at("broken") == "") return "the broken one assembles";
                   return j.at("sm_80").get<std::string>() + j.at("sm_90a").get<std::string>();
                 },
                 [](json& j) { j.at("broken") = ""; }});
  out.push_back({"FALS-TG-004", "products are right",
                 "the oracle, fp32 on the emulator, a size that no tile divides", false, false,
                 [] {
                   return ran({"gemm", "m=33", "n=65", "k=17", "dtype=f32"});
                 },
                 clean, fails});
}

}  // namespace

void add_kernel_claims(std::vector<Claim>& out) {
  defect_claims(out);
  spill_claim(out);
  tensor_claims(out);
  kernel_claims(out);
}

}  // namespace cgp::selfcheck
