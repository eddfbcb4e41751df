// SPDX-License-Identifier: Apache-2.0
// WGSL: https://www.w3.org/TR/WGSL. 64-bit integers are vec2<u32> (x low, y high) with functions from wgsl_library.h.
#include <algorithm>
#include <bit>
#include <cmath>

#include "cgp/base/text.h"
#include "cgp/shader/lower.h"
#include "cgp/shader/wgsl_library.h"

namespace cgp::shader {
namespace {

std::string_view name(Type t) {
  switch (t) {
    case Type::boolean:
      return "bool";
    case Type::u32:
      return "u32";
    case Type::f32:
      return "f32";
    default:
      return "vec2<u32>";
  }
}

std::string number(std::uint32_t v) { return text::cat(v < 65536 ? text::cat(v) : text::hex(v), "u"); }

class Wgsl final : public Builder {
 public:
  explicit Wgsl(const Layout& l) : l_(l) {
    values_.emplace_back();
    for (const auto& a : l.buffers) stores_ = stores_ || (a.read && a.written);
  }

  std::string finish() {
    std::string out;
    const auto& s = l_.shader;
    text::append(out, text::cat("// ", s.entry, ": workgroups of ", s.block[0], " x ", s.block[1], " x ",
                                s.block[2], "\n"));
    text::append(out, "// Addresses are 32-bit byte offsets: a binding holds less than 4 GiB.\n");
    if (l_.subgroups && l_.subgroup_directive)
      text::append(out, "enable subgroups;\ndiagnostic(off, subgroup_uniformity);\n");
    if (s.block_bytes)
      text::append(out, text::cat("@group(0) @binding(0) var<uniform> parameters: array<vec4<u32>, ",
                                  s.block_bytes / 16, ">;\n"));
    for (std::size_t i = 0; i < l_.buffers.size(); ++i) {
      const Access& a = l_.buffers[i];
      text::append(
          out, text::cat("@group(0) @binding(", i + 1, ") var<storage, ", a.written ? "read_write" : "read",
                         "> buffer", i + 1, ": array<", element(a, true), ">;"));
      std::string of;
      for (const auto& p : s.parameters)
        if (p.kind == Parameter::Kind::pointer && p.binding == i + 1)
          text::append(of, text::cat(of.empty() ? "" : ", ", p.name));
      text::append(out, text::cat("  // ", of, "\n"));
    }
    if (l_.shared_words)
      text::append(out, text::cat("var<workgroup> shared_words: array<", element(l_.shared, false), ", ",
                                  l_.shared_words, ">;\n"));
    if (l_.exchange_words)
      text::append(out, text::cat("var<workgroup> exchange: array<u32, ", l_.exchange_words, ">;\n"));
    if (!l_.constants.empty()) {
      text::append(out, text::cat("var<private> constant_words: array<u32, ", l_.constants.size(),
                                  "> = array<u32, ", l_.constants.size(), ">("));
      for (std::size_t i = 0; i < l_.constants.size(); ++i)
        text::append(out, text::cat(i ? ", " : "", number(l_.constants[i])));
      text::append(out, ");\n");
    }
    text::append(out, library_text(library_));
    text::append(out, helpers_);
    text::append(out, text::cat("\n@compute @workgroup_size(", s.block[0], ", ", s.block[1], ", ", s.block[2],
                                ")\nfn ", s.entry, "("));
    std::string arguments;
    const auto argument = [&](bool used, std::string_view builtin, std::string_view what,
                              std::string_view type) {
      if (used)
        text::append(arguments,
                     text::cat(arguments.empty() ? "" : ", ", "@builtin(", builtin, ") ", what, ": ", type));
    };
    argument(tid_, "local_invocation_id", "tid", "vec3<u32>");
    argument(ctaid_, "workgroup_id", "ctaid", "vec3<u32>");
    argument(nctaid_, "num_workgroups", "nctaid", "vec3<u32>");
    argument(index_, "local_invocation_index", "index", "u32");
    text::append(out, text::cat(arguments, ") {\n"));
    if (l_.local_words)
      text::append(out, text::cat("  var local_words: array<u32, ", l_.local_words, ">;\n"));
    text::append(out, declarations_);
    text::append(out, body_);
    text::append(out, "}\n");
    return out;
  }

