// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/analysis/estimate_values.h"

#include <algorithm>
#include <numeric>

namespace cgp::ptx {
namespace {

constexpr int kGuarded = 12;      ///< instructions of a side that becomes guarded
constexpr int kUnrolled = 80;     ///< instructions of a loop that is unrolled
constexpr int kUnrollFactor = 4;  ///< where the trip count is not known

int words(Mod type) {
  const int bits = type_bits(type);
  return bits <= 1 ? 0 : bits <= 32 ? 1 : bits / 32;
}

/// The register is the base of an address here and nothing else.
bool only_address(const Inst& i, RegId r) {
  bool base = false;
  for (const Operand& o : i.operands) {
    if (o.kind == OperandKind::address && o.reg == r)
      base = true;
    else if (o.reg == r)
      return false;
    for (const Operand& e : o.elems)
      if (e.reg == r) return false;
  }
  return base && i.guard != r;
}

/// Constants, parameters and what the hardware keeps beside them: read where they are used.
bool is_free(const Function& f, const Inst& i) {
  if (i.guard != kNone) return false;
  if (i.op == Op::ld && i.has(Mod::param)) return f.entry;
  if (i.op != Op::mov || i.operands.size() != 2) return false;
  const Operand& o = i.operands[1];
  switch (o.kind) {
    case OperandKind::imm:
    case OperandKind::f32_imm:
    case OperandKind::f64_imm:
    case OperandKind::symbol:
      return true;
    case OperandKind::sreg:
      return o.sreg >= Sreg::ntid_x && o.sreg <= Sreg::nctaid_z;
    default:
      return false;
  }
}

// Makes a constant or a parameter's copy.
const Inst kMove = [] {
  Inst i;
  i.op = Op::mov;
  i.mods.push_back(Mod::b32);
  return i;
}();

/// What the uniform datapath does (sm_75 and later): integers, and conditions on them.
bool uniform_op(const Function& f, const Inst& i) {
  switch (i.op) {
    case Op::ld:
      return i.has(Mod::param) && f.entry;
    case Op::mov:
    case Op::add:
    case Op::sub:
    case Op::mul:
    case Op::mad:
    case Op::neg:
    case Op::shl:
    case Op::shr:
    case Op::shf:
    case Op::and_:
    case Op::or_:
    case Op::xor_:
    case Op::not_:
    case Op::lop3:
    case Op::bfe:
    case Op::bfi:
    case Op::prmt:
    case Op::popc:
    case Op::setp:
    case Op::selp:
    case Op::cvt:
    case Op::cvta:
      return !is_float(i.type()) && i.guard == kNone;
    default:
      return false;
  }
}

bool is_number(const Operand& o) {
  return o.kind == OperandKind::imm || o.kind == OperandKind::f32_imm || o.kind == OperandKind::f64_imm;
}
}  // namespace

RegisterValues::RegisterValues(const Function& f, bool folds, int sm)
    : f_(f),
      folds_(folds),
      sm_(sm),
      cfg_(build_cfg(f)),
      ssa_(build_ssa(f, cfg_, liveness(f, cfg_))),
      root_(ssa_.values.size()),
      merged_(ssa_.values.size()),
      in_phi_(ssa_.values.size()),
      folded_(ssa_.values.size()),
      size_(ssa_.values.size()) {
  std::iota(root_.begin(), root_.end(), 0u);
  merge_copies();
  merge_phis();
  find_sizes();
  find_uniform();
  if (folds_) find_folded();
  spread();
}

ValueId RegisterValues::root(ValueId v) {
  while (root_[v] != v) v = root_[v] = root_[root_[v]];
  return v;
}

void RegisterValues::merge_copies() {
  std::vector<std::vector<std::uint32_t>> uses(ssa_.values.size());
  for (std::uint32_t i = 0; i < f_.body.size(); ++i)
    for (const Ssa::Read& r : ssa_.reads[i]) uses[r.value].push_back(i);
  for (const Value& v : ssa_.values)
    for (ValueId in : v.inputs)
      if (in != kNone) in_phi_[in] = 1;
  for (BlockId b : cfg_.order)
    for (std::uint32_t i = cfg_.blocks[b].first; i < cfg_.blocks[b].last; ++i) {
      const Inst& inst = f_.body[i];
      if (ssa_.writes[i].size() != 1 || inst.guard != kNone) continue;
      if (inst.operands.size() < 2 || inst.operands[1].kind != OperandKind::reg) continue;
      const ValueId v = ssa_.writes[i][0];
      const RegId to = ssa_.values[v].reg, from = inst.operands[1].reg;
      const bool copy =
          (inst.op == Op::mov || inst.op == Op::cvta) && words(f_.regs[to].type) == words(f_.regs[from].type);
      const bool offset = inst.op == Op::add && !is_float(inst.type()) &&
                          inst.operands[2].kind == OperandKind::imm && !in_phi_[v] && !uses[v].empty() &&
                          std::all_of(uses[v].begin(), uses[v].end(),
                                      [&](std::uint32_t u) { return only_address(f_.body[u], to); });
      if (folds_ && sm_ < 90 && !copy && !offset && merge_shared_address(i, uses)) continue;
      if (!copy && !offset) continue;
      root_[v] = root(ssa_.read(i, from));
      merged_[v] = 1;
    }
}

bool RegisterValues::merge_shared_address(std::uint32_t i,
                                          const std::vector<std::vector<std::uint32_t>>& uses) {
  const ValueId v = ssa_.writes[i][0];
  const Inst& inst = f_.body[i];
  const RegId to = ssa_.values[v].reg;
  if (inst.op != Op::add || inst.operands[2].kind != OperandKind::reg || in_phi_[v] || uses[v].empty() ||
      words(f_.regs[to].type) != 1)
    return false;
  for (std::uint32_t u : uses[v])
    if (!only_address(f_.body[u], to) || !(f_.body[u].has(Mod::shared) || f_.body[u].has(Mod::shared_cta)))
      return false;
  const auto is_variable = [&](const Operand& o) {
    const ValueId x = ssa_.read(i, o.reg);
    if (x == kNone || ssa_.values[x].kind != Value::Kind::inst) return false;
    const Inst& from = f_.body[ssa_.values[x].inst];
    return from.op == Op::mov && from.operands[1].kind == OperandKind::symbol;
  };
  const int base = is_variable(inst.operands[1]) ? 2 : is_variable(inst.operands[2]) ? 1 : 0;
  if (!base) return false;
  const ValueId index = ssa_.read(i, inst.operands[std::size_t(base)].reg);
  if (ssa_.values[index].kind == Value::Kind::inst && uses[index].size() == 1 && !in_phi_[index] &&
      !merged_[index] && root(index) == index) {
    const Inst& scale = f_.body[ssa_.values[index].inst];
    if (scale.op == Op::shl && scale.guard == kNone && scale.operands[1].kind == OperandKind::reg &&
        scale.operands[2].kind == OperandKind::imm && scale.operands[2].imm <= 4) {
      root_[index] = root(ssa_.read(ssa_.values[index].inst, scale.operands[1].reg));
      merged_[index] = 1;
    }
  }
  root_[v] = root(index);
  merged_[v] = 1;
  return true;
}

namespace {
bool is_logic(Op op) { return op == Op::and_ || op == Op::or_ || op == Op::xor_ || op == Op::not_; }
bool is_sum(const Inst& i) { return (i.op == Op::add || i.op == Op::sub) && !is_float(i.type()); }
bool is_extension(const Inst& i) {
  return i.op == Op::cvt && !is_float(i.type()) && !is_float(i.type(1)) && type_bits(i.type()) == 64 &&
         type_bits(i.type(1)) == 32;
}
/// Has its place in an index of 64 bits: computed again for each address, rather than kept.
bool is_index(const Inst& i) {
  return (i.op == Op::mul && i.has(Mod::wide) && !is_float(i.type())) || is_extension(i) ||
         (i.op == Op::shl && type_bits(i.type()) == 64);
}
bool folds_into(const Inst& i, const Inst& user) {
  const bool scales = i.op == Op::mul || i.op == Op::shl || i.op == Op::neg;
  if (is_sum(user) && !is_float(i.type()) && (scales || is_extension(i))) return true;
  if (is_sum(user) && is_sum(i) && words(i.type()) == 1) return true;
  if (is_logic(user.op) && is_logic(i.op)) return true;
  return (user.op == Op::shl || user.op == Op::mul) && is_extension(i);
}
}  // namespace

bool RegisterValues::folds_into_all(ValueId v, const std::vector<std::uint32_t>& users) const {
  const Inst& i = f_.body[ssa_.values[v].inst];
  return std::all_of(users.begin(), users.end(), [&](std::uint32_t u) {
    const Inst& user = f_.body[u];
    if (!is_index(i) && cfg_.block_of[u] != ssa_.values[v].block) return false;
    for (ValueId x : ssa_.writes[u])
      if (merged_[x] && user.op == Op::mov) return false;
    return folds_into(i, user);
  });
}

void RegisterValues::find_folded() {
  std::vector<std::vector<std::uint32_t>> uses(ssa_.values.size());
  for (std::uint32_t i = 0; i < f_.body.size(); ++i)
    for (const Ssa::Read& r : ssa_.reads[i]) uses[r.value].push_back(i);
  for (ValueId v = 0; v < ssa_.values.size(); ++v) {
    const Value& value = ssa_.values[v];
    if (value.kind != Value::Kind::inst || merged_[v] || root(v) != v || size_[v] == 0 || in_phi_[v] ||
        uses[v].empty())
      continue;
    const Inst& i = f_.body[value.inst];
    if (i.guard != kNone || ssa_.writes[value.inst].size() != 1 || (uses[v].size() > 1 && !is_index(i)))
      continue;
    if (folds_into_all(v, uses[v])) folded_[v] = 1, size_[v] = 0;
  }
}

bool RegisterValues::is_folded(std::uint32_t i) const {
  return std::any_of(ssa_.writes[i].begin(), ssa_.writes[i].end(),
                     [&](ValueId v) { return folded_[v] != 0; });
}

void RegisterValues::merge_phis() {
  for (ValueId v = 0; v < ssa_.values.size(); ++v) {
    if (ssa_.values[v].kind != Value::Kind::phi) continue;
    for (ValueId in : ssa_.values[v].inputs)
      if (in != kNone && ssa_.values[in].kind != Value::Kind::undefined && root(in) == in &&
          ssa_.values[in].reg == ssa_.values[v].reg)
        root_[in] = root(v);
  }
}

void RegisterValues::find_sizes() {
  std::vector<std::uint8_t> held(ssa_.values.size());
  for (ValueId v = 0; v < ssa_.values.size(); ++v) {
    const Value& value = ssa_.values[v];
    if (value.kind == Value::Kind::undefined) continue;
    int& size = size_[root(v)];
    size = std::max(size, words(f_.regs[value.reg].type));
    if (value.kind != Value::Kind::inst)
      held[root(v)] = 1;
    else if (!merged_[v] && root(v) == v && !is_free(f_, f_.body[value.inst]))
      held[v] = 1;
  }
  for (ValueId v = 0; v < ssa_.values.size(); ++v) {
    const Value& value = ssa_.values[v];
    if (root(v) != v) continue;
    if (!held[v]) size_[v] = 0;
    if (value.kind != Value::Kind::inst || size_[v] != 2) continue;
    // The upper half of a zero-extended number is the zero register.
    const Inst& i = f_.body[value.inst];
    const Mod from = i.type(1);
    if (i.op == Op::cvt && from != kNoMod && type_bits(from) <= 32 && !is_signed(from) && !is_float(from) &&
        !is_float(i.type()))
      size_[v] = 1;
  }
}

bool RegisterValues::stays_uniform(ValueId v, const std::vector<std::uint8_t>& uniform) const {
  const Value& value = ssa_.values[v];
  if (value.kind == Value::Kind::undefined) return true;
  if (value.kind == Value::Kind::parameter) return false;
  if (value.kind == Value::Kind::phi)
    return std::all_of(value.inputs.begin(), value.inputs.end(),
                       [&](ValueId in) { return in == kNone || uniform[in]; });
  const Inst& i = f_.body[value.inst];
  if (!uniform_op(f_, i)) return false;
  for (const Operand& o : i.operands)
    if (o.kind == OperandKind::sreg && !(o.sreg >= Sreg::ntid_x && o.sreg <= Sreg::nctaid_z)) return false;
  const auto& reads = ssa_.reads[value.inst];
  return std::all_of(reads.begin(), reads.end(), [&](const Ssa::Read& r) { return uniform[r.value]; });
}

void RegisterValues::find_uniform() {
  std::vector<std::uint8_t> uniform(ssa_.values.size(), 1), all(ssa_.values.size(), 1);
  for (bool changed = true; changed;) {
    changed = false;
    for (ValueId v = 0; v < ssa_.values.size(); ++v)
      if (uniform[v] && !stays_uniform(v, uniform)) uniform[v] = 0, changed = true;
  }
  for (ValueId v = 0; v < ssa_.values.size(); ++v)
    if (!uniform[v]) all[root(v)] = 0;
  for (ValueId v = 0; v < ssa_.values.size(); ++v)
    if (root(v) == v && all[v] && size_[v] == 1) size_[v] = 0;
}

void RegisterValues::spread() {
  const std::size_t n = cfg_.blocks.size();
  in_.assign(n, {});
  out_.assign(n, {});
  std::vector<std::set<ValueId>> use(n), def(n);
  for (BlockId b : cfg_.order) {
    for (ValueId v : ssa_.phis[b]) def[b].insert(root(v));
    const auto read = [&](ValueId v) {
      if (!def[b].count(root(v))) use[b].insert(root(v));
    };
    for (std::uint32_t i = cfg_.blocks[b].first; i < cfg_.blocks[b].last; ++i) {
      if (is_folded(i)) continue;
      each_read(i, read);
      for (ValueId v : ssa_.writes[i]) {
        for (ValueId before : ssa_.values[v].inputs) read(before);
        if (!merged_[v] && !use[b].count(root(v))) def[b].insert(root(v));
      }
    }
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t k = cfg_.order.size(); k-- > 0;) changed |= step(cfg_.order[k], use, def);
  }
}

