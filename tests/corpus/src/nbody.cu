// SPDX-License-Identifier: Apache-2.0
extern "C" __global__ void nbody(const float4* pos, float4* vel, float dt, int n) {
  extern __shared__ float4 tile[];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float4 p = i < n ? pos[i] : make_float4(0, 0, 0, 0);
  float ax = 0, ay = 0, az = 0;
  for (int base = 0; base < n; base += blockDim.x) {
    int m = min((int)blockDim.x, n - base);
    if (threadIdx.x < m) tile[threadIdx.x] = pos[base + threadIdx.x];
    __syncthreads();
    for (int j = 0; j < m; ++j) {
      float4 q = tile[j];
      float dx = q.x - p.x, dy = q.y - p.y, dz = q.z - p.z;
      float r = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f), f = q.w * r * r * r;
      ax += f * dx;
      ay += f * dy;
      az += f * dz;
    }
    __syncthreads();
  }
  if (i < n) {
    vel[i].x += dt * ax;
    vel[i].y += dt * ay;
    vel[i].z += dt * az;
  }
}
