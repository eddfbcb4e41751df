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
           std::uint64_t k, bool pdl = false) {
  const auto file = random_weights(f, n, k, unsigned(m + n + k));
  std::vector<std::byte> packed(packed_bytes(f, n, k));
  pack_weights(f, n, k, file, packed);
  const auto x = random_array(type, {m * k}, 1);
  HostArray y = random_array(type, {m * (n + 3)}, 2);
  const HostArray before = y;
  auto w_at = device.alloc<std::byte>(packed.size()), x_at = device.alloc<std::byte>(x.bytes.size()),
       y_at = device.alloc<std::byte>(y.bytes.size());
  w_at.upload(packed), x_at.upload(x.bytes), y_at.upload(y.bytes);
  runtime::Stream s(device);
  weight_only_gemm(s, {f, type, m, n, k, x_at.address(), 0, w_at.address(), y_at.address(), n + 3, pdl});
  s.wait();
  y_at.download(y.bytes);
  const double u = unit_roundoff(type), u32 = unit_roundoff(DType::f32);
  double worst = 0;
  const std::size_t file_row = file.size() / n;
  std::vector<float> row(k);
  for (std::uint64_t j = 0; j < n; ++j) {
    quant::decode(quant::format_named(layout(f).name), std::span(file).subspan(j * file_row, file_row), row);
    for (std::uint64_t i = 0; i < m; ++i) {
      double sum = 0, size = 0;
      for (std::uint64_t e = 0; e < k; ++e)
        sum += x.at(i * k + e) * row[e], size += std::fabs(x.at(i * k + e) * row[e]);
      const double got = y.at(i * (n + 3) + j),
                   bound = 1.01 * u * std::fabs(sum) + size * (double(k) + 200) * u32;
      worst = std::max(worst, std::isfinite(got) ? std::fabs(got - sum) / bound : INFINITY);
    }
  }
  EXPECT_LE(worst, 1) << layout(f).name << " " << name(type) << " " << m << "x" << n << "x" << k;
  for (std::uint64_t i = 0; i < m; ++i)
    for (std::uint64_t j = n; j < n + 3; ++j) EXPECT_EQ(y.at(i * (n + 3) + j), before.at(i * (n + 3) + j));
}

TEST(weight_only, right_on_the_emulator) {
  const auto device = runtime::Device::open("emu:sm_90a");
  for (auto f : kWeightFormats)
    for (auto type : {DType::bf16, DType::f16}) {
      check(device, f, type, 1, 40, 512);
      check(device, f, type, 11, 17, layout(f).file_block == 32 ? 2336 : 2304);
      check(device, f, type, 3, 2500, 256);
      check(device, f, type, 8, 33, 4096);
      check(device, f, type, 21, 70, 1280, type == DType::f16);
      check(device, f, type, 2, 50, 1024, true);
    }
}

TEST(weight_only, right_on_a_gpu) {
  runtime::Device device;
  try {
    device = runtime::Device::open("cuda:0");
  } catch (const Unsupported& e) {
    GTEST_SKIP() << e.what();
  }
  for (auto f : kWeightFormats)
    for (auto type : {DType::bf16, DType::f16}) {
      for (std::uint64_t m : {1, 2, 3, 5, 8, 9, 16, 17, 32})
        check(device, f, type, m, 2500, 1024 + 256 * (m % 4));
      for (std::uint64_t m : {1, 8, 16}) check(device, f, type, m, 200, 14336, m == 8);
      check(device, f, type, 4, 9001, 512);
    }
}

TEST(weight_only, what_cannot_run_is_named) {
  WeightOnlyProblem p{WeightFormat::q4_k, DType::bf16, 1, 64, 4096, 256, 0, 256, 256, 0};
  EXPECT_EQ(reject(p), "");
  p.k = 4100;
  EXPECT_THAT(reject(p), ::testing::HasSubstr("k = 4100 is no multiple of 32"));
  p.k = 1u << 20, p.m = 8;
  EXPECT_THAT(reject(p), ::testing::HasSubstr("x does not fit into the shared memory of 8 blocks"));
  p.m = 33;
  EXPECT_THAT(reject(p), ::testing::HasSubstr("at most 32 rows"));
  std::vector<std::byte> file(100), packed(100);
  EXPECT_THROW(pack_weights(WeightFormat::q4_k, 16, 250, file, packed), ArgumentError);
  EXPECT_THROW(pack_weights(WeightFormat::q4_k, 16, 256, file, packed), ArgumentError);
}

TEST(weight_only, names_round_trip_and_variants_assemble) {
  std::vector<Variant> all;
  for (auto f : kWeightFormats)
    for (auto type : {DType::bf16, DType::f16})
      for (std::uint64_t m : {1, 8, 16, 32}) {
        const WeightOnlyProblem p{f, type, m, 4096, 4096};
        all.push_back(weight_only_variant(weight_only_config(p, 132)));
        EXPECT_EQ(all.back().config->round_trip("weight_only", all.back().name), all.back().name);
      }
  cgp::testing::expect_assemble(cgp::testing::images_for({"sm_90a"}, all));
}

}  // namespace
