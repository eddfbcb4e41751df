// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/common/array.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/common/comparisons.h"

namespace cgp::kernels {

HostArray::HostArray(DType t, std::vector<std::uint64_t> dims) : dtype(t), shape(std::move(dims)) {
  std::uint64_t n = std::uint64_t(cgp::bytes(t));
  for (auto d : shape)
    if (__builtin_mul_overflow(n, d, &n) || n > std::uint64_t(std::numeric_limits<std::int64_t>::max()))
      throw ArgumentError(
          {"an array's size must fit 63 bits", {}, text::cat("shape ", describe_shape(shape)), {}});
  bytes.resize(n);
}

std::uint64_t HostArray::size() const { return bytes.size() / std::size_t(cgp::bytes(dtype)); }

std::vector<double> HostArray::as_doubles() const {
  std::vector<double> v(size());
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = at(i);
  return v;
}

HostArray random_array(DType t, std::vector<std::uint64_t> shape, std::uint64_t seed) {
  HostArray a(t, std::move(shape));
  SplitMix64 rng(seed);
  const bool is_unsigned = name(t)[0] == 'u';
  for (std::uint64_t i = 0, n = a.size(); i < n; ++i)
    a.set(i, is_float(t) ? rng.normal() : double(std::int64_t(rng.next() % 17)) - (is_unsigned ? 0 : 8));
  return a;
}

std::string describe_shape(const std::vector<std::uint64_t>& shape) {
  std::string s = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text::append(s, text::cat(i ? ", " : "", shape[i]));
  return s + "]";
}

double unit_roundoff(DType t) {
  switch (t) {
    case DType::f16:
      return std::exp2(-11);
    case DType::bf16:
      return std::exp2(-8);
    case DType::f32:
      return std::exp2(-24);
    case DType::f64:
      return std::exp2(-53);
    case DType::e4m3:
      return std::exp2(-4);
    case DType::e5m2:
      return std::exp2(-3);
    default:
      return 0;
  }
}

namespace {

// Names the rows and columns that hold errors when they are fewer than all: a bad row, a bad stripe of
// columns.
std::string find_pattern(const std::vector<std::uint64_t>& wrong, std::uint64_t rows, std::uint64_t cols) {
  if (wrong.empty() || rows * cols == 0) return {};
  std::uint64_t r0 = rows, r1 = 0, c0 = cols, c1 = 0;
  for (auto i : wrong) {
    r0 = std::min(r0, i / cols), r1 = std::max(r1, i / cols);
    c0 = std::min(c0, i % cols), c1 = std::max(c1, i % cols);
  }
  auto range = [](const char* what, std::uint64_t a, std::uint64_t b, std::uint64_t n) {
    if (a == 0 && b + 1 == n) return text::cat("all ", what);
    return a == b ? text::cat(what, " ", a) : text::cat(what, " ", a, " to ", b);
  };
  const double share = double(wrong.size()) / (double(r1 - r0 + 1) * double(c1 - c0 + 1));
  return text::cat("in ", range("rows", r0, r1, rows), ", ", range("columns", c0, c1, cols), " (",
                   int(share * 100 + 0.5), "% of that area)");
}

thread_local Comparisons* comparisons = nullptr;

}  // namespace

Comparisons::Comparisons() {
  if (comparisons) throw ArgumentError("one Comparisons at a time lives on a thread");
  comparisons = this;
}
Comparisons::~Comparisons() { comparisons = nullptr; }
Comparisons* Comparisons::current() { return comparisons; }

Check compare(const HostArray& got, const std::vector<double>& want,
              const std::function<double(std::uint64_t)>& tolerance) {
  if (got.size() != want.size())
    throw ArgumentError({"a result and its oracle must have the same size",
                         {},
                         text::cat(got.size(), " against ", want.size()),
                         {}});
  if (comparisons) {
    std::vector<double> allowed;
    for (std::uint64_t i = 0; i < want.size(); ++i) allowed.push_back(tolerance(i));
    comparisons->all.push_back({got, want, std::move(allowed)});
  }
  Check c;
  c.compared = want.size();
  std::vector<std::uint64_t> wrong;
  for (std::uint64_t i = 0; i < want.size(); ++i) {
    const double g = got.at(i), w = want[i], tol = tolerance(i);
    double ratio;
    if (std::isnan(w) || std::isnan(g))
      ratio = std::isnan(w) && std::isnan(g) ? 0 : std::numeric_limits<double>::infinity();
    else if (std::isinf(w) || std::isinf(g))
      ratio = w == g ? 0 : std::numeric_limits<double>::infinity();
    else {
      const double error = std::fabs(g - w);
      c.max_error = std::max(c.max_error, error);
      ratio = error == 0 ? 0 : error / tol;
    }
    if (ratio > 1) ++c.wrong, wrong.push_back(i);
    if (ratio > c.worst_ratio || i == 0) {
      c.worst_ratio = ratio, c.worst_index = i;
      c.worst_got = g, c.worst_want = w, c.worst_tolerance = tol;
    }
  }
  c.pass = c.wrong == 0;
  const std::uint64_t cols = got.shape.empty() ? got.size() : got.shape.back();
  c.pattern = find_pattern(wrong, cols ? got.size() / cols : 0, cols);
  return c;
}

std::string Check::describe() const {
  if (compared == 0) return "nothing to compare: the result is empty";
  if (pass)
    return text::cat(note.empty() ? "all " : "", text::grouped(compared), " elements agree; largest error ",
                     float(max_error), ", ", int(worst_ratio * 100 + 0.5), "% of what rounding allows",
                     note.empty() ? "" : text::cat("; ", note));
  if (!failure.empty()) return failure;
  return text::cat(text::grouped(wrong), " of ", text::grouped(compared), " elements are wrong, ", pattern,
                   "; worst at index ", worst_index, ": got ", worst_got, ", oracle ", worst_want,
                   ", allowed error ", worst_tolerance);
}

}  // namespace cgp::kernels
