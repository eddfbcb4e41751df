// SPDX-License-Identifier: Apache-2.0
#include "cgp/shader/lower.h"

#include <algorithm>
#include <utility>

#include "cgp/base/text.h"
#include "cgp/ptx/liveness.h"

namespace cgp::shader {

using ptx::Family;
using ptx::Inst;
using ptx::kNone;
using ptx::Mod;
using ptx::Op;
using ptx::Operand;
using ptx::OperandKind;
using ptx::RegId;

Lowering::Lowering(const Kernel& k, Builder& b)
    : k_(k), m_(*k.module), f_(*k.function), facts_(k.facts), b_(b) {}

void Lowering::run() {
  find_names();
  find_lets();
  for (std::uint32_t i = 0; i < k_.structure.flags; ++i)
    flags_.push_back(b_.declare(Type::boolean, text::cat("skip_", i)));
  for (RegId r = 0; r < f_.regs.size(); ++r)
    if (!is_let_[r] && facts_.demanded[r] != 0) vars_[r] = b_.declare(facts_.type[r], names_[r]);
  plain(k_.structure.statements);
  depth_ = 0;
}

void Lowering::no(std::string rule, std::string hint) const {
  refuse(m_, f_, index_, std::move(rule), std::move(hint));
}

// ---------------------------------------------------------------- registers

void Lowering::find_names() {
  std::vector<std::string> taken;
  for (const auto& r : f_.regs) {
    std::string n;
    for (char c : r.name)
      if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))
        n.push_back(c);
      else if (c == '_' && !n.empty())
        n.push_back('_');
    const bool plain =
        n.size() > 1 &&
        n.find_first_not_of("0123456789", n.find_first_of("0123456789")) == std::string::npos &&
        n.find_first_of("0123456789") <= 3 && n.find_first_of("0123456789") > 0;
    // f16, u32 and the like are types in WGSL; every other register is letters and a number, which no keyword is.
    if (!plain || n == "f16" || n == "f32" || n == "i32" || n == "u32") n = text::cat("r_", n, "_");
    names_.push_back(std::move(n));
  }
  std::vector<std::size_t> order(names_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](auto x, auto y) { return names_[x] < names_[y]; });
  for (std::size_t i = 1; i < order.size(); ++i)
    if (names_[order[i]] == names_[order[i - 1]]) text::append(names_[order[i]], text::cat("x", order[i]));
}

bool Lowering::collective(const Statement& s) const {
  if (s.kind == Statement::Kind::code) {
    const auto& block = k_.cfg.blocks[s.block];
    for (std::uint32_t i = block.first; i < block.last; ++i)
      if (facts_.live[i] && needs_workgroup(k_, f_.body[i])) return true;
    return false;
  }
  const auto any = [&](const List& l) {
    return std::any_of(l.begin(), l.end(), [&](const Statement& x) { return collective(x); });
  };
  return any(s.body) || any(s.otherwise);
}

/// Whether the threads of a workgroup must come to the statement together: an execution in which they do not differ is not
/// enough where the compiler must see it, nor where a shuffle is a barrier that PTX does not have.
bool Lowering::forces(const Statement& s) const {
  if (s.kind == Statement::Kind::code) {
    const auto& block = k_.cfg.blocks[s.block];
    for (std::uint32_t i = block.first; i < block.last; ++i) {
      const Inst& x = f_.body[i];
      if (facts_.live[i] && needs_workgroup(k_, x) &&
          (k_.static_uniformity || ptx::family(x.op) == Family::warp || ptx::family(x.op) == Family::matrix ||
           x.op == Op::bar_warp_sync))
        return true;
    }
    return false;
  }
  const auto any = [&](const List& l) {
    return std::any_of(l.begin(), l.end(), [&](const Statement& x) { return forces(x); });
  };
  return any(s.body) || any(s.otherwise);
}

Variable Lowering::temporary(Type t, std::string_view name) {
  return b_.declare(t, text::cat(name, "_", temporaries_++));
}

