// SPDX-License-Identifier: Apache-2.0
#include "explain.h"

#include <algorithm>
#include <set>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/emu/emu.h"
#include "cgp/ptx/module.h"

namespace cgp::cli {
namespace {

using text::cat;

std::string full_opcode(const ptx::Inst& inst) {
  std::string out(ptx::name(inst.op));
  for (ptx::Mod m : inst.mods) text::append(out, cat(".", ptx::name(m)));
  return out;
}

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
/// Longest prefixes first: the first that fits an opcode names what it needs.
constexpr Feature kFeatures[] = {
    {"cp.async.bulk.tensor", "TMA tensor copies (sm_90)"},
    {"cp.async.bulk", "bulk copies (sm_90)"},
    {"cp.reduce.async", "bulk reductions (sm_90)"},
    {"cp.async.mbarrier", "cp.async (sm_80)"},
    {"cp.async", "cp.async (sm_80)"},
    {"wgmma", "wgmma (sm_90a)"},
    {"tcgen05", "tcgen05 (sm_100a)"},
    {"wmma", "wmma (sm_70)"},
    {"mma", "mma.sync (sm_70 and later, by shape)"},
    {"ldmatrix", "ldmatrix (sm_75)"},
    {"stmatrix", "stmatrix (sm_90)"},
    {"mbarrier", "mbarrier (sm_80)"},
    {"setmaxnreg", "setmaxnreg (sm_90a)"},
    {"barrier.cluster", "clusters (sm_90)"},
    {"mapa", "clusters (sm_90)"},
    {"getctarank", "clusters (sm_90)"},
    {"redux", "redux (sm_80)"},
    {"elect", "elect (sm_90)"},
    {"griddepcontrol", "programmatic dependent launch (sm_90)"},
    {"atom", "atomics"},
    {"red", "atomics"},
    {"dp4a", "dp4a (sm_61)"},
    {"match", "match (sm_70)"},
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

std::uint32_t threads_of(const EntryFacts& e, std::optional<std::uint32_t> wanted) {
  if (wanted) return *wanted;
  for (const auto* declared : {&e.reqntid, &e.maxntid})
    if (*declared) return (**declared)[0] * (**declared)[1] * (**declared)[2];
  return 256;
}

EntryFacts examine_entry(const ptx::Module& m, const ptx::Function& f, const emu::EntryInfo& info,
                         std::optional<std::uint32_t> block_threads, std::uint32_t dynamic_smem) {
  EntryFacts e;
  e.name = info.name;
  std::set<std::string> features;
  for (const ptx::Function* part : reachable(m, f)) {
    for (const auto& inst : part->body) {
      ++e.instructions;
      ++e.by_family[std::string(ptx::name(ptx::family(inst.op)))];
      ++e.by_opcode[full_opcode(inst)];
      collect_features(inst, features);
    }
    for (const auto& reg : part->regs) ++e.declared[std::string(ptx::name(reg.type))];
  }
  e.features.assign(features.begin(), features.end());
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
  e.occupancy = occupancy(m.target, threads_of(e, block_threads), e.static_shared + dynamic_smem,
                          e.pressure ? e.pressure->registers : 0);
  return e;
}

}  // namespace

Occupancy occupancy(const std::string& arch, std::uint32_t block_threads, std::uint32_t shared_bytes,
                    int registers) {
  Occupancy o;
  emu::DeviceProperties p;
  try {
    p = emu::device_properties(arch);
  } catch (const Unsupported&) {
    p = emu::device_properties("sm_90a");  // older targets run on it too; the report names the architecture
  }
  o.arch = p.arch;
  o.block_threads = block_threads;
  o.registers = registers;
  o.max_warps = p.max_warps_per_sm;
  const int warps = int((block_threads + 31) / 32);
  struct Limit {
    const char* name;
    int blocks;
  };
  constexpr int kSharedReserved = 1024;  // per block, taken by the driver since sm_80
  std::vector<Limit> limits{{"blocks", p.max_blocks_per_sm},
                            {"threads", warps ? p.max_warps_per_sm / warps : 0}};
  limits.push_back({"shared memory", int(p.shared_per_sm / (shared_bytes + kSharedReserved))});
  if (registers > 0) {
    const int per_warp = (std::min(registers, 255) + 7) / 8 * 8 * 32;  // allocated in units of 256
    limits.push_back({"registers", warps ? int(p.registers_per_sm) / per_warp / warps : 0});
  }
  const auto least = std::min_element(limits.begin(), limits.end(),
                                      [](const Limit& a, const Limit& b) { return a.blocks < b.blocks; });
  o.blocks = block_threads > std::uint32_t(p.max_threads_per_block) ? 0 : least->blocks;
  o.limit = least->name;
  o.warps = o.blocks * warps;
  return o;
}

ModuleFacts examine_module(const std::string& name, std::string_view ptx, const std::string& entry,
                           std::optional<std::uint32_t> block_threads, std::uint32_t dynamic_smem) {
  const auto program = emu::Program::load(ptx);
  const ptx::Module& m = program->module();
  ModuleFacts facts;
  facts.name = name;
  facts.version = cat(m.version.major, ".", m.version.minor);
  facts.target = m.target;
  for (const auto& v : m.vars) {
    if (v.space == ptx::Space::global) facts.global_bytes += v.bytes();
    if (v.space == ptx::Space::constant) facts.const_bytes += v.bytes();
  }
  if (!entry.empty()) (void)program->entry(entry);  // throws with the names there are
  for (const auto& info : program->entries())
    if (entry.empty() || info.name == entry)
      facts.entries.push_back(examine_entry(m, *m.find(info.name), info, block_threads, dynamic_smem));
  return facts;
}

}  // namespace cgp::cli
