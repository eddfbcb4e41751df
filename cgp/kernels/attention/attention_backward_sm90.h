// SPDX-License-Identifier: Apache-2.0
#pragma once
// attention backward sm90: the five products of the gradients in one kernel.
//   who      a block owns 128 keys of one head of keys and walks over the queries of its heads, from the last
//            to the first; a producer thread feeds q, d_o and both statistics by TMA; two warpgroups own 64
//            keys each
//   turned   s' = k q', dp' = v d_o': an accumulator, packed, is operand A of d_v += p' d_o, d_k += ds' q
//   d_q      ds' goes through shared memory, since each row of d_q sums over the keys of both warpgroups;
//            each then adds half of the tile to fp32 sums in global memory (`turns`: blocks in order of keys)
//   order    s' of the next queries is issued before this turn's sums are waited for; dp' runs under the
//            exponentials, d_v under the arithmetic on dp', d_k under the barrier
//   needs    sm_90a; f16 or bf16; rows at multiples of 16 bytes; no more than bounds on the scores
// The sums lie as registers do: [head][tile of queries][warpgroup][8][thread][4].
#include "cgp/dsl/atomic.h"
#include "cgp/dsl/epilogue.h"
#include "cgp/dsl/mailbox.h"
#include "cgp/dsl/sync.h"
#include "cgp/dsl/wgmma.h"
#include "cgp/kernels/attention/attention_backward.h"
#include "cgp/kernels/attention/attention_quad.h"
#include "cgp/kernels/attention/attention_score.h"

namespace cgp::kernels::attention_parts {

/// A stage of queries that the next turn still reads.
struct QueryStage {
  Val<u32> base;
  dsl::record::StageToken token;
};

}  // namespace cgp::kernels::attention_parts

namespace cgp::dsl {
template <>
struct Carry<kernels::attention_parts::QueryStage> {
  using S = kernels::attention_parts::QueryStage;
  static S home(Kernel& k, S s) {
    auto base = Carry<Val<u32>>::home(k, s.base);
    return {base, std::move(s.token).home(k)};
  }
  static S settle(Kernel& k, S& home, S next) {
    auto base = Carry<Val<u32>>::settle(k, home.base, next.base);
    return {base, home.token.settle(k, next.token)};
  }
  static S view(S& home) { return {home.base, home.token.view()}; }
};
}  // namespace cgp::dsl

namespace cgp::kernels::attention_parts {

inline constexpr int kBackwardKeys = 128;    ///< of a block
inline constexpr int kPartOfTile = 64 * 64;  ///< sums of d_q that a warpgroup owns
inline constexpr int backward_queries(int d) { return d == 64 ? 128 : 64; }  ///< of a tile

struct BackwardSm90Tune {
  AttentionFeatures f;
  AttentionBackwardSm90Tuning tune;
};
struct BackwardSm90Params {
  Val<u64> d_o, d_q, d_k, d_v;
  Val<u64> sums;   ///< f32, of d_q; zeros unless blocks take turns
  Val<u64> stats;  ///< f32 [2][stats_rows]: -lse in units of log2, delta; rows of a tile all exist
  Val<u64>
      turns;  ///< u32 [head][tile][warpgroup]: blocks of keys that have added; then the next tile of keys
  Val<u64> stats_rows;
  Val<u32> tiles_q;
  static auto carried() {
    using B = BackwardSm90Params;
    return std::tuple(&B::d_o, &B::d_q, &B::d_k, &B::d_v, &B::sums, &B::stats, &B::turns, &B::stats_rows,
                      &B::tiles_q);
  }
};

/// Writes one warpgroup's 64 x 64 of a tile of d_q: 64 of 128 rows, or of 128 columns where tiles have 64
/// rows. value(e) is this thread's element e of the accumulator, without the scale.
template <class T, class F>
void store_part(Warp& w, const AttentionParams& p, const Val<u64>& d_q, const Sequence& s,
                const Val<u32>& head, const Val<u32>& tile, int rows, const Val<u32>& part,
                const dsl::record::AccOrigin& origin, F&& value) {
  const bool by_rows = rows == 128;
  const auto column0 = by_rows ? Val<u32>(0) : part * 64u;
  const auto row0 = tile * std::uint32_t(rows) + origin.row, first = by_rows ? row0 + part * 64u : row0;
  for (int h = 0; h < 2; ++h) {
    const auto row = first + std::uint32_t(8 * h);
    const auto start = rows_of(s, head, s.first_q, p.q_batch, p.q_head, p.q_row) + to<u64>(row) * p.q_row +
                       wide_index(column0);
    store_row(w, Out<T>(d_q).at(start).template as<b32>(), row < s.n_q,
              select(p.d_qk > column0, p.d_qk - column0, Val<u32>(0)), 8, [&](int b) {
                return pack<T>(value(4 * b + 2 * h) * p.scale, value(4 * b + 2 * h + 1) * p.scale);
              });
  }
}

template <class T, int D, int M>
class BackwardSm90 {
 public:
  static constexpr int kKeys = kBackwardKeys;
  using KTile = dsl::Tile<T, kKeys, D>;  // also V
  using QTile = dsl::Tile<T, M, D>;      // also d_o
  using STile = dsl::Tile<f32, 2, M, Swizzle::none>;
  using DsTile = dsl::Tile<T, kKeys, M>;
  using KMap = TmaIn<KTile, 1, 1, kKeys, D>;
  using QMap = TmaIn<QTile, 1, 1, M, D>;
  using SMap = TmaIn<STile>;
  using Scores = Acc<f32, 64, M>;
  using Sums = Acc<f32, 64, D>;
  using Part = Acc<f32, 64, 64>;
  static_assert(M * D == 2 * kPartOfTile, "a warpgroup owns 64 x 64 sums of d_q");