namespace {

/// Whether the statement has a break or continue of the loop that it stands in.
bool leaves(const Statement& s) {
  using Kind = Statement::Kind;
  if (s.kind == Kind::leave || s.kind == Kind::next || s.kind == Kind::if_leave) return true;
  if (s.kind == Kind::loop) return false;
  const auto any = [](const std::vector<Statement>& l) { return std::any_of(l.begin(), l.end(), leaves); };
  return any(s.body) || any(s.otherwise);
}

bool divergent_exit(const Kernel& k, const std::vector<Statement>& list, bool divergent) {
  using Kind = Statement::Kind;
  for (const auto& s : list) {
    if ((s.kind == Kind::leave || s.kind == Kind::next) && divergent) return true;
    if (s.kind == Kind::if_leave && (divergent || k.divergent_flag[s.flags[0]])) return true;
    bool own = divergent;
    if (s.kind == Kind::branch) own |= k.divergent[s.condition] != 0;
    if (s.kind == Kind::unless)
      own |= std::any_of(s.flags.begin(), s.flags.end(), [&](auto f) { return k.divergent_flag[f] != 0; });
    if (s.kind != Kind::loop && (divergent_exit(k, s.body, own) || divergent_exit(k, s.otherwise, own)))
      return true;
  }
  return false;
}

}  // namespace

/// A statement that holds what all threads must do together, and that not all may come to.
bool Lowering::lockstep(const Statement& s) const {
  using Kind = Statement::Kind;
  bool differs = false;
  if (s.kind == Kind::branch) differs = k_.divergent[s.condition] != 0;
  if (s.kind == Kind::unless)
    differs = std::any_of(s.flags.begin(), s.flags.end(), [&](auto f) { return k_.divergent_flag[f] != 0; });
  if (s.kind == Kind::loop) differs = divergent_exit(k_, s.body, false);
  return differs && forces(s);
}

void Lowering::scan(const List& list, std::uint32_t parent, bool locked) {
  const std::uint32_t scope = std::uint32_t(scope_parent_.size());
  scope_parent_.push_back(parent);
  scope_locked_.push_back(locked);
  for (const auto& s : list) {
    if (s.kind == Statement::Kind::code) scope_of_block_[s.block] = scope;
    const bool lock = locked ? collective(s) || leaves(s) : lockstep(s);
    if (!s.body.empty()) scan(s.body, scope, lock);
    if (!s.otherwise.empty()) scan(s.otherwise, scope, lock);
  }
}

/// Registers that are written once, before every read and where every read sees it, need no variable.
void Lowering::find_lets() {
  const std::size_t n = f_.regs.size();
  lets_.resize(n);
  vars_.resize(n);
  is_let_.assign(n, 1);
  scope_of_block_.assign(k_.cfg.blocks.size(), kNone);
  scan(k_.structure.statements, kNone, false);
  std::vector<std::uint32_t> writer(n, kNone);
  std::vector<ptx::RegisterUse> uses;
  for (ptx::BlockId b : k_.cfg.order)
    for (std::uint32_t i = k_.cfg.blocks[b].first; i < k_.cfg.blocks[b].last; ++i) {
      if (!facts_.live[i]) continue;
      ptx::registers_of(f_.body[i], uses);
      for (const auto& u : uses) {
        if (!u.written) continue;
        if (writer[u.reg] != kNone || f_.body[i].guard != kNone || u.read || scope_of_block_[b] == kNone ||
            scope_locked_[scope_of_block_[b]])
          is_let_[u.reg] = 0;
        writer[u.reg] = i;
      }
    }
  const auto sees = [&](std::uint32_t from, std::uint32_t to) {
    for (; to != kNone; to = scope_parent_[to])
      if (to == from) return true;
    return false;
  };
  for (ptx::BlockId b : k_.cfg.order)
    for (std::uint32_t i = k_.cfg.blocks[b].first; i < k_.cfg.blocks[b].last; ++i) {
      if (!facts_.live[i]) continue;
      ptx::registers_of(f_.body[i], uses);
      for (const auto& u : uses) {
        if (!u.read || !is_let_[u.reg]) continue;
        const std::uint32_t w = writer[u.reg];
        if (w == kNone) {
          is_let_[u.reg] = 0;
          continue;
        }
        const ptx::BlockId from = k_.cfg.block_of[w];
        const bool before = from == b ? w < i : k_.cfg.dominates(from, b);
        if (!before || !sees(scope_of_block_[from], scope_of_block_[b])) is_let_[u.reg] = 0;
      }
    }
}

Type Lowering::type_of(const Operand& o) const { return o.reg == kNone ? Type::none : facts_.type[o.reg]; }

