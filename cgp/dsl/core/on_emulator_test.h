// SPDX-License-Identifier: Apache-2.0
#pragma once
// For tests: records a kernel, prints it, runs the text on the emulator with host vectors as buffers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "cgp/dsl/kernel.h"
#include "cgp/emu/async/tensor_map.h"
#include "cgp/emu/emu.h"

namespace cgp::dsl {

/// A buffer argument: uploaded before the launch, downloaded after it.
template <class T>
struct Buf {
  std::vector<T>& host;
};
template <class T>
Buf<T> buf(std::vector<T>& v) {
  return {v};
}

/// A tensor behind a TmaIn or TmaOut parameter: extents outermost first, dense; the box comes from the
/// kernel.
template <class T>
struct TensorBuf {
  std::vector<T>& host;
  std::vector<std::uint64_t> extents;
};
template <class T>
TensorBuf<T> tensor(std::vector<T>& v, std::vector<std::uint64_t> extents) {
  return {v, std::move(extents)};
}

class EmulatorRun {
 public:
  explicit EmulatorRun(const BuiltKernel& k) : kernel_(k), machine_(k.target) {}

  /// Runs with the arguments in order; findings are test failures. False when the emulator cannot run it yet.
  template <class... A>
  bool operator()(emu::Dim3 grid, emu::Dim3 block, const A&... args) {
    (argument(args), ...);
    const auto program = emu::Program::load(kernel_.ptx());
    const auto& entry = program->entry(kernel_.name);
    missing = entry.unsupported;
    if (!missing.empty()) return false;
    const auto instance = machine_.load(program);
    emu::Launch launch;
    launch.entry = kernel_.name;
    launch.grid = grid;
    launch.block = kernel_.block[0]
                       ? emu::Dim3{std::uint32_t(kernel_.block[0]), std::uint32_t(kernel_.block[1]),
                                   std::uint32_t(kernel_.block[2])}
                       : block;
    if (kernel_.cluster[0])
      launch.cluster = {std::uint32_t(kernel_.cluster[0]), std::uint32_t(kernel_.cluster[1]),
                        std::uint32_t(kernel_.cluster[2])};
    launch.dynamic_smem = std::uint32_t(kernel_.dynamic_smem);
    launch.params = params_;
    const auto result = machine_.launch(instance, launch, options);
    for (const auto& f : result.findings) ADD_FAILURE() << emu::describe(f) << "\n" << kernel_.ptx();
    for (auto& d : downloads_) d();
    return true;
  }
  std::string missing;  ///< why the emulator cannot run the kernel
  emu::Options options{.workers = 1};

 private:
  template <class A>
  void argument(const A& a) {
    add(a);
    ++argument_;
  }
  template <class T>
  std::uint64_t upload(std::vector<T>& host) {
    const std::size_t bytes = host.size() * sizeof(T);
    const std::uint64_t address = machine_.alloc(bytes ? bytes : 1);
    machine_.write(address, std::as_bytes(std::span(host)));
    downloads_.push_back(
        [this, address, &host] { machine_.read(address, std::as_writable_bytes(std::span(host))); });
    return address;
  }
  template <class T>
  void add(const TensorBuf<T>& t) {
    const auto& schema = kernel_.params.at(argument_).tensor_map.value();
    emu::TensorMap map;
    using Type = emu::TensorMapType;
    map.type = sizeof(T) == 1                     ? Type::u8
               : sizeof(T) == 4                   ? Type::f32
               : sizeof(T) == 8                   ? Type::f64
               : schema.element == ptx::Mod::bf16 ? Type::bf16
                                                  : Type::f16;
    if (schema.element == ptx::Mod::s32) map.type = Type::s32;
    if (schema.element == ptx::Mod::u32) map.type = Type::u32;
    map.rank = schema.rank;
    map.box.fill(1);
    std::uint64_t stride = sizeof(T);
    for (int d = 0; d < schema.rank; ++d) {
      const auto i = std::size_t(d);
      map.dims[i] = t.extents.at(std::size_t(schema.rank - 1 - d));
      map.strides[i] = stride;
      map.box[i] = schema.box[i];
      stride *= map.dims[i];
    }
    map.swizzle = schema.swizzle == Swizzle::b128  ? emu::TensorMapSwizzle::b128
                  : schema.swizzle == Swizzle::b64 ? emu::TensorMapSwizzle::b64
                  : schema.swizzle == Swizzle::b32 ? emu::TensorMapSwizzle::b32
                                                   : emu::TensorMapSwizzle::none;
    map.address = upload(t.host);
    const auto bytes = map.encode();
    while (params_.size() % 64) params_.push_back(std::byte(0));
    params_.insert(params_.end(), bytes.begin(), bytes.end());
  }
  template <class T>
  void add(const Buf<T>& b) {
    add(upload(b.host));
  }
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void add(const T& v) {
    while (params_.size() % alignof(T)) params_.push_back(std::byte(0));
    const std::size_t at = params_.size();
    params_.resize(at + sizeof(T));
    std::memcpy(params_.data() + at, &v, sizeof(T));
  }
  const BuiltKernel kernel_;
  emu::Machine machine_;
  std::vector<std::byte> params_;
  std::size_t argument_ = 0;
  std::vector<std::function<void()>> downloads_;
};

/// Runs an EmulatorRun; a test whose instructions the emulator does not execute is skipped with the reason.
#define RUN_OR_SKIP(run, ...) \
  if (!run(__VA_ARGS__)) GTEST_SKIP() << run.missing

}  // namespace cgp::dsl
