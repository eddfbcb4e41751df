// SPDX-License-Identifier: Apache-2.0
#pragma once
// attention sm90: warp-specialised forward kernel.
//   who      blocks that stay walk over tiles of queries, the longest first; a producer thread feeds q, k and
//            v by TMA; 2 or 3 warpgroups own 64 queries each
//   order    a warpgroup issues q k' of the next keys and p v of these, then works on the softmax of the next
//            while both run; warpgroups issue in turns, so that one's softmax lies under the other's products
//   memory   k and v in rings of tiles; scores, probabilities and sums stay in registers: p is operand A
//   numbers  the sums are rescaled only when a row's maximum grew by more than 2^8
//   needs    sm_90a; f16 or bf16; rows at multiples of 16 bytes
#include "cgp/base/error.h"
#include "cgp/dsl/cluster.h"
#include "cgp/dsl/wgmma.h"
#include "cgp/kernels/attention/attention_quad.h"
#include "cgp/kernels/attention/attention_score.h"

namespace cgp::kernels::attention_parts {

inline constexpr float kLazyLimit = 8;  // exponents of 2 that a sum may grow beyond its reference

struct Sm90Tune {
  AttentionFeatures f;
  AttentionSm90Tuning tune;
};

// 2^x on the fused multiply-add units, for x <= 126: the special function unit is the bottleneck of small
// head dimensions. Relative error 7.5e-5, below the rounding of the probabilities.
inline Val<f32> ex2_polynomial(const Val<f32>& x) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const auto clamped = dsl::max(x, Val<f32>(-126.0f));
  const auto shifted = clamped + kMagic;
  const auto f = clamped - (shifted - kMagic);
  const auto p = fma(fma(fma(f, 0.05517167f, Val<f32>(0.24261112f)), f, Val<f32>(0.69326099f)), f,
                     Val<f32>(0.99992807f));
  return bits<f32>((bits<u32>(shifted) << 23u) + bits<u32>(p));
}

template <class T, int DQK, int DV, int BN>
class ForwardSm90 {
 public:
  using QTile = dsl::Tile<T, 64, DQK>;
  using KTile = dsl::Tile<T, BN, DQK>;
  using VTile = dsl::Tile<T, BN, DV, Swizzle::b128>;
  using QMap = TmaIn<QTile, 1, 1, 64, DQK>;
  using KMap = TmaIn<KTile, 1, 1, BN, DQK>;
  using VMap = TmaIn<VTile, 1, 1, BN, DV>;
  using Scores = Acc<f32, 64, BN>;
  using Out64 = Acc<f32, 64, DV>;

  ForwardSm90(Kernel& k, const Sm90Tune& t, const QMap& q, const KMap& keys, const VMap& values,
              const AttentionParams& p)
      : k_(k),
        f_(t.f),
        t_(t.tune),
        q_(q),
        keys_(keys),
        values_(values),
        p_(p),
        math_(k.role<Warpgroup>(t_.warpgroups, t_.warpgroups == 2   ? 240
                                               : t_.warpgroups == 3 ? 160
                                                                    : 0)),
        load_(k.role<Warpgroup>(1, t_.warpgroups == 2   ? 24
                                   : t_.warpgroups == 3 ? 32
                                                        : 0)),
        q_ring_(k, t_.warpgroups * t_.queries, load_, math_),
        k_ring_(k, t_.stages, load_, math_),
        v_ring_(k, t_.stages, load_, math_) {
    if (t_.turns && t_.warpgroups > 1) turns_.emplace(k, math_);
  }

  void run() {
    const auto turns = rounds();
    load_.one_thread([&](Thread& t) { k_.loop(turns, [&](Val<u32> r) { produce(t, place(r)); }); });
    math_.run([&](Warpgroup& wg) { k_.loop(turns, [&](Val<u32> r) { consume(wg, place(r)); }); });
  }

 private:
  using Pair = std::array<Val<f32>, 2>;  // of a thread's two rows
  struct Place {
    Val<u32> batch, head, m0;
  };
  struct Blocks {
    Val<u32> begin, full_begin, full_end, end;
  };
  /// From block to block: maxima, sums, packed probabilities, output.
  using Carried = std::tuple<Pair, Pair, std::vector<Val<b32>>, Out64>;

