// SPDX-License-Identifier: Apache-2.0
// attention mma: tensor cores through mma.sync, for sm_80 and everything later.
//   who      4 warps own 16 queries each of a tile of 64; tiles of 64 keys (32 where heads are wide)
//   memory   q once, k and v in two stages of cp.async; rows and columns outside a sequence are filled with
//            zeros, so that nothing behind it matters; scores and accumulators stay in registers
//   sync     one block barrier per tile of keys
//   needs    sm_80; f16 or bf16; rows at multiples of 16 bytes
#include "cgp/dsl/mma/mma.h"
#include "cgp/dsl/pipeline/async.h"
#include "cgp/kernels/attention/attention_quad.h"
#include "cgp/kernels/attention/attention_score.h"

namespace cgp::kernels {
namespace {

using namespace attention_parts;

constexpr int kRows = 64;

template <class T, int D>
class ForwardMma {
 public:
  static constexpr int kKeys = D <= 128 ? 64 : 32, kChunk = D < 64 ? D : 64;
  using QTile = dsl::Tile<T, kRows, D>;
  using KTile = dsl::Tile<T, kKeys, D>;
  using Scores = WarpAcc<f32, 16, kKeys>;
  using Output = std::vector<WarpAcc<f32, 16, kChunk>>;
  using Pair = std::array<Val<f32>, 2>;
  using State = std::tuple<Pair, Pair, Output>;  // maxima, sums, output

  ForwardMma(Kernel& k, const AttentionFeatures& f, const AttentionParams& p)
      : k_(k), f_(f), p_(p), cta_(k.cta()), w_(k.warp()) {}

  void run() {
    const auto bh = k_.ctaid_x() % p_.pairs, tile = p_.tiles_m - 1 - k_.ctaid_x() / p_.pairs;
    const Sequence s = sequence(f_, p_, bh / p_.heads_q, bh % p_.heads_q);
    const auto m0 = tile * std::uint32_t(kRows);
    k_.if_(m0 < s.n_q, [&] { rows(s, assume_uniform(m0)); });
  }

 private:
  template <class TileT>
  TileSource<TileT> source(const Val<u64>& base, const Val<u64>& offset, const Val<u64>& row,
                           const Val<u32>& rows, const Val<u32>& cols) {
    return TileSource<TileT>(cta_, In<T>(base, 0, true).at(offset), to<u32>(row), rows, cols);
  }

