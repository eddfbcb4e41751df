// SPDX-License-Identifier: Apache-2.0
#pragma once
// build(): runs a kernel function once to record it. The C++ signature is the kernel's ABI: each parameter
// type declares its .param and loads it (Param<P>), and the schema in BuiltKernel is what launches are
// checked against.
#include <memory>

#include "cgp/dsl/core/scope.h"
#include "cgp/dsl/memory/ptr.h"

namespace cgp::dsl {

/// One finished kernel: its module (shared by the kernels built together) and what a launch must know.
struct BuiltKernel {
  std::string name, target;
  std::shared_ptr<const ptx::Module> module;
  std::vector<ParamInfo> params;
  std::array<int, 3> block{};    ///< exact block size; zeros: the launch chooses
  std::array<int, 3> cluster{};  ///< zeros: none
  int max_threads = 0;           ///< upper bound of a free block size; 0: the device's
  int static_smem = 0;           ///< bytes
  int dynamic_smem = 0;          ///< bytes to pass at launch, exactly
  std::string ptx() const;       ///< the module as text
};

/// How a parameter type of a kernel function is declared and loaded. Specialise for new kinds.
template <class P>
struct Param;

template <class T>
struct Param<Val<T>> {
  static_assert(T::bits >= 8, "a predicate is no parameter: pass a u32 and compare");
  static Val<T> make(Kernel& k) {
    ParamInfo i;
    i.type = T::mod;
    i.size = i.align = Elem<T>::bytes;
    return Val<T>(k.load_param(k.param(std::move(i)), T::mod));
  }
};

namespace record_impl {
Value pointer_param(Kernel& k, ptx::Mod type, bool reads, bool writes, std::string detail);
}

template <class T>
struct Param<Ptr<global, const T>> {
  static Ptr<global, const T> make(Kernel& k) {
    return Ptr<global, const T>(Val<u64>(record_impl::pointer_param(k, T::mod, true, false, {})), 0, true);
  }
};
template <class T>
struct Param<Ptr<global, T>> {
  static Ptr<global, T> make(Kernel& k) {
    return Ptr<global, T>(Val<u64>(record_impl::pointer_param(k, T::mod, false, true, {})));
  }
};
template <class T>
struct Param<InOut<T>> {
  static InOut<T> make(Kernel& k) {
    return InOut<T>(Ptr<global, T>(Val<u64>(record_impl::pointer_param(k, T::mod, true, true, {}))));
  }
};
template <class T>
struct Param<Disjoint<T>> {
  static Disjoint<T> make(Kernel& k) {
    return Disjoint<T>(
        Ptr<global, T>(Val<u64>(record_impl::pointer_param(k, T::mod, false, true, "disjoint"))));
  }
};
/// A struct of Vals, passed by value: the host passes the plain struct with the same members in the same
/// order.
template <CarriedStruct S>
struct Param<S> {
  static S make(Kernel& k) {
    return std::apply([&](auto... m) { return make_from(k, m...); }, S::carried());
  }

 private:
  template <class... T>
  static S make_from(Kernel& k, Val<T> S::*...) {
    ParamInfo i;
    i.kind = ParamInfo::Kind::structure;
    std::array<int, sizeof...(T)> offsets{};
    int at = 0, n = 0;
    ((at = (at + Elem<T>::bytes - 1) / Elem<T>::bytes * Elem<T>::bytes, offsets[std::size_t(n++)] = at,
      at += Elem<T>::bytes, i.align = std::max(i.align, std::uint32_t(Elem<T>::bytes)),
      i.detail += text::cat(i.detail.empty() ? "" : " ", ptx::name(T::mod))),
     ...);
    i.size = (std::uint32_t(at) + i.align - 1) / i.align * i.align;
    i.type = ptx::Mod::b8;
    const auto p = k.param(std::move(i));
    n = 0;
    return S{Val<T>(k.load_param(p, T::mod, offsets[std::size_t(n++)]))...};
  }
};

/// Several kernels in one module (one compilation, one load).
class ModuleBuilder {
 public:
  explicit ModuleBuilder(std::string target);
  template <class... Ps>
  void add(std::string name, void (*fn)(Kernel&, Ps...), Here at = Here::now()) {
    record<Ps...>(std::move(name), at, [&](Kernel& k, auto&... a) { fn(k, std::move(a)...); });
  }
  template <class Tune, class... Ps>
  void add(std::string name, void (*fn)(Kernel&, Tune, Ps...), std::type_identity_t<Tune> tune,
           Here at = Here::now()) {
    record<Ps...>(std::move(name), at, [&](Kernel& k, auto&... a) { fn(k, tune, std::move(a)...); });
  }
  /// A lambda void(Kernel&, Ps...); captures are build-time values.
  template <class F>
  requires requires { &F::operator(); }
  void add(std::string name, F fn, Here at = Here::now()) {
    add_callable(std::move(name), fn, &F::operator(), at);
  }

  /// Verifies the module, settles .version; the kernels in the order added.
  std::vector<BuiltKernel> finish();

 private:
  template <class F, class... Ps>
  void add_callable(std::string name, F& fn, void (F::*)(Kernel&, Ps...) const, Here at) {
    record<Ps...>(std::move(name), at, [&](Kernel& k, auto&... a) { fn(k, std::move(a)...); });
  }
  template <class... Ps, class Call>
  void record(std::string name, Here at, Call&& call) {
    Kernel k(*module_, std::move(name), at);
    std::tuple<Ps...> args{Param<Ps>::make(k)...};  // braces: declared in order
    std::apply([&](auto&... a) { call(k, a...); }, args);
    close(k);
  }
  void close(Kernel& k);
  std::shared_ptr<ptx::Module> module_;
  std::vector<BuiltKernel> built_;
};

/// Records fn as the kernel `name` for `target` ("sm_90a").
template <class... Ps>
BuiltKernel build(std::string name, std::string target, void (*fn)(Kernel&, Ps...), Here at = Here::now()) {
  ModuleBuilder m(std::move(target));
  m.add(std::move(name), fn, at);
  return m.finish()[0];
}
/// The same with build-time choices as second argument of fn.
template <class Tune, class... Ps>
BuiltKernel build(std::string name, std::string target, void (*fn)(Kernel&, Tune, Ps...),
                  std::type_identity_t<Tune> tune, Here at = Here::now()) {
  ModuleBuilder m(std::move(target));
  m.add(std::move(name), fn, std::move(tune), at);
  return m.finish()[0];
}
template <class F>
requires requires { &F::operator(); }
BuiltKernel build(std::string name, std::string target, F fn, Here at = Here::now()) {
  ModuleBuilder m(std::move(target));
  m.add(std::move(name), fn, at);
  return m.finish()[0];
}

}  // namespace cgp::dsl
