// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/profile/kernel/kernel_args.h"
#include "cgp/ptx/parse.h"
#include "cgp/ptx/passes/passes.h"
#include "cgp/ptx/print.h"
#include "cgp/shader/shader.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {

namespace {

nlohmann::ordered_json pass_report(const ptx::PassOptions& passes, const ptx::PassStatistics& s) {
  nlohmann::ordered_json j = {{"on", name(passes)},
                              {"instructions_before", s.before},
                              {"instructions_after", s.after},
                              {"rounds", s.rounds}};
  j["changes"] = nlohmann::ordered_json::object();
  for (std::size_t p = 0; p < s.of.size(); ++p)
    if (passes.has(ptx::Pass(p))) j["changes"][std::string(name(ptx::Pass(p)))] = s.of[p].changes;
  return j;
}

/// The module in another language: text, or the bytes of SPIR-V.
std::string translated(const ptx::Module& m, const runtime::KernelImage& image, bool wgsl) {
  shader::ShaderOptions o;
  o.dynamic_shared = image.dynamic_smem;
  if (image.block.x) o.block = {image.block.x, image.block.y, image.block.z};
  if (wgsl) return shader::translate_wgsl(m, image.entry, o).wgsl;
  const auto words = shader::translate_spirv(m, image.entry, o).spirv;
  std::string bytes;
  for (std::uint32_t w : words)
    for (int k = 0; k < 4; ++k) bytes.push_back(char(w >> (8 * k) & 0xff));
  return bytes;
}

}  // namespace

int emit(const Context& context, const EmitOptions& o) {
  const auto& kernel = kernels::find_kernel(o.kernel);
  const auto images = profile::select_images(kernel, o.arch, o.variant, o.settings);
  std::vector<std::string> texts;
  ptx::PassStatistics statistics;
  const auto passes = ptx::parse_passes(o.passes);
  const bool shader = o.target != "ptx", binary = o.target == "spirv";
  const bool to_file = !o.output.empty() && o.output != "-";
  if (binary && (context.json || !to_file))
    throw ArgumentError({"SPIR-V is binary: it goes to a file", "--target spirv", {}, "add -o FILE.spv"});
  if (binary && images.size() > 1)
    throw ArgumentError({"a file of SPIR-V holds one kernel", "--target spirv",
                         text::cat("these options launch ", images.size()), "choose one with --variant"});
  for (const auto& image : images) {
    texts.push_back(*image.ptx);
    if (!passes.any() && !shader) continue;
    ptx::Module module = ptx::parse(*image.ptx);
    if (passes.any()) statistics.add(ptx::optimise(module, passes));
    texts.back() = shader ? translated(module, image, !binary) : ptx::print(module);
  }
  std::string out;
  if (context.json) {
    nlohmann::ordered_json j = {{"schema", "cgp.emit/1"}, {"kernel", kernel.name}, {"arch", o.arch}};
    j["modules"] = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < images.size(); ++i)
      j["modules"].push_back({{"variant", images[i].name}, {"entry", images[i].entry}, {o.target, texts[i]}});
    if (passes.any()) j["passes"] = pass_report(passes, statistics);
    out = spec::dumped(j, 2) + "\n";
  } else {
    for (std::size_t i = 0; i < images.size(); ++i) {
      if (images.size() > 1) text::append(out, text::cat("// ---------------- ", images[i].name, "\n"));
      out += texts[i];
      if (!binary && !out.empty() && out.back() != '\n') out += '\n';
    }
  }
  if (passes.any() && !context.json) std::fputs(ptx::describe(statistics).c_str(), stderr);
  if (o.output.empty() || o.output == "-") {
    write_out(out);
  } else {
    write_file(o.output, out);
    std::fputs(text::cat("wrote ", o.output, "\n").c_str(), stderr);
  }
  return kClean;
}

}  // namespace cgp::cli
