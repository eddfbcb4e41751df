// SPDX-License-Identifier: Apache-2.0
#include "cgp/emu/async/tensor_map.h"

#include <algorithm>
#include <cstring>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::emu {
using text::cat;

namespace {
constexpr char kMagic[9] = "cgpTMAP1";

bool packed(TensorMapType t) { return t >= TensorMapType::u4_align8; }

template <class T>
void put(std::byte* at, T v) {
  std::memcpy(at, &v, sizeof v);
}
template <class T>
T get(const std::byte* at) {
  T v;
  std::memcpy(&v, at, sizeof v);
  return v;
}
int swizzle_span(TensorMapSwizzle s) {
  switch (s) {
    case TensorMapSwizzle::none:
      return 0;
    case TensorMapSwizzle::b32:
      return 32;
    case TensorMapSwizzle::b64:
      return 64;
    default:
      return 128;
  }
}
}  // namespace

int bytes(TensorMapType t) {
  constexpr int size[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4, 1, 1, 1};
  return size[int(t)];
}

std::uint64_t TensorMap::box_bytes() const {
  std::uint64_t n = std::uint64_t(bytes(type));
  if (im2col) return n * box[0] * pixels;
  for (int d = 0; d < rank; ++d) n *= box_count(d);
  return n;
}

std::string TensorMap::reject() const {
  if (rank < 1 || rank > 5) return cat("a tensor map has 1 to 5 dimensions, not ", rank);
  if (int(type) > int(TensorMapType::u6_align16)) return cat("data type ", int(type), " does not exist");
  if (packed(type)) return "the packed 4- and 6-bit types (sm_100) are not modelled";
  if (int(interleave) > 2 || int(swizzle) > 6 || int(l2) > 3 || int(fill) > 1)
    return "an enumeration is out of range";
  if (interleave != TensorMapInterleave::none && rank < 3)
    return cat("interleaved layouts need rank 3 or more, not ", rank);
  const std::uint64_t align = interleave == TensorMapInterleave::b32 ? 32 : 16;
  if (address % align) return cat("the global address ", text::hex(address), " is not a multiple of ", align);
  const int element = bytes(type);
  for (int d = 0; d < rank; ++d) {
    const auto i = std::size_t(d);
    if (dims[i] < 1 || dims[i] > 1ull << 32)
      return cat("dims[", d, "] = ", dims[i], "; it is 1 to 2^32 elements");
    if (box[i] < 1 || box[i] > 256) return cat("box[", d, "] = ", box[i], "; it is 1 to 256 elements");
    if (element_strides[i] < 1 || element_strides[i] > 8)
      return cat("element_strides[", d, "] = ", element_strides[i], "; it is 1 to 8");
    if (d == 0) continue;
    if (strides[i] % align)
      return cat("strides[", d, "] = ", strides[i], " bytes is not a multiple of ", align);
    if (strides[i] >= 1ull << 40)  // 0, and rows that overlap, are fine: the driver takes them
      return cat("strides[", d, "] = ", strides[i], " bytes; it must be below 2^40");
  }
  if (im2col) {
    if (rank < 3) return cat("im2col needs rank 3 or more, not ", rank);
    if (pixels < 1 || pixels > 1024) return cat("a column of ", pixels, " pixels; it is 1 to 1024");
    const int bound = rank == 3 ? 1 << 15 : rank == 4 ? 1 << 7 : 1 << 4;
    for (std::size_t d = 0; d < std::size_t(rank) - 2; ++d)
      for (const int corner : {lower[d], upper[d]})
        if (corner < -bound || corner >= bound)
          return cat("a corner of the pixel box at ", corner, "; with rank ", rank, " it is ", -bound, " to ",
                     bound - 1);
  }
  const std::uint64_t row = std::uint64_t(box[0]) * std::uint64_t(element);
  if (row % 16) return cat("box[0] = ", box[0], " elements are ", row, " bytes, not a multiple of 16");
  if (interleave == TensorMapInterleave::none && swizzle != TensorMapSwizzle::none &&
      row > std::uint64_t(swizzle_span(swizzle)))
    return cat("box[0] = ", box[0], " elements are ", row, " bytes, more than the swizzle's ",
               swizzle_span(swizzle));
  if (interleave == TensorMapInterleave::b32 && swizzle != TensorMapSwizzle::b32)
    return "interleave 32B needs swizzle 32B";
  if (fill == TensorMapFill::nan && type < TensorMapType::f16)
    return "filling with NaN needs a floating-point type";
  if (box_bytes() > 227 * 1024) return cat("a box of ", box_bytes(), " bytes does not fit shared memory");
  return {};
}

std::array<std::byte, TensorMap::kBytes> TensorMap::encode() const {
  if (const std::string why = reject(); !why.empty())
    throw ArgumentError(ErrorText{"this tensor map cannot be encoded", {}, why, {}});
  std::array<std::byte, kBytes> out{};
  std::byte* p = out.data();
  std::memcpy(p, kMagic, 8);
  put(p + 8, std::uint8_t(type));
  put(p + 9, std::uint8_t(rank));
  put(p + 10, std::uint8_t(interleave));
  put(p + 11, std::uint8_t(swizzle));
  put(p + 12, std::uint8_t(l2));
  put(p + 13, std::uint8_t(fill));
  put(p + 16, address);
  for (std::size_t d = 0; d < 5; ++d) {
    put(p + 24 + 4 * d, std::uint32_t(dims[d] - 1));
    if (d) put(p + 48 + 8 * (d - 1), strides[d] / 16);
    put(p + 80 + d, std::uint8_t(box[d] - 1));
    put(p + 85 + d, std::uint8_t(element_strides[d] - 1));
  }
  put(p + 90, std::uint8_t(im2col));
  put(p + 92, std::uint16_t(pixels));
  for (std::size_t d = 0; d < 3; ++d) {
    put(p + 94 + 2 * d, std::int16_t(lower[d]));
    put(p + 100 + 2 * d, std::int16_t(upper[d]));
  }
  return out;
}

