// SPDX-License-Identifier: Apache-2.0
#pragma once
// attention sm90: the warp-specialised forward kernel.
//   who      blocks walk over tiles of queries, the longest first (persistent), or take one each; a producer
//            thread loads q, k and v by TMA; 2 or 3 warpgroups own 64 queries each
//   order    a warpgroup issues q k' of the next keys and p v of these, then works on the softmax of the next
//            while both run; with pingpong the warpgroups issue in turn, so that the softmax of one runs under
//            the products of another
//   memory   k and v in rings of tiles; scores, probabilities and accumulators stay in registers: p is operand A
//   tiles    dynamic: the producer takes the next one and tells the warpgroups, so that tiles of many lengths end
//            together; split: several blocks have a part of a tile's keys each (attention_combine.cpp)
//   rescale  lazy: o is rescaled only when a row's maximum grew by more than 2^8
//   e4m3     attention_sm90_fp8.h transposes v for the tensor core; p is scaled to use the type's range
//   needs    sm_90a; f16, bf16 or e4m3; rows at multiples of 16 bytes
#include "cgp/base/error.h"
#include "cgp/dsl/memory/atomic.h"
#include "cgp/dsl/mma/wgmma.h"
#include "cgp/dsl/pipeline/cluster.h"
#include "cgp/dsl/pipeline/work_broadcast.h"
#include "cgp/kernels/attention/attention_quad.h"
#include "cgp/kernels/attention/attention_score.h"
#include "cgp/kernels/attention/attention_sm90_fp8.h"
#include "cgp/kernels/attention/attention_tiles.h"

namespace cgp::kernels::attention_impl {

// Probabilities are 2^(score - reference + shift), where the reference is within `limit` exponents of 2 of
// the row's maximum. 16-bit types have exponents enough; e4m3 counts from 2^-9 to 448.
template <class T>
struct Range {
  static constexpr float limit = 8, shift = 0;
};
template <>
struct Range<e4m3> {
  static constexpr float limit = 3, shift = 5;
};

// Values of 16 bits, which the tensor core reads as they lie in memory.
template <class T, int BN, int DV>
class LoadedValues {
 public:
  using Raw = dsl::Tile<T, BN, DV>;
  LoadedValues(Kernel& k, int stages, const Role<Warpgroup>& load, const Role<Warpgroup>& math)
      : ring_(k, stages, load, math) {}
  template <class At>
  void fill(Thread& t, const At& at) {
    ring_.fill(t, at);
  }
  template <class AccT, class P>
  auto multiply(Warpgroup& wg, AccT acc, P p, const WgmmaPart& part) {
    return wgmma<Major::k, Major::mn>(wg, std::move(acc), std::move(p), ring_.take(wg), part);
  }

 private:
  Ring<ByThreads, Raw> ring_;
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
  static constexpr bool fp8 = T::bits == 8;
  using Values = std::conditional_t<fp8, TransposedValues<T, BN, DV>, LoadedValues<T, BN, DV>>;
  using Result = std::conditional_t<fp8, bf16, T>;  ///< or f16, as large
  using QTile = dsl::Tile<T, 64, DQK>;
  using KTile = dsl::Tile<T, BN, DQK>;
  using VTile = typename Values::Raw;
  using QMap = TmaIn<QTile, 1, 1, 64, DQK>;
  using KMap = TmaIn<KTile, 1, 1, BN, DQK>;
  using VMap = TmaIn<VTile, 1, 1, BN, DV>;
  using Scores = Acc<f32, 64, BN>;
  using Out64 = Acc<f32, 64, DV>;

  ForwardSm90(Kernel& k, const AttentionConfig& c, const QMap& q, const KMap& keys, const VMap& values,
              const AttentionParams& p)
      : k_(k),
        f_(c.features),
        t_(c.tune),
        out_(c.o_type()),
        q_(q),
        keys_(keys),
        values_(values),
        p_(p),
        math_(k.role<Warpgroup>(t_.warpgroups, math_registers())),
        load_(k.role<Warpgroup>(1, load_registers())),
        q_ring_(k, t_.warpgroups * t_.q_tiles, load_, math_),
        k_ring_(k, t_.stages, load_, math_),
        v_(k, t_.stages, load_, math_) {
    if (t_.warpgroups == 1) t_.pingpong = Pingpong::none;
    if (t_.pingpong != Pingpong::none) pingpong_.emplace(k, math_);
    k.require(!t_.dynamic || (t_.persistent && !fp8 && !f_.packed),
              "persistent blocks take tiles one by one, of operands of 16 bits that are not packed");
    k.require(!t_.split || (!t_.persistent && !fp8 && !f_.packed),
              "blocks that are not persistent share keys, of operands of 16 bits that are not packed");
  }

