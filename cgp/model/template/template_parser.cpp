// SPDX-License-Identifier: Apache-2.0
// Recursive descent with Jinja's precedences.
#include <algorithm>
#include <charconv>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/model/template/template_ast.h"
#include "cgp/model/template/template_lexer.h"

namespace cgp::model::jinja {

using text::cat;

namespace {

constexpr int kMaxNested = 100;

class Parser {
 public:
  Parser(std::vector<Word> words, const std::string& name) : words_(std::move(words)), name_(name) {}

  Body run() {
    Body out = body({});
    if (now().kind != Word::end) fail(cat("'", now().text, "' ends nothing"));
    return out;
  }

 private:
  const Word& now() const { return words_[at_]; }
  [[noreturn]] void fail(std::string why) const {
    throw ParseError(
        ErrorText{"a chat template must be Jinja", cat(name_, ", line ", now().line), std::move(why), {}});
  }
  bool is_op(std::string_view op) const { return now().kind == Word::op && now().text == op; }
  bool is_name(std::string_view name) const { return now().kind == Word::name && now().text == name; }
  bool has_op(std::string_view op) {
    if (!is_op(op)) return false;
    ++at_;
    return true;
  }
  bool has_name(std::string_view name) {
    if (!is_name(name)) return false;
    ++at_;
    return true;
  }
  void need_op(std::string_view op) {
    if (!has_op(op)) fail(cat("'", op, "' is needed, not '", now().text, "'"));
  }
  std::string need_name() {
    if (now().kind != Word::name) fail(cat("a name is needed, not '", now().text, "'"));
    return words_[at_++].text;
  }
  void end_block() {
    if (now().kind != Word::end_block) fail(cat("the tag must end here, not go on with '", now().text, "'"));
    ++at_;
  }

  struct Deeper {
    explicit Deeper(Parser& p) : parser(p) {
      if (++p.depth_ > kMaxNested) p.fail(cat("it is nested more than ", kMaxNested, " deep"));
    }
    ~Deeper() { --parser.depth_; }
    Parser& parser;
  };

  // --- statements ---

  /// Up to a block that begins with one of `ends`, whose name is not consumed; or to the end of the template.
  Body body(const std::vector<std::string_view>& ends) {
    Deeper deeper(*this);
    Body out;
    while (now().kind != Word::end) {
      if (now().kind == Word::data) {
        Stmt s{Stmt::data};
        s.line = now().line;
        s.text = words_[at_++].text;
        out.push_back(std::move(s));
      } else if (now().kind == Word::begin_output) {
        Stmt s{Stmt::output};
        s.line = now().line;
        ++at_;
        s.expr = tuple();
        if (now().kind != Word::end_output) fail(cat("'}}' is needed, not '", now().text, "'"));
        ++at_;
        out.push_back(std::move(s));
      } else {
        ++at_;
        if (now().kind != Word::name) fail("a tag must begin with its name");
        if (std::find(ends.begin(), ends.end(), now().text) != ends.end()) return out;
        out.push_back(statement());
      }
    }
    if (!ends.empty()) fail(cat("'", ends.back(), "' is missing"));
    return out;
  }

  Stmt statement() {
    const int line = now().line;
    const std::string tag = need_name();
    Stmt out{Stmt::scope};
    if (tag == "if") {
      out = if_else();
    } else if (tag == "for") {
      out = for_loop();
    } else if (tag == "set") {
      out = set();
    } else if (tag == "macro") {
      out = Stmt{Stmt::macro};
      out.text = need_name();
      need_op("(");
      out.parameters = parameters();
      end_block();
      out.body = closed_body("endmacro");
    } else if (tag == "call") {
      out = Stmt{Stmt::call};
      if (has_op("(")) out.parameters = parameters();
      out.expr = expression();
      if (out.expr->kind != Expr::call) fail("call needs a call");
      end_block();
      out.body = closed_body("endcall");
    } else if (tag == "filter") {
      out = Stmt{Stmt::filter};
      out.expr = filters(nullptr, true);
      end_block();
      out.body = closed_body("endfilter");
    } else if (tag == "break" || tag == "continue") {
      if (loops_ == 0) fail(cat(tag, " stands in no loop"));
      out = Stmt{tag == "break" ? Stmt::break_loop : Stmt::continue_loop};
      end_block();
    } else if (tag == "generation") {
      end_block();
      out.body = closed_body("endgeneration");
    } else if (tag == "include" || tag == "import" || tag == "from" || tag == "extends" || tag == "block" ||
               tag == "do" || tag == "autoescape" || tag == "with" || tag == "trans") {
      throw Unsupported(
          ErrorText{cat("chat templates cannot have ", tag), cat(name_, ", line ", line), {}, {}});
    } else {
      fail(cat("there is no tag '", tag, "' here"));
    }
    out.line = line;
    return out;
  }
  Body closed_body(std::string_view end) {
    Body out = body({end});
    ++at_;
    end_block();
    return out;
  }

