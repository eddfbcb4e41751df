// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/kernel/gpu_ceilings.h"

#include <algorithm>
#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/core/arith.h"
#include "cgp/dsl/core/convert.h"
#include "cgp/dsl/mma/mma.h"
#include "cgp/kernels/bench/operands.h"
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/kernels/gemm/select/gemm_table.h"
#include "cgp/profile/measure/compare.h"
#include "cgp/profile/roofline/peaks.h"
#include "cgp/runtime/buffer.h"

namespace cgp::profile {
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
  static_assert(kChains == 8 && kUnrolled == 8);
  const auto sum = ((last[0] + last[1]) + (last[2] + last[3])) + ((last[4] + last[5]) + (last[6] + last[7]));
  out.st(k.ctaid_x() * std::uint32_t(kThreads) + k.tid_x(), sum);
}

constexpr int kProducts = 4;  ///< of 16 x 8 x 16, each into a block of sums of its own

/// Tensor cores in fp64: every row of A times columns of ones, so that the sum of all results needs no
/// layout: 8 columns times the elements of A, once for each block of a row and each round.
void tensor64_kernel(Kernel& k, Out<f64> out, Val<u32> rounds) {
  k.block(kThreads);
  Warp w = k.warp();
  std::vector<FragA<f64, 16, 16>> a;
  for (std::uint32_t block = 0; block < 2; ++block) {
    std::vector<Value> regs;
    for (std::uint32_t i = 0; i < 8; ++i) regs.push_back(to<f64>(k.tid_x() + (8 * block + i)));
    a.emplace_back(std::move(regs));
  }
  const std::vector<FragB<f64, 16, 8>> b(2, FragB<f64, 16, 8>(std::vector<Value>(4, Val<f64>(1.0f))));
  auto sums = k.loop(rounds, zeros<f64, 32, 16>(w),
                     [&](Val<u32>, WarpAcc<f64, 32, 16> acc) { return multiply(w, std::move(acc), a, b); });
  std::vector<Val<f64>> all{Val<f64>(0.0f)};
  std::move(sums).each_pair(
      w, [&](Val<u32>, Val<u32>, Val<f64> x, Val<f64> y) { all.push_back(all.back() + (x + y)); });
  out.st(k.ctaid_x() * std::uint32_t(kThreads) + k.tid_x(), all.back());
}

using Vec = RegGroup<f32, 4>;
constexpr std::uint32_t kRead = 16;  ///< vectors of 16 bytes of each thread, a block's side by side
constexpr int kCopyThreads = 128;

Vec added(const Vec& a, const Vec& b) {
  return a.zip(b, [](Val<f32> x, Val<f32> y) { return x + y; });
}
Val<f32> total(const Vec& v) { return (v[0] + v[1]) + (v[2] + v[3]); }

/// Small blocks of one vector a thread: of an H200's memory 4300 GB/s, with four vectors a thread 4090.
void copy_kernel(Kernel& k, In<f32> from, Out<f32> into) {
  k.block(kCopyThreads);
  const auto i = to<u64>(k.ctaid_x()) * std::uint64_t(kCopyThreads) + to<u64>(k.tid_x());
  into.template st<4>(i, from.template ld<4>(i));
}

/// Reads everything once; a sum of each thread keeps the loads.
void read_kernel(Kernel& k, In<f32> from, Out<f32> out) {
  k.block(kThreads);
  const auto first = to<u64>(k.ctaid_x()) * std::uint64_t(kThreads * kRead) + to<u64>(k.tid_x());
  std::vector<Vec> v;
  for (std::uint32_t j = 0; j < kRead; ++j)
    v.push_back(from.template ld<4>(first + std::uint64_t(j * kThreads)));
  std::vector<Vec> sums{v[0]};
  for (std::uint32_t j = 1; j < kRead; ++j) sums.push_back(added(sums.back(), v[j]));
  out.st(to<u64>(k.ctaid_x()) * std::uint64_t(kThreads) + to<u64>(k.tid_x()), total(sums.back()));
}

