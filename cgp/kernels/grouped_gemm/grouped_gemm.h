// SPDX-License-Identifier: Apache-2.0
#pragma once
// Many products in one launch, their sizes known on the device only. fp32 accumulators, results rounded once; types,
// scales and epilogues as gemm has them (gemm.h).
//   rows      C[r, :] = alpha * A[r, :] * op(B[g]) for the rows r of group g: experts of a mixture behind
//   each
//             other. A [rows, k], B [groups, k, n] or [groups, n, k] with trans_b, C [rows, n]. With an
//             index, row r of A is A[index[r], :].
//   depth     C[g] = alpha * A[rows of g, :]^T * B[rows of g, :]: gradients of the weights. A [rows, m],
//             B [rows, n], C [groups, m, n]; a group without rows gives zeros.
//   problems  C_g = alpha * op(A_g) * op(B_g) with addresses, sizes and leading dimensions of their own.
// beta * C is added in every form.
// Groups are given by their ends in rows (inclusive prefix sums of their sizes, 32 or 64 bits), problems by
// an array of GroupedItem: both lie on the device and are read there; nothing waits for the host.
#include <cstdint>

#include <optional>

#include "cgp/kernels/catalog/catalog.h"
#include "cgp/kernels/common/variant.h"
#include "cgp/kernels/gemm/api/gemm.h"

namespace cgp::kernels {

enum class GroupedForm : std::uint8_t { rows, depth, problems };
std::string_view name(GroupedForm f);

struct GroupedProblem {
  DType type = DType::bf16;  ///< of A; B and C are as gemm has them
  GroupedForm form = GroupedForm::rows;
  bool trans_b = false;  ///< rows, problems: B is stored [n, k]
  std::uint64_t groups = 0;
  std::uint64_t rows = 0;      ///< of A (depth: of A and B); problems: not used
  std::uint64_t m = 0;         ///< depth: rows of each C
  std::uint64_t n = 0, k = 0;  ///< depth: k is not used
  bool wide_ends = false;      ///< ends are 64-bit numbers
  float alpha = 1;
  std::uint64_t a_rows = 0;  ///< rows that A has when there is an index; 0: `rows`
  bool trans_a = false;      ///< problems: A is stored [k, m]
  float beta = 0;
  std::optional<DType> type_b{}, type_c{};  ///< none: as A; of C as GemmProblem has it
  GemmPrecision precision = GemmPrecision::standard;
  /// tensor: a scale of A (problems, depth: of each A) and one of each B. channel, block (forms rows and
  /// depth; rows): of the rows of A, and [groups] of those of gemm for B.
  GemmScaling scaling = GemmScaling::none;
  /// Rows are counted over all groups (rows), else inside each C, whose number is the batch. No amax.
  Epilogue epilogue{};

  /// The same with every absent type replaced by what it means.
  GroupedProblem whole() const;
  /// One 16- or 32-bit type for all, beta = 0, nothing else asked for.
  bool plain() const;
  std::uint64_t columns() const { return epilogue.pairing() == Pairing::none ? n : n / 2; }  ///< of C
  double flops() const;  ///< when the groups fill all rows
};

/// One of `problems`, as it lies on the device. Leading dimensions in elements.
struct GroupedItem {
  std::uint64_t a = 0, b = 0, c = 0;
  std::uint32_t m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldc = 0;
};
static_assert(sizeof(GroupedItem) == 48);

/// Device addresses: the operands (rows, depth), where the groups end, the index or 0, the items (problems).
struct GroupedAddresses {
  std::uint64_t a = 0, b = 0, c = 0, ends = 0, index = 0, items = 0, scale_a = 0, scale_b = 0;
};

/// Why the problem is malformed, naming the argument; empty: it is fine.
std::string reject(const GroupedProblem& p);

enum class GroupedKind : std::uint8_t { simt, sm80, sm90, mixed_sm90 };
inline constexpr int kGroupedKinds = 4;
std::string_view name(GroupedKind k);
std::string reject(GroupedKind kind, const GroupedProblem& p, const GroupedAddresses& at,
                   const runtime::DeviceInfo& d);

/// A variant as a value; its name is "grouped_gemm" and the fields, as "grouped_gemm_bf16_rows_sm90_nt_128x256x64_s4_stores2_group8".
struct GroupedConfig {
  DType a = DType::bf16, b = a, c = a;
  GroupedForm form = GroupedForm::rows;
  GroupedKind kind = GroupedKind::simt;
  bool maps = false;  ///< the kernel that makes the tensor maps of the items (form problems)
  GemmLayout layout = GemmLayout::any;  ///< of A and B, where the form leaves a choice
  int tile_m = 0, tile_n = 0, tile_k = 0;
  int stages = 0, store_buffers = 0;
  int group = 0;                 ///< rows of tiles visited together
  bool static_schedule = false;  ///< blocks take every gridDim-th tile, not the next one
  int promote = 0;               ///< column slices in which accumulators are promoted
  GemmScaling scaling = GemmScaling::none;
  bool alpha = false;     ///< s32 results are multiplied
  bool source_c = false;  ///< beta * C is added
  std::string epilogue = {};

