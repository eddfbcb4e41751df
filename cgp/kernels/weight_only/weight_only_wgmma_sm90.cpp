// SPDX-License-Identifier: Apache-2.0
// weight_only with wgmma: y' = w x'.
//   who      a block has `warpgroups` x 64 columns of y for `rows` rows of x, a warp 16 columns of y: one tile of packed
//            weights, which its lanes decode into operand A while the tensor core multiplies the 64 of K before. One warp
//            of another warpgroup copies weights, one x
//   memory   packed weights by bulk copies, x by TMA as it lies in memory; x may be shared over a cluster (multicast)
//   split    the other axis of the cluster cuts K; each block adds up and stores a share of the sums, in the order of K
//   groups   a warp finds the group of the block's rows from the groups' ends; blocks that have none end at once
//   pdl      weights are under way before the work queued before has ended; x and y wait for it
//   results  f32 sums transposed through the memory of the ring of x, stored 16 bytes at a time
//   persistent   blocks walk over tiles of y: while a warp stores its results, by stmatrix through 2 KB of its own, copies of the
//            next tile are under way. Tiles of eight rows of tiles follow each other by columns, so that L2 serves
//            weights and x again
//   needs    sm_90a
#include <algorithm>
#include <array>
#include <optional>

#include "cgp/dsl/core/kernel_params.h"
#include "cgp/dsl/memory/ldmatrix.h"
#include "cgp/dsl/mma/wgmma.h"
#include "cgp/dsl/pipeline/bulk_ring.h"
#include "cgp/kernels/activation/activation_code.h"
#include "cgp/kernels/schedule/grouped_tiles.h"
#include "cgp/kernels/weight_only/weight_only_fragments.h"
#include "cgp/kernels/weight_only/weight_only_wgmma.h"
#include "cgp/kernels/weight_only/weight_only_wgmma_params.h"

namespace cgp::kernels {
namespace {

using namespace dsl;
using weight_only_impl::PairTable;
using weight_only_impl::WeightTile;

/// 256 of K of a warp's 16 rows of weights; 64 of them, scaled, are operand A.
template <class T>
class ScaledWeights {
  using Pair = typename WeightTile<T>::Pair;

 public:
  ScaledWeights(const WeightLayout& l, int terms, const Val<u32>& base, const Val<u32>& lane,
                const std::optional<PairTable>& pairs)
      : l_(l), terms_(std::is_same_v<T, bf16> ? terms : 1) {
    for (int step = 0; step < 4; ++step) {
      steps_.push_back(steps_.empty() ? WeightTile<T>(l, base, lane, pairs) : steps_.back());
      steps_.back().load(step);
    }
  }

  RegOperand<T, 64, 64> step(int step) {
    const auto& tile = steps_[std::size_t(step)];
    std::vector<Value> out;
    std::vector<Factors> f;
    for (int at = 0; at < 64; at += 16) {
      if (at % l_.group == 0) {
        f.clear();
        for (int h = 0; h < 2; ++h) f.push_back(factors(tile, at / l_.group, h));
      }
      std::vector<std::vector<Val<Pair>>> rows;
      for (int h = 0; h < 2; ++h) {
        rows.emplace_back();
        for (const auto& q : tile.integers(at / 32, h, at % 32 / 16))
          rows.back().push_back(scaled(q, f[std::size_t(h)]));
      }
      for (int i = 0; i < 2; ++i)
        for (int h = 0; h < 2; ++h) out.push_back(bits<b32>(rows[std::size_t(h)][std::size_t(i)]));
    }
    return RegOperand<T, 64, 64>(std::move(out));
  }

