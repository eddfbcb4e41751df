// SPDX-License-Identifier: Apache-2.0
// Literals, constant expressions (PTX ISA, "Constants") and initialisers of variables.
#include <bit>
#include <charconv>
#include <cmath>

#include "cgp/base/float16.h"
#include "cgp/base/text.h"
#include "cgp/ptx/parser_impl.h"

namespace cgp::ptx {
namespace {

// Binary operators by precedence, weakest first.
struct Operator {
  char text[3];
  int precedence;
};
constexpr Operator kOperators[] = {{"||", 1}, {"&&", 2}, {"|", 3},  {"^", 4},  {"&", 5},  {"==", 6},
                                   {"!=", 6}, {"<=", 7}, {">=", 7}, {"<<", 8}, {">>", 8}, {"<", 7},
                                   {">", 7},  {"+", 9},  {"-", 9},  {"*", 10}, {"/", 10}, {"%", 10}};

Constant integer(std::uint64_t bits, bool is_unsigned) { return {Constant::integer, is_unsigned, bits}; }

Constant apply_integer(std::string_view op, Constant a, Constant b) {
  const bool u = a.is_unsigned || b.is_unsigned;
  const std::uint64_t x = a.bits, y = b.bits;
  const auto sx = std::int64_t(x), sy = std::int64_t(y);
  auto truth = [](bool v) { return integer(v, false); };
  if (op == "+") return integer(x + y, u);
  if (op == "-") return integer(x - y, u);
  if (op == "*") return integer(x * y, u);
  if (op == "/") return integer(u ? x / y : sy == -1 ? 0 - x : std::uint64_t(sx / sy), u);
  if (op == "%") return integer(u ? x % y : sy == -1 ? 0 : std::uint64_t(sx % sy), u);
  if (op == "&") return integer(x & y, u);
  if (op == "|") return integer(x | y, u);
  if (op == "^") return integer(x ^ y, u);
  if (op == "<<") return integer(y > 63 ? 0 : x << y, a.is_unsigned);
  if (op == ">>") {
    if (a.is_unsigned) return integer(y > 63 ? 0 : x >> y, true);
    return integer(std::uint64_t(sx >> (y > 63 ? 63 : y)), false);
  }
  if (op == "&&") return truth(x && y);
  if (op == "||") return truth(x || y);
  if (op == "==") return truth(x == y);
  if (op == "!=") return truth(x != y);
  if (op == "<") return truth(u ? x < y : sx < sy);
  if (op == ">") return truth(u ? x > y : sx > sy);
  if (op == "<=") return truth(u ? x <= y : sx <= sy);
  return truth(u ? x >= y : sx >= sy);
}

double as_double(const Constant& c) {
  switch (c.kind) {
    case Constant::f32:
      return double(std::bit_cast<float>(std::uint32_t(c.bits)));
    case Constant::f64:
      return std::bit_cast<double>(c.bits);
    case Constant::integer:
      break;
  }
  return c.is_unsigned ? double(c.bits) : double(std::int64_t(c.bits));
}

}  // namespace

Constant Parser::conditional(int depth) {
  if (depth > kMaxExpression) fail("a constant expression is nested too deeply");
  Constant c = binary(depth, 1);
  if (!accept('?')) return c;
  Constant a = conditional(depth + 1);
  expect(':', "a conditional expression");
  Constant b = conditional(depth + 1);
  return (c.kind == Constant::integer ? c.bits != 0 : as_double(c) != 0) ? a : b;
}

Constant Parser::binary(int depth, int precedence) {
  if (depth > kMaxExpression) fail("a constant expression is nested too deeply");
  Constant a = unary(depth);
  for (;;) {
    if (token_.kind != TokenKind::punctuation) return a;
    const std::string_view rest = lexer_.text().substr(offset(), 2);
    const Operator* found = nullptr;
    for (const Operator& o : kOperators)
      if (rest.substr(0, std::string_view(o.text).size()) == o.text && (!found || o.text[1])) {
        found = &o;
        break;
      }
    if (!found || found->precedence < precedence) return a;
    const Token at = token_;
    advance();
    if (found->text[1]) advance();
    const Constant b = binary(depth + 1, found->precedence + 1);
    const std::string_view op = found->text;
    if (a.kind == Constant::integer && b.kind == Constant::integer) {
      if ((op == "/" || op == "%") && b.bits == 0) fail_at(at, "a constant expression divides by zero");
      a = apply_integer(op, a, b);
      continue;
    }
    if (op.size() != 1 || std::string_view("+-*/").find(op[0]) == std::string_view::npos)
      fail_at(at, text::cat("operator ", op, " needs integer constants"));
    const double x = as_double(a), y = as_double(b);
    const double v = op == "+" ? x + y : op == "-" ? x - y : op == "*" ? x * y : x / y;
    a = {Constant::f64, false, std::bit_cast<std::uint64_t>(v)};
  }
}

Constant Parser::unary(int depth) {
  if (depth > kMaxExpression) fail("a constant expression is nested too deeply");
  const Token at = token_;
  if (accept('+')) return unary(depth + 1);
  if (accept('-')) {
    Constant c = unary(depth + 1);
    switch (c.kind) {
      case Constant::integer:
        c.bits = 0 - c.bits;
        break;
      case Constant::f32:
        c.bits ^= 0x80000000u;
        break;
      case Constant::f64:
        c.bits ^= 1ull << 63;
        break;
    }
    return c;
  }
  if (accept('~') || accept('!')) {
    Constant c = unary(depth + 1);
    if (c.kind != Constant::integer)
      fail_at(at, text::cat("operator ", at.text, " needs an integer constant"));
    c.bits = at.is('~') ? ~c.bits : std::uint64_t(c.bits == 0);
    return c;
  }
  return primary(depth);
}

Constant Parser::primary(int depth) {
  if (token_.kind == TokenKind::number) {
    const Token t = token_;
    advance();
    return literal(t);
  }
  if (token_.kind == TokenKind::word && token_.text == "WARP_SZ") {
    advance();
    return integer(32, false);
  }
  if (accept('(')) {
    if (token_.kind == TokenKind::directive && (token_.text == ".s64" || token_.text == ".u64")) {  // a cast
      const bool is_unsigned = token_.text == ".u64";
      advance();
      expect(')', "a cast");
      Constant c = unary(depth + 1);
      if (c.kind != Constant::integer) fail("a cast in a constant expression needs an integer constant");
      c.is_unsigned = is_unsigned;
      return c;
    }
    Constant c = conditional(depth + 1);
    expect(')', "a constant expression");
    return c;
  }
  fail(text::cat("expected a constant, found ", describe()));
}

Constant Parser::literal(const Token& t) {
  std::string_view s = t.text;
  auto bad = [&](std::string_view what) {
    fail_at(t, text::cat("malformed ", what, " '", s.substr(0, 40), "'"));
  };
  auto parse = [&](std::string_view digits, int base, std::string_view what) {
    std::uint64_t v = 0;
    auto r = std::from_chars(digits.data(), digits.data() + digits.size(), v, base);
    if (r.ec == std::errc::result_out_of_range)
      fail_at(t, text::cat("integer '", s.substr(0, 40), "' needs more than 64 bits"));
    if (r.ec != std::errc() || r.ptr != digits.data() + digits.size()) bad(what);
    return v;
  };
  const char second = s.size() > 1 && s[0] == '0' ? s[1] : ' ';
  if (second == 'f' || second == 'F') {
    if (s.size() != 10) fail_at(t, "a 0f literal has exactly 8 hexadecimal digits");
    return {Constant::f32, false, parse(s.substr(2), 16, "float")};
  }
  if (second == 'd' || second == 'D') {
    if (s.size() != 18) fail_at(t, "a 0d literal has exactly 16 hexadecimal digits");
    return {Constant::f64, false, parse(s.substr(2), 16, "double")};
  }
  const bool hexadecimal = second == 'x' || second == 'X';
  if (!hexadecimal && s.find_first_of(".eE") != std::string_view::npos) {
    double v = 0;
    auto r = std::from_chars(s.data(), s.data() + s.size(), v);
    if (r.ec != std::errc() || r.ptr != s.data() + s.size()) bad("number");
    return {Constant::f64, false, std::bit_cast<std::uint64_t>(v)};
  }
  bool is_unsigned = false;
  std::string_view digits = s;
  if (digits.back() == 'U' || digits.back() == 'u') {
    is_unsigned = true;
    digits.remove_suffix(1);
  }
  std::uint64_t v = 0;
  if (hexadecimal)
    v = parse(digits.substr(2), 16, "hexadecimal number");
  else if (second == 'b' || second == 'B')
    v = parse(digits.substr(2), 2, "binary number");
  else if (digits.size() > 1 && digits[0] == '0')
    v = parse(digits.substr(1), 8, "octal number");
  else
    v = parse(digits, 10, "number");
  return integer(v, is_unsigned || v >> 63);
}

// ---------------------------------------------------------------- initialisers
void Parser::initialiser(Var& v) {
  v.has_init = true;
  const std::uint64_t element = std::uint64_t(std::max(1, type_bits(v.type) / 8));
  std::uint64_t at = 0;
  if (!token_.is('{')) {
    initialiser_value(v, 0);
    return;
  }
  // {a, b, ...} fills row by row; an inner list fills one row of the next dimension or one vector.
  std::uint64_t end = v.is_array ? v.bytes() : element * std::uint64_t(v.vector);
  const bool open_ended = v.is_array && !v.dims.empty() && v.dims[0] == 0;
  if (open_ended) end = kMaxInitialiser;
  if (v.is_array)
    for (std::size_t i = 1; i < v.dims.size(); ++i)
      if (v.dims[i] == 0) fail("only the first extent of an array may be left open");
  initialiser_list(v, 0, at, std::min(end, kMaxInitialiser));
  if (open_ended) {
    std::uint64_t row = element * std::uint64_t(v.vector);
    for (std::size_t i = 1; i < v.dims.size(); ++i) row *= v.dims[i];
    v.dims[0] = std::max<std::uint64_t>(1, (v.init.size() + row - 1) / row);
  }
}

void Parser::initialiser_list(Var& v, std::size_t dimension, std::uint64_t& at, std::uint64_t end) {
  if (dimension > kMaxDimensions) fail("an initialiser is nested too deeply");
  const std::uint64_t element = std::uint64_t(std::max(1, type_bits(v.type) / 8));
  std::uint64_t row = element * std::uint64_t(dimension + 1 <= v.dims.size() ? v.vector : 1);
  for (std::size_t i = dimension + 1; i < v.dims.size(); ++i) row *= v.dims[i];
  expect('{', "an initialiser");
  const std::uint64_t start = at;
  std::uint64_t rows = 0;
  if (!token_.is('}')) do {
      if (token_.is('{')) {
        std::uint64_t inner = start + rows * row;
        if (row == 0 || inner + row > end)
          fail(text::cat("too many values for '", module_.text(v.name), "'"));
        const std::uint64_t inner_end = inner + row;
        initialiser_list(v, dimension + 1, inner, inner_end);
        at = inner_end;
        ++rows;
      } else {
        if (at + element > end) fail(text::cat("too many values for '", module_.text(v.name), "'"));
        initialiser_value(v, at);
        at += element;
        if (row) rows = (at - start + row - 1) / row;
      }
    } while (accept(','));
  expect('}', "an initialiser");
}

void Parser::initialiser_value(Var& v, std::uint64_t at) {
  Relocation r;
  r.offset = at;
  r.bytes = std::max(1, type_bits(v.type) / 8);
  if (token_.kind == TokenKind::word && token_.text != "WARP_SZ") {
    if (token_.text == "mask") {  // mask(0xff00, symbol)
      advance();
      expect('(', "mask");
      r.mask = constant().bits;
      expect(',', "mask");
      initialiser_symbol(v, r);
      return expect(')', "mask");
    }
    return initialiser_symbol(v, r);
  }
  const Constant c = constant();
  if (c.kind == Constant::integer && accept('(')) {  // 0xff00(symbol)
    r.mask = c.bits;
    initialiser_symbol(v, r);
    return expect(')', "a masked address");
  }
  store(v, at, c);
}

void Parser::initialiser_symbol(Var& v, Relocation r) {
  auto name = [&] {
    const Token t = token_;
    const std::string_view s = identifier("a symbol in an initialiser");
    if (names_.find(s).kind != Binding::symbol) unknown_name(t, "variable or function");
    return intern(s);
  };
  if (token_.kind == TokenKind::word && token_.text == "generic") {
    advance();
    expect('(', "generic");
    r.symbol = name();
    r.generic = true;
    r.addend = signed_offset();
    expect(')', "generic");
  } else {
    r.symbol = name();
  }
  r.addend += signed_offset();
  if (v.init.size() < r.offset + std::uint64_t(r.bytes)) v.init.resize(r.offset + std::uint64_t(r.bytes));
  v.relocs.push_back(r);
}

void Parser::store(Var& v, std::uint64_t at, const Constant& c) {
  const std::size_t bytes = std::size_t(std::max(1, type_bits(v.type) / 8));
  std::uint64_t bits = c.bits;
  if (v.type == Mod::f32 && c.kind != Constant::f32)
    bits = std::bit_cast<std::uint32_t>(float(as_double(c)));
  else if (v.type == Mod::f64 && c.kind != Constant::f64)
    bits = std::bit_cast<std::uint64_t>(as_double(c));
  else if (v.type == Mod::f16 && c.kind != Constant::integer)
    bits = half(as_double(c)).bits;
  else if (v.type == Mod::bf16 && c.kind != Constant::integer)
    bits = bfloat16(as_double(c)).bits;
  else if (!is_float(v.type) && c.kind != Constant::integer)
    fail(text::cat("a .", name(v.type), " variable needs integer values"));
  if (v.init.size() < at + bytes) v.init.resize(at + bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    v.init[at + i] = i < 8 ? std::uint8_t(bits >> (8 * i))
                           : std::uint8_t(std::int64_t(bits) < 0 && !c.is_unsigned ? 0xff : 0);
}

// ---------------------------------------------------------------- operands that stand for instructions
namespace {
// The integer type that sums of a register have; kCount: none.
Mod sum_type(Mod t) {
  switch (t) {
    case Mod::b16:
    case Mod::u16:
    case Mod::s16:
      return Mod::u16;
    case Mod::b32:
    case Mod::u32:
    case Mod::s32:
      return Mod::u32;
    case Mod::b64:
    case Mod::u64:
    case Mod::s64:
      return Mod::u64;
    default:
      return Mod::kCount;
  }
}
}  // namespace

// `%r + 1` as a value: a register of its own, set in front of the instruction.
RegId Parser::sum_of(RegId r) {
  const Mod type = function_->regs[r].type;
  if (sum_type(type) == Mod::kCount) return r;
  Inst add;
  add.op = Op::add;
  add.mods = Mods{sum_type(type)};
  arena_.push_back(text::cat(function_->regs[r].name, "_sum"));
  const auto sum = RegId(function_->regs.size());
  if (sum >= kMaxRegisters) fail("a function declares more than 1048576 registers");
  function_->regs.push_back({unique(arena_.back()), type});
  add.operands = {Operand::of(sum), Operand::of(r), Operand::integer(signed_offset())};
  sums_.push_back(std::move(add));
  return sum;
}

// What ptxas takes and PTX has no instruction for: sums as values, and mov of whole vectors.
void Parser::written_out() {
  Inst last = std::move(function_->body.back());
  function_->body.pop_back();
  const auto append = [&](Inst x) {
    x.ptx_line = last.ptx_line;
    x.loc = last.loc;
    function_->body.push_back(std::move(x));
  };
  for (Inst& x : sums_) append(std::move(x));
  sums_.clear();
  const bool vectors = last.op == Op::mov && last.operands.size() == 2 &&
                       last.operands[0].kind == OperandKind::vector &&
                       last.operands[1].kind == OperandKind::vector &&
                       last.operands[0].elems.size() == last.operands[1].elems.size();
  if (!vectors || !(last.has(Mod::v2) || last.has(Mod::v4))) return append(std::move(last));
  Inst one;
  one.op = Op::mov;
  one.guard = last.guard;
  one.guard_negated = last.guard_negated;
  for (const Mod m : last.mods)
    if (m != Mod::v2 && m != Mod::v4) one.mods.push_back(m);
  const auto& to = last.operands[0].elems;
  auto from = last.operands[1].elems;
  // An element that an earlier move overwrites is kept first.
  for (std::size_t k = 1; k < from.size(); ++k)
    for (std::size_t before = 0; before < k; ++before) {
      if (from[k].kind != OperandKind::reg || from[k].reg == kNone || to[before].kind != OperandKind::reg ||
          from[k].reg != to[before].reg)
        continue;
      arena_.push_back(text::cat(function_->regs[from[k].reg].name, "_old"));
      const auto kept = RegId(function_->regs.size());
      if (kept >= kMaxRegisters) fail("a function declares more than 1048576 registers");
      function_->regs.push_back({unique(arena_.back()), function_->regs[from[k].reg].type});
      one.operands = {Operand::of(kept), from[k]};
      append(one);
      from[k] = Operand::of(kept);
      break;
    }
  for (std::size_t k = 0; k < to.size(); ++k) {
    if (to[k].kind == OperandKind::reg && to[k].reg == kNone) continue;  // _
    one.operands = {to[k], from[k]};
    append(one);
  }
}

}  // namespace cgp::ptx