  Stmt if_else() {
    Stmt out{Stmt::if_else};
    ExprPtr condition = expression();
    end_block();
    while (true) {
      Body b = body({"elif", "else", "endif"});
      out.branches.emplace_back(std::move(condition), std::move(b));
      std::string tag = need_name();
      if (tag == "elif") condition = expression();
      end_block();
      if (tag == "endif") return out;
      if (tag == "else") {
        out.branches.emplace_back(nullptr, closed_body("endif"));
        return out;
      }
    }
  }

  Stmt for_loop() {
    Stmt out{Stmt::for_loop};
    bool brackets = has_op("(");
    do out.targets.push_back(need_name());
    while (has_op(","));
    if (brackets) need_op(")");
    if (!has_name("in")) fail("'in' is needed");
    out.expr = either();
    if (has_name("if")) out.condition = expression();
    if (is_name("recursive"))
      throw Unsupported(
          ErrorText{"chat templates cannot have recursive loops", cat(name_, ", line ", now().line), {}, {}});
    end_block();
    ++loops_;
    out.body = body({"else", "endfor"});
    --loops_;
    bool has_else = need_name() == "else";
    end_block();
    if (has_else) out.otherwise = closed_body("endfor");
    return out;
  }

  Stmt set() {
    Stmt out{Stmt::set};
    bool brackets = has_op("(");
    do out.targets.push_back(need_name());
    while (has_op(","));
    if (brackets) need_op(")");
    if (out.targets.size() == 1 && has_op(".")) out.attribute = need_name();
    if (has_op("=")) {
      out.expr = tuple();
      end_block();
      return out;
    }
    if (out.targets.size() > 1) fail("'=' is needed");
    if (is_op("|")) out.condition = filters(nullptr, false);
    end_block();
    out.body = closed_body("endset");
    return out;
  }

  std::vector<std::pair<std::string, ExprPtr>> parameters() {
    std::vector<std::pair<std::string, ExprPtr>> out;
    while (!has_op(")")) {
      if (!out.empty()) need_op(",");
      std::string name = need_name();
      out.emplace_back(std::move(name), has_op("=") ? expression() : nullptr);
    }
    return out;
  }

  // --- expressions, the loosest first ---

  ExprPtr make(Expr::Kind kind) const {
    auto out = std::make_unique<Expr>(Expr{kind});
    out->line = now().line;
    return out;
  }
  ExprPtr make(Expr::Kind kind, std::string text, ExprPtr a, ExprPtr b = nullptr) const {
    ExprPtr out = make(kind);
    out->text = std::move(text);
    out->parts.push_back(std::move(a));
    if (b) out->parts.push_back(std::move(b));
    return out;
  }

  /// An expression, or several with commas: a list.
  ExprPtr tuple() {
    ExprPtr first = expression();
    if (!is_op(",")) return first;
    ExprPtr out = make(Expr::list);
    out->parts.push_back(std::move(first));
    while (has_op(",")) {
      if (now().kind == Word::end_block || now().kind == Word::end_output) break;
      out->parts.push_back(expression());
    }
    return out;
  }

