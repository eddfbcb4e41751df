// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/attention/attention_backward.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/attention/attention_params.h"

namespace cgp::kernels {

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
  need(p.mask != AttentionMask::none, at.mask, "the mask"), need(p.packed, at.cu_q, "cu_q");
  need(p.packed, at.cu_kv, "cu_kv"), need(p.key_lengths, at.lengths, "key_lengths");
  struct Addresses {
    std::uint64_t d_o, d_q, d_k, d_v, delta;
  } out{g.d_o, g.d_q, g.d_k, g.d_v, g.delta};
  auto n = attention_numbers(p, at);
  const auto kernels = attention_backward_simt(p.type, AttentionFeatures::of(p, false));
  const std::uint64_t rows = p.batch * p.heads_q * p.n_q, keys = p.batch * p.heads_kv * p.n_kv;
  if (keys > 0xffffffffull)
    throw Unsupported(text::cat("attention_backward: ", keys, " keys of all heads are above 2^32 - 1"));
  const std::uint64_t count[] = {rows, rows, keys};
  for (int i = 0; i < 3; ++i) {
    if (!count[i]) continue;
    n.tiles = std::uint32_t(count[i]);
    load(s.device(), kernels[std::size_t(i)])(s, runtime::grid_for(count[i], 4), n, out);
  }
}

}  // namespace cgp::kernels
