// SPDX-License-Identifier: Apache-2.0
// The end of recording: checks that need the whole kernel, dead code, names, directives.
#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/dsl/core/finish_checks_impl.h"
#include "cgp/dsl/core/record.h"

namespace cgp::dsl {
using ptx::Mod;
using ptx::Op;
using ptx::OperandKind;
using ptx::RegId;
using text::cat;

namespace {

constexpr int kStaticSharedLimit = 48 * 1024;

/// Opt-in shared memory per block, bytes (CUDA C++ Programming Guide, table of technical specifications).
int shared_limit(int sm) {
  switch (sm) {
    case 70:
      return 96 * 1024;
    case 75:
      return 64 * 1024;
    case 80:
    case 87:
      return 163 * 1024;
    case 86:
    case 89:
    case 120:
    case 121:
      return 99 * 1024;
    case 90:
    case 100:
    case 101:
    case 103:
    case 110:
      return 227 * 1024;
    default:
      return kStaticSharedLimit;
  }
}

bool clock_like(ptx::Sreg s) {
  using enum ptx::Sreg;
  return s == clock || s == clock_hi || s == clock64 || s == globaltimer || s == globaltimer_lo ||
         s == globaltimer_hi || (s >= pm0 && s <= pm7);
}

/// May be dropped when nothing reads its results.
bool removable(const ptx::Inst& i) {
  if (i.has(Mod::cc)) return false;
  switch (i.op) {
    case Op::add_cc:
    case Op::addc:
    case Op::addc_cc:
    case Op::sub_cc:
    case Op::subc:
    case Op::subc_cc:
      return false;  // linked through the carry flag
    case Op::mov:
      return !(i.operands.size() > 1 && i.operands[1].kind == OperandKind::sreg &&
               clock_like(i.operands[1].sreg));
    case Op::ld:
      return i.has(Mod::param) || i.has(Mod::const_);
    case Op::shfl_sync:
    case Op::vote_sync:
    case Op::activemask:
    case Op::createpolicy_fractional:
    case Op::createpolicy_range:
    case Op::createpolicy_cvt:
      return true;
    default:
      break;
  }
  switch (ptx::family(i.op)) {
    case ptx::Family::integer:
    case ptx::Family::floating:
    case ptx::Family::half_precision:
    case ptx::Family::logic:
    case ptx::Family::compare:
    case ptx::Family::move:
    case ptx::Family::video:
      return true;
    default:
      return false;
  }
}

template <class F>
void each_reg(ptx::Operand& o, F&& f) {
  if (o.reg != ptx::kNone) f(o.reg);
  if (o.reg2 != ptx::kNone) f(o.reg2);
  for (auto& e : o.elems) each_reg(e, f);
}

/// Marks what matters backwards from the instructions with effects; true when something was dropped.
bool drop_dead(ptx::Function& f) {
  const std::size_t n = f.body.size();
  std::vector<std::uint32_t> first(f.regs.size() + 1, 0), defs;
  const auto each_def = [](ptx::Inst& i, auto&& g) {
    if (!i.operands.empty()) each_reg(i.operands[0], g);
  };
  std::vector<bool> keep(n, false);
  std::vector<std::uint32_t> work;
  std::vector<bool> can_go(n);
  for (std::size_t j = 0; j < n; ++j) {
    can_go[j] = removable(f.body[j]);
    if (can_go[j])
      each_def(f.body[j], [&](RegId r) { ++first[r + 1]; });
    else
      keep[j] = true, work.push_back(std::uint32_t(j));
  }
  for (std::size_t r = 1; r < first.size(); ++r) first[r] += first[r - 1];
  defs.resize(first.back());
  auto next = first;
  for (std::size_t j = 0; j < n; ++j)
    if (can_go[j]) each_def(f.body[j], [&](RegId r) { defs[next[r]++] = std::uint32_t(j); });
  std::vector<bool> live(f.regs.size(), false);
  const auto read = [&](RegId r) {
    if (live[r]) return;
    live[r] = true;
    for (std::uint32_t d = first[r]; d < first[r + 1]; ++d)
      if (!keep[defs[d]]) keep[defs[d]] = true, work.push_back(defs[d]);
  };
  while (!work.empty()) {
    ptx::Inst& i = f.body[work.back()];
    const bool pure = can_go[work.back()];
    work.pop_back();
    if (i.guard != ptx::kNone) read(i.guard);
    for (std::size_t o = pure ? 1 : 0; o < i.operands.size(); ++o) each_reg(i.operands[o], read);
  }
  // A branch to the very next instruction does nothing.
  for (std::size_t j = 0; j < n; ++j) {
    ptx::Inst& i = f.body[j];
    if (i.op != Op::bra || !keep[j]) continue;
    const std::uint32_t target = f.labels[i.operands[0].label].position;
    bool empty = target > j;
    for (std::size_t b = j + 1; empty && b < target; ++b) empty = !keep[b];
    if (empty) keep[j] = false;
  }
  std::vector<std::uint32_t> moved(n + 1);
  std::uint32_t out = 0;
  for (std::size_t j = 0; j < n; ++j) {
    moved[j] = out;
    if (keep[j]) {
      if (out != j) f.body[out] = std::move(f.body[j]);
      ++out;
    }
  }
  moved[n] = out;
  f.body.resize(out);
  for (auto& l : f.labels)
    if (l.position != ptx::kNone) l.position = moved[l.position];
  for (auto& p : f.body_pragmas) p.position = moved[p.position];
  return out != n;
}

void drop_labels(ptx::Function& f) {
  std::vector<bool> used(f.labels.size(), false);
  const auto mark = [&](auto&& self, const ptx::Operand& o) -> void {
    if (o.kind == OperandKind::label) used[o.label] = true;
    for (auto& e : o.elems) self(self, e);
  };
  for (auto& i : f.body)
    for (auto& o : i.operands) mark(mark, o);
  for (auto& t : f.tables)
    for (auto l : t.labels) used[l] = true;
  std::vector<std::uint32_t> order;
  for (std::uint32_t l = 0; l < used.size(); ++l)
    if (used[l]) order.push_back(l);
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return f.labels[a].position < f.labels[b].position; });
  std::vector<ptx::LabelId> renamed(f.labels.size(), ptx::kNone);
  std::vector<ptx::Label> labels;
  for (auto l : order) {
    renamed[l] = ptx::LabelId(labels.size());
    labels.push_back({cat("$L", labels.size()), f.labels[l].position});
  }
  const auto rename = [&](auto&& self, ptx::Operand& o) -> void {
    if (o.kind == OperandKind::label) o.label = renamed[o.label];
    for (auto& e : o.elems) self(self, e);
  };
  for (auto& i : f.body)
    for (auto& o : i.operands) rename(rename, o);
  for (auto& t : f.tables)
    for (auto& l : t.labels) l = renamed[l];
  f.labels = std::move(labels);
}

