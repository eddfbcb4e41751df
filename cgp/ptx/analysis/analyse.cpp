// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/analysis/analyse.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "cgp/base/text.h"
#include "cgp/ptx/analysis/races.h"
#include "cgp/ptx/analysis/registers.h"
#include "cgp/ptx/print.h"
#include "cgp/ptx/target.h"

namespace cgp::ptx {
namespace {

using text::cat;

const Function* callee(const Module& m, const Inst& i) {
  if (i.op != Op::call) return nullptr;
  for (const Operand& o : i.operands)
    if (o.kind == OperandKind::symbol)
      if (const Function* f = m.find(m.text(o.symbol)); f && f->has_body) return f;
  return nullptr;
}

/// Callers before what they call; a function that calls itself stands once.
void call_order(const Module& m, const Function& f, std::vector<const Function*>& done,
                std::vector<const Function*>& out) {
  if (std::find(done.begin(), done.end(), &f) != done.end()) return;
  done.push_back(&f);
  for (const Inst& i : f.body)
    if (const Function* g = callee(m, i)) call_order(m, *g, done, out);
  out.insert(out.begin(), &f);
}

/// Distinct inputs of a condition, as far back as they have names.
std::string inputs_text(const ThreadValues& v, std::uint32_t jump) {
  const Ssa& s = v.ssa();
  std::vector<std::string> names;
  std::vector<ValueId> open;
  std::vector<std::uint8_t> seen(s.values.size());
  const auto note = [&](const std::string& n) {
    if (std::find(names.begin(), names.end(), n) == names.end()) names.push_back(n);
  };
  for (const Ssa::Read& r : s.reads[jump]) open.push_back(r.value);
  while (!open.empty() && names.size() < 8) {
    const ValueId id = open.back();
    open.pop_back();
    if (seen[id]) continue;
    seen[id] = 1;
    const Value& value = s.values[id];
    for (ValueId in : value.inputs)
      if (in != kNone) open.push_back(in);
    if (value.kind != Value::Kind::inst) continue;
    const Inst& i = v.function().body[value.inst];
    for (const Operand& o : i.operands)
      if (o.kind == OperandKind::sreg) note(std::string(name(o.sreg)));
    const Family f = family(i.op);
    if (i.has(Mod::param)) {
      for (const Operand& o : i.operands)
        if (o.symbol != kNone) note(v.module().text(o.symbol));
    } else if (f == Family::memory || f == Family::atomic || f == Family::warp || f == Family::mbarrier) {
      note(cat(name(i.op), i.ptx_line ? cat(" of line ", i.ptx_line) : ""));
    } else {
      for (const Ssa::Read& r : s.reads[value.inst]) open.push_back(r.value);
    }
  }
  return text::join(names, ", ");
}

/// Instructions that only one side of the branch runs: from the block to where the sides meet.
struct Side {
  std::size_t length = 0;
  bool takes_one_thread = false;  ///< some of them
};
Side side_of(const Function& f, const Cfg& c, BlockId from, BlockId meet, BlockId branch) {
  std::vector<BlockId> open{from};
  std::vector<std::uint8_t> seen(c.blocks.size());
  Side side;
  while (!open.empty()) {
    const BlockId b = open.back();
    open.pop_back();
    if (b == meet || b == branch || seen[b]) continue;
    seen[b] = 1;
    side.length += c.blocks[b].last - c.blocks[b].first;
    for (std::uint32_t i = c.blocks[b].first; i < c.blocks[b].last; ++i) {
      const Family of = family(f.body[i].op);
      side.takes_one_thread |= of == Family::async || of == Family::mbarrier || of == Family::tcgen05 ||
                               f.body[i].op == Op::prefetch;
    }
    for (BlockId s : c.blocks[b].successors) open.push_back(s);
  }
  return side;
}

std::optional<DivergentBranch> divergent(const ThreadValues& v, BlockId b) {
  const Cfg& c = v.cfg();
  const std::uint32_t jump = c.blocks[b].last - 1;
  const Inst& inst = v.function().body[jump];
  if (v.condition_scope(jump) != Scope::thread || v.control(b).count() == 0) return std::nullopt;
  DivergentBranch out;
  out.inst = jump;
  out.condition = inputs_text(v, jump);
  const auto condition = v.condition(jump);
  if (!condition->known() || inst.op != Op::bra || c.blocks[b].successors.size() != 2) {
    // A known condition that is alike within the warp does not get here.
    return out;
  }
  // The fall-through edge comes first.
  const BlockId meet = c.post_dominator[b];
  const Side fall = side_of(v.function(), c, c.blocks[b].successors[0], meet, b),
             jump_to = side_of(v.function(), c, c.blocks[b].successors[1], meet, b);
  const std::size_t falls = fall.length, jumps = jump_to.length;
  out.elected = falls == 0 ? jump_to.takes_one_thread : jumps == 0 && fall.takes_one_thread;
  double useful = 0, issued = 0;
  const auto& may = v.control(b).may;
  for (std::size_t w = 0; w < v.threads(); w += 32) {
    std::size_t taken = 0, lanes = 0;
    for (std::size_t t = w; t < std::min(v.threads(), w + 32); ++t) {
      lanes += may[t];
      taken += may[t] && condition->constant[t];
    }
    if (taken == 0 || taken == lanes) continue;
    ++out.warps;
    out.elected &= (falls == 0 ? taken : lanes - taken) == 1;
    useful += double(jumps * taken + falls * (lanes - taken));
    issued += double(jumps + falls) * double(lanes);
  }
  if (issued > 0) out.efficiency = useful / issued;
  if (out.warps == 0) return std::nullopt;
  return out;
}

class Analyser {
 public:
  Analyser(const Module& m, const LaunchAssumptions& a, const AnalysisLimits& l) : m_(m), a_(a), l_(l) {}