  ExprPtr expression() {
    Deeper deeper(*this);
    ExprPtr out = either();
    while (has_name("if")) {
      ExprPtr whole = make(Expr::condition, "", std::move(out), either());
      whole->parts.push_back(has_name("else") ? expression() : nullptr);
      out = std::move(whole);
    }
    return out;
  }
  ExprPtr either() {
    ExprPtr out = both();
    while (has_name("or")) out = make(Expr::either, "or", std::move(out), both());
    return out;
  }
  ExprPtr both() {
    ExprPtr out = negation();
    while (has_name("and")) out = make(Expr::both, "and", std::move(out), negation());
    return out;
  }
  ExprPtr negation() {
    if (is_name("not")) {
      Deeper deeper(*this);
      ++at_;
      return make(Expr::unary, "not", negation());
    }
    return comparison();
  }
  ExprPtr comparison() {
    ExprPtr out = sum();
    static constexpr std::string_view kOps[] = {"==", "!=", "<", "<=", ">", ">="};
    for (bool chained = false;; chained = true) {
      std::string op;
      if (now().kind == Word::op &&
          std::find(std::begin(kOps), std::end(kOps), now().text) != std::end(kOps)) {
        op = words_[at_++].text;
      } else if (has_name("in")) {
        op = "in";
      } else if (is_name("not") && words_[at_ + 1].kind == Word::name && words_[at_ + 1].text == "in") {
        at_ += 2;
        op = "not in";
      } else {
        return out;
      }
      if (chained)
        throw Unsupported(ErrorText{
            "chat templates cannot chain comparisons", cat(name_, ", line ", now().line), {}, "write 'and'"});
      out = make(Expr::binary, std::move(op), std::move(out), sum());
    }
  }
  ExprPtr sum() {
    ExprPtr out = concatenation();
    while (is_op("+") || is_op("-")) {
      std::string op = words_[at_++].text;
      out = make(Expr::binary, op, std::move(out), concatenation());
    }
    return out;
  }
  ExprPtr concatenation() {
    ExprPtr out = product();
    while (has_op("~")) out = make(Expr::binary, "~", std::move(out), product());
    return out;
  }
  ExprPtr product() {
    ExprPtr out = power();
    while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
      std::string op = words_[at_++].text;
      out = make(Expr::binary, op, std::move(out), power());
    }
    return out;
  }
  ExprPtr power() {
    ExprPtr out = unary(true);
    while (has_op("**")) out = make(Expr::binary, "**", std::move(out), unary(true));
    return out;
  }
  ExprPtr unary(bool with_filters) {
    Deeper deeper(*this);
    ExprPtr out;
    if (is_op("-") || is_op("+")) {
      std::string op = words_[at_++].text;
      out = make(Expr::unary, op, unary(false));
    } else {
      out = postfix(primary());
    }
    return with_filters ? filters(std::move(out), false) : std::move(out);
  }

  ExprPtr primary() {
    const Word& w = now();
    ExprPtr out = make(Expr::literal);
    if (w.kind == Word::name) {
      ++at_;
      if (w.text == "true" || w.text == "True")
        out->value = true;
      else if (w.text == "false" || w.text == "False")
        out->value = false;
      else if (w.text == "none" || w.text == "None")
        out->value = Value();
      else {
        out->kind = Expr::name;
        out->text = w.text;
      }
    } else if (w.kind == Word::string) {
      std::string s;
      while (now().kind == Word::string) s += words_[at_++].text;
      out->value = std::move(s);
    } else if (w.kind == Word::integer) {
      std::int64_t n = 0;
      if (std::from_chars(w.text.data(), w.text.data() + w.text.size(), n).ec != std::errc())
        fail("a number is too large");
      out->value = n;
      ++at_;
    } else if (w.kind == Word::number) {
      double x = 0;
      std::from_chars(w.text.data(), w.text.data() + w.text.size(), x);
      out->value = x;
      ++at_;
    } else if (has_op("(")) {
      if (has_op(")")) {
        out->kind = Expr::list;
        return out;
      }
      ExprPtr first = expression();
      if (is_op(",")) {
        out->kind = Expr::list;
        out->parts.push_back(std::move(first));
        while (has_op(",") && !is_op(")")) out->parts.push_back(expression());
      } else {
        out = std::move(first);
      }
      need_op(")");
    } else if (has_op("[")) {
      out->kind = Expr::list;
      while (!has_op("]")) {
        if (!out->parts.empty()) need_op(",");
        if (has_op("]")) break;
        out->parts.push_back(expression());
      }
    } else if (has_op("{")) {
      out->kind = Expr::dict;
      while (!has_op("}")) {
        if (!out->parts.empty()) need_op(",");
        if (has_op("}")) break;
        out->parts.push_back(expression());
        need_op(":");
        out->parts.push_back(expression());
      }
    } else {
      fail(cat("a value is needed, not '", w.text, "'"));
    }
    return out;
  }

