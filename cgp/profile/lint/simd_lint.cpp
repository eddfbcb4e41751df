// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/lint/simd_lint.h"

#include <algorithm>
#include <cctype>
#include <regex>

#include "cgp/base/text.h"

namespace cgp::profile {
namespace {

/// Comments and string contents become spaces, so that lines and columns stay.
std::string code_only(const std::string& s) {
  std::string out = s;
  enum { code, line, block, text } state = code;
  char quote = 0;
  for (std::size_t i = 0; i < s.size(); ++i) {
    const char c = s[i], next = i + 1 < s.size() ? s[i + 1] : 0;
    if (state == code) {
      if (c == '/' && next == '/')
        state = line;
      else if (c == '/' && next == '*')
        state = block;
      else if (c == '"' || (c == '\'' && (i == 0 || !std::isalnum(static_cast<unsigned char>(s[i - 1])))))
        state = text, quote = c;
      if (state == line || state == block) out[i] = ' ';
      continue;
    }
    const bool ends_line = state == line && c == '\n', ends_block = state == block && c == '*' && next == '/';
    if (state == text && c == '\\') {
      out[i] = ' ';
      if (i + 1 < s.size() && s[i + 1] != '\n') out[++i] = ' ';
      continue;
    }
    const bool ends_text = state == text && (c == quote || c == '\n');
    if (c != '\n' && !ends_text) out[i] = ' ';
    if (ends_block) out[++i] = ' ';
    if (ends_line || ends_block || ends_text) state = code;
  }
  return out;
}

int needed_bytes(const std::string& intrinsic) {
  return intrinsic.rfind("_mm512", 0) == 0 ? 64 : intrinsic.rfind("_mm256", 0) == 0 ? 32 : 16;
}

/// Whether `text` shows an alignment of at least `bytes`.
bool shows_alignment(const std::string& text, int bytes) {
  static const std::regex modulo(R"((%|&)\s*(0x[0-9a-fA-F]+|\d+))");
  for (std::sregex_iterator i(text.begin(), text.end(), modulo), end; i != end; ++i) {
    const long n = std::strtol((*i)[2].str().c_str(), nullptr, 0);
    if ((*i)[1] == "%" ? n >= bytes && n % bytes == 0 : n >= bytes - 1 && (n & (bytes - 1)) == bytes - 1)
      return true;
  }
  static const std::regex declared(
      R"((alignas|aligned|assume_aligned|aligned_alloc|AlignedVector)\W*<?\s*\(?\s*[\w:<>, ]*?(\d+))");
  for (std::sregex_iterator i(text.begin(), text.end(), declared), end; i != end; ++i)
    if (std::strtol((*i)[2].str().c_str(), nullptr, 10) >= bytes) return true;
  static const std::regex named(
      R"(\b(is_?aligned|check_?align\w*|require_?align\w*|_mm_malloc|posix_memalign)\b)", std::regex::icase);
  return std::regex_search(text, named);
}

}  // namespace

std::vector<SimdRisk> simd_risks(const std::string& source, const std::string& file) {
  const std::string code = code_only(source);
  static const std::regex access(
      R"(\b(_mm(?:256|512)?_(?:stream_(?:ps|pd|si128|si256|si512|load_si128|load_si256|load_si512)|(?:maskz?_)?(?:load|store)_(?:ps|pd|si128|si256|si512|epi32|epi64)))\s*\()");
  std::vector<SimdRisk> out;
  for (std::sregex_iterator i(code.begin(), code.end(), access), end; i != end; ++i) {
    const auto at = std::size_t(i->position());
    const std::string intrinsic = (*i)[1];
    // The function begins after the last closing brace in the first column.
    const auto before = code.rfind("\n}", at);
    const std::string function = code.substr(before == std::string::npos ? 0 : before,
                                             at - (before == std::string::npos ? 0 : before));
    if (shows_alignment(function, needed_bytes(intrinsic))) continue;
    const auto line_start = source.rfind('\n', at) + 1;  // npos + 1 is 0
    const auto line_end = source.find('\n', at);
    out.push_back(
        {file, intrinsic,
         std::string(text::trim(std::string_view(source).substr(line_start, line_end - line_start))),
         int(std::count(source.begin(), source.begin() + std::ptrdiff_t(at), '\n')) + 1,
         needed_bytes(intrinsic)});
  }
  return out;
}

}  // namespace cgp::profile
