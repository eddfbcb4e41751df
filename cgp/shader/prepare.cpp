// SPDX-License-Identifier: Apache-2.0
// What is settled before the first word is written: the shape of the workgroup, which values differ between its
// threads, how each buffer is accessed, and what the device must have.
#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/ptx/liveness.h"
#include "cgp/ptx/verify/verify.h"
#include "cgp/shader/lower.h"

namespace cgp::shader {

using ptx::Family;
using ptx::Inst;
using ptx::kNone;
using ptx::Mod;
using ptx::Op;
using ptx::Operand;
using ptx::OperandKind;
using ptx::Space;

bool needs_workgroup(const Kernel& k, const Inst& i) {
  switch (i.op) {
    case Op::bar_sync:
    case Op::barrier_sync:
    case Op::bar_red:
    case Op::barrier_red:
    case Op::bar_warp_sync:
      return true;
    case Op::shfl_sync:
      return !k.subgroups && !shuffles_one_value(k, i);
    case Op::vote_sync:
    case Op::match_any_sync:
    case Op::redux_sync:
    case Op::ldmatrix:
    case Op::mma:
      return !k.subgroups;
    default:
      return false;
  }
}

bool native_product(const Kernel& k, const Inst& i) {
  return k.subgroups && (i.has(Mod::bf16) ? k.layout.matrix_bf16 : k.layout.matrix_f16).has_value();
}

bool shuffles_one_value(const Kernel& k, const Inst& i) {
  const Operand& o = i.operands[1];
  return o.kind == OperandKind::imm || (o.kind == OperandKind::reg && k.of_warp[o.reg]);
}

namespace {

/// What is translated at all; the lowering refuses forms of these one by one.
bool portable(const Inst& i) {
  if (is_hint(i)) return true;
  switch (ptx::family(i.op)) {
    case Family::integer:
    case Family::floating:
    case Family::half_precision:
    case Family::logic:
    case Family::compare:
    case Family::move:
    case Family::atomic:
      return true;
    case Family::memory:
      return i.op == Op::ld || i.op == Op::ldu || i.op == Op::st;
    case Family::matrix:
      return i.op == Op::mma || i.op == Op::ldmatrix;
    case Family::async:
      return is_copy(i) || orders_copies(i);
    case Family::control:
      return i.op == Op::bra || i.op == Op::ret || i.op == Op::exit;
    case Family::barrier:
    case Family::warp:
      switch (i.op) {
        case Op::bar_sync:
        case Op::barrier_sync:
        case Op::bar_red:
        case Op::barrier_red:
        case Op::bar_warp_sync:
        case Op::membar:
        case Op::fence:
        case Op::shfl_sync:
        case Op::vote_sync:
        case Op::match_any_sync:
        case Op::redux_sync:
          return true;
        default:
          return false;
      }
    default:
      return false;
  }
}

/// Whether all threads of a workgroup hold the same value wherever they hold it, as a shader compiler can see it:
/// nothing that was loaded counts as the same.
class Divergence {
 public:
  explicit Divergence(Kernel& k) : k_(k), f_(*k.function) {}
  void run() {
    k_.divergent.assign(f_.regs.size(), 0);
    k_.divergent_flag.assign(k_.structure.flags, 0);
    for (changed_ = true; changed_;) {
      changed_ = false;
      exits_ = false;
      list(k_.structure.statements, false);
    }
  }

 private:
  void mark(std::uint8_t& at) {
    if (!at) at = 1, changed_ = true;
  }

  bool divergent(const Operand& o) const {
    if (o.kind == OperandKind::sreg)
      return o.sreg != ptx::Sreg::ctaid_x && o.sreg != ptx::Sreg::ctaid_y && o.sreg != ptx::Sreg::ctaid_z &&
             o.sreg != ptx::Sreg::nctaid_x && o.sreg != ptx::Sreg::nctaid_y &&
             o.sreg != ptx::Sreg::nctaid_z && o.sreg != ptx::Sreg::ntid_x && o.sreg != ptx::Sreg::ntid_y &&
             o.sreg != ptx::Sreg::ntid_z;
    return std::any_of(o.elems.begin(), o.elems.end(), [&](const Operand& e) { return divergent(e); });
  }

