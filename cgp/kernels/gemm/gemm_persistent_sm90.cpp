// SPDX-License-Identifier: Apache-2.0
// gemm sm90_persistent: the warp-specialised kernel of gemm_sm90.cpp made persistent.
//   who      as many clusters as fit the device walk over the tiles of C; in a block, one producer thread
//   feeds the
//            ring and 2 math warpgroups own 64 rows each of a 128 x BN tile
//   memory   the blocks of a cluster lie below each other and share the tiles of B by multicast, or beside
//   each
//            other and share those of A; results go through shared memory in the type of C and are stored by
//            TMA, clipped at the edges
//   sync     ring barriers run on across tiles, so the next tile's operands arrive while this one is stored
//   needs    what gemm_sm90.cpp needs, beta = 0, and rows and batches of C at multiples of 16 bytes
#include "cgp/base/text.h"
#include "cgp/dsl/cluster.h"
#include "cgp/dsl/epilogue.h"
#include "cgp/kernels/gemm/gemm.h"
#include "cgp/kernels/gemm/gemm_operand.h"
#include "cgp/kernels/gemm/gemm_tuning.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

struct PersistentBuild : GemmPersistentTuning {
  bool beside = false;
};

constexpr int kStoreCols = 64;  // 128 bytes of C a row: the widest swizzle

template <class T, Major MA, Major MB, int BN>
void gemm_persistent_kernel(Kernel& k, PersistentBuild tune,
                            typename HopperOperand<T, MA, kHopperBm>::map a_all,
                            typename HopperOperand<T, MB, BN>::map b_all,
                            TmaOut<Tile<T, 64, kStoreCols>, 1, 64, kStoreCols> c, Val<u32> k_tiles,
                            Val<f32> alpha, Val<u32> rows, Val<u32> cols,
                            Val<u32> tiles) {  // in tiles of a whole cluster
  using A = HopperOperand<T, MA, kHopperBm>;
  using B = HopperOperand<T, MB, BN>;
  if (tune.cluster > 1) k.cluster(tune.cluster);
  auto math = k.role<Warpgroup>(kHopperBm / 64, /*registers=*/240);
  auto load = k.role<Warpgroup>(1, /*registers=*/24);
  const bool below = tune.cluster > 1 && !tune.beside;
  const auto a = tune.beside ? a_all.multicast(Axis::x) : a_all;
  const auto b = below ? b_all.multicast(Axis::x) : b_all;
  Ring<ByThreads, typename A::tile, typename B::tile> ring(k, tune.stages, load, math, a, b);
  Staging<Tile<T, 64, kStoreCols>> staging(k, math, tune.buffers);
  const auto first = tune.cluster > 1 ? k.clusterid_x() : k.ctaid_x();
  const auto step = tune.cluster > 1 ? k.nclusterid_x() : k.nctaid_x();
  const auto rank = tune.cluster > 1 ? k.cluster_ctarank() : Val<u32>(0);
  const auto walk = range(first, tiles, step);

  // Groups of `group` rows, down the columns of a group first: neighbours in time share what L2 holds.
  struct Place {
    Val<u32> batch, m0, n0;
  };
  const auto place = [&](const Val<u32>& tile) {
    const auto per_batch = rows * cols, in_batch = tile % per_batch;
    const auto per_group = cols * std::uint32_t(tune.group);
    const auto top = in_batch / per_group * std::uint32_t(tune.group), rest = in_batch % per_group;
    const auto height = dsl::min(rows - top, std::uint32_t(tune.group));
    const auto row = top + rest % height, col = rest / height;
    if (tune.beside) return Place{tile / per_batch, row * kHopperBm, (col * 2u + rank) * BN};
    return Place{tile / per_batch, (row * std::uint32_t(tune.cluster) + rank) * kHopperBm, col * BN};
  };

  load.one_thread([&](Thread& t) {
    k.loop(walk, [&](Val<u32> tile) {
      const auto at = place(tile);
      k.loop(k_tiles, [&](Val<u32> kt) {
        ring.fill(t, A::at(a, at.batch, at.m0, kt * kHopperBk), B::at(b, at.batch, at.n0, kt * kHopperBk));
      });
    });
  });

  math.run([&](Warpgroup& wg) {
    auto last_store = k.loop(walk, staging.idle(), [&](Val<u32> tile, PendingStore pending) {
      const auto where = place(tile);
      auto begun = wgmma<MA, MB>(wg, fresh<f32, 64, BN>(wg), ring.take(wg));
      auto last = k.loop(k_tiles - 1, std::move(begun), [&](Val<u32>, auto busy) {
        return std::move(busy).template then<MA, MB>(wg, ring.take(wg));
      });
      auto acc = std::move(last).wait(wg).map([&](Val<f32> x) { return x * alpha; });
      std::vector<PendingStore> turn;
      turn.push_back(std::move(pending));
      for (int col = 0; col < BN; col += kStoreCols)
        turn.push_back(staging.store(wg, std::move(turn.back()),
                                     at(c, where.batch, where.m0 + wg.index * 64, where.n0 + col),
                                     [&](auto& out) { store_tile(wg, acc, out, col); }));
      return std::move(turn.back());
    });
    std::move(last_store).wait(wg);
  });
}

template <class T, Major MA, Major MB>
Variant make(std::string name, int bn, const PersistentBuild& t) {
  Variant v = bn == 256   ? variant(std::move(name), 90, gemm_persistent_kernel<T, MA, MB, 256>, t)
              : bn == 192 ? variant(std::move(name), 90, gemm_persistent_kernel<T, MA, MB, 192>, t)
                          : variant(std::move(name), 90, gemm_persistent_kernel<T, MA, MB, 128>, t);
  v.only = "sm_90a";
  return v;
}
template <class T>
Variant make(std::string_view stem, bool ta, bool tb, int bn, const PersistentBuild& t) {
  constexpr Major K = Major::k, MN = Major::mn;
  auto name = text::cat("gemm_", stem, "_persistent_sm90_", ta ? "t" : "n", tb ? "t" : "n", "__128x", bn,
                        "x64_s", t.stages, t.beside ? "_c1x" : "_c", t.cluster, "_g", t.group);
  if (ta) return tb ? make<T, MN, K>(name, bn, t) : make<T, MN, MN>(name, bn, t);
  return tb ? make<T, K, K>(name, bn, t) : make<T, K, MN>(name, bn, t);
}

}  // namespace

Variant gemm_persistent_sm90(DType t, bool trans_a, bool trans_b, int bn, const GemmPersistentTuning& tune) {
  return t == DType::f16 ? make<f16>("f16", trans_a, trans_b, bn, {tune})
                         : make<bf16>("bf16", trans_a, trans_b, bn, {tune});
}
Variant gemm_persistent_beside_sm90(DType t, bool trans_a, bool trans_b, int bn,
                                    const GemmPersistentTuning& tune) {
  return t == DType::f16 ? make<f16>("f16", trans_a, trans_b, bn, {tune, true})
                         : make<bf16>("bf16", trans_a, trans_b, bn, {tune, true});
}

}  // namespace cgp::kernels
