// SPDX-License-Identifier: Apache-2.0
// Directives at module level, variables and function signatures.
#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/ptx/parse.h"
#include "cgp/ptx/parser_impl.h"

namespace cgp::ptx {

// ---------------------------------------------------------------- names
namespace {
std::uint32_t hash_of(std::string_view s) {
  std::uint64_t h = 0xcbf29ce484222325ull ^ s.size();
  for (char c : s) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return std::uint32_t(h ^ (h >> 32));
}
}  // namespace

std::size_t Names::locate(std::string_view name, std::uint32_t hash) const {
  std::size_t i = hash & (slots_.size() - 1);
  while (!slots_[i].key.empty() && (slots_[i].hash != hash || slots_[i].key != name))
    i = (i + 1) & (slots_.size() - 1);
  return i;
}
Binding Names::find(std::string_view name) const { return slots_[locate(name, hash_of(name))].value; }
void Names::bind(std::string_view name, Binding b) {
  const std::uint32_t h = hash_of(name);
  std::size_t i = locate(name, h);
  if (slots_[i].key.empty()) {
    if (++used_ * 2 > slots_.size()) {
      grow();
      i = locate(name, h);
    }
    slots_[i].key = name;
    slots_[i].hash = h;
  }
  undo_.emplace_back(slots_[i].key, slots_[i].value);
  slots_[i].value = b;
}
void Names::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (Slot& s : old)
    if (!s.key.empty()) slots_[locate(s.key, s.hash)] = s;
}
void Names::restore(std::size_t mark) {
  for (; undo_.size() > mark; undo_.pop_back())
    slots_[locate(undo_.back().first, hash_of(undo_.back().first))].value = undo_.back().second;
}

// ---------------------------------------------------------------- tokens
Parser::Parser(std::string_view text) : lexer_(text) {
  for (int i = 0; i < int(Sreg::kCount); ++i) {
    arena_.push_back(text::cat("%", name(Sreg(i))));
    names_.bind(arena_.back(), {Binding::sreg, std::uint32_t(i)});
  }
  names_.bind("WARP_SZ", {Binding::constant, 32});
  advance();
}

void Parser::advance() { token_ = lexer_.next(); }
bool Parser::accept(char c) {
  if (!token_.is(c)) return false;
  advance();
  return true;
}
void Parser::expect(char c, std::string_view where) {
  if (!accept(c)) fail(text::cat("expected '", c, "' in ", where, ", found ", describe()));
}
bool Parser::accept_directive(std::string_view text) {
  if (token_.kind != TokenKind::directive || token_.text != text) return false;
  advance();
  return true;
}
std::string Parser::describe() const {
  switch (token_.kind) {
    case TokenKind::end:
      return "the end of the text";
    case TokenKind::string:
      return "a string";
    default:
      break;
  }
  return text::cat("'", token_.text.substr(0, 60), "'");
}
std::string_view Parser::identifier(std::string_view what) {
  if (token_.kind != TokenKind::word) fail(text::cat("expected ", what, ", found ", describe()));
  if (token_.text.find('.') != std::string_view::npos || token_.text.find(':') != std::string_view::npos)
    fail(text::cat("'", token_.text.substr(0, 60), "' is not a name: dots are not allowed in ", what));
  if (token_.text.size() > 4096) fail(text::cat("the name of ", what, " is longer than 4096 characters"));
  const std::string_view s = token_.text;
  advance();
  return s;
}
std::uint64_t Parser::natural(std::string_view what, std::uint64_t max) {
  const Token t = token_;
  const Constant c = binary(0, 9);  // no comparisons: `%r<4>` ends with >
  if (c.kind != Constant::integer || (!c.is_unsigned && std::int64_t(c.bits) < 0) || c.bits > max)
    fail_at(t, text::cat(what, " must be an integer from 0 to ", max));
  return c.bits;
}
SymbolId Parser::intern(std::string_view s) {
  auto [it, added] = symbols_.try_emplace(s, SymbolId(module_.symbols.size()));
  if (added) module_.symbols.emplace_back(s);
  return it->second;
}

std::string Parser::unescaped(std::string_view quoted) const {
  std::string out;
  for (std::size_t i = 0; i < quoted.size(); ++i) {
    if (quoted[i] == '\\' && i + 1 < quoted.size() && (quoted[i + 1] == '"' || quoted[i + 1] == '\\')) ++i;
    out.push_back(quoted[i]);
  }
  return out;
}

