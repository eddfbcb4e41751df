// SPDX-License-Identifier: Apache-2.0
#pragma once
// attention backward sm90: the five products of the gradients in one kernel, for heads of up to 128 columns.
//   who        a block owns 128 keys of one head of keys and walks over the queries of its heads, from the last
//              to the first, all heads of a tile one after the other; where split, several blocks share them, and
//              what each has of d_k and d_v goes to memory and is summed by another kernel; a producer thread loads q, d_o and both statistics by TMA; two warpgroups own 64
//              keys each
//   transposed s' = k q', dp' = v d_o': an accumulator, packed, is operand A of d_v += p' d_o, d_k += ds' q
//   d_q        ds' goes through shared memory, because each row of d_q sums over the keys of both warpgroups;
//              each owns half of the tile, which a warp of the producer's adds to fp32 sums in global memory by
//              bulk copies (AddOrder)
//   order      s' of the next queries is issued before this iteration's sums are waited for; dp' runs under the
//              exponentials, d_v under the arithmetic on dp', d_k under the barrier
//   scores     a soft cap keeps tanh where scores were, from which both the probability and its derivative
//              follow; a modification gives both from one recording; with 128 queries ds comes from rounded
//              probabilities, or there are too few registers
//   needs      sm_90a; f16 or bf16; rows at multiples of 16 bytes
// The fp32 sums lie as registers do: [head][tile of queries][warpgroup][8][thread][4].
#include <optional>

#include "cgp/dsl/mma/epilogue.h"
#include "cgp/dsl/mma/wgmma.h"
#include "cgp/dsl/pipeline/work_broadcast.h"
#include "cgp/kernels/attention/attention_backward.h"
#include "cgp/kernels/attention/attention_d_q_queue.h"
#include "cgp/kernels/attention/attention_tiles.h"

namespace cgp::kernels::attention_impl {

/// Persistent blocks, or a block per tile.
runtime::Dim3 backward_grid(const AttentionBackwardSm90Tuning& t, std::uint64_t tiles, std::uint64_t sms);
/// Both statistics of `rows` queries.
runtime::TensorMap backward_stats_map(const runtime::Device& device, const runtime::LoadedKernel& fn,
                                      std::size_t param, std::uint64_t address, std::uint64_t rows);
// Heads wider than 128: attention_backward_sm90_wide.h.
std::vector<AttentionBackwardConfig> backward_wide(const AttentionProblem& dense,
                                                   const AttentionBackwardSm90Tuning& tune,
                                                   const AttentionFeatures& f);
Variant backward_wide_variant(const AttentionBackwardConfig& c);
AttentionBackwardSm90Tuning tune_backward_wide(const AttentionProblem& dense);
/// 8 bytes a row of whole tiles, and what blocks have of d_k and d_v that share a tile of keys.
std::uint64_t backward_wide_workspace(const AttentionProblem& dense, std::uint64_t total_q,
                                      std::uint64_t splits);
/// Blocks that share the queries of a tile of keys.
int backward_splits(const AttentionProblem& dense);
void run_backward_wide(runtime::Stream& s, const AttentionBackwardChoice& choice,
                       const AttentionProblem& dense, const AttentionAddresses& at,
                       const AttentionGradients& g);

template <template <class> class V>
struct BackwardSm90ParamsOf {
  V<u64> d_o, d_q, d_k, d_v;
  V<u64> d_q_accum;  ///< f32 sums of d_q; zeros before, where blocks add in any order
  V<u64> stats;      ///< f32 [2][stats_rows]: -lse in units of log2, delta; rows of a tile all exist
  V<u64> arrived;    ///< u32 [head][tile][warpgroup]: parts that have been added; then the next tile of keys
  V<u64> stats_rows;
  V<u64> partial_d_kv;  ///< f32 parts of d_k, then of d_v: [head][tile of keys][split], each as registers lie
  V<u32> tiles_q, splits;
};
using BackwardSm90Params = BackwardSm90ParamsOf<Val>;
using BackwardSm90Arguments = BackwardSm90ParamsOf<HostValue>;

inline constexpr int kBackwardKeys = 128;                     ///< of a block
inline constexpr int kPartOfTile = PartialSumQueue::kFloats;  ///< sums of d_q that a warpgroup owns
inline constexpr int backward_queries(int d) { return d == 64 ? 128 : 64; }  ///< of a tile of q

/// What a block has of tile number `tile` of d_k and d_v, as registers lie: [tile][split][warpgroup][D / 8][thread][4].
template <int D>
void store_partial_accumulators(Kernel& k, Warpgroup& wg, const BackwardSm90Params& g, const Val<u32>& tile,
                                const Val<u32>& part, const Acc<f32, 64, D>& sum) {
  const auto slice = to<u64>(tile) * to<u64>(g.splits) + to<u64>(part);
  const auto base = Out<f32>(g.partial_d_kv)
                        .at(slice * std::uint64_t(kBackwardKeys * D) +
                            to<u64>(wg.index * std::uint32_t(64 * D) + (k.tid() & 127u) * 4u));
  for (int j = 0; j < D / 8; ++j)
    base.template st<4>(128 * j,
                        RegGroup<f32, 4>(sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]));
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
  using Accumulators = Acc<f32, 64, D>;
  using Part = Acc<f32, 64, 64>;
  static_assert(M * D == 2 * kPartOfTile, "a warpgroup owns 64 x 64 sums of d_q");