  void code(ptx::BlockId block, bool differs) {
    for (std::uint32_t n = k_.cfg.blocks[block].first; n < k_.cfg.blocks[block].last; ++n) {
      const Inst& i = f_.body[n];
      bool own = differs || ptx::family(i.op) == Family::atomic || ptx::family(i.op) == Family::warp ||
                 ptx::family(i.op) == Family::barrier || ptx::family(i.op) == Family::matrix;
      if (i.op == Op::ld && space_of(i) != Space::param && space_of(i) != Space::constant) own = true;
      for (const auto& o : i.operands) own = own || divergent(o);
      ptx::registers_of(i, uses_);
      for (const auto& u : uses_) own = own || (u.read && k_.divergent[u.reg]);
      if (!own) continue;
      for (const auto& u : uses_)
        if (u.written) mark(k_.divergent[u.reg]);
    }
  }

  /// Returns whether some threads may have left the list before its end while others have not.
  void list(const std::vector<Statement>& l, bool differs) {
    using Kind = Statement::Kind;
    for (const auto& s : l) {
      switch (s.kind) {
        case Kind::code:
          code(s.block, differs);
          break;
        case Kind::branch: {
          const bool own = differs || k_.divergent[s.condition];
          list(s.body, own);
          list(s.otherwise, own);
          break;
        }
        case Kind::unless: {
          bool own = differs;
          for (auto f : s.flags) own = own || k_.divergent_flag[f];
          list(s.body, own);
          break;
        }
        case Kind::loop: {
          const bool outer = exits_;
          exits_ = false;
          list(s.body, differs);
          // Threads that leave at different times run the body at different times.
          if (exits_) list(s.body, true);
          exits_ = outer;
          break;
        }
        case Kind::leave:
        case Kind::next:
          if (differs) exits_ = true;
          break;
        case Kind::if_leave:
          if (differs || k_.divergent_flag[s.flags[0]]) exits_ = true;
          break;
        case Kind::set:
        case Kind::clear:
          if (differs) mark(k_.divergent_flag[s.flags[0]]);
          break;
      }
      if (exits_) differs = true;  // behind a break or continue that some threads took
    }
  }

