// SPDX-License-Identifier: Apache-2.0
// The fixed point over registers, joins and loops; evaluate.cpp has the instructions, control.cpp the masks.
#include "cgp/ptx/analysis/values.h"

#include <algorithm>
#include <numeric>

#include "cgp/base/text.h"

namespace cgp::ptx {

ThreadValues::ThreadValues(const Module& m, const Function& f, const Cfg& c, const Ssa& s,
                           const LaunchAssumptions& a)
    : m_(m), f_(f), c_(c), s_(s), a_(a), threads_(a.threads()) {
  if (threads_ == 0 || threads_ > 1024)
    throw ArgumentError({"a block has 1 to 1024 threads",
                         text::cat("block ", a.block[0], ",", a.block[1], ",", a.block[2]), "", ""});
  forms_.resize(s.values.size());
  seen_.resize(s.values.size());
  merges_.resize(s.values.size());
  join_limit_.assign(c.blocks.size(), Scope::grid);
  branch_scope_.assign(c.blocks.size(), Scope::grid);
  run();
  find_control();
}

void ThreadValues::run() {
  for (ValueId v = 0; v < s_.values.size(); ++v) {
    const Value& value = s_.values[v];
    if (value.kind != Value::Kind::parameter && value.kind != Value::Kind::undefined) continue;
    SymbolInfo info;
    info.kind = SymbolInfo::Kind::undefined;
    info.symbol = value.reg;
    LinearForm f;
    f.terms.push_back({intern({9, v, 0, 0}, info), Lanes(1)});
    forms_[v] = std::move(f);
    seen_[v] = value.kind == Value::Kind::parameter;
  }
  // Every round takes back hopes that did not hold; they only get weaker, so this ends. The bound is a fence
  // against programs that are made to be slow: there every merge counts as divergent.
  constexpr int kRounds = 40;
  for (int round = 0; sweep(); ++round) {
    if (round < kRounds) continue;
    for (Merge& merge : merges_) merge.opaque = true;
  }
}

bool ThreadValues::sweep() {
  bool changed = false;
  for (BlockId b : c_.order) {
    for (ValueId v : s_.phis[b]) changed |= visit_phi(v);
    for (std::uint32_t i = c_.blocks[b].first; i < c_.blocks[b].last; ++i) changed |= visit_inst(i);
    const Scope s = condition_scope(c_.blocks[b].last - 1);
    if (s < branch_scope_[b]) {
      branch_scope_[b] = s;
      changed = true;
    }
  }
  if (changed) limit_joins();
  return changed;
}

bool ThreadValues::update(ValueId v, LinearForm f) {
  if (seen_[v] && forms_[v] == f) return false;
  seen_[v] = 1;
  forms_[v] = std::move(f);
  return true;
}

bool ThreadValues::visit_inst(std::uint32_t i) {
  bool changed = false;
  for (const Ssa::Read& r : s_.reads[i])
    if (!seen_[r.value] && s_.values[r.value].kind != Value::Kind::undefined)
      return false;  // hopes come first
  for (ValueId v : s_.writes[i]) {
    LinearForm now = evaluate(i, v);
    const Inst& inst = f_.body[i];
    if (inst.guard != kNone) {
      LinearForm condition = operand(i, Operand::of(inst.guard, inst.guard_negated), 1);
      const ValueId before = s_.values[v].inputs[0];
      // Where nothing was written before, the old content does not matter.
      if (s_.values[before].kind != Value::Kind::undefined)
        now = chosen(v, i, condition, now, read_at(before, s_.values[v].block));
    }
    changed |= update(v, std::move(now));
  }
  return changed;
}

bool ThreadValues::visit_phi(ValueId v) {
  const Value& value = s_.values[v];
  const auto& before = c_.blocks[value.block].predecessors;
  Merge& merge = merges_[v];
  std::vector<LinearForm> inputs;
  for (std::size_t k = 0; k < value.inputs.size(); ++k) {
    const ValueId in = value.inputs[k];
    if (in == kNone || !seen_[in]) continue;
    inputs.push_back(read_at(in, k < before.size() ? before[k] : BlockId(0)));
  }
  if (inputs.empty()) return false;
  for (std::size_t k = 1; k < inputs.size(); ++k) {
    const LinearForm apart = add(inputs[k], inputs[0], -1);
    if (apart.known() && apart.constant.is(0)) continue;
    merge.scope = min_of(merge.scope, min_of(scope(apart), join_limit_[value.block]));
    merge.divisor = std::gcd(merge.divisor, common_divisor(apart));
  }
  if (merge.scope == Scope::thread) merge.opaque = true;
  if (!merge.opaque && merge.divisor == 0) return update(v, std::move(inputs[0]));
  if (merge.symbol == kNone) {
    SymbolInfo info;
    info.kind = SymbolInfo::Kind::merge;
    info.scope = Scope::grid;
    info.block = value.block;
    info.symbol = value.reg;
    merge.symbol = intern({8, v, 0, 0}, info);
  }
  symbols_[merge.symbol].scope = merge.opaque ? Scope::thread : merge.scope;
  LinearForm step;
  step.terms.push_back({merge.symbol, Lanes(std::int64_t(merge.opaque ? 1 : merge.divisor))});
  return update(v, merge.opaque ? std::move(step) : add(inputs[0], step));
}

// ---------------------------------------------------------------- joins and loops
const ThreadValues::Reach& ThreadValues::reach(BlockId b) {
  auto [at, is_new] = reach_.try_emplace(b);
  if (is_new) find_joins(b, at->second);
  return at->second;
}

// Each side of the branch carries its label forward; where two labels meet, values of both sides meet. The
// walk ends at the block that both sides must reach.
void ThreadValues::find_joins(BlockId b, Reach& r) const {
  const std::size_t n = c_.blocks.size();
  const BlockId end = c_.post_dominator[b];
  r.joins.assign(n, 0);
  r.cycle.assign(n, 0);
  std::vector<BlockId> label(n, kNone), open;
  const auto carry = [&](BlockId to, BlockId with) {
    if (label[to] == with || r.joins[to]) return;
    if (label[to] != kNone) {
      r.joins[to] = 1;
      with = to;
    }
    label[to] = with;
    if (to != end) open.push_back(to);
  };
  for (BlockId s : c_.blocks[b].successors) carry(s, s);
  while (!open.empty()) {
    const BlockId x = open.back();
    open.pop_back();
    for (BlockId s : c_.blocks[x].successors) carry(s, label[x]);
  }
  // Blocks on a way from b back to b.
  if (label[b] == kNone || b == end) return;
  std::vector<BlockId> back{b};
  r.cycle[b] = 1;
  r.loops = true;
  while (!back.empty()) {
    const BlockId x = back.back();
    back.pop_back();
    for (BlockId p : c_.blocks[x].predecessors)
      if (label[p] != kNone && p != end && !r.cycle[p]) {
        r.cycle[p] = 1;
        back.push_back(p);
      }
  }
}

void ThreadValues::limit_joins() {
  divergent_loops_.clear();
  for (BlockId b : c_.order) {
    if (branch_scope_[b] == Scope::grid || c_.blocks[b].successors.empty()) continue;
    const Reach& r = reach(b);
    for (BlockId j = 0; j < r.joins.size(); ++j)
      if (r.joins[j]) join_limit_[j] = min_of(join_limit_[j], branch_scope_[b]);
    if (r.loops) divergent_loops_.push_back(b);
  }
}

// A symbol that changes in a loop is a different number for threads that left the loop at different times.
LinearForm ThreadValues::read_at(ValueId v, BlockId at) const {
  const LinearForm& f = forms_[v];
  if (divergent_loops_.empty() || f.known()) return f;
  LinearForm out;
  bool changed = false;
  out.constant = f.constant;
  for (const Term& t : f.terms) {
    const SymbolInfo& s = symbols_[t.symbol];
    Scope left = Scope::grid;
    if (s.block != kNone)
      for (BlockId b : divergent_loops_) {
        const Reach& r = reach_.at(b);
        if (r.cycle[s.block] && !r.cycle[at]) left = min_of(left, branch_scope_[b]);
      }
    if (left >= s.scope) {
      out.terms.push_back(t);
      continue;
    }
    SymbolInfo escaped = s;
    escaped.scope = left;
    escaped.block = at;
    LinearForm one;
    one.terms.push_back({intern({7, t.symbol, std::uint64_t(left), at}, escaped), t.coefficient});
    out = add(out, one);
    changed = true;
  }
  return changed ? out : f;
}

// ---------------------------------------------------------------- symbols
SymbolIndex ThreadValues::intern(const std::array<std::uint64_t, 4>& key, const SymbolInfo& info) const {
  const auto [at, is_new] = index_.try_emplace(key, SymbolIndex(symbols_.size()));
  if (is_new) symbols_.push_back(info);
  return at->second;
}

Scope ThreadValues::scope(const LinearForm& f) const {
  Scope s = f.constant.scope();
  for (const Term& t : f.terms) s = min_of(s, min_of(t.coefficient.scope(), symbols_[t.symbol].scope));
  return s;
}

std::string ThreadValues::text(SymbolIndex index) const {
  const SymbolInfo& s = symbols_[index];
  switch (s.kind) {
    case SymbolInfo::Kind::parameter:
      return s.offset ? text::cat("[", m_.text(s.symbol), "+", s.offset, "]") : m_.text(s.symbol);
    case SymbolInfo::Kind::special:
      return text::cat("%", name(s.sreg));
    case SymbolInfo::Kind::variable:
      return m_.text(s.symbol);
    case SymbolInfo::Kind::merge:
      return f_.regs[s.symbol].name;
    case SymbolInfo::Kind::undefined:
      return text::cat(f_.regs[s.symbol].name, " (never written)");
    case SymbolInfo::Kind::result:
      break;
  }
  const Inst& i = f_.body[s.inst];
  return i.ptx_line ? text::cat(name(i.op), " of line ", i.ptx_line) : std::string(name(i.op));
}

std::optional<LinearForm> ThreadValues::condition(std::uint32_t inst) const {
  const Inst& i = f_.body[inst];
  if (!is_jump(i.op)) return std::nullopt;
  if (i.guard != kNone) return operand(inst, Operand::of(i.guard, i.guard_negated), 1);
  if (i.op == Op::brx_idx && !i.operands.empty()) return operand(inst, i.operands[0], 32);
  return std::nullopt;
}

Scope ThreadValues::condition_scope(std::uint32_t inst) const {
  const Inst& i = f_.body[inst];
  const auto form = condition(inst);
  Scope s = form ? scope(*form) : Scope::grid;
  if (i.op == Op::brx_idx && i.guard != kNone && !i.operands.empty())
    s = min_of(s, scope(operand(inst, i.operands[0], 32)));
  return i.has(Mod::uni) && s == Scope::thread ? Scope::warp : s;  // the program promises it
}

// ---------------------------------------------------------------- names for people
namespace {

std::string sum_of(std::vector<std::string> parts) {
  if (parts.empty()) return "0";
  std::string out = parts[0];
  for (std::size_t k = 1; k < parts.size(); ++k)
    out += parts[k][0] == '-' ? " - " + parts[k].substr(1) : " + " + parts[k];
  return out;
}

std::string times(std::int64_t k, const std::string& what) {
  return k == 1 ? what : k == -1 ? "-" + what : text::cat(k, "*", what);
}

/// a*tid.x + b*tid.y + c*tid.z + d, when the numbers are that.
std::optional<std::vector<std::string>> affine(const Lanes& l, const std::array<std::uint32_t, 3>& block) {
  const std::size_t bx = block[0], by = block[1], bz = block[2];
  const std::int64_t base = l[0], x = bx > 1 ? l[1] - base : 0, y = by > 1 ? l[bx] - base : 0,
                     z = bz > 1 ? l[bx * by] - base : 0;
  for (std::size_t t = 0; t < bx * by * bz; ++t)
    if (l[t] !=
        base + x * std::int64_t(t % bx) + y * std::int64_t(t / bx % by) + z * std::int64_t(t / (bx * by)))
      return std::nullopt;
  std::vector<std::string> out;
  if (x) out.push_back(times(x, "tid.x"));
  if (y) out.push_back(times(y, "tid.y"));
  if (z) out.push_back(times(z, "tid.z"));
  if (base || out.empty()) out.push_back(text::cat(base));
  return out;
}

}  // namespace

Shape shape(const ThreadValues& v, const LinearForm& f) {
  Shape out;
  out.scope = v.scope(f);
  std::vector<std::string> parts;
  bool is_affine = true, divergent = false;
  for (const Term& t : f.terms) {
    divergent = divergent || v.symbol(t.symbol).scope == Scope::thread;
    const auto k = affine(t.coefficient, v.assumptions().block);
    is_affine = is_affine && k;
    const std::string symbol = v.text(t.symbol);
    if (t.coefficient.same())
      parts.push_back(times(t.coefficient[0], symbol));
    else
      parts.push_back(text::cat("(", k ? sum_of(*k) : "f(tid)", ")*", symbol));
  }
  const auto constant = affine(f.constant, v.assumptions().block);
  is_affine = is_affine && constant;
  if (!constant)
    parts.insert(parts.begin(), "f(tid)");
  else if (!f.constant.is(0) || parts.empty())
    parts.insert(parts.begin(), constant->begin(), constant->end());
  out.text = sum_of(std::move(parts));
  using Kind = Shape::Kind;
  out.kind = out.scope > Scope::thread ? Kind::uniform
             : divergent               ? Kind::divergent
             : is_affine               ? Kind::affine
                                       : Kind::function;
  return out;
}

}  // namespace cgp::ptx
