// SPDX-License-Identifier: Apache-2.0
// What the refusals about tensor memory are the wrong twins of.
#include "cgp/dsl/mma/umma.h"
#include "cgp/dsl/pipeline/cluster_launch_control.h"
using namespace cgp::dsl;
using A = Tile<bf16, 128, 64>;
using B = Tile<bf16, 128, 64>;
using Sums = TmemAcc<f32, 128, 128>;
using Accs = Accumulators<Sums, 2>;
using Left = TmemOperand<bf16, 128, 64>;
using E = Tile<e4m3, 128, 128>;
using S = ScaleTile<ue8m0, 128, 4>;
using Where = ScalePair<TmemScales<ue8m0, 128, 4>, TmemScales<ue8m0, 128, 4>>;

void multiply(Thread& t, Accs& accs, Ring<ByUmma, A, B>& ring, SmemTile<A> a, SmemTile<B> b) {
  auto d = umma(t, umma(t, accs.acquire(t), ring.take(t)), a, b);
  std::move(d).commit(t);
  umma<Major::k, Major::mn>(t, accs.acquire(t), a, SmemTile<Tile<bf16, 64, 128>>(b.base())).commit(t);
}
void read(Warpgroup& wg, Accs& accs) {
  Warp w = wg.warp();
  auto acc = accs.take(wg);
  acc.load<32>(wg, 0).wait(wg).each_pair(w, [](auto...) {});
  (void)acc.load_row<32>(wg, 32).wait(wg);
  std::move(acc).release(wg);
}
void pair(PairLeader& t, Accumulators<TmemAcc<f32, 256, 256, CtaPair>, 2>& accs,
          Ring<ByUmmaPair, A, B>& ring) {
  umma(t, accs.acquire(t), ring.take(t)).commit(t);
}
void in_tensor_memory(Thread& t, Cta& cta, Warpgroup& wg, Accs& accs, TmemRef<Left> a, SmemTile<B> b,
                      In<b32> from) {
  auto filled = store_rows<32>(wg, a, [&](int) { return from.ld<32>(0); }).publish(cta);
  umma(t, accs.acquire(t), filled, b).commit(t);
}
void scaled(Thread& t, Accs& accs, Ring<ByUmma, E, E, S, S>& ring, Where where) {
  umma_scaled(t, accs.acquire(t), ring.take(t), where).commit(t);
}
void both(Kernel& k) {
  with_tmem<TmemSlots<Sums, 2>, TmemSlots<Sums, 2>>(k, [](auto& tmem) { (void)tmem.template get<1>(); });
}