bool RegisterValues::step(BlockId b, const std::vector<std::set<ValueId>>& use,
                          const std::vector<std::set<ValueId>>& def) {
  std::set<ValueId> out;
  for (BlockId s : cfg_.blocks[b].successors) {
    out.insert(in_[s].begin(), in_[s].end());
    const auto& before = cfg_.blocks[s].predecessors;
    const auto slot = std::size_t(std::find(before.begin(), before.end(), b) - before.begin());
    for (ValueId v : ssa_.phis[s]) {
      const ValueId in = ssa_.values[v].inputs[slot];
      if (in != kNone && ssa_.values[in].kind != Value::Kind::undefined) out.insert(root(in));
    }
  }
  std::set<ValueId> in = use[b];
  for (ValueId v : out)
    if (!def[b].count(v)) in.insert(v);
  const bool changed = out != out_[b] || in != in_[b];
  out_[b] = std::move(out);
  in_[b] = std::move(in);
  return changed;
}

bool RegisterValues::is_short(BlockId b) const {
  const Block& block = cfg_.blocks[b];
  if (int(block.last - block.first) > kGuarded) return false;
  for (std::uint32_t i = block.first; i < block.last; ++i) {
    const Family f = family(f_.body[i].op);
    if (f == Family::barrier || f == Family::async || f == Family::mbarrier || f == Family::wgmma ||
        f == Family::tcgen05 || f == Family::warp || f == Family::matrix || f_.body[i].op == Op::call)
      return false;
  }
  return true;
}

