// SPDX-License-Identifier: Apache-2.0
// Parsed PTX to a decoded program: functions, layouts, constant pool, code.
#include <algorithm>
#include <set>

#include "cgp/base/text.h"
#include "cgp/emu/decode/decode_impl.h"
#include "cgp/ptx/print.h"
#include "cgp/ptx/shared_module.h"

namespace cgp::emu {

using text::cat;

namespace {
std::uint32_t align_up(std::uint64_t v, std::uint64_t a) { return std::uint32_t((v + a - 1) / a * a); }
constexpr std::uint32_t kNotPlaced = ptx::kNone;
}  // namespace

ProgramBuilder::ProgramBuilder(ptx::Module module, bool avx512) : p_(std::make_unique<ProgramImpl>()) {
  p_->module = std::move(module);
  p_->avx512 = avx512;
  decoder_.builder_ = this;
  decoder_.module_ = &p_->module;
  decoder_.avx512_ = avx512;
}

// ---------------------------------------------------------------- rows and constants
Loc ProgramBuilder::new_row(int bits) {
  const Loc l = Loc(row_top_);
  row_top_ += bits <= 32 ? kRow32 : std::uint32_t(kRow64 * (bits / 64));
  return l;
}

Loc ProgramBuilder::new_pred() {
  if (pred_row_ == kNoLoc || preds_ == kLanes) {
    pred_row_ = new_row(32);
    preds_ = 0;
  }
  return pred_row_ + 4 * preds_++;
}

Loc ProgramBuilder::register_loc(ptx::RegId r) {
  if (reg_loc_[r] == kNoLoc) {
    const int bits = ptx::type_bits(f_->ptx->regs[r].type);
    reg_loc_[r] = bits == 1 ? new_pred() : new_row(bits);
  }
  return reg_loc_[r];
}

Loc ProgramBuilder::constant(std::uint64_t value, int bits) {
  const int cell = bits <= 32 ? 32 : 64;
  if (cell == 32) value &= 0xffffffffu;
  auto [it, added] = constants_.try_emplace({value, cell}, 0);
  if (added) {
    it->second = Loc(p_->pool.size() * 8) | kConstant;
    const std::uint64_t word = cell == 32 ? value | value << 32 : value;
    p_->pool.insert(p_->pool.end(), std::size_t(cell) * kLanes / 64, word);
  }
  return it->second;
}

Loc ProgramBuilder::relocated(PoolRelocation r) {
  for (const PoolRelocation& x : p_->relocations)
    if (x.kind == r.kind && x.bits == r.bits && x.target == r.target && x.addend == r.addend)
      return Loc(x.offset) | kConstant;
  r.offset = std::uint32_t(p_->pool.size() * 8);
  p_->pool.insert(p_->pool.end(), std::size_t(r.bits) * kLanes / 64, 0);
  p_->relocations.push_back(r);
  return Loc(r.offset) | kConstant;
}

const ptx::Var* ProgramBuilder::find_var(ptx::SymbolId s, bool* module_scope) const {
  *module_scope = false;
  if (f_)
    for (const ptx::Var& v : f_->ptx->vars)
      if (v.name == s) return &v;
  *module_scope = true;
  const ptx::Var* found = nullptr;
  for (const ptx::Var& v : p_->module.vars)
    if (v.name == s && (!found || v.linkage != ptx::Linkage::external)) found = &v;
  return found;
}

std::uint32_t ProgramBuilder::shared_index(ptx::SymbolId s, bool module_scope, const ptx::Var& v) {
  const std::uint32_t owner = module_scope ? ptx::kNone : f_->index;
  std::uint32_t index = 0;
  while (index < p_->shared_vars.size() &&
         !(p_->shared_vars[index].function == owner && p_->shared_vars[index].var->name == s))
    ++index;
  if (index == p_->shared_vars.size()) p_->shared_vars.push_back({&v, owner, v.bytes() == 0});
  auto& used = f_->shared_vars;
  if (std::find(used.begin(), used.end(), index) == used.end()) used.push_back(index);
  return index;
}

Loc ProgramBuilder::symbol(ptx::SymbolId s, std::int64_t addend, int bits, bool* frame_local,
                           std::int64_t* frame_offset) {
  *frame_local = false;
  if (auto it = f_->local_offset.find(s); it != f_->local_offset.end()) {
    *frame_local = true;
    *frame_offset = std::int64_t(it->second) + addend;
    return kNoLoc;
  }
  if (f_->ptx->entry)
    for (std::size_t i = 0; i < f_->ptx->params.size(); ++i)
      if (f_->ptx->params[i].name == s)
        return constant(std::uint64_t(std::int64_t(f_->params[i].offset) + addend), bits);
  PoolRelocation r;
  r.bits = std::uint8_t(bits <= 32 ? 32 : 64);
  r.addend = addend;
  r.owner = f_->index;
  bool module_scope = false;
  if (const ptx::Var* v = find_var(s, &module_scope)) {
    if (v->space == ptx::Space::shared) {
      r.kind = PoolRelocation::shared;
      r.target = shared_index(s, module_scope, *v);
    } else {
      if (v->linkage == ptx::Linkage::external)
        decoder_.unsupported(cat("variable '", p_->module.text(s), "' is defined in another module"));
      r.kind = PoolRelocation::global;
      r.target = s;
    }
    return relocated(r);
  }
  if (auto it = p_->function_of.find(s); it != p_->function_of.end()) {
    r.kind = PoolRelocation::function;
    r.target = it->second;
    f_->calls_indirectly = true;
    return relocated(r);
  }
  decoder_.unsupported(cat("'", p_->module.text(s), "' has no definition in this module"));
}

// ---------------------------------------------------------------- functions
void ProgramBuilder::declare_functions() {
  for (const ptx::Function& f : p_->module.functions) {
    if (!f.has_body) continue;
    Function g;
    g.ptx = &f;
    g.name = p_->module.text(f.name);
    g.index = std::uint32_t(p_->functions.size());
    p_->function_of[f.name] = g.index;
    p_->functions.push_back(std::move(g));
  }
}

void ProgramBuilder::layout_params(Function& f) {
  std::uint32_t offset = 0;
  auto place = [&](const ptx::Var& v, std::vector<ParamSlot>& into) {
    ParamSlot s;
    s.bytes = std::uint32_t(std::max<std::uint64_t>(v.bytes(), 1));
    if (v.space != ptx::Space::reg) {
      offset = align_up(offset, std::max(1u, v.alignment()));
      s.offset = offset;
      offset += s.bytes;
      if (!f.ptx->entry) f.local_offset[v.name] = s.offset;
    }
    into.push_back(s);
  };
  for (const ptx::Var& v : f.ptx->params) place(v, f.params);
  for (const ptx::Var& v : f.ptx->returns) place(v, f.returns);
  if (!f.ptx->entry) f.local_bytes = offset;
}

void ProgramBuilder::layout_locals(Function& f) {
  for (const ptx::Var& v : f.ptx->vars) {
    if (v.space != ptx::Space::local && v.space != ptx::Space::param) continue;
    f.local_bytes = align_up(f.local_bytes, std::max(1u, v.alignment()));
    f.local_align = std::max(f.local_align, v.alignment());
    f.local_offset[v.name] = f.local_bytes;
    f.local_bytes += std::uint32_t(std::max<std::uint64_t>(v.bytes(), 1));
  }
}

void ProgramBuilder::bind_register_params(Function& f) {
  auto bind = [&](const std::vector<ptx::Var>& vars, std::vector<ParamSlot>& slots) {
    for (std::size_t i = 0; i < vars.size(); ++i) {
      if (vars[i].space != ptx::Space::reg) continue;
      for (std::size_t r = 0; r < f.ptx->regs.size(); ++r)
        if (f.ptx->regs[r].name == p_->module.text(vars[i].name)) {
          slots[i].reg = register_loc(ptx::RegId(r));
          slots[i].predicate = ptx::type_bits(vars[i].type) == 1;
        }
    }
  };
  bind(f.ptx->params, f.params);
  bind(f.ptx->returns, f.returns);
}

void ProgramBuilder::decode_function(Function& f) {
  f_ = &f;
  reg_loc_.assign(f.ptx->regs.size(), kNoLoc);
  pred_row_ = kNoLoc;
  preds_ = 0;
  row_top_ = 0;
  decoder_.function_ = f.ptx;
  f.first_op = std::uint32_t(p_->ops.size());
  bind_register_params(f);
  const Table& table = decode_table();
  std::vector<std::uint32_t> op_at;
  try {
    for (std::size_t i = 0; i < f.ptx->body.size(); ++i) {
      const ptx::Inst& inst = f.ptx->body[i];
      decoder_.inst_ = &inst;
      prelude_.clear();
      flow_ = {};
      Op op;
      op.inst = std::uint32_t(p_->insts.size());
      const DecodeFn decode = table.get(inst.op);
      if (!decode) decoder_.unsupported(std::string(unsupported_reason(inst.op)));
      decode(decoder_, inst, op);
      if (inst.guard != ptx::kNone) {
        op.guard = register_loc(inst.guard) | (inst.guard_negated ? kNegated : 0);
        if (!(op.flags & kBranch)) op.flags |= kGuarded;
      }
      op_at.push_back(std::uint32_t(p_->ops.size()));
      for (Op& before : prelude_) {
        before.inst = op.inst;
        p_->ops.push_back(before);
      }
      p_->ops.push_back(op);
      p_->insts.push_back({f.index, std::uint32_t(i)});
      p_->flow.push_back(std::move(flow_));
    }
    Op last;
    last.fn = exec_return;
    last.inst = p_->insts.empty() ? 0 : std::uint32_t(p_->insts.size() - 1);
    last.flags = kSplits | kMicro;
    op_at.push_back(std::uint32_t(p_->ops.size()));
    p_->ops.push_back(last);
  } catch (const Unsupported& e) {
    f.unsupported = e.what();
  }
  f.op_count = std::uint32_t(p_->ops.size()) - f.first_op;
  f.register_bytes = row_top_ + kRow32;
  f.register_locs = reg_loc_;
  if (f.unsupported.empty()) {
    mark_async_rows(f);
    link_branches(f, op_at);
    find_skip_points(f, op_at);
  }
  f_ = nullptr;
}

// Every instruction that touches a row of an asynchronous one gets kAsyncRow.
void ProgramBuilder::mark_async_rows(Function& f) {
  if (f.async_rows.empty()) return;
  const auto used = [&](const std::vector<Loc>& rows) {
    return std::any_of(rows.begin(), rows.end(), [&](Loc l) {
      const std::size_t i = std::size_t(l) / kRow32;
      return l >= 0 && !(l & kConstant) && i < f.async_rows.size() && f.async_rows[i];
    });
  };
  for (std::uint32_t i = f.first_op; i < f.first_op + f.op_count; ++i) {
    Op& op = p_->ops[i];
    const DataFlow& flow = p_->flow[op.inst];
    if (!(op.flags & kMicro) && (used(flow.sources) || used(flow.dests) || used(flow.addresses)))
      op.flags |= kAsyncRow;
  }
}

// Until all code is in place a branch's `imm` is the label, or the index of its table; here it becomes an
// index into ops. build() turns indices into pointers.
void ProgramBuilder::link_branches(Function& f, const std::vector<std::uint32_t>& op_at) {
  for (std::uint32_t i = f.first_op; i < f.first_op + f.op_count; ++i) {
    Op& op = p_->ops[i];
    if (!(op.flags & kBranch) || op.imm < 0) continue;
    op.imm = op_at[f.ptx->labels[std::size_t(op.imm)].position];
  }
  for (const ptx::Table& t : f.ptx->tables) {
    f.tables.emplace_back();
    for (ptx::LabelId l : t.labels) f.tables.back().push_back(op_at[f.ptx->labels[l].position] - f.first_op);
  }
}

std::unique_ptr<ProgramImpl> ProgramBuilder::build() {
  declare_functions();
  for (Function& f : p_->functions) {
    layout_params(f);
    layout_locals(f);
  }
  for (Function& f : p_->functions) decode_function(f);
  for (Op& op : p_->ops)
    if ((op.flags & kBranch) && op.imm >= 0) op.data = p_->ops.data() + op.imm;
  for (Function& f : p_->functions) f.begin = p_->ops.data() + f.first_op;
  for (const Function& f : p_->functions)
    if (f.ptx->entry) make_entry(f);
  return std::move(p_);
}

void ProgramBuilder::make_entry(const Function& f) {
  EntryInfo e;
  e.name = f.name;
  for (std::size_t i = 0; i < f.params.size(); ++i) {
    const ptx::Var& v = f.ptx->params[i];
    e.params.push_back({p_->module.text(v.name), f.params[i].offset, f.params[i].bytes,
                        std::max(1u, v.alignment()), std::string(ptx::name(v.type)), v.is_ptr});
    e.param_bytes = f.params[i].offset + f.params[i].bytes;
  }
  const auto layout = p_->shared_layout(f.index);
  e.static_shared = layout.static_bytes;
  e.dynamic_shared = layout.dynamic;
  e.local_bytes = f.local_bytes;
  e.maxntid = f.ptx->maxntid;
  e.reqntid = f.ptx->reqntid;
  e.cluster = f.ptx->reqnctapercluster;
  for (std::uint32_t g : p_->reachable(f.index))
    if (e.unsupported.empty()) e.unsupported = p_->functions[g].unsupported;
  p_->entries.push_back(std::move(e));
}

// ---------------------------------------------------------------- queries
std::vector<std::uint32_t> ProgramImpl::reachable(std::uint32_t entry) const {
  std::vector<std::uint32_t> order{entry};
  std::set<std::uint32_t> seen{entry};
  auto add = [&](std::uint32_t f) {
    if (seen.insert(f).second) order.push_back(f);
  };
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Function& f = functions[order[i]];
    for (std::uint32_t c : f.callees) add(c);
    if (f.calls_indirectly)  // any function may be the target
      for (const Function& g : functions)
        if (!g.ptx->entry) add(g.index);
  }
  return order;
}

