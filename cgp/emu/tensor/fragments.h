// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which element of a matrix each lane holds in each register: mma.sync, wmma, wgmma, ldmatrix. PTX ISA 9.7.14
// ("Matrix Fragments for mma.m16n8k16" ...), 9.7.15. With g = lane / 4, q = lane % 4 and e elements in a
// 32-bit register, all fragments are made of 8x8-word blocks: row g, elements e*q ... e*q + e-1.
#include <cstdint>

namespace cgp::emu {

/// A place in a matrix: of A (row, k), of B (column n, k), of C and D (row, column n).
struct Place {
  int row = 0, column = 0;
  friend constexpr bool operator==(Place, Place) = default;
};

/// Elements in one register of a fragment; 64-bit elements take a register each.
constexpr int elements_per_register(int element_bits) { return element_bits >= 32 ? 1 : 32 / element_bits; }

/// A of shape [m][k]: element i of register r. mma: m 8 or 16; wmma: m 8, 16 or 32; wgmma from registers:
/// m 16, the row within the warp's 16.
constexpr Place a_place(int m, int element_bits, int lane, int r, int i) {
  const int e = elements_per_register(element_bits), g = lane >> 2, q = lane & 3, blocks = m / 8;
  return {g + 8 * (r % blocks), e * q + i + 4 * e * (r / blocks)};
}
/// B of shape [k][n] as (n, k): element i of register r.
constexpr Place b_place(int k, int element_bits, int lane, int r, int i) {
  const int e = elements_per_register(element_bits), g = lane >> 2, q = lane & 3;
  const int blocks = k / (4 * e) > 0 ? k / (4 * e) : 1;
  return {g + 8 * (r / blocks), e * q + i + 4 * e * (r % blocks)};
}
/// C and D of shape [m][n]: accumulator v (f16: two in one register, low half first). wgmma: m = 16.
constexpr Place d_place(int m, int lane, int v) {
  const int g = lane >> 2, q = lane & 3, blocks = m / 8, t = v >> 1;
  return {g + 8 * (t % blocks), 8 * (t / blocks) + 2 * q + (v & 1)};
}

/// 32-bit registers (64-bit for f64) of an operand with `elements` elements spread over a warp.
constexpr int fragment_registers(int elements, int element_bits) {
  return elements / 32 / elements_per_register(element_bits);
}

/// ldmatrix/stmatrix .m8n8.b16: half h (0 low) of the register of `lane` is this element of the 8x8 matrix.
constexpr Place matrix_place(int lane, int h, bool transposed) {
  const int g = lane >> 2, c = 2 * (lane & 3) + h;
  return transposed ? Place{c, g} : Place{g, c};
}

}  // namespace cgp::emu