  Analysis run(const Function& kernel) {
    std::vector<const Function*> done, order;
    call_order(m_, kernel, done, order);
    launch(kernel);
    std::map<const Function*, Scope> entry{{&kernel, a_.entry}};
    for (const Function* f : order) {
      LaunchAssumptions a = a_;
      const auto at = entry.find(f);
      a.entry = at == entry.end() ? Scope::thread : at->second;
      function(*f, a);
      const FunctionAnalysis& now = *out_.functions.back();
      for (BlockId b : now.cfg.order)
        for (std::uint32_t i = now.cfg.blocks[b].first; i < now.cfg.blocks[b].last; ++i)
          if (const Function* g = callee(m_, f->body[i])) {
            // A function that calls itself was analysed before this call is known: nothing is sure there.
            const bool again =
                std::find(order.begin(), order.end(), g) <= std::find(order.begin(), order.end(), f);
            Scope s = again ? Scope::thread : now.values->control(b).scope;
            if (f->body[i].guard != kNone) s = Scope::thread;
            entry[g] = entry.count(g) ? min_of(entry[g], s) : s;
          }
    }
    count_places();
    std::stable_sort(out_.bugs.begin(), out_.bugs.end(), [](const BugReport& x, const BugReport& y) {
      return bug_class(x.bug).severity < bug_class(y.bug).severity;
    });
    return std::move(out_);
  }

 private:
  /// What is not proven is said once for a basic block and class, with the number of places: they have one
  /// reason.
  bool said_before(const Function& f, Bug bug, std::uint32_t inst) {
    if (bug_class(bug).severity != Severity::P1 || inst == kNone || out_.functions.empty()) return false;
    const BlockId block = out_.functions.back()->cfg.block_of[inst];
    const auto [it, first] = unproven_.try_emplace({&f, bug, block}, Places{out_.bugs.size(), 0});
    if (first) return false;
    ++it->second.more;
    return true;
  }
  void count_places() {
    for (const auto& [where, places] : unproven_)
      if (places.more)
        out_.bugs[places.report].why +=
            cat("; the same in ", places.more, places.more == 1 ? " more place" : " more places",
                " of the block");
  }

