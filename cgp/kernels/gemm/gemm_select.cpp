// SPDX-License-Identifier: Apache-2.0
// Which variant runs a gemm problem, and why.
#include <algorithm>
#include <cmath>

#include "cgp/base/text.h"
#include "cgp/kernels/gemm/gemm.h"
#include "cgp/kernels/gemm/gemm_tuning.h"

namespace cgp::kernels {
namespace {

constexpr std::uint64_t kMax32 = 0x7fffffffull;  // tile origins stay below 2^31 + a tile in 32-bit registers

// Why 16-byte accesses cannot reach every row of an operand.
std::string reject_rows(const char* what, std::uint64_t address, std::uint64_t ld, std::uint64_t stride,
                        std::uint64_t batch, std::uint64_t element) {
  if (address % 16) return text::cat(what, " does not start at a multiple of 16 bytes");
  if (ld * element % 16)
    return text::cat("ld", what, " = ", ld, ": rows of ", what, " are not multiples of 16 bytes apart");
  if (batch > 1 && stride * element % 16)
    return text::cat("stride_", what, " = ", stride, " is not a multiple of 16 bytes");
  return {};
}

}  // namespace

std::string_view name(GemmKind k) {
  constexpr std::string_view names[kGemmKinds] = {"naive",
                                                  "simt",
                                                  "sm80",
                                                  "skinny",
                                                  "sm90",
                                                  "sm90_split",
                                                  "sm90_persistent",
                                                  "sm90_tail_split",
                                                  "sm90_stream",
                                                  "any",
                                                  "sm100_tiled",
                                                  "sm100_swizzled",
                                                  "sm100_pipelined",
                                                  "sm100_specialised",
                                                  "sm100_persistent",
                                                  "sm100_stealing",
                                                  "sm100_multicast",
                                                  "sm100_pair"};
  return names[int(k)];
}

std::string reject(GemmKind kind, const GemmProblem& q, const GemmAddresses& at,
                   const runtime::DeviceInfo& d) {
  const GemmProblem p = q.dense();
  if (p.type == DType::bf16 && d.cc() < 80) return text::cat("bf16 needs sm_80 or later, this is ", d.arch);
  if (kind <= GemmKind::simt || kind == GemmKind::any) return {};
  if (p.type == DType::f32) return text::cat(name(kind), " multiplies 16-bit types; f32 runs on simt");
  if (kind == GemmKind::sm90_stream && p.trans_a) return "sm90_stream reads A along k: layouts nn and nt";
  if (kind == GemmKind::skinny && (p.trans_a || !p.trans_b)) return "skinny reads A and B along k: layout nt";
  if (kind == GemmKind::skinny && p.m > 65535 * 8)
    return text::cat("skinny takes up to 524280 rows of A, this has ", p.m);
  if (kind <= GemmKind::skinny && d.cc() < 80)
    return text::cat("cp.async and bf16 mma need sm_80 or later, this is ", d.arch);
  const bool sm100 = kind >= GemmKind::sm100_tiled;
  if (sm100 && d.arch != "sm_100a")
    return text::cat("needs sm_100a: tcgen05 and tensor memory, this is ", d.arch);
  if (kind >= GemmKind::sm90 && !sm100 && d.arch != "sm_90a")
    return text::cat("wgmma is sm_90a's alone, this is ", d.arch);
  if (p.k == 0) return "k = 0: there is no product to compute";
  if (p.m > kMax32 || p.n > kMax32 || p.k > kMax32 || p.lda > kMax32 || p.ldb > kMax32)
    return "a size or leading dimension is 2^31 or more";
  const auto element = std::uint64_t(cgp::bytes(p.type));
  if (auto why = reject_rows("a", at.a, p.lda, p.stride_a, p.batch, element); !why.empty()) return why;
  if (auto why = reject_rows("b", at.b, p.ldb, p.stride_b, p.batch, element); !why.empty()) return why;
  if (kind == GemmKind::skinny && p.k * element % 16)
    return text::cat("k = ", p.k, " is not a multiple of 16 bytes");
  if (sm100 && kind <= GemmKind::sm100_pipelined && (p.trans_a || !p.trans_b))
    return text::cat(name(kind), " multiplies layout nt alone");
  if (kind != GemmKind::sm90_persistent && kind != GemmKind::sm90_tail_split && kind != GemmKind::sm100_pair)
    return {};
  if (p.beta != 0) return text::cat("beta = ", p.beta, ": the old c is read by the other variants");
  return reject_rows("c", at.c, p.ldc, p.stride_c, p.batch, element);
}

namespace {

std::uint64_t tiles(std::uint64_t n, std::uint64_t tile) { return (n + tile - 1) / tile; }

struct Tile {
  GemmKind kind;
  int bm, bn, cluster, split, resident;
};

// Microseconds of a tiling on a Hopper device. The constants are fitted to 40 problems times some 15 tilings
// measured on an H200 (README): the tiling that comes out best was within 1.3 % of the fastest on average.
double predict(const Tile& t, const GemmProblem& p, int sm_count) {
  constexpr double products = 38580,
                   rows = 720;        // per microsecond and SM: elements of C, rows of A and B; 64 of K
  constexpr double one_group = 1.47;  // a single warpgroup leaves the tensor cores waiting
  constexpr double overlap = 0.13, prologue = 2.8, exchange = 4.4, latency = 4.5, launch = 2.4, memory = 0.36;
  constexpr double bytes_per_us = 5.4e6;
  const double sms = sm_count ? sm_count : 132;
  const double k_tiles = double(tiles(p.k, 64)), element = cgp::bytes(p.type);
  const double all = double(tiles(p.m, std::uint64_t(t.bm * t.cluster)) * std::uint64_t(t.cluster) *
                            tiles(p.n, std::uint64_t(t.bn)) * p.batch);
  // Rows that begin anywhere in a line of 128 bytes cost two lines a row of a tile.
  const bool crooked = std::uint64_t(element) * (p.trans_b ? p.ldb : p.lda) % 128 != 0;
  const double multiply = t.bm * t.bn / products * (t.bm == 64 ? one_group : 1);
  const double fetch = (t.bm + double(t.bn) / t.cluster) * (crooked ? 2 : 1) / rows;
  const double step = std::max(multiply, fetch) + overlap * std::min(multiply, fetch);
  double time = 0;
  if (t.kind == GemmKind::sm90_persistent) {
    time = std::ceil(all / sms) * k_tiles * step + prologue;
  } else {
    const double share = std::min(double(t.resident), std::ceil(all * t.split / sms));
    time = std::ceil(all * t.split / (sms * t.resident)) *
           (std::ceil(k_tiles / t.split) * step * share + prologue +
            (t.split > 1 ? exchange * t.bm * t.bn / 16384 : 0));
  }
  const double bytes = element * double(p.batch) *
                       (double(p.m) * double(p.k) + double(p.n) * double(p.k) + double(p.m) * double(p.n));
  // The last term decides between tilings that memory makes equally fast.
  return std::max(time, bytes / bytes_per_us + latency) + launch + memory * bytes / bytes_per_us + time / 16;
}

int split_stages(int bm, int bn, int split, int resident) {
  const int stage = (bm + bn) * 128, sums = split > 1 ? bm * bn * 4 : 0;
  return std::min(8, (227 * 1024 / resident - 2048 - sums) / stage);
}

}  // namespace

std::vector<GemmChoice> gemm_candidates_sm90(const GemmProblem& q, const GemmAddresses& at,
                                             const runtime::DeviceInfo& d) {
  const GemmProblem p = q.dense();
  std::vector<GemmChoice> out;
  const auto add = [&](const Tile& t, Variant v) {
    GemmChoice c{t.kind, std::move(v), {}, std::uint32_t(t.bn), std::max(t.cluster, t.split)};
    c.tile_m = std::uint32_t(t.bm);
    c.microseconds = predict(t, p, d.sm_count);
    out.push_back(std::move(c));
  };
  if (reject(GemmKind::sm90_persistent, p, at, d).empty()) {
    const bool crooked = std::uint64_t(cgp::bytes(p.type)) * p.ldb % 128 != 0;
    for (int bn : {128, 192, 256})
      for (int cluster : {1, 2}) {
        // Sharing B pays where its rows are crooked.
        if (cluster == 2 && (!crooked || bn == 128 || p.m <= 128)) continue;
        const GemmPersistentTuning t{bn == 128 ? 6 : 4, cluster, bn == 192 ? 3 : 2, 8};
        add({GemmKind::sm90_persistent, 128, bn, cluster, 1, 1},
            gemm_persistent_sm90(p.type, p.trans_a, p.trans_b, bn, t));
      }
  } else {
    add({GemmKind::sm90, 128, 256, 1, 1, 1}, gemm_sm90(p.type, p.trans_a, p.trans_b, 256));
  }
  struct Split {
    int bm, bn, split, resident;
  };
  for (const Split& s : {Split{64, 64, 1, 1},
                         {64, 64, 1, 2},
                         {64, 64, 2, 1},
                         {64, 128, 1, 1},
                         {64, 128, 1, 2},
                         {64, 128, 2, 1},
                         {64, 256, 1, 1},
                         {128, 64, 1, 1},
                         {128, 128, 1, 1}}) {
    if (tiles(p.k, 64) < std::uint64_t(2 * s.split) && s.split > 1) continue;
    if (s.bm == 128 && p.m <= 64) continue;
    add({GemmKind::sm90_split, s.bm, s.bn, 1, s.split, s.resident},
        gemm_split_sm90(p.type, p.trans_a, p.trans_b, s.bm, s.bn,
                        {split_stages(s.bm, s.bn, s.split, s.resident), s.split, s.resident, 8}));
  }
  return out;
}

namespace {

// Few rows of A: B is streamed through mma.sync. Very long streams run as fast through TMA.
bool takes_skinny(const GemmProblem& p, const GemmAddresses& at, const runtime::DeviceInfo& d) {
  const std::uint64_t bytes = p.n * p.k * std::uint64_t(cgp::bytes(p.type));
  return reject(GemmKind::skinny, p, at, d).empty() && p.m <= 16 &&
         bytes < (p.m <= 8 ? std::uint64_t(512) << 20 : std::uint64_t(160) << 20);
}

GemmChoice skinny(const GemmProblem& p) {
  GemmSkinnyTuning t;
  t.cols = p.m <= 8 ? 8 : 16, t.warps = p.m <= 8 ? 8 : 4, t.unroll = 4;
  GemmChoice c{GemmKind::skinny, gemm_skinny(p.type, t),
               text::cat(p.m, " rows of A: B is read once, straight into fragments"), std::uint32_t(t.rows)};
  c.tile_m = std::uint32_t(t.cols);
  return c;
}

// The problem as the kernel sees it once operands with crooked rows have been copied.
struct Packed {
  GemmProblem problem;
  GemmAddresses at;
  bool a = false, b = false, c = false;
};
Packed packed(const GemmProblem& p, const GemmAddresses& at) {
  Packed r{p, at};
  const std::uint64_t element = std::uint64_t(cgp::bytes(p.type));
  const auto crooked = [&](std::uint64_t address, std::uint64_t ld, std::uint64_t stride) {
    return !reject_rows("", address, ld, stride, p.batch, element).empty();
  };
  if (crooked(at.a, p.lda, p.stride_a)) {
    r.a = true, r.at.a = 0, r.problem.lda = packed_ld(p.trans_a ? p.m : p.k);
    r.problem.stride_a = r.problem.lda * (p.trans_a ? p.k : p.m);
  }
  if (crooked(at.b, p.ldb, p.stride_b)) {
    r.b = true, r.at.b = 0, r.problem.ldb = packed_ld(p.trans_b ? p.k : p.n);
    r.problem.stride_b = r.problem.ldb * (p.trans_b ? p.n : p.k);
  }
  // The old c would have to be copied too.
  if (p.beta == 0 && crooked(at.c, p.ldc, p.stride_c)) {
    r.c = true, r.at.c = 0, r.problem.ldc = packed_ld(p.n), r.problem.stride_c = r.problem.ldc * p.m;
  }
  return r;
}

GemmChoice select_aligned(const GemmProblem& p, const GemmAddresses& at, const runtime::DeviceInfo& d) {
  if (takes_skinny(p, at, d)) return skinny(p);
  if (reject(GemmKind::sm90, p, at, d).empty()) {
    auto all = gemm_candidates_sm90(p, at, d);
    auto& best = *std::min_element(
        all.begin(), all.end(), [](const auto& x, const auto& y) { return x.microseconds < y.microseconds; });
    best.why = text::cat("TMA and wgmma; of ", all.size(), " tilings the one with the least predicted time, ",
                         std::lround(best.microseconds), " us");
    if (const auto why = reject(GemmKind::sm90_persistent, p, at, d); !why.empty())
      text::append(best.why, text::cat("; not persistent: ", why));
    return best;
  }
  if (reject(GemmKind::sm100_stealing, p, at, d).empty()) return select_sm100(p, at, d);
  return {GemmKind::sm80, gemm_sm80(p.type, p.trans_a, p.trans_b),
          text::cat("mma.sync; not sm90: ", reject(GemmKind::sm90, p, at, d))};
}

}  // namespace

std::uint64_t packed_ld(std::uint64_t cols) { return (cols + 63) / 64 * 64; }

GemmChoice select_gemm(const GemmProblem& q, const GemmAddresses& at, const runtime::DeviceInfo& d) {
  const GemmProblem p = q.dense();
  if (!p.plain()) return select_typed_gemm(p, at, d);
  const auto not_sm80 = reject(GemmKind::sm80, p, at, d);
  if (p.k == 0) return {GemmKind::naive, gemm_naive(p.type), "k = 0: only beta * c is left"};
  // Copying costs about (m + n) * k + m * n, multiplying m * n * k.
  Packed r = packed(p, at);
  const bool large = p.flops() >= 1e9 && p.m >= 64 && p.n >= 64;
  if (!large || d.arch != "sm_90a")
    r.c = false, r.at.c = at.c, r.problem.ldc = p.ldc, r.problem.stride_c = p.stride_c;
  if (not_sm80.empty() && !r.c) return select_aligned(p, at, d);
  if ((r.a || r.b || r.c) && p.m >= 16 && p.n >= 16 && p.flops() >= 1e7 &&
      reject(GemmKind::sm80, r.problem, r.at, d).empty()) {
    GemmChoice c = select_aligned(r.problem, r.at, d);
    c.pack_a = r.a, c.pack_b = r.b, c.pack_c = r.c;
    std::string what;
    for (const auto& [packed, name] : {std::pair{r.a, "a"}, {r.b, "b"}, {r.c, "c"}})
      if (packed) text::append(what, text::cat(what.empty() ? "" : ", ", name));
    c.why =
        text::cat("rows of ", what, " are not aligned to 16 bytes and go through scratch memory; ", c.why);
    return c;
  }
  return {GemmKind::simt, gemm_simt(p.type, p.trans_a, p.trans_b), text::cat("no tensor cores: ", not_sm80)};
}

}  // namespace cgp::kernels