namespace {
bool reads_reserved_offsets(const ptx::Function& f) {
  return std::any_of(f.body.begin(), f.body.end(), [](const ptx::Inst& i) {
    return i.op == ptx::Op::mov && i.operands.size() == 2 && i.operands[1].kind == ptx::OperandKind::sreg &&
           ptx::name(i.operands[1].sreg).substr(0, 21) == "reserved_smem_offset_";
  });
}
}  // namespace

ProgramImpl::SharedLayout ProgramImpl::shared_layout(std::uint32_t entry) const {
  SharedLayout l;
  l.offset.assign(shared_vars.size(), kNotPlaced);
  std::set<std::uint32_t> used;
  for (std::uint32_t f : reachable(entry)) {
    used.insert(functions[f].shared_vars.begin(), functions[f].shared_vars.end());
    l.reserved = l.reserved || reads_reserved_offsets(*functions[f].ptx);
  }
  for (std::uint32_t i : used) {
    const SharedVar& v = shared_vars[i];
    const std::uint32_t align = std::max(1u, v.var->alignment());
    if (v.dynamic) {
      l.dynamic = true;
      l.dynamic_align = std::max(l.dynamic_align, align);
      continue;
    }
    l.static_bytes = align_up(l.static_bytes, align);
    l.offset[i] = l.static_bytes;
    l.static_bytes += std::uint32_t(v.var->bytes());
  }
  // All extern arrays start at the same place, after the static variables.
  if (l.dynamic) l.static_bytes = align_up(l.static_bytes, l.dynamic_align);
  for (std::uint32_t i : used)
    if (shared_vars[i].dynamic) l.offset[i] = l.static_bytes;
  return l;
}

