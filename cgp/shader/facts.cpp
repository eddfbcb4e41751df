// SPDX-License-Identifier: Apache-2.0
#include "cgp/shader/facts.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <set>

#include "cgp/base/text.h"
#include "cgp/ptx/liveness.h"
#include "cgp/shader/structure.h"

namespace cgp::shader {

using ptx::Family;
using ptx::Inst;
using ptx::kNone;
using ptx::Mod;
using ptx::Op;
using ptx::Operand;
using ptx::OperandKind;
using ptx::RegId;
using ptx::Space;

Space space_of(const Inst& i) {
  if (i.has(Mod::global)) return Space::global;
  if (i.has(Mod::shared) || i.has(Mod::shared_cta)) return Space::shared;
  if (i.has(Mod::local)) return Space::local;
  if (i.has(Mod::const_)) return Space::constant;
  if (i.has(Mod::param) || i.has(Mod::param_entry)) return Space::param;
  return Space::generic;
}

bool is_store(const Inst& i) { return i.op == Op::st; }
int access_bits(const Inst& i) { return ptx::type_bits(i.type()); }
int access_count(const Inst& i) { return i.has(Mod::v2) ? 2 : i.has(Mod::v4) ? 4 : i.has(Mod::v8) ? 8 : 1; }

bool is_hint(const Inst& i) {
  switch (i.op) {
    case Op::prefetch:
    case Op::prefetchu:
    case Op::applypriority:
    case Op::griddepcontrol:
    case Op::pmevent:
    case Op::nanosleep:
      return true;
    default:
      return false;
  }
}

bool is_copy(const Inst& i) { return i.op == Op::cp_async; }
bool orders_copies(const Inst& i) {
  return i.op == Op::cp_async_commit_group || i.op == Op::cp_async_wait_group ||
         i.op == Op::cp_async_wait_all;
}
const Operand* global_address(const Inst& i) {
  if (is_copy(i)) return &i.operands[1];
  if (space_of(i) != Space::global) return nullptr;
  for (const auto& o : i.operands)
    if (o.kind == OperandKind::address) return &o;
  return nullptr;
}

bool has_effect(const Inst& i) {
  switch (ptx::family(i.op)) {
    case Family::integer:
    case Family::floating:
    case Family::half_precision:
    case Family::logic:
    case Family::compare:
    case Family::move:
      return false;
    case Family::memory:
      return i.op != Op::ld;
    default:
      return !is_hint(i);
  }
}

namespace {

constexpr std::uint64_t kAll = ~0ull;

/// All bits up to the highest one.
std::uint64_t filled(std::uint64_t m) { return m == 0 ? 0 : kAll >> std::countl_zero(m); }

class Finder {
 public:
  Finder(const ptx::Module& m, const ptx::Function& f, const ptx::Cfg& c, bool narrow)
      : m_(m), f_(f), c_(c), narrow_(narrow) {}

  Facts run(std::uint32_t dynamic_shared) {
    const std::size_t n = f_.regs.size();
    facts_.demanded.assign(n, 0);
    facts_.root.assign(n, kNumber);
    facts_.live.assign(f_.body.size(), 0);
    lay_out(dynamic_shared);
    find_pointers();
    find_demand();
    if (narrow_ || !tables_.empty()) check_addresses();
    find_types();
    return std::move(facts_);
  }

 private:
  void place(const ptx::Var& v, std::uint64_t& end) {
    const std::uint64_t align = std::max<std::uint64_t>(v.alignment(), 4);
    end = (end + align - 1) / align * align;
    facts_.address[v.name] = end;
    end += v.bytes();
  }

  /// Global memory that the module initialises, and that a kernel may read: it lies with the constants.
  static bool is_table(const ptx::Var& v) {
    return v.space == Space::global && v.has_init && v.relocs.empty();
  }

