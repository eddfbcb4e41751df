// SPDX-License-Identifier: Apache-2.0
#pragma once
// y = x / (1 - p) where the element is kept, else 0. Which elements are kept is a function of (seed, offset,
// number of the element) alone: with the rows counted without gaps, element i takes word i % 4 of
// Philox4x32-10 with key (seed low, seed high) and counter (i / 4 low, i / 4 high, offset low, offset high),
// and is dropped if the word is below round(p * 2^32). The gradient is the same function of dy. Salmon et
// al., "Parallel random numbers: as easy as 1, 2, 3".
#include <array>

#include "cgp/kernels/catalog/catalog.h"
#include "cgp/kernels/row/element_kernel.h"

namespace cgp::kernels {

struct Dropout {
  View x, y;  ///< [rows, cols]; y may be x
  std::uint64_t rows = 0, cols = 0;
  row::Layout x_layout{}, y_layout{};
  double p = 0.5;  ///< probability of dropping, 0 to 1; 1 gives zeros
  std::uint64_t seed = 0, offset = 0;
};
void dropout(runtime::Stream& s, const Dropout& d);

KernelEntry dropout_entry();

}  // namespace cgp::kernels
