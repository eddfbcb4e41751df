__constant__ float table[8] = {1.0f, 2.0f, 3.5f};
__device__ int counter = 7;
__managed__ int managed_counter[4];
__device__ float plus_one(float x) { return x + 1; }
__device__ float twice(float x) { return x * 2; }
typedef float (*Function)(float);
__device__ Function functions[2] = {plus_one, twice};
__device__ const char* message = "hello";
extern __shared__ float dynamic[];
struct Big { float v[20]; int n; };
__device__ __noinline__ float recurse(float x, int n) { return n <= 0 ? x : recurse(x * 1.5f, n - 1) + n; }
__device__ __noinline__ Big change(Big b) { b.v[3] += 1; return b; }
extern "C" __global__ void __launch_bounds__(256, 2) block_sum(const float* __restrict__ a, float* b, int n, Big p) {
  __shared__ float s[256];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  s[threadIdx.x] = i < n ? a[i] : 0;
  __syncthreads();
  for (int o = 128; o; o >>= 1) {
    if (threadIdx.x < o) s[threadIdx.x] += s[threadIdx.x + o];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(b, s[0] + p.v[n & 15]);
  dynamic[threadIdx.x] = table[i & 7];
}
extern "C" __global__ void calls(float* x, int k, int n) {
  float v = functions[k](x[threadIdx.x]);
  Big b; b.n = n;
  for (int i = 0; i < 20; ++i) b.v[i] = v;
  b = change(b);
  v = recurse(v, n) + b.v[n];
  switch (k) {
    case 0: v += 1; break;
    case 1: v = __sinf(v); break;
    case 2: v = __expf(v); break;
    case 3: v = v / 3; break;
    case 4: v = __log2f(v); break;
    case 5: v = __fsqrt_rn(v); break;
    case 6: v = __shfl_xor_sync(~0u, v, 3); break;
    case 7: v = __popc(n); break;
    default: v = message[k];
  }
  managed_counter[k & 3] = atomicAdd(&counter, 1);
  x[threadIdx.x] = v;
}
extern "C" __global__ void scopes(int* out, int n) {
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %0, 0;\n @p bra DONE;\n bra DONE;\n DONE:\n}\n" ::"r"(n));
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %0, 1;\n @p bra DONE;\n bra DONE;\n DONE:\n}\n" ::"r"(n));
  out[0] = n;
}
