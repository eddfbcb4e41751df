// SPDX-License-Identifier: Apache-2.0
#pragma once
// A register's content as a linear form, for all threads of one block at once:
//
//   content[thread] = constant[thread] + sum over j of coefficient_j[thread] * symbol_j
//
// The numbers are known for every thread, because the shape of the block is; a symbol is a number that the
// analysis does not know, with the Scope over which it is the same. values.h fills registers with forms.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/ptx/analysis/ssa.h"

namespace cgp::ptx {

/// The threads over which something is the same. Larger is better: grid-uniform is also warp-uniform.
enum class Scope : std::uint8_t { thread, warp, warpgroup, block, cluster, grid };
std::string_view name(Scope s);
inline Scope min_of(Scope a, Scope b) { return a < b ? a : b; }

/// One integer per thread of the block; all equal ones are stored once.
class Lanes {
 public:
  Lanes(std::int64_t all = 0) : all_(all) {}
  /// Stored once when all are equal.
  static Lanes of(std::vector<std::int64_t> each);
  bool same() const { return !each_; }
  /// Threads that are stored: 1 when all are equal.
  std::size_t size() const { return each_ ? each_->size() : 1; }
  std::int64_t operator[](std::size_t thread) const { return each_ ? (*each_)[thread] : all_; }
  bool is(std::int64_t v) const { return !each_ && all_ == v; }
  /// Over how many threads the numbers are the same: grid, warpgroup, warp or thread.
  Scope scope() const;
  friend bool operator==(const Lanes& a, const Lanes& b) {
    return a.all_ == b.all_ && (a.each_ == b.each_ || (a.each_ && b.each_ && *a.each_ == *b.each_));
  }

  template <class F>
  static Lanes map(const Lanes& a, F f) {
    if (!a.each_) return Lanes(f(a.all_));
    std::vector<std::int64_t> out(a.each_->size());
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = f((*a.each_)[i]);
    return of(std::move(out));
  }
  template <class F>
  static Lanes map(const Lanes& a, const Lanes& b, F f) {
    if (!a.each_ && !b.each_) return Lanes(f(a.all_, b.all_));
    std::vector<std::int64_t> out(a.each_ ? a.each_->size() : b.each_->size());
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = f(a[i], b[i]);
    return of(std::move(out));
  }

 private:
  std::int64_t all_ = 0;  ///< zero when each_ is set, so that == compares
  std::shared_ptr<const std::vector<std::int64_t>> each_;
};

/// Index into ThreadValues::symbols().
using SymbolIndex = std::uint32_t;

struct Term {
  SymbolIndex symbol;
  Lanes coefficient;
  friend bool operator==(const Term&, const Term&) = default;
};

struct LinearForm {
  Lanes constant;
  std::vector<Term> terms;  ///< by symbol, none with coefficient zero
  bool known() const { return terms.empty(); }
  /// The same number for all threads, known now.
  bool is_constant() const { return terms.empty() && constant.same(); }
  friend bool operator==(const LinearForm&, const LinearForm&) = default;
};

// Arithmetic that is exact on forms. Integers wrap at 64 bits; `narrow` wraps numbers at fewer.
LinearForm add(const LinearForm& a, const LinearForm& b, std::int64_t times = 1);  ///< a + times * b
LinearForm scale(const LinearForm& a, const Lanes& by);
LinearForm choose(const Lanes& which, const LinearForm& yes, const LinearForm& no);
/// The numbers as signed integers of so many bits. Symbols stand for numbers that fit.
LinearForm narrow(const LinearForm& a, int bits);
/// Largest number that divides every coefficient and the constants; 0 when all are zero.
std::uint64_t common_divisor(const LinearForm& a);
/// The same without the constants; 0 without terms.
std::uint64_t divisor_of_terms(const LinearForm& a);

}  // namespace cgp::ptx
