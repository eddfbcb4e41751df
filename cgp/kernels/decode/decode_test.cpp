// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/decode/decode.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cgp/emu/policy.h"
#include "cgp/kernels/common/array.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;

namespace {

struct Shape {
  DType type, pages;
  std::uint64_t heads_q, heads_kv, d, page_size, n_q;
  std::vector<std::uint32_t> lengths;
  int splits;
  int cluster = -1, smem_kb = 0;
  std::uint64_t share = 0;  // neighbours that begin with `common` tokens, of whole pages, in the same pages
  std::uint32_t common = 0;
  std::int64_t window_left = -1;
  float soft_cap = 0;
};

// Random pages in random order; what lies behind a sequence's last token is NaN.
void check(const runtime::Device& device, const Shape& x, int launches = 1) {
  const std::uint64_t batch = x.lengths.size();
  DecodeProblem p;
  p.cache = {x.type, x.pages, 0, x.page_size, x.heads_kv, x.d, 0.5f, 2.0f};
  if (x.pages != DType::e4m3) p.cache.key_scale = p.cache.value_scale = 1;
  p.batch = batch, p.heads_q = x.heads_q, p.n_q = x.n_q, p.splits = x.splits, p.cluster = x.cluster,
  p.smem_kb = x.smem_kb, p.share = x.share, p.pdl = x.cluster > 0;
  p.window_left = x.window_left, p.soft_cap = x.soft_cap;
  std::uint64_t longest = 1;
  for (auto n : x.lengths) longest = std::max<std::uint64_t>(longest, n);
  p.columns = (longest + x.page_size - 1) / x.page_size;
  p.cache.page_count = p.columns * batch + 3;
  p.cache.page_count += p.cache.page_count % 7 == 0;
  HostArray pool(x.pages, {p.cache.elements()}),
      q = random_array(x.type, {batch * x.heads_q * x.n_q * x.d}, 5);
  const auto data = random_array(x.pages == DType::e4m3 ? DType::f32 : x.pages, {p.cache.elements()}, 6);
  std::vector<std::int32_t> table(batch * p.columns, -1);
  const std::uint64_t half = x.heads_kv * x.page_size * x.d;
  const auto page_of = [&](std::uint64_t b, std::uint64_t c) {
    if (x.share && (c + 1) * x.page_size <= x.common) b -= b % x.share;
    return (b * p.columns + c) * 7 % p.cache.page_count;
  };
  ASSERT_NE(p.cache.page_count % 7, 0u);
  for (std::uint64_t i = 0; i < pool.size(); ++i) pool.set(i, NAN);
  for (std::uint64_t b = 0; b < batch; ++b)
    for (std::uint64_t j = 0; j < x.lengths[b]; ++j) {
      const auto page = page_of(b, j / x.page_size);
      table[b * p.columns + j / x.page_size] = std::int32_t(page);
      for (std::uint64_t part = 0; part < 2; ++part)
        for (std::uint64_t h = 0; h < x.heads_kv; ++h)
          for (std::uint64_t e = 0; e < x.d; ++e) {
            const auto at = (2 * page + part) * half + (h * x.page_size + j % x.page_size) * x.d + e;
            pool.set(at, data.at(at));
          }
    }
  auto dq = device.alloc<std::byte>(q.bytes.size()), dpool = device.alloc<std::byte>(pool.bytes.size());
  dq.upload(q.bytes), dpool.upload(pool.bytes);
  auto dtable = device.upload<std::int32_t>(table);
  auto dlengths = device.upload<std::uint32_t>(x.lengths);
  HostArray o(x.type, {batch * x.heads_q * x.n_q * x.d}), lse(DType::f32, {batch * x.heads_q * x.n_q});
  auto out = device.alloc<std::byte>(o.bytes.size()), dlse = device.alloc<std::byte>(lse.bytes.size());
  out.fill_bytes(0xff), dlse.fill_bytes(0xff);
  auto work = device.zeros<std::uint32_t>(decode_workspace(p, device.info()) / 4 + 1);
  auto wrong = device.zeros<std::uint32_t>(1);
  std::vector<std::uint32_t> in_common(x.share ? (batch + x.share - 1) / x.share : 1, x.common);
  if (in_common.size() > 1) in_common.back() = x.common / 2;  // fewer than there are
  auto shared = device.upload<std::uint32_t>(in_common);
  runtime::Stream s(device);
  for (int i = 0; i < launches; ++i)
    decode(s, p,
           {dq.address(), dpool.address(), dtable.address(), dlengths.address(), out.address(),
            dlse.address(), work.address(), wrong.address(), shared.address()});
  s.wait();
  out.download(o.bytes), dlse.download(lse.bytes);
  EXPECT_EQ(wrong.to_vector()[0], 0u);
  const double u = unit_roundoff(x.type), scale = 1 / std::sqrt(double(x.d));
  double worst = 0, worst_lse = 0;
  for (std::uint64_t b = 0; b < batch; ++b)
    for (std::uint64_t h = 0; h < x.heads_q; ++h)
      for (std::uint64_t i = 0; i < x.n_q; ++i) {
        const auto row = (b * x.heads_q + h) * x.n_q + i;
        const auto keys = std::int64_t(x.lengths[b]) - std::int64_t(x.n_q) + std::int64_t(i) + 1;
        const auto element = [&](std::uint64_t part, std::int64_t j, std::uint64_t e) {
          const auto page = page_of(b, std::uint64_t(j) / x.page_size);
          const auto at =
              (2 * page + part) * half +
              (h / (x.heads_q / x.heads_kv) * x.page_size + std::uint64_t(j) % x.page_size) * x.d + e;
          return pool.at(at) * double(part ? p.cache.value_scale : p.cache.key_scale);
        };
        std::vector<double> score;
        double max = -INFINITY, sum = 0;
        for (std::int64_t j = 0; j < keys; ++j) {
          double dot = 0;
          if (x.window_left >= 0 && j < keys - 1 - x.window_left) {
            score.push_back(-INFINITY);
            continue;
          }
          for (std::uint64_t e = 0; e < x.d; ++e) dot += q.at(row * x.d + e) * element(0, j, e);
          if (x.soft_cap != 0) dot = double(x.soft_cap) * std::tanh(dot * scale / double(x.soft_cap)) / scale;
          score.push_back(dot * scale), max = std::max(max, score.back());
        }
        for (double& v : score) sum += v = std::exp(v - max);
        const double want_lse = keys > 0 ? max + std::log(sum) : -INFINITY;
        if (lse.at(row) != want_lse) worst_lse = std::max(worst_lse, std::fabs(lse.at(row) - want_lse));
        for (std::uint64_t e = 0; e < x.d; ++e) {
          double want = 0, size = 0;
          for (std::int64_t j = 0; j < keys; ++j) {
            const double v = score[std::size_t(j)] / sum * element(1, j, e);
            want += v, size += std::fabs(v);
          }
          const double error = std::fabs(o.at(row * x.d + e) - want);
          if (!(error == 0))
            worst = std::max(worst, error / (u * std::fabs(want) + (u + 1e-5) * size + 1e-30));
          if (std::isnan(error)) worst = INFINITY;
        }
      }
  EXPECT_LE(worst, 1) << name(x.pages) << " d " << x.d << " heads " << x.heads_q << "/" << x.heads_kv
                      << " page " << x.page_size << " splits " << x.splits << " cluster " << x.cluster
                      << " share " << x.share;
  EXPECT_LE(worst_lse, 1e-4);
}

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{
      {DType::bf16, DType::bf16, 4, 2, 64, 16, 1, {1, 40, 0, 129}, 1},
      {DType::bf16, DType::bf16, 4, 2, 64, 16, 1, {1, 40, 0, 129}, 3},
      {DType::f16, DType::f16, 6, 2, 128, 32, 1, {70, 5}, 2},
      {DType::f16, DType::f16, 2, 2, 256, 16, 1, {50}, 2},
      {DType::bf16, DType::bf16, 16, 1, 256, 64, 1, {200, 77}, 2},
      {DType::bf16, DType::bf16, 12, 1, 64, 16, 1, {100}, 2},
      {DType::bf16, DType::bf16, 20, 1, 64, 64, 1, {33, 90}, 1},
      {DType::bf16, DType::bf16, 4, 2, 64, 16, 3, {2, 40, 65}, 2},
      {DType::f16, DType::e4m3, 4, 2, 128, 16, 1, {40, 7}, 2},
      {DType::bf16, DType::e4m3, 16, 2, 64, 16, 1, {90}, 1},
      {DType::bf16, DType::bf16, 4, 2, 128, 16, 1, {1, 333, 0}, 0, 2},
      {DType::f16, DType::f16, 12, 1, 64, 32, 1, {777}, 0, 4, 192},
      {DType::bf16, DType::bf16, 3, 1, 256, 64, 2, {190}, 0, 2, 192},
      {DType::f16, DType::e4m3, 4, 2, 128, 16, 1, {40, 7}, 0, 8},
      {DType::bf16, DType::e4m3, 16, 1, 64, 16, 1, {1200}, 0, 1},
      {DType::f16, DType::f16, 2, 2, 256, 16, 1, {50, 100}, 0, 1},
      {DType::bf16, DType::bf16, 4, 2, 80, 16, 1, {1, 40, 0, 129}, 0},  // rows that end inside a chunk
      {DType::f16, DType::f16, 12, 1, 8, 32, 1, {70}, 3},
      {DType::bf16, DType::e4m3, 4, 2, 72, 16, 1, {40, 7}, 0},
      {DType::bf16, DType::bf16, 16, 1, 136, 16, 1, {50}, 2},
      {DType::bf16, DType::bf16, 4, 1, 96, 16, 1, {70, 65, 100}, 2, -1, 0, 3, 64},
      {DType::bf16, DType::bf16, 8, 2, 64, 16, 1, {70, 65, 100, 64, 130, 129, 77}, 2, 0, 0, 5, 64},
      {DType::bf16, DType::bf16, 8, 2, 64, 16, 1, {70, 65, 100, 64, 130, 129, 77}, 2, -1, 0, 5, 64},
      {DType::bf16, DType::bf16, 7, 1, 128, 16, 1, std::vector<std::uint32_t>(11, 163), 0, -1, 0, 10, 160},
      {DType::f16, DType::f16, 3, 1, 128, 32, 2, {40, 34, 90}, 1, -1, 0, 3, 32},
      {DType::bf16, DType::e4m3, 8, 1, 256, 16, 1, {40, 33, 32}, 0, -1, 0, 2, 32},
      {DType::bf16, DType::bf16, 12, 1, 64, 16, 1, {40, 33}, 2, -1, 0, 2, 32},
      // Windows, soft caps.
      {DType::f16, DType::f16, 4, 2, 128, 16, 1, {1, 333, 40}, 0, 2, 0, 0, 0, 37, 0.5f},
      {DType::bf16, DType::bf16, 4, 2, 64, 16, 3, {3, 70, 165}, 3, 0, 0, 0, 0, 20, 0},
      {DType::bf16, DType::bf16, 20, 1, 64, 16, 2, {150, 90}, 1, 0, 0, 0, 0, 64, 2},
      {DType::f16, DType::f16, 2, 2, 256, 16, 1, {50, 130}, 0, 1, 0, 0, 0, 0, 1},
      {DType::f16, DType::e4m3, 4, 2, 128, 16, 1, {40, 7}, 2, 0, 0, 0, 0, 33, 0.7f}};
  return all;
}

}  // namespace