  bool votes() const { return library_ & bit(Library::any_thread); }

  Value boolean(bool v) override { return constant(Type::boolean, v ? "true" : "false"); }
  Value word(std::uint32_t v) override { return constant(Type::u32, number(v)); }
  Value wide(std::uint64_t v) override {
    return constant(Type::u64, text::cat("vec2<u32>(", number(std::uint32_t(v)), ", ",
                                         number(std::uint32_t(v >> 32)), ")"));
  }
  Value real(std::uint32_t bits) override {
    const auto v = std::bit_cast<float>(bits);
    // A constant expression must be finite, and may lose subnormals and the sign of zero. The shortest text of the largest
    // numbers is above them.
    if ((!std::isnormal(v) && bits != 0) || std::abs(v) > 1e38f) {
      use(Library::float_bits);
      return made(Type::f32, text::cat("float_bits(", number(bits), ")"));
    }
    const std::string t = text::cat(v, "f");
    return t[0] == '-' ? constant(Type::f32, text::cat("(", t, ")")) : constant(Type::f32, t);
  }

  Value unary(Unary op, Value a) override {
    a = runtime(a);
    const auto function = [&](std::string_view f) {
      return made(a.type, text::cat(f, "(", text_of(a), ")"));
    };
    switch (op) {
      case Unary::not_:
        return made(a.type, text::cat(a.type == Type::boolean ? "!" : "~", nested(a)));
      case Unary::negate:
        if (a.type == Type::u64) return binary(Binary::sub, wide(0), a);
        if (a.type == Type::u32) return made(a.type, text::cat("0u - ", nested(a)), true);
        return made(a.type, text::cat("-", nested(a)), true);
      case Unary::abs:
        return function("abs");
      case Unary::floor:
        return function("floor");
      case Unary::ceil:
        return function("ceil");
      case Unary::trunc:
        return function("trunc");
      case Unary::round_even:
        return function("round");
      case Unary::sqrt:
        return function("sqrt");
      case Unary::inverse_sqrt:
        return function("inverseSqrt");
      case Unary::exp2:
        return function("exp2");
      case Unary::log2:
        return function("log2");
      case Unary::tanh:
        use(Library::tanh_f32);
        return function("tanh_f32");
      case Unary::popcount:
        return function("countOneBits");
      case Unary::leading_zeros:
        return function("countLeadingZeros");
      case Unary::reverse:
        return function("reverseBits");
    }
    return a;
  }

