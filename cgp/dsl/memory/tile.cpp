// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/memory/tile.h"

#include <bit>

#include "cgp/base/text.h"

namespace cgp::dsl::record {

Val<u32> divided(const Val<u32>& a, int n) {
  if (a.is_literal()) return Val<u32>(std::uint32_t(a.bits()) / std::uint32_t(n));
  if (n == 1) return a;
  if (std::has_single_bit(unsigned(n))) return a >> Val<u32>(std::countr_zero(unsigned(n)));
  return a / n;
}
Val<u32> remainder(const Val<u32>& a, int n) {
  if (n == 1) return Val<u32>(0);
  if (a.is_literal()) return Val<u32>(std::uint32_t(a.bits()) % std::uint32_t(n));
  if (std::has_single_bit(unsigned(n))) return a & Val<u32>(n - 1);
  return a % n;
}
Val<u32> times(const Val<u32>& a, int n) {
  if (a.is_literal()) return Val<u32>(std::uint32_t(a.bits()) * std::uint32_t(n));
  if (n == 1) return a;
  if (std::has_single_bit(unsigned(n))) return a << Val<u32>(std::countr_zero(unsigned(n)));
  return a * n;
}

Val<u32> tile_offset(const TileLayout& t, const Val<u32>& row, const Val<u32>& col) {
  if (t.panels() == 1) return swizzle_offset(t.swizzle, times(row, t.span()) + times(col, t.element_bytes));
  const Val<u32> inner = times(remainder(col, t.panel_cols()), t.element_bytes);
  const Val<u32> panel = times(divided(col, t.panel_cols()), t.panel_bytes());
  return panel + swizzle_offset(t.swizzle, times(row, t.span()) + inner);
}

Val<u32> swizzle_offset(Swizzle s, const Val<u32>& offset) {
  if (xor_bits(s) == 0) return offset;
  if (offset.is_literal()) return Val<u32>(swizzled(s, std::uint32_t(offset.bits())));
  const Val<u32> row_bits = (offset >> Val<u32>(7)) & Val<u32>((1 << xor_bits(s)) - 1);
  return offset ^ (row_bits << Val<u32>(4));
}

void bad_view(const char* what, int from, int count, int of, int step, Here at) {
  throw BuildError("a view of a tile stays inside it and starts on a pattern boundary", at,
                   text::cat(what, " ", from, " to ", from + count - 1, " of ", of,
                             "; the first must be a multiple of ", step),
                   "start at a multiple of 8 rows, or of the swizzle's width in columns");
}

}  // namespace cgp::dsl::record