  Kernel& k_;
  const ptx::Function& f_;
  bool changed_ = false, exits_ = false;
  std::vector<ptx::RegisterUse> uses_;
};

/// Registers that are written once, with %warpid or with %tid.x shifted so that the lane is lost.
void find_warp_values(Kernel& k) {
  const auto& f = *k.function;
  const auto& block = k.layout.shader.block;
  std::vector<std::uint32_t> writers(f.regs.size());
  std::vector<const Inst*> writer(f.regs.size());
  std::vector<ptx::RegisterUse> uses;
  for (const Inst& i : f.body) {
    ptx::registers_of(i, uses);
    for (const auto& u : uses)
      if (u.written) ++writers[u.reg], writer[u.reg] = &i;
  }
  const auto once = [&](ptx::RegId r) {
    return writers[r] == 1 && writer[r]->guard == kNone ? writer[r] : nullptr;
  };
  const auto reads = [&](const Operand& o, ptx::Sreg s) {
    if (o.kind == OperandKind::sreg) return o.sreg == s;
    const Inst* w = o.kind == OperandKind::reg && o.reg != kNone ? once(o.reg) : nullptr;
    return w && w->op == Op::mov && w->operands[1].kind == OperandKind::sreg && w->operands[1].sreg == s;
  };
  const bool rows = block[0] % 32 == 0 || (block[1] == 1 && block[2] == 1);
  k.of_warp.assign(f.regs.size(), 0);
  for (ptx::RegId r = 0; r < f.regs.size(); ++r) {
    const Inst* w = once(r);
    if (!w) continue;
    if (w->op == Op::mov) k.of_warp[r] = reads(w->operands[1], ptx::Sreg::warpid);
    if (w->op == Op::shr && rows && w->operands[2].kind == OperandKind::imm && w->operands[2].imm >= 5)
      k.of_warp[r] = reads(w->operands[1], ptx::Sreg::tid_x);
  }
}

void check_options(const ShaderOptions& o, const ptx::Function& f, Kernel& k) {
  auto& block = k.layout.shader.block;
  block = f.reqntid ? *f.reqntid : o.block;
  std::uint64_t threads = 1;
  for (auto n : block) {
    if (n == 0 || n > 1024)
      throw ArgumentError(ErrorText{"a workgroup has 1 to 1024 threads a dimension",
                                    "ShaderOptions::block",
                                    text::cat("given: ", n),
                                    {}});
    threads *= n;
  }
  if (threads > 1024)
    throw ArgumentError(ErrorText{
        "a workgroup has at most 1024 threads", "ShaderOptions::block", text::cat("given: ", threads), {}});
  k.layout.shader.needs.threads = std::uint32_t(threads);
  if (f.reqnctapercluster &&
      (*f.reqnctapercluster)[0] * (*f.reqnctapercluster)[1] * (*f.reqnctapercluster)[2] > 1)
    throw BuildError(ErrorText{
        "a shader has no clusters", k.module->text(f.name), "the kernel asks for clusters of blocks", {}});
}

void find_parameters(Kernel& k, const ShaderOptions& o, bool wgsl) {
  const auto& f = *k.function;
  auto& facts = k.facts;
  auto& out = k.layout.shader.parameters;
  std::vector<std::int32_t> root_of;  // per parameter: its root, or -1
  for (const auto& p : f.params) {
    const std::uint64_t offset = facts.address[p.name];
    bool any = false;
    for (std::size_t r = 0; r < facts.roots.size(); ++r) {
      if (facts.roots[r].parameter != p.name) continue;
      out.push_back(
          {facts.roots[r].name, Parameter::Kind::pointer, std::uint32_t(facts.roots[r].offset), 8, 0, false});
      root_of.push_back(std::int32_t(r));
      any = true;
    }
    if (any && !p.is_array) continue;
    if (!p.is_ptr && p.bytes() == 8 && any) continue;
    out.push_back({k.module->text(p.name), p.is_ptr ? Parameter::Kind::pointer : Parameter::Kind::scalar,
                   std::uint32_t(offset), std::uint32_t(p.bytes()), 0, false});
    root_of.push_back(-1);
  }
  k.layout.shader.block_bytes = std::uint32_t((facts.block_bytes + 15) / 16 * 16);
  // How each pointer is used.
  std::vector<Access> access(facts.roots.size());
  std::vector<std::uint8_t> touched(facts.roots.size());
  auto& shared = k.layout.shared;
  auto& needs = k.layout.shader.needs;
  for (ptx::BlockId b : k.cfg.order)
    for (std::uint32_t n = k.cfg.blocks[b].first; n < k.cfg.blocks[b].last; ++n) {
      const Inst& i = f.body[n];
      if (!facts.live[n] || is_hint(i)) continue;
      if (needs_workgroup(k, i) && i.op != Op::bar_sync && i.op != Op::barrier_sync) k.layout.votes = true;
      if (needs_workgroup(k, i) && i.op != Op::bar_sync && i.op != Op::barrier_sync &&
          i.op != Op::bar_warp_sync)
        k.layout.exchange_words =
            std::max(k.layout.exchange_words, (needs.threads + 31) / 32 * 32 * (i.op == Op::mma ? 6 : 1));
      const bool native = i.op == Op::mma && native_product(k, i);
      if (native) (i.has(Mod::bf16) ? needs.matrix_bf16 : needs.matrix_f16) = true;
      if (k.subgroups &&
          ((ptx::family(i.op) == Family::warp && !(i.op == Op::shfl_sync && shuffles_one_value(k, i))) ||
           (ptx::family(i.op) == Family::matrix && !native)))
        needs.subgroups = true;
      if (i.op == Op::ldmatrix || is_copy(i)) {
        shared.floats = false;
        shared.vectors = shared.vectors && is_copy(i) && i.operands[2].imm == 16;
        (is_copy(i) ? shared.written : shared.read) = true;
      }
      if (is_copy(i)) {
        const Operand& from = i.operands[1];
        const std::int32_t r = from.reg == kNone ? kNumber : facts.root[from.reg];
        if (r == kNumber || facts.roots[std::size_t(r)].parameter == kNone) continue;
        Access& to = access[std::size_t(r)];
        // WGSL: a copy of fewer bytes than asked for reads word by word.
        to.read = true, to.floats = false;
        to.vectors = to.vectors && i.operands[2].imm == 16 && i.operands.size() == 3;
        touched[std::size_t(r)] = 1;
        continue;
      }
      const bool atomic = ptx::family(i.op) == Family::atomic;
      if (!(i.op == Op::ld || i.op == Op::ldu || i.op == Op::st || atomic)) continue;
      const Operand* a = nullptr;
      for (const auto& x : i.operands)
        if (x.kind == OperandKind::address) a = &x;
      const bool store = i.op == Op::st;
      const auto merge = [&](Access& to) {
        to.read = to.read || !store;
        to.written = to.written || store || atomic;
        const bool strong =
            i.has(Mod::volatile_) || i.has(Mod::relaxed) || i.has(Mod::acquire) || i.has(Mod::release);
        to.atomic = to.atomic || atomic || strong || (store && access_bits(i) < 32);
        const Operand& data = i.operands[store ? 1 : 0];
        const auto is_float = [&](const Operand& x) {
          return x.kind == OperandKind::f32_imm ||
                 (x.kind == OperandKind::reg && x.reg != kNone && facts.type[x.reg] == Type::f32);
        };
        const bool floats = data.kind == OperandKind::vector
                                ? std::all_of(data.elems.begin(), data.elems.end(), is_float)
                                : is_float(data);
        to.floats = to.floats && !atomic && access_bits(i) == 32 && floats;
        to.vectors = to.vectors && !atomic && access_bits(i) * access_count(i) == 128;
      };
      const Space space = space_of(i);
      if (space == Space::shared) merge(shared);
      if (space != Space::global || !a || a->reg == kNone) continue;
      const std::int32_t r = facts.root[a->reg];
      if (r != kNumber && facts.roots[std::size_t(r)].parameter == kNone) continue;
      if (access_bits(i) == 16) needs.storage16 = true;
      if (access_bits(i) == 8) needs.storage8 = true;
      if (r == kNumber) continue;
      merge(access[std::size_t(r)]);
      touched[std::size_t(r)] = 1;
    }
  k.layout.shared_words = std::uint32_t((facts.shared_bytes + 3) / 4);
  // Bindings, in the order of the parameters.
  k.binding.assign(facts.roots.size(), -1);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> groups;  // number in the options, binding
  std::uint32_t pointer = 0;
  for (std::size_t p = 0; p < out.size(); ++p) {
    if (out[p].kind != Parameter::Kind::pointer) continue;
    const std::uint32_t number = pointer++;
    const std::int32_t r = root_of[p];
    if (r < 0 || !touched[std::size_t(r)]) continue;
    out[p].writable = access[std::size_t(r)].written;
    if (!wgsl) continue;
    if (!o.buffers.empty() && number >= o.buffers.size())
      throw ArgumentError(ErrorText{"ShaderOptions::buffers has one number for each pointer parameter",
                                    k.module->text(f.name),
                                    text::cat("given: ", o.buffers.size()),
                                    {}});
    const std::uint32_t group = o.buffers.empty() ? number : o.buffers[number];
    auto at = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == group; });
    if (at == groups.end()) {
      groups.emplace_back(group, std::uint32_t(k.layout.buffers.size()));
      k.layout.buffers.push_back(access[std::size_t(r)]);
      at = groups.end() - 1;
    } else {
      Access& to = k.layout.buffers[at->second];
      const Access& from = access[std::size_t(r)];
      to.read |= from.read, to.written |= from.written, to.atomic |= from.atomic;
      to.floats &= from.floats, to.vectors &= from.vectors;
    }
    k.binding[std::size_t(r)] = std::int32_t(at->second);
    out[p].binding = at->second + 1;
  }
  for (std::size_t p = 0; p < out.size(); ++p)
    if (root_of[p] >= 0 && wgsl && out[p].binding)
      out[p].writable = k.layout.buffers[out[p].binding - 1].written;
  needs.storage_buffers = std::uint32_t(k.layout.buffers.size());
  if (wgsl) {
    needs.storage16 = needs.storage8 = false;
  } else {
    needs.int64 = true;
    needs.device_address = true;
    k.layout.shader.block_by_address = k.layout.shader.block_bytes > o.push_constants;
  }
}

}  // namespace

