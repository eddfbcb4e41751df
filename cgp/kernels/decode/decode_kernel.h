// SPDX-License-Identifier: Apache-2.0
#pragma once
// decode: attention of few queries over pages with mma.sync, from global memory straight into the registers of the
// products. decode_combine.h has how results of warps and blocks are combined.
//   who      a warp multiplies up to 16 rows (queries of one key head) with tiles of 16 keys; the warps of a
//            block take tiles one after the other, `splits` blocks share a sequence (split-KV)
//   memory   a sum has no order, so lanes read the 16 bytes that suit them: of k, four lanes read 64 bytes of a
//            key; of v, eight lanes read 128 bytes of a key. The next tile's keys are under way while this one's
//            are multiplied. Nothing passes through shared memory
//   8 rows   and fewer are the columns of o' = v' p', where p' is what a thread holds of the scores: half of the
//            sums and of the products
//   sync     warps meet once at the end; blocks count up, and the last combines (counters are left at 0)
//   clusters the same products from rings of tiles in shared memory, a ring for each warp: cp.async has 96 or
//            192 KB of an SM's keys under way from the beginning; blocks of a cluster send each other what they
//            add up, and nothing passes through global memory
//   rows     with ContiguousKv, keys and values lie in rows instead of pages; always with a cluster
//   cascades of what sequences have in common each warp of a block multiplies 16 rows of its own with all the
//            block's tiles, in such rings on sm_90; what sequences have alone is multiplied as without
//   needs    sm_80, 8-bit pages sm_90; d a multiple of 8; for rings of 64, of rows in memory also of 16 up to 112
#include <algorithm>
#include <optional>

#include "cgp/dsl/memory/atomic.h"
#include "cgp/dsl/mma/mma.h"
#include "cgp/dsl/pipeline/async_stages.h"
#include "cgp/dsl/pipeline/cluster.h"
#include "cgp/dsl/sync/sync.h"
#include "cgp/kernels/attention/attention_score.h"
#include "cgp/kernels/decode/decode_params.h"
#include "cgp/kernels/kv_cache/kv_words.h"

namespace cgp::kernels::decode_impl {

using namespace dsl;
using attention_impl::inverse_or_zero, attention_impl::kNever, attention_impl::log_sum;
using kv_impl::load8;

template <class T, class Page>
class Decode {
 public:
  using C = std::conditional_t<Page::bits == 8, f16, T>;  // what is multiplied
  using Words = std::vector<Val<b32>>;
  using Floats = std::vector<Val<f32>>;

  /// `kv`: of keys and values that lie in rows.
  Decode(Kernel& k, const DecodeConfig& c, const DecodeParams& p, const ContiguousKv* kv = nullptr)
      : k_(k),
        t_(c),
        d_(c.d),
        width_((c.d + 63) / 64 * 64),
        p_(p),
        kv_(kv),
        cta_(k.cta()),
        w_(k.warp()),
        lane_(w_.lane()),
        quad_(lane_ & 3u),
        group_(lane_ >> 2u),
        ring_(t_.cluster ? k.smem(t_.warps * ring_bytes(), 128) : 0),
        out_(t_.cluster ? Ptr<shared, f32>(k.smem_addr(ring_)) : k.shared<f32>(t_.warps * out_pitch())),
        stats_(k.shared<f32>(t_.warps * kRows * 2)) {}

  void run() {
    if (t_.cascade) return run_cascade();
    if (t_.cluster) return run_cluster();
    const auto split = t_.one_split ? Val<u32>(0) : k_.ctaid_x();
    const auto batch = k_.ctaid_z(), item = k_.ctaid_y();  // item: key head and block of rows
    const auto head = item % p_.heads_kv, rows0 = item / p_.heads_kv * std::uint32_t(kRows);
    const auto length = dsl::assume_uniform(In<u32>(p_.lengths, 0, !t_.pdl).ld(batch));
    const auto tiles = (length + (kKeys - 1)) / std::uint32_t(kKeys);
    const Where where{batch, head, rows0, length, rows()};
    const auto begin = t_.window_left ? first_tile(where, tiles) : Val<u32>(0);
    const auto share = t_.one_split     ? tiles
                       : t_.window_left ? (tiles - begin + p_.splits - 1) / p_.splits
                                        : (tiles + p_.splits - 1) / p_.splits;
    const auto own = t_.window_left ? begin + split * share : split * share;
    const auto from = t_.one_split ? begin : dsl::min(own, tiles);
    const auto to = t_.one_split ? tiles : dsl::min(from + share, tiles);
    run_tiles(where, from, to, split, item);
  }

