// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/kv_cache/kv_cache.h"

#include <gtest/gtest.h>

#include <map>

#include "cgp/base/random.h"
#include "cgp/kernels/common/array.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;

namespace {

template <class F>
KvFailure failure(F&& f) {
  try {
    f();
  } catch (const KvError& e) {
    return e.kind();
  }
  ADD_FAILURE() << "nothing was thrown";
  return KvFailure::exhausted;
}

}  // namespace

TEST(kv_pages, exhaustion_rolls_back_and_misuse_is_named) {
  KvPages p(4, 16);
  const auto a = p.add(), b = p.add();
  p.append(a, 40);
  EXPECT_EQ(failure([&] { p.append(b, 17); }), KvFailure::exhausted);
  EXPECT_EQ(p.free_pages(), 1u);
  EXPECT_EQ(p.length(b), 0u);
  p.append(b, 16);
  p.free(a);
  EXPECT_EQ(failure([&] { p.free(a); }), KvFailure::freed_sequence);
  EXPECT_EQ(failure([&] { p.append(77, 1); }), KvFailure::unknown_sequence);
  EXPECT_EQ(failure([&] { p.truncate(b, 17); }), KvFailure::bad_length);
  EXPECT_EQ(failure([&] { p.fork(b, 17); }), KvFailure::bad_length);
  EXPECT_EQ(p.free_pages(), 3u);
  p.on_exhausted = [&](std::size_t missing) {
    EXPECT_EQ(missing, 1u);
    p.free(b);
    return true;
  };
  p.append(p.add(), 64);
  EXPECT_EQ(p.free_pages(), 0u);
  EXPECT_THROW(KvPages(1, 24), ArgumentError);
}

// Against a model in which every token of every sequence has a number of its own: what a sequence reads
// through its table must be its own tokens, whatever others did.
TEST(kv_pages, any_order_of_calls_keeps_every_sequence_intact) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SplitMix64 random(seed);
    KvPages pages(24, 16);
    std::vector<std::uint64_t> memory(24 * 16);
    std::map<KvSequence, std::vector<std::uint64_t>> model;
    std::uint64_t token = 0;
    const auto any = [&] {
      auto at = model.begin();
      std::advance(at, std::ptrdiff_t(random.next() % model.size()));
      return at->first;
    };
    for (int step = 0; step < 400; ++step) {
      const auto what = random.next() % 8;
      if (model.empty() || what == 0) {
        model[pages.add()];
      } else if (what < 4) {
        const auto s = any();
        const auto n = random.next() % 40;
        const auto before = pages.free_pages();
        try {
          const auto added = pages.append(s, n);
          for (const auto& c : added.copies)
            for (std::uint32_t i = 0; i < c.tokens; ++i) memory[c.to * 16 + i] = memory[c.from * 16 + i];
          ASSERT_EQ(added.slots.size(), n);
          for (auto slot : added.slots) model[s].push_back(memory[slot] = ++token);
        } catch (const KvError& e) {
          ASSERT_EQ(e.kind(), KvFailure::exhausted);
          ASSERT_EQ(pages.free_pages(), before);
        }
      } else if (what == 4) {
        const auto s = any();
        const auto n = random.next() % (model[s].size() + 1);
        const auto child = pages.fork(s, n);
        model[child].assign(model[s].begin(), model[s].begin() + std::ptrdiff_t(n));
      } else if (what == 5) {
        const auto s = any();
        const auto n = random.next() % (model[s].size() + 1);
        pages.truncate(s, n);
        model[s].resize(n);
      } else {
        const auto s = any();
        pages.free(s);
        model.erase(s);
      }
      std::map<std::uint32_t, std::uint32_t> owners;
      for (const auto& [s, tokens] : model) {
        ASSERT_EQ(pages.length(s), tokens.size());
        ASSERT_EQ(pages.table(s).size(), (tokens.size() + 15) / 16);
        for (auto p : pages.table(s)) ++owners[p];
        for (std::size_t i = 0; i < tokens.size(); ++i)
          ASSERT_EQ(memory[pages.table(s)[i / 16] * 16 + i % 16], tokens[i])
              << "seed " << seed << " step " << step;
      }
      ASSERT_EQ(owners.size() + pages.free_pages(), 24u);
      for (auto [p, n] : owners) ASSERT_EQ(pages.references(p), n);
    }
  }
}

