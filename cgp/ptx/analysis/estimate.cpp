// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/analysis/estimate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "cgp/ptx/analysis/schedule.h"
#include "cgp/ptx/analysis/ssa.h"
#include "cgp/ptx/pressure.h"

namespace cgp::ptx {
namespace {

// Fitted to ptxas 13.0 over the kernels of this repository and the corpus.
constexpr int kTarget = 24;             ///< live registers below which latency alone decides the order
constexpr int kUnrolledTarget = 40;     ///< the same in unrolled loops
constexpr int kGuarded = 12;            ///< instructions of a side that becomes guarded
constexpr int kUnrolled = 80;           ///< instructions of a loop that is unrolled
constexpr int kUnrollFactor = 4;        ///< where the trip count is not known
constexpr std::size_t kLongest = 6000;  ///< operations of a block that are reordered
constexpr double kWritten = 0.393, kReordered = 0.464, kAlways = 5.41;
constexpr double kGrowth = 0.343;  ///< for each doubling of the number of instructions, from 8 on
constexpr double kMatrix = 4.92, kWgmma = 4.63,
                 kAsync = 1.03;  ///< when there are any: aligned groups, descriptors
/// For each doubling of their number: what they are made of needs registers of its own.
constexpr double kDivision = 1.11, kFunction = 0.72, kVector = 0.73;

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

class Estimator {
 public:
  explicit Estimator(const Function& f)
      : f_(f),
        cfg_(build_cfg(f)),
        ssa_(build_ssa(f, cfg_, liveness(f, cfg_))),
        root_(ssa_.values.size()),
        merged_(ssa_.values.size()),
        size_(ssa_.values.size()) {
    std::iota(root_.begin(), root_.end(), 0u);
    merge_copies();
    merge_phis();
    find_sizes();
    spread();
  }

  void run(RegisterEstimate& e) {
    for (BlockId b : cfg_.order) {
      const auto [ops, values] = operations({{b, false}}, 1);
      std::vector<std::uint32_t> order(ops.size());
      std::iota(order.begin(), order.end(), 0u);
      e.as_written = std::max(e.as_written, most_live(ops, order, values));
    }
    e.reordered = e.as_written;
    for (const Chain& chain : chains()) {
      const int times = rounds(chain);
      const auto [ops, values] = operations(chain, times);
      if (ops.size() > kLongest) continue;
      const int target = std::max(times > 1 ? kUnrolledTarget : kTarget, e.as_written);
      e.reordered = std::max(e.reordered, most_live(ops, schedule(ops, values, target), values));
    }
  }

 private:
  ValueId root(ValueId v) {
    while (root_[v] != v) v = root_[v] = root_[root_[v]];
    return v;
  }

  /// A copy, and base + number where only an address reads it, are the value that they are made of.
  void merge_copies() {
    std::vector<std::vector<std::uint32_t>> uses(ssa_.values.size());
    for (std::uint32_t i = 0; i < f_.body.size(); ++i)
      for (const Ssa::Read& r : ssa_.reads[i]) uses[r.value].push_back(i);
    std::vector<std::uint8_t> in_phi(ssa_.values.size());
    for (const Value& v : ssa_.values)
      for (ValueId in : v.inputs)
        if (in != kNone) in_phi[in] = 1;
    for (BlockId b : cfg_.order)
      for (std::uint32_t i = cfg_.blocks[b].first; i < cfg_.blocks[b].last; ++i) {
        const Inst& inst = f_.body[i];
        if (ssa_.writes[i].size() != 1 || inst.guard != kNone) continue;
        if (inst.operands.size() < 2 || inst.operands[1].kind != OperandKind::reg) continue;
        const ValueId v = ssa_.writes[i][0];
        const RegId to = ssa_.values[v].reg, from = inst.operands[1].reg;
        const bool copy = (inst.op == Op::mov || inst.op == Op::cvta) &&
                          words(f_.regs[to].type) == words(f_.regs[from].type);
        const bool offset = inst.op == Op::add && !is_float(inst.type()) &&
                            inst.operands[2].kind == OperandKind::imm && !in_phi[v] && !uses[v].empty() &&
                            std::all_of(uses[v].begin(), uses[v].end(),
                                        [&](std::uint32_t u) { return only_address(f_.body[u], to); });
        if (!copy && !offset) continue;
        root_[v] = root(ssa_.read(i, from));
        merged_[v] = 1;
      }
  }

  /// A phi and its inputs share a register, as they did in the text.
  void merge_phis() {
    for (ValueId v = 0; v < ssa_.values.size(); ++v) {
      if (ssa_.values[v].kind != Value::Kind::phi) continue;
      for (ValueId in : ssa_.values[v].inputs)
        if (in != kNone && ssa_.values[in].kind != Value::Kind::undefined && root(in) == in &&
            ssa_.values[in].reg == ssa_.values[v].reg)
          root_[in] = root(v);
    }
  }