  void run() {
    if (t_.dynamic) return walk_by_tickets();
    const auto tiles = tiles_of_block();
    load_.run([&](Warpgroup& wg) {
      wg.one_thread([&](Thread& t) {
        walk(tiles, Uniform::thread, [&](const TileCoordinate& at) { produce(t, at); });
      });
      if constexpr (fp8)
        v_.transposers(wg, [&](Warp& w) {
          walk(tiles, Uniform::warp, [&](const TileCoordinate& at) {
            const Blocks b = blocks(at);
            k_.loop(b.end - b.begin, [&](Val<u32>) { v_.transpose(w); });
          });
        });
    });
    math_.run([&](Warpgroup& wg) {
      walk(tiles, Uniform::warpgroup, [&](const TileCoordinate& at) { consume(wg, at); });
    });
  }

 private:
  using Pair = std::array<Val<f32>, 2>;  // of a thread's two rows
  struct TileCoordinate {
    Sequence s;
    Val<u32> m0;
    Val<u32> part;  ///< of the blocks that share its keys
  };
  struct Blocks {
    Val<u32> begin, full_begin, full_end, end;
  };
  /// From block to block: maxima, sums, packed probabilities, output.
  using Carried = std::tuple<Pair, Pair, std::vector<Val<b32>>, Out64>;

  int rows() const { return 64 * t_.warpgroups; }
  /// Whether the producer looks for sequences, and for where they end.
  bool looks() const { return f_.packed || f_.key_lengths; }
  /// Registers of a thread with two or with three warpgroups.
  int budget(int two, int three) const { return t_.warpgroups == 2 ? two : t_.warpgroups == 3 ? three : 0; }
  int math_registers() const { return fp8 ? budget(224, 152) : budget(looks() ? 232 : 240, 160); }
  int load_registers() const { return fp8 ? budget(56, 56) : budget(looks() ? 40 : 24, 32); }

