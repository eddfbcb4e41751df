// SPDX-License-Identifier: Apache-2.0
#pragma once
// attention backward sm90 for heads above 128 columns: a kernel for each of d_k, d_v and d_q, so that 128 rows of
// sums fit into registers and every sum belongs to one thread: nothing is added in memory.
//   who      a block owns 128 rows of one head, keys or queries, and walks over tiles of 64 rows of the other
//            side; a producer thread loads them by TMA; two warpgroups own 64 rows each and never meet
//   d_k, d_q s = (k, q) (q, k)', dp = (v, d_o) (d_o, v)'; ds, packed, is operand A of the sum of ds (q, k)
//   d_v      s' = k q'; p', packed, is operand A of the sum of p' d_o
//   order    the next scores are issued behind a sum and run with it; dp runs under the exponentials; one
//            warpgroup's arithmetic lies under the other's products
//   memory   own rows are loaded once; what both products read has two stages (d_v: three), the other operand
//            one (d_v: two); own rows are freed at the last product that reads them
//   split    several blocks share the query heads of a tile of keys: what each has goes to memory, and d_kv sums it
//   scores   a kernel needs one number of a score, the probability or its product with a modification's slope,
//            so all modifications of scores fit into registers
//   needs    sm_90a; f16 or bf16; rows at multiples of 16 bytes
#include <optional>

#include "cgp/dsl/pipeline/tile_slots.h"
#include "cgp/kernels/attention/attention_backward_sm90.h"

namespace cgp::kernels::attention_impl {

inline constexpr int kWideOwn = 128, kWideOther = 64;  ///< rows of a tile
static_assert(backward_queries(256) == kWideOther);

/// Rows of [batch, head, row, d] by tiles.
template <class TileT>
using RowMap = TmaIn<TileT, 1, 1, TileT::rows, TileT::cols>;

// With Values the sum is d_v, else d_k or d_q.
template <class T, int DQK, int DV, bool Values>
class WideSm90 {
 public:
  static constexpr int M = kWideOther;
  using OwnScores = dsl::Tile<T, kWideOwn, DQK>;  ///< k or q
  using OwnUp = dsl::Tile<T, kWideOwn, DV>;       ///< v or d_o
  using ForScores = dsl::Tile<T, M, DQK>;         ///< q or k
  using ForUp = dsl::Tile<T, M, DV>;              ///< d_o or v
  using STile = dsl::Tile<f32, 2, M, Swizzle::none>;
  using SMap = TmaIn<STile>;
  using Scores = Acc<f32, 64, M>;
  static constexpr int kColumns = Values ? DV : DQK;
  using Accumulators = Acc<f32, 64, kColumns>;
  struct Maps {
    const RowMap<OwnScores>& own_scores;
    const RowMap<OwnUp>& own_up;
    const RowMap<ForScores>& scores;
    const RowMap<ForUp>& up;
    const SMap& stats;
  };

  WideSm90(Kernel& k, const AttentionBackwardConfig& c, const Maps& maps, const AttentionParams& p,
           const BackwardSm90Params& g)
      : k_(k),
        f_(c.features),
        t_(c.tune),
        queries_(c.step == BackwardStep::d_q),
        maps_(maps),
        p_(p),
        g_(g),
        math_(k.role<Warpgroup>(2, 232)),
        load_(k.role<Warpgroup>(1, 40)),
        own_(k),
        scores_(k, Values ? 3 : 2, load_, math_),
        up_(k, Values ? 2 : 1, load_, math_) {
    if (!queries_) stats_.emplace(k, Values ? 3 : 2, load_, math_);
    own_.start(math_);
  }

  void run() {
    const auto rounds = t_.persistent ? rounds_of_block(k_, p_.tiles) : Val<u32>(1);
    load_.run([&](Warpgroup& wg) {
      wg.one_thread([&](Thread& t) {
        walk(rounds, Uniform::thread, [&](const TileCoordinate& at) { produce(t, at); });
      });
    });
    math_.run([&](Warpgroup& wg) {
      walk(rounds, Uniform::warpgroup, [&](const TileCoordinate& at) { consume(wg, at); });
    });
  }

