// SPDX-License-Identifier: Apache-2.0
// Instructions of WebAssembly modules, counted by hand, by the reader and by node.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/random.h"
#include "cgp/base/text.h"
#include "cgp/profile/collect/wasm_module.h"
#include "cgp/profile/collect/wasm_run.h"

using namespace cgp;
using namespace cgp::profile;
using measure::Metric;
using testing::HasSubstr;

namespace {

std::string bytes(const std::vector<int>& all) {
  std::string out;
  for (int b : all) out += char(b);
  return out;
}
/// A vector or a section of less than 128 bytes.
std::string sized(const std::string& content) { return char(content.size()) + content; }
std::string section(int id, const std::string& content) { return char(id) + sized(content); }
std::string exported(const std::string& name, int index) { return sized(name) + bytes({0, index}); }

/// sum(i32) = 1 + 2 + ... as i64; lane() of a vector; choose(i32) by if and else; trap().
std::string planted(const std::string& imports = "") {
  const int first = imports.empty() ? 0 : 1;
  const std::string header("\0asm\1\0\0\0", 8);
  const std::string types = bytes({3, 0x60, 1, 0x7f, 1, 0x7e, 0x60, 0, 1, 0x7f, 0x60, 1, 0x7f, 1, 0x7f});
  const std::string sum =
      bytes({1,    1,    0x7e, 0x02, 0x40, 0x03, 0x40, 0x20, 0,    0x45, 0x0d, 1, 0x20, 1,    0x20, 0, 0xad,
             0x7c, 0x21, 1,    0x20, 0,    0x41, 1,    0x6b, 0x21, 0,    0x0c, 0, 0x0b, 0x0b, 0x20, 1, 0x0b});
  const std::string lane = bytes({0, 0xfd, 0x0c}) + std::string("\0\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0", 16) +
                           bytes({0xfd, 0x1b, 2, 0x0b});
  const std::string choose =
      bytes({0, 0x20, 0, 0x04, 0x7f, 0x41, 7, 0x41, 1, 0x6a, 0x05, 0x41, 9, 0x0b, 0x0b});
  const std::string trap = bytes({0, 0x00, 0x0b});
  return header + section(1, types) + (imports.empty() ? "" : section(2, imports)) +
         section(3, bytes({4, 0, 1, 2, 1})) +
         section(7, bytes({4}) + exported("sum", first) + exported("lane", first + 1) +
                        exported("choose", first + 2) + exported("trap", first + 3)) +
         section(10, bytes({4}) + sized(sum) + sized(lane) + sized(choose) + sized(trap));
}

struct Planted {
  static inline int count = 0;
  std::string path = text::cat(testing::TempDir(), "cgp_planted_", getpid(), "_", count++, ".wasm");
  explicit Planted(const std::string& content = planted()) { write_file(path, content); }
  ~Planted() { std::filesystem::remove(path); }
  Document run(const std::string& function, const std::vector<std::string>& arguments) const {
    return profile_wasm({path, function, arguments, 0.01});
  }
};

TEST(wasm, a_module_is_read) {
  const auto m = read_wasm(planted(), "planted");
  ASSERT_EQ(m.exported.size(), 4u);
  EXPECT_EQ(m.exported[0].name, "sum");
  EXPECT_EQ(m.exported[0].parameters, std::vector<std::string>{"i32"});
  EXPECT_TRUE(m.exported[1].parameters.empty());
  EXPECT_EQ(m.functions, 4u);
  EXPECT_EQ(m.instructions, 16u + 2 + 6 + 1) << "without end and else";
  EXPECT_EQ(m.simd_instructions, 2u);
  const auto again = read_wasm(m.counted, "counted");
  EXPECT_EQ(again.exported.size(), 4u);
  EXPECT_GT(again.instructions, m.instructions);
}

TEST(wasm, damaged_modules_end_with_an_error) {
  const std::string whole = planted();
  EXPECT_THROW(read_wasm("", "x"), ParseError);
  EXPECT_THROW(read_wasm("\x7f"
                         "ELF....",
                         "x"),
               ParseError);
  SplitMix64 random(3);
  for (int trial = 0; trial < 20000; ++trial) {
    std::string damaged = whole.substr(0, trial % 2 ? whole.size() : random.next() % whole.size());
    for (int i = 0; i < trial % 4 && !damaged.empty(); ++i)
      damaged[random.next() % damaged.size()] = char(random.next());
    try {
      read_wasm(damaged, "x");
    } catch (const Error&) {
    }
  }
}

TEST(wasm, what_is_executed_is_counted_exactly) {
  if (std::system("node --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no node";
  const Planted module;
  for (const int n : {0, 1, 1000}) {
    const auto d = module.run("sum", {std::to_string(n)});
    EXPECT_EQ(d.more["wasm"]["result"], std::to_string(n * (n + 1) / 2));
    EXPECT_EQ(d.metrics[Metric::instruction_count].number(), 13.0 * n + 6) << n;
    EXPECT_EQ(d.metrics[Metric::fuel_consumed].number(), 13.0 * n + 4) << "neither the block nor the loop";
    EXPECT_GT(d.metrics[Metric::wall_clock_time_us].number(), 0);
    EXPECT_EQ(d.more["wasm"]["simd_executed"], 0);
  }
  const auto lane = module.run("lane", {});
  EXPECT_EQ(lane.more["wasm"]["result"], "5");
  EXPECT_EQ(lane.more["wasm"]["simd_executed"], 2);
  EXPECT_TRUE(lane.notes.empty());
  EXPECT_EQ(module.run("choose", {"1"}).metrics[Metric::instruction_count].number(), 5);
  EXPECT_EQ(module.run("choose", {"0"}).metrics[Metric::instruction_count].number(), 3);
}

TEST(wasm, what_cannot_be_run_says_why) {
  const Planted module;
  const auto why = [](const auto& run) {
    try {
      run();
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("nothing");
  };
  EXPECT_THAT(why([&] { module.run("nothing", {}); }), HasSubstr("it exports sum, lane, choose, trap"));
  EXPECT_THAT(why([&] { module.run("sum", {}); }), HasSubstr("sum takes 1 numbers"));
  EXPECT_THAT(why([&] { module.run("sum", {"x"}); }), HasSubstr("is a number of type i32"));
  const Planted other(planted(bytes({1}) + sized("env") + sized("f") + bytes({0, 1})));
  EXPECT_THAT(why([&] { other.run("sum", {"1"}); }), HasSubstr("it imports env.f"));
  setenv("CGP_NODE", "/nowhere/node", 1);
  EXPECT_THAT(why([&] { module.run("sum", {"1"}); }), HasSubstr("/nowhere/node"));
  unsetenv("CGP_NODE");
  if (std::system("node --version > /dev/null 2>&1") != 0) return;
  EXPECT_THAT(why([&] { module.run("trap", {}); }), HasSubstr("unreachable"));
}

}  // namespace
