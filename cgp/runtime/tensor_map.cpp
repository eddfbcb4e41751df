// SPDX-License-Identifier: Apache-2.0
#include "cgp/runtime/tensor_map.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::runtime {
namespace {
using text::cat;

std::uint32_t swizzle_bytes(Swizzle s) {
  switch (s) {
    case Swizzle::none:
      return 0;
    case Swizzle::b32:
      return 32;
    case Swizzle::b64:
      return 64;
    default:
      return 128;
  }
}

std::string reject_sizes(const TensorMapSpec& s) {
  const std::size_t rank = s.rank();
  if (rank < 1 || rank > 5) return cat("a tensor map has 1 to 5 dimensions, not ", rank);
  if (s.interleave != Interleave::none && rank < 3)
    return cat("an interleaved tensor map has at least 3 dimensions, not ", rank);
  if (s.box.size() != rank) return cat("the box has ", s.box.size(), " dimensions, the tensor ", rank);
  if (!s.strides.empty() && s.strides.size() != rank - 1)
    return cat("a tensor of ", rank, " dimensions has ", rank - 1, " strides (dimension 0 is dense), not ",
               s.strides.size());
  if (!s.element_strides.empty() && s.element_strides.size() != rank)
    return cat("there are ", s.element_strides.size(), " element strides for ", rank, " dimensions");
  for (std::size_t i = 0; i < rank; ++i) {
    if (s.dims[i] < 1 || s.dims[i] > (1ull << 32))
      return cat("dimension ", i, " is ", s.dims[i], ": it must be 1 to 2^32 elements");
    if (s.box[i] < 1 || s.box[i] > 256)
      return cat("box dimension ", i, " is ", s.box[i], ": it must be 1 to 256 elements");
    if (!s.element_strides.empty() && (s.element_strides[i] < 1 || s.element_strides[i] > 8))
      return cat("element stride ", i, " is ", s.element_strides[i], ": it must be 1 to 8");
  }
  return {};
}

std::string reject_strides(const TensorMapSpec& s, std::uint64_t align) {
  std::uint64_t stride = 0, inner = s.dims[0] * std::uint64_t(bytes(s.type));
  for (std::size_t i = 1; i < s.rank(); ++i) {
    stride = s.strides.empty() ? inner : s.strides[i - 1];
    if (stride % align)
      return cat("stride of dimension ", i, " is ", stride, " bytes: TMA needs a multiple of ", align,
                 s.strides.empty() ? "; pad the rows and give the strides" : "; pad the rows");
    if (stride >= (1ull << 40))
      return cat("stride of dimension ", i, " is ", stride, " bytes: it must be below 2^40");
    inner = stride * s.dims[i];
  }
  return {};
}

}  // namespace

TensorType tensor_type(DType t) {
  switch (t) {
    case DType::u8:
    case DType::s8:
    case DType::e4m3:
    case DType::e5m2:
      return TensorType::u8;
    case DType::u16:
    case DType::s16:
      return TensorType::u16;
    case DType::u32:
      return TensorType::u32;
    case DType::s32:
      return TensorType::s32;
    case DType::u64:
      return TensorType::u64;
    case DType::s64:
      return TensorType::s64;
    case DType::f16:
      return TensorType::f16;
    case DType::bf16:
      return TensorType::bf16;
    case DType::f32:
      return TensorType::f32;
    case DType::f64:
      return TensorType::f64;
  }
  throw ArgumentError("no tensor map element type for this DType");
}
int bytes(TensorType t) {
  constexpr int size[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
  return size[int(t)];
}
std::string_view name(TensorType t) {
  constexpr std::string_view names[] = {"u8",  "u16", "u32",  "s32",     "u64",  "s64",     "f16",
                                        "f32", "f64", "bf16", "f32_ftz", "tf32", "tf32_ftz"};
  return names[int(t)];
}

std::uint64_t TensorMapSpec::box_bytes() const {
  // A traversal stride of n keeps every n-th element of the box.
  std::uint64_t n = std::uint64_t(bytes(type));
  for (std::size_t i = 0; i < box.size(); ++i) {
    const std::uint32_t step =
        element_strides.empty() || (i == 0 && interleave == Interleave::none) ? 1 : element_strides[i];
    n *= (box[i] + step - 1) / step;
  }
  return n;
}

TensorMapSpec TensorMapSpec::matrix(DType t, std::uint64_t rows, std::uint64_t cols, std::uint32_t box_rows,
                                    std::uint32_t box_cols, Swizzle swizzle, std::uint64_t pitch) {
  TensorMapSpec s;
  s.type = tensor_type(t);
  s.dims = {cols, rows};
  s.strides = {(pitch ? pitch : cols) * std::uint64_t(cgp::bytes(t))};
  s.box = {box_cols, box_rows};
  s.swizzle = swizzle;
  return s;
}

std::string reject(const TensorMapSpec& s, std::uint64_t address) {
  if (std::string why = reject_sizes(s); !why.empty()) return why;
  const std::uint64_t align = s.interleave == Interleave::b32 ? 32 : 16;
  if (address % align)
    return cat("the tensor starts at ", text::hex(address), ": TMA needs ", align, "-byte alignment");
  if (std::string why = reject_strides(s, align); !why.empty()) return why;
  const std::uint64_t row = std::uint64_t(s.box[0]) * std::uint64_t(bytes(s.type));
  if (s.interleave == Interleave::none) {
    if (row % 16)
      return cat("a box row is ", s.box[0], " x ", bytes(s.type), " = ", row,
                 " bytes: TMA needs a multiple of 16");
    if (const std::uint32_t limit = swizzle_bytes(s.swizzle); limit && row > limit)
      return cat("a box row is ", row, " bytes: a swizzle of ", limit, " bytes needs rows of at most ",
                 limit);
  }
  if (s.interleave == Interleave::b32 && s.swizzle != Swizzle::b32)
    return "32-byte interleave needs the 32-byte swizzle";
  if (s.oob == OobFill::nan && (s.type <= TensorType::s64))
    return cat("elements out of bounds can be filled with NaN for floating-point types only, not ",
               name(s.type));
  return {};
}

}  // namespace cgp::runtime
