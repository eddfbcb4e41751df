// SPDX-License-Identifier: Apache-2.0
#pragma once
// Moves the accumulators of one warp between its registers and 16 rows of a matrix (the D fragment of wgmma).
#include <cstddef>
#include <vector>

namespace cgp::emu {

struct WgmmaRows {
  int n = 0;                          ///< columns
  int pitch = 0;                      ///< of the matrix, in elements of 4 bytes
  bool f16 = false;                   ///< two halves per register; the matrix holds f32
  std::vector<std::byte*> registers;  ///< rows of the register file, in fragment order
};
void load_rows(const WgmmaRows& r, void* matrix);
void store_rows(const WgmmaRows& r, const void* matrix);

}  // namespace cgp::emu