// ---------------------------------------------------------------- module
Module Parser::run() {
  read_debug_strings();
  header();
  while (token_.kind != TokenKind::end) {
    if (token_.kind != TokenKind::directive) {
      if (token_.is(';')) {
        advance();
        continue;
      }
      fail(text::cat("expected a directive, found ", describe()),
           "instructions belong into the body of a .entry or .func");
    }
    if (accept_directive(".file"))
      file_directive();
    else if (accept_directive(".section"))
      section();
    else if (accept_directive(".alias"))
      alias();
    else if (accept_directive(".pragma"))
      pragma(module_.pragmas);
    else
      linkage_and_more();
  }
  return std::move(module_);
}

void Parser::header() {
  if (!accept_directive(".version")) fail(text::cat("PTX text starts with .version, found ", describe()));
  const Token v = token_;
  int part[2] = {0, 0};
  const std::size_t dot = v.text.find('.');
  bool good =
      v.kind == TokenKind::number && dot != std::string_view::npos && dot > 0 && dot + 1 < v.text.size();
  for (std::size_t i = 0; good && i < v.text.size(); ++i) {
    if (i == dot) continue;
    good = v.text[i] >= '0' && v.text[i] <= '9' && v.text.size() < 8;
    int& p = part[i > dot];
    p = p * 10 + (v.text[i] - '0');
  }
  if (!good) fail(text::cat("expected a version like 8.0, found ", describe()));
  module_.version = {part[0], part[1]};
  advance();
  if (!accept_directive(".target")) fail(text::cat("expected .target after .version, found ", describe()));
  module_.target = std::string(identifier("a target"));
  while (accept(',')) {
    // Debug sections are not kept, and ptxas refuses `debug` without them.
    const std::string_view option = identifier("a target option");
    if (option != "debug") module_.target_options.emplace_back(option);
  }
  if (accept_directive(".address_size")) {
    const Token t = token_;
    const std::uint64_t bits = natural("an address size", 64);
    if (bits != 64 && bits != 32) fail_at(t, "an address size is 32 or 64");
    module_.address_size = int(bits);
  } else {
    module_.address_size = 32;  // PTX's default
  }
}

void Parser::file_directive() {
  const auto number = std::uint32_t(natural("a file number", 0xffffffffu));
  if (token_.kind != TokenKind::string) fail(text::cat("expected a path, found ", describe()));
  std::string path = unescaped(token_.text);
  advance();
  if (accept(',')) {  // time stamp and size: of no use to anybody
    constant();
    if (accept(',')) constant();
  }
  for (const auto& f : module_.files)
    if (f.first == number) return;
  module_.files.emplace_back(number, std::move(path));
}

// DWARF sections carry nothing that we model, except the names of inlined functions (read_debug_strings).
void Parser::section() {
  if (token_.kind != TokenKind::directive && token_.kind != TokenKind::word)
    fail(text::cat("expected the name of a section, found ", describe()));
  advance();
  while (token_.kind == TokenKind::directive) advance();
  expect('{', "a section");
  while (!token_.is('}')) {
    if (token_.kind == TokenKind::end) fail("a section must be closed by }");
    advance();
  }
  advance();
}

// The strings that `.loc ... function_name label` needs stand behind the functions, so this looks ahead for
// them.
void Parser::read_debug_strings() {
  const std::string_view all = lexer_.text();
  const std::size_t found = all.find(".debug_str");
  if (found == std::string_view::npos || all.find("function_name") == std::string_view::npos) return;
  Lexer look(all);
  look.seek(found, 1);
  look.next();
  if (!look.next().is('{')) return;
  std::string* current = nullptr;
  bool ended = false;
  for (Token t = look.next(); t.kind != TokenKind::end && !t.is('}'); t = look.next()) {
    if (t.kind == TokenKind::word) {
      current = &debug_strings_[t.text];
      ended = false;
    } else if (t.kind == TokenKind::number && current && !ended) {
      const std::uint64_t c = literal(t).bits & 0xff;
      ended = c == 0;
      if (c) current->push_back(char(c));
    }
  }
}

void Parser::alias() {
  Alias a;
  const Token name = token_;
  a.name = intern(identifier("an alias"));
  expect(',', ".alias");
  a.target = intern(identifier("the target of an alias"));
  expect(';', ".alias");
  names_.bind(name.text, {Binding::symbol, a.name});
  module_.aliases.push_back(a);
}

void Parser::pragma(std::vector<std::string>& out) {
  do {
    if (token_.kind != TokenKind::string) fail(text::cat("expected a quoted pragma, found ", describe()));
    out.push_back(unescaped(token_.text));
    advance();
  } while (accept(','));
  expect(';', ".pragma");
}