  Value binary(Binary op, Value a, Value b, bool = false) override {
    if (values_[a.id].constant && values_[b.id].constant) a = keep(a);
    const auto infix = [&](std::string_view o) {
      return made(a.type, text::cat(nested(a), " ", o, " ", nested(b)), true);
    };
    const auto function = [&](std::string_view f) {
      return made(a.type, text::cat(f, "(", text_of(a), ", ", text_of(b), ")"));
    };
    const auto library = [&](Library l, std::string_view f) {
      use(l);
      return function(f);
    };
    const auto signed_infix = [&](std::string_view o) {
      return made(Type::u32, text::cat("bitcast<u32>(", integer(a), " ", o, " ", integer(b), ")"));
    };
    const bool wide = a.type == Type::u64, real = a.type == Type::f32;
    switch (op) {
      case Binary::add:
        return wide ? library(Library::add64, "add64") : infix("+");
      case Binary::sub:
        return wide ? library(Library::sub64, "sub64") : infix("-");
      case Binary::mul:
        return wide ? library(Library::mul64, "mul64") : infix("*");
      case Binary::div:
        return wide ? library(Library::div64, "div64") : infix("/");
      case Binary::rem:
        return wide ? library(Library::rem64, "rem64") : infix("%");
      case Binary::div_signed:
        return wide ? library(Library::div64_signed, "div64_signed") : signed_infix("/");
      case Binary::rem_signed:
        return wide ? library(Library::rem64_signed, "rem64_signed") : signed_infix("%");
      case Binary::high:
        return library(Library::mul_high, "mul_high");
      case Binary::high_signed:
        return library(Library::mul_high_signed, "mul_high_signed");
      case Binary::and_:
        return infix("&");
      case Binary::or_:
        return infix("|");
      case Binary::xor_:
        return a.type == Type::boolean ? infix("!=") : infix("^");
      case Binary::shl:
        return wide ? library(Library::shl64, "shl64") : infix("<<");
      case Binary::shr:
        return wide ? library(Library::shr64, "shr64") : infix(">>");
      case Binary::shr_signed:
        if (wide) return library(Library::shr64_signed, "shr64_signed");
        return made(Type::u32, text::cat("bitcast<u32>(", integer(a), " >> ", nested(b), ")"));
      case Binary::min:
      case Binary::max: {
        const bool least = op == Binary::min;
        if (real) return library(least ? Library::min_f32 : Library::max_f32, least ? "min_f32" : "max_f32");
        if (wide) return library(least ? Library::min64 : Library::max64, least ? "min64" : "max64");
        return function(least ? "min" : "max");
      }
      case Binary::min_signed:
      case Binary::max_signed: {
        const bool least = op == Binary::min_signed;
        if (wide)
          return library(least ? Library::min64_signed : Library::max64_signed,
                         least ? "min64_signed" : "max64_signed");
        return made(Type::u32, text::cat("bitcast<u32>(", least ? "min" : "max", "(", integer(a), ", ",
                                         integer(b), "))"));
      }
    }
    return a;
  }

  Value compare(Compare op, Value a, Value b) override {
    if (values_[a.id].constant && values_[b.id].constant) a = keep(a);
    if (a.type == Type::u64) return compare64(op, a, b);
    const auto infix = [&](std::string_view o) {
      return made(Type::boolean, text::cat(nested(a), " ", o, " ", nested(b)), true);
    };
    const auto signed_infix = [&](std::string_view o) {
      return made(Type::boolean, text::cat(integer(a), " ", o, " ", integer(b)), true);
    };
    switch (op) {
      case Compare::eq:
        return infix("==");
      case Compare::ne:
        return infix("!=");
      case Compare::lt:
        return infix("<");
      case Compare::le:
        return infix("<=");
      case Compare::gt:
        return infix(">");
      case Compare::ge:
        return infix(">=");
      case Compare::lt_signed:
        return signed_infix("<");
      case Compare::le_signed:
        return signed_infix("<=");
      case Compare::gt_signed:
        return signed_infix(">");
      case Compare::ge_signed:
        return signed_infix(">=");
    }
    return a;
  }

  Value select(Value c, Value yes, Value no) override {
    c = runtime(c);
    return made(yes.type, text::cat("select(", text_of(no), ", ", text_of(yes), ", ", text_of(c), ")"));
  }
  Value fma(Value a, Value b, Value c) override {
    a = runtime(a);
    return made(Type::f32, text::cat("fma(", text_of(a), ", ", text_of(b), ", ", text_of(c), ")"));
  }

