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
  constexpr std::string_view names[] = {"naive", "simt", "sm80", "sm90"};
  return names[int(k)];
}

std::string reject(GemmKind kind, const GemmProblem& q, std::uint64_t a, std::uint64_t b,
                   const runtime::DeviceInfo& d) {
  const GemmProblem p = q.dense();
  if (p.type == DType::bf16 && d.cc() < 80) return text::cat("bf16 needs sm_80 or later, this is ", d.arch);
  if (kind == GemmKind::naive || kind == GemmKind::simt) return {};
  if (p.type == DType::f32) return text::cat(name(kind), " multiplies 16-bit types; f32 runs on simt");
  if (kind == GemmKind::sm80 && d.cc() < 80)
    return text::cat("cp.async and bf16 mma need sm_80 or later, this is ", d.arch);
  if (kind == GemmKind::sm90 && d.arch != "sm_90a")
    return text::cat("wgmma is sm_90a's alone, this is ", d.arch);
  if (p.k == 0) return "k = 0: there is no product to compute";
  if (p.m > kMax32 || p.n > kMax32 || p.k > kMax32 || p.lda > kMax32 || p.ldb > kMax32)
    return "a size or leading dimension is 2^31 or more";
  const auto element = std::uint64_t(cgp::bytes(p.type));
  if (auto why = reject_rows("a", a, p.lda, p.stride_a, p.batch, element); !why.empty()) return why;
  return reject_rows("b", b, p.ldb, p.stride_b, p.batch, element);
}

GemmChoice select_gemm(const GemmProblem& q, std::uint64_t a, std::uint64_t b, const runtime::DeviceInfo& d) {
  const GemmProblem p = q.dense();
  const auto not_sm90 = reject(GemmKind::sm90, p, a, b, d), not_sm80 = reject(GemmKind::sm80, p, a, b, d);
  if (not_sm90.empty()) {
    // Wide tiles read less per product; narrow ones keep more multiprocessors busy on small problems.
    const std::uint64_t wide = (p.m + 127) / 128 * ((p.n + 255) / 256) * p.batch;
    const int bn = p.n > 128 && wide >= std::uint64_t(d.sm_count) ? 256 : 128;
    return {GemmKind::sm90, gemm_sm90(p.type, p.trans_a, p.trans_b, bn),
            text::cat("TMA and wgmma; ", wide, " tiles of 128 x 256 for ", d.sm_count,
                      " multiprocessors: ", bn, " columns a tile"),
            std::uint32_t(bn)};
  }
  if (not_sm80.empty())
    return {GemmKind::sm80, gemm_sm80(p.type, p.trans_a, p.trans_b),
            text::cat("mma.sync; not sm90: ", not_sm90), 128};
  if (p.k == 0) return {GemmKind::naive, gemm_naive(p.type), "k = 0: only beta * c is left", 16};
  return {GemmKind::simt, gemm_simt(p.type, p.trans_a, p.trans_b), text::cat("no tensor cores: ", not_sm80),
          128};
}

}  // namespace cgp::kernels