  void report(const Function& f, Bug bug, std::uint32_t inst, std::string why) {
    if (said_before(f, bug, inst)) return;
    BugReport r;
    r.bug = bug;
    r.why = std::move(why);
    r.function = m_.text(f.name);
    r.inst = inst;
    if (inst != kNone) {
      r.ptx_line = f.body[inst].ptx_line;
      r.instruction = print(m_, f, f.body[inst]);
      for (std::uint32_t i = inst + 1; i-- > 0 && r.loc == kNone;) r.loc = f.body[i].loc;
    }
    out_.bugs.push_back(std::move(r));
  }

  void function(const Function& f, const LaunchAssumptions& a) {
    auto owned = std::make_unique<FunctionAnalysis>();
    FunctionAnalysis& x = *owned;
    x.function = &f;
    x.cfg = build_cfg(f);
    x.ssa = build_ssa(f, x.cfg, liveness(f, x.cfg));
    x.values = std::make_unique<ThreadValues>(m_, f, x.cfg, x.ssa, a);
    out_.functions.push_back(std::move(owned));
    x.collectives = check_collectives(*x.values);
    for (const Collective& c : x.collectives)
      if (c.verdict != Verdict::safe) report(f, c.bug, c.inst, c.why);
    for (BlockId b = 0; b < x.cfg.blocks.size(); ++b)
      if (x.cfg.blocks[b].reachable)
        if (auto d = divergent(*x.values, b)) x.branches.push_back(*std::move(d));
    const Pointers pointers(m_, f, x.cfg, x.ssa);
    for (const SpaceMismatch& s : space_mismatches(f, x.cfg, pointers)) report(f, Bug::B10, s.inst, s.why);
    x.memory = memory_accesses(*x.values, pointers);
    registers(f, x);
    branches(f, x);
    memory(f, x);
    for (const RaceHint& r : race_hints(*x.values, x.memory)) report(f, Bug::B11, r.second, r.why);
  }

  // Structures are passed in pieces, their padding and the unused bytes of unions included.
  static bool passes_padding(const Inst& i) {
    return i.op == Op::st && (i.has(Mod::param) || i.has(Mod::param_func)) &&
           (i.has(Mod::v2) || i.has(Mod::v4) || i.type() == Mod::b8);
  }

  void registers(const Function& f, const FunctionAnalysis& x) {
    for (const UninitialisedRead& u : uninitialised_reads(f, x.cfg, x.ssa))
      if (!passes_padding(f.body[u.inst]))
        report(f, u.on_every_path ? Bug::B07 : Bug::B08, u.inst,
               cat(f.regs[u.reg].name,
                   u.on_every_path ? " is never written before" : " is not written on some path"));
    const auto dead = dead_instructions(f, x.cfg, x.ssa);
    if (!dead.empty())
      report(f, Bug::B09, dead[0],
             dead.size() == 1
                 ? std::string("nothing reads its result")
                 : cat("nothing reads its result, nor those of ", dead.size() - 1, " more instructions"));
    std::size_t unreachable = 0;
    std::uint32_t first = kNone;
    for (const Block& b : x.cfg.blocks) {
      // Compilers end a function with an empty jump or ret behind an endless loop.
      if (b.reachable || b.last - b.first < 2) continue;
      if (first == kNone) first = b.first;
      unreachable += b.last - b.first;
    }
    if (unreachable) report(f, Bug::B18, first, cat(unreachable, " instructions are on no path"));
    std::uint64_t local = 0;
    for (const Var& v : f.vars) local += v.space == Space::local ? v.bytes() : 0;
    if (local) report(f, Bug::B17, kNone, cat(local, " bytes per thread"));
    if (f.entry && l_.registers && *l_.registers > l_.register_limit)
      report(f, Bug::B16, kNone,
             cat("about ", *l_.registers, " registers, the limit is ", l_.register_limit));
  }

