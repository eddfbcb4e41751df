// SPDX-License-Identifier: Apache-2.0
#pragma once
// The tables that scripts/unicode_tables.py writes. Only unicode.cpp reads them.
#include <cstddef>
#include <cstdint>

namespace cgp::model::unicode {

/// First code point << 8 | Category, ascending.
extern const std::uint32_t kCategoryRanges[];
extern const std::size_t kCategoryRangeCount;

struct Lower {
  std::uint32_t point, lower;
};
extern const Lower kLower[];
extern const std::size_t kLowerCount;

/// One step of NFD; Hangul is computed.
struct Decomposition {
  std::uint32_t point, first;
  std::uint32_t second;  ///< 0 where there is none; bit 31: NFC does not compose the two
};
extern const Decomposition kDecompositions[];
extern const std::size_t kDecompositionCount;

/// First code point << 8 | canonical combining class, ascending.
extern const std::uint32_t kCombiningRanges[];
extern const std::size_t kCombiningRangeCount;

}  // namespace cgp::model::unicode