  // ------------------------------------------------------------ which tile
  Val<u32> tiles_of_block() { return t_.persistent ? rounds_of_block(k_, p_.tiles) : Val<u32>(1); }
  TileCoordinate coordinate(const Val<u32>& index, Uniform over) {
    const auto [bh, at] = tile_of_head(p_, index, t_.split ? p_.tiles_m * p_.splits : p_.tiles_m);
    const auto part = t_.split ? at % p_.splits : Val<u32>(0);
    const auto m = p_.tiles_m - 1 - (t_.split ? at / p_.splits : at);
    if (!f_.packed)
      return {sequence_of(f_, p_, bh / p_.heads_q, bh % p_.heads_q, over), m * std::uint32_t(rows()), part};
    const auto of = tile_of_sequence(k_, p_, p_.cu_seqlens_q, rows(), m);
    return {sequence_of(f_, p_, of.batch, bh, over), assume_uniform(of.tile * std::uint32_t(rows()), over),
            part};
  }
  template <class Body>
  void walk(const Val<u32>& tiles, Uniform over, Body&& body) {
    k_.loop(tiles, [&](Val<u32> r) {
      const TileCoordinate at = coordinate(t_.persistent ? tile_of_round(k_, r) : k_.ctaid_x(), over);
      if (f_.packed)
        k_.if_(at.m0 < at.s.n_q, [&] { body(at); });
      else
        body(at);
    });
  }
  // The producer takes the next tile and tells which; it loads while the warpgroups still compute.
  void walk_by_tickets() {
    WorkBroadcast mail(k_, 1, 2, math_);
    const auto go_on = [&](const Val<u32>& index, Uniform u) { return assume_uniform(index < p_.tiles, u); };
    load_.run([&](Warpgroup& wg) {
      wg.one_warp([&](Warp& w) {
        const auto take = [&] {
          const auto taken = k_.if_(
              w.lane() == 0u, [&] { return atom<relaxed, gpu, op::add>(Out<u32>(p_.tickets), 0, 1u); },
              [] { return Val<u32>(0); });
          return shfl<idx>(w, taken, 0);
        };
        const auto end = k_.while_(
            take(), [&](const Val<u32>& index) { return go_on(index, Uniform::warp); },
            [&](const Val<u32>& index) {
              mail.send(w, {index});
              w.one_thread([&](Thread& t) { produce(t, coordinate(index, Uniform::thread)); });
              return take();
            });
        mail.send(w, {end});
      });
    });
    math_.run([&](Warpgroup& wg) {
      (void)k_.while_(
          mail.receive(wg)[0], [&](const Val<u32>& index) { return go_on(index, Uniform::warpgroup); },
          [&](const Val<u32>& index) {
            consume(wg, coordinate(assume_uniform(index, Uniform::warpgroup), Uniform::warpgroup));
            return mail.receive(wg)[0];
          });
    });
  }
  // Tiles of keys: [begin, end) are visited, at least one (of a part: none where begin == end); all of [full_begin, full_end) is allowed.
  Blocks blocks(const TileCoordinate& at) {
    const Blocks all = blocks_of_tile(at.s, at.m0);
    if (!t_.split) return all;
    const auto count = all.end - all.begin, begin = all.begin + count * at.part / p_.splits,
               end = all.begin + count * (at.part + 1u) / p_.splits;
    const auto full_end =
        dsl::max(dsl::min(all.full_end, end - select(end > begin, Val<u32>(1), Val<u32>(0))), begin);
    return {begin, dsl::min(dsl::max(all.full_begin, begin), full_end), full_end, end};
  }
  Blocks blocks_of_tile(const Sequence& s, const Val<u32>& m0) {
    const auto n = bits<s32>(s.n_kv), shift = n - bits<s32>(s.n_q), m = bits<s32>(m0) + shift;
    const Val<s32> zero(0);
    const auto all = dsl::max(bits<s32>((s.n_kv + (BN - 1)) / std::uint32_t(BN)), Val<s32>(1));
    const auto down = [&](const Val<s32>& x) {
      return bits<s32>(bits<u32>(dsl::max(x, zero)) / std::uint32_t(BN));
    };
    const auto up = [&](const Val<s32>& x) { return down(dsl::max(x, zero) + (BN - 1)); };
    const auto begin = f_.window_left ? dsl::min(down(m - p_.window_left), all - 1) : zero;
    const auto end =
        f_.window_right ? dsl::max(up(dsl::min(m + (rows() + 0) + p_.window_right, n)), begin + 1) : all;
    const auto first_full_end = f_.window_right ? down(dsl::min(m + p_.window_right + 1, n)) : down(n);
    const auto full_end = dsl::max(dsl::min(first_full_end, end - 1), begin);
    const auto full_begin =
        f_.window_left ? dsl::min(dsl::max(up(m + (rows() - 1) - p_.window_left), begin), full_end) : begin;
    return {bits<u32>(begin), bits<u32>(full_begin), bits<u32>(full_end), bits<u32>(end)};
  }

  // ------------------------------------------------------------ the producer
  void produce(Thread& t, const TileCoordinate& at) {
    const Blocks b = blocks(at);
    if (t_.split)
      k_.if_(b.end > b.begin, [&] { produce(t, at, b); });
    else
      produce(t, at, b);
  }
  void produce(Thread& t, const TileCoordinate& at, const Blocks& b) {
    const Sequence& s = at.s;
    const auto rows = [&](MapOf which, const Val<u32>& head) { return rows_of_map(f_, p_, s, which, head); };
    const auto q = rows(MapOf::q, s.head), k = rows(MapOf::k, s.head_kv), v = rows(MapOf::v, s.head_kv);
    const auto key = [&](const Val<u32>& n) { k_ring_.fill(t, row_of(keys_, k, n * std::uint32_t(BN))); };
    const auto value = [&](const Val<u32>& n) { v_.fill(t, row_of(values_, v, n * std::uint32_t(BN))); };
    const auto last = b.end - 1;
    key(last);  // there is room for it before the last tile's queries are done with
    for (int i = 0; i < t_.warpgroups; ++i) q_ring_.fill(t, row_of(q_, q, at.m0 + std::uint32_t(64 * i)));
    k_.loop(last - b.begin, [&](Val<u32> i) {
      key(last - 1 - i);
      value(last - i);
    });
    value(b.begin);
  }

