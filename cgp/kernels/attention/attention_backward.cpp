// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/attention/attention_backward.h"

#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/attention/attention_params.h"

namespace cgp::kernels {

double attention_backward_flops(const AttentionProblem& q) {
  const auto p = q.dense();
  return p.flops() / double(p.d_qk + p.d_v) * double(3 * p.d_qk + 2 * p.d_v);
}

std::string reject_backward(AttentionKind kind, const AttentionProblem& q, const AttentionAddresses& at,
                            const AttentionGradients& g, const runtime::DeviceInfo& d) {
  if (kind == AttentionKind::simt) return {};
  const auto p = q.dense();
  if (kind == AttentionKind::sm90) return reject_backward_sm90(p, at, g, d);
  if (auto why = reject(AttentionKind::mma, p, at, d); !why.empty()) return why;
  for (auto [what, address] : {std::pair{"d_o", g.d_o}, {"d_q", g.d_q}, {"d_k", g.d_k}, {"d_v", g.d_v}})
    if (address % 16)
      return text::cat("attention_backward mma: ", what, " does not begin at a multiple of 16 bytes");
  if (p.n_q && p.o.row > 0xffffffffull / p.n_q)
    return text::cat("attention_backward mma: ", p.n_q, " rows ", p.o.row,
                     " elements apart are above 2^32 - 1 elements");
  return {};
}

Variant attention_backward_variant(const AttentionBackwardConfig& c) {
  if (c.kind == AttentionKind::sm90) return attention_backward_sm90_variant(c);
  return c.kind == AttentionKind::mma ? attention_backward_mma_variant(c)
                                      : attention_backward_simt_variant(c);
}
AttentionBackwardChoice built(AttentionBackwardChoice c) {
  for (const auto& one : c.configs) c.kernels.push_back(attention_backward_variant(one));
  return c;
}

AttentionBackwardChoice choose_attention_backward(AttentionKind kind, const AttentionProblem& q, int cc,
                                                  const AttentionBackwardTuning* tune) {
  const auto p = q.dense();
  const auto f = AttentionFeatures::of(p, false);
  AttentionBackwardChoice c;
  c.kind = kind, c.why = "asked for";
  if (kind != AttentionKind::mma) {
    c.configs = attention_backward_simt(p.type, f);
    return built(std::move(c));
  }
  const auto widest = std::max(p.d_qk, p.d_v);
  c.width = 256;
  for (int d : {192, 128, 64, 32})
    if (widest <= std::uint64_t(d)) c.width = d;
  // What shapes the scores needs them a second time, and registers for that.
  const bool modified = f.modifies_scores() || f.mask != AttentionMask::none;
  if (tune) {
    c.tune = *tune;
  } else if (c.width > 128) {  // what lies in shared memory fits into the 99 KB of sm_86, sm_89 and sm_120
    const int columns = c.width == 256 ? 16 : 32;
    c.tune = {16, columns, 16, columns};
  } else if (c.width == 128) {
    // For sm_80 ptxas needs more registers for 32 rows of sums than there are.
    c.tune = modified  ? AttentionBackwardTuning{16, 32, 16, 32}
             : cc < 90 ? AttentionBackwardTuning{16, 32, 16, 64}
                       : AttentionBackwardTuning{16, 32, 32, 32};
  } else {
    c.tune = modified ? AttentionBackwardTuning{16, 32, 16, 32} : AttentionBackwardTuning{32, 32, 32, 64};
  }
  c.configs = attention_backward_mma(p.type, c.width, c.tune, f);
  return built(std::move(c));
}

AttentionBackwardChoice select_attention_backward(const AttentionProblem& p, const AttentionAddresses& at,
                                                  const AttentionGradients& g, const runtime::DeviceInfo& d) {
  const auto not_sm90 = reject_backward(AttentionKind::sm90, p, at, g, d);
  if (not_sm90.empty()) {
    auto c = choose_attention_backward_sm90(p, tune_attention_backward(p, g.deterministic));
    c.why = "tensor cores of sm_90a";
    return c;
  }
  const auto not_mma = reject_backward(AttentionKind::mma, p, at, g, d);
  auto c = choose_attention_backward(not_mma.empty() ? AttentionKind::mma : AttentionKind::simt, p, d.cc());
  c.why = not_mma.empty() ? not_sm90 : not_mma;
  return c;
}

void run_attention_backward(runtime::Stream& s, const AttentionBackwardChoice& choice,
                            const AttentionProblem& q, const AttentionAddresses& at,
                            const AttentionGradients& g) {
  const auto p = q.dense();
  if (!p.batch || !p.heads_q) return;
  if (auto why = reject_backward(choice.kind, p, at, g, s.device().info()); !why.empty())
    throw Unsupported(std::move(why));
  if (choice.kind == AttentionKind::sm90) return run_attention_backward_sm90(s, choice, p, at, g);
  const GradientArguments out{.d_o = g.d_o, .d_q = g.d_q, .d_k = g.d_k, .d_v = g.d_v, .delta = g.delta};
  auto n = attention_arguments(p, at);
  const bool mma = choice.kind == AttentionKind::mma;
  const std::uint64_t rows = p.batch * p.heads_q * p.n_q, keys = p.batch * p.heads_kv * p.n_kv;
  if (keys > 0xffffffffull)
    throw Unsupported(text::cat("attention_backward: ", keys, " keys of all heads are above 2^32 - 1"));
  const auto launch = [&](std::size_t kernel, std::uint64_t work, std::uint64_t each) {
    n.tiles = std::uint32_t(work);
    if (work) load(s.device(), choice.kernels[kernel])(s, runtime::grid_for(work, each), n, out);
  };
  // A block of mma owns 4 warps' rows of one head.
  const auto launch_tiles = [&](std::size_t kernel, std::uint64_t length, int warp_rows,
                                std::uint64_t heads) {
    n.tiles_m = std::uint32_t((length + std::uint64_t(4 * warp_rows) - 1) / std::uint64_t(4 * warp_rows));
    launch(kernel, std::uint64_t(n.tiles_m) * p.batch * heads, 1);
  };
  launch(0, rows, mma ? 128 / std::uint64_t(delta_threads(choice.width)) : 4);
  if (!mma) {
    launch(1, rows, 4), launch(2, keys, 4);
    return;
  }
  launch_tiles(1, p.n_q, choice.tune.query_rows, p.heads_q);
  for (std::size_t kernel = 2; kernel < choice.kernels.size(); ++kernel)
    launch_tiles(kernel, p.n_kv, choice.tune.key_rows, p.heads_kv);
}

void attention_backward(runtime::Stream& s, const AttentionProblem& q, const AttentionAddresses& at,
                        const AttentionGradients& g) {
  if (auto why = reject(q); !why.empty()) throw ArgumentError(text::cat("attention_backward: ", why));
  const auto p = q.dense();
  if (!p.batch || !p.heads_q) return;
  const auto need = [&](bool used, std::uint64_t address, const char* what) {
    if (used && !address)
      throw ArgumentError(text::cat("attention_backward: the address of ", what, " is 0"));
  };
  need(p.n_q, at.q, "q"), need(p.n_q, at.o, "o"), need(p.n_q, at.lse, "lse"), need(p.n_q, g.d_o, "d_o");
  need(p.n_q, g.d_q, "d_q"), need(p.n_q, g.delta, "delta"), need(p.n_kv, at.k, "k"), need(p.n_kv, at.v, "v");
  need(p.n_kv, g.d_k, "d_k"), need(p.n_kv, g.d_v, "d_v"), need(p.alibi, at.slopes, "slopes");
  need(p.mask != AttentionMask::none, at.mask, "the mask"), need(p.packed, at.cu_seqlens_q, "cu_seqlens_q");
  need(p.packed, at.cu_seqlens_kv, "cu_seqlens_kv"), need(p.key_lengths, at.lengths, "key_lengths");
  run_attention_backward(s, select_attention_backward(p, at, g, s.device().info()), p, at, g);
}

}  // namespace cgp::kernels
