// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/attention/attention_formula.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <variant>
#include <vector>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/attention/attention_score.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

// What an expression is worth: known while the kernel is recorded, or only when it runs.
using FormulaNumber = std::variant<float, Val<f32>>;
using FormulaTruth = std::variant<bool, Val<pred>>;
Val<f32> in_kernel(const FormulaNumber& v) { return v.index() ? std::get<1>(v) : Val<f32>(std::get<0>(v)); }

// Parsed once, recorded as often as kernels ask.
struct Expression {
  std::function<FormulaNumber(const AttentionScore&)> number;  ///< one of the two
  std::function<FormulaTruth(const AttentionScore&)> truth;
};

/// f of both: on the host where both are known.
template <class Host, class Device>
Expression of_two(Expression a, Expression b, Host host, Device device) {
  using H = std::invoke_result_t<Host, float, float>;
  const auto value = [a = std::move(a.number), b = std::move(b.number), host,
                      device](const AttentionScore& s) {
    using Either = std::conditional_t<std::is_same_v<H, bool>, FormulaTruth, FormulaNumber>;
    const auto x = a(s), y = b(s);
    if (!x.index() && !y.index()) return Either(host(std::get<0>(x), std::get<0>(y)));
    return Either(device(in_kernel(x), in_kernel(y)));
  };
  Expression e;
  if constexpr (std::is_same_v<H, bool>)
    e.truth = value;
  else
    e.number = value;
  return e;
}
template <class Host, class Device>
Expression of_one(Expression a, Host host, Device device) {
  return {[a = std::move(a.number), host, device](const AttentionScore& s) {
            const auto x = a(s);
            return x.index() ? FormulaNumber(device(std::get<1>(x))) : FormulaNumber(host(std::get<0>(x)));
          },
          {}};
}
Val<f32> rounded_down(const Val<f32>& x) { return cvt<rmi, f32>(x); }
Expression quotient_down(Expression a, Expression b) {
  return of_two(
      std::move(a), std::move(b), [](float x, float y) { return std::floor(x / y); },
      [](const Val<f32>& x, const Val<f32>& y) { return rounded_down(div<rn>(x, y)); });
}

class FormulaParser {
 public:
  FormulaParser(std::string_view text, std::span<const std::uint64_t> shape)
      : text_(text), shape_(shape.begin(), shape.end()) {}

  Expression whole() {
    auto e = either();
    need_number(e);
    space();
    if (at_ < text_.size()) fail("what follows is no operator");
    return e;
  }

