// SPDX-License-Identifier: Apache-2.0
#include "gpu_ceilings.h"

#include <algorithm>
#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/arith.h"
#include "cgp/dsl/convert.h"
#include "cgp/kernels/catalog.h"
#include "cgp/prof/compare.h"
#include "cgp/runtime/buffer.h"

namespace cgp::cli {
namespace {

using namespace dsl;
using kernels::variant;
using kernels::Variant;

constexpr int kThreads = 256, kChains = 8, kUnrolled = 8;

template <class T>
Val<T> steps(const Val<T>& x, const Val<T>& half, const Val<T>& one, int count) {
  return count == 0 ? x : fma(steps(x, half, one, count - 1), half, one);
}

/// Eight chains of dependent multiply-adds: x = x * 0.5 + 1 goes to 2 from everywhere, which the check uses.
template <class T>
void ladder_kernel(Kernel& k, Out<T> out, Val<u32> rounds) {
  k.block(kThreads);
  const auto start =
      RegGroup<T, kChains>::generate([&](int i) { return to<T>(k.tid_x() + std::uint32_t(i)); });
  const Val<T> half(0.5f), one(1.0f);
  const auto last = k.loop(rounds, start, [&](Val<u32>, RegGroup<T, kChains> x) {
    return x.map([&](Val<T> v) { return steps<T>(v, half, one, kUnrolled); });
  });
  static_assert(kChains == 8);
  const auto sum = ((last[0] + last[1]) + (last[2] + last[3])) + ((last[4] + last[5]) + (last[6] + last[7]));
  out.st(k.ctaid_x() * std::uint32_t(kThreads) + k.tid_x(), sum);
}

void copy_kernel(Kernel& k, In<f32> from, Disjoint<f32> to, Val<u64> n) {
  k.block(kThreads);
  k.grid_stride(n / 4, [&](ThreadIndex64 i) { to.template st<4>(i, from.template ld<4>(i)); });
}

/// Every block reads the whole array, so that an array which fits L2 is read from there; the sum keeps the
/// loads.
void read_kernel(Kernel& k, In<f32> from, Out<f32> out, Val<u32> vectors) {
  k.block(kThreads);
  const auto zero = RegGroup<f32, 4>::splat(Val<f32>(0.f));
  const auto sum =
      k.loop(range(k.tid_x(), vectors, Val<u32>(kThreads)), zero, [&](Val<u32> i, RegGroup<f32, 4> s) {
        const auto v = from.template ld<4>(i);
        return s.zip(v, [](Val<f32> a, Val<f32> b) { return a + b; });
      });
  out.st(k.ctaid_x() * std::uint32_t(kThreads) + k.tid_x(), sum[0] + sum[1] + sum[2] + sum[3]);
}

const Variant& ladder32() {
  static const Variant v = variant("ceiling_fma_f32", 75, ladder_kernel<f32>);
  return v;
}
const Variant& ladder64() {
  static const Variant v = variant("ceiling_fma_f64", 75, ladder_kernel<f64>);
  return v;
}
const Variant& copying() {
  static const Variant v = variant("ceiling_copy", 75, copy_kernel);
  return v;
}
const Variant& reading() {
  static const Variant v = variant("ceiling_read", 75, read_kernel);
  return v;
}

/// Shortest of several launches: a ceiling is a maximum.
double best_seconds(const runtime::Device& device, int launches,
                    const std::function<void(runtime::Stream&)>& work) {
  const prof::Contender contender{"ceiling", work};
  prof::CompareOptions o;
  o.rounds = launches;
  o.cold_l2 = false;
  return prof::compare(device, {&contender, 1}, o).at(0).summary.min * 1e-3;
}

template <class T>
Ceiling ladder(const runtime::Device& device, const Variant& v, const char* name, std::uint32_t rounds,
               int launches) {
  const std::uint32_t blocks = std::uint32_t(device.info().sm_count) * 8;
  auto out = device.alloc<T>(std::size_t(blocks) * kThreads);
  const double s = best_seconds(device, launches, [&](runtime::Stream& stream) {
    kernels::load(device, v)(stream, runtime::Dim3{blocks, 1, 1}, out, rounds);
  });
  const double operations = 2.0 * blocks * kThreads * kChains * kUnrolled * rounds;
  return {name,
          false,
          operations / s * 1e-12,
          text::cat(kChains, " chains of ", kUnrolled * rounds, " fused multiply-adds in ", blocks * kThreads,
                    " threads"),
          {}};
}

Ceiling copy_bandwidth(const runtime::Device& device, int launches) {
  const std::size_t n = std::min<std::uint64_t>(device.memory().free_bytes / 4, 4ull << 30) / 4 / 1024 * 1024;
  auto a = device.alloc<float>(n), b = device.alloc<float>(n);
  device.stream().fill(a.all().region(), 0);
  const std::uint32_t blocks = std::uint32_t(device.info().sm_count) * 32;
  const double s = best_seconds(device, launches, [&](runtime::Stream& stream) {
    kernels::load(device, copying())(stream, runtime::Dim3{blocks, 1, 1}, a, b, std::uint64_t(n));
  });
  return {"HBM copy",
          true,
          8.0 * double(n) / s * 1e-9,
          text::cat("copy of ", text::bytes(n * 4), ", both directions"),
          {}};
}

Ceiling l2_bandwidth(const runtime::Device& device, int launches) {
  const std::size_t n = 4u << 20;  // 16 MiB: in every L2 of the table, beyond every L1
  auto a = device.zeros<float>(n);
  const std::uint32_t blocks = std::uint32_t(device.info().sm_count) * 8;
  auto out = device.alloc<float>(std::size_t(blocks) * kThreads);
  const double s = best_seconds(device, launches, [&](runtime::Stream& stream) {
    kernels::load(device, reading())(stream, runtime::Dim3{blocks, 1, 1}, a, out, std::uint32_t(n / 4));
  });
  return {"L2 read",
          true,
          4.0 * double(n) * blocks / s * 1e-9,
          text::cat("16 MiB read by each of ", blocks, " blocks"),
          {}};
}

/// The best product of this library: what its tensor cores are known to reach.
Ceiling tensor(const runtime::Device& device, const std::string& type, int launches) {
  const auto& gemm = kernels::find_kernel("gemm");
  kernels::Options o("gemm", gemm.options);
  for (const char* size : {"m", "n", "k"}) o.set(size, "8192");
  const std::string name = type + " tensor";
  try {
    o.set("dtype", type);
    o.set("layout", "nt");
    const auto problem = gemm.prepare(device, o, {}, 1);
    const double s =
        best_seconds(device, launches, [&](runtime::Stream& stream) { problem->launch(stream); });
    return {name,
            false,
            problem->flops / s * 1e-12,
            "gemm 8192 of this library, " + problem->variant + ", random data",
            {}};
  } catch (const Error& e) {
    return {name, false, 0, {}, e.rule()};
  }
}

template <class T>
std::string check_ladder(const runtime::Device& device, const Variant& v) {
  auto out = device.zeros<T>(kThreads);
  kernels::load(device, v)(device.stream(), runtime::Dim3{1, 1, 1}, out, std::uint32_t(10));
  device.stream().wait();
  for (T x : out.to_vector())
    if (!(std::fabs(double(x) - 2.0 * kChains) < 1e-3))
      return text::cat(v.name, ": 80 steps of x / 2 + 1 must come near 2 in each chain, the sum is ",
                       double(x));
  return {};
}

}  // namespace

std::vector<Variant> ceiling_variants() { return {ladder32(), ladder64(), copying(), reading()}; }

std::string check_ceiling_kernels(const runtime::Device& device) {
  if (auto wrong = check_ladder<float>(device, ladder32()); !wrong.empty()) return wrong;
  if (auto wrong = check_ladder<double>(device, ladder64()); !wrong.empty()) return wrong;
  std::vector<float> host(4096);
  double total = 0;
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = float(i % 17), total += host[i];
  auto a = device.upload<float>(host), b = device.zeros<float>(host.size()),
       sums = device.zeros<float>(kThreads);
  kernels::load(device, copying())(device.stream(), runtime::Dim3{2, 1, 1}, a, b, std::uint64_t(host.size()));
  kernels::load(device, reading())(device.stream(), runtime::Dim3{1, 1, 1}, a, sums,
                                   std::uint32_t(host.size() / 4));
  device.stream().wait();
  if (b.to_vector() != host) return "ceiling_copy: the copy differs";
  double got = 0;
  for (float x : sums.to_vector()) got += x;
  return got == total ? "" : text::cat("ceiling_read: the sum is ", got, ", not ", total);
}

std::vector<Ceiling> gpu_ceilings(const runtime::Device& device, int launches) {
  if (device.is_emulator())
    throw Unsupported(ErrorText{"ceilings of a GPU are measured on a GPU",
                                {},
                                "the emulator has no clock",
                                "cgp roofline --device NAME takes the data sheet"});
  std::vector<Ceiling> out;
  out.push_back(copy_bandwidth(device, launches));
  out.push_back(l2_bandwidth(device, launches));
  out.push_back(ladder<float>(device, ladder32(), "fp32 FMA", 4096, launches));
  out.push_back(ladder<double>(device, ladder64(), "fp64 FMA", 1024, launches));
  for (const char* type : {"bf16", "f16"}) out.push_back(tensor(device, type, launches));
  return out;
}

}  // namespace cgp::cli