std::vector<RegisterValues::Chain> RegisterValues::chains() const {
  std::vector<Chain> out;
  std::vector<std::uint8_t> taken(cfg_.blocks.size());
  const auto only = [&](BlockId b, std::size_t n) {
    return cfg_.blocks[b].predecessors.size() == n && !taken[b];
  };
  for (BlockId b : cfg_.order) {
    if (taken[b]) continue;
    Chain chain{{b, false}};
    taken[b] = 1;
    for (BlockId at = b;;) {
      const auto& next = cfg_.blocks[at].successors;
      Chain more;
      if (next.size() == 1 && only(next[0], 1)) {
        more = {{next[0], false}};
      } else if (next.size() == 2) {
        for (int k = 0; k < 2 && more.empty(); ++k) {
          const BlockId side = next[std::size_t(k)], meet = next[std::size_t(1 - k)];
          if (only(side, 1) && cfg_.blocks[side].successors == std::vector<BlockId>{meet} && only(meet, 2) &&
              is_short(side))
            more = {{side, true}, {meet, false}};
        }
      }
      if (more.empty() || cfg_.blocks[at].exits) break;
      for (const Part& p : more) taken[p.block] = 1;
      chain.insert(chain.end(), more.begin(), more.end());
      at = more.back().block;
    }
    out.push_back(std::move(chain));
  }
  return out;
}