 private:
  /// `rows` from rows0: of one sequence, or of several neighbours that share these keys, `length` many.
  struct Where {
    Val<u32> batch, head, rows0, length, rows;
  };
  void run_tiles(const Where& where, const Val<u32>& from, const Val<u32>& to, const Val<u32>& split,
                 const Val<u32>& item) {
    const auto q = queries(where);
    const auto seen = limits(where);
    const auto start = from + k_.warp_index();
    auto state = State{Floats(std::size_t(halves()), Val<f32>(kNever)),
                       Floats(std::size_t(halves()), Val<f32>(0)), accumulator()};
    const auto step = Val<u32>(std::uint32_t(t_.warps));
    if (width_ <= 128) {
      auto done = k_.loop(
          range(start, to, step), std::tuple(std::move(state), load_keys(where, start, to)),
          [&](Val<u32> tile, std::tuple<State, std::vector<Words>> now) {
            const auto v = load_values(where, tile);
            const auto next = load_keys(where, tile + step, to);
            return std::tuple(
                multiply(
                    where, seen, tile, 1, q, [&](int block) { return std::get<1>(now)[std::size_t(block)]; },
                    [&](int, int part) { return v[std::size_t(part)]; }, std::move(std::get<0>(now))),
                next);
          });
      finish(where, split, item, std::get<0>(done));
    } else {
      auto done = k_.loop(range(start, to, step), std::move(state), [&](Val<u32> tile, State now) {
        const auto there = place(where, tile, tile < to);
        return multiply(
            where, seen, tile, 1, q, [&](int block) { return load_keys(where, tile, there, block); },
            [&](int, int part) { return load_values(where, tile, there, part); }, std::move(now));
      });
      finish(where, split, item, done);
    }
  }
  // ------------------------------------------------------------ cascades
  // `share` neighbouring sequences begin with the same shared[] tokens. The first blocks multiply those with
  // the rows of as many of the neighbours as fit, the others a sequence's own tokens with its rows. What they
  // have is combined as if they had split the keys of each sequence.
  void run_cascade() {
    const auto id = k_.ctaid_x();
    const auto common = assume_uniform(id < p_.shared_blocks);
    const auto index = select(common, id, id - p_.shared_blocks);
    const auto splits = select(common, p_.shared_splits, p_.splits);
    const auto split = index % splits, unit = index / splits, head = unit % p_.heads_kv,
               part = unit / p_.heads_kv;
    const auto units_of_group = (p_.share + p_.members - 1) / p_.members;  // of a group's rows
    const auto group = select(common, part / units_of_group, part / p_.share),
               inside = part % units_of_group * p_.members;
    const auto first = select(common, group * p_.share + inside, part);
    const auto members =
        select(common, dsl::min(dsl::min(p_.members, p_.share - inside), p_.batch - first), Val<u32>(1));
    k_.if_(assume_uniform(first < p_.batch), [&] {
      const auto tokens = [&](const Val<u64>& list, const Val<u32>& i) {
        return assume_uniform(In<u32>(list, 0, !t_.pdl).ld(i));
      };
      const auto together = tokens(p_.shared, group) / std::uint32_t(kKeys);  // tiles
      const auto length = select(common, together * std::uint32_t(kKeys), tokens(p_.lengths, first));
      const auto begin = select(common, Val<u32>(0), together);
      const auto end = dsl::max((length + (kKeys - 1)) / std::uint32_t(kKeys), begin);
      const auto slot = select(common, p_.splits + split, split);
      if (!t_.cluster) {
        const auto each = (end - begin + splits - 1) / splits;
        const auto from = dsl::min(begin + split * each, end), to = dsl::min(from + each, end);
        return run_tiles({first, head, Val<u32>(0), length, members * rows()}, from, to, slot, Val<u32>(0));
      }
      // Of what is common every warp has 16 rows of its own, which meet the tiles of all warps; of a
      // sequence's own tokens each warp has its tiles, as without a cascade.
      const Val<u32> item(0), warps(std::uint32_t(t_.warps)), warp = k_.warp_index();
      const auto own = select(common, warp * std::uint32_t(kRows), Val<u32>(0));
      const Where where{first, head, own, length, members * rows()};
      const auto q = queries(where);
      const auto seen = limits(where);
      k_.if_(
          common,
          [&] {
            leave(ring(where, seen, q, split * warps, end, splits * warps, std::nullopt, true));
            publish(where, slot, item, [&](const auto& r, const auto& x) { return of_one_warp(r, x); });
          },
          [&] {
            leave(ring(where, seen, q, begin + split + warp * splits, end, splits * warps, std::nullopt,
                       false));
            publish(where, slot, item, [&](const auto& r, const auto& x) { return of_all_warps(r, x); });
          });
      combine_slots(where, item, members);
    });
  }
  /// Blocks that have a part of a sequence's result.
  Val<u32> slots() const { return t_.cascade ? p_.splits + p_.shared_splits : p_.splits; }
  /// The number of what blocks share, of row r.
  Val<u32> shared_index(const Where& at, const Val<u32>& item, const Val<u32>& member) const {
    return t_.cascade ? (at.batch + member) * p_.heads_kv + at.head : at.batch * p_.items + item;
  }
  /// `there` and, where rows of memory end before that, column first + offset of the `count` from `first` on.
  Val<pred> in_row(const Val<pred>& there, const Val<u32>& offset, int first, int count) const {
    return first + count <= d_ ? there : there & (offset + std::uint32_t(first) < std::uint32_t(d_));
  }
  struct Row {
    Val<u32> batch, head, query;
  };
  /// `r` is below at.rows.
  Row locate(const Where& at, const Val<u32>& r) const {
    const auto of_one = t_.cascade ? r % rows() : r;
    return {t_.cascade ? at.batch + r / rows() : at.batch, at.head * p_.group + of_one % p_.group,
            of_one / p_.group};
  }
  /// Row r of a half sees the keys below this.
  Val<s32> limit(const Where& at, int half) const {
    if (t_.contiguous && !t_.causal) return bits<s32>(at.length);
    const auto row_of = locate(at, dsl::min(row(at, half), at.rows - 1));
    const auto length = t_.cascade ? In<u32>(p_.lengths, 0, !t_.pdl).ld(row_of.batch) : at.length;
    return bits<s32>(length) - bits<s32>(p_.n_q) + bits<s32>(row_of.query) + 1;
  }
  using State = std::tuple<Floats, Floats, std::vector<Floats>>;  // max, sum, blocks of 16 x 8 of o, or of o'
  int halves() const { return t_.rows16 ? 2 : 1; }
  /// Of a block, at most.
  int block_rows() const { return t_.cascade && t_.cluster ? kRows * t_.warps : kRows; }
  int pitch() const {
    return width_ + 1;
  }  ///< of o in shared memory: rows of a quad, columns of a lane group
  /// Of a warp's o there, in elements. In a cluster it takes the place of the warp's keys.
  int out_pitch() const { return t_.cluster ? ring_bytes() / 4 : kRows * pitch(); }
  int page_bytes() const { return Page::bits / 8; }

