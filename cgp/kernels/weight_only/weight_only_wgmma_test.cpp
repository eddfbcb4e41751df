// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/weight_only/weight_only_wgmma.h"

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

// What rounding may do to a weight: to its scale and to it; in formats with minima also to the minimum and, with a scale
// of two terms, to the parts that are added.
double weight_bound(const WeightLayout& l, double u, int terms, double scaled, double minimum, double value) {
  const double product = terms == 2 ? 0 : u * std::fabs(scaled) + u * std::fabs(minimum);
  return 1.02 * (product + (l.has_min && terms == 2 ? u * (std::fabs(scaled) + std::fabs(minimum)) * u : 0) +
                 (terms == 2 && l.has_min ? 2 : 1) * u * std::fabs(value));
}

void check(const runtime::Device& device, WeightOnlyProblem p, WeightWgmmaConfig c) {
  const auto& l = layout(p.format);
  const auto file = random_weights(p.format, p.n, p.k, unsigned(p.m + p.n + p.k));
  std::vector<std::byte> packed(packed_bytes(p.format, p.n, p.k));
  pack_weights(p.format, p.n, p.k, file, packed);
  std::vector<float> w(p.n * p.k);
  quant::decode(quant::format_named(l.name), file, w);
  const auto x = random_array(p.type, {p.m * p.k}, 1);
  const std::uint64_t columns = p.columns();
  const bool f32 = p.end == WeightOnlyEnd::store_f32 || p.end == WeightOnlyEnd::add_f32;
  HostArray y = random_array(f32 ? DType::f32 : p.type, {p.m * (p.n + 3)}, 2);
  const HostArray before = y;
  auto w_at = device.alloc<std::byte>(packed.size()), x_at = device.alloc<std::byte>(x.bytes.size()),
       y_at = device.alloc<std::byte>(y.bytes.size());
  w_at.upload(packed), x_at.upload(x.bytes), y_at.upload(y.bytes);
  p.x = x_at.address(), p.w = w_at.address(), p.y = y_at.address(), p.ldy = columns + 3;
  if (p.n % 8 == 0) p.ldy = columns;  // stores of 16 bytes
  runtime::Stream s(device);
  ASSERT_EQ(reject_wgmma(p), "");
  weight_wgmma_gemm(s, p, c);
  s.wait();
  y_at.download(y.bytes);
  const double u = unit_roundoff(p.type), u32 = unit_roundoff(DType::f32);
  double worst = 0;
  std::vector<double> sums(p.n * p.m), bounds(p.n * p.m), xs;
  for (std::uint64_t i = 0; i < p.m * p.k; ++i) xs.push_back(x.at(i));
  for (std::uint64_t j = 0; j < p.n; ++j)
    for (std::uint64_t i = 0; i < p.m; ++i) {
      double sum = 0, size = 0, rounding = 0;
      for (std::uint64_t e = 0; e < p.k; ++e) {
        const double xe = xs[i * p.k + e], value = double(w[j * p.k + e]);
        sum += xe * value, size += std::fabs(xe * value);
        // A minimum is at most 63 x 0.011; half of that and more is what the value itself does not say.
        const double minimum = l.has_min ? 0.7 : 0;
        rounding +=
            std::fabs(xe) * weight_bound(l, u, c.scale_terms, std::fabs(value) + minimum, minimum, value);
      }
      sums[j * p.m + i] = sum, bounds[j * p.m + i] = rounding + size * (double(p.k) + 200) * u32;
    }
  for (std::uint64_t j = 0; j < columns; ++j)
    for (std::uint64_t i = 0; i < p.m; ++i) {
      const auto at = (p.end == WeightOnlyEnd::gate ? j / 8 * 16 + j % 8 : j) * p.m + i;
      double sum = sums[at], bound = bounds[at];
      if (p.end == WeightOnlyEnd::add_f32) sum += before.at(i * p.ldy + j);
      if (p.end == WeightOnlyEnd::gate) {  // |silu'| <= 1.1
        const double up = sums[at + 8 * p.m], active = sum / (1 + std::exp(-sum));
        bound =
            1.1 * bound * (std::fabs(up) + bounds[at + 8 * p.m]) + std::fabs(active) * bounds[at + 8 * p.m];
        sum = active * up, bound += 1e-5 * std::fabs(sum);
      }
      if (p.type == DType::f16 && !f32 && std::fabs(sum) > 65000) continue;  // infinity
      const double got = y.at(i * p.ldy + j);
      bound += 1.01 * (f32 ? u32 : u) * std::fabs(sum) + 1e-7;
      worst = std::max(worst, std::isfinite(got) ? std::fabs(got - sum) / bound : INFINITY);
    }
  EXPECT_LE(worst, 1) << l.name << " " << name(p.type) << " " << p.m << "x" << p.n << "x" << p.k << " "
                      << weight_wgmma_variant(c).name;
  for (std::uint64_t i = 0; i < p.m; ++i)
    for (std::uint64_t j = columns; j < p.ldy; ++j) EXPECT_EQ(y.at(i * p.ldy + j), before.at(i * p.ldy + j));
}

