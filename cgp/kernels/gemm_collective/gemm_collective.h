// SPDX-License-Identifier: Apache-2.0
#pragma once
// Products of tensor-parallel layers, in one launch with their communication:
//   all_gather_gemm       y = (x of all ranks, one under the other) op(W)     column-parallel: W has a part of n
//   gemm_reduce_scatter   y = this rank's rows of the sum over the ranks of x op(W)     row-parallel: a part of k
// A tile is multiplied as soon as its rows have come, or sent as soon as it is done, while others are multiplied.
#include "cgp/kernels/collective/communicator.h"
#include "cgp/kernels/common/variant.h"
#include "cgp/kernels/common/view.h"

namespace cgp::kernels {

struct GemmCollective {
  DType type = DType::bf16;           ///< of everything: f16 or bf16
  std::uint64_t m = 0, n = 0, k = 0;  ///< of this rank's product; m is a multiple of the ranks
  bool transposed = true;             ///< W is [n, k], as torch.nn.Linear has it; else [k, n]
  View x;                             ///< all_gather_gemm: [m / ranks, k]; gemm_reduce_scatter: [m, k]
  View weight;
  View y;  ///< all_gather_gemm: [m, n]; gemm_reduce_scatter: [m / ranks, n]
};

/// Why one launch cannot do it; empty: it can. All matrices are row-major without gaps.
std::string reject(const GemmCollective& p, const Communicator& all);
/// As the collectives: every rank makes the same calls in the same order. n may differ between ranks. Throws
/// ArgumentError for views that do not fit the problem, Unsupported with reject()'s sentence.
void all_gather_gemm(runtime::Stream& s, const Communicator& all, int rank, const GemmCollective& p);
/// Partial sums are rounded to the type on their way; those of this rank stay f32, and the sum is in the order own, then rank 0,
/// 1, ... n, m and k are those of all ranks.
void gemm_reduce_scatter(runtime::Stream& s, const Communicator& all, int rank, const GemmCollective& p);

/// y = the sum over the ranks of x op(W), [m, n] on every rank: row-parallel layers whose result all need. Any m (m is a multiple of the
/// ranks in the two above alone), n and k: of one to eight rows decode_linear, else gemm_reduce_scatter and all_gather, else gemm
/// and all_reduce. Addresses are multiples of 16 bytes (Unsupported), so that all ranks choose the same.
void gemm_all_reduce(runtime::Stream& s, const Communicator& all, int rank, const GemmCollective& p);

/// What ships, for tests that assemble.
std::vector<Variant> gemm_collective_variants();

}  // namespace cgp::kernels
