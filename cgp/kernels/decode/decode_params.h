// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a launch of decode tells the kernel, and how it is built.
#include "cgp/dsl/kernel.h"
#include "cgp/kernels/decode/decode.h"

namespace cgp::kernels::decode_parts {

using namespace dsl;

inline constexpr int kRows = 16, kKeys = 16;
/// What a workspace begins with, whatever the problem: problems of all shapes leave each other's counters
/// alone.
inline constexpr int kCounters = 1 << 16;

struct Tune {
  DecodeTuning t;
  int d;
};

struct DecodeParams {
  Val<u64> q, pool, table, lengths, o, lse, workspace, wrong, shared;
  Val<u64> q_batch, q_head, q_row, o_batch, o_head, o_row;
  Val<u32> heads_kv, group, n_q, page_size, page_count, columns, splits, items;
  Val<u32> batch, share, members, shared_splits, shared_blocks;
  Val<f32> scale_log2, value_scale;
  static auto carried() {
    using P = DecodeParams;
    return std::tuple(&P::q, &P::pool, &P::table, &P::lengths, &P::o, &P::lse, &P::workspace, &P::wrong,
                      &P::shared, &P::q_batch, &P::q_head, &P::q_row, &P::o_batch, &P::o_head, &P::o_row,
                      &P::heads_kv, &P::group, &P::n_q, &P::page_size, &P::page_count, &P::columns,
                      &P::splits, &P::items, &P::batch, &P::share, &P::members, &P::shared_splits,
                      &P::shared_blocks, &P::scale_log2, &P::value_scale);
  }
};
struct DecodeNumbers {
  std::uint64_t q, pool, table, lengths, o, lse, workspace, wrong, shared;
  std::uint64_t q_batch, q_head, q_row, o_batch, o_head, o_row;
  std::uint32_t heads_kv, group, n_q, page_size, page_count, columns, splits, items;
  std::uint32_t batch, share, members, shared_splits, shared_blocks;
  float scale_log2, value_scale;
};

}  // namespace cgp::kernels::decode_parts
