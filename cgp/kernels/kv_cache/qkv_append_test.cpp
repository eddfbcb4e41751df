// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/kv_cache/qkv_append.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cgp/base/error.h"
#include "cgp/kernels/common/array.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;

namespace {

struct Shape {
  DType type;
  std::uint64_t heads_q, heads, d, tokens, page_size;
  std::vector<std::uint32_t> lengths;  // the new tokens counted
  bool by_lengths, rope, norms, interleaved = false, slots = false;
};

void check(const runtime::Device& device, const Shape& x) {
  const std::uint64_t batch = x.lengths.size(), all = x.heads_q + 2 * x.heads, pitch = all * x.d + 8;
  QkvAppend p;
  p.cache = {x.type, x.type, 0, x.page_size, x.heads, x.d};
  p.batch = batch, p.tokens = x.tokens, p.heads_q = x.heads_q, p.pitch = pitch, p.eps = 1e-3f;
  p.columns = 3, p.cache.page_count = 3 * batch + 1, p.positions = 40, p.offset = 2;
  auto qkv = random_array(x.type, {batch * x.tokens * pitch}, 1);
  const auto before = qkv, qw = random_array(x.type, {x.d}, 2), kw = random_array(x.type, {x.d}, 3),
             cos = random_array(DType::f32, {p.positions * x.d / 2}, 4),
             sin = random_array(DType::f32, {p.positions * x.d / 2}, 5);
  HostArray pool = random_array(x.type, {p.cache.elements()}, 6);
  const auto pool_before = pool;
  std::vector<std::int32_t> table;
  for (std::uint64_t i = 0; i < batch * p.columns; ++i)
    table.push_back(std::int32_t((i * 2 + 1) % p.cache.page_count));
  const auto put = [&](const HostArray& a) {
    auto b = device.alloc<std::byte>(a.bytes.size());
    b.upload(a.bytes);
    return b;
  };
  auto dqkv = put(qkv), dqw = put(qw), dkw = put(kw), dcos = put(cos), dsin = put(sin), dpool = put(pool);
  auto dtable = device.upload<std::int32_t>(table);
  auto dlengths = device.upload<std::uint32_t>(x.lengths);
  auto wrong = device.zeros<std::uint32_t>(1);
  p.qkv = dqkv.address(), p.pool = dpool.address(), p.table = dtable.address(),
  p.error_flag = wrong.address();
  if (x.rope) p.cos = dcos.address(), p.sin = dsin.address();
  if (x.norms) p.q_weight = dqw.address(), p.k_weight = dkw.address();
  if (x.by_lengths) p.lengths = dlengths.address();
  p.interleaved = x.interleaved;
  std::vector<std::uint64_t> slots;
  std::vector<std::int32_t> places;
  for (std::uint64_t token = 0; token < batch * x.tokens; ++token) {
    const auto b = token / x.tokens, place = x.lengths[b] - x.tokens + token % x.tokens;
    places.push_back(std::int32_t(place));
    slots.push_back(std::uint64_t(table[b * p.columns + place / x.page_size]) * x.page_size +
                    place % x.page_size);
  }
  auto dslots = device.upload<std::uint64_t>(slots);
  auto dplaces = device.upload<std::int32_t>(places);
  if (x.slots) {
    p.slots = dslots.address(), p.places = dplaces.address();
    p.tokens = batch * x.tokens, p.batch = 1, p.table = p.lengths = 0;
  }
  runtime::Stream s(device);
  qkv_append(s, p);
  s.wait();
  dqkv.download(qkv.bytes), dpool.download(pool.bytes);
  EXPECT_EQ(wrong.to_vector()[0], 0u);
  const double u = unit_roundoff(x.type);
  auto expected = pool_before;
  double worst = 0;
  for (std::uint64_t token = 0; token < batch * x.tokens; ++token)
    for (std::uint64_t h = 0; h < all; ++h) {
      const auto b = token / x.tokens, i = token % x.tokens, row = token * pitch + h * x.d;
      const std::uint64_t place = x.by_lengths ? x.lengths[b] - x.tokens + i : p.offset + i;
      const bool value = h >= x.heads_q + x.heads;
      std::vector<double> v;
      double squares = 0;
      for (std::uint64_t e = 0; e < x.d; ++e)
        v.push_back(before.at(row + e)), squares += v[e] * v[e] / double(x.d);
      if (x.norms && !value)
        for (std::uint64_t e = 0; e < x.d; ++e)
          v[e] *= (h < x.heads_q ? qw : kw).at(e) / std::sqrt(squares + double(p.eps));
      std::vector<double> want = v, bound(x.d, 0);
      for (std::uint64_t e = 0; e < x.d && !value; ++e) {
        const bool first = x.interleaved ? e % 2 == 0 : e < x.d / 2;
        const auto pair = x.interleaved ? e / 2 : e % (x.d / 2), other = x.interleaved ? e ^ 1
                                                                         : first       ? e + x.d / 2
                                                                                       : pair;
        const double c = cos.at(place * x.d / 2 + pair), sn = sin.at(place * x.d / 2 + pair);
        if (x.rope) want[e] = v[e] * c + (first ? -v[other] : v[other]) * sn;
        // The norm rounds to the type, the rotation to f32, the result to the type.
        const double size = x.rope ? std::fabs(v[e] * c) + std::fabs(v[other] * sn) : std::fabs(v[e]);
        bound[e] = (x.norms ? 1.01 * u : 0) * size + 1e-6 * size +
                   u * (1.01 * std::fabs(want[e]) + u * size) + 1e-30;
        if (x.type == DType::f16) bound[e] += 0x1p-23;
      }
      const auto page = std::uint64_t(table[b * p.columns + place / x.page_size]);
      for (std::uint64_t e = 0; e < x.d; ++e) {
        const double got = qkv.at(row + e);
        worst = std::max(worst, got == want[e] ? 0 : std::fabs(got - want[e]) / (bound[e] + 1e-300));
        if (h < x.heads_q) continue;
        const auto at = ((page * 2 * x.heads + h - x.heads_q) * x.page_size + place % x.page_size) * x.d + e;
        expected.set(at, got);
      }
    }
  EXPECT_LE(worst, 1) << name(x.type) << " d " << x.d;
  for (std::uint64_t i = 0; i < pool.size(); ++i) ASSERT_EQ(pool.at(i), expected.at(i)) << "pool " << i;
}

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{
      {DType::bf16, 4, 2, 64, 1, 16, {1, 20, 33}, true, true, false},
      {DType::f16, 3, 1, 128, 5, 16, {17}, false, true, true},
      {DType::bf16, 2, 2, 64, 3, 16, {3, 16}, true, false, false},
      {DType::bf16, 2, 1, 192, 2, 32, {5, 34}, true, true, true},
      {DType::f16, 1, 1, 64, 4, 16, {4, 4}, false, false, true},
      {DType::f16, 2, 1, 80, 2, 16, {9, 34}, true, true, true, true},
      {DType::f16, 3, 1, 128, 1, 16, {7, 18, 1}, true, true, false, true, true},
      {DType::bf16, 2, 2, 16, 3, 32, {3, 36}, true, true, true, false, true}};
  return all;
}

}  // namespace

