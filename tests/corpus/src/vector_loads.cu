// SPDX-License-Identifier: Apache-2.0
// float4, int2, uchar4, ushort2, double2, longlong2, char2 loads and stores; __ldg, streaming and volatile forms.
extern "C" __global__ void vector_loads(const float4* f4, const int2* i2, const uchar4* c4, const double2* d2, float4* of4,
                                        int2* oi2, uchar4* oc4, double2* od2) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  float4 a = __ldg(&f4[t]);
  int2 b = __ldcs(&i2[t]);
  uchar4 c = c4[t];
  double2 d = __ldcg(&d2[t]);
  of4[t] = make_float4(a.w, a.z, a.y, a.x);
  __stcs(&oi2[t], make_int2(b.y, b.x + b.y));
  oc4[t] = make_uchar4(c.y, c.z, c.w, c.x ^ 0xff);
  __stwt(&od2[t], make_double2(d.y - d.x, d.x));
}
extern "C" __global__ void vector_narrow(const char2* c2, const ushort4* u4, const longlong2* l2, short2* oc, ushort4* ou, longlong2* ol) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  char2 c = c2[t];
  ushort4 u = u4[t];
  longlong2 l = l2[t];
  volatile short* o = (volatile short*)&oc[t];
  o[0] = c.y;
  o[1] = c.x * 2;
  ou[t] = make_ushort4(u.w, u.z, u.x + u.y, u.x);
  ol[t] = make_longlong2(l.x ^ l.y, __ldca(&l2[t].x) >> 3);
}