  Value convert(Convert op, Value a) override {
    switch (op) {
      case Convert::bits:
        if (a.type == Type::u32) {
          if (values_[a.id].constant) {  // a constant bitcast must be finite
            use(Library::float_bits);
            return made(Type::f32, text::cat("float_bits(", text_of(a), ")"));
          }
          return made(Type::f32, text::cat("bitcast<f32>(", text_of(a), ")"));
        }
        return made(Type::u32, text::cat("bitcast<u32>(", text_of(runtime(a)), ")"));
      case Convert::extend:
        return made(Type::u64, text::cat("vec2<u32>(", text_of(a), ", 0u)"));
      case Convert::extend_signed:
        a = keep(a);
        return made(Type::u64,
                    text::cat("vec2<u32>(", text_of(a), ", bitcast<u32>(", integer(a), " >> 31u))"));
      case Convert::low:
        return made(Type::u32, text::cat(nested(a), ".x"));
      case Convert::high:
        return made(Type::u32, text::cat(nested(a), ".y"));
      case Convert::to_float:
        if (a.type == Type::u64) {
          use(Library::float64);
          return made(Type::f32, text::cat("float64(", text_of(a), ")"));
        }
        return made(Type::f32, text::cat("f32(", text_of(a), ")"));
      case Convert::to_float_signed:
        return made(Type::f32, text::cat("f32(", integer(a), ")"));
      case Convert::to_integer:
        return made(Type::u32, text::cat("u32(", text_of(runtime(a)), ")"));
      case Convert::to_integer_signed:
        return made(Type::u32, text::cat("bitcast<u32>(i32(", text_of(runtime(a)), "))"));
      case Convert::half_to_float:
      case Convert::float_to_half:
        break;  // Layout::float16 is of SPIR-V
    }
    return a;
  }

  Value join(Value low, Value high) override {
    return made(Type::u64, text::cat("vec2<u32>(", text_of(low), ", ", text_of(high), ")"));
  }

  Value builtin(Builtin b) override {
    const auto vector = [&](bool& used, std::string_view v, int k) {
      used = true;
      return made(Type::u32, text::cat(v, ".", "xyz"[k]));
    };
    const int k = int(b);
    if (k < 3) return vector(tid_, "tid", k);
    if (k < 6) return vector(ctaid_, "ctaid", k - 3);
    if (k < 9) return vector(nctaid_, "nctaid", k - 6);
    index_ = true;
    return made(Type::u32, "index");
  }

  Value keep(Value v, std::string_view name = {}) override {
    if (name.empty() && values_[v.id].plain) return v;
    const std::string n = name.empty() ? text::cat("temp_", temporaries_++) : std::string(name);
    line(text::cat("let ", n, " = ", text_of(v), ";"));
    Value r = made(v.type, n);
    values_[r.id].plain = true;
    return r;
  }
  Variable declare(Type t, std::string_view n) override {
    variables_.emplace_back(n);
    text::append(declarations_, text::cat("  var ", n, ": ", name(t), ";\n"));
    return {t, std::uint32_t(variables_.size() - 1)};
  }
  Value get(Variable v) override { return made(v.type, variables_[v.id]); }
  void set(Variable v, Value x) override { line(text::cat(variables_[v.id], " = ", text_of(x), ";")); }

  Value call(const Helper& h, const std::vector<Value>& arguments) override {
    if (std::find(called_.begin(), called_.end(), h.name) == called_.end()) {
      called_.emplace_back(h.name);
      std::string body;
      std::swap(body, body_);
      const int depth = depth_;
      depth_ = 1;
      std::string signature = text::cat("\nfn ", h.name, "(");
      std::vector<Value> inside;
      for (std::size_t i = 0; i < h.parameters.size(); ++i) {
        const std::string n = text::cat(i ? "y" : "x");
        text::append(signature, text::cat(i ? ", " : "", n, ": ", name(h.parameters[i])));
        inside.push_back(made(h.parameters[i], n));
        values_[inside.back().id].plain = true;
      }
      const Value result = h.body(*this, inside);
      line(text::cat("return ", text_of(result), ";"));
      text::append(helpers_, text::cat(signature, ") -> ", name(h.result), " {\n", body_, "}\n"));
      std::swap(body, body_);
      depth_ = depth;
    }
    std::string list;
    for (const Value& a : arguments) text::append(list, text::cat(list.empty() ? "" : ", ", text_of(a)));
    return made(h.result, text::cat(h.name, "(", list, ")"));
  }

