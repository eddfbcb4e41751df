// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/decode_linear/decode_linear.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cgp/base/error.h"
#include "cgp/emu/policy.h"
#include "cgp/kernels/common/array.h"
#include "cgp/kernels/decode_linear/decode_norm.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;

namespace {

struct Shape {
  DType type;
  std::uint64_t m, k;
  std::vector<std::uint64_t> n;
  DecodeLinearNorm norm;
  Activation activation;
  bool gated, bias, residual, pdl;
};

double activated(Activation a, double x) {
  switch (a) {
    case Activation::relu:
      return std::max(x, 0.0);
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::gelu:
      return x * 0.5 * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    default:
      return x;
  }
}

class Arrays {
 public:
  explicit Arrays(const runtime::Device& d) : device_(d) {}
  std::uint64_t put(const HostArray& a) {
    memory_.push_back(device_.alloc<std::byte>(a.bytes.size()));
    memory_.back().upload(a.bytes);
    return memory_.back().address();
  }
  void fetch(std::size_t i, HostArray& a) { memory_[i].download(a.bytes); }
  std::size_t last() const { return memory_.size() - 1; }

 private:
  runtime::Device device_;
  std::vector<runtime::Buffer<std::byte>> memory_;
};

// h of the header, as double: what f32 arithmetic and one rounding to the type leave.
std::vector<double> normed(const Shape& s, const HostArray& x, std::uint64_t row, std::uint64_t pitch,
                           const HostArray& w, const HostArray& b, const DecodeLinear& p) {
  std::vector<double> h;
  for (std::uint64_t i = 0; i < s.k; ++i) h.push_back(x.at(row * pitch + i));
  if (s.norm == DecodeLinearNorm::none) return h;
  double mean = 0, squares = 0;
  if (s.norm == DecodeLinearNorm::layer)
    for (double v : h) mean += v / double(s.k);
  for (double v : h) squares += (v - mean) * (v - mean) / double(s.k);
  for (std::uint64_t i = 0; i < s.k; ++i) {
    h[i] = (h[i] - mean) / std::sqrt(squares + double(p.eps)) * (w.at(i) + double(p.weight_offset));
    if (s.norm == DecodeLinearNorm::layer) h[i] += b.at(i);
  }
  return h;
}

void check(const runtime::Device& device, const Shape& s) {
  Arrays on(device);
  DecodeLinear p;
  p.type = s.type, p.m = s.m, p.k = s.k, p.norm = s.norm, p.activation = s.activation, p.gated = s.gated;
  p.pdl = s.pdl, p.eps = 1e-3f, p.weight_offset = s.norm == DecodeLinearNorm::rms ? 0.5f : 0.f;
  const std::uint64_t x_pitch = s.k + 8;
  const auto x = random_array(s.type, {s.m * x_pitch}, 1), nw = random_array(s.type, {s.k}, 2),
             nb = random_array(s.type, {s.k}, 3);
  p.x = on.put(x), p.x_pitch = x_pitch, p.norm_weight = on.put(nw), p.norm_bias = on.put(nb);
  std::vector<HostArray> weights, biases;
  for (std::uint64_t n : s.n) {
    weights.push_back(random_array(s.type, {n * s.k}, 10 + weights.size()));
    biases.push_back(random_array(s.type, {n}, 20 + weights.size()));
    p.weights.push_back({on.put(weights.back()), s.bias ? on.put(biases.back()) : 0, n});
  }
  const std::uint64_t columns = p.columns(), pitch = columns + 3;
  HostArray y = random_array(s.type, {s.m * pitch}, 4);
  const HostArray r = y;
  p.y = on.put(y), p.y_pitch = pitch;
  const auto out = on.last();
  if (s.residual) p.residual = p.y, p.residual_pitch = pitch;  // in place
  if (s.pdl) p.prefetch[1] = {(p.x + 127) / 128 * 128, 128};
  runtime::Stream stream(device);
  decode_linear(stream, p);
  stream.wait();
  on.fetch(out, y);
  const double u = unit_roundoff(s.type), u32 = unit_roundoff(DType::f32);
  double worst = 0;
  for (std::uint64_t i = 0; i < s.m; ++i) {
    const auto h = normed(s, x, i, x_pitch, nw, nb, p);
    std::vector<std::pair<double, double>> product;  // value, bound of its error
    for (std::size_t part = 0; part < s.n.size(); ++part)
      for (std::uint64_t j = 0; j < s.n[part]; ++j) {
        double sum = s.bias ? biases[part].at(j) : 0, size = std::fabs(sum);
        for (std::uint64_t e = 0; e < s.k; ++e) {
          const double t = h[e] * weights[part].at(j * s.k + e);
          sum += t, size += std::fabs(t);
        }
        product.push_back(
            {sum, size * (double(s.k + 16) * u32 + (s.norm == DecodeLinearNorm::none ? 0 : 1.01 * u))});
      }
    for (std::uint64_t j = 0; j < pitch; ++j) {
      const double got = y.at(i * pitch + j);
      if (j >= columns) {
        EXPECT_EQ(got, r.at(i * pitch + j)) << "nothing is written behind a row";
        continue;
      }
      double want = activated(s.activation, product[j].first);
      double bound = 1.2 * product[j].second + 1e-6 * std::fabs(product[j].first);
      if (s.gated) {
        const auto [up, up_bound] = product[columns + j];
        bound = bound * (std::fabs(up) + up_bound) + std::fabs(want) * up_bound;
        want *= up;
      }
      if (s.residual) want += r.at(i * pitch + j);
      bound += u * (std::fabs(want) + bound) + (s.type == DType::f16 ? 0x1p-25 : 0x1p-126);
      worst = std::max(worst, std::isfinite(got) ? std::fabs(got - want) / bound : INFINITY);
    }
  }
  EXPECT_LE(worst, 1) << name(s.type) << " m " << s.m << " k " << s.k << " n " << s.n[0] << " norm "
                      << int(s.norm);
}

const std::vector<Shape>& shapes() {
  using N = DecodeLinearNorm;
  using A = Activation;
  static const std::vector<Shape> all{
      {DType::bf16, 1, 64, {16}, N::none, A::identity, false, false, false, false},
      {DType::bf16, 1, 776, {37}, N::none, A::identity, false, false, true, true},
      {DType::f16, 3, 328, {24, 5, 17}, N::rms, A::identity, false, true, false, true},
      {DType::bf16, 8, 136, {40, 40}, N::rms, A::silu, true, false, false, true},
      {DType::f16, 2, 2096, {20}, N::layer, A::gelu_tanh, false, true, false, false},
      {DType::bf16, 5, 72, {9, 9}, N::layer, A::gelu, true, true, true, false},
      {DType::bf16, 2, 8, {16384}, N::none, A::relu, false, false, false, false},
      {DType::f16, 4, 2304, {33}, N::none, A::identity, false, false, true, false}};
  return all;
}

}  // namespace