  void lay_out(std::uint32_t dynamic_shared) {
    std::set<ptx::SymbolId> used;
    for (const Inst& i : f_.body)
      for (const auto& o : i.operands)
        if (o.symbol != kNone) used.insert(o.symbol);
    std::vector<const ptx::Var*> all;
    for (const auto& v : m_.vars) all.push_back(&v);
    for (const auto& v : f_.vars) all.push_back(&v);
    for (const auto& p : f_.params) {
      const std::uint64_t align = std::max<std::uint64_t>(p.alignment(), 1);
      facts_.block_bytes = (facts_.block_bytes + align - 1) / align * align;
      facts_.address[p.name] = facts_.block_bytes;
      facts_.block_bytes += p.bytes();
    }
    std::uint64_t constant = 0;
    for (const auto* v : all) {
      if (v->space == Space::shared && v->bytes() > 0) place(*v, facts_.shared_bytes);
      if (v->space == Space::local) place(*v, facts_.local_bytes);
      const bool table = is_table(*v) && used.count(v->name);
      if (table) tables_.push_back(v->name);
      if (v->space == Space::constant || table) {
        place(*v, constant);
        if (constant > (1u << 16))
          throw BuildError(ErrorText{"constant variables take more than 64 KiB", m_.text(v->name), {}, {}});
        facts_.constants.resize((constant + 3) / 4 * 4);
        std::copy_n(v->init.begin(), std::min<std::size_t>(v->init.size(), v->bytes()),
                    facts_.constants.begin() + std::ptrdiff_t(facts_.address[v->name]));
        if (!v->relocs.empty())
          throw BuildError(ErrorText{"a shader's constants hold no addresses",
                                     m_.text(v->name),
                                     "its initialiser names another variable",
                                     {}});
      }
    }
    facts_.shared_bytes = (facts_.shared_bytes + 15) / 16 * 16;
    for (const auto* v : all)
      if (v->space == Space::shared && v->bytes() == 0) facts_.address[v->name] = facts_.shared_bytes;
    facts_.shared_bytes += (dynamic_shared + 3) / 4 * 4;
    if (facts_.shared_bytes > (1u << 20) || facts_.local_bytes > (1u << 20))
      throw BuildError(
          ErrorText{"a shader's own memory is at most 1 MiB",
                    m_.text(f_.name),
                    text::cat("shared: ", facts_.shared_bytes, " bytes, local: ", facts_.local_bytes),
                    {}});
  }

  template <class Visit>
  void for_reachable(const Visit& visit) const {
    for (ptx::BlockId b : c_.order)
      for (std::uint32_t i = c_.blocks[b].first; i < c_.blocks[b].last; ++i) visit(i, f_.body[i]);
  }

  /// 64-bit parameters that addresses are made of: those that a cvta takes, and where an address goes back to one
  /// parameter that is used as no number (64-bit words in a struct that is passed by value do not say what they are).
  std::vector<std::uint8_t> used_as_address() const {
    const std::size_t n = f_.regs.size();
    std::vector<std::uint8_t> used(n), number(n);
    std::vector<std::vector<const Inst*>> writers(n);
    std::vector<RegId> bases;
    for_reachable([&](std::uint32_t, const Inst& i) {
      if (!i.operands.empty() && ptx::writes_operand(i, 0) && i.operands[0].kind == OperandKind::reg &&
          i.operands[0].reg != kNone)
        writers[i.operands[0].reg].push_back(&i);
      if (i.op == Op::cvta && i.operands[1].kind == OperandKind::reg) used[i.operands[1].reg] = 1;
      const Operand* a = global_address(i);
      if (a && a->reg != kNone) bases.push_back(a->reg);
      const bool test = i.op == Op::setp && i.operands[2].kind == OperandKind::imm && i.operands[2].imm == 0;
      const bool moves = i.op == Op::add || i.op == Op::mov || i.op == Op::cvta || i.op == Op::selp ||
                         i.op == Op::sub || test;
      for (std::size_t k = 0; k < i.operands.size(); ++k)
        if (i.operands[k].kind == OperandKind::reg && i.operands[k].reg != kNone &&
            !ptx::writes_operand(i, k) && !moves && !(i.op == Op::mad && k == 3))
          number[i.operands[k].reg] = 1;
    });
    for (RegId base : bases) {
      std::vector<RegId> open{base}, found;
      std::vector<std::uint8_t> seen(n);
      while (!open.empty()) {
        const RegId r = open.back();
        open.pop_back();
        if (seen[r]) continue;
        seen[r] = 1;
        for (const Inst* i : writers[r]) {
          const auto& o = i->operands;
          if (i->op == Op::ld && space_of(*i) == Space::param && !number[r]) found.push_back(r);
          for (std::size_t k = 1; k < o.size(); ++k) {
            const bool part = i->op == Op::mov || i->op == Op::cvta || i->op == Op::add ||
                              (i->op == Op::sub && k == 1) || (i->op == Op::selp && k < 3) ||
                              (i->op == Op::mad && k == 3);
            if (part && o[k].kind == OperandKind::reg && o[k].reg != kNone &&
                ptx::type_bits(f_.regs[o[k].reg].type) == 64)
              open.push_back(o[k].reg);
          }
        }
      }
      if (found.size() == 1) used[found[0]] = 1;
    }
    return used;
  }

