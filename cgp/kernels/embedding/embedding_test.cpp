// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/embedding/embedding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "cgp/base/error.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::testing;

TEST(embedding, every_shape_matches_the_oracle) {
  for (const char* t : {"f32", "f16", "bf16"})
    for (auto [r, v, c] : {std::tuple{"0", "5", "8"},
                           {"1", "1", "1"},
                           {"33", "7", "7"},
                           {"5", "40", "264"},
                           {"3", "9", "4104"}})
      for (const char* wide : {"0", "1"})
        expect_right(embedding_entry(),
                     {{"dtype", t}, {"rows", r}, {"vocab", v}, {"cols", c}, {"wide", wide}});
}

TEST(embedding, the_gradient_of_every_shape_matches_the_oracle) {
  for (auto [r, v, c] : {std::tuple{"0", "5", "8"},
                         {"1", "1", "1"},
                         {"257", "7", "7"},
                         {"40", "300", "72"},
                         {"600", "1100", "8"},  // three blocks
                         {"4200", "481", "8"},  // a warp's slice in two steps
                         {"3", "9", "2056"}})
    for (const char* wide : {"0", "1"})
      expect_right(embedding_backward_entry(), {{"rows", r}, {"vocab", v}, {"cols", c}, {"wide", wide}});
  for (const char* t : {"f32", "f16"})
    expect_right(embedding_backward_entry(),
                 {{"dtype", t}, {"rows", "70"}, {"vocab", "20"}, {"cols", "33"}, {"padding", "2"}});
}

TEST(embedding, runs_on_every_architecture) {
  for (auto arch : kTargets) {
    expect_right(embedding_entry(), {{"dtype", "f16"}, {"rows", "5"}, {"vocab", "20"}, {"cols", "40"}}, arch);
    expect_right(embedding_backward_entry(),
                 {{"dtype", "f16"}, {"rows", "50"}, {"vocab", "70"}, {"cols", "40"}}, arch);
  }
}

TEST(embedding, indices_out_of_range_are_flagged_and_never_read) {
  auto device = runtime::Device::open("emu");
  const std::uint64_t vocab = 6, cols = 5, pitch = 8;
  std::vector<float> table(vocab * pitch);
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = float(i);
  const std::vector<std::int64_t> bad{5, -1, 6, std::int64_t(1) << 62, 0}, good{1, 3, 3, 1, 0};
  auto weight = device.upload<float>(table);
  auto out = device.zeros<float>(5 * cols);
  auto errors = device.zeros<std::uint32_t>(1);
  Embedding e;
  e.weight = std::as_const(weight), e.out = out, e.error_flag = errors;
  e.rows = 5, e.vocab = vocab, e.cols = cols, e.weight_layout.pitch = pitch;
  EmbeddingBackward b;
  auto dout = device.upload<float>(std::vector<float>(5 * cols, 1.f));
  auto dweight = device.upload<float>(std::vector<float>(vocab * pitch, 77.f));
  auto workspace = device.zeros<std::uint32_t>(embedding_workspace(5, vocab));
  b.dout = std::as_const(dout), b.dweight = dweight, b.workspace = workspace, b.error_flag = errors;
  b.rows = 5, b.vocab = vocab, b.cols = cols, b.dweight_layout.pitch = pitch, b.padding_idx = 3;
  for (const auto* list : {&good, &bad}) {
    auto indices = device.upload<std::int64_t>(*list);
    e.indices = std::as_const(indices), b.indices = std::as_const(indices);
    const std::uint32_t flag = list == &bad;
    errors.upload(std::vector<std::uint32_t>{0});
    embedding(device.stream(), e);
    device.sync();
    EXPECT_EQ(errors.to_vector()[0], flag);
    errors.upload(std::vector<std::uint32_t>{0});
    embedding_backward(device.stream(), b);
    device.sync();
    EXPECT_EQ(errors.to_vector()[0], flag);
    const auto got = out.to_vector(), gradient = dweight.to_vector();
    std::vector<float> want(vocab, 0);
    for (std::size_t r = 0; r < 5; ++r) {
      const auto i = (*list)[r];
      const bool known = i >= 0 && i < std::int64_t(vocab);
      if (known && i != 3) want[std::size_t(i)] += 1;
      for (std::size_t c = 0; c < cols; ++c) {
        if (known)
          EXPECT_EQ(got[r * cols + c], float(std::size_t(i) * pitch + c));
        else
          EXPECT_TRUE(std::isnan(got[r * cols + c]));
      }
    }
    for (std::size_t v = 0; v < vocab; ++v)
      for (std::size_t c = 0; c < pitch; ++c)
        EXPECT_EQ(gradient[v * pitch + c], c < cols ? want[v] : 77.f) << v << " " << c;
  }
}

