// SPDX-License-Identifier: Apache-2.0
#pragma once
// gemm sm100: datacentre Blackwell, tcgen05 and tensor memory, as a ladder of eight steps that add up:
//   tiled         one block a tile of 128 x 128, one stage, panels of 16 bytes (a copy each)
//   swizzled      panels of 128 bytes: one copy a tile
//   pipelined     a ring of stages: copies run ahead of products
//   specialised   one warp loads, one multiplies, a warpgroup reads the accumulators; results leave through shared
//                 memory and TMA; no barrier of the block in the loop
//   persistent    blocks walk over tiles; two accumulators, so a tile is stored while the next is computed
//   stealing      cluster launch control instead of a fixed share; also what beta != 0 runs
//   multicast     clusters of 2 x 1 blocks share the tiles of B
//   pair          the two blocks multiply together: M = 256, each loads its rows of A and half of B
// This header is the kernel of the last five; gemm_sm100_ladder.cpp has the first three.
//   who      192 threads: warps 0-3 read and store, warp 4 loads, warp 5 multiplies (one thread each)
//   memory   what lies outside the matrices arrives as zeros and is not stored
//   sync     ring and accumulator barriers run on across tiles
//   needs    sm_100a; 16-bit types; rows and batches of A and B at multiples of 16 bytes; k >= 1; sizes below
//            2^31; staged results: beta = 0 and rows and batches of C at multiples of 16 bytes
#include <optional>

#include "cgp/base/text.h"
#include "cgp/dsl/mma/epilogue.h"
#include "cgp/dsl/mma/umma.h"
#include "cgp/dsl/pipeline/cluster_launch_control.h"
#include "cgp/kernels/gemm/api/gemm.h"
#include "cgp/kernels/gemm/api/gemm_operand.h"
#include "cgp/kernels/gemm/epilogue/gemm_epilogue.h"

namespace cgp::kernels {

inline constexpr int kSm100Store = 64;  ///< columns of C that are staged together: 128 bytes a row

enum class TileWalk : std::uint8_t { one, persistent, stealing };
/// Build-time choices of the specialised kernels: decide emitted code, never a type.
struct GemmSm100Tuning {
  int stages = 4, cluster = 1, buffers = 2;
  TileWalk walk = TileWalk::stealing;
  int group = 8;  ///< rows of clusters that are visited together
};

struct GemmPlace {
  dsl::Val<dsl::u32> batch, m0, n0;
};

/// Which tiles a block works on, for every role alike.
class GemmWalk {
 public:
  GemmWalk(dsl::Kernel& k, const GemmSm100Tuning& tune, dsl::Val<dsl::u32> rows, dsl::Val<dsl::u32> cols,
           dsl::Val<dsl::u32> tiles, int bn)
      : k_(k), tune_(tune), rows_(rows), cols_(cols), tiles_(tiles), bn_(bn) {}
  template <class... Roles>
  void open(const Roles&... roles) {
    if (tune_.walk == TileWalk::stealing) queue_.emplace(k_, roles...);
  }
  /// Groups of `group` rows, down the columns of a group first: neighbours in time share what L2 holds.
  GemmPlace place(const dsl::Val<dsl::u32>& tile) const {
    using namespace dsl;
    const auto per_batch = rows_ * cols_, in_batch = tile % per_batch;
    const auto per_group = cols_ * std::uint32_t(tune_.group);
    const auto top = in_batch / per_group * std::uint32_t(tune_.group), rest = in_batch % per_group;
    const auto height = dsl::min(rows_ - top, std::uint32_t(tune_.group));
    const auto row = (top + rest % height) * std::uint32_t(tune_.cluster) + rank();
    return {tile / per_batch, row * kHopperBm, rest / height * std::uint32_t(bn_)};
  }
  dsl::Val<dsl::u32> rank() const { return tune_.cluster > 1 ? k_.cluster_ctarank() : dsl::Val<dsl::u32>(0); }
  /// body(tile) on the thread that loads, which also asks for the next tile.
  template <class Body>
  void lead(dsl::Thread& t, Body&& body) {
    if (queue_)
      queue_->lead(t, body);
    else
      follow(t, std::tuple<>{}, [&](dsl::Val<dsl::u32> tile, std::tuple<>) {
        body(tile);
        return std::tuple<>{};
      });
  }
  /// body(tile, state) gives the next state.
  template <class S, class State, class Body>
  State follow(S& scope, State init, Body&& body) {
    using namespace dsl;
    if (queue_) return queue_->follow(scope, std::move(init), body);
    const auto first = tune_.cluster > 1 ? k_.clusterid_x() : k_.ctaid_x();
    if (tune_.walk == TileWalk::one) return body(first, std::move(init));
    const auto step = tune_.cluster > 1 ? k_.nclusterid_x() : k_.nctaid_x();
    return k_.loop(range(first, tiles_, step), std::move(init), body);
  }

