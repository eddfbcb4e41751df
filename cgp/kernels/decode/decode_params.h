// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parameters of decode: DecodeParams in the kernel, DecodeArguments in the launch.
#include "cgp/dsl/core/kernel_params.h"
#include "cgp/dsl/kernel.h"
#include "cgp/kernels/decode/decode.h"

namespace cgp::kernels::decode_impl {

using namespace dsl;

inline constexpr int kRows = 16, kKeys = 16;
/// What a workspace begins with, whatever the problem: problems of all shapes leave each other's counters
/// alone.
inline constexpr int kCounters = 1 << 16;

template <template <class> class V>
struct DecodeParamsOf {
  V<u64> q, pool, table, lengths, o, lse, workspace, error_flag, shared;  ///< addresses
  V<u64> q_batch, q_head, q_row, o_batch, o_head, o_row;                  ///< strides, in elements
  V<u32> heads_kv, group, n_q, page_size, page_count, columns;
  V<u32> splits, items;  ///< blocks that share a sequence's keys; key heads times blocks of rows
  V<u32> batch, share, members, shared_splits, shared_blocks;  ///< of cascades
  V<f32> scale_log2, value_scale;
  V<s32> window_left;              ///< keys before a query's own that it sees
  V<f32> soft_cap, soft_cap_unit;  ///< of a score before its scale: 2 log2(e) / soft_cap times that
};
/// Keys and values that lie in rows instead of pages: keys begin at DecodeParams::pool.
template <template <class> class V>
struct ContiguousKvOf {
  V<u64> v, k_batch, k_head, k_row, v_batch, v_head, v_row;
  V<u32> n_kv;
  V<s32> window_left;             ///< as in DecodeParams
  V<u64> partial_o, partial_lse;  ///< where clusters share keys: as in attention_params.h
  V<u32> slices;                  ///< clusters that share a sequence's keys
};
using ContiguousKv = ContiguousKvOf<Val>;
using ContiguousKvArguments = ContiguousKvOf<HostValue>;
using DecodeParams = DecodeParamsOf<Val>;
using DecodeArguments = DecodeParamsOf<HostValue>;

}  // namespace cgp::kernels::decode_impl