 private:
  /// Of a row in a group, each twice in a register: the terms of the scale, and of the negated minimum.
  struct Factors {
    std::vector<Val<Pair>> scale, less;
  };
  std::vector<Val<Pair>> both(const Val<f32>& v) const {
    const auto first = pack<T>(v, v);
    std::vector<Val<Pair>> out{bits<Pair>(first)};
    if (terms_ == 2) {
      const auto rest = v - bits<f32>(first & Val<b32>(0xffff0000u));
      out.push_back(bits<Pair>(pack<T>(rest, rest)));
    }
    return out;
  }
  Factors factors(const WeightTile<T>& tile, int group, int h) const {
    Factors f;
    if constexpr (std::is_same_v<T, f16>)
      if (tile.has_half_factors()) {
        const auto made = tile.half_factors(group, h);
        f.scale.push_back(made[0]);
        if (made.size() > 1) f.less.push_back(made[1]);
        return f;
      }
    f.scale = both(tile.scale(group, h));
    if (l_.has_min) f.less = both(-tile.minimum(group, h));
    return f;
  }
  Val<Pair> scaled(const Val<Pair>& q, const Factors& f) const {
    if (f.less.empty()) {
      if (terms_ == 1) return q * f.scale[0];
      return fma(q, f.scale[0], q * f.scale[1]);
    }
    const auto v = fma(q, f.scale[0], f.less[0]);
    return terms_ == 1 ? v : v + fma(q, f.scale[1], f.less[1]);
  }
  const WeightLayout& l_;
  int terms_;
  std::vector<WeightTile<T>> steps_;  ///< all 256 of K, in registers
};

/// The rows of x and y of a tile, from `first` to `end`, and their weight.
struct TileRows {
  Val<u32> first, end;
  Val<u64> w;
};
struct FoundRows {
  TileRows rows;
  std::optional<Val<pred>> there;  ///< of groups
};
FoundRows rows_of_tile(Kernel& k, const WeightWgmmaConfig& c, int rows, const WeightWgmmaParams<Val>& p,
                       Warp& warp, const Val<u32>& tile, Uniform over) {
  if (!c.grouped) return {{tile * std::uint32_t(rows), p.m, p.w}, {}};
  GroupWalk walk(k, RaggedRows{{In<u32>(p.ends, 0, false), p.wide_ends, p.groups, p.m}, Val<u32>(1), rows},
                 over);
  const auto found = walk.find(warp, tile);
  const auto start = found.tile.held[0];
  return {{start + found.tile.number * std::uint32_t(rows), start + found.tile.held[1],
           p.w + to<u64>(found.tile.group) * p.w_bytes},
          found.there};
}
/// Of a block that has one tile.
TileRows rows_of_block(Kernel& k, const WeightWgmmaConfig& c, int rows, const WeightWgmmaParams<Val>& p) {
  if (c.grouped && c.pdl && c.order != WeightOnlyOrder::beside)
    griddepcontrol_wait(k);  // the ends may be results
  if (c.persistent) return {Val<u32>(0), Val<u32>(0), p.w};
  auto warp = k.warp();
  const auto found = rows_of_tile(k, c, rows, p, warp, k.ctaid_z(), Uniform::cluster);
  if (found.there) k.exit_if(!*found.there);
  return found.rows;
}

template <class T, int N>
class WgmmaProduct {
 public:
  using Map = TmaIn<Tile<T, N, 64>>;
  using Sum = Acc<f32, 64, N>;

  WgmmaProduct(Kernel& k, const WeightWgmmaConfig& c, const Map& map, const WeightWgmmaParams<Val>& p)
      : k_(k),
        c_(c),
        l_(layout(c.format)),
        p_(p),
        pairs_(look_up(k, c)),
        rows_of_block_(rows_of_block(k, c, N, p)),
        math_(k.role<Warpgroup>(c.warpgroups, math_registers(c))),
        load_(k.role<Warpgroup>(1, kLoadRegisters)),
        map_(c.share > 1 ? map.multicast(Axis::y) : map),
        x_(k, Stages(c.x_stages), load_, math_, map_),
        w_(k, Stages(c.w_stages), 4 * c.warpgroups, l_.tile_bytes(), load_, math_),
        read_(k.named_barrier(math_.threads())),
        sums_(x_.template storage<f32>(k)),
        staging_(k.shared<b32>(c.staging_bytes() ? c.staging_bytes() / 4 : 4, 128)),
        part_(c.split > 1 ? Val<u32>(k.cluster_ctaid_x()) : Val<u32>(0)),
        first_part_(c.split > 1 ? k.cluster_ctarank() - part_ : Val<u32>(0)),
        from_(p.k_tiles * part_ / std::uint32_t(c.split)),
        to_(p.k_tiles * (part_ + 1u) / std::uint32_t(c.split)) {}

