// SPDX-License-Identifier: Apache-2.0
// attention backward simt: plain instructions, for every type, head dimension, alignment and architecture.
//   delta    a warp per row: sum of o * d_o
//   queries  a warp per query: lanes score 32 keys, then own every 32nd column of d_q
//   keys     a warp per key: lanes score 32 queries of each head of its group, then own columns of d_k and
//   d_v memory   the warp's own rows in shared memory as f32; the others straight from global memory
#include "cgp/base/error.h"
#include "cgp/dsl/sync/warp.h"
#include "cgp/kernels/attention/attention_backward.h"
#include "cgp/kernels/attention/attention_score.h"

namespace cgp::kernels {
namespace {

using namespace attention_parts;

constexpr int kWarps = 4, kMaxDim = 256, kColumns = kMaxDim / 32;

using Columns = std::vector<Val<f32>>;

template <class T>
class Backward {
 public:
  Backward(Kernel& k, const AttentionBackwardConfig& c, const AttentionParams& p, const GradientParams& g)
      : k_(k), f_(c.features), type_(c.type), p_(p), g_(g), w_(k.warp()), lane_(w_.lane()) {}

  void delta() {
    each_row(p_.n_q, p_.heads_q, [&](const Sequence& s, const Val<u32>& row) {
      k_.if_(row < s.n_q, [&] {
        const auto o = query_row(p_.o, s, p_.o_batch, p_.o_head, p_.o_row, row),
                   d_o = query_row(g_.d_o, s, p_.o_batch, p_.o_head, p_.o_row, row);
        const auto sum =
            k_.loop(range(lane_, p_.d_v, Val<u32>(32)), Val<f32>(0),
                    [&](Val<u32> d, Val<f32> sum) { return fma(to<f32>(o.ld(d)), to<f32>(d_o.ld(d)), sum); });
        const auto all = reduce(w_, sum, [](const Val<f32>& a, const Val<f32>& b) { return a + b; });
        delta_row(s).st_if(lane_ == 0u, row, all);
      });
    });
  }

  void queries() {
    const auto own = k_.shared<f32>(kWarps * 2 * kMaxDim).at(w_.index * std::uint32_t(2 * kMaxDim));
    each_row(p_.n_q, p_.heads_q, [&](const Sequence& s, const Val<u32>& row) {
      k_.if_(row < s.n_q, [&] {
        keep(own, query_row(p_.q, s, p_.q_batch, p_.q_head, p_.q_row, row), p_.d_qk);
        keep(own.at(kMaxDim), query_row(g_.d_o, s, p_.o_batch, p_.o_head, p_.o_row, row), p_.d_v);
        w_.sync();
        const auto lse = lse_row(p_, s).ld(row), delta = delta_row(s).ld(row);
        const Shape shape(f_, p_, s, type_);
        const auto limits = bounds(f_, p_, s, row);
        const auto first = bits<u32>(limits.first), end = bits<u32>(dsl::max(limits.end, Val<s32>(0)));
        auto sum = k_.loop(range(first, end, Val<u32>(32)), zeros(), [&](Val<u32> j0, Columns now) {
          const auto j = dsl::min(j0 + lane_, end - 1);
          const auto pair =
              gradient(s, shape, own, key_row(p_.k, s, p_.k_batch, p_.k_head, p_.k_row, j),
                       key_row(p_.v, s, p_.v_batch, p_.v_head, p_.v_row, j), row, j, lse, delta);
          const auto ds = select(j0 + lane_ < end, pair.ds, Val<f32>(0));
          return add_rows(
              dsl::min(end - j0, Val<u32>(32)), ds, std::move(now), p_.d_qk,
              [&](const Val<u32>& i) { return key_row(p_.k, s, p_.k_batch, p_.k_head, p_.k_row, j0 + i); });
        });
        store(Out<T>(g_.d_q).at(rows_of(s, s.head, s.first_q, p_.q_batch, p_.q_head, p_.q_row) +
                                to<u64>(row) * p_.q_row),
              sum, p_.d_qk);
      });
    });
  }