 private:
  using Floats = std::vector<Val<f32>>;
  using Words = std::vector<Val<b32>>;
  using Stage = HeldStage<ForScores>;
  /// From iteration to iteration: scores, where the other side's rows lie, sums, tile and head in the group.
  using Carried = std::tuple<InFlight<Scores, 0>, Stage, Accumulators, Val<u32>, Val<u32>>;
  struct TileCoordinate {
    Sequence s;  ///< of keys: of the group's first head
    Val<u32> own0;
    Val<u32> begin, stop;  ///< tiles of the other side that see some own row; at least one
    Val<u32> part;         ///< of the blocks that share the query heads of these keys
  };
  struct Own {  ///< what a warpgroup knows
    const TileCoordinate& at;
    SmemTile<OwnScores> scores;
    std::optional<SmemTile<OwnUp>> up;
    AccOrigin origin;
    Val<u32> row;                     ///< this thread's first
    std::array<Val<f32>, 4> queries;  ///< where rows are queries: -lse of both, delta of both
  };

  // ------------------------------------------------------------ which rows
  /// A row sees those of the other side from row + shift - low to row + shift + high.
  Val<s32> shift(const Sequence& s) const { return bits<s32>(queries_ ? s.n_kv - s.n_q : s.n_q - s.n_kv); }
  Val<s32> low() const { return queries_ ? p_.window_left : p_.window_right; }
  Val<s32> high() const { return queries_ ? p_.window_right : p_.window_left; }
  bool is_low() const { return queries_ ? f_.window_left : f_.window_right; }
  bool is_high() const { return queries_ ? f_.window_right : f_.window_left; }
  Val<u32> others(const Sequence& s) const { return queries_ ? s.n_kv : s.n_q; }

  template <class Body>
  void walk(const Val<u32>& rounds, Uniform over, Body&& body) {
    k_.loop(rounds, [&](Val<u32> r) {
      const TileCoordinate at = coordinate(r, over);
      if (f_.packed)  // a tile without rows has nothing to do
        k_.if_(at.own0 < (queries_ ? at.s.n_q : at.s.n_kv), [&] { body(at); });
      else
        body(at);
    });
  }
  TileCoordinate coordinate(const Val<u32>& r, Uniform over) {
    const auto [bh, of_head] = tile_of_head(p_, t_.persistent ? tile_of_round(k_, r) : k_.ctaid_x(),
                                            t_.split ? p_.tiles_m * g_.splits : p_.tiles_m);
    const auto tile = t_.split ? of_head / g_.splits : of_head,
               part = t_.split ? of_head % g_.splits : Val<u32>(0);
    // Under a causal bound the longest come first: first keys, last queries.
    if (f_.packed) {
      const auto of = tile_of_sequence(k_, p_, queries_ ? p_.cu_seqlens_q : p_.cu_seqlens_kv, kWideOwn,
                                       queries_ ? p_.tiles_m - 1 - tile : tile);
      const Sequence s = sequence_of(f_, p_, of.batch, queries_ ? bh : bh * p_.group, over);
      return visits(s, assume_uniform(of.tile * std::uint32_t(kWideOwn), over), part);
    }
    const auto heads = queries_ ? p_.heads_q : p_.heads_q / p_.group;
    const auto head = bh % heads;
    const Sequence s = sequence_of(f_, p_, bh / heads, queries_ ? head : head * p_.group, over);
    return visits(s, (queries_ ? p_.tiles_m - 1 - tile : tile) * std::uint32_t(kWideOwn), part);
  }
  TileCoordinate visits(const Sequence& s, const Val<u32>& own0, const Val<u32>& part) {
    const auto first = bits<s32>(own0) + shift(s);
    const auto tiles_in = [](const Val<s32>& rows) {
      return bits<u32>(dsl::max(rows, Val<s32>(0))) / std::uint32_t(M);
    };
    const auto all = dsl::max((others(s) + (M - 1)) / std::uint32_t(M), Val<u32>(1));
    const auto begin = is_low() ? dsl::min(tiles_in(first - low()), all - 1) : Val<u32>(0);
    const auto stop =
        is_high() ? dsl::max(dsl::min(tiles_in(first + high() + (kWideOwn + M - 1)), all), begin + 1) : all;
    // Keys behind the length only owe zeros.
    if (f_.key_lengths && !queries_) return {s, own0, begin, select(own0 < s.n_kv, stop, begin + 1), part};
    return {s, own0, begin, stop, part};
  }
  Val<u32> iterations_of(const TileCoordinate& at) {
    const auto tiles = at.stop - at.begin;
    if (queries_) return tiles;
    return tiles * (t_.split ? member_of(at.part + 1u) - member_of(at.part) : p_.group);
  }
  /// First query head of the group that a part has.
  Val<u32> member_of(const Val<u32>& part) { return t_.split ? part * p_.group / g_.splits : Val<u32>(0); }
  // Blocks of a head that run together read the same tiles: queries from the last down, keys from the first
  // up.
  Val<u32> first_tile(const TileCoordinate& at) { return queries_ ? at.begin : at.stop - 1u; }
  std::tuple<Val<u32>, Val<u32>> next_tile(const TileCoordinate& at, const Val<u32>& tile,
                                           const Val<u32>& member) {
    if (queries_) return {tile + 1, member};
    const auto next = select(tile == at.begin, at.stop, tile) - 1u;
    return {next, select(tile == at.begin, member + 1u, member)};
  }

