// SPDX-License-Identifier: Apache-2.0
#pragma once
// Every error of the library: what rule was broken, where, why (with the numbers), and what to do about it.
// docs/architecture.md, "Errors", says who throws which. `Unsupported` is the only one that code catches.
#include <stdexcept>
#include <string>

#include "cgp/base/here.h"

namespace cgp {

/// The four parts of a message. `rule` alone is required; an empty part is left out of what().
struct ErrorText {
  std::string rule;   ///< one sentence: what must hold
  std::string where;  ///< file:line, line:column with a caret, a call, a buffer: whatever locates it
  std::string why;    ///< the numbers: what was found against what is needed
  std::string hint;   ///< what to write instead
};

class Error : public std::runtime_error {
 public:
  explicit Error(ErrorText text);
  explicit Error(std::string rule) : Error(ErrorText{std::move(rule), {}, {}, {}}) {}
  const std::string& rule() const { return text_.rule; }
  const std::string& where() const { return text_.where; }
  const std::string& why() const { return text_.why; }
  const std::string& hint() const { return text_.hint; }

 private:
  ErrorText text_;
};

/// The author of a kernel broke a rule of the DSL; where() is file:line of the kernel's C++ source.
class BuildError : public Error {
 public:
  using Error::Error;
  BuildError(std::string rule, Here at, std::string why = {}, std::string hint = {});
};
/// Malformed text (PTX, JSON spec, .npy, command line); where() is line:column, the line and a caret.
class ParseError : public Error {
 public:
  using Error::Error;
  ParseError(std::string rule, int line, int column, std::string_view source_line, std::string hint = {});
  int line() const { return line_; }
  int column() const { return column_; }

 private:
  int line_ = 0, column_ = 0;
};
/// A PTX module breaks a rule of the ISA.
class VerifyError : public Error {
 public:
  using Error::Error;
};
/// The emulated program misbehaved; where() names PTX line, C++ line, block and thread.
class EmuFault : public Error {
 public:
  using Error::Error;
};
/// A driver call failed. code() is the CUresult, or the VkResult of Vulkan.
class DriverError : public Error {
 public:
  DriverError(int code, ErrorText text) : Error(std::move(text)), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};
/// A caller passed something a function cannot accept (shape, type, device, alias).
class ArgumentError : public Error {
 public:
  using Error::Error;
};
/// This device or build cannot do it: says what is needed and what is there.
class Unsupported : public Error {
 public:
  using Error::Error;
};

}  // namespace cgp