  std::vector<Floats> accumulator() {
    std::vector<Floats> o;
    for (int j = 0; j < width_ / (t_.rows16 ? 8 : 16); ++j) o.push_back(Floats(4, Val<f32>(0)));
    return o;
  }
  /// Row r of a half sees keys from first (where there is a window) to end.
  struct Limits {
    std::vector<Val<s32>> end, first;
  };
  Limits limits(const Where& at) const {
    Limits all;
    for (int half = 0; half < halves(); ++half) {
      all.end.push_back(limit(at, half));
      if (!t_.window_left) continue;
      const auto query = locate(at, dsl::min(row(at, half), at.rows - 1)).query;
      all.first.push_back(aligned(at, query) - window_left());
    }
    return all;
  }
  Val<u32> row(const Where& at, int half) const { return at.rows0 + group_ + std::uint32_t(8 * half); }
  Val<u32> rows() const { return p_.group * p_.n_q; }

  /// Four words of a half's row: columns 8 t to 8 t + 7 of a chunk of 32.
  using Four = std::function<std::array<Val<b32>, 4>(int half, int chunk)>;
  // Where there are registers they stay there. Wide rows of both halves are in shared memory, as lanes read
  // them.
  Four queries(const Where& at) {
    if (!t_.rows16 || width_ <= 128) {
      std::vector<std::array<Val<b32>, 4>> words;
      for (int half = 0; half < halves(); ++half)
        for (int c = 0; c < width_ / 32; ++c) words.push_back(load_queries(at, half, c));
      return [this, words](int half, int c) { return words[std::size_t(half * width_ / 32 + c)]; };
    }
    const int words = 2 * width_ / 32 * 128, of = block_rows() / kRows;
    const auto of_warp = of > 1 ? k_.warp_index() * std::uint32_t(words) : Val<u32>(0);
    const auto shared = k_.shared<b32>(of * words, 16).at(lane_ * 4u + of_warp);
    k_.if_(
        assume_uniform(of > 1 ? k_.warp_index() < std::uint32_t(of) : k_.warp_index() == 0u, Uniform::warp),
        [&] {
          for (int half = 0; half < 2; ++half)
            for (int c = 0; c < width_ / 32; ++c) {
              const auto w = load_queries(at, half, c);
              shared.template st<4>((half * width_ / 32 + c) * 32, RegGroup<b32, 4>(w[0], w[1], w[2], w[3]));
            }
        });
    k_.sync();
    return [this, shared](int half, int c) -> std::array<Val<b32>, 4> {
      const auto w = shared.template ld<4>((half * width_ / 32 + c) * 32);
      return {w[0], w[1], w[2], w[3]};
    };
  }
  std::array<Val<b32>, 4> load_queries(const Where& at, int half, int c) {
    const auto r = row(at, half);
    const auto there = locate(at, dsl::min(r, at.rows - 1));
    const auto base = to<u64>(there.batch) * p_.q_batch + to<u64>(there.head) * p_.q_head +
                      to<u64>(there.query) * p_.q_row + to<u64>(quad_ * 8u);
    const auto eight = load8<T>(In<T>(p_.q).at(base).at(32 * c).address(),
                                in_row(r < at.rows, quad_ * 8u, 32 * c, 32), !t_.pdl);
    return {as_multiplied(eight[0]), as_multiplied(eight[1]), as_multiplied(eight[2]),
            as_multiplied(eight[3])};
  }
  Val<b32> as_multiplied(const Val<b32>& word) {
    if constexpr (std::is_same_v<C, T>) {
      return word;
    } else {
      const auto two = unpack<T>(word);
      return dsl::pack<C>(dsl::to<f32>(two[0]), dsl::to<f32>(two[1]));
    }
  }

  // Address of the first element of a tile's keys (values: the other half of the page), and whether it is
  // there.
  struct TilePlace {
    Val<u64> address;
    Val<pred> there;
  };
  TilePlace place(const Where& at, const Val<u32>& tile, const Val<pred>& wanted) {
    const auto key = tile * std::uint32_t(kKeys), column = key / p_.page_size;
    const auto inside = wanted & (column < p_.columns);
    const auto page = bits<u32>(
        In<s32>(p_.table, 0, true)
            .ld_if(inside, to<u64>(at.batch) * to<u64>(p_.columns) + to<u64>(column), Val<s32>(-1))[0]);
    const auto there = inside & (page < p_.page_count);
    k_.if_(wanted & !there, [&] { red<relaxed, gpu, op::max>(Out<u32>(p_.error_flag), 0, at.batch + 1); });
    const auto per_page = to<u64>(p_.page_size) * std::uint64_t(d_);
    const auto element = (to<u64>(page) * 2u * to<u64>(p_.heads_kv) + to<u64>(at.head)) * per_page +
                         to<u64>(key % p_.page_size) * std::uint64_t(d_);
    return {p_.pool + element * std::uint64_t(page_bytes()), there};
  }
  std::vector<Words> load_keys(const Where& at, const Val<u32>& tile, const Val<u32>& end) {
    const auto p = place(at, tile, tile < end);
    std::vector<Words> w;
    for (int block = 0; block < 2; ++block) w.push_back(load_keys(at, tile, p, block));
    return w;
  }
  /// Of a block of 8 keys.
  Words load_keys(const Where& at, const Val<u32>& tile, const TilePlace& p, int block) {
    const auto key = group_ + std::uint32_t(8 * block);
    const auto there = p.there & (tile * std::uint32_t(kKeys) + key < at.length);
    const auto base =
        p.address + to<u64>((key * std::uint32_t(d_) + quad_ * 8u) * std::uint32_t(page_bytes()));
    Words w;
    for (int c = 0; c < width_ / 32; ++c) {
      const auto eight = load8<Page>(base + std::uint64_t(32 * c * page_bytes()),
                                     in_row(there, quad_ * 8u, 32 * c, 32), !t_.pdl);
      for (int i = 0; i < 4; ++i) w.push_back(eight[i]);
    }
    return w;
  }
  std::vector<Words> load_values(const Where& at, const Val<u32>& tile) {
    const auto p = place(at, tile, tile == tile);
    std::vector<Words> w;
    for (int part = 0; part < width_ / 64; ++part) w.push_back(load_values(at, tile, p, part));
    return w;
  }
  /// 64 columns of 16 keys.
  Words load_values(const Where& at, const Val<u32>& tile, const TilePlace& p, int part) {
    const auto values = p.address + to<u64>(p_.heads_kv * p_.page_size) * std::uint64_t(d_ * page_bytes());
    Words w;
    for (int n = 0; n < 4; ++n) {
      const auto key = quad_ * 2u + std::uint32_t(n % 2 + n / 2 * 8);
      const auto there = p.there & (tile * std::uint32_t(kKeys) + key < at.length);
      const auto offset =
          (key * std::uint32_t(d_) + group_ * 8u + std::uint32_t(64 * part)) * std::uint32_t(page_bytes());
      const auto eight =
          load8<Page>(values + to<u64>(offset), in_row(there, group_ * 8u, 64 * part, 64), !t_.pdl);
      for (int i = 0; i < 4; ++i) w.push_back(eight[i]);
    }
    return w;
  }

