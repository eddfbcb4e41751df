// SPDX-License-Identifier: Apache-2.0
// Function bodies: scopes, registers, labels, instructions and operands.
#include <algorithm>
#include <utility>

#include "cgp/base/text.h"
#include "cgp/ptx/forms.h"
#include "cgp/ptx/parser_impl.h"

namespace cgp::ptx {

// ---------------------------------------------------------------- scopes
void Parser::enter_scope() {
  if (int(scopes_.size()) >= kMaxScopes) fail("scopes are nested too deeply");
  scopes_.push_back({names_.mark(), label_names_.size(), references_.size()});
}

// Labels are visible in their scope and inside it, before and after they are defined. References that this
// scope cannot resolve are left to the scope around it.
void Parser::leave_scope() {
  const Scope s = scopes_.back();
  scopes_.pop_back();
  auto find = [&](std::string_view name) -> const LabelName* {
    for (std::size_t i = label_names_.size(); i > s.labels; --i)
      if (label_names_[i - 1].name == name) return &label_names_[i - 1];
    return nullptr;
  };
  std::unordered_map<std::string_view, const LabelName*> index;
  if (label_names_.size() - s.labels > 16)
    for (std::size_t i = s.labels; i < label_names_.size(); ++i)
      index[label_names_[i].name] = &label_names_[i];
  std::size_t kept = s.references;
  for (std::size_t i = s.references; i < references_.size(); ++i) {
    const Reference& r = references_[i];
    const LabelName* l = nullptr;
    if (index.empty()) {
      l = find(r.at.text);
    } else if (auto it = index.find(r.at.text); it != index.end()) {
      l = it->second;
    }
    if (!l) {
      if (scopes_.empty()) {
        if (r.where == Reference::operand && function_->body[r.index].op == Op::call)
          unknown_name(r.at, "function, prototype or table");
        std::vector<std::string> all;
        for (const LabelName& n : label_names_) all.emplace_back(n.name);
        const auto close = text::closest(r.at.text, all, 1);
        fail_at(r.at, text::cat("label '", r.at.text.substr(0, 60), "' is not defined"),
                close.empty() ? std::string() : text::cat("did you mean ", close[0], "?"));
      }
      references_[kept++] = r;
      continue;
    }
    if (r.where == Reference::table) {
      if (l->kind != LabelName::label) fail_at(r.at, text::cat("'", r.at.text, "' is not a label"));
      function_->tables[r.index].labels[r.slot] = l->id;
      continue;
    }
    Operand& o = function_->body[r.index].operands[r.slot];
    o.kind = l->kind == LabelName::label   ? OperandKind::label
             : l->kind == LabelName::table ? OperandKind::table
                                           : OperandKind::proto;
    o.label = l->id;
  }
  references_.resize(kept);
  label_names_.resize(s.labels);
  names_.restore(s.names);
}

// The name itself when it is free in this function, else name$1, name$2 ...
std::string Parser::unique(std::string_view name) {
  int& taken = used_[name];
  if (taken == 0) {
    taken = 1;
    return std::string(name);
  }
  for (;;) {
    std::string candidate = text::cat(name, "$", taken++);
    if (used_.count(candidate)) continue;
    arena_.push_back(std::move(candidate));
    used_[arena_.back()] = 1;
    return arena_.back();
  }
}

// ---------------------------------------------------------------- body
void Parser::bind_parameters(const std::vector<Var>& list) {
  for (const Var& v : list) {
    arena_.push_back(module_.text(v.name));
    if (v.space == Space::reg) {
      declare_register(arena_.back(), v.type);
    } else {
      ++used_[arena_.back()];
      names_.bind(arena_.back(), {Binding::symbol, v.name});
    }
  }
}

namespace {

template <class F>
void each_register(Operand& o, F&& f) {
  f(o.reg), f(o.reg2);
  for (Operand& e : o.elems) each_register(e, f);
}

/// Of ranges declared by the hundred thousand. What is there is paid for by each analysis, for each block.
void drop_unused_registers(Function& f, std::size_t bound, const Module& m) {
  const auto each = [&](const auto& visit) {
    for (Inst& i : f.body) {
      visit(i.guard);
      for (Operand& o : i.operands) each_register(o, visit);
    }
  };
  std::vector<RegId> place(f.regs.size(), kNone);
  for (const auto* vars : {&f.params, &f.returns})
    for (const Var& v : *vars)
      for (std::size_t r = 0; r < bound && v.space == Space::reg; ++r)
        if (f.regs[r].name == m.text(v.name)) place[r] = 0;
  each([&](RegId& r) {
    if (r != kNone) place[r] = 0;
  });
  std::vector<Reg> kept;
  for (std::size_t r = 0; r < f.regs.size(); ++r)
    if (place[r] != kNone) place[r] = RegId(kept.size()), kept.push_back(std::move(f.regs[r]));
  f.regs = std::move(kept);
  each([&](RegId& r) {
    if (r != kNone) r = place[r];
  });
}

}  // namespace

void Parser::body(Function& f) {
  function_ = &f;
  used_.clear();
  references_.clear();
  label_names_.clear();
  loc_ = kNone;
  last_locs_.clear();
  enter_scope();
  bind_parameters(f.returns);
  bind_parameters(f.params);
  const std::size_t bound = f.regs.size();
  expect('{', "a function");
  while (scopes_.size() > 1 || !token_.is('}')) {
    if (token_.kind == TokenKind::end) fail("the body of a function must be closed by }");
    if (token_.is('{')) {
      enter_scope();
      advance();
    } else if (token_.is('}')) {
      leave_scope();
      advance();
    } else {
      statement();
    }
  }
  leave_scope();
  if (f.regs.size() > kManyRegisters) drop_unused_registers(f, bound, module_);
  function_ = nullptr;
  advance();
}

void Parser::statement() {
  if (token_.kind == TokenKind::directive) return body_directive();
  if (token_.kind == TokenKind::word) {
    // A label is a word followed by ':'; look at the text instead of the next token.
    const std::string_view all = lexer_.text();
    std::size_t at = lexer_.position();
    while (at < all.size() && (all[at] == ' ' || all[at] == '\t')) ++at;
    if (at < all.size() && all[at] == ':') {
      const Token name = token_;
      identifier("a label");
      advance();
      return label_or_table(name);
    }
    return instruction();
  }
  if (token_.is('@')) return instruction();
  if (accept(';')) return;
  fail(text::cat("expected an instruction, found ", describe()));
}

void Parser::body_directive() {
  if (accept_directive(".loc")) return loc_directive();
  if (accept_directive(".reg")) return registers();
  if (accept_directive(".pragma")) {
    std::vector<std::string> texts;
    pragma(texts);
    for (std::string& t : texts)
      function_->body_pragmas.push_back({std::move(t), std::uint32_t(function_->body.size())});
    return;
  }
  if (accept_directive(".file")) return file_directive();
  if (const auto space = space_of(token_.text)) {
    advance();
    return local_variables(*space);
  }
  if (token_.text == ".extern" || token_.text == ".visible" || token_.text == ".weak" ||
      token_.text == ".common") {
    const bool is_extern = token_.text == ".extern";
    advance();
    const auto space = token_.kind == TokenKind::directive ? space_of(token_.text) : std::nullopt;
    if (!space || !is_extern) fail(text::cat("expected a variable, found ", describe()));
    advance();
    // `.extern .shared x[];` inside a body names the module's dynamic shared memory.
    std::vector<Var> vars;
    Function* const f = std::exchange(function_, nullptr);
    variables(vars, *space, Linkage::external);
    function_ = f;
    for (Var& v : vars) module_.vars.push_back(std::move(v));
    return;
  }
  static const std::vector<std::string> known = {".reg",  ".loc",    ".pragma", ".param", ".local",
                                                 ".file", ".shared", ".const",  ".global"};
  const auto close = text::closest(token_.text, known, 1);
  fail(text::cat("unknown directive ", describe(), " in a function body"),
       close.empty() ? std::string() : text::cat("did you mean ", close[0], "?"));
}

void Parser::declare_register(std::string_view name, Mod type) {
  if (function_->regs.size() >= kMaxRegisters) fail("a function declares more than 1048576 registers");
  names_.bind(name, {Binding::reg, std::uint32_t(function_->regs.size())});
  function_->regs.push_back({unique(name), type});
}

// `.reg .v4 .f32 v` is four registers v_x to v_w: v stands for {v_x, v_y, v_z, v_w}, v.x (or v.r) for the first.
void Parser::declare_vector(std::string_view name, Mod type, int width) {
  const auto first = std::uint32_t(function_->regs.size());
  for (int k = 0; k < width; ++k) {
    arena_.push_back(text::cat(name, '_', "xyzw"[k]));
    if (function_->regs.size() >= kMaxRegisters) fail("a function declares more than 1048576 registers");
    function_->regs.push_back({unique(arena_.back()), type});
    for (const char selector : {"xyzw"[k], "rgba"[k]}) {
      arena_.push_back(text::cat(name, '.', selector));
      names_.bind(arena_.back(), {Binding::reg, first + std::uint32_t(k)});
    }
  }
  names_.bind(name, {Binding::vector, first, std::uint8_t(width)});
}

void Parser::registers() {
  const int width = accept_directive(".v4") ? 4 : accept_directive(".v2") ? 2 : 1;
  const auto declare = [&](std::string_view name, Mod t) {
    width == 1 ? declare_register(name, t) : declare_vector(name, t, width);
  };
  if (token_.kind != TokenKind::directive)
    fail(text::cat("expected the type of a register, found ", describe()));
  const Mod t = type(token_.text, "a register");
  advance();
  do {
    const Token at = token_;
    const std::string_view name = identifier("a register");
    if (const Binding b = names_.find(name); b.kind == Binding::sreg)
      fail_at(at, text::cat("'", name, "' is a special register and cannot be declared"));
    if (!accept('<')) {
      declare(name, t);
      continue;
    }
    const Token count = token_;
    const std::uint64_t n = natural("the number of registers", kMaxRegisters);
    if (n > (kMaxRegisters - function_->regs.size()) / std::size_t(width))
      fail_at(count, text::cat("a function declares more than ", kMaxRegisters, " registers"));
    expect('>', "a register range");
    function_->regs.reserve(function_->regs.size() + n * std::size_t(width));
    for (std::uint64_t i = 0; i < n; ++i) {
      arena_.push_back(text::cat(name, i));
      declare(arena_.back(), t);
    }
  } while (accept(','));
  expect(';', "a register declaration");
}

void Parser::local_variables(Space space) {
  std::vector<Var> vars;
  variables(vars, space, Linkage::none);
  for (Var& v : vars) {
    arena_.push_back(module_.text(v.name));
    const std::string_view name = arena_.back();
    // A name that means something outside of this scope keeps that meaning there.
    const bool shadows = names_.find(name).kind != Binding::none;
    if (shadows && !used_.count(name)) used_[name] = 1;
    arena_.push_back(unique(name));
    v.name = intern(arena_.back());
    names_.bind(name, {Binding::symbol, v.name});
    function_->vars.push_back(std::move(v));
  }
}

void Parser::loc_directive() {
  Loc l;
  auto position = [&](Loc& at) {
    at.file = std::uint32_t(natural("a file number", 0xffffffffu));
    at.line = int(natural("a line", 0x7fffffff));
    at.column = int(natural("a column", 0x7fffffff));
  };
  auto add = [&](const Loc& at) {
    const std::string key =
        text::cat(at.file, ",", at.line, ",", at.column, ",", at.inlined_at, ",", at.function_name);
    auto [it, added] = locs_.try_emplace(key, std::uint32_t(module_.locs.size()));
    if (added) module_.locs.push_back(at);
    return it->second;
  };
  position(l);
  bool outer_given = false;
  Loc outer;
  while (accept(',')) {
    const Token t = token_;
    const std::string_view word = identifier("function_name or inlined_at");
    if (word == "function_name") {
      const std::string_view label = identifier("a label of .debug_str");
      std::int64_t skip = 0;
      if (accept('+')) skip = std::int64_t(natural("an offset", 1u << 30));
      auto it = debug_strings_.find(label);
      l.function_name = it == debug_strings_.end()              ? std::string(label)
                        : std::size_t(skip) < it->second.size() ? it->second.substr(std::size_t(skip))
                                                                : std::string();
    } else if (word == "inlined_at") {
      position(outer);
      outer_given = true;
    } else {
      fail_at(t, text::cat("expected function_name or inlined_at, found '", word, "'"));
    }
  }
  if (outer_given) {
    // The call site may itself be inlined somewhere: the last .loc that named it says where.
    auto it = last_locs_.find({outer.file, outer.line, outer.column});
    l.inlined_at = it != last_locs_.end() ? it->second : add(outer);
  } else {
    l.function_name.clear();
  }
  loc_ = add(l);
  last_locs_[{l.file, l.line, l.column}] = loc_;
}

// ---------------------------------------------------------------- labels and tables
void Parser::label_or_table(const Token& name) {
  if (token_.kind == TokenKind::directive) {
    if (accept_directive(".branchtargets")) return table(name, false);
    if (accept_directive(".calltargets")) return table(name, true);
    if (accept_directive(".callprototype")) return prototype(name);
  }
  for (std::size_t i = label_names_.size(); i > scopes_.back().labels; --i) {
    if (label_names_.size() - i > 4096) break;  // the verifier sees the rest: unique() would have renamed
    if (label_names_[i - 1].name == name.text)
      fail_at(name, text::cat("label '", name.text, "' is defined twice in one scope"));
  }
  label_names_.push_back({name.text, LabelName::label, std::uint32_t(function_->labels.size())});
  function_->labels.push_back({unique(name.text), std::uint32_t(function_->body.size())});
}

void Parser::table(const Token& name, bool calls) {
  Table t;
  t.calls = calls;
  const auto index = std::uint32_t(function_->tables.size());
  do {
    if (calls) {
      const Token at = token_;
      const std::string_view f = identifier("a function");
      if (names_.find(f).kind != Binding::symbol) unknown_name(at, "function");
      t.functions.push_back(names_.find(f).id);
    } else {
      references_.push_back({token_, Reference::table, index, std::uint32_t(t.labels.size())});
      t.labels.push_back(kNone);
      identifier("a label");
    }
  } while (accept(','));
  expect(';', calls ? ".calltargets" : ".branchtargets");
  label_names_.push_back({name.text, LabelName::table, index});
  t.name = unique(name.text);
  function_->tables.push_back(std::move(t));
}

void Parser::prototype(const Token& name) {
  Prototype p;
  if (token_.is('(')) p.returns = parameters(true);
  if (token_.kind != TokenKind::word || token_.text != "_")
    fail(text::cat("expected _ in .callprototype, found ", describe()));
  advance();
  if (token_.is('(')) p.params = parameters(true);
  if (accept_directive(".noreturn")) p.noreturn = true;
  expect(';', ".callprototype");
  label_names_.push_back({name.text, LabelName::prototype, std::uint32_t(function_->prototypes.size())});
  p.name = unique(name.text);
  function_->prototypes.push_back(std::move(p));
}

// ---------------------------------------------------------------- instructions
RegId Parser::predicate() {
  const Token t = token_;
  const std::string_view name = identifier("a predicate register");
  const Binding b = names_.find(name);
  if (b.kind != Binding::reg) unknown_name(t, "predicate register");
  if (function_->regs[b.id].type != Mod::pred)
    fail_at(
        t,
        text::cat("guard '", name, "' is a .", ptx::name(function_->regs[b.id].type), " register, not .pred"),
        "compare it with setp first");
  return b.id;
}

Mod Parser::modifier(std::string_view text, const Token& at, std::string_view op) const {
  if (auto m = parse_mod(text)) return *m;
  std::vector<std::string> all;
  for (int i = 0; i < int(Mod::kCount); ++i) all.emplace_back(name(Mod(i)));
  const auto close = text::closest(text, all, 1);
  Token t = at;
  t.text = text;
  fail_at(t, text::cat("unknown modifier '.", text.substr(0, 60), "' on ", op),
          close.empty() ? std::string() : text::cat("did you mean .", close[0], "?"));
}

void Parser::unknown_instruction(const Token& t) const {
  std::vector<std::string> all;
  for (int k = 0; k < int(Op::kCount); ++k) all.emplace_back(name(Op(k)));
  auto close = text::closest(t.text.substr(0, 60), all, 1);
  if (close.empty())
    close = text::closest(t.text.substr(0, std::min<std::size_t>(t.text.find('.'), 60)), all, 1);
  fail_at(t, text::cat("unknown instruction '", t.text.substr(0, 60), "'"),
          close.empty() ? std::string() : text::cat("did you mean ", close[0], "?"));
}

namespace {
std::vector<std::string_view> dotted_parts(std::string_view word) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at <= word.size();) {
    const std::size_t end = std::min(word.find('.', at), word.size());
    parts.push_back(word.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

// ptxas takes all parts of an instruction's name but the first in any order: vote.ballot.sync is
// vote.sync.ballot. The word with the parts of its opcode in front, if one of the table takes more of them
// than the first `known`; or nothing.
std::string opcode_in_front(std::string_view word, std::size_t known) {
  const auto parts = dotted_parts(word);
  std::string_view best;
  for (int k = 0; k < int(Op::kCount); ++k) {
    const std::string_view whole = name(Op(k));
    if (whole.size() <= parts[0].size() || whole[parts[0].size()] != '.' ||
        whole.substr(0, parts[0].size()) != parts[0])
      continue;
    const auto wanted = dotted_parts(whole);
    if (wanted.size() <= known) continue;
    if (!std::all_of(wanted.begin(), wanted.end(), [&](std::string_view part) {
          return std::find(parts.begin(), parts.end(), part) != parts.end();
        }))
      continue;
    best = whole;
    known = wanted.size();
  }
  if (best.empty()) return {};
  std::string respelled(best);
  auto left = dotted_parts(best);
  for (std::string_view part : parts)
    if (const auto at = std::find(left.begin(), left.end(), part); at != left.end())
      left.erase(at);
    else
      respelled += text::cat(".", part);
  return respelled;
}
}  // namespace

// The opcode is the longest prefix that the table knows, the rest are modifiers.
Parser::Word Parser::split_word(const Token& t) const {
  std::string_view word = t.text;
  Word w;
  // bar.cta.sync is bar.sync, said in full.
  std::string shorter;
  for (std::string_view full : {"bar.cta.", "barrier.cta."})
    if (word.substr(0, full.size()) == full)
      shorter = text::cat(full.substr(0, full.size() - 4), word.substr(full.size()));
  const std::string_view searched = shorter.empty() ? word : std::string_view(shorter);
  std::size_t at = searched.size();
  std::optional<Op> op;
  while (!(op = parse_op(searched.substr(0, at)))) {
    const std::size_t cut = searched.find_last_of(".:", at - 1);
    at = cut == std::string_view::npos ? 0 : searched[cut] == ':' ? cut - 1 : cut;
    if (at == 0) break;
  }
  std::string respelled;
  if (shorter.empty()) respelled = opcode_in_front(word, op ? dotted_parts(name(*op)).size() : 0);
  if (!respelled.empty()) {
    word = respelled;
    for (at = word.size(); !(op = parse_op(word.substr(0, at)));) at = word.rfind('.', at - 1);
  }
  if (!op) unknown_instruction(t);
  w.op = *op;
  if (!shorter.empty()) {
    w.mods.push_back(Mod::cta);
    at += 4;
  }
  while (at < word.size()) {
    const bool colons = word[at] == ':';
    // Only two opcodes take their first modifier after "::".
    if (colons && w.op != Op::tcgen05_wait && w.op != Op::tcgen05_fence)
      modifier(word.substr(0, word.find('.', at)), t, name(w.op));
    at += colons ? 2 : 1;
    const std::size_t end = std::min(word.find('.', at), word.size());
    if (w.mods.size() == Mods::kMax) fail_at(t, "an instruction has at most 15 modifiers");
    w.mods.push_back(modifier(word.substr(at, end - at), t, name(w.op)));
    at = end;
  }
  w.mods = canonical(w.op, w.mods);  // ptxas takes modifiers in any order
  return w;
}

void Parser::opcode(Inst& i) {
  const Token t = token_;
  if (t.kind != TokenKind::word) fail(text::cat("expected an instruction, found ", describe()));
  auto it = words_.find(t.text);
  if (it == words_.end()) it = words_.emplace(t.text, split_word(t)).first;
  i.op = it->second.op;
  i.mods = it->second.mods;
  advance();
  if (token_.kind != TokenKind::directive) return;
  while (token_.kind == TokenKind::directive) {  // "add .s32": blanks before a modifier are legal
    if (i.mods.size() == Mods::kMax) fail("an instruction has at most 15 modifiers");
    i.mods.push_back(modifier(token_.text.substr(1), token_, name(i.op)));
    advance();
  }
  i.mods = canonical(i.op, i.mods);
}

void Parser::instruction() {
  Inst& i = function_->body.emplace_back();
  i.ptx_line = token_.line;
  i.loc = loc_;
  if (accept('@')) {
    i.guard_negated = accept('!');
    i.guard = predicate();
  }
  opcode(i);
  if (!token_.is(';')) {
    i.operands.reserve(4);
    do {
      if (i.operands.size() == kMaxOperands) fail("an instruction has at most 64 operands");
      i.operands.push_back(operand(i, 0));
    } while (accept(','));
  }
  if (!token_.is(';')) fail(text::cat("expected , or ; after an operand, found ", describe()));
  advance();
  if (!sums_.empty() || (i.op == Op::mov && (i.has(Mod::v2) || i.has(Mod::v4)))) written_out();
}

void Parser::unknown_name(const Token& t, std::string_view what) const {
  std::vector<std::string> all;
  if (function_) {
    for (const Reg& r : function_->regs)
      if (all.size() < 20000) all.push_back(r.name);
    for (const Var& v : function_->vars) all.push_back(module_.text(v.name));
    for (const Var& v : function_->params) all.push_back(module_.text(v.name));
  }
  for (const Var& v : module_.vars) all.push_back(module_.text(v.name));
  for (const Function& f : module_.functions) all.push_back(module_.text(f.name));
  if (!t.text.empty() && t.text[0] == '%')
    for (int i = 0; i < int(Sreg::kCount); ++i) all.push_back(text::cat("%", name(Sreg(i))));
  // %r1.b0, %v.x: selectors of video operands and vector registers.
  const std::size_t dot = t.text.rfind('.');
  if (dot != std::string_view::npos && names_.find(t.text.substr(0, dot)).kind == Binding::reg)
    fail_at(t,
            text::cat("the selector '", t.text.substr(dot), "' on register ", t.text.substr(0, dot),
                      " is not supported"),
            "extract the part with bfe, prmt or mov {..} first");
  // %r17 of `.reg .b32 %r<16>`: say how far the range goes.
  const std::size_t digits = t.text.find_last_not_of("0123456789") + 1;
  if (digits > 0 && digits < t.text.size()) {
    std::size_t largest = 0, count = 0;
    for (const std::string& n : all)
      if (n.size() > digits && n.size() < digits + 8 && n.compare(0, digits, t.text.substr(0, digits)) == 0 &&
          n.find_first_not_of("0123456789", digits) == std::string::npos) {
        largest = std::max(largest, std::size_t(std::stoul(n.substr(digits))));
        ++count;
      }
    if (count > 1)
      fail_at(t, text::cat("'", t.text.substr(0, 60), "' is not declared (expected a ", what, ")"),
              text::cat("the largest declared is ", t.text.substr(0, digits), largest));
  }
  const auto close = text::closest(t.text.substr(0, 60), all, 1);
  fail_at(t, text::cat("'", t.text.substr(0, 60), "' is not declared (expected a ", what, ")"),
          close.empty() ? std::string() : text::cat("did you mean ", close[0], "?"));
}

// ---------------------------------------------------------------- operands
std::int64_t Parser::signed_offset() {
  std::uint64_t sum = 0;
  while (token_.is('+') || token_.is('-')) {
    const bool minus = token_.is('-');
    advance();
    const Token t = token_;
    const Constant c = unary(0);
    if (c.kind != Constant::integer) fail_at(t, "an offset must be an integer");
    sum += minus ? 0 - c.bits : c.bits;
  }
  return std::int64_t(sum);
}

Operand Parser::constant_operand() {
  const Constant c = constant();
  Operand o;
  o.kind = c.kind == Constant::f32   ? OperandKind::f32_imm
           : c.kind == Constant::f64 ? OperandKind::f64_imm
                                     : OperandKind::imm;
  o.imm = c.bits;
  return o;
}

Operand Parser::word_operand(const Inst& i) {
  const Token t = token_;
  Operand o;
  const Binding b = names_.find(t.text);
  const bool jumps = i.op == Op::bra || (i.op == Op::brx_idx && i.operands.size() == 1);
  if (b.kind == Binding::constant) return constant_operand();
  advance();
  if (b.kind == Binding::reg && !jumps) {
    o.kind = OperandKind::reg;
    o.reg = b.id;
    const bool sum = (token_.is('+') || token_.is('-')) && !i.operands.empty() && i.op != Op::call;
    if (sum) o.reg = sum_of(b.id);
  } else if (b.kind == Binding::vector && !jumps) {
    o.kind = OperandKind::vector;
    for (std::uint32_t k = 0; k < b.width; ++k) o.elems.push_back(Operand::of(b.id + k));
    return o;
  } else if (t.text == "_") {
    if (!token_.is('|')) return o;
    o.kind = OperandKind::reg;
  } else if (b.kind == Binding::sreg) {
    o.kind = OperandKind::sreg;
    o.sreg = Sreg(b.id);
    return o;
  } else if (b.kind == Binding::symbol && !jumps) {
    o.kind = OperandKind::symbol;
    o.symbol = b.id;
    o.imm = std::uint64_t(signed_offset());
    return o;
  } else if (jumps || i.op == Op::call || i.op == Op::brx_idx) {
    // A label, table or prototype: known when its scope ends.
    references_.push_back(
        {t, Reference::operand, std::uint32_t(function_->body.size() - 1), std::uint32_t(i.operands.size())});
    o.kind = OperandKind::label;
    return o;
  } else {
    if (t.line > i.ptx_line && parse_op(t.text.substr(0, t.text.find('.'))))
      fail_at(t, text::cat("expected ; before '", t.text.substr(0, 60), "'"));
    unknown_name(t, "register or variable");
  }
  if (!accept('|')) return o;
  const Token q = token_;
  if (q.kind != TokenKind::word) fail(text::cat("expected a predicate register after |, found ", describe()));
  advance();
  if (q.text == "_") {
    if (o.reg == kNone) fail_at(q, "_|_ has no destination");
    return o;
  }
  const Binding second = names_.find(q.text);
  if (second.kind != Binding::reg) unknown_name(q, "predicate register");
  o.reg2 = second.id;
  return o;
}

Operand Parser::operand(const Inst& i, int depth) {
  if (depth > 4) fail("operands are nested too deeply");
  switch (token_.kind) {
    case TokenKind::word:
      return word_operand(i);
    case TokenKind::number:
      return constant_operand();
    case TokenKind::punctuation:
      break;
    default:
      fail(text::cat("expected an operand, found ", describe()));
  }
  switch (token_.punctuation) {
    case '[':
      return address(depth);
    case '{':
      return elements(i, '}', OperandKind::vector, depth);
    case '(': {
      if (i.op == Op::call) return elements(i, ')', OperandKind::list, depth);
      return constant_operand();
    }
    case '!': {
      const Token bang = token_;
      advance();
      if (token_.kind == TokenKind::word) {
        const Token t = token_;
        advance();
        const Binding b = names_.find(t.text);
        if (b.kind != Binding::reg) unknown_name(t, "predicate register");
        return Operand::of(b.id, true);
      }
      const Constant c = unary(0);
      if (c.kind != Constant::integer) fail_at(bang, "operator ! needs an integer constant");
      return Operand::integer(c.bits == 0);
    }
    case '-':
    case '~':
    case '+':
      return constant_operand();
    default:
      fail(text::cat("expected an operand, found ", describe()));
  }
}

// {a, b} and (a, b)
Operand Parser::elements(const Inst& i, char close, OperandKind kind, int depth) {
  Operand o;
  o.kind = kind;
  const Token open = token_;
  advance();
  if (!token_.is(close)) {
    o.elems.reserve(4);
    do {
      if (o.elems.size() == kMaxVector)
        fail_at(open, text::cat("a vector has at most ", kMaxVector, " elements"));
      const std::size_t references = references_.size();
      o.elems.push_back(operand(i, depth + 1));
      if (references_.size() != references) {
        const Token t = references_.back().at;
        unknown_name(t, "register or variable");
      }
    } while (accept(','));
  }
  expect(close, kind == OperandKind::vector ? "a vector" : "a list");
  return o;
}

// [base + offset], [symbol + offset], [offset], [tensor, {x, y}], [texture, sampler, {u, v}]
Operand Parser::address(int depth) {
  Operand o;
  o.kind = OperandKind::address;
  advance();
  if (token_.kind == TokenKind::word && token_.text != "WARP_SZ") {
    const Token t = token_;
    const Binding b = names_.find(t.text);
    if (b.kind == Binding::reg)
      o.reg = b.id;
    else if (b.kind == Binding::symbol)
      o.symbol = b.id;
    else
      unknown_name(t, "register or variable");
    advance();
    o.imm = std::uint64_t(signed_offset());
  } else {
    const Token t = token_;
    const Constant c = constant();
    if (c.kind != Constant::integer) fail_at(t, "an address must be an integer");
    o.imm = c.bits;
  }
  address_tail(o, depth);
  expect(']', "an address");
  return o;
}

void Parser::address_tail(Operand& o, int depth) {
  const Inst none;
  while (accept(',')) {
    if (o.elems.size() == 4) fail("an address has at most 5 parts");
    o.elems.push_back(operand(none, depth + 1));
  }
}

}  // namespace cgp::ptx