  BackwardSm90(Kernel& k, const AttentionBackwardConfig& c, const QMap& q, const QMap& d_o, const KMap& keys,
               const KMap& values, const SMap& stats, const AttentionParams& p, const BackwardSm90Params& g)
      : k_(k),
        f_(c.features),
        t_(c.tune),
        q_(q),
        d_o_(d_o),
        keys_(keys),
        values_(values),
        stats_(stats),
        p_(p),
        g_(g),
        math_(k.role<Warpgroup>(2, looks() ? 232 : 240)),
        load_(k.role<Warpgroup>(1, looks() ? 40 : 24)),
        kv_ring_(k, 1, load_, math_),
        q_ring_(k, t_.stages, load_, math_),
        o_ring_(k, t_.stages, load_, math_),
        ds_(k.smem((t_.partial == 1 ? 2 : 1) * DsTile::bytes, DsTile::align)),
        queue_(k, 2, t_.partial),
        both_(k.named_barrier(256)),
        ds_free_(k.named_barrier(256).id()) {
    (void)k.named_barrier(256);  // for the other warpgroup
    k.require(t_.stages > 1, "the next queries arrive while these are still needed");
    k.require(!f_.packed || t_.persistent, "persistent blocks leave out tiles without keys");
    k.require(!f_.packed || !t_.split, "tiles of packed sequences have no place for parts");
    k.require(!f_.soft_cap || (!f_.alibi && f_.mask == AttentionMask::none),
              "a soft cap has no other modification beside it");
  }

  void run() {
    if (t_.persistent) return walk();
    const auto at = coordinate(order() != AddOrder::any ? ticket() : k_.ctaid_x(), Uniform::cta);
    load_.run([&](Warpgroup& wg) {
      wg.one_thread([&](Thread& t) { produce_if_keys(t, at); });
      drain_queue(wg);
    });
    math_.run([&](Warpgroup& wg) {
      if (t_.partial > 1) free_ds(wg);
      consume_if_keys(wg, at);
      end(wg);
    });
  }

 private:
  struct TileCoordinate {
    Sequence s;  ///< of the group's first head
    Val<u32> tile, key0;
    Val<u32> begin, stop;  ///< tiles of queries that see some key; at least one
    Val<u32> tiles_m;      ///< of keys that visit queries
    Val<u32> first_q;      ///< number of the sequence's first tile of queries among those of a head
    Val<u32> part;         ///< of the blocks that share these keys
  };
  /// A tile of queries and a query head of the group.
  struct QueryTile {
    Val<u32> tile, member;
  };
  /// What a block visits.
  struct Visits {
    QueryTile first;
    Val<u32> count;  ///< 0 only where split
  };
  /// From iteration to iteration: scores of these queries, where they lie, both sums, their tile and head in the group.
  using Stage = HeldStage<QTile, STile>;
  using Carried = std::tuple<InFlight<Scores, 0>, Stage, Accumulators, Accumulators, Val<u32>, Val<u32>>;
  struct Own {  ///< what a warpgroup knows
    const TileCoordinate& at;
    SmemTile<KTile> keys, values;
    AccOrigin origin;
    Val<u32> key;  ///< this thread's first
  };

