// SPDX-License-Identifier: Apache-2.0
#pragma once
// Loaded kernels and how they are called: fn(stream, grid, a, b, n). Every argument is checked against the
// kernel's parameter of the same position before anything is launched: count, kind, type, width, device,
// constness. A caller with a run-time list of arguments makes Arg values itself.
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>

#include "cgp/runtime/buffer.h"
#include "cgp/runtime/launch.h"
#include "cgp/runtime/stream.h"

namespace cgp::runtime {

class Code;
class ModuleState;

/// One argument. Scalars and addresses are held by value; tensor maps and structs must live until the launch
/// call has returned.
struct Arg {
  ParamKind kind = ParamKind::scalar;
  std::optional<DType> dtype;
  bool writable = true;             ///< pointers: to non-const elements
  const Backend* device = nullptr;  ///< pointers: where the memory is; null: not known, not checked
  std::uint32_t bytes = 0;
  std::uint64_t word = 0;      ///< the bytes of a scalar or address, zero extended
  const void* data = nullptr;  ///< tensor maps and structs

  static Arg scalar(DType t, const void* value);
  static Arg pointer(std::uint64_t address, std::optional<DType> t, bool writable, const Backend* device);
  static Arg address(std::uint64_t address) { return pointer(address, std::nullopt, true, nullptr); }
  static Arg tensor_map(const TensorMap& map);
  static Arg raw(const void* data, std::uint32_t bytes);
};

template <class T>
concept ScalarArg =
    (std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char>) ||
    std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, half> ||
    std::is_same_v<T, bfloat16> || std::is_same_v<T, float8_e4m3> || std::is_same_v<T, float8_e5m2>;

namespace detail {
template <class T>
constexpr std::optional<DType> element_type() {
  if constexpr (std::is_integral_v<T> && ScalarArg<T>) {
    constexpr DType u[] = {DType::u8, DType::u16, DType::u32, DType::u64};
    constexpr DType s[] = {DType::s8, DType::s16, DType::s32, DType::s64};
    constexpr int log = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return std::is_signed_v<T> ? s[log] : u[log];
  } else if constexpr (ScalarArg<T>) {
    return dtype_of<T>;
  } else {
    return std::nullopt;  // std::byte and structs: pointers to them go to any pointer parameter
  }
}
}  // namespace detail

template <ScalarArg T>
Arg arg(const T& v) {
  return Arg::scalar(*detail::element_type<T>(), &v);
}
template <class T>
Arg arg(Buffer<T>& b) {
  return Arg::pointer(b.address(), detail::element_type<T>(), true, b.device().backend().get());
}
template <class T>
Arg arg(const Buffer<T>& b) {
  return Arg::pointer(b.address(), detail::element_type<T>(), false, b.device().backend().get());
}
template <class T>
Arg arg(const Slice<T>& s) {
  return Arg::pointer(s.address(), detail::element_type<std::remove_const_t<T>>(), !std::is_const_v<T>,
                      s.backend());
}
inline Arg arg(const TensorMap& m) { return Arg::tensor_map(m); }
inline Arg arg(const Arg& a) { return a; }
/// A struct by value, for ParamKind::bytes.
template <class T>
requires(std::is_class_v<T>&& std::is_trivially_copyable_v<T> && !ScalarArg<T>) Arg arg(const T& v) {
  return Arg::raw(&v, sizeof(T));
}

/// What the device's compiler made of a kernel. Absent on the emulator, which allocates no registers.
struct KernelAttributes {
  std::optional<int> registers;  ///< per thread
  std::optional<int>
      estimated_registers;  ///< per thread, from liveness (ptx/pressure.h): the emulator's answer
  std::optional<std::uint32_t> local_bytes;  ///< per thread; more than 0 means spills or indexed arrays
  std::uint32_t static_smem = 0;             ///< bytes per block
  int max_threads_per_block = 1024;          ///< as far as registers allow
  std::string code_arch;  ///< what runs: "sm_90" machine code, or the PTX target (emulator)
};

class LoadedKernel {
 public:
  LoadedKernel() = default;
  explicit LoadedKernel(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  explicit operator bool() const { return code_ != nullptr; }

  template <class... A>
  void operator()(Stream& s, const Launch& launch, A&&... a) const {
    const std::array<Arg, sizeof...(A)> args{arg(a)...};
    this->launch(s, launch, args);
  }
  template <class... A>
  void operator()(Stream& s, Dim3 grid, A&&... a) const {
    (*this)(s, Launch{.grid = grid}, a...);
  }
  /// Throws ArgumentError naming the parameter, or the limit of the device that the shape breaks.
  void launch(Stream& s, const Launch& launch, std::span<const Arg> args) const;

  const KernelImage& image() const;
  const std::string& name() const { return image().name; }
  Device device() const;
  KernelAttributes attributes() const;
  /// Blocks of this shape that fit one SM at the same time; 0 if none does. On the emulator: with
  /// the estimated registers.
  int blocks_per_sm(Dim3 block = kFromKernel, std::optional<std::uint32_t> dynamic_smem = {}) const;
  /// Clusters of this shape that the device runs at the same time.
  int max_active_clusters(const Launch& launch) const;
  const Code& code() const { return *code_; }

 private:
  std::shared_ptr<const Code> code_;
};

/// A PTX module: its entries and its variables.
class LoadedModule {
 public:
  LoadedModule() = default;
  explicit LoadedModule(std::shared_ptr<ModuleState> state) : state_(std::move(state)) {}
  std::vector<std::string> entries() const;
  /// Signature read from the PTX; see image_from_ptx. Throws ArgumentError with the closest names.
  LoadedKernel kernel(std::string_view entry) const;
  /// The bytes of a .global or .const variable; valid as long as the module.
  Slice<std::byte> variable(std::string_view name) const;

 private:
  std::shared_ptr<ModuleState> state_;
};

/// Why these arguments and this shape cannot be launched; empty: they can. What launch() throws, as text.
std::string reject_args(const KernelImage& image, const Backend* device, std::span<const Arg> args);
std::string reject_shape(const DeviceInfo& info, const KernelImage& image, const Launch& launch,
                         std::uint32_t static_smem = 0);

}  // namespace cgp::runtime