  ExprPtr postfix(ExprPtr out) {
    while (true) {
      if (has_op(".")) {
        if (now().kind == Word::integer) {
          ExprPtr index = make(Expr::literal);
          index->value = std::int64_t(std::atoi(words_[at_++].text.c_str()));
          out = make(Expr::item, "", std::move(out), std::move(index));
        } else {
          std::string name = need_name();
          out = make(Expr::attribute, std::move(name), std::move(out));
        }
      } else if (has_op("[")) {
        out = subscript(std::move(out));
      } else if (is_op("(")) {
        ExprPtr call = make(Expr::call, "", std::move(out));
        arguments(*call);
        out = std::move(call);
      } else {
        return out;
      }
    }
  }
  ExprPtr subscript(ExprPtr object) {
    ExprPtr bounds[3];
    int colons = 0;
    for (; !is_op("]"); ++colons) {
      if (colons > 2) fail("a slice has at most three bounds");
      if (!is_op(":")) bounds[colons] = tuple();
      if (is_op("]")) break;
      need_op(":");
    }
    need_op("]");
    if (colons == 0) {
      if (!bounds[0]) fail("an index is needed");
      return make(Expr::item, "", std::move(object), std::move(bounds[0]));
    }
    ExprPtr out = make(Expr::slice, "", std::move(object));
    for (ExprPtr& b : bounds) out->parts.push_back(std::move(b));
    return out;
  }
  void arguments(Expr& call) {
    need_op("(");
    bool first = true;
    while (!has_op(")")) {
      if (!first) need_op(",");
      first = false;
      if (has_op(")")) return;
      if (is_op("*") || is_op("**"))
        throw Unsupported(
            ErrorText{"chat templates cannot unpack arguments", cat(name_, ", line ", now().line), {}, {}});
      if (now().kind == Word::name && words_[at_ + 1].kind == Word::op && words_[at_ + 1].text == "=") {
        std::string name = need_name();
        ++at_;
        call.named.emplace_back(std::move(name), expression());
      } else {
        call.parts.push_back(expression());
      }
    }
  }

  /// Filters and tests after `out`. With null the first filter's input is the statement's body; `bare`: the first has no |.
  ExprPtr filters(ExprPtr out, bool bare) {
    while (true) {
      if (bare || has_op("|")) {
        bare = false;
        std::string name = need_name();
        while (has_op(".")) name += "." + need_name();
        out = make(Expr::filter, std::move(name), std::move(out));
        if (is_op("(")) arguments(*out);
      } else if (out && has_name("is")) {
        bool negated = has_name("not");
        std::string name = now().kind == Word::op ? words_[at_++].text : need_name();
        out = make(Expr::test, std::move(name), std::move(out));
        if (is_op("("))
          arguments(*out);
        else if (begins_argument())
          out->parts.push_back(postfix(primary()));
        if (negated) out = make(Expr::unary, "not", std::move(out));
      } else if (out && is_op("(") && out->kind == Expr::filter) {
        ExprPtr call = make(Expr::call, "", std::move(out));
        arguments(*call);
        out = std::move(call);
      } else {
        return out;
      }
    }
  }
  bool begins_argument() const {
    const Word& w = now();
    if (w.kind == Word::string || w.kind == Word::integer || w.kind == Word::number) return true;
    if (w.kind == Word::op) return w.text == "[" || w.text == "{";
    static constexpr std::string_view kNot[] = {"else", "or", "and", "is", "if", "in", "not"};
    return w.kind == Word::name && std::find(std::begin(kNot), std::end(kNot), w.text) == std::end(kNot);
  }

  std::vector<Word> words_;
  const std::string& name_;
  std::size_t at_ = 0;
  int depth_ = 0, loops_ = 0;
};

}  // namespace

std::unique_ptr<Program> parse(std::string_view source, std::string name) {
  auto out = std::make_unique<Program>();
  out->name = std::move(name);
  out->body = Parser(lex(source, out->name), out->name).run();
  return out;
}

}  // namespace cgp::model::jinja
