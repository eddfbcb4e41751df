// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tensor maps (TMA descriptors): a spec in words, checked with messages, encoded by the device.
// Limits: CUDA driver API, "Tensor Map Object Management"; PTX ISA 5.5 "Tensors".
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cgp/base/dtype.h"

namespace cgp::runtime {

enum class Swizzle : std::uint8_t {
  none,
  b32,          ///< SWIZZLE_32B
  b64,          ///< SWIZZLE_64B
  b128,         ///< SWIZZLE_128B
  b128_atom32,  ///< 128 bytes, exchanging 32-byte atoms (sm_100)
  b128_atom32_flip8,
  b128_atom64,
};
enum class Interleave : std::uint8_t { none, b16, b32 };
enum class L2Promotion : std::uint8_t { none, b64, b128, b256 };
enum class OobFill : std::uint8_t { zeros, nan };
/// The element types of a tensor map: those of DType (8-bit floats travel as u8), and the reinterpreting
/// ones.
enum class TensorType : std::uint8_t {
  u8,
  u16,
  u32,
  s32,
  u64,
  s64,
  f16,
  f32,
  f64,
  bf16,
  f32_ftz,
  tf32,
  tf32_ftz
};
TensorType tensor_type(DType t);  ///< s8, e4m3, e5m2 -> u8; s16 -> u16; the others themselves
int bytes(TensorType t);
std::string_view name(TensorType t);

/// Everything but the address. Dimension 0 is the innermost (contiguous) one.
struct TensorMapSpec {
  TensorType type = TensorType::f32;
  std::vector<std::uint64_t> dims;             ///< elements, innermost first; 1 to 5 of them
  std::vector<std::uint64_t> strides;          ///< bytes, of dims 1..; empty: dense
  std::vector<std::uint32_t> box;              ///< elements
  std::vector<std::uint32_t> element_strides;  ///< empty: all 1
  Interleave interleave = Interleave::none;
  Swizzle swizzle = Swizzle::none;
  L2Promotion l2 = L2Promotion::none;
  OobFill oob = OobFill::zeros;

  std::size_t rank() const { return dims.size(); }
  std::uint64_t box_bytes() const;  ///< what one load adds to its mbarrier
  /// A row-major matrix [rows, cols] with `pitch` elements between rows (0: cols), box [box_rows, box_cols].
  static TensorMapSpec matrix(DType t, std::uint64_t rows, std::uint64_t cols, std::uint32_t box_rows,
                              std::uint32_t box_cols, Swizzle swizzle = Swizzle::none,
                              std::uint64_t pitch = 0);
};

/// Why the spec cannot be encoded for `address`, with the numbers; empty: it can.
std::string reject(const TensorMapSpec& spec, std::uint64_t address = 0);

class Backend;

/// 128 opaque bytes for one device; passed by value to a kernel. Made by Device::tensor_map.
struct alignas(128) TensorMap {  // 64 sufficed before CUDA 13
  std::uint64_t words[16] = {};
};
static_assert(sizeof(TensorMap) == 128 && alignof(TensorMap) == 128);

}  // namespace cgp::runtime
