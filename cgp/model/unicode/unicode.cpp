// SPDX-License-Identifier: Apache-2.0
#include "cgp/model/unicode/unicode.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <vector>

#include "cgp/model/unicode/unicode_tables.h"

namespace cgp::model::unicode {

namespace {

constexpr std::uint32_t kPoints = 0x110000;
constexpr std::string_view kNames = "CcCfCnCoCsLlLmLoLtLuMcMeMnNdNlNoPcPdPePfPiPoPsScSkSmSoZlZpZs";

/// Categories in blocks of 256 code points; blocks of one category are shared.
class CategoryTable {
 public:
  CategoryTable() {
    std::vector<std::uint8_t> flat(kPoints);
    for (std::size_t r = 0; r < kCategoryRangeCount; ++r) {
      std::uint32_t first = kCategoryRanges[r] >> 8;
      std::uint32_t end = r + 1 < kCategoryRangeCount ? kCategoryRanges[r + 1] >> 8 : kPoints;
      std::fill(flat.begin() + first, flat.begin() + end, std::uint8_t(kCategoryRanges[r]));
    }
    std::array<int, kCategories> uniform;
    uniform.fill(-1);
    for (std::uint32_t b = 0; b < kPoints / 256; ++b) {
      auto begin = flat.begin() + b * 256, end = begin + 256;
      bool same = std::all_of(begin, end, [&](std::uint8_t c) { return c == *begin; });
      if (same && uniform[*begin] >= 0) {
        block_[b] = std::uint16_t(uniform[*begin]);
        continue;
      }
      block_[b] = std::uint16_t(cells_.size() / 256);
      if (same) uniform[*begin] = block_[b];
      cells_.insert(cells_.end(), begin, end);
    }
  }
  Category operator[](std::uint32_t p) const { return Category(cells_[block_[p >> 8] * 256u + (p & 255)]); }

 private:
  std::array<std::uint16_t, kPoints / 256> block_;
  std::vector<std::uint8_t> cells_;
};

std::uint8_t combining_class(std::uint32_t point) {
  auto end = kCombiningRanges + kCombiningRangeCount;
  auto it = std::upper_bound(kCombiningRanges, end, point << 8 | 255);
  return it == kCombiningRanges ? 0 : std::uint8_t(it[-1]);
}

constexpr std::uint32_t kHangulS = 0xAC00, kHangulL = 0x1100, kHangulV = 0x1161, kHangulT = 0x11A7;
constexpr std::uint32_t kLCount = 19, kVCount = 21, kTCount = 28, kSCount = 11172;

void decompose(std::uint32_t point, std::vector<std::uint32_t>& out) {
  if (point - kHangulS < kSCount) {
    std::uint32_t s = point - kHangulS;
    out.push_back(kHangulL + s / (kVCount * kTCount));
    out.push_back(kHangulV + s % (kVCount * kTCount) / kTCount);
    if (s % kTCount) out.push_back(kHangulT + s % kTCount);
    return;
  }
  const Decomposition* end = kDecompositions + kDecompositionCount;
  const Decomposition* d = std::lower_bound(
      kDecompositions, end, point, [](const Decomposition& x, std::uint32_t p) { return x.point < p; });
  if (d == end || d->point != point) {
    out.push_back(point);
    return;
  }
  decompose(d->first, out);
  if (std::uint32_t second = d->second & 0x7fffffff) decompose(second, out);
}

/// Decomposed, with runs of combining marks in canonical order.
std::vector<std::uint32_t> decomposed(std::string_view text) {
  std::vector<std::uint32_t> out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    Decoded c = decode(text, at);
    at += c.size;
    decompose(c.point, out);
  }
  for (std::size_t i = 0; i < out.size();) {
    std::size_t end = i;
    while (end < out.size() && combining_class(out[end]) != 0) ++end;
    std::stable_sort(out.begin() + i, out.begin() + end,
                     [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    i = end + 1;
  }
  return out;
}

/// The pairs that NFC composes, by both code points.
const std::unordered_map<std::uint64_t, std::uint32_t>& compositions() {
  static const auto table = [] {
    std::unordered_map<std::uint64_t, std::uint32_t> out;
    for (std::size_t i = 0; i < kDecompositionCount; ++i) {
      const Decomposition& d = kDecompositions[i];
      if (d.second != 0 && !(d.second >> 31)) out[std::uint64_t(d.first) << 32 | d.second] = d.point;
    }
    return out;
  }();
  return table;
}

/// 0 where the two do not compose.
std::uint32_t composed(std::uint32_t a, std::uint32_t b) {
  if (a - kHangulL < kLCount && b - kHangulV < kVCount)
    return kHangulS + ((a - kHangulL) * kVCount + (b - kHangulV)) * kTCount;
  if (a - kHangulS < kSCount && (a - kHangulS) % kTCount == 0 && b - kHangulT - 1 < kTCount - 1)
    return a + (b - kHangulT);
  auto it = compositions().find(std::uint64_t(a) << 32 | b);
  return it == compositions().end() ? 0 : it->second;
}

std::string to_utf8(const std::vector<std::uint32_t>& points) {
  std::string out;
  out.reserve(points.size());
  for (std::uint32_t p : points) append(out, p);
  return out;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 128; });
}

}  // namespace

