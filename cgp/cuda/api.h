// SPDX-License-Identifier: Apache-2.0
#pragma once
// libcuda, opened at run time. api.def lists its functions; Api::call<&Api::cuMemAlloc>(...) calls one,
// throws DriverError when it fails and Unsupported when this driver is too old to have it.
#include <memory>
#include <string>

#include "cgp/cuda/abi.h"

namespace cgp::cuda {

struct Api {
#define CGP_DRIVER_FN(name, symbol, since, need, params) CUresult(*name) params = nullptr;
#include "cgp/cuda/api.def"

  std::string path;        ///< what was opened
  int driver_version = 0;  ///< 13000 = CUDA 13.0

  /// Opens libcuda and initialises it. `path` empty: the environment's CGP_LIBCUDA, else libcuda.so.1. Throws
  /// Unsupported: no such library, symbols missing, no device, driver and kernel module do not match.
  static std::shared_ptr<const Api> load(const std::string& path = {});
  /// The process's driver, loaded once. Throws as load() does, each time.
  static std::shared_ptr<const Api> get();

  template <auto Fn, class... A>
  void call(A... args) const;
  /// Throws DriverError unless `r` is success. `detail` is what the caller knows: sizes, names.
  void check(CUresult r, const char* function, const std::string& detail = {}) const {
    if (r != kSuccess) fail(r, function, detail);
  }
  [[noreturn]] void fail(CUresult r, const char* function, const std::string& detail = {}) const;
  /// "CUDA_ERROR_OUT_OF_MEMORY (2)"; unknown codes give the number alone.
  std::string error_name(CUresult r) const;
  std::string error_text(CUresult r) const;
};

/// Whether Api::get() works; if not, why.
bool available();
std::string unavailable_reason();

namespace detail {
struct FunctionInfo {
  const char* name;
  int since;
};
template <auto Fn>
inline constexpr FunctionInfo function_info{};
#define CGP_DRIVER_FN(name, symbol, since, need, params) \
  template <>                                            \
  inline constexpr FunctionInfo function_info<&Api::name>{#name, since};
#include "cgp/cuda/api.def"
[[noreturn]] void missing(const Api& api, const FunctionInfo& f);
}  // namespace detail

template <auto Fn, class... A>
void Api::call(A... args) const {
  if (!(this->*Fn)) detail::missing(*this, detail::function_info<Fn>);
  if (CUresult r = (this->*Fn)(args...); r != kSuccess) fail(r, detail::function_info<Fn>.name);
}

}  // namespace cgp::cuda