  std::vector<Value> load(const Place& p, int bits, int count) override {
    if (p.memory == Memory::params) {
      std::vector<Value> out;
      for (int k = 0; k < count; ++k) {
        const std::uint64_t at = p.constant + std::uint64_t(k) * 4;
        Value v = made(Type::u32, text::cat("parameters[", at / 16, "].", "xyzw"[at / 4 % 4]));
        if (bits < 32 || at % 4)
          v = made(Type::u32, text::cat("(", text_of(v), " >> ", at % 4 * 8, "u) & ", (1u << bits) - 1, "u"),
                   true);
        out.push_back(v);
      }
      return out;
    }
    const Access& a = access(p);
    const bool floats = a.floats && !a.atomic;
    const Type type = floats ? Type::f32 : Type::u32;
    if (bits < 32) {
      const Value at = keep(address(p));
      const std::string word = element_at(p, a, text::cat(nested(at), " >> 2u"));
      const std::string_view mask = bits == 8 ? "0xffu" : "0xffffu";
      const Value w = floats ? made(Type::u32, text::cat("bitcast<u32>(", word, ")")) : made(Type::u32, word);
      return {made(Type::u32,
                   text::cat("(", text_of(w), " >> ((", text_of(at), " & ", bits == 8 ? "3u" : "2u",
                             ") * 8u)) & ", mask),
                   true)};
    }
    if (count == 4 && vectors(p, a)) {
      const Value v = keep(made(type, text::cat(memory(p), "[", nested(address(p)), " >> 4u]")));
      std::vector<Value> out;
      for (int k = 0; k < 4; ++k) out.push_back(made(type, text::cat(text_of(v), ".", "xyzw"[k])));
      for (auto& v2 : out) values_[v2.id].plain = true;
      return out;
    }
    std::vector<Value> out;
    const std::string at = text::cat(nested(address(p)), " >> 2u");
    if (count == 1) return {made(type, element_at(p, a, at))};
    const Value first = keep(made(Type::u32, at));
    for (int k = 0; k < count; ++k)
      out.push_back(
          keep(made(type, element_at(p, a, k ? text::cat(text_of(first), " + ", k, "u") : text_of(first)))));
    return out;
  }

  void store(const Place& p, int bits, const std::vector<Value>& v) override {
    const Access& a = access(p);
    const bool floats = a.floats && !a.atomic;
    const auto cast = [&](Value x) {
      if (floats == (x.type == Type::f32)) return text_of(x);
      return text_of(convert(Convert::bits, x));
    };
    if (bits < 32) {
      const Value at = keep(address(p));
      const Value shift =
          keep(made(Type::u32, text::cat("(", text_of(at), " & ", bits == 8 ? "3u" : "2u", ") * 8u"), true));
      const std::string word = text::cat(memory(p), "[", text_of(at), " >> 2u]");
      const std::string mask = text::cat("~(", bits == 8 ? "0xffu" : "0xffffu", " << ", text_of(shift), ")");
      const std::string put = text::cat(nested(v[0]), " << ", text_of(shift));
      if (p.memory == Memory::local) {
        line(text::cat(word, " = (", word, " & ", mask, ") | (", put, ");"));
        return;
      }
      line(text::cat("atomicAnd(&", word, ", ", mask, ");"));
      line(text::cat("atomicOr(&", word, ", ", put, ");"));
      return;
    }
    if (v.size() == 4 && vectors(p, a)) {
      line(text::cat(memory(p), "[", nested(address(p)), " >> 4u] = vec4<", floats ? "f32" : "u32", ">(",
                     cast(v[0]), ", ", cast(v[1]), ", ", cast(v[2]), ", ", cast(v[3]), ");"));
      return;
    }
    Value first = made(Type::u32, text::cat(nested(address(p)), " >> 2u"), true);
    if (v.size() > 1) first = keep(first);
    for (std::size_t k = 0; k < v.size(); ++k) {
      const std::string at =
          text::cat(memory(p), "[", text_of(first), k ? text::cat(" + ", k, "u") : "", "]");
      line(is_atomic(p, a) ? text::cat("atomicStore(&", at, ", ", cast(v[k]), ");")
                           : text::cat(at, " = ", cast(v[k]), ";"));
    }
  }

