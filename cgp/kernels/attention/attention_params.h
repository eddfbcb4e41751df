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
  X(u32, pairs) X(u32, section)
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
