// SPDX-License-Identifier: Apache-2.0
#pragma once
// Kernels for the runtime's tests, as PTX that the emulator and a GPU both take. y[i] = a * x[i] + y[i], and
// one that writes one element too many.
#include <string>

namespace cgp::runtime {

inline std::string axpy_ptx(const std::string& target) {
  return ".version 8.0\n.target " + target + R"(
.address_size 64
.visible .global .align 4 .u32 calls;
.visible .entry axpy(.param .u64 x, .param .u64 y, .param .f32 a, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .f32 %f<4>;
  .reg .b64 %rd<6>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r1, %r2, %r3;
  ld.param.u32 %r5, [n];
  setp.ge.u32 %p1, %r4, %r5;
  @%p1 bra DONE;
  ld.param.u64 %rd1, [x];
  ld.param.u64 %rd2, [y];
  mul.wide.u32 %rd3, %r4, 4;
  add.u64 %rd4, %rd1, %rd3;
  add.u64 %rd5, %rd2, %rd3;
  ld.global.f32 %f1, [%rd4];
  ld.global.f32 %f2, [%rd5];
  ld.param.f32 %f3, [a];
  fma.rn.f32 %f2, %f1, %f3, %f2;
  st.global.f32 [%rd5], %f2;
DONE:
  ret;
}
.visible .entry count_calls()
{
  .reg .b32 %r<2>;
  ld.global.u32 %r1, [calls];
  add.u32 %r1, %r1, 1;
  st.global.u32 [calls], %r1;
  ret;
}
.visible .entry big_shared(.param .u64 out)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<3>;
  mov.u32 %r1, %dynamic_smem_size;
  ld.param.u64 %rd1, [out];
  st.global.u32 [%rd1], %r1;
  ret;
}
)";
}

}  // namespace cgp::runtime