TEST(decode, every_shape_under_every_order_of_execution) {
  for (const char* schedule : {"fair", "adversarial", "random:1"}) {
    auto device = runtime::Device::open("emu:sm_90a");
    auto o = device.emulator_options();
    emu::parse_schedule(schedule).apply(o);
    device.set_emulator_options(o);
    for (const auto& x : shapes()) check(device, x);
  }
  check(runtime::Device::open("emu:sm_80"), shapes()[1], 3);  // counters are left ready
}

// One workspace, zeroed once, for a problem with long partial results and then for one with many counters.
TEST(decode, problems_of_other_shapes_share_a_workspace) {
  const auto device = runtime::Device::open("emu:sm_80");
  DecodeProblem small, large;
  small.cache = {DType::bf16, DType::bf16, 12, 16, 1, 64};
  small.heads_q = 16, small.columns = 12, small.splits = 3;
  large = small;
  large.batch = 130, large.columns = 2, large.splits = 2;
  const auto bytes = std::max(decode_workspace(small, device.info()), decode_workspace(large, device.info()));
  auto work = device.zeros<std::uint32_t>(bytes / 4), wrong = device.zeros<std::uint32_t>(1);
  auto pool = device.upload<std::byte>(random_array(DType::bf16, {small.cache.elements()}, 1).bytes);
  auto q = device.upload<std::byte>(random_array(DType::bf16, {130 * 16 * 64}, 2).bytes);
  auto o = device.alloc<std::byte>(q.size());
  o.fill_bytes(0xff);
  std::vector<std::int32_t> pages;
  for (int i = 0; i < 260; ++i) pages.push_back(i % 12);
  auto table = device.upload<std::int32_t>(pages);
  runtime::Stream s(device);
  for (const auto& p : {small, large}) {
    auto lengths = device.upload<std::uint32_t>(
        std::vector<std::uint32_t>(p.batch, std::uint32_t(p.columns * p.cache.page_size)));
    decode(s, p,
           {q.address(), pool.address(), table.address(), lengths.address(), o.address(), 0, work.address(),
            wrong.address()});
    s.wait();
  }
  std::vector<std::uint16_t> words(o.size() / 2);
  o.download(std::as_writable_bytes(std::span(words)));
  EXPECT_EQ(std::count(words.begin(), words.end(), 0xffff), 0);
}

