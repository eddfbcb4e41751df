// SPDX-License-Identifier: Apache-2.0
#pragma once
// What happens to the sums of a product on their way into C, as functions of the DSL that compose:
//   problem.epilogue = epilogue::bias(b) | epilogue::gelu();
//   problem.epilogue = epilogue::map("cap", [](const EpiloguePoint&, dsl::Val<dsl::f32> x,
//                                              dsl::Val<dsl::f32> most) { return dsl::min(x, most); }, 6.f);
// Each function takes and returns one f32 (element of alpha * op(A) * op(B) + beta * C); the result of the
// last is rounded to the type of C. What a function takes besides becomes parameters of the kernel: Val<T>
// for scalars, In<T> and Out<T> for arrays; the arguments follow its code, in order. Results of an epilogue
// are the same in every kernel but for the order of fp32 sums.
//
// A pair function makes one element of C from two of the product (SwiGLU): C has n / 2 columns then.
#include <functional>
#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

#include "cgp/dsl/core/convert.h"
#include "cgp/dsl/kernel.h"
#include "cgp/runtime/launcher.h"

namespace cgp::kernels {

struct GemmProblem;
struct GemmAddresses;

/// An array in device memory whose element type is known at run time. Does not own it.
struct DeviceArray {
  std::uint64_t address = 0, size = 0;  ///< size: elements
  DType type = DType::f32;

  DeviceArray() = default;
  DeviceArray(std::uint64_t address, std::uint64_t size, DType type)
      : address(address), size(size), type(type) {}
  template <class T>
  DeviceArray(const runtime::Slice<T>& s)  // NOLINT: implicit by design
      : address(s.address()), size(s.size()), type(dtype_of<std::remove_const_t<T>>) {}
  template <class T>
  DeviceArray(const runtime::Buffer<T>& b)  // NOLINT: implicit by design
      : address(b.address()), size(b.size()), type(dtype_of<T>) {}
};

/// A row or column of the result of which a thread holds elements. What is loaded for it is loaded once.
class EpilogueLine {
 public:
  /// Number base + offset; nothing is loaded where `inside` does not hold.
  EpilogueLine(dsl::Val<dsl::u64> base, int offset, dsl::Val<dsl::pred> inside)
      : base_(base), offset_(offset), inside_(inside) {}
  dsl::Val<dsl::u64> index() const { return offset_ ? base_ + std::uint64_t(offset_) : base_; }
  const dsl::Val<dsl::u64>& base() const { return base_; }
  int offset() const { return offset_; }
  const dsl::Val<dsl::pred>& inside() const { return inside_; }
  /// Element index() of a vector, as f32; 0 outside.
  template <class T>
  dsl::Val<dsl::f32> load(const dsl::Ptr<dsl::global, T>& p) const {
    using Bare = std::remove_const_t<T>;
    const auto key = std::uint64_t(p.base().reg()) << 32 | std::uint32_t(p.offset());
    return dsl::Val<dsl::f32>(once(
        key, [&] { return dsl::to<dsl::f32>(p.at(base_).ld_if(inside_, offset_, dsl::Val<Bare>(0))[0]); }));
  }
  /// make() at the first call with this key, its value at later ones.
  template <class F>
  dsl::Value once(std::uint64_t key, F&& make) const {
    for (const auto& [k, v] : loaded_)
      if (k == key) return v;
    loaded_.emplace_back(key, make());
    return loaded_.back().second;
  }

 private:
  dsl::Val<dsl::u64> base_;
  int offset_;
  dsl::Val<dsl::pred> inside_;
  mutable std::vector<std::pair<std::uint64_t, dsl::Value>> loaded_;
};

/// Where an element goes: C[batch][row][col]. Before a pair function, col counts the columns of the product.
struct EpiloguePoint {
  const EpilogueLine &row, &col;
  const dsl::Val<dsl::u64>& batch;
  dsl::Val<dsl::pred> inside;  ///< both are

