// SPDX-License-Identifier: Apache-2.0
#pragma once
// For the tests of the tensor families: run a piece of PTX with buffers, read back, print findings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "cgp/base/float16.h"
#include "cgp/base/text.h"
#include "cgp/emu/async/tensor_map.h"
#include "cgp/emu/emu.h"

namespace cgp::emu::test {

/// Kernel parameters, packed at natural alignment.
class Params {
 public:
  template <class T>
  Params& add(const T& v, std::size_t align = alignof(T)) {
    bytes_.resize((bytes_.size() + align - 1) / align * align);
    const auto* p = reinterpret_cast<const std::byte*>(&v);
    bytes_.insert(bytes_.end(), p, p + sizeof v);
    return *this;
  }
  std::span<const std::byte> span() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

class Kit {
 public:
  explicit Kit(std::string arch = "sm_90a") : machine(arch), arch_(std::move(arch)) {}

  template <class T>
  std::uint64_t upload(const std::vector<T>& v, std::string name = "buffer") {
    const std::uint64_t a = machine.alloc(v.size() * sizeof(T), std::move(name));
    machine.write(a, std::as_bytes(std::span<const T>(v)));
    return a;
  }
  template <class T>
  std::vector<T> download(std::uint64_t address, std::size_t count) {
    std::vector<T> v(count);
    machine.read(address, std::as_writable_bytes(std::span<T>(v)));
    return v;
  }
  /// `body` is the whole function text from ".visible .entry k(" on.
  Result launch(const std::string& functions, Dim3 grid, Dim3 block, const Params& params,
                std::uint32_t smem = 0, Dim3 cluster = {1, 1, 1}) {
    const std::string text = ".version 8.6\n.target " + arch_ + "\n.address_size 64\n" + functions;
    auto program = Program::load(text);
    EXPECT_EQ(program->entry("k").unsupported, "");
    instance_ = machine.load(program);
    Launch l;
    l.entry = "k";
    l.grid = grid;
    l.block = block;
    l.cluster = cluster;
    l.dynamic_smem = smem;
    l.params = params.span();
    options.workers = 1;
    return machine.launch(instance_, l, options);
  }

  Machine machine;
  Options options;

 private:
  std::string arch_;
  InstanceHandle instance_;
};

inline std::string findings(const Result& r) {
  std::string s;
  for (const Finding& f : r.findings) s += describe(f) + "\n";
  return s;
}
#define EXPECT_CLEAN(result) EXPECT_EQ(::cgp::emu::test::findings(result), "")

/// The first finding's class, or "" (tests of misuse).
inline std::string first_class(const Result& r) { return r.findings.empty() ? "" : r.findings[0].cls; }

/// "{%p0, %p1, ...}".
inline std::string regs(const std::string& prefix, int count) {
  std::string s = "{";
  for (int i = 0; i < count; ++i) s += (i ? ", " : "") + prefix + std::to_string(i);
  return s + "}";
}

}  // namespace cgp::emu::test
