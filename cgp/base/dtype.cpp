// SPDX-License-Identifier: Apache-2.0
#include "cgp/base/dtype.h"

#include <cstring>

namespace cgp {
namespace {

template <class F>
decltype(auto) with_host_type(DType t, F&& f) {
  switch (t) {
    case DType::u8:
      return f(std::uint8_t{});
    case DType::s8:
      return f(std::int8_t{});
    case DType::u16:
      return f(std::uint16_t{});
    case DType::s16:
      return f(std::int16_t{});
    case DType::u32:
      return f(std::uint32_t{});
    case DType::s32:
      return f(std::int32_t{});
    case DType::u64:
      return f(std::uint64_t{});
    case DType::s64:
      return f(std::int64_t{});
    case DType::f16:
      return f(half{});
    case DType::bf16:
      return f(bfloat16{});
    case DType::f32:
      return f(float{});
    case DType::f64:
      return f(double{});
    case DType::e4m3:
      return f(float8_e4m3{});
    case DType::e5m2:
      break;
  }
  return f(float8_e5m2{});
}

}  // namespace

double load_as_double(DType t, const void* base, std::size_t i) {
  return with_host_type(t, [&](auto v) {
    std::memcpy(&v, static_cast<const char*>(base) + i * sizeof v, sizeof v);
    return double(v);
  });
}

void store_from_double(DType t, void* base, std::size_t i, double d) {
  with_host_type(t, [&](auto v) {
    using T = decltype(v);
    if constexpr (std::is_integral_v<T>) {
      // Out of range wraps modulo 2^64 first, as launch specs define it; a plain cast would be undefined.
      const double wrapped = std::fmod(std::trunc(d), 18446744073709551616.0);
      const std::uint64_t u = wrapped < 0 ? ~std::uint64_t(-wrapped) + 1 : std::uint64_t(wrapped);
      v = T(u);
    } else {
      v = T(d);
    }
    std::memcpy(static_cast<char*>(base) + i * sizeof v, &v, sizeof v);
    return 0;
  });
}

}  // namespace cgp