WeightWgmmaConfig config(const WeightOnlyProblem& p, int rows, int warpgroups, int split, int share,
                         int terms) {
  WeightWgmmaConfig c{p.type, p.format, rows, warpgroups, split, share};
  c.w_stages = 2, c.scale_terms = terms;
  c.pdl = p.pdl, c.end = p.end, c.activation = p.activation;
  c.x_stages = warpgroups == 4 ? 9 : 5;
  return c;
}

TEST(weight_wgmma, right_on_the_emulator) {
  const auto device = runtime::Device::open("emu:sm_90a");
  for (auto f : kWeightFormats) {
    const std::uint64_t k = layout(f).file_block == 32 ? 2336 : 2304;
    for (auto type : {DType::bf16, DType::f16}) {
      const WeightOnlyProblem p{f, type, 21, 70, k};
      check(device, p, config(p, 32, 1, 4, 1, 1));
    }
    const WeightOnlyProblem wide{f, DType::bf16, 70, 136, 512}, tall{f, DType::bf16, 130, 72, 256};
    check(device, wide, config(wide, 64, 2, 1, 1, 2));
    check(device, tall, config(tall, 128, 1, 1, 2, 1));
  }
}
TEST(weight_wgmma, every_shape_of_block) {
  const auto device = runtime::Device::open("emu:sm_90a");
  const auto f = WeightFormat::q4_k;
  const WeightOnlyProblem few{f, DType::bf16, 5, 300, 1024}, many{f, DType::bf16, 300, 200, 256};
  check(device, few, config(few, 16, 4, 2, 2, 1));
  check(device, many, config(many, 256, 2, 1, 1, 1));
}

WeightOnlyProblem ended(WeightOnlyProblem p, WeightOnlyEnd end) {
  p.pdl = true, p.end = end;
  if (end == WeightOnlyEnd::gate) p.activation = Activation::silu;
  return p;
}
constexpr WeightOnlyEnd kEnds[] = {WeightOnlyEnd::store_f32, WeightOnlyEnd::add_f32, WeightOnlyEnd::gate};

TEST(weight_wgmma, every_end) {
  const auto device = runtime::Device::open("emu:sm_90a");
  for (auto end : kEnds) {
    const auto p = ended({WeightFormat::q4_k, DType::f16, 21, 112, 512}, end),
               odd = ended({WeightFormat::q8_0, DType::bf16, 18, end == WeightOnlyEnd::gate ? 80u : 77u, 256},
                           end);
    check(device, p, config(p, 32, 1, 2, 1, 1));
    check(device, odd, config(odd, 32, 2, 1, 1, 1));
  }
}