TEST(decode, wrong_pages_are_reported) {
  const auto device = runtime::Device::open("emu:sm_90a");
  DecodeProblem p;
  p.cache = {DType::bf16, DType::bf16, 2, 16, 1, 64};
  p.batch = 2, p.heads_q = 1, p.columns = 2, p.splits = 1;
  auto pool = device.zeros<std::uint16_t>(p.cache.elements()), q = device.zeros<std::uint16_t>(128),
       o = device.zeros<std::uint16_t>(128);
  auto table = device.upload<std::int32_t>(std::vector<std::int32_t>{0, 1, 0, 2});
  auto lengths = device.upload<std::uint32_t>(std::vector<std::uint32_t>{32, 32});
  auto wrong = device.zeros<std::uint32_t>(1);
  runtime::Stream s(device);
  decode(
      s, p,
      {q.address(), pool.address(), table.address(), lengths.address(), o.address(), 0, 0, wrong.address()});
  s.wait();
  EXPECT_EQ(wrong.to_vector()[0], 2u);
}

namespace {

// A captured step (a token appended, attention over what there is then) is issued again and again while
// slots, table, lengths and queries change in device memory; the same step issued directly gives the same
// bits.
void replayed_steps(const runtime::Device& device, const DecodeProblem& problem, std::uint32_t first,
                    std::uint32_t steps) {
  auto p = problem;
  const std::uint64_t row = p.cache.heads * p.cache.d, query = p.heads_q * p.cache.d;
  p.columns = (first + steps + 2 + p.cache.page_size - 1) / p.cache.page_size;
  p.cache.page_count = p.columns * p.batch;
  auto table = device.alloc<std::int32_t>(p.batch * p.columns);
  auto lengths = device.alloc<std::uint32_t>(p.batch), wrong = device.zeros<std::uint32_t>(1);
  auto slots = device.alloc<std::uint64_t>(p.batch);
  auto shared =
      device.upload<std::uint32_t>(std::vector<std::uint32_t>(p.batch, std::uint32_t(first / 16 * 16)));
  auto q = device.alloc<std::byte>(p.batch * query * 2), kv = device.alloc<std::byte>(p.batch * row * 2),
       o = device.alloc<std::byte>(p.batch * query * 2);
  auto work = device.zeros<std::uint32_t>(decode_workspace(p, device.info()) / 4 + 1);
  const auto all = random_array(p.cache.type, {p.cache.elements()}, 3);
  runtime::Stream s(device);
  auto pool = device.alloc<std::byte>(p.cache.bytes());
  const auto step = [&](runtime::Stream& on) {
    kv_append(on, p.cache, pool.address(), {kv.address(), kv.address(), 0, 0, p.batch}, slots.address(),
              wrong.address());
    decode(on, p,
           {q.address(), pool.address(), table.address(), lengths.address(), o.address(), 0, work.address(),
            wrong.address(), shared.address()});
  };
  const auto run = [&](const std::function<void()>& issue) {
    pool.upload(std::span(all.bytes).first(p.cache.bytes()));
    std::vector<std::byte> results;
    for (std::uint32_t i = 0; i < steps; ++i) {
      std::vector<std::int32_t> pages;  // others at every step, but for the common ones
      std::vector<std::uint32_t> now;
      std::vector<std::uint64_t> places;
      for (std::uint64_t b = 0; b < p.batch; ++b) {
        const auto length = first + i + (p.share ? 0u : std::uint32_t(b % 3));
        now.push_back(length);
        for (std::uint64_t c = 0; c < p.columns; ++c) {
          const auto owner = p.share && (c + 1) * p.cache.page_size <= first ? b / p.share * p.share : b;
          pages.push_back(std::int32_t((owner * p.columns + c + i) % p.cache.page_count));
        }
        const auto last = length - 1;
        places.push_back(std::uint64_t(pages[b * p.columns + last / p.cache.page_size]) * p.cache.page_size +
                         last % p.cache.page_size);
      }
      table.upload(pages), lengths.upload(now), slots.upload(places);
      q.upload(random_array(p.cache.type, {p.batch * query}, 10 + i).bytes);
      kv.upload(random_array(p.cache.type, {p.batch * row}, 90 + i).bytes);
      o.fill_bytes(0xff);
      issue();
      s.wait();
      std::vector<std::byte> bytes(o.size());
      o.download(bytes);
      results.insert(results.end(), bytes.begin(), bytes.end());
    }
    return results;
  };
  const auto direct = run([&] { step(s); });  // loads the kernels, too
  const auto graph = s.capture(step);
  EXPECT_EQ(graph.size(), 2u);
  EXPECT_EQ(run([&] { s.replay(graph); }), direct) << "cluster " << p.cluster << " share " << p.share;
  EXPECT_EQ(wrong.to_vector()[0], 0u);
  std::size_t nans = 0;
  for (std::size_t i = 1; i < direct.size(); i += 2) nans += direct[i] == std::byte{0xff};
  EXPECT_EQ(nans, 0u);
}
void replayed_problems(const runtime::Device& device, std::uint32_t first, std::uint32_t steps) {
  DecodeProblem p;
  p.cache = {DType::bf16, DType::bf16, 0, 16, 2, 64};
  p.batch = 4, p.heads_q = 4, p.splits = 2;
  replayed_steps(device, p, first, steps);
  p.splits = 0, p.cluster = 2;
  replayed_steps(device, p, first, steps);
  p.cluster = -1, p.share = 4;
  replayed_steps(device, p, first, steps);
}

}  // namespace

