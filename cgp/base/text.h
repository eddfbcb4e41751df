// SPDX-License-Identifier: Apache-2.0
#pragma once
// Small text helpers: cat() joins anything printable, the rest is what messages and parsers need.
// There is no std::format in C++20 with libstdc++ 12, and the core has no dependencies.
#include <charconv>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace cgp::text {

inline void append(std::string& out, std::string_view s) { out.append(s); }
inline void append(std::string& out, const std::string& s) { out.append(s); }
inline void append(std::string& out, const char* s) { out.append(s); }
inline void append(std::string& out, char c) { out.push_back(c); }
inline void append(std::string& out, bool b) { out.append(b ? "true" : "false"); }
template <class T>
requires(std::integral<T> && !std::same_as<T, char> && !std::same_as<T, bool>) void append(std::string& out,
                                                                                           T v) {
  char buf[24];
  auto r = std::to_chars(buf, buf + sizeof buf, v);
  out.append(buf, r.ptr);
}
template <std::floating_point T>
void append(std::string& out, T v) {  // shortest text that reads back as the same value
  char buf[48];
  auto r = std::to_chars(buf, buf + sizeof buf, v);
  out.append(buf, r.ptr);
}

/// Joins its arguments into one string: cat("k = ", 72, ": needs k % ", 64, " == 0").
template <class... A>
std::string cat(const A&... a) {
  std::string out;
  (append(out, a), ...);
  return out;
}

/// "0x1f" style, without leading zeros.
std::string hex(std::uint64_t v);
/// 1234567 -> "1,234,567".
std::string grouped(std::uint64_t v);
/// 1536 -> "1.5 KiB"; exact below 1 KiB.
std::string bytes(std::uint64_t v);

std::string_view trim(std::string_view s);
std::vector<std::string_view> split(std::string_view s, char sep);
std::string join(const std::vector<std::string>& parts, std::string_view sep);

/// The names of `all` closest to `word` by edit distance, best first, at most `count` (for "did you mean").
std::vector<std::string> closest(std::string_view word, const std::vector<std::string>& all,
                                 std::size_t count = 3);

}  // namespace cgp::text