  void find_pointers() {
    const auto used = used_as_address();
    for_reachable([&](std::uint32_t, const Inst& i) {
      if (i.op != Op::ld || space_of(i) != Space::param || access_bits(i) != 64) return;
      const Operand& a = i.operands[1];
      if (a.kind != OperandKind::address || a.reg != kNone || a.symbol == kNone) return;
      const auto var =
          std::find_if(f_.params.begin(), f_.params.end(), [&](const auto& p) { return p.name == a.symbol; });
      if (var == f_.params.end()) return;
      const auto mark = [&](const Operand& d, std::uint64_t extra) {
        if (d.kind != OperandKind::reg || d.reg == kNone || (!var->is_ptr && !used[d.reg])) return;
        const std::uint64_t offset = facts_.address[a.symbol] + a.imm + extra;
        auto at = std::find_if(facts_.roots.begin(), facts_.roots.end(),
                               [&](const Root& r) { return r.offset == offset; });
        if (at == facts_.roots.end()) {
          std::string name = m_.text(a.symbol);
          if (var->is_array) text::append(name, text::cat("_", a.imm + extra));
          facts_.roots.push_back({a.symbol, offset, std::move(name)});
          at = facts_.roots.end() - 1;
        }
        facts_.root[d.reg] = std::int32_t(at - facts_.roots.begin());
      };
      if (i.operands[0].kind == OperandKind::vector)
        for (std::size_t k = 0; k < i.operands[0].elems.size(); ++k) mark(i.operands[0].elems[k], 8 * k);
      else
        mark(i.operands[0], 0);
    });
    // In the order of the block, whatever order they are loaded in.
    std::vector<std::uint32_t> order(facts_.roots.size());
    for (std::uint32_t k = 0; k < order.size(); ++k) order[k] = k;
    std::sort(order.begin(), order.end(),
              [&](auto x, auto y) { return facts_.roots[x].offset < facts_.roots[y].offset; });
    std::vector<Root> sorted;
    std::vector<std::int32_t> place(order.size());
    for (std::uint32_t k = 0; k < order.size(); ++k) {
      sorted.push_back(facts_.roots[order[k]]);
      place[order[k]] = std::int32_t(k);
    }
    facts_.roots = std::move(sorted);
    for (auto& r : facts_.root)
      if (r != kNumber) r = place[std::size_t(r)];
    for (ptx::SymbolId t : tables_) {
      table_root_[t] = std::int32_t(facts_.roots.size());
      facts_.roots.push_back({kNone, facts_.address[t], m_.text(t)});
    }
    // Addresses from pointers: until nothing changes, so that loops that move a pointer are followed.
    for (bool changed = true; changed;) {
      changed = false;
      for_reachable([&](std::uint32_t, const Inst& i) {
        const std::int32_t r = derived(i);
        if (r == kNumber || i.operands.empty() || i.operands[0].kind != OperandKind::reg ||
            i.operands[0].reg == kNone)
          return;
        auto& at = facts_.root[i.operands[0].reg];
        if (at == kNumber) at = r, changed = true;
      });
    }
  }

  std::int32_t root_of(const Operand& o) const {
    if (o.kind == OperandKind::symbol) {
      const auto at = table_root_.find(o.symbol);
      return at == table_root_.end() ? kNumber : at->second;
    }
    return o.kind == OperandKind::reg && o.reg != kNone ? facts_.root[o.reg] : kNumber;
  }

  /// The pointer that the result starts from, if the instruction moves an address.
  std::int32_t derived(const Inst& i) const {
    const auto& o = i.operands;
    const auto first = [&](std::initializer_list<std::size_t> which) {
      for (std::size_t k : which)
        if (k < o.size() && root_of(o[k]) != kNumber) return root_of(o[k]);
      return kNumber;
    };
    const bool wide = i.mods.size() > 0 && ptx::type_bits(i.type()) == 64;
    switch (i.op) {
      case Op::cvta:
        return first({1});
      case Op::mov:
        return wide ? first({1}) : kNumber;
      case Op::add:
        return wide ? first({1, 2}) : kNumber;
      case Op::sub:
        return wide && root_of(o[2]) == kNumber ? first({1}) : kNumber;
      case Op::selp:
        return wide ? first({1, 2}) : kNumber;
      case Op::mad:
        return first({3});
      default:
        return kNumber;
    }
  }

  bool null_test(const Inst& i) const {
    return i.op == Op::setp && (i.has(Mod::eq) || i.has(Mod::ne)) && ptx::type_bits(i.type()) == 64 &&
           i.operands[1].kind == OperandKind::reg && root_of(i.operands[1]) != kNumber &&
           facts_.roots[std::size_t(root_of(i.operands[1]))].parameter != kNone &&
           i.operands[2].kind == OperandKind::imm && i.operands[2].imm == 0;
  }