  // ------------------------------------------------------------ clusters
  // A warp's tiles of keys and values go into shared memory by cp.async, so many ahead that an SM has all it
  // needs under way from the beginning: which tiles are a warp's does not depend on the length. Rows lie at
  // 16 bytes exchanged by their number, so that lanes find keys and values in different banks.
  /// Of rows, zeros fill what is multiplied and not there.
  int row_bytes() const { return (kv_ ? width_ : d_) * page_bytes(); }
  int row_chunks() const { return row_bytes() / 16; }
  int half_bytes() const { return kKeys * row_bytes(); }  ///< a tile's keys, or its values
  int stages() const {
    const int room = (k_.sm() >= 120 ? 64 : t_.smem_kb) * 1024;
    return std::clamp(room / (t_.warps * 2 * half_bytes()), 1, 6);
  }
  int tiles_bytes() const { return stages() * 2 * half_bytes(); }
  int ring_bytes() const {  ///< of a warp: tiles, then o
    return (std::max(tiles_bytes(), 8 * halves() * pitch() * 4) + 127) / 128 * 128;
  }
  /// What is added (without carry) to the number of 16 bytes of a row; itself sums without carry.
  template <class Row>
  Row exchange(const Row& row) const {
    if (row_chunks() < 8) return row & Row(2);
    return (row & Row(7)) ^ ((row & Row(1)) << 2u);
  }

  void run_cluster() {
    std::optional<ClusterArrived> started;
    if (t_.cluster > 1) started.emplace(cluster_arrive(cta_));
    const auto blocks = std::uint32_t(t_.cluster), step = blocks * std::uint32_t(t_.warps);
    const auto batch = t_.sliced ? k_.ctaid_z() % p_.batch : k_.ctaid_z(), item = k_.ctaid_y();
    const auto head = item % p_.heads_kv, rows0 = item / p_.heads_kv * std::uint32_t(kRows);
    const auto own = k_.ctaid_x() + k_.warp_index() * blocks;
    if (kv_)
      return run_rows({batch, head, rows0, length_of(batch), rows()}, own, step, item, std::move(started));
    std::optional<Pages> pages;
    if (!t_.window_left) pages = first_pages(batch, own, Val<u32>(step));
    const auto length = dsl::assume_uniform(In<u32>(p_.lengths, 0, !t_.pdl).ld(batch));
    const auto tiles = (length + (kKeys - 1)) / std::uint32_t(kKeys);
    const Where where{batch, head, rows0, length, rows()};
    const auto start = t_.window_left ? first_tile(where, tiles) + own : own;
    const auto q = queries(where);
    const auto seen = limits(where);
    const auto done = ring(where, seen, q, start, tiles, Val<u32>(step), std::move(pages), false);
    if (started) std::move(*started).wait(cta_);
    finish(where, Val<u32>(0), item, done);
  }
  // ------------------------------------------------------------ keys and values in rows
  Val<u32> length_of(const Val<u32>& batch) {
    if (!t_.key_lengths) return kv_->n_kv;
    return dsl::min(dsl::assume_uniform(In<u32>(p_.lengths, 0, !t_.pdl).ld(batch)), kv_->n_kv);
  }
  /// Which of the clusters that share a sequence's keys this is.
  Val<u32> slice() { return k_.ctaid_z() / p_.batch; }
  /// The key that query `query` is aligned with.
  Val<s32> aligned(const Where& at, const Val<u32>& query) const {
    return bits<s32>(at.length) - bits<s32>(p_.n_q) + bits<s32>(query);
  }
  const Val<s32>& window_left() const { return kv_ ? kv_->window_left : p_.window_left; }
  /// The first tile that a query of the block's rows sees through its window.
  Val<u32> first_tile(const Where& where, const Val<u32>& tiles) const {
    const auto key = aligned(where, where.rows0 / p_.group) - window_left();
    return dsl::min(bits<u32>(dsl::max(key, Val<s32>(0))) / std::uint32_t(kKeys), tiles);
  }
  /// Tiles own, own + step, ... behind those that no query of the block's rows sees.
  void run_rows(const Where& where, const Val<u32>& own, std::uint32_t step, const Val<u32>& item,
                std::optional<ClusterArrived> started) {
    const auto tiles = (where.length + (kKeys - 1)) / std::uint32_t(kKeys);
    const auto begin = t_.window_left ? first_tile(where, tiles) : Val<u32>(0);
    const auto count = tiles - begin;
    const auto start = (t_.sliced ? begin + count * slice() / kv_->slices : begin) + own;
    const auto end = t_.sliced ? begin + count * (slice() + 1u) / kv_->slices : tiles;
    const auto q = queries(where);
    const auto seen = limits(where);
    const auto done = ring(where, seen, q, start, end, Val<u32>(step),
                           Pages(std::size_t(stages() + 1), Val<u32>(0)), false);
    if (started) std::move(*started).wait(cta_);
    finish(where, Val<u32>(0), item, done);
  }

