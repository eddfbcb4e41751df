// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/core/record.h"

#include <bit>
#include <cstring>

#include "cgp/base/text.h"
#include "cgp/dsl/core/val.h"

namespace cgp::dsl {
using ptx::Mod;
using ptx::Op;
using ptx::Operand;
using ptx::RegId;
using text::cat;

std::string_view name(Uniform u) {
  constexpr std::string_view names[] = {"thread", "warp", "warpgroup", "block", "cluster", "grid"};
  return names[int(u)];
}

namespace {

struct ClassInfo {
  const char* prefix;
  Mod type;
};
constexpr ClassInfo kClasses[] = {{"%p", Mod::pred}, {"%h", Mod::b16},  {"%r", Mod::b32},   {"%f", Mod::f32},
                                  {"%rd", Mod::b64}, {"%fd", Mod::f64}, {"%rq", Mod::b128}, {"%b", Mod::b8}};

Mod mov_type(RegClass c) { return kClasses[int(c)].type; }

std::string where(Here at) { return cat(at.file, ":", at.line); }

int parse_sm(const std::string& target) {
  int sm = 0;
  if (target.rfind("sm_", 0) == 0)
    for (std::size_t i = 3; i < target.size() && target[i] >= '0' && target[i] <= '9'; ++i)
      sm = sm * 10 + (target[i] - '0');
  return sm;
}

bool is_identifier(const std::string& s) {
  if (s.empty() || (s[0] >= '0' && s[0] <= '9')) return false;
  for (char c : s)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$'))
      return false;
  return true;
}

/// Lines inside the language's headers belong to the statement that called them.
bool is_own_header(std::string_view file) {
  return file.size() > 2 && file.substr(file.size() - 2) == ".h" &&
         file.find("cgp/dsl/") != std::string_view::npos;
}

}  // namespace

Kernel::Kernel(ptx::Module& module, std::string name, Here at)
    : module_(module), name_(std::move(name)), born_(at), here_(at) {
  if (!is_identifier(name_))
    throw BuildError(
        "a kernel's name is a PTX identifier: letters, digits, _ and $, not starting with a digit", at,
        cat("got \"", name_, "\""));
  if (module_.find(name_)) throw BuildError(cat("two kernels of one module are called ", name_), at);
  sm_ = parse_sm(module_.target);
  if (sm_ < 50)
    throw BuildError("the target names an architecture, like sm_90a", at,
                     cat("got \"", module_.target, "\""));
  arch_specific_ = module_.target.back() == 'a' || module_.target.back() == 'f';
  f_.name = module_.intern(name_);
  f_.entry = true;
  f_.linkage = ptx::Linkage::visible;
  f_.has_body = true;
  f_.body.reserve(256);
  f_.regs.reserve(256);
  all_regions_.push_back({"kernel", Uniform::grid, at, 0});
  region_open_.push_back(true);
  regions_.push_back(all_regions_[0]);
  // The prologue: the shared base and the warp's index. Removed by finish() when nothing reads them.
  smem_symbol_ = module_.intern(cat("smem_", name_));
  const Value base = fresh(Mod::u32, Uniform::grid);
  smem_reg_ = base.reg();
  inst(Op::mov, {Mod::u32}, {Operand::of(smem_reg_), Operand::sym(smem_symbol_)});
  const Value tid = special(ptx::Sreg::tid_x, Uniform::thread);
  const Value w = op(Op::shr, {Mod::u32}, Mod::u32, {tid, Value::literal(5, Mod::u32)});
  const Value index = fresh(Mod::u32, Uniform::warp);
  warp_index_reg_ = index.reg();
  inst(Op::shfl_sync, {Mod::idx, Mod::b32},
       {Operand::of(warp_index_reg_), Operand::of(w.reg()), Operand::integer(0), Operand::integer(31),
        Operand::integer(-1)});
}

// ---------------------------------------------------------------- instructions
std::uint32_t Kernel::line() {
  if (here_.file == loc_at_.file && here_.line == loc_at_.line && loc_ != ptx::kNone) return loc_;
  if (here_.line <= 0 || here_.file == own_file_) return loc_;
  if (here_.file != last_file_) {
    if (is_own_header(here_.file)) {
      own_file_ = here_.file;
      return loc_;
    }
    last_file_ = here_.file;
    last_file_number_ = 0;
    for (auto& [number, path] : module_.files)
      if (path == here_.file) last_file_number_ = number;
    if (!last_file_number_) {
      last_file_number_ = std::uint32_t(module_.files.size() + 1);
      module_.files.emplace_back(last_file_number_, here_.file);
    }
  }
  loc_at_ = here_;
  loc_ = std::uint32_t(module_.locs.size());
  ptx::Loc l;
  l.file = last_file_number_;
  l.line = here_.line;
  module_.locs.push_back(l);
  return loc_;
}

ptx::Inst& Kernel::inst(Op op, ptx::Mods mods, std::vector<Operand> operands) {
  ptx::Inst& i = f_.body.emplace_back();
  i.op = op;
  i.mods = mods;
  i.guard = guard_;
  i.operands = std::move(operands);
  i.loc = line();
  return i;
}

Value Kernel::fresh(Mod type, Uniform u) {
  const auto c = reg_class(type, ptx::type_bits(type));
  const RegId id = RegId(f_.regs.size());
  ptx::Reg& r = f_.regs.emplace_back();
  r.type = kClasses[int(c)].type;  // named by simplify(), once the dead ones are gone
  reg_region_.push_back(home_region_ != ptx::kNone ? home_region_ : regions_.back().serial);
  return Value(this, id, type, u);
}

void Kernel::escaped(RegId r) const {
  const Region& g = all_regions_[reg_region_[r]];
  throw BuildError(cat("a value made inside the body of ", g.kind, " does not exist outside it"), here_,
                   cat("the ", g.kind, " is at ", where(g.at), ", this use is recorded after it"),
                   "return it from the body (k.if_ and k.loop hand back values)");
}

Operand Kernel::materialise(const Value& v) {
  const Mod t = v.type();
  const auto c = reg_class(t, ptx::type_bits(t));
  const Value r = fresh(t, Uniform::grid);
  Operand from;
  if (t == Mod::f32) {
    from.kind = ptx::OperandKind::f32_imm;
    from.imm = v.bits();
  } else if (t == Mod::f64) {
    from.kind = ptx::OperandKind::f64_imm;
    from.imm = v.bits();
  } else {
    from = operand(v.as(t == Mod::pred || c == RegClass::b ? Mod::u32 : bits_mod(ptx::type_bits(t))));
  }
  const auto guard = std::exchange(guard_, ptx::kNone);
  if (c == RegClass::b)
    inst(Op::cvt, {Mod::u8, Mod::u32}, {Operand::of(r.reg()), from});  // mov has no 8-bit form
  else
    inst(Op::mov, {mov_type(c)}, {Operand::of(r.reg()), from});
  guard_ = guard;
  return Operand::of(r.reg());
}

Operand Kernel::operand(const Value& v) {
  if (!v.is_literal()) {
    if (v.kernel() != this)
      throw BuildError("values of two different kernels meet in one operation", here_,
                       cat("one belongs to ", v.kernel()->name_, ", the other to ", name_));
    if (!region_open_[reg_region_[v.reg()]]) escaped(v.reg());
    return Operand::of(v.reg());
  }
  Operand o;
  switch (kind_of(v.type())) {
    case Kind::unsigned_int:
    case Kind::bits:
      if (ptx::type_bits(v.type()) > 64) return materialise(v);
      return Operand::integer(std::int64_t(v.bits()));
    case Kind::signed_int: {
      const int unused = 64 - ptx::type_bits(v.type());
      return Operand::integer(std::int64_t(v.bits() << unused) >> unused);
    }
    case Kind::floating:
      if (v.type() == Mod::f32 || v.type() == Mod::f64) {
        o.kind = v.type() == Mod::f32 ? ptx::OperandKind::f32_imm : ptx::OperandKind::f64_imm;
        o.imm = v.bits();
        return o;
      }
      return materialise(v);
    default:
      return materialise(v);  // no immediates for half floats, packed values and predicates
  }
}

Operand Kernel::in_register(const Value& v) { return v.is_literal() ? materialise(v) : operand(v); }

Value Kernel::op(Op op, ptx::Mods mods, Mod type, Values in) {
  Uniform u = Uniform::grid;
  std::vector<Operand> operands;
  operands.reserve(in.size() + 1);
  operands.emplace_back();
  for (const Value& v : in) {
    u = min_of(u, v.uniform());
    operands.push_back(operand(v));
  }
  const Value d = fresh(type, u);
  operands[0] = Operand::of(d.reg());
  inst(op, mods, std::move(operands));
  return d;
}

void Kernel::mov_op(const Value& home, Op op, ptx::Mods mods, Values in) {
  std::vector<Operand> operands{operand(home)};
  for (const Value& v : in) operands.push_back(operand(v));
  inst(op, mods, std::move(operands));
}

void Kernel::effect(Op op, ptx::Mods mods, Values in) {
  std::vector<Operand> operands;
  operands.reserve(in.size());
  for (const Value& v : in) operands.push_back(operand(v));
  inst(op, mods, std::move(operands));
}

Value Kernel::copy(const Value& v) {
  const Value r = fresh(v.type(), v.uniform());
  mov(r, v);
  return r;
}

void Kernel::mov(const Value& home, const Value& v) {
  const Mod t = mov_type(reg_class(home.type(), ptx::type_bits(home.type())));
  Operand from;
  if (v.is_literal() && t != Mod::f32 && t != Mod::f64 && t != Mod::b128)
    from = operand(v.as(
        t == Mod::pred || t == Mod::b8 ? Mod::u32 : t));  // mov takes the bits of halves and predicates too
  else
    from = operand(v);
  if (t == Mod::b8)
    inst(Op::cvt, {Mod::u8, v.is_literal() ? Mod::u32 : Mod::u8},
         {operand(home), from});  // mov has no 8-bit form
  else
    inst(Op::mov, {t}, {operand(home), from});
}

Value Kernel::special(ptx::Sreg s, Uniform u) {
  const Mod t = ptx::bits(s) == 64 ? Mod::u64 : Mod::u32;
  const Value d = fresh(t, u);
  inst(Op::mov, {t}, {Operand::of(d.reg()), Operand::special(s)});
  return d;
}

// ---------------------------------------------------------------- labels and branches
ptx::LabelId Kernel::new_label() {
  f_.labels.push_back({{}, ptx::kNone});
  return ptx::LabelId(f_.labels.size() - 1);
}
void Kernel::place(ptx::LabelId l) { f_.labels[l].position = std::uint32_t(f_.body.size()); }
void Kernel::bra(ptx::LabelId l) { inst(Op::bra, {}, {Operand::target(l)}); }
void Kernel::bra_if(const Value& p, bool sense, ptx::LabelId l) {
  const RegId guard = register_of(p);
  ptx::Inst& i = inst(Op::bra, {}, {Operand::target(l)});
  i.guard = guard;
  i.guard_negated = !sense;
}

// ---------------------------------------------------------------- parameters, memory, launch shape
ptx::SymbolId Kernel::param(ParamInfo info, bool is_ptr) {
  if (info.name.empty()) info.name = cat("p", params_.size());
  ptx::Var v;
  v.name = module_.intern(info.name);
  v.space = ptx::Space::param;
  v.align = 0;
  if (info.kind == ParamInfo::Kind::scalar) {
    v.type = info.type == Mod::pred ? Mod::u8 : memory_mod(info.type, ptx::type_bits(info.type));
  } else if (info.kind == ParamInfo::Kind::pointer) {
    v.type = Mod::u64;
    v.is_ptr = is_ptr;
    v.ptr_space = ptx::Space::global;
    v.ptr_align = std::uint32_t(std::max(1, ptx::type_bits(info.type) / 8));  // all that a launch promises
  } else {
    v.type = Mod::b8;
    v.align = info.align;
    v.is_array = true;
    v.dims = {info.size};
  }
  f_.params.push_back(v);
  params_.push_back(std::move(info));
  return v.name;
}

ParamInfo& Kernel::param_info(ptx::SymbolId p) {
  for (std::size_t i = 0; i < f_.params.size(); ++i)
    if (f_.params[i].name == p) return params_[i];
  throw BuildError("no parameter of this kernel has that symbol", here_);
}

Value Kernel::load_param(ptx::SymbolId p, Mod type, int offset) {
  const Value d = fresh(type, Uniform::grid);
  inst(Op::ld, {Mod::param, memory_mod(type, ptx::type_bits(type))},
       {Operand::of(d.reg()), Operand::at_symbol(p, offset)});
  return d;
}

int Kernel::smem(int bytes, int align, Here at) {
  if (bytes <= 0 || align <= 0 || (align & (align - 1)))
    throw BuildError("shared memory needs a positive size and a power-of-two alignment", at,
                     cat(bytes, " bytes aligned to ", align));
  const std::int64_t start = (std::int64_t(smem_bytes_) + align - 1) / align * align;
  if (start + bytes > (1 << 30)) throw BuildError("shared memory layout exceeds any device", at);
  smem_bytes_ = int(start) + bytes;
  smem_align_ = std::max(smem_align_, align);
  return int(start);
}

Val<u32> Kernel::smem_addr(int offset, Here at) {
  const Value base(this, smem_reg_, Mod::u32, Uniform::grid);
  if (offset == 0) return Val<u32>(base);
  return Val<u32>(
      op(Op::add, {Mod::u32}, Mod::u32, {base, Value::literal(std::uint32_t(offset), Mod::u32)}, at));
}

Kernel& Kernel::block(int x, int y, int z, Here at) {
  const std::int64_t n = std::int64_t(x) * y * z;
  if (x < 1 || y < 1 || z < 1 || n > 1024 || z > 64)
    throw BuildError("a block has 1 to 1024 threads, at most 64 of them along z", at,
                     cat(x, " x ", y, " x ", z, " = ", n, " threads"));
  block_ = {x, y, z};
  return *this;
}
Kernel& Kernel::max_threads(int threads, Here at) {
  if (threads < 1 || threads > 1024)
    throw BuildError("a block has 1 to 1024 threads", at, cat("max_threads(", threads, ")"));
  max_threads_ = threads;
  return *this;
}
Kernel& Kernel::cluster(int x, int y, int z, Here at) {
  needs_sm(90, "a cluster", at);
  const std::int64_t n = std::int64_t(x) * y * z;
  if (x < 1 || y < 1 || z < 1 || n > 16)
    throw BuildError("a cluster has 1 to 16 blocks (8 portably)", at, cat(x, " x ", y, " x ", z));
  cluster_ = {x, y, z};
  return *this;
}
void Kernel::note_role(int first_warp, int threads, int registers, std::shared_ptr<bool> ran, Here at) {
  roles_.push_back({first_warp, threads, registers, std::move(ran), at});
}

namespace record_impl {

namespace {
std::uint64_t fold(Op op, std::uint64_t a, std::uint64_t b) {
  switch (op) {
    case Op::add:
      return a + b;
    case Op::sub:
      return a - b;
    case Op::mul:
      return a * b;
    case Op::and_:
      return a & b;
    case Op::or_:
      return a | b;
    case Op::xor_:
      return a ^ b;
    default:
      return 0;
  }
}
}  // namespace

Value binary(Op op, ptx::Mods mods, Mod type, const Value& a, const Value& b, Here at) {
  Kernel* k = a.kernel() ? a.kernel() : b.kernel();
  // ptxas 13.0 calls its routine of some 70 instructions for u64 by a power of two as well.
  const bool divides = op == Op::div || op == Op::rem;
  if (k && divides && type == Mod::u64 && b.is_literal() && std::has_single_bit(b.bits())) {
    if (op == Op::rem) return k->op(Op::and_, {Mod::b64}, type, {a, Value::literal(b.bits() - 1, type)}, at);
    if (b.bits() == 1) return a;
    return k->op(Op::shr, {type}, type,
                 {a, Value::literal(std::uint64_t(std::countr_zero(b.bits())), Mod::u32)}, at);
  }
  if (k) return k->op(op, mods, type, {a, b}, at);
  const Kind kind = kind_of(type);
  const bool foldable =
      op == Op::add || op == Op::sub || op == Op::mul || op == Op::and_ || op == Op::or_ || op == Op::xor_;
  if (foldable && (kind == Kind::unsigned_int || kind == Kind::signed_int || kind == Kind::bits) &&
      ptx::type_bits(type) <= 64) {
    const int bits = ptx::type_bits(type);
    const std::uint64_t mask = bits == 64 ? ~0ull : (1ull << bits) - 1;
    return Value::literal(fold(op, a.bits(), b.bits()) & mask, type);
  }
  throw BuildError("an operation on literals alone belongs to no kernel", at,
                   cat("both operands of ", ptx::name(op), " are C++ numbers"), "compute it in C++");
}

Value unary(Op op, ptx::Mods mods, Mod type, const Value& a, Here at) {
  if (Kernel* k = a.kernel()) return at.line ? k->op(op, mods, type, {a}, at) : k->op(op, mods, type, {a});
  throw BuildError("an operation on literals alone belongs to no kernel", at,
                   cat("the operand of ", ptx::name(op), " is a C++ number"), "compute it in C++");
}

}  // namespace record_impl
}  // namespace cgp::dsl