 private:
  [[noreturn]] void fail(std::string_view why) const {
    throw ArgumentError(text::cat("score formula \"", text_, "\": at ", at_ + 1, ": ", why));
  }
  void need_number(const Expression& e) const {
    if (!e.number) fail("a number is needed, and this is a condition: where(condition, this, that)");
  }
  void need_truth(const Expression& e) const {
    if (!e.truth) fail("a condition is needed, and this is a number");
  }
  void space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos)
      ++at_;
  }
  static bool alphabetic(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
  static bool digit(char c) { return c >= '0' && c <= '9'; }
  /// The word here, without taking it.
  std::string_view word() {
    space();
    std::size_t end = at_;
    while (end < text_.size() && (alphabetic(text_[end]) || (end > at_ && digit(text_[end])))) ++end;
    return text_.substr(at_, end - at_);
  }
  bool take_word(std::string_view w) {
    if (word() != w) return false;
    at_ += w.size();
    return true;
  }
  bool take(std::string_view sign) {
    space();
    if (text_.substr(at_, sign.size()) != sign) return false;
    at_ += sign.size();
    return true;
  }
  void expect(std::string_view sign) {
    if (!take(sign)) fail(text::cat("'", sign, "' is missing"));
  }

  // ------------------------------------------------------------ conditions
  Expression either() {
    auto e = both();
    while (take_word("or")) e = joined(std::move(e), both(), true);
    return e;
  }
  Expression both() {
    auto e = inverted();
    while (take_word("and")) e = joined(std::move(e), inverted(), false);
    return e;
  }
  Expression joined(Expression a, Expression b, bool any) const {
    need_truth(a), need_truth(b);
    Expression e;
    e.truth = [a = std::move(a.truth), b = std::move(b.truth), any](const AttentionScore& s) -> FormulaTruth {
      const auto x = a(s), y = b(s);
      if (!x.index()) return std::get<0>(x) == any ? FormulaTruth(any) : y;
      if (!y.index()) return std::get<0>(y) == any ? FormulaTruth(any) : x;
      return any ? std::get<1>(x) | std::get<1>(y) : std::get<1>(x) & std::get<1>(y);
    };
    return e;
  }
  Expression inverted() {
    if (!take_word("not")) return compared();
    const Deeper deeper(*this);
    auto a = inverted();
    need_truth(a);
    Expression e;
    e.truth = [a = std::move(a.truth)](const AttentionScore& s) -> FormulaTruth {
      const auto x = a(s);
      return x.index() ? FormulaTruth(!std::get<1>(x)) : FormulaTruth(!std::get<0>(x));
    };
    return e;
  }
  Expression compared() {
    auto a = sum();
    const auto with = [&](auto host) {
      need_number(a);
      auto b = sum();
      need_number(b);
      return of_two(
          std::move(a), std::move(b), [host](float x, float y) { return bool(host(x, y)); }, host);
    };
    if (take("<=")) return with([](const auto& x, const auto& y) { return x <= y; });
    if (take(">=")) return with([](const auto& x, const auto& y) { return x >= y; });
    if (take("==")) return with([](const auto& x, const auto& y) { return x == y; });
    if (take("!=")) return with([](const auto& x, const auto& y) { return x != y; });
    if (take("<")) return with([](const auto& x, const auto& y) { return x < y; });
    if (take(">")) return with([](const auto& x, const auto& y) { return x > y; });
    return a;
  }

  // ------------------------------------------------------------ numbers
  Expression sum() {
    auto a = product();
    const auto with = [&](auto f) {
      need_number(a);
      auto b = product();
      need_number(b);
      a = of_two(std::move(a), std::move(b), f, f);
    };
    for (;;) {
      if (take("+"))
        with([](const auto& x, const auto& y) { return x + y; });
      else if (take("-"))
        with([](const auto& x, const auto& y) { return x - y; });
      else
        return a;
    }
  }
  Expression product() {
    auto a = negated();
    // Asked for before `a` is moved: the order in which arguments are evaluated is a compiler's own.
    const auto second = [&] {
      need_number(a);
      auto b = negated();
      need_number(b);
      return b;
    };
    const auto times = [](const auto& x, const auto& y) { return x * y; };
    for (;;) {
      if (take("//")) {
        auto b = second();
        a = quotient_down(std::move(a), std::move(b));
      } else if (take("%")) {
        auto b = second();
        auto whole = of_two(quotient_down(a, b), b, times, times);
        const auto less = [](const auto& x, const auto& y) { return x - y; };
        a = of_two(std::move(a), std::move(whole), less, less);
      } else if (take("/")) {
        auto b = second();
        a = of_two(
            std::move(a), std::move(b), [](float x, float y) { return x / y; },
            [](const Val<f32>& x, const Val<f32>& y) {
              if (!y.is_literal()) return div<full>(x, y);
              return x * (1 / std::bit_cast<float>(std::uint32_t(y.bits())));
            });
      } else if (take("*")) {
        auto b = second();
        a = of_two(std::move(a), std::move(b), times, times);
      } else {
        return a;
      }
    }
  }
  Expression negated() {
    if (!take("-")) return primary();
    const Deeper deeper(*this);
    auto a = negated();
    need_number(a);
    return of_one(
        std::move(a), [](float x) { return -x; }, [](const Val<f32>& x) { return -x; });
  }
  // Formulas come from callers: they must not exhaust the stack.
  struct Deeper {
    explicit Deeper(FormulaParser& p) : parser(p) {
      if (++parser.depth_ > 100) parser.fail("more than 100 levels of nesting");
    }
    ~Deeper() { --parser.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    FormulaParser& parser;
  };
  Expression primary() {
    const Deeper deeper(*this);
    space();
    if (at_ == text_.size()) fail("the formula ends where a number is needed");
    if (take("(")) {
      auto e = either();
      expect(")");
      return e;
    }
    if (digit(text_[at_]) || text_[at_] == '.') return literal();
    const auto name = word();
    if (name.empty()) fail("a number is needed");
    const auto before = at_;
    at_ += name.size();
    if (name == "inf") return constant(std::numeric_limits<float>::infinity());
    if (name == "score") return {[](const AttentionScore& s) { return FormulaNumber(s.score); }, {}};
    if (name == "b") return place(&AttentionScore::batch);
    if (name == "h") return place(&AttentionScore::head);
    if (name == "q") return place(&AttentionScore::query);
    if (name == "k") return place(&AttentionScore::key);
    if (name == "data") return element();
    if (auto e = function(name)) return std::move(*e);
    at_ = before;
    fail(text::cat(
        "'", name,
        "' is neither score, b, h, q, k, inf, data nor one of the functions abs, floor, exp, log, sqrt, sin, "
        "cos, tanh, sigmoid, min, max and where"));
  }
  static Expression constant(float v) {
    return {[v](const AttentionScore&) { return FormulaNumber(v); }, {}};
  }
  Expression literal() {
    float v = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), v);
    if (error != std::errc()) fail("this is no number that fp32 holds");
    at_ = std::size_t(end - text_.data());
    return constant(v);
  }
  static Expression place(Val<u32> AttentionScore::*which) {
    return {[which](const AttentionScore& s) { return FormulaNumber(to<f32>(s.*which)); }, {}};
  }
  std::vector<Expression> arguments(std::size_t count) {
    expect("(");
    std::vector<Expression> all;
    while (all.size() < count) {
      if (!all.empty()) expect(",");
      all.push_back(either());
      if (count != 3 || all.size() > 1)
        need_number(all.back());
      else
        need_truth(all.back());
    }
    expect(")");
    return all;
  }
  std::optional<Expression> function(std::string_view name) {
    const auto one = [&](auto host, auto device) { return of_one(arguments(1)[0], host, device); };
    using V = const Val<f32>&;
    using attention_impl::kLn2, attention_impl::kLog2e;
    if (name == "abs") return one([](float x) { return std::fabs(x); }, [](V x) { return dsl::abs(x); });
    if (name == "floor") return one([](float x) { return std::floor(x); }, rounded_down);
    if (name == "exp")
      return one([](float x) { return std::exp(x); }, [](V x) { return ex2<approx>(x * kLog2e); });
    if (name == "log")
      return one([](float x) { return std::log(x); }, [](V x) { return lg2<approx>(x) * kLn2; });
    if (name == "sqrt")
      return one([](float x) { return std::sqrt(x); }, [](V x) { return dsl::sqrt<rn>(x); });
    if (name == "sin")
      return one([](float x) { return std::sin(x); }, [](V x) { return dsl::sin<approx>(x); });
    if (name == "cos")
      return one([](float x) { return std::cos(x); }, [](V x) { return dsl::cos<approx>(x); });
    if (name == "tanh") return one([](float x) { return std::tanh(x); }, attention_impl::tanh_exact);
    if (name == "sigmoid")
      return one([](float x) { return 1 / (1 + std::exp(-x)); },
                 [](V x) { return rcp<approx, ftz>(ex2<approx, ftz>(x * -kLog2e) + 1.0f); });
    if (name == "min" || name == "max") {
      auto of = arguments(2);
      if (name == "min")
        return of_two(
            std::move(of[0]), std::move(of[1]), [](float x, float y) { return std::fmin(x, y); },
            [](V x, V y) { return dsl::min(x, y); });
      return of_two(
          std::move(of[0]), std::move(of[1]), [](float x, float y) { return std::fmax(x, y); },
          [](V x, V y) { return dsl::max(x, y); });
    }
    if (name != "where") return std::nullopt;
    auto of = arguments(3);
    return Expression{[c = of[0].truth, x = of[1].number, y = of[2].number](const AttentionScore& s) {
                        const auto known = c(s);
                        if (!known.index()) return std::get<0>(known) ? x(s) : y(s);
                        return FormulaNumber(select(std::get<1>(known), in_kernel(x(s)), in_kernel(y(s))));
                      },
                      {}};
  }
  Expression element() {
    if (shape_.empty()) fail("there is no data");
    expect("[");
    std::vector<Expression> index;
    do {
      index.push_back(either());
      need_number(index.back());
    } while (take(","));
    expect("]");
    if (index.size() != shape_.size())
      fail(text::cat("data has ", shape_.size(), " dimensions, these are ", index.size(), " indices"));
    return {[index, shape = shape_](const AttentionScore& s) {
              std::uint64_t known = 0, pitch = 1;
              std::vector<Val<u64>> at;  // the last is the sum
              for (std::size_t i = index.size(); i-- > 0; pitch *= shape[i]) {
                const auto most = float(shape[i] - 1);
                const auto x = index[i].number(s);
                if (!x.index()) {
                  known += pitch * std::uint64_t(std::fmin(std::fmax(std::get<0>(x), 0.0f), most));
                  continue;
                }
                const auto inside = to<u64>(to<u32>(dsl::min(dsl::max(std::get<1>(x), 0.0f), most))) * pitch;
                at.push_back(at.empty() ? inside : at.back() + inside);
              }
              const auto first = In<f32>(s.data, 0, true).at(known);
              return FormulaNumber(at.empty() ? first.ld() : first.at(at.back()).ld());
            },
            {}};
  }

  std::string_view text_;
  std::vector<std::uint64_t> shape_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

