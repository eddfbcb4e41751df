// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/analysis/form.h"

#include <algorithm>
#include <numeric>

namespace cgp::ptx {
namespace {

std::int64_t wrap_add(std::int64_t a, std::int64_t b) {
  return std::int64_t(std::uint64_t(a) + std::uint64_t(b));
}
std::int64_t wrap_mul(std::int64_t a, std::int64_t b) {
  return std::int64_t(std::uint64_t(a) * std::uint64_t(b));
}
std::int64_t sign_extend(std::int64_t v, int bits) {
  return bits >= 64 ? v : std::int64_t(std::uint64_t(v) << (64 - bits)) >> (64 - bits);
}

std::uint64_t gcd_of(const Lanes& a, std::size_t threads, std::uint64_t g) {
  for (std::size_t t = 0; t < threads && g != 1; ++t) {
    const std::int64_t v = a[t];
    g = std::gcd(g, v < 0 ? 0 - std::uint64_t(v) : std::uint64_t(v));
  }
  return g;
}
std::uint64_t gcd_of(const Lanes& a, std::uint64_t g) { return gcd_of(a, a.same() ? 1 : a.size(), g); }

/// Visits the symbols of two forms in order, with both coefficients.
template <class F>
void for_each_term(const LinearForm& a, const LinearForm& b, F f) {
  std::size_t i = 0, j = 0;
  while (i < a.terms.size() || j < b.terms.size()) {
    const SymbolIndex s = i < a.terms.size() ? a.terms[i].symbol : ~0u;
    const SymbolIndex t = j < b.terms.size() ? b.terms[j].symbol : ~0u;
    const Lanes zero(0);
    f(std::min(s, t), s <= t ? a.terms[i].coefficient : zero, t <= s ? b.terms[j].coefficient : zero);
    i += s <= t;
    j += t <= s;
  }
}

void push(LinearForm& to, SymbolIndex s, Lanes coefficient) {
  if (!coefficient.is(0)) to.terms.push_back({s, std::move(coefficient)});
}

}  // namespace

std::string_view name(Scope s) {
  constexpr std::string_view names[] = {"thread", "warp", "warpgroup", "block", "cluster", "grid"};
  return names[std::size_t(s)];
}

Lanes Lanes::of(std::vector<std::int64_t> each) {
  Lanes out(each.empty() ? 0 : each[0]);
  if (std::all_of(each.begin(), each.end(), [&](std::int64_t v) { return v == each[0]; })) return out;
  out.all_ = 0;
  out.each_ = std::make_shared<const std::vector<std::int64_t>>(std::move(each));
  return out;
}

Scope Lanes::scope() const {
  if (!each_) return Scope::grid;
  const auto& v = *each_;
  bool groups = true;
  for (std::size_t t = 0; t < v.size(); ++t) {
    if (v[t] != v[t / 32 * 32]) return Scope::thread;
    groups = groups && v[t] == v[t / 128 * 128];
  }
  return groups ? Scope::warpgroup : Scope::warp;
}

LinearForm add(const LinearForm& a, const LinearForm& b, std::int64_t times) {
  LinearForm out;
  const auto sum = [times](std::int64_t x, std::int64_t y) { return wrap_add(x, wrap_mul(times, y)); };
  out.constant = Lanes::map(a.constant, b.constant, sum);
  for_each_term(a, b,
                [&](SymbolIndex s, const Lanes& x, const Lanes& y) { push(out, s, Lanes::map(x, y, sum)); });
  return out;
}

LinearForm scale(const LinearForm& a, const Lanes& by) {
  LinearForm out;
  out.constant = Lanes::map(a.constant, by, wrap_mul);
  for (const Term& t : a.terms) push(out, t.symbol, Lanes::map(t.coefficient, by, wrap_mul));
  return out;
}

LinearForm choose(const Lanes& which, const LinearForm& yes, const LinearForm& no) {
  if (which.same()) return which[0] ? yes : no;
  LinearForm out;
  const auto pick = [&](const Lanes& x, const Lanes& y) {
    std::vector<std::int64_t> each(which.size());
    for (std::size_t t = 0; t < each.size(); ++t) each[t] = which[t] ? x[t] : y[t];
    return Lanes::of(std::move(each));
  };
  out.constant = pick(yes.constant, no.constant);
  for_each_term(yes, no, [&](SymbolIndex s, const Lanes& x, const Lanes& y) { push(out, s, pick(x, y)); });
  return out;
}

LinearForm narrow(const LinearForm& a, int bits) {
  if (bits >= 64) return a;
  const auto cut = [bits](std::int64_t v) { return sign_extend(v, bits); };
  LinearForm out;
  out.constant = Lanes::map(a.constant, cut);
  for (const Term& t : a.terms) push(out, t.symbol, Lanes::map(t.coefficient, cut));
  return out;
}

std::uint64_t common_divisor(const LinearForm& a) { return gcd_of(a.constant, divisor_of_terms(a)); }

std::uint64_t divisor_of_terms(const LinearForm& a) {
  std::uint64_t g = 0;
  for (const Term& t : a.terms) g = gcd_of(t.coefficient, g);
  return g;
}

}  // namespace cgp::ptx