// Two blocks that walk over tiles.
WeightWgmmaConfig persistent(WeightWgmmaConfig c) {
  c.persistent = true, c.reread = c.rows == 64, c.blocks = 2;
  return c;
}
void check_walks(const runtime::Device& device) {
  const auto f = WeightFormat::q4_0;
  const WeightOnlyProblem tall{f, DType::f16, 300, 200, 512}, odd{f, DType::bf16, 70, 75, 256},
      wide{f, DType::bf16, 65, 200, 256};
  check(device, tall, persistent(config(tall, 256, 2, 1, 1, 2)));
  check(device, odd, persistent(config(odd, 64, 1, 1, 1, 1)));
  check(device, wide, persistent(config(wide, 128, 3, 1, 1, 1)));
  for (auto end : kEnds) {
    const auto p = ended({WeightFormat::q4_k, DType::f16, 600, 112, 512}, end);
    check(device, p, persistent(config(p, 64, 2, 1, 1, 1)));
  }
}

TEST(weight_wgmma, blocks_that_walk_over_tiles) { check_walks(runtime::Device::open("emu:sm_90a")); }

// Experts in one launch: the bits of one launch an expert with the same config, rows behind the last end left alone.
void check_groups(const runtime::Device& device, WeightOnlyProblem p, const std::vector<std::uint64_t>& ends,
                  bool wide) {
  const std::uint64_t groups = ends.size(), each = packed_bytes(p.format, p.n, p.k);
  const auto file = random_weights(p.format, groups * p.n, p.k, 5);
  std::vector<std::byte> packed(groups * each);
  for (std::uint64_t g = 0; g < groups; ++g)
    pack_weights(p.format, p.n, p.k,
                 std::span(file).subspan(g * (file.size() / groups), file.size() / groups),
                 std::span(packed).subspan(g * each, each));
  const auto x = random_array(p.type, {p.m * p.k}, 1);
  HostArray y = random_array(p.type, {p.m * p.columns()}, 2), want = y;
  std::vector<std::uint32_t> ends_of;
  for (auto e : ends) {
    ends_of.push_back(std::uint32_t(e));
    if (wide) ends_of.push_back(0);
  }
  auto w_at = device.alloc<std::byte>(packed.size()), x_at = device.alloc<std::byte>(x.bytes.size()),
       y_at = device.alloc<std::byte>(y.bytes.size());
  auto ends_at = device.upload<std::uint32_t>(ends_of);
  w_at.upload(packed), x_at.upload(x.bytes), y_at.upload(y.bytes);
  p.x = x_at.address(), p.w = w_at.address(), p.y = y_at.address();
  p.groups = groups, p.ends = ends_at.address(), p.wide_ends = wide;
  runtime::Stream s(device);
  ASSERT_EQ(reject_wgmma(p), "");
  EXPECT_TRUE(weight_wgmma_serves(p));
  const auto c = weight_wgmma_config(p, device.info().sm_count);
  weight_wgmma_gemm(s, p, c);
  s.wait();
  y_at.download(y.bytes);
  y_at.upload(want.bytes);
  auto walking = c;  // over tiles that may not be there
  walking.rows = 64, walking.split = 1, walking.persistent = true, walking.blocks = 3;
  ASSERT_TRUE(weight_wgmma_fit(walking));
  HostArray walked = want;
  y_at.upload(walked.bytes);
  weight_wgmma_gemm(s, p, walking);
  s.wait();
  y_at.download(walked.bytes);
  y_at.upload(want.bytes);
  for (std::uint64_t g = 0; g < groups; ++g) {
    WeightOnlyProblem one = p;
    const std::uint64_t from = g ? ends[g - 1] : 0;
    one.groups = 0, one.m = ends[g] - from, one.w = p.w + g * each;
    one.x = p.x + from * p.k * 2, one.y = p.y + from * p.columns() * 2;
    auto alone = c;
    alone.grouped = false;
    if (one.m) weight_wgmma_gemm(s, one, alone);
  }
  s.wait();
  y_at.download(want.bytes);
  EXPECT_TRUE(y.bytes == want.bytes) << layout(p.format).name << " " << p.m << "x" << p.n << "x" << p.k << " "
                                     << weight_wgmma_variant(c).name;
  EXPECT_TRUE(c.split > 1 || walked.bytes == want.bytes) << weight_wgmma_variant(walking).name;
}