  BackwardSm90(Kernel& k, const BackwardSm90Tune& t, const QMap& q, const QMap& d_o, const KMap& keys,
               const KMap& values, const SMap& stats, const AttentionParams& p, const BackwardSm90Params& g)
      : k_(k),
        f_(t.f),
        t_(t.tune),
        q_(q),
        d_o_(d_o),
        keys_(keys),
        values_(values),
        stats_(stats),
        p_(p),
        g_(g),
        math_(k.role<Warpgroup>(2, 240)),
        load_(k.role<Warpgroup>(1, 24)),
        k_ring_(k, 1, load_, math_),
        v_ring_(k, 1, load_, math_),
        q_ring_(k, t_.stages, load_, math_),
        o_ring_(k, t_.stages, load_, math_),
        ds_(k.smem(2 * DsTile::bytes, DsTile::align)),
        staging_(t_.bulk ? k.smem(2 * 4 * kPartOfTile, 128) : 0),
        both_(k.named_barrier(256)),
        own_barrier_(k.named_barrier(128).id()) {
    (void)k.named_barrier(128);  // of the other warpgroup
    k.require(t_.stages > 1, "the next queries arrive while these are still needed");
    k.require(!t_.turns || (!t_.bulk && !t_.spread), "who adds in turn adds by threads, in one order");
  }

  void run() {
    if (t_.persistent) return walk();
    const auto at = place(t_.turns ? ticket() : k_.ctaid_x());
    load_.one_thread([&](Thread& t) { produce(t, at); });
    math_.run([&](Warpgroup& wg) { consume(wg, at); });
  }

 private:
  struct Place {
    Sequence s;  ///< of the group's first head
    Val<u32> tile, key0;
    Val<u32> begin, stop;  ///< tiles of queries that see some key; at least one
  };
  /// From turn to turn: scores of these queries, where they lie, both sums, their tile and head in the group.
  using Carried = std::tuple<InFlight<Scores, 0>, QueryStage, Sums, Sums, Val<u32>, Val<u32>>;
  struct Own {  ///< what a warpgroup knows
    const Place& at;
    SmemTile<KTile> keys, values;
    dsl::record::AccOrigin origin;
    Val<u32> key;  ///< this thread's first
  };