 private:
  dsl::Kernel& k_;
  GemmSm100Tuning tune_;
  dsl::Val<dsl::u32> rows_, cols_, tiles_;
  int bn_;
  std::optional<dsl::WorkQueue> queue_;
};

/// Through shared memory, converted, stored by TMA; the stores of a tile overlap the next tile.
template <class T>
struct StagedC {
  using tile = dsl::Tile<T, kHopperBm, kSm100Store>;
  using map = dsl::TmaOut<tile, 1, kHopperBm, kSm100Store>;
  map c;
  dsl::Val<dsl::f32> alpha;
  std::optional<dsl::Staging<tile>> staging;

  void open(dsl::Kernel& k, const dsl::Role<dsl::Warpgroup>& drain, int buffers) {
    staging.emplace(k, drain, buffers);
  }
  dsl::PendingStore begin() { return staging->idle(); }
  template <class Accumulator>
  dsl::PendingStore store(dsl::Warpgroup& wg, Accumulator accumulator, const GemmPlace& where,
                          dsl::PendingStore pending, int bn) {
    using namespace dsl;
    Warp w = wg.warp();
    const auto row = accumulator.row(wg);
    std::vector<PendingStore> stores;
    stores.push_back(std::move(pending));
    for (int col = 0; col < bn; col += kSm100Store)
      stores.push_back(staging->store(
          wg, std::move(stores.back()), at(c, where.batch, where.m0, where.n0 + col), [&](auto& out) {
            auto part = accumulator.template load<kSm100Store>(wg, col).wait(wg).map(
                [&](Val<f32> x) { return x * alpha; });
            if (col + kSm100Store == bn)
              std::move(accumulator).release(wg);  // the last columns are in registers
            store_tile(w, part, out.template rows<32>(row));
          }));
    return std::move(stores.back());
  }
  static void end(dsl::Warpgroup& wg, dsl::PendingStore pending) { std::move(pending).wait(wg); }
};

/// Straight to global memory, any beta, any alignment.
template <class T>
struct DirectC {
  GemmOutput<T> out;  ///< of batch 0
  dsl::Val<dsl::u64> stride;
  dsl::Val<dsl::u32> paired;

