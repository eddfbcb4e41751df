// SPDX-License-Identifier: Apache-2.0
// Which variant runs a gemm problem, and why.
#include "cgp/base/text.h"
#include "cgp/kernels/gemm/gemm.h"

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
  constexpr std::string_view names[] = {"naive", "simt", "sm80", "sm90", "sm90_persistent"};
  return names[int(k)];
}

std::string reject(GemmKind kind, const GemmProblem& q, const GemmAddresses& at,
                   const runtime::DeviceInfo& d) {
  const GemmProblem p = q.dense();
  if (p.type == DType::bf16 && d.cc() < 80) return text::cat("bf16 needs sm_80 or later, this is ", d.arch);
  if (kind <= GemmKind::simt) return {};
  if (p.type == DType::f32) return text::cat(name(kind), " multiplies 16-bit types; f32 runs on simt");
  if (kind == GemmKind::sm80 && d.cc() < 80)
    return text::cat("cp.async and bf16 mma need sm_80 or later, this is ", d.arch);
  if (kind >= GemmKind::sm90 && d.arch != "sm_90a")
    return text::cat("wgmma is sm_90a's alone, this is ", d.arch);
  if (p.k == 0) return "k = 0: there is no product to compute";
  if (p.m > kMax32 || p.n > kMax32 || p.k > kMax32 || p.lda > kMax32 || p.ldb > kMax32)
    return "a size or leading dimension is 2^31 or more";
  const auto element = std::uint64_t(cgp::bytes(p.type));
  if (auto why = reject_rows("a", at.a, p.lda, p.stride_a, p.batch, element); !why.empty()) return why;
  if (auto why = reject_rows("b", at.b, p.ldb, p.stride_b, p.batch, element); !why.empty()) return why;
  if (kind != GemmKind::sm90_persistent) return {};
  if (p.beta != 0) return text::cat("beta = ", p.beta, ": the old c is read by the other variants");
  return reject_rows("c", at.c, p.ldc, p.stride_c, p.batch, element);
}

namespace {

std::uint64_t tiles(std::uint64_t n, std::uint64_t tile) { return (n + tile - 1) / tile; }

// Columns of a tile: wide ones read less per product, narrow ones keep more multiprocessors busy.
int tile_columns(const GemmProblem& p, const runtime::DeviceInfo& d) {
  const std::uint64_t wide = tiles(p.m, 128) * tiles(p.n, 256) * p.batch;
  return p.n > 128 && wide >= std::uint64_t(d.sm_count) ? 256 : 128;
}

}  // namespace

GemmChoice select_gemm(const GemmProblem& q, const GemmAddresses& at, const runtime::DeviceInfo& d) {
  const GemmProblem p = q.dense();
  const auto not_sm90 = reject(GemmKind::sm90, p, at, d), not_sm80 = reject(GemmKind::sm80, p, at, d);
  if (not_sm90.empty()) {
    const int bn = tile_columns(p, d);
    const auto shape = text::cat(tiles(p.m, 128) * tiles(p.n, std::uint64_t(bn)) * p.batch,
                                 " tiles of 128 x ", bn, " for ", d.sm_count, " multiprocessors");
    const auto not_persistent = reject(GemmKind::sm90_persistent, p, at, d);
    if (!not_persistent.empty())
      return {GemmKind::sm90, gemm_sm90(p.type, p.trans_a, p.trans_b, bn),
              text::cat("TMA and wgmma; ", shape, "; not persistent: ", not_persistent), std::uint32_t(bn)};
    GemmPersistentTuning t;
    t.stages = bn == 256 ? 4 : 6;
    t.cluster = 1;
    return {GemmKind::sm90_persistent, gemm_persistent_sm90(p.type, p.trans_a, p.trans_b, bn, t),
            text::cat("TMA and wgmma, persistent; ", shape,
                      t.cluster > 1 ? text::cat(", ", t.cluster, " blocks share b") : std::string()),
            std::uint32_t(bn), t.cluster};
  }
  if (not_sm80.empty())
    return {GemmKind::sm80, gemm_sm80(p.type, p.trans_a, p.trans_b),
            text::cat("mma.sync; not sm90: ", not_sm90)};
  if (p.k == 0) return {GemmKind::naive, gemm_naive(p.type), "k = 0: only beta * c is left"};
  return {GemmKind::simt, gemm_simt(p.type, p.trans_a, p.trans_b), text::cat("no tensor cores: ", not_sm80)};
}

}  // namespace cgp::kernels
