// SPDX-License-Identifier: Apache-2.0
#pragma once
// A variant of gemm as a value. Its name is printed from the value and parses back to it:
//
//   gemm_bf16_nt_sm90_persistent_200x256x64_s3_cluster1x1_group8_swap_ab
//        |    |  |               |          |  |          |      choices of this family
//        |    |  |               |          |  |          rows of clusters visited together
//        |    |  |               |          |  blocks of a cluster along m and n
//        |    |  |               |          stages of the ring
//        |    |  |               tile of a block: m x n x k
//        |    |  family (GemmFamily)
//        |    layout of A and B: n as multiplied, t transposed
//        types: one for all, or those of A, B and C
//
// The name is the entry symbol of the kernel too. Fields that a family does not have are 0 and not printed.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "cgp/base/dtype.h"

namespace cgp::kernels {

enum class GemmFamily : std::uint8_t {
  naive,
  simt,
  simt_small_m,  ///< f32, few rows of A: gemm_f32_rows.cpp
  misaligned,    ///< mma.sync on rows of any alignment
  sm80,
  skinny,
  sm90,
  sm90_cluster_split_k,  ///< the blocks of a cluster share a tile and split K
  sm90_persistent,
  sm90_non_persistent,  ///< a block for each tile
  sm90_stream_k,        ///< persistent; the last wave is split along K
  sm90_small_m,         ///< few rows of A, B is streamed once
  sm90_split_k,         ///< slices of K are a batch of products, added up by a second kernel
  sm90_pingpong,        ///< mixed precision, scales, epilogues; a tile for each warpgroup
  sm90_cooperative,     ///< the same, the warpgroups share a tile
  sm90_promoted,        ///< the same, accumulators are promoted to fp32 registers
  mixed_mma,            ///< mma.sync with any type of C and epilogue
  mixed_simt,           ///< the same of simt
  guarded_simt,         ///< simt that runs only where a flag in memory asks for it
  generic,              ///< one thread an element: every type, layout, scaling and epilogue
  sm100_tiled,
  sm100_swizzled,
  sm100_pipelined,
  sm100_specialised,
  sm100_persistent,
  sm100_stealing,
  sm100_multicast,
  sm100_pair,
};

enum class GemmLayout : std::uint8_t { any, nn, nt, tn, tt };
constexpr GemmLayout gemm_layout(bool trans_a, bool trans_b) { return GemmLayout(1 + 2 * trans_a + trans_b); }

/// L2 eviction policy of a matrix.
enum class GemmEviction : int { normal, first, last };

struct GemmConfig {
  GemmFamily family = GemmFamily::naive;
  DType a = DType::bf16, b = a, c = a;
  GemmLayout layout = GemmLayout::any;
  int tile_m = 0, tile_n = 0, tile_k = 0;  ///< of a block
  int stages = 0;
  int cluster_m = 0, cluster_n = 0;
  int split_k = 0;           ///< blocks or slices that share K
  int group = 0;             ///< rows of clusters visited together
  int raster_grid = 0;       ///< 1: tiles in the order of the grid
  int store_buffers = 0;     ///< epilogue buffers of a warpgroup; 0: the family's usual number
  int warps = 0;             ///< that share K
  int unroll = 0;            ///< accesses of a row in flight
  int min_blocks = 0;        ///< per SM
  int vec_a = 0, vec_b = 0;  ///< bytes of an access
  int promote = 0;           ///< column slices in which accumulators are promoted
  int overlap = 0;           ///< 1: a slice is promoted while another is multiplied
  int block_scales = 0;      ///< 1: a scale for each 128 of K
  int evict_a = 0, evict_b = 0, evict_c = 0;  ///< GemmEviction
  int swap_ab = 0;                            ///< 1: the tensor core multiplies B by A
  int source_c = 0;                           ///< 1: beta * C is added
  int direct = 0;                             ///< 1: C is stored without shared memory
  int partial = 0;                            ///< 1: fp32 partial sums of a slice of K are stored
  std::string epilogue = {};                  ///< names of its stages; empty: alpha * accumulator

  bool operator==(const GemmConfig&) const = default;
};

/// The canonical name.
std::string print(const GemmConfig& c);
/// The config with this name. ArgumentError that names the part that is wrong and what is possible there.
GemmConfig parse_gemm_config(std::string_view name);
std::size_t hash(const GemmConfig& c);
/// One JSON object: {"family":"sm90_persistent","types":["bf16","bf16","bf16"],"layout":"nt","tile_m":200,...}
std::string json(const GemmConfig& c);

std::string_view name(GemmFamily f);

/// What a family asks of a problem and a device; kernels/gemm/select/gemm_family.cpp has the table.
struct GemmFamilyInfo {
  enum class Operands : std::uint8_t { any, elements, rows16, k16 };
  enum class Layouts : std::uint8_t { all, a_along_k, nt };
  enum class Result : std::uint8_t { any, tma, tma_fresh };
  GemmFamily family;
  std::string_view name;
  int min_sm;              ///< lowest compute capability times ten
  std::string_view only;   ///< the only architecture; empty: min_sm and later
  std::string_view needs;  ///< instructions that decide it
  Operands
      operands;  ///< any: no limits; elements: sizes below 2^31; rows16: rows at multiples of 16 bytes too
  Layouts layouts;
  Result result;  ///< tma: rows of C are written by TMA; tma_fresh: and C is not read
  bool one_batch;
  bool for_mixed;  ///< taken where types, scales or an epilogue ask for it, not by plain problems
};
/// All of them, in the order of GemmFamily.
std::span<const GemmFamilyInfo> gemm_families();
const GemmFamilyInfo& info(GemmFamily f);

}  // namespace cgp::kernels
