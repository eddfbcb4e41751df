// SPDX-License-Identifier: Apache-2.0
// Damaged files: every mutation of a valid file is read or refused with a named place, in bounded time and memory.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>

#include "cgp/base/error.h"
#include "cgp/base/random.h"
#include "cgp/model/gguf/gguf.h"
#include "cgp/model/gguf/gguf_writer.h"

namespace {
thread_local std::size_t allocated = 0;  // bytes asked of operator new
}
void* operator new(std::size_t n) {
  allocated += n;
  if (void* p = std::malloc(n)) return p;
  throw std::bad_alloc();
}
void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
  allocated += n;
  return std::malloc(n);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace cgp::model {
namespace {

std::string valid_file() {
  GgufWriter out;
  out.add("general.architecture", "llama");
  out.add("llama.block_count", 2u);
  out.add("flag", true);
  std::vector<std::string_view> words = {"a", "bc", "def", ""};
  out.add_array("tokenizer.ggml.tokens", std::span<const std::string_view>(words));
  std::vector<float> scores = {0, -1, -2, -3};
  out.add_array("tokenizer.ggml.scores", std::span<const float>(scores));
  GgufArray inner;
  inner.element = GgufType::string;
  inner.count = 1;
  inner.strings = {"x"};
  GgufArray outer;
  outer.element = GgufType::array;
  outer.count = 2;
  outer.arrays = {inner, inner};
  out.add("nested", GgufValue{GgufType::array, outer});
  std::string data(144 * 2, 'd');
  auto bytes = std::as_bytes(std::span(data.data(), data.size()));
  out.add_tensor("blk.0.w", *find_ggml_type("Q4_K"), {256, 2}, bytes);
  out.add_tensor("blk.1.w", *find_ggml_type("F32"), {8, 3, 3}, bytes);
  return out.bytes();
}

std::string mutate(const std::string& file, SplitMix64& random) {
  constexpr std::uint64_t kValues[] = {0,          1,          8,          9,          12,    255,
                                       1ull << 31, 1ull << 32, 1ull << 61, 1ull << 63, ~0ull, ~0ull / 8};
  std::string out = file;
  for (std::uint64_t n = 1 + random.next() % 3; n > 0 && !out.empty(); --n) {
    std::size_t at = random.next() % out.size();
    switch (random.next() % 6) {
      case 0:
        out[at] = char(random.next());
        break;
      case 1:
        out[at] ^= char(1u << random.next() % 8);
        break;
      case 2:
        out.resize(at);
        break;
      case 3:
        out.erase(at, random.next() % 16);
        break;
      case 4:
        out.insert(at, out.substr(random.next() % out.size(), random.next() % 64));
        break;
      case 5: {
        std::uint64_t value = kValues[random.next() % std::size(kValues)];
        std::size_t width = random.next() % 2 ? 8 : 4;
        if (at + width <= out.size()) std::memcpy(out.data() + at, &value, width);
      }
    }
  }
  return out;
}

/// Reads all that a file says it has: a byte outside of it is found by AddressSanitizer.
std::uint64_t use(const Gguf& file) {
  std::uint64_t sum = 0;
  for (const auto& [key, value] : file.metadata()) {
    sum += key.size();
    if (auto* array = std::get_if<GgufArray>(&value.held)) {
      for (std::byte b : array->data) sum += std::uint64_t(b);
      for (std::string_view s : array->strings)
        for (char c : s) sum += std::uint64_t(c);
    }
  }
  for (const GgufTensor& t : file.tensors())
    for (std::byte b : t.data) sum += std::uint64_t(b);
  return sum;
}

TEST(GgufMutation, DamagedFilesAreReadOrRefusedInBounds) {
  const std::string file = valid_file();
  const char* wanted = std::getenv("CGP_MUTATIONS");
  const int cases = wanted ? std::atoi(wanted) : 20000;
  SplitMix64 random(18);
  int read = 0, refused = 0;
  std::uint64_t sum = 0;
  auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < cases; ++i) {
    std::string damaged = mutate(file, random);
    std::size_t before = allocated;
    try {
      sum += use(Gguf::parse(std::as_bytes(std::span(damaged.data(), damaged.size())), "x.gguf"));
      ++read;
    } catch (const ParseError& e) {
      ASSERT_TRUE(e.where().find("byte ") != std::string::npos ||
                  e.where().find("key '") != std::string::npos)
          << e.what();
      ++refused;
    }
    ASSERT_LE(allocated - before, 64 * 1024 + 64 * damaged.size()) << "case " << i;
  }
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_LE(seconds, 10 + cases * 1e-3);
  EXPECT_GT(read, cases / 100) << "mutations that nobody notices are missing";
  EXPECT_GT(refused, cases / 10) << "mutations that break a file are missing";
  EXPECT_NE(sum, 0u);
}

}  // namespace
}  // namespace cgp::model