  void keys() {
    const auto own = k_.shared<f32>(kWarps * 2 * kMaxDim).at(w_.index * std::uint32_t(2 * kMaxDim));
    each_row(p_.n_kv, p_.heads_q / p_.group, [&](const Sequence& of_key_head, const Val<u32>& key) {
      const Sequence& kv = of_key_head;  // its `head` counts key heads here
      k_.if_(key < memory_keys(kv), [&] {
        const auto base_k =
            rows_of(kv, kv.head, kv.first_kv, p_.k_batch, p_.k_head, p_.k_row) + to<u64>(key) * p_.k_row;
        const auto base_v =
            rows_of(kv, kv.head, kv.first_kv, p_.v_batch, p_.v_head, p_.v_row) + to<u64>(key) * p_.v_row;
        keep(own, In<T>(p_.k, 0, true).at(base_k), p_.d_qk);
        keep(own.at(kMaxDim), In<T>(p_.v, 0, true).at(base_v), p_.d_v);
        w_.sync();
        using Both = std::tuple<Columns, Columns>;
        const auto heads = select(key < kv.n_kv, p_.group, Val<u32>(0));
        auto done = k_.loop(heads, Both(zeros(), zeros()), [&](Val<u32> member, Both all) {
          const auto head = kv.head * p_.group + member;
          const Sequence s{kv.batch, head, kv.head, kv.n_q, kv.n_kv, kv.first_q, kv.first_kv};
          const Shape shape(f_, p_, s, type_);
          return k_.loop(range(Val<u32>(0), s.n_q, Val<u32>(32)), std::move(all), [&](Val<u32> i0, Both now) {
            const auto row = dsl::min(i0 + lane_, s.n_q - 1);
            const auto limits = bounds(f_, p_, s, row);
            const auto j = bits<s32>(key);
            const auto seen = (i0 + lane_ < s.n_q) & (j >= limits.first) & (j < limits.end);
            const auto pair =
                gradient(s, shape, own, query_row(p_.q, s, p_.q_batch, p_.q_head, p_.q_row, row),
                         query_row(g_.d_o, s, p_.o_batch, p_.o_head, p_.o_row, row), row, key,
                         lse_row(p_, s).ld(row), delta_row(s).ld(row));
            const auto count = dsl::min(s.n_q - i0, Val<u32>(32));
            auto d_k = add_rows(count, select(seen, pair.ds, Val<f32>(0)), std::move(std::get<0>(now)),
                                p_.d_qk, [&](const Val<u32>& i) {
                                  return query_row(p_.q, s, p_.q_batch, p_.q_head, p_.q_row, i0 + i);
                                });
            auto d_v = add_rows(count, select(seen, pair.p, Val<f32>(0)), std::move(std::get<1>(now)), p_.d_v,
                                [&](const Val<u32>& i) {
                                  return query_row(g_.d_o, s, p_.o_batch, p_.o_head, p_.o_row, i0 + i);
                                });
            return Both(std::move(d_k), std::move(d_v));
          });
        });
        store(Out<T>(g_.d_k).at(base_k), std::get<0>(done), p_.d_qk);
        store(Out<T>(g_.d_v).at(base_v), std::get<1>(done), p_.d_v);
      });
    });
  }

