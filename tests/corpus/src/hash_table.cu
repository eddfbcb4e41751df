// SPDX-License-Identifier: Apache-2.0
// Open addressing, 64-bit slots (key << 32 | count), inserted by CAS; then looked up.
extern "C" __global__ void hash_insert(const unsigned* keys, unsigned long long* table, int mask, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned k = keys[i], h = k * 0x9E3779B1u;
  h ^= h >> 15;
  for (;; ++h) {
    unsigned long long* slot = &table[h & mask];
    unsigned long long cur = atomicAdd(slot, 0ull);
    while (cur == ~0ull || (unsigned)(cur >> 32) == k) {
      unsigned long long next = cur == ~0ull ? (unsigned long long)k << 32 | 1 : cur + 1;
      unsigned long long seen = atomicCAS(slot, cur, next);
      if (seen == cur) return;
      cur = seen;
    }
  }
}
extern "C" __global__ void hash_lookup(const unsigned* query, const unsigned long long* table, int* count, int mask, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned k = query[i], h = k * 0x9E3779B1u;
  h ^= h >> 15;
  int c = 0;
  while (table[h & mask] != ~0ull) {
    if ((unsigned)(table[h & mask] >> 32) == k) {
      c = (int)table[h & mask];
      break;
    }
    ++h;
  }
  count[i] = c;
}
