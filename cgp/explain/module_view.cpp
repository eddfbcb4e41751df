// SPDX-License-Identifier: Apache-2.0
#include "cgp/explain/module_view.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cgp/base/text.h"

namespace cgp::explain {
namespace {

using fmt::format;
using nlohmann::ordered_json;
using text::cat;
using Counts = std::vector<std::pair<std::string, std::uint64_t>>;

/// Largest first, names in order among equals.
Counts ranked(const std::map<std::string, std::uint64_t>& counts) {
  Counts out(counts.begin(), counts.end());
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  return out;
}

std::string shares(const Counts& counts, std::uint64_t total, std::size_t most) {
  std::string out;
  for (std::size_t i = 0; i < counts.size() && i < most; ++i)
    out += format("{}{} {} ({:.1f}%)", i ? ", " : "", counts[i].first, counts[i].second,
                  100.0 * double(counts[i].second) / double(std::max<std::uint64_t>(total, 1)));
  if (counts.size() > most) out += format(", and {} more", counts.size() - most);
  return out;
}

std::string triple(const std::array<std::uint32_t, 3>& v) { return format("{},{},{}", v[0], v[1], v[2]); }

std::string bounds_text(const EntryFacts& e) {
  std::vector<std::string> parts;
  if (e.reqntid) parts.push_back(cat("exactly ", triple(*e.reqntid), " threads"));
  if (e.maxntid) parts.push_back(cat("at most ", triple(*e.maxntid), " threads"));
  if (e.cluster) parts.push_back(cat("clusters of ", triple(*e.cluster)));
  return parts.empty() ? "none declared" : text::join(parts, ", ");
}

const Assembled::Entry* assembled_entry(const ModuleFacts& m, const EntryFacts& e) {
  const auto at = m.assembled.entries.find(e.name);
  return at == m.assembled.entries.end() ? nullptr : &at->second;
}

/// Where ptxas found registers enough, what the estimate of them says is no bug.
AnalysisView view_of(const ModuleFacts& m, const EntryFacts& e, AnalysisView view) {
  view.assumed_block = e.assumed_block;
  if (const auto* a = assembled_entry(m, e); a && a->spill_stores + a->spill_loads == 0)
    view.allowed.push_back(ptx::Bug::B16);
  return view;
}

/// What ptxas did; without it what a linear scan would do.
std::pair<const char*, std::string> spills_text(const ModuleFacts& m, const EntryFacts& e) {
  if (const auto* a = assembled_entry(m, e))
    return {"ptxas",
            format("{} registers, {}", a->registers,
                   a->spill_stores + a->spill_loads == 0
                       ? std::string("no spills")
                       : format("spills: {} bytes stored, {} loaded per thread; use smaller tiles or fewer "
                                "elements per thread",
                                a->spill_stores, a->spill_loads))};
  const ptx::Allocation& a = e.allocation;
  return {"linear scan",
          format("{} of {} registers in the order of the text, {}", a.used, a.limit,
                 a.spills.empty()
                     ? std::string("no spills")
                     : format("where {} values do not fit; ptxas orders and recomputes, and may spill none "
                              "({})",
                              a.spills.size(), m.assembled.absent))};
}

std::string entry_text(const ModuleFacts& m, const EntryFacts& e, const AnalysisView& view) {
  std::string out = format("\n{}\n", e.name);
  const auto line = [&](std::string_view label, const std::string& text) {
    out += format("  {:<14} {}\n", label, text);
  };
  line("instructions", format("{}", e.instructions));
  line("by family", shares(ranked(e.by_family), e.instructions, 8));
  line("by opcode", shares(ranked(e.by_opcode), e.instructions, 10));
  std::vector<std::string> declared;
  for (const auto& [type, count] : e.declared) declared.push_back(format("{} {}", count, type));
  line("virtual regs", declared.empty() ? "none" : text::join(declared, ", "));
  const ptx::RegisterCount& peak = e.pressure.at_peak;
  line(
      "registers",
      format(
          "about {} of {} (an estimate, ptxas decides); {} live as written{}: {} x 32-bit, {} x 64-bit, {} x "
          "16-bit{}",
          e.registers.registers, e.registers.limit, peak.total(),
          e.pressure.ptx_line ? format(" (PTX line {})", e.pressure.ptx_line) : "", peak.b32, peak.b64,
          peak.b16,
          e.registers.spilled > 0 && !assembled_entry(m, e)
              ? format("; {} too many, which ptxas spills or recomputes", e.registers.spilled)
              : ""));
  const auto [who, spills] = spills_text(m, e);
  line(who, spills);
  line("parameters",
       format("{} bytes: {}", e.param_bytes, e.params.empty() ? "none" : text::join(e.params, ", ")));
  line("shared",
       format("{} static{}", text::bytes(e.static_shared), e.dynamic_shared ? ", and a dynamic array" : ""));
  line("local", e.local_bytes ? cat(text::bytes(e.local_bytes), " per thread") : "none");
  line("launch bounds", bounds_text(e));
  line("uses", e.uses.empty() ? "nothing beyond the base instruction set" : text::join(e.uses, ", "));
  line("occupancy", format("{} blocks of {} threads, {} warps ({:.0f}%) per SM on {}: {}",
                           e.occupancy.value.blocks, e.occupancy.block_threads, e.occupancy.value.warps,
                           100 * e.occupancy.value.fraction, e.occupancy.arch, e.occupancy.value.reason));
  line("emulator", e.unsupported.empty() ? "runs it" : cat("cannot run it: ", e.unsupported));
  if (e.analysis) out += analysis_text(m.program->module(), *e.analysis, view_of(m, e, view));
  return out;
}

ordered_json entry_json(const ModuleFacts& m, const EntryFacts& e, const AnalysisView& view) {
  ordered_json j = {{"name", e.name},
                    {"instructions", e.instructions},
                    {"by_family", ordered_json(e.by_family)},
                    {"by_opcode", ordered_json(e.by_opcode)},
                    {"virtual_registers", ordered_json(e.declared)},
                    {"registers_estimate", e.registers.registers},
                    {"registers_live", e.pressure.at_peak.total()},
                    {"registers_linear_scan", e.allocation.used},
                    {"spilled_values", e.allocation.spills.size()},
                    {"spill_bytes", 4 * e.allocation.spill_words()},
                    {"registers_at_ptx_line", e.pressure.ptx_line},
                    {"predicates_estimate", e.pressure.largest.pred},
                    {"param_bytes", e.param_bytes},
                    {"params", e.params},
                    {"static_shared_bytes", e.static_shared},
                    {"dynamic_shared", e.dynamic_shared},
                    {"local_bytes", e.local_bytes},
                    {"uses", e.uses},
                    {"emulator", e.unsupported.empty() ? ordered_json(true) : ordered_json(e.unsupported)}};
  j["reqntid"] = e.reqntid ? ordered_json(*e.reqntid) : ordered_json();
  j["maxntid"] = e.maxntid ? ordered_json(*e.maxntid) : ordered_json();
  j["cluster"] = e.cluster ? ordered_json(*e.cluster) : ordered_json();
  j["occupancy"] = {{"arch", e.occupancy.arch},
                    {"block_threads", e.occupancy.block_threads},
                    {"blocks_per_sm", e.occupancy.value.blocks},
                    {"warps_per_sm", e.occupancy.value.warps},
                    {"fraction", e.occupancy.value.fraction},
                    {"limit", e.occupancy.value.limit},
                    {"reason", e.occupancy.value.reason}};
  const auto* assembled = assembled_entry(m, e);
  j["ptxas"] = assembled ? ordered_json{{"registers", assembled->registers},
                                        {"spill_store_bytes", assembled->spill_stores},
                                        {"spill_load_bytes", assembled->spill_loads},
                                        {"stack_bytes", assembled->stack_bytes}}
                         : ordered_json();
  j["ptxas_absent"] = assembled ? "" : m.assembled.absent;
  j["analysis"] =
      e.analysis ? analysis_json(m.program->module(), *e.analysis, view_of(m, e, view)) : ordered_json();
  return j;
}

}  // namespace

std::string module_text(const ModuleFacts& m, const AnalysisView& view) {
  std::string out =
      format("{}\n  {:<14} {}\n  {:<14} {}{}\n", m.name, "target", m.target, "ptx version", m.version,
             m.required_version.empty() ? "" : format(" (needs {})", m.required_version));
  if (m.global_bytes || m.const_bytes)
    out += format("  {:<14} {} global, {} constant\n", "variables", text::bytes(m.global_bytes),
                  text::bytes(m.const_bytes));
  for (std::size_t i = 0; i < m.needs.size() && i < 4; ++i)
    out += format("  {:<14} {}\n", i ? "" : "needs", m.needs[i]);
  if (m.needs.size() > 4)
    out += format("  {:<14} and {} more features (--json has all)\n", "", m.needs.size() - 4);
  for (const auto& e : m.entries) out += entry_text(m, e, view);
  if (!m.problems.empty())
    out += format("\n{} rule{} broken\n", m.problems.size(), m.problems.size() == 1 ? "" : "s");
  for (const auto& p : m.problems) out += format("  {}\n", p);
  return out;
}

ordered_json module_json(const ModuleFacts& m, const AnalysisView& view) {
  ordered_json j = {{"name", m.name},
                    {"target", m.target},
                    {"ptx_version", m.version},
                    {"required_version", m.required_version}};
  j["global_bytes"] = m.global_bytes;
  j["const_bytes"] = m.const_bytes;
  j["needs"] = m.needs;
  j["problems"] = m.problems;
  j["entries"] = ordered_json::array();
  for (const auto& e : m.entries) j["entries"].push_back(entry_json(m, e, view));
  return j;
}

/// What a profile counted of each access: on the emulator, or, by ncu, of the machine instructions.
std::vector<profile::AccessCheck> counted_accesses(const std::vector<ModuleFacts>& modules,
                                                   const profile::Document& d) {
  if (d.kind != "ncu") return profile::accesses_of(d);
  std::vector<profile::AccessCheck> out;
  for (const auto& m : modules)
    for (const auto& e : m.entries)
      for (const auto& k : d.kernels)
        if (k.name == e.name || profile::short_name(k.name) == e.name)
          for (auto& c : profile::check_machine_code(*m.program, e.name, d)) out.push_back(std::move(c));
  return out;
}

/// Whether rules of the ISA are broken, or a bug of severity `fail_on` or worse is reported.
bool fails(const std::vector<ModuleFacts>& modules, const AnalysisView& view, const std::string& fail_on) {
  for (const auto& m : modules)
    if (!m.problems.empty()) return true;
  if (fail_on == "none") return false;
  for (const auto& m : modules)
    for (const auto& e : m.entries) {
      if (!e.analysis) continue;
      for (const ptx::BugReport* b : reported(*e.analysis, view_of(m, e, view)))
        if (ptx::name(ptx::bug_class(b->bug).severity) <= fail_on) return true;
    }
  return false;
}

}  // namespace cgp::explain