Value Lowering::read(RegId r) {
  if (facts_.demanded[r] == 0) {  // nothing of it matters: it is not kept
    switch (facts_.type[r]) {
      case Type::boolean:
        return b_.boolean(false);
      case Type::f32:
        return b_.real(0);
      case Type::u64:
        return b_.wide(0);
      default:
        return u(0);
    }
  }
  if (is_let_[r]) return *lets_[r];
  return b_.get(*vars_[r]);
}

Value Lowering::as(Type t, Value v) {
  if (v.type == t) return v;
  if (t == Type::u32 && v.type == Type::boolean) return b_.select(v, u(1), u(0));
  if (t == Type::u32) return b_.convert(v.type == Type::u64 ? Convert::low : Convert::bits, v);
  if (t == Type::f32) return b_.convert(Convert::bits, as(Type::u32, v));
  if (t == Type::u64) return b_.convert(Convert::extend, as(Type::u32, v));
  no("a predicate cannot be read as a number here");
}

Value Lowering::read(const Operand& o, Type t) {
  switch (o.kind) {
    case OperandKind::reg: {
      const Value v = read(o.reg);
      if (v.type == Type::boolean && o.negated) return b_.unary(Unary::not_, v);
      return as(t, v);
    }
    case OperandKind::imm:
      if (t == Type::u64) return b_.wide(o.imm);
      if (t == Type::f32) return b_.real(std::uint32_t(o.imm));
      if (t == Type::boolean) return b_.boolean(o.imm != 0);
      return u(std::uint32_t(o.imm));
    case OperandKind::f32_imm:
      return t == Type::f32 ? b_.real(std::uint32_t(o.imm)) : as(t, u(std::uint32_t(o.imm)));
    case OperandKind::sreg:
      return as(t, special(o.sreg));
    case OperandKind::symbol: {
      const auto at = facts_.address.find(o.symbol);
      if (at == facts_.address.end())
        no("a shader has no address of this variable or function", "pass a buffer");
      return as(t, u(std::uint32_t(at->second + o.imm)));
    }
    default:
      no("a shader has no operand of this kind");
  }
}

Value Lowering::predicate(const Operand& o) { return read(o, Type::boolean); }

void Lowering::write(RegId r, Value v) {
  if (r == kNone || facts_.demanded[r] == 0) return;
  v = as(facts_.type[r], v);
  if (is_let_[r])
    lets_[r] = b_.keep(v, names_[r]);
  else
    b_.set(*vars_[r], v);
}

void Lowering::write(const Operand& o, Value v) {
  if (o.kind == OperandKind::reg) write(o.reg, v);
}

Value Lowering::special(ptx::Sreg s) {
  using ptx::Sreg;
  const auto& block = k_.layout.shader.block;
  switch (s) {
    case Sreg::tid_x:
      return b_.builtin(Builtin::tid_x);
    case Sreg::tid_y:
      return b_.builtin(Builtin::tid_y);
    case Sreg::tid_z:
      return b_.builtin(Builtin::tid_z);
    case Sreg::ctaid_x:
      return b_.builtin(Builtin::ctaid_x);
    case Sreg::ctaid_y:
      return b_.builtin(Builtin::ctaid_y);
    case Sreg::ctaid_z:
      return b_.builtin(Builtin::ctaid_z);
    case Sreg::nctaid_x:
      return b_.builtin(Builtin::nctaid_x);
    case Sreg::nctaid_y:
      return b_.builtin(Builtin::nctaid_y);
    case Sreg::nctaid_z:
      return b_.builtin(Builtin::nctaid_z);
    case Sreg::ntid_x:
      return u(block[0]);
    case Sreg::ntid_y:
      return u(block[1]);
    case Sreg::ntid_z:
      return u(block[2]);
    case Sreg::laneid:
      return lane();
    case Sreg::warpid:
      return bin(Binary::shr, b_.builtin(Builtin::index), u(5));
    case Sreg::nwarpid:
      return u((block[0] * block[1] * block[2] + 31) / 32);
    case Sreg::lanemask_eq:
      return bin(Binary::shl, u(1), lane());
    case Sreg::lanemask_lt:
      return bin(Binary::sub, bin(Binary::shl, u(1), lane()), u(1));
    case Sreg::lanemask_le:
      return bin(Binary::shr, u(~0u), bin(Binary::sub, u(31), lane()));
    case Sreg::lanemask_ge:
      return bin(Binary::shl, u(~0u), lane());
    case Sreg::lanemask_gt:
      return bin(Binary::sub, u(0), bin(Binary::shl, u(2), lane()));
    case Sreg::clusterid_x:
      return b_.builtin(Builtin::ctaid_x);
    case Sreg::cluster_ctarank:
      return u(0);
    case Sreg::cluster_nctarank:
      return u(1);
    default:
      no(text::cat("a shader has no special register %", ptx::name(s)));
  }
}

