// SPDX-License-Identifier: Apache-2.0
// Persistent Hopper products that exchange rows of x, or tiles of y, with the other ranks while they multiply.
//   who      as the persistent GEMM (gemm/sm90/gemm_persistent_sm90.cpp), whose tile order, ring and epilogue they have; with
//            all_gather the other warps of the loading warpgroup send
//   order    m in parts, one for each rank. all_gather: the own part first, then that of the next rank, ...; every rank sends first
//            to the one that needs it first. reduce_scatter: the part of the next rank first, the own part last
//   memory   all_gather: 32 rows at a time into the staging memory of each rank, 16 bytes an access, and from there by TMA.
//            reduce_scatter: a tile by TMA into the staging memory of its rank, which adds it to its own accumulators
//   sync     a flag for 32 rows or for a warpgroup's part of a tile, set with st.release.sys by who wrote them, read with
//            ld.acquire.sys. All blocks are on the GPU at once. The flag of a tile is set when the next one has been
//            multiplied: its stores have ended by then
//   needs    sm_90a; 16-bit types; addresses and rows at multiples of 16 bytes
#include "cgp/dsl/sync/sync.h"
#include "cgp/kernels/gemm/api/gemm_tuning.h"
#include "cgp/kernels/gemm_collective/gemm_collective_config.h"
#include "cgp/kernels/schedule/tile_scheduler.h"

namespace cgp::kernels {
namespace {

using namespace dsl;
using Params = GemmCollectiveParams<OnDevice>;

Val<u32> rank_after(const Val<u32>& rank, const Val<u32>& steps, int ranks) {
  return (rank + steps) % std::uint32_t(ranks);
}

// Sends the own part of x to all others: the warps of a warpgroup but the first.
class Sender {
 public:
  Sender(Kernel& k, const GemmCollectiveConfig& c, const Params& p, const Flags& flags)
      : k_(k), c_(c), p_(p), flags_(flags), barrier_(k.named_barrier(32 * kWarps)) {}

  void run(const Val<u32>& warp) const {
    const auto units = (*p_.part + (kGatheredRows - 1)) / kGatheredRows;
    k_.loop(range(k_.ctaid_x(), units * std::uint32_t(c_.ranks - 1), k_.nctaid_x()), [&](Val<u32> i) {
      const auto unit = i % units, step = i / units;
      const auto peer = rank_after(*p_.rank, std::uint32_t(c_.ranks - 1) - step, c_.ranks);
      send(warp, peer, unit * kGatheredRows);
      barrier_.sync();
      k_.if_((warp == 0u) & (k_.laneid() == 0u), [&] { flags_.set(flags_.address(peer, unit)); });
    });
  }

