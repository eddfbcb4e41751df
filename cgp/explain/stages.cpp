// SPDX-License-Identifier: Apache-2.0
#include "cgp/explain/stages.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/ptx/cfg.h"
#include "cgp/ptx/loops.h"
#include "cgp/ptx/parse.h"
#include "cgp/ptx/passes/passes.h"
#include "cgp/ptx/pressure.h"
#include "cgp/ptx/print.h"

namespace cgp::explain {
namespace {

using fmt::format;
using nlohmann::ordered_json;

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

void recorded(const ptx::Module& m, Stages& s) {
  const ptx::Function* f = m.find(s.entry);
  if (!f) throw ArgumentError(text::cat("the module has no entry ", s.entry));
  const auto c = ptx::build_cfg(*f);
  s.instructions = f->body.size(), s.blocks = c.blocks.size();
  s.loops = ptx::find_loops(c).loops.size();
  s.live = ptx::pressure(*f).at_peak.total();
  s.graph = graph_text(m, *f, c);
}

void machine_code(const runtime::KernelImage& image, const std::string& arch, bool changed, Stages& s) {
  profile::Assembled made;
  const auto* cubin = changed ? nullptr : runtime::choose_cubin(image.cubins, arch);
  if (cubin) {
    made.cubin = cubin->bytes, made.tool = "ptxas, when cgp was built";
  } else {
    made = profile::assemble(s.ptx, arch);
  }
  s.cubin_from = made.tool, s.sass_absent = made.absent;
  if (made.cubin.empty()) return;
  s.cubin = profile::read_cubin(made.cubin, s.variant);
  s.listing = profile::disassemble_bytes(made.cubin);
  if (s.listing.text.empty()) s.sass_absent = s.listing.absent;
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

}  // namespace

Stages stages_of(const runtime::KernelImage& image, const std::string& arch, const std::string& passes_text) {
  Stages s;
  s.variant = image.name, s.entry = image.entry;
  ptx::Module module = ptx::parse(*image.ptx);
  recorded(module, s);
  s.ptx = *image.ptx;
  const auto passes = ptx::parse_passes(passes_text);
  if (passes.any()) {
    s.passes = ptx::describe(ptx::optimise(module, passes));
    s.ptx = ptx::print(module);
  }
  s.version = format("{}.{}", module.version.major, module.version.minor), s.target = module.target;
  machine_code(image, arch, passes.any(), s);
  return s;
}

std::string stages_text(const Stages& w) {
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

ordered_json stages_json(const Stages& w) {
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

}  // namespace cgp::explain
