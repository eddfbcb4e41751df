// SPDX-License-Identifier: Apache-2.0
// Virtual functions: objects constructed in shared and local memory, called through base pointers under divergence.
#include <new>
struct Shape {
  float k;
  __device__ Shape(float x) : k(x) {}
  __device__ virtual float area(float x) const = 0;
  __device__ virtual int sides() const { return 0; }
};
struct Square : Shape {
  __device__ Square(float x) : Shape(x) {}
  __device__ float area(float x) const override { return k * x * x; }
  __device__ int sides() const override { return 4; }
};
struct Circle : Shape {
  float pi = 3.25f;
  __device__ Circle(float x) : Shape(x) {}
  __device__ float area(float x) const override { return k * x * x * pi; }
};
struct Stack : Shape {
  const Shape *a, *b;
  __device__ Stack(const Shape* p, const Shape* q) : Shape(1), a(p), b(q) {}
  __device__ float area(float x) const override { return a->area(x) + b->area(x + 1); }
  __device__ int sides() const override { return a->sides() + b->sides(); }
};
extern "C" __global__ void virtuals(const int* which, float* area, int* sides) {
  __shared__ __align__(16) char room[3][32];
  if (threadIdx.x == 0) {
    Shape* s = new (room[0]) Square(2.f);
    Shape* c = new (room[1]) Circle(0.5f);
    new (room[2]) Stack(s, c);
  }
  __syncthreads();
  const Shape* sh = (const Shape*)room[which[threadIdx.x] % 3];
  Square mine(threadIdx.x);
  Stack local(sh, &mine);
  const Shape* use = which[threadIdx.x] & 4 ? (const Shape*)&local : sh;
  area[threadIdx.x] = use->area(threadIdx.x);
  sides[threadIdx.x] = use->sides();
}