std::optional<Space> Parser::space_of(std::string_view d) const {
  if (d == ".global") return Space::global;
  if (d == ".shared" || d == ".shared::cta") return Space::shared;
  if (d == ".local") return Space::local;
  if (d == ".const") return Space::constant;
  if (d == ".param") return Space::param;
  if (d == ".reg") return Space::reg;
  return std::nullopt;
}

void Parser::linkage_and_more() {
  Linkage l = Linkage::none;
  for (;;) {
    if (accept_directive(".visible"))
      l = Linkage::visible;
    else if (accept_directive(".extern"))
      l = Linkage::external;
    else if (accept_directive(".weak"))
      l = Linkage::weak;
    else if (accept_directive(".common"))
      l = Linkage::common;
    else
      break;
  }
  if (accept_directive(".entry")) return function(true, l);
  if (accept_directive(".func")) return function(false, l);
  const Token t = token_;
  const auto space = t.kind == TokenKind::directive ? space_of(t.text) : std::nullopt;
  if (!space || *space == Space::reg || *space == Space::param) {
    static const std::vector<std::string> known = {".entry",  ".func",   ".global", ".shared", ".const",
                                                   ".extern", ".local",  ".alias",  ".pragma", ".visible",
                                                   ".weak",   ".common", ".file",   ".section"};
    const auto close = text::closest(t.text, known, 1);
    fail(text::cat("unknown module-level directive ", describe()),
         close.empty() ? std::string() : text::cat("did you mean ", close[0], "?"));
  }
  advance();
  std::vector<Var> vars;
  variables(vars, *space, l);
  for (Var& v : vars) module_.vars.push_back(std::move(v));
}

// ---------------------------------------------------------------- variables
Mod Parser::type(std::string_view directive, std::string_view what) {
  auto m = directive.size() > 1 ? parse_mod(directive.substr(1)) : std::nullopt;
  if (!m || !is_type(*m)) {
    fail(text::cat("expected the type of ", what, ", found ", describe()),
         "types are .pred .b8 .u32 .s64 .f32 ...");
  }
  return *m;
}

Var Parser::variable_head(Space space) {
  Var v;
  v.space = space;
  for (;;) {
    if (accept_directive(".align")) {
      const Token t = token_;
      v.align = std::uint32_t(natural("an alignment", 1u << 24));
      if (v.align == 0 || (v.align & (v.align - 1))) fail_at(t, "an alignment must be a power of two");
    } else if (accept_directive(".attribute")) {
      expect('(', ".attribute");
      if (!accept_directive(".managed"))
        fail(text::cat("unknown attribute ", describe()), "only .attribute(.managed) is supported");
      v.managed = true;
      expect(')', ".attribute");
    } else if (accept_directive(".v2")) {
      v.vector = 2;
    } else if (accept_directive(".v4")) {
      v.vector = 4;
    } else {
      break;
    }
  }
  if (token_.kind != TokenKind::directive)
    fail(text::cat("expected the type of a variable, found ", describe()));
  v.type = type(token_.text, "a variable");
  advance();
  return v;
}

void Parser::array_suffix(Var& v) {
  const Token at = token_;
  while (accept('[')) {
    v.is_array = true;
    if (v.dims.size() == kMaxDimensions) fail("an array has at most 16 dimensions");
    v.dims.push_back(token_.is(']') ? 0 : natural("an array extent", kMaxBytes));
    expect(']', "an array");
  }
  std::uint64_t bytes = std::uint64_t(std::max(1, type_bits(v.type) / 8)) * std::uint64_t(v.vector);
  for (std::uint64_t d : v.dims) {
    if (d && bytes > kMaxBytes / d) fail_at(at, "an array is larger than 1 TiB");
    bytes *= std::max<std::uint64_t>(d, 1);
  }
}

void Parser::variables(std::vector<Var>& out, Space space, Linkage linkage) {
  const Var head = variable_head(space);
  do {
    Var v = head;
    v.linkage = linkage;
    const Token t = token_;
    v.name = intern(identifier("a variable"));
    if (accept('<')) {  // `x<3>` declares x0, x1, x2
      const std::uint64_t n = natural("the number of variables", 65536);
      expect('>', "a parameterised name");
      for (std::uint64_t i = 0; i < n; ++i) {
        arena_.push_back(text::cat(t.text, i));
        v.name = intern(arena_.back());
        names_.bind(arena_.back(), {Binding::symbol, v.name});
        out.push_back(v);
      }
      continue;
    }
    array_suffix(v);
    // Bound before the initialiser: a variable may hold its own address.
    if (!function_) names_.bind(t.text, {Binding::symbol, v.name});
    if (accept('=')) initialiser(v);
    if (!function_ && v.linkage == Linkage::external) {
      // Headers pasted together declare the same variable again.
      for (const Var& w : module_.vars)
        if (w.name == v.name && w.linkage == Linkage::external) v.name = kNone;
      if (v.name == kNone) continue;
    }
    out.push_back(std::move(v));
  } while (accept(','));
  expect(';', "a variable declaration");
}

