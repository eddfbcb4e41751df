// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/lora/lora.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cgp/base/error.h"
#include "cgp/kernels/lora/lora_product.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::testing;

namespace {

/// A matrix on the device and what it holds, in double.
template <class T>
struct Matrix {
  Matrix(const runtime::Device& d, std::uint64_t rows, std::uint64_t cols, std::uint64_t seed)
      : rows(rows), cols(cols) {
    const auto host = random_array(dtype_of<T>, {rows, cols}, seed);
    for (std::uint64_t i = 0; i < host.size(); ++i) values.push_back(host.at(i));
    memory = d.upload<T>(typed<T>(host));
  }
  std::vector<double> now() const {
    std::vector<double> out;
    for (const T x : memory.to_vector()) out.push_back(double(float(x)));
    return out;
  }
  std::uint64_t rows, cols;
  std::vector<double> values;
  runtime::Buffer<T> memory;
};

using Numbers = std::vector<double>;
/// op(a) [m, k] op(b) [k, n].
Numbers times(const Numbers& a, bool ta, const Numbers& b, bool tb, std::uint64_t m, std::uint64_t n,
              std::uint64_t k) {
  Numbers c(m * n);
  for (std::uint64_t i = 0; i < m; ++i)
    for (std::uint64_t j = 0; j < n; ++j)
      for (std::uint64_t l = 0; l < k; ++l)
        c[i * n + j] += (ta ? a[l * m + i] : a[i * k + l]) * (tb ? b[j * k + l] : b[l * n + j]);
  return c;
}
Numbers plus(Numbers a, const Numbers& b, double factor) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += factor * b[i];
  return a;
}
void expect_near(const Numbers& got, const Numbers& want, double tolerance, const char* what) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], tolerance * (1 + std::fabs(want[i]))) << what << "[" << i << "]";
}

template <class T>
void expect_layer(std::uint64_t m, std::uint64_t n, std::uint64_t k, std::uint64_t r, double tolerance,
                  const char* on = "emu:sm_80") {
  const auto device = runtime::Device::open(on);
  auto& s = device.stream();
  const LoraProblem p{.type = dtype_of<T>, .m = m, .n = n, .k = k, .r = r, .scale = 0.5};
  Matrix<T> x(device, m, k, 1), w(device, n, k, 2), a(device, r, k, 3), b(device, n, r, 4),
      dy(device, m, n, 5);
  Matrix<T> y(device, m, n, 6), t(device, m, r, 7), dt(device, m, r, 8), da(device, r, k, 9),
      db(device, n, r, 10), dx(device, m, k, 11);
  lora_forward(s, p, {x.memory, w.memory, a.memory, b.memory, t.memory, y.memory});
  const LoraBackward back{x.memory,  w.memory,  a.memory,  b.memory,  t.memory, dy.memory,
                          dt.memory, da.memory, db.memory, dx.memory, true};
  lora_backward(s, p, back);
  device.sync();
  const auto want_t = times(x.values, false, a.values, true, m, r, k);
  expect_near(y.now(),
              plus(times(x.values, false, w.values, true, m, n, k),
                   times(want_t, false, b.values, true, m, n, r), 0.5),
              tolerance, "y");
  const auto want_dt = plus(Numbers(m * r), times(dy.values, false, b.values, false, m, r, n), 0.5);
  expect_near(da.now(), plus(da.values, times(want_dt, true, x.values, false, r, k, m), 1), tolerance, "da");
  expect_near(db.now(), plus(db.values, times(dy.values, true, want_t, false, n, r, m), 0.5), tolerance,
              "db");
  expect_near(dx.now(),
              plus(times(dy.values, false, w.values, false, m, k, n),
                   times(want_dt, false, a.values, false, m, k, r), 1),
              tolerance, "dx");
  lora_merge(s, p, w.memory, a.memory, b.memory);
  device.sync();
  expect_near(w.now(), plus(w.values, times(b.values, false, a.values, false, n, k, r), 0.5), tolerance, "w");
  lora_merge(s, p, w.memory, a.memory, b.memory, -1);
  device.sync();
  expect_near(w.now(), w.values, tolerance, "w again");
}

}  // namespace