  // ------------------------------------------------------------ which keys
  // Blocks that stay: the producer takes the next tile of keys and says which; it loads while the warpgroups
  // still store.
  void walk() {
    Mailbox mail(k_, 1, 2, math_);
    const auto go_on = [&](const Val<u32>& index, Uniform u) { return assume_uniform(index < p_.tiles, u); };
    load_.run([&](Warpgroup& wg) {
      wg.one_warp([&](Warp& w) {
        const auto take = [&] {
          const auto mine = k_.if_(
              w.lane() == 0u, [&] { return take_ticket(); }, [] { return Val<u32>(0); });
          return shfl<idx>(w, mine, 0);
        };
        const auto end = k_.while_(
            take(), [&](const Val<u32>& index) { return go_on(index, Uniform::warp); },
            [&](const Val<u32>& index) {
              mail.send(w, {index});
              w.one_thread([&](Thread& t) { produce(t, place(index)); });
              return take();
            });
        mail.send(w, {end});
      });
    });
    math_.run([&](Warpgroup& wg) {
      (void)k_.while_(
          mail.receive(wg)[0], [&](const Val<u32>& index) { return go_on(index, Uniform::warpgroup); },
          [&](const Val<u32>& index) {
            consume(wg, place(assume_uniform(index, Uniform::warpgroup)));
            return mail.receive(wg)[0];
          });
    });
  }
  // Tiles of keys are taken in the order in which they add: who waits never waits for one that nobody has.
  Val<u32> take_ticket() {
    const auto tiles = to<u64>(p_.batch) * to<u64>(p_.heads_q) * to<u64>(g_.tiles_q);
    return atom<relaxed, gpu, op::add>(Out<u32>(g_.turns).at(tiles * 2u), 0, 1u);
  }
  Val<u32> ticket() {
    const auto seen = k_.shared<u32>(1);
    Cta cta = k_.cta();
    cta.one_thread([&](Thread&) { seen.st(0, take_ticket()); });
    cta.sync();
    return assume_uniform(seen.ld(0), Uniform::cta);
  }
  Place place(const Val<u32>& index) {
    const auto per_section = p_.section * p_.tiles_m, inside = index % per_section,
               first = index / per_section * p_.section, width = dsl::min(p_.pairs - first, p_.section);
    const auto bh = first + inside % width, tile = inside / width, heads_kv = p_.heads_q / p_.group;
    const Sequence s = sequence(f_, p_, bh / heads_kv, bh % heads_kv * p_.group);
    const auto key0 = tile * std::uint32_t(kKeys);
    const auto key = bits<s32>(key0) - bits<s32>(s.n_kv - s.n_q);  // in terms of queries
    const Val<s32> zero(0);
    // Some block visits every tile of queries, also those that see no key: it owes them zeros.
    const auto begin =
        f_.right ? select(tile == 0u, Val<u32>(0), dsl::min(tiles_up_to(key - p_.right), g_.tiles_q - 1u))
                 : Val<u32>(0);
    if (!f_.left) return {s, tile, key0, begin, g_.tiles_q};
    const auto end = tiles_up_to(dsl::min(bits<s32>(s.n_q), key + kKeys + p_.left) + (M - 1));
    return {s, tile, key0, begin, select(tile + 1u == p_.tiles_m, g_.tiles_q, dsl::max(end, begin + 1u))};
  }
  /// Whole tiles of queries in `rows`, which may be negative.
  static Val<u32> tiles_up_to(const Val<s32>& rows) {
    return bits<u32>(dsl::max(rows, Val<s32>(0))) / std::uint32_t(M);
  }
  /// Tiles of keys that visit a tile of queries.
  struct Visitors {
    Val<u32> first, last;
  };
  Visitors visitors(const Place& at, const Val<u32>& tile) {
    const auto off = bits<s32>(at.s.n_kv - at.s.n_q), query = bits<s32>(tile * std::uint32_t(M)) + off;
    const auto end = p_.tiles_m - 1u;
    const auto key_tile = [&](const Val<s32>& key) {
      return dsl::min(bits<u32>(dsl::max(key, Val<s32>(0))) / std::uint32_t(kKeys), end);
    };
    return {f_.left ? select(tile == 0u, Val<u32>(0), key_tile(query - p_.left)) : Val<u32>(0),
            f_.right ? select(tile + 1u == g_.tiles_q, end, key_tile(query + (M - 1) + p_.right)) : end};
  }
  Val<u32> turns_of(const Place& at) { return (at.stop - at.begin) * p_.group; }
  // Blocks of a head begin at different tiles, or all would add to one place. In turns they cannot.
  Val<u32> first_tile(const Place& at) {
    return t_.spread ? at.stop - 1u - at.tile % (at.stop - at.begin) : at.stop - 1u;
  }
  /// Downwards, then from the end; the next head comes after all tiles of this one.
  std::tuple<Val<u32>, Val<u32>> next_tile(const Place& at, const Val<u32>& tile, const Val<u32>& member) {
    const auto next = select(tile == at.begin, at.stop, tile) - 1u;
    return {next, select(next == first_tile(at), member + 1u, member)};
  }
  /// Number of the tile of queries among those of all heads.
  Val<u32> query_tile(const Place& at, const Val<u32>& member, const Val<u32>& tile) {
    return (at.s.batch * p_.heads_q + at.s.head + member) * g_.tiles_q + tile;
  }

