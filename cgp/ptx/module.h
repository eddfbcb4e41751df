// SPDX-License-Identifier: Apache-2.0
#pragma once
// PTX as data. A Module is what the parser reads, the DSL records, the verifier checks, the printer prints
// and the emulator decodes. Everything is plain values: no pointers into other parts, so modules copy and
// compare. Reading order: Inst and Operand here, then opcodes.def (which instructions exist), print.h,
// parse.h, verify.h.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/base/error.h"

namespace cgp::ptx {

// ---------------------------------------------------------------- opcodes
/// What an instruction does, for the emulator's dispatch and the instruction mix.
enum class Family : std::uint8_t {
#define CGP_FAMILY(id, text) id,
#include "cgp/ptx/opcodes.def"
  kCount
};
std::string_view name(Family f);

/// One enumerator per opcode; the dotted name is the longest prefix that fixes the operation, so
/// "cp.async.bulk.tensor" and "mbarrier.try_wait" are opcodes and "ld.global.nc" is `ld` with modifiers.
enum class Op : std::uint16_t {
#define CGP_OP(id, text, family, forms) id,
#include "cgp/ptx/opcodes.def"
  kCount
};
std::string_view name(Op op);
Family family(Op op);
std::optional<Op> parse_op(std::string_view dotted);

// ---------------------------------------------------------------- modifiers and types
/// Everything that may follow a dot after the opcode: `.rn`, `.shared::cta`, `.v4`, `.f32`, `.m16n8k16`.
/// Types come first, so that a Type is also a Mod (see modifiers.def).
enum class Mod : std::uint16_t {
#define CGP_MOD(id, text, type_bits) id,
#include "cgp/ptx/modifiers.def"
  kCount
};
std::string_view name(Mod m);
std::optional<Mod> parse_mod(std::string_view text);
/// Bits of one element of a type modifier; 0 for modifiers that are not types. pred counts as 1.
int type_bits(Mod m);
inline bool is_type(Mod m) { return type_bits(m) != 0; }
bool is_float(Mod m);   ///< f16 bf16 tf32 f32 f64 and their packed and 8/6/4-bit relatives
bool is_signed(Mod m);  ///< s8 s16 s32 s64
inline constexpr Mod kNoMod = Mod::kCount;

/// State spaces of variables and addresses.
enum class Space : std::uint8_t { generic, reg, global, shared, local, constant, param };
std::string_view name(Space s);

// ---------------------------------------------------------------- operands
using RegId = std::uint32_t;     ///< index into Function::regs
using SymbolId = std::uint32_t;  ///< index into Module::symbols (interned names of variables and functions)
using LabelId = std::uint32_t;   ///< index into Function::labels
inline constexpr std::uint32_t kNone = 0xffffffffu;

/// Special registers (%tid.x ...): name() is the text without '%'.
enum class Sreg : std::uint8_t {
#define CGP_SREG(id, text, bits) id,
#include "cgp/ptx/special.def"
  kCount
};
std::string_view name(Sreg s);
int bits(Sreg s);
std::optional<Sreg> parse_sreg(std::string_view text);

enum class OperandKind : std::uint8_t {
  reg,      ///< register; `negated` is !%p; `reg2` is the second of a dual destination %p|%q (or kNone)
  imm,      ///< integer literal, value in `imm` as a 64-bit two's complement pattern
  f32_imm,  ///< 0fXXXXXXXX, bits in `imm`
  f64_imm,  ///< 0dXXXXXXXXXXXXXXXX, bits in `imm`
  sreg,     ///< special register, in `sreg`
  symbol,  ///< address of (or, in ld.param-style calls, the name of) a variable or function, plus `imm` bytes
  address,  ///< [base + imm]: base is `reg`, else `symbol`, else none (absolute). A tensor address
            ///< [map, {x, y}] keeps its coordinate vector in elems[0]
  vector,   ///< {a, b, ...}: the elements are elems
  list,     ///< (a, b, ...): call arguments and results
  label,    ///< branch target, in `label`
  table,    ///< a .branchtargets or .calltargets list, index into Function::tables in `label`
  proto,    ///< a .callprototype, index into Function::prototypes in `label`
  sink,     ///< _
};

struct Operand {
  OperandKind kind = OperandKind::sink;
  bool negated = false;
  Sreg sreg = Sreg::kCount;
  RegId reg = kNone, reg2 = kNone;  ///< `_|%p` is reg == kNone with reg2 set
  SymbolId symbol = kNone;
  LabelId label = kNone;
  std::uint64_t imm = 0;
  std::vector<Operand> elems;

