// SPDX-License-Identifier: Apache-2.0
#include "cgp/spec/generate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "cgp/base/error.h"
#include "cgp/base/random.h"
#include "cgp/base/text.h"
#include "cgp/spec/npy.h"

namespace cgp::spec {
namespace {

using text::cat;

class Filler {
 public:
  Filler(DType dtype, std::string folder, std::string what)
      : dtype_(dtype),
        width_(std::size_t(bytes(dtype))),
        folder_(std::move(folder)),
        what_(std::move(what)) {}

  void fill(const Init& init, std::uint64_t first, std::uint64_t count) {
    using Kind = Init::Kind;
    SplitMix64 draw(init.seed);
    switch (init.kind) {
      case Kind::zero:
        return;
      case Kind::uninit:
        out.unwritten.emplace_back(first * width_, (first + count) * width_);
        return;
      case Kind::fill:
        return each(first, count, [&](std::uint64_t) { return init.values[0]; });
      case Kind::values:
        need(init.values.size(), count, "its list of values");
        return each(first, count, [&](std::uint64_t i) { return init.values[i]; });
      case Kind::iota:
        return iota(init, first, count);
      case Kind::file:
        return file(init, first, count);
      case Kind::concat:
        return concat(init, first, count);
      case Kind::bits:
        return each(first, count, [&](std::uint64_t) { return draw.next(); });
      case Kind::randint:
        return each(first, count, [&](std::uint64_t) { return integer(init, draw.next()); });
      case Kind::grid:
        return reals(first, count, [&](std::uint64_t) {
          return double(std::int64_t(integer_value(init, draw.next()))) / init.den;
        });
      case Kind::uniform:
        return reals(first, count, [&](std::uint64_t) {
          return init.flo + (init.fhi - init.flo) * (double(draw.next() >> 40) / 16777216.0);
        });
      case Kind::choice:
        return each(first, count,
                    [&](std::uint64_t) { return init.values[draw.next() % init.values.size()]; });
      case Kind::perm:
        return perm(init, first, count, draw);
    }
  }

  Generated out;

 private:
  template <class F>
  void each(std::uint64_t first, std::uint64_t count, F&& bits_of) {
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t v = bits_of(i);
      std::memcpy(out.bytes.data() + (first + i) * width_, &v, width_);
    }
  }
  template <class F>
  void reals(std::uint64_t first, std::uint64_t count, F&& value_of) {
    for (std::uint64_t i = 0; i < count; ++i) store_rounded(dtype_, out.bytes.data(), first + i, value_of(i));
  }
  void need(std::uint64_t there, std::uint64_t count, std::string_view which) const {
    if (there != count)
      throw ArgumentError(
          ErrorText{cat(which, " must have ", count, " elements"), what_, cat("it has ", there), {}});
  }
  static std::uint64_t integer_value(const Init& init, std::uint64_t z) {
    const std::uint64_t range = std::uint64_t(init.hi) - std::uint64_t(init.lo) + 1;  // 0: all 2^64
    return std::uint64_t(init.lo) + (range ? z % range : z);
  }
  std::uint64_t integer(const Init& init, std::uint64_t z) const {
    const std::uint64_t v = integer_value(init, z);
    if (!is_float(dtype_)) return v;
    std::uint64_t bits = 0;
    store_rounded(dtype_, &bits, 0, double(std::int64_t(v)));
    return bits;
  }
  void iota(const Init& init, std::uint64_t first, std::uint64_t count) {
    if (init.integral && !is_float(dtype_))
      return each(first, count, [&](std::uint64_t i) { return init.istart + i * init.istep; });
    reals(first, count, [&](std::uint64_t i) { return init.start + double(i) * init.step; });
  }
  void file(const Init& init, std::uint64_t first, std::uint64_t count) {
    const bool absolute = !init.path.empty() && init.path[0] == '/';
    const std::string path = absolute || folder_.empty() ? init.path : folder_ + "/" + init.path;
    const HostArray a = read_array(path, dtype_, count);
    std::copy(a.bytes.begin(), a.bytes.end(), out.bytes.begin() + std::ptrdiff_t(first * width_));
  }
  void concat(const Init& init, std::uint64_t first, std::uint64_t count) {
    std::uint64_t total = 0;
    for (const Init& part : init.parts) {
      if (part.count > count - total) need(part.count, count - total, "the rest of its concat");
      total += part.count;
    }
    need(total, count, "the parts of its concat");
    for (const Init& part : init.parts) {
      fill(part, first, part.count);
      first += part.count;
    }
  }
  void perm(const Init& init, std::uint64_t first, std::uint64_t count, SplitMix64& draw) {
    std::vector<std::uint64_t> p(count);
    std::iota(p.begin(), p.end(), std::uint64_t(0));
    for (std::uint64_t i = count; i-- > 1;) std::swap(p[i], p[draw.next() % (i + 1)]);
    each(first, count, [&](std::uint64_t i) {
      std::uint64_t v = p[i] * init.mul;
      if (width_ < 8) v &= (1ull << (8 * width_)) - 1;
      if (!is_float(dtype_)) return v;
      std::uint64_t bits = 0;
      store_rounded(dtype_, &bits, 0, double(v));
      return bits;
    });
  }

  DType dtype_;
  std::size_t width_;
  std::string folder_, what_;
};

}  // namespace

Generated generate(const Init& init, DType dtype, std::uint64_t count, const std::string& folder,
                   const std::string& what) {
  Filler filler(dtype, folder, what);
  filler.out.bytes.resize(count * std::uint64_t(bytes(dtype)));
  filler.fill(init, 0, count);
  return std::move(filler.out);
}

void store_rounded(DType t, void* base, std::size_t i, double v) {
  store_from_double(t, base, i, is_float(t) ? v : std::nearbyint(v));
}

std::uint32_t crc32(const std::uint8_t* data, std::size_t size) {
  static const auto table = [] {
    std::array<std::uint32_t, 256> t{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t c = i;
      for (int k = 0; k < 8; ++k) c = c & 1 ? 0xEDB88320u ^ c >> 1 : c >> 1;
      t[i] = c;
    }
    return t;
  }();
  std::uint32_t crc = 0xffffffffu;
  for (std::size_t i = 0; i < size; ++i) crc = table[(crc ^ data[i]) & 0xff] ^ crc >> 8;
  return ~crc;
}

}  // namespace cgp::spec