// Small integers: sums are exact in all types.
TEST(embedding, the_gradient_is_added_to_what_is_there) {
  auto device = runtime::Device::open("emu");
  const auto check = [&]<class T>(std::type_identity<T>, std::uint64_t rows, std::uint64_t cols) {
    const std::uint64_t vocab = 70;
    std::vector<T> dout(rows * cols), before(vocab * cols);
    std::vector<std::int32_t> who(rows);
    for (std::size_t i = 0; i < dout.size(); ++i) dout[i] = T(float(i * 7 % 5) - 2);
    for (std::size_t i = 0; i < before.size(); ++i) before[i] = T(float(i * 11 % 17) - 8);
    for (std::size_t r = 0; r < rows; ++r) who[r] = std::int32_t(r * r % 67);
    auto there = device.upload<T>(before), d = device.upload<T>(dout);
    auto indices = device.upload<std::int32_t>(who);
    auto workspace = device.zeros<std::uint32_t>(embedding_workspace(rows, vocab));
    EmbeddingBackward b;
    b.indices = std::as_const(indices), b.dout = std::as_const(d), b.dweight = there, b.workspace = workspace;
    b.rows = rows, b.vocab = vocab, b.cols = cols, b.padding_idx = 4, b.accumulate = true;
    embedding_backward(device.stream(), b);
    device.sync();
    const auto got = there.to_vector();
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t c = 0; c < cols && who[r] != 4; ++c) {
        T& sum = before[std::size_t(who[r]) * cols + c];
        sum = T(float(sum) + float(dout[r * cols + c]));
      }
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(float(got[i]), float(before[i])) << i;
  };
  check(std::type_identity<float>(), 90, 7);
  check(std::type_identity<half>(), 90, 24);
  check(std::type_identity<bfloat16>(), 300, 264);
}

TEST(embedding, bad_arguments_are_named) {
  auto device = runtime::Device::open("emu");
  auto x = device.zeros<float>(8), y = device.zeros<float>(8);
  auto i = device.zeros<std::int32_t>(2);
  auto u = device.zeros<std::uint32_t>(16);
  Embedding e;
  e.indices = i, e.weight = x, e.out = y, e.rows = 2, e.vocab = 3, e.cols = 4;
  EXPECT_THROW(embedding(device.stream(), e), ArgumentError);  // the table has two rows
  e.vocab = 2, e.indices = u;
  EXPECT_THROW(embedding(device.stream(), e), ArgumentError);
  EmbeddingBackward b;
  b.indices = i, b.dout = x, b.dweight = y, b.workspace = u, b.rows = 2, b.vocab = 2, b.cols = 4;
  b.padding_idx = 2;
  EXPECT_THROW(embedding_backward(device.stream(), b), ArgumentError);
  b.padding_idx = -1, b.workspace = View(u).from(12);
  EXPECT_THROW(embedding_backward(device.stream(), b), ArgumentError);
  for (const auto& [kernel, of] :
       {std::pair{embedding_entry(), "weight"}, {embedding_backward_entry(), "dout"}})
    for (int index : {-1, 4}) {
      NamedArray given{"indices", HostArray(DType::s32, {2})};
      given.array.set(1, index);
      Options o(kernel.name, kernel.options);
      if (kernel.name == "embedding_backward") o.set("vocab", "4");
      const NamedArray table{of,
                             HostArray(DType::f32, {std::uint64_t(kernel.name == "embedding" ? 4 : 2), 8})};
      EXPECT_THROW((void)kernel.prepare(device, o, {table, given}, 1), ArgumentError) << kernel.name << index;
    }
}

TEST(embedding, right_and_repeatable_on_a_gpu) {
  expect_right_on_gpu(embedding_entry(),
                      {{{"rows", "4096"}, {"cols", "1024"}},
                       {{"rows", "333"}, {"cols", "777"}, {"dtype", "f32"}, {"wide", "0"}}});
}
TEST(embedding, the_gradient_is_right_and_repeatable_on_a_gpu) {
  expect_right_on_gpu(
      embedding_backward_entry(),
      {{{"rows", "8192"}, {"cols", "256"}, {"padding", "1"}},
       {{"rows", "3333"}, {"cols", "77"}, {"dtype", "f32"}, {"wide", "0"}, {"vocab", "1001"}}});
}

TEST(embedding, every_variant_assembles_without_spills) { expect_assembles(embedding_entry()); }
TEST(embedding, every_variant_of_the_gradient_assembles_without_spills) {
  expect_assembles(embedding_backward_entry());
}