std::string ProgramImpl::text(std::uint32_t index) const {
  const InstRef r = insts[index];
  const ptx::Function& f = *functions[r.function].ptx;
  return ptx::print(module, f, f.body[r.index]);
}

std::string ProgramImpl::opcode(std::uint32_t index) const {
  const ptx::Inst& i = inst(index);
  std::string s(ptx::name(i.op));
  for (ptx::Mod m : i.mods) s += cat('.', ptx::name(m));
  return s;
}

std::unique_ptr<ProgramImpl> build_program(ptx::Module module, bool avx512) {
  return ProgramBuilder(std::move(module), avx512).build();
}

bool host_has_avx512() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

// ---------------------------------------------------------------- Program
Program::Program(std::unique_ptr<ProgramImpl> impl) : impl_(std::move(impl)) {}
Program::~Program() = default;

std::shared_ptr<const Program> Program::load(std::string_view ptx_text, bool portable) {
  return std::make_shared<Program>(build_program(ptx::module_of(ptx_text), !portable && host_has_avx512()));
}

const std::vector<EntryInfo>& Program::entries() const { return impl_->entries; }
const std::string& Program::target() const { return impl_->module.target; }
const ptx::Module& Program::module() const { return impl_->module; }
std::size_t Program::instruction_count() const { return impl_->insts.size(); }

const EntryInfo& Program::entry(std::string_view name) const {
  std::vector<std::string> names;
  for (const EntryInfo& e : impl_->entries) {
    if (e.name == name) return e;
    names.push_back(e.name);
  }
  const auto near = text::closest(name, names);
  throw ArgumentError(ErrorText{cat("the program has no entry '", name, "'"),
                                {},
                                {},
                                names.empty()
                                    ? std::string("it has no .entry at all")
                                    : cat("it has: ", text::join(near.empty() ? names : near, ", "))});
}

InstructionInfo Program::instruction(std::size_t index) const {
  InstructionInfo i;
  const auto n = std::uint32_t(index);
  i.text = impl_->text(n);
  i.opcode = impl_->opcode(n);
  i.function = impl_->functions[impl_->insts[n].function].name;
  const ptx::Inst& inst = impl_->inst(n);
  i.ptx_line = int(inst.ptx_line);
  if (inst.loc != ptx::kNone) {
    const ptx::Loc& loc = impl_->module.locs[inst.loc];
    i.line = loc.line;
    i.column = loc.column;
    for (const auto& [number, path] : impl_->module.files)
      if (number == loc.file) i.file = path;
  }
  return i;
}

}  // namespace cgp::emu
