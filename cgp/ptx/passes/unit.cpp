// SPDX-License-Identifier: Apache-2.0
// One function under optimisation: new names, legality, where values come from, and edits of the body.
#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/ptx/passes/passes_impl.h"

namespace cgp::ptx::passes {
namespace {

CheckOptions foreign_text() {
  CheckOptions o;
  o.foreign = true;
  return o;
}

void pin(const Operand& o, std::vector<bool>& pinned) {
  if (o.kind == OperandKind::reg) {
    if (o.reg != kNone) pinned[o.reg] = true;
    if (o.reg2 != kNone) pinned[o.reg2] = true;
  }
  for (const Operand& e : o.elems) pin(e, pinned);
}

// "%r12": "%r" and 12. Other names have the number kNone.
std::pair<std::string, std::uint32_t> split_name(const std::string& name) {
  std::size_t at = name.size();
  while (at > 0 && name[at - 1] >= '0' && name[at - 1] <= '9') --at;
  if (at == 0 || at == name.size() || name.size() - at > 7) return {name, kNone};
  return {name.substr(0, at), std::uint32_t(std::stoul(name.substr(at)))};
}

}  // namespace

Unit::Unit(Module& module, Function& function, const PassOptions& o)
    : m(module), f(function), options(o), foreign_(foreign_text()), verifier_(module, foreign_) {
  verifier_.enter(f);
  pinned_.assign(f.regs.size(), false);
  for (const Inst& i : f.body) {
    const Family family = ptx::family(i.op);
    if (family != Family::wgmma && family != Family::tcgen05) continue;
    for (std::size_t k = 0; k < i.operands.size(); ++k)
      if (writes_operand(i, k) || i.operands[k].kind == OperandKind::vector) pin(i.operands[k], pinned_);
  }
  for (RegId r = 0; r < f.regs.size(); ++r) {
    names_.insert(f.regs[r].name);
    const auto [prefix, number] = split_name(f.regs[r].name);
    if (number != kNone) {
      auto& next = next_number_[prefix];
      next = std::max(next, number + 1);
    }
    for (const auto* list : {&f.params, &f.returns})
      for (const Var& v : *list)
        if (v.space == Space::reg && m.text(v.name) == f.regs[r].name) pinned_[r] = true;
  }
  for (const Label& l : f.labels) label_names_.insert(l.name);
}

RegId Unit::new_register(Mod type) {
  std::string prefix;
  for (const Reg& r : f.regs) {
    if (r.type != type) continue;
    const auto [p, number] = split_name(r.name);
    if (number == kNone) continue;
    prefix = p;
    break;
  }
  if (prefix.empty()) prefix = text::cat("%new_", name(type), "_");
  auto& next = next_number_[prefix];
  std::string full;
  do full = text::cat(prefix, next++);
  while (!names_.insert(full).second);
  f.regs.push_back({std::move(full), type});
  pinned_.push_back(false);
  return RegId(f.regs.size() - 1);
}

LabelId Unit::new_label() {
  std::string name;
  do name = text::cat("$new_", labels_made_++);
  while (!label_names_.insert(name).second);
  f.labels.push_back({std::move(name), 0});
  return LabelId(f.labels.size() - 1);
}

bool Unit::legal(const Inst& i) {
  // ptxas takes constant positions and lengths of bit fields up to 255 only, registers with any value.
  if (i.op == Op::bfe || i.op == Op::bfi)
    for (std::size_t k = i.operands.size() - 2; k < i.operands.size(); ++k)
      if (i.operands[k].kind == OperandKind::imm && i.operands[k].imm > 255) return false;
  return !verifier_.check(i);
}

bool Unit::touches_pinned(const Inst& i) const {
  std::vector<RegisterUse> uses;
  registers_of(i, uses);
  return std::any_of(uses.begin(), uses.end(), [&](const RegisterUse& u) { return pinned(u.reg); });
}

Inst Unit::constant(RegId dst, std::uint64_t bits, const Inst& instead_of) {
  Inst i = instead_of;
  i.op = Op::mov;
  const Mod type = f.regs[dst].type;
  Operand value = Operand::integer(std::int64_t(bits));
  switch (type_bits(type)) {
    case 1:
      i.mods = {Mod::pred};
      break;
    case 16:
      i.mods = {Mod::b16};
      value.imm &= 0xffff;
      break;
    case 32:
      i.mods = {type == Mod::f32 ? Mod::f32 : Mod::b32};
      value.imm &= 0xffffffffu;
      if (type == Mod::f32) value.kind = OperandKind::f32_imm;
      break;
    default:
      i.mods = {type == Mod::f64 ? Mod::f64 : Mod::b64};
      if (type == Mod::f64) value.kind = OperandKind::f64_imm;
      break;
  }
  i.operands = {Operand::of(dst), std::move(value)};
  return i;
}

Inst Unit::copy(RegId dst, RegId src, const Inst& instead_of) {
  Inst i = instead_of;
  i.op = Op::mov;
  const Mod type = f.regs[dst].type;
  switch (type_bits(type)) {
    case 1:
      i.mods = {Mod::pred};
      break;
    case 16:
      i.mods = {Mod::b16};
      break;
    case 64:
      i.mods = {Mod::b64};
      break;
    case 128:
      i.mods = {Mod::b128};
      break;
    default:
      i.mods = {Mod::b32};
      break;
  }
  i.operands = {Operand::of(dst), Operand::of(src)};
  return i;
}

// ---------------------------------------------------------------- values
Values::Values(const Unit& u)
    : cfg(build_cfg(u.f)),
      body_(&u.f.body),
      single_(u.f.regs.size(), false),
      def_(u.f.regs.size(), kNone),
      count_(u.f.regs.size(), 0),
      reads_(u.f.regs.size(), 0) {
  const std::size_t blocks = cfg.blocks.size();
  enter_.assign(blocks, 1);  // an unreachable block dominates nothing and is dominated by nothing
  leave_.assign(blocks, 0);
  std::vector<std::vector<BlockId>> children(blocks);
  for (BlockId b : cfg.order)
    if (cfg.dominator[b] != kNone) children[cfg.dominator[b]].push_back(b);
  if (blocks) {
    std::uint32_t clock = 2;
    std::vector<std::pair<BlockId, std::size_t>> stack{{0, 0}};
    enter_[0] = clock++;
    while (!stack.empty()) {
      auto& [b, next] = stack.back();
      if (next == children[b].size()) {
        leave_[b] = clock++;
        stack.pop_back();
        continue;
      }
      const BlockId child = children[b][next++];
      enter_[child] = clock++;
      stack.emplace_back(child, 0);
    }
  }
  std::vector<RegisterUse> uses;
  for (std::uint32_t i = 0; i < body_->size(); ++i) {
    registers_of((*body_)[i], uses);
    for (const RegisterUse& use : uses) {
      if (use.read) ++reads_[use.reg];
      if (!use.written) continue;
      ++count_[use.reg];
      def_[use.reg] = i;
      single_[use.reg] = count_[use.reg] == 1 && (*body_)[i].guard == kNone && !use.read &&
                         !u.pinned(use.reg) && cfg.blocks[cfg.block_of[i]].reachable;
    }
  }
  for (std::uint32_t i = 0; i < body_->size(); ++i) {
    registers_of((*body_)[i], uses);
    for (const RegisterUse& use : uses)
      if (use.read && single_[use.reg] && !precedes(def_[use.reg], i)) single_[use.reg] = false;
  }
}

const Inst* Values::pure(RegId r) const {
  if (!single_[r]) return nullptr;
  const Inst& i = definer(r);
  return is_pure(i) ? &i : nullptr;
}

bool Values::precedes(std::uint32_t a, std::uint32_t b) const {
  const BlockId x = cfg.block_of[a], y = cfg.block_of[b];
  if (x == y) return a < b;
  return cfg.blocks[x].reachable && cfg.blocks[y].reachable && dominates(x, y);
}

// ---------------------------------------------------------------- edits
Edit::Edit(Unit& u) : u_(u), gone_(u.f.body.size(), false) {}

void Edit::erase(std::uint32_t i) {
  gone_[i] = true;
  changed_ = true;
}
void Edit::insert(std::uint32_t i, Inst n) {
  at_[i].inside.push_back(std::move(n));
  changed_ = true;
}
void Edit::insert_above(std::uint32_t i, Inst n) {
  at_[i].above.push_back(std::move(n));
  changed_ = true;
}
LabelId Edit::label_above(std::uint32_t i) {
  At& at = at_[i];
  if (at.label == kNone) {
    at.label = u_.new_label();
    u_.f.labels[at.label].position = kNone;  // placed by apply()
  }
  changed_ = true;
  return at.label;
}

void Edit::apply() {
  if (!changed_) return;
  Function& f = u_.f;
  const auto n = std::uint32_t(f.body.size());
  std::vector<Inst> body;
  body.reserve(n + at_.size() * 2);
  std::vector<std::uint32_t> moved(n + 1);
  std::vector<std::pair<LabelId, std::uint32_t>> placed;
  for (std::uint32_t i = 0; i <= n; ++i) {
    const auto it = at_.find(i);
    if (it != at_.end()) {
      if (it->second.label != kNone) placed.emplace_back(it->second.label, std::uint32_t(body.size()));
      for (Inst& x : it->second.above) body.push_back(std::move(x));
    }
    moved[i] = std::uint32_t(body.size());
    if (it != at_.end())
      for (Inst& x : it->second.inside) body.push_back(std::move(x));
    if (i < n && !gone_[i]) body.push_back(std::move(f.body[i]));
  }
  for (Label& l : f.labels)
    if (l.position != kNone) l.position = moved[l.position];
  for (const auto& [label, position] : placed) f.labels[label].position = position;
  for (Pragma& p : f.body_pragmas) p.position = moved[p.position];
  f.body = std::move(body);
  changed_ = false;
}

void spread_locs(Function& f) {
  std::uint32_t loc = kNone;
  for (Inst& i : f.body) {
    if (i.loc == kNone)
      i.loc = loc;
    else
      loc = i.loc;
  }
}

}  // namespace cgp::ptx::passes