  Value atomic(const Place& p, Atomic op, Value v, Value with) override {
    const std::string at = text::cat("&", memory(p), "[", nested(address(p)), " >> 2u]");
    const auto function = [&](std::string_view f) {
      return keep(made(Type::u32, text::cat(f, "(", at, ", ", text_of(v), ")")));
    };
    switch (op) {
      case Atomic::add:
        return function("atomicAdd");
      case Atomic::and_:
        return function("atomicAnd");
      case Atomic::or_:
        return function("atomicOr");
      case Atomic::xor_:
        return function("atomicXor");
      case Atomic::min:
        return function("atomicMin");
      case Atomic::max:
        return function("atomicMax");
      case Atomic::exchange:
        return function("atomicExchange");
      default: {
        // The weak exchange may fail without a reason.
        const Value x = keep(v), expected = keep(with);
        const Variable old = declare(Type::u32, text::cat("old_value_", temporaries_++));
        begin_loop(true);
        const std::string r = text::cat("temp_", temporaries_++);
        line(text::cat("let ", r, " = atomicCompareExchangeWeak(", at, ", ", text_of(expected), ", ",
                       text_of(x), ");"));
        line(text::cat(variables_[old.id], " = ", r, ".old_value;"));
        line(text::cat("if ", r, ".exchanged || ", r, ".old_value != ", nested(expected), " { break; }"));
        end_loop();
        return get(old);
      }
    }
  }

  void barrier() override {
    line("workgroupBarrier();");
    if (stores_) line("storageBarrier();");
  }
  void fence() override {}  // the lowering refuses fences: WGSL has none

  Value shuffle(Value v, Value lane) override {
    return made(Type::u32, text::cat("subgroupShuffle(", text_of(v), ", ", text_of(lane), ")"));
  }
  std::vector<Value> multiply(bool, const std::vector<Value>&, const std::vector<Value>&,
                              const std::vector<Value>&) override {
    return {};  // Layout::matrix_f16 is not set
  }
  Value ballot(Value c) override { return made(Type::u32, text::cat("subgroupBallot(", text_of(c), ").x")); }
  void put(Value index, Value v) override {
    line(text::cat("exchange[", text_of(index), "] = ", text_of(v), ";"));
  }
  Value take(Value index) override { return made(Type::u32, text::cat("exchange[", text_of(index), "]")); }
  Value any_thread(Value c) override {
    use(Library::any_thread);
    index_ = true;
    return keep(made(Type::boolean, text::cat("any_thread(", text_of(c), ", index)")), {});
  }

  void begin_if(Value c) override {
    line(text::cat("if ", text_of(c), " {"));
    ++depth_;
  }
  void begin_else() override {
    --depth_;
    line("} else {");
    ++depth_;
  }
  void end_if() override { close(); }
  void begin_loop(bool) override {
    line("loop {");
    ++depth_;
  }
  void leave() override { line("break;"); }
  void next() override { line("continue;"); }
  void end_loop() override { close(); }
  void comment(std::string_view t) override { line(text::cat("// ", t)); }

 private:
  struct Expression {
    std::string text;
    bool compound = false;  ///< needs parentheses inside another
    bool constant = false;
    bool plain = false;  ///< a name of a value that does not change, or a constant: may be written twice
  };

  static std::string element(const Access& a, bool vectors) {
    if (a.atomic) return "atomic<u32>";
    const std::string one = a.floats ? "f32" : "u32";
    return vectors && a.vectors ? text::cat("vec4<", one, ">") : one;
  }

