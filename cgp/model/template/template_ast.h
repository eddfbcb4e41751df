// SPDX-License-Identifier: Apache-2.0
#pragma once
// A parsed template.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cgp/model/template/value.h"

namespace cgp::model::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  enum Kind {
    literal,    // value
    name,       // text
    list,       // parts
    dict,       // parts: key, value, key, …
    attribute,  // parts[0].text
    item,       // parts[0][parts[1]]
    slice,      // parts[0][parts[1] : parts[2] : parts[3]], null where left out
    call,       // parts[0](parts[1…], named)
    filter,     // parts[0] | text(parts[1…], named)
    test,       // parts[0] is text(parts[1…])
    unary,      // text: not - +
    binary,     // text: + - * / // % ** ~ in "not in" == != < <= > >=
    both,       // and
    either,     // or
    condition   // parts[0] if parts[1] else parts[2], which may be null
  } kind;
  int line = 0;
  std::string text = {};
  Value value = {};
  std::vector<ExprPtr> parts = {};
  std::vector<std::pair<std::string, ExprPtr>> named = {};
};

struct Stmt;
using Body = std::vector<Stmt>;

struct Stmt {
  enum Kind {
    data,      // text
    output,    // expr
    if_else,   // branches: each with its condition, null for else
    for_loop,  // targets in expr if condition: body, otherwise
    set,       // targets = expr; or target.attribute = expr; without expr: body, through filters of condition
    macro,     // text(parameters): body
    call,      // expr is a call; body is its caller()
    filter,    // body through the filters of expr
    break_loop,
    continue_loop,
    scope  // body
  } kind;
  int line = 0;
  std::string text = {};
  std::string attribute = {};
  std::vector<std::string> targets = {};
  ExprPtr expr = {};
  ExprPtr condition = {};
  std::vector<std::pair<ExprPtr, Body>> branches = {};
  std::vector<std::pair<std::string, ExprPtr>> parameters = {};  ///< with their defaults, or null
  Body body = {}, otherwise = {};
};

struct Program {
  std::string name;
  Body body;
};

/// Throws ParseError or Unsupported with the line.
std::unique_ptr<Program> parse(std::string_view source, std::string name);

}  // namespace cgp::model::jinja