  /// Whether the producer looks for sequences, and for where they end.
  bool looks() const { return f_.packed || f_.key_lengths; }
  AddOrder order() const { return t_.order; }

  // ------------------------------------------------------------ which keys
  // Persistent blocks: the producer takes the next tile of keys and tells which; it loads while the warpgroups
  // still store.
  void walk() {
    WorkBroadcast mail(k_, 1, 2, math_);
    const auto go_on = [&](const Val<u32>& index, Uniform u) { return assume_uniform(index < p_.tiles, u); };
    load_.run([&](Warpgroup& wg) {
      wg.one_warp([&](Warp& w) {
        const auto take = [&] {
          const auto taken = k_.if_(
              w.lane() == 0u, [&] { return take_ticket(); }, [] { return Val<u32>(0); });
          return shfl<idx>(w, taken, 0);
        };
        const auto end = k_.while_(
            take(), [&](const Val<u32>& index) { return go_on(index, Uniform::warp); },
            [&](const Val<u32>& index) {
              const auto tile = [&](const TileCoordinate* at) {
                mail.send(w, {index});
                w.one_thread(
                    [&](Thread& t) { produce_if_keys(t, at ? *at : coordinate(index, Uniform::thread)); });
              };
              if (f_.packed) {
                const TileCoordinate at = coordinate(index, Uniform::warp);
                k_.if_(has_keys(at), [&] { tile(&at); });
              } else {
                tile(nullptr);
              }
              return take();
            });
        mail.send(w, {end});
      });
      drain_queue(wg);
    });
    math_.run([&](Warpgroup& wg) {
      if (t_.partial > 1) free_ds(wg);
      (void)k_.while_(
          mail.receive(wg)[0], [&](const Val<u32>& index) { return go_on(index, Uniform::warpgroup); },
          [&](const Val<u32>& index) {
            consume_if_keys(wg, coordinate(assume_uniform(index, Uniform::warpgroup), Uniform::warpgroup));
            return mail.receive(wg)[0];
          });
      end(wg);
    });
  }
  void end(Warpgroup& wg) {
    if (t_.partial > 1) wait_for_ds(wg);
    queue_.end(wg);
  }
  // With one tile of ds, a warpgroup writes its half when the other has read both.
  void free_ds(Warpgroup& wg) { ds_barrier(wg, ptx::Op::bar_arrive, 1u - wg.index); }
  void wait_for_ds(Warpgroup& wg) { ds_barrier(wg, ptx::Op::bar_sync, wg.index); }
  void ds_barrier(Warpgroup& wg, ptx::Op op, const Val<u32>& whose) {
    wg.converged("the barrier of ds", Here::now());
    k_.inst(op, {}, {k_.in_register(whose + std::uint32_t(ds_free_)), ptx::Operand::integer(256)});
  }
  // The second and third warp behind the producer, one for each warpgroup.
  void drain_queue(Warpgroup& wg) {
    const auto member = (k_.warp_index() & 3u) - 1u;
    k_.if_(assume_uniform(member < 2u, Uniform::warp), [&] {
      const Out<f32> d_q_accum(g_.d_q_accum);
      const Out<u32> arrived(g_.arrived);
      wg.warp().one_thread([&](Thread& t) { queue_.add(t, member, d_q_accum, arrived, order()); });
    });
  }
  // Tiles of keys are taken in the order in which they add: who waits never waits for one that nobody has.
  Val<u32> take_ticket() {
    const auto rows = to<u64>(p_.heads_q) * to<u64>(g_.tiles_q),
               tiles = f_.packed ? rows : to<u64>(p_.batch) * rows;
    return atom<relaxed, gpu, op::add>(Out<u32>(g_.arrived).at(tiles * 2u), 0, 1u);
  }
  Val<u32> ticket() {
    const auto seen = k_.shared<u32>(1);
    Cta cta = k_.cta();
    cta.one_thread([&](Thread&) { seen.st(0, take_ticket()); });
    cta.sync();
    return assume_uniform(seen.ld(0), Uniform::cta);
  }
  TileCoordinate coordinate(const Val<u32>& index, Uniform over) {
    // All parts of a tile of keys come before those of the next: who waits never waits for a later one.
    const auto [bh, of_head] = tile_of_head(p_, index, t_.split ? p_.tiles_m * g_.splits : p_.tiles_m);
    const auto heads_kv = p_.heads_q / p_.group;
    if (!f_.packed) {
      const Sequence s = sequence_of(f_, p_, bh / heads_kv, bh % heads_kv * p_.group, over);
      const auto tiles = f_.key_lengths ? tiles_of(s.n_kv, kKeys) : p_.tiles_m;
      if (!t_.split) return seen_by(s, of_head, tiles, g_.tiles_q, Val<u32>(0), Val<u32>(0));
      return seen_by(s, of_head / g_.splits, tiles, g_.tiles_q, Val<u32>(0), of_head % g_.splits);
    }
    const auto of = tile_of_sequence(k_, p_, p_.cu_seqlens_kv, kKeys, of_head);
    const Sequence s = sequence_of(f_, p_, of.batch, bh * p_.group, over);
    return seen_by(s, assume_uniform(of.tile, over), tiles_of(s.n_kv, kKeys), tiles_of(s.n_q, M),
                   s.first_q / std::uint32_t(M) + s.batch, Val<u32>(0));
  }
  /// At least one.
  static Val<u32> tiles_of(const Val<u32>& rows, int each) {
    return dsl::max((rows + std::uint32_t(each - 1)) / std::uint32_t(each), Val<u32>(1));
  }
  TileCoordinate seen_by(const Sequence& s, const Val<u32>& tile, const Val<u32>& tiles_m,
                         const Val<u32>& tiles_q, const Val<u32>& first_q, const Val<u32>& part) {
    const auto key0 = tile * std::uint32_t(kKeys);
    const auto key = bits<s32>(key0) - bits<s32>(s.n_kv - s.n_q);  // in terms of queries
    const Val<s32> zero(0);
    // Some block visits every tile of queries, also those that see no key: it owes them zeros.
    const auto seen = f_.window_right ? select(tile == 0u, Val<u32>(0),
                                               dsl::min(tiles_up_to(key - p_.window_right), tiles_q - 1u))
                                      : Val<u32>(0);
    const auto& begin = seen;
    if (!f_.window_left) return {s, tile, key0, begin, tiles_q, tiles_m, first_q, part};
    const auto end = tiles_up_to(dsl::min(bits<s32>(s.n_q), key + kKeys + p_.window_left) + (M - 1));
    const auto last = f_.key_lengths ? tile + 1u >= tiles_m : tile + 1u == tiles_m;
    return {s, tile, key0, begin, select(last, tiles_q, dsl::max(end, begin + 1u)), tiles_m, first_q, part};
  }
  /// Whole tiles of queries in `rows`, which may be negative.
  static Val<u32> tiles_up_to(const Val<s32>& rows) {
    return bits<u32>(dsl::max(rows, Val<s32>(0))) / std::uint32_t(M);
  }
  /// First tile of keys that visits a tile of queries.
  Val<u32> first_visitor(const TileCoordinate& at, const Val<u32>& tile) {
    if (!f_.window_left) return Val<u32>(0);
    const auto query = bits<s32>(tile * std::uint32_t(M)) + bits<s32>(at.s.n_kv - at.s.n_q);
    const auto key = bits<u32>(dsl::max(query - p_.window_left, Val<s32>(0)));
    return select(tile == 0u, Val<u32>(0), dsl::min(key / std::uint32_t(kKeys), at.tiles_m - 1u));
  }
  Visits visits_of(const TileCoordinate& at) {
    const auto all = (at.stop - at.begin) * p_.group;
    if (!t_.split) return {{at.stop - 1u, Val<u32>(0)}, all};
    const auto first = all * at.part / g_.splits, end = all * (at.part + 1u) / g_.splits;
    return {{at.stop - 1u - first / p_.group, first % p_.group}, end - first};
  }
  /// All heads of a tile, then the tile before it: under bounds, blocks of later keys begin where the first ones
  /// do, and who waits for another's sum does not wait for whole heads.
  QueryTile next_tile(const QueryTile& now) {
    const auto next = now.member + 1u;
    const auto wrapped = next == p_.group;
    return {select(wrapped, now.tile - 1u, now.tile), select(wrapped, Val<u32>(0), next)};
  }
  /// Number of the tile of queries among those of all heads.
  Val<u32> query_tile(const TileCoordinate& at, const Val<u32>& member, const Val<u32>& tile) {
    const auto head = f_.packed ? at.s.head : at.s.batch * p_.heads_q + at.s.head;
    const auto first = (head + member) * g_.tiles_q;
    return (f_.packed ? first + at.first_q : first) + tile;
  }

