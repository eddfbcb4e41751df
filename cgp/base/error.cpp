// SPDX-License-Identifier: Apache-2.0
#include "cgp/base/error.h"

#include "cgp/base/text.h"

namespace cgp {
namespace {

std::string compose(const ErrorText& t) {
  std::string s =
      t.where.empty() || t.where.find('\n') != std::string::npos ? t.rule : text::cat(t.where, ": ", t.rule);
  if (!t.where.empty() && t.where.find('\n') != std::string::npos) text::append(s, text::cat("\n", t.where));
  if (!t.why.empty()) text::append(s, text::cat("\n  why:  ", t.why));
  if (!t.hint.empty()) text::append(s, text::cat("\n  hint: ", t.hint));
  return s;
}

// The source line with a caret under the column, tabs kept so that the caret lines up.
std::string caret(int line, int column, std::string_view source) {
  std::string pad;
  for (int i = 1; i < column; ++i)
    pad.push_back(std::size_t(i - 1) < source.size() && source[std::size_t(i - 1)] == '\t' ? '\t' : ' ');
  std::string number = text::cat(line);
  return text::cat("  ", number, " | ", source, "\n  ", std::string(number.size(), ' '), " | ", pad, "^");
}

}  // namespace

Error::Error(ErrorText text) : std::runtime_error(compose(text)), text_(std::move(text)) {}

BuildError::BuildError(std::string rule, Here at, std::string why, std::string hint)
    : Error({std::move(rule), text::cat(at.file, ":", at.line), std::move(why), std::move(hint)}) {}

ParseError::ParseError(std::string rule, int line, int column, std::string_view source_line, std::string hint)
    : Error({text::cat("line ", line, ", column ", column, ": ", rule),
             caret(line, column, source_line),
             {},
             std::move(hint)}),
      line_(line),
      column_(column) {}

}  // namespace cgp
