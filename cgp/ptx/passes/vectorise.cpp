// SPDX-License-Identifier: Apache-2.0
// Neighbouring loads (stores) of one block become .v2 or .v4 where the address is known to be aligned: from
// the alignment of variables and of .ptr parameters, and from the powers of two in index arithmetic.
#include <algorithm>
#include <bit>

#include "cgp/ptx/passes/evaluate.h"
#include "cgp/ptx/passes/passes_impl.h"

namespace cgp::ptx::passes {
namespace {

/// Per register: the number of low bits that are certainly zero, whichever definition it holds.
class Alignment {
 public:
  explicit Alignment(const Unit& u) : u_(u), zeros_(u.f.regs.size(), 64) {
    std::vector<bool> defined(zeros_.size(), false);
    std::vector<RegisterUse> uses;
    for (const Inst& i : u.f.body) {
      registers_of(i, uses);
      for (const RegisterUse& use : uses)
        if (use.written) defined[use.reg] = true;
    }
    for (std::size_t r = 0; r < zeros_.size(); ++r)
      if (!defined[r] || u.pinned(RegId(r))) zeros_[r] = 0;
    // From "all bits are zero" down to what holds for every definition: also true around loops.
    for (bool changed = true; changed;) {
      changed = false;
      for (const Inst& i : u.f.body) {
        const RegId only = only_destination(i);
        const int z = only == kNone ? 0 : result(i);
        registers_of(i, uses);
        for (const RegisterUse& use : uses)
          if (use.written && z < zeros_[use.reg]) {
            zeros_[use.reg] = z;
            changed = true;
          }
      }
    }
  }

  /// Of an address: base and offset together.
  std::uint64_t of(const Operand& o) const {
    int z = 64;
    if (o.reg != kNone)
      z = zeros_[o.reg];
    else if (o.symbol != kNone)
      z = symbol(o.symbol);
    else
      return 1;
    z = std::min({z, std::countr_zero(o.imm), 12});
    return 1ull << z;
  }

 private:
  int symbol(SymbolId s) const {
    for (const auto* list : {&u_.f.vars, &u_.m.vars})
      for (const Var& v : *list)
        if (v.name == s && v.space != Space::param) {
          // Dynamic shared memory starts where the static part ends; its own alignment still holds.
          return std::countr_zero(std::max<std::uint32_t>(1, v.alignment()));
        }
    return 0;
  }

  int operand(const Operand& o) const {
    switch (o.kind) {
      case OperandKind::reg:
        return o.reg == kNone ? 0 : zeros_[o.reg];
      case OperandKind::imm:
        return std::countr_zero(o.imm);
      case OperandKind::symbol:
        return std::min(symbol(o.symbol), std::countr_zero(o.imm));
      default:
        return 0;
    }
  }

  int parameter(const Inst& i) const {
    for (const Var& p : u_.f.params)
      if (p.name == i.operands[1].symbol && p.is_ptr && p.ptr_align && i.operands[1].imm == 0)
        return std::countr_zero(p.ptr_align);
    return 0;
  }

  int result(const Inst& i) const {
    if (is_parameter_load(u_.m, u_.f, i)) return type_bits(i.type()) == 64 ? parameter(i) : 0;
    if (!is_pure(i) || is_float(i.type()) || i.operands.size() < 2 || i.has(Mod::sat)) return 0;
    const auto z = [&](std::size_t k) { return operand(i.operands[k]); };
    const auto literal = [&](std::size_t k) { return i.operands[k].kind == OperandKind::imm; };
    switch (i.op) {
      case Op::mov:
        return i.type() == Mod::pred ? 0 : z(1);
      case Op::cvta:
        return z(1);
      case Op::cvt:
        return i.type(1) != kNoMod && !is_float(i.type(1)) && i.mods.size() == 2 ? z(1) : 0;
      case Op::add:
      case Op::sub:
      case Op::or_:
      case Op::xor_:
      case Op::min:
      case Op::max:
        return i.type(1) == kNoMod ? std::min(z(1), z(2)) : 0;
      case Op::selp:
        return std::min(z(1), z(2));
      case Op::and_:
        return i.type() == Mod::pred ? 0 : std::max(z(1), z(2));
      case Op::mul:
        return i.has(Mod::hi) ? 0 : std::min(64, z(1) + z(2));
      case Op::mad:
        return i.has(Mod::hi) ? 0 : std::min({64, z(1) + z(2), z(3)});
      case Op::shl:
        return literal(2) ? std::min<int>(
                                64, z(1) + int(std::min<std::uint64_t>(64, low_bits(i.operands[2].imm, 32))))
                          : z(1);
      default:
        return 0;
    }
  }

