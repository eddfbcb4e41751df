// SPDX-License-Identifier: Apache-2.0
#pragma once
// A kernel's parameters, declared once: a struct that the device function declares from and the launch fills.
//   template <class Side>
//   struct ScaleParams {
//     Field<Side, InOut<f32>> x;
//     Field<Side, Val<u32>> count;
//     Field<Side, Val<f32>> factor;
//     template <class F>
//     void visit(F&& f) { f(x), f(count), f(factor); }      the order in the launch, and which there are
//   };
//   void scale(Kernel& k) {                               // device
//     const auto p = declare_params<ScaleParams<OnDevice>>(k);
//     ... p.x, *p.count ...
//   }
//   ScaleParams<OnHost> p;                                // launch
//   p.x = address, p.count = n, p.factor = 2.f;
//   launch(s, fn, grid, p);
// A member of another type, or one that was not set, does not compile or is an error that names its place.
// visit() may take more arguments: build-time choices that decide which parameters there are.
#include <concepts>
#include <optional>
#include <vector>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/pipeline/dyn_ring.h"
#include "cgp/runtime/launcher.h"

namespace cgp::kernels {

struct OnDevice {};
struct OnHost {};
/// On the host, of any tensor map parameter: the launch checks it against the kernel's box and type.
struct AnyTensorMap {};

namespace params {
template <class P>
struct HostValue {  // pointers
  using type = std::uint64_t;
  static runtime::Arg arg(const std::uint64_t& a) { return runtime::Arg::address(a); }
};
template <class T>
struct HostValue<dsl::Val<T>> {
  using type = std::conditional_t<std::is_same_v<T, dsl::u32>, std::uint32_t,
                                  std::conditional_t<std::is_same_v<T, dsl::u64>, std::uint64_t, float>>;
  static_assert(std::is_same_v<T, dsl::u32> || std::is_same_v<T, dsl::u64> || std::is_same_v<T, dsl::f32>,
                "scalar parameters are u32, u64 or f32");
  static runtime::Arg arg(const type& v) { return runtime::arg(v); }
};
struct HostMap {
  using type = runtime::TensorMap;
  static runtime::Arg arg(const type& m) { return runtime::arg(m); }
};
template <>
struct HostValue<AnyTensorMap> : HostMap {};
template <>
struct HostValue<dsl::DynTmaIn> : HostMap {};
template <>
struct HostValue<dsl::DynTmaOut> : HostMap {};
}  // namespace params

template <class Side, class P>
class Field;

template <class P>
class Field<OnHost, P> {
 public:
  using type = typename params::HostValue<P>::type;
  template <std::same_as<type> T>
  Field& operator=(const T& v) {
    value_.emplace(v);
    return *this;
  }
  runtime::Arg arg(std::size_t place) const {
    if (!value_) throw Error(text::cat("parameter ", place, " of a launch was not set"));
    return params::HostValue<P>::arg(*value_);
  }

 private:
  std::optional<type> value_;
};

template <class P>
class Field<OnDevice, P> {
 public:
  void declare(dsl::Kernel& k) { value_.emplace(dsl::Param<P>::make(k)); }
  const P& operator*() const { return *value_; }
  const P* operator->() const { return &*value_; }
  explicit operator bool() const { return value_.has_value(); }

 private:
  std::optional<P> value_;
};

/// Tensor maps of DynTiles: shape() comes before the declaration.
template <class P>
requires std::is_base_of_v<dsl::DynTmaMap, P>
class Field<OnDevice, P> {
 public:
  /// box: extents of one tile in the tensor, outermost first.
  void shape(const dsl::DynTile& tile, std::vector<int> box) {
    tile_.emplace(tile);
    box_ = std::move(box);
  }
  void declare(dsl::Kernel& k) {
    if (!tile_) throw BuildError("a tensor map of a DynTile has a shape before it is declared", k.here());
    value_.emplace(P::declare(k, *tile_, box_));
  }
  const P& operator*() const { return *value_; }
  const P* operator->() const { return &*value_; }

 private:
  std::optional<dsl::DynTile> tile_;
  std::vector<int> box_;
  std::optional<P> value_;
};

/// Declares the parameters that visit(f, choices...) names, in its order.
template <class Params, class... Choice>
void declare_params(dsl::Kernel& k, Params& p, const Choice&... choices) {
  p.visit([&](auto&... field) { (field.declare(k), ...); }, choices...);
}
template <class Params>
Params declare_params(dsl::Kernel& k) {
  Params p;
  declare_params(k, p);
  return p;
}
/// Launches with the same parameters. The launch checks each against the kernel's.
template <class Params, class... Choice>
void launch(runtime::Stream& s, const runtime::LoadedKernel& fn, const runtime::Launch& how, Params& p,
            const Choice&... choices) {
  std::vector<runtime::Arg> args;
  p.visit([&](auto&... field) { (args.push_back(field.arg(args.size())), ...); }, choices...);
  fn.launch(s, how, args);
}
template <class Params, class... Choice>
void launch(runtime::Stream& s, const runtime::LoadedKernel& fn, runtime::Dim3 grid, Params& p,
            const Choice&... choices) {
  launch(s, fn, runtime::Launch{.grid = grid}, p, choices...);
}

}  // namespace cgp::kernels
