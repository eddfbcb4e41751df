// SPDX-License-Identifier: Apache-2.0
#pragma once
// Structured sparsity of mma.sp and wgmma.sp: which elements of A the stored half are. PTX ISA 9.7.14.6,
// "Sparse Matrix Storage". Four metadata bits describe one chunk of a row.
#include <cstdint>

#include "cgp/ptx/module.h"

namespace cgp::emu {

/// Logical elements of a chunk: of four 8- or 16-bit ones two are stored, of two 32-bit ones one, of eight
/// 4-bit ones two pairs.
constexpr int sparse_chunk(int element_bits) { return element_bits == 32 ? 2 : element_bits == 4 ? 8 : 4; }

/// Place within its chunk of stored element `e` of a chunk with these four bits.
constexpr int sparse_place(int element_bits, std::uint32_t nibble, int e) {
  if (element_bits == 32) return int(nibble & 3) >> 1;
  if (element_bits == 4) return 2 * int(nibble >> (2 * (e / 2)) & 3) + e % 2;
  return int(nibble >> (2 * e) & 3);
}

/// Lane and shift of the metadata of chunk `chunk` of row `row` (of 16). With f16, bf16 and tf32 as many
/// lanes of each quad hold metadata as a row has groups of four chunks; a word holds four of row g in its low
/// half and four of row g + 8 in its high half. With narrower types a word is eight chunks of one row. The
/// selector says which lanes. Measured.
struct SparsePlace {
  int lane = 0, shift = 0;
};
constexpr SparsePlace sparse_metadata(int element_bits, int row, int chunk, int chunks, int selector) {
  const int lanes = chunks / 4 > 0 ? chunks / 4 : 1, first = row % 8 * 4 + selector * lanes;
  if (element_bits >= 16) return {first + chunk / 4, row / 8 * 16 + chunk % 4 * 4};
  return {first + chunk / 8 * 2 + row / 8, chunk % 8 * 4};
}

}  // namespace cgp::emu