  int rows() const { return 64 * t_.warpgroups; }

  // ------------------------------------------------------------ which tile
  Val<u32> rounds() {
    if (!t_.persistent) return Val<u32>(1);
    const auto grid = k_.nctaid_x(), full = p_.tiles / grid;
    const auto last = select((full & 1u) != 0u, grid - 1 - k_.ctaid_x(), k_.ctaid_x());
    return full + select(last < p_.tiles % grid, Val<u32>(1), Val<u32>(0));
  }
  // Round r of all blocks runs forwards, the next backwards: who had the longest tile gets the shortest next.
  Place place(const Val<u32>& r) {
    const auto grid = k_.nctaid_x();
    const auto tile = t_.persistent ? r * grid + select((r & 1u) != 0u, grid - 1 - k_.ctaid_x(), k_.ctaid_x())
                                    : k_.ctaid_x();
    const auto per_section = p_.section * p_.tiles_m, section = tile / per_section,
               inside = tile % per_section, first = section * p_.section;
    const auto width = dsl::min(p_.pairs - first, p_.section);
    const auto bh = first + inside % width, m = p_.tiles_m - 1 - inside / width;
    return {bh / p_.heads_q, bh % p_.heads_q, m * std::uint32_t(rows())};
  }
  // Tiles of keys: [begin, end) are visited, at least one; all of [full_begin, full_end) is allowed.
  Blocks blocks(const Sequence& s, const Val<u32>& m0) {
    const auto n = bits<s32>(s.n_kv), shift = n - bits<s32>(s.n_q), m = bits<s32>(m0) + shift;
    const Val<s32> zero(0);
    const auto all = dsl::max(bits<s32>((s.n_kv + (BN - 1)) / std::uint32_t(BN)), Val<s32>(1));
    const auto down = [&](const Val<s32>& x) {
      return bits<s32>(bits<u32>(dsl::max(x, zero)) / std::uint32_t(BN));
    };
    const auto up = [&](const Val<s32>& x) { return down(dsl::max(x, zero) + (BN - 1)); };
    const auto begin = f_.left ? dsl::min(down(m - p_.left), all - 1) : zero;
    const auto end = f_.right ? dsl::max(up(dsl::min(m + (rows() + 0) + p_.right, n)), begin + 1) : all;
    const auto first_full_end = f_.right ? down(dsl::min(m + p_.right + 1, n)) : down(n);
    const auto full_end = dsl::max(dsl::min(first_full_end, end - 1), begin);
    const auto full_begin =
        f_.left ? dsl::min(dsl::max(up(m + (rows() - 1) - p_.left), begin), full_end) : begin;
    return {bits<u32>(begin), bits<u32>(full_begin), bits<u32>(full_end), bits<u32>(end)};
  }

  // ------------------------------------------------------------ the producer
  void produce(Thread& t, const Place& at) {
    const Sequence s = sequence(f_, p_, at.batch, at.head);
    const Blocks b = blocks(s, at.m0);
    const auto key = [&](const Val<u32>& n) {
      k_ring_.fill(t, dsl::at(keys_, at.batch, s.head_kv, n * std::uint32_t(BN), 0));
    };
    const auto value = [&](const Val<u32>& n) {
      v_ring_.fill(t, dsl::at(values_, at.batch, s.head_kv, n * std::uint32_t(BN), 0));
    };
    for (int i = 0; i < t_.warpgroups; ++i)
      q_ring_.fill(t, dsl::at(q_, at.batch, at.head, at.m0 + std::uint32_t(64 * i), 0));
    const auto last = b.end - 1;
    key(last);
    k_.loop(last - b.begin, [&](Val<u32> i) {
      key(last - 1 - i);
      value(last - i);
    });
    value(b.begin);
  }