  bool operator==(const GroupedConfig&) const = default;
  template <class Self, class V>
  static void visit(Self& c, V& v) {  // in the order of the name
    constexpr std::string_view forms[] = {"rows", "depth", "problems"};
    constexpr std::string_view kinds[] = {"simt", "sm80", "sm90", "mixed_sm90"};
    constexpr std::string_view layouts[] = {"", "nn", "nt", "tn", "tt"};
    constexpr std::string_view scales[] = {"", "tensor_scales", "channel_scales", "block_scales"};
    v.operand_types(c.a, c.b, c.c);
    v.choice("form", forms, c.form), v.choice("kind", kinds, c.kind), v.flag("maps", c.maps);
    v.choice("layout", layouts, c.layout);
    v.extents({"tile_m", "tile_n", "tile_k"}, "", c.tile_m, c.tile_n, c.tile_k);
    v.number("stages", "s", c.stages, 0), v.number("store_buffers", "stores", c.store_buffers, 0);
    v.number("group", "group", c.group, 0), v.flag("static_schedule", c.static_schedule);
    v.number("promote", "promote", c.promote, 0), v.choice("scaling", scales, c.scaling);
    v.flag("alpha", c.alpha), v.flag("source_c", c.source_c), v.rest("epilogue", "epilogue_", c.epilogue);
  }
};
/// The variant of a config whose kernel function takes `tune`.
template <class Tune, class... Ps>
Variant grouped_variant(const GroupedConfig& config, int min_sm, void (*fn)(dsl::Kernel&, Tune, Ps...),
                        std::type_identity_t<Tune> tune) {
  constexpr std::string_view family = "grouped_gemm";
  Variant v = variant(config_name(family, config), min_sm, fn, std::move(tune));
  v.config = &kConfigType<GroupedConfig>, v.family = family.size();
  return v;
}

template <class... Ps>
Variant grouped_variant(const GroupedConfig& config, int min_sm, void (*fn)(dsl::Kernel&, Ps...)) {
  constexpr std::string_view family = "grouped_gemm";
  Variant v = variant(config_name(family, config), min_sm, fn);
  v.config = &kConfigType<GroupedConfig>, v.family = family.size();
  return v;
}

struct GroupedTuning {
  int bn = 256;  ///< columns of a tile: 128 or 256
  int stages = 4, buffers = 2;
  int band = 8;       ///< rows of tiles that are visited together
  bool taken = true;  ///< blocks take tiles from a counter; else every gridDim-th
};
/// The config of sm90's variants.
GroupedConfig grouped_config_sm90(DType t, GroupedForm form, GemmLayout layout, const GroupedTuning& tune);
struct GroupedChoice {
  GroupedKind kind = GroupedKind::simt;
  Variant variant;
  std::string why;
  GroupedTuning tune{};
  bool gather = false;  ///< the rows that the index names are copied to scratch memory first
};
GroupedChoice select_grouped_gemm(const GroupedProblem& p, const GroupedAddresses& at,
                                  const runtime::DeviceInfo& d);

/// Queues the products. ArgumentError with reject()'s sentence.
void grouped_gemm(runtime::Stream& s, const GroupedProblem& p, const GroupedAddresses& at);
/// With one kind, for tests and comparisons; Unsupported with reject()'s sentence.
void run_grouped_gemm(runtime::Stream& s, const GroupedChoice& choice, const GroupedProblem& p,
                      const GroupedAddresses& at);

Variant grouped_rows_sm90(DType t, bool trans_b, const GroupedTuning& tune);
Variant grouped_depth_sm90(DType t, const GroupedTuning& tune);

/// Form problems: the kernel that makes the items' tensor maps (kGroupedMapBytes each, of A, B and C), and
/// the one that multiplies. Tiles of 128 or 256 columns.
struct GroupedProblemsVariants {
  Variant maps, products;
};
inline constexpr int kGroupedMapBytes = 128;
GroupedProblemsVariants grouped_problems_sm90(DType t, bool trans_b, const GroupedTuning& tune);
/// Queues the writing of `count` items from three arrays of addresses on the device, with the sizes and
/// leading dimensions of `common`: a batch of equal products whose operands lie anywhere.
void run_grouped_items(runtime::Stream& s, std::uint64_t items, std::uint64_t count, std::uint64_t a,
                       std::uint64_t b, std::uint64_t c, const GroupedItem& common);
Variant grouped_items();
Variant grouped_simt(DType t, GroupedForm form, bool trans_b);
/// Every type, scale and epilogue; sm_75, bf16: sm_80, results of 8-bit floats: sm_89.
Variant grouped_simt(const GroupedProblem& p);
/// The same on sm_90a for the form rows, with tiles of 64 or 128 rows: K contiguous in A and B, 16-byte rows.
struct GroupedMixedTuning {
  int bm = 128, bn = 128, stages = 4, buffers = 2, promote = 1, band = 8;
};
/// alpha, beta * C and the problem's epilogue, for the form rows.
Epilogue grouped_epilogue(const GroupedProblem& p, const GroupedAddresses& at);
GroupedMixedTuning grouped_mixed_tuning(const GroupedProblem& p);
Variant grouped_mixed_sm90(const GroupedProblem& p, const GroupedMixedTuning& t);

/// Ends of `groups` groups over `rows` rows, for tests and measurements: even, ragged (0.2 to 1.8 times the
/// mean), skewed (few large ones), holes (half of them empty) or one (one has all).
std::vector<std::uint64_t> ragged_ends(std::uint64_t groups, std::uint64_t rows, std::string_view spread,
                                       std::uint64_t seed);

/// Form rows or depth.
Variant grouped_sm80(DType t, GroupedForm form, bool trans_b);
/// Copies the rows of A that the index names behind each other.
Variant grouped_gather();

KernelEntry grouped_gemm_entry();

}  // namespace cgp::kernels