 private:
  static constexpr int kWarps = 3;
  static constexpr std::uint32_t kRowsAtOnce = 4;
  void send(const Val<u32>& warp, const Val<u32>& peer, const Val<u32>& row0) const {
    const auto accesses = *p_.k / 8u;
    const Ptr<global, b32> out(p_.table->ld(peer + std::uint32_t(kStagingTable)) +
                               to<u64>(flags_.call() & 1u) * *p_.slot + to<u64>(*p_.rank) * *p_.pitch);
    k_.loop(range(warp, Val<u32>(kGatheredRows / kRowsAtOnce), Val<u32>(kWarps)), [&](Val<u32> group) {
      const auto first = row0 + group * kRowsAtOnce;
      k_.loop(range(k_.laneid(), accesses, Val<u32>(32)), [&](Val<u32> at) {
        std::vector<RegGroup<b32, 4>> got;
        const auto there = [&](std::uint32_t r) { return first + r < *p_.part; };
        const auto place = [&](std::uint32_t r) {
          return to<u64>(first + r) * to<u64>(accesses) + to<u64>(at);
        };
        for (std::uint32_t r = 0; r < kRowsAtOnce; ++r)
          got.push_back(p_.own->template ld_if<4>(there(r), place(r), Val<b32>(0)));
        for (std::uint32_t r = 0; r < kRowsAtOnce; ++r) out.template st_if<4>(there(r), place(r), got[r]);
      });
    });
  }
  Kernel& k_;
  const GemmCollectiveConfig& c_;
  const Params& p_;
  const Flags& flags_;
  NamedBarrier barrier_;
};

Params declare(Kernel& k, const GemmCollectiveConfig& c, const DynamicTile& tile) {
  const auto of_x = DynTile::operand(tile.a, 2, tile.major_a, tile.height()),
             of_w = DynTile::operand(tile.b, 2, tile.major_b, tile.width()),
             of_y = tile.subtile_tile(c.type == DType::f16 ? ptx::Mod::f16 : ptx::Mod::bf16);
  Params p;
  for (auto* map : {&p.x, &p.gathered}) map->shape(of_x, DynamicOperand::box(of_x));
  p.w.shape(of_w, DynamicOperand::box(of_w)), p.y.shape(of_y, DynamicOperand::box(of_y));
  for (auto& map : p.to) map.shape(of_y, DynamicOperand::box(of_y));
  declare_params(k, p, c);
  return p;
}

void all_gather_gemm_kernel(Kernel& k, const GemmCollectiveConfig& c) {
  const auto tile = c.tile();
  const auto p = declare(k, c, tile);
  if (c.cluster > 1) k.cluster(c.cluster);
  const auto math = k.role<Warpgroup>(tile.warpgroups, /*registers=*/232);
  const auto load = k.role<Warpgroup>(1, /*registers=*/40);
  const Flags flags(k, *p.table, *p.rank);
  PersistentTiles tiles(k, {tile.height(), tile.width(), c.cluster, 1, c.group}, *p.rows, *p.cols, *p.tiles);
  const DynamicOperand x(*p.x), gathered(*p.gathered), w(c.cluster > 1 ? p.w->multicast(Axis::x) : *p.w);
  prefetch_descriptors(load, x.map(), w.map(), gathered.map(), *p.y);
  DynamicMainloop mainloop(k, tile, load, math, x, w);
  DynamicResults results(k, tile, *p.y, math, tile.store_buffers());
  const Sender sender(k, c, p, flags);
  tiles.start();
  const auto k_tiles = (*p.k + 63u) / 64u;
  const Val<u32> none(0);

  const auto fill = [&](Thread& thread) {
    tiles.each(std::tuple<>{}, [&](const TileCoord& at, std::tuple<> state) {
      const TileCoord of_w{none, none, at.n0};
      k.if_(
          at.batch == 0u,
          [&] {
            const TileCoord of_x{none, at.m0, none};
            k.loop(k_tiles, [&](Val<u32> kt) { mainloop.fill(thread, of_x, of_w, kt); });
          },
          [&] {
            const auto from = rank_after(*p.rank, at.batch, c.ranks);
            const auto first = at.m0 / kGatheredRows,
                       end = (dsl::min(at.m0 + std::uint32_t(tile.height()), *p.part) + (kGatheredRows - 1)) /
                             kGatheredRows;
            k.loop(range(first, end, Val<u32>(1)), [&](Val<u32> unit) { flags.wait(from, unit); });
            fence_async_global(k);
            const TileCoord of_x{(flags.call() & 1u) * std::uint32_t(c.ranks) + from, at.m0, none};
            k.loop(k_tiles, [&](Val<u32> kt) { mainloop.fill(thread, gathered, w, of_x, of_w, kt); });
          });
      return state;
    });
  };
  load.run([&](Warpgroup& wg) {
    wg.one_thread(fill);
    const auto warp = wg.warp();
    k.if_(warp.index != 0u, [&] { sender.run(warp.index - 1u); });
  });
  math.run([&](Warpgroup& wg) {
    auto storing = tiles.each(results.idle(), [&](const TileCoord& at, PendingStore pending) {
      const TileCoord of_y{rank_after(*p.rank, at.batch, c.ranks), at.m0, at.n0};
      const auto own = mainloop.warpgroup_tile(wg, of_y);
      return results.store(wg, std::move(pending), mainloop.accumulate(wg, k_tiles), own, mainloop);
    });
    std::move(storing).wait_read(wg);
  });
  flags.end();
}

// Adds what the other ranks sent of a tile to a warpgroup's accumulator.
class Receiver {
 public:
  Receiver(Kernel& k, const GemmCollectiveConfig& c, const Params& p, const Flags& flags)
      : k_(k), c_(c), p_(p), flags_(flags) {}
  DynAcc add(Warpgroup& wg, DynAcc acc, const Val<pred>& own_part, const TileCoord& at,
             const Val<u32>& flag) const {
    const auto origin = DynAcc::origin(wg);
    const auto row = at.m0 + origin.row, col = at.n0 + origin.col;
    const auto own =
        p_.table->ld(*p_.rank + std::uint32_t(kStagingTable)) + to<u64>(flags_.call() & 1u) * *p_.slot;
    const auto from_ranks = select(own_part, Val<u32>(std::uint32_t(c_.ranks - 1)), Val<u32>(0));
    const int half_row = acc.cols() / 2;
    return k_.loop(from_ranks, std::move(acc), [&](Val<u32> i, DynAcc now) {
      const auto from = i + select(i >= *p_.rank, Val<u32>(1), Val<u32>(0));
      flags_.wait(from, flag);
      const Ptr<global, b32> part(own + to<u64>(from) * *p_.pitch);
      std::vector<Val<f32>> two;
      return std::move(now).map<f32>([&](int e, const Val<f32>& x) {
        if (e % 2 == 0) {
          const auto r = row + std::uint32_t(64 * (e / half_row) + 8 * (e / 2 % 2)),
                     cc = col + std::uint32_t(8 * (e % half_row / 4));
          const auto word = part.ld_if((r < *p_.part) & (cc < *p_.n),
                                       to<u64>(r) * to<u64>(*p_.n / 2u) + to<u64>(cc / 2u), Val<b32>(0))[0];
          std::vector<Val<f32>> next;
          if (c_.type == DType::bf16) {
            const auto v = unpack<bf16>(word);
            next.push_back(to<f32>(v[0])), next.push_back(to<f32>(v[1]));
          } else {
            const auto v = unpack<f16>(word);
            next.push_back(to<f32>(v[0])), next.push_back(to<f32>(v[1]));
          }
          two.swap(next);
        }
        return x + two[std::size_t(e % 2)];
      });
    });
  }

