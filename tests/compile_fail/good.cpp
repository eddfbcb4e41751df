// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/kernel.h"
using namespace cgp::dsl;

// The accepted twins of the refusals beside this file.
void f(Kernel& k, In<f32> a, Disjoint<f32> c, Out<u32> counts, Val<u32> n) {
  k.block<256>();
  k.grid_stride(n, [&](ThreadIndex i) { c.st(i, a.ld(i)); });
  auto warp = k.warp();
  auto x = a.ld<4, evict_last>(0);
  auto sum = k.loop(n, x[0], [&](Val<u32> i, Val<f32> sum) { return sum + a.ld(i); });
  auto y = k.if_(
      n == 0, [&] { return sum; }, [&] { return div<approx>(sum, x.get<3>()); });
  atom<relaxed, gpu, op::add>(counts, 0, redux<op::add>(warp, bits<u32>(ex2<approx>(y))));
  counts.st<release, gpu>(1, mul<hi>(n, 5));
  k.shared<f32>(32).ld(n);
}
auto g() { return build("f", "sm_90", f); }
