// SPDX-License-Identifier: Apache-2.0
// Which variant runs a gemm problem, and why.
#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/kernels/gemm/api/gemm.h"
#include "cgp/kernels/gemm/api/gemm_tuning.h"
#include "cgp/kernels/gemm/select/gemm_calibration.h"
#include "cgp/kernels/gemm/select/gemm_tilings_sm90.h"
#include "cgp/kernels/gemm/simt/gemm_f32_rows.h"
#include "cgp/kernels/gemm/sm80/gemm_sm80.h"
#include "cgp/kernels/gemm/workspace/gemm_split_k_f32.h"

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

std::string reject(GemmFamily family, const GemmProblem& q, const GemmAddresses& at,
                   const runtime::DeviceInfo& d) {
  using Info = GemmFamilyInfo;
  const Info& f = info(family);
  const GemmProblem p = q.dense();
  const auto element = std::uint64_t(cgp::bytes(p.type));
  if (p.type == DType::bf16 && d.cc() < 80) return text::cat("bf16 needs sm_80 or later, this is ", d.arch);
  if (f.operands == Info::Operands::any) return {};
  if (p.type == DType::f32) return text::cat(f.name, " multiplies 16-bit types, not f32");
  if (f.layouts == Info::Layouts::a_along_k && p.trans_a)
    return text::cat(f.name, " reads A along k: layouts nn and nt");
  if (f.layouts == Info::Layouts::nt && (p.trans_a || !p.trans_b))
    return text::cat(f.name, " reads A and B along k: layout nt");
  if (f.operands == Info::Operands::k16 && p.m > 65535 * 8)
    return text::cat(f.name, " takes up to 524280 rows of A, this has ", p.m);
  if (f.only.empty() ? d.cc() < f.min_sm : d.arch != f.only) return text::cat(f.needs, ", this is ", d.arch);
  if (p.k == 0) return "k = 0: there is no product to compute";
  if (p.m > kMax32 || p.n > kMax32 || p.k > kMax32 || p.lda > kMax32 || p.ldb > kMax32)
    return "a size or leading dimension is 2^31 or more";
  if (f.operands == Info::Operands::elements) return {};
  if (auto why = reject_rows("a", at.a, p.lda, p.stride_a, p.batch, element); !why.empty()) return why;
  if (auto why = reject_rows("b", at.b, p.ldb, p.stride_b, p.batch, element); !why.empty()) return why;
  if (f.operands == Info::Operands::k16 && p.k * element % 16)
    return text::cat("k = ", p.k, " is not a multiple of 16 bytes");
  if (f.one_batch && p.batch > 1) return text::cat("batch = ", p.batch, ": slices of K are its batches");
  if (f.result == Info::Result::any) return {};
  if (f.result == Info::Result::tma_fresh && p.beta != 0)
    return text::cat("beta = ", p.beta, ": ", f.name, " does not read C");
  if (!at.padded_ldc && p.n * element % 16)
    return text::cat("n = ", p.n, ": rows of c end inside 16 bytes, which TMA writes whole");
  return reject_rows("c", at.c, p.ldc, p.stride_c, p.batch, element);
}