  // ------------------------------------------------------------ the producer
  void produce(Thread& t, const Place& at) {
    k_ring_.fill(t, dsl::at(keys_, at.s.batch, at.s.head_kv, at.key0, 0));
    v_ring_.fill(t, dsl::at(values_, at.s.batch, at.s.head_kv, at.key0, 0));
    k_.loop(turns_of(at), std::tuple(first_tile(at), Val<u32>(0)), [&](Val<u32>, auto now) {
      const auto [tile, member] = now;
      const auto head = at.s.head + member, row = tile * std::uint32_t(M);
      q_ring_.fill(t, dsl::at(q_, at.s.batch, head, row, 0),
                   dsl::at(stats_, 0, query_tile(at, member, tile) * std::uint32_t(M)));
      o_ring_.fill(t, dsl::at(d_o_, at.s.batch, head, row, 0));
      return next_tile(at, tile, member);
    });
  }

  // ------------------------------------------------------------ a warpgroup
  void consume(Warpgroup& wg, const Place& at) {
    auto keys = k_ring_.take(wg);
    auto query = take_query(wg);
    auto scores = wgmma(wg, fresh<f32, 64, M>(wg), keys.template get<0>(), SmemTile<QTile>(query.base));
    auto values = v_ring_.take(wg);
    const auto origin = dsl::record::warpgroup_origin(k_);
    const Own own{at, keys.template get<0>(), values.template get<0>(), origin,
                  at.key0 + wg.index * 64u + origin.row};
    const auto turns = turns_of(at);
    Carried last = k_.loop(turns - 1u,
                           Carried{std::move(scores), std::move(query), zeros<f32, 64, D>(wg),
                                   zeros<f32, 64, D>(wg), first_tile(at), Val<u32>(0)},
                           [&](Val<u32> i, Carried now) { return step<true>(wg, own, i, std::move(now)); });
    auto done = step<false>(wg, own, turns - 1u, std::move(last));
    std::move(keys).release(wg);
    std::move(values).release(wg);
    if (t_.persistent) both_.sync();  // nobody still reads the ds that the next tile overwrites
    end_adding(wg, std::get<2>(done));
    store(wg, g_.d_k, at, own.key, p_.k_batch, p_.k_head, p_.k_row, p_.d_qk, p_.scale, std::get<0>(done));
    store(wg, g_.d_v, at, own.key, p_.v_batch, p_.v_head, p_.v_row, p_.d_v, Val<f32>(1.0f),
          std::get<1>(done));
  }
  QueryStage take_query(Warpgroup& wg) {
    auto stage = q_ring_.take(wg);
    const auto base = stage.template get<0>().base();
    return {base, std::move(stage).token()};
  }