  using Pages = std::vector<Val<u32>>;  ///< of the tiles of all stages, and of the one behind them
  Pages first_pages(const Val<u32>& batch, const Val<u32>& start, const Val<u32>& step) {
    Pages pages;
    for (int s = 0; s <= stages(); ++s) pages.push_back(page_of(batch, start + std::uint32_t(s) * step));
    return pages;
  }
  /// Every `step`th tile from `start` to `end`, which a warp multiplies alone; `together`: `start` is the
  /// block's, its warps bring a tile each, and each of them multiplies all.
  State ring(const Where& where, const Limits& seen, const Four& q, const Val<u32>& start,
             const Val<u32>& end, const Val<u32>& step, std::optional<Pages> known, bool together) {
    const auto warp = k_.warp_index();
    const auto of_warp = together ? warp : Val<u32>(0);  // tiles from the first of a round
    const auto pages = known ? std::move(*known) : first_pages(where.batch, start + of_warp, step);
    AsyncStages staged(k_, k_.smem_addr(ring_) + warp * std::uint32_t(ring_bytes()), stages(),
                       2 * half_bytes());
    for (int s = 0; s < stages(); ++s)
      fill(where, start + of_warp + std::uint32_t(s) * step, end, pages[std::size_t(s)], staged.stage(s));
    const auto next = [&](const Val<u32>& tile) {
      const auto later = tile + of_warp + std::uint32_t(stages()) * step;
      return std::pair(later, page_of(where.batch, later + step));
    };
    // Tiles of several warps in one go where there are registers: one maximum, one scaling for all.
    const int tiles = !together ? 1 : width_ <= 128 ? t_.warps : 1;
    const auto body = [&](const Val<u32>& offset, const Val<u32>& tile, State state) {
      const auto some = [&](const Val<u32>& first, State now) {
        const auto from =
            (together ? k_.smem_addr(ring_) + first * std::uint32_t(ring_bytes()) : staged.base()) + offset;
        std::vector<std::function<Words(int)>> keys, values;
        for (int t = 0; t < tiles; ++t) {
          keys.push_back(shared_keys(from + std::uint32_t(t * ring_bytes())));
          values.push_back(shared_values(from + std::uint32_t(t * ring_bytes())));
        }
        return multiply(
            where, seen, tile + first, tiles, q,
            [&](int block) { return keys[std::size_t(block / 2)](block % 2); },
            [&](int t, int part) { return values[std::size_t(t)](part); }, std::move(now));
      };
      return together && tiles < t_.warps
                 ? k_.loop(Val<u32>(std::uint32_t(t_.warps)), std::move(state),
                           [&](Val<u32> w, State s) { return some(w, std::move(s)); })
                 : some(Val<u32>(0), std::move(state));
    };
    auto done = staged.loop(
        range(start, end, step),
        State{Floats(std::size_t(halves()), Val<f32>(kNever)), Floats(std::size_t(halves()), Val<f32>(0)),
              accumulator()},
        pages.back(), next, [&] { together ? k_.sync() : w_.sync(); }, body,
        [&](const Val<u32>& tile, const Val<u32>& page, const Val<u32>& to_bytes) {
          fill(where, tile, end, page, to_bytes);
        });
    w_.sync();
    return done;
  }
  Val<u32> page_of(const Val<u32>& batch, const Val<u32>& tile) {
    if (kv_) return Val<u32>(0);
    const auto column = tile * std::uint32_t(kKeys) / p_.page_size;
    return bits<u32>(In<s32>(p_.table, 0, true)
                         .ld_if(column < p_.columns, to<u64>(batch) * to<u64>(p_.columns) + to<u64>(column),
                                Val<s32>(-1))[0]);
  }
  /// Asks for the keys and values of a tile: what is not there becomes 0.
  void fill(const Where& at, const Val<u32>& tile, const Val<u32>& tiles, const Val<u32>& page,
            const Val<u32>& to_bytes) {
    if (kv_) return fill_rows(at, tile, tiles, to_bytes);
    const auto wanted = tile < tiles, there = wanted & (page < p_.page_count);
    k_.if_(wanted & !there, [&] { red<relaxed, gpu, op::max>(Out<u32>(p_.error_flag), 0, at.batch + 1); });
    const auto rows = select(there, at.length - tile * std::uint32_t(kKeys), Val<u32>(0));
    const auto per_page = to<u64>(p_.page_size) * std::uint64_t(row_bytes());
    const auto from =
        p_.pool +
        (to<u64>(select(there, page, Val<u32>(0))) * 2u * to<u64>(p_.heads_kv) + to<u64>(at.head)) *
            per_page +
        to<u64>(tile * std::uint32_t(kKeys) % p_.page_size * std::uint32_t(row_bytes()) + lane_ * 16u);
    const std::uint32_t chunks = std::uint32_t(row_chunks()),
                        together = 32 / chunks;  // rows of a copy of the warp
    const auto row = lane_ / chunks;
    const auto chunk = ((lane_ % chunks) ^ exchange(row)) * 16u;
    const auto first = to_bytes + row * std::uint32_t(row_bytes());
    for (int part = 0; part < 2; ++part)
      for (std::uint32_t i = 0; i < chunks / 2; ++i) {
        const auto source = part ? from + to<u64>(p_.heads_kv) * per_page : from;
        cp_async_zfill<16>(Ptr<shared, b8>(first + (chunk ^ (exchange(i * together) * 16u)),
                                           part * half_bytes() + int(i * together) * row_bytes()),
                           In<b8>(source, std::int64_t(i) * 512),
                           select(row + i * together < rows, Val<u32>(16), Val<u32>(0)));
      }
    cp_async_commit(k_);
  }
  void fill_rows(const Where& at, const Val<u32>& tile, const Val<u32>& tiles, const Val<u32>& to_bytes) {
    const auto rows = select(tile < tiles, at.length - tile * std::uint32_t(kKeys), Val<u32>(0));
    const std::uint32_t chunks = std::uint32_t(row_chunks()), together = 32 / chunks;
    const auto row = lane_ / chunks;
    const auto chunk = ((lane_ % chunks) ^ exchange(row)) * 16u;
    const auto first = to_bytes + row * std::uint32_t(row_bytes());
    const auto column_bytes = lane_ % chunks * 16u;
    const auto key = to<u64>(tile * std::uint32_t(kKeys) + row), column = to<u64>(column_bytes);
    const auto inside = [&](const Val<pred>& there) {
      return width_ == d_ ? there : there & (column_bytes < std::uint32_t(d_ * page_bytes()));
    };
    for (int part = 0; part < 2; ++part) {
      const auto &base = part ? kv_->v : p_.pool, &batch = part ? kv_->v_batch : kv_->k_batch,
                 &head = part ? kv_->v_head : kv_->k_head, &pitch = part ? kv_->v_row : kv_->k_row;
      const auto element = to<u64>(at.batch) * batch + to<u64>(at.head) * head + key * pitch;
      std::vector<Val<u64>> from{base + element * std::uint64_t(page_bytes()) + column};
      const auto next = pitch * std::uint64_t(together * std::uint32_t(page_bytes()));
      for (std::uint32_t i = 0; i < chunks / 2; ++i) {
        if (i) from.push_back(from.back() + next);
        cp_async_zfill<16>(Ptr<shared, b8>(first + (chunk ^ (exchange(i * together) * 16u)),
                                           part * half_bytes() + int(i * together) * row_bytes()),
                           In<b8>(from.back()),
                           select(inside(row + i * together < rows), Val<u32>(16), Val<u32>(0)));
      }
    }
    cp_async_commit(k_);
  }
  /// As load_keys and load_values give them.
  std::function<Words(int)> shared_keys(const Val<u32>& tile) {
    const auto inside = quad_ * std::uint32_t(8 * page_bytes());
    const auto chunk = inside ^ (exchange(group_) * 16u);
    const auto first = tile + group_ * std::uint32_t(row_bytes());
    return [=, this](int block) {
      Words w;
      for (int c = 0; c < width_ / 32; ++c) {
        const auto eight = load8<Page>(Ptr<shared, b32>(
            first + (chunk ^ std::uint32_t(32 * c * page_bytes())), 8 * block * row_bytes()));
        for (int i = 0; i < 4; ++i) w.push_back(eight[i]);
      }
      return w;
    };
  }
  std::function<Words(int)> shared_values(const Val<u32>& tile) {
    const auto chunk = (group_ * std::uint32_t(8 * page_bytes())) ^ (exchange(quad_ * 2u) * 16u);
    const auto first = tile + quad_ * std::uint32_t(2 * row_bytes());
    return [=, this](int part) {
      Words w;
      for (std::uint32_t n = 0; n < 4; ++n) {
        const auto other = exchange(n % 2) * 16u ^ std::uint32_t(64 * part * page_bytes());
        const auto eight = load8<Page>(
            Ptr<shared, b32>(first + (chunk ^ other), half_bytes() + int(n % 2 + n / 2 * 8) * row_bytes()));
        for (int i = 0; i < 4; ++i) w.push_back(eight[i]);
      }
      return w;
    };
  }
  /// Every block sends each of the others the columns that it adds up.
  template <class Block>
  void combine_cluster(const Where& at, Block&& block);