TEST(decode_linear, every_form_under_every_order_of_execution) {
  for (const char* schedule : {"fair", "adversarial"}) {
    auto device = runtime::Device::open("emu:sm_90a");
    auto o = device.emulator_options();
    emu::parse_schedule(schedule).apply(o);
    device.set_emulator_options(o);
    for (const auto& s : shapes()) check(device, s);
  }
  check(runtime::Device::open("emu:sm_80"), shapes()[2]);
}

TEST(decode_linear, bad_arguments_name_the_argument) {
  DecodeLinear p;
  p.k = 64, p.weights = {{16, 0, 8}}, p.x = p.y = 16;
  EXPECT_EQ(reject(p), "");
  const auto says = [&](const char* text, auto&& change) {
    auto q = p;
    change(q);
    EXPECT_NE(reject(q).find(text), std::string::npos) << reject(q);
  };
  says("m = 9", [](DecodeLinear& q) { q.m = 9; });
  says("k = 60", [](DecodeLinear& q) { q.k = 60; });
  says("type = f32", [](DecodeLinear& q) { q.type = DType::f32; });
  says("4 weights", [](DecodeLinear& q) { q.weights.resize(4, q.weights[0]); });
  says("gated", [](DecodeLinear& q) { q.gated = true; });
  says("weights", [](DecodeLinear& q) { q.weights[0].address = 8; });
  says("bias", [](DecodeLinear& q) { q.weights.push_back({16, 16, 8}); });
  says("x and its rows", [](DecodeLinear& q) { q.x_pitch = 4; });
  says("prefetch", [](DecodeLinear& q) { q.prefetch[0].address = 64; });
  says("norm_weight", [](DecodeLinear& q) { q.norm = DecodeLinearNorm::rms; });
  says("k = 8192", [](DecodeLinear& q) { q.norm = DecodeLinearNorm::rms, q.k = 8192; });
  auto device = runtime::Device::open("emu:sm_90a");
  runtime::Stream s(device);
  p.m = 9;
  EXPECT_THROW(decode_linear(s, p), ArgumentError);
}

