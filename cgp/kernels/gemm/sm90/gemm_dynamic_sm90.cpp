// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/gemm/sm90/gemm_dynamic_sm90.h"

#include <algorithm>

namespace cgp::kernels {

using namespace dsl;

// ---------------------------------------------------------------- operands
std::vector<int> DynamicOperand::box(const DynTile& tile, bool paired) {
  const auto& t = tile.layout;
  return paired ? std::vector<int>{1, 2, t.rows / 2, t.cols} : std::vector<int>{1, t.rows, t.cols};
}

DynTmaAt<DynTmaIn> DynamicOperand::at(const Val<u32>& batch, const Val<u32>& row, const Val<u32>& k0) const {
  if (paired_) return dsl::at(map_, batch, Val<u32>(0), row / 2u, k0);
  if (map_.tile().major == Major::k) return dsl::at(map_, batch, row, k0);
  return dsl::at(map_, batch, k0, row);
}

// ---------------------------------------------------------------- main loop
namespace {

/// Terms of A and B that are multiplied, smallest products first: what is added to a large sum loses the
/// most. Of three terms, the products above 2^-24.
DynProducts term_products(const DynamicTile& t, int slice = 0, int slices = 1) {
  const std::vector<std::pair<int, int>> terms =
      t.terms == 1 ? std::vector<std::pair<int, int>>{{0, 0}}
                   : std::vector<std::pair<int, int>>{{1, 1}, {2, 0}, {0, 2}, {1, 0}, {0, 1}, {0, 0}};
  std::vector<DynProduct> out;
  for (const auto& [of_a, of_b] : terms) {  // a stage holds A's terms, then B's
    const int a = of_a, b = t.terms + of_b;
    out.push_back({t.swap_ab ? b : a, t.swap_ab ? a : b, slice, slices});
  }
  return DynProducts(std::move(out));
}

Stages stages_of(Kernel& k, const DynamicTile& t) {
  const auto c = k.cluster_size();
  return c[0] * c[1] * c[2] > 1 ? Stages(t.stages) : Stages::started_by_producer(t.stages);
}

}  // namespace

DynamicMainloop::DynamicMainloop(Kernel& k, const DynamicTile& t, const Role<Warpgroup>& load,
                                 const Role<Warpgroup>& math, const DynamicOperand& a,
                                 const DynamicOperand& b)
    : k_(k),
      tile_(t),
      a_(a),
      b_(b),
      ring_(k, stages_of(k, t), load, math, {{a.map(), t.terms}, {b.map(), t.terms}}) {}

void DynamicMainloop::fill(Thread& thread, const TileCoord& at, const Val<u32>& k_tile,
                           const std::optional<Val<u32>>& batches, Here here) {
  const auto k0 = k_tile * std::uint32_t(128 / tile_.element_bytes);
  ring_.fill(
      thread,
      [&](int i) {
        const int term = i % tile_.terms;
        const auto batch = term ? at.batch + *batches * std::uint32_t(term) : at.batch;
        return i < tile_.terms ? a_.at(batch, at.m0, k0) : b_.at(batch, at.n0, k0);
      },
      here);
}

void DynamicMainloop::fill(Thread& thread, const TileCoord& of_a, const TileCoord& of_b,
                           const Val<u32>& k_tile, Here here) {
  fill(thread, a_, b_, of_a, of_b, k_tile, here);
}

void DynamicMainloop::fill(Thread& thread, const DynamicOperand& a, const DynamicOperand& b,
                           const TileCoord& of_a, const TileCoord& of_b, const Val<u32>& k_tile, Here here) {
  const auto k0 = k_tile * std::uint32_t(128 / tile_.element_bytes);
  ring_.fill(
      thread, [&](int i) { return i == 0 ? a.at(of_a.batch, of_a.m0, k0) : b.at(of_b.batch, of_b.n0, k0); },
      here);
}

DynAcc DynamicMainloop::accumulate(Warpgroup& wg, const Val<u32>& k_tiles, Here here) {
  const auto products = term_products(tile_);
  auto fresh = fresh_accumulator(wg, tile_.accumulator, tile_.warpgroup_rows(), tile_.warpgroup_cols());
  // One product stays in flight: issue the next, then free the stage of the one before it.
  auto last = k_.loop(
      k_tiles - 1, wgmma(wg, std::move(fresh), ring_.take(wg, here), products, here),
      [&](Val<u32>, InFlight<DynAcc, 1> busy) {
        return std::move(busy).then(wg, ring_.take(wg, here), products, here);
      },
      here);
  return std::move(last).wait(wg, here);
}

DynAcc DynamicMainloop::accumulate_promoted(Warpgroup& wg, const Val<u32>& k_tiles, const Promotion& how,
                                            Here here) {
  using Scales = std::vector<Val<f32>>;
  const int rows = tile_.warpgroup_rows(), cols = tile_.warpgroup_cols() / how.slices;
  const int blocks = rows / 64, each = cols / 2;
  auto total = zero_accumulator(wg, ptx::Mod::f32, rows, tile_.warpgroup_cols(), here);
  std::vector<std::optional<FreshDynAcc>> free(how.overlapped ? 2 : 1);
  for (auto& f : free) f.emplace(wg, tile_.accumulator, rows, cols);
  const auto start = [&](int slice, int set) {
    auto stage = slice + 1 == how.slices ? ring_.take(wg, here) : ring_.peek(wg, here);
    return wgmma(wg, std::move(*free[std::size_t(set)]), std::move(stage),
                 term_products(tile_, slice, how.slices), here);
  };
  const auto add = [&](InFlight<DynAcc, 1> busy, int slice, int set, const Scales& scales) {
    auto fresh = std::move(busy).wait(wg, here);
    Scales of_rows;  // of this thread's two rows in a block
    total.add_columns(fresh, slice * cols, [&](int i) -> std::optional<Val<f32>> {
      if (scales.empty()) return {};
      if (i % each == 0) {
        Scales next;
        for (int h = 0; h < 2; ++h)
          next.push_back(scales[std::size_t(2 * (i / each) + h)] * scales[std::size_t(2 * blocks + slice)]);
        of_rows.swap(next);
      }
      return of_rows[std::size_t(i / 2 % 2)];
    });
    free[std::size_t(set)].emplace(std::move(fresh));
  };
  const auto scales = [&](const Val<u32>& k_tile) { return how.scales ? how.scales(k_tile) : Scales(); };
  // Slices of a stage, or (one slice) two stages: the first is added up while the second is multiplied. All are
  // done at the end of an iteration: ptxas serialises what is under way across a loop's back edge and is read
  // there.
  const auto both = [&](int x, const Scales& of_x, int y, const Scales& of_y) {
    auto one = start(x, 0), two = start(y, 1);
    add(std::move(one), x, 0, of_x);
    add(std::move(two), y, 1, of_y);
  };
  const auto alone = [&](int slice, const Scales& s) { add(start(slice, 0), slice, 0, s); };
  const auto last = k_tiles - 1;
  const auto ahead = [&](const Val<u32>& kt) {
    return scales(dsl::min(kt, last));
  };  // nothing behind the end
  if (how.slices == 1 && how.overlapped) {
    using Two = std::pair<Scales, Scales>;
    const auto end = k_.loop(
        k_tiles / 2u, Two(scales(k_tiles * 0u), ahead(k_tiles * 0u + 1u)),
        [&](Val<u32> half, Two now) {
          Two next(ahead(half * 2u + 2u), ahead(half * 2u + 3u));
          both(0, now.first, 0, now.second);
          return next;
        },
        here);
    k_.if_(k_tiles % 2u != 0u, [&] { alone(0, end.first); });
    return total;
  }
  k_.loop(
      k_tiles, scales(k_tiles * 0u),
      [&](Val<u32> kt, Scales now) {
        auto next = ahead(kt + 1u);  // on their way while this is multiplied
        for (int p = 0; p < how.slices; p += how.overlapped ? 2 : 1)
          how.overlapped ? both(p, now, p + 1, now) : alone(p, now);
        return next;
      },
      here);
  return total;
}

TileCoord DynamicMainloop::warpgroup_tile(const Warpgroup& wg, const TileCoord& at) const {
  if (tile_.warpgroups == 1) return at;
  const auto own = times(wg.index, tile_.by_columns() ? tile_.warpgroup_cols() : tile_.warpgroup_rows());
  return tile_.by_columns() == tile_.swap_ab ? TileCoord{at.batch, at.m0 + own, at.n0}
                                             : TileCoord{at.batch, at.m0, at.n0 + own};
}

// ---------------------------------------------------------------- results
namespace {
// f(block of 64 of wgmma's rows, first of its columns, the place in C) for each subtile of a warpgroup.
template <class F>
void each_subtile(const DynamicTile& t, const TileCoord& at, F&& f) {
  const int cols = t.warpgroup_cols(), slice = t.subtile();
  for (int block = 0; block < t.warpgroup_rows() / 64; ++block)
    for (int next = 0; next < cols; next += slice) {
      const int col = std::min(next, cols - slice);
      const auto rows = std::uint32_t(64 * block), from = std::uint32_t(col);
      f(block, col,
        t.swap_ab ? TileCoord{at.batch, at.m0 + from, at.n0 + rows}
                  : TileCoord{at.batch, at.m0 + rows, at.n0 + from});
    }
}
}  // namespace

void DynamicMainloop::fill_source(Thread& thread, const DynTmaIn& source, const TileCoord& at, Here here) {
  std::vector<std::vector<TileCoord>> all;  // of each subtile, warpgroup by warpgroup
  for (int w = 0; w < tile_.warpgroups; ++w) {
    const auto own =
        std::uint32_t(w * (tile_.by_columns() ? tile_.warpgroup_cols() : tile_.warpgroup_rows()));
    const bool along_m = tile_.by_columns() == tile_.swap_ab;
    std::size_t i = 0;
    each_subtile(tile_, {at.batch, at.m0 + (along_m ? own : 0u), at.n0 + (along_m ? 0u : own)},
                 [&](int, int, const TileCoord& place) {
                   if (w == 0) all.emplace_back();
                   all[i++].push_back(place);
                 });
  }
  const auto each = std::size_t(tile_.source_subtiles());
  for (std::size_t first = 0; first < all.size(); first += each) {
    std::vector<DynTmaAt<DynTmaIn>> stage;
    for (std::size_t i = first; i < std::min(first + each, all.size()); ++i)
      for (const auto& p : all[i]) stage.push_back(dsl::at(source, p.batch, p.m0, p.n0));
    ring_.fill_shares(thread, stage, here);
  }
}

std::vector<DynFilled> DynamicMainloop::take_source(Warpgroup& wg, const DynTile& subtile, Here here) {
  std::vector<DynFilled> out;
  for (int i = 0; i < tile_.source_stages(); ++i) out.push_back(ring_.take_shares(wg, subtile, here));
  return out;
}

DynSmemTile DynamicMainloop::reuse(Warpgroup& wg, const DynTile& subtile, int i) const {
  const int rows = tile_.by_columns() ? tile_.warpgroup_cols() : tile_.warpgroup_rows(), each = rows / 64;
  const bool of_b = tile_.by_columns() != tile_.swap_ab;
  return ring_.reuse(wg, subtile, i / each, of_b ? tile_.terms : 0, i % each * 64, rows);
}

DynamicResults::DynamicResults(Kernel& k, const DynamicTile& t, const DynTmaOut& c,
                               const Role<Warpgroup>& math, int buffers)
    : tile_(t),
      map_(c),
      staging_(t.non_persistent ? DynStaging::without_buffers(k, math, c.tile())
                                : DynStaging(k, math, c.tile(), buffers)) {}

DynTmaAt<DynTmaOut> DynamicResults::at(const TileCoord& place) const {
  const auto to = dsl::at(map_, place.batch, place.m0, place.n0);
  return through_ ? dsl::through(to, *through_) : to;
}

PendingStore DynamicResults::done(Warpgroup& wg, PendingStore before, Here here) {
  std::move(before).wait(wg, here);
  staging_.sync(wg, here);
  return staging_.idle();
}

PendingStore DynamicResults::store(Warpgroup& wg, PendingStore before, DynAcc acc, const TileCoord& at,
                                   const DynamicMainloop& loop, Here here) {
  const auto blocks = std::move(acc).row_blocks();
  std::vector<PendingStore> pending;
  pending.push_back(std::move(before));
  int i = 0;
  each_subtile(tile_, at, [&](int block, int col, const TileCoord& place) {
    const auto to = this->at(place);
    const auto body = [&](const DynSmemTile& tile) {
      write(wg, blocks[std::size_t(block)], tile, col, here);
    };
    pending.push_back(tile_.non_persistent
                          ? staging_.store_from(wg, std::move(pending.back()), loop.reuse(wg, map_.tile(), i),
                                                to, body, StoreOp::store, here)
                          : staging_.store(wg, std::move(pending.back()), to, body, StoreOp::store, here));
    ++i;
  });
  return std::move(pending.back());
}

PendingStore DynamicResults::store(Warpgroup& wg, PendingStore before, DynAcc acc, const TileCoord& at,
                                   std::vector<DynFilled> source, const Val<f32>& beta, Here here) {
  const auto blocks = std::move(acc).row_blocks();
  const int all = tile_.subtiles(), in_stage = tile_.source_subtiles();
  std::vector<PendingStore> pending;
  pending.push_back(std::move(before));
  int i = 0;
  each_subtile(tile_, at, [&](int block, int col, const TileCoord& place) {
    auto& stage = source[std::size_t(i / in_stage)];
    const auto from = stage.share(i % in_stage);
    const auto to = this->at(place);
    ++i;
    const auto body = [&](const DynSmemTile& tile) {
      const auto& own = blocks[std::size_t(block)];
      const auto sum = tile_.swap_ab ? add_tile_transposed(wg, own, from, beta, col, here)
                                     : add_tile(wg, own, from, beta, col, here);
      if (tile_.non_persistent)
        staging_.sync(wg, here);  // all have read
      else if (i % in_stage == 0 || i == all)
        std::move(stage).release(wg, here);
      write(wg, sum, tile, col, here);
    };
    pending.push_back(
        tile_.non_persistent
            ? staging_.store_from(wg, std::move(pending.back()), from, to, body, StoreOp::store, here)
            : staging_.store(wg, std::move(pending.back()), to, body, StoreOp::store, here));
  });
  if (tile_.non_persistent)
    for (auto& stage : source) std::move(stage).keep();
  return std::move(pending.back());
}

void DynamicResults::write(Warpgroup& wg, const DynAcc& acc, const DynSmemTile& to, int col, Here at) const {
  tile_.swap_ab ? store_tile_transposed(wg, acc, to, col, at) : store_tile(wg, acc, to, col, at);
}

}  // namespace cgp::kernels
