// SPDX-License-Identifier: Apache-2.0
// Rung 3: a matrix product, and what shared memory buys.
//   naive   every thread reads its whole row of A and row of B from global memory
//   tiled   a block copies 16 x 16 tiles to shared memory once, then all its threads read them there
//   padded  the same with 17 elements from row to row: rows of B begin in different banks
//   The three lines of counters show it: fewer global sectors, then fewer bank conflicts.
#include "examples/example.h"

namespace {

using namespace cgp::dsl;
constexpr int kTile = 16;

void naive(Kernel& k, In<bf16> a, In<bf16> b, Out<f32> c, Val<u32> n, Val<u32> kk) {
  k.block(kTile * kTile);
  const auto row = k.ctaid_y() * kTile + k.tid() / 16u, col = k.ctaid_x() * kTile + k.tid() % 16u;
  const auto sum = k.loop(kk, Val<f32>(0.f), [&](Val<u32> p, Val<f32> s) {
    return fma(to<f32>(a.ld(row * kk + p)), to<f32>(b.ld(col * kk + p)), s);
  });
  c.st(row * n + col, sum);
}

// `pitch` is a C++ int: a choice made while building. Two values make two kernels.
void tiled(Kernel& k, int pitch, In<bf16> a, In<bf16> b, Out<f32> c, Val<u32> n, Val<u32> kk) {
  k.block(kTile * kTile);
  const SharedMatrix<f32> tile_a(k, kTile, kTile, pitch), tile_b(k, kTile, kTile, pitch);
  const auto x = k.tid() % 16u, y = k.tid() / 16u;
  const auto row0 = k.ctaid_y() * kTile, col0 = k.ctaid_x() * kTile;
  const auto sum = k.loop(range(0, kk, kTile), Val<f32>(0.f), [&](Val<u32> k0, Val<f32> s) {
    tile_a.st(y, x, to<f32>(a.ld((row0 + y) * kk + k0 + x)));
    tile_b.st(y, x, to<f32>(b.ld((col0 + y) * kk + k0 + x)));
    k.sync();  // the tiles are complete
    std::vector<Val<f32>> sums{s};
    for (std::uint32_t p = 0; p < kTile; ++p)  // a C++ loop: unrolled
      sums.push_back(fma(tile_a.ld(y, p), tile_b.ld(x, p), sums.back()));
    k.sync();  // nobody reads them any more
    return sums.back();
  });
  c.st((row0 + y) * n + col0 + x, sum);
}

bool run(const cgp::runtime::Device& device) {
  example::needs(device, 80);
  example::Gemm g(device);
  const auto& arch = device.info().arch;
  const auto run_one = [&](const char* name, const BuiltKernel& built) {
    const auto fn = device.load(cgp::launch::image(built));
    fn(device.stream(), cgp::runtime::Dim3{g.n / kTile, g.m / kTile}, g.a, g.b, g.c, g.n, g.k);
    example::show(device, name);
    return g.check();
  };
  const bool first = run_one("naive", build("gemm_naive", arch, naive));
  const bool second = run_one("tiled", build("gemm_tiled", arch, tiled, kTile));
  const bool third = run_one("tiled, padded", build("gemm_padded", arch, tiled, kTile + 1));
  return first && second && third;
}

}  // namespace

int main(int argc, char** argv) { return example::main_on_device(argc, argv, run); }