/// Registers in order of first appearance, numbered per prefix (%r and %rd never share a name).
void name_registers(ptx::Function& f) {
  constexpr std::string_view prefixes[] = {"%p", "%h", "%r", "%f", "%rd", "%fd", "%rq", "%b"};
  std::vector<RegId> renamed(f.regs.size(), ptx::kNone);
  std::vector<ptx::Reg> regs;
  std::uint32_t count[8] = {};
  const auto touch = [&](RegId& r) {
    if (renamed[r] == ptx::kNone) {
      const Mod t = f.regs[r].type;
      const int c = int(reg_class(t, ptx::type_bits(t)));
      renamed[r] = RegId(regs.size());
      ptx::Reg& named = regs.emplace_back();
      named.type = t;
      named.name = cat(prefixes[c], count[c]++);
    }
    r = renamed[r];
  };
  for (auto& i : f.body) {
    if (i.guard != ptx::kNone) touch(i.guard);
    for (auto& o : i.operands) each_reg(o, touch);
  }
  f.regs = std::move(regs);
}

}  // namespace

void Kernel::simplify() {
  while (drop_dead(f_)) {
  }
  drop_labels(f_);
  name_registers(f_);
}

// setmaxnreg moves registers inside the block's own allocation: what its threads start with, 65536 over all
// of them, rounded down to a multiple of 8. An `inc` beyond it waits for ever, and ptxas does not add up.
void Kernel::check_register_budget(int threads) {
  const int start = std::min(256, 65536 / (threads * std::max(1, min_blocks_)) / 8 * 8);
  int asked = 0;
  std::string sum;
  for (const RoleNote& r : roles_) {
    const int each = r.registers ? r.registers : start;
    asked += r.threads * each;
    sum += cat(sum.empty() ? "" : " + ", r.threads, " x ", each);
  }
  if (asked > start * threads)
    throw BuildError("the roles' register budgets must fit the block's share of the SM's 65536 registers",
                     roles_.back().at,
                     cat(sum, " = ", asked, "; 65536 registers over ", threads, " threads are ", start,
                         " each, ", start * threads, " in all"),
                     "lower the budgets; a role without one keeps what it starts with");
}