  static Operand of(RegId r, bool negated = false);
  static Operand dual(RegId p, RegId q);
  static Operand integer(std::int64_t v);
  static Operand f32(float v);
  static Operand f64(double v);
  static Operand special(Sreg s);
  static Operand sym(SymbolId s, std::int64_t offset = 0);
  static Operand at(RegId base, std::int64_t offset = 0);         ///< [%r + offset]
  static Operand at_symbol(SymbolId s, std::int64_t offset = 0);  ///< [name + offset]
  static Operand vec(std::vector<Operand> e);
  static Operand vec_of(const std::vector<RegId>& regs);
  static Operand args(std::vector<Operand> e);
  static Operand target(LabelId l);
  static Operand none();  ///< _
};

// ---------------------------------------------------------------- instructions
/// The modifiers of one instruction, in the order they are printed. Fixed storage: no allocation per
/// instruction.
class Mods {
 public:
  static constexpr int kMax = 15;
  Mods() = default;
  Mods(std::initializer_list<Mod> m) {
    for (Mod x : m) push_back(x);
  }
  void push_back(Mod m) {
    if (n_ == kMax) throw Error("an instruction has more than 15 modifiers");
    m_[n_++] = m;
  }
  int size() const { return n_; }
  Mod operator[](int i) const { return m_[std::size_t(i)]; }
  const Mod* begin() const { return m_.data(); }
  const Mod* end() const { return m_.data() + n_; }
  bool has(Mod m) const {
    for (Mod x : *this)
      if (x == m) return true;
    return false;
  }
  friend bool operator==(const Mods& a, const Mods& b) {
    if (a.n_ != b.n_) return false;
    for (int i = 0; i < a.n_; ++i)
      if (a[i] != b[i]) return false;
    return true;
  }

 private:
  std::array<Mod, kMax> m_{};
  std::uint8_t n_ = 0;
};

struct Inst {
  Op op = Op::kCount;
  Mods mods;
  RegId guard = kNone;            ///< @%p; kNone = always
  bool guard_negated = false;     ///< @!%p
  std::vector<Operand> operands;  ///< as written: destinations first
  std::uint32_t loc = kNone;   ///< index into Module::locs (the C++ line that recorded it); kNone = as before
  std::uint32_t ptx_line = 0;  ///< 1-based line in the parsed text; 0 when not parsed. Not compared.

  bool has(Mod m) const { return mods.has(m); }
  /// The i-th type modifier, counted in printed order (cvt.rn.f16.f32: 0 is f16, 1 is f32); kNoMod if absent.
  Mod type(int i = 0) const;
};

/// A position in the C++ source that `.loc` carries into the cubin's line table and the emulator's reports.
struct Loc {
  std::uint32_t file = 0;  ///< the number of the `.file` directive
  int line = 0, column = 0;
  std::uint32_t inlined_at = kNone;  ///< index into Module::locs, for nvcc's `inlined_at`
  std::string function_name;         ///< the inlined function that nvcc's `function_name` names, else empty
  friend bool operator==(const Loc&, const Loc&) = default;
};

// ---------------------------------------------------------------- variables, functions, modules
enum class Linkage : std::uint8_t { none, visible, external, weak, common };

/// One word of an initialiser that is the address of a symbol, or part of it.
struct Relocation {
  std::uint64_t offset = 0;  ///< byte offset in the initialiser
  int bytes = 8;             ///< 8, or 1 for mask(0xff.., sym) pieces
  std::uint64_t mask = ~0ull;
  SymbolId symbol = kNone;
  std::int64_t addend = 0;
  bool generic = false;  ///< generic(sym)
};

struct Var {
  SymbolId name = kNone;
  Space space = Space::generic;
  Linkage linkage = Linkage::none;
  Mod type = Mod::b8;
  int vector = 1;           ///< .v2/.v4 variables
  std::uint32_t align = 0;  ///< 0 = natural
  bool is_array = false;
  std::vector<std::uint64_t>
      dims;              ///< array extents; an extent of 0 is `[]` (extern shared, or from the initialiser)
  bool managed = false;  ///< .attribute(.managed)
  bool has_init = false;
  std::vector<std::uint8_t> init;  ///< initial bytes, zero extended to the variable's size
  std::vector<Relocation> relocs;
  bool is_ptr = false;  ///< kernel parameter with .ptr
  Space ptr_space = Space::generic;
  std::uint32_t ptr_align = 0;