// ---------------------------------------------------------------- statements

Value Lowering::condition(const Statement& s) {
  const Value v = read(s.condition);
  return s.negated ? b_.unary(Unary::not_, v) : v;
}

Value Lowering::none_of(const std::vector<std::uint32_t>& flags) {
  Value v = b_.get(flags_[flags[0]]);
  for (std::size_t i = 1; i < flags.size(); ++i) v = bin(Binary::or_, v, b_.get(flags_[flags[i]]));
  return b_.unary(Unary::not_, v);
}

/// Whether the loop with this body is not to be unrolled.
bool Lowering::rolled(const List& body) const {
  if (body.empty() || body.front().kind != Statement::Kind::code) return false;
  const auto first = k_.cfg.blocks[body.front().block].first;
  return std::any_of(f_.body_pragmas.begin(), f_.body_pragmas.end(),
                     [&](const ptx::Pragma& p) { return p.position == first && p.text == "nounroll"; });
}

void Lowering::plain(const List& list, bool body_of_loop) {
  using Kind = Statement::Kind;
  ++depth_;
  for (const auto& s : list) {
    if (lockstep(s)) {
      finish_copies();
      const Variable all = temporary(Type::boolean, "all");
      b_.set(all, b_.boolean(true));
      const bool outer = std::exchange(at_once_, true);
      locked({s}, {all}, nullptr);
      at_once_ = outer;
      continue;
    }
    switch (s.kind) {
      case Kind::code: {
        const auto& block = k_.cfg.blocks[s.block];
        for (std::uint32_t i = block.first; i < block.last; ++i) instruction(i, nullptr);
        break;
      }
      case Kind::branch:
        b_.begin_if(condition(s));
        plain(s.body);
        if (!s.otherwise.empty()) {
          b_.begin_else();
          plain(s.otherwise);
        }
        b_.end_if();
        break;
      case Kind::loop:
        finish_copies();
        b_.begin_loop(!rolled(s.body));
        plain(s.body, true);
        b_.end_loop();
        break;
      case Kind::leave:
        finish_copies();
        b_.leave();
        --depth_;
        return;
      case Kind::next:
        finish_copies();
        b_.next();
        --depth_;
        return;
      case Kind::set:
      case Kind::clear:
        b_.set(flags_[s.flags[0]], b_.boolean(s.kind == Kind::set));
        break;
      case Kind::unless:
        b_.begin_if(none_of(s.flags));
        plain(s.body);
        b_.end_if();
        break;
      case Kind::if_leave:
        finish_copies();
        b_.begin_if(b_.get(flags_[s.flags[0]]));
        b_.leave();
        b_.end_if();
        break;
    }
  }
  if (body_of_loop) finish_copies();
  --depth_;
  for (Copies& group : copies_) group.depth = std::min(group.depth, depth_);
}

Value Lowering::current(const Mask& mask) {
  Value v = b_.get(mask[0]);
  for (std::size_t i = 1; i < mask.size(); ++i) v = bin(Binary::and_, v, b_.get(mask[i]));
  return v;
}

void Lowering::leave(const Mask& mask, const Lane& lane, bool loop, std::optional<Value> also) {
  Value gone = current(mask);
  if (also) gone = bin(Binary::and_, gone, *also);
  const Value stays = b_.keep(b_.unary(Unary::not_, gone));
  if (loop) b_.set(lane.live, bin(Binary::and_, b_.get(lane.live), stays));
  b_.set(lane.run, bin(Binary::and_, b_.get(lane.run), stays));
}