TEST(weight_wgmma, groups_whose_rows_the_device_knows) {
  const auto device = runtime::Device::open("emu:sm_90a");
  const std::vector<std::uint64_t> few{0, 3, 3, 20, 21, 37}, many{70, 70, 75};
  check_groups(device, {WeightFormat::q4_k, DType::bf16, 40, 72, 512}, few, false);
  check_groups(device, {WeightFormat::q4_0, DType::f16, 75, 64, 256}, many, true);
  auto gate = WeightOnlyProblem{WeightFormat::q6_k, DType::bf16, 9, 80, 256};
  gate.end = WeightOnlyEnd::gate, gate.activation = Activation::silu, gate.pdl = true;
  std::vector<std::uint64_t> ends(40);  // more than a warp's lanes
  for (std::size_t i = 0; i < ends.size(); ++i) ends[i] = i / 5;
  check_groups(device, gate, ends, false);
  WeightOnlyProblem p{WeightFormat::q4_k, DType::bf16, 64, 64, 4096};
  p.groups = 2;
  EXPECT_THAT(reject_wgmma(p), ::testing::HasSubstr("ends of groups must be given"));
  EXPECT_THAT(reject(p), ::testing::HasSubstr("on wgmma"));
}

TEST(weight_wgmma, right_on_a_gpu) {
  runtime::Device device;
  try {
    device = runtime::Device::open("cuda:0");
  } catch (const Unsupported& e) {
    GTEST_SKIP() << e.what();
  }
  for (auto f : kWeightFormats)
    for (auto type : {DType::bf16, DType::f16})
      for (std::uint64_t m : {17, 100, 300}) {
        const WeightOnlyProblem p{f, type, m, 200 + m % 2, 512 + 256 * (m % 4)};
        check(device, p, weight_wgmma_config(p, device.info().sm_count));
        for (int terms : {1, 2}) check(device, p, config(p, m > 64 ? 128 : 64, 2, 2, 2, terms));
        for (auto end : kEnds) {
          const auto q = ended({f, type, m, 208, 768}, end);
          check(device, q, weight_wgmma_config(q, device.info().sm_count));
        }
      }
}

TEST(weight_wgmma, walks_and_groups_on_a_gpu) {
  runtime::Device device;
  try {
    device = runtime::Device::open("cuda:0");
  } catch (const Unsupported& e) {
    GTEST_SKIP() << e.what();
  }
  check_walks(device);
  for (auto f : {WeightFormat::q4_0, WeightFormat::q4_k})
    for (std::uint64_t rows : {40, 600, 9000}) {
      std::vector<std::uint64_t> ends;
      for (std::uint64_t g = 0; g < 64; ++g) ends.push_back((g + 1) * (g + 1) * (rows - 7) / 4096);
      check_groups(device, {f, DType::bf16, rows, 520, 1024}, ends, rows == 600);
    }
}

TEST(weight_wgmma, what_cannot_run_is_named) {
  WeightOnlyProblem p{WeightFormat::q4_k, DType::bf16, 64, 64, 4096};
  EXPECT_EQ(reject_wgmma(p), "");
  p.k = 4100;
  EXPECT_THAT(reject_wgmma(p), ::testing::HasSubstr("k = 4100 is no multiple of 32"));
  p.k = 4096, p.type = DType::f32;
  EXPECT_THAT(reject_wgmma(p), ::testing::HasSubstr("x and y are f16 or bf16"));
  p.type = DType::f16, p.ldx = 4097;
  EXPECT_THAT(reject_wgmma(p), ::testing::HasSubstr("multiples of 16 bytes"));
}

TEST(weight_wgmma, names_round_trip_and_variants_assemble) {
  std::vector<Variant> all;
  for (auto f : kWeightFormats)
    for (auto type : {DType::bf16, DType::f16})
      for (std::uint64_t m : {16, 32, 64, 128, 256}) {
        for (std::uint64_t n : {4096, 28672}) {
          const WeightOnlyProblem p{f, type, m, n, 4096};
          all.push_back(weight_wgmma_variant(weight_wgmma_config(p, 132)));
          EXPECT_EQ(all.back().config->round_trip("weight_wgmma", all.back().name), all.back().name);
        }
      }
  cgp::testing::expect_assemble(cgp::testing::images_for({"sm_90a"}, all));
}

}  // namespace
