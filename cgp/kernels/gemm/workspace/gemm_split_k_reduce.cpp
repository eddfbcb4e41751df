// SPDX-License-Identifier: Apache-2.0
// gemm sm90_split_k: for products with few tiles and long K, where clusters that split K do not fill the
// device. Each slice of K is a product of its own, into scratch memory; a second kernel adds them up.
//   who      the persistent kernel of gemm_mixed_dynamic_sm90.cpp, a block for each tile of each slice; then a
//            thread for each four neighbours of C
//   memory   slices are batches of one tensor map, K / slices apart; their partial sums are f32 in scratch memory of
//            the stream
//   sync     the second kernel starts early and waits for the first (griddepcontrol)
//   order    slices are added in the order of K: the same bits every time
//   needs    what gemm_sm90.cpp needs, one batch, and K of 8 elements times the slices
#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/sync/sync.h"
#include "cgp/kernels/gemm/api/gemm_tuning.h"
#include "cgp/kernels/gemm/epilogue/gemm_epilogue.h"
#include "cgp/kernels/gemm/select/gemm_calibration.h"
#include "cgp/kernels/gemm/sm90/gemm_dynamic_sm90.h"
#include "cgp/kernels/gemm/sm90/gemm_mixed_sm90.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr int kThreads = 256;

std::uint64_t up(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

struct SplitKReduceConfig {
  DType type = DType::bf16;  ///< of C
  int slices = 2;
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.type("type", "", c.type), v.number("slices", "slices", c.slices);
  }
};

// Partial sums are [slices][m][4 * quads].
template <class T>
void gemm_split_k_reduce_kernel(Kernel& k, SplitKReduceConfig config, In<f32> partials, InOut<T> c,
                                Val<u32> m, Val<u32> n, Val<u64> ldc, Val<f32> alpha, Val<f32> beta,
                                Val<u32> quads, Val<u32> paired) {
  k.block(kThreads);
  griddepcontrol_wait(k);
  const auto index = k.ctaid_x() * std::uint32_t(kThreads) + k.tid();
  const auto row = index / quads, col = index % quads * 4u;
  k.if_(row < m, [&] {
    const auto part = to<u64>(m) * to<u64>(quads);
    std::vector<RegGroup<f32, 4>> held;
    for (int i = 0; i < config.slices; ++i)
      held.push_back(partials.at((part * std::uint64_t(i) + to<u64>(index)) * 4u).template ld<4>());
    std::vector<Val<f32>> total;
    for (int j = 0; j < 4; ++j) {
      std::vector<Val<f32>> sum{held[0][j]};
      for (int i = 1; i < config.slices; ++i) sum.push_back(sum.back() + held[std::size_t(i)][j]);
      total.push_back(sum.back());
    }
    const GemmOutput<T> out{c, to<u64>(m), to<u64>(n), ldc, alpha, beta};
    const auto pairs = paired != 0u;
    for (std::uint32_t j = 0; j < 4; j += 2)
      out.put_pair(k, pairs, to<u64>(row), to<u64>(col + j), total[j], total[j + 1]);
  });
}

// The product of one slice, as a batch.
GemmProblem slices_of(const GemmProblem& p, int slices) {
  const auto depth = p.k / std::uint64_t(slices);
  GemmProblem q = p;
  q.type_c = DType::f32, q.alpha = 1, q.beta = 0, q.k = depth, q.batch = std::uint64_t(slices);
  q.stride_a = p.trans_a ? depth * p.lda : depth, q.stride_b = p.trans_b ? depth : depth * p.ldb;
  q.ldc = up(p.n, 4) * 4, q.stride_c = p.m * q.ldc;
  return q.dense();
}

GemmMixedTuning tile_of(const GemmProblem& p, int bm, int bn) {
  GemmMixedTuning t{.bm = bm, .bn = bn};
  const int columns = p.trans_b ? bn : (bn + 63) / 64 * 64;
  t.stages = std::min(8, (225 * 1024 - bm / 64 * t.buffers * 8192) / ((bm + columns) * 128));
  return t;
}

// Microseconds of the product and of the second kernel.
double predict_split_k(const GemmProblem& p, const GemmMixedTuning& t, int slices,
                       const GemmCalibration::SplitK& m) {
  const auto element = std::uint64_t(cgp::bytes(p.type));
  const auto rows = [&](int extent, std::uint64_t ld) {
    return extent * (element * ld % 128 ? m.misaligned_row : m.row);
  };
  const double area = double(t.bm) * t.bn / 32768, multiply = m.multiply * area,
               fetch = rows(t.bm, p.lda) + rows(t.bn, p.ldb), way = m.way / (t.stages - 1);
  const double step = std::max({multiply, fetch, way}) + m.overlap * std::min(multiply, fetch);
  const double partials = 8.0 * slices * double(p.m) * double(p.n);  // bytes written, and read again
  const double time = double(up(p.k / std::uint64_t(slices), 64)) * step + m.store * area + m.prologue;
  const double bytes = double(element) * (double(p.m) * double(p.k) + double(p.n) * double(p.k));
  return std::max(time, bytes / m.bytes_per_us + m.latency) + m.reduce + partials / m.partial_bytes_per_us;
}

}  // namespace