namespace {

// The problem as the kernel sees it once operands with misaligned rows have been copied.
struct Packed {
  GemmProblem problem;
  GemmAddresses at;
  bool a = false, b = false, c = false;
};
Packed packed(const GemmProblem& p, const GemmAddresses& at, const runtime::DeviceInfo& d) {
  Packed r{p, at};
  const std::uint64_t element = std::uint64_t(cgp::bytes(p.type));
  const auto misaligned = [&](std::uint64_t address, std::uint64_t ld, std::uint64_t stride) {
    return !reject_rows("", address, ld, stride, p.batch, element).empty();
  };
  if (misaligned(at.a, p.lda, p.stride_a)) {
    r.a = true, r.at.a = 0, r.problem.lda = packed_ld(p.trans_a ? p.m : p.k);
    r.problem.stride_a = r.problem.lda * (p.trans_a ? p.k : p.m);
  }
  if (misaligned(at.b, p.ldb, p.stride_b)) {
    r.b = true, r.at.b = 0, r.problem.ldb = packed_ld(p.trans_b ? p.k : p.n);
    r.problem.stride_b = r.problem.ldb * (p.trans_b ? p.n : p.k);
  }
  const bool large = p.flops() >= 1e9 && p.m >= 64 && p.n >= 64 && d.arch == "sm_90a";
  if (large && (misaligned(at.c, p.ldc, p.stride_c) || (!at.padded_ldc && p.n * element % 16))) {
    r.c = r.at.padded_ldc = true, r.at.c = 0, r.problem.ldc = packed_ld(p.n),
    r.problem.stride_c = r.problem.ldc * p.m;
  }
  return r;
}

GemmChoice select_aligned(const GemmProblem& p, const GemmAddresses& at, const runtime::DeviceInfo& d,
                          bool packed = false) {
  if (reject(GemmFamily::sm90, p, at, d).empty()) return select_sm90(p, at, d, packed);
  if (p.m <= 16 && reject(GemmFamily::skinny, p, at, d).empty()) {
    GemmSkinnyTuning t;
    t.cols = p.m <= 8 ? 8 : 16, t.warps = p.m <= 8 ? 8 : 4, t.unroll = 4;
    GemmChoice c{GemmFamily::skinny, gemm_skinny(p.type, t),
                 text::cat(p.m, " rows of A: B is read once, straight into fragments"),
                 std::uint32_t(t.rows)};
    c.tile_m = std::uint32_t(t.cols);
    return c;
  }
  if (reject(GemmFamily::sm100_stealing, p, at, d).empty()) return select_sm100(p, at, d);
  auto c = choose_sm80(p, d);
  c.why = text::cat("mma.sync, ", c.why, "; not sm90: ", reject(GemmFamily::sm90, p, at, d));
  return c;
}

// Microseconds that copies of rows take: a launch before the product and one behind it, bytes, and
// blocks. Results that are not copied although their rows are at odd elements leave one by one.
double predict_copies(const GemmProblem& p, const Packed& r, const GemmCalibration::Pack& m) {
  const double batch = double(p.batch);
  const auto copy = [&](std::uint64_t rows, std::uint64_t cols) {
    const double blocks = double(gemm_pack_blocks({{}, {}, rows, cols})) * batch;
    return std::max(4.0 * batch * double(rows) * double(cols) / m.bytes_per_us, blocks / m.blocks_per_us);
  };
  double time = r.a || r.b || (r.c && p.beta != 0) ? m.launch : 0;
  if (r.a) time += p.trans_a ? copy(p.k, p.m) : copy(p.m, p.k);
  if (r.b) time += p.trans_b ? copy(p.n, p.k) : copy(p.k, p.n);
  if (r.c) time += m.launch + copy(p.m, p.n) * (p.beta != 0 ? 2 : 1);
  if (!r.c && (p.n % 2 || p.ldc % 2)) time += batch * double(p.m) * double(p.n) / m.elements_per_us;
  return time;
}

}  // namespace

std::optional<GemmChoice> select_packed_gemm(const GemmProblem& q, const GemmAddresses& at,
                                             const runtime::DeviceInfo& d) {
  const GemmProblem p = q.dense();
  const Packed r = packed(p, at, d);
  if ((!r.a && !r.b && !r.c) || p.m < 16 || p.n < 16 || p.flops() < 1e7 ||
      !reject(GemmFamily::sm80, r.problem, r.at, d).empty())
    return {};
  GemmChoice c = select_aligned(r.problem, r.at, d, true);
  c.pack_a = r.a, c.pack_b = r.b, c.pack_c = r.c;
  const double bytes = 2.0 * double(p.batch) *
                       (double(p.m) * double(p.k) + double(p.n) * double(p.k) + double(p.m) * double(p.n));
  // What has no model of its own is fed by memory, or multiplies at a third of the peak.
  const auto& m = gemm_calibration(d).pack;
  if (c.microseconds == 0)
    c.microseconds = std::max(m.product_launch + bytes / m.product_bytes_per_us,
                              m.product_launch + p.flops() / m.product_flops_per_us);
  c.microseconds += predict_copies(p, r, m);
  std::string what;
  for (const auto& [packed, name] : {std::pair{r.a, "a"}, {r.b, "b"}, {r.c, "c"}})
    if (packed) text::append(what, text::cat(what.empty() ? "" : ", ", name));
  c.why = text::cat("rows of ", what, " are not aligned to 16 bytes and go through scratch memory; ", c.why);
  return c;
}

GemmAddresses GemmCanonical::at(const GemmAddresses& given) const {
  GemmAddresses r = given;
  if (swapped) std::swap(r.a, r.b);
  return r;
}

GemmCanonical canonicalize_gemm(const GemmProblem& q) {
  GemmCanonical r{q.dense()};
  GemmProblem& p = r.problem;
  const auto vector = [&](bool& trans, std::uint64_t rows, std::uint64_t cols, bool flip, std::uint64_t& ld) {
    // A column of neighbours is a row.
    if (cols == 1 && ld == 1 && rows > 1) trans = flip, std::swap(rows, cols), ld = cols, r.changed = true;
    if (rows == 1 && ld % 16) ld = (ld + 15) / 16 * 16, r.changed = true;
  };
  vector(p.trans_a, p.trans_a ? p.k : p.m, p.trans_a ? p.m : p.k, !p.trans_a, p.lda);
  vector(p.trans_b, p.trans_b ? p.n : p.k, p.trans_b ? p.k : p.n, !p.trans_b, p.ldb);
  if (p.plain() && p.n == 1 && p.ldc == 1 && p.m > 1) {
    std::swap(p.m, p.n), std::swap(p.lda, p.ldb), std::swap(p.stride_a, p.stride_b);
    const bool a = p.trans_a;
    p.trans_a = !p.trans_b, p.trans_b = !a, p.ldc = p.n;
    r.swapped = r.changed = true;
  }
  if (p.m == 1 && p.ldc % 16) p.ldc = (p.ldc + 15) / 16 * 16, r.changed = true;
  if (r.changed && p.batch == 1) {  // nothing depends on the distance of batches, but it has to be one
    p.stride_a = p.stride_b = p.stride_c = 0;
    p = p.dense();
  }
  return r;
}