LiveId RegisterValues::make(ValueId v, std::uint64_t number, int size, std::vector<Operation>& out,
                            BlockValues& values, Made& made) const {
  const auto [at, fresh] = made.try_emplace({v, number}, LiveId(values.size.size()));
  if (fresh) {
    values.size.push_back(size);
    Operation o;
    o.inst = v != kNone && ssa_.values[v].kind == Value::Kind::inst ? &f_.body[ssa_.values[v].inst] : &kMove;
    o.writes.push_back(at->second);
    out.push_back(std::move(o));
  }
  return at->second;
}

ValueId RegisterValues::free_value(std::uint32_t i, RegId r) {
  for (const Ssa::Read& read : ssa_.reads[i])
    if (read.reg == r && size_[root(read.value)] == 0 && type_bits(f_.regs[r].type) > 1)
      return root(read.value);
  return kNone;
}

bool RegisterValues::is_zero(ValueId v) const {
  if (ssa_.values[v].kind != Value::Kind::inst) return false;
  const Inst& i = f_.body[ssa_.values[v].inst];
  return i.op == Op::mov && is_number(i.operands[1]) && i.operands[1].imm == 0;
}

void RegisterValues::materialise(std::uint32_t i, Operation& o, std::vector<Operation>& out,
                                 BlockValues& values, Made& made) {
  const Inst& inst = f_.body[i];
  const Family family = ptx::family(inst.op);
  const bool store = inst.op == Op::st || family == Family::atomic;
  if ((family != Family::memory && family != Family::atomic) || inst.has(Mod::param) || inst.has(Mod::const_))
    return;
  const auto data = [&](const Operand& x) {
    if (is_number(x) && x.imm)
      o.reads.push_back(make(kNone, x.imm, std::max(1, words(inst.type())), out, values, made));
    if (x.kind != OperandKind::reg) return;
    if (const ValueId v = free_value(i, x.reg); v != kNone && !is_zero(v))
      o.reads.push_back(make(v, 0, words(f_.regs[x.reg].type), out, values, made));
  };
  bool behind_address = false;
  for (const Operand& x : inst.operands) {
    if (x.kind == OperandKind::address) {
      behind_address = true;
      if (x.reg == kNone || inst.has(Mod::shared) || inst.has(Mod::shared_cta)) continue;
      if (const ValueId v = free_value(i, x.reg); v != kNone)
        o.reads.push_back(make(v, 0, words(f_.regs[x.reg].type), out, values, made));
    } else if (store && behind_address) {
      data(x);
      for (const Operand& e : x.elems) data(e);
    }
  }
}

