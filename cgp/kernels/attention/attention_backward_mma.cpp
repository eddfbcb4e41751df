// SPDX-License-Identifier: Apache-2.0
// attention backward mma: tensor cores through mma.sync, for sm_80 and later. No atomics: every sum belongs to
// one warp, so the result is the same in every run.
//   delta    threads of a row take 8 columns each: sum of o * d_o
//   keys     a block owns keys and walks over the queries of its heads:  s' = k q', dp' = v d_o',
//            d_v += p' d_o, d_k += ds' q; above 128 columns a kernel each for d_k and d_v, whose sums do not
//            fit into registers together
//   queries  a block owns queries and walks over keys:  s = q k', dp = d_o v', d_q += ds k
//   memory   both tiles of the owner once, both of the other side in two stages of cp.async; scores are
//            transposed, so that an accumulator, packed, is operand A of the next product: p and ds stay in
//            registers
//   sync     one block barrier per tile of the other side
//   needs    sm_80; f16 or bf16; rows at multiples of 16 bytes
#include "cgp/dsl/mma/warp_tiles.h"
#include "cgp/kernels/attention/attention_backward.h"
#include "cgp/kernels/attention/attention_delta.h"
#include "cgp/kernels/attention/attention_quad.h"
#include "cgp/kernels/attention/attention_score.h"

namespace cgp::kernels {
namespace {

using namespace attention_parts;

constexpr int kWarps = 4;
enum class Wanted : std::uint8_t { d_q, d_k, d_v, d_k_and_d_v };  ///< which sums a kernel makes

template <class T>
class BackwardMma {
 public:
  BackwardMma(Kernel& k, const AttentionBackwardConfig& t, const AttentionParams& p, const GradientParams& g,
              Wanted wanted)
      : k_(k),
        t_(t),
        f_(t.features),
        p_(p),
        g_(g),
        wanted_(wanted),
        keys_(wanted != Wanted::d_q),
        own_rows_(kWarps * t.rows),
        own_(layout(own_rows_)),
        other_(layout(t.columns)),
        cta_(k.cta()),
        w_(k.warp()),
        thread_(k.tid()),
        copier_(k, thread_, kWarps * 32),
        origin_(accumulator_origin(w_)),
        own_at_(k.smem_addr(k.smem((needs_dp() ? 2 : 1) * own_.bytes(), pattern_bytes(own_.swizzle)))),
        stages_(k.smem_addr(k.smem(2 * stage_bytes(), pattern_bytes(own_.swizzle)))),
        stats_(k.smem_addr(k.smem(keys_ ? 2 * stats_bytes() : 8 * own_rows_, 16))),
        own_part_(w_, Operand::a, Major::k, own_, w_.index * std::uint32_t(t.rows)),
        other_part_(w_, Operand::b, Major::k, other_, Val<u32>(0)),
        other_transposed_(w_, Operand::b, Major::mn, other_, Val<u32>(0)) {}

  void run() {
    const auto at = k_.ctaid_x() / p_.tiles_m, i = k_.ctaid_x() % p_.tiles_m;
    if (keys_) {  // under a causal bound the first tile is the longest, and goes first
      const auto heads_kv = p_.heads_q / p_.group;
      const Sequence s = sequence(f_, p_, at / heads_kv, at % heads_kv * p_.group);
      const auto own0 = assume_uniform(i * std::uint32_t(own_rows_));
      k_.if_(own0 < memory_keys(s), [&] { own_keys(s, own0); });
    } else {
      const Sequence s = sequence(f_, p_, at / p_.heads_q, at % p_.heads_q);
      const auto own0 = assume_uniform((p_.tiles_m - 1 - i) * std::uint32_t(own_rows_));
      k_.if_(own0 < s.n_q, [&] { own_queries(s, own0); });
    }
  }

 private:
  using Matrix = TileMatrix<T>;
  using Accumulators = std::vector<FragC<f32, 16, 8>>;
  using Floats = std::vector<Val<f32>>;
  using Words = std::vector<Val<b32>>;