  void run() {
    if (c_.persistent) return run_persistent();
    const Place here{rows_of_block_, k_.ctaid_y() * std::uint32_t(c_.columns())};
    const bool at_once = this->at_once(), first = c_.order == WeightOnlyOrder::first;
    if (c_.pdl && !first) griddepcontrol_launch_dependents(k_);
    load_.run([&](Warpgroup& wg) {
      auto warp = wg.warp();
      k_.if_(warp.index == 0u, [&] {
        warp.one_thread([&](Thread& t) {
          if (!at_once) griddepcontrol_wait(k_);
          if (first) griddepcontrol_launch_dependents(k_);
          copy_x(t, here);
        });
      });
      k_.if_(warp.index == 1u, [&] { warp.one_thread([&](Thread& t) { copy_weights(t, here); }); });
    });
    math_.run([&](Warpgroup& wg) {
      const auto sum = multiply_all(wg);
      read_.sync();  // all warpgroups have read x: the sums take its place
      const auto origin = accumulator_origin(wg);
      const auto to = sums_.at(origin.col * kPitch() + wg.index * 64u + origin.row);
      for (int i = 0; i < Sum::count; ++i)
        to.st((8 * (i >> 2) + (i & 1)) * int(kPitch()) + 8 * ((i >> 1) & 1), sum[i]);
    });
    auto cta = k_.cta();
    if (c_.split > 1)
      cluster_sync(cta);
    else
      k_.sync();
    math_.run([&](Warpgroup&) {
      if (!at_once) griddepcontrol_wait(k_);
      store(here);
      if (c_.pdl && at_once) griddepcontrol_wait(k_);
    });
    if (c_.split > 1) cluster_sync(cta);  // the others have read this block's sums
  }

 private:
  static constexpr int kLoadRegisters = 56, kStagingBytes = WeightWgmmaConfig::kStagingBytes;
  // What a block has at launch, less those of the warps that copy.
  static int math_registers(const WeightWgmmaConfig& c) {
    const int groups = c.warpgroups + 1, each = std::min(65536 / c.min_blocks / (128 * groups), 248) / 8 * 8;
    return std::min((each * groups - kLoadRegisters) / c.warpgroups / 8 * 8, 240);
  }
  /// A tile of y.
  struct Place {
    TileRows rows;
    Val<u32> n0;
  };
  bool at_once() const { return !c_.pdl || c_.order == WeightOnlyOrder::beside; }
  bool in_f32() const { return c_.end == WeightOnlyEnd::store_f32 || c_.end == WeightOnlyEnd::add_f32; }

