// SPDX-License-Identifier: Apache-2.0
#pragma once
// The 64-bit shared-memory matrix descriptor of wgmma, as a value that knows its fields (PTX ISA,
// "Matrix descriptor format"). The start address is only known on the GPU, so the constant part is built
// here, at compile time where the tile is a type, and the address is ORed in by the kernel.
//   bits 0-13 start address >> 4 | 16-29 leading byte offset >> 4 | 32-45 stride byte offset >> 4
//   49-51 base offset | 62-63 layout: 0 none, 1 128B, 2 64B, 3 32B
#include <cstdint>

#include "cgp/dsl/memory/swizzle.h"

namespace cgp::dsl {

/// Which extent of an operand is contiguous in shared memory.
enum class Major : std::uint8_t { k, mn };

struct SmemDescriptor {
  std::uint32_t start = 0;    ///< bytes, shared window address
  std::uint32_t leading = 0;  ///< bytes, LBO
  std::uint32_t stride = 0;   ///< bytes, SBO
  std::uint32_t base_offset = 0;
  Swizzle swizzle = Swizzle::none;

  constexpr std::uint64_t encode() const {
    auto field = [](std::uint32_t bytes) { return std::uint64_t((bytes & 0x3FFFFu) >> 4); };
    return field(start) | field(leading) << 16 | field(stride) << 32 | std::uint64_t(base_offset & 7) << 49 |
           layout(swizzle) << 62;
  }
  static constexpr SmemDescriptor decode(std::uint64_t d) {
    auto bytes = [&](int at) { return std::uint32_t((d >> at) & 0x3FFF) << 4; };
    constexpr Swizzle modes[] = {Swizzle::b16, Swizzle::b128, Swizzle::b64, Swizzle::b32};
    return {bytes(0), bytes(16), bytes(32), std::uint32_t(d >> 49) & 7, modes[d >> 62]};
  }
  /// The value of bits 62-63.
  static constexpr std::uint64_t layout(Swizzle s) {
    constexpr std::uint64_t codes[] = {0, 0, 3, 2, 1};
    return codes[int(s)];
  }
  friend constexpr bool operator==(const SmemDescriptor&, const SmemDescriptor&) = default;
};

/// What an operand's layout in shared memory means for its descriptors.
struct OperandLayout {
  SmemDescriptor fixed;                 ///< everything but the start address
  std::uint32_t k_step = 0;             ///< bytes from the start of one instruction's K slice to the next
  std::uint32_t k_steps_per_panel = 0;  ///< K slices before the start jumps to the next panel (K-major)
  std::uint32_t panel = 0;              ///< bytes from one panel to the next
};

/// Layout of an operand whose panels (see Swizzle) hold `panel_rows` rows of `span` bytes each.
///   K-major:  rows run along M or N, columns along K.  MN-major: rows run along K, columns along M or N.
/// `mn` is the instruction's extent along M or N (64, or N), `element_bytes` 1, 2 or 4; one instruction
/// always consumes 32 bytes of K per row when K-major, 16 rows of K when MN-major.
constexpr OperandLayout operand_layout(Major major, Swizzle s, std::uint32_t panel_rows) {
  std::uint32_t span = std::uint32_t(span_bytes(s)), panel = panel_rows * span;
  OperandLayout o;
  o.fixed.swizzle = s;
  o.panel = panel;
  if (major == Major::k) {
    o.fixed.stride = 8 * span;                         // from one group of 8 rows to the next
    o.fixed.leading = s == Swizzle::b16 ? panel : 16;  // swizzled modes ignore it; 16 is the custom
    o.k_step = s == Swizzle::b16 ? 2 * panel : 32;
    o.k_steps_per_panel = s == Swizzle::b16 ? 1 : span / 32;
    if (s == Swizzle::b16) o.panel = 2 * panel;
  } else {
    // wgmma's unswizzled MN-major mode swaps the roles of the two offsets.
    o.fixed.stride = s == Swizzle::b16 ? panel : 8 * span;
    o.fixed.leading = s == Swizzle::b16 ? 8 * span : panel;
    o.k_step = 16 * span;
    o.k_steps_per_panel = 0;  // all of K lies in one panel
  }
  return o;
}

}  // namespace cgp::dsl