// ---------------------------------------------------------------- functions
Var Parser::parameter() {
  Space space = Space::param;
  if (accept_directive(".reg"))
    space = Space::reg;
  else if (!accept_directive(".param"))
    fail(text::cat("expected .param, found ", describe()));
  Var v = variable_head(space);
  if (accept_directive(".ptr")) {
    v.is_ptr = true;
    if (token_.kind == TokenKind::directive)
      if (auto s = space_of(token_.text)) {
        v.ptr_space = *s;
        advance();
      }
    if (accept_directive(".align")) v.ptr_align = std::uint32_t(natural("an alignment", 1u << 24));
  }
  v.name = intern(identifier("a parameter"));
  array_suffix(v);
  return v;
}

std::vector<Var> Parser::parameters(bool may_be_reg) {
  std::vector<Var> out;
  expect('(', "a parameter list");
  if (accept(')')) return out;
  do {
    if (out.size() > 8192) fail("a function has at most 8192 parameters");
    const Token t = token_;
    out.push_back(parameter());
    if (!may_be_reg && out.back().space == Space::reg)
      fail_at(t, "parameters of an .entry are in .param space");
  } while (accept(','));
  expect(')', "a parameter list");
  return out;
}

std::array<std::uint32_t, 3> Parser::triple() {
  std::array<std::uint32_t, 3> v = {1, 1, 1};
  for (std::size_t i = 0; i < 3; ++i) {
    v[i] = std::uint32_t(natural("a dimension", 0x7fffffff));
    if (i < 2 && !accept(',')) break;
  }
  return v;
}

bool Parser::one_function_directive(Function& f) {
  auto number = [&] { return std::uint32_t(natural("the operand of a directive", 0x7fffffff)); };
  if (accept_directive(".maxntid"))
    f.maxntid = triple();
  else if (accept_directive(".reqntid"))
    f.reqntid = triple();
  else if (accept_directive(".reqnctapercluster"))
    f.reqnctapercluster = triple();
  else if (accept_directive(".minnctapersm"))
    f.minnctapersm = number();
  else if (accept_directive(".maxnctapersm"))
    f.maxnctapersm = number();
  else if (accept_directive(".maxnreg"))
    f.maxnreg = number();
  else if (accept_directive(".maxclusterrank"))
    f.maxclusterrank = number();
  else if (accept_directive(".explicitcluster"))
    f.explicitcluster = true;
  else if (accept_directive(".blocksareclusters"))
    f.blocksareclusters = true;
  else if (accept_directive(".noreturn"))
    f.noreturn = true;
  else if (accept_directive(".pragma"))
    pragma(f.pragmas);
  else
    return false;
  return true;
}

void Parser::function_directives(Function& f) {
  while (token_.kind == TokenKind::directive) {
    if (one_function_directive(f)) continue;
    static const std::vector<std::string> known = {
        ".maxntid", ".reqntid", ".reqnctapercluster", ".minnctapersm",    ".maxnctapersm",
        ".maxnreg", ".pragma",  ".maxclusterrank",    ".explicitcluster", ".blocksareclusters",
        ".noreturn"};
    const auto close = text::closest(token_.text, known, 1);
    fail(text::cat("unknown directive ", describe(), " before the body of a function"),
         close.empty() ? std::string() : text::cat("did you mean ", close[0], "?"));
  }
}

void Parser::function(bool entry, Linkage linkage) {
  Function f;
  f.entry = entry;
  f.linkage = linkage;
  if (!entry && token_.is('(')) f.returns = parameters(true);
  const Token name = token_;
  f.name = intern(identifier("a function"));
  if (token_.is('(')) f.params = parameters(!entry);
  names_.bind(name.text, {Binding::symbol, f.name});
  function_directives(f);
  if (accept(';')) {
    module_.functions.push_back(std::move(f));
    return;
  }
  if (!token_.is('{'))
    fail(text::cat("expected { or ; after the signature of a function, found ", describe()));
  f.has_body = true;
  body(f);
  module_.functions.push_back(std::move(f));
}

Module parse(std::string_view text) { return Parser(text).run(); }

}  // namespace cgp::ptx
