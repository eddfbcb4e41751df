// SPDX-License-Identifier: Apache-2.0
// gemm with K in slices that are reduced in f32, for few tiles of long K: results in f32, and 8-bit floats
// that accumulate in the tensor cores. The error of an accumulator grows with K: with its root in fp32 registers,
// in proportion in the tensor cores, which truncate. Slices err less, and their tiles fill the device.
//   who      the kernel that runs the problem, each slice a batch of it; then a thread for each element of C
//   memory   f32 partial sums of the slices in scratch memory of the stream; operands that TMA cannot address
//            are copied there first
//   order    slices are added in the order of K, what each addition rounds off at the end: the same bits every
//            time
//   needs    one batch, no scales, no epilogue
#include "cgp/kernels/gemm/workspace/gemm_split_k_f32.h"

#include <algorithm>
#include <limits>

#include "cgp/base/text.h"
#include "cgp/kernels/gemm/select/gemm_calibration.h"
#include "cgp/kernels/gemm/workspace/gemm_arrange.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr std::uint64_t kMostElements = 0x7fffffff;

std::uint64_t up(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

struct ReduceF32Config {
  DType c = DType::f32;
  template <class Self, class V>
  static void visit(Self& config, V& v) {
    v.type("c", "", config.c);
  }
};

// partials [slices][m][pitch]
template <class T>
void gemm_split_k_reduce_f32_kernel(Kernel& k, ReduceF32Config, In<f32> partials, InOut<T> c,
                                    Val<u64> elements, Val<u32> n, Val<u32> pitch, Val<u64> stride,
                                    Val<u64> ldc, Val<u32> slices, Val<f32> alpha, Val<f32> beta) {
  k.block(256);
  k.grid_stride(elements, [&](ThreadIndex64 i) {
    const auto index = to<u32>(Val<u64>(i)), row = index / n, col = index % n;
    const auto from = partials.at(to<u64>(row) * to<u64>(pitch) + to<u64>(col));
    const auto [sum, lost] = k.loop(
        range(Val<u32>(1), slices), std::pair{from.ld(0), Val<f32>(0.f)}, [&](Val<u32> part, auto held) {
          const auto& [so_far, rounded] = held;
          const auto x = from.ld(to<u64>(part) * stride), next = so_far + x, back = next - so_far;
          return std::pair{next, rounded + ((so_far - (next - back)) + (x - back))};
        });
    const auto finite = dsl::abs(sum) < std::numeric_limits<float>::infinity();
    const auto product = alpha * select(finite, sum + lost, sum);
    const auto to_c = c.at(to<u64>(row) * ldc + to<u64>(col));
    const auto old = to<f32>(to_c.ld_if(beta != 0.f, 0, Val<T>(0.f))[0]);
    to_c.st(0, to<T>(select(beta != 0.f, fma(beta, old, product), product)));
  });
}

bool in_tensor_cores(const GemmProblem& p, const runtime::DeviceInfo& d) {
  return d.arch == "sm_90a" && p.type != DType::s8 &&
         (bytes(p.type) == 2 || p.precision == GemmPrecision::fast);
}

// Elements of K of each slice but the last, which may be shorter.
std::uint64_t depth_of(const GemmProblem& p, int slices) {
  const auto n = std::uint64_t(slices);
  return p.k % (16 * n) == 0 ? p.k / n : up(up(p.k, n), 64) * 64;
}

// `count` slices from one on, as batches.
GemmProblem slices_as_batches(const GemmProblem& p, std::uint64_t depth, std::uint64_t count) {
  GemmProblem q = p;
  q.type_c = DType::f32, q.alpha = 1, q.beta = 0, q.k = depth, q.batch = count;
  q.stride_a = p.trans_a ? depth * p.lda : depth, q.stride_b = p.trans_b ? depth : depth * p.ldb;
  q.ldc = up(p.n, 4) * 4, q.stride_c = p.m * q.ldc;
  return q;
}

// Whether fused multiply-adds in slices take less time than f32 as three bf16 as a whole, whose
// blocks walk over all of K: measured are 1.2 us for 64 of K and 0.04 for each other tile, and some 35
// TFLOP/s.
bool chains_are_faster(const GemmProblem& p, std::uint64_t slices, const runtime::DeviceInfo& d) {
  const auto& m = gemm_calibration(d).slices;
  const double sms = gemm_sms(d);
  const double tiles = double(up(p.m, 128) * up(p.n, 64)), blocks = double(up(p.m, 128) * up(p.n, 128));
  if (tiles > sms / 2) return false;
  const double tensor = double(up(p.k, 64)) * (m.tensor_step + m.tensor_tile * tiles);
  const double chains = m.launch + blocks * 32768 * double(p.k) / m.products_per_us *
                                       std::max(1., 2 * sms / (blocks * double(slices)));
  return chains < tensor;
}

// An operand with its K contiguous and in whole groups of 16 bytes, in scratch memory if it is not so.
struct Arranged {
  GemmMatrix from, to{};
  bool copied = false;
  std::uint64_t bytes = 0;
};
Arranged arranged(const GemmMatrix& from, std::uint64_t element) {
  Arranged o{from};
  o.copied = from.address % 16 || from.ld * element % 16 || (element != 2 && from.transposed);
  if (!o.copied) return o;
  const auto ld = up(from.cols * element, 128) * 128 / element;
  o.to = {0, from.rows, from.cols, ld, ld * from.rows, false};
  o.bytes = up(o.to.stride * element, 256) * 256;
  return o;
}

}  // namespace