  /// One tile of queries. With More, the scores of the next are under way at the end.
  template <bool More>
  auto step(Warpgroup& wg, const Own& own, const Val<u32>& i, Carried now) {
    auto query = std::move(std::get<1>(now));
    const auto tile = std::get<4>(now), member = std::get<5>(now);
    const SmemTile<QTile> q(query.base);
    const Ptr<shared, f32> stats(query.base + own.origin.col * 4u, QTile::bytes);
    auto d_o = o_ring_.take(wg);
    // Whole waits for what comes round the loop: the assembler counts groups only inside a turn.
    auto s = std::move(std::get<0>(now)).wait(wg);
    auto dp_busy = wgmma(wg, fresh<f32, 64, M>(wg), own.values, d_o.template get<0>());
    const auto p = probabilities(own, s, stats, tile);
    const auto p_packed = packed(p);
    auto dv_busy = wgmma<Major::k, Major::mn>(wg, std::move(std::get<3>(now)), RegOperand<T, 64, M>(p_packed),
                                              std::move(d_o));
    auto dp = std::move(dp_busy).wait(wg);
    const auto ds = packed(gradients(p, p_packed, dp, stats));
    const SmemTile<DsTile> ds_tile(k_.smem_addr(ds_) + (i & 1u) * std::uint32_t(DsTile::bytes));
    const auto mine = ds_tile.template rows<64>(wg.index * 64u);
    dsl::record::store_accumulator(k_, {64, 64, M, 0, T::mod, ptx::Mod::b32}, ds, mine.layout, mine.base(),
                                   mine.offset(), Here::now());
    fence_async_shared(k_);
    auto dk_busy = wgmma<Major::k, Major::mn>(wg, std::move(std::get<2>(now)), RegOperand<T, 64, M>(ds), q);
    both_.sync();
    auto dv = std::move(dv_busy).wait(wg);
    auto dq_busy = wgmma<Major::mn, Major::mn>(wg, fresh<f32, 64, 64>(wg), ds_tile, own.keys);
    auto dk = std::move(dk_busy).wait(wg);
    std::move(query.token).release(Here::now());
    const auto finish = [&] {
      if (t_.turns) k_.if_(i > 0u, [&] { publish(wg, own, member, tile); });
      const auto dq = std::move(dq_busy).wait(wg);
      add(wg, own, member, tile, dq);
    };
    if constexpr (More) {
      auto next = take_query(wg);
      auto scores = wgmma(wg, FreshAcc<f32, 64, M>{s.owned().alias()}, own.keys, SmemTile<QTile>(next.base));
      finish();
      const auto [next_at, next_member] = next_tile(own.at, tile, member);
      return Carried{std::move(scores), std::move(next), std::move(dk), std::move(dv), next_at, next_member};
    } else {
      finish();
      return std::tuple(std::move(dk), std::move(dv), query_tile(own.at, member, tile));
    }
  }

