// SPDX-License-Identifier: Apache-2.0
#include "cgp/explain/analysis_view.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cgp/base/text.h"
#include "cgp/ptx/print.h"

namespace cgp::explain {
namespace {

using fmt::format;
using nlohmann::ordered_json;
using text::cat;

constexpr std::size_t kRows = 24;

std::string_view name(ptx::Shape::Kind k) {
  constexpr std::string_view names[] = {"uniform", "affine", "function", "divergent"};
  return names[std::size_t(k)];
}

/// "ld.global.v4.f32", without operands.
std::string opcode(const ptx::Inst& i) {
  std::string s(ptx::name(i.op));
  for (ptx::Mod m : i.mods) s += cat(".", ptx::name(m));
  return s;
}

std::string number(double v) {
  const std::string s = format("{:.1f}", v);
  return s.size() > 2 && s.substr(s.size() - 2) == ".0" ? s.substr(0, s.size() - 2) : s;
}

/// What a warp pays, in words.
std::string cost_text(const ptx::MemoryAccess& a) {
  if (!a.warps && a.most_sectors && a.space == ptx::Space::global)
    return format("{} to {} sectors", a.least_sectors, a.most_sectors);
  if (!a.warps) return "unknown";
  if (a.warps->empty()) return "never runs";
  const double n = double(a.warps->size());
  const char* up_to = a.all_lanes ? "" : "<= ";
  if (a.space == ptx::Space::global) {
    const double used = double(a.total_lanes()) * a.bytes, moved = 32.0 * double(a.total_sectors());
    const std::string count = number(double(a.total_sectors()) / n);
    return format("{}{} sector{}, {:.0f}% used", up_to, count, count == "1" ? "" : "s",
                  std::min(100.0, 100 * used / moved));
  }
  const ptx::BankCost c = a.total_banks();
  const std::string passes = number(c.passes / n);
  return format("{}{} pass{}, {}", up_to, passes, passes == "1" ? "" : "es",
                c.conflicts ? number(c.conflicts / n) + " conflicts" : std::string("no conflicts"));
}

struct MemoryRow {
  std::uint32_t line = 0;
  std::string opcode, shape, cost, why;
  int count = 1;
};

std::vector<MemoryRow> memory_rows(const ptx::FunctionAnalysis& f, bool all) {
  std::vector<MemoryRow> out;
  for (const ptx::MemoryAccess& a : f.memory) {
    const ptx::Inst& inst = f.function->body[a.inst];
    const ptx::Shape shape = ptx::shape(*f.values, a.address);
    MemoryRow r{inst.ptx_line, opcode(inst), std::string(name(shape.kind)), cost_text(a),
                a.why.empty() ? shape.text : a.why};
    const auto same = std::find_if(out.begin(), out.end(), [&](const MemoryRow& o) {
      return o.opcode == r.opcode && o.shape == r.shape && o.cost == r.cost &&
             (!a.why.empty() ? o.why == r.why : true);
    });
    if (all || same == out.end())
      out.push_back(std::move(r));
    else
      ++same->count;
  }
  return out;
}

std::string memory_text(const ptx::FunctionAnalysis& f, bool all) {
  const auto rows = memory_rows(f, all);
  if (rows.empty()) return "";
  std::string out =
      format("  {:>6}  {:<34} {:<10} {:<26} {}\n", "line", "access", "address", "a warp pays", "why");
  std::size_t shown = 0;
  for (const MemoryRow& r : rows) {
    if (!all && shown == kRows) {
      out +=
          format("  {:>6}  and {} more kinds of access (--all shows every one)\n", "", rows.size() - shown);
      break;
    }
    ++shown;
    std::string op = r.opcode;
    if (r.count > 1) op += format(" x{}", r.count);
    std::string why = r.why;
    if (why.size() > 110) why = why.substr(0, 107) + "...";
    out += format("  {:>6}  {:<34} {:<10} {:<26} {}\n", r.line, op, r.shape, r.cost, why);
  }
  return out;
}

std::string collectives_text(const ptx::FunctionAnalysis& f) {
  if (f.collectives.empty()) return "";
  std::size_t safe = 0, unsafe = 0;
  for (const auto& c : f.collectives) {
    safe += c.verdict == ptx::Verdict::safe;
    unsafe += c.verdict == ptx::Verdict::unsafe;
  }
  const std::size_t all = f.collectives.size();
  return format("  {:<14} {} of {} barriers and warp operations are reached by all their threads{}{}\n",
                "together", safe, all, unsafe ? format(", {} are not", unsafe) : "",
                all - safe - unsafe ? format(", {} are not proven", all - safe - unsafe) : "");
}

std::string branches_text(const ptx::FunctionAnalysis& f) {
  std::string out;
  std::size_t shown = 0;
  std::vector<std::string> elected;
  for (const auto& b : f.branches) {
    if (b.elected) {
      elected.push_back(std::to_string(f.function->body[b.inst].ptx_line));
      continue;
    }
    if (++shown > 8) {
      if (shown == 9) out += format("  {:<14} and more (--json has all)\n", "");
      continue;
    }
    out += format("  {:<14} line {}: on {}; {}\n", shown == 1 ? "divergent" : "",
                  f.function->body[b.inst].ptx_line,
                  b.condition.empty() ? "a value of each thread" : b.condition,
                  b.efficiency ? format("splits {} warp{}, {:.0f}% of the lanes work", b.warps,
                                        b.warps == 1 ? "" : "s", 100 * *b.efficiency)
                               : std::string("how many lanes work depends on data"));
  }
  if (!elected.empty())
    out += format(
        "  {:<14} line {}: one thread of a warp issues copies, mbarriers or tcgen05, as they are meant\n",
        "elected", text::join(elected, ", "));
  return out;
}

std::string bug_text(const ptx::BugReport& b) {
  const ptx::BugClass& c = ptx::bug_class(b.bug);
  std::string out = format("  {}[{} {}]: {}\n", ptx::name(c.severity), c.code, c.name, c.title);
  if (b.ptx_line) out += format("     {:>5} | {}\n", b.ptx_line, b.instruction);
  out += format("           = {}\n", b.why);
  return out + format("      hint: {}\n", c.hint);
}

ordered_json memory_json(const ptx::FunctionAnalysis& f, const ptx::MemoryAccess& a) {
  const ptx::Inst& inst = f.function->body[a.inst];
  const ptx::Shape shape = ptx::shape(*f.values, a.address);
  ordered_json j = {{"ptx_line", inst.ptx_line},
                    {"opcode", opcode(inst)},
                    {"space", ptx::name(a.space)},
                    {"bytes_per_lane", a.bytes},
                    {"address_class", name(shape.kind)},
                    {"address", shape.text},
                    {"known", a.warps.has_value()},
                    {"all_lanes", a.all_lanes},
                    {"why", a.why}};
  if (a.most_sectors) j["sectors_range"] = {a.least_sectors, a.most_sectors};
  j["warps"] = ordered_json::array();
  if (a.warps)
    for (const ptx::WarpCost& w : *a.warps) {
      ordered_json x = {{"warp", w.warp}, {"lanes", w.lanes}};
      if (a.space == ptx::Space::global)
        x["sectors"] = w.sectors;
      else
        x.update({{"wavefronts", w.banks.passes}, {"conflicts", w.banks.conflicts}});
      j["warps"].push_back(std::move(x));
    }
  return j;
}

}  // namespace

std::vector<const ptx::BugReport*> reported(const ptx::Analysis& a, const AnalysisView& view) {
  std::vector<const ptx::BugReport*> out;
  for (const ptx::BugReport& b : a.bugs)
    if (std::find(view.allowed.begin(), view.allowed.end(), b.bug) == view.allowed.end()) out.push_back(&b);
  return out;
}

std::string analysis_text(const ptx::Module& m, const ptx::Analysis& a, const AnalysisView& view) {
  const auto& assumed = a.functions[0]->values->assumptions();
  std::string out =
      format("  {:<14} block {},{},{}{}; pointers are multiples of {} bytes; 32-bit indices do not wrap\n",
             "assuming", assumed.block[0], assumed.block[1], assumed.block[2],
             view.assumed_block ? " (--block says another)" : "", assumed.pointer_alignment);
  for (const auto& f : a.functions) {
    if (f != a.functions.front()) out += format("  {:<14} {}\n", "calls", m.text(f->function->name));
    out += collectives_text(*f);
    out += branches_text(*f);
    out += memory_text(*f, view.all_rows);
  }
  const auto bugs = reported(a, view);
  if (!bugs.empty()) out += format("  {:<14} {}\n", "found", bugs.size());
  for (const ptx::BugReport* b : bugs) out += bug_text(*b);
  return out;
}

ordered_json analysis_json(const ptx::Module& m, const ptx::Analysis& a, const AnalysisView& view) {
  const auto& assumed = a.functions[0]->values->assumptions();
  ordered_json j = {{"assumptions",
                     {{"block", assumed.block},
                      {"grid", assumed.grid ? ordered_json(*assumed.grid) : ordered_json()},
                      {"pointer_alignment", assumed.pointer_alignment},
                      {"parameters", ordered_json(assumed.parameters)}}}};
  j["functions"] = ordered_json::array();
  for (const auto& f : a.functions) {
    ordered_json x = {{"name", m.text(f->function->name)}};
    x["memory"] = ordered_json::array();
    for (const auto& access : f->memory) x["memory"].push_back(memory_json(*f, access));
    x["collectives"] = ordered_json::array();
    for (const auto& c : f->collectives)
      x["collectives"].push_back({{"ptx_line", f->function->body[c.inst].ptx_line},
                                  {"instruction", ptx::print(m, *f->function, f->function->body[c.inst])},
                                  {"needs", ptx::name(c.needed)},
                                  {"verdict", ptx::name(c.verdict)},
                                  {"threads", c.threads},
                                  {"why", c.why}});
    x["divergent_branches"] = ordered_json::array();
    for (const auto& b : f->branches)
      x["divergent_branches"].push_back(
          {{"ptx_line", f->function->body[b.inst].ptx_line},
           {"depends_on", b.condition},
           {"warps", b.warps},
           {"elected", b.elected},
           {"efficiency", b.efficiency ? ordered_json(*b.efficiency) : ordered_json()}});
    j["functions"].push_back(std::move(x));
  }
  j["bugs"] = ordered_json::array();
  for (const ptx::BugReport* b : reported(a, view)) {
    const ptx::BugClass& c = ptx::bug_class(b->bug);
    j["bugs"].push_back({{"code", c.code},
                         {"severity", ptx::name(c.severity)},
                         {"name", c.name},
                         {"title", c.title},
                         {"why", b->why},
                         {"hint", c.hint},
                         {"function", b->function},
                         {"ptx_line", b->ptx_line},
                         {"instruction", b->instruction},
                         {"source_line", b->loc == ~0u ? 0 : m.locs[b->loc].line}});
  }
  return j;
}

}  // namespace cgp::explain
