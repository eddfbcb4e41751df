// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/common/view.h"

#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::kernels {

View View::from(std::uint64_t first) const {
  if (first > elements) runtime::detail::bad_range(first, 0, elements);
  View v = *this;
  v.address += first * std::uint64_t(cgp::bytes(dtype));
  v.elements -= first;
  return v;
}

namespace row {

void Checker::fail(std::string_view argument, std::string_view rule, std::string what,
                   std::string hint) const {
  throw ArgumentError({text::cat(op, ": ", argument, " ", rule), {}, std::move(what), std::move(hint)});
}

void Checker::present(std::string_view argument, const View& v, std::initializer_list<DType> types,
                      bool out) const {
  if (!v.given) fail(argument, "must be given", "it was left out");
  if (std::find(types.begin(), types.end(), v.dtype) == types.end()) {
    std::string legal;
    for (DType t : types) text::append(legal, text::cat(legal.empty() ? "" : ", ", cgp::name(t)));
    fail(argument, text::cat("must be one of ", legal), text::cat("it is ", cgp::name(v.dtype)));
  }
  if (out && !v.writable) fail(argument, "is written to", "it is const");
}

Layout Checker::rows(std::string_view argument, const View& v, std::uint64_t rows, std::uint64_t cols,
                     const Layout& layout) const {
  Layout l = layout;
  if (!l.pitch) l.pitch = cols;
  if (!l.inner) l.inner = 1;
  if (!l.outer) l.outer = l.inner * l.pitch;
  if (l.pitch < cols)
    fail(argument, "has rows that overlap: its pitch must be at least cols",
         text::cat("pitch = ", l.pitch, ", cols = ", cols));
  if (rows == 0 || cols == 0) return l;
  // (groups of rows) * outer + (rows in a group) * pitch + cols, where 64 bits may not do.
  const std::uint64_t groups = (rows - 1) / l.inner, members = std::min(rows, l.inner) - 1;
  std::uint64_t need = 0, part = 0;
  const bool overflow =
      __builtin_mul_overflow(groups, l.outer, &need) || __builtin_mul_overflow(members, l.pitch, &part) ||
      __builtin_add_overflow(need, part, &need) || __builtin_add_overflow(need, cols, &need);
  if (groups && l.inner > 1 && !overflow)  // the last group may be shorter than the others
    need -= (members - (rows - 1) % l.inner) * l.pitch;
  if (overflow || need > v.elements)
    fail(argument, "must hold all rows",
         text::cat("rows = ", rows, " of ", cols, " elements with pitch ", l.pitch, " need ",
                   overflow ? std::string("more than 2^64") : text::cat(need), " elements, it has ",
                   v.elements));
  return l;
}

void Checker::vector(std::string_view argument, const View& v, std::uint64_t elements) const {
  if (v.elements < elements)
    fail(argument, text::cat("must hold ", elements, " elements"), text::cat("it has ", v.elements));
}

bool fits(const View& v, std::uint64_t cols, const Layout& l, int elements) {
  const auto e = std::uint64_t(elements), size = std::uint64_t(cgp::bytes(v.dtype));
  const std::uint64_t align = std::min<std::uint64_t>(16, e * size);
  const auto aligned = [&](std::uint64_t count) { return count * size % align == 0; };
  return cols % e == 0 && v.address % align == 0 && aligned(l.pitch) && (l.inner <= 1 || aligned(l.outer));
}

Fit fit(int elements, std::uint64_t cols, std::initializer_list<RowsAt> rows,
        std::initializer_list<View> columns) {
  const auto e = std::uint64_t(elements);
  const auto& first = *rows.begin();
  const std::uint64_t least = 16 * e;  // columns: edges of shorter rows are too much of them
  bool wide = true, edges = cols >= least && e * std::uint64_t(cgp::bytes(first.view.dtype)) == 16;
  for (const auto& [v, l] : rows) {
    if (!v.given) continue;
    wide = wide && fits(v, cols, l, elements);
    const auto size = std::uint64_t(cgp::bytes(v.dtype)),
               first_size = std::uint64_t(cgp::bytes(first.view.dtype));
    // Counted in elements from where its accesses are aligned, each row begins where the first tensor's does.
    const std::uint64_t period = 16 / size;
    const auto apart = [&](std::uint64_t a, std::uint64_t b) { return (a - b) % period != 0; };
    if (v.address % size || l.inner > 1 || apart(v.address / size, first.view.address / first_size) ||
        apart(l.pitch, first.layout.pitch))
      edges = false;
  }
  for (const auto& v : columns)
    if (v.given) wide = wide && fits(v, cols, {}, elements);
  return wide ? Fit::wide : edges ? Fit::edges : Fit::element;
}

}  // namespace row
}  // namespace cgp::kernels