void Kernel::check_roles() {
  if (warps == 0) return;
  bool budgeted = false;
  for (const RoleNote& r : roles_) {
    if (!*r.ran)
      throw BuildError("a role is declared but never run", r.at,
                       cat("its ", r.threads, " threads, from warp ", r.first_warp, ", would do nothing"),
                       "call role.run(...) or role.one_thread(...), or drop the role");
    budgeted = budgeted || r.registers;
  }
  const int threads = warps * 32;
  if (threads > 1024)
    throw BuildError("a block has at most 1024 threads", roles_.back().at, cat("the roles need ", threads));
  if (block_[0] && (block_[0] != threads || block_[1] != 1 || block_[2] != 1))
    throw BuildError("with roles the block size follows from them", born_,
                     cat("the roles need ", threads, " threads in one dimension, k.block() said ", block_[0],
                         " x ", block_[1], " x ", block_[2]));
  if (budgeted) check_register_budget(threads);
  block_ = {threads, 1, 1};
  // setmaxnreg grows or shrinks relative to what a launch of this block size starts with.
  const int start = 65536 / (threads * std::max(1, min_blocks_)) / 8 * 8;
  for (auto& i : f_.body)
    if (i.op == Op::setmaxnreg && i.mods.size() && i.mods[0] == Mod::inc && int(i.operands[0].imm) < start) {
      ptx::Mods m{Mod::dec};
      for (int j = 1; j < i.mods.size(); ++j) m.push_back(i.mods[j]);
      i.mods = m;
    }
}

void Kernel::finish_shared() {
  if (smem_bytes_ == 0) return;
  const int limit = shared_limit(sm_);
  if (smem_bytes_ > limit)
    throw BuildError("a block's shared memory must fit the target", born_,
                     cat(smem_bytes_, " bytes are laid out, ", module_.target, " has ", limit),
                     "fewer stages or smaller tiles");
  ptx::Var v;
  v.name = smem_symbol_;
  v.space = ptx::Space::shared;
  v.align = std::uint32_t(smem_align_);
  v.type = Mod::b8;
  v.is_array = true;
  if (smem_bytes_ <= kStaticSharedLimit) {
    static_smem_ = smem_bytes_;
    v.dims = {std::uint64_t(smem_bytes_)};
    f_.vars.push_back(v);
  } else {  // above 48 KiB only dynamic shared memory exists
    dynamic_smem_ = smem_bytes_;
    v.linkage = ptx::Linkage::external;
    v.dims = {0};
    module_.vars.push_back(v);
  }
}

void Kernel::finish_shape() {
  const auto u = [](int v) { return std::uint32_t(v); };
  const int threads = block_[0] * block_[1] * block_[2];
  if (block_[0]) f_.reqntid = {u(block_[0]), u(block_[1]), u(block_[2])};
  if (!block_[0] && max_threads_) f_.maxntid = {u(max_threads_), 1, 1};
  // Without .minnctapersm ptxas may cap the registers for an occupancy nobody asked for, and spill.
  if (block_[0] || max_threads_ || min_blocks_) f_.minnctapersm = u(min_blocks_ ? min_blocks_ : 1);
  if (max_registers_) f_.maxnreg = u(max_registers_);
  if (cluster_[0]) f_.reqnctapercluster = {u(cluster_[0]), u(cluster_[1]), u(cluster_[2])};
  if (threads && threads % warp_multiple_)
    throw BuildError(cat("the block size must be a multiple of ", warp_multiple_, " threads"),
                     warp_multiple_at_,
                     cat("a ", warp_multiple_ == 32 ? "warp" : "warpgroup",
                         " scope is used here; the block has ", threads, " threads"));
}

void Kernel::finish() {
  if (finished_) throw BuildError("finish() was already called", here_);
  finished_ = true;
  if (!problems_.empty()) {
    const Problem& p = problems_[0];
    throw BuildError(
        p.rule, p.at,
        problems_.size() > 1 ? cat("and ", problems_.size() - 1, " more like it") : std::string(), p.hint);
  }
  for (auto& record : at_end_) record();
  inst(Op::ret, {}, {});
  check_roles();
  finish_shared();
  finish_shape();
  simplify();
  check_analyses(module_, f_);
  module_.functions.push_back(std::move(f_));
}

}  // namespace cgp::dsl