  // ------------------------------------------------------------ the producer
  void produce(Thread& t, const TileCoordinate& at) {
    const auto own = [&](const auto& map, MapOf which) {
      return row_of(map, rows_of_map(f_, p_, at.s, which, queries_ ? at.s.head : at.s.head_kv), at.own0);
    };
    const auto other = [&](auto& ring, const auto& map, MapOf which, const Val<u32>& tile,
                           const Val<u32>& member) {
      const auto row = tile * std::uint32_t(M);
      const auto rows = rows_of_map(f_, p_, at.s, which, queries_ ? at.s.head_kv : at.s.head + member);
      ring.fill(t, row_of(map, rows, row));
    };
    const auto for_scores = queries_ ? MapOf::k : MapOf::q, for_up = queries_ ? MapOf::v : MapOf::o;
    const auto scores = [&](const Val<u32>& tile, const Val<u32>& member) {
      other(scores_, maps_.scores, for_scores, tile, member);
      if (stats_) stats_->fill(t, dsl::at(maps_.stats, 0, stats_row(at, member, tile * std::uint32_t(M))));
    };
    const auto first = first_tile(at);
    const auto member0 = member_of(at.part);
    scores(first, member0);  // in the order in which room comes free
    own_.template fill<0>(t, own(maps_.own_scores, queries_ ? MapOf::q : MapOf::k));
    if constexpr (!Values) own_.template fill<1>(t, own(maps_.own_up, queries_ ? MapOf::o : MapOf::v));
    other(up_, maps_.up, for_up, first, member0);
    k_.loop(iterations_of(at) - 1u, std::tuple(first, member0), [&](Val<u32>, auto before) {
      const auto [tile, member] = next_tile(at, std::get<0>(before), std::get<1>(before));
      scores(tile, member);
      other(up_, maps_.up, for_up, tile, member);
      return std::tuple(tile, member);
    });
  }
  Val<u32> stats_row(const TileCoordinate& at, const Val<u32>& member, const Val<u32>& row) {
    if (f_.packed) {
      const auto first = at.s.first_q / std::uint32_t(M) + at.s.batch;
      return ((at.s.head + member) * g_.tiles_q + first) * std::uint32_t(M) + row;
    }
    return (at.s.batch * p_.heads_q + at.s.head + member) * g_.tiles_q * std::uint32_t(M) + row;
  }

