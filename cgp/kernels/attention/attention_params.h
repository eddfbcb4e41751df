// SPDX-License-Identifier: Apache-2.0
#pragma once
// The numbers of a problem as one kernel parameter: AttentionNumbers on the host, AttentionParams in kernels.
#include <bit>

#include "cgp/dsl/kernel.h"
#include "cgp/kernels/attention/attention.h"

namespace cgp::kernels {

// clang-format 14 finds another shape for this list each time it formats it.
// clang-format off
#define CGP_ATTENTION_NUMBERS(X)                                                                         \
  X(u64, q) X(u64, k) X(u64, v) X(u64, o) X(u64, lse) X(u64, slopes) X(u64, mask)                        \
  X(u64, cu_q) X(u64, cu_kv) X(u64, lengths) X(u64, data)                                                \
  X(u64, q_batch) X(u64, q_head) X(u64, q_row) X(u64, k_batch) X(u64, k_head) X(u64, k_row)              \
  X(u64, v_batch) X(u64, v_head) X(u64, v_row) X(u64, o_batch) X(u64, o_head) X(u64, o_row)              \
  X(u64, q_scale) X(u64, q_scale_batch) X(u64, q_scale_head) X(u64, k_scale) X(u64, k_scale_batch)         \
  X(u64, k_scale_head) X(u64, v_scale) X(u64, v_scale_batch) X(u64, v_scale_head)                        \
  X(u64, mask_batch) X(u64, mask_head) X(u64, mask_row) X(u64, mask_col) X(u64, lse_batch)               \
  X(u64, lse_head) X(u32, batch) X(u32, heads_q) X(u32, group) X(u32, n_q) X(u32, n_kv)                  \
  X(u32, d_qk) X(u32, d_v) X(s32, left) X(s32, right) X(f32, scale) X(f32, scale_log2)                   \
  X(f32, soft_cap) X(f32, inverse_cap) X(f32, negative) X(u32, tiles_m) X(u32, tiles)                    \
  X(u32, pairs) X(u32, section) X(u32, q_unit) X(u32, k_unit) X(u32, v_unit) X(u32, o_unit)
// clang-format on

struct AttentionNumbers {
  using u64 = std::uint64_t;
  using u32 = std::uint32_t;
  using s32 = std::int32_t;
  using f32 = float;
#define X(type, name) type name = {};
  CGP_ATTENTION_NUMBERS(X)
#undef X
};

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

/// Of a dense() problem; tiles and sections are left to the launch.
AttentionNumbers attention_numbers(const AttentionProblem& p, const AttentionAddresses& at);

struct AttentionParams {
#define X(type, name) dsl::Val<dsl::type> name;
  CGP_ATTENTION_NUMBERS(X)
#undef X
  static auto carried() {
#define X(type, name) std::tuple(&AttentionParams::name),
    return std::tuple_cat(CGP_ATTENTION_NUMBERS(X) std::tuple<>{});
#undef X
  }
};
#undef CGP_ATTENTION_NUMBERS

}  // namespace cgp::kernels
