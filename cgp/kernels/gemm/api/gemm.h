// SPDX-License-Identifier: Apache-2.0
#pragma once
// C[m, n] = alpha * op(A)[m, k] * op(B)[k, n] + beta * C[m, n], row-major, fp32 accumulators.
//   types     A and B: f32, f16 or bf16, both the same; e4m3 and e5m2 in any mix; s8
//             C: f32, f16 or bf16; s32 and s8 from s8; e4m3 and e5m2 from all but s8 (sm_89)
//   layouts   A is stored [m, k], or [k, m] with trans_a; B is stored [k, n], or [n, k] with trans_b
//   batch     `batch` independent products whose operands lie stride_a, stride_b, stride_c elements apart
//   scales    of whole operands, of rows of op(A) and columns of op(B), or of blocks
//   epilogue  functions of the elements on their way into C: bias, GELU, SwiGLU, your own (epilogue.h)
// Any sizes, 0 included (k = 0 leaves beta * C), any leading dimensions and alignment. With beta = 0, C is
// not read: NaN in it does not matter.
#include <cstdint>
#include <optional>
#include <span>

#include "cgp/kernels/catalog/catalog.h"
#include "cgp/kernels/common/variant.h"
#include "cgp/kernels/gemm/epilogue/epilogue.h"
#include "cgp/kernels/gemm/select/gemm_config.h"

namespace cgp::kernels {

/// How products are computed where there is a choice.
enum class GemmPrecision : std::uint8_t {
  standard,  ///< f32: as accurate as fp32 accumulation; fp8: each 128 products are promoted to fp32
  fast,      ///< f32: operands rounded to tf32 (10 bits); fp8: accumulated in the tensor cores (some 14 bits)
  strict     ///< f32: fused multiply-adds in fp32, no tensor cores; others: as standard
};
/// What each scale of A and B (f32, in device memory: GemmAddresses) belongs to.
enum class GemmScaling : std::uint8_t {
  none,
  tensor,   ///< one scale each
  channel,  ///< m scales for the rows of op(A), n for the columns of op(B)
  block  ///< 1 x 128 of op(A): [batch][m][ceil(k/128)]; 128 x 128 of op(B): [batch][ceil(n/128)][ceil(k/128)]
};
std::string_view name(GemmPrecision p);
std::string_view name(GemmScaling s);

struct GemmProblem {
  DType type = DType::bf16;  ///< of A, and of B and C unless they say otherwise
  bool trans_a = false, trans_b = false;
  std::uint64_t m = 0, n = 0, k = 0;
  std::uint64_t lda = 0, ldb = 0, ldc = 0;  ///< elements between stored rows; 0: dense
  float alpha = 1, beta = 0;
  std::uint64_t batch = 1;
  std::uint64_t stride_a = 0, stride_b = 0, stride_c = 0;  ///< elements; 0: dense
  std::optional<DType> type_b{};                           ///< none: as A
  std::optional<DType> type_c{};                           ///< none: as A; bf16 for 8-bit floats, s32 for s8
  GemmPrecision precision = GemmPrecision::standard;
  GemmScaling scaling = GemmScaling::none;
  Epilogue epilogue{};  ///< applied to alpha * op(A) * op(B) + beta * C

