// SPDX-License-Identifier: Apache-2.0
// gemm sm90_split_k: for products with few tiles and long K, where clusters that split K do not fill the
// device. Each part of K is a product of its own, into scratch memory; a second kernel adds them up.
//   who      the persistent kernel of gemm_mixed_dynamic_sm90.cpp, a block for each tile of each part; then a
//            thread for each four neighbours of C
//   memory   parts are batches of one tensor map, K / parts apart; their sums are f32 in scratch memory of
//            the stream
//   sync     the second kernel starts early and waits for the first (griddepcontrol)
//   order    parts are added in the order of K: the same bits every time
//   needs    what gemm_sm90.cpp needs, one batch, and K of 8 elements times the parts
#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/sync/sync.h"
#include "cgp/kernels/gemm/api/gemm_tuning.h"
#include "cgp/kernels/gemm/epilogue/gemm_epilogue.h"
#include "cgp/kernels/gemm/sm90/gemm_dynamic_sm90.h"
#include "cgp/kernels/gemm/sm90/gemm_mixed_sm90.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr int kThreads = 256;

std::uint64_t up(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

// Sums are [parts][m][4 * quads].
template <class T>
void gemm_add_parts_kernel(Kernel& k, int parts, In<f32> sums, InOut<T> c, Val<u32> m, Val<u32> n,
                           Val<u64> ldc, Val<f32> alpha, Val<f32> beta, Val<u32> quads, Val<u32> paired) {
  k.block(kThreads);
  griddepcontrol_wait(k);
  const auto index = k.ctaid_x() * std::uint32_t(kThreads) + k.tid();
  const auto row = index / quads, col = index % quads * 4u;
  k.if_(row < m, [&] {
    const auto part = to<u64>(m) * to<u64>(quads);
    std::vector<RegGroup<f32, 4>> held;
    for (int i = 0; i < parts; ++i)
      held.push_back(sums.at((part * std::uint64_t(i) + to<u64>(index)) * 4u).template ld<4>());
    std::vector<Val<f32>> total;
    for (int j = 0; j < 4; ++j) {
      std::vector<Val<f32>> sum{held[0][j]};
      for (int i = 1; i < parts; ++i) sum.push_back(sum.back() + held[std::size_t(i)][j]);
      total.push_back(sum.back());
    }
    const GemmOutput<T> out{c, to<u64>(m), to<u64>(n), ldc, alpha, beta};
    const auto pairs = paired != 0u;
    for (std::uint32_t j = 0; j < 4; j += 2)
      out.put_pair(k, pairs, to<u64>(row), to<u64>(col + j), total[j], total[j + 1]);
  });
}

// The product of one part, as a batch.
GemmProblem parts_of(const GemmProblem& p, int parts) {
  const auto depth = p.k / std::uint64_t(parts);
  GemmProblem q = p;
  q.type_c = DType::f32, q.alpha = 1, q.beta = 0, q.k = depth, q.batch = std::uint64_t(parts);
  q.stride_a = p.trans_a ? depth * p.lda : depth, q.stride_b = p.trans_b ? depth : depth * p.ldb;
  q.ldc = up(p.n, 4) * 4, q.stride_c = p.m * q.ldc;
  return q.dense();
}

GemmTypedTuning tile_of(const GemmProblem& p, int bm, int bn) {
  GemmTypedTuning t{.bm = bm, .bn = bn};
  const int columns = p.trans_b ? bn : (bn + 63) / 64 * 64;
  t.stages = std::min(8, (225 * 1024 - bm / 64 * t.buffers * 8192) / ((bm + columns) * 128));
  return t;
}

// Microseconds on an H200, by the constants of gemm_single_tilings_sm90.cpp and those of a second kernel.
double predict_parts(const GemmProblem& p, const GemmTypedTuning& t, int parts) {
  const auto element = std::uint64_t(cgp::bytes(p.type));
  const auto rows = [&](int extent, std::uint64_t ld) {
    return extent * (element * ld % 128 ? 2.15e-3 : 1.12e-3);
  };
  const double area = double(t.bm) * t.bn / 32768, multiply = 0.578 * area,
               fetch = rows(t.bm, p.lda) + rows(t.bn, p.ldb), way = 1.42 / (t.stages - 1);
  const double step = std::max({multiply, fetch, way}) + 0.061 * std::min(multiply, fetch);
  const double sums = 8.0 * parts * double(p.m) * double(p.n);  // bytes written, and read again
  const double time = double(up(p.k / std::uint64_t(parts), 64)) * step + 6.2 * area + 3.93;
  const double bytes = double(element) * (double(p.m) * double(p.k) + double(p.n) * double(p.k));
  return std::max(time, bytes / 3.86e6 + 6.03) + 3 + sums / 5e6;
}

}  // namespace