  template <class T>
  dsl::Val<dsl::f32> of_row(const dsl::Ptr<dsl::global, T>& p) const {
    return row.load(p);
  }
  template <class T>
  dsl::Val<dsl::f32> of_column(const dsl::Ptr<dsl::global, T>& p) const {
    return col.load(p);
  }
  /// The element at the same place of a matrix, rows `ld` and batches `stride` elements apart.
  template <class T>
  dsl::Val<dsl::f32> of_element(const dsl::Ptr<dsl::global, T>& p, const dsl::Val<dsl::u64>& ld,
                                const dsl::Val<dsl::u64>& stride) const {
    using Bare = std::remove_const_t<T>;
    const dsl::Ptr<dsl::global, T> at(place(p.address(), dsl::Elem<Bare>::bytes, ld, stride), 0,
                                      std::is_const_v<T>);
    return dsl::to<dsl::f32>(at.ld_if(inside, col.offset(), dsl::Val<Bare>(0))[0]);
  }
  /// Address of the element in this row and in the column that col.base() counts; computed once for a row.
  dsl::Val<dsl::u64> place(const dsl::Val<dsl::u64>& array, int bytes, const dsl::Val<dsl::u64>& ld,
                           const dsl::Val<dsl::u64>& stride) const {
    const auto key =
        std::uint64_t(1) << 63 | std::uint64_t(array.reg()) << 32 | std::uint64_t(col.base().reg());
    return dsl::Val<dsl::u64>(row.once(key, [&] {
      return array + (batch * stride + row.index() * ld + col.base()) * std::uint32_t(bytes);
    }));
  }
};

/// Elements that a kernel hands over together: in the registers of a warp, inside one block of 128 x 128 of
/// C, which row and col (of any of them) lie in.
struct EpilogueGroup {
  dsl::Kernel& k;
  dsl::Val<dsl::u64> batch, row, col;
  bool whole_warp = false;  ///< all lanes of the warp are here
};

/// A stage while a kernel is recorded: its parameters are declared.
class EpilogueCode {
 public:
  virtual ~EpilogueCode() = default;
  virtual dsl::Val<dsl::f32> apply(const EpiloguePoint& at, const dsl::Val<dsl::f32>& x) = 0;
  /// Of a pair function: `at` is the place in C.
  virtual dsl::Val<dsl::f32> combine(const EpiloguePoint&, const dsl::Val<dsl::f32>& first,
                                     const dsl::Val<dsl::f32>&) {
    return first;
  }
  virtual void finish(const EpilogueGroup&) {}  ///< all elements of a group have been applied
};

struct EpilogueStage {
  std::string name;   ///< stands for the code in names of variants
  bool pair = false;  ///< combine() instead of apply()
  std::function<std::shared_ptr<EpilogueCode>(dsl::Kernel&)> declare;
  /// In the order of the parameters.
  std::function<std::vector<runtime::Arg>(const GemmProblem&)> arguments{};
  /// Why it does not fit a problem; empty: it does. Absent: it always does.
  std::function<std::string(const GemmProblem&)> reject{};
  std::function<void(runtime::Stream&, const GemmProblem&)> before{};  ///< queued before the product
  /// For kernels that hand over columns 2 j and 2 j + 1 of C one after the other: the code that loads both at
  /// once, and whether two such elements are one aligned word. Absent: there is nothing to load.
  std::function<std::shared_ptr<EpilogueCode>(dsl::Kernel&)> declare_words{};
  std::function<bool(const GemmProblem&)> has_words{};
  /// Elements are told one by one: finish() does nothing, and groups may be of any form.
  bool pointwise = false;
};

/// Which columns of the product a pair function combines for column j of C.
enum class Pairing : std::uint8_t {
  none,
  interleaved,  ///< 2 j and 2 j + 1
  halves        ///< j and j + n / 2
};

/// Stages with their arguments, first to last.
class Epilogue {
 public:
  Epilogue() = default;
  explicit Epilogue(EpilogueStage s, Pairing pairing = Pairing::none)
      : stages_{std::make_shared<const EpilogueStage>(std::move(s))}, pairing_(pairing) {}
  bool empty() const { return stages_.empty(); }
  Pairing pairing() const { return pairing_; }
  std::string name() const;  ///< "bias_bf16_gelu"; empty: none
  /// In the order of the kernel's parameters; the problem must be dense().
  std::vector<runtime::Arg> arguments(const GemmProblem& p) const;
  std::string reject(const GemmProblem& p) const;  ///< what does not fit; empty: all does
  void before(runtime::Stream& s, const GemmProblem& p) const;
  const auto& stages() const { return stages_; }
  bool pointwise() const;  ///< of all stages, none of which has pairs
  /// The same for kernels that hand over columns 2 j and 2 j + 1 one after the other.
  Epilogue in_words(const GemmProblem& dense) const;
  /// First this, then `next`. At most one of both has a pair function (ArgumentError).
  Epilogue operator|(const Epilogue& next) const;

 private:
  std::vector<std::shared_ptr<const EpilogueStage>> stages_;
  Pairing pairing_ = Pairing::none;
};

/// An epilogue while a kernel is recorded. Declares its parameters: make it before the kernel's body.
class EpilogueProgram {
 public:
  EpilogueProgram(dsl::Kernel& k, const Epilogue& e);
  bool empty() const { return code_.empty(); }
  /// Without a pair function.
  dsl::Val<dsl::f32> apply(const EpiloguePoint& at, const dsl::Val<dsl::f32>& x) const;
  /// With one: `first` and `second` are places in the product, `at` is the one in C.
  dsl::Val<dsl::f32> apply(const EpiloguePoint& at, const EpiloguePoint& first, const EpiloguePoint& second,
                           const dsl::Val<dsl::f32>& x, const dsl::Val<dsl::f32>& y) const;
  void finish(const EpilogueGroup& g) const;

