// SPDX-License-Identifier: Apache-2.0
#pragma once
// What stands behind the handles of cgp.h, and the guard that turns exceptions into status codes.
#include <exception>
#include <map>
#include <mutex>

#include "cgp/capi/cgp.h"
#include "cgp/runtime/buffer.h"
#include "cgp/runtime/stream.h"

struct cgp_device {
  cgp::runtime::Device device;
  std::mutex mutex{};
  std::map<std::uint64_t, cgp::runtime::Memory> memory{};  // of cgp_alloc
};
struct cgp_stream {
  cgp::runtime::Device device;
  cgp::runtime::Stream stream;
};

namespace cgp::capi {

/// Keeps the error for cgp_last_error() and gives its code.
cgp_status failed(const std::exception& e) noexcept;

/// Runs f(); nothing that it throws gets past.
template <class F>
cgp_status guarded(F f) noexcept {
  try {
    f();
    return CGP_OK;
  } catch (const std::exception& e) {
    return failed(e);
  }
}

/// ArgumentError naming `what` when it is null.
void require(const void* p, const char* what);

/// The part of an options structure that the caller knows, the rest 0; `defaults` when there is none.
template <class Options>
Options known(const Options* given, const Options& defaults, const char* what);
[[noreturn]] void bad_options(const char* what, std::size_t size);
template <class Options>
Options known(const Options* given, const Options& defaults, const char* what) {
  if (!given) return defaults;
  if (given->size < sizeof(std::size_t) || given->size > 4096) bad_options(what, given->size);
  Options o{};
  const auto* from = reinterpret_cast<const char*>(given);
  auto* to = reinterpret_cast<char*>(&o);
  for (std::size_t i = 0; i < given->size && i < sizeof o; ++i) to[i] = from[i];
  // What a newer caller set and this library does not know must not be ignored.
  for (std::size_t i = sizeof o; i < given->size; ++i)
    if (from[i]) bad_options(what, given->size);
  return o;
}

}  // namespace cgp::capi