  void find_sizes() {
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

  /// Liveness of the roots.
  void spread() {
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
        for (const Ssa::Read& r : ssa_.reads[i]) read(r.value);
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

  bool step(BlockId b, const std::vector<std::set<ValueId>>& use, const std::vector<std::set<ValueId>>& def) {
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

  struct Part {
    BlockId block;
    bool guarded;  ///< one side of a short branch: its instructions get guards
  };
  using Chain = std::vector<Part>;

  bool is_short(BlockId b) const {
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

  /// Blocks that are scheduled as one: those that follow each other without a choice, and short branches.
  std::vector<Chain> chains() const {
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
            if (only(side, 1) && cfg_.blocks[side].successors == std::vector<BlockId>{meet} &&
                only(meet, 2) && is_short(side))
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

  /// The operations of a chain, several rounds of a loop in a row: what one round leaves to no other is a new
  /// value in each.
  std::pair<std::vector<Operation>, BlockValues> operations(const Chain& chain, int times) {
    std::vector<Operation> out;
    const auto &in = in_[chain.front().block], &left = out_[chain.back().block];
    BlockValues values{{in.begin(), in.end()}, {left.begin(), left.end()}, size_};
    std::map<ValueId, LiveId> renamed;
    const auto name = [&](ValueId v) {
      const auto at = renamed.find(root(v));
      return at == renamed.end() ? root(v) : at->second;
    };
    for (int round = 0; round < times; ++round)
      for (const Part& part : chain)
        for (std::uint32_t i = cfg_.blocks[part.block].first; i < cfg_.blocks[part.block].last; ++i) {
          const bool last = round + 1 == times && part.block == chain.back().block;
          if (is_jump(f_.body[i].op) && !last) continue;
          Operation o;
          o.inst = &f_.body[i];
          for (const Ssa::Read& r : ssa_.reads[i]) o.reads.push_back(name(r.value));
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

  /// Counted loops of one chain that only compute and load are unrolled.
  int rounds(const Chain& chain) const {
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
            f == Family::tcgen05 || f == Family::atomic || f_.body[i].op == Op::call ||
            f_.body[i].op == Op::st || f_.body[i].has(Mod::volatile_))
          return 1;
      }
      for (const Pragma& p : f_.body_pragmas)
        if (p.position >= block.first && p.position <= block.last &&
            p.text.find("nounroll") != std::string::npos)
          return 1;
    }
    return length <= kUnrolled && counts(head) ? kUnrollFactor : 1;
  }

  /// Some register goes up by a number in each round.
  bool counts(BlockId b) const {
    for (ValueId v : ssa_.phis[b])
      for (ValueId in : ssa_.values[v].inputs) {
        if (in == kNone || ssa_.values[in].kind != Value::Kind::inst ||
            !cfg_.dominates(b, ssa_.values[in].block))
          continue;
        std::uint32_t i = ssa_.values[in].inst;
        const Inst* inst = &f_.body[i];
        if (inst->op == Op::mov &&
            inst->operands[1].kind == OperandKind::reg) {  // the end of a carried value
          const Value& from = ssa_.values[ssa_.read(i, inst->operands[1].reg)];
          if (from.kind == Value::Kind::inst) inst = &f_.body[from.inst];
        }
        if (inst->op == Op::add && inst->operands[2].kind == OperandKind::imm && !is_float(inst->type()))
          return true;
      }
    return false;
  }

  const Function& f_;
  Cfg cfg_;
  Ssa ssa_;
  std::vector<ValueId> root_;
  std::vector<std::uint8_t> merged_;  ///< the instruction makes no value of its own
  std::vector<int> size_;             ///< of roots, in 32-bit registers
  std::vector<std::set<ValueId>> in_, out_;
};

/// Registers that depend on what instructions there are.
double extra(const Function& f) {
  bool matrix = false, wgmma = false, async = false;
  int divisions = 0, functions = 0, vectors = 0;
  for (const Inst& i : f.body) {
    const Family family = ptx::family(i.op);
    matrix = matrix || family == Family::matrix;
    wgmma = wgmma || family == Family::wgmma;
    async = async || family == Family::async || family == Family::mbarrier;
    vectors += i.has(Mod::v2) || i.has(Mod::v4);
    switch (i.op) {
      case Op::div:
      case Op::rem:
        ++(is_float(i.type()) ? functions : divisions);
        break;
      case Op::rcp:
      case Op::rsqrt:
      case Op::sqrt:
      case Op::sin:
      case Op::cos:
      case Op::lg2:
      case Op::ex2:
      case Op::tanh:
        ++functions;
        break;
      default:
        break;
    }
  }
  return (matrix ? kMatrix : 0) + (wgmma ? kWgmma : 0) + (async ? kAsync : 0) +
         kDivision * std::log2(1 + divisions) + kFunction * std::log2(1 + functions) +
         kVector * std::log2(1 + vectors) +
         kGrowth * std::log2(std::max<double>(double(f.body.size()), 8) / 8);
}

}  // namespace

RegisterEstimate estimate_registers(const Function& f) {
  RegisterEstimate e;
  e.limit = pressure(f).limit;
  if (f.body.empty()) return e;
  Estimator(f).run(e);
  // setmaxnreg moves registers between warps: the kernel starts with all that its block may have.
  int asked = 0;
  for (const Inst& i : f.body)
    if (i.op == Op::setmaxnreg && !i.operands.empty()) asked = std::max(asked, int(i.operands[0].imm));
  if (asked) {
    e.registers = e.limit < 255 ? e.limit : asked;
    return e;
  }
  const double n = kWritten * e.as_written + kReordered * e.reordered + kAlways + extra(f);
  e.registers = std::min(e.limit, int(n + 0.5));
  e.spilled = std::max(0, e.as_written - e.limit);
  return e;
}

}  // namespace cgp::ptx
