// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/print.h"

#include <algorithm>
#include <charconv>

#include "cgp/base/text.h"

namespace cgp::ptx {
namespace {

// Everything appends to one string; a message about one instruction uses the same code as a whole module.
class Printer {
 public:
  Printer(const Module& m, std::string& out) : m_(m), out_(out) {}
  void module();
  void inst(const Function& f, const Inst& i);

 private:
  void put(std::string_view s) { out_.append(s); }
  void put(char c) { out_.push_back(c); }
  void number(std::int64_t v) { text::append(out_, v); }
  void hex(std::uint64_t v, int digits);
  void integer(std::uint64_t pattern);
  void quoted(std::string_view s);
  void collect_function_names();
  void debug_strings();
  void linkage(Linkage l);
  void var(const Var& v, bool as_parameter);
  void initialiser(const Var& v);
  void parameters(const std::vector<Var>& vars, bool multi_line);
  void signature(const Function& f);
  void directives(const Function& f);
  void triple(std::string_view word, const std::optional<std::array<std::uint32_t, 3>>& v);
  void count(std::string_view word, const std::optional<std::uint32_t>& v);
  void function(const Function& f);
  void registers(const Function& f);
  void tables(const Function& f);
  void body(const Function& f);
  void loc(std::uint32_t index);
  void one_loc(std::uint32_t index);
  void opcode(const Inst& i);
  void operand(const Function& f, const Operand& o);
  void elements(const Function& f, const Operand& o, char open, char close);