  using Rows = FragA<C, 16, 16>;
  using Columns = FragB<C, 16, 8>;
  using AccBlock = FragC<f32, 16, 8>;
  /// tanh to f32 accuracy (tanh.approx has 11 bits): 1 - 2 / (1 + 2^y).
  Val<f32> capped(const Val<f32>& score) const {
    if (!t_.soft_cap) return score;
    const auto e = ex2<approx, ftz>(score * p_.soft_cap_unit);
    return fma(rcp<approx, ftz>(e + 1.0f), -2.0f, Val<f32>(1.0f)) * p_.soft_cap;
  }
  void product(std::vector<Value> a, std::vector<Value> b, AccBlock& c) {
    c = mma(w_, Rows(std::move(a)), Columns(std::move(b)), std::move(c));
  }
  template <class Join>
  static Val<f32> joined(const Floats& x, Join&& join, std::size_t from, std::size_t count) {
    if (count == 1) return x[from];
    return join(joined(x, join, from, count / 2), joined(x, join, from + count / 2, count / 2));
  }
  // `tiles` neighbours. keys(block) of 8, values(tile, part) of 64 columns, are asked for where they are
  // multiplied: wide heads have no registers for all of them.
  template <class K, class V>
  State multiply(const Where& at, const Limits& limits, const Val<u32>& tile, int tiles, const Four& q,
                 K&& keys, V&& values, State now) {
    const Val<b32> none(k_.copy(Value::literal(0, ptx::Mod::b32)));
    std::vector<AccBlock> s;
    for (int block = 0; block < 2 * tiles; ++block) {
      s.emplace_back(zeros<f32, 16, 8>(w_).values());
      const Words words = keys(block);
      for (int c = 0; c < width_ / 32; ++c) {
        std::vector<std::array<Val<b32>, 4>> rows;
        for (int half = 0; half < halves(); ++half) rows.push_back(q(half, c));
        for (int step = 0; step < 2; ++step) {
          const auto word = [&](int half, int i) -> Value {
            return half < halves() ? Value(rows[std::size_t(half)][std::size_t(2 * step + i)]) : Value(none);
          };
          const std::size_t b = std::size_t(4 * c + 2 * step);
          product({word(0, 0), word(1, 0), word(0, 1), word(1, 1)}, {words[b], words[b + 1]}, s.back());
        }
      }
    }
    Floats max, sum, scale;
    std::vector<Floats> e;  // of a half: blocks of 2 keys
    for (int half = 0; half < halves(); ++half) {
      const std::size_t h = std::size_t(half);
      Floats seen;
      for (int i = 0; i < 4 * tiles; ++i) {
        const auto key = tile * std::uint32_t(kKeys) + quad_ * 2u + std::uint32_t(i / 2 * 8 + i % 2);
        const Val<f32> x = capped(s[std::size_t(i / 2)][2 * half + i % 2]);
        const auto before_end = (bits<s32>(key) < limits.end[h]) & (key < at.length);
        const auto inside = t_.window_left ? before_end & (bits<s32>(key) >= limits.first[h]) : before_end;
        seen.push_back(select(inside, x, Val<f32>(kNever)));
      }
      const auto most = [](const Val<f32>& a, const Val<f32>& b) { return dsl::max(a, b); };
      max.push_back(most(std::get<0>(now)[h], reduce(w_, joined(seen, most, 0, seen.size()), most, 4)));
      const auto base = select(max[h] == kNever, Val<f32>(0), max[h]) * p_.scale_log2;
      scale.push_back(ex2<approx, ftz>(fma(std::get<0>(now)[h], p_.scale_log2, -base)));
      Floats probabilities;
      for (const auto& x : seen) probabilities.push_back(ex2<approx, ftz>(fma(x, p_.scale_log2, -base)));
      const auto plus = [](const Val<f32>& a, const Val<f32>& b) { return a + b; };
      sum.push_back(fma(std::get<1>(now)[h], scale[h], joined(probabilities, plus, 0, probabilities.size())));
      e.push_back(std::move(probabilities));
    }
    std::vector<std::vector<Value>> packed;  // of a half, of a block
    for (const auto& x : e) {
      packed.emplace_back();
      for (std::size_t i = 0; i < x.size(); i += 2) packed.back().push_back(dsl::pack<C>(x[i], x[i + 1]));
    }
    // Columns 64 part + 8 n + j of lane group n: two keys in one register.
    const auto pair = [&](const Words& words, int j, int first) -> Value {
      const std::size_t w = std::size_t(first * 4 + j / 2);
      return prmt(words[w], words[w + 4], j % 2 ? 0x7632 : 0x5410);
    };
    // 8 rows: they are the columns of o'.
    const auto of_row = [&](std::uint32_t i) { return shfl<idx>(w_, scale[0], quad_ * 8u + i * 4u); };
    const auto by = [&]() -> Floats {  // what an accumulator's registers are scaled by
      if (t_.rows16) return {scale[0], scale[0], scale[1], scale[1]};
      const auto even = of_row(0), odd = of_row(1);
      return {even, odd, even, odd};
    }();
    const int step = t_.rows16 ? 1 : 2;
    std::vector<Floats> o;
    for (int part = 0; part < width_ / 64; ++part) {
      std::vector<AccBlock> totals;
      for (int j = 0; j < 8; j += step) {
        const auto& before = std::get<2>(now)[o.size() + totals.size()];
        std::vector<Value> scaled;
        for (std::size_t i = 0; i < 4; ++i) scaled.push_back(k_.copy(before[i] * by[i]));
        totals.emplace_back(std::move(scaled));
      }
      for (int t = 0; t < tiles; ++t) {
        const Words v = values(t, part);
        const auto p = [&](std::size_t half, int block) { return packed[half][std::size_t(2 * t + block)]; };
        for (int j = 0; j < 8; j += step) {
          AccBlock& c = totals[std::size_t(j / step)];
          if (t_.rows16)
            product({p(0, 0), p(1, 0), p(0, 1), p(1, 1)}, {pair(v, j, 0), pair(v, j, 2)}, c);
          else
            product({pair(v, j, 0), pair(v, j + 1, 0), pair(v, j, 2), pair(v, j + 1, 2)}, {p(0, 0), p(0, 1)},
                    c);
        }
      }
      for (const auto& c : totals) o.push_back(Floats{c[0], c[1], c[2], c[3]});
    }
    return State{max, sum, std::move(o)};
  }

