// SPDX-License-Identifier: Apache-2.0
#pragma once
// How rows of a tile are laid out in shared memory, as arithmetic on the host: which 16-byte chunk of a row
// sits where. Every mode equals the TMA swizzle and the wgmma descriptor layout of the same width (PTX ISA,
// "Shared memory layout and swizzling modes"), so one enum serves copies, ldmatrix and wgmma alike.
#include <cstdint>

namespace cgp::dsl {

/// A tile is cut into panels of `span` bytes per row; inside a panel, 16-byte chunks are permuted by the row.
///   none   the panel is the whole row, nothing is permuted (plain row-major)
///   b16    panels of one chunk: 8 rows x 16 bytes are contiguous, the "core matrices" of wgmma's mode 0
///   b32/b64/b128   panels of 32/64/128 bytes, conflict-free for ldmatrix, stmatrix and 16-byte copies
enum class Swizzle : std::uint8_t { none, b16, b32, b64, b128 };

/// Bytes of one row of a panel; 0 for none (the whole row).
constexpr int span_bytes(Swizzle s) {
  constexpr int spans[] = {0, 16, 32, 64, 128};
  return spans[int(s)];
}
/// Address bits 7.. that are XORed into bits 4..: 3, 2, 1 of them for 128, 64, 32 bytes.
constexpr int xor_bits(Swizzle s) {
  constexpr int bits[] = {0, 0, 1, 2, 3};
  return bits[int(s)];
}
/// Base address multiple at which the pattern starts with row 0 (also what TMA needs: at least 128).
constexpr int pattern_bytes(Swizzle s) {
  constexpr int bytes[] = {128, 128, 256, 512, 1024};
  return bytes[int(s)];
}
/// The widest mode whose panels fill rows of `row_bytes` evenly.
constexpr Swizzle widest_swizzle(int row_bytes) {
  if (row_bytes % 128 == 0) return Swizzle::b128;
  if (row_bytes % 64 == 0) return Swizzle::b64;
  if (row_bytes % 32 == 0) return Swizzle::b32;
  return Swizzle::none;
}
/// Physical byte address of a logical one, relative to a base aligned to pattern_bytes().
constexpr std::uint32_t swizzled(Swizzle s, std::uint32_t address) {
  return address ^ (((address >> 7) & ((1u << xor_bits(s)) - 1)) << 4);
}
constexpr const char* name(Swizzle s) {
  constexpr const char* names[] = {"none", "b16", "b32", "b64", "b128"};
  return names[int(s)];
}

}  // namespace cgp::dsl
