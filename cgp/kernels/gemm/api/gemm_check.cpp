// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/gemm/api/gemm_check.h"

#include <algorithm>
#include <cmath>

#include "cgp/base/text.h"
#include "cgp/kernels/gemm/api/gemm_ref.h"

namespace cgp::kernels {
namespace {

constexpr double kFalseAlarm = 1e-12;
constexpr std::uint64_t kMostOddities = 1024;  // infinities and NaN that are looked at one by one

class Checker {
 public:
  Checker(const GemmProblem& p, const HostArray& a, const HostArray& b, const HostArray& old,
          const HostArray& got)
      : p_(p.dense()), a_(a), b_(b), old_(old), got_(got) {}

  Check every_element() {
    const std::vector<float> a = plain_a(), b = plain_b();
    std::vector<double> want(got_.size()), tolerance(got_.size()), sum(p_.n), magnitude(p_.n);
    for (std::uint64_t z = 0; z < p_.batch; ++z)
      for (std::uint64_t i = 0; i < p_.m; ++i) {
        std::fill(sum.begin(), sum.end(), 0);
        std::fill(magnitude.begin(), magnitude.end(), 0);
        for (std::uint64_t l = 0; l < p_.k; ++l) {
          const double x = double(a[(z * p_.m + i) * p_.k + l]);
          const float* row = b.data() + (z * p_.k + l) * p_.n;  // none of them where n is 0
          for (std::uint64_t j = 0; j < p_.n; ++j) {
            const double y = x * double(row[j]);
            sum[j] += y;
            magnitude[j] += std::fabs(y);
          }
        }
        for (std::uint64_t j = 0; j < p_.n; ++j) {
          const std::uint64_t at = c_at(z, i, j);
          finish(at, sum[j], magnitude[j], want[at], tolerance[at]);
        }
      }
    return compare(got_, want, [&](std::uint64_t i) { return tolerance[i]; });
  }

  Check sampled(std::uint64_t count) {
    const bool finite_inputs = finite(a_) && finite(b_) && (p_.beta == 0 || finite(old_));
    std::vector<std::uint64_t> at = sample(count);
    const std::uint64_t odd = finite_inputs ? add_oddities(at) : 0;
    HostArray some(got_.dtype, {at.size()});
    std::vector<double> want(at.size()), tolerance(at.size());
    for (std::size_t s = 0; s < at.size(); ++s) {
      const std::uint64_t z = at[s] / p_.stride_c, i = at[s] % p_.stride_c / p_.ldc, j = at[s] % p_.ldc;
      some.set(s, got_.at(at[s]));
      element(z, i, j, want[s], tolerance[s]);
    }
    Check c = compare(some, want, [&](std::uint64_t s) { return tolerance[s]; });
    c.worst_index = at.empty() ? 0 : at[std::size_t(c.worst_index)];
    c.pattern = text::cat("of a sample of ", text::grouped(at.size()));
    c.note = text::cat("a random sample of ", text::grouped(got_.size()));
    if (!finite_inputs) {
      c.note += ", and no more: the inputs hold infinities or NaN";
      return c;
    }
    if (odd > kMostOddities)
      c.note += text::cat(", among them 1,024 of ", text::grouped(odd), " infinities and NaN");
    const std::string wrong = whole();
    if (c.pass && !wrong.empty()) {
      c.pass = false;
      c.failure = wrong;
    }
    c.note += "; all rows and columns agree with random vectors (a wrong alarm once in 10^12)";
    return c;
  }