TEST(lora, forward_backward_and_merge_match_loops) {
  expect_layer<float>(5, 7, 9, 3, 1e-5);
  expect_layer<bfloat16>(9, 24, 16, 8, 0.1);
  expect_layer<float>(3, 4, 5, 0, 1e-5);  // the plain layer
}

// Ragged tiles, a rank below and above a stage, two tiles a cluster; and a rank that TMA cannot address.
TEST(lora, one_pass_on_sm90) {
  expect_layer<bfloat16>(136, 264, 72, 16, 0.2, "emu:sm_90a");
  expect_layer<half>(24, 80, 72, 72, 0.05, "emu:sm_90a");
  expect_layer<bfloat16>(24, 40, 72, 12, 0.1, "emu:sm_90a");
  const auto info = runtime::Device::open("emu:sm_90a").info();
  const LoraProduct p{.m = 8, .n = 16, .k = 16, .r = 8};
  EXPECT_EQ(reject(p, info), "");
  EXPECT_NE(reject(LoraProduct{.m = 8, .n = 16, .k = 16, .r = 12}, info), "");
  EXPECT_NE(reject(p, runtime::Device::open("emu:sm_80").info()), "");
}

TEST(lora, variants_assemble) {
  expect_assemble(images_for({"sm_90a"}, lora_product_variants()));
  expect_assemble(images_for({"sm_80", "sm_90a"}, lora_down_variants()));
}

namespace {
template <class T>
void expect_down(std::uint64_t m, std::uint64_t k, std::uint64_t r, double tolerance) {
  const auto device = runtime::Device::open("emu:sm_80");
  Matrix<T> x(device, m, k, 1), a(device, r, k, 2), t(device, m, r, 3);
  const LoraDown p{.type = dtype_of<T>,
                   .m = m,
                   .k = k,
                   .r = r,
                   .scale = 0.5,
                   .x = x.memory.address(),
                   .a = a.memory.address(),
                   .t = t.memory.address()};
  lora_down(device.stream(), p);
  device.sync();
  expect_near(t.now(), plus(Numbers(m * r), times(x.values, false, a.values, true, m, r, k), 0.5), tolerance,
              "t");
}
}  // namespace

TEST(lora, down_at_ragged_sizes) {
  expect_down<half>(2053, 40, 5, 0.01);
  expect_down<bfloat16>(2048, 520, 16, 0.1);
  const auto info = runtime::Device::open("emu:sm_80").info();
  EXPECT_EQ(reject(LoraDown{.m = 4096, .k = 64, .r = 16}, info), "");
  EXPECT_NE(reject(LoraDown{.m = 64, .k = 64, .r = 16}, info), "");
  EXPECT_NE(reject(LoraDown{.m = 4096, .k = 60, .r = 16}, info), "");
  EXPECT_NE(reject(LoraDown{.m = 4096, .k = 64, .r = 17}, info), "");
}

TEST(lora, bad_arguments_are_named) {
  const auto device = runtime::Device::open("emu:sm_80");
  Matrix<float> x(device, 2, 4, 1), w(device, 3, 4, 2), a(device, 2, 4, 3), b(device, 3, 2, 4),
      t(device, 2, 2, 5), y(device, 2, 3, 6);
  LoraProblem p{.type = DType::f32, .m = 2, .n = 3, .k = 4, .r = 4, .scale = 1};
  const LoraForward at{x.memory, w.memory, a.memory, b.memory, t.memory, y.memory};
  EXPECT_THROW(lora_forward(device.stream(), p, at), ArgumentError);  // a rank above n
  p.r = 3;
  EXPECT_THROW(lora_forward(device.stream(), p, at), ArgumentError);  // a is too short
  p.r = 2, p.type = DType::f16;
  EXPECT_THROW(lora_forward(device.stream(), p, at), ArgumentError);
  p.type = DType::s8;
  EXPECT_THROW(lora_merge(device.stream(), p, w.memory, a.memory, b.memory), ArgumentError);
}
