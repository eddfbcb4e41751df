// SPDX-License-Identifier: Apache-2.0
// int4 weights of GPTQ and AWQ through both kernels, against quant::decode() and sums in double.
#include "cgp/kernels/weight_only/weight_only_int4.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "cgp/base/error.h"
#include "cgp/base/float16.h"
#include "cgp/kernels/common/array.h"
#include "cgp/kernels/weight_only/weight_only_pack.h"
#include "cgp/kernels/weight_only/weight_only_wgmma.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using ::testing::HasSubstr;

namespace {

enum class Kind { gptq, gptq_v1, awq };  // v1: zeros are stored less 1

struct Int4 {
  Kind kind;
  std::uint64_t rows, cols, group;
  std::vector<std::uint32_t> qweight, qzeros;
  std::vector<std::uint16_t> scales;

  Int4(Kind kind, std::uint64_t rows, std::uint64_t cols, std::uint64_t group)
      : kind(kind), rows(rows), cols(cols), group(group) {
    std::mt19937 r(unsigned(rows + cols + group));
    for (std::uint64_t i = 0; i < rows * cols / 8; ++i) qweight.push_back(std::uint32_t(r()));
    for (std::uint64_t i = 0; i < rows * cols / group / 8; ++i) qzeros.push_back(std::uint32_t(r()));
    for (std::uint64_t i = 0; i < rows * cols / group; ++i)
      scales.push_back(half(0.001 + 0.01 * double(r() % 1000) / 1000).bits);
  }
  quant::Gptq gptq() const { return {rows, cols, group, qweight, qzeros, scales, {}, kind == Kind::gptq_v1}; }
  quant::Awq awq() const { return {rows, cols, group, qweight, qzeros, scales}; }
  std::vector<std::byte> packed() const {
    std::vector<std::byte> out(packed_bytes(*int4_format(group), rows, cols));
    kind == Kind::awq ? pack_weights(awq(), out) : pack_weights(gptq(), out);
    return out;
  }
  std::vector<float> values() const {
    std::vector<float> out(rows * cols);
    kind == Kind::awq ? decode(awq(), out) : decode(gptq(), out);
    return out;
  }
};

// wgmma: `terms` of a scale in bf16, 0: the kernel on mma.
void check(const runtime::Device& device, const Int4& w, DType type, std::uint64_t m, int terms = 0,
           bool gate = false) {
  const auto packed = w.packed();
  const auto values = w.values();
  const auto x = random_array(type, {m * w.cols}, 1);
  WeightOnlyProblem p{*int4_format(w.group), type, m, w.rows, w.cols};
  if (gate) p.end = WeightOnlyEnd::gate, p.activation = Activation::relu, p.pdl = true;
  const std::uint64_t columns = p.columns(), ldy = columns + 3;
  HostArray y = random_array(type, {m * ldy}, 2);
  const HostArray before = y;
  auto w_at = device.alloc<std::byte>(packed.size()), x_at = device.alloc<std::byte>(x.bytes.size()),
       y_at = device.alloc<std::byte>(y.bytes.size());
  w_at.upload(packed), x_at.upload(x.bytes), y_at.upload(y.bytes);
  p.x = x_at.address(), p.w = w_at.address(), p.y = y_at.address(), p.ldy = ldy;
  runtime::Stream s(device);
  if (terms) {
    auto c = weight_wgmma_config(p, device.info().sm_count);
    c.scale_terms = terms;
    weight_wgmma_gemm(s, p, c);
  } else {
    weight_only_gemm(s, p);
  }
  s.wait();
  y_at.download(y.bytes);
  const double u = unit_roundoff(type), u32 = unit_roundoff(DType::f32);
  // wgmma rounds a weight to the type and, with one term, its scale before.
  const double rounding = !terms ? 0 : 1.02 * u * (terms == 1 && type == DType::bf16 ? 2 : 1) + u * u;
  std::vector<double> xs;
  for (std::uint64_t i = 0; i < m * w.cols; ++i) xs.push_back(x.at(i));
  const auto sum_of = [&](std::uint64_t i, std::uint64_t j, double& bound) {
    double sum = 0, size = 0;
    for (std::uint64_t e = 0; e < w.cols; ++e) {
      const double v = xs[i * w.cols + e] * double(values[j * w.cols + e]);
      sum += v, size += std::fabs(v);
    }
    bound = size * (rounding + (terms && type == DType::f16 ? u : 0) + (double(w.cols) + 200) * u32);
    return sum;
  };
  double worst = 0;
  for (std::uint64_t i = 0; i < m; ++i) {
    for (std::uint64_t j = 0; j < columns; ++j) {
      double bound = 0, want = sum_of(i, gate ? j / 8 * 16 + j % 8 : j, bound);
      if (gate) {
        double of_up = 0;
        const double up = sum_of(i, j / 8 * 16 + j % 8 + 8, of_up), active = std::max(want, 0.0);
        bound = bound * (std::fabs(up) + of_up) + active * of_up, want = active * up;
      }
      if (type == DType::f16 && std::fabs(want) > 65000) continue;  // infinity
      const double got = y.at(i * ldy + j), off = std::fabs(got - want);
      bound += 1.01 * u * std::fabs(want) + 1e-7;
      worst = std::max(worst, std::isfinite(got) ? off / bound : INFINITY);
    }
    for (std::uint64_t j = columns; j < ldy; ++j) EXPECT_EQ(y.at(i * ldy + j), before.at(i * ldy + j));
  }
  EXPECT_LE(worst, 1) << "group " << w.group << " " << name(type) << " " << m << "x" << w.rows << "x"
                      << w.cols << " terms " << terms;
}

TEST(weight_int4, few_rows_on_the_emulator) {
  const auto device = runtime::Device::open("emu:sm_90a");
  for (std::uint64_t group : {32, 64, 128})
    for (auto type : {DType::bf16, DType::f16}) {
      check(device, Int4(Kind::gptq_v1, 40, 640, group), type, 1);
      check(device, Int4(Kind::awq, 72, 384, group), type, 5);
      check(device, Int4(Kind::gptq, 24, 256, group), type, 18);
    }
  check(device, Int4(Kind::awq, 48, 512, 128), DType::bf16, 1, 0, true);
}
TEST(weight_int4, wgmma_on_the_emulator) {
  const auto device = runtime::Device::open("emu:sm_90a");
  for (std::uint64_t group : {32, 64, 128})
    for (auto type : {DType::bf16, DType::f16})
      check(device, Int4(group == 64 ? Kind::awq : Kind::gptq_v1, 72, 384, group), type, 19, 1);
  check(device, Int4(Kind::gptq, 72, 256, 128), DType::bf16, 70, 2);
}

TEST(weight_int4, right_on_a_gpu) {
  runtime::Device device;
  try {
    device = runtime::Device::open("cuda:0");
  } catch (const Unsupported& e) {
    GTEST_SKIP() << e.what();
  }
  for (std::uint64_t group : {32, 64, 128})
    for (auto type : {DType::bf16, DType::f16})
      for (auto kind : {Kind::gptq_v1, Kind::awq}) {
        const Int4 w(kind, 328, 1408, group), wide(kind, 72, 7168, group);
        for (std::uint64_t m : {1, 2, 5, 8, 16, 32}) check(device, w, type, m), check(device, wide, type, m);
        for (std::uint64_t m : {17, 100, 300}) check(device, w, type, m, 1), check(device, wide, type, m, 2);
        check(device, Int4(kind, 256, 1024, group), type, 1, 0, true);
        check(device, Int4(kind, 256, 1024, group), type, 40, 1, true);
      }
}

// What the tensors say, and nothing else: a code, a zero or a scale that moves changes the packed weight.
TEST(weight_int4, packed_weights_are_the_size_that_is_stated) {
  EXPECT_EQ(packed_bytes(WeightFormat::int4_g128, 4096, 4096) * 8.0 / 4096 / 4096, 4.1875);
  EXPECT_EQ(packed_bytes(WeightFormat::int4_g64, 4096, 4096) * 8.0 / 4096 / 4096, 4.375);
  EXPECT_EQ(packed_bytes(WeightFormat::int4_g32, 4096, 4096) * 8.0 / 4096 / 4096, 4.75);
}

template <class E, class F>
std::string message(const F& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "";
}
TEST(weight_int4, what_cannot_be_packed_is_named) {
  const Int4 w(Kind::gptq, 16, 128, 64), odd(Kind::awq, 16, 128, 16);
  std::vector<std::byte> to(packed_bytes(WeightFormat::int4_g64, 16, 128));
  EXPECT_FALSE(int4_format(16));
  EXPECT_THAT(message<Unsupported>([&] { pack_weights(odd.awq(), to); }), HasSubstr("group = 16"));
  std::vector<std::int32_t> order(128);
  for (int i = 0; i < 128; ++i) order[std::size_t(i)] = i / 64;
  auto g = w.gptq();
  g.g_idx = order;
  pack_weights(g, to);
  EXPECT_EQ(to, w.packed());
  std::swap(order[0], order[127]);
  EXPECT_THAT(message<Unsupported>([&] { pack_weights(g, to); }), HasSubstr("g_idx[0] is 1, not 0"));
  g.g_idx = {}, to.pop_back();
  EXPECT_THAT(message<ArgumentError>([&] { pack_weights(g, to); }), HasSubstr("packed weights have"));
  g.scales = g.scales.first(3);
  EXPECT_THAT(message<ArgumentError>([&] { pack_weights(g, to); }), HasSubstr("scales must have"));
  WeightOnlyProblem p{WeightFormat::int4_g128, DType::bf16, 1, 64, 4160, 256, 0, 256, 256, 0};
  EXPECT_THAT(reject(p), HasSubstr("k = 4160 is no multiple of a group of 128"));
  EXPECT_THAT(reject_wgmma(p), HasSubstr("k = 4160 is no multiple of a group of 128"));
  EXPECT_THAT(reject(WeightPack{WeightFormat::int4_g64, 16, 256, 16, 0, 16}), HasSubstr("has no blocks"));
  EXPECT_THROW(pack_weights(WeightFormat::int4_g64, 16, 128, {}, to), ArgumentError);
}

TEST(weight_int4, names_round_trip_and_variants_assemble) {
  std::vector<Variant> all;
  for (auto f : {WeightFormat::int4_g32, WeightFormat::int4_g64, WeightFormat::int4_g128})
    for (auto type : {DType::bf16, DType::f16}) {
      for (std::uint64_t m : {1, 8, 32})
        all.push_back(weight_only_variant(weight_only_config({f, type, m, 4096, 4096}, 132)));
      for (std::uint64_t m : {64, 256})
        all.push_back(weight_wgmma_variant(weight_wgmma_config({f, type, m, 4096, 4096}, 132)));
    }
  for (const auto& v : all)
    EXPECT_EQ(
        v.config->round_trip(v.name.starts_with("weight_wgmma") ? "weight_wgmma" : "weight_only", v.name),
        v.name);
  cgp::testing::expect_assemble(cgp::testing::images_for({"sm_90a"}, all));
}

}  // namespace
