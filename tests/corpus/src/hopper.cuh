// SPDX-License-Identifier: Apache-2.0
#pragma once
// Inline assembly of sm_90, by its PTX names.
#define ASM asm volatile
typedef unsigned long long u64;
__device__ __forceinline__ unsigned smem(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void mbar_init(u64* b, int count) { ASM("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem(b)), "r"(count) : "memory"); }
__device__ __forceinline__ void mbar_arrive(u64* b) { ASM("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem(b)) : "memory"); }
__device__ __forceinline__ void mbar_expect(u64* b, int bytes) {
  ASM("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem(b)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void mbar_wait(u64* b, int parity) {
  ASM("{\n.reg .pred p;\nWAIT_%=:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE_%=;\nbra WAIT_%=;\nDONE_%=:\n}" ::"r"(smem(b)),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void fence_init() { ASM("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void fence_async() { ASM("fence.proxy.async;" ::: "memory"); }
__device__ __forceinline__ void bulk_load(void* dst, const void* src, int bytes, u64* b) {
  ASM("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(smem(dst)), "l"(src), "r"(bytes), "r"(smem(b)) : "memory");
}
__device__ __forceinline__ void bulk_store(void* dst, const void* src, int bytes) {
  ASM("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst), "r"(smem(src)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void bulk_commit() { ASM("cp.async.bulk.commit_group;" ::: "memory"); }
__device__ __forceinline__ void bulk_wait() { ASM("cp.async.bulk.wait_group 0;" ::: "memory"); }
__device__ __forceinline__ void tma_load2(void* dst, const void* map, int x, int y, u64* b) {
  ASM("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(smem(dst)), "l"(map),
      "r"(x), "r"(y), "r"(smem(b))
      : "memory");
}
__device__ __forceinline__ void tma_store2(const void* map, int x, int y, const void* src) {
  ASM("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(x), "r"(y), "r"(smem(src)) : "memory");
}
__device__ __forceinline__ unsigned mapa(unsigned addr, unsigned rank) {
  unsigned r;
  ASM("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(addr), "r"(rank));
  return r;
}
__device__ __forceinline__ unsigned cluster_rank() {
  unsigned r;
  ASM("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
__device__ __forceinline__ void cluster_sync() { ASM("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_fence() { ASM("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { ASM("wgmma.commit_group.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_wait() { ASM("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }
/// Shared-memory matrix descriptor; layout 0 none, 1 128B, 2 64B, 3 32B.
__device__ __forceinline__ u64 descriptor(const void* p, int lbo, int sbo, int layout) {
  return (u64)((smem(p) & 0x3ffff) >> 4) | (u64)(lbo >> 4) << 16 | (u64)(sbo >> 4) << 32 | (u64)layout << 62;
}
