// SPDX-License-Identifier: Apache-2.0
// The choice of a family that a caller asks for by name: tests, comparisons, cgp run gemm variant=...
#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/gemm/api/gemm_launch.h"
#include "cgp/kernels/gemm/api/gemm_tuning.h"
#include "cgp/kernels/gemm/select/gemm_tilings_sm90.h"
#include "cgp/kernels/gemm/sm80/gemm_sm80.h"

namespace cgp::kernels {
namespace forced {
namespace {

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

struct Request {
  GemmFamily family;
  const GemmProblem& p;
  const GemmAddresses& at;
  const runtime::DeviceInfo& d;
  std::uint32_t columns;  ///< of a tile; 0: the family's choice
};

GemmChoice with(const Request& r, GemmVariant v, int tile_m = 128, int tile_n = 128, int cluster = 1) {
  GemmChoice c{r.family, std::move(v), {}, std::uint32_t(tile_n), cluster};
  c.tile_m = std::uint32_t(tile_m);
  return c;
}

GemmChoice naive(const Request& r) { return with(r, gemm_naive(r.p.type)); }
GemmChoice simt(const Request& r) { return with(r, gemm_simt(r.p.type, r.p.trans_a, r.p.trans_b)); }
GemmChoice generic(const Request& r) { return with(r, gemm_generic(r.p, epilogue::of_problem(r.p, r.at))); }
GemmChoice by_types(const Request& r) {
  throw Unsupported(text::cat(name(r.family), " is taken where types or an epilogue ask for it"));
}
GemmChoice misaligned(const Request& r) {
  const auto all = gemm_misaligned_candidates(r.p, r.at, r.d);
  return *std::min_element(all.begin(), all.end(),
                           [](const auto& x, const auto& y) { return x.microseconds < y.microseconds; });
}
GemmChoice sm80(const Request& r) { return choose_sm80(r.p, r.d); }
GemmChoice skinny(const Request& r) {
  const auto& p = r.p;
  const GemmSkinnyTuning t{p.n > 64 ? 32 : 16, p.m <= 8 ? 8 : p.m <= 16 ? 16 : 32, 4, 2, 0, p.batch == 1};
  return with(r, gemm_skinny(p.type, t), t.cols, t.rows);
}
GemmChoice sm90(const Request& r) {
  return with(r, gemm_sm90(r.p.type, r.p.trans_a, r.p.trans_b, 256), 128, 256);
}
GemmChoice cluster_split_k(const Request& r) {
  GemmClusterSplitKTuning t;
  t.split = r.p.k > 192 ? 4 : r.p.k > 64 ? 2 : 1;
  return with(r, gemm_cluster_split_k_sm90(r.p.type, r.p.trans_a, r.p.trans_b, 64, 64, t), 64, 64, t.split);
}
GemmChoice persistent(const Request& r) {
  return choose_persistent_sm90(r.p.type, r.p.trans_a, r.p.trans_b,
                                {.cluster = 2, .source_c = r.p.beta != 0});
}
GemmChoice non_persistent(const Request& r) {
  auto all = gemm_non_persistent_candidates_sm90(r.p, r.at, r.d, 1);
  if (all.empty()) throw Unsupported("sm90_non_persistent: no tile makes one wave of this problem");
  return all[0];
}
GemmChoice stream_k(const Request& r) {
  const auto& p = r.p;
  GemmStreamKTuning t;
  const int bm = p.m > 64 ? 128 : 64, bn = r.columns ? int(r.columns) : 256;
  const std::uint64_t tiles = p.batch * ceil_div(p.m, std::uint64_t(bm)) * ceil_div(p.n, std::uint64_t(bn));
  if (bm == 128 && bn % 128 == 0 && p.k > 64) t.split = bn == 128 || tiles % 2 ? 2 : 4;
  t.buffers = gemm_stream_k_buffers(bn), t.stages = gemm_stream_k_stages(bm, bn, t.buffers);
  return with(r, gemm_stream_k_sm90(p.type, p.trans_a, p.trans_b, bm, bn, t), bm, bn, t.split);
}
GemmChoice small_m(const Request& r) {
  const auto& p = r.p;
  GemmSmallMTuning t;
  t.tokens = p.m <= 8 ? 8 : p.m <= 16 ? 16 : p.m <= 32 ? 32 : 64;
  if (p.trans_b) t.rows = p.n > 128 ? 192 : p.n > 64 ? 128 : 64, t.depth = p.k > 64 ? 128 : 64;
  t.stages = 3;
  auto c = with(r, gemm_small_m_sm90(p.type, p.trans_b, t), t.tokens, t.rows);
  c.tile_k = std::uint32_t(t.depth), c.min_blocks = t.min_blocks;
  return c;
}
GemmChoice split_k(const Request& r) {
  return choose_split_k_sm90(r.p, r.p.m > 64 ? 128 : 64, 64, r.p.k % 24 == 0 ? 3 : 2);
}
GemmChoice mixed(const Request& r, int stages) {
  auto c = choose_mixed_sm90(r.p, r.at, r.d, {.bm = 128, .bn = 128, .stages = stages});
  if (c.kind != r.family)
    throw Unsupported(text::cat(name(r.family), " is not for this problem, ", name(c.kind), " is"));
  return c;
}
GemmChoice pingpong(const Request& r) { return mixed(r, 6); }
GemmChoice promoted(const Request& r) { return mixed(r, 2); }
GemmChoice sm100(const Request& r) { return choose_sm100(r.family, r.p, r.at, r.d, r.columns); }

constexpr GemmChoice (*kForced[])(const Request&) = {
#define GEMM_FAMILY(name, min_sm, only, needs, operands, layouts, result, one_batch, for_mixed, run, forced) \
  forced,
#include "cgp/kernels/gemm/select/gemm_families.def"
#undef GEMM_FAMILY
};

}  // namespace
}  // namespace forced

GemmChoice choose_gemm(std::string_view kind, const GemmProblem& p, const GemmAddresses& at,
                       const runtime::DeviceInfo& d, std::uint32_t columns) {
  auto selected = select_gemm(p, at, d);
  if (kind == "auto" || (kind == name(selected.kind) && columns == 0)) return selected;
  if (kind == "packed") {
    auto c = select_packed_gemm(p, at, d);
    if (!c) throw Unsupported("packed: no rows that are copied into scratch memory, or too small a product");
    c->why = "asked for";
    return *c;
  }
  const auto f = std::find_if(gemm_families().begin(), gemm_families().end(),
                              [&](const GemmFamilyInfo& x) { return x.name == kind; });
  if (f == gemm_families().end()) throw ArgumentError(text::cat("gemm has no family ", kind));
  const forced::Request request{f->family, p, at, d, columns};
  // Whether mixed precision can run it is said by what chooses its tiles.
  if (!f->for_mixed && f->family != GemmFamily::sm90_pingpong)
    if (auto why = reject(f->family, p, at, d); !why.empty()) throw Unsupported(std::move(why));
  auto c = forced::kForced[std::size_t(f->family)](request);
  c.why = "asked for";
  return c;
}

}  // namespace cgp::kernels
