// SPDX-License-Identifier: Apache-2.0
// Speed of the emulator: warp instructions per second of one host thread, with and without checks.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "cgp/base/text.h"
#include "cgp/emu/emu.h"

namespace {
using namespace cgp::emu;

const char* const kScalar = R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry scalar(.param .u64 out, .param .u32 n)
{
  .reg .b32 %r<16>; .reg .f32 %f<8>; .reg .b64 %rd<4>; .reg .pred %p;
  ld.param.u64 %rd0, [out];
  ld.param.u32 %r0, [n];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, 0;
  mov.f32 %f0, 0f3f800000;
L:
  mad.lo.u32 %r3, %r1, 33, %r2;
  and.b32 %r4, %r3, 16383;
  shl.b32 %r5, %r4, 2;
  cvt.rn.f32.u32 %f1, %r5;
  fma.rn.f32 %f2, %f1, 0f3f000000, %f0;
  max.f32 %f0, %f2, %f1;
  xor.b32 %r6, %r6, %r3;
  add.u32 %r2, %r2, 1;
  setp.lt.u32 %p, %r2, %r0;
  @%p bra L;
  mul.wide.u32 %rd1, %r1, 4;
  add.u64 %rd2, %rd0, %rd1;
  st.global.f32 [%rd2], %f0;
  ret;
})";

const char* const kMemory = R"(.version 8.0
.target sm_90
.address_size 64
.shared .align 16 .b8 tile[8192];
.visible .entry memory(.param .u64 data, .param .u32 n)
{
  .reg .b32 %r<16>; .reg .f32 %f<8>; .reg .b64 %rd<8>; .reg .pred %p;
  ld.param.u64 %rd0, [data];
  ld.param.u32 %r0, [n];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd1, %r1, 4;
  add.u64 %rd2, %rd0, %rd1;
  shl.b32 %r3, %r1, 2;
  mov.u32 %r4, tile;
  add.u32 %r5, %r4, %r3;
  xor.b32 %r6, %r3, 64;
  add.u32 %r6, %r4, %r6;
  mov.u32 %r2, 0;
L:
  ld.global.f32 %f0, [%rd2];
  st.shared.f32 [%r5], %f0;
  bar.sync 0;
  ld.shared.f32 %f1, [%r6];
  bar.sync 0;
  add.f32 %f2, %f0, %f1;
  st.global.f32 [%rd2], %f2;
  add.u32 %r2, %r2, 1;
  setp.lt.u32 %p, %r2, %r0;
  @%p bra L;
  ret;
})";

struct Wanted {
  std::string kernel, checks;  // empty: all
  int repeats = 1;
};

void measure(const char* text, const char* entry, std::uint32_t loops, bool portable, const Wanted& wanted) {
  if (!wanted.kernel.empty() && (portable || wanted.kernel != entry)) return;
  Machine machine;
  const auto instance = machine.load(Program::load(text, portable));
  const std::uint64_t data = machine.alloc(4096);
  machine.fill(data, 0, 4096);
  std::vector<std::byte> params(12);
  std::memcpy(params.data(), &data, 8);
  std::memcpy(params.data() + 8, &loops, 4);
  for (const char* checks : {"none", "bounds,alignment", "all"}) {
    if (!wanted.checks.empty() && wanted.checks != checks) continue;
    Launch l;
    l.entry = entry;
    l.block = {256, 1, 1};
    l.params = params;
    Options o;
    o.workers = 1;
    o.checks = parse_checks(checks);
    double best = 0, instructions = 0;
    for (int i = 0; i < wanted.repeats; ++i) {
      const std::clock_t start = std::clock();  // CPU time: other work on the machine does not count
      const Result r = machine.launch(instance, l, o);
      const double seconds = double(std::clock() - start) / CLOCKS_PER_SEC;
      instructions = double(r.counters.warp_instructions);
      best = i ? std::min(best, seconds) : seconds;
    }
    std::printf("%-8s %-9s checks=%-17s %8.1f M warp instructions/s  %6.2f ns each\n", entry,
                portable ? "portable" : "native", checks, instructions / best / 1e6,
                best * 1e9 / instructions);
  }
}
}  // namespace

// emu_bench [scalar|memory [CHECKS [REPEATS]]]: without a name, both, also with the portable handlers. Of
// several runs the fastest counts.
int main(int argc, char** argv) {
  Wanted wanted;
  if (argc > 1) wanted.kernel = argv[1];
  if (argc > 2) wanted.checks = argv[2];
  if (argc > 3) wanted.repeats = std::atoi(argv[3]);
  for (bool portable : {false, true}) {
    measure(kScalar, "scalar", 40000, portable, wanted);
    measure(kMemory, "memory", 20000, portable, wanted);
  }
}