 private:
  std::uint64_t a_at(std::uint64_t z, std::uint64_t i, std::uint64_t l) const {
    return z * p_.stride_a + (p_.trans_a ? l * p_.lda + i : i * p_.lda + l);
  }
  std::uint64_t b_at(std::uint64_t z, std::uint64_t l, std::uint64_t j) const {
    return z * p_.stride_b + (p_.trans_b ? j * p_.ldb + l : l * p_.ldb + j);
  }
  std::uint64_t c_at(std::uint64_t z, std::uint64_t i, std::uint64_t j) const {
    return z * p_.stride_c + i * p_.ldc + j;
  }
  /// f(row, column, value) for every element of op(a) and op(b), in the order in which they are stored.
  template <class F>
  void for_a(std::uint64_t z, F&& f) const {
    for (std::uint64_t x = 0; x < (p_.trans_a ? p_.k : p_.m); ++x)
      for (std::uint64_t y = 0; y < (p_.trans_a ? p_.m : p_.k); ++y) {
        const double v = a_.at(z * p_.stride_a + x * p_.lda + y);
        p_.trans_a ? f(y, x, v) : f(x, y, v);
      }
  }
  template <class F>
  void for_b(std::uint64_t z, F&& f) const {
    for (std::uint64_t x = 0; x < (p_.trans_b ? p_.n : p_.k); ++x)
      for (std::uint64_t y = 0; y < (p_.trans_b ? p_.k : p_.n); ++y) {
        const double v = b_.at(z * p_.stride_b + x * p_.ldb + y);
        p_.trans_b ? f(y, x, v) : f(x, y, v);
      }
  }
  static bool finite(const HostArray& h) {
    for (std::uint64_t i = 0; i < h.size(); ++i)
      if (!std::isfinite(h.at(i))) return false;
    return true;
  }
  // f32 holds every value of the types that gemm takes.
  std::vector<float> plain_a() const {
    std::vector<float> out(p_.batch * p_.m * p_.k);
    for (std::uint64_t z = 0; z < p_.batch; ++z)
      for_a(z,
            [&](std::uint64_t i, std::uint64_t l, double x) { out[(z * p_.m + i) * p_.k + l] = float(x); });
    return out;
  }
  std::vector<float> plain_b() const {
    std::vector<float> out(p_.batch * p_.k * p_.n);
    for (std::uint64_t z = 0; z < p_.batch; ++z)
      for_b(z,
            [&](std::uint64_t l, std::uint64_t j, double x) { out[(z * p_.k + l) * p_.n + j] = float(x); });
    return out;
  }

  void finish(std::uint64_t at, double sum, double magnitude, double& want, double& tolerance) const {
    const double old = p_.beta == 0 ? 0 : double(p_.beta) * old_.at(at);
    want = double(p_.alpha) * sum + old;
    tolerance = gemm_tolerance(p_.type, p_.k, std::fabs(double(p_.alpha)) * magnitude + std::fabs(old), want);
  }
  void element(std::uint64_t z, std::uint64_t i, std::uint64_t j, double& want, double& tolerance) const {
    double sum = 0, magnitude = 0;
    for (std::uint64_t l = 0; l < p_.k; ++l) {
      const double x = a_.at(a_at(z, i, l)) * b_.at(b_at(z, l, j));
      sum += x;
      magnitude += std::fabs(x);
    }
    finish(c_at(z, i, j), sum, magnitude, want, tolerance);
  }

  /// The corners, then elements at random.
  std::vector<std::uint64_t> sample(std::uint64_t count) const {
    std::vector<std::uint64_t> out;
    for (std::uint64_t z : {std::uint64_t(0), p_.batch - 1})
      for (std::uint64_t i : {std::uint64_t(0), p_.m - 1})
        for (std::uint64_t j : {std::uint64_t(0), p_.n - 1}) out.push_back(c_at(z, i, j));
    SplitMix64 random(0x6d61747269780001);
    while (out.size() < count)
      out.push_back(c_at(random.next() % p_.batch, random.next() % p_.m, random.next() % p_.n));
    return out;
  }

  /// Elements that are infinite or NaN, which sums cannot judge; how many there are.
  std::uint64_t add_oddities(std::vector<std::uint64_t>& at) {
    std::uint64_t found = 0;
    for (std::uint64_t x = 0; x < got_.size(); ++x)
      if (!std::isfinite(got_.at(x)) && ++found <= kMostOddities) at.push_back(x);
    return found;
  }

  std::vector<double> signs(std::uint64_t n, std::uint64_t seed) const {
    SplitMix64 random(seed);
    std::vector<double> out(n);
    for (double& r : out) r = random.next() >> 63 ? 1.0 : -1.0;
    return out;
  }

  /// Empty, or which rows or columns are wrong.
  std::string whole() const {
    const double lambda = std::sqrt(2 * std::log(2 * double(p_.m + p_.n) * double(p_.batch) / kFalseAlarm));
    for (std::uint64_t z = 0; z < p_.batch; ++z)
      if (std::string wrong = product(z, lambda); !wrong.empty()) return wrong;
    return {};
  }

