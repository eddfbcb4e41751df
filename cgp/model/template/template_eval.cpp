// SPDX-License-Identifier: Apache-2.0
#include "cgp/model/template/template_eval.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/model/template/chat_template.h"
#include "cgp/model/template/template_text.h"
#include "cgp/model/unicode/unicode.h"

namespace cgp::model::jinja {

using text::cat;

namespace {

constexpr int kMaxCalls = 100;

/// Characters of a string as strings: what a loop over it, or an index, sees.
std::vector<std::string_view> characters(std::string_view s) {
  std::vector<std::string_view> out;
  for (std::size_t at = 0; at < s.size();) {
    std::size_t size = unicode::decode(s, at).size;
    out.push_back(s.substr(at, size));
    at += size;
  }
  return out;
}

}  // namespace

void Budget::take(std::int64_t& left, std::size_t cost) {
  if (cost > std::size_t(left))
    throw Unsupported("a chat template may take 2 million steps and 64 MiB of strings");
  left -= std::int64_t(cost);
}

Evaluator::Evaluator(const Program& program, const Value& variables, std::time_t now)
    : program_(program), variables_(variables), now_(now), frames_(1) {}

Evaluator::~Evaluator() {
  for (Value& n : namespaces_) n.namespace_attributes()->clear();  // one may hold itself
}

std::string Evaluator::run() {
  std::string out;
  auto where = [&] { return cat(program_.name, ", line ", line_); };
  try {
    execute(program_.body, out);
  } catch (const ArgumentError& e) {
    throw ArgumentError(ErrorText{e.rule(), where(), e.why(), e.hint()});
  } catch (const Unsupported& e) {
    throw Unsupported(ErrorText{e.rule(), where(), e.why(), e.hint()});
  }
  return out;
}

Value* Evaluator::find(const std::string& name) {
  for (std::size_t f = frames_.size(); f-- > first_;)
    for (auto it = frames_[f].rbegin(); it != frames_[f].rend(); ++it)
      if (it->first == name) return &it->second;
  if (first_ > 0)
    for (auto& [n, v] : frames_[0])
      if (n == name) return &v;
  return nullptr;
}

void Evaluator::set(const std::string& name, Value value) {
  for (auto& [n, v] : frames_.back())
    if (n == name) {
      v = std::move(value);
      return;
    }
  frames_.back().emplace_back(name, std::move(value));
}

void Evaluator::write(std::string& out, std::string_view text) {
  budget_.string(text.size());
  out += text;
}

std::string Evaluator::captured(const Body& body) {
  std::string out;
  frames_.emplace_back();
  execute(body, out);
  frames_.pop_back();
  return out;
}

Evaluator::Flow Evaluator::execute(const Body& body, std::string& out) {
  if (++depth_ > kMaxCalls) refuse(cat("a chat template may go ", kMaxCalls, " deep"));
  Flow flow = Flow::next;
  for (const Stmt& s : body) {
    line_ = s.line;
    budget_.step();
    if ((flow = execute(s, out)) != Flow::next) break;
  }
  --depth_;
  return flow;
}

Evaluator::Flow Evaluator::execute(const Stmt& s, std::string& out) {
  switch (s.kind) {
    case Stmt::data:
      write(out, s.text);
      break;
    case Stmt::output:
      write(out, evaluate(*s.expr).str());
      break;
    case Stmt::if_else:
      for (const auto& [condition, body] : s.branches)
        if (!condition || evaluate(*condition).truthy()) return execute(body, out);
      break;
    case Stmt::for_loop:
      return loop(s, out);
    case Stmt::set:
      if (s.expr) {
        assign(s, s.targets, evaluate(*s.expr));
      } else {
        Value text = captured(s.body);
        assign(s, s.targets, s.condition ? filtered(s.condition.get(), std::move(text)) : std::move(text));
      }
      break;
    case Stmt::macro:
      set(s.text, macro(s));
      break;
    case Stmt::call: {
      frames_.emplace_back();
      Value body = macro(s);
      std::vector<Value> arguments;
      Named named = {{"caller", body}};
      Value callee = evaluate(*s.expr->parts[0]);
      for (std::size_t i = 1; i < s.expr->parts.size(); ++i) arguments.push_back(evaluate(*s.expr->parts[i]));
      for (const auto& [name, e] : s.expr->named) named.emplace_back(name, evaluate(*e));
      write(out, call(callee, std::move(arguments), std::move(named)).str());
      frames_.pop_back();
      break;
    }
    case Stmt::filter:
      write(out, filtered(s.expr.get(), captured(s.body)).str());
      break;
    case Stmt::break_loop:
      return Flow::broken;
    case Stmt::continue_loop:
      return Flow::continued;
    case Stmt::scope: {
      frames_.emplace_back();
      Flow flow = execute(s.body, out);
      frames_.pop_back();
      return flow;
    }
  }
  return Flow::next;
}

void Evaluator::assign(const Stmt& s, const std::vector<std::string>& targets, Value value) {
  if (!s.attribute.empty()) {
    Value* object = find(targets[0]);
    ValueDict* attributes = object ? object->namespace_attributes() : nullptr;
    if (!attributes) refuse(cat("only attributes of a namespace can be set, and '", targets[0], "' is none"));
    set_key(*attributes, s.attribute, std::move(value));
  } else if (targets.size() == 1) {
    set(targets[0], std::move(value));
  } else {
    const ValueList* list = value.list();
    if (!list || list->size() != targets.size())
      refuse(cat(targets.size(), " names need as many values, not ",
                 list ? cat(list->size()) : std::string(value.type_name())));
    for (std::size_t i = 0; i < targets.size(); ++i) set(targets[i], (*list)[i]);
  }
}

Evaluator::Flow Evaluator::loop(const Stmt& s, std::string& out) {
  const Value over = evaluate(*s.expr);
  ValueList items;
  if (over.list()) {
    items = *over.list();
  } else if (over.dict()) {
    for (const auto& [k, v] : *over.dict()) items.push_back(k);
  } else if (over.is_string()) {
    for (std::string_view c : characters(over.string())) items.emplace_back(c);
  } else if (!over.is_undefined()) {
    refuse(cat("a loop goes over a list, a dict or a string, not over ", over.type_name()));
  }
  budget_.elements(items.size());
  Stmt plain{Stmt::set};
  if (s.condition) {
    ValueList kept;
    for (Value& v : items) {
      frames_.emplace_back();
      assign(plain, s.targets, v);
      if (evaluate(*s.condition).truthy()) kept.push_back(std::move(v));
      frames_.pop_back();
    }
    items = std::move(kept);
  }
  if (items.empty()) {
    frames_.emplace_back();
    Flow flow = execute(s.otherwise, out);
    frames_.pop_back();
    return flow;
  }
  const auto n = std::int64_t(items.size());
  auto seen = std::make_shared<std::string>("nothing");
  Value changed(ValueFunction{"changed", [seen](std::vector<Value>& now, Named&) -> Value {
                                std::string text = Value(now).repr();
                                return std::exchange(*seen, text) != text;
                              }});
  for (std::int64_t i = 0; i < n; ++i) {
    frames_.emplace_back();
    assign(plain, s.targets, items[std::size_t(i)]);
    Value cycle(ValueFunction{"cycle", [i](std::vector<Value>& a, Named&) -> Value {
                                if (a.empty()) refuse("cycle needs values");
                                return a[std::size_t(i) % a.size()];
                              }});
    set("loop", ValueDict{{"index0", i},
                          {"index", i + 1},
                          {"first", i == 0},
                          {"last", i == n - 1},
                          {"length", n},
                          {"revindex", n - i},
                          {"revindex0", n - i - 1},
                          {"previtem", i > 0 ? items[std::size_t(i - 1)] : Value::undefined("previtem")},
                          {"nextitem", i + 1 < n ? items[std::size_t(i + 1)] : Value::undefined("nextitem")},
                          {"cycle", cycle},
                          {"changed", changed}});
    Flow flow = execute(s.body, out);
    frames_.pop_back();
    if (flow == Flow::broken) break;
  }
  return Flow::next;
}

Value Evaluator::macro(const Stmt& s) {
  const std::size_t sees =
      s.kind == Stmt::call ? frames_.size() : 1;  // a caller() sees what stands around it
  return ValueFunction{
      s.kind == Stmt::call ? "caller" : s.text,
      [this, &s, sees](std::vector<Value>& arguments, Named& named) {
        if (arguments.size() > s.parameters.size())
          refuse(
              cat("macro '", s.text, "' takes ", s.parameters.size(), " arguments, not ", arguments.size()));
        // Frames above those that it sees are put aside, so that it finds no names of its caller's.
        std::vector<Frame> aside(
            std::make_move_iterator(frames_.begin() + std::ptrdiff_t(std::min(sees, frames_.size()))),
            std::make_move_iterator(frames_.end()));
        frames_.resize(std::min(sees, frames_.size()));
        frames_.emplace_back();
        const int line = line_;
        for (std::size_t i = 0; i < s.parameters.size(); ++i) {
          const auto& [name, otherwise] = s.parameters[i];
          auto by_name =
              std::find_if(named.begin(), named.end(), [&n = name](const auto& x) { return x.first == n; });
          if (i < arguments.size())
            set(name, arguments[i]);
          else if (by_name != named.end())
            set(name, by_name->second);
          else
            set(name, otherwise ? evaluate(*otherwise) : Value::undefined(name));
        }
        for (auto& [name, value] : named)
          if (name == "caller") set(name, value);
        std::string out;
        execute(s.body, out);
        frames_.pop_back();
        frames_.insert(frames_.end(), std::make_move_iterator(aside.begin()),
                       std::make_move_iterator(aside.end()));
        line_ = line;
        return Value(std::move(out));
      }};
}

Value Evaluator::filtered(const Expr* f, Value input) {
  if (f->parts[0]) input = filtered(f->parts[0].get(), std::move(input));
  std::vector<Value> arguments;
  Named named;
  for (std::size_t i = 1; i < f->parts.size(); ++i) arguments.push_back(evaluate(*f->parts[i]));
  for (const auto& [name, e] : f->named) named.emplace_back(name, evaluate(*e));
  return apply_filter(f->text, input, arguments, named, budget_);
}

Value Evaluator::evaluate(const Expr& e) {
  budget_.step();
  switch (e.kind) {
    case Expr::literal:
      return e.value;
    case Expr::name: {
      if (Value* v = find(e.text)) return *v;
      if (const Value* v = variables_.find(e.text)) {
        if (v->is_string()) budget_.string(v->string().size());
        return *v;
      }
      return global_function(e.text, now_, budget_, namespaces_);
    }
    case Expr::list: {
      ValueList out;
      for (const ExprPtr& p : e.parts) out.push_back(evaluate(*p));
      return out;
    }
    case Expr::dict: {
      ValueDict out;
      for (std::size_t i = 0; i < e.parts.size(); i += 2) {
        Value key = evaluate(*e.parts[i]);
        set_key(out, key, evaluate(*e.parts[i + 1]));
      }
      return out;
    }
    case Expr::attribute:
      return attribute(evaluate(*e.parts[0]), e.text);
    case Expr::item: {
      Value object = evaluate(*e.parts[0]);
      return item(object, evaluate(*e.parts[1]));
    }
    case Expr::slice:
      return slice(e);
    case Expr::call: {
      Value function = evaluate(*e.parts[0]);
      std::vector<Value> arguments;
      Named named;
      for (std::size_t i = 1; i < e.parts.size(); ++i) arguments.push_back(evaluate(*e.parts[i]));
      for (const auto& [name, a] : e.named) named.emplace_back(name, evaluate(*a));
      return call(function, std::move(arguments), std::move(named));
    }
    case Expr::filter: {
      Value input = evaluate(*e.parts[0]);
      std::vector<Value> arguments;
      Named named;
      for (std::size_t i = 1; i < e.parts.size(); ++i) arguments.push_back(evaluate(*e.parts[i]));
      for (const auto& [name, a] : e.named) named.emplace_back(name, evaluate(*a));
      return apply_filter(e.text, input, arguments, named, budget_);
    }
    case Expr::test: {
      Value input = evaluate(*e.parts[0]);
      std::vector<Value> arguments;
      for (std::size_t i = 1; i < e.parts.size(); ++i) arguments.push_back(evaluate(*e.parts[i]));
      return apply_test(e.text, input, arguments);
    }
    case Expr::unary: {
      Value v = evaluate(*e.parts[0]);
      if (e.text == "not") return !v.truthy();
      if (!v.is_number()) refuse(cat("'", e.text, "' needs a number, not ", v.type_name()));
      if (e.text == "+") return v;
      return v.is_float() ? Value(-v.number()) : Value(std::int64_t(0 - std::uint64_t(v.integer())));
    }
    case Expr::binary:
      return binary(e);
    case Expr::both: {
      Value left = evaluate(*e.parts[0]);
      return left.truthy() ? evaluate(*e.parts[1]) : left;
    }
    case Expr::either: {
      Value left = evaluate(*e.parts[0]);
      return left.truthy() ? left : evaluate(*e.parts[1]);
    }
    case Expr::condition:
      if (evaluate(*e.parts[1]).truthy()) return evaluate(*e.parts[0]);
      return e.parts[2] ? evaluate(*e.parts[2]) : Value::undefined("the inline if without else");
  }
  return {};
}

Value Evaluator::call(const Value& function, std::vector<Value> arguments, Named named) {
  if (function.is_undefined())
    refuse(cat("'", function.undefined_name(), "' is undefined and cannot be called"));
  if (!function.function()) refuse(cat(function.type_name(), " cannot be called"));
  if (++depth_ > kMaxCalls) refuse(cat("a chat template may go ", kMaxCalls, " deep"));
  Value out = function.function()->call(arguments, named);
  --depth_;
  return out;
}

Value Evaluator::attribute(const Value& object, const std::string& name) {
  if (object.is_undefined())
    refuse(cat("'", object.undefined_name(), "' is undefined and has no '", name, "'"));
  if (Value method = method_of(object, name, budget_); !method.is_undefined()) return method;
  const Value* found = object.find(name);
  return found ? *found : Value::undefined(name);
}

Value Evaluator::item(const Value& object, const Value& key) {
  if (object.is_undefined())
    refuse(cat("'", object.undefined_name(), "' is undefined and has no item ", key.repr()));
  if (const Value* found = object.find(key)) return *found;
  if (key.is_integer() && (object.list() || object.is_string())) {
    std::vector<std::string_view> chars;
    if (object.is_string()) {
      budget_.elements(object.string().size());
      chars = characters(object.string());
    }
    auto n = std::int64_t(object.list() ? object.list()->size() : chars.size());
    std::int64_t i = key.integer() < 0 ? key.integer() + n : key.integer();
    if (i < 0 || i >= n) return Value::undefined(cat("item ", key.integer()));
    return object.list() ? (*object.list())[std::size_t(i)] : Value(chars[std::size_t(i)]);
  }
  if (key.is_string())
    if (Value method = method_of(object, key.string(), budget_); !method.is_undefined()) return method;
  return Value::undefined(key.str());
}

Value Evaluator::slice(const Expr& e) {
  Value object = evaluate(*e.parts[0]);
  if (!object.list() && !object.is_string())
    refuse(cat("a slice is of a list or a string, not of ", object.type_name()));
  std::vector<std::string_view> chars;
  if (object.is_string()) chars = characters(object.string());
  const auto n = std::int64_t(object.list() ? object.list()->size() : chars.size());
  budget_.elements(std::size_t(n));
  std::optional<std::int64_t> bounds[3];
  for (int i = 0; i < 3; ++i) {
    if (!e.parts[std::size_t(i) + 1]) continue;
    Value v = evaluate(*e.parts[std::size_t(i) + 1]);
    if (v.is_none()) continue;
    if (!v.is_integer()) refuse(cat("the bounds of a slice are integers, not ", v.type_name()));
    bounds[i] = v.integer();
  }
  const std::int64_t step = std::clamp<std::int64_t>(bounds[2].value_or(1), -n - 1, n + 1);
  if (step == 0) refuse("the step of a slice is not 0");
  auto place = [&](std::int64_t i) {
    if (i < 0) i = std::max<std::int64_t>(i, -n - 1) + n;
    return step > 0 ? std::clamp<std::int64_t>(i, 0, n) : std::clamp<std::int64_t>(i, -1, n - 1);
  };
  std::int64_t from = bounds[0] ? place(*bounds[0]) : step > 0 ? 0 : n - 1;
  std::int64_t to = bounds[1] ? place(*bounds[1]) : step > 0 ? n : -1;
  ValueList list;
  std::string text;
  for (std::int64_t i = from; step > 0 ? i < to : i > to; i += step) {
    if (object.list())
      list.push_back((*object.list())[std::size_t(i)]);
    else
      text += chars[std::size_t(i)];
  }
  return object.list() ? Value(std::move(list)) : Value(std::move(text));
}

Value Evaluator::binary(const Expr& e) {
  const Value a = evaluate(*e.parts[0]), b = evaluate(*e.parts[1]);
  const std::string& op = e.text;
  if (op == "==") return a == b;
  if (op == "!=") return !(a == b);
  if (op == "<") return a.less(b);
  if (op == ">") return b.less(a);
  if (op == "<=") return !b.less(a);
  if (op == ">=") return !a.less(b);
  if (op == "in" || op == "not in") return apply_test("in", a, {b}) == (op == "in");
  if (op == "~") {
    std::string left = a.str(), right = b.str();
    budget_.string(left.size() + right.size());
    return left + right;
  }
  for (const Value* v : {&a, &b})
    if (v->is_undefined()) refuse(cat("'", v->undefined_name(), "' is undefined"));
  if (op == "+" && a.is_string() && b.is_string()) {
    budget_.string(a.string().size() + b.string().size());
    return a.string() + b.string();
  }
  if (op == "+" && a.list() && b.list()) {
    budget_.elements(a.list()->size() + b.list()->size());
    ValueList out = *a.list();
    out.insert(out.end(), b.list()->begin(), b.list()->end());
    return out;
  }
  if (op == "*" && a.is_string() && b.is_integer()) {
    std::string out;
    if (b.integer() > 0 && !a.string().empty()) {
      budget_.string(std::size_t(std::min<std::int64_t>(b.integer(), 1 << 30)) * a.string().size());
      for (std::int64_t i = 0; i < b.integer(); ++i) out += a.string();
    }
    return out;
  }
  if (op == "%" && a.is_string()) {
    std::vector<Value> arguments = b.list() ? *b.list() : ValueList{b};
    Named none;
    return apply_filter("format", a, arguments, none, budget_);
  }
  if (!a.is_number() || !b.is_number())
    refuse(cat("'", op, "' is not for ", a.type_name(), " and ", b.type_name()));
  if ((op == "/" || op == "//" || op == "%") && b.number() == 0) refuse("division by zero");
  if (!a.is_float() && !b.is_float() && op != "/") {
    std::int64_t x = a.integer(), y = b.integer(), r = 0;
    bool over = false;
    if (op == "+") over = __builtin_add_overflow(x, y, &r);
    if (op == "-") over = __builtin_sub_overflow(x, y, &r);
    if (op == "*") over = __builtin_mul_overflow(x, y, &r);
    if (op == "//" || op == "%") {
      over = y == -1 && x == std::numeric_limits<std::int64_t>::min();
      if (!over) {
        bool inexact = x % y != 0 && (x < 0) != (y < 0);  // Python rounds down
        r = op == "//" ? x / y - inexact : x % y + (inexact ? y : 0);
      }
    }
    if (op == "**" && y >= 0) {
      r = 1;
      for (std::int64_t i = 0; i < y && !over; ++i) {
        if (x == 0 || x == 1 || x == -1) {
          r = x == -1 ? (y % 2 ? -1 : 1) : x;
          break;
        }
        over = __builtin_mul_overflow(r, x, &r);
      }
      if (y == 0) r = 1;
    }
    if (over) refuse("integers have 64 bits");
    if (op != "**" || y >= 0) return r;
  }
  const double x = a.number(), y = b.number();
  if (op == "+") return x + y;
  if (op == "-") return x - y;
  if (op == "*") return x * y;
  if (op == "/") return x / y;
  if (op == "//") return std::floor(x / y);
  if (op == "%") return x - y * std::floor(x / y);
  return std::pow(x, y);
}

}  // namespace cgp::model::jinja

namespace cgp::model {

ChatTemplate::ChatTemplate(std::string_view source, std::string name)
    : program_(jinja::parse(source, std::move(name))) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

std::string ChatTemplate::render(const Value& variables, std::time_t now) const {
  return jinja::Evaluator(*program_, variables, now).run();
}

}  // namespace cgp::model
