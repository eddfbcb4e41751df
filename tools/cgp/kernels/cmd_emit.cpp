// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/profile/kernel/kernel_args.h"
#include "cgp/ptx/parse.h"
#include "cgp/ptx/passes/passes.h"
#include "cgp/ptx/print.h"
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

}  // namespace

int emit(const Context& context, const EmitOptions& o) {
  const auto& kernel = kernels::find_kernel(o.kernel);
  const auto images = profile::select_images(kernel, o.arch, o.variant, o.settings);
  std::vector<std::string> texts;
  ptx::PassStatistics statistics;
  const auto passes = ptx::parse_passes(o.passes);
  for (const auto& image : images) {
    texts.push_back(*image.ptx);
    if (!passes.any()) continue;
    ptx::Module module = ptx::parse(*image.ptx);
    statistics.add(ptx::optimise(module, passes));
    texts.back() = ptx::print(module);
  }
  std::string out;
  if (context.json) {
    nlohmann::ordered_json j = {{"schema", "cgp.emit/1"}, {"kernel", kernel.name}, {"arch", o.arch}};
    j["modules"] = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < images.size(); ++i)
      j["modules"].push_back({{"variant", images[i].name}, {"entry", images[i].entry}, {"ptx", texts[i]}});
    if (passes.any()) j["passes"] = pass_report(passes, statistics);
    out = spec::dumped(j, 2) + "\n";
  } else {
    for (std::size_t i = 0; i < images.size(); ++i) {
      if (images.size() > 1) text::append(out, text::cat("// ---------------- ", images[i].name, "\n"));
      out += texts[i];
      if (!out.empty() && out.back() != '\n') out += '\n';
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
