// SPDX-License-Identifier: Apache-2.0
// What the refusals of the tensor side are the wrong twins of.
#include "cgp/dsl/mma/epilogue.h"
#include "cgp/dsl/mma/mma.h"
#include "cgp/dsl/mma/wgmma.h"
#include "cgp/dsl/mma/wmma.h"
#include "cgp/dsl/pipeline/async.h"
#include "cgp/dsl/pipeline/cluster.h"
using namespace cgp::dsl;
using A = Tile<bf16, 64, 64>;
using B = Tile<bf16, 128, 64>;
using RingT = Ring<ByThreads, A, B>;

void products(Kernel& k, Warpgroup& wg, RingT& ring, Val<u32> n) {
  auto busy = k.loop(n, wgmma(wg, fresh<f32, 64, 128>(wg), ring.take(wg)),
                     [&](Val<u32>, auto busy) { return std::move(busy).then(wg, ring.take(wg)); });
  std::move(busy).wait(wg).each_pair(wg, [](auto...) {});
  auto stage = ring.take(wg);
  auto again = std::move(stage);
  std::move(again).release(wg);
}
void parts(Warpgroup& wg, SmemTile<A> a, SmemTile<Tile<bf16, 64, 128>> b, SmemTile<Tile<e4m3, 64, 128>> c) {
  (void)wgmma<Major::k, Major::mn>(wg, fresh<f32, 64, 128>(wg), a, b).wait(wg);
  (void)wgmma(wg, fresh<f32, 64, 64>(wg), c, c).wait(wg);
}
void fill(Thread& t, RingT& ring, TmaIn<A> a, TmaIn<B> b, TmaIn<A, 1, 64, 64> c) {
  ring.fill(t, at(a, 0, 0), at(b, 0, 0));
  prefetch(t, at(c, 0, 0, 0));
}
void fragments(Warp& w, FragA<bf16, 16, 16> a, FragB<bf16, 16, 8> b, FragC<f32, 16, 8> c, In<tf32> p) {
  (void)mma(w, a, b, std::move(c));
  WarpB<Tile<s8, 32, 64>, 32> rows(w, 0);
  WarpB<Tile<bf16, 32, 64>, 32, Major::mn> cols(w, 0);
  (void)wmma_load_a<tf32, 16, 16, 8>(w, p, 16);
}
void stages(Filling<A>& filling, const Ready<A>& ready, const TileSource<A>& source) {
  filling.copy<0>(source, 0, 0);
  (void)ready.get<0>();
}
void barriers(Kernel& k, Cta& cta, Thread& t) {
  auto bytes = mbarrier<ByBytes>(k).init(cta, 1);
  bytes.arrive_expect(t, 128);
  bytes.wait(0);
  auto arrived = cluster_arrive(cta);
  std::move(arrived).wait(cta);
}
PendingStore store(Warpgroup& wg, Staging<A>& s, TmaOut<A> c, PendingStore p) {
  return s.store(wg, std::move(p), at(c, 0, 0), [](auto&) {});
}