  const Unit& u_;
  std::vector<int> zeros_;
};

struct Access {
  std::uint32_t at;
  std::int64_t offset;
};

class Vectoriser {
 public:
  explicit Vectoriser(Unit& u) : u_(u), cfg_(build_cfg(u.f)), alignment_(u), edit_(u) {}

  std::uint64_t run() {
    for (BlockId b : cfg_.order) block(cfg_.blocks[b]);
    edit_.apply();
    return changes_;
  }

 private:
  // What may stand between the parts of one access.
  static bool transparent(const Inst& i) { return is_pure(i); }

  bool candidate(const Inst& i) const {
    if (!is_weak_access(i) || u_.touches_pinned(i)) return false;
    for (Mod m : i.mods)
      if (m == Mod::v2 || m == Mod::v4 || m == Mod::v8 || m == Mod::L2_64B || m == Mod::L2_128B ||
          m == Mod::L2_256B)
        return false;
    const bool load = i.op == Op::ld;
    const Operand& a = i.operands[load ? 1 : 0];
    const Operand& v = i.operands[load ? 0 : 1];
    const int w = type_bits(i.type());
    return a.kind == OperandKind::address && a.elems.empty() && (a.reg != kNone || a.symbol != kNone) &&
           v.kind == OperandKind::reg && v.reg != kNone && w >= 8 && w <= 64;
  }
  static const Operand& address(const Inst& i) { return i.operands[i.op == Op::ld ? 1 : 0]; }
  static const Operand& value(const Inst& i) { return i.operands[i.op == Op::ld ? 0 : 1]; }
  // Elements of one vector have one declared type: ptxas wants that.
  bool alike(const Inst& a, const Inst& b) const {
    return u_.f.regs[value(a).reg].type == u_.f.regs[value(b).reg].type && a.op == b.op && a.mods == b.mods &&
           a.guard == b.guard && a.guard_negated == b.guard_negated && address(a).reg == address(b).reg &&
           address(a).symbol == address(b).symbol;
  }

  void block(const Block& b) {
    for (std::uint32_t i = b.first; i < b.last; ++i) {
      if (edit_.erased(i) || taken_.count(i) || !candidate(u_.f.body[i])) continue;
      std::vector<Access> group = collect(b, i);
      if (group.size() >= 2) join(group);
    }
  }