  /// The first tile owes queries zeros.
  static Val<pred> has_keys(const TileCoordinate& at) { return (at.tile == 0u) | (at.key0 < at.s.n_kv); }
  /// Whether a block may have nothing to do, and whether it has something.
  bool may_idle() const { return f_.key_lengths || t_.split; }
  Val<pred> works(const TileCoordinate& at) {
    if (!t_.split) return has_keys(at);
    const auto some = visits_of(at).count > 0u;
    return f_.key_lengths ? has_keys(at) & some : some;
  }

  // ------------------------------------------------------------ the producer
  void produce_if_keys(Thread& t, const TileCoordinate& at) {
    if (may_idle())
      k_.if_(works(at), [&] { produce(t, at); });
    else
      produce(t, at);
  }
  void produce(Thread& t, const TileCoordinate& at) {
    const auto rows = [&](MapOf which, const Val<u32>& head) {
      return rows_of_map(f_, p_, at.s, which, head);
    };
    kv_ring_.fill(t, row_of(keys_, rows(MapOf::k, at.s.head_kv), at.key0),
                  row_of(values_, rows(MapOf::v, at.s.head_kv), at.key0));
    const auto visits = visits_of(at);
    k_.loop(visits.count, std::tuple(visits.first.tile, visits.first.member), [&](Val<u32>, auto now) {
      const auto [tile, member] = now;
      const auto head = at.s.head + member, row = tile * std::uint32_t(M);
      q_ring_.fill(t, row_of(q_, rows(MapOf::q, head), row),
                   dsl::at(stats_, 0, query_tile(at, member, tile) * std::uint32_t(M)));
      o_ring_.fill(t, row_of(d_o_, rows(MapOf::o, head), row));
      const auto next = next_tile({tile, member});
      return std::tuple(next.tile, next.member);
    });
  }