void RegisterValues::materialise_product(std::uint32_t i, Operation& o, std::vector<Operation>& out,
                                         BlockValues& values, Made& made) {
  const Inst& inst = f_.body[i];
  if (inst.op != Op::add || is_float(inst.type()) || words(inst.type()) != 2) return;
  const Inst* product = nullptr;
  for (const Ssa::Read& r : ssa_.reads[i]) {
    if (!folded_[r.value]) continue;
    const Inst& from = f_.body[ssa_.values[r.value].inst];
    if (from.op == Op::mul && from.has(Mod::wide) && is_number(from.operands[2])) product = &from;
  }
  if (!product) return;
  if (sm_ < 90) {
    o.reads.push_back(make(kNone, product->operands[2].imm, 1, out, values, made));
    return;
  }
  for (const Ssa::Read& r : ssa_.reads[i])
    if (!folded_[r.value] && size_[root(r.value)] == 0 && type_bits(f_.regs[r.reg].type) == 64)
      o.reads.push_back(make(root(r.value), 0, 2, out, values, made));
}

std::pair<std::vector<Operation>, BlockValues> RegisterValues::operations(const Chain& chain, int times) {
  std::vector<Operation> out;
  const auto &in = in_[chain.front().block], &left = out_[chain.back().block];
  BlockValues values{{in.begin(), in.end()}, {left.begin(), left.end()}, size_};
  std::map<ValueId, LiveId> renamed;
  Made made;
  const auto name = [&](ValueId v) {
    const auto at = renamed.find(root(v));
    return at == renamed.end() ? root(v) : at->second;
  };
  for (int round = 0; round < times; ++round)
    for (const Part& part : chain)
      for (std::uint32_t i = cfg_.blocks[part.block].first; i < cfg_.blocks[part.block].last; ++i) {
        const bool last = round + 1 == times && part.block == chain.back().block;
        if (is_jump(f_.body[i].op) && !last) continue;
        if (is_folded(i)) continue;
        Operation o;
        o.inst = &f_.body[i];
        each_read(i, [&](ValueId v) { o.reads.push_back(name(v)); });
        materialise_product(i, o, out, values, made);
        materialise(i, o, out, values, made);
        for (ValueId v : ssa_.writes[i]) {
          if (merged_[v]) continue;
          for (ValueId before : ssa_.values[v].inputs) o.reads.push_back(name(before));
          // On one side of a branch: the other side's content stays.
          const bool keeps = part.guarded && ssa_.values[root(v)].kind == Value::Kind::phi &&
                             !in_[part.block].count(root(v)) && out_[part.block].count(root(v));
          if (keeps) o.reads.push_back(name(v));
          o.partial = o.partial || keeps || !ssa_.values[v].inputs.empty();
          if (round > 0 && !o.partial && !left.count(root(v))) {
            renamed[root(v)] = LiveId(values.size.size());
            values.size.push_back(size_[root(v)]);
          }
          o.writes.push_back(name(v));
        }
        if (o.writes.empty() && !ssa_.writes[i].empty()) continue;  // it is another value
        out.push_back(std::move(o));
      }
  return {std::move(out), std::move(values)};
}

