// SPDX-License-Identifier: Apache-2.0
#pragma once
// The door to everything that runs kernels. Device::open("emu") and Device::open("cuda:0") give the same
// interface; read buffer.h, stream.h and launcher.h next. A Device is a counted reference: buffers, streams
// and kernels keep theirs alive, so nothing outlives its context.
//
//   Device dev = Device::open("emu:sm_90a");
//   auto a = dev.upload<float>(host_a);            // Buffer<float>, buffer.h
//   auto c = dev.alloc<float>(a.size());
//   LoadedKernel fn = dev.load(image);             // compiled once per device, then cached
//   fn(dev.stream(), grid_for(n, 256), a, c, n);   // arguments are checked against the kernel's parameters
//   dev.sync();                                    // faults of the emulator and errors of the driver come
//   here std::vector<float> got = c.to_vector();
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "cgp/runtime/info.h"
#include "cgp/runtime/kernel_image.h"
#include "cgp/runtime/tensor_map.h"

namespace cgp::emu {
struct Options;
struct Result;
}  // namespace cgp::emu

namespace cgp::runtime {

class Backend;
class Stream;
class LoadedKernel;
class LoadedModule;
template <class T>
class Buffer;
template <class T>
class Slice;

/// One kernel run by the emulator: what ran, and what the emulator counted and found (cgp/emu/emu.h).
struct LaunchRecord {
  std::string kernel;
  Dim3 grid, block, cluster;
  std::uint32_t dynamic_smem = 0;
  std::shared_ptr<const emu::Result> result;
};

struct MemoryUse {
  std::uint64_t free_bytes = 0, total_bytes = 0;
};

/// Counts of what loading cost, for "no JIT after start-up" tests.
struct LoadCounts {
  std::uint64_t jit_compilations = 0;  ///< PTX compiled by the driver in this process
  std::uint64_t cache_hits = 0;        ///< cubins taken from the on-disk cache
  std::uint64_t embedded_cubins = 0;   ///< cubins that came with the image
  double jit_milliseconds = 0;         ///< wall time of the compilations
};

class Device {
 public:
  /// "emu" (sm_90a), "emu:sm_80"; "cuda" (= "cuda:0"), "cuda:1"; "vulkan:0", whose kernels are chosen as for sm_75,
  /// "vulkan:0:sm_80"; "auto": the first GPU with CUDA, else the emulator.
  /// Throws Unsupported, saying why, when there is no such device; ArgumentError for a malformed spec.
  static Device open(std::string_view spec = "auto");

  Device() = default;  ///< no device; only to be assigned to
  explicit operator bool() const { return backend_ != nullptr; }
  const DeviceInfo& info() const;
  bool is_emulator() const { return info().kind == DeviceKind::emulator; }

  // ---- memory (buffer.h); `name` is what findings of the emulator call it
  template <class T>
  Buffer<T> alloc(std::size_t count, std::string_view name = {}) const;  ///< contents undefined
  template <class T>
  Buffer<T> zeros(std::size_t count, std::string_view name = {}) const;
  template <class T>
  Buffer<T> upload(std::type_identity_t<std::span<const T>> host, std::string_view name = {}) const;
  MemoryUse memory() const;

  // ---- kernels (launcher.h)
  /// Loads once per device and (entry, PTX); later calls give the same kernel.
  LoadedKernel load(const KernelImage& image) const;
  /// As above, but `key` stands for the image: `build` is called the first time only. The fast path of host
  /// functions, which should not build a kernel to find out that it is loaded.
  LoadedKernel load(std::string_view key, const std::function<KernelImage()>& build) const;
  /// A whole PTX module: several entries that share its variables. Not cached: each load has its own
  /// variables.
  LoadedModule load_module(std::string ptx) const;
  LoadCounts load_counts() const;

  // ---- work (stream.h)
  Stream make_stream() const;
  Stream& stream() const;  ///< the device's own stream, for callers that need no second one
  /// Waits for all streams; throws what went wrong on any of them.
  void sync() const;

  // ---- tensor maps
  /// Throws ArgumentError with reject()'s sentence; Unsupported where there is no TMA.
  TensorMap tensor_map(const TensorMapSpec& spec, std::uint64_t address) const;
  template <class T>
  TensorMap tensor_map(const TensorMapSpec& spec, const Buffer<T>& base) const;

  // ---- other devices
  bool can_access_peer(const Device& other) const;
  /// Lets kernels of this device use the other's memory: its buffers are arguments of launches here from now on.
  /// The other direction is a call of its own. Throws Unsupported if can_access_peer is false.
  void enable_peer(const Device& other) const;

  // ---- the emulator's knobs and results; Unsupported on a GPU
  void set_emulator_options(const emu::Options& options) const;
  const emu::Options& emulator_options() const;
  /// Findings of a launch: throw an EmuFault at the next wait (default), or only keep them in results().
  enum class Findings : std::uint8_t { throw_at_wait, collect };
  void set_findings(Findings policy) const;
  /// Keep the records of the last `count` launches (default 1; 0 keeps all).
  void keep_results(std::size_t count) const;
  const std::vector<LaunchRecord>& results() const;
  const LaunchRecord& last_result() const;  ///< ArgumentError before the first launch
  void clear_results() const;

  friend bool operator==(const Device& a, const Device& b) { return a.backend_ == b.backend_; }
  /// For the other parts of the runtime; null for Device().
  const std::shared_ptr<Backend>& backend() const { return backend_; }
  explicit Device(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}

 private:
  std::shared_ptr<Backend> backend_;
};

/// Where problems go that no caller can be told about: errors while destroying a stream or freeing memory,
/// cache files that cannot be written. Default: one line on stderr.
void set_log(std::function<void(std::string_view)> sink);

}  // namespace cgp::runtime