TEST(decode, a_captured_step_follows_what_the_device_says) {
  replayed_problems(runtime::Device::open("emu:sm_90a"), 46, 3);
}

TEST(decode, bad_arguments_name_the_argument) {
  DecodeProblem p;
  p.cache = {DType::bf16, DType::bf16, 2, 16, 2, 64};
  p.heads_q = 3;
  EXPECT_NE(reject(p).find("heads_q = 3"), std::string::npos);
  p.heads_q = 4, p.cache.d = 76;
  EXPECT_NE(reject(p).find("d = 76"), std::string::npos);
  p.cache.d = 72;
  EXPECT_EQ(reject(p), "");
  p.cluster = 2;  // rings of rows that are no multiple of 64
  EXPECT_NE(reject(p).find("d = 72"), std::string::npos);
  p.cluster = -1;
  p.cache.d = 64, p.cache.page_size = 20;
  EXPECT_NE(reject(p).find("page_size = 20"), std::string::npos);
  p.cache.page_size = 512;
  EXPECT_NE(reject(p).find("page_size = 512"), std::string::npos);
  p.cache.page_size = 16, p.scale = NAN;
  EXPECT_NE(reject(p).find("scale"), std::string::npos);
  p.scale = 1;
  EXPECT_EQ(reject(p), "");
  p.window_left = -2;
  EXPECT_NE(reject(p).find("window_left = -2"), std::string::npos);
  p.window_left = 100, p.soft_cap = -1;
  EXPECT_NE(reject(p).find("soft_cap = -1"), std::string::npos);
  p.soft_cap = 50;
  EXPECT_EQ(reject(p), "");
  p.share = 2;
  EXPECT_NE(reject(p).find("a cascade has no window"), std::string::npos);
}

TEST(decode, right_on_a_gpu) {
  try {
    const auto device = runtime::Device::open("cuda:0");
    for (const auto& x : shapes()) check(device, x, 2);
    check(device, {DType::bf16, DType::bf16, 32, 8, 128, 64, 1, {1000, 3000, 17, 2048}, 0}, 2);
    replayed_problems(device, 1000, 20);
  } catch (const Unsupported& e) {
    GTEST_SKIP() << e.what();
  }
}

TEST(decode_config, names_are_read_back) {
  for (const auto& c : decode_configs()) {
    const auto back = parse_config<DecodeConfig>("decode", c.name());
    EXPECT_EQ(back.name(), c.name());
    EXPECT_EQ(back.cluster, c.cluster);
    EXPECT_EQ(back.pages, c.pages);
  }
  EXPECT_EQ((DecodeConfig{.pages = DType::e4m3, .rows16 = true, .cluster = 8}.name()),
            "decode_bf16_pages_e4m3_d128_warps4_rows16_cluster8_smem96");
}

TEST(decode, every_variant_assembles) {
  cgp::testing::expect_assemble(cgp::testing::images_for({"sm_80", "sm_90a", "sm_120a"}, decode_variants()));
}
