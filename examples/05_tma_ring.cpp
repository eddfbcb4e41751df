// SPDX-License-Identifier: Apache-2.0
// Rung 5: the copy engine of Hopper, and a ring between two roles.
//   One thread asks for whole tiles (TMA) and goes on; a Ring's barriers tell the other role when a stage is
//   full, and the copying thread when it is empty again. What lies outside the matrix arrives as zeros.
//   The kernel makes weighted sums of rows: every lane walks along one row. With plain rows all lanes hit the
//   same banks; a 128-byte swizzle, a word in the Tile's type, spreads them. The counters show both.
#include "cgp/dsl/pipeline/ring.h"
#include "examples/example.h"

namespace {

using namespace cgp::dsl;
constexpr int kRows = 32, kCols = 32, kStages = 4;

// Elements count differently by column, so that one read from the wrong place shows.
constexpr float weight(std::size_t col) { return float(col % kCols + 1); }

template <Swizzle Sw>
void row_sums(Kernel& k, TmaIn<Tile<f32, kRows, kCols, Sw>> x, Out<f32> sums, Val<u32> rows, Val<u32> tiles) {
  auto load = k.role<Warp>(1);
  auto math = k.role<Warp>(1);
  Ring<ByThreads, Tile<f32, kRows, kCols, Sw>> ring(k, kStages, load, math);
  const auto row0 = k.ctaid_x() * kRows;

  load.one_thread(
      [&](Thread& t) { k.loop(tiles, [&](Val<u32> tile) { ring.fill(t, at(x, row0, tile * kCols)); }); });

  math.run([&](Warp& warp) {
    const auto row = warp.lane();
    const auto sum = k.loop(tiles, Val<f32>(0.f), [&](Val<u32>, Val<f32> so_far) {
      auto stage = ring.take(warp);  // waits until the tile is here
      std::vector<Val<f32>> steps{so_far};
      for (std::uint32_t col = 0; col < kCols; col += 4) {
        // address() knows the swizzle; 16 bytes at a time.
        const auto four = Ptr<shared, f32>(stage.template get<0>().address(row, col)).template ld<4>();
        for (int i = 0; i < 4; ++i)
          steps.push_back(fma(four[i], Val<f32>(weight(col + std::uint32_t(i))), steps.back()));
      }
      std::move(stage).release(warp);  // forgotten, this would be an error while building
      return steps.back();
    });
    k.if_(row0 + row < rows, [&] { sums.st(row0 + row, sum); });
  });
}

bool run(const cgp::runtime::Device& device) {
  example::needs(device, 90);
  const std::uint32_t rows = 200, cols = 300;  // not whole tiles, on purpose
  const auto host = example::small_integers<float>(rows * cols, 1);
  const auto x = device.upload<float>(host);
  const auto run_one = [&](const char* name, const BuiltKernel& built) {
    const auto fn = device.load(cgp::launch::image(built));
    auto sums = device.zeros<float>(rows);
    fn(device.stream(), cgp::runtime::grid_for(rows, kRows),
       example::matrix_map(device, fn, 0, x, rows, cols), sums, rows, (cols + kCols - 1) / kCols);
    example::show(device, name);
    const auto got = sums.to_vector();
    for (std::size_t r = 0; r < rows; ++r) {
      double want = 0;
      for (std::size_t c = 0; c < cols; ++c) want += double(host[r * cols + c] * weight(c));
      if (got[r] != want) return false;
    }
    return true;
  };
  const auto& arch = device.info().arch;
  const bool plain = run_one("plain rows", build("row_sums_plain", arch, row_sums<Swizzle::none>));
  const bool swizzled = run_one("128-byte swizzle", build("row_sums_b128", arch, row_sums<Swizzle::b128>));
  return plain && swizzled;
}

}  // namespace

int main(int argc, char** argv) { return example::main_on_device(argc, argv, run); }
