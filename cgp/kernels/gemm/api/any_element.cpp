// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/gemm/api/any_element.h"

#include "cgp/base/error.h"

namespace cgp::kernels {
using namespace dsl;
namespace {

ptx::Mod mod_of(DType t) { return *ptx::parse_mod(name(t)); }

template <class T>
Val<T> element(const Val<u64>& address, bool written, const Val<u64>& i, int offset, const Val<pred>& p) {
  return Ptr<global, const T>(address, 0, !written).at(i).ld_if(p, offset, Val<T>(0))[0];
}
Val<u32> byte(const Val<u64>& address, bool written, const Val<u64>& i, int offset, const Val<pred>& p) {
  return to<u32>(element<u8>(address, written, i, offset, p));
}
// e5m2 is the upper byte of an f16. e4m3 has three bits of mantissa and one of exponent less: shifted there
// it is 2^-8 of its value, subnormals included.
Val<f32> from_e5m2(const Val<u32>& x) { return to<f32>(bits<f16>(to<u16>(x << 8))); }
Val<f32> from_e4m3(const Val<u32>& x) {
  const auto magnitude = x & 0x7fu;
  const auto h = bits<f16>(to<u16>((magnitude << 7) | ((x & 0x80u) << 8)));
  const auto nan = bits<f32>(Val<u32>(0x7fffffffu));
  return select(magnitude == 0x7fu, nan, to<f32>(h) * 256.f);
}
template <class T>
void put(const Val<u64>& address, const Val<u64>& i, int offset, const Val<pred>& p, const Val<T>& x) {
  Ptr<global, T>(address).at(i).st_if(p, offset, x);
}
template <class Pair>
void put_fp8(const Val<u64>& address, const Val<u64>& i, int offset, const Val<pred>& p, const Val<f32>& x) {
  const auto both = bits<u16>(cvt<rn, satfinite, Pair>(Val<f32>(0.f), x));
  put<u8>(address, i, offset, p, to<u8>(to<u32>(both)));
}
}  // namespace

Value array_parameter(Kernel& k, DType type, bool reads, bool writes) {
  return record_impl::pointer_param(k, mod_of(type), reads, writes, {});
}

AnyIn::AnyIn(Kernel& k, DType type, bool written)
    : type_(type), address_(array_parameter(k, type, true, written)), written_(written) {}
AnyIn::AnyIn(DType type, const Val<u64>& address, bool written)
    : type_(type), address_(address), written_(written) {}

Val<f32> AnyIn::load(const Val<u64>& i, int offset, const Val<pred>& p) const {
  switch (type_) {
    case DType::f32:
      return element<f32>(address_, written_, i, offset, p);
    case DType::f16:
      return to<f32>(element<f16>(address_, written_, i, offset, p));
    case DType::bf16:
      return to<f32>(element<bf16>(address_, written_, i, offset, p));
    case DType::e4m3:
      return from_e4m3(byte(address_, written_, i, offset, p));
    case DType::e5m2:
      return from_e5m2(byte(address_, written_, i, offset, p));
    default:
      return to<f32>(load_integer(i, offset, p));
  }
}

Val<s32> AnyIn::load_integer(const Val<u64>& i, int offset, const Val<pred>& p) const {
  switch (type_) {
    case DType::s8:
      return bits<s32>(to<u32>(to<s32>(element<s8>(address_, written_, i, offset, p))));
    case DType::u8:
      return bits<s32>(byte(address_, written_, i, offset, p));
    case DType::s32:
      return element<s32>(address_, written_, i, offset, p);
    default:
      throw Unsupported(text::cat("elements of type ", name(type_), " in this kernel"));
  }
}

Val<s32> nearest_integer(DType type, const Val<f32>& x) {
  if (type == DType::s32) return cvt<rni, s32>(x);  // cvt saturates
  return cvt<rni, s32>(dsl::min(dsl::max(x, -128.f), 127.f));
}

void store_any(DType type, const Val<u64>& address, const Val<u64>& i, int offset, const Val<pred>& p,
               const Val<f32>& x) {
  switch (type) {
    case DType::f32:
      return put<f32>(address, i, offset, p, x);
    case DType::f16:
      return put<f16>(address, i, offset, p, to<f16>(x));
    case DType::bf16:
      return put<bf16>(address, i, offset, p, to<bf16>(x));
    case DType::e4m3:
      return put_fp8<e4m3x2>(address, i, offset, p, x);
    case DType::e5m2:
      return put_fp8<e5m2x2>(address, i, offset, p, x);
    case DType::s32:
      return put<s32>(address, i, offset, p, nearest_integer(type, x));
    case DType::s8:
      return put<s8>(address, i, offset, p, to<s8>(nearest_integer(type, x)));
    default:
      throw Unsupported(text::cat("results of type ", name(type)));
  }
}

}  // namespace cgp::kernels