  void run_persistent() {
    const bool first = c_.order == WeightOnlyOrder::first;
    if (c_.pdl && !first) griddepcontrol_launch_dependents(k_);
    load_.run([&](Warpgroup& wg) {
      auto warp = wg.warp();
      k_.if_(warp.index == 0u, [&] {
        if (!at_once()) griddepcontrol_wait(k_);
        if (first) griddepcontrol_launch_dependents(k_);
        each_tile(warp, Uniform::warp,
                  [&](const Place& here) { warp.one_thread([&](Thread& t) { copy_x(t, here); }); });
      });
      k_.if_(warp.index == 1u, [&] {
        each_tile(warp, Uniform::warp,
                  [&](const Place& here) { warp.one_thread([&](Thread& t) { copy_weights(t, here); }); });
      });
    });
    math_.run([&](Warpgroup& wg) {
      if (!at_once()) griddepcontrol_wait(k_);
      auto warp = wg.warp();
      each_tile(warp, Uniform::warpgroup, [&](const Place& here) {
        const auto sum = multiply_all(wg);
        if (in_f32())
          store_f32(wg, sum, here);
        else
          store_rounded(wg, sum, here);
      });
      if (c_.pdl && at_once()) griddepcontrol_wait(k_);
    });
  }
  // Rows of tiles that follow each other by columns.
  static constexpr std::uint32_t kBand = 8;
  /// body(place) for each tile of this block, by the whole warp.
  template <class Body>
  void each_tile(Warp& warp, Uniform over, const Body& body) {
    const auto columns = std::uint32_t(c_.columns());
    const auto across = (p_.n + (columns - 1)) / columns;
    k_.loop(range(k_.ctaid_x(), p_.tiles, k_.nctaid_x()), [&](Val<u32> tile) {
      if (c_.grouped) {
        const auto row = tile / across;
        const auto found = rows_of_tile(k_, c_, N, p_, warp, row, over);
        k_.if_(*found.there, [&] { body(Place{found.rows, (tile - row * across) * columns}); });
        return;
      }
      const auto whole = across * kBand, band = tile / whole, in_band = tile - band * whole;
      const auto rows = dsl::min(p_.tiles / across - band * kBand, Val<u32>(kBand)), column = in_band / rows;
      const auto found = rows_of_tile(k_, c_, N, p_, warp, band * kBand + (in_band - column * rows), over);
      body(Place{found.rows, column * columns});
    });
  }
  void copy_x(Thread& t, const Place& here) {
    k_.loop(range(from_ * 4u, to_ * 4u),
            [&](Val<u32> step) { x_.fill(t, at(map_, here.rows.first, step * 64u)); });
  }
  Sum multiply_all(Warpgroup& wg) {
    auto first = multiply_tile(wg, fresh<f32, 64, N>(wg));
    auto last = k_.loop(to_ - from_ - 1u, std::move(first),
                        [&](Val<u32>, auto busy) { return multiply_tile(wg, std::move(busy)); });
    return std::move(last).wait(wg);
  }