void Lowering::locked(const List& list, const Mask& mask, const Lane* lane) {
  using Kind = Statement::Kind;
  const auto with = [&](Value v) {
    const Variable m = temporary(Type::boolean, "mask");
    b_.set(m, v);
    Mask inner = mask;
    inner.push_back(m);
    return inner;
  };
  for (const auto& s : list) {
    if (s.kind != Kind::code && !collective(s) && !leaves(s)) {
      b_.begin_if(current(mask));
      plain({s});
      b_.end_if();
      continue;
    }
    switch (s.kind) {
      case Kind::code:
        locked_code(s.block, mask);
        break;
      case Kind::branch: {
        const Value c = b_.keep(condition(s));
        const Mask yes = with(bin(Binary::and_, current(mask), c));
        if (s.otherwise.empty()) {
          locked(s.body, yes, lane);
          break;
        }
        const Mask no = with(bin(Binary::and_, current(mask), b_.unary(Unary::not_, c)));
        locked(s.body, yes, lane);
        locked(s.otherwise, no, lane);
        break;
      }
      case Kind::unless:
        locked(s.body, with(bin(Binary::and_, current(mask), none_of(s.flags))), lane);
        break;
      case Kind::loop: {
        const Lane own{temporary(Type::boolean, "live"), temporary(Type::boolean, "run")};
        b_.set(own.live, current(mask));
        b_.begin_loop(!rolled(s.body));
        b_.begin_if(b_.unary(Unary::not_, b_.any_thread(b_.get(own.live))));
        b_.leave();
        b_.end_if();
        b_.set(own.run, b_.get(own.live));
        locked(s.body, {own.run}, &own);
        b_.end_loop();
        break;
      }
      case Kind::leave:
      case Kind::next:
        leave(mask, *lane, s.kind == Kind::leave, {});
        break;
      case Kind::if_leave:
        leave(mask, *lane, true, b_.get(flags_[s.flags[0]]));
        break;
      case Kind::set:
      case Kind::clear:
        break;  // not collective: written above
    }
  }
}

void Lowering::locked_code(ptx::BlockId block, const Mask& mask) {
  bool open = false;
  const auto close = [&] {
    if (open) b_.end_if();
    open = false;
  };
  for (std::uint32_t i = k_.cfg.blocks[block].first; i < k_.cfg.blocks[block].last; ++i) {
    if (!facts_.live[i] || ptx::is_jump(f_.body[i].op)) continue;
    if (needs_workgroup(k_, f_.body[i])) {
      close();
      instruction(i, &mask);
      continue;
    }
    if (!open) b_.begin_if(current(mask));
    open = true;
    instruction(i, nullptr);
  }
  close();
}

// ---------------------------------------------------------------- instructions

void Lowering::instruction(std::uint32_t index, const Mask* mask) {
  const Inst& i = f_.body[index];
  index_ = index;
  if (i.loc != kNone && i.loc < m_.locs.size()) {
    const auto& l = m_.locs[i.loc];
    for (const auto& [number, path] : m_.files)
      if (number == l.file && line_ != i.loc)
        b_.comment(text::cat(path.substr(path.rfind('/') + 1), ":", l.line));
    line_ = i.loc;
  }
  if (!facts_.live[index] || index == skip_ || ptx::is_jump(i.op) || is_hint(i)) return;
  if ((orders_copies(i) && i.op != Op::cp_async_commit_group) || ptx::family(i.op) == Family::barrier)
    finish_copies();
  if (orders_copies(i)) return;
  if (needs_workgroup(k_, i) || ptx::family(i.op) == Family::warp || ptx::family(i.op) == Family::matrix) {
    together(i, mask);
    return;
  }
  if (i.guard == kNone) {
    effect(i);
    return;
  }
  b_.begin_if(predicate(Operand::of(i.guard, i.guard_negated)));
  effect(i);
  b_.end_if();
}

void Lowering::effect(const Inst& i) {
  switch (i.op) {
    case Op::mov:
    case Op::cvta:
      return move(i);
    case Op::cvt:
      return convert(i);
    case Op::ld:
    case Op::ldu:
      return load(i);
    case Op::st:
      return store(i);
    case Op::atom:
    case Op::red:
      return atomic(i);
    case Op::cp_async:
      copy(i);
      if (at_once_) finish_copies();
      return;
    case Op::membar:
    case Op::fence:
      if (!k_.layout.native64) no("WGSL has no fence: it orders memory within a workgroup, at barriers");
      return b_.fence();
    default:
      if (scalar(i)) return;
      no(text::cat("a shader cannot do ", ptx::name(i.op)),
         "only the portable subset is translated (docs/shader.md)");
  }
}

}  // namespace cgp::shader
