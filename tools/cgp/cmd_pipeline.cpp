// SPDX-License-Identifier: Apache-2.0
// cgp pipeline: a kernel from what its function recorded to machine code, stage by stage.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/pack/cubin_pack.h"
#include "cgp/profile/collect/cubin.h"
#include "cgp/profile/collect/disassemble.h"
#include "cgp/ptx/cfg.h"
#include "cgp/ptx/loops.h"
#include "cgp/ptx/parse.h"
#include "cgp/ptx/passes/passes.h"
#include "cgp/ptx/pressure.h"
#include "cgp/ptx/print.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/commands.h"
#include "tools/cgp/kernels/kernel_args.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {
namespace {

using fmt::format;
using nlohmann::ordered_json;

/// One module on its way.
struct Way {
  std::string variant, entry;
  std::size_t instructions = 0, blocks = 0, loops = 0;
  int live = 0;        ///< 32-bit registers at the worst point, as recorded
  std::string graph;   ///< blocks, their instructions and successors
  std::string passes;  ///< what they did; empty: none ran
  std::string ptx, version, target;
  std::string cubin_from;   ///< ptxas, or the pack of this program
  std::string sass_absent;  ///< why there is no machine code, or no text of it
  profile::Cubin cubin;
  profile::Listing listing;
};

std::string graph_text(const ptx::Module& m, const ptx::Function& f, const ptx::Cfg& c) {
  std::string out;
  const auto forest = ptx::find_loops(c);
  for (std::size_t b = 0; b < c.blocks.size(); ++b) {
    const auto& block = c.blocks[b];
    std::vector<std::string> to;
    for (auto s : block.successors) to.push_back(format("block {}", s));
    if (block.exits) to.emplace_back("end");
    const auto loop = forest.innermost[b];
    out += format("block {}{}{} -> {}\n", b,
                  loop == ptx::kNone ? "" : format(" (in a loop, depth {})", forest.loops[loop].depth),
                  block.reachable ? "" : " (never reached)", to.empty() ? "nothing" : text::join(to, ", "));
    for (auto i = block.first; i < block.last; ++i) out += "  " + ptx::print(m, f, f.body[i]) + "\n";
  }
  return out;
}

void recorded(const ptx::Module& m, Way& way) {
  const ptx::Function* f = m.find(way.entry);
  if (!f) throw ArgumentError(text::cat("the module has no entry ", way.entry));
  const auto c = ptx::build_cfg(*f);
  way.instructions = f->body.size(), way.blocks = c.blocks.size();
  way.loops = ptx::find_loops(c).loops.size();
  way.live = ptx::pressure(*f).at_peak.total();
  way.graph = graph_text(m, *f, c);
}

void machine_code(const runtime::KernelImage& image, const std::string& arch, bool changed, Way& way) {
  profile::Assembled made;
  runtime::KernelImage packed = image;
  if (!changed) kernels::attach_embedded(packed, arch);
  if (const auto* cubin = runtime::choose_cubin(packed.cubins, arch)) {
    made.cubin = cubin->bytes, made.tool = "ptxas, when cgp was built";
  } else {
    made = profile::assemble(way.ptx, arch);
  }
  way.cubin_from = made.tool, way.sass_absent = made.absent;
  if (made.cubin.empty()) return;
  way.cubin = profile::read_cubin(made.cubin, way.variant);
  way.listing = profile::disassemble_bytes(made.cubin);
  if (way.listing.text.empty()) way.sass_absent = way.listing.absent;
}

Way way_of(const runtime::KernelImage& image, const PipelineOptions& o) {
  Way way;
  way.variant = image.name, way.entry = image.entry;
  ptx::Module module = ptx::parse(*image.ptx);
  recorded(module, way);
  way.ptx = *image.ptx;
  const auto passes = ptx::parse_passes(o.passes);
  if (passes.any()) {
    way.passes = ptx::describe(ptx::optimise(module, passes));
    way.ptx = ptx::print(module);
  }
  way.version = format("{}.{}", module.version.major, module.version.minor), way.target = module.target;
  machine_code(image, o.arch, passes.any(), way);
  return way;
}

std::string groups_text(const std::map<std::string, std::uint64_t>& opcodes) {
  std::map<std::string, std::uint64_t> groups;
  for (const auto& [opcode, n] : opcodes) groups[std::string(profile::sass_group(opcode))] += n;
  std::vector<std::pair<std::uint64_t, std::string>> ranked;
  for (const auto& [group, n] : groups) ranked.emplace_back(n, group);
  std::sort(ranked.rbegin(), ranked.rend());
  std::vector<std::string> parts;
  for (const auto& [n, group] : ranked) parts.push_back(format("{} {}", n, group));
  return text::join(parts, ", ");
}

std::string way_text(const Way& w) {
  std::string out = format("{}\n", w.variant);
  const auto line = [&](const char* stage, const std::string& text) {
    out += format("  {:<10} {}\n", stage, text);
  };
  line("recorded", format("{} instructions in {} blocks, {} loop{}; {} registers live at once",
                          w.instructions, w.blocks, w.loops, w.loops == 1 ? "" : "s", w.live));
  if (w.passes.empty())
    line("passes", "none ran (--passes all; docs/passes.md)");
  else
    for (const auto& l : text::split(text::trim(w.passes), '\n')) line("passes", std::string(l));
  line("PTX", format("{} bytes, version {}, for {}", w.ptx.size(), w.version, w.target));
  if (!w.sass_absent.empty())
    line("SASS", (w.cubin.kernels.empty() ? "absent: " : "its text is absent: ") + w.sass_absent);
  const auto mix = profile::sass_mix(w.listing.text);
  for (const auto& k : w.cubin.kernels) {
    const auto known = [](const auto& v, const char* what) {
      return v ? format("{} {}", *v, what) : format("{} not in the file", what);
    };
    line("SASS",
         format("{} instructions with padding, {}, {}; by {}", k.instructions,
                known(k.registers, "registers"), known(k.stack_bytes, "bytes of stack"), w.cubin_from));
    if (const auto at = mix.find(k.name); at != mix.end()) line("", groups_text(at->second));
  }
  return out;
}

ordered_json way_json(const Way& w) {
  ordered_json j = {{"variant", w.variant},
                    {"entry", w.entry},
                    {"recorded",
                     {{"instructions", w.instructions},
                      {"blocks", w.blocks},
                      {"loops", w.loops},
                      {"registers_live", w.live},
                      {"graph", w.graph}}},
                    {"passes", w.passes.empty() ? ordered_json() : ordered_json(w.passes)},
                    {"ptx", {{"version", w.version}, {"target", w.target}, {"text", w.ptx}}}};
  j["sass"] = {{"absent", w.sass_absent.empty() ? ordered_json() : ordered_json(w.sass_absent)},
               {"assembled_by", w.cubin_from},
               {"text", w.listing.text}};
  j["sass"]["kernels"] = ordered_json::array();
  for (const auto& k : w.cubin.kernels)
    j["sass"]["kernels"].push_back(
        {{"name", k.name},
         {"instructions", k.instructions},
         {"registers", k.registers ? ordered_json(*k.registers) : ordered_json()}});
  return j;
}

const std::string& shown(const Way& w, const std::string& stage) {
  if (stage == "recorded") return w.graph;
  if (stage == "ptx") return w.ptx;
  if (w.listing.text.empty())
    throw Unsupported(ErrorText{"machine code needs ptxas and nvdisasm or cuobjdump", {}, w.sass_absent, {}});
  return w.listing.text;
}

}  // namespace

int pipeline(const Context& context, const PipelineOptions& o) {
  const auto& kernel = kernels::find_kernel(o.kernel);
  ordered_json j = {{"schema", "cgp.pipeline/1"}, {"kernel", kernel.name}, {"arch", o.arch}};
  j["modules"] = ordered_json::array();
  std::string out;
  for (const auto& image : select_images(kernel, o.arch, o.variant, o.settings)) {
    const Way way = way_of(image, o);
    if (context.json)
      j["modules"].push_back(way_json(way));
    else
      out += o.show.empty() ? way_text(way) : shown(way, o.show);
  }
  if (o.show.empty()) out += "\nthe text of a stage: --show recorded, ptx or sass\n";
  write_out(context.json ? spec::dumped(j, 2) + "\n" : out);
  return kClean;
}

}  // namespace cgp::cli