  // Each warp for itself: 64 rows of y at a time go through its 2 KB, rows of 32 bytes (of a gate 16).
  void store_rounded(Warpgroup& wg, const Sum& sum, const Place& here) {
    auto warp = wg.warp();
    const auto lane = warp.lane(), number = wg.index * 4u + warp.index;
    const bool gate = c_.end == WeightOnlyEnd::gate;
    const auto base = staging_.address() + number * std::uint32_t(kStagingBytes);
    // A swizzle of the two halves of a row: eight rows that are accessed at once meet all banks.
    const auto put_at = gate ? base + lane * 16u
                             : base + (divided(lane, 16) * 8u + remainder(lane, 8)) * 32u +
                                   ((divided(lane, 8) ^ divided(lane, 4)) & Val<u32>(1u)) * 16u;
    const auto get_at =
        gate ? base + lane * 16u
             : base + divided(lane, 2) * 32u + ((lane ^ divided(lane, 8)) & Val<u32>(1u)) * 16u;
    const int each = gate ? 32 : 16;  // rows of an access
    const auto row = here.rows.first + (gate ? lane : divided(lane, 2));
    const auto column =
        gate ? divided(here.n0 + number * 16u, 2) : here.n0 + number * 16u + remainder(lane, 2) * 8u;
    const auto value = [&](int j, int h) {  // of rows 8 j + 2 q and 8 j + 2 q + 1
      const auto at = [&](int e) -> Val<f32> {
        if (!gate) return sum[4 * j + 2 * h + e];
        return activation_code(c_.activation, sum[4 * j + e]) * sum[4 * j + 2 + e];
      };
      return pack<T>(at(0), at(1));
    };
    for (int from = 0; from < N; from += 64) {
      if (from) warp.sync();
      for (int at = 0; at < 64; at += each) {
        const int j = (from + at) / 8;
        const auto part = [&](int i) { return gate ? value(j + i, 0) : value(j + i / 2, i % 2); };
        stmatrix<x4, trans>(warp, put_at, std::array<Val<b32>, 4>{part(0), part(1), part(2), part(3)},
                            at * (gate ? 16 : 32));
      }
      warp.sync();
      for (int at = 0; at < 64; at += each) {
        const auto words = Ptr<shared, b32>(get_at).template ld<4>(at * (gate ? 16 : 32) / 16);
        put_words(row + std::uint32_t(from + at), here.rows.end, column, gate ? divided(p_.n, 2) : p_.n,
                  words);
      }
    }
    warp.sync();
  }
  template <class Words>
  void put_words(const Val<u32>& row, const Val<u32>& end, const Val<u32>& column, const Val<u32>& columns,
                 const Words& words) {
    const auto to = p_.y + (dsl::to<u64>(row) * p_.ldy + dsl::to<u64>(column)) * 2u;
    k_.if_(row < end, [&] {
      k_.if_((p_.wide != 0u) & (column + 8u <= columns),
             [&] { Out<b32>(to).st<4>(0, RegGroup<b32, 4>(words[0], words[1], words[2], words[3])); },
             [&] {
               for (int e = 0; e < 8; ++e)
                 Out<T>(to).st_if(column + std::uint32_t(e) < columns, e, unpack<T>(words[e / 2])[e % 2]);
             });
    });
  }
  // Eight lanes store eight neighbours.
  void store_f32(Warpgroup& wg, const Sum& sum, const Place& here) {
    const auto origin = accumulator_origin(wg);
    const auto column = here.n0 + wg.index * 64u + origin.row, row = here.rows.first + origin.col;
    for (int i = 0; i < Sum::count; ++i) {
      const auto r = row + std::uint32_t(8 * (i >> 2) + (i & 1)),
                 c = column + std::uint32_t(8 * (i >> 1 & 1));
      const Val<pred> there = (r < here.rows.end) & (c < p_.n);
      const auto at = dsl::to<u64>(r) * p_.ldy + dsl::to<u64>(c);
      if (c_.end == WeightOnlyEnd::add_f32)
        Out<f32>(p_.y).st_if(there, at, Out<f32>(p_.y).ld_if(there, at, Val<f32>(0))[0] + sum[i]);
      else
        Out<f32>(p_.y).st_if(there, at, sum[i]);
    }
  }

  static std::optional<PairTable> look_up(Kernel& k, const WeightWgmmaConfig& c) {
    if (!c.pairs) return {};
    PairTable table(k, remainder(k.tid(), 32));
    table.fill<T>(k, layout(c.format).table, k.tid(), std::uint32_t(128 * (c.warpgroups + 1)));
    return table;  // the block's barriers are waited for after this
  }
  // Of sums, in elements: eight rows and four pairs of columns of a store meet different banks.
  std::uint32_t kPitch() const { return std::uint32_t(c_.columns() + 4); }

  void copy_weights(Thread& t, const Place& here) {
    const std::uint64_t bytes = std::uint64_t(l_.tile_bytes());
    const auto row = p_.k_tiles * std::uint32_t(bytes), first = divided(here.n0, 16);
    // Tiles that are not there: the last one again, whose sums are not stored.
    const auto last = p_.w_tiles - 1u - dsl::min(first, p_.w_tiles - 1u);
    const auto begin =
        here.rows.w +
        (to<u64>(dsl::min(first, p_.w_tiles - 1u)) * to<u64>(p_.k_tiles) + to<u64>(from_)) * bytes;
    k_.loop(to_ - from_, begin, [&](Val<u32>, Val<u64> now) {
      w_.fill(
          t,
          [&](int i) {
            return In<b8>(now + to<u64>(dsl::min(Val<u32>(std::uint32_t(i)), last) * row)).at(0);
          },
          c_.reread ? L2Hint::none : L2Hint::evict_first);
      return now + bytes;
    });
  }