  void rows(const Sequence& s, const Val<u32>& m0) {
    const auto q_src = source<QTile>(p_.q, rows_of(s, s.head, s.first_q, p_.q_batch, p_.q_head, p_.q_row),
                                     p_.q_row, s.n_q, p_.d_qk);
    const auto k_src = source<KTile>(p_.k, rows_of(s, s.head_kv, s.first_kv, p_.k_batch, p_.k_head, p_.k_row),
                                     p_.k_row, s.n_kv, p_.d_qk);
    const auto v_src = source<KTile>(p_.v, rows_of(s, s.head_kv, s.first_kv, p_.v_batch, p_.v_head, p_.v_row),
                                     p_.v_row, s.n_kv, p_.d_v);
    const auto q = shared_tile<QTile>(k_);
    AsyncRing<KTile, KTile> ring(k_, 2);
    q_src.copy(q, m0, Val<u32>(0));
    cp_async_commit(k_);

    const auto origin = accumulator_origin(w_);
    const auto row = m0 + w_.index * 16u + origin.row;
    const Shape shape(f_, p_, s, std::is_same_v<T, bf16> ? DType::bf16 : DType::f16);
    const std::array<Bounds, 2> limit{bounds(f_, p_, s, row), bounds(f_, p_, s, row + 8)};
    WarpA<QTile, 16> q_part(w_, w_.index * 16u);
    WarpB<KTile, kKeys> k_part(w_, Val<u32>(0));
    std::vector<WarpB<KTile, kChunk, Major::mn>> v_part;
    for (int c = 0; c < D; c += kChunk) v_part.emplace_back(w_, Val<u32>(std::uint32_t(c)));

    // Tiles of keys that some row may see.
    const auto first = bounds(f_, p_, s, m0).first,
               last = bounds(f_, p_, s, dsl::min(m0 + (kRows - 1), s.n_q - 1)).end;
    const auto begin = f_.window_left ? assume_uniform(bits<u32>(first) / std::uint32_t(kKeys)) : Val<u32>(0);
    const auto end =
        assume_uniform((bits<u32>(dsl::max(last, Val<s32>(0))) + (kKeys - 1)) / std::uint32_t(kKeys));
    const auto count = select(end > begin, end - begin, Val<u32>(0));

    Output zero;
    for (int c = 0; c < D; c += kChunk) zero.push_back(zeros<f32, 16, kChunk>(w_));
    auto done = ring.loop(
        cta_, assume_uniform(count), State{Pair{kNever, kNever}, Pair{0.0f, 0.0f}, std::move(zero)},
        [&](auto& stage, const Val<u32>& i) {
          const auto key = (begin + i) * std::uint32_t(kKeys);
          stage.template copy<0>(k_src, key, Val<u32>(0));
          stage.template copy<1>(v_src, key, Val<u32>(0));
        },
        [&](const auto& stage, const Val<u32>& i, State now) {
          auto raw = multiply(w_, zeros<f32, 16, kKeys>(w_), q_part, q, k_part, stage.template get<0>());
          const auto key0 = (begin + i) * std::uint32_t(kKeys) + origin.col;
          auto scores = shaped(std::move(raw), shape, row, key0, limit);
          const auto c = exponent_scale(f_, p_);
          const Pair max = row_max(scores, std::get<0>(now));
          std::vector<Val<f32>> base, scale;
          for (std::size_t h = 0; h < 2; ++h) {
            base.push_back(select(max[h] == kNever, Val<f32>(0), max[h]) * c);
            scale.push_back(ex2<approx, ftz>(fma(std::get<0>(now)[h], c, -base[h])));
          }
          auto e = std::move(scores).map_rows([&](const Val<f32>& x, int half) {
            return ex2<approx, ftz>(fma(x, c, -base[std::size_t(half)]));
          });
          const Pair sum = row_sum(e, std::get<1>(now), scale);
          Output o;
          for (auto& part : std::get<2>(now))
            o.push_back(std::move(part).map_rows(
                [&](const Val<f32>& x, int half) { return x * scale[std::size_t(half)]; }));
          add_values(e, stage.template get<1>(), v_part, o);
          return State{max, sum, std::move(o)};
        });
    finish(s, row, origin.col, done);
  }

  Scores shaped(Scores raw, const Shape& shape, const Val<u32>& row, const Val<u32>& key0,
                const std::array<Bounds, 2>& limit) {
    int i = 0;
    return std::move(raw).map_rows([&](const Val<f32>& x, int half) {
      const auto key = key0 + std::uint32_t(8 * (i >> 2) + (i & 1));
      ++i;
      const auto at = bits<s32>(key);
      const Bounds& l = limit[std::size_t(half)];
      const auto below = at < l.end, inside = f_.window_left ? below & (at >= l.first) : below;
      return select(inside, shape(x, row + std::uint32_t(8 * half), key), Val<f32>(kNever));
    });
  }
  template <class F>
  Pair fold(const Scores& s, F&& f) {
    const auto one = [&](int half) {
      std::vector<Val<f32>> chain;
      for (int i = 0; i < Scores::count; ++i)
        if (((i >> 1) & 1) == half) chain.push_back(chain.empty() ? s[i] : f(chain.back(), s[i]));
      return chain.back();
    };
    return {one(0), one(1)};
  }
  Pair row_max(const Scores& s, const Pair& before) {
    const auto most = [](const Val<f32>& a, const Val<f32>& b) { return dsl::max(a, b); };
    const Pair of_thread = fold(s, most);
    return {dsl::max(before[0], reduce(w_, of_thread[0], most, 4)),
            dsl::max(before[1], reduce(w_, of_thread[1], most, 4))};
  }
  Pair row_sum(const Scores& e, const Pair& before, const std::vector<Val<f32>>& scale) {
    const Pair of_thread = fold(e, [](const Val<f32>& a, const Val<f32>& b) { return a + b; });
    return {fma(before[0], scale[0], of_thread[0]), fma(before[1], scale[1], of_thread[1])};
  }
  // o += p v: the accumulator of the scores is, packed, operand A.
  void add_values(const Scores& e, const SmemTile<KTile>& v,
                  const std::vector<WarpB<KTile, kChunk, Major::mn>>& part, Output& o) {
    std::vector<TileLanes> lanes;
    for (const auto& p : part) lanes.push_back(p.lanes(v));
    for (int step = 0; step < kKeys / 16; ++step) {
      std::vector<Value> words;
      for (int j = 0; j < 8; j += 2) words.push_back(dsl::pack<T>(e[8 * step + j], e[8 * step + j + 1]));
      const std::vector<FragA<T, 16, 16>> rows{FragA<T, 16, 16>(std::move(words))};
      Output next;
      for (std::size_t c = 0; c < o.size(); ++c)
        next.push_back(dsl::multiply(w_, std::move(o[c]), rows, part[c], lanes[c], step));
      o.swap(next);
    }
  }

