// SPDX-License-Identifier: Apache-2.0
// attention simt: plain instructions, for every type, head dimension, alignment and architecture.
//   who      a warp computes one row of o: a lane scores one of 32 keys, then owns every 32nd column of o
//   memory   q in shared memory as f32; k and v straight from global memory
//   sync     within the warp
#include "cgp/dsl/sync/warp.h"
#include "cgp/kernels/attention/attention_score.h"

namespace cgp::kernels {
namespace {

using namespace attention_parts;

constexpr int kWarps = 4, kMaxDim = 256;

template <class T>
void attention_simt_kernel(Kernel& k, AttentionConfig c, AttentionParams p) {
  k.block(kWarps * 32);
  const auto& f = c.features;
  Warp w = k.warp();
  const auto lane = w.lane();
  const auto all_q = k.shared<f32>(kWarps * kMaxDim);
  const auto q_smem = all_q.at(w.index * kMaxDim);
  const auto id = k.ctaid_x() * std::uint32_t(kWarps) + w.index;  // row, fastest, of head of batch
  k.if_(id < p.tiles, [&] {
    const auto row = id % p.n_q, bh = id / p.n_q;
    const Sequence s = sequence(f, p, bh / p.heads_q, bh % p.heads_q);
    k.if_(row < s.n_q, [&] {
      const auto q =
          In<T>(p.q, 0, true)
              .at(rows_of(s, s.head, s.first_q, p.q_batch, p.q_head, p.q_row) + to<u64>(row) * p.q_row);
      const auto keys =
          In<T>(p.k, 0, true).at(rows_of(s, s.head_kv, s.first_kv, p.k_batch, p.k_head, p.k_row));
      const auto values =
          In<T>(p.v, 0, true).at(rows_of(s, s.head_kv, s.first_kv, p.v_batch, p.v_head, p.v_row));
      const auto o = Out<T>(p.o).at(rows_of(s, s.head, s.first_q, p.o_batch, p.o_head, p.o_row) +
                                    to<u64>(row) * p.o_row);
      k.loop(range(lane, p.d_qk, Val<u32>(32)), [&](Val<u32> d) { q_smem.st(d, to<f32>(q.ld(d))); });
      w.sync();
      const auto limits = bounds(f, p, s, row);
      const auto scale_log2 = exponent_scale(f, p);
      const Shape shape(f, p, s, c.type);
      const auto first = bits<u32>(limits.first), end = bits<u32>(dsl::max(limits.end, Val<s32>(0)));
      using S = std::tuple<Val<f32>, Val<f32>, std::vector<Val<f32>>>;
      std::vector<Val<f32>> zero(kMaxDim / 32, Val<f32>(0));
      auto done = k.loop(range(first, end, Val<u32>(32)), S(kNever, 0.0f, zero), [&](Val<u32> j0, S now) {
        const auto j = j0 + lane;
        const auto there = j < end;
        const auto key = keys.at(to<u64>(select(there, j, j0)) * p.k_row);
        const auto dot = k.loop(p.d_qk, Val<f32>(0), [&](Val<u32> d, Val<f32> sum) {
          return fma(q_smem.ld(d), to<f32>(key.ld(d)), sum);
        });
        const auto score = select(there, shape(dot, row, j), Val<f32>(kNever));
        const auto most = [](const Val<f32>& a, const Val<f32>& b) { return dsl::max(a, b); };
        const auto max = dsl::max(std::get<0>(now), reduce(w, score, most));
        const auto base = select(max == kNever, Val<f32>(0), max) * scale_log2;
        const auto probability = ex2<approx, ftz>(fma(score, scale_log2, -base));
        const auto scale = ex2<approx, ftz>(fma(std::get<0>(now), scale_log2, -base));
        std::vector<Val<f32>> scaled;
        for (const auto& x : std::get<2>(now)) scaled.push_back(x * scale);
        const auto out =
            k.loop(dsl::min(end - j0, Val<u32>(32)), scaled, [&](Val<u32> i, std::vector<Val<f32>> o) {
              const auto pi = shfl<idx>(w, probability, i);
              const auto value = values.at(to<u64>(j0 + i) * p.v_row + to<u64>(lane));
              std::vector<Val<f32>> next;
              for (int e = 0; e < kMaxDim / 32; ++e) {
                const auto v = value.ld_if(lane + std::uint32_t(32 * e) < p.d_v, 32 * e, Val<T>(0))[0];
                next.push_back(fma(pi, to<f32>(v), o[std::size_t(e)]));
              }
              return next;
            });
        return S(max, fma(std::get<1>(now), scale, probability), out);
      });
      const auto plus = [](const Val<f32>& a, const Val<f32>& b) { return a + b; };
      const auto sum = reduce(w, std::get<1>(done), plus);
      const auto inverse = inverse_or_zero(sum);
      for (int e = 0; e < kMaxDim / 32; ++e)
        o.st_if(lane + std::uint32_t(32 * e) < p.d_v, lane + std::uint32_t(32 * e),
                to<T>(std::get<2>(done)[std::size_t(e)] * inverse));
      if (f.lse) lse_row(p, s).st_if(lane == 0, row, log_sum(std::get<0>(done), scale_log2, sum));
    });
  });
}

}  // namespace

Variant attention_simt(const AttentionConfig& c) {
  if (c.type == DType::f32) return variant(c.name(), 75, attention_simt_kernel<f32>, c);
  if (c.type == DType::f16) return variant(c.name(), 75, attention_simt_kernel<f16>, c);
  return variant(c.name(), 80, attention_simt_kernel<bf16>, c);
}

}  // namespace cgp::kernels