  // A step of 64 of K. The wait for x comes first, so that ptxas places products among what decodes.
  InFlight<Sum, 1> multiply(Warpgroup& wg, FreshAcc<f32, 64, N> acc, ScaledWeights<T>& w, int step) {
    auto x = x_.take(wg);
    return wgmma(wg, std::move(acc), w.step(step), std::move(x));
  }
  InFlight<Sum, 1> multiply(Warpgroup& wg, InFlight<Sum, 1> busy, ScaledWeights<T>& w, int step) {
    auto x = x_.take(wg);
    return std::move(busy).then(wg, w.step(step), std::move(x));
  }
  // 256 of K.
  template <class Before>
  InFlight<Sum, 1> multiply_tile(Warpgroup& wg, Before before) {
    auto taken = w_.take(wg);
    auto warp = wg.warp();
    ScaledWeights<T> w(l_, c_.scale_terms, taken.piece(wg.index * 4u + warp.index), warp.lane(), pairs_);
    std::move(taken).release(warp);
    auto first = multiply(wg, std::move(before), w, 0);
    auto second = multiply(wg, std::move(first), w, 1);
    auto third = multiply(wg, std::move(second), w, 2);
    return multiply(wg, std::move(third), w, 3);
  }

  // A thread adds up the parts of K of eight columns of a row of y; of a gate and of up, so many of both.
  void store(const Place& here) {
    const int wide = c_.end == WeightOnlyEnd::gate ? 16 : 8, each = c_.columns() / wide;
    const auto threads = std::uint32_t(math_.threads());
    k_.loop(range(part_ * threads + k_.tid(),  // these warpgroups come first
                  Val<u32>(std::uint32_t(N * each)), Val<u32>(threads * std::uint32_t(c_.split))),
            [&](Val<u32> i) {
              const auto row = divided(i, each), unit = remainder(i, each) * std::uint32_t(wide);
              const auto from = sums_.at(row * kPitch() + unit);
              std::vector<std::vector<Val<f32>>> sum;
              for (int part = 0; part < c_.split; ++part) {
                sum.emplace_back();
                for (int half = 0; half < wide / 4; ++half) {
                  const auto v = c_.split > 1
                                     ? mapa(from, first_part_ + std::uint32_t(part)).template ld<4>(half)
                                     : from.template ld<4>(half);
                  for (int e = 0; e < 4; ++e)
                    sum.back().push_back(part ? sum[std::size_t(part - 1)][std::size_t(4 * half + e)] + v[e]
                                              : Val<f32>(v[e]));
                }
              }
              put(here.rows.first + row, here.rows.end, here.n0 + unit, sum.back());
            });
  }
  void put(const Val<u32>& row, const Val<u32>& end, const Val<u32>& column, const std::vector<Val<f32>>& v) {
    if (c_.end == WeightOnlyEnd::gate) {
      std::vector<Val<f32>> gated;
      for (std::size_t e = 0; e < 8; ++e) gated.push_back(activation_code(c_.activation, v[e]) * v[e + 8]);
      return put_rounded(row, end, divided(column, 2), divided(p_.n, 2), gated);
    }
    if (c_.end == WeightOnlyEnd::store) return put_rounded(row, end, column, p_.n, v);
    const Out<f32> to(p_.y + (dsl::to<u64>(row) * p_.ldy + dsl::to<u64>(column)) * 4u);
    const bool add = c_.end == WeightOnlyEnd::add_f32;
    k_.if_(row < end, [&] {
      k_.if_((p_.wide != 0u) & (column + 8u <= p_.n),
             [&] {
               for (int half = 0; half < 2; ++half) {
                 const auto at = [&](int e) { return v[std::size_t(4 * half + e)]; };
                 if (!add) {
                   to.st<4>(half, RegGroup<f32, 4>(at(0), at(1), at(2), at(3)));
                   continue;
                 }
                 const auto before = to.ld<4>(half);
                 to.st<4>(half, RegGroup<f32, 4>(before[0] + at(0), before[1] + at(1), before[2] + at(2),
                                                 before[3] + at(3)));
               }
             },
             [&] {
               for (int e = 0; e < 8; ++e) {
                 const Val<pred> there = column + std::uint32_t(e) < p_.n;
                 const auto sum = v[std::size_t(e)];
                 to.st_if(there, e, add ? to.ld_if(there, e, Val<f32>(0))[0] + sum : sum);
               }
             });
    });
  }
  void put_rounded(const Val<u32>& row, const Val<u32>& end, const Val<u32>& column, const Val<u32>& columns,
                   const std::vector<Val<f32>>& v) {
    const auto first = p_.y + (to<u64>(row) * p_.ldy + to<u64>(column)) * 2u;
    k_.if_(row < end, [&] {
      k_.if_((p_.wide != 0u) & (column + 8u <= columns),
             [&] {
               Out<b32>(first).st<4>(0, RegGroup<b32, 4>(pack<T>(v[0], v[1]), pack<T>(v[2], v[3]),
                                                         pack<T>(v[4], v[5]), pack<T>(v[6], v[7])));
             },
             [&] {
               for (int e = 0; e < 8; ++e)
                 Out<T>(first).st_if(column + std::uint32_t(e) < columns, e, to<T>(v[std::size_t(e)]));
             });
    });
  }