void find_divergence(Kernel& k) { Divergence(k).run(); }

Kernel prepare(const ptx::Module& m, std::string_view entry, const ShaderOptions& o, bool wgsl) {
  ptx::CheckOptions foreign;
  foreign.foreign = true;
  ptx::verify(m, foreign);
  Kernel k;
  k.module = &m;
  k.function = m.find(entry);
  if (!k.function || !k.function->entry || !k.function->has_body)
    throw ArgumentError(ErrorText{"the module has no such kernel", std::string(entry), {}, {}});
  const auto& f = *k.function;
  k.subgroups = o.subgroup_size == 32;
  k.static_uniformity = wgsl;
  k.layout.native64 = !wgsl;
  k.layout.float16 = !wgsl && o.float16;
  k.layout.wide_shared = !wgsl && o.wide_shared;
  k.layout.narrow_shared = !wgsl && o.wide_shared && o.narrow_shared;
  if (!wgsl) k.layout.matrix_f16 = o.matrix_f16, k.layout.matrix_bf16 = o.matrix_bf16;
  k.layout.shader.entry = m.text(f.name);
  check_options(o, f, k);
  k.cfg = ptx::build_cfg(f);
  for (ptx::BlockId b : k.cfg.order)
    for (std::uint32_t n = k.cfg.blocks[b].first; n < k.cfg.blocks[b].last; ++n)
      if (!portable(f.body[n]))
        refuse(m, f, n, text::cat("a shader cannot do ", ptx::name(f.body[n].op)),
               "only the portable subset is translated (docs/shader.md)");
  k.structure = structured(m, f, k.cfg);
  k.facts = find_facts(m, f, k.cfg, o.dynamic_shared, wgsl);
  find_divergence(k);
  find_warp_values(k);
  find_parameters(k, o, wgsl);
  k.layout.subgroup_directive = o.subgroup_directive;
  k.layout.subgroups = k.layout.shader.needs.subgroups;
  k.layout.local_words = std::uint32_t((k.facts.local_bytes + 3) / 4);
  for (std::size_t i = 0; i + 3 < k.facts.constants.size(); i += 4)
    k.layout.constants.push_back(
        std::uint32_t(k.facts.constants[i]) | std::uint32_t(k.facts.constants[i + 1]) << 8 |
        std::uint32_t(k.facts.constants[i + 2]) << 16 | std::uint32_t(k.facts.constants[i + 3]) << 24);
  return k;
}

}  // namespace cgp::shader