CategorySet category_set(std::string_view name) {
  CategorySet out = 0;
  for (int c = 0; c < kCategories; ++c)
    if (std::string_view full = kNames.substr(std::size_t(c) * 2, 2);
        full == name || (name.size() == 1 && full[0] == name[0]))
      out |= 1u << c;
  return out;
}

Category category(std::uint32_t point) {
  static const CategoryTable table;
  return point < kPoints ? table[point] : Cn;
}

bool is_space(std::uint32_t point) {
  if (point < 128) return point == ' ' || (point >= 9 && point <= 13);
  return point == 0x85 || category(point) >= Zl;
}

std::uint32_t lower(std::uint32_t point) {
  if (point < 128) return point >= 'A' && point <= 'Z' ? point + 32 : point;
  const Lower* end = kLower + kLowerCount;
  const Lower* it =
      std::lower_bound(kLower, end, point, [](const Lower& x, std::uint32_t p) { return x.point < p; });
  return it != end && it->point == point ? it->lower : point;
}

Decoded decode(std::string_view text, std::size_t at) {
  auto byte = [&](std::size_t i) -> std::uint32_t {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0;
  };
  auto more = [&](std::size_t i) { return (byte(i) & 0xC0) == 0x80; };
  std::uint32_t b = byte(0);
  if (b < 0x80) return {b, 1};
  if (b >= 0xC2 && b < 0xE0 && more(1)) return {(b & 31) << 6 | (byte(1) & 63), 2};
  if (b >= 0xE0 && b < 0xF0 && more(1) && more(2)) {
    std::uint32_t p = (b & 15) << 12 | (byte(1) & 63) << 6 | (byte(2) & 63);
    if (p >= 0x800 && (p < 0xD800 || p > 0xDFFF)) return {p, 3};
  }
  if (b >= 0xF0 && b < 0xF5 && more(1) && more(2) && more(3)) {
    std::uint32_t p = (b & 7) << 18 | (byte(1) & 63) << 12 | (byte(2) & 63) << 6 | (byte(3) & 63);
    if (p >= 0x10000 && p < kPoints) return {p, 4};
  }
  return {kReplacement, 1};
}

std::size_t previous(std::string_view text, std::size_t from, std::size_t end) {
  for (std::size_t size = 2; size <= 4 && from + size <= end; ++size)
    if (decode(text, end - size).size == size) return end - size;
  return end - 1;
}

void append(std::string& out, std::uint32_t p) {
  if (p < 0x80) {
    out += char(p);
  } else if (p < 0x800) {
    out += {char(0xC0 | p >> 6), char(0x80 | (p & 63))};
  } else if (p < 0x10000) {
    out += {char(0xE0 | p >> 12), char(0x80 | (p >> 6 & 63)), char(0x80 | (p & 63))};
  } else {
    out += {char(0xF0 | p >> 18), char(0x80 | (p >> 12 & 63)), char(0x80 | (p >> 6 & 63)),
            char(0x80 | (p & 63))};
  }
}

std::size_t incomplete_suffix(std::string_view text) {
  for (std::size_t n = 1; n <= 3 && n <= text.size(); ++n) {
    auto lead = static_cast<unsigned char>(text[text.size() - n]);
    if ((lead & 0xC0) == 0x80) continue;
    // The smallest continuations that make the shortest, or the surrogate's neighbour, valid.
    for (unsigned char next : {0x80, 0x90, 0xA0}) {
      std::string whole(text.substr(text.size() - n));
      while (whole.size() < 4) {
        whole += char(whole.size() == 1 ? next : 0x80);
        if (decode(whole, 0).size == whole.size()) return n;
      }
    }
    return 0;
  }
  return 0;
}

std::string valid(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    Decoded c = decode(text, at);
    append(out, c.point);
    at += c.size;
  }
  return out;
}

std::string nfd(std::string_view text) {
  return is_ascii(text) ? std::string(text) : to_utf8(decomposed(text));
}

std::string nfc(std::string_view text) {
  if (is_ascii(text)) return std::string(text);
  std::vector<std::uint32_t> in = decomposed(text), out;
  std::size_t starter = 0;
  bool has_starter = false;
  int last = -1;  // combining class of the last one kept after the starter; -1: none is between
  for (std::uint32_t p : in) {
    int cls = combining_class(p);
    if (has_starter && last < cls) {
      if (std::uint32_t whole = composed(out[starter], p)) {
        out[starter] = whole;
        continue;
      }
    }
    if (cls == 0) {
      starter = out.size();
      has_starter = true;
      last = -1;
    } else {
      last = cls;
    }
    out.push_back(p);
  }
  return to_utf8(out);
}

}  // namespace cgp::model::unicode
