// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the reports look like: colours or none, and how wide.
#include <cstdint>
#include <string>
#include <string_view>

#include "cgp/emu/emu.h"

namespace cgp::spec {

struct Style {
  bool color = false;
  int width = 100;  ///< columns; code is cropped, sentences are wrapped
};

class Paint {
 public:
  explicit Paint(bool on) : on_(on) {}
  std::string bad(std::string_view s) const { return wrap("1;31", s); }
  std::string good(std::string_view s) const { return wrap("1;32", s); }
  std::string warn(std::string_view s) const { return wrap("1;33", s); }
  std::string note(std::string_view s) const { return wrap("1;36", s); }
  std::string frame(std::string_view s) const { return wrap("34", s); }
  std::string second(std::string_view s) const { return wrap("1;34", s); }
  std::string strong(std::string_view s) const { return wrap("1", s); }
  std::string dim(std::string_view s) const { return wrap("2", s); }
  std::string severity(emu::Severity severity, std::string_view s) const {
    return severity == emu::Severity::error ? bad(s) : severity == emu::Severity::warning ? warn(s) : note(s);
  }
  /// From cold to hot for a share between 0 and 1.
  std::string heat(double share, std::string_view s) const {
    return share >= 0.15 ? wrap("1;31", s) : share >= 0.05 ? wrap("33", s) : share >= 0.01 ? s_(s) : dim(s);
  }

 private:
  static std::string s_(std::string_view s) { return std::string(s); }
  std::string wrap(const char* code, std::string_view s) const {
    if (!on_ || s.empty()) return std::string(s);
    std::string out = "\x1b[";
    out += code;
    out += 'm';
    out += s;
    out += "\x1b[0m";
    return out;
  }
  bool on_;
};

/// `s` broken at spaces so that no line is longer than `width`; every line but the first starts with `indent`
/// spaces, and the first is taken to start there too. Line ends in `s` are kept.
std::string wrapped(std::string_view s, int width, int indent);

}  // namespace cgp::spec