  void branches(const Function& f, const FunctionAnalysis& x) {
    for (const DivergentBranch& d : x.branches)
      if (d.efficiency && !d.elected)
        report(f, Bug::B14, d.inst,
               cat(d.warps, d.warps == 1 ? " warp splits" : " warps split", ": ",
                   int(*d.efficiency * 100 + 0.5), "% of the lanes work until the sides meet"));
  }

  void memory(const Function& f, const FunctionAnalysis& x) {
    for (const MemoryAccess& a : x.memory) {
      if (a.misaligned) report(f, Bug::B19, a.inst, a.why);
      if (!a.warps || a.warps->empty()) continue;
      if (a.space == Space::global) {
        const double share = double(a.total_lanes()) * a.bytes / (32.0 * double(a.total_sectors()));
        // Few lanes that read few sectors are no waste worth a finding.
        if (share < 0.5 && a.total_sectors() > 4 * a.warps->size())
          report(f, Bug::B12, a.inst,
                 cat(double(a.total_sectors() * 10 / a.warps->size()) / 10, " sectors per request, ",
                     int(share * 100 + 0.5), "% of the bytes are used"));
      } else if (const BankCost c = a.total_banks(); c.conflicts) {
        report(f, Bug::B13, a.inst,
               cat(double(c.passes * 10 / a.warps->size()) / 10, " passes per request, ",
                   double(c.conflicts * 10 / a.warps->size()) / 10, " of them for conflicts"));
      }
    }
  }

  void launch(const Function& f) {
    const auto wrong = [&](std::string why) { report(f, Bug::B15, kNone, std::move(why)); };
    const auto text_of = [](const std::array<std::uint32_t, 3>& d) {
      return cat(d[0], ",", d[1], ",", d[2]);
    };
    if (f.reqntid && *f.reqntid != a_.block)
      wrong(cat("a block of ", text_of(a_.block), ", the kernel requires ", text_of(*f.reqntid)));
    if (f.maxntid) {
      const auto& most = *f.maxntid;
      if (a_.threads() > std::size_t(most[0]) * most[1] * most[2])
        wrong(cat(a_.threads(), " threads per block, the kernel allows ",
                  std::size_t(most[0]) * most[1] * most[2]));
    }
    if (f.reqnctapercluster && a_.cluster && *f.reqnctapercluster != *a_.cluster)
      wrong(
          cat("clusters of ", text_of(*a_.cluster), ", the kernel requires ", text_of(*f.reqnctapercluster)));
    const auto cluster = a_.cluster ? a_.cluster : f.reqnctapercluster;
    if (cluster && a_.grid)
      for (std::size_t k = 0; k < 3; ++k)
        if ((*cluster)[k] && (*a_.grid)[k] % (*cluster)[k])
          wrong(cat("a grid of ", text_of(*a_.grid), " is no multiple of clusters of ", text_of(*cluster)));
    const auto target = parse_target(m_.target);
    const ChipLimits* chip = target ? chip_limits(target->sm) : nullptr;
    if (chip && l_.shared_bytes && *l_.shared_bytes > chip->shared_per_block)
      wrong(cat(*l_.shared_bytes, " bytes of shared memory, a block may have ", chip->shared_per_block));
  }

  struct Places {
    std::size_t report = 0, more = 0;
  };

  const Module& m_;
  LaunchAssumptions a_;
  AnalysisLimits l_;
  Analysis out_;
  std::map<std::tuple<const Function*, Bug, BlockId>, Places> unproven_;
};

}  // namespace

Analysis analyse(const Module& m, const Function& kernel, const LaunchAssumptions& a,
                 const AnalysisLimits& l) {
  return Analyser(m, a, l).run(kernel);
}

std::vector<Bug> parse_bugs(std::string_view list) {
  std::vector<Bug> out;
  for (std::string_view part : text::split(list, ','))
    if (!text::trim(part).empty()) out.push_back(parse_bug(text::trim(part)));
  return out;
}

}  // namespace cgp::ptx