  void finish(const Sequence& s, const Val<u32>& row, const Val<u32>& col, const State& done) {
    const auto plus = [](const Val<f32>& a, const Val<f32>& b) { return a + b; };
    const auto quad = w_.lane() & 3u;
    for (std::size_t h = 0; h < 2; ++h) {
      const auto sum = reduce(w_, std::get<1>(done)[h], plus, 4);
      const auto r = row + std::uint32_t(8 * h);
      const auto there = r < s.n_q;
      if (f_.lse)
        lse_row(p_, s).st_if(there & (col == 0u), r,
                             log_sum(std::get<0>(done)[h], exponent_scale(f_, p_), sum));
      const auto inverse = inverse_or_zero(sum);
      const auto base =
          Out<T>(p_.o)
              .at(rows_of(s, s.head, s.first_q, p_.o_batch, p_.o_head, p_.o_row) + to<u64>(r) * p_.o_row)
              .template as<b32>()
              .at(quad * 4u);
      for (int j = 0; j < D / 8; j += 4) {
        const auto& part = std::get<2>(done)[std::size_t(8 * j / kChunk)];
        const auto word = [&](int b) {
          const int i = (j % (kChunk / 8) + b) * 4 + 2 * int(h);
          return dsl::pack<T>(part[i] * inverse, part[i + 1] * inverse);
        };
        const auto words = exchange_in_quad(w_, {word(0), word(1), word(2), word(3)});
        base.template st_if<4>(there & (quad * 8u + std::uint32_t(8 * j) < p_.d_v), j, words);
      }
    }
  }

  Kernel& k_;
  const AttentionFeatures& f_;
  const AttentionParams& p_;
  Cta cta_;
  Warp w_;
};

template <class T, int D>
void attention_mma_kernel(Kernel& k, AttentionConfig c, AttentionParams p) {
  k.block(128);
  ForwardMma<T, D>(k, c.features, p).run();
}

template <class T>
Variant make(const AttentionConfig& c) {
  switch (c.d_qk) {
    case 32:
      return variant(c.name(), 80, attention_mma_kernel<T, 32>, c);
    case 64:
      return variant(c.name(), 80, attention_mma_kernel<T, 64>, c);
    case 128:
      return variant(c.name(), 80, attention_mma_kernel<T, 128>, c);
    case 192:
      return variant(c.name(), 80, attention_mma_kernel<T, 192>, c);
    case 256:
      return variant(c.name(), 80, attention_mma_kernel<T, 256>, c);
    default:
      throw Unsupported(text::cat("attention mma: no tile for head dimensions of ", c.d_qk));
  }
}

}  // namespace

Variant attention_mma(const AttentionConfig& c) {
  return c.type == DType::f16 ? make<f16>(c) : make<bf16>(c);
}

}  // namespace cgp::kernels
