// SPDX-License-Identifier: Apache-2.0
// Three histograms of bytes: privatised in shared memory, global atomics, warp aggregated with match.
extern "C" __global__ void hist_shared(const unsigned char* in, unsigned* hist, int n) {
  __shared__ unsigned h[2][256];
  for (int i = threadIdx.x; i < 512; i += blockDim.x) (&h[0][0])[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
    atomicAdd(&h[threadIdx.x & 1][in[i]], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x)
    if (unsigned c = h[0][i] + h[1][i]) atomicAdd(&hist[i], c);
}
extern "C" __global__ void hist_global(const uchar4* in, unsigned long long* hist, int n4) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n4) return;
  uchar4 v = in[i];
  atomicAdd(&hist[v.x], 1ull);
  atomicAdd(&hist[v.y], 1ull);
  atomicAdd(&hist[v.z], 1ull);
  atomicAdd(&hist[v.w], 1ull);
}
extern "C" __global__ void hist_match(const unsigned char* in, int* hist, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int b = in[i] & 7;
  unsigned peers = __match_any_sync(__activemask(), b);
  if ((threadIdx.x & 31) == __ffs(peers) - 1) atomicAdd(&hist[b], __popc(peers));
}