  void demand(const Operand& o, std::uint64_t mask) {
    if (o.kind == OperandKind::vector || o.kind == OperandKind::list) {
      for (const auto& e : o.elems) demand(e, mask);
      return;
    }
    if (o.reg == kNone) return;
    auto& d = facts_.demanded[o.reg];
    if ((d | mask) != d) d |= mask, changed_ = true;
  }

  static std::optional<std::uint64_t> constant(const Operand& o) {
    return o.kind == OperandKind::imm ? std::optional(o.imm) : std::nullopt;
  }

  void demand_of(std::uint32_t index, const Inst& i) {
    const auto& o = i.operands;
    const bool jump = ptx::is_jump(i.op);
    std::uint64_t result = 0;
    std::vector<ptx::RegisterUse> uses;
    ptx::registers_of(i, uses);
    for (const auto& u : uses)
      if (u.written) result |= facts_.demanded[u.reg];
    const bool live = jump || has_effect(i) || result != 0;
    if (!live) return;
    facts_.live[index] = 1;
    if (i.guard != kNone) demand(Operand::of(i.guard), kAll);
    if (null_test(i)) return;
    const auto rest = [&](std::uint64_t mask) {
      for (std::size_t k = 0; k < o.size(); ++k)
        if (!ptx::writes_operand(i, k)) demand(o[k], mask);
    };
    const bool whole = i.mods.size() > 0 && !ptx::is_float(i.type()) && i.type() != Mod::pred;
    switch (i.op) {
      case Op::add:
      case Op::sub:
        if (whole && !i.has(Mod::sat)) return rest(filled(result));
        break;
      case Op::mul:
      case Op::mad:
        if (whole && i.has(Mod::lo)) return rest(filled(result));
        if (whole && i.has(Mod::wide)) {
          demand(o[1], kAll);
          demand(o[2], kAll);
          if (o.size() > 3) demand(o[3], filled(result));
          return;
        }
        break;
      case Op::and_:
        if (!whole) break;
        for (std::size_t k : {1, 2}) demand(o[k], result & constant(o[3 - k]).value_or(kAll));
        return;
      case Op::or_:
      case Op::xor_:
      case Op::not_:
        if (whole) return rest(result);
        break;
      case Op::mov:
        if (o[0].kind == OperandKind::vector && o[1].kind == OperandKind::reg) {  // unpack
          const int part = ptx::type_bits(i.type()) / int(o[0].elems.size());
          std::uint64_t need = 0;
          for (std::size_t k = 0; k < o[0].elems.size(); ++k)
            if (o[0].elems[k].reg != kNone && facts_.demanded[o[0].elems[k].reg])
              need |= (part == 64 ? kAll : (1ull << part) - 1) << (part * int(k));
          return demand(o[1], need);
        }
        if (o[1].kind == OperandKind::vector) return rest(kAll);
        return rest(result);
      case Op::cvta:
        return rest(result);
      case Op::selp:
        demand(o[1], result);
        demand(o[2], result);
        demand(o[3], kAll);
        return;
      case Op::shl:
        demand(o[2], kAll);
        return demand(o[1],
                      constant(o[2]) && *constant(o[2]) < 64 ? result >> *constant(o[2]) : filled(result));
      case Op::shr:
        demand(o[2], kAll);
        if (constant(o[2]) && *constant(o[2]) < 64 && !ptx::is_signed(i.type()))
          return demand(o[1], result << *constant(o[2]));
        return demand(o[1], kAll);
      case Op::cvt:
        if (!ptx::is_float(i.type(0)) && !ptx::is_float(i.type(1)) && !i.has(Mod::sat)) {
          const int from = ptx::type_bits(i.type(1)), to = ptx::type_bits(i.type(0));
          std::uint64_t need = from >= 64 ? kAll : (1ull << from) - 1;
          if (to < 64 && to <= from) need &= (1ull << to) - 1;
          return demand(o[1], from >= 64 && to >= 64 ? result & need : need);
        }
        break;
      default:
        break;
    }
    for (std::size_t k = 0; k < o.size(); ++k) {
      if (o[k].kind == OperandKind::address)
        demand(o[k], narrow_ ? 0xffffffffull : kAll);
      else if (!ptx::writes_operand(i, k))
        demand(o[k], kAll);
    }
  }