  Value made(Type t, std::string s, bool compound = false) {
    values_.push_back({std::move(s), compound, false, false});
    return {t, std::uint32_t(values_.size() - 1)};
  }
  Value constant(Type t, std::string s) {
    values_.push_back({std::move(s), false, true, true});
    return {t, std::uint32_t(values_.size() - 1)};
  }
  const std::string& text_of(Value v) const { return values_[v.id].text; }
  std::string nested(Value v) const {
    return values_[v.id].compound ? text::cat("(", values_[v.id].text, ")") : values_[v.id].text;
  }
  std::string integer(Value v) const { return text::cat("bitcast<i32>(", text_of(v), ")"); }
  /// Not a constant expression: shader compilers evaluate those, and refuse what is infinite.
  Value runtime(Value v) {
    if (!values_[v.id].constant) return v;
    const std::string n = text::cat("temp_", temporaries_++);
    line(text::cat("let ", n, " = ", text_of(v), ";"));
    const Value r = made(v.type, n);
    values_[r.id].plain = true;
    return r;
  }
  void line(std::string_view s) {
    body_.append(std::size_t(2 * depth_), ' ');
    text::append(body_, text::cat(s, "\n"));
  }
  void close() {
    --depth_;
    line("}");
  }
  static std::uint64_t bit(Library l) { return 1ull << unsigned(l); }
  void use(Library l) { library_ |= bit(l); }

  Value compare64(Compare op, Value a, Value b) {
    const auto call = [&](bool sign, bool swapped, bool inverted) {
      use(sign ? Library::less64_signed : Library::less64);
      return made(Type::boolean, text::cat(inverted ? "!" : "", sign ? "less64_signed(" : "less64(",
                                           text_of(swapped ? b : a), ", ", text_of(swapped ? a : b), ")"));
    };
    switch (op) {
      case Compare::eq:
        return made(Type::boolean, text::cat("all(", nested(a), " == ", nested(b), ")"));
      case Compare::ne:
        return made(Type::boolean, text::cat("any(", nested(a), " != ", nested(b), ")"));
      case Compare::lt:
        return call(false, false, false);
      case Compare::gt:
        return call(false, true, false);
      case Compare::ge:
        return call(false, false, true);
      case Compare::le:
        return call(false, true, true);
      case Compare::lt_signed:
        return call(true, false, false);
      case Compare::gt_signed:
        return call(true, true, false);
      case Compare::ge_signed:
        return call(true, false, true);
      default:
        return call(true, true, true);
    }
  }

  const Access& access(const Place& p) const {
    static const Access words{true, true, false, false, false};
    if (p.memory == Memory::global) return l_.buffers[p.buffer];
    if (p.memory == Memory::shared) return l_.shared;
    return words;
  }
  static bool vectors(const Place& p, const Access& a) {
    return p.memory == Memory::global && a.vectors && !a.atomic;
  }
  static bool is_atomic(const Place& p, const Access& a) { return a.atomic && p.memory != Memory::local; }
  std::string memory(const Place& p) const {
    switch (p.memory) {
      case Memory::global:
        return text::cat("buffer", p.buffer + 1);
      case Memory::shared:
        return "shared_words";
      case Memory::constant:
        return "constant_words";
      default:
        return "local_words";
    }
  }
  Value address(const Place& p) {
    if (p.offset.type == Type::none) return word(std::uint32_t(p.constant));
    if (p.constant == 0) return p.offset;
    return binary(Binary::add, p.offset, word(std::uint32_t(p.constant)), false);
  }
  std::string element_at(const Place& p, const Access& a, std::string_view index) const {
    const std::string at = text::cat(memory(p), "[", index, "]");
    return is_atomic(p, a) ? text::cat("atomicLoad(&", at, ")") : at;
  }

  const Layout& l_;
  std::vector<Expression> values_;
  std::vector<std::string> variables_, called_;
  std::string declarations_, body_, helpers_;
  std::uint64_t library_ = 0;
  std::uint32_t temporaries_ = 0;
  int depth_ = 1;
  bool tid_ = false, ctaid_ = false, nctaid_ = false, index_ = false, stores_ = false;
};

}  // namespace

Shader translate_wgsl(const ptx::Module& m, std::string_view entry, const ShaderOptions& o) {
  const Kernel k = prepare(m, entry, o, true);
  Wgsl w(k.layout);
  Lowering(k, w).run();
  Shader s = k.layout.shader;
  s.wgsl = w.finish();
  s.needs.shared_bytes = 4 * (k.layout.shared_words + k.layout.exchange_words) + (w.votes() ? 8 : 0);
  return s;
}

}  // namespace cgp::shader