  Kernel& k_;
  const WeightWgmmaConfig& c_;
  const WeightLayout& l_;
  const WeightWgmmaParams<Val>& p_;
  std::optional<PairTable> pairs_;
  TileRows rows_of_block_;
  Role<Warpgroup> math_, load_;
  Map map_;
  Ring<ByThreads, Tile<T, N, 64>> x_;
  BulkRoleRing w_;  ///< 256 of K of each 16 of the block's columns of y
  NamedBarrier read_;
  Ptr<shared, f32> sums_;
  Ptr<shared, b32> staging_;
  Val<u32> part_, first_part_, from_, to_;
};

template <class T, int N>
void wgmma_kernel(Kernel& k, WeightWgmmaConfig c, TmaIn<Tile<T, N, 64>> x, WeightWgmmaParams<Val> p) {
  if (c.split * c.share > 1) k.cluster(c.split, c.share);
  k.require(c.persistent || 128 * c.x_stages >= 4 * (c.columns() + 4), "the sums fit into the ring of x");
  k.require(!c.persistent || (c.split * c.share == 1 && c.rows >= 64),
            "blocks that walk over tiles have no clusters, and 64 rows of x or more");
  if (c.min_blocks > 1) k.min_blocks(c.min_blocks);
  WgmmaProduct<T, N>(k, c, x, p).run();
}

template <class T>
Variant of_type(const WeightWgmmaConfig& c) {
  const auto make = [&](auto fn) {
    Variant v = config_variant("weight_wgmma", c, 90, fn);
    v.only = "sm_90a";
    return v;
  };
  return c.rows <= 16    ? make(wgmma_kernel<T, 16>)
         : c.rows <= 32  ? make(wgmma_kernel<T, 32>)
         : c.rows <= 64  ? make(wgmma_kernel<T, 64>)
         : c.rows <= 128 ? make(wgmma_kernel<T, 128>)
                         : make(wgmma_kernel<T, 256>);
}

}  // namespace

Variant weight_wgmma_variant(const WeightWgmmaConfig& c) {
  return c.type == DType::f16 ? of_type<f16>(c) : of_type<bf16>(c);
}

}  // namespace cgp::kernels
