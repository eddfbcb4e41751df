// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "cgp/base/error.h"
#include "cgp/base/program.h"
#include "cgp/base/text.h"
#include "cgp/cuda/api.h"
#include "cgp/profile/collect/doctor.h"
#include "cgp/runtime/info.h"
#include "cgp/runtime/jit_cache.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/commands.h"
#include "tools/cgp/terminal.h"
#include "tools/cgp/version.h"

namespace cgp::cli {
namespace {

namespace fs = std::filesystem;
using text::cat;

using Line = profile::DoctorLine;

Line processor() {
  std::vector<std::string> isa;
  if (__builtin_cpu_supports("avx2")) isa.emplace_back("avx2");
  if (__builtin_cpu_supports("fma")) isa.emplace_back("fma");
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (wide) isa.emplace_back("avx512");
  if (__builtin_cpu_supports("avx512vnni")) isa.emplace_back("avx512vnni");
  const std::string found =
      cat(std::thread::hardware_concurrency(), " threads; ", isa.empty() ? "no AVX" : text::join(isa, " "));
  return {"cpu", wide, found,
          wide ? "the emulator runs 16 lanes per instruction"
               : "the emulator runs its portable handlers, several times slower",
          "a processor with AVX-512 makes the emulator faster; results are the same"};
}

Line driver() {
  try {
    const auto api = cuda::Api::get();
    return {"libcuda", true,
            fmt::format("{}, driver for CUDA {}.{}", api->path, api->driver_version / 1000,
                        api->driver_version % 1000 / 10),
            "--device cuda works", ""};
  } catch (const Error& e) {
    return {"libcuda", false, e.rule() + (e.why().empty() ? "" : ": " + e.why()),
            "kernels run on the emulator only (--device emu)",
            "install NVIDIA's driver (libcuda.so.1), or set CGP_LIBCUDA to it"};
  }
}

void append_devices(std::vector<Line>& lines) {
  std::string emulated;
  bool gpu = false;
  for (const auto& d : runtime::devices()) {
    if (d.kind == runtime::DeviceKind::emulator) {
      emulated += (emulated.empty() ? "" : " ") + d.arch;
      continue;
    }
    gpu = true;
    lines.push_back(
        {d.spec, true,
         fmt::format("{}, {}, {} SMs, {}", d.name, d.arch, d.sm_count, text::bytes(d.memory_bytes)),
         cat("runs targets up to ", d.arch), ""});
  }
  if (!gpu)
    lines.push_back({"gpu", false, "no CUDA device",
                     "times and hardware results are not available; checks and counters are",
                     "run on a machine with an NVIDIA GPU"});
  for (const auto& d : runtime::shader_devices())
    lines.push_back(
        {d.spec, true,
         fmt::format("{}, {}, {} threads and {} of shared memory a block", d.name,
                     text::bytes(d.memory_bytes), d.max_threads_per_block, text::bytes(d.smem_per_block)),
         cat("--device ", d.spec, " runs the kernels that cgp/shader translates"), ""});
  lines.push_back({"emulator", !emulated.empty(), emulated,
                   "--device emu:ARCH; plain emu takes the PTX file's target", ""});
}

/// The word after "release " (NVIDIA's CUDA tools) or "Version ".
std::string program_version(const std::string& path) {
  if (path.find('\'') != std::string::npos) return {};
  const std::string command = cat("timeout 1 '", path, "' --version 2>/dev/null </dev/null");
  std::string out;
  if (FILE* pipe = popen(command.c_str(), "r")) {
    std::array<char, 512> chunk;
    while (std::fgets(chunk.data(), int(chunk.size()), pipe)) out += chunk.data();
    pclose(pipe);
  }
  for (const std::string_view key : {"release ", "Version "})
    if (const auto at = out.find(key); at != std::string::npos) {
      const auto from = at + key.size();
      return out.substr(from, out.find_first_of(", \n", from) - from);
    }
  return {};
}

Line program(const std::string& name, const std::string& variable, const std::string& meaning,
             const std::string& without, const std::string& hint) {
  const std::string path = find_cuda_program(name, variable.empty() ? nullptr : variable.c_str());
  if (path.empty() || access(path.c_str(), X_OK) != 0)
    return {name, false, path.empty() ? "not found" : cat(path, " (from ", variable, ") cannot be run"),
            without, hint};
  // ncu is a script that takes long to start; its path is enough
  const bool slow = name == "ncu" || name == "nsys" || name == "compute-sanitizer";
  const std::string version = slow ? "" : program_version(path);
  return {name, true, version.empty() ? path : cat(path, ", version ", version), meaning, ""};
}

Line browser() {
  for (const char* name : {"chromium", "google-chrome", "chromium-browser", "firefox"})
    if (const std::string path = find_program(name); !path.empty())
      return {"browser", true, path, "reports of cgp report are looked at", ""};
  return {"browser", false, "not found", "reports of cgp report are looked at on another machine",
          "apt install chromium"};
}

Line cache() {
  const std::string folder = runtime::JitCache::from_environment().folder();
  if (folder.empty())
    return {"cache", false, "off (no HOME, or CGP_CACHE_DIR=off)", "PTX is compiled again in every process",
            "set CGP_CACHE_DIR to a writable folder"};
  std::error_code ec;
  fs::create_directories(folder, ec);
  const std::string probe = cat(folder, "/.doctor-", getpid());
  FILE* file = ec ? nullptr : std::fopen(probe.c_str(), "w");
  if (!file)
    return {"cache", false, cat(folder, " is not writable"), "PTX is compiled again in every process",
            "set CGP_CACHE_DIR to a writable folder"};
  std::fclose(file);
  fs::remove(probe, ec);
  return {"cache", true, folder, "compiled kernels are kept between processes", ""};
}

std::vector<Line> examine() {
  std::vector<Line> lines;
  lines.push_back(
      {"cgp", true, cat(kVersion, ", build ", build_id().substr(0, 12)), cat("PTX ISA up to ", kPtxIsa), ""});
  lines.push_back(processor());
  lines.push_back(driver());
  append_devices(lines);
  lines.push_back(program("ptxas", "CGP_PTXAS", "tests assemble every kernel for every target",
                          "kernels are verified and emulated, but not assembled here",
                          "pip install nvidia-cuda-nvcc, or a CUDA toolkit; or set CGP_PTXAS"));
  lines.push_back(program("nvdisasm", "", "machine code can be shown",
                          "machine code is shown by cuobjdump, if that is here",
                          "part of the CUDA toolkit (cuda-nvdisasm), or pip install nvidia-cuda-nvdisasm"));
  lines.push_back(program("cuobjdump", "", "machine code can be shown",
                          "machine code is shown by nvdisasm, if that is here",
                          "part of the CUDA toolkit (cuda-cuobjdump)"));
  lines.push_back(program("ncu", "", "hardware counters can be compared with ours", "no hardware counters",
                          "Nsight Compute, part of the CUDA toolkit"));
  lines.push_back(program("nsys", "", "its recordings are read (cgp import)",
                          "its .sqlite and CSV files are read, .nsys-rep files are not", "Nsight Systems"));
  lines.push_back(program("compute-sanitizer", "", "machine code can be checked on a GPU",
                          "the emulator checks PTX without it", "part of the CUDA toolkit"));
  lines.push_back(program("node", "", "functions of WebAssembly are run by it (cgp profile wasm)",
                          "WebAssembly is not profiled", "apt install nodejs"));
  lines.push_back(browser());
  lines.push_back(cache());
  for (auto& line : profile::measuring_lines()) lines.push_back(std::move(line));
  return lines;
}

}  // namespace

int doctor(const Context& context, const DoctorOptions& o) {
  const auto start = std::chrono::steady_clock::now();
  auto lines = examine();
  if (!o.check.empty()) {
    std::vector<std::string> names;
    for (const auto& l : lines) names.push_back(l.name);
    const std::string wanted = o.check == "perf" ? "counters" : o.check == "driver" ? "libcuda" : o.check;
    std::erase_if(lines, [&](const Line& l) { return l.name != wanted; });
    if (lines.empty())
      throw ArgumentError(ErrorText{
          cat("there is no item \"", o.check, "\""), {}, {}, cat("items: ", text::join(names, " "))});
  }
  const bool absent = !o.check.empty() && !lines[0].ok;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::string out;
  if (context.json) {
    nlohmann::ordered_json j = {{"schema", "cgp.doctor/1"}, {"version", kVersion}, {"build_id", build_id()}};
    j["items"] = nlohmann::ordered_json::array();
    for (const auto& l : lines)
      j["items"].push_back({{"name", l.name},
                            {"ok", l.ok},
                            {"found", l.found},
                            {"meaning", l.meaning},
                            {"hint", l.ok ? "" : l.hint}});
    out = spec::dumped(j, 2) + "\n";
  } else {
    for (const auto& l : lines) {
      const std::string mark = l.ok ? "OK    " : "absent";
      const std::string color = context.color_out ? (l.ok ? "\x1b[32m" : "\x1b[33m") : "";
      out += fmt::format("{}{}{}  {:<10} {}\n{:<20}{}\n", color, mark, context.color_out ? "\x1b[0m" : "",
                         l.name, l.found, "", l.meaning);
      if (!l.ok && !l.hint.empty()) out += fmt::format("{:<20}-> {}\n", "", l.hint);
    }
    out += fmt::format("\nexamined in {:.0f} ms\n", 1000 * seconds);
  }
  write_out(out);
  return absent ? kUnavailable : kClean;
}

}  // namespace cgp::cli