  // ------------------------------------------------------------ a warpgroup
  void consume(Warpgroup& wg, const TileCoordinate& at) {
    Stage stage(scores_.take(wg));
    const auto own_scores = own_.template take<0>(wg);
    auto scores = wgmma(wg, fresh<f32, 64, M>(wg), own_scores, stage.template get<0>(), deep(t_.used_d_qk));
    std::optional<SmemTile<OwnUp>> up;
    if constexpr (!Values) up.emplace(own_.template take<1>(wg));
    const auto origin = accumulator_origin(wg);
    const auto row = at.own0 + wg.index * 64u + origin.row;
    const Own own{at, own_scores, up, origin, row, statistics_of_rows(at, row)};
    const auto iterations = iterations_of(at);
    Carried last = k_.loop(iterations - 1u,
                           Carried{std::move(scores), std::move(stage), zeros<f32, 64, kColumns>(wg),
                                   first_tile(at), member_of(at.part)},
                           [&](Val<u32>, Carried now) { return step<true>(wg, own, std::move(now)); });
    const auto sum = step<false>(wg, own, std::move(last));
    if (t_.split) {
      const auto pair = at.s.batch * (p_.heads_q / p_.group) + at.s.head_kv + p_.pairs * (Values ? 1u : 0u);
      store_partial_sums<kColumns>(k_, wg, g_, pair * p_.tiles_m + at.own0 / std::uint32_t(kWideOwn), at.part,
                                   sum);
      return;
    }
    const auto store = [&](const Val<u64>& address, const Val<u32>& head, const Val<u64>& batch,
                           const Val<u64>& heads, const Val<u64>& pitch, const Val<u32>& rows) {
      const auto& before = queries_ ? at.s.first_q : at.s.first_kv;
      store_accumulator(wg, Out<T>(address).at(rows_of(at.s, head, before, batch, heads, pitch)), row, rows,
                        pitch, Values ? p_.d_v : p_.d_qk, Values ? Val<f32>(1.0f) : p_.scale, sum);
    };
    const auto& keys = f_.key_lengths ? p_.n_kv : at.s.n_kv;
    if (queries_)
      store(g_.d_q, at.s.head, p_.q_batch, p_.q_head, p_.q_row, at.s.n_q);
    else if (Values)
      store(g_.d_v, at.s.head_kv, p_.v_batch, p_.v_head, p_.v_row, keys);
    else
      store(g_.d_k, at.s.head_kv, p_.k_batch, p_.k_head, p_.k_row, keys);
  }

  /// One tile of the other side. With More, the scores of the next are under way at the end.
  template <bool More>
  auto step(Warpgroup& wg, const Own& own, Carried now) {
    auto stage = std::move(std::get<1>(now));
    const auto tile = std::get<3>(now), member = std::get<4>(now);
    std::optional<Filled<ByThreads, STile>> stats;
    if (stats_) stats.emplace(stats_->take(wg));
    const auto statistics = statistics_of(own, stats);
    const Sequence one = of_head(own.at.s, member);
    std::optional<Shape> shape;
    if (shapes(f_)) shape.emplace(f_, p_, one, std::is_same_v<T, bf16> ? DType::bf16 : DType::f16);
    // Whole waits for what comes round the loop: the assembler counts groups only inside an iteration.
    auto s = std::move(std::get<0>(now)).wait(wg);
    if constexpr (!More) own_.template release<0>(wg);
    if constexpr (Values) {
      std::move(stage).free(wg);
      const auto p = packed(probabilities(own, s, statistics, tile, shape ? &*shape : nullptr));
      std::move(*stats).release(wg);
      auto busy = wgmma<Major::k, Major::mn>(wg, std::move(std::get<2>(now)), operand(p), up_.take(wg),
                                             wide(t_.used_d_v));
      return proceed<More>(wg, own, std::move(s), std::move(busy), tile, member, [] {});
    } else {
      auto dp_busy = wgmma(wg, fresh<f32, 64, M>(wg), *own.up, up_.take(wg), deep(t_.used_d_v));
      const auto p = probabilities(own, s, statistics, tile, shape ? &*shape : nullptr);
      auto dp = std::move(dp_busy).wait(wg);
      if constexpr (!More) own_.template release<1>(wg);
      const auto ds = packed(gradients(p, dp, statistics));
      if (stats) std::move(*stats).release(wg);
      auto busy = wgmma<Major::k, Major::mn>(wg, std::move(std::get<2>(now)), operand(ds),
                                             stage.template get<0>(), wide(t_.used_d_qk));
      return proceed<More>(wg, own, std::move(s), std::move(busy), tile, member,
                           [&] { std::move(stage).free(wg); });
    }
  }
  /// Issues the next scores, if any, then waits for this iteration's sums.
  template <bool More, class Busy, class Free>
  auto proceed(Warpgroup& wg, const Own& own, Scores s, Busy busy, const Val<u32>& tile,
               const Val<u32>& member, Free&& free) {
    if constexpr (More) {
      Stage next(scores_.take(wg));
      auto scores = wgmma(wg, FreshAcc<f32, 64, M>{s.owned().alias()}, own.scores, next.template get<0>(),
                          deep(t_.used_d_qk));
      auto sum = std::move(busy).wait(wg);
      free();
      const auto [next_at, next_member] = next_tile(own.at, tile, member);
      return Carried{std::move(scores), std::move(next), std::move(sum), next_at, next_member};
    } else {
      auto sum = std::move(busy).wait(wg);
      free();
      return sum;
    }
  }