  // ------------------------------------------------------------ a warpgroup
  void consume(Warpgroup& wg, const TileCoordinate& at) {
    const Blocks b = blocks(at);
    if (!t_.split) return consume(wg, at, b);
    const auto some = assume_uniform(b.end > b.begin, Uniform::warpgroup);
    k_.if_(some, [&] { consume(wg, at, b); });
    k_.if_(!some, [&] {
      const auto origin = accumulator_origin(wg);
      for (int h = 0; h < 2; ++h) {
        const auto row = at.m0 + wg.index * 64u + origin.row + std::uint32_t(8 * h);
        Out<f32>(p_.partial_lse)
            .st_if((row < at.s.n_q) & (origin.col == 0u), part_row(at, row), Val<f32>(kNever));
      }
    });
  }
  /// Of all rows of all parts.
  Val<u64> part_row(const TileCoordinate& at, const Val<u32>& row) {
    const auto head = (at.part * p_.batch + at.s.batch) * p_.heads_q + at.s.head;
    return to<u64>(head) * to<u64>(p_.n_q) + to<u64>(row);
  }
  void consume(Warpgroup& wg, const TileCoordinate& at, const Blocks& b) {
    const Sequence& s = at.s;
    const auto origin = accumulator_origin(wg);
    const auto row = at.m0 + wg.index * 64u + origin.row;
    const Shape shape(f_, p_, s, result_type());
    const Head head = head_of(s);
    const std::array<Bounds, 2> limit{bounds(f_, p_, s, row), bounds(f_, p_, s, row + 8)};
    Warp w = wg.warp();

    q_ring_.skip(wg, wg.index);
    auto q = q_ring_.take(wg);
    q_ring_.skip(wg, std::uint32_t(t_.warpgroups - 1) - wg.index);

    const auto last = b.end - 1;
    auto raw = scores(wg, q.template get<0>()).wait(wg);
    auto kept = modified(std::move(raw), shape, head, row, last, origin.col, limit, true);
    const Pair max = row_max(w, kept, nullptr);
    auto first = exponentials(std::move(kept), max, head.exponent_scale, true);
    Carried state{max, row_sum(first), pack_all(first), zeros<f32, 64, DV>(wg)};
    const auto run = [&](const Val<u32>& from, const Val<u32>& to, bool masked, Carried in) {
      return k_.loop(from - to, std::move(in), [&](Val<u32> i, Carried now) {
        const auto n = from - 1 - i;
        if (pingpong_) pingpong_->wait(wg);
        auto busy = scores(wg, q.template get<0>());
        auto out = multiply(wg, std::move(std::get<3>(now)), std::get<2>(now));
        if (t_.pingpong == Pingpong::at_issue) pingpong_->pass(wg);
        auto raw = std::move(busy).wait(wg);
        if (t_.pingpong == Pingpong::at_scores) pingpong_->pass(wg);
        auto seen = modified(std::move(raw), shape, head, row, n, origin.col, limit, masked);
        const Pair before = std::get<0>(now), most = row_max(w, seen, &before);
        if constexpr (fp8) out.step(wg);
        const Grown g = grow(w, before, most, head.exponent_scale, masked);
        auto next = exponentials(std::move(seen), g.max, head.exponent_scale, masked);
        const Pair added = hold(row_sum(next));
        const Pair sum{fma(std::get<1>(now)[0], g.scale[0], added[0]),
                       fma(std::get<1>(now)[1], g.scale[1], added[1])};
        auto o = std::move(out).wait(wg);
        rescale(o, g);
        return Carried{g.max, sum, pack_all(next), std::move(o)};
      });
    };
    Carried diagonal = f_.window_right ? run(last, b.full_end, true, std::move(state)) : std::move(state);
    Carried inner = run(f_.window_right ? b.full_end : last, b.full_begin, false, std::move(diagonal));
    Carried done = f_.window_left ? run(b.full_begin, b.begin, true, std::move(inner)) : std::move(inner);
    std::move(q).release(wg);
    auto o = multiply(wg, std::move(std::get<3>(done)), std::get<2>(done)).wait(wg);
    finish(w, at, head, row, origin.col, std::get<0>(done), std::get<1>(done), std::move(o));
  }