  // ---------------------------------------------------------------- shapes
  bool makes_d_k() const { return wanted_ != Wanted::d_v; }
  bool makes_d_v() const { return wanted_ != Wanted::d_k; }
  bool needs_dp() const { return wanted_ != Wanted::d_v; }  // and the owner's second tile
  TileLayout layout(int rows) const { return {rows, t_.d_qk, 2, widest_swizzle(t_.d_qk * 2), rows}; }
  int stage_bytes() const { return 2 * other_.bytes(); }
  int stats_bytes() const { return 8 * t_.columns; }  // lse and delta of the queries of a stage
  int blocks_m() const { return t_.rows / 16; }
  int blocks_n() const { return t_.columns / 8; }
  int count() const { return t_.rows * t_.columns / 32; }  // elements of scores in a thread
  int row_of(int i) const { return 16 * (i / 4 / blocks_n()) + 8 * (i >> 1 & 1); }
  int column_of(int i) const { return 8 * (i / 4 % blocks_n()) + (i & 1); }
  // Rows of keys that exist in memory: those behind a sequence's length get gradients of 0.
  Val<u32> memory_keys(const Sequence& s) const { return f_.key_lengths ? p_.n_kv : s.n_kv; }

  Matrix queries_of(const Val<u64>& base, const Sequence& s, const Val<u64>& batch, const Val<u64>& head,
                    const Val<u64>& row, const Val<u32>& cols) const {
    return {In<T>(base, 0, true).at(rows_of(s, s.head, s.first_q, batch, head, row)), to<u32>(row), s.n_q,
            cols};
  }
  Matrix keys_of(const Val<u64>& base, const Sequence& s, const Val<u64>& batch, const Val<u64>& head,
                 const Val<u64>& row, const Val<u32>& cols) const {
    return {In<T>(base, 0, true).at(rows_of(s, s.head_kv, s.first_kv, batch, head, row)), to<u32>(row),
            s.n_kv, cols};
  }
  Matrix q(const Sequence& s) const { return queries_of(p_.q, s, p_.q_batch, p_.q_head, p_.q_row, p_.d_qk); }
  Matrix d_o(const Sequence& s) const {
    return queries_of(g_.d_o, s, p_.o_batch, p_.o_head, p_.o_row, p_.d_v);
  }
  Matrix k(const Sequence& s) const { return keys_of(p_.k, s, p_.k_batch, p_.k_head, p_.k_row, p_.d_qk); }
  Matrix v(const Sequence& s) const { return keys_of(p_.v, s, p_.v_batch, p_.v_head, p_.v_row, p_.d_v); }
  Val<u64> stats_at(const Sequence& s) const {  // where the sequence's lse and delta begin, in elements
    return to<u64>(s.batch) * p_.lse_batch + to<u64>(s.head) * p_.lse_head + wide_index(s.first_q);
  }

  // ---------------------------------------------------------------- memory
  void keep_own(const Matrix& first, const Matrix& second, const Val<u32>& own0) {
    copier_.copy(first, own0, own_, own_at_, 0);
    if (needs_dp()) copier_.copy(second, own0, own_, own_at_, own_.bytes());
    cp_async_commit(k_);
  }
  // lse, then delta of `n` queries, zeros where there are none.
  void copy_stats(const Sequence& s, const Val<u32>& row0, const Val<u32>& to_stats, int n) {
    const int threads = kWarps * 32;
    for (int first = 0; first < 2 * n; first += threads) {
      const auto one = [&] {
        const auto i = thread_ + std::uint32_t(first), row = row0 + i % std::uint32_t(n);
        const auto from =
            In<f32>(select(i >= std::uint32_t(n), g_.delta, p_.lse), 0, true).at(stats_at(s)).at(row);
        cp_async_zfill<4>(Ptr<shared, f32>(to_stats + i * 4u), from,
                          select(row < s.n_q, Val<u32>(4), Val<u32>(0)));
      };
      if (first + threads <= 2 * n)
        one();
      else
        k_.if_(thread_ < std::uint32_t(2 * n - first), one);
    }
  }
  // fetch and body(stage, its stats, first row of the other side) for `count` tiles from tile `begin` on.
  template <class Fetch, class Body>
  void ring(const Val<u32>& begin, const Val<u32>& count, Fetch&& fetch, Body&& body) {
    const auto row = [&](const Val<u32>& i) { return i * std::uint32_t(t_.columns); };
    const auto with = [&](const Val<u32>& i, const auto& f) {
      const auto odd = i & 1u;
      f(stages_ + odd * std::uint32_t(stage_bytes()), stats_ + odd * std::uint32_t(stats_bytes()),
        row(begin.is_literal() ? i : begin + i));
    };
    cta_.sync();  // nobody still reads the stages of the head before
    k_.if_(count > 0u, [&] { fetch(stages_, stats_, begin.is_literal() ? begin : row(begin)); });
    cp_async_commit(k_);
    k_.loop(count, [&](Val<u32> i) {
      cp_async_wait(k_, 0);
      cta_.sync();  // this stage has landed for everybody, and everybody is done with the one before
      k_.if_(i + 1u < count, [&] { with(i + 1u, fetch); });
      cp_async_commit(k_);
      with(i, body);
    });
  }