  static WgmmaPart deep(int used) { return {.depth = used, .columns = 0}; }
  static WgmmaPart wide(int used) { return {.depth = 0, .columns = used}; }

  // ------------------------------------------------------------ scores
  Sequence of_head(const Sequence& s, const Val<u32>& member) const {
    return queries_ || !shapes(f_) ? s : of_member(s, member);
  }
  std::array<Val<f32>, 4> statistics_of_rows(const TileCoordinate& at, const Val<u32>& row) {
    const Val<f32> zero(0);
    if (!queries_) return {zero, zero, zero, zero};
    const auto lse = In<f32>(g_.stats, 0, true).at(stats_row(at, Val<u32>(0), row)),
               delta = lse.at(g_.stats_rows);
    if (f_.packed) {  // whole tiles have 64 rows, not these 128
      const auto one = [&](const In<f32>& of, int next) {
        return of.ld_if(row + std::uint32_t(next) < at.s.n_q, next, zero)[0];
      };
      return {one(lse, 0), one(lse, 8), one(delta, 0), one(delta, 8)};
    }
    return {lse.ld(0), lse.ld(8), delta.ld(0), delta.ld(8)};
  }
  /// (which, block of 8 columns): of the four elements of the block, -lse in units of log2 (0) or delta (1).
  auto statistics_of(const Own& own, const std::optional<Filled<ByThreads, STile>>& stats) {
    std::optional<Ptr<shared, f32>> columns;
    if (stats)
      columns.emplace(stats->template get<0>().base() + own.origin.col * 4u,
                      stats->template get<0>().offset());
    return [columns, rows = own.queries](int which, int block) -> std::array<Val<f32>, 4> {
      const auto w = std::size_t(2 * which);
      if (!columns) return {rows[w], rows[w], rows[w + 1], rows[w + 1]};
      const auto pair = columns->template ld<2>(which * M / 2 + 4 * block);
      return {pair[0], pair[1], pair[0], pair[1]};
    };
  }
  /// Of d_k and d_q: times the derivative of the shape.
  template <class Statistics>
  Floats probabilities(const Own& own, const Scores& s, const Statistics& statistics, const Val<u32>& tile,
                       const Shape* shape) {
    Floats p;
    for (int j = 0; j < M / 8; ++j) {
      const auto base = statistics(0, j);
      for (int e = 0; e < 4; ++e)
        p.push_back(weight(own, tile, shape, 4 * j + e, s[4 * j + e], base[std::size_t(e)]));
    }
    cut(own, tile, p);
    return p;
  }
  Val<f32> weight(const Own& own, const Val<u32>& tile, const Shape* shape, int element, const Val<f32>& raw,
                  const Val<f32>& base) {
    if (!shape) return ex2<approx, ftz>(fma(raw, p_.scale_log2, base));
    const auto row = own.row + std::uint32_t(8 * (element >> 1 & 1)),
               column = tile * std::uint32_t(M) + own.origin.col +
                        std::uint32_t(8 * (element >> 2) + (element & 1));
    const auto &query = queries_ ? row : column, &key = queries_ ? column : row;
    if (f_.modify.apply) {
      const auto both =
          shape->weight(raw, query, key, [&](const Val<f32>& kept) { return ex2<approx, ftz>(kept + base); });
      return Values ? both.first : both.second;
    }
    const Val<f32> p = ex2<approx, ftz>(fma((*shape)(raw, query, key), exponent_scale(f_, p_), base));
    return Values ? p : shape->gradient(raw, query, key, p);
  }
  // 0 outside the bounds; most tiles lie inside them, and are only asked once. Queries behind the last have
  // no probabilities; keys behind the last as rows are not stored, unless there are lengths: then as zeros.
  void cut(const Own& own, const Val<u32>& tile, const Floats& p) {
    const Sequence& s = own.at.s;
    const auto column = bits<s32>(tile * std::uint32_t(M)),
               first = bits<s32>(own.row - own.origin.row) + shift(s);
    std::vector<Val<pred>> need;
    const auto ask = [&](const Val<pred>& p) { need.push_back(need.empty() ? p : need.back() | p); };
    if (queries_) ask(column + M > bits<s32>(s.n_kv));
    if (is_low()) ask(column < first + 63 - low());
    if (is_high()) ask(column + (M - 1) > first + high());
    const bool zeros = f_.key_lengths && !queries_;
    if (zeros) ask(own.row - own.origin.row + 64u > s.n_kv);
    if (need.empty()) return;
    k_.if_(need.back(), [&] {
      const auto first_column = column + bits<s32>(own.origin.col),
                 behind = bits<s32>(s.n_kv) - 1 - first_column;
      for (int h = 0; h < 2; ++h) {
        const auto apart = bits<s32>(own.row) + shift(s) + 8 * h - first_column;
        const auto low_end = apart - low(),
                   from = zeros ? select(own.row + std::uint32_t(8 * h) < s.n_kv,
                                         is_low() ? low_end : Val<s32>(0), Val<s32>(1 << 29))
                                : low_end;
        const auto high_end = apart + high(), to = !queries_   ? high_end
                                                   : is_high() ? dsl::min(high_end, behind)
                                                               : behind;
        keep_columns(k_, p, h, is_low() || zeros ? &from : nullptr, queries_ || is_high() ? &to : nullptr);
      }
    });
  }
  /// Of q . k, without the scale, which is applied to the sums.
  template <class Statistics>
  Floats gradients(const Floats& p, const Scores& dp, const Statistics& statistics) {
    Floats ds;
    for (int j = 0; j < M / 8; ++j) {
      const auto delta = statistics(1, j);
      for (int e = 0; e < 4; ++e)
        ds.push_back(p[std::size_t(4 * j + e)] * (dp[4 * j + e] - delta[std::size_t(e)]));
    }
    return ds;
  }
  static Words packed(const Floats& x) {
    Words out;
    for (std::size_t i = 0; i < x.size(); i += 2) out.push_back(pack<T>(x[i], x[i + 1]));
    return out;
  }
  static RegOperand<T, 64, M> operand(const Words& x) {
    return RegOperand<T, 64, M>(std::vector<Value>(x.begin(), x.end()));
  }

