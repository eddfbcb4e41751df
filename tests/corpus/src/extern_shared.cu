// SPDX-License-Identifier: Apache-2.0
// One dynamic allocation carved into doubles, ints and bytes beside a static array; more than 48 KiB; %dynamic_smem_size.
extern __shared__ __align__(16) unsigned char raw[];
extern "C" __global__ void extern_shared(const double* in, double* out, int n) {
  __shared__ int fixed[32];
  double* d = (double*)raw;
  int* k = (int*)(d + n);
  unsigned char* b = (unsigned char*)(k + n);
  unsigned dyn, total;
  asm volatile("mov.u32 %0, %%dynamic_smem_size;" : "=r"(dyn));
  asm volatile("mov.u32 %0, %%total_smem_size;" : "=r"(total));
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    d[i] = in[i];
    k[i] = n - 1 - i;
    b[i] = i % 251;
  }
  if (threadIdx.x < 32) fixed[threadIdx.x] = threadIdx.x;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = d[k[i]] + b[(i + 1) % n] + fixed[i & 31];
  if (threadIdx.x == 0) out[n] = dyn + (total >= dyn + 128 ? 0.5 : 0.0);
}
