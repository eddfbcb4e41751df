// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parameters of attention kernels: AttentionParams in kernels, AttentionArguments in launches.
#include <algorithm>
#include <bit>

#include "cgp/dsl/core/kernel_params.h"
#include "cgp/dsl/kernel.h"
#include "cgp/kernels/attention/attention.h"

namespace cgp::kernels {

using dsl::f32, dsl::s32, dsl::u32, dsl::u64;

template <template <class> class V>
struct AttentionParamsOf {
  V<u64> q, k, v, o, lse, slopes, mask, cu_seqlens_q, cu_seqlens_kv, lengths,
      data;                                               ///< addresses; 0 where not used
  V<u64> q_batch, q_head, q_row, k_batch, k_head, k_row;  ///< strides, in elements
  V<u64> v_batch, v_head, v_row, o_batch, o_head, o_row;
  V<u64> q_scale, q_scale_batch, q_scale_head;  ///< of e4m3 operands
  V<u64> k_scale, k_scale_batch, k_scale_head;
  V<u64> v_scale, v_scale_batch, v_scale_head;
  V<u64> mask_batch, mask_head, mask_row, mask_col, lse_batch, lse_head;
  V<u32> batch, heads_q, group, n_q, n_kv, d_qk, d_v;  ///< group: query heads of a key head
  V<s32> window_left, window_right;                    ///< far outside where there is no limit
  V<f32> scale, scale_log2, soft_cap, inverse_cap;
  V<f32> negative;               ///< -1, which only the launch knows
  V<u32> tiles_m, tiles, pairs;  ///< tiles of a head; of all; heads of all sequences
  V<u32> head_swizzle;           ///< heads that are visited together
  V<u64> tickets;                ///< u32: the next tile, where blocks take them one by one; 0 before
  V<u64> partial_o,
      partial_lse;  ///< where blocks share keys: f32 [split][batch][head][row][d_v] and without d_v
  V<u32> splits;    ///< blocks that share a tile's keys
  V<u32> q_unit, k_unit, v_unit, o_unit;  ///< powers of two, see AttentionRows
};
using AttentionParams = AttentionParamsOf<dsl::Val>;
using AttentionArguments = AttentionParamsOf<dsl::HostValue>;

/// What gradients of simt and mma read and write beside those.
template <template <class> class V>
struct GradientParamsOf {
  V<u64> d_o, d_q, d_k, d_v, delta;
};
using GradientParams = GradientParamsOf<dsl::Val>;
using GradientArguments = GradientParamsOf<dsl::HostValue>;

/// Threads that share a row of o . d_o in tiles of `width` columns, 8 columns each.
inline int delta_threads(int width) { return int(std::bit_ceil(unsigned(width))) / 8; }

/// Whether queries or keys have a number of rows for each sequence.
inline bool own_lengths(bool packed, bool key_lengths, bool queries) {
  return packed || (key_lengths && !queries);
}
/// Tiles of `rows` rows of all packed sequences (tile_of_sequence in attention_tiles.h) that have `total`
/// rows.
inline std::uint64_t packed_tiles(std::uint64_t total, std::uint64_t batch, std::uint64_t rows) {
  return total / rows + batch;
}
/// Rows of queries in memory, or as many as there may be.
inline std::uint64_t packed_rows(const AttentionProblem& p, const AttentionAddresses& at) {
  return at.total_q ? at.total_q : p.batch * p.n_q;
}

/// Heads that are visited together: of `pairs`, at most `most`, in groups of one size as nearly as may be, since SMs
/// idle behind a small last one.
inline std::uint32_t even_groups(std::uint64_t pairs, std::uint64_t most) {
  const auto groups = (pairs + std::max<std::uint64_t>(1, most) - 1) / std::max<std::uint64_t>(1, most);
  return std::uint32_t((pairs + groups - 1) / std::max<std::uint64_t>(1, groups));
}

/// Which rows a tensor map shows: those of [batch, heads, rows, d].
struct AttentionRows {
  std::uint64_t address;
  AttentionStrides strides;
  std::uint64_t d, rows, heads, batch;
  /// Sequences have lengths of their own, and nothing behind one is read: a map [wrap][place][row][d] whose
  /// rows end at 2^30. Row i of a sequence of n rows has coordinate 2^30 - n + i; `place`, in units of a
  /// power of two of elements, is where row n lies; `wrap`, at 2^30, takes 2^30 rows away again, modulo 2^64.
  bool own_lengths;
};
enum class MapOf : std::uint8_t { q, k, v, o };
inline constexpr std::uint32_t kRowsOfMap = 1u << 30;
/// The unit of `place`, as a power of two: it divides all strides.
inline int unit_of_map(const AttentionStrides& s) { return std::countr_zero(s.batch | s.head | s.row); }
/// Of queries (or o) or of keys (or values) of a dense() problem.
AttentionRows rows_for_map(const AttentionProblem& p, std::uint64_t address, const AttentionStrides& strides,
                           std::uint64_t d, bool queries);
/// Parameter number `param` of a kernel.
runtime::TensorMap attention_map(const runtime::Device& device, const runtime::LoadedKernel& fn,
                                 std::size_t param, const AttentionRows& of, DType type);

/// Of a dense() problem; tiles and the head swizzle are left to the launch.
AttentionArguments attention_arguments(const AttentionProblem& p, const AttentionAddresses& at);

}  // namespace cgp::kernels