  std::uint64_t bytes() const;      ///< total size; 0 for unsized arrays
  std::uint32_t alignment() const;  ///< align, or the natural one
};

struct Reg {
  std::string name;  ///< with '%' (or as the foreign text spells it)
  Mod type = Mod::b32;
};

/// A label sits before body[position]; several may share one position; position == body.size() is the end.
struct Label {
  std::string name;
  std::uint32_t position = 0;
};
struct Table {  ///< `name: .branchtargets a, b;` or `name: .calltargets f, g;`
  std::string name;
  bool calls = false;
  std::vector<LabelId> labels;
  std::vector<SymbolId> functions;
};
struct Prototype {  ///< `name: .callprototype (ret) _ (params);`
  std::string name;
  std::vector<Var> returns, params;
  bool noreturn = false;
};
struct Pragma {
  std::string text;
  std::uint32_t position = 0;  ///< before body[position]
};

struct Function {
  SymbolId name = kNone;
  bool entry = false;
  Linkage linkage = Linkage::none;
  bool has_body = false;  ///< false: a declaration
  bool noreturn = false;
  std::vector<Var> params, returns;
  // performance and shape directives, absent when not written
  std::optional<std::array<std::uint32_t, 3>> maxntid, reqntid, reqnctapercluster;
  std::optional<std::uint32_t> minnctapersm, maxnctapersm, maxnreg, maxclusterrank;
  bool explicitcluster = false, blocksareclusters = false;
  std::vector<std::string> pragmas;  ///< between signature and body
  std::vector<Reg> regs;  ///< parameters in .reg space (old ABI) are listed here too, under the same name
  std::vector<Var> vars;  ///< declared in the body: .local .shared .const .global .param
  std::vector<Inst> body;
  std::vector<Label> labels;
  std::vector<Table> tables;
  std::vector<Prototype> prototypes;
  std::vector<Pragma> body_pragmas;
};

/// `.alias name, target;`
struct Alias {
  SymbolId name = kNone, target = kNone;
};

struct Version {
  int major = 8, minor = 0;
  friend auto operator<=>(const Version&, const Version&) = default;
};

struct Module {
  Version version;
  std::string target = "sm_80";             ///< first word of .target
  std::vector<std::string> target_options;  ///< debug, texmode_independent, ...
  int address_size = 64;
  std::vector<std::string> symbols;                          ///< interned names, see symbol()
  std::vector<std::pair<std::uint32_t, std::string>> files;  ///< .file number and path
  std::vector<Loc> locs;
  std::vector<Var> vars;
  std::vector<Function> functions;
  std::vector<Alias> aliases;
  std::vector<std::string> pragmas;  ///< at module level

  /// The id of a name, added if new. Linear in the number of symbols: keep ids rather than asking again.
  SymbolId intern(std::string_view name);
  const std::string& text(SymbolId s) const { return symbols[s]; }
  const Function* find(std::string_view function) const;
  const Var* find_var(std::string_view name) const;
};

/// Structural equality by meaning: names are compared as text (the order in which registers were declared
/// does not matter), an instruction without loc has the one of its predecessor, ptx_line is ignored. Returns
/// an empty string when equal, else the first difference in words (for test messages).
std::string difference(const Module& a, const Module& b);

}  // namespace cgp::ptx
