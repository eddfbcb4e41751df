#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
extern "C" __device__ __attribute__((noinline)) float helper(float x, int n) { return n ? x * n : x; }
extern "C" __global__ void saxpy(float* y, const float* x, float a, int n) {
  __shared__ float tile[64];
  int i = __nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x();
  tile[i & 63] = x[i];
  __nvvm_bar_sync(0);
  if (i < n) y[i] += helper(a, i) * tile[63 - (i & 63)];
}
