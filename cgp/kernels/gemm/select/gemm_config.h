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
#include "cgp/kernels/common/config.h"

namespace cgp::kernels {

enum class GemmFamily : std::uint8_t {
#define GEMM_FAMILY(name, ...) name,
#include "cgp/kernels/gemm/select/gemm_families.def"
#undef GEMM_FAMILY
};
std::span<const std::string_view> gemm_family_names();

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
  int split_k = 0;            ///< blocks or slices that share K
  int group = 0;              ///< rows of clusters visited together
  bool raster_grid = false;   ///< tiles in the order of the grid
  int store_buffers = 0;      ///< epilogue buffers of a warpgroup; 0: the family's usual number
  int warps = 0;              ///< that share K
  int unroll = 0;             ///< accesses of a row in flight
  int min_blocks = 0;         ///< per SM
  int vec_a = 0, vec_b = 0;   ///< bytes of an access
  int promote = 0;            ///< column slices in which accumulators are promoted
  bool overlap = false;       ///< a slice is promoted while another is multiplied
  bool block_scales = false;  ///< a scale for each 128 of K
  int evict_a = 0, evict_b = 0, evict_c = 0;  ///< GemmEviction
  bool swap_ab = false;                       ///< the tensor core multiplies B by A
  bool source_c = false;                      ///< beta * C is added
  bool direct = false;                        ///< C is stored without shared memory
  bool partial = false;                       ///< fp32 partial sums of a slice of K are stored
  std::string epilogue = {};                  ///< names of its stages; empty: alpha * accumulator

  bool operator==(const GemmConfig&) const = default;

  template <class Self, class V>
  static void visit(Self& c, V& v) {  // in the order of the name
    constexpr std::string_view layouts[] = {"", "nn", "nt", "tn", "tt"};
    constexpr std::string_view a[] = {"", "a_evict_first", "a_evict_last"},
                               b[] = {"", "b_evict_first", "b_evict_last"},
                               of_c[] = {"", "c_evict_first", "c_evict_last"};
    v.operand_types(c.a, c.b, c.c);
    v.choice("layout", layouts, c.layout);
    v.choice("family", gemm_family_names(), c.family);
    v.extents({"tile_m", "tile_n", "tile_k"}, "", c.tile_m, c.tile_n, c.tile_k);
    v.number("stages", "s", c.stages, 0);
    v.extents({"cluster_m", "cluster_n"}, "cluster", c.cluster_m, c.cluster_n);
    v.number("split_k", "split_k", c.split_k, 0);
    v.number("group", "group", c.group, 0);
    v.flag("raster_grid", c.raster_grid);
    v.number("store_buffers", "stores", c.store_buffers, 0);
    v.number("warps", "warps", c.warps, 0);
    v.number("unroll", "unroll", c.unroll, 0);
    v.number("min_blocks", "min_blocks", c.min_blocks, 0);
    v.extents({"vec_a", "vec_b"}, "vec", c.vec_a, c.vec_b);
    v.number("promote", "promote", c.promote, 0);
    v.flag("overlap", c.overlap);
    v.flag("block_scales", c.block_scales);
    v.choice("evict_a", a, c.evict_a);
    v.choice("evict_b", b, c.evict_b);
    v.choice("evict_c", of_c, c.evict_c);
    v.flag("swap_ab", c.swap_ab);
    v.flag("source_c", c.source_c);
    v.flag("direct", c.direct);
    v.flag("partial", c.partial);
    v.rest("epilogue", "epilogue_", c.epilogue);
  }
};

/// The canonical name.
std::string print(const GemmConfig& c);
/// The config with this name. ArgumentError names what does not fit, and what is possible there.
GemmConfig parse_gemm_config(std::string_view name);
std::size_t hash(const GemmConfig& c);
/// One JSON object of all fields: {"types": ["bf16", "bf16", "bf16"], "layout": "nt", "family": ...}
std::string json(const GemmConfig& c);

std::string_view name(GemmFamily f);

/// What a family asks of a problem and a device: gemm_families.def.
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