bool TensorMap::decode(std::span<const std::byte, kBytes> bytes, TensorMap& map, std::string& why) {
  const std::byte* p = bytes.data();
  if (std::memcmp(p, kMagic, 8) != 0) {
    why = "these 128 bytes are not a tensor map of the emulator (bytes 0-7 are not \"cgpTMAP1\")";
    return false;
  }
  map.type = TensorMapType(get<std::uint8_t>(p + 8));
  map.rank = get<std::uint8_t>(p + 9);
  map.interleave = TensorMapInterleave(get<std::uint8_t>(p + 10));
  map.swizzle = TensorMapSwizzle(get<std::uint8_t>(p + 11));
  map.l2 = TensorMapL2(get<std::uint8_t>(p + 12));
  map.fill = TensorMapFill(get<std::uint8_t>(p + 13));
  map.address = get<std::uint64_t>(p + 16);
  for (std::size_t d = 0; d < 5; ++d) {
    map.dims[d] = std::uint64_t(get<std::uint32_t>(p + 24 + 4 * d)) + 1;
    map.strides[d] = d ? get<std::uint64_t>(p + 48 + 8 * (d - 1)) * 16 : 0;
    map.box[d] = std::uint32_t(get<std::uint8_t>(p + 80 + d)) + 1;
    map.element_strides[d] = std::uint32_t(get<std::uint8_t>(p + 85 + d)) + 1;
  }
  map.im2col = p[90] != std::byte(0);
  map.pixels = get<std::uint16_t>(p + 92);
  for (std::size_t d = 0; d < 3; ++d) {
    map.lower[d] = get<std::int16_t>(p + 94 + 2 * d);
    map.upper[d] = get<std::int16_t>(p + 100 + 2 * d);
  }
  why = map.reject();
  return why.empty();
}

std::string TensorMap::replace(std::span<std::byte, kBytes> bytes, TensorMapField field, int ordinal,
                               std::uint64_t value) {
  std::byte* p = bytes.data();
  // 128 zeros are a map to be made from nothing, field by field, as Triton's kernels do.
  if (std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte(0); }))
    std::memcpy(p, kMagic, 8);
  if (std::memcmp(p, kMagic, 8) != 0)
    return "there is no tensor map of the emulator (bytes 0-7 are not \"cgpTMAP1\"), nor 128 zeros";
  const auto d = std::size_t(ordinal);
  if (ordinal < 0 || ordinal > 4) return cat("dimension ", ordinal, " does not exist");
  // The element types of PTX in the order of its table.
  static constexpr TensorMapType types[] = {
      TensorMapType::u8,        TensorMapType::u16,       TensorMapType::u32,
      TensorMapType::s32,       TensorMapType::u64,       TensorMapType::s64,
      TensorMapType::f16,       TensorMapType::f32,       TensorMapType::f32_ftz,
      TensorMapType::f64,       TensorMapType::bf16,      TensorMapType::tf32,
      TensorMapType::tf32_ftz,  TensorMapType::u4_align8, TensorMapType::u4_align16,
      TensorMapType::u6_align16};
  auto small = [&](std::size_t at, std::uint64_t limit, const char* what) {
    if (value > limit) return cat(what, " ", value, " does not exist");
    put(p + at, std::uint8_t(value));
    return std::string();
  };
  switch (field) {
    case TensorMapField::global_address:
      put(p + 16, value);
      break;
    case TensorMapField::rank:
      if (value > 4) return cat("rank ", value + 1, " does not exist (the value is the rank less one)");
      put(p + 9, std::uint8_t(value + 1));
      break;
    case TensorMapField::box:
      if (value < 1 || value > 256) return cat("a box of ", value, " elements; it is 1 to 256");
      put(p + 80 + d, std::uint8_t(value - 1));
      break;
    case TensorMapField::global_dim:
      put(p + 24 + 4 * d, std::uint32_t(value - 1));
      break;
    case TensorMapField::global_stride:
      if (ordinal > 3) return cat("stride ", ordinal, " does not exist");
      if (value % 16) return cat("a stride of ", value, " bytes is not a multiple of 16");
      put(p + 48 + 8 * d, value / 16);
      break;
    case TensorMapField::element_stride:
      if (value < 1 || value > 8) return cat("element stride ", value, "; it is 1 to 8");
      put(p + 85 + d, std::uint8_t(value - 1));
      break;
    case TensorMapField::type:
      if (value > 15) return cat("element type ", value, " does not exist");
      put(p + 8, std::uint8_t(types[value]));
      break;
    case TensorMapField::interleave:
      return small(10, 2, "interleave layout");
    case TensorMapField::swizzle:
      return small(11, 3, "swizzle mode");
    case TensorMapField::fill:
      return small(13, 1, "fill mode");
    case TensorMapField::swizzle_atom: {
      // Atoms other than 16 bytes are swizzles of their own in the driver's enumeration.
      const auto now = std::uint8_t(p[11]);
      if (value > 3) return cat("swizzle atomicity ", value, " does not exist");
      if (value && now < std::uint8_t(TensorMapSwizzle::b128))
        return "a swizzle atomicity needs the 128-byte swizzle";
      if (now >= std::uint8_t(TensorMapSwizzle::b128))
        put(p + 11, std::uint8_t(std::uint8_t(TensorMapSwizzle::b128) + value));
      break;
    }
  }
  return {};
}

}  // namespace cgp::emu
