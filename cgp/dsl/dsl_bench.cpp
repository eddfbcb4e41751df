// SPDX-License-Identifier: Apache-2.0
// How long recording and printing take: a kernel of about 1000 instructions must take less than a
// millisecond.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "cgp/dsl/kernel.h"

namespace {

using namespace cgp::dsl;

/// 82 rounds of load, load, fma, mul, add, compare, select, store: about 1000 instructions.
void thousand(Kernel& k, In<f32> a, In<f32> b, Out<f32> c, Val<u32> n) {
  const auto i = k.ctaid() * k.ntid() + k.tid();
  for (int r = 0; r < 82; ++r) {
    const auto x = a.ld(i + r), y = b.at(i).ld(r);
    const auto z = fma(x, y, 1.f) * 2.f + x;
    c.at(n).st(r, select(z < y, z, y));
  }
}

template <class F>
double best_ms(F&& f) {
  double best = 1e9;
  for (int i = 0; i < 200; ++i) {
    const auto start = std::chrono::steady_clock::now();
    f();
    best = std::min(
        best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

}  // namespace

int main() {
  std::size_t instructions = 0, bytes = 0;
  const double record = best_ms([&] {
    cgp::ptx::Module m;
    m.target = "sm_90a";
    Kernel k(m, "thousand");
    thousand(k, Param<In<f32>>::make(k), Param<In<f32>>::make(k), Param<Out<f32>>::make(k),
             Param<Val<u32>>::make(k));
    k.finish();
    instructions = m.functions[0].body.size();
  });
  const double verified = best_ms([&] { build("thousand", "sm_90a", thousand); });
  const double printed = best_ms([&] { bytes = build("thousand", "sm_90a", thousand).ptx().size(); });
  std::printf("dsl/record               %7.3f ms  (%zu instructions)\n", record, instructions);
  std::printf("dsl/record+verify        %7.3f ms\n", verified);
  std::printf("dsl/record+verify+print  %7.3f ms  (%zu bytes of PTX)\n", printed, bytes);
  return printed < 1.0 ? 0 : 1;
}
