// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>

#include "cgp/base/error.h"
#include "cgp/spec/spec.h"

namespace cgp::spec {
namespace {

const char* kCase = R"({
  "target": "compute_90a",
  "nvcc_flags": ["-lineinfo"],
  "symbols": [{"name": "table", "dtype": "u32", "count": 2, "init": {"kind": "values", "values": [1, 2]}}],
  "buffers": [
    {"name": "x", "dtype": "f32", "count": 4, "role": "in", "init": {"kind": "iota", "start": 1, "step": 1}, "crc32": "0a0b0c0d"},
    {"name": "y", "dtype": "bf16", "count": 8, "role": "out",
     "compare": {"mode": "abs_rel", "abs": 0.5, "rel": 0.25}, "expected": {"kind": "zero"}}
  ],
  "launches": [
    {"entry": "k", "grid": [2, 3, 4], "block": [32, 1, 1], "cluster": [2, 1, 1], "dynamic_smem": 65536,
     "params": [
       {"buf": "x", "offset": 8},
       {"name": "n", "type": "s32", "value": -2},
       {"name": "s", "struct": {"size": 24, "align": 8, "fields": [
          {"offset": 8, "buf": "y"}, {"offset": 0, "type": "f32", "value": "3f800000"}, {"offset": 16, "type": "u16", "value": [1, 2]}]}},
       {"name": "t", "tensormap": {"buf": "x", "dtype": "f32", "dims": [64, 2], "strides": [256], "box": [32, 2],
          "elem_strides": [1, 1], "swizzle": "128B", "interleave": "none"}}
     ]},
    {"entry": "k2", "grid": [1], "block": [64], "cluster": null, "dynamic_smem": 0, "params": []}
  ],
  "counters": [{"launch": 1, "global_ld_sectors": 12, "shared_store_conflicts": 3}],
  "expect": {"class": "race.shared", "also": ["race.async"], "ops": ["st.shared"], "thread": [3, 0, 0]},
  "surprise": 1
})";