std::string reject_split_k_sm90(const GemmProblem& p, int slices) {
  if (p.batch != 1) return text::cat("batch = ", p.batch, ": slices of K are its batches");
  if (slices < 2 || p.k % (8 * std::uint64_t(slices)) != 0)
    return text::cat("k = ", p.k, " is not ", slices, " slices of a multiple of 16 bytes");
  if (p.m * up(p.n, 4) > 0x7fffffffull) return "more than 2^31 groups of four results";
  return {};
}

GemmChoice choose_split_k_sm90(const GemmProblem& q, int bm, int bn, int slices) {
  const GemmProblem p = q.dense();
  if (auto why = reject_split_k_sm90(p, slices); !why.empty()) throw Unsupported(std::move(why));
  const auto t = tile_of(p, bm, bn);
  GemmChoice c{GemmFamily::sm90_split_k, {}, {}, std::uint32_t(bn)};
  const GemmConfig config{.family = GemmFamily::sm90_split_k,
                          .a = p.type,
                          .c = DType::f32,
                          .layout = gemm_layout(p.trans_a, p.trans_b),
                          .tile_m = bm,
                          .tile_n = bn,
                          .tile_k = 64,
                          .stages = t.stages,
                          .split_k = slices};
  c.variant = {gemm_mixed_dynamic(slices_of(p, slices), print(config), {t, DType::f32, {}, false}), config};
  c.tile_m = std::uint32_t(bm), c.split_k = slices;
  return c;
}

std::vector<GemmChoice> gemm_split_k_candidates_sm90(const GemmProblem& q, const GemmAddresses& at,
                                                     const runtime::DeviceInfo& d) {
  const GemmProblem p = q.dense();
  std::vector<GemmChoice> out;
  if (!reject(GemmFamily::sm90_split_k, p, at, d).empty()) return out;
  const auto sms = std::uint64_t(gemm_sms(d));
  for (auto [bm, bn] : {std::pair{64, 64},
                        {64, 128},
                        {128, 64},
                        {128, 128},
                        {64, 256},
                        {128, 192},
                        {192, 128},
                        {128, 256},
                        {256, 128}}) {
    const auto tiles = up(p.m, std::uint64_t(bm)) * up(p.n, std::uint64_t(bn));
    if (tiles > sms / 2 || (bm > 64 && p.m <= std::uint64_t(bm) / 2) ||
        (bn > 64 && p.n <= std::uint64_t(bn) / 2))
      continue;
    // As many slices as fit one wave, each of at least 512 of K.
    for (int slices = 16, found = 0; slices >= 2 && found < 2; --slices)
      if (tiles * std::uint64_t(slices) <= sms && p.k >= 512 * std::uint64_t(slices) &&
          reject_split_k_sm90(p, slices).empty()) {
        out.push_back(choose_split_k_sm90(p, bm, bn, slices)), ++found;
        out.back().microseconds = predict_split_k(p, tile_of(p, bm, bn), slices, gemm_calibration(d).split_k);
      }
  }
  return out;
}

Variant gemm_split_k_reduce(DType t, int slices) {
  constexpr std::string_view family = "gemm_split_k_reduce";
  const SplitKReduceConfig config{t, slices};
  return t == DType::f16 ? config_variant(family, config, 90, gemm_split_k_reduce_kernel<f16>)
                         : config_variant(family, config, 90, gemm_split_k_reduce_kernel<bf16>);
}

std::uint64_t split_k_partial_bytes(const GemmProblem& p, int slices) {
  return std::uint64_t(slices) * p.m * up(p.n, 4) * 4 * sizeof(float);
}

void run_gemm_split_k(runtime::Stream& s, const GemmChoice& choice, const GemmProblem& p,
                      const GemmAddresses& at) {
  if (auto why = reject_split_k_sm90(p, choice.split_k); !why.empty()) throw Unsupported(std::move(why));
  GemmChoice product = choice;
  product.kind = GemmFamily::sm90_pingpong;
  run_mixed_gemm(s, product, slices_of(p, choice.split_k), at);
}

void run_gemm_split_k_reduce(runtime::Stream& s, const GemmProblem& p, std::uint64_t c,
                             std::uint64_t partials, int slices) {
  const auto quads = up(p.n, 4);
  const auto fn = load(s.device(), gemm_split_k_reduce(p.type, slices));
  const auto word = [](std::uint64_t v) { return runtime::arg(std::uint32_t(v)); };
  const bool paired = p.n % 2 == 0 && p.ldc % 2 == 0 && c % 4 == 0;
  const std::vector<runtime::Arg> args{runtime::Arg::address(partials),
                                       runtime::Arg::address(c),
                                       word(p.m),
                                       word(p.n),
                                       runtime::arg(p.ldc),
                                       runtime::arg(p.alpha),
                                       runtime::arg(p.beta),
                                       word(quads),
                                       word(paired)};
  fn.launch(s, runtime::Launch{.grid = runtime::grid_for(p.m * quads, kThreads), .programmatic = true}, args);
}

}  // namespace cgp::kernels