  // ------------------------------------------------------------ results
  void finish(const Where& at, const Val<u32>& split, const Val<u32>& item, const State& done) {
    leave(done);
    const auto block = [&](const Val<u32>& r, const Val<u32>& x) { return of_all_warps(r, x); };
    if (t_.cluster > 1) return combine_cluster(at, block);
    if (t_.one_split)
      return each(at, d_, [&](const auto& r, const auto& x) { store(at, r, x, block(r, x)); });
    publish(at, split, item, block);
    combine_slots(at, item, t_.cascade ? at.rows / rows() : Val<u32>(1));
  }
  /// What warps have goes into shared memory.
  void leave(const State& done);
  struct Result {
    Val<f32> max, sum, o;
  };
  Val<f32> left_max(const Val<u32>& r, int w) const { return stats_.ld((r + std::uint32_t(w * kRows)) * 2u); }
  Val<f32> left_sum(const Val<u32>& r, int w) const {
    return stats_.ld((r + std::uint32_t(w * kRows)) * 2u + 1u);
  }
  /// Of the rows that all warps have.
  Result of_all_warps(const Val<u32>& r, const Val<u32>& x) {
    std::vector<Val<f32>> m;
    for (int w = 0; w < t_.warps; ++w) m.push_back(left_max(r, w));
    const auto max = most_of(m);
    std::vector<Val<f32>> sum, o;
    for (int w = 0; w < t_.warps; ++w) {
      const auto scale = weight(m[std::size_t(w)], max);
      const auto l = left_sum(r, w) * scale;
      const auto v = out_.at(w * out_pitch()).ld(r * std::uint32_t(pitch()) + x) * scale;
      sum.push_back(w ? sum.back() + l : l);
      o.push_back(w ? o.back() + v : v);
    }
    return {max, sum.back(), o.back()};
  }
  /// Where every warp has rows of its own.
  Result of_one_warp(const Val<u32>& r, const Val<u32>& x) {
    const auto warp = r / std::uint32_t(kRows), row = r % std::uint32_t(kRows);
    return {left_max(r, 0), left_sum(r, 0),
            out_.ld(warp * std::uint32_t(out_pitch()) + row * std::uint32_t(pitch()) + x)};
  }