  std::uint64_t columns() const { return epilogue.pairing() == Pairing::none ? n : n / 2; }  ///< of C
  /// One type of 16 or 32 bits for all, no scales, no epilogue.
  bool plain() const;
  /// The same with every 0 and every absent type replaced by what it means.
  GemmProblem dense() const;
  std::uint64_t a_elements() const, b_elements() const,
      c_elements() const;  ///< from first to last, dense() assumed
  double flops() const { return 2.0 * double(m) * double(n) * double(k) * double(batch); }
};
/// Why the problem is malformed, naming the argument; empty: it is fine.
std::string reject(const GemmProblem& p);

/// Queues the product. ArgumentError with reject()'s sentence, or when a slice is shorter than the problem
/// says.
template <class T>  // float, half or bfloat16
void gemm(runtime::Stream& s, const GemmProblem& p, const runtime::Slice<const T>& a,
          const runtime::Slice<const T>& b, const runtime::Slice<T>& c);
/// Scales of a problem with scaling.
struct GemmScales {
  DeviceArray a, b;
};
/// The same for every combination of types: they must be the problem's.
/// padded_ldc: the caller guarantees that each row of c may be written up to the next multiple of 16 bytes.
void gemm(runtime::Stream& s, const GemmProblem& p, const DeviceArray& a, const DeviceArray& b,
          const DeviceArray& c, const GemmScales& scales = {}, bool padded_ldc = false);

// ---------------------------------------------------------------- variants and their selection
/// A variant and the config that made it; name == print(config).
struct GemmVariant : Variant {
  GemmConfig config;
};

struct GemmChoice {
  GemmFamily kind = GemmFamily::naive;
  GemmVariant variant;
  std::string why;
  std::uint32_t tile_n = 128;  ///< columns of a block's tile (sm90)
  int cluster = 1;  ///< blocks of a cluster: along M (sm90_persistent), along K (sm90_cluster_split_k)
  std::uint32_t tile_m = 128;  ///< rows of a block's tile
  /// a, b: copied first into scratch memory of the stream, with aligned rows; c: made there and copied back.
  bool pack_a = false, pack_b = false, pack_c = false;
  double microseconds = 0;    ///< predicted for the kernel, 0: not predicted
  std::uint32_t tile_k = 64;  ///< of K a stage (sm90_small_m)
  int min_blocks = 1;         ///< blocks per SM (sm90_small_m)
  bool by_grid = false;       ///< x and y of the grid are rows and columns of tiles
  int split_k = 1;            ///< slices of K
  /// The problem was canonicalized: what runs is canonicalize_gemm() of it.
  bool canonicalized = false;
  bool staged = false;         ///< c leaves through shared memory and TMA (sm100)
  std::string_view rule = {};  ///< of select_gemm that made it, in words
};
/// Why `kind` cannot run the problem on the device; empty: it can. Addresses matter only for their alignment.
struct GemmAddresses {
  std::uint64_t a = 0, b = 0, c = 0;
  std::uint64_t scale_a = 0, scale_b = 0;
  bool padded_ldc =
      false;  ///< nobody needs what lies between the rows of c: scratch memory, or so the caller says
};
std::string reject(GemmFamily kind, const GemmProblem& p, const GemmAddresses& at,
                   const runtime::DeviceInfo& d);
/// A pure function of its arguments: the fastest kind that can run it.
GemmChoice select_gemm(const GemmProblem& p, const GemmAddresses& at, const runtime::DeviceInfo& d);

/// The choice for rows that are copied into scratch memory first; none where nothing must be, or it would be
/// too small.
std::optional<GemmChoice> select_packed_gemm(const GemmProblem& p, const GemmAddresses& at,
                                             const runtime::DeviceInfo& d);

/// Build-time choices of the typed Hopper kernels.
struct GemmMixedTuning {
  int bm = 128, bn = 192;  ///< one tile a warpgroup: 128 x 128, 128 x 192; others are shared
  int stages = 4, cluster = 1, buffers = 2;
  int group = 8;  ///< rows of clusters that are visited together
  /// Column slices in which accumulators are promoted, and whether one is multiplied while another is added.
  int promote = 1;
  bool overlapped = false;
};
/// The choice for a problem that is not plain().
/// With these tiles, on sm_90a; Unsupported with the reason where that cannot be.
GemmChoice choose_mixed_sm90(const GemmProblem& p, const GemmAddresses& at, const runtime::DeviceInfo& d,
                             const GemmMixedTuning& t);
/// A plain() problem that the typed kernels run faster: f32 on sm_90a.
bool prefers_mixed_gemm(const GemmProblem& p, const runtime::DeviceInfo& d);
GemmChoice select_mixed_gemm(const GemmProblem& p, const GemmAddresses& at, const runtime::DeviceInfo& d);
/// What runs behind f32 products of the tensor cores, for operands with infinities or NaN.
GemmVariant gemm_guarded_simt(const GemmProblem& p);
/// Every type, layout, scale and epilogue (s8 accumulates in s32, others in f32, k after k).
GemmVariant gemm_generic(const GemmProblem& dense, const Epilogue& whole);
void run_mixed_gemm(runtime::Stream& s, const GemmChoice& choice, const GemmProblem& p,
                    const GemmAddresses& at);

/// Variants of one kind; types and layouts it was built for.
GemmVariant gemm_naive(DType t);
GemmVariant gemm_simt(DType t, bool trans_a, bool trans_b);
GemmVariant gemm_sm80(DType t, bool trans_a, bool trans_b);
/// The canonical form of a problem: a matrix of one contiguous column is a row, a result of one column is a row
/// of the product of the transposed operands (a and b change places), and a leading dimension that nothing
/// depends on is one that every kernel takes.
struct GemmCanonical {
  GemmProblem problem;
  bool swapped = false, changed = false;
  GemmAddresses at(const GemmAddresses& given) const;
};
GemmCanonical canonicalize_gemm(const GemmProblem& p);
GemmVariant gemm_sm90(DType t, bool trans_a, bool trans_b, int bn);
/// Build-time choices of the persistent kernel.
struct GemmPersistentTuning {
  int stages = 4, cluster = 2, buffers = 2;
  int group = 8;  ///< rows of clusters that are visited together
};
GemmVariant gemm_persistent_sm90(DType t, bool trans_a, bool trans_b, int bn,
                                 const GemmPersistentTuning& tune);

/// Elements between the rows of a packed operand: rows begin at lines of 128 bytes.
std::uint64_t packed_ld(std::uint64_t cols);
/// Where rows of 16-bit elements lie: `ld` apart, batches `stride` apart.
struct GemmRows {
  std::uint64_t address = 0, ld = 0, stride = 0;
};
/// rows x cols elements from one place to the other, at any alignment.
struct GemmCopy {
  GemmRows from, to;
  std::uint64_t rows, cols;
};
/// Copies up to three matrices in one launch.
Variant gemm_pack(int matrices);
std::uint64_t gemm_pack_blocks(const GemmCopy& c);
void run_gemm_pack(runtime::Stream& s, std::span<const GemmCopy> copies, std::uint64_t batch);

/// The tiles that select_gemm weighs against each other on sm_90a, with the times it predicts.
std::vector<GemmChoice> gemm_candidates_sm90(const GemmProblem& p, const GemmAddresses& at,
                                             const runtime::DeviceInfo& d);

/// The steps of gemm_sm100.h: tiled, swizzled and pipelined (layout nt); specialised to multicast, with
/// results staged or (tiles of 128 columns) direct; pair.
GemmVariant gemm_sm100_ladder(DType t, GemmFamily step);
GemmVariant gemm_sm100(DType t, bool trans_a, bool trans_b, GemmFamily step, int bn);
GemmVariant gemm_sm100_direct(DType t, bool trans_a, bool trans_b, GemmFamily step);
GemmVariant gemm_sm100_pair(DType t, bool trans_a, bool trans_b, int bn);
/// The choice for one of them; tiles of 128 or 256 columns, 0: as wide as the problem asks for.
GemmChoice choose_sm100(GemmFamily step, const GemmProblem& p, const GemmAddresses& at,
                        const runtime::DeviceInfo& d, std::uint32_t columns = 0);
/// The step that runs a problem on sm_100a, and why.
GemmChoice select_sm100(const GemmProblem& p, const GemmAddresses& at, const runtime::DeviceInfo& d);
/// What ships of them, for tests that assemble.
std::vector<Variant> gemm_sm100_variants(DType t);

/// Runs a problem with one kind, for tests, ladders and comparisons; Unsupported with reject()'s sentence.
void run_gemm(runtime::Stream& s, const GemmChoice& choice, const GemmProblem& p, const GemmAddresses& at);

KernelEntry gemm_entry();

}  // namespace cgp::kernels

namespace cgp {
using kernels::gemm;
using kernels::GemmProblem;
}  // namespace cgp