Variant gemm_split_k_reduce_f32(DType c) {
  constexpr std::string_view family = "gemm_split_k_reduce_f32";
  const ReduceF32Config config{c};
  return c == DType::f32   ? config_variant(family, config, 75, gemm_split_k_reduce_f32_kernel<f32>)
         : c == DType::f16 ? config_variant(family, config, 75, gemm_split_k_reduce_f32_kernel<f16>)
                           : config_variant(family, config, 80, gemm_split_k_reduce_f32_kernel<bf16>);
}

int gemm_f32_split_k(const GemmProblem& p, const runtime::DeviceInfo& d) {
  if (p.batch != 1 || p.scaling != GemmScaling::none || !p.epilogue.empty() || bytes(*p.type_c) == 1)
    return 1;
  // Rounding results of 16 bits costs more than accumulating as many does.
  if (bytes(p.type) != 1 && p.type_c != DType::f32) return 1;
  if (!p.m || !p.n || p.m * p.n > kMostElements || p.m > kMostElements || p.n > kMostElements) return 1;
  const bool tensor = in_tensor_cores(p, d);
  if (!tensor && (p.type != DType::f32 || p.precision == GemmPrecision::fast)) return 1;
  // Partial sums are written and read: in half of the time that the operands take, or a microsecond.
  const double operands = double(bytes(p.type)) * double(p.k) * (double(p.m) + double(p.n)),
               room = std::max(operands / 2, 4e6) / (8.0 * double(p.m) * double(p.n));
  std::uint64_t most = 1;
  if (tensor) {  // one wave of tiles of 64 x 128
    const auto sms = std::uint64_t(gemm_sms(d));
    most = std::min(sms / (up(p.m, 64) * up(p.n, 128)), p.k / 256);
  } else {
    most = std::min({p.k / 32, std::max<std::uint64_t>(8, p.k / 128), std::uint64_t(256)});
  }
  auto slices = std::min(most, std::uint64_t(room));
  if (slices < 2 || (!tensor && prefers_mixed_gemm(p, d) && !chains_are_faster(p, slices, d))) return 1;
  for (auto n = slices; n > slices / 2 && n > 1; --n)
    if (p.k % (16 * n) == 0) return int(n);
  return int(up(p.k, depth_of(p, int(slices))));
}