namespace {

void append_and_gather(const runtime::Device& device, DType type, DType page_type, std::uint64_t page_size,
                       std::uint64_t d) {
  const KvCacheShape c{type, page_type, 40, page_size, 3, d, 0.5f, 2.0f};
  KvPages pages(40, std::uint32_t(page_size));
  auto pool = device.alloc<std::byte>(c.bytes());
  pool.fill_bytes(0x7f);  // what is not written shows
  auto wrong = device.zeros<std::uint32_t>(1);
  runtime::Stream s(device);
  const std::uint64_t row = c.heads * d, lengths[] = {1, page_size, 2 * page_size + 5, 0};
  std::vector<KvSequence> sequences;
  std::vector<HostArray> keys, values;
  for (std::uint64_t i = 0; i < 4; ++i) {
    sequences.push_back(pages.add());
    const std::uint64_t n = lengths[i];
    keys.push_back(random_array(type, {n, c.heads, d}, 2 * i + 1));
    values.push_back(random_array(type, {n, c.heads, d}, 2 * i + 2));
    for (std::uint64_t first = 0; first < n;) {  // token by token, then in chunks
      const std::uint64_t count = std::min<std::uint64_t>(n - first, first < 2 ? 1 : 7);
      const auto added = pages.append(sequences.back(), count);
      auto slots = device.upload<std::uint64_t>(added.slots);
      auto k = device.alloc<std::byte>(count * row * 2), v = device.alloc<std::byte>(count * row * 2);
      k.upload(std::span(keys.back().bytes).subspan(first * row * 2, count * row * 2));
      v.upload(std::span(values.back().bytes).subspan(first * row * 2, count * row * 2));
      kv_append(s, c, pool.address(), {k.address(), v.address(), 0, 0, count}, slots.address(),
                wrong.address());
      s.wait();
      first += count;
    }
  }
  std::vector<std::uint32_t> n{1, std::uint32_t(page_size), std::uint32_t(2 * page_size + 5), 0};
  const std::uint64_t rows = 3 * page_size + 1, out = 4 * c.heads * rows * d;
  auto table = device.upload<std::int32_t>(pages.tables(sequences, 4));
  auto length = device.upload<std::uint32_t>(n);
  auto k = device.alloc<std::byte>(out * 2), v = device.alloc<std::byte>(out * 2);
  kv_gather(s, c, pool.address(), table.address(), 4, length.address(), 4, rows, k.address(), v.address(),
            wrong.address());
  s.wait();
  HostArray got_k(type, {out}), got_v(type, {out});
  k.download(got_k.bytes), v.download(got_v.bytes);
  const auto stored = [&](double x, float scale) {
    if (page_type != DType::e4m3) return x;
    HostArray one(type, {1});
    one.set(0, double(float8_e4m3(double(float(float(x) * (1 / scale))))) * scale);
    return one.at(0);
  };
  std::uint64_t differ = 0;
  for (std::uint64_t i = 0; i < out; ++i) {
    const auto e = i % d, r = i / d % rows, h = i / d / rows % c.heads, b = i / d / rows / c.heads;
    const auto at = (r * c.heads + h) * d + e;
    const double want_k = r < n[b] ? stored(keys[b].at(at), 0.5f) : 0;
    const double want_v = r < n[b] ? stored(values[b].at(at), 2.0f) : 0;
    differ += got_k.at(i) != want_k || got_v.at(i) != want_v;
  }
  EXPECT_EQ(differ, 0u) << name(page_type) << " pages of " << page_size << ", d " << d;
  EXPECT_EQ(wrong.to_vector()[0], 0u);
  // Wrong slots and pages are reported, and write nothing.
  auto bad_slots = device.upload<std::uint64_t>(std::vector<std::uint64_t>{0, 40 * page_size});
  kv_append(s, c, pool.address(), {k.address(), v.address(), 0, 0, 2}, bad_slots.address(), wrong.address());
  s.wait();
  EXPECT_EQ(wrong.to_vector()[0], 2u);
  auto bad_table = device.upload<std::int32_t>(std::vector<std::int32_t>{-1, 40});
  kv_gather(s, c, pool.address(), bad_table.address(), 1, length.address(), 2, 1, k.address(), v.address(),
            wrong.address());
  s.wait();
  EXPECT_EQ(wrong.to_vector()[0], 2u);
}

}  // namespace

