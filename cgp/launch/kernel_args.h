// SPDX-License-Identifier: Apache-2.0
#pragma once
// A kernel's parameters declared once, as a struct that the kernel and its launch share: a template over what a member
// is. Each member is a parameter of its own, in the order of the members.
//   template <template <class> class V>
//   struct ScaleArgs {
//     V<InOut<f32>> x;
//     V<u32> n;
//     V<f32> factor;
//   };
//   void scale_kernel(Kernel& k, ScaleArgs<DeviceArg> p) { ... }         p.x is an InOut<f32>, p.n a Val<u32>
//   launch::launch_kernel(stream, fn, grid, ScaleArgs<launch::HostArg>{.x = arg(buffer), .n = n, .factor = 0.5f});
// V<StructArg<P>> is one parameter that holds the struct of numbers P (dsl/core/kernel_params.h): P<Val> in the kernel,
// P<HostValue> in the launch, where it must live until the launch has returned.
// A member that the launch leaves out, or gives a value of another type, does not compile. The launch checks pointers
// as it does those of any kernel.
#include <array>
#include <concepts>
#include <cstring>
#include <type_traits>
#include <utility>

#include "cgp/dsl/core/kernel_params.h"
#include "cgp/runtime/launcher.h"

namespace cgp::dsl {

/// A member that is one parameter: a struct of numbers.
template <template <template <class> class> class P>
struct StructArg;

namespace record_impl {
template <class T>
struct DeviceArgOf {
  using type = Val<T>;
};
template <class T>
struct DeviceArgOf<Ptr<global, T>> {
  using type = Ptr<global, T>;
};
template <class T>
struct DeviceArgOf<InOut<T>> {
  using type = InOut<T>;
};
template <class T>
struct DeviceArgOf<Disjoint<T>> {
  using type = Disjoint<T>;
};
template <template <template <class> class> class P>
struct DeviceArgOf<StructArg<P>> {
  using type = P<Val>;
};
}  // namespace record_impl

/// The kernel's side of a member: In, Out, InOut and Disjoint are themselves, an element type T is a Val<T>, and
/// StructArg<P> a P<Val>.
template <class T>
using DeviceArg = typename record_impl::DeviceArgOf<T>::type;

namespace record_impl {
/// Becomes any member in the initialiser of a struct, whose members it declares and loads in their order.
struct AnyArg {
  Kernel* k = nullptr;
  template <class T>
  operator T() const {  // NOLINT: implicit by design
    return Param<T>::make(*k);
  }
};
template <class S, std::size_t... I>
constexpr bool has_args(std::index_sequence<I...>) {
  return requires { S{((void)I, AnyArg{})...}; };
}
template <class S, std::size_t N = 1>
constexpr std::size_t arg_count() {
  static_assert(N <= 40, "a struct of kernel arguments has 1 to 40 members, each a V<...>");
  if constexpr (has_args<S>(std::make_index_sequence<N>{}))
    return N;
  else
    return arg_count<S, N + 1>();
}
}  // namespace record_impl

template <template <template <class> class> class P>
struct Param<P<DeviceArg>> {
  static P<DeviceArg> make(Kernel& k) {
    return []<std::size_t... I>(Kernel & k, std::index_sequence<I...>) {
      return P<DeviceArg>{((void)I, record_impl::AnyArg{&k})...};  // braces: in the order of the members
    }
    (k, std::make_index_sequence<record_impl::arg_count<P<DeviceArg>>()>{});
  }
};

}  // namespace cgp::dsl

namespace cgp::launch {

/// The launch's side of a member: a number of exactly the member's type.
template <class T>
class HostArg {
 public:
  template <std::same_as<dsl::HostValue<T>> V>
  HostArg(V value) : arg_(runtime::arg(value)) {}  // NOLINT: implicit by design

 private:
  runtime::Arg arg_;
};
/// Of a pointer: an argument as runtime::arg() makes it, or a plain address.
class HostPointerArg {
 public:
  HostPointerArg(const runtime::Arg& arg) : arg_(arg) {}  // NOLINT: implicit by design
  HostPointerArg(std::uint64_t address)
      : arg_(runtime::Arg::address(address)) {}  // NOLINT: implicit by design

 private:
  runtime::Arg arg_;
};
template <class T>
class HostArg<dsl::Ptr<dsl::global, T>> : public HostPointerArg {
  using HostPointerArg::HostPointerArg;
};
template <class T>
class HostArg<dsl::InOut<T>> : public HostPointerArg {
  using HostPointerArg::HostPointerArg;
};
template <class T>
class HostArg<dsl::Disjoint<T>> : public HostPointerArg {
  using HostPointerArg::HostPointerArg;
};

template <template <template <class> class> class P>
class HostArg<dsl::StructArg<P>> {
 public:
  HostArg(const P<dsl::HostValue>& value)  // NOLINT: implicit by design
      : arg_(runtime::Arg::raw(&value, sizeof value)) {}

 private:
  runtime::Arg arg_;
};

/// Queues the kernel with these arguments; throws as LoadedKernel::launch().
template <template <template <class> class> class P>
void launch_kernel(runtime::Stream& s, const runtime::LoadedKernel& fn, const runtime::Launch& launch,
                   const P<HostArg>& arguments) {
  using A = P<HostArg>;
  static_assert(std::is_trivially_copyable_v<A> && sizeof(A) % sizeof(runtime::Arg) == 0,
                "every member is a V<...>, which holds one runtime::Arg");
  std::array<runtime::Arg, sizeof(A) / sizeof(runtime::Arg)> args;
  std::memcpy(static_cast<void*>(args.data()), &arguments, sizeof arguments);
  fn.launch(s, launch, args);
}
template <template <template <class> class> class P>
void launch_kernel(runtime::Stream& s, const runtime::LoadedKernel& fn, runtime::Dim3 grid,
                   const P<HostArg>& arguments) {
  launch_kernel(s, fn, runtime::Launch{.grid = grid}, arguments);
}

}  // namespace cgp::launch