  std::string product(std::uint64_t z, double lambda) const {
    const std::vector<double> r = signs(p_.n, 0x726f777300000001 + z),
                              s = signs(p_.m, 0x636f6c7300000001 + z);
    std::vector<double> br(p_.k), sa(p_.k), a_norm(p_.m), b_norm(p_.n);
    for_b(z, [&](std::uint64_t l, std::uint64_t j, double x) {
      br[l] += x * r[j];
      b_norm[j] += x * x;
    });
    std::vector<double> row_want(p_.m), row_got(p_.m), row_error(p_.m);
    std::vector<double> column_want(p_.n), column_got(p_.n), column_error(p_.n);
    for_a(z, [&](std::uint64_t i, std::uint64_t l, double x) {
      row_want[i] += double(p_.alpha) * x * br[l];
      sa[l] += s[i] * x;
      a_norm[i] += x * x;
    });
    for_b(z, [&](std::uint64_t l, std::uint64_t j, double x) {
      column_want[j] += double(p_.alpha) * sa[l] * x;
    });
    for (double& x : a_norm) x = std::sqrt(x);
    for (double& x : b_norm) x = std::sqrt(x);
    for (std::uint64_t i = 0; i < p_.m; ++i)
      for (std::uint64_t j = 0; j < p_.n; ++j) {
        const std::uint64_t at = c_at(z, i, j);
        const double c = got_.at(at), old = p_.beta == 0 ? 0 : double(p_.beta) * old_.at(at);
        // |a_i| |b_j| is at least the sum of the products' magnitudes (Cauchy and Schwarz).
        const double magnitude = std::fabs(double(p_.alpha)) * a_norm[i] * b_norm[j] + std::fabs(old);
        const double t = std::isfinite(c) ? 1.02 * gemm_tolerance(p_.type, p_.k, magnitude, c) : 0;
        row_want[i] += old * r[j];
        column_want[j] += old * s[i];
        row_got[i] += c * r[j];
        column_got[j] += c * s[i];
        row_error[i] += t * t;
        column_error[j] += t * t;
      }
    const std::string rows = differing(row_want, row_got, row_error, lambda, "row");
    return rows.empty() ? differing(column_want, column_got, column_error, lambda, "column") : rows;
  }

  std::string differing(const std::vector<double>& want, const std::vector<double>& got,
                        const std::vector<double>& squares, double lambda, const char* what) const {
    std::uint64_t count = 0, first = 0, last = 0;
    for (std::uint64_t i = 0; i < want.size(); ++i) {
      if (!std::isfinite(got[i])) continue;  // its infinities were compared one by one
      // The sums themselves are in f64: 2^-53 for each of their terms.
      const double slack =
          0x1p-50 * double(p_.k + want.size()) * (std::fabs(want[i]) + std::sqrt(squares[i]));
      if (std::fabs(want[i] - got[i]) <= lambda * std::sqrt(squares[i]) + slack) continue;
      if (!count++) first = i;
      last = i;
    }
    if (!count) return {};
    return text::cat(text::grouped(count), " ", what, count == 1 ? "" : "s", " of c between ", first, " and ",
                     last,
                     " differ from alpha * a * (b * r) + beta * c * r for a vector r of random signs: ", what,
                     " ", first, " gives ", got[first], ", oracle ", want[first], ", allowed error ",
                     lambda * std::sqrt(squares[first]));
  }

  GemmProblem p_;
  const HostArray &a_, &b_, &old_, &got_;
};

}  // namespace

Check check_gemm(const GemmProblem& p, const HostArray& a, const HostArray& b, const HostArray& old,
                 const HostArray& got, const GemmCheckLimits& limits) {
  Checker checker(p, a, b, old, got);
  const bool small = p.m == 0 || p.n == 0 || p.k == 0 || p.batch == 0 ||
                     double(p.m) * double(p.n) * double(p.k) * double(p.batch) <= double(limits.full);
  return small ? checker.every_element() : checker.sampled(limits.sample);
}

}  // namespace cgp::kernels