std::string reject_parts_sm90(const GemmProblem& p, int parts) {
  if (p.batch != 1) return text::cat("batch = ", p.batch, ": parts of K are its batches");
  if (parts < 2 || p.k % (8 * std::uint64_t(parts)) != 0)
    return text::cat("k = ", p.k, " is not ", parts, " parts of a multiple of 16 bytes");
  if (p.m * up(p.n, 4) > 0x7fffffffull) return "more than 2^31 groups of four results";
  return {};
}

GemmChoice choose_parts_sm90(const GemmProblem& q, int bm, int bn, int parts) {
  const GemmProblem p = q.dense();
  if (auto why = reject_parts_sm90(p, parts); !why.empty()) throw Unsupported(std::move(why));
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
                          .split_k = parts};
  c.variant = {gemm_typed_shaped(parts_of(p, parts), print(config), {t, DType::f32, {}, false}), config};
  c.tile_m = std::uint32_t(bm), c.parts = parts;
  c.microseconds = predict_parts(p, t, parts);
  return c;
}

std::vector<GemmChoice> gemm_parts_sm90(const GemmProblem& q, const GemmAddresses& at,
                                        const runtime::DeviceInfo& d) {
  const GemmProblem p = q.dense();
  std::vector<GemmChoice> out;
  if (!reject(GemmFamily::sm90_split_k, p, at, d).empty()) return out;
  const auto sms = std::uint64_t(d.sm_count ? d.sm_count : 132);
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
    // As many parts as fit one wave, each of at least 512 of K.
    for (int parts = 16, found = 0; parts >= 2 && found < 2; --parts)
      if (tiles * std::uint64_t(parts) <= sms && p.k >= 512 * std::uint64_t(parts) &&
          reject_parts_sm90(p, parts).empty())
        out.push_back(choose_parts_sm90(p, bm, bn, parts)), ++found;
  }
  return out;
}

Variant gemm_add_parts(DType t, int parts) {
  auto name = text::cat("gemm_add_", cgp::name(t), "_parts", parts);
  return t == DType::f16 ? variant(std::move(name), 90, gemm_add_parts_kernel<f16>, parts)
                         : variant(std::move(name), 90, gemm_add_parts_kernel<bf16>, parts);
}

void run_gemm_parts(runtime::Stream& s, const GemmChoice& choice, const GemmProblem& p,
                    const GemmAddresses& at) {
  if (auto why = reject_parts_sm90(p, choice.parts); !why.empty()) throw Unsupported(std::move(why));
  const GemmProblem each = parts_of(p, choice.parts);
  GemmAddresses there = at;
  there.c = s.scratch(each.batch * each.stride_c * sizeof(float)), there.c_spare = true;
  GemmChoice product = choice;
  product.kind = GemmFamily::sm90_pingpong;
  run_typed_gemm(s, product, each, there);
  run_gemm_add_parts(s, p, at.c, there.c, choice.parts);
}

void run_gemm_add_parts(runtime::Stream& s, const GemmProblem& p, std::uint64_t c, std::uint64_t sums,
                        int parts) {
  const auto quads = up(p.n, 4);
  const auto fn = load(s.device(), gemm_add_parts(p.type, parts));
  const auto word = [](std::uint64_t v) { return runtime::arg(std::uint32_t(v)); };
  const bool paired = p.n % 2 == 0 && p.ldc % 2 == 0 && c % 4 == 0;
  const std::vector<runtime::Arg> args{
      runtime::Arg::address(sums), runtime::Arg::address(c), word(p.m),   word(p.n),   runtime::arg(p.ldc),
      runtime::arg(p.alpha),       runtime::arg(p.beta),     word(quads), word(paired)};
  fn.launch(s, runtime::Launch{.grid = runtime::grid_for(p.m * quads, kThreads), .programmatic = true}, args);
}

}  // namespace cgp::kernels
