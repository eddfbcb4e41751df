// SPDX-License-Identifier: Apache-2.0
#pragma once
// Build-time choices of the Hopper kinds and of skinny; they decide emitted code and are part of a variant's
// name.
#include "cgp/kernels/gemm/api/gemm.h"

namespace cgp::kernels {

/// The operand whose tiles a pair of blocks shares by multicast: B along cluster_m, A along
/// cluster_n; both: in clusters of 2 x 2.
enum class GemmShared : std::uint8_t { none, a, b, both };
struct GemmClusterSplitKTuning {
  int stages = 6;
  int split = 1;       ///< blocks (1, 2, 4, 8 or, 64 x 64, 16) that share a tile and split K
  int min_blocks = 0;  ///< blocks per SM that the compiler makes room for; 0: its choice
  int group = 8;  ///< rows of tiles that are visited together; 0: as the grid has them (GemmChoice::by_grid)
  bool evict_first = false;              ///< B is read once and is the first to leave L2
  GemmShared shared = GemmShared::none;  ///< with split 1; tiles are counted in those of a pair
};
/// bm x bn: 64 x 32 (trans_b), 64 x 64, 64 x 128, 64 x 256, 128 x 64, 128 x 128 or (layout nt) 192 x 64.
GemmVariant gemm_cluster_split_k_sm90(DType t, bool trans_a, bool trans_b, int bm, int bn,
                                      const GemmClusterSplitKTuning& tune);

/// Whether what is read or written leaves L2 first, in its turn, or last.
enum class GemmLines : std::uint8_t { normal, first, last };
/// Build-time choices of the persistent kernel that splits the last tiles.
struct GemmStreamKTuning {
  int stages = 4;
  int split = 1;    ///< blocks (1, 2 or 4) of a cluster, which share a tile that is left
  int buffers = 2;  ///< of results on their way out, for each warpgroup: 1, or gemm_stream_k_buffers()
  int group = 8;
  GemmLines a = GemmLines::normal, b = GemmLines::normal, c = GemmLines::normal;
};
/// bm: 64 or 128; bn: 128, 192, 256 and, in layout nt, 112 to 256 in steps of 16 (bm 64: 112, 144). split 2:
/// 128 x 128 or 128 x 256, 4: 128 x 256.
GemmVariant gemm_stream_k_sm90(DType t, bool trans_a, bool trans_b, int bm, int bn,
                               const GemmStreamKTuning& tune);
/// Stages that fit with the epilogue buffers.
int gemm_stream_k_stages(int bm, int bn, int buffers);
/// Buffers that suit the columns stored at once: 2, for 192 columns 3.
int gemm_stream_k_buffers(int bn);

/// A tile of sm90_persistent, as wgmma sees it: 64, 128, 192 or 256 rows and columns in steps of 8: up to
/// 256, 192 with 256 rows; with 128 rows 272 to 384 in steps of 16 too.
struct GemmPersistentShape {
  int rows = 128, cols = 256;
  bool swap_ab = false;  ///< `rows` are columns of C, `cols` its rows
  int stages = 0;        ///< 0: as many as fit, at most 8
  int buffers = 0;       ///< epilogue buffers of each warpgroup; they divide its subtiles; 0: chosen
  int cluster = 1;       ///< blocks; each fetches a whole number of 8 rows of what they share
  GemmShared shared = GemmShared::b;  ///< along cluster_m; a: along cluster_n
  int group = 8;                      ///< rows of clusters that are visited together
  bool b_evict_first = false;         ///< B is read once and is the first to leave L2
  bool source_c = false;              ///< beta * C is added
  /// A block for each tile, in the order of the grid; its results leave through the ring, whose memory then
  /// suffices for more stages. With clusters of 2 x 2 (both) too, and `cols` in steps of 8.
  bool non_persistent = false;
  int cluster_m() const { return shared == GemmShared::a ? 1 : shared == GemmShared::both ? 2 : cluster; }
  int cluster_n() const { return shared == GemmShared::a ? cluster : shared == GemmShared::both ? 2 : 1; }
};
GemmVariant gemm_persistent_sm90(DType t, bool trans_a, bool trans_b, const GemmPersistentShape& s);
/// The same as run_gemm takes it: tile_m and tile_n are those of a cluster.
GemmChoice choose_persistent_sm90(DType t, bool trans_a, bool trans_b, const GemmPersistentShape& s);
/// The choice of a config of sm90_persistent or sm90_non_persistent; empty where no kernel has it.
std::optional<GemmChoice> choose_persistent_sm90(const GemmConfig& config);
struct DynamicTile;
DynamicTile gemm_persistent_tile(DType t, bool trans_a, bool trans_b, const GemmPersistentShape& s);

/// SMs usable with clusters: GPC sizes are not multiples of 4 or 8, so some SMs idle.
constexpr int usable_sms(int sms, int cluster) {
  return cluster >= 8 ? sms * 8 / 11 : cluster >= 4 ? sms * 10 / 11 : sms;
}

/// Why K cannot be cut into these slices; empty: it can.
std::string reject_split_k_sm90(const GemmProblem& dense, int split_k);
/// K in `split_k` slices, tiles of bm x bn: 64 or 128 by 64, 128 or 256. Unsupported as reject_split_k_sm90 says.
GemmChoice choose_split_k_sm90(const GemmProblem& p, int bm, int bn, int split_k);
/// Those that fill one wave, with predicted times.
std::vector<GemmChoice> gemm_split_k_candidates_sm90(const GemmProblem& p, const GemmAddresses& at,
                                                     const runtime::DeviceInfo& d);
/// What adds up the slices.
std::uint64_t split_k_partial_bytes(const GemmProblem& dense, int split_k);
Variant gemm_split_k_reduce(DType t, int split_k);
/// The slices' partial sums, [split_k][m][n up to a multiple of 4] in f32, to at.c.
void run_gemm_split_k(runtime::Stream& s, const GemmChoice& choice, const GemmProblem& dense,
                      const GemmAddresses& at);

/// mma.sync on rows of any alignment. tile: 16 x 32, 32 x 16, 32 x 32 or 64 x 64 (0 to 3); accesses of A and
/// B have `wide` elements (1, 2, 4 or 8), which divide all that their rows depend on; with several
/// slices of K, fp32 partial sums are stored.
GemmVariant gemm_misaligned(DType t, bool trans_a, bool trans_b, int tile, int wide_a, int wide_b,
                            int split_k);
GemmChoice choose_misaligned(const GemmProblem& dense, const GemmAddresses& at, const runtime::DeviceInfo& d,
                             int tile, int split_k);
/// Its tiles and slices of K, with predicted times.
std::vector<GemmChoice> gemm_misaligned_candidates(const GemmProblem& p, const GemmAddresses& at,
                                                   const runtime::DeviceInfo& d);
void run_gemm_misaligned(runtime::Stream& s, const GemmChoice& choice, const GemmProblem& dense,
                         const GemmAddresses& at);
/// c = alpha * the sum of [split_k][m][columns of c up to a multiple of 4] + beta * c.
void run_gemm_split_k_reduce(runtime::Stream& s, const GemmProblem& dense, std::uint64_t c,
                             std::uint64_t partials, int split_k);

/// The choice of the family with this name (or auto, packed), whether it is the fastest or not; columns: of a
/// tile, 0: chosen. Unsupported with reject()'s sentence.
GemmChoice choose_gemm(std::string_view kind, const GemmProblem& dense, const GemmAddresses& at,
                       const runtime::DeviceInfo& d, std::uint32_t columns = 0);

/// Scratch memory with aligned rows for the operands that the choice says; a, b and what is added to are
/// copied there.
void pack_gemm_operands(runtime::Stream& s, const GemmChoice& choice, GemmProblem& p, GemmAddresses& at);

/// Build-time choices of the kernel for few rows of A and a B that is streamed once.
struct GemmSmallMTuning {
  int tokens = 8;  ///< rows of A a tile: 8, 16, 32 or 64
  int rows = 128;  ///< of B (columns of C) a tile: 64, 128 or 192
  int depth = 64;  ///< of K a stage: 64 or 128
  int stages = 6;
  int min_blocks = 1;       ///< blocks per SM
  bool evict_first = true;  ///< B is the first to leave L2
};
GemmVariant gemm_small_m_sm90(DType t, bool trans_b, const GemmSmallMTuning& tune);

struct GemmSkinnyTuning {
  int rows = 16, cols = 8;   ///< of B and of A that a block multiplies: 16, 32 or (cols 32) 64; 8, 16 or 32
  int warps = 8;             ///< that share K
  int unroll = 4;            ///< accesses of each row that a lane has in flight
  int min_blocks = 0;        ///< blocks per SM that the compiler makes room for; 0: its choice
  bool evict_first = false;  ///< B is read once and is the first to leave L2
};
GemmVariant gemm_skinny(DType t, const GemmSkinnyTuning& tune);

}  // namespace cgp::kernels