// A kernel's name has letters and digits only.
std::string name_of(std::string_view formula, std::span<const std::uint64_t> shape) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  const auto add = [&](std::string_view bytes) {
    for (const char c : bytes) hash = (hash ^ std::uint8_t(c)) * 0x100000001b3;
  };
  add(formula);
  for (const auto n : shape) add(text::cat(",", n));
  return text::cat("formula_", hash);
}

}  // namespace

ScoreModification score_formula(std::string_view formula, std::span<const std::uint64_t> data_shape) {
  if (formula.size() > 4096) throw ArgumentError("score formula: it is longer than 4096 letters");
  std::uint64_t all = 1;
  for (const auto n : data_shape) {
    if (!n || n > 1 << 24)
      throw ArgumentError(
          text::cat("score formula: data has ", n, " elements in a dimension, not 1 to 2^24"));
    all *= n;
    if (all > std::uint64_t(1) << 40) throw ArgumentError("score formula: data has more than 2^40 elements");
  }
  auto e = FormulaParser(formula, data_shape).whole();
  return {name_of(formula, data_shape),
          [number = std::move(e.number)](const AttentionScore& s) {
            const auto v = number(s);
            return v.index() ? std::get<1>(v) : Val<f32>(s.score.kernel()->copy(in_kernel(v)));
          },
          {}};
}

}  // namespace cgp::kernels