/// Every block reads the whole array (its vectors are a power of two), each from another place on, so that
/// the blocks of an SM find nothing of each other in L1.
void cached_kernel(Kernel& k, In<f32> from, Out<f32> out, Val<u32> vectors) {
  k.block(kThreads);
  constexpr std::uint32_t kEach = 4;
  const auto begin = k.tid_x() + k.ctaid_x() * std::uint32_t(kThreads * 61);
  const auto sum =
      k.loop(vectors / std::uint32_t(kThreads * kEach), Vec::splat(Val<f32>(0.f)), [&](Val<u32> i, Vec s) {
        const auto at = begin + i * std::uint32_t(kThreads * kEach);
        std::vector<Vec> v;
        for (std::uint32_t j = 0; j < kEach; ++j)
          v.push_back(from.template ld<4>((at + std::uint32_t(j * kThreads)) & (vectors - 1u)));
        return added(s, added(added(v[0], v[1]), added(v[2], v[3])));
      });
  out.st(k.ctaid_x() * std::uint32_t(kThreads) + k.tid_x(), total(sum));
}

constexpr std::uint32_t kTileVectors = 1024, kSharedReads = 8;

/// 16 bytes a thread without conflicts; the place moves on, so that nothing stays in registers.
void shared_kernel(Kernel& k, Out<f32> out, Val<u32> rounds) {
  k.block(kThreads);
  const auto tile = k.shared<f32>((kTileVectors + 32 * kSharedReads) * 4);
  k.loop(range(k.tid_x(), Val<u32>((kTileVectors + 32 * kSharedReads) * 4), Val<u32>(kThreads)),
         [&](Val<u32> i) { tile.st(i, Val<f32>(1.f)); });
  k.sync();
  const auto sum = k.loop(rounds, Vec::splat(Val<f32>(0.f)), [&](Val<u32> i, Vec s) {
    const auto at = (k.tid_x() + i * 32u) & (kTileVectors - 1);
    std::vector<Vec> sums{s};
    for (std::uint32_t j = 0; j < kSharedReads; ++j)
      sums.push_back(added(sums.back(), tile.template ld<4>(at + j * 32u)));
    return sums.back();
  });
  out.st(k.ctaid_x() * std::uint32_t(kThreads) + k.tid_x(), total(sum));
}