  // ------------------------------------------------------------ a warpgroup
  void consume(Warpgroup& wg, const Place& at) {
    const Sequence s = sequence(f_, p_, at.batch, at.head);
    const Blocks b = blocks(s, at.m0);
    const auto origin = record::warpgroup_origin(k_);
    const auto row = at.m0 + wg.index * 64u + origin.row;
    const Shape shape(f_, p_, s, std::is_same_v<T, bf16> ? DType::bf16 : DType::f16);
    const std::array<Bounds, 2> limit{bounds(f_, p_, s, row), bounds(f_, p_, s, row + 8)};
    Warp w = wg.warp();

    q_ring_.skip(wg, wg.index);
    auto q = q_ring_.take(wg);
    q_ring_.skip(wg, std::uint32_t(t_.warpgroups - 1) - wg.index);

    const auto last = b.end - 1;
    auto raw = wgmma(wg, fresh<f32, 64, BN>(wg), q.template get<0>(), k_ring_.take(wg)).wait(wg);
    auto kept = shaped(std::move(raw), shape, row, last, origin.col, limit, true);
    const Pair max = row_max(w, kept, nullptr);
    auto first = exponentials(std::move(kept), max, true);
    Carried state{max, row_sum(first), pack_all(first), zeros<f32, 64, DV>(wg)};
    const auto run = [&](const Val<u32>& from, const Val<u32>& to, bool masked, Carried in) {
      return k_.loop(from - to, std::move(in), [&](Val<u32> i, Carried now) {
        const auto n = from - 1 - i;
        if (turns_) turns_->wait(wg);
        auto scores = wgmma(wg, fresh<f32, 64, BN>(wg), q.template get<0>(), k_ring_.take(wg));
        auto out = wgmma<Major::k, Major::mn>(wg, std::move(std::get<3>(now)), operand(std::get<2>(now)),
                                              v_ring_.take(wg));
        if (turns_) turns_->pass(wg);
        auto seen = shaped(std::move(scores).wait(wg), shape, row, n, origin.col, limit, masked);
        const Pair before = std::get<0>(now), most = row_max(w, seen, &before);
        const Grown g = grow(w, before, most, masked);
        auto next = exponentials(std::move(seen), g.max, masked);
        const Pair added = hold(row_sum(next));
        const Pair sum{fma(std::get<1>(now)[0], g.scale[0], added[0]),
                       fma(std::get<1>(now)[1], g.scale[1], added[1])};
        auto o = std::move(out).wait(wg);
        rescale(o, g);
        return Carried{g.max, sum, pack_all(next), std::move(o)};
      });
    };
    Carried diagonal = f_.right ? run(last, b.full_end, true, std::move(state)) : std::move(state);
    Carried inner = run(f_.right ? b.full_end : last, b.full_begin, false, std::move(diagonal));
    Carried done = f_.left ? run(b.full_begin, b.begin, true, std::move(inner)) : std::move(inner);
    std::move(q).release(wg);
    auto o = wgmma<Major::k, Major::mn>(wg, std::move(std::get<3>(done)), operand(std::get<2>(done)),
                                        v_ring_.take(wg))
                 .wait(wg);
    finish(w, s, row, origin.col, std::get<0>(done), std::get<1>(done), std::move(o));
  }

  Scores shaped(Scores acc, const Shape& shape, const Val<u32>& row, const Val<u32>& n, const Val<u32>& col,
                const std::array<Bounds, 2>& limit, bool masked) {
    const bool alone = !f_.shaped() && f_.mask != AttentionMask::boolean;
    if (alone && !masked) return acc;
    const auto key0 = n * std::uint32_t(BN) + col;
    std::vector<Val<s32>> left, first;
    for (const Bounds& l : limit) {
      left.push_back(l.end - bits<s32>(key0));
      first.push_back(l.first - bits<s32>(key0));
    }
    int i = 0;
    return std::move(acc).map_rows([&](const Val<f32>& x, int half) {
      const int c = 8 * (i >> 2) + (i & 1);
      ++i;
      const auto kept = alone ? x : shape(x, row + std::uint32_t(8 * half), key0 + std::uint32_t(c));
      if (!masked) return kept;
      const auto below = left[std::size_t(half)] > c;
      const auto inside = f_.left ? below & (first[std::size_t(half)] <= c) : below;
      return select(inside, kept, Val<f32>(kNever));
    });
  }