  template <class Q>
  auto scores(Warpgroup& wg, Q&& q) {
    return wgmma(wg, fresh<f32, 64, BN>(wg), SmemTile<QTile>(q), k_ring_.take(wg),
                 WgmmaPart{.depth = t_.used_d_qk});
  }
  auto multiply(Warpgroup& wg, Out64 o, const std::vector<Val<b32>>& p) {
    const WgmmaPart part{.columns = t_.used_d_v};
    if constexpr (fp8)
      return v_.multiply(wg, std::move(o), operand(p), t_.promoted, part);
    else
      return v_.multiply(wg, std::move(o), operand(p), part);
  }

  /// What quantised operands are multiplied with: scores by `scores`, kept scores by `exponent_scale`.
  struct Head {
    Val<f32> scores, exponent_scale;
  };
  Val<f32> scale_of(const Val<u64>& scales, const Val<u64>& batch, const Val<u64>& head, const Val<u32>& b,
                    const Val<u32>& h) {
    const auto there = scales != Val<u64>(0);
    return In<f32>(scales, 0, true).ld_if(there, to<u64>(b) * batch + to<u64>(h) * head, Val<f32>(1.0f))[0];
  }
  Head head_of(const Sequence& s) {
    if constexpr (!fp8) return {Val<f32>(1.0f), exponent_scale(f_, p_)};
    const auto both = scale_of(p_.q_scale, p_.q_scale_batch, p_.q_scale_head, s.batch, s.head) *
                      scale_of(p_.k_scale, p_.k_scale_batch, p_.k_scale_head, s.batch, s.head_kv);
    return {both, f_.modifies_scores() ? Val<f32>(1.0f) : both * p_.scale_log2};
  }