const Variant& ladder32() {
  static const Variant v = variant("ceiling_fma_f32", 75, ladder_kernel<f32>);
  return v;
}
const Variant& ladder64() {
  static const Variant v = variant("ceiling_fma_f64", 75, ladder_kernel<f64>);
  return v;
}
const Variant& tensor64() {
  static const Variant v = variant("ceiling_mma_f64", 90, tensor64_kernel);
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
const Variant& cached() {
  static const Variant v = variant("ceiling_cached", 75, cached_kernel);
  return v;
}
const Variant& in_shared() {
  static const Variant v = variant("ceiling_shared", 75, shared_kernel);
  return v;
}

/// Shortest of several launches: a ceiling is a maximum.
double best_seconds(const runtime::Device& device, int launches,
                    const std::function<void(runtime::Stream&)>& work) {
  const measure::Contender contender{"ceiling", work};
  measure::CompareOptions o;
  o.rounds = launches;
  o.cold_l2 = false;
  return measure::compare(device, {&contender, 1}, o).at(0).summary.min * 1e-3;
}

/// `flops` are those of one thread in one round.
template <class T>
Ceiling in_registers(const runtime::Device& device, const Variant& v, const char* name, double flops,
                     std::uint32_t rounds, const char* how, int launches) {
  const std::uint32_t blocks = std::uint32_t(device.info().sm_count) * 8;
  if (const std::string why = kernels::reject(v, device.info().arch); !why.empty())
    return {name, false, 0, {}, why};
  auto out = device.alloc<T>(std::size_t(blocks) * kThreads);
  const double s = best_seconds(device, launches, [&](runtime::Stream& stream) {
    kernels::load(device, v)(stream, runtime::Dim3{blocks, 1, 1}, out, rounds);
  });
  return {name,
          false,
          flops * rounds * blocks * kThreads / s * 1e-12,
          text::cat(rounds, " rounds of ", how, " in ", blocks * kThreads, " threads"),
          {}};
}

template <class T>
Ceiling ladder(const runtime::Device& device, const Variant& v, const char* name, std::uint32_t rounds,
               int launches) {
  return in_registers<T>(device, v, name, 2.0 * kChains * kUnrolled, rounds,
                         "8 fused multiply-adds in each of 8 chains", launches);
}

/// Floats of an array for bandwidth: 4 GiB, or a quarter of what is free, in whole blocks of both kernels.
std::size_t large(const runtime::Device& device) {
  constexpr std::size_t kWhole = std::size_t(kThreads) * kRead * 4;
  return std::min<std::uint64_t>(device.memory().free_bytes / 4, 4ull << 30) / 4 / kWhole * kWhole;
}

Ceiling copy_bandwidth(const runtime::Device& device, int launches) {
  const std::size_t n = large(device);
  auto a = device.alloc<float>(n), b = device.alloc<float>(n);
  device.stream().fill(a.all().region(), 0);
  const double s = best_seconds(device, launches, [&](runtime::Stream& stream) {
    kernels::load(device, copying())(stream, runtime::Dim3{std::uint32_t(n / (4 * kCopyThreads)), 1, 1}, a,
                                     b);
  });
  return {"HBM copy",
          true,
          8.0 * double(n) / s * 1e-9,
          text::cat("copy of ", text::bytes(n * 4), ", both directions"),
          {}};
}

Ceiling read_bandwidth(const runtime::Device& device, int launches) {
  const std::size_t n = large(device);
  auto a = device.alloc<float>(n), out = device.alloc<float>(n / kRead / 4);
  device.stream().fill(a.all().region(), 0);
  const double s = best_seconds(device, launches, [&](runtime::Stream& stream) {
    kernels::load(device, reading())(stream, runtime::Dim3{std::uint32_t(n / (kThreads * kRead * 4)), 1, 1},
                                     a, out);
  });
  return {"HBM read",
          true,
          4.0 * double(n + n / kRead / 4) / s * 1e-9,
          text::cat(text::bytes(n * 4), " read once, a 64th of it written"),
          {}};
}

Ceiling l2_bandwidth(const runtime::Device& device, int launches) {
  const std::size_t n = 4u << 20;  // 16 MiB: in every L2 of the table, beyond every L1
  auto a = device.zeros<float>(n);
  const std::uint32_t blocks = std::uint32_t(device.info().sm_count) * 8;
  auto out = device.alloc<float>(std::size_t(blocks) * kThreads);
  const double s = best_seconds(device, launches, [&](runtime::Stream& stream) {
    kernels::load(device, cached())(stream, runtime::Dim3{blocks, 1, 1}, a, out, std::uint32_t(n / 4));
  });
  return {"L2 read",
          true,
          4.0 * double(n) * blocks / s * 1e-9,
          text::cat("16 MiB read by each of ", blocks, " blocks, each from another place on"),
          {}};
}

Ceiling shared_bandwidth(const runtime::Device& device, int launches) {
  const std::uint32_t blocks = std::uint32_t(device.info().sm_count) * 8, rounds = 4096;
  auto out = device.alloc<float>(std::size_t(blocks) * kThreads);
  const double s = best_seconds(device, launches, [&](runtime::Stream& stream) {
    kernels::load(device, in_shared())(stream, runtime::Dim3{blocks, 1, 1}, out, rounds);
  });
  return {"shared memory",
          true,
          16.0 * kSharedReads * rounds * blocks * kThreads / s * 1e-9,
          text::cat("16 bytes a thread without conflicts, ", blocks, " blocks"),
          {}};
}

/// The best product of this library: what its tensor cores are known to reach.
Ceiling tensor(const runtime::Device& device, const char* name, const char* type, int launches) {
  Ceiling best{name, false, 0, {}, {}};
  kernels::RandomOperands random(device);
  for (const char* size : {"8192x8192x8192", "4096x4096x4096"}) try {
      const auto p = kernels::parse_gemm_key(text::cat(type, "/nt/", size));
      const auto a = random(p.type, p.a_elements(), 1), b = random(*p.type_b, p.b_elements(), 2);
      const runtime::Buffer<std::uint8_t> c(device, p.c_elements() * std::uint64_t(bytes(*p.type_c)));
      const kernels::GemmAddresses at{a.address(), b.address(), c.address(), 0, 0};
      const auto choice =
          kernels::select_gemm(p, at, device.info(), kernels::GemmTable::shipped(device.info()));
      const double s = best_seconds(
          device, launches, [&](runtime::Stream& stream) { kernels::run_gemm(stream, choice, p, at); });
      const double rate = p.flops() / s * 1e-12;
      if (rate <= best.value) continue;
      best.value = rate;
      best.how = text::cat("gemm ", size, " of this library, ", choice.variant.name, ", random data");
    } catch (const Error& e) {
      if (best.value == 0) best.absent = e.rule();
    }
  if (best.value > 0) best.absent.clear();
  return best;
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

std::vector<Variant> ceiling_variants() {
  return {ladder32(), ladder64(), tensor64(), copying(), reading(), cached(), in_shared()};
}

std::string check_ceiling_kernels(const runtime::Device& device) {
  if (auto wrong = check_ladder<float>(device, ladder32()); !wrong.empty()) return wrong;
  if (auto wrong = check_ladder<double>(device, ladder64()); !wrong.empty()) return wrong;
  if (kernels::reject(tensor64(), device.info().arch).empty()) {
    auto out = device.zeros<double>(kThreads);
    kernels::load(device, tensor64())(device.stream(), runtime::Dim3{1, 1, 1}, out, std::uint32_t(10));
    device.stream().wait();
    double got = 0, want = 0;
    for (double x : out.to_vector()) got += x;
    for (int i = 0; i < 16 * kThreads; ++i) want += 10.0 * 16 * (i / 16 + i % 16);
    if (got != want) return text::cat("ceiling_mma_f64: the sum is ", got, ", not ", want);
  }
  std::vector<float> host(std::size_t(kThreads) * kRead * 4);
  double total = 0;
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = float(i % 17), total += host[i];
  auto a = device.upload<float>(host), b = device.zeros<float>(host.size()),
       sums = device.zeros<float>(kThreads);
  const auto sum_of = [&] {
    device.stream().wait();
    double got = 0;
    for (float x : sums.to_vector()) got += x;
    return got;
  };
  auto& stream = device.stream();
  kernels::load(device, copying())(
      stream, runtime::Dim3{std::uint32_t(host.size() / (4 * kCopyThreads)), 1, 1}, a, b);
  stream.wait();
  if (b.to_vector() != host) return "ceiling_copy: the copy differs";
  kernels::load(device, reading())(stream, runtime::Dim3{1, 1, 1}, a, sums);
  if (const double got = sum_of(); got != total)
    return text::cat("ceiling_read: the sum is ", got, ", not ", total);
  kernels::load(device, cached())(stream, runtime::Dim3{1, 1, 1}, a, sums, std::uint32_t(host.size() / 4));
  if (const double got = sum_of(); got != total)
    return text::cat("ceiling_cached: the sum is ", got, ", not ", total);
  kernels::load(device, in_shared())(stream, runtime::Dim3{1, 1, 1}, sums, std::uint32_t(40));
  const double ones = 40.0 * kSharedReads * 4 * kThreads;
  if (const double got = sum_of(); got != ones)
    return text::cat("ceiling_shared: the sum is ", got, ", not ", ones);
  return {};
}

namespace {

void require_clock(const runtime::Device& device) {
  if (device.is_emulator())
    throw Unsupported(ErrorText{"ceilings of a GPU are measured on a GPU",
                                {},
                                "the emulator has no clock",
                                "cgp roofline --device NAME takes the data sheet"});
}

}  // namespace

Ceiling memory_ceiling(const runtime::Device& device, int launches) {
  require_clock(device);
  const Ceiling copy = copy_bandwidth(device, launches), read = read_bandwidth(device, launches);
  return copy.value > read.value ? copy : read;
}

void add_ceilings(const std::string& device, const std::string& type, const std::optional<Ceiling>& memory,
                  measure::MetricSet& into) {
  using measure::Metric;
  using measure::Source;
  const auto* peaks = device_peaks(device);
  const std::string missing = text::cat(device, " is not in the table of devices: cgp roofline measures it");
  if (const double peak = peaks ? peaks->peak(type) : 0; peak > 0)
    into.set(Metric::peak_compute_tflops, peak, Source::declared,
             text::cat("data sheet of the ", peaks->name, ", ", type));
  else if (!peaks)
    into.absent(Metric::peak_compute_tflops, missing);
  if (memory)
    into.set(Metric::peak_bandwidth_gbps, memory->value, Source::measured,
             text::cat(memory->name, ", measured beside the kernel: ", memory->how));
  else if (peaks)
    into.set(Metric::peak_bandwidth_gbps, peaks->memory_gbps, Source::declared,
             text::cat("data sheet of the ", peaks->name, ", not measured"));
  else
    into.absent(Metric::peak_bandwidth_gbps, missing);
}

double fma_ladder(runtime::Stream& s, const runtime::Device& device, runtime::Buffer<float>& out,
                  std::uint32_t rounds) {
  kernels::load(device, ladder32())(s, runtime::Dim3{std::uint32_t(out.size() / kThreads), 1, 1}, out,
                                    rounds);
  return 2.0 * kChains * kUnrolled * rounds * double(out.size());
}

void add_gpu_memory(std::uint64_t total_bytes, std::uint64_t free_bytes, measure::MetricSet& into) {
  using measure::Metric;
  for (Metric total : {Metric::vram_total_mb, Metric::gpu_memory_total_mb})
    into.set(total, double(total_bytes) * 1e-6, measure::Source::counted, "the driver");
  for (Metric used : {Metric::vram_used_mb, Metric::gpu_memory_used_mb})
    into.set(used, double(total_bytes - free_bytes) * 1e-6, measure::Source::counted, "the driver");
  into.set(Metric::vram_free_mb, double(free_bytes) * 1e-6, measure::Source::counted, "the driver");
}

std::vector<Ceiling> gpu_ceilings(const runtime::Device& device, int launches) {
  require_clock(device);
  std::vector<Ceiling> out;
  out.push_back(copy_bandwidth(device, launches));
  out.push_back(read_bandwidth(device, launches));
  out.push_back(l2_bandwidth(device, launches));
  out.push_back(shared_bandwidth(device, launches));
  out.push_back(ladder<float>(device, ladder32(), "fp32 FMA", 4096, launches));
  out.push_back(ladder<double>(device, ladder64(), "fp64 FMA", 1024, launches));
  out.push_back(in_registers<double>(device, tensor64(), "fp64 tensor", 2.0 * kProducts * 16 * 8 * 16 / 32,
                                     1024, "four mma.sync of 16 x 8 x 16", launches));
  for (const auto& [name, type] :
       {std::pair{"tf32 tensor", "f32:fast"}, std::pair{"bf16 tensor", "bf16"},
        std::pair{"f16 tensor", "f16"}, std::pair{"fp8 tensor", "e4m3:fast"}, std::pair{"int8 tensor", "s8"}})
    out.push_back(tensor(device, name, type, launches));
  return out;
}

}  // namespace cgp::profile
