// SPDX-License-Identifier: Apache-2.0
// Which variant runs a gemm problem, and why.
#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/kernels/gemm/api/gemm.h"
#include "cgp/kernels/gemm/api/gemm_tuning.h"
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
  if (!at.c_spare && p.n * element % 16)
    return text::cat("n = ", p.n, ": rows of c end inside 16 bytes, which TMA writes whole");
  return reject_rows("c", at.c, p.ldc, p.stride_c, p.batch, element);
}

namespace {

// The problem as the kernel sees it once operands with crooked rows have been copied.
struct Packed {
  GemmProblem problem;
  GemmAddresses at;
  bool a = false, b = false, c = false;
};
Packed packed(const GemmProblem& p, const GemmAddresses& at, const runtime::DeviceInfo& d) {
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
  const bool large = p.flops() >= 1e9 && p.m >= 64 && p.n >= 64 && d.arch == "sm_90a";
  if (large && (crooked(at.c, p.ldc, p.stride_c) || (!at.c_spare && p.n * element % 16))) {
    r.c = r.at.c_spare = true, r.at.c = 0, r.problem.ldc = packed_ld(p.n),
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

// Microseconds that copies of rows take on an H200: a launch before the product and one behind it, bytes, and
// blocks. Results that are not copied although their rows are at odd elements leave one by one.
double predict_copies(const GemmProblem& p, const Packed& r) {
  const double batch = double(p.batch);
  const auto copy = [&](std::uint64_t rows, std::uint64_t cols) {
    const double blocks = double(gemm_pack_blocks({{}, {}, rows, cols})) * batch;
    return std::max(4.0 * batch * double(rows) * double(cols) / 3.5e6, blocks / 1000);
  };
  double time = r.a || r.b || (r.c && p.beta != 0) ? 2.9 : 0;
  if (r.a) time += p.trans_a ? copy(p.k, p.m) : copy(p.m, p.k);
  if (r.b) time += p.trans_b ? copy(p.n, p.k) : copy(p.k, p.n);
  if (r.c) time += 2.9 + copy(p.m, p.n) * (p.beta != 0 ? 2 : 1);
  if (!r.c && (p.n % 2 || p.ldc % 2)) time += batch * double(p.m) * double(p.n) / 1e5;
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
  if (c.microseconds == 0) c.microseconds = std::max(4 + bytes / 3e6, 4 + p.flops() / 3e8);
  c.microseconds += predict_copies(p, r);
  std::string what;
  for (const auto& [packed, name] : {std::pair{r.a, "a"}, {r.b, "b"}, {r.c, "c"}})
    if (packed) text::append(what, text::cat(what.empty() ? "" : ", ", name));
  c.why = text::cat("rows of ", what, " are not aligned to 16 bytes and go through scratch memory; ", c.why);
  return c;
}

GemmAddresses GemmReordered::at(const GemmAddresses& given) const {
  GemmAddresses r = given;
  if (swapped) std::swap(r.a, r.b);
  return r;
}

GemmReordered reordered_gemm(const GemmProblem& q) {
  GemmReordered r{q.dense()};
  GemmProblem& p = r.problem;
  const auto single = [&](bool& trans, std::uint64_t rows, std::uint64_t cols, bool flip, std::uint64_t& ld) {
    // A column of neighbours is a row.
    if (cols == 1 && ld == 1 && rows > 1) trans = flip, std::swap(rows, cols), ld = cols, r.changed = true;
    if (rows == 1 && ld % 16) ld = (ld + 15) / 16 * 16, r.changed = true;
  };
  single(p.trans_a, p.trans_a ? p.k : p.m, p.trans_a ? p.m : p.k, !p.trans_a, p.lda);
  single(p.trans_b, p.trans_b ? p.n : p.k, p.trans_b ? p.k : p.n, !p.trans_b, p.ldb);
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

GemmChoice select_gemm(const GemmProblem& q, const GemmAddresses& at, const runtime::DeviceInfo& d) {
  if (const auto other = reordered_gemm(q); other.changed) {
    GemmChoice c = select_gemm(other.problem, other.at(at), d);
    c.reordered = true;
    const auto& o = other.problem;
    c.why = text::cat("told as ", o.trans_a ? "t" : "n", o.trans_b ? "t" : "n", " ", o.m, "x", o.n, "x", o.k,
                      other.swapped ? " of the transposed operands" : "", "; ", c.why);
    return c;
  }
  const GemmProblem p = q.dense();
  if (auto rows = select_f32_rows(p, at)) return std::move(*rows);
  if (const int parts = gemm_f32_parts(p, d); parts > 1) return choose_f32_parts(p, at, d, parts);
  if (!p.plain() || prefers_typed_gemm(p, d)) return select_typed_gemm(p, at, d);
  if (p.c_elements() == 0) return {GemmFamily::naive, gemm_naive(p.type), "c has no elements: nothing runs"};
  if (p.k == 0) return {GemmFamily::naive, gemm_naive(p.type), "k = 0: only beta * c is left"};
  const auto not_sm80 = reject(GemmFamily::sm80, p, at, d);
  const Packed r = packed(p, at, d);
  if (not_sm80.empty() && !r.c) return select_aligned(p, at, d);
  auto copied = select_packed_gemm(p, at, d);
  auto direct = gemm_crooked_candidates(p, at, d);
  const auto best = std::min_element(direct.begin(), direct.end(), [](const auto& x, const auto& y) {
    return x.microseconds < y.microseconds;
  });
  if (best != direct.end() && (!copied || best->microseconds < copied->microseconds)) return std::move(*best);
  if (copied) return std::move(*copied);
  if (not_sm80.empty()) return select_aligned(p, at, d);
  return {GemmFamily::simt, gemm_simt(p.type, p.trans_a, p.trans_b),
          text::cat("no tensor cores: ", not_sm80)};
}

}  // namespace cgp::kernels
