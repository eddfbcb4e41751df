// SPDX-License-Identifier: Apache-2.0
#pragma once
// The product of weight_only.h on the tensor cores of sm_90a (wgmma), any number of rows of x: y' = w x', the weights as
// operand A in registers, in packed order as they are. Each weight is rounded once to the type of x and y (its scale
// before, in bf16 with `scale_terms` = 1: scale and product are off by 2^-9 each); sums are f32. With groups: every expert of a
// mixture, whose rows only the device knows.
#include "cgp/kernels/weight_only/weight_only.h"

namespace cgp::kernels {

struct WeightWgmmaConfig {
  DType type = DType::bf16;
  WeightFormat format = WeightFormat::q4_0;
  int rows = 64;            ///< of x in a block: 16, 32, 64, 128 or 256
  int warpgroups = 2;       ///< of a block, each 64 columns of y: 1 to 4
  int split = 1;            ///< blocks of a cluster that cut K into parts
  int share = 1;            ///< blocks of a cluster that load x for each other
  int w_stages = 3;         ///< of the ring of weights, 256 of K each
  int x_stages = 8;         ///< of the ring of x, 64 of K each
  int min_blocks = 1;       ///< to an SM
  int scale_terms = 1;      ///< bf16: a scale is one bf16 or the sum of two
  bool grouped = false;     ///< a block finds the group of its rows of x
  bool persistent = false;  ///< blocks walk over tiles of y; no clusters, 64 rows or more
  bool reread = false;      ///< several blocks read the same weights: they stay in L2
  bool pairs = false;       ///< numbers of two codes are looked up in shared memory: NF4, IQ4_NL
  bool pdl = false;
  WeightOnlyEnd end = WeightOnlyEnd::store;
  Activation activation = Activation::identity;
  WeightOnlyOrder order = WeightOnlyOrder::after;
  int blocks =
      0;  ///< of a persistent launch at most, which the kernel does not know; 0: as many as the device runs at once
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.choice("format", kWeightFormatNames, c.format), v.type("type", "", c.type);
    v.number("rows", "rows", c.rows), v.number("warpgroups", "warpgroups", c.warpgroups);
    v.number("split", "split", c.split), v.number("share", "share", c.share);
    v.number("w_stages", "w", c.w_stages), v.number("x_stages", "x", c.x_stages);
    v.number("min_blocks", "blocks", c.min_blocks), v.number("scale_terms", "terms", c.scale_terms);
    v.flag("grouped", c.grouped), v.flag("persistent", c.persistent);
    v.flag("reread", c.reread), v.flag("pairs", c.pairs), v.flag("pdl", c.pdl);
    v.choice("end", kWeightOnlyEnds, c.end), v.choice("activation", kWeightOnlyActivations, c.activation);
    v.choice("order", kWeightOnlyOrders, c.order);
  }
  int columns() const { return 64 * warpgroups; }  ///< of y in a block
  static constexpr int kStagingBytes = 2048;       ///< of a warp, whose results go through it
  int staging_bytes() const {
    const bool rounded = end == WeightOnlyEnd::store || end == WeightOnlyEnd::gate;
    return persistent && rounded ? 4 * warpgroups * kStagingBytes : 0;
  }
  int smem_bytes() const;
};
/// Why it cannot run, naming the argument; empty: it can.
std::string reject_wgmma(const WeightOnlyProblem& p);
/// Chooses the stages so that all fits into shared memory; false: nothing does.
bool weight_wgmma_fit(WeightWgmmaConfig& c);
/// The choice for a device of `sms` multiprocessors.
WeightWgmmaConfig weight_wgmma_config(const WeightOnlyProblem& p, int sms);
/// Whether this product is faster than weight_only_gemm(), or the only one: from 17 rows on.
bool weight_wgmma_serves(const WeightOnlyProblem& p);
Variant weight_wgmma_variant(const WeightWgmmaConfig& c);

/// Unsupported with reject_wgmma()'s sentence.
void weight_wgmma_gemm(runtime::Stream& s, const WeightOnlyProblem& p);
void weight_wgmma_gemm(runtime::Stream& s, const WeightOnlyProblem& p, const WeightWgmmaConfig& c);

}  // namespace cgp::kernels
