// SPDX-License-Identifier: Apache-2.0
// What the commands promise: programs found or missed, comparisons, tables, sentences.
#include <fmt/core.h>
#include <sys/stat.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <regex>

#include "cgp/base/file.h"
#include "cgp/profile/measure/process.h"
#include "cgp/profile/view/document.h"
#include "cgp/selfcheck/claim.h"

namespace cgp::selfcheck {
namespace {

using fmt::format;

json item(const json& doctor, const std::string& name) {
  for (const auto& i : doctor.at("json").at("items"))
    if (i.at("name") == name) return i;
  throw std::runtime_error("doctor does not mention " + name);
}

/// A folder with a program `name` that prints `text`.
std::string folder_with(const std::string& name, const std::string& text) {
  const std::string folder = scratch() + "/bin-" + name;
  std::filesystem::create_directories(folder);
  write_file(folder + "/" + name, "#!/bin/sh\necho '" + text + "'\n");
  chmod((folder + "/" + name).c_str(), 0755);
  return folder;
}

/// An x86-64 program of these instructions, at 0x400078; 0x78 bytes before them.
std::string elf_program(const std::string& name, const std::vector<unsigned char>& code) {
  unsigned char image[] = {0x7f, 'E',  'L',  'F', 2,  1, 1,  0,
                           0,    0,    0,    0,   0,  0, 0,  0,  // ELF64, little endian
                           2,    0,    62,   0,   1,  0, 0,  0,
                           0x78, 0,    0x40, 0,   0,  0, 0,  0,  // executable, x86-64, entry 0x400078
                           64,   0,    0,    0,   0,  0, 0,  0,
                           0,    0,    0,    0,   0,  0, 0,  0,  // program headers at 64
                           0,    0,    0,    0,   64, 0, 56, 0,
                           1,    0,    0,    0,   0,  0, 0,  0,  // one of them
                           1,    0,    0,    0,   5,  0, 0,  0,
                           0,    0,    0,    0,   0,  0, 0,  0,  // load, read and execute
                           0,    0,    0x40, 0,   0,  0, 0,  0,
                           0,    0,    0x40, 0,   0,  0, 0,  0,  // at 0x400000
                           0,    0,    0,    0,   0,  0, 0,  0,
                           0,    0,    0,    0,   0,  0, 0,  0,  // its bytes, twice
                           0,    0x10, 0,    0,   0,  0, 0,  0};
  image[96] = image[104] = static_cast<unsigned char>(sizeof image + code.size());
  const std::string path = scratch() + "/" + name;
  write_file(path, std::string(reinterpret_cast<const char*>(image), sizeof image) +
                       std::string(reinterpret_cast<const char*>(code.data()), code.size()));
  chmod(path.c_str(), 0755);
  return path;
}

/// xor eax, eax; mov [rax], eax
std::string faulting_program() { return elf_program("faults", {0x31, 0xc0, 0x89, 0x00}); }

/// mov eax, 0x4000e0; movntps [rax + 4], xmm0; xor edi, edi; mov eax, 60; syscall
std::string misaligned_program() {
  return elf_program("misaligned", {0xb8, 0xe0, 0x00, 0x40, 0x00, 0x0f, 0x2b, 0x40, 0x04, 0x31, 0xff, 0xb8,
                                    0x3c, 0x00, 0x00, 0x00, 0x0f, 0x05});
}

std::string timed_profile(const std::string& file, double us) {
  auto d = profile::new_document("bench", "kernel");
  profile::Samples s{"time", "us", {}};
  for (int i = 0; i < 30; ++i) s.values.push_back(us * (1 + 0.002 * ((i * 7) % 11 - 5)));
  d.samples.push_back(s);
  d.metrics.set(measure::Metric::wall_clock_time_us, us, measure::Source::measured, "a saved profile");
  const std::string path = scratch() + "/" + file;
  profile::save(d, path);
  return path;
}

void doctor_claims(std::vector<Claim>& out) {
  out.push_back({"FALS-010", "doctor finds a program with its version, and misses it when it is not there",
                 "a planted valgrind 3.99.0, then no such program", false, false,
                 [] {
                   const std::string folder = folder_with("valgrind", "valgrind-3.99.0");
                   return json{{"with", item(run_self({"doctor", "--json"}, {{"PATH", folder}}), "valgrind")},
                               {"without", item(run_self({"doctor", "--json"}, {{"PATH", "/nonexistent"}}),
                                                "valgrind")}};
                 },
                 [](const json& j) -> std::string {
                   if (!j.at("with").at("ok").get<bool>()) return "the program that is there was not found";
                   if (j.at("with").at("found").get<std::string>().find("3.99.0") == std::string::npos)
                     return "its version is missing: " + j.at("with").at("found").get<std::string>();
                   return j.at("without").at("ok").get<bool>() ? "a program that is not there was found" : "";
                 },
                 [](json& j) { j.at("without").at("ok") = true; }});
  out.push_back({"FALS-011", "without CUPTI doctor says so and how to get it", "CGP_CUPTI names no file",
                 false, false,
                 [] {
                   return item(run_self({"doctor", "--json"}, {{"CGP_CUPTI", "/nonexistent"}}), "cupti");
                 },
                 [](const json& j) -> std::string {
                   if (j.at("ok").get<bool>()) return "CUPTI was found: " + j.at("found").get<std::string>();
                   return j.at("hint").get<std::string>().empty() ? "there is no hint" : "";
                 },
                 [](json& j) { j.at("hint") = ""; }});
  out.push_back(
      {"FALS-012", "without NVIDIA's programs loops of the processor are profiled, and CUDA is refused",
       "profile simd and profile kernel --device cuda without a driver and with an empty PATH", false, false,
       [] {
         const std::vector<std::pair<std::string, std::string>> bare = {{"PATH", "/nonexistent"},
                                                                        {"CGP_LIBCUDA", "/nonexistent"}};
         return json{{"simd", run_self({"profile", "simd", "--size", "256", "--json"}, bare)},
                     {"cuda", run_self({"profile", "kernel", "softmax", "--device", "cuda"}, bare)}};
       },
       [](const json& j) -> std::string {
         if (j.at("simd").at("code") != 0)
           return "profile simd failed: " + j.at("simd").at("err").get<std::string>();
         if (j.at("simd").at("json").at("metrics").at("wall_clock_time_us").at("value").is_null())
           return "it has no time";
         return j.at("cuda").at("code") == 3
                    ? ""
                    : format("profile kernel ended with {}", j.at("cuda").at("code").dump());
       },
       [](json& j) { j.at("cuda").at("code") = 0; }});
  out.push_back({"FALS-061", "doctor takes less than 2 s", "wall time of the process, best of 3", false,
                 false,
                 [] {
                   double best = 1e9;
                   for (int i = 0; i < 3; ++i)
                     best = std::min(best, run_self({"doctor"}).at("seconds").get<double>());
                   return json{{"seconds", best}};
                 },
                 [](const json& j) -> std::string {
                   return j.at("seconds") < 2.0 ? "" : format("it took {} s", j.at("seconds").get<double>());
                 },
                 [](json& j) { j.at("seconds") = 2.5; }});
  out.push_back(
      {"FALS-101", "doctor tells valgrind's version, or that it is missing",
       "what `valgrind --version` prints here", false, false,
       [] {
         const std::string path = find_program("valgrind");
         std::string version;
         if (!path.empty()) version = measure::run_process({path, "--version"}).out;
         while (!version.empty() && version.back() == '\n') version.pop_back();
         return json{{"version", version}, {"item", item(run_self({"doctor", "--json"}), "valgrind")}};
       },
       [](const json& j) -> std::string {
         const std::string version = j.at("version"), found = j.at("item").at("found");
         if (version.empty())
           return j.at("item").at("ok").get<bool>() ? "it is not there, but was found" : "";
         return found.find(version) == std::string::npos ? found + " has not " + version : "";
       },
       [](json& j) {
         j.at("item") = {{"ok", j.at("version") == ""}, {"found", "nothing"}};
       }});
}

void comparison_claims(std::vector<Claim>& out) {
  out.push_back(
      {"FALS-032", "35.7 to 23.2 us is IMPROVED, 1.54 times", "diff of two saved profiles", false, false,
       [] {
         const json r =
             run_self({"diff", timed_profile("slow.json", 35.7), timed_profile("fast.json", 23.2), "--json"});
         return r.at("json").at("rows").at(0);
       },
       [](const json& j) -> std::string {
         if (j.at("verdict") != "IMPROVED") return "the verdict is " + j.at("verdict").get<std::string>();
         const double speedup = j.at("speedup");
         return std::fabs(speedup - 35.7 / 23.2) < 0.015 ? "" : format("the speed-up is {}", speedup);
       },
       [](json& j) { j.at("speedup") = 0.65; }});
  out.push_back({"FALS-062", "diff of saved files takes less than 100 ms",
                 "wall time of the process, best of 5", false, false,
                 [] {
                   const auto a = timed_profile("a.json", 10), b = timed_profile("b.json", 11);
                   double best = 1e9;
                   for (int i = 0; i < 5; ++i)
                     best = std::min(best, run_self({"diff", a, b}).at("seconds").get<double>());
                   return json{{"seconds", best}};
                 },
                 [](const json& j) -> std::string {
                   return j.at("seconds") < 0.1 ? "" : format("it took {} s", j.at("seconds").get<double>());
                 },
                 [](json& j) { j.at("seconds") = 0.2; }});
  const auto ranked = [] {
    return run_self({"compete", "work", "--ours", "sleep 0.01", "--theirs", "sleep 0.03", "--label", "a,b",
                     "--gemm", "512x256x128", "--rounds", "9", "--json"},
                    {{"CGP_LIBCUDA", "/nonexistent"}})
        .at("json");
  };
  out.push_back(
      {"FALS-045", "compete ranks, and a rate is 2 M N K over the time",
       "512 x 256 x 128 and the medians that it prints", false, false, ranked,
       [](const json& j) -> std::string {
         for (const auto& row : j.at("rows")) {
           const double rate = 2.0 * 512 * 256 * 128 / row.at("median_s").get<double>() * 1e-9;
           if (std::fabs(row.at("gflops").get<double>() / rate - 1) > 1e-6)
             return format("{} GFLOP/s, and not {}", row.at("gflops").get<double>(), rate);
         }
         return j.at("rows").at(0).at("median_s") <= j.at("rows").at(1).at("median_s")
                    ? ""
                    : "the slower one is first";
       },
       [](json& j) { j.at("rows").at(1).at("gflops") = 2 * j.at("rows").at(1).at("gflops").get<double>(); }});
  out.push_back({"FALS-046", "a competitor that uses no GPU gets a rate all the same",
                 "two programs on a machine without a driver", false, false, ranked,
                 [](const json& j) -> std::string {
                   for (const auto& row : j.at("rows"))
                     if (!(row.at("gflops").get<double>() > 0))
                       return row.at("label").get<std::string>() + " has no rate";
                   return "";
                 },
                 [](json& j) { j.at("rows").at(0).at("gflops") = 0; }});
  out.push_back({"FALS-047", "a program that faults ends with an error and leaves what was measured",
                 "an ELF file of 124 bytes that writes to address 0", false, false,
                 [] {
                   return run_self({"profile", "binary", "--json", "--", faulting_program()});
                 },
                 [](const json& j) -> std::string {
                   if (j.at("code") != 5) return "the exit code is " + j.at("code").dump();
                   if (j.at("json").at("process").at("ended") != "SIGSEGV")
                     return "ended by " + j.at("json").at("process").at("ended").dump();
                   return j.at("json").at("metrics").at("wall_clock_time_us").at("value").is_number()
                              ? ""
                              : "there is no time";
                 },
                 [](json& j) { j.at("json").at("process").at("ended") = "exit code 0"; }});
  out.push_back(
      {"FALS-100", "a streaming store to an address that is no multiple of 16 is found, with that address",
       "an ELF file of 138 bytes that stores 16 bytes to 0x4000e4; memcheck --alignment", false, false,
       [] {
         const json r = run_self({"memcheck", "--alignment", "--json", "--", misaligned_program()});
         if (r.at("code") == 3) throw NotHere("needs ptrace");
         return r;
       },
       [](const json& j) -> std::string {
         if (j.at("code") != 1) return "the exit code is " + j.at("code").dump();
         const json& errors = j.at("json").at("errors");
         if (errors.size() != 1) return "errors: " + errors.dump();
         const std::string what = errors.at(0).at("what");
         return what.find("movntps writes 16 bytes at 0x4000e4, 4 beyond") == 0 ? "" : what;
       },
       [](json& j) {
         j.at("json").at("errors").at(0).at("what") = "movntps writes 16 bytes at 0x4000e0, 4 beyond";
       }});
  out.push_back({"FALS-TG-003", "a kernel's run leaks nothing and reads nothing that was not written",
                 "this program under valgrind: vecadd on the emulator, without AVX-512", false, true,
                 [] {
                   if (find_program("valgrind").empty()) throw NotHere("needs valgrind");
                   const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
                   const json r = run_self(
                       {"memcheck", "--json", "--", self, "run", "vecadd", "n=100", "--device", "emu"});
                   return answer(r);
                 },
                 [](const json& j) -> std::string {
                   if (j.at("ended") != "exit code 0") return "ended by " + j.at("ended").dump();
                   return j.at("errors").empty() ? "" : j.at("errors").dump();
                 },
                 [](json& j) {
                   j.at("errors").push_back({{"kind", "leak"}});
                 }});
  out.push_back(
      {"FALS-102",
       "all tests are clean under AddressSanitizer and UBSan, and what the processor computes without "
       "AVX-512 under valgrind",
       "CTest of the build that CGP_SANITIZED_BUILD names; memcheck of this program's SIMD claims with AVX2",
       false, true,
       [] {
         const char* folder = std::getenv("CGP_SANITIZED_BUILD");
         if (!folder || !*folder)
           throw NotHere(
               "needs a build with sanitizers: cmake --preset asan-ubsan, cmake --build --preset "
               "asan-ubsan, and CGP_SANITIZED_BUILD=build/asan-ubsan");
         if (read_file(std::string(folder) + "/CMakeCache.txt")
                 .find("CGP_SANITIZE:STRING=address,undefined") == std::string::npos)
           throw NotHere(std::string(folder) + " was not built with address,undefined");
         measure::ProcessOptions o;
         o.environment = {{"ASAN_OPTIONS", "protect_shadow_gap=0:detect_leaks=1"}};
         const auto tests = measure::run_process({"ctest", "--test-dir", folder}, o);
         std::smatch m;
         if (!std::regex_search(tests.out, m, std::regex("(\\d+) tests? failed out of (\\d+)")))
           throw std::runtime_error("ctest: " + tests.describe() + tests.err);
         const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
         const json memory = run_self({"memcheck", "--json", "--", self, "self-check", "FALS-SIMD-001"},
                                      {{"CGP_SIMD", "avx2"}});
         return json{{"failed", std::stoi(m[1])},
                     {"tests", std::stoi(m[2])},
                     {"valgrind", answer(memory).at("errors")},
                     {"ended", answer(memory).at("ended")}};
       },
       [](const json& j) -> std::string {
         if (j.at("failed") != 0 || j.at("tests") < 1)
           return j.at("failed").dump() + " of " + j.at("tests").dump() + " tests fail";
         if (j.at("ended") != "exit code 0") return "under valgrind ended by " + j.at("ended").dump();
         return j.at("valgrind").empty() ? "" : j.at("valgrind").dump();
       },
       [](json& j) { j.at("failed") = 1; }});
  out.push_back({"FALS-COMPARE-050", "compare calls measured what has a clock, and counted what has none",
                 "softmax on the emulator and on CUDA", false, false,
                 [] {
                   return run_self({"profile", "compare", "softmax", "rows=64", "cols=256", "--backends",
                                    "emu,cuda", "--json"})
                       .at("json");
                 },
                 [](const json& j) -> std::string {
                   for (const auto& row : j.at("rows")) {
                     const bool skipped = !row.at("skipped").get<std::string>().empty();
                     if (skipped) continue;
                     const auto& time = row.at("profile").at("metrics").at("wall_clock_time_us");
                     if ((row.at("kind") == "measured") != (time.value("source", "") == "measured"))
                       return row.at("backend").get<std::string>() + " is called " +
                              row.at("kind").get<std::string>();
                   }
                   return j.at("rows").size() == 2 ? "" : "there are not two rows";
                 },
                 [](json& j) { j.at("rows").at(0).at("kind") = "measured"; }});
}

Claim sentence(const std::string& id, const std::string& what, const std::vector<std::string>& arguments,
               const std::string& expected) {
  return {id,
          what + ": \"" + expected + "\", exit code 3",
          "what the command prints",
          false,
          false,
          [arguments] {
            return run_self(arguments, {{"PATH", "/nonexistent"}, {"CGP_WGPU_NATIVE", "/nonexistent"}});
          },
          [expected](const json& j) -> std::string {
            if (j.at("code") != 3) return "the exit code is " + j.at("code").dump();
            return j.at("err").get<std::string>().find(expected) == std::string::npos
                       ? "it says " + j.at("err").get<std::string>()
                       : "";
          },
          [](json& j) { j.at("err") = "cgp: no"; }};
}

json ridge_of(const char* device) {
  const json r = run_self({"roofline", "--target", "cuda", "--device", device, "--json"}).at("json");
  double bandwidth = 0;
  for (const auto& l : r.at("lines"))
    if (l.at("bandwidth").get<bool>() && l.at("name").get<std::string>().find("HBM") != std::string::npos &&
        l.at("value").is_number())
      bandwidth = l.at("value");
  return {{"lines", r.at("lines")}, {"ridge", r.at("ridge_flop_per_byte")}, {"gbps", bandwidth}};
}

/// A contract whose only check asks on which side of the ridge an intensity lies.
Claim side_of_ridge(const std::string& id, int intensity, const char* side, const char* other) {
  return {
      id,
      format("an intensity of {} FLOP/B is bound by {} on an RTX 4090", intensity, side),
      "contracts that say so and that deny it, with the ridge of the data sheet (330.3 TFLOP/s, 1008 GB/s)",
      false,
      false,
      [=] {
        auto d = profile::new_document("kernel", "roof");
        d.metrics.set(measure::Metric::ridge_point, 330.3e3 / 1008, measure::Source::declared, "data sheet");
        profile::save(d, scratch() + "/roof.json");
        json seen;
        for (const char* s : {side, other}) {
          write_file(
              scratch() + "/roof.yaml",
              format("name: roof\nkernel: roof\nchecks:\n  - name: side\n    check: classify({}) == \"{}\"\n",
                     intensity, s));
          seen[s] = run_self({"contract", "verify", "roof.yaml", "--profile", "roof.json"});
        }
        return seen;
      },
      [=](const json& j) -> std::string {
        if (j.at(side).at("code") != 0)
          return "the contract fails: " + j.at(side).at("out").get<std::string>() +
                 j.at(side).at("err").get<std::string>();
        return j.at(other).at("code") == 1
                   ? ""
                   : "the opposite is accepted: " + j.at(other).at("out").get<std::string>() +
                         j.at(other).at("err").get<std::string>();
      },
      [=](json& j) { std::swap(j.at(side), j.at(other)); }};
}

void roof_claims(std::vector<Claim>& out) {
  out.push_back({"FALS-021", "an RTX 4090's ridge is 327.4 FLOP/B within 1 %: 330 TFLOP/s over 1008 GB/s",
                 "arithmetic on the data sheet", false, false,
                 [] {
                   const json r = ridge_of("RTX 4090");
                   double tensor = 0;
                   for (const auto& l : r.at("lines"))
                     if (l.at("value").is_number() && std::fabs(l.at("value").get<double>() - 330e3) < 1e3)
                       tensor = l.at("value");
                   return json{{"gflops", tensor}, {"gbps", r.at("gbps")}};
                 },
                 [](const json& j) -> std::string {
                   const double ridge = j.at("gflops").get<double>() / j.at("gbps").get<double>();
                   return std::fabs(ridge / 327.4 - 1) < 0.01 ? "" : format("it is {}", ridge);
                 },
                 [](json& j) { j.at("gbps") = 936; }});
  out.push_back({"FALS-ROOF-001", "the ridge is the highest ceiling over main memory's bandwidth",
                 "the lines that roofline prints for an H200", false, false, [] { return ridge_of("H200"); },
                 [](const json& j) -> std::string {
                   double top = 0;
                   for (const auto& l : j.at("lines"))
                     if (!l.at("bandwidth").get<bool>() && l.at("value").is_number())
                       top = std::max(top, l.at("value").get<double>());
                   const double ridge = top / j.at("gbps").get<double>();
                   return std::fabs(j.at("ridge").get<double>() / ridge - 1) < 1e-6
                              ? ""
                              : format("{} and not {}", j.at("ridge").dump(), ridge);
                 },
                 [](json& j) { j.at("ridge") = 41.2; }});
  out.push_back(side_of_ridge("FALS-ROOF-002", 8, "memory", "compute"));
  out.push_back(side_of_ridge("FALS-ROOF-003", 500, "compute", "memory"));
}

void contract_claims(std::vector<Claim>& out) {
  out.push_back(
      {"FALS-CONTRACT-001..002",
       "a contract generated from a profile holds, its folder is read, and a broken "
       "one fails",
       "softmax on the emulator; the same contract with a bound of 10 bytes of PTX", false, false,
       [] {
         const std::string folder = scratch() + "/contracts";
         std::filesystem::create_directories(folder);
         (void)run_self(
             {"profile", "kernel", "softmax", "rows=64", "cols=256", "--device", "emu", "--save", "s.json"});
         (void)run_self({"contract", "generate", "s.json", "--name", "rows", "-o", "contracts/rows.yaml"});
         json seen{{"kept", run_self({"contract", "verify", "--dir", "contracts", "--profile", "s.json"})}};
         write_file(folder + "/rows.yaml",
                    read_file(folder + "/rows.yaml") + "  ptx_size_bytes: {max: 10}\n");
         seen["broken"] = run_self({"contract", "verify", "--dir", "contracts", "--profile", "s.json"});
         return seen;
       },
       [](const json& j) -> std::string {
         if (j.at("kept").at("code") != 0)
           return "the generated one: " + j.at("kept").at("out").get<std::string>() +
                  j.at("kept").at("err").get<std::string>();
         return j.at("broken").at("code") == 1
                    ? ""
                    : "the broken one ended with " + j.at("broken").at("code").dump();
       },
       [](json& j) { j.at("broken").at("code") = 0; }});
}

}  // namespace

void add_tool_claims(std::vector<Claim>& out) {
  doctor_claims(out);
  comparison_claims(out);
  roof_claims(out);
  contract_claims(out);
  out.push_back(sentence("FALS-071", "NEON on x86", {"profile", "simd", "--arch", "neon"},
                         "NEON not available — use --cross-profile for QEMU-based analysis"));
  out.push_back(sentence("FALS-077", "Metal on Linux", {"profile", "metal"},
                         "Metal backend requires macOS — use --backend wgpu for Vulkan"));
  out.push_back(sentence("FALS-079", "WebGPU without a browser", {"profile", "wgpu"},
                         "No browser found — falling back to wgpu native (Vulkan/Metal)"));
}

}  // namespace cgp::selfcheck