TEST(kv_cache, appended_tokens_come_back) {
  const auto device = runtime::Device::open("emu:sm_90a");
  append_and_gather(device, DType::f16, DType::f16, 16, 64);
  append_and_gather(device, DType::bf16, DType::bf16, 32, 40);
  append_and_gather(device, DType::bf16, DType::e4m3, 16, 32);
  append_and_gather(device, DType::f16, DType::e4m3, 16, 8);
  append_and_gather(device, DType::f16, DType::f16, 1024, 8);
}

TEST(kv_cache, copy_on_write_copies_the_beginning_of_a_page) {
  const auto device = runtime::Device::open("emu:sm_80");
  const KvCacheShape c{DType::f16, DType::f16, 3, 16, 2, 8};
  HostArray host = random_array(DType::f16, {c.elements()}, 1);
  auto pool = device.alloc<std::byte>(c.bytes());
  pool.upload(host.bytes);
  runtime::Stream s(device);
  kv_copy(s, c, pool.address(), {{0, 2, 5}});
  s.wait();
  HostArray got(DType::f16, {c.elements()});
  pool.download(got.bytes);
  for (std::uint64_t i = 0; i < c.elements(); ++i) {
    const auto page = i / 512, token = i / 8 % 16;
    EXPECT_EQ(got.at(i), host.at(page == 2 && token < 5 ? i - 1024 : i)) << i;
  }
}

// Tokens in the first and in the last page of a pool of more than 2^31 elements.
static void a_large_pool(const runtime::Device& device) {
  const KvCacheShape c{DType::bf16, DType::bf16, 4100, 256, 8, 128};
  ASSERT_GT(c.elements(), 1ull << 31);
  const auto pool = device.alloc<std::byte>(c.bytes());
  const std::uint64_t row = c.heads * c.d, last = c.page_count * c.page_size - 1;
  const auto k = random_array(DType::bf16, {2 * row}, 1), v = random_array(DType::bf16, {2 * row}, 2);
  auto dk = device.upload<std::byte>(k.bytes), dv = device.upload<std::byte>(v.bytes);
  auto slots = device.upload<std::uint64_t>(std::vector<std::uint64_t>{last, 255});
  auto table = device.upload<std::int32_t>(std::vector<std::int32_t>{std::int32_t(c.page_count) - 1, 0});
  auto lengths = device.upload<std::uint32_t>(std::vector<std::uint32_t>{512});
  auto wrong = device.zeros<std::uint32_t>(1);
  auto ok = device.alloc<std::byte>(512 * row * 2), ov = device.alloc<std::byte>(512 * row * 2);
  runtime::Stream s(device);
  kv_append(s, c, pool.address(), {dk.address(), dv.address(), 0, 0, 2}, slots.address(), wrong.address());
  kv_gather(s, c, pool.address(), table.address(), 2, lengths.address(), 1, 512, ok.address(), ov.address(),
            wrong.address());
  s.wait();
  EXPECT_EQ(wrong.to_vector()[0], 0u);
  HostArray got_k(DType::bf16, {512 * row}), got_v(DType::bf16, {512 * row});
  ok.download(got_k.bytes), ov.download(got_v.bytes);
  for (std::uint64_t t = 0; t < 2; ++t)  // rows 255 and 511 of each head
    for (std::uint64_t i = 0; i < row; ++i) {
      const auto at = (i / c.d * 512 + 256 * t + 255) * c.d + i % c.d;
      EXPECT_EQ(got_k.at(at), k.at(t * row + i));
      EXPECT_EQ(got_v.at(at), v.at(t * row + i));
    }
}

TEST(kv_cache, right_on_a_gpu) {
  try {
    const auto device = runtime::Device::open("cuda:0");
    append_and_gather(device, DType::bf16, DType::bf16, 256, 128);
    append_and_gather(device, DType::bf16, DType::e4m3, 64, 128);
    a_large_pool(device);
  } catch (const Unsupported& e) {
    GTEST_SKIP() << e.what();
  }
}

TEST(kv_cache, every_variant_assembles) {
  cgp::testing::expect_assemble(
      cgp::testing::images_for({std::begin(kTargets), std::end(kTargets)}, kv_cache_variants()));
}
