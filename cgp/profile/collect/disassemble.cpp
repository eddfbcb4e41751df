// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/collect/disassemble.h"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>

#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/profile/measure/process.h"

namespace cgp::profile {
namespace {

namespace fs = std::filesystem;
using fmt::format;

/// A file that goes with its owner.
struct Scratch {
  explicit Scratch(const std::string& ending)
      : path((fs::temp_directory_path() / format("cgp-assemble-{}{}", getpid(), ending)).string()) {}
  ~Scratch() {
    std::error_code ec;
    fs::remove(path, ec);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::string path;
};

}  // namespace

Listing disassemble(const std::string& file) {
  for (const auto& [name, option] : {std::pair{"nvdisasm", "-c"}, std::pair{"cuobjdump", "-sass"}}) {
    const std::string path = find_cuda_program(name);
    if (path.empty()) continue;
    measure::ProcessOptions o;
    o.timeout_seconds = 60, o.keep_bytes = 256u << 20;
    const auto r = measure::run_process({path, option, file}, o);
    if (r.ok() && !r.out.empty()) return {r.out, name, ""};
    return {"", name, format("{} could not read it: {} {}", name, r.describe(), text::trim(r.err))};
  }
  return {"", "",
          "neither nvdisasm nor cuobjdump is on PATH, and cgp has no disassembler of its own; they are part "
          "of the "
          "CUDA toolkit (cuda-nvdisasm)"};
}

Listing disassemble_bytes(std::string_view cubin) {
  const Scratch file(".cubin");
  write_file(file.path, cubin);
  return disassemble(file.path);
}

Assembled assemble(std::string_view ptx, const std::string& arch) {
  const std::string tool = find_ptxas();
  if (tool.empty()) return {"", "", "ptxas is not on PATH (part of the CUDA toolkit; or set CGP_PTXAS)"};
  const Scratch source(".ptx"), out(".out");
  write_file(source.path, ptx);
  measure::ProcessOptions o;
  o.timeout_seconds = 300;
  const auto r = measure::run_process({tool, "-arch=" + arch, source.path, "-o", out.path}, o);
  if (!r.ok()) return {"", "ptxas", format("ptxas: {} {}", r.describe(), text::trim(r.err + r.out))};
  return {read_file(out.path), "ptxas", ""};
}

}  // namespace cgp::profile
