// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 counter generator and a Box-Muller pair; CRC-32 with a table built in shared memory.
extern "C" __global__ void philox(unsigned* out, float* normal, unsigned long long seed) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x, c0 = i, c1 = 0, c2 = 0x1234, c3 = ~i, k0 = (unsigned)seed, k1 = (unsigned)(seed >> 32);
#pragma unroll 2
  for (int r = 0; r < 10; ++r) {
    unsigned h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0, h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
    c0 = h1 ^ c1 ^ k0, c1 = l1, c2 = h0 ^ c3 ^ k1, c3 = l0;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  ((uint4*)out)[i] = make_uint4(c0, c1, c2, c3);
  float u = (c0 >> 8) * 0x1p-24f + 0x1p-25f, v = (c1 >> 8) * 0x1p-24f;
  normal[i] = sqrtf(-2.f * logf(u)) * cospif(2.f * v);
}
extern "C" __global__ void crc32(const unsigned char* in, unsigned* out, int len) {
  __shared__ unsigned tab[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) {
    unsigned c = i;
    for (int k = 0; k < 8; ++k) c = c & 1 ? c >> 1 ^ 0xEDB88320u : c >> 1;
    tab[i] = c;
  }
  __syncthreads();
  unsigned c = ~0u;
  for (int i = 0; i < len; ++i) c = tab[(c ^ in[threadIdx.x * len + i]) & 255] ^ c >> 8;
  out[threadIdx.x] = ~c;
}