 private:
  Kernel& k_;
  const GemmCollectiveConfig& c_;
  const Params& p_;
  const Flags& flags_;
};

void gemm_reduce_scatter_kernel(Kernel& k, const GemmCollectiveConfig& c) {
  const auto tile = c.tile();
  const auto p = declare(k, c, tile);
  if (c.cluster > 1) k.cluster(c.cluster);
  const auto math = k.role<Warpgroup>(tile.warpgroups, /*registers=*/240);
  const auto load = k.role<Warpgroup>(1, /*registers=*/24);
  const Flags flags(k, *p.table, *p.rank);
  PersistentTiles tiles(k, {tile.height(), tile.width(), c.cluster, 1, c.group}, *p.rows, *p.cols, *p.tiles);
  const DynamicOperand x(*p.x), w(c.cluster > 1 ? p.w->multicast(Axis::x) : *p.w);
  prefetch_descriptors(load, x.map(), w.map(), *p.y);
  DynamicMainloop mainloop(k, tile, load, math, x, w);
  DynamicResults results(k, tile, *p.y, math, tile.store_buffers());
  const Receiver receiver(k, c, p, flags);
  tiles.start();
  const auto k_tiles = (*p.k + 63u) / 64u;
  const Val<u32> none(0);
  const auto owner_of = [&](const Val<u32>& step) { return rank_after(*p.rank, step + 1u, c.ranks); };

  load.one_thread([&](Thread& thread) {
    tiles.each(std::tuple<>{}, [&](const TileCoord& at, std::tuple<> state) {
      const TileCoord of_x{owner_of(at.batch), at.m0, none}, of_w{none, none, at.n0};
      k.loop(k_tiles, [&](Val<u32> kt) { mainloop.fill(thread, of_x, of_w, kt); });
      return state;
    });
  });
  math.run([&](Warpgroup& wg) {
    using State = std::tuple<PendingStore, Val<u64>>;  // the flag of the tile before; 0: none
    const auto hand_over = [&](State state) {
      auto pending = results.done(wg, std::move(std::get<0>(state)));
      const auto flag = std::get<1>(state);
      k.if_((flag != std::uint64_t(0)) & (k.tid() % 128u == 0u), [&] { flags.set(flag); });
      return pending;
    };
    auto last = tiles.each(State(results.idle(), Val<u64>(0)), [&](const TileCoord& at, State state) {
      const auto own = mainloop.warpgroup_tile(wg, at);
      const auto owner = owner_of(at.batch);
      const Val<pred> own_part = owner == *p.rank;
      const auto columns = *p.cols;
      const auto number =
          at.m0 / std::uint32_t(tile.height()) * columns + at.n0 / std::uint32_t(tile.width());
      const auto flag = number * std::uint32_t(tile.warpgroups) + wg.index;
      auto acc = mainloop.accumulate(wg, k_tiles);
      auto pending = hand_over(std::move(state));  // before any wait: others may need it to go on
      auto total = receiver.add(wg, std::move(acc), own_part, own, flag);
      std::vector<Val<u64>> map{Val<u64>(p.y->map().address)};
      for (int r = 0; r < c.ranks; ++r)
        map.push_back(select((owner == std::uint32_t(r)) & !own_part,
                             Val<u64>(p.to[std::size_t(r)]->map().address), map.back()));
      results.through(map.back());
      const TileCoord place{select(own_part, none, flags.call() & 1u), own.m0, own.n0};
      auto storing = results.store(wg, std::move(pending), std::move(total), place, mainloop);
      return State(std::move(storing), select(own_part, Val<u64>(0), flags.address(owner, flag)));
    });
    std::move(hand_over(std::move(last))).wait_read(wg);
  });
  flags.end();
}

void gemm_collective_kernel(Kernel& k, GemmCollectiveConfig c) {
  c.gathers() ? all_gather_gemm_kernel(k, c) : gemm_reduce_scatter_kernel(k, c);
}

}  // namespace

DynamicTile GemmCollectiveConfig::tile() const {
  return gemm_persistent_tile(type, false, transposed, {.rows = rows, .cols = cols, .cluster = cluster});
}

Variant gemm_collective_variant(const GemmCollectiveConfig& c) {
  Variant v = config_variant("gemm_collective", c, 90, gemm_collective_kernel);
  v.only = "sm_90a";
  return v;
}

}  // namespace cgp::kernels
