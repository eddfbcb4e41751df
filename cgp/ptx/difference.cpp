// SPDX-License-Identifier: Apache-2.0
// difference(): structural equality of two modules, with the first difference in words.
#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/ptx/module.h"
#include "cgp/ptx/print.h"

namespace cgp::ptx {
namespace {

class Differ {
 public:
  Differ(const Module& a, const Module& b) : a_(a), b_(b) {}
  std::string run();

 private:
  template <class T>
  void same(const T& x, const T& y, std::string_view what) {
    if (found_.empty() && !(x == y)) found_ = text::cat(path_, what, " differ");
  }
  template <class T>
  bool size(const std::vector<T>& x, const std::vector<T>& y, std::string_view what) {
    if (found_.empty() && x.size() != y.size())
      found_ = text::cat(path_, what, ": ", x.size(), " against ", y.size());
    return found_.empty();
  }
  void symbol(SymbolId x, SymbolId y, std::string_view what) {
    const std::string none;
    const std::string& p = x == kNone ? none : a_.text(x);
    const std::string& q = y == kNone ? none : b_.text(y);
    if (found_.empty() && p != q) found_ = text::cat(path_, what, ": '", p, "' against '", q, "'");
  }
  void vars(const std::vector<Var>& x, const std::vector<Var>& y, std::string_view what);
  void var(const Var& x, const Var& y);
  void function(const Function& x, const Function& y);
  void code(const Function& x, const Function& y);
  bool operand(const Function& f, const Operand& x, const Function& g, const Operand& y) const;
  bool inst(const Function& f, const Inst& x, const Function& g, const Inst& y) const;
  bool loc(std::uint32_t x, std::uint32_t y) const;