  void open(dsl::Kernel&, const dsl::Role<dsl::Warpgroup>&, int) {}
  std::tuple<> begin() { return {}; }
  template <class Accumulator>
  std::tuple<> store(dsl::Warpgroup& wg, Accumulator accumulator, const GemmPlace& where, std::tuple<>,
                     int bn) {
    using namespace dsl;
    Warp w = wg.warp();
    GemmOutput<T> of_batch = out;
    const GemmOutput<T> batch{InOut<T>(of_batch.c.at(to<u64>(where.batch) * stride)),
                              of_batch.m,
                              of_batch.n,
                              of_batch.ldc,
                              of_batch.alpha,
                              of_batch.beta};
    const auto pairs = paired != 0u;
    const auto row = where.m0 + accumulator.row(wg);
    for (int col = 0; col < bn; col += 32)
      accumulator.template load<32>(wg, col).wait(wg).each_pair(
          w, [&](Val<u32> r, Val<u32> j, Val<f32> lo, Val<f32> hi) {
            batch.put_pair(wg.k, pairs, to<u64>(row + r), to<u64>(where.n0 + col + j), lo, hi);
          });
    std::move(accumulator).release(wg);
    return {};
  }
  static void end(dsl::Warpgroup&, std::tuple<>) {}
};

/// The body of the specialised kernels. B's tile holds the columns that one block loads.
template <class T, dsl::Major MA, dsl::Major MB, int BN, class Group, class C>
void gemm_sm100_body(dsl::Kernel& k, const GemmSm100Tuning& tune,
                     const typename HopperOperand<T, MA, kHopperBm>::map& a,
                     const typename HopperOperand<T, MB, BN / Group::ctas>::map& b_all, C& c,
                     const dsl::Val<dsl::u32>& k_tiles, const dsl::Val<dsl::u32>& rows,
                     const dsl::Val<dsl::u32>& cols, const dsl::Val<dsl::u32>& tiles) {
  using namespace dsl;
  using A = HopperOperand<T, MA, kHopperBm>;
  using B = HopperOperand<T, MB, BN / Group::ctas>;
  using Accumulator = TmemAcc<f32, kHopperBm * Group::ctas, BN, Group>;
  constexpr bool pair = Group::ctas == 2;
  if (tune.cluster > 1) k.cluster(tune.cluster);
  auto drain = k.role<Warpgroup>(1);
  auto load = k.role<Warp>(1);
  auto mma = k.role<Warp>(1);
  const auto b = tune.cluster > 1 && !pair ? b_all.multicast(Axis::x) : b_all;
  Ring<std::conditional_t<pair, ByUmmaPair, ByUmma>, typename A::tile, typename B::tile> ring(
      k, tune.stages, load, mma, a, b);
  c.open(k, drain, tune.buffers);
  GemmWalk walk(k, tune, rows, cols, tiles, BN);
  if constexpr (pair)
    walk.open(load, leaders(mma), drain);
  else
    walk.open(load, mma, drain);

  // Two accumulators: one is read while the next tile is computed.
  with_tmem<TmemSlots<Accumulator, 2>>(k, [&](auto& tmem) {
    Accumulators accs(k, tmem.template get<0>(), mma, drain);
    load.one_thread([&](Thread& t) {
      walk.lead(t, [&](Val<u32> tile) {
        const auto at = walk.place(tile);
        const auto n0 = pair ? at.n0 + walk.rank() * std::uint32_t(BN / 2) : at.n0;
        k.loop(k_tiles, [&](Val<u32> kt) {
          ring.fill(t, A::at(a, at.batch, at.m0, kt * kHopperBk), B::at(b, at.batch, n0, kt * kHopperBk));
        });
      });
    });
    const auto multiply = [&](auto& t) {
      walk.follow(t, std::tuple<>{}, [&](Val<u32>, std::tuple<>) {
        k.loop(k_tiles, accs.acquire(t), [&](Val<u32>, auto sum) {
           return umma<MA, MB>(t, std::move(sum), ring.take(t));
         }).commit(t);
        return std::tuple<>{};
      });
    };
    if constexpr (pair)
      one_leader(mma, multiply);
    else
      mma.one_thread(multiply);
    drain.run([&](Warpgroup& wg) {
      auto last = walk.follow(wg, c.begin(), [&](Val<u32> tile, auto pending) {
        const auto at = walk.place(tile);
        return c.store(wg, accs.take(wg), at, std::move(pending), BN);
      });
      C::end(wg, std::move(last));
    });
  });
}

template <class T, dsl::Major MA, dsl::Major MB, int BN, class Group>
void gemm_sm100_staged(dsl::Kernel& k, GemmSm100Tuning tune, typename HopperOperand<T, MA, kHopperBm>::map a,
                       typename HopperOperand<T, MB, BN / Group::ctas>::map b, typename StagedC<T>::map c,
                       dsl::Val<dsl::u32> k_tiles, dsl::Val<dsl::f32> alpha, dsl::Val<dsl::u32> rows,
                       dsl::Val<dsl::u32> cols, dsl::Val<dsl::u32> tiles) {
  StagedC<T> out{c, alpha, {}};
  gemm_sm100_body<T, MA, MB, BN, Group>(k, tune, a, b, out, k_tiles, rows, cols, tiles);
}

template <class T, dsl::Major MA, dsl::Major MB, int BN>
void gemm_sm100_direct_kernel(dsl::Kernel& k, GemmSm100Tuning tune,
                              typename HopperOperand<T, MA, kHopperBm>::map a,
                              typename HopperOperand<T, MB, BN>::map b, dsl::InOut<T> c, dsl::Val<dsl::u32> m,
                              dsl::Val<dsl::u32> n, dsl::Val<dsl::u64> ldc, dsl::Val<dsl::u64> stride_c,
                              dsl::Val<dsl::u32> k_tiles, dsl::Val<dsl::f32> alpha, dsl::Val<dsl::f32> beta,
                              dsl::Val<dsl::u32> paired, dsl::Val<dsl::u32> rows, dsl::Val<dsl::u32> cols,
                              dsl::Val<dsl::u32> tiles) {
  using namespace dsl;
  DirectC<T> out{{c, to<u64>(m), to<u64>(n), ldc, alpha, beta}, stride_c, paired};
  gemm_sm100_body<T, MA, MB, BN, OneCta>(k, tune, a, b, out, k_tiles, rows, cols, tiles);
}

/// Choices of the steps for single blocks, tiles `bn` wide.
inline GemmSm100Tuning sm100_tuning(GemmFamily step, int bn) {
  GemmSm100Tuning t;
  t.stages = bn == 256 ? 4 : 6;
  t.walk = step == GemmFamily::sm100_specialised  ? TileWalk::one
           : step == GemmFamily::sm100_persistent ? TileWalk::persistent
                                                  : TileWalk::stealing;
  t.cluster = step == GemmFamily::sm100_multicast ? 2 : 1;
  return t;
}

/// make.operator()<T, MA, MB>(name) for the type and layout; tiles of bm x bn.
template <class Make>
GemmVariant sm100_variant(DType t, bool trans_a, bool trans_b, GemmFamily step, int bm, int bn, bool direct,
                          Make&& make) {
  using dsl::Major;
  const GemmConfig config{.family = step,
                          .a = t,
                          .layout = gemm_layout(trans_a, trans_b),
                          .tile_m = bm,
                          .tile_n = bn,
                          .tile_k = 64,
                          .direct = direct};
  const auto of = print(config);
  const auto layout = [&]<class T>(const T*) {
    if (trans_a)
      return trans_b ? make.template operator()<T, Major::mn, Major::k>(of)
                     : make.template operator()<T, Major::mn, Major::mn>(of);
    return trans_b ? make.template operator()<T, Major::k, Major::k>(of)
                   : make.template operator()<T, Major::k, Major::mn>(of);
  };
  Variant v = t == DType::f16 ? layout(static_cast<const dsl::f16*>(nullptr))
                              : layout(static_cast<const dsl::bf16*>(nullptr));
  v.only = "sm_100a";
  return {std::move(v), config};
}

}  // namespace cgp::kernels
