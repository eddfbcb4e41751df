// SPDX-License-Identifier: Apache-2.0
// Rules of modules and functions; verify_inst.cpp has those of instructions.
#include "cgp/ptx/verify/verify.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "cgp/base/text.h"
#include "cgp/ptx/print.h"
#include "cgp/ptx/verify/verify_impl.h"

namespace cgp::ptx {
namespace {

bool ascii(std::string_view s) {
  return std::all_of(s.begin(), s.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

bool identifier(std::string_view s) {
  auto alphabetic = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  auto follow = [&](char c) { return alphabetic(c) || (c >= '0' && c <= '9') || c == '_' || c == '$'; };
  if (s.empty()) return false;
  const bool special = s[0] == '_' || s[0] == '$' || s[0] == '%';
  if (!alphabetic(s[0]) && (!special || s.size() < 2)) return false;
  return std::all_of(s.begin() + 1, s.end(), follow);
}

/// Something other than an instruction that asks for a version or target.
struct Feature {
  std::string what;
  Requirement need;
  std::uint32_t line = 0;
};

std::vector<Feature> features(const Module& m) {
  std::vector<Feature> out;
  const Requirement cluster{{7, 8}, {{90, 0, 0}}};
  for (const Function& f : m.functions) {
    if (f.reqnctapercluster) out.push_back({".reqnctapercluster", cluster, 0});
    if (f.explicitcluster) out.push_back({".explicitcluster", cluster, 0});
    if (f.maxclusterrank) out.push_back({".maxclusterrank", cluster, 0});
    if (f.blocksareclusters) out.push_back({".blocksareclusters", {{9, 0}, {{90, 0, 0}}}, 0});
    if (f.noreturn) out.push_back({".noreturn", {{6, 4}, {}}, 0});
    std::uint64_t bytes = 0;
    for (const Var& v : f.params) {
      bytes = (bytes + std::max(v.alignment(), 1u) - 1) / std::max(v.alignment(), 1u) *
              std::max(v.alignment(), 1u);
      bytes += v.bytes();
    }
    if (f.entry && bytes > 4352)
      out.push_back({text::cat("a kernel with ", bytes, " bytes of parameters"), {{8, 1}, {{70, 0, 0}}}, 0});
    for (const Reg& r : f.regs)
      if (r.type == Mod::b128) {
        out.push_back({".reg .b128", {{8, 3}, {{70, 0, 0}}}, 0});
        break;
      }
    for (const Pragma& p : f.body_pragmas) {
      if (p.text.substr(0, 15) == "used_bytes_mask")
        out.push_back({".pragma \"used_bytes_mask\"", {{8, 3}, {}}, 0});
      if (p.text == "enable_smem_spilling")
        out.push_back({".pragma \"enable_smem_spilling\"", {{8, 7}, {}}, 0});
    }
  }
  for (const Var& v : m.vars)
    if (v.managed) out.push_back({".attribute(.managed)", {{4, 0}, {}}, 0});
  if (!m.aliases.empty()) out.push_back({".alias", {{6, 3}, {}}, 0});
  return out;
}

class Verifier {
 public:
  Verifier(const Module& m, const CheckOptions& options) : m_(m), options_(options), inst_(m_, options_) {}
  std::vector<Problem> run();
  /// The highest .version that the instructions ask for, after run().
  Version newest() const { return inst_.newest(); }

 private:
  bool full() const { return out_.size() >= options_.limit; }
  void add(std::string rule, std::string where, std::string why, std::string hint = {}) {
    if (!full())
      out_.push_back({std::move(rule), std::move(where), std::move(why), std::move(hint), 0, kNone});
  }
  void header();
  void needs();
  void variables();
  void name(std::string_view what, std::string_view n);
  void variable(const Var& v, std::string_view where);
  void functions();
  void signature(const Function& f);
  void launch(const Function& f);
  void names(const Function& f);
  void labels(const Function& f);
  void body(const Function& f);
  void cta_groups(const Function& f);
  std::uint64_t shared_limit() const;
  std::uint64_t static_shared(const Function& kernel) const;

  const Module& m_;
  const CheckOptions options_;
  InstVerifier inst_;
  std::vector<Problem> out_;
};

void Verifier::header() {
  if (!version_exists(m_.version) && !(options_.foreign && m_.version > kNewestVersion))
    add("a module names a PTX version that exists", text::cat(".version ", version_text(m_.version)),
        text::cat("there is no PTX ", version_text(m_.version), "; the newest known is ",
                  version_text(kNewestVersion)));
  if (m_.address_size != 64)
    add("addresses have 64 bits", text::cat(".address_size ", m_.address_size),
        "no supported driver loads 32-bit modules", "write .address_size 64");
  const auto target = parse_target(m_.target);
  const auto since = target ? lowest_version(*target) : std::nullopt;
  if (!since) {
    std::vector<std::string> close;
    if (target) {  // sm_91: the neighbours
      std::vector<Target> all;
      for (const KnownTarget& k : known_targets()) all.push_back(k.target);
      std::stable_sort(all.begin(), all.end(), [&](const Target& a, const Target& b) {
        return std::abs(a.sm - target->sm) < std::abs(b.sm - target->sm);
      });
      for (std::size_t k = 0; k < 3; ++k) close.push_back(ptx::name(all[k]));
    } else {
      std::vector<std::string> all;
      for (const KnownTarget& k : known_targets()) all.push_back(ptx::name(k.target));
      close = text::closest(m_.target, all, 3);
    }
    add("a module names a known target", text::cat(".target ", m_.target),
        text::cat("there is no target ", m_.target),
        close.empty() ? std::string() : text::cat("did you mean ", text::join(close, ", "), "?"));
  } else if (m_.version < *since) {
    add(text::cat("target ", m_.target, " needs PTX ", version_text(*since)),
        text::cat(".version ", version_text(m_.version)),
        text::cat("the module is PTX ", version_text(m_.version)),
        text::cat("raise .version to ", version_text(*since)));
  }
}

void Verifier::needs() {
  const auto target = parse_target(m_.target);
  for (const Feature& f : features(m_)) {
    const bool here = target && (f.need.targets.empty() ||
                                 std::any_of(f.need.targets.begin(), f.need.targets.end(),
                                             [&](const auto& c) { return satisfies(*target, c); }));
    if (m_.version >= f.need.version && here) continue;
    add(text::cat(f.what, " needs ", requirement_text(f.need)), f.what,
        text::cat("the module is PTX ", version_text(m_.version), " for ", m_.target));
  }
}

void Verifier::name(std::string_view what, std::string_view n) {
  if (n == "_" || identifier(n)) return;
  add("names are ASCII identifiers", text::cat(what, " '", n, "'"),
      ascii(n) ? "letters, digits, _ and $ only, not starting with a digit"
               : "it holds bytes outside of ASCII");
}

std::uint64_t Verifier::shared_limit() const {
  const auto t = parse_target(m_.target);
  // Only code for one exact chip may use its full size statically (ptxas 13.0).
  if (!t || t->suffix != 'a' || t->sm < 90) return 48 * 1024;
  const ChipLimits* c = chip_limits(t->sm);
  return c ? c->shared_per_block : 48 * 1024;
}

void Verifier::variable(const Var& v, std::string_view where) {
  const std::string& n = m_.text(v.name);
  const std::string shown = text::cat(where, " '", n, "'");
  name("variable", n);
  if (v.align && (v.align & (v.align - 1)))
    add("an alignment is a power of two", shown, text::cat("it is ", v.align));
  if (!is_type(v.type) || v.type == Mod::pred)
    add("a variable has a fundamental type", shown, text::cat(".", ptx::name(v.type), " is not one"),
        "use .b8 .b16 .b32 .b64 or an integer or float type");
  for (std::size_t i = 1; i < v.dims.size(); ++i)
    if (v.dims[i] == 0) add("only the first extent of an array may be open", shown, {});
  if (v.has_init && v.space != Space::global && v.space != Space::constant)
    add("only .global and .const variables have initial values", shown,
        text::cat("it is in .", ptx::name(v.space)));
  if (v.has_init && v.bytes() && v.init.size() > v.bytes())
    add("initial values fit the variable", shown, text::cat(v.init.size(), " bytes for ", v.bytes()));
}

void Verifier::variables() {
  std::unordered_set<SymbolId> seen;
  std::uint64_t constant = 0, shared = 0;
  for (const Var& v : m_.vars) {
    if (!seen.insert(v.name).second)
      add("module-level names are unique", m_.text(v.name), "the variable is declared twice");
    variable(v, "variable");
    if (v.space == Space::param || v.space == Space::reg)
      add("parameters and registers belong to functions", m_.text(v.name),
          text::cat("it is in .", ptx::name(v.space)));
    const bool open = v.is_array && !v.dims.empty() && v.dims[0] == 0;
    if (open && v.linkage != Linkage::external && !v.has_init)
      add("an array without extent is .extern", m_.text(v.name), {},
          "dynamic shared memory: .extern .shared .align 16 .b8 x[];");
    if (v.space == Space::constant) constant += v.bytes();
    if (v.space == Space::shared) shared += v.bytes();
  }
  if (constant > 65536)
    add("a module has at most 64 KiB of .const variables", "module", text::cat("it has ", constant, " bytes"),
        "use .global for large tables");
  for (const Function& f : m_.functions)
    for (const Var& v : f.vars)
      if (v.space == Space::shared) shared += v.bytes();
  if (shared <= shared_limit()) return;
  if (options_.foreign) shared = 0;  // compilers put the variables of many kernels into a module
  for (const Function& f : m_.functions)
    if (options_.foreign && f.entry) shared = std::max(shared, static_shared(f));
  if (shared > shared_limit())
    add(text::cat("static .shared variables have at most ", shared_limit(), " bytes on ", m_.target),
        "module", text::cat("there are ", shared, " bytes"),
        "use dynamic shared memory: .extern .shared .align 16 .b8 x[];");
}

// What a launch of the kernel needs: its variables and those that it, or what it calls, names. Those of other
// kernels of the module are not its.
std::uint64_t Verifier::static_shared(const Function& kernel) const {
  std::unordered_map<SymbolId, const Var*> variables;
  std::unordered_map<SymbolId, const Function*> functions;
  for (const Var& v : m_.vars)
    if (v.space == Space::shared) variables.emplace(v.name, &v);
  for (const Function& f : m_.functions) functions.emplace(f.name, &f);
  std::unordered_set<SymbolId> named;
  std::vector<const Function*> open{&kernel};
  std::uint64_t bytes = 0;
  std::function<void(const Operand&)> look = [&](const Operand& o) {
    for (const Operand& e : o.elems) look(e);
    if (o.symbol == kNone || !named.insert(o.symbol).second) return;
    if (const auto v = variables.find(o.symbol); v != variables.end()) bytes += v->second->bytes();
    if (const auto f = functions.find(o.symbol); f != functions.end() && f->second != &kernel)
      open.push_back(f->second);
  };
  while (!open.empty()) {
    const Function& f = *open.back();
    open.pop_back();
    for (const Var& v : f.vars)
      if (v.space == Space::shared) bytes += v.bytes();
    for (const Inst& i : f.body)
      for (const Operand& o : i.operands) look(o);
  }
  return bytes;
}

void Verifier::signature(const Function& f) {
  const std::string& n = m_.text(f.name);
  name("function", n);
  std::unordered_set<SymbolId> seen;
  std::uint64_t bytes = 0;
  for (const auto* list : {&f.returns, &f.params})
    for (const Var& v : *list) {
      variable(v, text::cat("parameter of ", n));
      if (m_.text(v.name) != "_" && !seen.insert(v.name).second)
        add("parameter names are unique", n, text::cat("'", m_.text(v.name), "' is declared twice"));
    }
  if (!f.entry) return;
  for (const Var& v : f.params) {
    const std::uint32_t a = std::max(v.alignment(), 1u);
    bytes = (bytes + a - 1) / a * a + v.bytes();
    if (v.is_array && v.bytes() == 0)
      add("a kernel parameter has a size", n, text::cat("'", m_.text(v.name), "' has none"));
  }
  if (bytes > 32764)
    add("a kernel has at most 32764 bytes of parameters", n, text::cat("it has ", bytes),
        "pass a pointer to the data");
  if (!f.returns.empty()) add("a kernel returns nothing", n, {});
}

void Verifier::launch(const Function& f) {
  const std::string& n = m_.text(f.name);
  const bool any = f.maxntid || f.reqntid || f.reqnctapercluster || f.minnctapersm || f.maxnreg ||
                   f.maxclusterrank || f.explicitcluster || f.blocksareclusters;
  if (!f.entry && (any && !f.maxnreg)) add("launch directives belong to kernels", n, ".func has none");
  for (const auto& [word, v] : {std::pair{".maxntid", &f.maxntid}, std::pair{".reqntid", &f.reqntid}}) {
    if (!*v) continue;
    const auto& d = **v;
    const std::uint64_t threads = std::uint64_t(d[0]) * d[1] * d[2];
    if (threads == 0 || threads > 1024 || d[2] > 64)
      add(text::cat(word, " is at most 1024 threads, 64 in z"), n,
          text::cat("it is ", d[0], " x ", d[1], " x ", d[2]));
  }
  if (f.maxntid && f.reqntid) add("a kernel has .maxntid or .reqntid, not both", n, {});
  if (f.maxnreg && (*f.maxnreg == 0 || *f.maxnreg > 255))
    add(".maxnreg is 1 to 255", n, text::cat("it is ", *f.maxnreg));
  if (f.reqnctapercluster) {
    const auto& d = *f.reqnctapercluster;
    const std::uint64_t blocks = std::uint64_t(d[0]) * d[1] * d[2];
    if (blocks == 0 || blocks > 16)
      add(".reqnctapercluster is 1 to 16 blocks", n, text::cat("it is ", blocks),
          "8 is the portable limit, 16 needs an attribute at launch");
    if (f.maxclusterrank) add("a kernel has .maxclusterrank or .reqnctapercluster, not both", n, {});
  }
  if (f.blocksareclusters && (!f.reqntid || !f.reqnctapercluster))
    add(".blocksareclusters needs .reqntid and .reqnctapercluster", n, {});
}

void Verifier::names(const Function& f) {
  std::unordered_set<std::string_view> regs;
  for (const Reg& r : f.regs) {
    if (!regs.insert(r.name).second)
      add("register names are unique in a function", r.name,
          text::cat("declared twice in ", m_.text(f.name)));
    if (!identifier(r.name)) name("register", r.name);
    if (!is_type(r.type)) add("a register has a type", r.name, {});
  }
  std::unordered_set<SymbolId> vars;
  for (const Var& v : f.vars) {
    if (!vars.insert(v.name).second)
      add("variable names are unique in a function", m_.text(v.name),
          text::cat("declared twice in ", m_.text(f.name)));
    variable(v, "variable");
  }
}

void Verifier::labels(const Function& f) {
  std::unordered_set<std::string_view> seen;
  auto unique = [&](const std::string& n) {
    if (!seen.insert(n).second)
      add("labels are unique in a function", n, text::cat("defined twice in ", m_.text(f.name)));
    name("label", n);
  };
  for (const Label& l : f.labels) {
    unique(l.name);
    if (l.position > f.body.size())
      add("a label stands before an instruction or at the end", l.name,
          text::cat("position ", l.position, " of ", f.body.size(), " instructions"));
  }
  for (const Table& t : f.tables) {
    unique(t.name);
    for (LabelId l : t.labels)
      if (l >= f.labels.size()) add("the targets of a branch are labels of the function", t.name, {});
  }
  for (const Prototype& p : f.prototypes) unique(p.name);
}

void Verifier::cta_groups(const Function& f) {
  const Inst* first = nullptr;
  for (const Inst& i : f.body) {
    if (family(i.op) != Family::tcgen05) continue;
    const bool one = i.has(Mod::cta_group_1), two = i.has(Mod::cta_group_2);
    if (!one && !two) continue;
    if (!first) first = &i;
    if (first->has(Mod::cta_group_1) == one) continue;
    if (!full())
      out_.push_back({"a function uses .cta_group::1 or .cta_group::2, not both",
                      print(m_, f, i),
                      text::cat("earlier: ", print(m_, f, *first)),
                      {},
                      i.ptx_line,
                      i.loc});
    return;
  }
}

void Verifier::body(const Function& f) {
  inst_.enter(f);
  for (const Inst& i : f.body) {
    if (full()) return;
    if (auto p = inst_.check(i)) {
      out_.push_back(std::move(*p));
      continue;
    }
    for (const Operand& o : i.operands)
      if (o.kind == OperandKind::label && o.label >= f.labels.size())
        out_.push_back({"the target of a branch is a label of the function",
                        InstVerifier::spelling(i),
                        {},
                        {},
                        i.ptx_line,
                        i.loc});
  }
  cta_groups(f);
}

void Verifier::functions() {
  std::unordered_set<SymbolId> bodies;
  for (const Function& f : m_.functions) {
    if (f.has_body && !bodies.insert(f.name).second)
      add("functions are defined once", m_.text(f.name), "there are two bodies of this name");
    for (const Var& v : m_.vars)
      if (v.name == f.name)
        add("module-level names are unique", m_.text(f.name), "a variable has the same name");
    signature(f);
    launch(f);
    if (!f.has_body) continue;
    const std::size_t before = out_.size();
    names(f);
    labels(f);
    // Printing an instruction needs its registers and labels to exist.
    if (out_.size() == before || !full()) body(f);
  }
}

std::vector<Problem> Verifier::run() {
  header();
  needs();
  variables();
  functions();
  for (const std::string& o : m_.target_options)
    if (!identifier(o)) name("target option", o);
  return std::move(out_);
}

// Every register, symbol and label an instruction names must exist before anything prints it.
std::optional<Problem> dangling(const Module& m) {
  std::string where;
  auto problem = [&](std::string why) -> std::optional<Problem> {
    return Problem{
        "operands name registers, variables and labels that exist", where, std::move(why), {}, 0, kNone};
  };
  for (const Function& f : m.functions) {
    if (f.name >= m.symbols.size()) return problem("a function has no name");
    auto good = [&](auto&& self, const Operand& o) -> bool {
      if (o.kind == OperandKind::reg || o.kind == OperandKind::address) {
        if (o.reg != kNone && o.reg >= f.regs.size()) return false;
        if (o.reg2 != kNone && o.reg2 >= f.regs.size()) return false;
      }
      if (o.kind == OperandKind::symbol && o.symbol >= m.symbols.size()) return false;
      if (o.kind == OperandKind::address && o.symbol != kNone && o.symbol >= m.symbols.size()) return false;
      if (o.kind == OperandKind::label && o.label >= f.labels.size()) return false;
      if (o.kind == OperandKind::table && o.label >= f.tables.size()) return false;
      if (o.kind == OperandKind::proto && o.label >= f.prototypes.size()) return false;
      for (const Operand& e : o.elems)
        if (!self(self, e)) return false;
      return true;
    };
    for (std::size_t k = 0; k < f.body.size(); ++k) {
      const Inst& i = f.body[k];
      where = text::cat("instruction ", k, " of ", m.text(f.name), ": ", InstVerifier::spelling(i));
      if (i.guard != kNone && i.guard >= f.regs.size()) return problem("its guard does not exist");
      for (std::size_t o = 0; o < i.operands.size(); ++o)
        if (!good(good, i.operands[o])) return problem(text::cat("operand ", o + 1, " does not exist"));
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<Problem> check(const Module& m, const CheckOptions& options) {
  if (auto p = dangling(m)) return {*p};
  return Verifier(m, options).run();
}

void verify(const Module& m, const CheckOptions& options) {
  const std::vector<Problem> all = check(m, options);
  if (all.empty()) return;
  const Problem& p = all[0];
  std::string where = p.instruction;
  if (p.ptx_line) where = text::cat("line ", p.ptx_line, ": ", where);
  if (p.loc != kNone && p.loc < m.locs.size()) {
    const Loc& l = m.locs[p.loc];
    for (const auto& file : m.files)
      if (file.first == l.file) where = text::cat(file.second, ":", l.line, ": ", where);
  }
  std::string why = p.why;
  if (all.size() > 1) why += text::cat(why.empty() ? "" : "; ", "and ", all.size() - 1, " more problems");
  throw VerifyError({p.rule, std::move(where), std::move(why), p.hint});
}

namespace {

// What the module asks for besides its instructions.
void other_needs(const Module& m, const std::function<void(std::string, const Requirement&)>& add) {
  if (const auto t = parse_target(m.target))
    if (const auto v = lowest_version(*t)) add(text::cat(".target ", m.target), {*v, {}});
  for (const Feature& f : features(m)) add(f.what, f.need);
}

}  // namespace

std::vector<Problem> settle_version(Module& m) {
  if (auto p = dangling(m)) return {*p};
  m.version = kNewestVersion;
  const CheckOptions options;
  Verifier verifier(m, options);
  const bool legal = verifier.run().empty();
  if (!legal) {  // said in the words of the version that it would have
    m.version = required_version(m);
    return check(m);
  }
  m.version = verifier.newest();
  other_needs(m,
              [&](const std::string&, const Requirement& r) { m.version = std::max(m.version, r.version); });
  return {};
}

std::vector<Need> needs(const Module& m) {
  std::vector<Need> out;
  std::unordered_set<std::string> seen;
  auto add = [&](std::string what, const Requirement& r) {
    if (r.version <= Version{6, 0} && r.targets.empty()) return;
    if (seen.insert(what + version_text(r.version)).second) out.push_back({std::move(what), r});
  };
  other_needs(m, add);
  const CheckOptions foreign{true, 1};
  // Judged as if everything were allowed, so that the need of a too low module is known as well.
  InstVerifier inst(m, foreign);
  for (const Function& f : m.functions) {
    inst.enter(f);
    for (const Inst& i : f.body) {
      Requirement r;
      inst.check(i, &r);
      add(InstVerifier::spelling(i), r);
    }
  }
  std::stable_sort(out.begin(), out.end(), [](const Need& a, const Need& b) {
    return a.requirement.version > b.requirement.version;
  });
  return out;
}

Version required_version(const Module& m) {
  Version v{1, 0};
  for (const Need& n : needs(m)) v = std::max(v, n.requirement.version);
  return v;
}

}  // namespace cgp::ptx