  Scores modified(Scores acc, const Shape& shape, const Head& head, const Val<u32>& row, const Val<u32>& n,
                  const Val<u32>& col, const std::array<Bounds, 2>& limit, bool masked) {
    const bool alone = !f_.modifies_scores() && f_.mask != AttentionMask::boolean;
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
      const auto score = fp8 && f_.modifies_scores() ? x * head.scores : x;
      const auto kept = alone ? x : shape(score, row + std::uint32_t(8 * half), key0 + std::uint32_t(c));
      if (!masked) return kept;
      const auto before_end = left[std::size_t(half)] > c;
      const auto inside = f_.window_left ? before_end & (first[std::size_t(half)] <= c) : before_end;
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
  Grown grow(Warp& w, const Pair& before, const Pair& most, const Val<f32>& c, bool masked) {
    if (!t_.lazy_rescale) {
      const auto scale = [&](std::size_t h) {
        const auto base = masked || guarded() ? select(most[h] == kNever, Val<f32>(0), most[h]) : most[h];
        return ex2<approx, ftz>((before[h] - base) * c);
      };
      return {most, {scale(0), scale(1)}, Val<pred>(true)};
    }
    const Pair step{(most[0] - before[0]) * c, (most[1] - before[1]) * c};
    const auto any = vote<dsl::any>(w, (step[0] > Range<T>::limit) | (step[1] > Range<T>::limit));
    const auto scale = [&](std::size_t h) {
      // -infinity twice: NaN, which stays where nothing was allowed yet and the sums are 0.
      const auto shrink = ex2<approx, ftz>(-step[h]);
      return select(any, masked || guarded() ? select(most[h] == kNever, Val<f32>(1), shrink) : shrink,
                    Val<f32>(1));
    };
    const auto max = [&](std::size_t h) { return select(any, most[h], before[h]); };
    return {{max(0), max(1)}, {scale(0), scale(1)}, any};
  }
  bool guarded() const { return f_.modifies_scores() || f_.mask == AttentionMask::boolean; }

  Scores exponentials(Scores s, const Pair& max, const Val<f32>& c, bool masked) {
    std::vector<Val<f32>> base;
    for (int h = 0; h < 2; ++h) {
      const auto& m = max[std::size_t(h)];
      const auto top = (masked || guarded() ? select(m == kNever, Val<f32>(0), m) : m) * c;
      base.push_back(fp8 ? Range<T>::shift - top : -top);
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
  // nothing runs under those products. It does not move it across a loop: this one has no iterations, since sums
  // of exponentials are not negative. (It knows that too, hence a number that only the launch knows.)
  Pair hold(const Pair& totals) {
    return k_.while_(
        totals, [&](const Pair& s) { return dsl::min(s[0], s[1]) < p_.negative; },
        [](const Pair& s) {
          return Pair{s[0] + 1.0f, s[1] + 1.0f};
        });
  }
  void rescale(const Out64& o, const Grown& g) {
    const auto all = [&] {
      for (int i = 0; i < (t_.used_d_v ? t_.used_d_v / 2 : Out64::count); ++i)
        k_.mov_op(o.values()[std::size_t(i)], ptx::Op::mul, {ptx::Mod::f32},
                  {o.values()[std::size_t(i)], g.scale[std::size_t((i >> 1) & 1)]});
    };
    if (t_.lazy_rescale)
      k_.if_(g.any, all);
    else
      all();
  }
  // Bytes of e4m3 have the order of keys that TransposedValues gives v: of 32 keys, 16 in words 0 and 1 (of the
  // two rows), 16 in words 2 and 3.
  static std::vector<Val<b32>> pack_all(const Scores& s) {
    std::vector<Val<b32>> out;
    if constexpr (fp8) {
      const auto two = [&](int i) { return cvt<rn, satfinite, e4m3x2>(s[i + 1], s[i]); };
      for (int i = 0; i < Scores::count; i += 8)
        for (int half : {0, 2}) out.push_back(pack<b32>(two(i + half), two(i + 4 + half)));
    } else {
      const auto packed = to_operand<T>(s);
      for (const Value& v : packed.values()) out.push_back(Val<b32>(v));
    }
    return out;
  }
  static RegOperand<T, 64, BN> operand(const std::vector<Val<b32>>& p) {
    return RegOperand<T, 64, BN>(std::vector<Value>(p.begin(), p.end()));
  }

  // ------------------------------------------------------------ results
  DType result_type() const { return fp8 ? out_ : std::is_same_v<T, bf16> ? DType::bf16 : DType::f16; }
  Val<b32> packed(const Val<f32>& low, const Val<f32>& high) const {
    return result_type() == DType::bf16 ? dsl::pack<bf16>(low, high) : dsl::pack<f16>(low, high);
  }
  void finish(Warp& w, const TileCoordinate& at, const Head& head, const Val<u32>& row, const Val<u32>& col,
              const Pair& max, const Pair& partial, Out64 o) {
    const auto plus = [](const Val<f32>& a, const Val<f32>& b) { return a + b; };
    const Pair sum{reduce(w, partial[0], plus, 4), reduce(w, partial[1], plus, 4)};
    const auto quad = w.lane() & 3u;
    const Sequence& s = at.s;
    for (int h = 0; h < 2; ++h) {
      const auto r = row + std::uint32_t(8 * h);
      const auto there = r < s.n_q;
      const auto& of_row = sum[std::size_t(h)];
      if (t_.split) {
        store_part(at, r, there, quad, col, h, log_sum(max[std::size_t(h)], head.exponent_scale, of_row),
                   inverse_or_zero(of_row), o);
        continue;
      }
      if (f_.lse)
        lse_row(p_, s).st_if(there & (col == 0u), r,
                             log_sum(max[std::size_t(h)], head.exponent_scale,
                                     fp8 ? of_row * std::exp2(-Range<T>::shift) : of_row));
      const auto inverse = inverse_or_zero(of_row);
      const auto base =
          Out<Result>(p_.o)
              .at(rows_of(s, s.head, s.first_q, p_.o_batch, p_.o_head, p_.o_row) + to<u64>(r) * p_.o_row)
              .template as<b32>();
      if constexpr (fp8)
        store_transposed(
            base, o, h, quad,
            inverse * scale_of(p_.v_scale, p_.v_scale_batch, p_.v_scale_head, s.batch, s.head_kv), there);
      else
        store(w, base.at(quad * 4u), o, h, quad, inverse, there);
    }
  }
  void store_part(const TileCoordinate& at, const Val<u32>& row, const Val<pred>& there, const Val<u32>& quad,
                  const Val<u32>& col, int h, const Val<f32>& lse, const Val<f32>& inverse, const Out64& o) {
    const auto place = part_row(at, row);
    Out<f32>(p_.partial_lse).st_if(there & (col == 0u), place, lse);
    const auto to_row = Out<f32>(p_.partial_o).at(place * to<u64>(p_.d_v)).at(quad * 2u);
    for (int j = 0; j < DV / 8; ++j)
      to_row.template st_if<2>(there & (p_.d_v > std::uint32_t(8 * j)), 4 * j,
                               RegGroup<f32, 2>(o[4 * j + 2 * h] * inverse, o[4 * j + 2 * h + 1] * inverse));
  }
  template <class Base>
  void store(Warp& w, const Base& base, const Out64& o, int h, const Val<u32>& quad, const Val<f32>& inverse,
             const Val<pred>& there) {
    for (int j = 0; j < DV / 8; j += 4) {
      const auto word = [&](int b) {
        const int i = (j + b) * 4 + 2 * h;
        return packed(o[i] * inverse, o[i + 1] * inverse);
      };
      const auto words = exchange_in_quad(w, {word(0), word(1), word(2), word(3)});
      base.template st_if<4>(there & (quad * 8u + std::uint32_t(8 * j) < p_.d_v), j, words);
    }
  }
  // Columns are in the order of TransposedValues: of 16, a thread has four neighbours.
  template <class Base>
  void store_transposed(const Base& base, const Out64& o, int h, const Val<u32>& quad, const Val<f32>& scale,
                        const Val<pred>& there) {
    const auto own = base.at(quad * 2u);
    for (int j = 0; j < DV / 16; ++j) {
      const auto word = [&](int e) {
        const int i = 8 * j + 2 * h + e;
        return packed(o[i] * scale, o[i + 4] * scale);
      };
      own.template st_if<2>(there & (p_.d_v > std::uint32_t(16 * j)), 4 * j,
                            RegGroup<b32, 2>(word(0), word(1)));
    }
  }

  Kernel& k_;
  AttentionFeatures f_;
  AttentionSm90Tuning t_;
  DType out_;
  QMap q_;
  KMap keys_;
  VMap values_;
  const AttentionParams& p_;
  Role<Warpgroup> math_, load_;
  Ring<ByTurns, QTile> q_ring_;
  Ring<ByThreads, KTile> k_ring_;
  Values v_;
  std::optional<Turns<Warpgroup>> pingpong_;
};

template <class T, int DQK, int DV, int BN>
void attention_sm90_kernel(Kernel& k, AttentionConfig c, typename ForwardSm90<T, DQK, DV, BN>::QMap q,
                           typename ForwardSm90<T, DQK, DV, BN>::KMap keys,
                           typename ForwardSm90<T, DQK, DV, BN>::VMap values, AttentionParams p) {
  ForwardSm90<T, DQK, DV, BN>(k, c, q, keys, values, p).run();
}

/// f16 or bf16.
template <int DQK, int DV, int BN>
Variant sm90_variant(const AttentionConfig& c) {
  return c.type == DType::f16 ? variant(c.name(), 90, attention_sm90_kernel<f16, DQK, DV, BN>, c)
                              : variant(c.name(), 90, attention_sm90_kernel<bf16, DQK, DV, BN>, c);
}
/// Head dimensions above 128; no variant where there is no such tile.
Variant sm90_wide(const AttentionConfig& c);
/// e4m3 operands; no variant where there is no such tile.
Variant sm90_fp8(const AttentionConfig& c);

}  // namespace cgp::kernels::attention_impl
