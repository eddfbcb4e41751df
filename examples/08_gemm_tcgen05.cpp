// SPDX-License-Identifier: Apache-2.0
// Rung 8: the tensor cores of datacentre Blackwell.
//   tcgen05 is issued by one thread and sums in tensor memory, which no register holds: a third role reads
//   it. Two accumulators take turns, so that one tile is stored while the next is multiplied. Who may do what
//   is in the types: acquire() gives columns to multiply into, commit() promises them, take() waits for that
//   promise, and only what it returns can be read. Blocks find their tiles by work stealing (cluster launch
//   control). The block that allocates tensor memory frees it: with_tmem emits both ends.
#include "cgp/dsl/mma/umma.h"
#include "cgp/dsl/pipeline/cluster_launch_control.h"
#include "examples/example.h"

namespace {

using namespace cgp::dsl;
constexpr int kBm = 128, kBn = 128, kBk = 64;
using TileA = Tile<bf16, kBm, kBk>;
using TileB = Tile<bf16, kBn, kBk>;
using Sums = TmemAcc<f32, kBm, kBn>;
using TwoSums = TmemSlots<Sums, 2>;

void gemm(Kernel& k, int stages, TmaIn<TileA> a, TmaIn<TileB> b, Out<f32> c, Val<u32> n, Val<u32> k_tiles) {
  auto read = k.role<Warpgroup>(1);
  auto load = k.role<Warp>(1);
  auto math = k.role<Warp>(1);
  Ring<ByUmma, TileA, TileB> ring(k, stages, load, math);  // stages are freed by the tensor core
  WorkQueue queue(k, load, math, read);
  const auto across = n / kBn;
  with_tmem<TwoSums>(k, [&](const Tmem<TwoSums>& tmem) {
    Accumulators accs(k, tmem.get<0>(), math, read);

    load.one_thread([&](Thread& t) {
      queue.lead(t, [&](Val<u32> tile) {
        const auto m0 = tile / across * kBm, n0 = tile % across * kBn;
        k.loop(k_tiles, [&](Val<u32> kt) { ring.fill(t, at(a, m0, kt * kBk), at(b, n0, kt * kBk)); });
      });
    });
    math.one_thread([&](Thread& t) {
      queue.follow(t, [&](Val<u32>) {
        auto sums = k.loop(k_tiles, accs.acquire(t), [&](Val<u32>, auto sums) {
          return umma(t, std::move(sums), ring.take(t));  // the first product overwrites, the others add
        });
        std::move(sums).commit(t);
      });
    });
    read.run([&](Warpgroup& wg) {
      queue.follow(wg, [&](Val<u32> tile) {
        auto sums = accs.take(wg);
        const auto row = tile / across * kBm + sums.row(wg) + wg.warp().lane();  // a row of the tile a thread
        const auto line = c.at(row * n + tile % across * kBn);
        for (int col = 0; col < kBn; col += 32) line.st<32>(col / 32, sums.load_row<32>(wg, col).wait(wg));
        std::move(sums).release(wg);
      });
    });
  });
}

bool run(const cgp::runtime::Device& device) {
  example::needs(device, 100, "sm_100a");
  example::Gemm g(device);
  const auto built = build("gemm_tcgen05", device.info().arch, gemm, 4);
  const auto fn = device.load(cgp::launch::image(built));
  fn(device.stream(), cgp::runtime::Dim3{g.n / kBn * (g.m / kBm)},
     example::matrix_map(device, fn, 0, g.a, g.m, g.k), example::matrix_map(device, fn, 1, g.b, g.n, g.k),
     g.c, g.n, g.k / kBk);
  example::show(device, "roles, TMA, tcgen05");
  return g.check();
}

}  // namespace

int main(int argc, char** argv) { return example::main_on_device(argc, argv, run, "emu:sm_100a"); }
