// SPDX-License-Identifier: Apache-2.0
#include "cgp/explain/examine.h"

#include <set>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/emu/emu.h"
#include "cgp/ptx/module.h"
#include "cgp/ptx/target.h"
#include "cgp/ptx/verify/verify.h"

namespace cgp::explain {
namespace {

using text::cat;

void functions_named(const ptx::Module& m, const ptx::Operand& o, std::set<const ptx::Function*>& out) {
  if (o.kind == ptx::OperandKind::symbol)
    if (const ptx::Function* f = m.find(m.text(o.symbol)); f && f->has_body) out.insert(f);
  for (const auto& e : o.elems) functions_named(m, e, out);
}

/// The entry and what it calls, directly or not.
std::set<const ptx::Function*> reachable(const ptx::Module& m, const ptx::Function& entry) {
  std::set<const ptx::Function*> done;
  std::vector<const ptx::Function*> open{&entry};
  while (!open.empty()) {
    const ptx::Function* f = open.back();
    open.pop_back();
    if (!done.insert(f).second) continue;
    std::set<const ptx::Function*> callees;
    for (const auto& inst : f->body)
      for (const auto& operand : inst.operands) functions_named(m, operand, callees);
    open.insert(open.end(), callees.begin(), callees.end());
  }
  return done;
}

struct Feature {
  std::string_view prefix, text;
};
/// Longest prefixes first: the first that fits an opcode names what it is.
constexpr Feature kFeatures[] = {
    {"cp.async.bulk.tensor", "TMA tensor copies"},
    {"cp.async.bulk", "bulk copies"},
    {"cp.reduce.async", "bulk reductions"},
    {"cp.async.mbarrier", "cp.async"},
    {"cp.async", "cp.async"},
    {"wgmma", "wgmma"},
    {"tcgen05", "tcgen05"},
    {"wmma", "wmma"},
    {"mma", "mma.sync"},
    {"ldmatrix", "ldmatrix"},
    {"stmatrix", "stmatrix"},
    {"mbarrier", "mbarrier"},
    {"setmaxnreg", "setmaxnreg"},
    {"barrier.cluster", "clusters"},
    {"mapa", "clusters"},
    {"getctarank", "clusters"},
    {"redux", "redux"},
    {"elect", "elect"},
    {"griddepcontrol", "programmatic dependent launch"},
    {"atom", "atomics"},
    {"red", "atomics"},
    {"dp4a", "dp4a"},
    {"match", "match"},
    {"shfl", "shuffles"},
    {"vote", "votes"},
};

void collect_features(const ptx::Inst& inst, std::set<std::string>& out) {
  const std::string_view opcode = ptx::name(inst.op);
  for (const Feature& f : kFeatures)
    if (opcode.substr(0, f.prefix.size()) == f.prefix) {
      out.insert(std::string(f.text));
      return;
    }
}

std::string need_text(const ptx::Need& need) {
  std::vector<std::string> targets;
  for (const auto& t : need.requirement.targets) targets.push_back(ptx::name(t));
  return cat(need.what, ": PTX ", need.requirement.version.major, ".", need.requirement.version.minor,
             targets.empty() ? "" : ", ", text::join(targets, " or "));
}

std::string problem_text(const ptx::Problem& p) {
  return cat(p.ptx_line ? cat("line ", p.ptx_line, ": ") : "", p.rule,
             p.why.empty() ? "" : cat(" (", p.why, ")"),
             p.instruction.empty() ? "" : cat(": ", p.instruction));
}

OccupancyFacts occupancy_of(const std::string& target, std::uint32_t threads, int registers,
                            std::uint32_t shared) {
  OccupancyFacts facts;
  auto known = ptx::parse_target(target);
  if (!known || !ptx::chip_limits(known->sm))
    known = ptx::Target{90, 'a'};  // older code runs there too; the report says so
  facts.arch = ptx::name(*known);
  facts.block_threads = int(threads);
  facts.value =
      ptx::occupancy(known->sm, {.threads = int(threads), .registers = registers, .shared = shared});
  return facts;
}

std::array<std::uint32_t, 3> block_of(EntryFacts& e, const ExamineOptions& o) {
  if (o.block) return *o.block;
  for (const auto* declared : {&e.reqntid, &e.maxntid})
    if (*declared) return **declared;
  e.assumed_block = true;
  return {256, 1, 1};
}

EntryFacts examine_entry(const ptx::Module& m, const ptx::Function& f, const emu::EntryInfo& info,
                         const ExamineOptions& o, bool legal) {
  EntryFacts e;
  e.name = info.name;
  std::set<std::string> features;
  const auto target = ptx::parse_target(m.target);
  for (const ptx::Function* part : reachable(m, f)) {
    const ptx::Mix mix = ptx::mix(*part);
    e.instructions += mix.total;
    for (std::size_t i = 0; i < mix.by_family.size(); ++i)
      if (mix.by_family[i]) e.by_family[std::string(ptx::name(ptx::Family(i)))] += mix.by_family[i];
    for (const auto& [opcode, count] : mix.by_opcode) e.by_opcode[opcode] += count;
    for (const auto& inst : part->body) collect_features(inst, features);
    const auto pressure = ptx::pressure(*part);
    if (pressure.at_peak.total() >= e.pressure.at_peak.total()) e.pressure = pressure;
    const auto registers = ptx::estimate_registers(*part, target ? target->sm : 80);
    if (registers.registers >= e.registers.registers) e.registers = registers;
    auto allocation = ptx::allocate(*part);
    if (allocation.used + allocation.spill_words() >= e.allocation.used + e.allocation.spill_words())
      e.allocation = std::move(allocation);
    for (const auto& reg : part->regs) ++e.declared[std::string(ptx::name(reg.type))];
  }
  e.uses.assign(features.begin(), features.end());
  for (const auto& p : info.params)
    e.params.push_back(cat(p.name, " ", p.type, p.type == "b8" ? cat("[", p.size, "]") : ""));
  e.param_bytes = info.param_bytes;
  e.static_shared = info.static_shared;
  e.dynamic_shared = info.dynamic_shared;
  e.local_bytes = info.local_bytes;
  e.maxntid = info.maxntid;
  e.reqntid = info.reqntid;
  e.cluster = info.cluster;
  e.unsupported = info.unsupported;
  ptx::LaunchAssumptions a;
  a.block = block_of(e, o);
  a.grid = o.grid;
  a.cluster = e.cluster;
  a.pointer_alignment = o.pointer_alignment;
  a.parameters = o.parameters;
  e.occupancy = occupancy_of(m.target, std::uint32_t(a.threads()), e.registers.registers,
                             e.static_shared + o.dynamic_smem);
  if (legal && a.threads() >= 1 && a.threads() <= 1024) {  // the analyses need what check() promises
    ptx::AnalysisLimits limits;
    limits.shared_bytes = e.static_shared + o.dynamic_smem;
    limits.registers = e.registers.registers + e.registers.spilled;
    limits.register_limit = e.registers.limit;
    e.analysis = std::make_shared<const ptx::Analysis>(ptx::analyse(m, f, a, limits));
  }
  return e;
}

}  // namespace

ModuleFacts examine_module(const std::string& name, std::string_view ptx, const ExamineOptions& o) {
  const auto program = emu::Program::load(ptx);
  const ptx::Module& m = program->module();
  ModuleFacts facts;
  facts.program = program;
  facts.name = name;
  facts.version = cat(m.version.major, ".", m.version.minor);
  facts.target = m.target;
  const ptx::Version required = ptx::required_version(m);
  facts.required_version = cat(required.major, ".", required.minor);
  for (const auto& need : ptx::needs(m)) facts.needs.push_back(need_text(need));
  for (const auto& p : ptx::check(m, {.foreign = true})) facts.problems.push_back(problem_text(p));
  for (const auto& v : m.vars) {
    if (v.space == ptx::Space::global) facts.global_bytes += v.bytes();
    if (v.space == ptx::Space::constant) facts.const_bytes += v.bytes();
  }
  if (!o.entry.empty()) (void)program->entry(o.entry);  // throws with the names there are
  for (const auto& info : program->entries())
    if (o.entry.empty() || info.name == o.entry)
      facts.entries.push_back(examine_entry(m, *m.find(info.name), info, o, facts.problems.empty()));
  return facts;
}

}  // namespace cgp::explain