  const Module& m_;
  std::string& out_;
  std::vector<std::uint32_t> locs_seen_;  // in which function a .loc was last printed
  std::uint32_t functions_printed_ = 0;
  std::vector<const std::string*> function_names_;  // of inlined functions, in .debug_str
};

void Printer::hex(std::uint64_t v, int digits) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  char buf[16];
  for (int i = digits - 1; i >= 0; --i, v >>= 4) buf[i] = kDigits[v & 15];
  put({buf, std::size_t(digits)});
}

// Small numbers read best in decimal, masks and constants in hexadecimal.
void Printer::integer(std::uint64_t pattern) {
  const auto v = std::int64_t(pattern);
  if (v >= -65536 && v < 65536) return number(v);
  if (v < 0 && v >= -(std::int64_t(1) << 31)) return number(v);
  char buf[20] = "0x";
  auto r = std::to_chars(buf + 2, buf + sizeof buf, pattern, 16);
  put({buf, std::size_t(r.ptr - buf)});
}

void Printer::quoted(std::string_view s) {
  put('"');
  for (char c : s) {
    if (c == '"' || c == '\\') put('\\');
    put(c);
  }
  put('"');
}

void Printer::linkage(Linkage l) {
  switch (l) {
    case Linkage::none:
      return;
    case Linkage::visible:
      return put(".visible ");
    case Linkage::external:
      return put(".extern ");
    case Linkage::weak:
      return put(".weak ");
    case Linkage::common:
      return put(".common ");
  }
}

void Printer::initialiser(const Var& v) {
  const bool braces = v.is_array || v.vector > 1;
  put(braces ? " = {" : " = ");
  const std::size_t width = std::size_t(std::max(1, type_bits(v.type) / 8));
  std::size_t reloc = 0, column = 0;
  for (std::size_t at = 0; at < v.init.size();) {
    if (at) put(column++ % 16 == 15 ? ",\n\t" : ", ");
    if (reloc < v.relocs.size() && v.relocs[reloc].offset == at) {
      const Relocation& r = v.relocs[reloc++];
      const bool masked = r.mask != ~0ull;
      if (masked) {
        put("0x");
        char buf[16];
        auto e = std::to_chars(buf, buf + sizeof buf, r.mask, 16);
        put({buf, std::size_t(e.ptr - buf)});
        put('(');
      }
      if (r.generic) put("generic(");
      put(m_.text(r.symbol));
      if (r.generic) put(')');
      if (r.addend) {
        put('+');
        number(r.addend);
      }
      if (masked) put(')');
      at += width;
      continue;
    }
    std::uint64_t word = 0;
    for (std::size_t b = 0; b < width && b < 8 && at + b < v.init.size(); ++b)
      word |= std::uint64_t(v.init[at + b]) << (8 * b);
    if (v.type == Mod::f32) {
      put("0f");
      hex(word, 8);
    } else if (v.type == Mod::f64) {
      put("0d");
      hex(word, 16);
    } else if (is_signed(v.type) && width < 8) {
      const int shift = 64 - int(width) * 8;
      number(std::int64_t(word << shift) >> shift);
    } else if (is_signed(v.type)) {
      number(std::int64_t(word));
    } else {
      text::append(out_, word);
    }
    at += width;
  }
  if (braces) put('}');
}

void Printer::var(const Var& v, bool as_parameter) {
  put('.');
  put(name(v.space));
  if (v.managed) put(" .attribute(.managed)");
  if (v.align && !v.is_ptr) {
    put(" .align ");
    number(v.align);
  }
  if (v.vector > 1) {
    put(" .v");
    number(v.vector);
  }
  put(" .");
  put(name(v.type));
  if (v.is_ptr) {
    put(" .ptr");
    if (v.ptr_space != Space::generic) {
      put(" .");
      put(name(v.ptr_space));
    }
    if (v.ptr_align) {
      put(" .align ");
      number(v.ptr_align);
    }
  }
  put(' ');
  put(m_.text(v.name));
  if (v.is_array)
    for (std::uint64_t d : v.dims) {
      put('[');
      if (d) text::append(out_, d);
      put(']');
    }
  if (v.has_init) initialiser(v);
  if (!as_parameter) put(";\n");
}

void Printer::parameters(const std::vector<Var>& vars, bool multi_line) {
  put('(');
  for (std::size_t i = 0; i < vars.size(); ++i) {
    put(multi_line ? (i ? ",\n\t" : "\n\t") : (i ? ", " : ""));
    var(vars[i], true);
  }
  put(multi_line && !vars.empty() ? "\n)" : ")");
}

void Printer::triple(std::string_view word, const std::optional<std::array<std::uint32_t, 3>>& v) {
  if (!v) return;
  put(word);
  for (int i = 0; i < 3; ++i) {
    put(i ? ", " : " ");
    number((*v)[std::size_t(i)]);
  }
  put('\n');
}

void Printer::count(std::string_view word, const std::optional<std::uint32_t>& v) {
  if (!v) return;
  put(word);
  put(' ');
  number(*v);
  put('\n');
}

void Printer::signature(const Function& f) {
  linkage(f.linkage);
  put(f.entry ? ".entry " : ".func ");
  if (!f.returns.empty()) {
    parameters(f.returns, false);
    put(' ');
  }
  put(m_.text(f.name));
  if (f.entry || !f.params.empty() || !f.has_body || !f.returns.empty()) parameters(f.params, true);
}

void Printer::directives(const Function& f) {
  if (f.noreturn) put(".noreturn\n");
  triple(".maxntid", f.maxntid);
  triple(".reqntid", f.reqntid);
  count(".minnctapersm", f.minnctapersm);
  count(".maxnctapersm", f.maxnctapersm);
  count(".maxnreg", f.maxnreg);
  if (f.explicitcluster) put(".explicitcluster\n");
  triple(".reqnctapercluster", f.reqnctapercluster);
  count(".maxclusterrank", f.maxclusterrank);
  if (f.blocksareclusters) put(".blocksareclusters\n");
  for (const std::string& p : f.pragmas) {
    put(".pragma ");
    quoted(p);
    put(";\n");
  }
}

// "%r12" is prefix "%r", number 12. Names with leading zeros are not numbered: `%r<13>` would not declare
// them.
bool split_number(std::string_view name, std::string_view& prefix, std::uint32_t& number) {
  std::size_t at = name.size();
  while (at > 0 && name[at - 1] >= '0' && name[at - 1] <= '9') --at;
  const std::size_t digits = name.size() - at;
  if (at == 0 || digits == 0 || digits > 7 || (digits > 1 && name[at] == '0')) return false;
  prefix = name.substr(0, at);
  number = 0;
  for (std::size_t i = at; i < name.size(); ++i) number = number * 10 + std::uint32_t(name[i] - '0');
  return true;
}

bool is_register_parameter(const Module& m, const Function& f, const std::string& reg) {
  for (const auto* list : {&f.returns, &f.params})
    for (const Var& v : *list)
      if (v.space == Space::reg && m.text(v.name) == reg) return true;
  return false;
}

// Registers are declared as ranges (`%r<40>`) where their names allow it, else by name.
void Printer::registers(const Function& f) {
  struct Group {
    Mod type;
    std::string_view prefix;
    std::uint32_t count, largest;
    std::vector<std::uint32_t> members;
  };
  std::vector<Group> groups;
  std::size_t recent = 0;
  const bool old_abi =
      std::any_of(f.params.begin(), f.params.end(), [](auto& v) { return v.space == Space::reg; }) ||
      std::any_of(f.returns.begin(), f.returns.end(), [](auto& v) { return v.space == Space::reg; });
  for (std::uint32_t i = 0; i < f.regs.size(); ++i) {
    const Reg& r = f.regs[i];
    if (old_abi && is_register_parameter(m_, f, r.name)) continue;
    std::string_view prefix;
    std::uint32_t n = 0;
    if (!split_number(r.name, prefix, n)) {
      prefix = {};
      n = ~0u;
    }
    if (recent >= groups.size() || groups[recent].type != r.type || groups[recent].prefix != prefix) {
      recent = 0;
      while (recent < groups.size() && (groups[recent].type != r.type || groups[recent].prefix != prefix))
        ++recent;
      if (recent == groups.size()) groups.push_back({r.type, prefix, 0, 0, {}});
    }
    Group& g = groups[recent];
    ++g.count;
    g.largest = std::max(g.largest, n);
    g.members.push_back(i);
  }
  for (const Group& g : groups) {
    if (!g.prefix.empty() && g.largest + 1 == g.count) {
      put("\t.reg .");
      put(name(g.type));
      put(' ');
      put(g.prefix);
      put('<');
      number(g.count);
      put(">;\n");
      continue;
    }
    for (std::size_t i = 0; i < g.members.size(); ++i) {
      if (i % 16 == 0) {
        put(i ? ";\n\t.reg ." : "\t.reg .");
        put(name(g.type));
        put(' ');
      } else {
        put(", ");
      }
      put(f.regs[g.members[i]].name);
    }
    put(";\n");
  }
}

void Printer::tables(const Function& f) {
  for (const Prototype& p : f.prototypes) {
    put('\t');
    put(p.name);
    put(": .callprototype ");
    parameters(p.returns, false);
    put(" _ ");
    parameters(p.params, false);
    put(p.noreturn ? " .noreturn;\n" : ";\n");
  }
  for (const Table& t : f.tables) {
    put('\t');
    put(t.name);
    put(t.calls ? ": .calltargets " : ": .branchtargets ");
    bool first = true;
    auto comma = [&] {
      if (!first) put(", ");
      first = false;
    };
    for (LabelId l : t.labels) comma(), put(f.labels[l].name);
    for (SymbolId s : t.functions) comma(), put(m_.text(s));
    put(";\n");
  }
}

// The position that inlined_at names must itself stand in a .loc before.
void Printer::loc(std::uint32_t index) {
  if (locs_seen_.empty()) locs_seen_.resize(m_.locs.size(), kNone);
  std::uint32_t chain[16], depth = 0;
  for (std::uint32_t at = index; at != kNone && depth < 16; at = m_.locs[at].inlined_at) {
    if (at != index && locs_seen_[at] == functions_printed_) break;
    chain[depth++] = at;
  }
  while (depth) one_loc(chain[--depth]);
}

void Printer::one_loc(std::uint32_t index) {
  locs_seen_[index] = functions_printed_;
  const Loc& l = m_.locs[index];
  put("\t.loc ");
  number(l.file);
  put(' ');
  number(l.line);
  put(' ');
  number(l.column);
  if (l.inlined_at != kNone) {
    const Loc& outer = m_.locs[l.inlined_at];
    std::size_t n = 0;
    while (n < function_names_.size() && *function_names_[n] != l.function_name) ++n;
    put(", function_name $L__info_string");
    text::append(out_, n);
    put(", inlined_at ");
    number(outer.file);
    put(' ');
    number(outer.line);
    put(' ');
    number(outer.column);
  }
  put('\n');
}

void Printer::body(const Function& f) {
  ++functions_printed_;
  put("{\n");
  registers(f);
  for (const Var& v : f.vars) {
    put('\t');
    var(v, false);
  }
  tables(f);
  // Labels are usually in order of position; an index sorted by position is needed when they are not.
  std::vector<LabelId> order(f.labels.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = LabelId(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](LabelId a, LabelId b) { return f.labels[a].position < f.labels[b].position; });
  std::size_t label = 0, pragma = 0;
  std::uint32_t last_loc = kNone;
  for (std::uint32_t i = 0; i <= f.body.size(); ++i) {
    for (; label < order.size() && f.labels[order[label]].position <= i; ++label) {
      put(f.labels[order[label]].name);
      put(":\n");
    }
    for (; pragma < f.body_pragmas.size() && f.body_pragmas[pragma].position <= i; ++pragma) {
      put("\t.pragma ");
      quoted(f.body_pragmas[pragma].text);
      put(";\n");
    }
    if (i == f.body.size()) break;
    const Inst& n = f.body[i];
    if (n.loc != kNone && n.loc != last_loc) loc(last_loc = n.loc);
    put('\t');
    inst(f, n);
    put('\n');
  }
  put("}\n");
}

void Printer::function(const Function& f) {
  signature(f);
  if (!f.has_body) {
    put(f.noreturn ? "\n.noreturn;\n" : ";\n");
    return;
  }
  put('\n');
  directives(f);
  body(f);
}

void Printer::opcode(const Inst& i) {
  const std::string_view op = name(i.op);
  int first = 0;
  // `barrier.cta.sync` is barrier.sync with the modifier .cta in the middle of the name.
  const bool cta_barrier = i.op >= Op::bar_sync && i.op <= Op::barrier_red && i.op != Op::bar_warp_sync &&
                           i.mods.size() > 0 && i.mods[0] == Mod::cta;
  if (cta_barrier) {
    const std::size_t dot = op.find('.');
    put(op.substr(0, dot));
    put(".cta");
    put(op.substr(dot));
    first = 1;
  } else {
    put(op);
  }
  // tcgen05.wait::ld and tcgen05.fence::after_thread_sync are written with colons.
  if (i.mods.size() > 0 && (i.op == Op::tcgen05_wait || i.op == Op::tcgen05_fence)) {
    put("::");
    put(name(i.mods[0]));
    first = 1;
  }
  for (int k = first; k < i.mods.size(); ++k) {
    put('.');
    put(name(i.mods[k]));
  }
}

void Printer::elements(const Function& f, const Operand& o, char open, char close) {
  put(open);
  for (std::size_t i = 0; i < o.elems.size(); ++i) {
    if (i) put(", ");
    operand(f, o.elems[i]);
  }
  put(close);
}

void Printer::operand(const Function& f, const Operand& o) {
  auto offset = [&] {
    if (o.imm == 0) return;
    put('+');  // also before a minus: ptxas takes [%r+-4], not [%r-4]
    number(std::int64_t(o.imm));
  };
  switch (o.kind) {
    case OperandKind::reg:
      if (o.negated) put('!');
      put(o.reg == kNone ? std::string_view("_") : std::string_view(f.regs[o.reg].name));
      if (o.reg2 != kNone) {
        put('|');
        put(f.regs[o.reg2].name);
      }
      return;
    case OperandKind::imm:
      return integer(o.imm);
    case OperandKind::f32_imm:
      return put("0f"), hex(o.imm, 8);
    case OperandKind::f64_imm:
      return put("0d"), hex(o.imm, 16);
    case OperandKind::sreg:
      return put('%'), put(name(o.sreg));
    case OperandKind::symbol:
      return put(m_.text(o.symbol)), offset();
    case OperandKind::address:
      put('[');
      if (o.reg != kNone) {
        put(f.regs[o.reg].name);
        offset();
      } else if (o.symbol != kNone) {
        put(m_.text(o.symbol));
        offset();
      } else {
        integer(o.imm);
      }
      for (const Operand& e : o.elems) {
        put(", ");
        operand(f, e);
      }
      return put(']');
    case OperandKind::vector:
      return elements(f, o, '{', '}');
    case OperandKind::list:
      return elements(f, o, '(', ')');
    case OperandKind::label:
      return put(f.labels[o.label].name);
    case OperandKind::table:
      return put(f.tables[o.label].name);
    case OperandKind::proto:
      return put(f.prototypes[o.label].name);
    case OperandKind::sink:
      return put('_');
  }
}

void Printer::inst(const Function& f, const Inst& i) {
  if (i.guard != kNone) {
    put(i.guard_negated ? "@!" : "@");
    put(f.regs[i.guard].name);
    put(' ');
  }
  opcode(i);
  for (std::size_t k = 0; k < i.operands.size(); ++k) {
    put(k ? ", " : " ");
    operand(f, i.operands[k]);
  }
  put(';');
}

// ptxas wants the names that inlined_at lines mention as labels of a .debug_str section.
void Printer::collect_function_names() {
  for (const Loc& l : m_.locs) {
    if (l.inlined_at == kNone) continue;
    auto same = [&](const std::string* s) { return *s == l.function_name; };
    if (std::none_of(function_names_.begin(), function_names_.end(), same))
      function_names_.push_back(&l.function_name);
  }
  std::sort(function_names_.begin(), function_names_.end(), [](auto* a, auto* b) { return *a < *b; });
}

void Printer::debug_strings() {
  if (function_names_.empty()) return;
  put("\n.section .debug_str\n{\n");
  for (std::size_t i = 0; i < function_names_.size(); ++i) {
    put("$L__info_string");
    text::append(out_, i);
    put(":\n\t.b8 ");
    for (char c : *function_names_[i]) {
      number(static_cast<unsigned char>(c));
      put(',');
    }
    put("0\n");
  }
  put("}\n");
}

void Printer::module() {
  collect_function_names();
  std::size_t insts = 0;
  for (const Function& f : m_.functions) insts += f.body.size();
  out_.reserve(out_.size() + 4096 + insts * 48);
  put(".version ");
  number(m_.version.major);
  put('.');
  number(m_.version.minor);
  put("\n.target ");
  put(m_.target);
  for (const std::string& o : m_.target_options) {
    put(", ");
    put(o);
  }
  put("\n.address_size ");
  number(m_.address_size);
  put('\n');
  for (const std::string& p : m_.pragmas) {
    put(".pragma ");
    quoted(p);
    put(";\n");
  }
  for (const auto& [n, path] : m_.files) {
    put(".file ");
    number(n);
    put(' ');
    quoted(path);
    put('\n');
  }
  // Function declarations come first: initialisers may hold the addresses of functions.
  for (const Function& f : m_.functions)
    if (!f.has_body) put('\n'), function(f);
  if (!m_.vars.empty()) put('\n');
  for (const Var& v : m_.vars) {
    linkage(v.linkage);
    var(v, false);
  }
  for (const Function& f : m_.functions)
    if (f.has_body) put('\n'), function(f);
  for (const Alias& a : m_.aliases) {
    put(".alias ");
    put(m_.text(a.name));
    put(", ");
    put(m_.text(a.target));
    put(";\n");
  }
  debug_strings();
}

}  // namespace

std::string print(const Module& m) {
  std::string out;
  Printer(m, out).module();
  return out;
}

std::string print(const Module& m, const Function& f, const Inst& inst) {
  std::string out;
  Printer(m, out).inst(f, inst);
  return out;
}

}  // namespace cgp::ptx