  // ------------------------------------------------------------ a warpgroup
  // Keys behind a length get zeros from a block that adds to no query: no block waits for it. Of few queries, some
  // blocks that share them have none.
  void consume_if_keys(Warpgroup& wg, const TileCoordinate& at) {
    if (!may_idle()) return consume(wg, at);
    const auto there = assume_uniform(works(at), Uniform::warpgroup);
    k_.if_(there, [&] { consume(wg, at); });
    k_.if_(!there, [&] {
      const auto key = at.key0 + wg.index * 64u + accumulator_origin(wg).row;
      store_both(wg, at, key, zeros<f32, 64, D>(wg), zeros<f32, 64, D>(wg));
    });
  }
  void consume(Warpgroup& wg, const TileCoordinate& at) {
    auto keys_values = kv_ring_.take(wg);
    const auto keys = keys_values.template get<0>();
    Stage query(q_ring_.take(wg));
    auto scores = wgmma(wg, fresh<f32, 64, M>(wg), keys, query.template get<0>(), deep(t_.used_d_qk));
    const auto origin = accumulator_origin(wg);
    const Own own{at, keys, keys_values.template get<1>(), origin, at.key0 + wg.index * 64u + origin.row};
    const auto visits = visits_of(at);
    const auto& iterations = visits.count;
    Carried last = k_.loop(iterations - 1u,
                           Carried{std::move(scores), std::move(query), zeros<f32, 64, D>(wg),
                                   zeros<f32, 64, D>(wg), visits.first.tile, visits.first.member},
                           [&](Val<u32> i, Carried now) { return step<true>(wg, own, i, std::move(now)); });
    auto done = step<false>(wg, own, iterations - 1u, std::move(last));
    std::move(keys_values).release(wg);
    if (t_.persistent && t_.partial == 1) both_.sync();  // nobody still reads what the next tile overwrites
    store_both(wg, at, own.key, done.first, done.second);
  }