  // ---------------------------------------------------------------- products
  // Tile `which` of the owner, this warp's rows, times the transpose of tile `which` of the stage.
  Accumulators scores(int which, const Val<u32>& stage) {
    auto a = own_part_.lanes(own_at_, which * own_.bytes());
    auto b = other_part_.lanes(stage, which * other_.bytes());
    Accumulators acc = zero_blocks(w_, count() / 4);
    for (int step = 0; step < t_.d_qk / 16; ++step) {
      const auto rows = own_part_.rows(w_, a, step, t_.rows);
      for (int n = 0; n < t_.columns; n += 16) {
        const auto columns = other_part_.two_columns(w_, b, n, step);
        for (int m = 0; m < blocks_m(); ++m)
          for (int j = 0; j < 2; ++j) {
            auto& block = acc[std::size_t(m * blocks_n() + n / 8 + j)];
            block = mma(w_, rows[std::size_t(m)], columns[std::size_t(j)], std::move(block));
          }
      }
    }
    return acc;
  }
  // acc += weights * tile `which` of the stage; packed, the accumulator of scores is operand A.
  void add(const Words& weights, int which, const Val<u32>& stage, Accumulators& acc) {
    auto b = other_transposed_.lanes(stage, which * other_.bytes());
    for (int step = 0; step < t_.columns / 16; ++step)
      for (int n = 0; n < t_.d_qk; n += 16) {
        const auto columns = other_transposed_.two_columns(w_, b, n, step);
        for (int m = 0; m < blocks_m(); ++m) {
          const auto w = weights.begin() + 2 * (m * blocks_n() + 2 * step);
          const FragA<T, 16, 16> rows(std::vector<Value>(w, w + 4));
          for (int j = 0; j < 2; ++j) {
            auto& block = acc[std::size_t(m * (t_.d_qk / 8) + n / 8 + j)];
            block = mma(w_, rows, columns[std::size_t(j)], std::move(block));
          }
        }
      }
  }
  static Val<f32> element(const Accumulators& acc, int i) { return acc[std::size_t(i / 4)][i % 4]; }

  // ---------------------------------------------------------------- scores
  struct TileCoordinate {  // of a tile of scores
    const Sequence& s;
    const Shape& shape;
    Val<u32> warp_own, other;           ///< first of the warp on both sides
    Val<u32> thread_own, thread_other;  ///< of this thread
  };
  Val<u32> query(const TileCoordinate& at, int i) const {
    return keys_ ? at.thread_other + std::uint32_t(column_of(i)) : at.thread_own + std::uint32_t(row_of(i));
  }
  Val<u32> key(const TileCoordinate& at, int i) const {
    return keys_ ? at.thread_own + std::uint32_t(row_of(i)) : at.thread_other + std::uint32_t(column_of(i));
  }
  // What probabilities subtract from a score: +lse of a row without keys is -infinity and must give 0.
  Val<f32> minus_lse(const Val<f32>& lse) const {
    const auto x = lse * -kLog2e;
    if (f_.mask == AttentionMask::none && !f_.modify.apply) return x;  // bounds are applied to the result
    return select(lse == kNever, Val<f32>(kNever), x);
  }
  template <class Base>
  Floats probabilities(const TileCoordinate& at, const Accumulators& raw, Base&& base) {
    Floats p;
    for (int i = 0; i < count(); ++i) {
      const auto x = at.shape(element(raw, i), query(at, i), key(at, i));
      p.push_back(ex2<approx, ftz>(fma(x, exponent_scale(f_, p_), base(i))));
    }
    cut(at, p);
    return p;
  }
  // 0 outside the bounds; most tiles lie inside them, and are only asked once.
  void cut(const TileCoordinate& at, const Floats& p) {
    const auto off = bits<s32>(at.s.n_kv - at.s.n_q);
    const auto own = bits<s32>(at.warp_own), other = bits<s32>(at.other);
    const int rows = t_.rows - 1, columns = t_.columns - 1;
    const auto limit = keys_ ? at.s.n_q : at.s.n_kv;
    auto needed = at.other + std::uint32_t(t_.columns) > limit;
    const auto most = keys_ ? own + rows - other - off
                            : other + columns - own - off,  // key - i', see attention.h
        least = keys_ ? own - other - columns - off : other - own - rows - off;
    std::vector<Val<pred>> need{needed};
    if (f_.window_right) need.push_back(need.back() | (most > p_.window_right));
    if (f_.window_left) need.push_back(need.back() | (least < -p_.window_left));
    k_.if_(need.back(), [&] {
      const auto apart = bits<s32>(key(at, 0)) - bits<s32>(query(at, 0)) - off;
      for (int i = 0; i < count(); ++i) {
        const int d = keys_ ? row_of(i) - column_of(i) : column_of(i) - row_of(i);
        const auto here = apart + d;
        std::vector<Val<pred>> inside{at.thread_other + std::uint32_t(column_of(i)) < limit};
        if (f_.window_right) inside.push_back(inside.back() & (here <= p_.window_right));
        if (f_.window_left) inside.push_back(inside.back() & (here >= -p_.window_left));
        const Value& x = p[std::size_t(i)];
        k_.mov_op(x, ptx::Op::selp, {ptx::Mod::f32}, {x, Val<f32>(0), inside.back()});
      }
    });
  }
  // Packed gradients of q . k without the scale, which is applied to the sums.
  template <class Delta>
  Words gradients(const TileCoordinate& at, const Accumulators& raw, const Floats& p, const Accumulators& dp,
                  Delta&& delta) {
    Floats ds;
    for (int i = 0; i < count(); ++i) {
      const auto up = p[std::size_t(i)] * (element(dp, i) - delta(i));
      ds.push_back(at.shape.gradient(element(raw, i), query(at, i), key(at, i), up));
    }
    return packed(ds);
  }
  static Words packed(const Floats& x) {
    Words out;
    for (std::size_t i = 0; i < x.size(); i += 2) out.push_back(dsl::pack<T>(x[i], x[i + 1]));
    return out;
  }