  // ------------------------------------------------------------ scores
  using Registers = std::vector<Value>;
  Registers probabilities(const Own& own, const Scores& s, const Ptr<shared, f32>& stats,
                          const Val<u32>& tile) {
    Registers p;
    for (int j = 0; j < M / 8; ++j) {
      const auto base = stats.ld<2>(4 * j);
      for (int e = 4 * j; e < 4 * j + 4; ++e)
        p.push_back(Val<f32>(ex2<approx, ftz>(fma(s[e], p_.scale_log2, base[e & 1]))));
    }
    cut(own, tile, p);
    return p;
  }
  // 0 outside the bounds; most tiles lie inside them, and are only asked once.
  void cut(const Own& own, const Val<u32>& tile, const Registers& p) {
    const Sequence& s = own.at.s;
    const auto off = bits<s32>(s.n_kv - s.n_q), first = bits<s32>(own.key - own.origin.row) - off,
               query = bits<s32>(tile * std::uint32_t(M));
    const auto behind = [&](int h) { return own.key + std::uint32_t(8 * h) >= s.n_kv; };
    std::vector<Val<pred>> need{own.key - own.origin.row + 64u > s.n_kv};
    if (f_.right) need.push_back(need.back() | (first + 63 > query + p_.right));
    if (f_.left) need.push_back(need.back() | (first < query + (M - 1) - p_.left));
    k_.if_(need.back(), [&] {
      const auto apart = bits<s32>(own.key) - off - query - bits<s32>(own.origin.col);
      for (int h = 0; h < 2; ++h) {  // query - this thread's first lies in [from, to]
        const Val<s32> never(1 << 29);
        const auto from = select(behind(h), never, f_.right ? apart + 8 * h - p_.right : Val<s32>(0));
        const auto to = f_.left ? apart + 8 * h + p_.left : never;
        for (int e = 0; e < Scores::count; ++e) {
          if (((e >> 1) & 1) != h) continue;
          const int column = 8 * (e >> 2) + (e & 1);
          const auto after = from <= column;
          const auto inside = f_.left ? after & (to >= column) : after;
          const Value& x = p[std::size_t(e)];
          k_.mov_op(x, ptx::Op::selp, {ptx::Mod::f32}, {x, Val<f32>(0), inside});
        }
      }
    });
  }
  /// Of q . k, without the scale, which is applied to the sums.
  Registers gradients(const Registers& p, const Registers& p_packed, const Scores& dp,
                      const Ptr<shared, f32>& stats) {
    Registers ds;
    for (int j = 0; j < M / 8; ++j) {
      const auto delta = stats.ld<2>(M / 2 + 4 * j);
      for (int e = 4 * j; e < 4 * j + 4; ++e) {
        const auto weight = [&]() -> Val<f32> {
          if (!t_.rounded) return Val<f32>(p[std::size_t(e)]);
          const auto both = unpack<T>(Val<b32>(p_packed[std::size_t(e / 2)]));
          return to<f32>(both[e & 1]);
        }();
        ds.push_back(Val<f32>(weight * (dp[e] - delta[e & 1])));
      }
    }
    return ds;
  }
  Registers packed(const Registers& x) {
    Registers out;
    for (std::size_t i = 0; i < x.size(); i += 2) out.push_back(pack<T>(Val<f32>(x[i]), Val<f32>(x[i + 1])));
    return out;
  }