  const Module &a_, &b_;
  std::string found_, path_;
};

void Differ::var(const Var& x, const Var& y) {
  symbol(x.name, y.name, "names");
  same(x.space, y.space, "spaces");
  same(x.linkage, y.linkage, "linkages");
  same(x.type, y.type, "types");
  same(x.vector, y.vector, "vector sizes");
  same(x.align, y.align, "alignments");
  same(x.is_array, y.is_array, "array-ness");
  same(x.dims, y.dims, "extents");
  same(x.managed, y.managed, ".managed");
  same(x.has_init, y.has_init, "presence of an initialiser");
  same(x.is_ptr, y.is_ptr, ".ptr");
  same(x.ptr_space, y.ptr_space, "spaces of .ptr");
  same(x.ptr_align, y.ptr_align, "alignments of .ptr");
  same(x.init, y.init, "initial bytes");
  if (!size(x.relocs, y.relocs, "addresses in the initialiser")) return;
  for (std::size_t i = 0; i < x.relocs.size(); ++i) {
    const Relocation &r = x.relocs[i], &s = y.relocs[i];
    symbol(r.symbol, s.symbol, "initialiser addresses");
    same(r.offset, s.offset, "initialiser offsets");
    same(r.bytes, s.bytes, "initialiser widths");
    same(r.mask, s.mask, "initialiser masks");
    same(r.addend, s.addend, "initialiser addends");
    same(r.generic, s.generic, "generic() in the initialiser");
  }
}

void Differ::vars(const std::vector<Var>& x, const std::vector<Var>& y, std::string_view what) {
  if (!size(x, y, what)) return;
  const std::string path = path_;
  for (std::size_t i = 0; i < x.size(); ++i) {
    path_ = text::cat(path, what, " '", a_.text(x[i].name), "': ");
    var(x[i], y[i]);
  }
  path_ = path;
}

bool Differ::operand(const Function& f, const Operand& x, const Function& g, const Operand& y) const {
  auto reg = [&](RegId r, RegId s) {
    if (r == kNone || s == kNone) return r == s;
    return f.regs[r].name == g.regs[s].name && f.regs[r].type == g.regs[s].type;
  };
  if (x.kind != y.kind || x.negated != y.negated || x.sreg != y.sreg || x.imm != y.imm) return false;
  if (!reg(x.reg, y.reg) || !reg(x.reg2, y.reg2)) return false;
  if ((x.symbol == kNone) != (y.symbol == kNone)) return false;
  if (x.symbol != kNone && a_.text(x.symbol) != b_.text(y.symbol)) return false;
  if (x.kind == OperandKind::label && f.labels[x.label].name != g.labels[y.label].name) return false;
  if (x.kind == OperandKind::table && f.tables[x.label].name != g.tables[y.label].name) return false;
  if (x.kind == OperandKind::proto && f.prototypes[x.label].name != g.prototypes[y.label].name) return false;
  if (x.elems.size() != y.elems.size()) return false;
  for (std::size_t i = 0; i < x.elems.size(); ++i)
    if (!operand(f, x.elems[i], g, y.elems[i])) return false;
  return true;
}

bool Differ::inst(const Function& f, const Inst& x, const Function& g, const Inst& y) const {
  if (x.op != y.op || !(x.mods == y.mods) || x.guard_negated != y.guard_negated) return false;
  if ((x.guard == kNone) != (y.guard == kNone)) return false;
  if (x.guard != kNone && f.regs[x.guard].name != g.regs[y.guard].name) return false;
  if (x.operands.size() != y.operands.size()) return false;
  for (std::size_t i = 0; i < x.operands.size(); ++i)
    if (!operand(f, x.operands[i], g, y.operands[i])) return false;
  return true;
}

bool Differ::loc(std::uint32_t x, std::uint32_t y) const {
  if (x == kNone || y == kNone) return x == y;
  const Loc &p = a_.locs[x], &q = b_.locs[y];
  if (p.file != q.file || p.line != q.line || p.column != q.column) return false;
  if ((p.inlined_at == kNone) != (q.inlined_at == kNone)) return false;
  if (p.inlined_at == kNone) return true;
  const Loc &r = a_.locs[p.inlined_at], &s = b_.locs[q.inlined_at];  // one level is what .loc carries
  return p.function_name == q.function_name && r.file == s.file && r.line == s.line && r.column == s.column;
}

void Differ::code(const Function& x, const Function& y) {
  if (!size(x.body, y.body, "instructions")) return;
  std::uint32_t at_x = kNone, at_y = kNone;
  for (std::size_t i = 0; i < x.body.size() && found_.empty(); ++i) {
    if (!inst(x, x.body[i], y, y.body[i]))
      found_ = text::cat(path_, "instruction ", i, ": `", print(a_, x, x.body[i]), "` against `",
                         print(b_, y, y.body[i]), "`");
    if (x.body[i].loc != kNone) at_x = x.body[i].loc;
    if (y.body[i].loc != kNone) at_y = y.body[i].loc;
    if (found_.empty() && !loc(at_x, at_y))
      found_ =
          text::cat(path_, "source positions of instruction ", i, " `", print(a_, x, x.body[i]), "` differ");
  }
}

void Differ::function(const Function& x, const Function& y) {
  path_ = text::cat("function '", a_.text(x.name), "': ");
  symbol(x.name, y.name, "names");
  same(x.entry, y.entry, ".entry");
  same(x.linkage, y.linkage, "linkages");
  same(x.has_body, y.has_body, "presence of a body");
  same(x.noreturn, y.noreturn, ".noreturn");
  vars(x.params, y.params, "parameters");
  vars(x.returns, y.returns, "return values");
  same(x.maxntid, y.maxntid, ".maxntid");
  same(x.reqntid, y.reqntid, ".reqntid");
  same(x.reqnctapercluster, y.reqnctapercluster, ".reqnctapercluster");
  same(x.minnctapersm, y.minnctapersm, ".minnctapersm");
  same(x.maxnctapersm, y.maxnctapersm, ".maxnctapersm");
  same(x.maxnreg, y.maxnreg, ".maxnreg");
  same(x.maxclusterrank, y.maxclusterrank, ".maxclusterrank");
  same(x.explicitcluster, y.explicitcluster, ".explicitcluster");
  same(x.blocksareclusters, y.blocksareclusters, ".blocksareclusters");
  same(x.pragmas, y.pragmas, "pragmas");
  vars(x.vars, y.vars, "variables");
  auto sorted = [](const std::vector<Reg>& regs) {
    std::vector<std::pair<std::string_view, Mod>> v;
    for (const Reg& r : regs) v.emplace_back(r.name, r.type);
    std::sort(v.begin(), v.end());
    return v;
  };
  if (size(x.regs, y.regs, "registers")) same(sorted(x.regs), sorted(y.regs), "registers");
  code(x, y);
  auto labels = [](const Function& f) {
    std::vector<std::pair<std::uint32_t, std::string_view>> v;
    for (const Label& l : f.labels) v.emplace_back(l.position, l.name);
    std::stable_sort(v.begin(), v.end(), [](auto& p, auto& q) { return p.first < q.first; });
    return v;
  };
  same(labels(x), labels(y), "labels");
  if (size(x.tables, y.tables, "tables"))
    for (std::size_t i = 0; i < x.tables.size(); ++i) {
      const Table &t = x.tables[i], &u = y.tables[i];
      same(t.name, u.name, "tables");
      same(t.calls, u.calls, "tables");
      if (!size(t.labels, u.labels, "table entries") || !size(t.functions, u.functions, "table entries"))
        return;
      for (std::size_t k = 0; k < t.labels.size(); ++k)
        same(x.labels[t.labels[k]].name, y.labels[u.labels[k]].name, "table entries");
      for (std::size_t k = 0; k < t.functions.size(); ++k)
        symbol(t.functions[k], u.functions[k], "table entries");
    }
  if (size(x.prototypes, y.prototypes, "prototypes"))
    for (std::size_t i = 0; i < x.prototypes.size(); ++i) {
      same(x.prototypes[i].name, y.prototypes[i].name, "prototypes");
      same(x.prototypes[i].noreturn, y.prototypes[i].noreturn, "prototypes");
      vars(x.prototypes[i].returns, y.prototypes[i].returns, "prototype return values");
      vars(x.prototypes[i].params, y.prototypes[i].params, "prototype parameters");
    }
  if (size(x.body_pragmas, y.body_pragmas, "pragmas in the body"))
    for (std::size_t i = 0; i < x.body_pragmas.size(); ++i) {
      same(x.body_pragmas[i].text, y.body_pragmas[i].text, "pragmas in the body");
      same(x.body_pragmas[i].position, y.body_pragmas[i].position, "pragmas in the body");
    }
}

std::string Differ::run() {
  same(a_.version, b_.version, "versions");
  same(a_.target, b_.target, "targets");
  same(a_.target_options, b_.target_options, "target options");
  same(a_.address_size, b_.address_size, "address sizes");
  same(a_.files, b_.files, "files");
  same(a_.pragmas, b_.pragmas, "pragmas");
  vars(a_.vars, b_.vars, "variables");
  // The printer moves declarations before definitions: compare each kind in its own order.
  auto ordered = [](const Module& m) {
    std::vector<const Function*> v;
    for (const Function& f : m.functions) v.push_back(&f);
    std::stable_partition(v.begin(), v.end(), [](const Function* f) { return !f->has_body; });
    return v;
  };
  const auto x = ordered(a_), y = ordered(b_);
  if (size(x, y, "functions"))
    for (std::size_t i = 0; i < x.size() && found_.empty(); ++i) function(*x[i], *y[i]);
  path_.clear();
  if (size(a_.aliases, b_.aliases, "aliases"))
    for (std::size_t i = 0; i < a_.aliases.size(); ++i) {
      symbol(a_.aliases[i].name, b_.aliases[i].name, "aliases");
      symbol(a_.aliases[i].target, b_.aliases[i].target, "targets of aliases");
    }
  return found_;
}

}  // namespace

std::string difference(const Module& a, const Module& b) { return Differ(a, b).run(); }

}  // namespace cgp::ptx