  // ---------------------------------------------------------------- the two owners
  void own_queries(const Sequence& s, const Val<u32>& own0) {
    copy_stats(s, own0, stats_, own_rows_);
    keep_own(q(s), d_o(s), own0);
    const auto mk = k(s), mv = v(s);
    const Shape shape(f_, p_, s, t_.type);
    const auto warp_own = own0 + w_.index * std::uint32_t(t_.rows);
    const auto row = warp_own + origin_.row;
    // This thread's rows; loaded where they are used: registers.
    const Ptr<shared, f32> own_stats(stats_ + (w_.index * std::uint32_t(t_.rows) + origin_.row) * 4u);
    const auto of_rows = [&](int first) {
      std::vector<Val<f32>> out;
      for (int r = 0; r < t_.rows; r += 8) out.push_back(own_stats.ld(first + r));
      return out;
    };
    const auto first = bounds(f_, p_, s, own0).first,
               last = bounds(f_, p_, s, dsl::min(own0 + std::uint32_t(own_rows_ - 1), s.n_q - 1)).end;
    const auto n = std::uint32_t(t_.columns);
    const auto begin = f_.window_left ? assume_uniform(bits<u32>(first) / n) : Val<u32>(0);
    const auto end = (bits<u32>(dsl::max(last, Val<s32>(0))) + (n - 1)) / n;
    Accumulators sum = zero_blocks(w_, t_.rows * t_.d_qk / 128);
    ring(
        begin, assume_uniform(select(end > begin, end - begin, Val<u32>(0))),
        [&](const Val<u32>& stage, const Val<u32>&, const Val<u32>& key0) {
          copier_.copy(mk, key0, other_, stage, 0);
          copier_.copy(mv, key0, other_, stage, other_.bytes());
        },
        [&](const Val<u32>& stage, const Val<u32>&, const Val<u32>& key0) {
          const TileCoordinate at{s, shape, warp_own, key0, row, key0 + origin_.col};
          const auto of_row = [&](int i) { return std::size_t(row_of(i) / 8); };
          const auto raw = scores(0, stage);
          const auto lse = of_rows(0);
          std::vector<Val<f32>> base;
          for (const auto& x : lse) base.push_back(minus_lse(x));
          const auto p = probabilities(at, raw, [&](int i) { return base[of_row(i)]; });
          const auto dp = scores(1, stage);
          const auto delta = of_rows(own_rows_);
          add(gradients(at, raw, p, dp, [&](int i) { return delta[of_row(i)]; }), 0, stage, sum);
        });
    store(g_.d_q, rows_of(s, s.head, s.first_q, p_.q_batch, p_.q_head, p_.q_row), p_.q_row, row, s.n_q, s.n_q,
          p_.d_qk, p_.scale, sum);
  }