std::string message_of(const std::string& json) {
  try {
    parse_spec(json, "case.json");
  } catch (const ParseError& e) {
    return e.what();
  }
  return "(nothing thrown)";
}
std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}
void expect_message(const std::string& from, const std::string& to,
                    std::initializer_list<const char*> parts) {
  const std::string message = message_of(replaced(kCase, from, to));
  for (const char* part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << part << "\nis not in\n" << message;
}

TEST(spec_parse, reads_every_field) {
  const Spec s = parse_spec(kCase, "dir/case.json");
  EXPECT_EQ(s.ptx_path, "dir/case.ptx");
  EXPECT_EQ(s.folder, "dir");
  EXPECT_EQ(s.target, "compute_90a");
  ASSERT_EQ(s.symbols.size(), 1u);
  EXPECT_EQ(s.symbols[0].init.values, (std::vector<std::uint64_t>{1, 2}));
  ASSERT_EQ(s.buffers.size(), 2u);
  EXPECT_EQ(s.buffers[0].crc32, 0x0a0b0c0du);
  EXPECT_EQ(s.buffers[1].bytes(), 16u);
  EXPECT_EQ(s.buffers[1].compare.mode, Compare::Mode::abs_rel);
  EXPECT_EQ(s.buffers[1].compare.rel, 0.25);
  ASSERT_EQ(s.launches.size(), 2u);
  const LaunchSpec& l = s.launches[0];
  EXPECT_EQ(l.grid, (Dim3{2, 3, 4}));
  EXPECT_EQ(l.cluster, (Dim3{2, 1, 1}));
  EXPECT_EQ(l.dynamic_smem, 65536u);
  ASSERT_EQ(l.params.size(), 4u);
  EXPECT_EQ(l.params[0].addresses[0].offset, 8u);
  EXPECT_EQ(l.params[1].bytes, (std::vector<std::uint8_t>{0xfe, 0xff, 0xff, 0xff}));
  std::vector<std::uint8_t> want(24, 0);
  want[2] = 0x80, want[3] = 0x3f, want[16] = 1, want[18] = 2;
  EXPECT_EQ(l.params[2].bytes, want);
  ASSERT_EQ(l.params[2].addresses.size(), 1u);
  EXPECT_EQ(l.params[2].addresses[0].buffer, 1u);
  EXPECT_EQ(l.params[2].addresses[0].at, 8u);
  EXPECT_EQ(l.params[3].map.swizzle, runtime::Swizzle::b128);
  EXPECT_EQ(l.params[3].map.dims, (std::vector<std::uint64_t>{64, 2}));
  EXPECT_EQ(s.launches[1].cluster, (Dim3{1, 1, 1}));
  ASSERT_EQ(s.counters.size(), 1u);
  EXPECT_EQ(s.counters[0].launch, 1u);
  EXPECT_EQ(s.counters[0].values.at("global_load_sectors"), 12u);
  ASSERT_TRUE(s.expect);
  EXPECT_TRUE(s.expect->accepts("race.async"));
  EXPECT_FALSE(s.expect->accepts("race.global"));
  ASSERT_EQ(s.warnings.size(), 1u);
  EXPECT_NE(s.warnings[0].find("/surprise"), std::string::npos);
}

TEST(spec_parse, errors_show_path_line_and_caret) {
  expect_message("\"bf16\"", "\"bf17\"", {"/buffers/1/dtype", "line 7, column", "did you mean", "^"});
  expect_message("\"role\": \"out\"", "\"role\": \"output\"", {"/buffers/1/role", "in, out, inout, scratch"});
  expect_message("\"buf\": \"x\", \"offset\": 8", "\"buf\": \"z\", \"offset\": 8",
                 {"/launches/0/params/0/buf", "there are: x, y"});
  expect_message("\"count\": 4", "\"count\": -4", {"/buffers/0/count", "zero or more"});
  expect_message("\"count\": 4", "\"kount\": 4", {"/buffers/0", "needs the field \"count\"", "kount"});
  expect_message("[2, 3, 4]", "[2, 0, 4]", {"/launches/0/grid", "at least 1"});
  expect_message("\"offset\": 16, \"type\"", "\"offset\": 22, \"type\"",
                 {"inside its struct", "22 to 26 of 24"});
  expect_message("\"swizzle\": \"128B\"", "\"swizzle\": \"256B\"", {"swizzle", "none, 32B, 64B, 128B"});
  expect_message("\"mode\": \"abs_rel\"", "\"mode\": \"close\"",
                 {"/buffers/1/compare/mode", "exact, abs_rel, multiset"});
  expect_message("\"value\": -2", "\"value\": \"zz\"", {"/launches/0/params/1/value", "hex"});
  expect_message("\"launch\": 1", "\"launch\": 2", {"launch 2 of 2"});
}

TEST(spec_parse, malformed_json_names_line_and_column) {
  try {
    parse_spec("{\n  \"buffers\": [,]\n}", "bad.json");
    FAIL() << "no error";
  } catch (const ParseError& e) {
    EXPECT_EQ(e.line(), 2);
    EXPECT_EQ(e.column(), 15);
  }
  EXPECT_NE(message_of("[]").find("must be an object"), std::string::npos);
  EXPECT_NE(message_of("{}").find("launches"), std::string::npos);
  EXPECT_NE(message_of("{\"launches\": []}").find("must launch something"), std::string::npos);
  EXPECT_NE(message_of("").find("must be JSON"), std::string::npos);
}

TEST(spec_parse, damaged_specs_never_do_worse_than_throw_an_error) {
  const std::string good = kCase;
  std::uint64_t state = 1;
  const auto next = [&] {
    return state = state * 6364136223846793005ull + 1442695040888963407ull, state >> 33;
  };
  const std::string alphabet = "{}[]\",:0123456789-.eabx \n";
  for (int round = 0; round < 3000; ++round) {
    std::string text = round % 3 == 0 ? good.substr(0, next() % good.size()) : good;
    for (std::uint64_t edits = next() % 4; edits-- > 0 && !text.empty();)
      text[next() % text.size()] = alphabet[next() % alphabet.size()];
    try {
      const Spec s = parse_spec(text, "case.json");
      for (const BufferSpec& b : s.buffers)
        if (b.init && b.count < 1000) generate(*b.init, b.dtype, b.count, "", b.name);
    } catch (const Error&) {
      // what bad input may do
    }
  }
  std::string deep =
      "{\"launches\":[{}],\"buffers\":[{\"name\":\"x\",\"dtype\":\"u8\",\"count\":1,\"role\":\"in\","
      "\"init\":";
  for (int i = 0; i < 20000; ++i) deep += "{\"count\":1,\"concat\":[";
  EXPECT_THROW(parse_spec(deep, "deep.json"), ParseError);
  for (int i = 0; i < 20000; ++i) deep += "]}";
  EXPECT_THROW(parse_spec(deep + "}]}", "deep.json"), ParseError);
}

}  // namespace
}  // namespace cgp::spec
