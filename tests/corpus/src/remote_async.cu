// SPDX-License-Identifier: Apache-2.0
// st.async, red.async and bulk copies into the shared memory of the other block, counted on its mbarrier; remote arrive.
#include "hopper.cuh"
extern "C" __global__ void __cluster_dims__(2, 1, 1) remote_async(int* out) {
  __shared__ __align__(16) int slot[32], sums[4], bulk[32], src[32];
  __shared__ u64 bar, gate;
  int t = threadIdx.x, r = cluster_rank(), other = r ^ 1;
  slot[t] = -1;
  if (t < 4) sums[t] = 0;
  src[t] = 7000 + r * 100 + t;
  if (t == 0) {
    mbar_init(&bar, 1);
    mbar_init(&gate, 32);
    fence_init();
    mbar_expect(&bar, 32 * 4 + 32 * 4 + 128);
  }
  fence_async();
  cluster_sync();
  unsigned rb = mapa(smem(&bar), other);
  ASM("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(mapa(smem(&slot[t]), other)), "r"(r * 1000 + t), "r"(rb) : "memory");
  ASM("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, [%2];" ::"r"(mapa(smem(&sums[t & 3]), other)), "r"(t + 1),
      "r"(rb)
      : "memory");
  if (t == 0)
    ASM("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];" ::"r"(mapa(smem(bulk), other)), "r"(smem(src)), "r"(rb) : "memory");
  ASM("{\n.reg .pred p;\nV_%=:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], 0;\n@!p bra V_%=;\n}" ::"r"(smem(&bar)) : "memory");
  out[blockIdx.x * 96 + t] = slot[31 - t];
  out[blockIdx.x * 96 + 32 + t] = sums[t & 3];
  out[blockIdx.x * 96 + 64 + t] = bulk[t ^ 5];
  ASM("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(mapa(smem(&gate), other)) : "memory");
  ASM("{\n.reg .pred p;\nW_%=:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], 0;\n@!p bra W_%=;\n}" ::"r"(smem(&gate)) : "memory");
}