 private:
  std::vector<std::pair<bool, std::shared_ptr<EpilogueCode>>> code_;  ///< first: a pair function
};

namespace epilogue {

namespace detail {
std::string code_name(std::string_view name, const std::type_info& code);

template <class F, class... Ps>
class Function : public EpilogueCode {
 public:
  explicit Function(dsl::Kernel& k) : parameters_{dsl::Param<Ps>::make(k)...} {}
  dsl::Val<dsl::f32> apply(const EpiloguePoint& at, const dsl::Val<dsl::f32>& x) override {
    if constexpr (std::is_invocable_v<F, const EpiloguePoint&, dsl::Val<dsl::f32>, const Ps&...>)
      return std::apply([&](const auto&... p) { return F{}(at, x, p...); }, parameters_);
    else
      return x;
  }
  dsl::Val<dsl::f32> combine(const EpiloguePoint& at, const dsl::Val<dsl::f32>& x,
                             const dsl::Val<dsl::f32>& y) override {
    if constexpr (std::is_invocable_v<F, const EpiloguePoint&, dsl::Val<dsl::f32>, dsl::Val<dsl::f32>,
                                      const Ps&...>)
      return std::apply([&](const auto&... p) { return F{}(at, x, y, p...); }, parameters_);
    else
      return x;
  }

 private:
  std::tuple<Ps...> parameters_;
};

template <bool Pair, class F, class... Ps, class... Args>
EpilogueStage stage(std::string_view name, std::type_identity<std::tuple<Ps...>>, const Args&... args) {
  static_assert(std::is_empty_v<F>,
                "the code of an epilogue captures nothing: pass what it needs as parameters");
  static_assert(sizeof...(Ps) == sizeof...(Args), "one argument for each parameter of the epilogue");
  return {code_name(name, typeid(F)),
          Pair,
          [](dsl::Kernel& k) { return std::make_shared<Function<F, std::remove_cvref_t<Ps>...>>(k); },
          [list = std::vector<runtime::Arg>{runtime::arg(args)...}](const GemmProblem&) { return list; },
          {},
          {},
          {},
          {},
          /*pointwise=*/!Pair};
}
template <class R, class F, class P, class... Ps>
std::type_identity<std::tuple<Ps...>> map_parameters(R (F::*)(P, dsl::Val<dsl::f32>, Ps...) const);
template <class R, class F, class P, class... Ps>
std::type_identity<std::tuple<Ps...>> pair_parameters(R (F::*)(P, dsl::Val<dsl::f32>, dsl::Val<dsl::f32>,
                                                               Ps...) const);
}  // namespace detail

/// f(point, x, parameters...) -> element; a lambda without captures. `name` is for people.
template <class F, class... Args>
Epilogue map(std::string_view name, F, const Args&... args) {
  return Epilogue(detail::stage<false, F>(name, decltype(detail::map_parameters(&F::operator())){}, args...));
}
/// f(point, x, y, parameters...) -> element of C from two elements of the product.
template <class F, class... Args>
Epilogue pair(Pairing pairing, std::string_view name, F, const Args&... args) {
  return Epilogue(detail::stage<true, F>(name, decltype(detail::pair_parameters(&F::operator())){}, args...),
                  pairing);
}

// Arrays are f32, f16 or bf16.
Epilogue bias(const DeviceArray& columns);           ///< x + columns[col]
Epilogue bias_rows(const DeviceArray& rows);         ///< x + rows[row]
Epilogue scale_columns(const DeviceArray& columns);  ///< x * columns[col]
Epilogue scale_rows(const DeviceArray& rows);        ///< x * rows[row]
/// x + factor * r[batch][row][col]; rows `ld` elements apart, 0: dense; batches `stride`, 0: dense.
Epilogue residual(const DeviceArray& r, float factor = 1, std::uint64_t ld = 0, std::uint64_t stride = 0);
/// Largest |x| of each block of 128 x 128 of C into [batch][ceil(m / 128)][ceil(columns / 128)] (f32, set to
/// 0 first); NaN wins. x passes on.
Epilogue amax(const DeviceArray& blocks);
Epilogue relu();       ///< NaN stays NaN
Epilogue silu();       ///< x / (1 + exp(-x)); relative error 2^-21, absolute 2^-119 (below x = -87)
Epilogue gelu();       ///< x * Phi(x), through erf; absolute error |x| * 2^-21
Epilogue gelu_tanh();  ///< the tanh form; absolute error |x| * 2^-20
/// Coarser and cheaper, for results of 8 or 16 bits: absolute error |x| * 2^-11 (tanh.approx).
Epilogue gelu_tanh_fast();
/// silu(gate) * up: gate is the first of the pair.
Epilogue swiglu(Pairing pairing);

/// All that a dense() problem asks for between the sums and C: factors, alpha, beta * C, its epilogue. With a
/// pair function beta * C is added after it.
Epilogue of_problem(const GemmProblem& p, const GemmAddresses& at);

}  // namespace epilogue
}  // namespace cgp::kernels