TEST(decode_linear, right_on_a_gpu) {
  try {
    const auto device = runtime::Device::open("cuda:0");
    for (const auto& s : shapes()) check(device, s);
    check(device, {DType::bf16,
                   1,
                   2048,
                   {2048, 512, 512},
                   DecodeLinearNorm::rms,
                   Activation::identity,
                   false,
                   false,
                   false,
                   true});
    check(device, {DType::bf16,
                   1,
                   8192,
                   {2048},
                   DecodeLinearNorm::none,
                   Activation::identity,
                   false,
                   false,
                   true,
                   true});
  } catch (const Unsupported& e) {
    GTEST_SKIP() << e.what();
  }
}

namespace {

void check_norm(const runtime::Device& device, DType type, std::uint64_t rows, std::uint64_t k, bool pdl) {
  const std::uint64_t ldx = k + 4, ldy = k + 8;
  const auto x = random_array(DType::f32, {rows * ldx}, 1), weight = random_array(DType::f32, {k}, 2);
  HostArray y = random_array(type, {rows * ldy}, 3);
  const auto before = y;
  Arrays a(device);
  DecodeNorm p;
  p.type = type, p.rows = rows, p.k = k, p.ldx = ldx, p.ldy = ldy, p.eps = 1e-3f, p.pdl = pdl;
  p.x = a.put(x), p.weight = a.put(weight), p.y = a.put(y);
  runtime::Stream s(device);
  decode_norm(s, p);
  s.wait();
  a.fetch(a.last(), y);
  for (std::uint64_t i = 0; i < rows; ++i) {
    double squares = 0;
    for (std::uint64_t j = 0; j < k; ++j) squares += x.at(i * ldx + j) * x.at(i * ldx + j) / double(k);
    for (std::uint64_t j = 0; j < ldy; ++j) {
      const double got = y.at(i * ldy + j);
      if (j >= k) {
        ASSERT_EQ(got, before.at(i * ldy + j));
        continue;
      }
      const double want = x.at(i * ldx + j) / std::sqrt(squares + double(p.eps)) * weight.at(j);
      ASSERT_NEAR(got, want, (1.01 * unit_roundoff(type) + 1e-6) * std::fabs(want) + 0x1p-24)
          << i << " " << j;
    }
  }
}

}  // namespace

TEST(decode_norm, rows_are_normalised) {
  std::vector<runtime::Device> devices{runtime::Device::open("emu:sm_90a"),
                                       runtime::Device::open("emu:sm_80")};
  try {
    devices.push_back(runtime::Device::open("cuda:0"));
  } catch (const Unsupported&) {
  }
  for (const auto& device : devices) {
    check_norm(device, DType::f16, 3, 100, false);
    check_norm(device, DType::bf16, 2, 5000, true);
    check_norm(device, DType::f16, 1, 4096, true);
  }
}

TEST(decode_norm, bad_arguments_name_the_argument) {
  DecodeNorm p;
  p.k = 4096, p.x = p.weight = p.y = 16;
  EXPECT_EQ(reject(p), "");
  p.k = 4098;
  EXPECT_NE(reject(p).find("k = 4098"), std::string::npos);
  p.k = 4096, p.x = 8;
  EXPECT_NE(reject(p).find("x and its rows"), std::string::npos);
}

TEST(decode_linear_config, names_are_read_back) {
  for (const auto& v : decode_linear_variants())
    EXPECT_EQ(parse_config<DecodeLinearConfig>("decode_linear", v.name).name(), v.name);
}

TEST(decode_linear, every_variant_assembles_without_spills) {
  cgp::testing::expect_assemble(
      cgp::testing::images_for({"sm_80", "sm_90a", "sm_120a"},
                               [] {
                                 auto all = decode_linear_variants();
                                 all.push_back(decode_norm_variant({DType::f16, 4096, true}));
                                 all.push_back(decode_norm_variant({DType::bf16, 5000, false}));
                                 return all;
                               }()),
      [](const auto& image, const auto& a) {  // two blocks fit a multiprocessor
        return cgp::testing::assembled_clean(image, a) && a.registers <= 128;
      });
}
