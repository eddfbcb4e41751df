// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs a parsed template.
#include <ctime>
#include <string>
#include <vector>

#include "cgp/model/template/template_ast.h"

namespace cgp::model::jinja {

/// What a template may use up; charge() throws Error when it is spent.
class Budget {
 public:
  void step() { take(steps_, 1); }
  void string(std::size_t bytes) { take(bytes_, bytes); }
  void elements(std::size_t count) { take(steps_, count); }

 private:
  static void take(std::int64_t& left, std::size_t cost);
  std::int64_t steps_ = 2'000'000, bytes_ = 64 << 20;
};

using Named = ValueFunction::Named;

/// Throws ArgumentError where a name is not known, or an input is of the wrong kind.
Value apply_filter(const std::string& name, const Value& input, std::vector<Value>& arguments, Named& named,
                   Budget& budget);
bool apply_test(const std::string& name, const Value& input, const std::vector<Value>& arguments);
/// A bound method of a string or a dict; undefined where there is none of this name.
Value method_of(const Value& object, const std::string& name, Budget& budget);
/// range, namespace, dict, raise_exception, strftime_now, joiner; undefined for another name. New namespaces are added to
/// `namespaces`.
Value global_function(const std::string& name, std::time_t now, Budget& budget,
                      std::vector<Value>& namespaces);

class Evaluator {
 public:
  Evaluator(const Program& program, const Value& variables, std::time_t now);
  ~Evaluator();
  std::string run();

 private:
  using Frame = std::vector<std::pair<std::string, Value>>;
  enum class Flow { next, broken, continued };

  Flow execute(const Body& body, std::string& out);
  Flow execute(const Stmt& s, std::string& out);
  Flow loop(const Stmt& s, std::string& out);
  void assign(const Stmt& s, const std::vector<std::string>& targets, Value value);
  Value macro(const Stmt& s);
  std::string captured(const Body& body);
  Value filtered(const Expr* filters, Value input);

  Value evaluate(const Expr& e);
  Value attribute(const Value& object, const std::string& name);
  Value item(const Value& object, const Value& key);
  Value slice(const Expr& e);
  Value binary(const Expr& e);
  Value call(const Value& function, std::vector<Value> arguments, Named named);
  Value* find(const std::string& name);
  void set(const std::string& name, Value value);
  void write(std::string& out, std::string_view text);

  const Program& program_;
  const Value& variables_;
  std::time_t now_;
  std::vector<Frame> frames_;  ///< the first is the template's own
  std::size_t first_ = 0;      ///< of the frames that a macro sees, beside the template's own
  int line_ = 0, depth_ = 0;
  Budget budget_;
  std::vector<Value> namespaces_;
};

}  // namespace cgp::model::jinja
