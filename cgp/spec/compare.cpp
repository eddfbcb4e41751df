// SPDX-License-Identifier: Apache-2.0
#include "cgp/spec/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::spec {
namespace {

using text::cat;

std::uint64_t bits_at(DType t, const std::uint8_t* base, std::uint64_t i) {
  std::uint64_t v = 0;
  std::memcpy(&v, base + i * std::uint64_t(bytes(t)), std::size_t(bytes(t)));
  return v;
}
/// Bits with every NaN replaced by one.
std::uint64_t canonical(DType t, std::uint64_t bits) {
  return is_float(t) && std::isnan(load_as_double(t, &bits, 0)) ? ~0ull : bits;
}
bool is_signed_integer(DType t) {
  return t == DType::s8 || t == DType::s16 || t == DType::s32 || t == DType::s64;
}
/// got - want without losing 64-bit integers to double's 53 bits.
double distance(DType t, std::uint64_t got, std::uint64_t want) {
  if (t == DType::u64) return got > want ? double(got - want) : double(want - got);
  if (t == DType::s64)
    return std::int64_t(got) > std::int64_t(want) ? double(got - want) : double(want - got);
  return std::fabs(load_as_double(t, &got, 0) - load_as_double(t, &want, 0));
}

struct Judge {
  const Compare& how;
  DType dtype;
  Comparison result;
  double worst_excess = -1;

  void element(std::uint64_t i, std::uint64_t got, std::uint64_t want) {
    const double g = load_as_double(dtype, &got, 0), w = load_as_double(dtype, &want, 0);
    double difference = 0, relative = 0;
    if (canonical(dtype, got) != canonical(dtype, want)) {
      difference = distance(dtype, got, want);
      if (std::isnan(difference)) difference = std::numeric_limits<double>::infinity();
      relative = w == 0 ? (difference == 0 ? 0 : std::numeric_limits<double>::infinity())
                        : difference / std::fabs(w);
    }
    if (std::isfinite(difference)) {
      result.max_abs = std::max(result.max_abs, difference);
      if (std::isfinite(relative)) result.max_rel = std::max(result.max_rel, relative);
    }
    bool fine = canonical(dtype, got) == canonical(dtype, want);
    double excess = difference;
    if (how.mode == Compare::Mode::abs_rel && !fine) {
      const double allowed = how.abs + how.rel * std::fabs(w);
      fine = std::isfinite(g) && std::isfinite(w) && difference <= allowed;
      excess = difference / std::max(allowed, std::numeric_limits<double>::min());
    }
    if (fine) return;
    if (result.wrong++ == 0) result.first = i;
    if (excess > worst_excess) worst_excess = excess, result.worst = i;
  }
};

/// Canonical elements in the order of their values.
std::vector<std::uint64_t> sorted(DType t, const std::vector<std::uint8_t>& data) {
  std::vector<std::uint64_t> v(data.size() / std::size_t(bytes(t)));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = canonical(t, bits_at(t, data.data(), i));
  if (is_signed_integer(t)) {
    const std::uint64_t sign = 1ull << (8 * bytes(t) - 1);
    std::sort(v.begin(), v.end(), [=](std::uint64_t a, std::uint64_t b) { return (a ^ sign) < (b ^ sign); });
  } else if (is_float(t)) {
    auto rank = [t](std::uint64_t x) {
      return x == ~0ull ? std::numeric_limits<double>::infinity() : load_as_double(t, &x, 0);
    };
    std::sort(v.begin(), v.end(), [&](std::uint64_t a, std::uint64_t b) {
      const double x = rank(a), y = rank(b);
      return x != y ? x < y : a < b;
    });
  } else {
    std::sort(v.begin(), v.end());
  }
  return v;
}

}  // namespace

std::string_view name(Compare::Mode m) {
  constexpr std::string_view names[] = {"exact", "abs_rel", "multiset"};
  return names[int(m)];
}

std::string element_text(DType t, const std::uint8_t* base, std::uint64_t i) {
  const std::uint64_t bits = bits_at(t, base, i);
  if (is_float(t)) {
    const double v = load_as_double(t, base, i);
    return cat(t == DType::f32 ? cat(float(v)) : cat(v), " (", text::hex(bits), ")");
  }
  if (!is_signed_integer(t)) return cat(bits);
  const int unused = 64 - 8 * bytes(t);
  return cat(std::int64_t(bits << unused) >> unused);
}

Comparison compare(const Compare& how, DType t, const std::vector<std::uint8_t>& got,
                   const std::vector<std::uint8_t>& want) {
  if (got.size() != want.size())
    throw ArgumentError(
        ErrorText{"expected data must have as many elements as the buffer",
                  {},
                  cat(want.size() / std::size_t(bytes(t)), " against ", got.size() / std::size_t(bytes(t))),
                  {}});
  Judge judge{how, t, {}};
  const std::size_t width = std::size_t(bytes(t)), count = got.size() / width;
  std::vector<std::uint64_t> g, w;
  const bool sort = how.mode == Compare::Mode::multiset;
  if (sort) g = sorted(t, got), w = sorted(t, want);
  if (sort || got != want)
    for (std::size_t i = 0; i < count; ++i)
      judge.element(i, sort ? g[i] : bits_at(t, got.data(), i), sort ? w[i] : bits_at(t, want.data(), i));
  Comparison result = judge.result;
  result.elements = count;
  result.equal = result.wrong == 0;
  if (!result.equal) {
    auto text = [&](std::uint64_t i, const std::vector<std::uint64_t>& ordered,
                    const std::vector<std::uint8_t>& raw) {
      if (!sort) return element_text(t, raw.data(), i);
      return element_text(t, reinterpret_cast<const std::uint8_t*>(&ordered[i]), 0);
    };
    result.first_got = text(result.first, g, got);
    result.first_want = text(result.first, w, want);
    result.worst_got = text(result.worst, g, got);
    result.worst_want = text(result.worst, w, want);
  }
  return result;
}

}  // namespace cgp::spec
