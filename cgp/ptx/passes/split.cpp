// SPDX-License-Identifier: Apache-2.0
// Webs: definitions of a register that share no read are independent values, and get registers of their own.
// Afterwards most registers have one definition, which is what the other passes reason about.
#include <algorithm>
#include <numeric>

#include "cgp/ptx/passes/passes_impl.h"

namespace cgp::ptx::passes {
namespace {

using Site = std::uint32_t;

class Splitter {
 public:
  explicit Splitter(Unit& u) : u_(u), cfg_(build_cfg(u.f)) {}

  std::uint64_t run() {
    collect();
    if (reg_of_.empty()) return 0;
    reach();
    unite();
    return rename();
  }

 private:
  Site find(Site s) {
    while (parent_[s] != s) s = parent_[s] = parent_[parent_[s]];
    return s;
  }
  void join(Site a, Site b) {
    a = find(a);
    b = find(b);
    if (a != b) parent_[std::max(a, b)] = std::min(a, b);
  }

  // Sites: for each register with several definitions, first what it holds on entry, then its definitions.
  void collect() {
    const std::size_t regs = u_.f.regs.size();
    std::vector<std::uint32_t> count(regs, 0);
    std::vector<RegisterUse> uses;
    for (BlockId b : cfg_.order)
      for (std::uint32_t i = cfg_.blocks[b].first; i < cfg_.blocks[b].last; ++i) {
        registers_of(u_.f.body[i], uses);
        for (const RegisterUse& use : uses)
          if (use.written) ++count[use.reg];
      }
    sites_.resize(regs);
    for (RegId r = 0; r < regs; ++r)
      if (count[r] > 1 && !u_.pinned(r)) {
        sites_[r].push_back(Site(reg_of_.size()));
        reg_of_.push_back(r);
      }
    first_.assign(u_.f.body.size(), {});
    for (BlockId b : cfg_.order)
      for (std::uint32_t i = cfg_.blocks[b].first; i < cfg_.blocks[b].last; ++i) {
        registers_of(u_.f.body[i], uses);
        for (const RegisterUse& use : uses) {
          if (!use.written || sites_[use.reg].empty()) continue;
          if (!first_[i].empty() && reg_of_[first_[i].back()] == use.reg) continue;
          first_[i].push_back(Site(reg_of_.size()));
          sites_[use.reg].push_back(Site(reg_of_.size()));
          reg_of_.push_back(use.reg);
        }
      }
    parent_.resize(reg_of_.size());
    std::iota(parent_.begin(), parent_.end(), 0);
  }

  void define(RegisterSet& now, std::uint32_t at) const {
    for (Site s : first_[at]) {
      if (u_.f.body[at].guard == kNone)
        for (Site other : sites_[reg_of_[s]]) now.remove(other);
      now.add(s);
    }
  }

  void reach() {
    const std::size_t n = cfg_.blocks.size(), sites = reg_of_.size();
    in_.assign(n, RegisterSet(sites));
    std::vector<RegisterSet> out(n, RegisterSet(sites));
    for (RegId r = 0; r < sites_.size(); ++r)
      if (!sites_[r].empty()) in_[0].add(sites_[r][0]);
    for (bool changed = true; changed;) {
      changed = false;
      for (BlockId b : cfg_.order) {
        for (BlockId p : cfg_.blocks[b].predecessors) in_[b].unite(out[p]);
        RegisterSet now = in_[b];
        for (std::uint32_t i = cfg_.blocks[b].first; i < cfg_.blocks[b].last; ++i) define(now, i);
        if (!(now == out[b])) {
          out[b] = std::move(now);
          changed = true;
        }
      }
    }
  }

  template <class F>
  void walk(F&& visit) {
    for (BlockId b : cfg_.order) {
      RegisterSet now = in_[b];
      for (std::uint32_t i = cfg_.blocks[b].first; i < cfg_.blocks[b].last; ++i) {
        visit(i, now);
        define(now, i);
      }
    }
  }

  void unite() {
    std::vector<RegisterUse> uses;
    walk([&](std::uint32_t i, const RegisterSet& now) {
      registers_of(u_.f.body[i], uses);
      for (const RegisterUse& use : uses) {
        if (!use.read || sites_[use.reg].empty()) continue;
        Site one = kNone;
        for (Site s : sites_[use.reg])
          if (now.has(s)) one == kNone ? void(one = s) : join(one, s);
        // An operand that is read and written stays one register.
        if (use.written && one != kNone)
          for (Site s : first_[i])
            if (reg_of_[s] == use.reg) join(one, s);
      }
    });
  }

  std::uint64_t rename() {
    std::vector<RegId> named(reg_of_.size(), kNone);
    std::uint64_t made = 0;
    for (RegId r = 0; r < sites_.size(); ++r) {
      if (sites_[r].empty()) continue;
      // The web with the value on entry keeps the name if anything reads it, else the first one.
      const Site entry = sites_[r][0];
      bool entry_alone = true;
      for (std::size_t k = 1; k < sites_[r].size(); ++k) entry_alone &= find(sites_[r][k]) != find(entry);
      bool taken = !entry_alone;
      if (taken) named[find(entry)] = r;
      for (std::size_t k = 1; k < sites_[r].size(); ++k) {
        RegId& name = named[find(sites_[r][k])];
        if (name != kNone) continue;
        name = taken ? u_.new_register(u_.f.regs[r].type) : r;
        made += taken;
        taken = true;
      }
      if (named[find(entry)] == kNone) named[find(entry)] = r;
    }
    if (made == 0) return 0;
    std::vector<std::pair<RegId, RegId>> reads;
    walk([&](std::uint32_t i, const RegisterSet& now) {
      Inst& n = u_.f.body[i];
      const auto current = [&](RegId r) {
        if (r == kNone || r >= sites_.size() || sites_[r].empty()) return r;
        for (Site s : sites_[r])
          if (now.has(s)) return named[find(s)];
        return r;
      };
      const auto written = [&](RegId r) {
        for (Site s : first_[i])
          if (reg_of_[s] == r) return named[find(s)];
        return r;
      };
      n.guard = current(n.guard);
      for (std::size_t k = 0; k < n.operands.size(); ++k)
        each(n.operands[k], writes_operand(n, k), current, written);
    });
    return made;
  }

  template <class Read, class Write>
  static void each(Operand& o, bool writes, const Read& current, const Write& written) {
    if (o.kind == OperandKind::address) writes = false;
    if (o.reg != kNone) o.reg = writes ? written(o.reg) : current(o.reg);
    if (o.reg2 != kNone) o.reg2 = writes ? written(o.reg2) : current(o.reg2);
    for (Operand& e : o.elems) each(e, writes, current, written);
  }

  Unit& u_;
  Cfg cfg_;
  std::vector<std::vector<Site>> sites_;  // per register
  std::vector<RegId> reg_of_;             // per site
  std::vector<std::vector<Site>> first_;  // per instruction: the sites it is
  std::vector<Site> parent_;
  std::vector<RegisterSet> in_;
};

}  // namespace

std::uint64_t split(Unit& u) { return u.f.body.empty() ? 0 : Splitter(u).run(); }

}  // namespace cgp::ptx::passes