GemmChoice choose_f32_split_k(const GemmProblem& p, const GemmAddresses& at, const runtime::DeviceInfo& d,
                              int slices) {
  auto each = slices_as_batches(p, depth_of(p, slices), std::uint64_t(slices));
  if (in_tensor_cores(p, d)) {
    const auto element = std::uint64_t(bytes(p.type));
    const auto a = arranged({at.a, p.m, p.k, p.lda, 0, p.trans_a}, element),
               b = arranged({at.b, p.n, p.k, p.ldb, 0, !p.trans_b}, element);
    if (a.copied) each.trans_a = false, each.lda = a.to.ld, each.stride_a = each.k;
    if (b.copied) each.trans_b = true, each.ldb = b.to.ld, each.stride_b = each.k;
  }
  auto c = in_tensor_cores(p, d) ? select_gemm(each, {.padded_ldc = true}, d)
                                 : GemmChoice{GemmFamily::simt, gemm_simt(p.type, p.trans_a, p.trans_b),
                                              "fp32 fused multiply-adds"};
  c.split_k = slices;
  c.why = text::cat("K in ", slices, " slices that are reduced in f32; ", c.why);
  return c;
}

namespace {

// What a product of slices has in scratch memory: the partial sums, then operands that were copied.
struct SlicedOperands {
  Arranged a, b;
  std::uint64_t depth, slices, pitch, partial_bytes;
  std::uint64_t bytes() const { return partial_bytes + a.bytes + b.bytes; }
};
SlicedOperands sliced(const GemmProblem& p, const GemmAddresses& at, int split_k,
                      const runtime::DeviceInfo& d) {
  const auto element = std::uint64_t(bytes(p.type));
  SlicedOperands o{
      {{at.a, p.m, p.k, p.lda, 0, p.trans_a}}, {{at.b, p.n, p.k, p.ldb, 0, !p.trans_b}}, 0, 0, 0, 0};
  if (in_tensor_cores(p, d)) o.a = arranged(o.a.from, element), o.b = arranged(o.b.from, element);
  o.depth = depth_of(p, split_k), o.slices = up(p.k, o.depth), o.pitch = up(p.n, 4) * 4;
  o.partial_bytes = up(o.slices * p.m * o.pitch * sizeof(float), 256) * 256;
  return o;
}

}  // namespace

std::uint64_t f32_split_k_scratch(const GemmChoice& choice, const GemmProblem& p, const GemmAddresses& at,
                                  const runtime::DeviceInfo& d) {
  return sliced(p, at, choice.split_k, d).bytes();
}

void run_f32_split_k(runtime::Stream& s, const GemmChoice& choice, const GemmProblem& p,
                     const GemmAddresses& at) {
  auto o = sliced(p, at, choice.split_k, s.device().info());
  const auto element = std::uint64_t(bytes(p.type)), rest = p.k % o.depth;
  GemmProblem q = p;
  GemmAddresses there = at;
  if (o.a.copied) {
    o.a.to.address = there.a = at.c + o.partial_bytes;
    run_gemm_arrange(s, o.a.from, o.a.to, int(element), false, 1);
    q.trans_a = false, q.lda = o.a.to.ld;
  }
  if (o.b.copied) {
    o.b.to.address = there.b = at.c + o.partial_bytes + o.a.bytes;
    run_gemm_arrange(s, o.b.from, o.b.to, int(element), false, 1);
    q.trans_b = true, q.ldb = o.b.to.ld;
  }
  GemmChoice each = choice;
  each.split_k = 1;
  auto many = slices_as_batches(q, o.depth, p.k / o.depth);
  run_gemm(s, each, many, there);
  if (!rest) return;
  there.a += many.batch * many.stride_a * element, there.b += many.batch * many.stride_b * element;
  there.c += many.batch * many.stride_c * sizeof(float);
  many.k = rest, many.batch = 1;
  run_gemm(s, each, many, there);
}

void run_gemm_split_k_reduce_f32(runtime::Stream& s, const GemmProblem& p, std::uint64_t c,
                                 std::uint64_t partials, int split_k) {
  const auto slices = up(p.k, depth_of(p, split_k)), pitch = up(p.n, 4) * 4;
  const auto word = [](std::uint64_t v) { return std::uint32_t(v); };
  load(s.device(), gemm_split_k_reduce_f32(*p.type_c))(
      s, runtime::grid_for(p.m * p.n, 256), runtime::Arg::address(partials), runtime::Arg::address(c),
      p.m * p.n, word(p.n), word(pitch), p.m * pitch, p.ldc, word(slices), p.alpha, p.beta);
}

}  // namespace cgp::kernels