  // Accesses like the one at `first` that could all be made where the first load (the last store) stands.
  std::vector<Access> collect(const Block& b, std::uint32_t first) const {
    const Inst& head = u_.f.body[first];
    const bool load = head.op == Op::ld;
    std::vector<Access> group{{first, std::int64_t(address(head).imm)}};
    std::vector<RegId> frozen;  // written (read, too, for loads) between: must not be moved across
    std::vector<RegId> read;
    std::vector<RegisterUse> uses;
    const auto note = [&](const Inst& n) {
      registers_of(n, uses);
      for (const RegisterUse& use : uses) (use.written ? frozen : read).push_back(use.reg);
    };
    const auto in = [](const std::vector<RegId>& v, RegId r) {
      return std::find(v.begin(), v.end(), r) != v.end();
    };
    if (load) note(head);
    for (std::uint32_t i = first + 1; i < b.last && i < first + 64; ++i) {
      const Inst& n = u_.f.body[i];
      if (edit_.erased(i) || taken_.count(i)) break;
      const bool same = candidate(n) && alike(head, n);
      if (same) {
        const RegId v = value(n).reg;
        // The address and the guard must still be what they were at the first access.
        if (in(frozen, address(n).reg) || (n.guard != kNone && in(frozen, n.guard))) break;
        // A load moves up: nothing before it may touch its destination. A store moves down: checked below.
        if (load && (in(frozen, v) || in(read, v) || v == address(n).reg)) break;
        group.push_back({i, std::int64_t(address(n).imm)});
        if (load) note(n);
        continue;
      }
      if (!transparent(n)) break;
      if (!load) {  // earlier stores of the group read their values later than before
        registers_of(n, uses);
        const bool changes = std::any_of(uses.begin(), uses.end(), [&](const RegisterUse& use) {
          return use.written && std::any_of(group.begin(), group.end(), [&](const Access& a) {
                   return value(u_.f.body[a.at]).reg == use.reg;
                 });
        });
        if (changes) break;
      }
      note(n);
    }
    return group;
  }

  void join(std::vector<Access> group) {
    const Inst& head = u_.f.body[group[0].at];
    const int bytes = type_bits(head.type()) / 8;
    std::stable_sort(group.begin(), group.end(), [](auto& a, auto& b) { return a.offset < b.offset; });
    for (std::size_t k = 1; k < group.size(); ++k)
      if (group[k].offset - group[k - 1].offset < bytes) return;  // the order of the two would matter
    for (std::size_t k = 0; k + 1 < group.size();) {
      const std::size_t n = longest(group, k, bytes);
      if (n > 1) merge({group.begin() + std::ptrdiff_t(k), group.begin() + std::ptrdiff_t(k + n)});
      k += n;
    }
  }

  std::size_t longest(const std::vector<Access>& group, std::size_t k, int bytes) const {
    for (std::size_t n : {4u, 2u}) {
      if (k + n > group.size() || int(n) * bytes > 16) continue;
      bool adjacent = true;
      for (std::size_t j = 1; j < n; ++j)
        adjacent &= group[k + j].offset == group[k].offset + std::int64_t(j) * bytes;
      if (adjacent && alignment_.of(address(u_.f.body[group[k].at])) >= n * std::size_t(bytes)) return n;
    }
    return 1;
  }

  void merge(const std::vector<Access>& parts) {
    const bool load = u_.f.body[parts[0].at].op == Op::ld;
    std::uint32_t place = parts[0].at;
    for (const Access& a : parts) place = load ? std::min(place, a.at) : std::max(place, a.at);
    Inst n = u_.f.body[place];
    std::vector<RegId> values;
    for (const Access& a : parts) values.push_back(value(u_.f.body[a.at]).reg);
    if (load) {
      std::vector<RegId> sorted = values;
      std::sort(sorted.begin(), sorted.end());
      if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return;
    }
    n.mods = {};
    for (Mod m : u_.f.body[place].mods) {
      if (is_type(m)) n.mods.push_back(parts.size() == 4 ? Mod::v4 : Mod::v2);
      n.mods.push_back(m);
    }
    n.operands[load ? 1 : 0] = address(u_.f.body[parts[0].at]);
    n.operands[load ? 0 : 1] = Operand::vec_of(values);
    if (!u_.legal(n)) return;
    for (const Access& a : parts) {
      taken_.insert(a.at);
      if (a.at != place) edit_.erase(a.at);
    }
    u_.f.body[place] = std::move(n);
    changes_ += parts.size() - 1;
  }

  Unit& u_;
  Cfg cfg_;
  Alignment alignment_;
  Edit edit_;
  std::unordered_set<std::uint32_t> taken_;
  std::uint64_t changes_ = 0;
};

}  // namespace

std::uint64_t vectorise(Unit& u) { return u.f.body.empty() ? 0 : Vectoriser(u).run(); }

}  // namespace cgp::ptx::passes