  void own_keys(const Sequence& kv, const Val<u32>& own0) {
    keep_own(k(kv), v(kv), own0);
    const auto warp_own = own0 + w_.index * std::uint32_t(t_.rows);
    const auto row = warp_own + origin_.row;
    const int blocks = t_.rows * t_.d_qk / 128;
    Accumulators d_k = zero_blocks(w_, makes_d_k() ? blocks : 0),
                 d_v = zero_blocks(w_, makes_d_v() ? blocks : 0);
    const auto n = std::uint32_t(t_.columns);
    const auto off = bits<s32>(kv.n_kv - kv.n_q), own = bits<s32>(own0), n_q = bits<s32>(kv.n_q);
    // Queries that see some key of this tile.
    const auto end =
        f_.window_left ? dsl::min(n_q, dsl::max(own + own_rows_ + p_.window_left - off, Val<s32>(0))) : n_q;
    const auto begin = f_.window_right
                           ? assume_uniform(bits<u32>(dsl::max(own - p_.window_right - off, Val<s32>(0))) / n)
                           : Val<u32>(0);
    const auto stop = (bits<u32>(end) + (n - 1)) / n;
    const auto count = select((stop > begin) & (own0 < kv.n_kv), stop - begin, Val<u32>(0));
    k_.loop(p_.group, [&](Val<u32> member) {
      const Sequence s = of_member(kv, member);
      const Shape shape(f_, p_, s, t_.type);
      const auto mq = q(s), mo = d_o(s);
      ring(
          begin, assume_uniform(count),
          [&](const Val<u32>& stage, const Val<u32>& stats, const Val<u32>& query0) {
            copier_.copy(mq, query0, other_, stage, 0);
            copier_.copy(mo, query0, other_, stage, other_.bytes());
            copy_stats(s, query0, stats, t_.columns);
          },
          [&](const Val<u32>& stage, const Val<u32>& stats, const Val<u32>& query0) {
            const TileCoordinate at{s, shape, warp_own, query0, row, query0 + origin_.col};
            const Ptr<shared, f32> lse(stats + origin_.col * 4u);
            // A pair of columns serves all rows: loaded once, where it is used.
            const auto pairs = [&](int first_column) {
              std::vector<RegGroup<f32, 2>> out;
              for (int j = 0; j < blocks_n(); ++j) out.push_back(lse.ld<2>(first_column / 2 + 4 * j));
              return out;
            };
            const auto raw = scores(0, stage);
            std::vector<Val<f32>> base;
            for (const auto& pair : pairs(0))
              for (int e = 0; e < 2; ++e) base.push_back(minus_lse(pair[e]));
            const auto of_column = [&](int i) { return std::size_t(column_of(i) / 8 * 2 + (i & 1)); };
            const auto p = probabilities(at, raw, [&](int i) { return base[of_column(i)]; });
            if (!makes_d_k()) return add(packed(p), 1, stage, d_v);
            const auto dp = scores(1, stage);
            const auto delta = pairs(t_.columns);
            const auto ds =
                gradients(at, raw, p, dp, [&](int i) { return delta[std::size_t(column_of(i) / 8)][i & 1]; });
            if (makes_d_v()) add(packed(p), 1, stage, d_v);  // not earlier: registers
            add(ds, 0, stage, d_k);
          });
    });
    const auto rows = memory_keys(kv);
    if (makes_d_k())
      store(g_.d_k, rows_of(kv, kv.head_kv, kv.first_kv, p_.k_batch, p_.k_head, p_.k_row), p_.k_row, row,
            rows, kv.n_kv, p_.d_qk, p_.scale, d_k);
    if (makes_d_v())
      store(g_.d_v, rows_of(kv, kv.head_kv, kv.first_kv, p_.v_batch, p_.v_head, p_.v_row), p_.v_row, row,
            rows, kv.n_kv, p_.d_v, Val<f32>(1.0f), d_v);
  }

