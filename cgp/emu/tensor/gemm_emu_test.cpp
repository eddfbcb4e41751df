// SPDX-License-Identifier: Apache-2.0
// Whole matrix multiplications: a multistage cp.async + mma.sync kernel and a warp-specialised, persistent
// TMA + wgmma kernel with clusters and multicast, as PTX text, under the three policies.
#include <fstream>
#include <sstream>

#include "cgp/emu/tensor/tensor_test_kit.h"

namespace cgp::emu {
namespace {
using namespace test;

std::string read_file(const std::string& name) {
  std::ifstream f(std::string(CGP_EMU_TESTDATA) + "/" + name);
  std::stringstream s;
  s << f.rdbuf();
  return s.str();
}

template <class T>
std::vector<T> random_matrix(std::size_t n, unsigned seed) {
  std::mt19937 rng(seed);
  std::vector<T> v(n);
  for (auto& x : v) x = T((int(rng() % 17) - 8) / 8.0);
  return v;
}

template <class T>
std::vector<double> product(const std::vector<T>& a, const std::vector<T>& b, std::size_t m, std::size_t n,
                            std::size_t k) {
  std::vector<double> da(a.size()), db(b.size()), c(m * n);
  for (std::size_t i = 0; i < a.size(); ++i) da[i] = double(a[i]);
  for (std::size_t i = 0; i < b.size(); ++i) db[i] = double(b[i]);
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t j = 0; j < n; ++j)
      for (std::size_t l = 0; l < k; ++l) c[i * n + j] += da[i * k + l] * db[j * k + l];
  return c;
}

Result launch(Machine& machine, const std::string& file, const char* entry, Dim3 grid, Dim3 block,
              Dim3 cluster, std::uint32_t smem, const Params& params, AsyncPolicy policy) {
  auto program = Program::load(read_file(file));
  EXPECT_EQ(program->entry(entry).unsupported, "");
  const InstanceHandle instance = machine.load(program);
  Launch l;
  l.entry = entry;
  l.grid = grid;
  l.block = block;
  l.cluster = cluster;
  l.dynamic_smem = smem;
  l.params = params.span();
  Options options;
  options.async = policy;
  options.seed = 3;
  return machine.launch(instance, l, options);
}

// bf16 [rows][columns], boxes of 64 columns, 128-byte swizzle.
std::array<std::byte, TensorMap::kBytes> bf16_map(std::uint64_t address, std::uint64_t rows,
                                                  std::uint64_t columns, std::uint32_t box_rows) {
  TensorMap t;
  t.type = TensorMapType::bf16;
  t.rank = 2;
  t.address = address;
  t.dims = {columns, rows, 1, 1, 1};
  t.strides = {0, columns * 2, 0, 0, 0};
  t.box = {64, box_rows, 1, 1, 1};
  t.swizzle = TensorMapSwizzle::b128;
  return t.encode();
}

class Gemm : public ::testing::TestWithParam<AsyncPolicy> {};
INSTANTIATE_TEST_SUITE_P(Async, Gemm,
                         ::testing::Values(AsyncPolicy::eager, AsyncPolicy::late, AsyncPolicy::random),
                         [](const auto& i) {
                           return i.param == AsyncPolicy::eager  ? "eager"
                                  : i.param == AsyncPolicy::late ? "late"
                                                                 : "random";
                         });

TEST_P(Gemm, MultistageMmaSync) {
  const std::size_t m = 256, n = 128, k = 160;
  Kit kit("sm_80");
  const auto a = random_matrix<half>(m * k, 1), b = random_matrix<half>(n * k, 2);
  const std::uint64_t c = kit.upload(std::vector<float>(m * n));
  const Result r = launch(
      kit.machine, "gemm_sm80_128x128x32.ptx", "gemm_sm80", {m / 128, n / 128, 1}, {128, 1, 1}, {}, 0,
      Params().add(kit.upload(a)).add(kit.upload(b)).add(c).add(std::uint32_t(n)).add(std::uint32_t(k)),
      GetParam());
  EXPECT_CLEAN(r);
  const auto want = product(a, b, m, n, k);
  const auto got = kit.download<float>(c, m * n);
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], float(want[i])) << i / n << "," << i % n;
  EXPECT_EQ(r.counters.shared_load_conflicts, 0u);  // the kernel's XOR swizzle is free of conflicts
}

TEST_P(Gemm, WarpSpecialisedClusterMulticast) {
  const std::size_t m = 256, n = 512, k = 384;
  Kit kit;
  const auto a = random_matrix<bfloat16>(m * k, 1), b = random_matrix<bfloat16>(n * k, 2);
  const std::uint64_t c = kit.upload(std::vector<bfloat16>(m * n));
  Params p;
  p.add(bf16_map(kit.upload(a), m, k, 128), 128)
      .add(bf16_map(kit.upload(b), n, k, 128), 128)
      .add(bf16_map(c, m, n, 64), 128);
  p.add(std::uint32_t(m)).add(std::uint32_t(n)).add(std::uint32_t(k));
  const Result r = launch(kit.machine, "gemm_ws_sm90a_128x256x64_cl2.ptx", "gemm_ws_sm90a", {2, 1, 1},
                          {384, 1, 1}, {2, 1, 1}, 229440, p, GetParam());
  EXPECT_CLEAN(r);
  const auto want = product(a, b, m, n, k);
  const auto got = kit.download<bfloat16>(c, m * n);
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(double(got[i]), double(bfloat16(want[i]))) << i / n << "," << i % n;
}

TEST_P(Gemm, TensorMemoryOneBlock) {
  const std::size_t m = 256, n = 512, k = 320;
  Kit kit("sm_100a");
  const auto a = random_matrix<bfloat16>(m * k, 1), b = random_matrix<bfloat16>(n * k, 2);
  const std::uint64_t c = kit.upload(std::vector<float>(m * n));
  Params p;
  p.add(bf16_map(kit.upload(a), m, k, 128), 128).add(bf16_map(kit.upload(b), n, k, 256), 128);
  p.add(c).add(std::uint32_t(n)).add(std::uint32_t(k));
  const Result r = launch(kit.machine, "gemm_sm100a_128x256x64_1cta.ptx", "gemm_sm100a",
                          {m / 128, n / 256, 1}, {256, 1, 1}, {}, 196736, p, GetParam());
  EXPECT_CLEAN(r);
  const auto want = product(a, b, m, n, k);
  const auto got = kit.download<float>(c, m * n);
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], float(want[i])) << i / n << "," << i % n;
}

TEST_P(Gemm, TensorMemoryPairOfBlocks) {
  const std::size_t m = 512, n = 256, k = 320;
  Kit kit("sm_100a");
  const auto a = random_matrix<bfloat16>(m * k, 1), b = random_matrix<bfloat16>(n * k, 2);
  const std::uint64_t c = kit.upload(std::vector<float>(m * n));
  Params p;
  p.add(bf16_map(kit.upload(a), m, k, 128), 128).add(bf16_map(kit.upload(b), n, k, 64), 128);
  p.add(c).add(std::uint32_t(n)).add(std::uint32_t(k));
  const Result r = launch(kit.machine, "gemm_sm100a_256x128x64_2cta.ptx", "gemm_pair", {m / 128, n / 128, 1},
                          {192, 1, 1}, {2, 1, 1}, 49216, p, GetParam());
  EXPECT_CLEAN(r);
  const auto want = product(a, b, m, n, k);
  const auto got = kit.download<float>(c, m * n);
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], float(want[i])) << i / n << "," << i % n;
}

}  // namespace
}  // namespace cgp::emu
