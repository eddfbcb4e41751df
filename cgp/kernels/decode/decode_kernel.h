// SPDX-License-Identifier: Apache-2.0
#pragma once
// decode: attention over pages with mma.sync, from global memory straight into the registers of the products.
//   who      a warp multiplies up to 16 rows (queries of one key head) with tiles of 16 keys; the warps of a
//            block take tiles in turn, `splits` blocks share a sequence
//   memory   both products may take their sums in any order, so lanes read the 16 bytes that suit them: of k,
//            four lanes read 64 bytes of a key; of v, eight lanes read 128 bytes of a key. The next tile's
//            keys are under way while this one's are multiplied. Nothing passes through shared memory
//   8 rows   and fewer are the columns of o' = v' p', where p' is what a thread holds of the scores: half of
//            the sums and of the products
//   sync     warps meet once at the end; blocks count up, and the last combines (counters are left at 0)
//   clusters the same products from rings of tiles in shared memory, a ring for each warp: cp.async has 96 or
//            192 KB of an SM's keys under way from the beginning; blocks of a cluster send each other what
//            they add up, and nothing passes through global memory
//   cascades of what sequences have in common each warp of a block multiplies 16 rows of its own with all the
//            block's tiles, in such rings on sm_90; what sequences have alone is multiplied as without
//   needs    sm_80, 8-bit pages sm_90; d a multiple of 8, of 64 for keys in shared memory
#include <algorithm>
#include <optional>

#include "cgp/dsl/memory/atomic.h"
#include "cgp/dsl/mma/mma.h"
#include "cgp/dsl/pipeline/async.h"
#include "cgp/dsl/pipeline/cluster.h"
#include "cgp/dsl/sync/sync.h"
#include "cgp/kernels/attention/attention_score.h"
#include "cgp/kernels/decode/decode_params.h"
#include "cgp/kernels/kv_cache/kv_words.h"