  // Rows below `rows`; those from `zero_from` on as zeros.
  void store(const Val<u64>& address, const Val<u64>& offset, const Val<u64>& pitch, const Val<u32>& row,
             const Val<u32>& rows, const Val<u32>& zero_from, const Val<u32>& cols, const Val<f32>& scale,
             const Accumulators& sum) {
    for (int r = 0; r < t_.rows; r += 8) {
      const auto at = row + std::uint32_t(r);
      const auto factor = f_.key_lengths ? select(at < zero_from, scale, Val<f32>(0)) : scale;
      store_row(w_, Out<T>(address).at(offset + to<u64>(at) * pitch).template as<b32>(), at < rows, cols,
                t_.d_qk / 8, [&](int block) {
                  const auto& of_block = sum[std::size_t(r / 16 * (t_.d_qk / 8) + block)];
                  const int i = r / 8 % 2 * 2;
                  const Floats pair{of_block[i] * factor, of_block[i + 1] * factor};
                  return dsl::pack<T>(pair[0], pair[1]);
                });
    }
  }

  Kernel& k_;
  const AttentionBackwardConfig& t_;
  const AttentionFeatures& f_;
  const AttentionParams& p_;
  const GradientParams& g_;
  Wanted wanted_;
  bool keys_;
  int own_rows_;
  TileLayout own_, other_;
  Cta cta_;
  Warp w_;
  Val<u32> thread_;
  TileCopier copier_;
  AccOrigin origin_;
  Val<u32> own_at_, stages_, stats_;
  DynWarpOperand<T> own_part_, other_part_, other_transposed_;
};

// Threads of a row hold 8 columns each.
template <class T>
void delta_kernel(Kernel& k, AttentionBackwardConfig c, AttentionParams p, GradientParams g) {
  k.block(kWarps * 32);
  auto w = k.warp();
  const int each = delta_threads(c.d_qk);
  const auto id = k.ctaid_x() * std::uint32_t(kWarps * 32 / each) + k.tid() / std::uint32_t(each);
  const auto column = k.tid() % std::uint32_t(each) * 8u;
  const auto known = dsl::min(id, p.tiles - 1);
  const auto row = known % p.n_q, bh = known / p.n_q;
  const Sequence s = sequence(c.features, p, bh / p.heads_q, bh % p.heads_q);
  const auto there = (id < p.tiles) & (row < s.n_q);
  const auto all = row_product<T>(w, columns_of(p, g.d_o, s, row, column, there), each);
  Out<f32>(g.delta)
      .at(to<u64>(s.batch) * p.lse_batch + to<u64>(s.head) * p.lse_head + wide_index(s.first_q))
      .st_if(there & (column == 0u), row, all);
}
template <Wanted W, class T>
void sums_kernel(Kernel& k, AttentionBackwardConfig c, AttentionParams p, GradientParams g) {
  k.block(kWarps * 32);
  BackwardMma<T>(k, c, p, g, W).run();
}
template <Wanted W>
Variant sums_variant(const AttentionBackwardConfig& c) {
  return c.type == DType::f16 ? variant(c.name(), 80, sums_kernel<W, f16>, c)
                              : variant(c.name(), 80, sums_kernel<W, bf16>, c);
}

}  // namespace

Variant attention_backward_mma_variant(const AttentionBackwardConfig& c) {
  switch (c.step) {
    case BackwardStep::delta:
      return c.type == DType::f16 ? variant(c.name(), 80, delta_kernel<f16>, c)
                                  : variant(c.name(), 80, delta_kernel<bf16>, c);
    case BackwardStep::queries:
      return sums_variant<Wanted::d_q>(c);
    case BackwardStep::keys:
      return sums_variant<Wanted::d_k_and_d_v>(c);
    case BackwardStep::d_k:
      return sums_variant<Wanted::d_k>(c);
    case BackwardStep::d_v:
      return sums_variant<Wanted::d_v>(c);
    default:
      throw Unsupported(text::cat(c.name(), ": mma has no such step"));
  }
}

std::vector<AttentionBackwardConfig> attention_backward_mma(DType type, int d,
                                                            const AttentionBackwardTuning& tune,
                                                            const AttentionFeatures& f) {
  std::vector<AttentionBackwardConfig> all;
  const auto add = [&](BackwardStep step, int rows, int columns) {
    all.push_back({.type = type,
                   .kind = AttentionKind::mma,
                   .step = step,
                   .d_qk = d,
                   .d_v = d,
                   .rows = rows,
                   .columns = columns,
                   .features = f});
  };
  add(BackwardStep::delta, 0, 0);
  add(BackwardStep::queries, tune.query_rows, tune.query_columns);
  if (d <= 128) {
    add(BackwardStep::keys, tune.key_rows, tune.key_columns);
  } else {
    add(BackwardStep::d_k, tune.key_rows, tune.key_columns);
    add(BackwardStep::d_v, tune.key_rows, tune.key_columns);
  }
  return all;
}

}  // namespace cgp::kernels