TEST(qkv_append, heads_are_rotated_and_reach_their_pages) {
  for (const char* target : {"emu:sm_90a", "emu:sm_80"})
    for (const auto& x : shapes()) check(runtime::Device::open(target), x);
}

TEST(qkv_append, a_page_that_is_not_there_is_reported_and_not_written) {
  auto device = runtime::Device::open("emu:sm_90a");
  QkvAppend p;
  p.cache = {DType::bf16, DType::bf16, 2, 16, 1, 64};
  p.batch = 2, p.tokens = 1, p.heads_q = 1, p.columns = 1;
  auto qkv = device.zeros<std::uint16_t>(2 * 3 * 64), pool = device.zeros<std::uint16_t>(p.cache.elements());
  auto table = device.upload<std::int32_t>(std::vector<std::int32_t>{1, 2});
  auto lengths = device.upload<std::uint32_t>(std::vector<std::uint32_t>{16, 3});
  auto wrong = device.zeros<std::uint32_t>(1);
  p.qkv = qkv.address(), p.pool = pool.address(), p.table = table.address(), p.lengths = lengths.address();
  p.error_flag = wrong.address();
  runtime::Stream s(device);
  qkv_append(s, p);
  s.wait();
  EXPECT_EQ(wrong.to_vector()[0], 2u);
  p.offset = 16, p.lengths = 0, p.batch = 1, p.pdl = true;  // beyond the columns of the table
  qkv_append(s, p);
  s.wait();
  EXPECT_EQ(wrong.to_vector()[0], 2u);  // 1, of the first sequence, is less
}

TEST(qkv_append, bad_arguments_name_the_argument) {
  QkvAppend p;
  p.cache = {DType::bf16, DType::bf16, 2, 16, 2, 64};
  p.heads_q = 2, p.qkv = p.pool = p.table = p.error_flag = 16, p.columns = 1;
  EXPECT_EQ(reject(p), "");
  const auto says = [&](const char* text, auto&& change) {
    auto q = p;
    change(q);
    EXPECT_NE(reject(q).find(text), std::string::npos) << reject(q);
  };
  says("d = 68", [](QkvAppend& q) { q.cache.d = 68; });
  says("places", [](QkvAppend& q) { q.slots = 16; });
  says("pages = e4m3", [](QkvAppend& q) { q.cache.pages = DType::e4m3; });
  says("cos and sin", [](QkvAppend& q) { q.cos = 16; });
  says("q_weight", [](QkvAppend& q) { q.q_weight = 16; });
  says("overlap", [](QkvAppend& q) { q.pitch = 64; });
  says("table", [](QkvAppend& q) { q.table = 0; });
  says("page_size = 20", [](QkvAppend& q) { q.cache.page_size = 20; });
}

TEST(qkv_append, right_on_a_gpu) {
  try {
    const auto device = runtime::Device::open("cuda:0");
    for (const auto& x : shapes()) check(device, x);
  } catch (const Unsupported& e) {
    GTEST_SKIP() << e.what();
  }
}

TEST(qkv_append_config, names_are_read_back) {
  for (const auto& v : qkv_append_variants())
    EXPECT_EQ(parse_config<QkvAppendConfig>("qkv_append", v.name).name(), v.name);
}

TEST(qkv_append, every_variant_assembles_without_spills) {
  cgp::testing::expect_assemble(cgp::testing::images_for({"sm_80", "sm_90a"}, qkv_append_variants()));
}