  /// Of both rows over the quad; with `before`, at least that.
  Pair row_max(Warp& w, const Scores& s, const Pair* before) {
    const auto one = [&](int half) {
      std::vector<Val<f32>> chain[2];
      for (int i = 0; i < Scores::count; ++i) {
        if (((i >> 1) & 1) != half) continue;
        auto& c = chain[i & 1];
        c.push_back(c.empty() ? (before && (i & 1) == 0 ? dsl::max((*before)[std::size_t(half)], s[i]) : s[i])
                              : dsl::max(c.back(), s[i]));
      }
      return reduce(
          w, dsl::max(chain[0].back(), chain[1].back()),
          [](const Val<f32>& a, const Val<f32>& b) { return dsl::max(a, b); }, 4);
    };
    return {one(0), one(1)};
  }
  Pair row_sum(const Scores& s) {
    const auto one = [&](int half) {
      std::vector<Val<f32>> chain[2];
      for (int i = 0; i < Scores::count; ++i) {
        if (((i >> 1) & 1) != half) continue;
        auto& c = chain[i & 1];
        c.push_back(c.empty() ? s[i] : c.back() + s[i]);
      }
      return chain[0].back() + chain[1].back();
    };
    return {one(0), one(1)};
  }

  struct Grown {
    Pair max, scale;
    Val<pred> any;  ///< of the warp
  };
  Grown grow(Warp& w, const Pair& before, const Pair& most, bool masked) {
    const auto c = factor(f_, p_);
    if (!t_.lazy) {
      const auto scale = [&](std::size_t h) {
        const auto base = masked || guarded() ? select(most[h] == kNever, Val<f32>(0), most[h]) : most[h];
        return ex2<approx, ftz>((before[h] - base) * c);
      };
      return {most, {scale(0), scale(1)}, Val<pred>(true)};
    }
    const Pair step{(most[0] - before[0]) * c, (most[1] - before[1]) * c};
    const auto any = vote<dsl::any>(w, (step[0] > kLazyLimit) | (step[1] > kLazyLimit));
    const auto scale = [&](std::size_t h) {
      // -infinity twice: NaN, which stays where nothing was allowed yet and the sums are 0.
      const auto shrink = ex2<approx, ftz>(-step[h]);
      return select(any, masked || guarded() ? select(most[h] == kNever, Val<f32>(1), shrink) : shrink,
                    Val<f32>(1));
    };
    const auto max = [&](std::size_t h) { return select(any, most[h], before[h]); };
    return {{max(0), max(1)}, {scale(0), scale(1)}, any};
  }
  bool guarded() const { return f_.shaped() || f_.mask == AttentionMask::boolean; }

  Scores exponentials(Scores s, const Pair& max, bool masked) {
    const auto c = factor(f_, p_);
    std::vector<Val<f32>> base;
    for (int h = 0; h < 2; ++h) {
      const auto& m = max[std::size_t(h)];
      base.push_back(-((masked || guarded() ? select(m == kNever, Val<f32>(0), m) : m) * c));
    }
    int i = 0;
    return std::move(s).map_rows([&](const Val<f32>& x, int half) {
      const auto e = fma(x, c, base[std::size_t(half)]);
      const bool polynomial = (i >> 2) * t_.polynomial / 16 != ((i >> 2) + 1) * t_.polynomial / 16;
      ++i;
      return polynomial ? ex2_polynomial(e) : ex2<approx, ftz>(e);
    });
  }
  // The assembler moves a wait for products up across arithmetic that does not depend on them, and then
  // nothing runs under those products. It does not move it across a loop: this one has no turns, since sums
  // of exponentials are not negative. (It knows that too, hence a number that only the launch knows.)
  Pair hold(const Pair& sums) {
    return k_.while_(
        sums, [&](const Pair& s) { return dsl::min(s[0], s[1]) < p_.negative; },
        [](const Pair& s) {
          return Pair{s[0] + 1.0f, s[1] + 1.0f};
        });
  }
  void rescale(const Out64& o, const Grown& g) {
    const auto all = [&] {
      int i = 0;
      for (const Value& v : o.values())
        k_.mov_op(v, ptx::Op::mul, {ptx::Mod::f32}, {v, g.scale[std::size_t((i++ >> 1) & 1)]});
    };
    if (t_.lazy)
      k_.if_(g.any, all);
    else
      all();
  }
  static std::vector<Val<b32>> pack_all(const Scores& s) {
    std::vector<Val<b32>> out;
    const auto packed = to_operand<T>(s);
    for (const Value& v : packed.values()) out.push_back(Val<b32>(v));
    return out;
  }
  static RegOperand<T, 64, BN> operand(const std::vector<Val<b32>>& p) {
    return RegOperand<T, 64, BN>(std::vector<Value>(p.begin(), p.end()));
  }