  void find_demand() {
    for (changed_ = true; changed_;) {
      changed_ = false;
      for (auto b = c_.order.rbegin(); b != c_.order.rend(); ++b)
        for (std::uint32_t i = c_.blocks[*b].last; i-- > c_.blocks[*b].first;) demand_of(i, f_.body[i]);
    }
  }

  /// Every use of an address moves it, accesses memory, or asks for no more than its place in 256 bytes.
  void check_addresses() {
    for_reachable([&](std::uint32_t index, const Inst& i) {
      if (!facts_.live[index]) return;
      if (const Operand* a = global_address(i)) {
        const bool named = a->reg == kNone && table_root_.count(a->symbol);
        if (!named && (a->reg == kNone || facts_.root[a->reg] == kNumber))
          refuse(m_, f_, index, "a shader's address must start from one pointer parameter",
                 "WGSL has no pointers: a buffer is a binding and the address a 32-bit offset in it");
      }
      if (is_hint(i) || null_test(i)) return;
      std::int32_t used = kNumber;
      for (std::size_t k = 0; k < i.operands.size(); ++k)
        if (!ptx::writes_operand(i, k) && root_of(i.operands[k]) != kNumber) {
          const std::int32_t r = root_of(i.operands[k]);
          const bool joins = i.op == Op::selp || i.op == Op::mov || i.op == Op::cvta;
          if (used != kNumber && (used != r || !joins) && i.op != Op::sub)
            refuse(m_, f_, index, "an address must come from one pointer, and this one from two");
          if (used != kNumber && i.op == Op::sub && used != r)
            refuse(m_, f_, index, "a shader cannot subtract addresses of two buffers");
          used = r;
        }
      if (used == kNumber) return;
      const Operand& d = i.operands[0];
      const bool writes = d.kind == OperandKind::reg && d.reg != kNone && ptx::writes_operand(i, 0);
      if (writes && derived(i) != kNumber) {
        if (facts_.root[d.reg] != used)
          refuse(m_, f_, index,
                 "an address must come from one pointer, and this register holds two on different ways");
        if (i.op == Op::selp)
          for (std::size_t k : {1, 2})
            if (root_of(i.operands[k]) != used)
              refuse(m_, f_, index, "an address must come from one pointer, and this one may be none");
        return;
      }
      const bool difference = i.op == Op::sub && root_of(i.operands[1]) == root_of(i.operands[2]);
      if (difference) return;
      const bool masked = i.op == Op::and_ && ((constant(i.operands[1]).value_or(kAll) & ~0xffull) == 0 ||
                                               (constant(i.operands[2]).value_or(kAll) & ~0xffull) == 0);
      if (writes && i.op != Op::setp && (masked || (facts_.demanded[d.reg] & ~0xffull) == 0)) return;
      refuse(m_, f_, index, "a shader cannot use an address as a number: it is an offset in a buffer");
    });
    // A register that holds an address on one way and a number on another.
    for_reachable([&](std::uint32_t index, const Inst& i) {
      if (!facts_.live[index] || i.operands.empty() || i.operands[0].kind != OperandKind::reg ||
          i.operands[0].reg == kNone)
        return;
      if (!ptx::writes_operand(i, 0) || facts_.root[i.operands[0].reg] == kNumber || derived(i) != kNumber)
        return;
      if (i.op == Op::ld && space_of(i) == Space::param) return;
      refuse(m_, f_, index,
             "a register must hold addresses of one pointer only, and this writes another value to it");
    });
  }

  void find_types() {
    facts_.type.reserve(f_.regs.size());
    for (std::size_t r = 0; r < f_.regs.size(); ++r) {
      const Mod t = f_.regs[r].type;
      const bool wide = ptx::type_bits(t) == 64;
      const bool low = narrow_ && wide && (facts_.demanded[r] & ~0xffffffffull) == 0;
      facts_.type.push_back(t == Mod::pred  ? Type::boolean
                            : t == Mod::f32 ? Type::f32
                            : wide && !low  ? Type::u64
                                            : Type::u32);
    }
  }

  const ptx::Module& m_;
  const ptx::Function& f_;
  const ptx::Cfg& c_;
  const bool narrow_;
  Facts facts_;
  bool changed_ = false;
  std::vector<ptx::SymbolId> tables_;
  std::map<ptx::SymbolId, std::int32_t> table_root_;
};

}  // namespace

Facts find_facts(const ptx::Module& m, const ptx::Function& f, const ptx::Cfg& c,
                 std::uint32_t dynamic_shared, bool narrow) {
  return Finder(m, f, c, narrow).run(dynamic_shared);
}

}  // namespace cgp::shader