int RegisterValues::rounds(const Chain& chain) const {
  const auto& next = cfg_.blocks[chain.back().block].successors;
  const BlockId head = chain.front().block;
  if (std::find(next.begin(), next.end(), head) == next.end()) return 1;
  int length = 0;
  for (const Part& part : chain) {
    const Block& block = cfg_.blocks[part.block];
    length += int(block.last - block.first);
    for (std::uint32_t i = block.first; i < block.last; ++i) {
      const Family f = family(f_.body[i].op);
      if (f == Family::barrier || f == Family::async || f == Family::mbarrier || f == Family::wgmma ||
          f == Family::tcgen05 || f == Family::atomic || f_.body[i].op == Op::call)
        return 1;
    }
    for (const Pragma& p : f_.body_pragmas)
      if (p.position >= block.first && p.position <= block.last &&
          p.text.find("nounroll") != std::string::npos)
        return 1;
  }
  return length <= kUnrolled && counts(head) ? kUnrollFactor : 1;
}

bool RegisterValues::counts(BlockId b) const {
  for (ValueId v : ssa_.phis[b])
    for (ValueId in : ssa_.values[v].inputs) {
      if (in == kNone || ssa_.values[in].kind != Value::Kind::inst ||
          !cfg_.dominates(b, ssa_.values[in].block))
        continue;
      std::uint32_t i = ssa_.values[in].inst;
      const Inst* inst = &f_.body[i];
      if (inst->op == Op::mov && inst->operands[1].kind == OperandKind::reg) {  // the end of a carried value
        const Value& from = ssa_.values[ssa_.read(i, inst->operands[1].reg)];
        if (from.kind == Value::Kind::inst) inst = &f_.body[from.inst];
      }
      if (inst->op == Op::add && inst->operands[2].kind == OperandKind::imm && !is_float(inst->type()))
        return true;
    }
  return false;
}

}  // namespace cgp::ptx
