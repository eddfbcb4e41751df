// SPDX-License-Identifier: Apache-2.0
#pragma once
// For tests: records a kernel, prints it, runs the text on the emulator with host vectors as buffers.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "cgp/dsl/kernel.h"
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

class EmulatorRun {
 public:
  explicit EmulatorRun(const BuiltKernel& k) : kernel_(k), machine_(k.target) {}

  /// Runs with the arguments in order; findings are test failures. False when the emulator cannot run it yet.
  template <class... A>
  bool operator()(emu::Dim3 grid, emu::Dim3 block, const A&... args) {
    (add(args), ...);
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
    launch.dynamic_smem = std::uint32_t(kernel_.dynamic_smem);
    launch.params = params_;
    emu::Options options;
    options.workers = 1;
    const auto result = machine_.launch(instance, launch, options);
    for (const auto& f : result.findings) ADD_FAILURE() << emu::describe(f) << "\n" << kernel_.ptx();
    for (auto& d : downloads_) d();
    return true;
  }
  std::string missing;  ///< why the emulator cannot run the kernel

 private:
  template <class T>
  void add(const Buf<T>& b) {
    const std::size_t bytes = b.host.size() * sizeof(T);
    const std::uint64_t address = machine_.alloc(bytes ? bytes : 1);
    machine_.write(address, std::as_bytes(std::span(b.host)));
    downloads_.push_back(
        [this, address, b] { machine_.read(address, std::as_writable_bytes(std::span(b.host))); });
    add(address);
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
  std::vector<std::function<void()>> downloads_;
};

/// Runs an EmulatorRun; a test whose instructions the emulator does not execute is skipped with the reason.
#define RUN_OR_SKIP(run, ...) \
  if (!run(__VA_ARGS__)) GTEST_SKIP() << run.missing

}  // namespace cgp::dsl