  // ------------------------------------------------------------ results
  void finish(Warp& w, const Sequence& s, const Val<u32>& row, const Val<u32>& col, const Pair& max,
              const Pair& partial, Out64 o) {
    const auto plus = [](const Val<f32>& a, const Val<f32>& b) { return a + b; };
    const Pair sum{reduce(w, partial[0], plus, 4), reduce(w, partial[1], plus, 4)};
    const auto quad = w.lane() & 3u;
    for (int h = 0; h < 2; ++h) {
      const auto r = row + std::uint32_t(8 * h);
      const auto there = r < s.n_q;
      if (f_.lse)
        lse_row(p_, s).st_if(there & (col == 0u), r,
                             log_sum(max[std::size_t(h)], factor(f_, p_), sum[std::size_t(h)]));
      const auto inverse = inverse_or_zero(sum[std::size_t(h)]);
      const auto base =
          Out<T>(p_.o)
              .at(rows_of(s, s.head, s.first_q, p_.o_batch, p_.o_head, p_.o_row) + to<u64>(r) * p_.o_row)
              .template as<b32>()
              .at(quad * 4u);
      for (int j = 0; j < DV / 8; j += 4) {
        const auto word = [&](int b) {
          const int i = (j + b) * 4 + 2 * h;
          return dsl::pack<T>(o[i] * inverse, o[i + 1] * inverse);
        };
        const auto words = exchange_in_quad(w, {word(0), word(1), word(2), word(3)});
        base.template st_if<4>(there & (quad * 8u + std::uint32_t(8 * j) < p_.d_v), j, words);
      }
    }
  }

  Kernel& k_;
  AttentionFeatures f_;
  AttentionSm90Tuning t_;
  QMap q_;
  KMap keys_;
  VMap values_;
  const AttentionParams& p_;
  Role<Warpgroup> math_, load_;
  Ring<ByTurns, QTile> q_ring_;
  Ring<ByThreads, KTile> k_ring_;
  Ring<ByThreads, VTile> v_ring_;
  std::optional<Turns<Warpgroup>> turns_;
};

template <class T, int DQK, int DV, int BN>
void attention_sm90_kernel(Kernel& k, Sm90Tune t, typename ForwardSm90<T, DQK, DV, BN>::QMap q,
                           typename ForwardSm90<T, DQK, DV, BN>::KMap keys,
                           typename ForwardSm90<T, DQK, DV, BN>::VMap values, AttentionParams p) {
  ForwardSm90<T, DQK, DV, BN>(k, t, q, keys, values, p).run();
}

/// For both element types.
template <int DQK, int DV, int BN>
Variant sm90_variant(DType type, std::string name, const Sm90Tune& t) {
  Variant v = type == DType::f16 ? variant(std::move(name), 90, attention_sm90_kernel<f16, DQK, DV, BN>, t)
                                 : variant(std::move(name), 90, attention_sm90_kernel<bf16, DQK, DV, BN>, t);
  v.only = "sm_90a";
  return v;
}
/// Head dimensions above 128; no variant where there is no such tile.
Variant sm90_wide(DType type, std::string name, int d_qk, int d_v, int columns, const Sm90Tune& t);

}  // namespace cgp::kernels::attention_parts
