// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/weight_only/weight_only.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "cgp/base/error.h"
#include "cgp/base/float16.h"
#include "cgp/kernels/common/array.h"
#include "cgp/kernels/weight_only/weight_only_pack.h"
#include "cgp/kernels/weight_only/weight_only_wgmma.h"
#include "cgp/quant/decode.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;

namespace {

// Random codes; scales (binary16) of a size that products like.
std::vector<std::byte> random_weights(WeightFormat f, std::uint64_t n, std::uint64_t k, unsigned seed) {
  const auto& l = layout(f);
  std::vector<std::byte> out(n * (k / std::uint64_t(l.file_block)) * std::uint64_t(l.file_bytes));
  std::mt19937 r(seed);
  for (auto& b : out) b = std::byte(r());
  const auto put = [&](std::size_t at) {
    const auto v = half(0.001 + 0.01 * double(r() % 1000) / 1000).bits;
    std::memcpy(&out[at], &v, 2);
  };
  for (std::size_t at = 0; at < out.size(); at += std::size_t(l.file_bytes)) {
    put(at + (f == WeightFormat::q6_k ? 208 : 0));
    if (l.has_min) put(at + 2);
  }
  return out;
}

void check(const runtime::Device& device, WeightFormat f, DType type, std::uint64_t m, std::uint64_t n,
           std::uint64_t k, bool pdl = false, WeightOnlyEnd end = WeightOnlyEnd::store, bool norm = false) {
  const auto file = random_weights(f, n, k, unsigned(m + n + k));
  std::vector<std::byte> packed(packed_bytes(f, n, k));
  pack_weights(f, n, k, file, packed);
  const auto x = random_array(norm ? DType::f32 : type, {m * k}, 1);
  const auto scale = random_array(DType::f32, {k}, 3);
  WeightOnlyProblem p{f, type, m, n, k};
  p.pdl = pdl, p.end = end;
  if (end == WeightOnlyEnd::gate) p.activation = Activation::silu;
  const std::uint64_t columns = p.columns(), ldy = columns + 3;
  const bool f32 = end == WeightOnlyEnd::store_f32 || end == WeightOnlyEnd::add_f32;
  HostArray y = random_array(f32 ? DType::f32 : type, {m * ldy}, 2);
  const HostArray before = y;
  auto w_at = device.alloc<std::byte>(packed.size()), x_at = device.alloc<std::byte>(x.bytes.size()),
       y_at = device.alloc<std::byte>(y.bytes.size()), scale_at = device.alloc<std::byte>(4 * k);
  w_at.upload(packed), x_at.upload(x.bytes), y_at.upload(y.bytes), scale_at.upload(scale.bytes);
  runtime::Stream s(device);
  if (norm) p.norm = scale_at.address(), p.eps = 1e-3f;
  if (pdl) p.space = n % 32 ? WeightOnlySpace::smaller : WeightOnlySpace::larger;
  p.x = x_at.address(), p.w = w_at.address(), p.y = y_at.address(), p.ldy = ldy;
  weight_only_gemm(s, p);
  s.wait();
  y_at.download(y.bytes);
  const double u = unit_roundoff(type), u32 = unit_roundoff(DType::f32);
  double worst = 0;
  const std::size_t file_row = file.size() / n;
  std::vector<float> row(k);
  std::vector<double> sums(n * m), bounds(n * m), xs;
  for (std::uint64_t i = 0; i < m * k; ++i) xs.push_back(x.at(i));
  double squares = 0;
  for (double v : xs) squares += v * v;
  for (std::uint64_t i = 0; norm && i < k; ++i)
    xs[i] *= scale.at(i) / std::sqrt(squares / double(k) + double(p.eps));
  for (std::uint64_t j = 0; j < n; ++j) {
    quant::decode(quant::format_named(layout(f).name), std::span(file).subspan(j * file_row, file_row), row);
    for (std::uint64_t i = 0; i < m; ++i) {
      double sum = 0, size = 0;
      for (std::uint64_t e = 0; e < k; ++e) {
        const double v = xs[i * k + e] * double(row[e]);
        sum += v, size += std::fabs(v);
      }
      sums[j * m + i] = sum, bounds[j * m + i] = size * ((double(k) + 200) * u32 + (norm ? u : 0));
    }
  }
  for (std::uint64_t j = 0; j < columns; ++j)
    for (std::uint64_t i = 0; i < m; ++i) {
      const auto at = (end == WeightOnlyEnd::gate ? j / 8 * 16 + j % 8 : j) * m + i;
      double want = sums[at], bound = bounds[at];
      if (end == WeightOnlyEnd::add_f32) want += before.at(i * ldy + j);
      if (end == WeightOnlyEnd::gate) {  // |silu'| <= 1.1
        const double up = sums[at + 8 * m], active = want / (1 + std::exp(-want));
        bound = 1.1 * bound * (std::fabs(up) + bounds[at + 8 * m]) + std::fabs(active) * bounds[at + 8 * m];
        want = active * up, bound += 1e-5 * std::fabs(want) + (type == DType::f16 ? 0x1p-24 : 0);
      }
      if (type == DType::f16 && !f32 && std::fabs(want) > 65000) continue;  // infinity
      const double got = y.at(i * ldy + j);
      bound += 1.01 * (f32 ? u32 : u) * std::fabs(want);
      worst = std::max(worst, std::isfinite(got) ? std::fabs(got - want) / bound : INFINITY);
    }
  EXPECT_LE(worst, 1) << layout(f).name << " " << name(type) << " " << m << "x" << n << "x" << k << " "
                      << kWeightOnlyEnds[int(end)];
  for (std::uint64_t i = 0; i < m; ++i)
    for (std::uint64_t j = columns; j < ldy; ++j) EXPECT_EQ(y.at(i * ldy + j), before.at(i * ldy + j));
}

TEST(weight_only, right_on_the_emulator) {
  const auto device = runtime::Device::open("emu:sm_90a");
  for (auto f : kWeightFormats)
    for (auto type : {DType::bf16, DType::f16}) {
      check(device, f, type, 1, 40, 512);
      check(device, f, type, 11, 17, layout(f).file_block == 32 ? 2336 : 2304);
      check(device, f, type, 3, 2500, 256);
      check(device, f, type, 8, 33, 4096);
      if (type == DType::bf16) check(device, f, type, 16, 16, 13312);  // x of a thread in several batches
      check(device, f, type, 21, 70, 1280, type == DType::f16);
      check(device, f, type, 2, 50, 1024, true);
    }
}

// cp.async on sm_80 and sm_89, of which the second has 99 KB a block; bulk copies from sm_90 on.
TEST(weight_only, other_architectures) {
  for (const char* arch : {"sm_80", "sm_89", "sm_100a", "sm_120a"}) {
    const auto device = runtime::Device::open(std::string("emu:") + arch);
    for (auto f : kWeightFormats) {
      check(device, f, DType::bf16, 1, 70, 768);
      check(device, f, DType::f16, 9, 40, layout(f).file_block == 32 ? 608 : 512);
    }
    check(device, WeightFormat::q4_k, DType::bf16, 8, 1500, 512);
    check(device, WeightFormat::q4_0, DType::bf16, 21, 33, 512, false, WeightOnlyEnd::add_f32);
    check(device, WeightFormat::q6_k, DType::bf16, 1, 48, 1280, false, WeightOnlyEnd::store_f32, true);
    std::vector<Variant> all;
    const std::uint64_t rows[] = {1, 8, 32};
    for (int f = 0; f < int(std::size(kWeightFormatNames)); ++f)
      all.push_back(weight_only_variant(weight_only_config(
          {WeightFormat(f), f % 2 ? DType::bf16 : DType::f16, rows[f % 3], 4096, f % 3 == 2 ? 512u : 2048u},
          WeightOnlyDevice(device.info()))));
    cgp::testing::expect_assemble(cgp::testing::images_for({arch}, all));
  }
}

TEST(weight_only, one_row_with_its_norm) {
  const auto device = runtime::Device::open("emu:sm_90a");
  check(device, WeightFormat::q4_k, DType::f16, 1, 48, 1024, true, WeightOnlyEnd::gate, true);
  check(device, WeightFormat::q6_k, DType::bf16, 1, 40, 4096, true, WeightOnlyEnd::store, true);
  check(device, WeightFormat::q8_0, DType::f16, 1, 40, 608, false, WeightOnlyEnd::store_f32, true);
}

// Of blocks that differ in space one of each fits on a multiprocessor of 228 KB and 64 K registers, two of a kind do not.
TEST(weight_only, blocks_of_launches_that_overlap_fit_beside_each_other) {
  for (auto f : kWeightFormats)
    for (auto [n, k] : {std::pair{6144, 4096}, {28672, 4096}, {4096, 14336}, {128256, 4096}, {1024, 2048}}) {
      WeightOnlyProblem p{f, DType::f16, 1, std::uint64_t(n), std::uint64_t(k)};
      p.pdl = true, p.space = WeightOnlySpace::smaller;
      const auto smaller = weight_only_config(p, 132);
      p.space = WeightOnlySpace::larger;
      const auto larger = weight_only_config(p, 132);
      EXPECT_LE(smaller.smem_kb + 1 + larger.smem_kb + 1, 228);
      EXPECT_GT(2 * (larger.smem_kb + 1), 228);
      EXPECT_GT(larger.smem_kb + 1 + 2 * (smaller.smem_kb + 1), 228);
      for (const auto& c : {smaller, larger}) {
        EXPECT_LE(c.smem_bytes(), c.smem_kb * 1024) << layout(f).name << n;
        EXPECT_EQ(c.min_blocks, 2);
      }
      p.m = 8;
      EXPECT_EQ(weight_only_config(p, 132).smem_kb, 0);
    }
}

constexpr WeightOnlyEnd kEnds[] = {WeightOnlyEnd::store_f32, WeightOnlyEnd::add_f32, WeightOnlyEnd::gate};

TEST(weight_only, every_end) {
  const auto device = runtime::Device::open("emu:sm_90a");
  for (auto end : kEnds) {
    check(device, WeightFormat::q4_k, DType::f16, 1, 48, 1024, true, end);
    check(device, WeightFormat::q8_0, DType::bf16, 3, 208, 256, false, end);
    check(device, WeightFormat::q6_k, DType::bf16, 9, 48, 2304, true, end);
    check(device, WeightFormat::q4_0, DType::f16, 20, 64, 512, true, end);
  }
}

// Two products of one x, launched one after the other without waiting in between, as when weights have two formats.
TEST(weight_only, side_by_side) {
  const auto device = runtime::Device::open("emu:sm_90a");
  for (std::uint64_t m : {1, 8, 20}) {
    WeightOnlyProblem p{WeightFormat::q8_0, DType::f16, m, 64, 256};
    const auto x = random_array(DType::f16, {m * p.k}, 1);
    const auto file = random_weights(p.format, 2 * p.n, p.k, 5);
    std::vector<std::byte> packed(packed_bytes(p.format, 2 * p.n, p.k));
    pack_weights(p.format, 2 * p.n, p.k, file, packed);
    auto x_at = device.alloc<std::byte>(x.bytes.size()), w_at = device.alloc<std::byte>(packed.size());
    auto once = device.zeros<std::uint16_t>(m * 128), twice = device.zeros<std::uint16_t>(m * 128);
    x_at.upload(x.bytes), w_at.upload(packed);
    p.x = x_at.address(), p.pdl = true, p.ldy = 128;
    runtime::Stream s(device);
    const auto multiply = [&](std::uint64_t rows, std::uint64_t first, std::uint64_t y,
                              WeightOnlyOrder order) {
      p.n = rows, p.w = w_at.address() + first * packed.size() / 128, p.y = y + 2 * first, p.order = order;
      m > 16 ? weight_wgmma_gemm(s, p) : weight_only_gemm(s, p);
    };
    multiply(64, 0, once.address(), WeightOnlyOrder::after);
    multiply(64, 64, once.address(), WeightOnlyOrder::after);
    multiply(64, 0, twice.address(), WeightOnlyOrder::first);
    multiply(64, 64, twice.address(), WeightOnlyOrder::beside);
    s.wait();
    EXPECT_EQ(once.to_vector(), twice.to_vector()) << m;
  }
}

// A launch beside another one has waited for nothing: x may lie in L1 as it was.
TEST(weight_only, what_runs_beside_reads_x_past_l1) {
  for (bool norm : {false, true})
    for (auto order : {WeightOnlyOrder::first, WeightOnlyOrder::beside}) {
      WeightOnlyProblem p{WeightFormat::q6_k, DType::f16, 1, 64, 512};
      p.pdl = true, p.order = order, p.norm = norm ? 256 : 0;
      const std::vector<Variant> one{weight_only_variant(weight_only_config(p, 132))};
      const auto images = cgp::testing::images_for({"sm_90a"}, one);
      const bool past = images.at(0).image.ptx->find("ld.relaxed.gpu") != std::string::npos;
      EXPECT_EQ(past, order == WeightOnlyOrder::beside) << norm;
    }
}

class WeightOnlyOnGpu : public ::testing::TestWithParam<std::tuple<WeightFormat, DType>> {};
TEST_P(WeightOnlyOnGpu, is_right) {
  runtime::Device device;
  try {
    device = runtime::Device::open("cuda:0");
  } catch (const Unsupported& e) {
    GTEST_SKIP() << e.what();
  }
  const auto [f, type] = GetParam();
  for (std::uint64_t m : {1, 2, 3, 5, 8, 9, 16, 17, 32})
    check(device, f, type, m, 2500, 1024 + 256 * (m % 4));
  for (std::uint64_t m : {1, 8, 16}) check(device, f, type, m, 200, 14336, m == 8);
  check(device, f, type, 4, 9001, 512);
  for (auto end : kEnds)
    for (std::uint64_t m : {1, 8, 16}) check(device, f, type, m, 2512, 2304, true, end);
  for (std::uint64_t k : {1024, 4096, 14336})
    check(device, f, type, 1, 2512, k, true, WeightOnlyEnd::store, true);
}
INSTANTIATE_TEST_SUITE_P(weight_only_on_a_gpu, WeightOnlyOnGpu,
                         ::testing::Combine(::testing::ValuesIn(kWeightFormats),
                                            ::testing::Values(DType::bf16, DType::f16)));

TEST(weight_only, what_cannot_run_is_named) {
  WeightOnlyProblem p{WeightFormat::q4_k, DType::bf16, 1, 64, 4096, 256, 0, 256, 256, 0};
  EXPECT_EQ(reject(p), "");
  p.k = 4100;
  EXPECT_THAT(reject(p), ::testing::HasSubstr("k = 4100 is no multiple of 32"));
  p.k = 1u << 20, p.m = 8;
  EXPECT_THAT(reject(p), ::testing::HasSubstr("x does not fit into the shared memory of 8 blocks"));
  p.m = 8, p.k = 4096, p.n = 40, p.end = WeightOnlyEnd::gate;
  EXPECT_THAT(reject(p), ::testing::HasSubstr("n = 40 is no multiple of 16"));
  p.end = WeightOnlyEnd::store, p.activation = Activation::silu;
  EXPECT_THAT(reject(p), ::testing::HasSubstr("an activation is that of a gate"));
  p.activation = Activation::identity, p.norm = 256;
  EXPECT_THAT(reject(p), ::testing::HasSubstr("norm: one row of x"));
  p.norm = 0, p.m = 33;
  EXPECT_THAT(reject(p), ::testing::HasSubstr("at most 32 rows"));
  std::vector<std::byte> file(100), packed(100);
  EXPECT_THAT(reject(WeightPack{WeightFormat::q4_k, 16, 250}), ::testing::HasSubstr("k = 250"));
  EXPECT_THAT(reject(WeightPack{WeightFormat::q4_k, 24, 256, 16, 16, 16}), ::testing::HasSubstr("n = 24"));
  EXPECT_THROW(pack_weights(WeightFormat::q4_k, 16, 250, file, packed), ArgumentError);
  EXPECT_THROW(pack_weights(WeightFormat::q4_k, 16, 256, file, packed), ArgumentError);
}

void check_pack(const runtime::Device& device, WeightFormat f, std::uint64_t n, std::uint64_t k, bool gate) {
  auto file = random_weights(f, n, k, unsigned(n + k));
  const std::size_t row = file.size() / n;
  auto file_at = device.alloc<std::byte>(file.size() + 4);  // rows of up at a multiple of 4
  const std::uint64_t half = file.size() / 2, up = (half + 3) / 4 * 4;
  file_at.all().slice(0, gate ? half : file.size()).upload(std::span(file).first(gate ? half : file.size()));
  if (gate) file_at.all().slice(up, half).upload(std::span(file).subspan(half));
  std::vector<std::byte> want(packed_bytes(f, n, k)), got(want.size(), std::byte(0xa5)), turns;
  auto packed_at = device.alloc<std::byte>(got.size());
  packed_at.upload(got);
  runtime::Stream s(device);
  pack_weights(s, {f, n, k, file_at.address(), gate ? file_at.address() + up : 0, packed_at.address()});
  s.wait();
  packed_at.download(got);
  for (std::uint64_t r = 0; gate && r < n; r += 8) {
    const auto from = (r / 16 * 8 + r / 8 % 2 * (n / 2)) * row;
    turns.insert(turns.end(), file.begin() + std::ptrdiff_t(from),
                 file.begin() + std::ptrdiff_t(from + 8 * row));
  }
  pack_weights(f, n, k, gate ? turns : file, want);
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_EQ(got[i], want[i]) << layout(f).name << " " << n << "x" << k << " byte " << i;
}

TEST(weight_only, packed_on_the_device_as_on_the_host) {
  std::vector<runtime::Device> devices{runtime::Device::open("emu:sm_90a")};
  try {
    devices.push_back(runtime::Device::open("cuda:0"));
  } catch (const Unsupported&) {
  }
  for (const auto& device : devices)
    for (auto f : kWeightFormats) {
      check_pack(device, f, 37, layout(f).file_block == 32 ? 608 : 512, false);
      check_pack(device, f, 32, 256, true);
      if (!device.is_emulator()) check_pack(device, f, 4096, 4096, true);
    }
}

TEST(weight_only, names_round_trip_and_variants_assemble) {
  std::vector<Variant> all;
  for (auto f : kWeightFormats)
    for (auto type : {DType::bf16, DType::f16})
      for (std::uint64_t m : {1, 8, 16, 32}) {
        WeightOnlyProblem p{f, type, m, 4096, 4096};
        p.end = WeightOnlyEnd(all.size() % 4);
        p.pdl = m == 1, p.norm = m == 1 && type == DType::f16 ? 256 : 0;
        p.space = type == DType::f16 ? WeightOnlySpace::smaller : WeightOnlySpace::larger;
        all.push_back(weight_only_variant(weight_only_config(p, 132)));
        EXPECT_EQ(all.back().config->round_trip("weight_only", all.back().name), all.back().name);
      }
  for (auto f : kWeightFormats) all.push_back(weight_pack_variant({f}));
  cgp::testing::expect_assemble(cgp::testing::images_for({"sm_90a"}, all));
}

}  // namespace