std::uint64_t packed_ld(std::uint64_t cols) { return (cols + 63) / 64 * 64; }

namespace {

using Device = runtime::DeviceInfo;
using Chosen = std::optional<GemmChoice>;

Chosen small_m_f32(const GemmProblem& p, const GemmAddresses& at, const Device&) {
  return select_f32_rows(p, at);
}
Chosen slices_in_f32(const GemmProblem& p, const GemmAddresses& at, const Device& d) {
  const int slices = gemm_f32_split_k(p, d);
  return slices > 1 ? Chosen(choose_f32_split_k(p, at, d, slices)) : Chosen();
}
Chosen mixed_precision(const GemmProblem& p, const GemmAddresses& at, const Device& d) {
  return !p.plain() || prefers_mixed_gemm(p, d) ? Chosen(select_mixed_gemm(p, at, d)) : Chosen();
}
Chosen no_product(const GemmProblem& p, const GemmAddresses&, const Device&) {
  if (p.c_elements() != 0 && p.k != 0) return {};
  return GemmChoice{
      GemmFamily::naive, gemm_naive(p.type),
      p.k == 0 && p.c_elements() != 0 ? "k = 0: only beta * c is left" : "c has no elements: nothing runs"};
}
Chosen aligned_rows(const GemmProblem& p, const GemmAddresses& at, const Device& d) {
  if (!reject(GemmFamily::sm80, p, at, d).empty() || packed(p, at, d).c) return {};
  return select_aligned(p, at, d);
}
Chosen misaligned_rows(const GemmProblem& p, const GemmAddresses& at, const Device& d) {
  auto copied = select_packed_gemm(p, at, d);
  auto direct = gemm_misaligned_candidates(p, at, d);
  const auto best = std::min_element(direct.begin(), direct.end(), [](const auto& x, const auto& y) {
    return x.microseconds < y.microseconds;
  });
  if (best != direct.end() && (!copied || best->microseconds < copied->microseconds)) return std::move(*best);
  return copied;
}
Chosen misaligned_c(const GemmProblem& p, const GemmAddresses& at, const Device& d) {
  return reject(GemmFamily::sm80, p, at, d).empty() ? Chosen(select_aligned(p, at, d)) : Chosen();
}
Chosen no_tensor_cores(const GemmProblem& p, const GemmAddresses& at, const Device& d) {
  return GemmChoice{GemmFamily::simt, gemm_simt(p.type, p.trans_a, p.trans_b),
                    text::cat("no tensor cores: ", reject(GemmFamily::sm80, p, at, d))};
}

struct Rule {
  std::string_view says;
  Chosen (*choose)(const GemmProblem&, const GemmAddresses&, const Device&);  ///< none: it does not apply
};
// The first that applies makes the choice.
constexpr Rule kRules[] = {
    {"f32 with few rows of A or few results: fused multiply-adds from registers", small_m_f32},
    {"few tiles of long K: slices of K that are reduced in f32", slices_in_f32},
    {"mixed types, scales, an epilogue, or f32 on wgmma: mixed precision", mixed_precision},
    {"no elements or k = 0: no product", no_product},
    {"rows that 16-byte accesses reach: the fastest prediction of the tensor cores' families", aligned_rows},
    {"misaligned rows: as they are or copied, whichever is predicted faster", misaligned_rows},
    {"misaligned rows of C alone, and too small to copy: element stores", misaligned_c},
    {"everything else: no tensor cores", no_tensor_cores},
};

}  // namespace

GemmChoice select_gemm(const GemmProblem& q, const GemmAddresses& at, const runtime::DeviceInfo& d) {
  if (const auto other = canonicalize_gemm(q); other.changed) {
    GemmChoice c = select_gemm(other.problem, other.at(at), d);
    c.canonicalized = true;
    const auto& o = other.problem;
    c.why = text::cat("canonicalized to ", o.trans_a ? "t" : "n", o.trans_b ? "t" : "n", " ", o.m, "x", o.n,
                      "x", o.k, other.swapped ? " of the transposed operands" : "", "; ", c.why);
    return c;
  }
  const GemmProblem p = q.dense();
  Chosen chosen;
  for (const Rule* rule = std::begin(kRules); !chosen; ++rule)  // the last one always applies
    if ((chosen = rule->choose(p, at, d))) chosen->rule = rule->says;
  return std::move(*chosen);
}

}  // namespace cgp::kernels