  Kernel& k_;
  AttentionFeatures f_;
  AttentionBackwardSm90Tuning t_;
  bool queries_;
  Maps maps_;
  const AttentionParams& p_;
  const BackwardSm90Params& g_;
  Role<Warpgroup> math_, load_;
  std::conditional_t<Values, TileSlots<OwnScores>, TileSlots<OwnScores, OwnUp>> own_;
  Ring<ByThreads, ForScores> scores_;
  Ring<ByThreads, ForUp> up_;
  std::optional<Ring<ByThreads, STile>> stats_;
};

template <class T, int DQK, int DV, bool Values>
void wide_kernel(Kernel& k, AttentionBackwardConfig c,
                 RowMap<typename WideSm90<T, DQK, DV, Values>::OwnScores> own_scores,
                 RowMap<typename WideSm90<T, DQK, DV, Values>::OwnUp> own_up,
                 RowMap<typename WideSm90<T, DQK, DV, Values>::ForScores> scores,
                 RowMap<typename WideSm90<T, DQK, DV, Values>::ForUp> up,
                 typename WideSm90<T, DQK, DV, Values>::SMap stats, AttentionParams p, BackwardSm90Params g) {
  WideSm90<T, DQK, DV, Values>(k, c, {own_scores, own_up, scores, up, stats}, p, g).run();
}

}  // namespace cgp::kernels::attention_impl
