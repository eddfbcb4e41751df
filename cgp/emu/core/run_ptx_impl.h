// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the emulator's tests share: wrap instructions into a kernel, run it, read the results.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "cgp/base/text.h"
#include "cgp/emu/emu.h"

namespace cgp::emu::testing {

/// Kernel parameters, packed with natural alignment.
class Params {
 public:
  template <class T>
  Params& add(T v) {
    while (bytes_.size() % sizeof(T)) bytes_.push_back(std::byte(0));
    const auto* p = reinterpret_cast<const std::byte*>(&v);
    bytes_.insert(bytes_.end(), p, p + sizeof(T));
    return *this;
  }
  operator std::span<const std::byte>() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

/// A machine with one program and helpers for buffers.
struct Bench {
  explicit Bench(std::string ptx, bool portable = false, std::string arch = "sm_90a")
      : machine(std::move(arch)) {
    program = Program::load(ptx, portable);
    instance = machine.load(program);
  }
  template <class T>
  std::uint64_t upload(const std::vector<T>& v, std::string name) {
    const std::uint64_t a = machine.alloc(v.size() * sizeof(T), std::move(name));
    machine.write(a, std::as_bytes(std::span(v)));
    return a;
  }
  template <class T>
  std::vector<T> download(std::uint64_t a, std::size_t n) {
    std::vector<T> v(n);
    machine.read(a, std::as_writable_bytes(std::span(v)));
    return v;
  }
  Result run(std::string entry, Dim3 grid, Dim3 block, std::span<const std::byte> params,
             Options options = {}, std::uint32_t dynamic = 0, Dim3 cluster = {}) {
    Launch l;
    l.entry = std::move(entry);
    l.grid = grid;
    l.block = block;
    l.cluster = cluster;
    l.dynamic_smem = dynamic;
    l.params = params;
    return machine.launch(instance, l, options);
  }
  Machine machine;
  std::shared_ptr<const Program> program;
  InstanceHandle instance;
};

inline std::string header(std::string target = "sm_90a") {
  return text::cat(".version 8.7\n.target ", target, "\n.address_size 64\n");
}

/// A kernel k(in, out): lane t reads in[t] into %a (and in[32+t] into %b, in[64+t] into %c), stores %d to
/// out[t]. `bits` is the width of all values. The body may use %r<64>, %rd<64>, %f<64>, %fd<64>, %h<64>,
/// %p<16>.
inline std::string lane_kernel(const std::string& body, int in_bits = 32, int out_bits = 32,
                               std::string target = "sm_90a") {
  auto reg = [](int b) { return b == 64 ? ".b64" : b == 16 ? ".b16" : ".b32"; };
  const std::string ib = text::cat(in_bits), ob = text::cat(out_bits);
  return header(target) +
         text::cat(".visible .entry k(.param .u64 pin, .param .u64 pout)\n{\n", ".reg ", reg(in_bits),
                   " %a, %b, %c;\n.reg ", reg(out_bits),
                   " %d;\n.reg .b32 %r<64>;\n.reg .b64 %rd<64>, %x<4>;\n.reg .f32 %f<64>;\n"
                   ".reg .f64 %fd<64>;\n.reg .b16 %h<64>;\n.reg .pred %p<16>;\n.reg .b32 %t;\n",
                   "ld.param.u64 %x0, [pin];\nld.param.u64 %x1, [pout];\nmov.u32 %t, %laneid;\n",
                   "mul.wide.u32 %x2, %t, ", in_bits / 8, ";\nadd.u64 %x0, %x0, %x2;\n",
                   "mul.wide.u32 %x2, %t, ", out_bits / 8, ";\nadd.u64 %x1, %x1, %x2;\n", "ld.global.b", ib,
                   " %a, [%x0];\nld.global.b", ib, " %b, [%x0+", 32 * in_bits / 8, "];\nld.global.b", ib,
                   " %c, [%x0+", 64 * in_bits / 8, "];\n", body, "\nst.global.b", ob,
                   " [%x1], %d;\nret;\n}\n");
}

/// Runs lane_kernel(body) on 32 triples and returns the 32 results. Fails the test on any finding.
template <class Out, class In>
std::vector<Out> run_lanes(const std::string& body, const std::vector<In>& a, const std::vector<In>& b,
                           const std::vector<In>& c, bool portable = false) {
  Bench bench(lane_kernel(body, int(sizeof(In) * 8), int(sizeof(Out) * 8)), portable);
  std::vector<In> in(96);
  for (std::size_t l = 0; l < 32; ++l) {
    in[l] = a[l % a.size()];
    in[32 + l] = b[l % b.size()];
    in[64 + l] = c[l % c.size()];
  }
  const auto pin = bench.upload(in, "in");
  const auto pout = bench.machine.alloc(32 * sizeof(Out), "out");
  const Result r = bench.run("k", {}, {32, 1, 1}, Params().add(pin).add(pout));
  for (const Finding& f : r.findings) ADD_FAILURE() << body << "\n" << describe(f);
  return bench.download<Out>(pout, 32);
}

}  // namespace cgp::emu::testing