  // ------------------------------------------------------------ sums in global memory
  void own_barrier(Warpgroup& wg) {
    wg.converged("bar.sync of the warpgroup", Here::now());
    k_.inst(ptx::Op::bar_sync, {},
            {k_.in_register(wg.index + std::uint32_t(own_barrier_)), ptx::Operand::integer(128)});
  }
  static RegGroup<f32, 4> part(const Part& dq, int j) {
    return RegGroup<f32, 4>(dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
  }
  Val<u32> thread() { return k_.tid() & 127u; }
  void add(Warpgroup& wg, const Own& own, const Val<u32>& member, const Val<u32>& tile, const Part& dq) {
    const auto at = query_tile(own.at, member, tile) * 2u + wg.index;
    const auto to_sums = Out<f32>(g_.sums).at(to<u64>(at) * std::uint64_t(kPartOfTile));
    const auto mine = to_sums.at(to<u64>(thread()) * 4u);
    if (t_.turns) return add_in_turn(wg, own, member, tile, at, mine, dq);
    if (!t_.bulk) {
      for (int j = 0; j < 8; ++j) red<relaxed, gpu, op::add>(mine, 128 * j, part(dq, j));
      return;
    }
    const auto first = thread() == 0u;
    k_.guarded(first, [&] { dsl::record::bulk_wait(k_, 0, true, Here::now()); });
    own_barrier(wg);
    const auto from = k_.smem_addr(staging_) + wg.index * std::uint32_t(4 * kPartOfTile);
    const Ptr<shared, f32> base(from + thread() * 16u);
    for (int j = 0; j < 8; ++j) base.st<4>(128 * j, part(dq, j));
    fence_async_shared(k_);
    own_barrier(wg);
    k_.if_(first, [&] {
      dsl::record::bulk_store(k_, {to_sums.base(), to_sums.offset()}, {from, 0}, Val<u32>(4 * kPartOfTile),
                              StoreOp::add, ptx::Mod::f32, L2Hint::none, Here::now());
      dsl::record::bulk_commit(k_, Here::now());
    });
  }
  void end_adding(Warpgroup& wg, const Val<u32>& last_tile) {
    if (t_.bulk) k_.guarded(thread() == 0u, [&] { dsl::record::bulk_wait(k_, 0, false, Here::now()); });
    if (!t_.turns) return;
    own_barrier(wg);
    hand_on(last_tile * 2u + wg.index);
  }

  // ------------------------------------------------------------ turns
  Out<u32> turn(const Val<u32>& at) { return Out<u32>(g_.turns).at(at); }
  // Waits until all blocks of earlier keys have added. The first finds nothing to add to, and the last knows
  // the gradient: sums are neither zeroed before nor read after this kernel.
  void add_in_turn(Warpgroup& wg, const Own& own, const Val<u32>& member, const Val<u32>& tile,
                   const Val<u32>& at, const Out<f32>& sums, const Part& dq) {
    const auto who = visitors(own.at, tile);
    k_.if_(thread() == 0u, [&] {
      k_.while_(
          Val<u32>(0),
          [&](const Val<u32>&) { return turn(at).template ld<acquire, gpu>(0) != own.at.tile - who.first; },
          [](const Val<u32>& x) { return x; });
    });
    own_barrier(wg);
    const auto first = own.at.tile == who.first;
    k_.if_(
        assume_uniform(own.at.tile == who.last, Uniform::warpgroup),
        [&] {
          for (int j = 0; j < 8; ++j) {
            const auto before = sums.template ld_if<4>(!first, 128 * j, Val<f32>(0));
            for (int e = 0; e < 4; ++e) {
              const Value& x = dq.values()[std::size_t(4 * j + e)];
              k_.mov_op(x, ptx::Op::add, {ptx::Mod::f32}, {x, before[e]});
            }
          }
          Warp w = wg.warp();
          store_part<T>(w, p_, g_.d_q, own.at.s, own.at.s.head + member, tile, M, wg.index, own.origin,
                        [&](int e) { return dq[e]; });
        },
        [&] {
          k_.if_(
              first,
              [&] {
                for (int j = 0; j < 8; ++j) sums.template st<4>(128 * j, part(dq, j));
              },
              [&] {
                for (int j = 0; j < 8; ++j) red<relaxed, gpu, op::add>(sums, 128 * j, part(dq, j));
              });
        });
  }
  /// The tile before (of this head or the one before) has been added: the next block may.
  void publish(Warpgroup& wg, const Own& own, const Val<u32>& member, const Val<u32>& tile) {
    const auto wrapped = tile + 1u == own.at.stop;
    const auto before =
        query_tile(own.at, select(wrapped, member - 1u, member), select(wrapped, own.at.begin, tile + 1u));
    hand_on(before * 2u + wg.index);
  }
  void hand_on(const Val<u32>& at) {
    k_.if_(thread() == 0u, [&] {
      fence<acq_rel, gpu>(k_);
      red<relaxed, gpu, op::add>(turn(at), 0, 1u);
    });
  }

  // ------------------------------------------------------------ results
  void store(Warpgroup& wg, const Val<u64>& address, const Place& at, const Val<u32>& key,
             const Val<u64>& batch, const Val<u64>& head, const Val<u64>& pitch, const Val<u32>& cols,
             const Val<f32>& scale, const Sums& sum) {
    Warp w = wg.warp();
    for (int h = 0; h < 2; ++h) {
      const auto row = key + std::uint32_t(8 * h);
      store_row(w,
                Out<T>(address)
                    .at(rows_of(at.s, at.s.head_kv, at.s.first_kv, batch, head, pitch) + to<u64>(row) * pitch)
                    .template as<b32>(),
                row < at.s.n_kv, cols, D / 8,
                [&](int b) { return pack<T>(sum[4 * b + 2 * h] * scale, sum[4 * b + 2 * h + 1] * scale); });
    }
  }

  Kernel& k_;
  AttentionFeatures f_;
  AttentionBackwardSm90Tuning t_;
  QMap q_, d_o_;
  KMap keys_, values_;
  SMap stats_;
  const AttentionParams& p_;
  const BackwardSm90Params& g_;
  Role<Warpgroup> math_, load_;
  Ring<ByThreads, KTile> k_ring_, v_ring_;
  Ring<ByThreads, QTile, STile> q_ring_;
  Ring<ByThreads, QTile> o_ring_;
  int ds_, staging_;
  NamedBarrier both_;
  int own_barrier_;
};

}  // namespace cgp::kernels::attention_parts