  Val<u32> results() const { return t_.cascade ? p_.batch * p_.heads_kv : k_.nctaid_z() * p_.items; }
  Out<f32> slot_stats() const { return Out<f32>(p_.workspace + std::uint64_t(4 * kCounters)); }
  Out<f32> slot_values() const {
    return slot_stats().at(to<u64>(results() * slots()) * std::uint64_t(2 * kRows));
  }
  Val<u64> slot(const Where& at, const Val<u32>& item, const Val<u32>& member, const Val<u32>& s) const {
    return to<u64>(shared_index(at, item, member) * slots() + s);
  }
  /// A block's part goes into its slots of the workspace.
  template <class Block>
  void publish(const Where& at, const Val<u32>& split, const Val<u32>& item, Block&& block);
  /// The last block to come here combines all slots of a sequence.
  void combine_slots(const Where& at, const Val<u32>& item, const Val<u32>& members);
  // Columns x to x + 3 of all blocks' partial results. Those of a dozen are on their way together, since what
  // passes here is latency.
  void combine(const Where& at, const Out<f32>& stats, const Out<f32>& partial, const Val<u64>& slot0,
               const Val<u32>& r, const Val<u32>& x);
  static Val<f32> most_of(const std::vector<Val<f32>>& m) {
    std::vector<Val<f32>> chain{m[0]};
    for (std::size_t i = 1; i < m.size(); ++i) chain.push_back(dsl::max(chain.back(), m[i]));
    return chain.back();
  }
  // 2^((m - max) scale), 0 where nothing was seen.
  Val<f32> weight(const Val<f32>& m, const Val<f32>& max) {
    return select(m == kNever, Val<f32>(0), ex2<approx, ftz>((m - max) * p_.scale_log2));
  }

  template <class F>
  void each(const Where& at, int columns, F&& f) {
    const auto n = dsl::min(at.rows, Val<u32>(std::uint32_t(block_rows()))) * std::uint32_t(columns);
    k_.loop(range(k_.tid(), n, Val<u32>(std::uint32_t(32 * t_.warps))),
            [&](Val<u32> e) { f(e / std::uint32_t(columns), e % std::uint32_t(columns)); });
  }
  void store(const Where& at, const Val<u32>& r, const Val<u32>& x, const Result& b) {
    const auto there = at.rows0 + r < at.rows;
    const auto row = locate(at, at.rows0 + r);
    if (t_.sliced) return store_slice(row, there, x, b);
    const auto place =
        to<u64>(row.batch) * p_.o_batch + to<u64>(row.head) * p_.o_head + to<u64>(row.query) * p_.o_row;
    Out<T>(p_.o).st_if(there, place + to<u64>(x), dsl::to<T>(b.o * inverse_or_zero(b.sum) * p_.value_scale));
    if (t_.lse)
      Out<f32>(p_.lse).st_if(
          there & (x == 0u),
          (to<u64>(row.batch) * to<u64>(p_.heads_kv * p_.group) + to<u64>(row.head)) * to<u64>(p_.n_q) +
              to<u64>(row.query),
          log_sum(b.max, p_.scale_log2, b.sum));
  }

  void store_slice(const Row& row, const Val<pred>& there, const Val<u32>& x, const Result& b) {
    const auto head = (slice() * p_.batch + row.batch) * (p_.heads_kv * p_.group) + row.head;
    const auto place = to<u64>(head) * to<u64>(p_.n_q) + to<u64>(row.query);
    Out<f32>(kv_->partial_o)
        .st_if(there, place * std::uint64_t(d_) + to<u64>(x), b.o * inverse_or_zero(b.sum));
    Out<f32>(kv_->partial_lse).st_if(there & (x == 0u), place, log_sum(b.max, p_.scale_log2, b.sum));
  }

  Kernel& k_;
  DecodeConfig t_;
  int d_;      ///< columns of a row in memory
  int width_;  ///< of what is multiplied: a multiple of 64, zeros from column d_ on
  const DecodeParams& p_;
  const ContiguousKv* kv_;
  Cta cta_;
  Warp w_;
  Val<u32> lane_, quad_, group_;
  int ring_;
  Ptr<shared, f32> out_, stats_;
};

}  // namespace cgp::kernels::decode_impl