namespace cgp::kernels::decode_parts {

using namespace dsl;
using attention_parts::inverse_or_zero, attention_parts::kNever, attention_parts::log_sum;
using kv_parts::load8;

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
    const auto share = t_.one_split ? tiles : (tiles + p_.splits - 1) / p_.splits;
    const auto from = t_.one_split ? Val<u32>(0) : dsl::min(split * share, tiles);
    const auto to = t_.one_split ? tiles : dsl::min(from + share, tiles);
    run_tiles({batch, head, rows0, length, rows()}, from, to, split, item);
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
    const auto mine = select(common, id, id - p_.shared_blocks);
    const auto splits = select(common, p_.shared_splits, p_.splits);
    const auto split = mine % splits, unit = mine / splits, head = unit % p_.heads_kv,
               part = unit / p_.heads_kv;
    const auto parts = (p_.share + p_.members - 1) / p_.members;  // of a group's rows
    const auto group = select(common, part / parts, part / p_.share), inside = part % parts * p_.members;
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
      all.first.push_back(aligned(at, query) - kv_->window_left);
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
    const auto mine = of > 1 ? k_.warp_index() * std::uint32_t(words) : Val<u32>(0);
    const auto shared = k_.shared<b32>(of * words, 16).at(lane_ * 4u + mine);
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
  int row_bytes() const { return d_ * page_bytes(); }
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
    const auto batch = k_.ctaid_z(), item = k_.ctaid_y();
    const auto head = item % p_.heads_kv, rows0 = item / p_.heads_kv * std::uint32_t(kRows);
    const auto own = k_.ctaid_x() + k_.warp_index() * blocks;
    if (kv_)
      return run_rows({batch, head, rows0, length_of(batch), rows()}, own, step, item, std::move(started));
    auto pages = first_pages(batch, own, Val<u32>(step));
    const auto length = dsl::assume_uniform(In<u32>(p_.lengths, 0, !t_.pdl).ld(batch));
    const auto tiles = (length + (kKeys - 1)) / std::uint32_t(kKeys);
    const Where where{batch, head, rows0, length, rows()};
    const auto q = queries(where);
    const auto seen = limits(where);
    const auto done = ring(where, seen, q, own, tiles, Val<u32>(step), std::move(pages), false);
    if (started) std::move(*started).wait(cta_);
    finish(where, Val<u32>(0), item, done);
  }
  // ------------------------------------------------------------ keys and values in rows
  Val<u32> length_of(const Val<u32>& batch) {
    if (!t_.key_lengths) return kv_->n_kv;
    return dsl::min(dsl::assume_uniform(In<u32>(p_.lengths, 0, !t_.pdl).ld(batch)), kv_->n_kv);
  }
  /// The key that query `query` is aligned with.
  Val<s32> aligned(const Where& at, const Val<u32>& query) const {
    return bits<s32>(at.length) - bits<s32>(p_.n_q) + bits<s32>(query);
  }
  /// Tiles own, own + step, ... behind those that no query of the block's rows sees.
  void run_rows(const Where& where, const Val<u32>& own, std::uint32_t step, const Val<u32>& item,
                std::optional<ClusterArrived> started) {
    const auto tiles = (where.length + (kKeys - 1)) / std::uint32_t(kKeys);
    const auto first = [&] {
      const auto key = aligned(where, where.rows0 / p_.group) - kv_->window_left;
      return dsl::min(bits<u32>(dsl::max(key, Val<s32>(0))) / std::uint32_t(kKeys), tiles);
    };
    const auto start = t_.window_left ? first() + own : own;
    const auto q = queries(where);
    const auto seen = limits(where);
    const auto done = ring(where, seen, q, start, tiles, Val<u32>(step),
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
    const auto mine = together ? warp : Val<u32>(0);  // tiles from the first of a round
    const auto pages = known ? std::move(*known) : first_pages(where.batch, start + mine, step);
    const auto base = k_.smem_addr(ring_) + warp * std::uint32_t(ring_bytes());
    const auto meet = [&] { together ? k_.sync() : w_.sync(); };
    for (int s = 0; s < stages(); ++s)
      fill(where, start + mine + std::uint32_t(s) * step, end, pages[std::size_t(s)],
           base + std::uint32_t(s * 2 * half_bytes()));
    const auto done =
        k_.loop(range(start, end, step),
                std::tuple(State{Floats(std::size_t(halves()), Val<f32>(kNever)),
                                 Floats(std::size_t(halves()), Val<f32>(0)), accumulator()},
                           Val<u32>(0), pages.back()),
                [&](Val<u32> tile, std::tuple<State, Val<u32>, Val<u32>> now) {
                  const auto at = std::get<1>(now), later = tile + mine + std::uint32_t(stages()) * step;
                  const auto page = page_of(where.batch, later + step);
                  cp_async_wait(k_, stages() - 1);
                  meet();
                  // Tiles of several warps in one go where there are registers: one maximum, one scaling for
                  // all.
                  const int tiles = !together ? 1 : width_ <= 128 ? t_.warps : 1;
                  const auto some = [&](const Val<u32>& first, State state) {
                    const auto from =
                        (together ? k_.smem_addr(ring_) + first * std::uint32_t(ring_bytes()) : base) + at;
                    std::vector<std::function<Words(int)>> keys, values;
                    for (int t = 0; t < tiles; ++t) {
                      keys.push_back(shared_keys(from + std::uint32_t(t * ring_bytes())));
                      values.push_back(shared_values(from + std::uint32_t(t * ring_bytes())));
                    }
                    return multiply(
                        where, seen, tile + first, tiles, q,
                        [&](int block) { return keys[std::size_t(block / 2)](block % 2); },
                        [&](int t, int part) { return values[std::size_t(t)](part); }, std::move(state));
                  };
                  auto state = together && tiles < t_.warps
                                   ? k_.loop(Val<u32>(std::uint32_t(t_.warps)), std::move(std::get<0>(now)),
                                             [&](Val<u32> w, State s) { return some(w, std::move(s)); })
                                   : some(Val<u32>(0), std::move(std::get<0>(now)));
                  meet();
                  fill(where, later, end, std::get<2>(now), base + at);
                  const auto after = at + std::uint32_t(2 * half_bytes());
                  return std::tuple(std::move(state),
                                    select(after == std::uint32_t(tiles_bytes()), Val<u32>(0), after), page);
                });
    cp_async_wait_all(k_);
    w_.sync();
    return std::get<0>(done);
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
    const auto key = to<u64>(tile * std::uint32_t(kKeys) + row), column = to<u64>(lane_ % chunks * 16u);
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
                           In<b8>(from.back()), select(row + i * together < rows, Val<u32>(16), Val<u32>(0)));
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
  void combine_cluster(const Where& at, Block&& block) {
    const auto blocks = std::uint32_t(t_.cluster), columns = std::uint32_t(d_) / blocks;
    const auto rank = k_.cluster_ctarank();
    const auto most = std::uint32_t(8 * halves());
    const auto parts = k_.shared<f32>(int(blocks * most * columns)),
               stats = k_.shared<f32>(int(blocks * most * 2));
    each(at, d_, [&](const Val<u32>& r, const Val<u32>& x) {
      const auto b = block(r, x);
      mapa(parts.at((rank * most + r) * columns + x % columns), x / columns).st(0, b.o);
      k_.if_(x % columns == 0u, [&] {
        mapa(stats.at((rank * most + r) * 2u), x / columns).template st<2>(0, RegGroup<f32, 2>(b.max, b.sum));
      });
    });
    cluster_sync(cta_);
    each(at, int(columns), [&](const Val<u32>& r, const Val<u32>& x) {
      std::vector<Val<f32>> max, sum, o;
      for (std::uint32_t b = 0; b < blocks; ++b) max.push_back(stats.ld((r + b * most) * 2u));
      const auto all = most_of(max);
      for (std::uint32_t b = 0; b < blocks; ++b) {
        const auto scale = weight(max[b], all);
        const auto l = stats.ld((r + b * most) * 2u + 1u) * scale,
                   v = parts.ld((r + b * most) * columns + x) * scale;
        sum.push_back(b ? sum.back() + l : l), o.push_back(b ? o.back() + v : v);
      }
      store(at, r, rank * columns + x, Result{all, sum.back(), o.back()});
    });
  }

  using Rows = FragA<C, 16, 16>;
  using Columns = FragB<C, 16, 8>;
  using Block = FragC<f32, 16, 8>;
  void product(std::vector<Value> a, std::vector<Value> b, Block& c) {
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
    std::vector<Block> s;
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
        const Val<f32> x = s[std::size_t(i / 2)][2 * half + i % 2];
        const auto below = (bits<s32>(key) < limits.end[h]) & (key < at.length);
        const auto inside = t_.window_left ? below & (bits<s32>(key) >= limits.first[h]) : below;
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
      std::vector<Block> sums;
      for (int j = 0; j < 8; j += step) {
        const auto& before = std::get<2>(now)[o.size() + sums.size()];
        std::vector<Value> scaled;
        for (std::size_t i = 0; i < 4; ++i) scaled.push_back(k_.copy(before[i] * by[i]));
        sums.emplace_back(std::move(scaled));
      }
      for (int t = 0; t < tiles; ++t) {
        const Words v = values(t, part);
        const auto p = [&](std::size_t half, int block) { return packed[half][std::size_t(2 * t + block)]; };
        for (int j = 0; j < 8; j += step) {
          Block& c = sums[std::size_t(j / step)];
          if (t_.rows16)
            product({p(0, 0), p(1, 0), p(0, 1), p(1, 1)}, {pair(v, j, 0), pair(v, j, 2)}, c);
          else
            product({pair(v, j, 0), pair(v, j + 1, 0), pair(v, j, 2), pair(v, j + 1, 2)}, {p(0, 0), p(0, 1)},
                    c);
        }
      }
      for (const auto& c : sums) o.push_back(Floats{c[0], c[1], c[2], c[3]});
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
  void leave(const State& done) {
    const auto warp = k_.warp_index();
    const auto mine = out_.at(warp * std::uint32_t(out_pitch()));
    for (int half = 0; half < halves(); ++half) {
      const auto r = group_ + std::uint32_t(8 * half);
      const auto sum = reduce(
          w_, std::get<1>(done)[std::size_t(half)],
          [](const Val<f32>& a, const Val<f32>& b) { return a + b; }, 4);
      k_.if_(quad_ == 0u, [&] {
        stats_.st((warp * std::uint32_t(kRows) + r) * 2u, std::get<0>(done)[std::size_t(half)]);
        stats_.st((warp * std::uint32_t(kRows) + r) * 2u + 1u, sum);
      });
      for (int j = 0; j < width_ / 8; ++j)
        for (int i = 0; i < 2; ++i) {
          const auto column = std::uint32_t(j / 8 * 64 + j % 8), one = std::uint32_t(i);
          if (t_.rows16)
            mine.st(r * std::uint32_t(pitch()) + (quad_ * 2u + one) * 8u + column,
                    std::get<2>(done)[std::size_t(j)][std::size_t(2 * half + i)]);
          else
            mine.st((quad_ * 2u + one) * std::uint32_t(pitch()) + group_ * 8u + column,
                    std::get<2>(done)[std::size_t(j / 2)][std::size_t(j % 2 * 2 + i)]);
        }
    }
    k_.sync();
  }
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
  void publish(const Where& at, const Val<u32>& split, const Val<u32>& item, Block&& block) {
    const auto stats = slot_stats(), values = slot_values();
    each(at, d_, [&](const auto& r, const auto& x) {
      const Result b = block(r, x);
      const auto there = slot(at, item, t_.cascade ? r / rows() : r, split);
      const auto row = t_.cascade ? r % rows() : r;
      values.st(there * std::uint64_t(kRows * d_) + to<u64>(row * std::uint32_t(d_) + x), b.o);
      k_.if_(x == 0u, [&] {
        stats.st(there * std::uint64_t(2 * kRows) + to<u64>(row * 2u), b.max);
        stats.st(there * std::uint64_t(2 * kRows) + to<u64>(row * 2u + 1u), b.sum);
      });
    });
  }
  /// The last block to come here combines all slots of a sequence.
  void combine_slots(const Where& at, const Val<u32>& item, const Val<u32>& members) {
    const Out<u32> counter(p_.workspace);
    const auto stats = slot_stats(), values = slot_values();
    const auto last = k_.shared<u32>(block_rows());
    fence<acq_rel, gpu>(k_);
    k_.sync();
    k_.if_(k_.tid() < members, [&] {
      const auto index = to<u64>(shared_index(at, item, k_.tid()));
      const auto is_last = atom<acq_rel, gpu, op::add>(counter, index, 1) == slots() - 1;
      last.st(k_.tid(), select(is_last, Val<u32>(1), Val<u32>(0)));
      k_.if_(is_last, [&] { counter.st(index, 0); });
    });
    k_.sync();
    const auto combined = [&](const Val<u32>& member, const Where& one) {
      k_.if_(assume_uniform(last.ld(member)) == 1u, [&] {
        fence<acq_rel, gpu>(k_);
        each(one, d_ / 4, [&](const Val<u32>& r, const Val<u32>& x) {
          combine(one, stats, values, slot(at, item, member, Val<u32>(0)), r, x * 4u);
        });
      });
    };
    if (!t_.cascade) return combined(Val<u32>(0), at);
    k_.loop(members, [&](Val<u32> m) {
      combined(m, Where{at.batch + m, at.head, Val<u32>(0), at.length, rows()});
    });
  }
  // Columns x to x + 3 of all blocks' partial results. Those of a dozen are on their way together, since what
  // passes here is latency.
  void combine(const Where& at, const Out<f32>& stats, const Out<f32>& partial, const Val<u64>& slot0,
               const Val<u32>& r, const Val<u32>& x) {
    constexpr std::uint32_t kTogether = 12;
    using S = std::tuple<Val<f32>, Val<f32>, Floats>;
    const auto done = k_.loop(
        range(Val<u32>(0), slots(), Val<u32>(kTogether)), S{kNever, 0.0f, Floats(4, Val<f32>(0))},
        [&](Val<u32> s0, S now) {
          std::vector<RegGroup<f32, 2>> of_row;
          std::vector<RegGroup<f32, 4>> values;
          for (std::uint32_t i = 0; i < kTogether; ++i) {
            const auto there = s0 + i < slots();
            const auto slot = slot0 + to<u64>(s0 + i);
            of_row.push_back(stats.at(slot * std::uint64_t(2 * kRows) + to<u64>(r * 2u))
                                 .template ld_if<2>(there, 0, Val<f32>(kNever)));
            values.push_back(partial.at(slot * std::uint64_t(kRows * d_) + to<u64>(r * std::uint32_t(d_) + x))
                                 .template ld_if<4>(there, 0, Val<f32>(0)));
          }
          std::vector<Val<f32>> max{std::get<0>(now)};
          for (const auto& m : of_row) max.push_back(dsl::max(max.back(), m[0]));
          const auto old = weight(std::get<0>(now), max.back());
          std::vector<Val<f32>> sum{std::get<1>(now) * old};
          std::vector<std::vector<Val<f32>>> o;
          for (std::size_t e = 0; e < 4; ++e) o.push_back({std::get<2>(now)[e] * old});
          for (std::uint32_t i = 0; i < kTogether; ++i) {
            const auto add = weight(of_row[i][0], max.back());
            sum.push_back(fma(select(add == 0.0f, Val<f32>(0), of_row[i][1]), add, sum.back()));
            for (int e = 0; e < 4; ++e)
              o[std::size_t(e)].push_back(fma(values[i][e], add, o[std::size_t(e)].back()));
          }
          return S{max.back(), sum.back(), Floats{o[0].back(), o[1].back(), o[2].back(), o[3].back()}};
        });
    for (std::uint32_t e = 0; e < 4; ++e)
      store(at, r, x + e, Result{std::get<0>(done), std::get<1>(done), std::get<2>(done)[e]});
  }
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

}  // namespace cgp::kernels::decode_parts