 private:
  template <class F>
  void each_row(const Val<u32>& n, const Val<u32>& heads, F&& f) {
    const auto id = k_.ctaid_x() * std::uint32_t(kWarps) + w_.index;
    k_.if_(id < p_.tiles, [&] {
      const auto bh = id / n;
      f(sequence(f_, p_, bh / heads, bh % heads), id % n);
    });
  }
  // Rows of keys that exist in memory: those behind a sequence's length get gradients of 0.
  Val<u32> memory_keys(const Sequence& s) const { return f_.key_lengths ? p_.n_kv : s.n_kv; }
  In<T> query_row(const Val<u64>& base, const Sequence& s, const Val<u64>& batch, const Val<u64>& head,
                  const Val<u64>& stride, const Val<u32>& row) const {
    return In<T>(base, 0, true)
        .at(rows_of(s, s.head, s.first_q, batch, head, stride) + to<u64>(row) * stride);
  }
  In<T> key_row(const Val<u64>& base, const Sequence& s, const Val<u64>& batch, const Val<u64>& head,
                const Val<u64>& stride, const Val<u32>& row) const {
    return In<T>(base, 0, true)
        .at(rows_of(s, s.head_kv, s.first_kv, batch, head, stride) + to<u64>(row) * stride);
  }
  Out<f32> delta_row(const Sequence& s) const {
    return Out<f32>(g_.delta).at(to<u64>(s.batch) * p_.lse_batch + to<u64>(s.head) * p_.lse_head +
                                 wide_index(s.first_q));
  }
  static Columns zeros() { return Columns(kColumns, Val<f32>(0)); }
  void keep(const Ptr<shared, f32>& to_row, const In<T>& from, const Val<u32>& d) {
    k_.loop(range(lane_, d, Val<u32>(32)), [&](Val<u32> i) { to_row.st(i, to<f32>(from.ld(i))); });
  }
  Val<f32> dot(const Ptr<shared, f32>& a, const In<T>& b, const Val<u32>& d) {
    return k_.loop(d, Val<f32>(0),
                   [&](Val<u32> i, Val<f32> sum) { return fma(a.ld(i), to<f32>(b.ld(i)), sum); });
  }
  struct Pair {
    Val<f32> p, ds;  ///< the probability, and the gradient of q . k
  };
  // `own` holds q (or k) and d_o (or v), the other two are in memory: both products are symmetric.
  Pair gradient(const Sequence&, const Shape& shape, const Ptr<shared, f32>& own, const In<T>& other_qk,
                const In<T>& other_v, const Val<u32>& row, const Val<u32>& key, const Val<f32>& lse,
                const Val<f32>& delta) {
    const auto raw = dot(own, other_qk, p_.d_qk);
    const auto dp = dot(own.at(kMaxDim), other_v, p_.d_v);
    const auto score = f_.shaped() ? shape(raw, row, key) : shape(raw, row, key) * p_.scale_log2;  // in log2
    const auto p = select(lse == kNever, Val<f32>(0), ex2<approx, ftz>(fma(lse, -kLog2e, score)));
    const auto upstream = p * (dp - delta);
    return {p, shape.gradient(raw, row, key, upstream) * p_.scale};
  }
  // sum[c] += weight of lane i * row(i)[column c of this lane], for i < count.
  template <class F>
  Columns add_rows(const Val<u32>& count, const Val<f32>& weight, Columns sum, const Val<u32>& d, F&& row) {
    return k_.loop(assume_uniform(count, Uniform::warp), std::move(sum), [&](Val<u32> i, Columns now) {
      const auto wi = shfl<idx>(w_, weight, i);
      const auto from = row(i).at(lane_);
      Columns next;
      for (int e = 0; e < kColumns; ++e)
        next.push_back(fma(wi, to<f32>(from.ld_if(lane_ + std::uint32_t(32 * e) < d, 32 * e, Val<T>(0))[0]),
                           now[std::size_t(e)]));
      return next;
    });
  }
  void store(const Out<T>& to_row, const Columns& v, const Val<u32>& d) {
    for (int e = 0; e < kColumns; ++e) {
      const auto column = lane_ + std::uint32_t(32 * e);
      to_row.st_if(column < d, column, to<T>(v[std::size_t(e)]));
    }
  }

  Kernel& k_;
  AttentionFeatures f_;
  DType type_;
  const AttentionParams& p_;
  const GradientParams& g_;
  Warp w_;
  Val<u32> lane_;
};

template <class T>
void delta_kernel(Kernel& k, AttentionBackwardConfig c, AttentionParams p, GradientParams g) {
  k.block(kWarps * 32);
  Backward<T>(k, c, p, g).delta();
}
template <class T>
void queries_kernel(Kernel& k, AttentionBackwardConfig c, AttentionParams p, GradientParams g) {
  k.block(kWarps * 32);
  Backward<T>(k, c, p, g).queries();
}
template <class T>
void keys_kernel(Kernel& k, AttentionBackwardConfig c, AttentionParams p, GradientParams g) {
  k.block(kWarps * 32);
  Backward<T>(k, c, p, g).keys();
}
template <class T>
Variant make(const AttentionBackwardConfig& c) {
  const int sm = std::is_same_v<T, bf16> ? 80 : 75;
  return variant(c.name(), sm,
                 c.step == BackwardStep::delta     ? delta_kernel<T>
                 : c.step == BackwardStep::queries ? queries_kernel<T>
                                                   : keys_kernel<T>,
                 c);
}

}  // namespace

Variant attention_backward_simt_variant(const AttentionBackwardConfig& c) {
  if (c.type == DType::f32) return make<f32>(c);
  return c.type == DType::f16 ? make<f16>(c) : make<bf16>(c);
}
std::vector<AttentionBackwardConfig> attention_backward_simt(DType type, const AttentionFeatures& f) {
  std::vector<AttentionBackwardConfig> all;
  for (BackwardStep step : {BackwardStep::delta, BackwardStep::queries, BackwardStep::keys})
    all.push_back({.type = type, .step = step, .features = f});
  return all;
}

}  // namespace cgp::kernels
