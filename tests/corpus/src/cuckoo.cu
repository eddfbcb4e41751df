// SPDX-License-Identifier: Apache-2.0
// Cuckoo hashing: keys push others out; each is found where it may be, in a second launch.
__device__ unsigned place_of(unsigned key, int which, unsigned size) { return (key * (which ? 2654435761u : 2246822519u) >> 16) % size + which * size; }
extern "C" __global__ void cuckoo_put(const unsigned* keys, int n, unsigned long long* table, unsigned size, int* lost) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned long long e = (unsigned long long)keys[i] << 32 | i;
  unsigned at = place_of(keys[i], 0, size);
  for (int tries = 0; tries < 200; ++tries) {
    e = atomicExch(table + at, e);
    if (!e) return;
    const unsigned key = e >> 32;
    at = at == place_of(key, 0, size) ? place_of(key, 1, size) : place_of(key, 0, size);
  }
  atomicAdd(lost, 1);
}
extern "C" __global__ void cuckoo_get(const unsigned* keys, int n, const unsigned long long* table, unsigned size, int* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const unsigned long long a = table[place_of(keys[i], 0, size)], b = table[place_of(keys[i], 1, size)];
  out[i] = a >> 32 == keys[i] ? int(unsigned(a)) : b >> 32 == keys[i] ? int(unsigned(b)) : -1;
}