  /// One tile of queries. With More, the scores of the next are under way at the end.
  template <bool More>
  auto step(Warpgroup& wg, const Own& own, const Val<u32>& i, Carried now) {
    auto query = std::move(std::get<1>(now));
    const auto tile = std::get<4>(now), member = std::get<5>(now);
    const auto q = query.template get<0>();
    const auto both = query.template get<1>();
    const Ptr<shared, f32> stats(both.base() + own.origin.col * 4u, both.offset());
    auto d_o = o_ring_.take(wg);
    const Sequence one = shapes(f_) ? of_member(own.at.s, member) : own.at.s;
    std::optional<Shape> shape;
    if (shapes(f_)) shape.emplace(f_, p_, one, std::is_same_v<T, bf16> ? DType::bf16 : DType::f16);
    // Whole waits for what comes round the loop: the assembler counts groups only inside an iteration.
    auto s = std::move(std::get<0>(now)).wait(wg);
    auto dp_busy = wgmma(wg, fresh<f32, 64, M>(wg), own.values, SmemTile<QTile>(d_o.template get<0>()),
                         deep(t_.used_d_v));
    const auto w = weights(own, s, stats, tile, shape ? &*shape : nullptr);
    auto dv_busy = wgmma<Major::k, Major::mn>(wg, std::move(std::get<3>(now)), operand(w.p), std::move(d_o),
                                              wide(t_.used_d_v));
    auto dp = std::move(dp_busy).wait(wg);
    const auto ds = packed(gradients(w, dp, stats));
    const bool one_ds = t_.partial > 1;
    const SmemTile<DsTile> ds_tile(one_ds ? k_.smem_addr(ds_)
                                          : k_.smem_addr(ds_) + (i & 1u) * std::uint32_t(DsTile::bytes));
    if (one_ds) wait_for_ds(wg);
    const auto own_half = ds_tile.template rows<64>(wg.index * 64u);
    store_packed(wg, ds, own_half);
    fence_async_shared(k_);
    auto dk_busy =
        wgmma<Major::k, Major::mn>(wg, std::move(std::get<2>(now)), operand(ds), q, wide(t_.used_d_qk));
    both_.sync();
    auto dv = std::move(dv_busy).wait(wg);
    auto dq_busy = wgmma<Major::mn, Major::mn>(wg, fresh<f32, 64, 64>(wg), ds_tile, own.keys);
    auto dk = std::move(dk_busy).wait(wg);
    std::move(query).free(wg);
    const auto finish = [&] {
      const auto dq = std::move(dq_busy).wait(wg);
      if (one_ds) free_ds(wg);
      queue_.send(wg, note(wg, own, member, tile), [&](int j) {
        return RegGroup<f32, 4>(dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
      });
    };
    if constexpr (More) {
      Stage next(q_ring_.take(wg));
      auto scores = wgmma(wg, FreshAcc<f32, 64, M>{s.owned().alias()}, own.keys, next.template get<0>(),
                          deep(t_.used_d_qk));
      finish();
      const auto then = next_tile({tile, member});
      return Carried{std::move(scores), std::move(next), std::move(dk),
                     std::move(dv),     then.tile,       then.member};
    } else {
      finish();
      return std::pair(std::move(dk), std::move(dv));
    }
  }

  static WgmmaPart deep(int used) { return {.depth = used, .columns = 0}; }
  static WgmmaPart wide(int used) { return {.depth = 0, .columns = used}; }

  // ------------------------------------------------------------ scores
  using Floats = std::vector<Val<f32>>;
  using Words = std::vector<Val<b32>>;
  /// Probabilities, packed, and what dp - delta is multiplied with: f32, or packed where rounded().
  struct Weights {
    Words p;
    Floats of_ds;
    Words of_ds_rounded;
  };
  Weights weights(const Own& own, const Scores& s, const Ptr<shared, f32>& stats, const Val<u32>& tile,
                  const Shape* shape) {
    if (f_.soft_cap) return capped_weights(own, s, stats, tile);
    if (f_.modify.apply) return modified_weights(own, s, stats, tile, *shape);
    const auto p = probabilities(own, s, stats, tile, shape);
    auto all = packed(p);
    return rounded() ? Weights{all, {}, all} : Weights{all, p, {}};
  }
  Floats probabilities(const Own& own, const Scores& s, const Ptr<shared, f32>& stats, const Val<u32>& tile,
                       const Shape* shape) {
    Floats p;
    for (int j = 0; j < M / 8; ++j) {
      const auto base = stats.ld<2>(4 * j);
      for (int e = 4 * j; e < 4 * j + 4; ++e) {
        const auto kept = shape ? (*shape)(s[e], query_of(own, tile, e), key_of(own, e)) : s[e];
        p.push_back(Val<f32>(
            ex2<approx, ftz>(fma(kept, shape ? exponent_scale(f_, p_) : p_.scale_log2, base[e & 1]))));
      }
    }
    cut(own, tile, p, 0);
    return p;
  }
  // tanh takes the place of scores, so that bounds apply once and nothing is computed twice. Under a soft cap
  // scores have no other shape.
  Weights capped_weights(const Own& own, const Scores& s, const Ptr<shared, f32>& stats,
                         const Val<u32>& tile) {
    const auto inner = p_.scale * p_.inverse_cap * kTanhUnit, outer = p_.soft_cap * kLog2e;
    Floats t, of_ds;
    Words p, of_ds_rounded;
    for (int e = 0; e < Scores::count; ++e) t.push_back(tanh_of(s[e] * inner));
    cut(own, tile, t, kNever);
    for (int j = 0; j < M / 8; ++j) {
      const auto base = stats.ld<2>(4 * j);
      for (int e = 4 * j; e < 4 * j + 4; e += 2) {
        std::vector<Val<f32>> pair, slopes;
        for (int i : {e, e + 1}) {
          const auto& bent = t[std::size_t(i)];
          pair.push_back(ex2<approx, ftz>(fma(bent, outer, base[i & 1])));
          const auto known = dsl::max(bent, Val<f32>(-1.0f));  // not minus infinity
          slopes.push_back(pair.back() * fma(-known, known, Val<f32>(1.0f)));
        }
        p.push_back(pack<T>(pair[0], pair[1]));
        if (rounded())
          of_ds_rounded.push_back(pack<T>(slopes[0], slopes[1]));
        else
          for (const auto& w : slopes) of_ds.push_back(w);
      }
    }
    return {p, of_ds, of_ds_rounded};
  }
  // Both are packed at once, since a score is not kept beside what became of it: bounds cut the packed words.
  Weights modified_weights(const Own& own, const Scores& s, const Ptr<shared, f32>& stats,
                           const Val<u32>& tile, const Shape& shape) {
    Words p, of_ds;
    for (int j = 0; j < M / 8; ++j) {
      const auto base = stats.ld<2>(4 * j);
      for (int e = 4 * j; e < 4 * j + 4; e += 2) {
        std::vector<Val<f32>> pair, slopes;
        for (int i : {e, e + 1}) {
          const auto [weight, slope] =
              shape.weight(s[i], query_of(own, tile, i), key_of(own, i),
                           [&](const Val<f32>& kept) { return ex2<approx, ftz>(kept + base[i & 1]); });
          pair.push_back(weight), slopes.push_back(slope);
        }
        p.push_back(pack<T>(pair[0], pair[1]));
        of_ds.push_back(slopes[0].reg() == pair[0].reg() ? p.back() : pack<T>(slopes[0], slopes[1]));
      }
    }
    const bool apart = p[0].reg() != of_ds[0].reg();
    if_outside(own, tile, [&](int h, const Val<s32>& from, const Val<s32>* to) {
      keep_packed_columns(k_, p, h, from, to);
      if (apart) keep_packed_columns(k_, of_ds, h, from, to);
    });
    return {p, {}, of_ds};
  }
  bool rounded() const { return t_.rounded || f_.modify.apply; }
  /// Of an element of this thread's.
  static Val<u32> query_of(const Own& own, const Val<u32>& tile, int e) {
    return tile * std::uint32_t(M) + own.origin.col + std::uint32_t(8 * (e >> 2) + (e & 1));
  }
  static Val<u32> key_of(const Own& own, int e) { return own.key + std::uint32_t(8 * (e >> 1 & 1)); }
  // `outside` the bounds.
  void cut(const Own& own, const Val<u32>& tile, const Floats& p, float outside) {
    if_outside(own, tile, [&](int h, const Val<s32>& from, const Val<s32>* to) {
      keep_columns(k_, p, h, &from, to, outside);
    });
  }
  /// keep(h, from, to) for both rows of a thread; most tiles lie inside the bounds, and are only asked once.
  template <class Keep>
  void if_outside(const Own& own, const Val<u32>& tile, Keep&& keep) {
    const Sequence& s = own.at.s;
    const auto off = bits<s32>(s.n_kv - s.n_q), first = bits<s32>(own.key - own.origin.row) - off,
               query = bits<s32>(tile * std::uint32_t(M));
    const auto behind = [&](int h) { return own.key + std::uint32_t(8 * h) >= s.n_kv; };
    std::vector<Val<pred>> need{own.key - own.origin.row + 64u > s.n_kv};
    if (f_.window_right) need.push_back(need.back() | (first + 63 > query + p_.window_right));
    if (f_.window_left) need.push_back(need.back() | (first < query + (M - 1) - p_.window_left));
    k_.if_(need.back(), [&] {
      const auto apart = bits<s32>(own.key) - off - query - bits<s32>(own.origin.col);
      for (int h = 0; h < 2; ++h) {  // query - this thread's first lies in [from, to]
        const Val<s32> never(1 << 29);
        const auto from =
            select(behind(h), never, f_.window_right ? apart + 8 * h - p_.window_right : Val<s32>(0));
        const auto to = apart + 8 * h + p_.window_left;
        keep(h, from, f_.window_left ? &to : nullptr);
      }
    });
  }
  /// Of q . k, without the scale, which is applied to the sums.
  Floats gradients(const Weights& weights, const Scores& dp, const Ptr<shared, f32>& stats) {
    Floats ds;
    for (int j = 0; j < M / 8; ++j) {
      const auto delta = stats.ld<2>(M / 2 + 4 * j);
      for (int e = 4 * j; e < 4 * j + 4; ++e) {
        const auto weight = [&]() -> Val<f32> {
          if (!rounded()) return weights.of_ds[std::size_t(e)];
          const auto both = unpack<T>(weights.of_ds_rounded[std::size_t(e / 2)]);
          return to<f32>(both[e & 1]);
        }();
        ds.push_back(weight * (dp[e] - delta[e & 1]));
      }
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

  /// Where these sums belong, and when.
  PartialSumQueue::Note note(Warpgroup& wg, const Own& own, const Val<u32>& member, const Val<u32>& tile) {
    const auto place = query_tile(own.at, member, tile) * 2u + wg.index;
    return {place, order() != AddOrder::any ? own.at.tile - first_visitor(own.at, tile) : Val<u32>(0)};
  }

  // ------------------------------------------------------------ results
  void store_both(Warpgroup& wg, const TileCoordinate& at, const Val<u32>& key, const Accumulators& d_k,
                  const Accumulators& d_v) {
    if (t_.split) {
      const auto pair = at.s.batch * (p_.heads_q / p_.group) + at.s.head_kv;
      store_partial_accumulators<D>(k_, wg, g_, pair * p_.tiles_m + at.tile, at.part, d_k);
      store_partial_accumulators<D>(k_, wg, g_, (pair + p_.pairs) * p_.tiles_m + at.tile, at.part, d_v);
      return;
    }
    store(wg, g_.d_k, at, key, p_.k_batch, p_.k_head, p_.k_row, p_.d_qk, p_.scale, d_k);
    store(wg, g_.d_v, at, key, p_.v_batch, p_.v_head, p_.v_row, p_.d_v, Val<f32>(1.0f), d_v);
  }
  void store(Warpgroup& wg, const Val<u64>& address, const TileCoordinate& at, const Val<u32>& key,
             const Val<u64>& batch, const Val<u64>& head, const Val<u64>& pitch, const Val<u32>& cols,
             const Val<f32>& scale, const Accumulators& sum) {
    store_accumulator(wg, Out<T>(address).at(rows_of(at.s, at.s.head_kv, at.s.first_kv, batch, head, pitch)),
                      key, f_.key_lengths ? p_.n_kv : at.s.n_kv, pitch, cols, scale, sum);
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
  Ring<ByThreads, KTile, KTile> kv_ring_;
  Ring<ByThreads, QTile, STile> q_ring_;
  Ring<ByThreads, QTile> o_ring_;
  int ds_;
  PartialSumQueue queue_;
  NamedBarrier both_;
  int ds_free_;
};

}  // namespace cgp::kernels::attention_impl
