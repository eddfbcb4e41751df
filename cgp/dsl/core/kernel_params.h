// SPDX-License-Identifier: Apache-2.0
#pragma once
// A kernel's parameters as one struct that the kernel and its launch share: a template over what a member is.
//   template <template <class> class V>
//   struct ScaleParams {
//     V<u64> x;
//     V<u32> n;
//     V<f32> factor;
//   };
//   void scale_kernel(Kernel& k, ScaleParams<Val> p) { ... }                          members are Vals
//   fn(stream, grid, ScaleParams<HostValue>{.x = address, .n = n, .factor = 0.5f});   members are numbers
// Names and types are written once; the order of members is the layout on both sides. At most 80 members, each
// a V<...>.
#include <cstddef>
#include <cstdint>
#include <utility>

#include "cgp/dsl/core/build.h"

namespace cgp::dsl {

namespace record_impl {
template <class T>
struct HostValueOf;
template <>
struct HostValueOf<mod::u32> {
  using type = std::uint32_t;
};
template <>
struct HostValueOf<mod::s32> {
  using type = std::int32_t;
};
template <>
struct HostValueOf<mod::u64> {
  using type = std::uint64_t;
};
template <>
struct HostValueOf<mod::s64> {
  using type = std::int64_t;
};
template <>
struct HostValueOf<mod::f32> {
  using type = float;
};
template <>
struct HostValueOf<mod::f64> {
  using type = double;
};
}  // namespace record_impl

/// The host's type for a parameter of element type T: the side of a launch.
template <class T>
using HostValue = typename record_impl::HostValueOf<T>::type;

namespace record_impl {
/// Becomes any Val in the initialiser of a struct of Vals, whose members it visits in their order: first to
/// find the layout, then to load.
struct ParamMember {
  struct Layout {
    ParamInfo info;
    int bytes = 0;
  };
  Layout* layout = nullptr;  ///< being found; or
  Kernel* k = nullptr;       ///< loading from parameter `param`
  ptx::SymbolId param{};
  int* at = nullptr;  ///< offset of the next member

  template <class T>
  operator Val<T>() const {  // NOLINT: implicit by design
    constexpr int size = Elem<T>::bytes;
    const auto aligned = [](int n) { return (n + size - 1) / size * size; };
    if (layout) {
      layout->bytes = aligned(layout->bytes) + size;
      auto& info = layout->info;
      info.align = std::max(info.align, std::uint32_t(size));
      info.detail += text::cat(info.detail.empty() ? "" : " ", ptx::name(T::mod));
      return Val<T>(Value::literal(0, T::mod));
    }
    const int offset = aligned(*at);
    *at = offset + size;
    return Val<T>(k->load_param(param, T::mod, offset));
  }
};
template <class S, std::size_t... I>
constexpr bool has_members(std::index_sequence<I...>) {
  return requires { S{((void)I, ParamMember{})...}; };
}
template <class S, std::size_t N = 1>
constexpr std::size_t member_count() {
  static_assert(N <= 80, "a struct of kernel parameters has 1 to 80 members, each a V<...>");
  if constexpr (has_members<S>(std::make_index_sequence<N>{}))
    return N;
  else
    return member_count<S, N + 1>();
}
template <class S, std::size_t... I>
S make_params(const ParamMember& m, std::index_sequence<I...>) {
  return S{((void)I, m)...};  // braces: in the order of the members
}
}  // namespace record_impl

template <template <template <class> class> class P>
struct Param<P<Val>> {
  static P<Val> make(Kernel& k) {
    constexpr auto members = std::make_index_sequence<record_impl::member_count<P<Val>>()>{};
    record_impl::ParamMember::Layout layout;
    (void)record_impl::make_params<P<Val>>({.layout = &layout}, members);
    auto& info = layout.info;
    info.kind = ParamInfo::Kind::structure;
    info.size = (std::uint32_t(layout.bytes) + info.align - 1) / info.align * info.align;
    info.type = ptx::Mod::b8;
    if (info.size != sizeof(P<HostValue>))
      throw BuildError(
          "both sides of a kernel's parameters have one layout", k.here(),
          text::cat(info.size, " bytes in the kernel, ", sizeof(P<HostValue>), " in the launch"));
    int at = 0;
    const auto param = k.param(std::move(info));
    return record_impl::make_params<P<Val>>({.k = &k, .param = param, .at = &at}, members);
  }
};

}  // namespace cgp::dsl
