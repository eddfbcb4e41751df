// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <tuple>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/attention/attention_formula.h"
#include "cgp/kernels/attention/attention_ref.h"
#include "cgp/kernels/decode/decode.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::testing;

namespace {

// Every feature once, on shapes that are no multiple of anything.
void every_feature(const std::string& variant, const std::string& d, std::string_view arch) {
  const auto run = [&](OptionList extra) {
    std::vector<std::pair<const char*, std::string>> all{{"variant", variant}, {"d", d},    {"batch", "1"},
                                                         {"heads", "2"},       {"n", "33"}, {"n_kv", "70"}};
    for (const auto& e : extra) all.push_back(e);
    const auto n = all.size();
    ASSERT_LE(n, 12u);
    all.resize(12, {"layout", "bshd"});
    expect_right(
        attention_entry(),
        {all[0], all[1], all[2], all[3], all[4], all[5], all[6], all[7], all[8], all[9], all[10], all[11]},
        arch);
  };
  run({{"causal", "1"}});
  run({{"causal", "1"}, {"n", "90"}});  // the first queries see no key
  run({{"left", "20"}, {"right", "3"}});
  run({{"left", "5"}, {"causal", "1"}});
  run({{"cap", "2.5"}});
  run({{"alibi", "1"}, {"causal", "1"}});
  run({{"mask", "additive"}, {"dtype", "f16"}});
  run({{"mask", "boolean"}, {"causal", "1"}});
  run({{"heads", "4"}, {"heads_kv", "2"}, {"batch", "2"}});
}

}  // namespace

TEST(attention_simt, every_type_and_feature) {
  for (const char* t : {"f32", "f16", "bf16"})
    expect_right(attention_entry(),
                 {{"variant", "simt"}, {"dtype", t}, {"n", "5"}, {"n_kv", "37"}, {"d", "20"}, {"d_v", "70"}},
                 "sm_80");
  every_feature("simt", "16", "sm_90a");
  expect_right(attention_entry(),
               {{"variant", "simt"}, {"dtype", "f16"}, {"n", "5"}, {"n_kv", "0"}, {"d", "16"}}, "sm_75");
  for (const char* what : {"packed", "lengths"})
    expect_right(attention_entry(),
                 {{"variant", "simt"},
                  {"n", "9"},
                  {"n_kv", "40"},
                  {"d", "16"},
                  {what, "1"},
                  {"causal", "1"},
                  {"batch", "3"}},
                 "sm_90a");
}

TEST(attention_mma, every_head_dimension_and_feature) {
  for (auto [d, dv] : {std::pair{"32", "24"}, {"64", "64"}, {"80", "128"}, {"192", "128"}, {"256", "256"}})
    expect_right(attention_entry(),
                 {{"variant", "mma"},
                  {"d", d},
                  {"d_v", dv},
                  {"batch", "1"},
                  {"heads", "1"},
                  {"n", "70"},
                  {"n_kv", "150"},
                  {"causal", "1"}},
                 "sm_80");
  every_feature("mma", "64", "sm_89");
  for (const char* what : {"packed", "lengths"})
    expect_right(attention_entry(),
                 {{"variant", "mma"},
                  {"n", "70"},
                  {"n_kv", "100"},
                  {"d", "32"},
                  {what, "1"},
                  {"causal", "1"},
                  {"batch", "3"}},
                 "sm_120a");
}

TEST(attention_sm90, every_head_dimension) {
  for (auto [d, dv] :
       {std::pair{"64", "64"}, {"40", "64"}, {"128", "128"}, {"96", "72"}, {"192", "128"}, {"256", "256"}})
    expect_right(attention_entry(), {{"variant", "sm90"},
                                     {"d", d},
                                     {"d_v", dv},
                                     {"batch", "1"},
                                     {"heads", "1"},
                                     {"n", "130"},
                                     {"n_kv", "300"},
                                     {"causal", "1"}});
}

// Which of the measured tiles and rings runs is decided by the head dimension, the rows, the bounds and the
// type.
TEST(attention_sm90, choices_are_of_the_problem_alone) {
  const auto device = runtime::Device::open("emu:sm_90a");
  for (DType type : {DType::bf16, DType::e4m3}) {
    std::set<std::string> names;
    for (std::uint64_t d : {64, 128, 256})
      for (std::uint64_t n : {512, 1024, 2048, 4096, 8192, 16384})
        for (bool causal : {false, true}) {
          AttentionProblem p;
          p.type = type, p.batch = 16384 / n, p.heads_q = 2048 / d, p.n_q = p.n_kv = n, p.d_qk = d,
          p.causal = causal;
          const AttentionAddresses at{.q = 16, .k = 16, .v = 16, .o = 16};
          const auto name = select_attention(p, at, device.info()).variant.name;
          EXPECT_EQ(select_attention(p, at, device.info()).variant.name, name);
          names.insert(name);
        }
    EXPECT_GE(names.size(), 8u) << cgp::name(type);
  }
}

TEST(attention_sm90, every_feature) { every_feature("sm90", "64", "sm_90a"); }

TEST(attention_sm90, tunings) {
  for (auto [option, value] : {std::pair{"pingpong", "issue"},
                               {"pingpong", "scores"},
                               {"q_tiles", "2"},
                               {"persistent", "0"},
                               {"lazy_rescale", "0"},
                               {"polynomial", "5"}})
    for (const char* wgs : {"2", "3"})
      expect_right(attention_entry(), {{"variant", "sm90"},
                                       {"d", "64"},
                                       {"batch", "1"},
                                       {"heads", "1"},
                                       {"n", "200"},
                                       {"n_kv", "400"},
                                       {"warpgroups", wgs},
                                       {option, value},
                                       {"causal", "1"}});
}

// Blocks that take tiles one by one, with more tiles than SMs.
TEST(attention_sm90, dynamic_tiles) {
  const auto run = [](OptionList extra) {
    std::vector<std::pair<const char*, std::string>> all{
        {"variant", "sm90"}, {"dynamic", "1"}, {"batch", "1"}};
    for (const auto& e : extra) all.push_back(e);
    all.resize(11, {"lse", "1"});
    expect_right(attention_entry(),
                 {all[0], all[1], all[2], all[3], all[4], all[5], all[6], all[7], all[8], all[9], all[10]});
  };
  run({{"heads", "134"},
       {"n", "12"},
       {"n_kv", "60"},
       {"d", "64"},
       {"warpgroups", "2"},
       {"q_tiles", "2"},
       {"causal", "1"}});
  run({{"heads", "3"},
       {"n", "300"},
       {"n_kv", "200"},
       {"d", "128"},
       {"warpgroups", "2"},
       {"pingpong", "issue"},
       {"causal", "1"}});
  run({{"heads", "2"}, {"n", "300"}, {"n_kv", "200"}, {"d", "192"}, {"warpgroups", "2"}, {"left", "70"}});
}

// Several blocks share the keys of a tile: parts without keys, bounds, groups, widths, lengths.
TEST(attention_sm90, blocks_that_share_keys) {
  const auto run = [](const char* splits, OptionList extra) {
    std::vector<std::pair<const char*, std::string>> all{
        {"variant", "sm90"}, {"batch", "1"}, {"warpgroups", "2"}, {"splits", splits}};
    for (const auto& e : extra) all.push_back(e);
    ASSERT_LE(all.size(), 11u);
    all.resize(11, {"lse", "1"});
    expect_right(attention_entry(),
                 {all[0], all[1], all[2], all[3], all[4], all[5], all[6], all[7], all[8], all[9], all[10]});
  };
  run("2", {{"heads", "2"}, {"n", "40"}, {"n_kv", "700"}, {"d", "128"}});
  run("5", {{"heads", "2"}, {"heads_kv", "1"}, {"n", "200"}, {"n_kv", "300"}, {"d", "64"}, {"causal", "1"}});
  run("3",
      {{"heads", "1"}, {"n", "300"}, {"n_kv", "200"}, {"d", "96"}, {"causal", "1"}});  // rows without keys
  run("4", {{"heads", "2"}, {"n", "70"}, {"n_kv", "900"}, {"d", "64"}, {"left", "200"}, {"right", "3"}});
  run("3", {{"heads", "2"}, {"n", "20"}, {"n_kv", "300"}, {"d", "192"}, {"d_v", "136"}, {"dtype", "f16"}});
  run("9", {{"heads", "2"}, {"n", "20"}, {"n_kv", "500"}, {"d", "128"}, {"lengths", "1"}, {"batch", "3"}});
  run("2", {{"heads", "2"}, {"n", "20"}, {"n_kv", "300"}, {"d", "64"}, {"cap", "2.5"}, {"layout", "bshd"}});
  run("2", {{"heads", "2"}, {"n", "33"}, {"n_kv", "300"}, {"d", "128"}, {"mask", "boolean"}});
}

// More tiles than the device has SMs: blocks go on to a second one.
TEST(attention_sm90, persistent_blocks) {
  for (const char* type : {"bf16", "e4m3"})
    expect_right(attention_entry(), {{"dtype", type},
                                     {"d", "64"},
                                     {"batch", "1"},
                                     {"heads", "134"},
                                     {"n", "12"},
                                     {"n_kv", "60"},
                                     {"warpgroups", "2"},
                                     {"q_tiles", "2"},
                                     {"causal", "1"}});
}

TEST(attention_sm90, sequences_of_their_own_lengths) {
  const auto run = [](const char* what, const char* type, const char* d, const char* n, const char* n_kv,
                      const char* batch, const char* heads, OptionList more) {
    std::vector<std::pair<const char*, std::string>> all(more.begin(), more.end());
    all.resize(2, {"lse", "1"});
    expect_right(attention_entry(), {{"variant", "sm90"},
                                     {"dtype", type},
                                     {what, "1"},
                                     {"d", d},
                                     {"n", n},
                                     {"n_kv", n_kv},
                                     {"batch", batch},
                                     {"heads", heads},
                                     {"heads_kv", "1"},
                                     all[0],
                                     all[1]});
  };
  run("packed", "bf16", "64", "200", "200", "8", "2", {{"causal", "1"}});
  run("packed", "f16", "128", "130", "140", "4", "1", {{"left", "90"}});
  run("packed", "e4m3", "64", "130", "200", "4", "2", {{"causal", "1"}, {"scales", "head"}});
  run("packed", "bf16", "64", "20", "70", "5", "45", {{"causal", "1"}});  // blocks go on to a second tile
  run("lengths", "bf16", "64", "70", "200", "6", "1", {{"alibi", "1"}});
  run("lengths", "bf16", "128", "90", "200", "4", "2", {{"causal", "1"}, {"layout", "bshd"}});
}

// Neighbours, and what lies behind the lengths of keys, are NaN in the second round, and nobody sees it.
TEST(attention_sm90, nothing_behind_a_sequence_is_read) {
  auto device = runtime::Device::open("emu:sm_90a");
  const std::vector<std::uint32_t> cu{0, 70, 110, 175}, lengths{100, 3};
  for (bool packed : {true, false}) {
    AttentionProblem p;
    p.batch = packed ? 3 : 2, p.heads_q = 2, p.n_q = packed ? 70 : 30, p.n_kv = 100, p.d_qk = 64;
    p.packed = packed, p.key_lengths = !packed, p.causal = packed;
    if (packed) p.q = p.k = p.v = p.o = {0, 64, 128};
    const std::uint64_t rows_q = packed ? 175 : 60, rows_kv = packed ? 175 : 200;
    // Which row of [175, 2, 64] or [2, 2, 100, 64] an element belongs to, and whether a sequence that counts.
    const auto counts = [&](std::uint64_t element) {
      const auto row = element / 64;
      return packed ? row / 2 < 70 || row / 2 >= 110 : row % 100 < lengths[row / 200];
    };
    auto dcu = device.upload<std::uint32_t>(cu), dlengths = device.upload<std::uint32_t>(lengths);
    const auto result = [&](bool nan) {
      std::vector<runtime::Buffer<std::byte>> in;
      for (std::uint64_t i = 0; i < 3; ++i) {
        auto x = random_array(DType::bf16, {(i ? rows_kv : rows_q) * 128}, 5 + i);
        for (std::uint64_t e = 0; nan && (i || packed) && e < x.size(); ++e)
          if (!counts(e)) x.set(e, std::nan(""));
        in.push_back(device.upload<std::byte>(x.bytes));
      }
      HostArray o(DType::bf16, {rows_q * 128});
      auto out = device.upload<std::byte>(o.bytes);
      AttentionAddresses at{
          .q = in[0].address(), .k = in[1].address(), .v = in[2].address(), .o = out.address()};
      at.cu_seqlens_q = at.cu_seqlens_kv = dcu.address(), at.lengths = dlengths.address();
      EXPECT_EQ(select_attention(p, at, device.info()).config.kind, AttentionKind::sm90);
      attention(device.stream(), p, at);
      device.sync();
      out.download(o.bytes);
      return o;
    };
    const auto plain = result(false), unread = result(true);
    for (std::uint64_t e = 0; e < plain.size(); ++e)
      if (!packed || counts(e)) {
        EXPECT_EQ(plain.at(e), unread.at(e)) << packed << " " << e;
      }
  }
}

TEST(attention_fp8, every_head_dimension) {
  for (auto [d, dv] : {std::pair{"48", "16"}, {"96", "128"}, {"192", "256"}})
    expect_right(attention_entry(), {{"dtype", "e4m3"},
                                     {"d", d},
                                     {"d_v", dv},
                                     {"batch", "1"},
                                     {"heads", "1"},
                                     {"n", "70"},
                                     {"n_kv", "210"},
                                     {"causal", "1"}});
}

// Rounded probabilities forgive much where they are many and alike: here a few keys have all the weight, and
// any other key in their place would show.
TEST(attention_fp8, few_keys_with_all_the_weight) {
  for (auto [d, scale] : {std::pair{"64", "0.4"}, {"128", "1"}, {"256", "2"}})
    expect_right(attention_entry(), {{"dtype", "e4m3"},
                                     {"d", d},
                                     {"batch", "1"},
                                     {"heads", "1"},
                                     {"n", "20"},
                                     {"n_kv", "270"},
                                     {"scale", scale},
                                     {"scales", "head"}});
}

TEST(attention_fp8, every_feature) {
  const auto run = [](OptionList extra) {
    std::vector<std::pair<const char*, std::string>> all(extra.begin(), extra.end());
    all.resize(4, {"layout", "bshd"});
    expect_right(attention_entry(), {{"dtype", "e4m3"},
                                     {"d", "64"},
                                     {"batch", "2"},
                                     {"heads", "4"},
                                     {"n", "33"},
                                     {"n_kv", "70"},
                                     all[0],
                                     all[1],
                                     all[2],
                                     all[3]});
  };
  run({{"causal", "1"}, {"scales", "tensor"}, {"out", "f16"}});
  run({{"causal", "1"}, {"n", "90"}});  // the first queries see no key
  run({{"left", "20"}, {"right", "3"}, {"heads_kv", "2"}, {"scales", "head"}});
  run({{"cap", "2.5"}, {"scales", "head"}});
  run({{"mask", "additive"}, {"scales", "head"}, {"alibi", "1"}, {"out", "f16"}});
  run({{"mask", "boolean"}, {"causal", "1"}});
}

TEST(attention_fp8, promoted_accumulation) {
  for (auto [d, feature, value] :
       {std::tuple{"64", "cap", "2"}, {"64", "heads", "2"}, {"112", "left", "100"}})
    expect_right(attention_entry(), {{"dtype", "e4m3"},
                                     {"promoted", "1"},
                                     {"d", d},
                                     {"batch", "1"},
                                     {"heads", "1"},
                                     {"n", "70"},
                                     {"n_kv", "410"},
                                     {"causal", "1"},
                                     {feature, value}});
}

TEST(attention_fp8, tunings) {
  for (auto [wgs, option, value] : {std::tuple{"2", "pingpong", "issue"},
                                    {"3", "pingpong", "scores"},
                                    {"3", "q_tiles", "2"},
                                    {"2", "persistent", "0"},
                                    {"3", "lazy_rescale", "0"}})
    expect_right(attention_entry(), {{"dtype", "e4m3"},
                                     {"d", "64"},
                                     {"batch", "1"},
                                     {"heads", "2"},
                                     {"n", "140"},
                                     {"n_kv", "270"},
                                     {"warpgroups", wgs},
                                     {option, value},
                                     {"causal", "1"}});
}

TEST(attention_fp8, tunings_are_those_of_a_variant) {
  const auto device = runtime::Device::open("emu:sm_90a");
  const auto entry = attention_entry();
  const auto prepare = [&](std::initializer_list<std::pair<const char*, const char*>> given) {
    Options o(entry.name, entry.options);
    for (auto [name, value] : given) o.set(name, value);
    return entry.prepare(device, o, {}, 1)->variant;
  };
  const auto config = parse_config<AttentionConfig>(
      "attention", prepare({{"d", "64"}, {"warpgroups", "3"}, {"polynomial", "2"}}));
  EXPECT_EQ(config.kind, AttentionKind::sm90);
  EXPECT_EQ(config.d_qk, 64);
  EXPECT_EQ(config.tune.warpgroups, 3);
  EXPECT_EQ(config.columns, 128);
  EXPECT_EQ(config.tune.polynomial, 2);
  EXPECT_THROW(prepare({{"variant", "mma"}, {"warpgroups", "2"}}), ArgumentError);
  EXPECT_THROW(prepare({{"polynomial", "2"}}), ArgumentError);
}

TEST(attention_fp8, says_what_it_needs) {
  AttentionProblem p;
  p.type = DType::e4m3, p.n_q = p.n_kv = 64, p.d_qk = 128;
  const auto why = [&](std::string_view arch) -> std::string {
    const auto d = runtime::Device::open(text::cat("emu:", arch));
    try {
      (void)select_attention(p, {.q = 16, .k = 16, .v = 16, .o = 16}, d.info());
    } catch (const Unsupported& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(why("sm_90a"), "");
  EXPECT_NE(why("sm_89").find("needs sm_90a, this is sm_89"), std::string::npos) << why("sm_89");
  p.d_qk = 72;
  EXPECT_NE(why("sm_90a").find("d_qk = 72 is no multiple of 16"), std::string::npos) << why("sm_90a");
  p.d_qk = 128, p.key_lengths = true, p.batch = 2;
  EXPECT_EQ(why("sm_90a"), "");
  p.k = {1ull << 40, 64 * 128, 128};
  EXPECT_NE(why("sm_90a").find("further apart"), std::string::npos) << why("sm_90a");
  p.k = {}, p.batch = 1, p.key_lengths = false, p.out = DType::f32;
  EXPECT_NE(reject_forward(p).find("out = f32"), std::string::npos);
  p.out = DType::f16;
  EXPECT_EQ(reject_forward(p), "");
  p.promoted = true;
  EXPECT_EQ(why("sm_90a"), "");
  p.d_v = 256;
  EXPECT_NE(why("sm_90a").find("head dimensions above 128"), std::string::npos) << why("sm_90a");
  p.type = DType::f16;
  EXPECT_NE(reject_forward(p).find("promoted"), std::string::npos);
  p.type = DType::e4m3;
  EXPECT_NE(reject(p).find("only the forward pass"), std::string::npos);
}

// Few queries over many keys, which a cluster of blocks shares.
TEST(attention_split_kv, windows_lengths_groups_and_layouts) {
  const auto run = [](OptionList extra) {
    std::vector<std::pair<const char*, std::string>> all{
        {"variant", "split_kv"}, {"d", "64"}, {"batch", "2"}, {"heads", "4"}, {"n", "1"}, {"n_kv", "333"}};
    for (const auto& e : extra) all.push_back(e);
    ASSERT_LE(all.size(), 12u);
    all.resize(12, {"lse", "1"});
    expect_right(
        attention_entry(),
        {all[0], all[1], all[2], all[3], all[4], all[5], all[6], all[7], all[8], all[9], all[10], all[11]},
        "sm_90a");
  };
  run({});
  run({{"heads_kv", "1"}, {"layout", "bshd"}});
  run({{"heads_kv", "2"}, {"n", "3"}, {"causal", "1"}});
  run({{"n", "5"}});                                                       // not causal
  run({{"n", "20"}, {"causal", "1"}, {"heads", "2"}, {"heads_kv", "1"}});  // several blocks of rows
  run({{"left", "40"}, {"right", "0"}, {"n", "3"}});
  run({{"left", "7"}});
  run({{"left", "100"}, {"n", "18"}, {"heads", "1"}, {"lengths", "1"}, {"batch", "5"}});
  run({{"lengths", "1"}, {"batch", "5"}, {"n", "2"}, {"causal", "1"}, {"d", "128"}, {"dtype", "f16"}});
  run({{"d", "256"}, {"n_kv", "90"}, {"heads", "10"}, {"heads_kv", "1"}, {"batch", "1"}});
  run({{"n_kv", "5"}, {"n", "9"}, {"causal", "1"}});                   // the first queries see no key
  run({{"d", "96"}, {"heads_kv", "2"}, {"n", "3"}, {"causal", "1"}});  // zeros fill 128 columns
  run({{"d", "80"}, {"lengths", "1"}, {"batch", "3"}, {"layout", "bshd"}});
  run({{"d", "16"}, {"left", "40"}, {"dtype", "f16"}});
  // Several clusters share the keys of one key head; with a length, some have none.
  run({{"heads_kv", "1"}, {"n_kv", "33000"}, {"d", "128"}, {"batch", "1"}, {"n", "2"}, {"causal", "1"}});
  run({{"heads_kv", "1"}, {"n_kv", "40000"}, {"lengths", "1"}, {"batch", "2"}, {"layout", "bshd"}});
}
TEST(attention_split_kv, is_taken_where_it_suits_and_can) {
  const auto device = runtime::Device::open("emu:sm_90a");
  AttentionProblem p;
  p.heads_q = 32, p.heads_kv = 8, p.n_q = 1, p.n_kv = 8192, p.d_qk = 128;
  const AttentionAddresses at{.q = 16, .k = 16, .v = 16, .o = 16};
  const auto why = [&](AttentionProblem q) { return reject_split_kv(q.dense(), at, device.info()); };
  EXPECT_EQ(why(p), "");
  EXPECT_TRUE(suits_split_kv(p.dense()));
  EXPECT_NE(reject_split_kv(p.dense(), at, runtime::Device::open("emu:sm_80").info()), "");
  auto q = p;
  q.n_q = 64;  // each 16 rows read the keys again: tiles of 128 do better
  EXPECT_FALSE(suits_split_kv(q.dense()));
  EXPECT_EQ(select_attention(q, at, device.info()).config.tune.splits, 4);  // 32 tiles for 132 SMs
  q.n_kv = 128;
  EXPECT_EQ(select_attention(q, at, device.info()).config.tune.splits, 1);
  q = p, q.soft_cap = 3;
  EXPECT_NE(why(q).find("windows and lengths"), std::string::npos);
  q = p, q.d_qk = 80;
  EXPECT_EQ(why(q), "");
  q.d_qk = 88;
  EXPECT_NE(why(q).find("88"), std::string::npos);
  q = p, q.window_left = -7;
  EXPECT_NE(reject(q).find("window_left = -7"), std::string::npos) << reject(q);
}

TEST(attention_formula, says_what_it_does_not_understand) {
  const auto why = [](std::string_view formula, std::vector<std::uint64_t> shape = {}) -> std::string {
    try {
      (void)score_formula(formula, shape);
    } catch (const ArgumentError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(why("data[h, q - k + 7] + score", {2, 15}), "");
  for (auto [formula, part] : {std::pair{"", "at 1: the formula ends"},
                               {"scor + 1", "at 1: 'scor' is neither score"},
                               {"score +", "at 8: the formula ends"},
                               {"score score", "at 7: what follows is no operator"},
                               {"(score", "at 7: ')' is missing"},
                               {"score < 3", "this is a condition"},
                               {"where(score, 1, 2)", "a condition is needed"},
                               {"score and 1", "a condition is needed"},
                               {"1 + (q < k)", "this is a condition"},
                               {"min(score)", "',' is missing"},
                               {"data[q]", "there is no data"},
                               {"1e99 * score", "no number that fp32 holds"},
                               {"#", "a number is needed"}})
    EXPECT_NE(why(formula).find(part), std::string::npos) << formula << ": " << why(formula);
  EXPECT_NE(why("data[q]", {2, 3}).find("data has 2 dimensions, these are 1"), std::string::npos);
  EXPECT_NE(why("data[q]", {0}).find("not 1 to 2^24"), std::string::npos);
  EXPECT_NE(why(std::string(200, '(')).find("100 levels"), std::string::npos);
  EXPECT_NE(why(std::string(200, '-')).find("100 levels"), std::string::npos);
  EXPECT_NE(why(std::string(5000, ' ')).find("longer than 4096"), std::string::npos);
  EXPECT_NE(score_formula("score").name, score_formula("score ").name);
  EXPECT_NE(score_formula("score").name, score_formula("score", std::vector<std::uint64_t>{3}).name);
}

namespace {

// Each a test, so that they run side by side.
const OptionList kOnGpu[] = {
    {{"n", "512"}, {"d", "64"}},
    {{"n", "1000"}, {"d", "128"}, {"causal", "1"}},
    {{"n", "700"}, {"d", "256"}, {"causal", "1"}, {"dtype", "f16"}},
    {{"n", "300"}, {"n_kv", "1111"}, {"d", "192"}, {"d_v", "128"}, {"causal", "1"}},
    {{"n", "700"}, {"d", "96"}, {"causal", "1"}},
    {{"n", "1500"}, {"d", "80"}, {"d_v", "112"}, {"dtype", "f16"}},
    {{"n", "700"}, {"d", "160"}, {"causal", "1"}},
    {{"n", "300"}, {"d", "32"}, {"causal", "1"}},
    {{"n", "600"}, {"d", "96"}, {"d_v", "80"}, {"dtype", "e4m3"}, {"causal", "1"}},
    {{"n", "777"}, {"d", "128"}, {"left", "100"}, {"right", "30"}, {"heads_kv", "2"}},
    {{"n", "257"}, {"d", "64"}, {"cap", "3"}, {"alibi", "1"}, {"layout", "bshd"}},
    {{"n", "257"}, {"d", "64"}, {"mask", "additive"}},
    {{"n", "257"}, {"d", "128"}, {"mask", "boolean"}, {"causal", "1"}},
    {{"n", "200"}, {"d", "50"}, {"dtype", "f32"}},
    {{"n", "600"}, {"d", "128"}, {"packed", "1"}, {"causal", "1"}, {"batch", "5"}},
    {{"n", "600"}, {"d", "64"}, {"lengths", "1"}, {"batch", "5"}},
    {{"n", "300"}, {"d", "64"}, {"packed", "1"}, {"batch", "40"}, {"heads", "8"}},
    {{"n", "900"}, {"d", "256"}, {"packed", "1"}, {"causal", "1"}, {"batch", "9"}, {"heads_kv", "1"}},
    {{"n", "900"}, {"d", "128"}, {"packed", "1"}, {"dtype", "e4m3"}, {"causal", "1"}, {"batch", "9"}},
    {{"n", "600"}, {"d", "128"}, {"lengths", "1"}, {"causal", "1"}, {"layout", "bshd"}},
    {{"n", "600"}, {"d", "128"}, {"packed", "1"}, {"variant", "mma"}, {"causal", "1"}, {"batch", "5"}},
    {{"n", "512"}, {"d", "64"}, {"dtype", "e4m3"}, {"scales", "head"}, {"heads", "40"}},
    {{"n", "512"}, {"d", "128"}, {"causal", "1"}, {"heads", "40"}},
    {{"n", "1000"}, {"d", "128"}, {"dtype", "e4m3"}, {"causal", "1"}, {"out", "f16"}},
    {{"n", "1000"}, {"d", "128"}, {"dtype", "e4m3"}, {"scale", "1"}},
    {{"n", "1000"}, {"d", "128"}, {"dtype", "e4m3"}, {"promoted", "1"}},
    {{"n", "1000"}, {"d", "64"}, {"dtype", "e4m3"}, {"causal", "1"}, {"heads", "40"}},
    {{"n", "1100"}, {"d", "128"}, {"dtype", "e4m3"}, {"causal", "1"}, {"heads", "20"}},
    {{"n", "1000"}, {"d", "64"}, {"dtype", "e4m3"}, {"promoted", "1"}, {"causal", "1"}, {"heads", "20"}},
    {{"n", "700"}, {"d", "256"}, {"dtype", "e4m3"}, {"causal", "1"}, {"heads_kv", "2"}},
    {{"n", "257"}, {"d", "64"}, {"dtype", "e4m3"}, {"cap", "3"}, {"alibi", "1"}, {"layout", "bshd"}},
    {{"n", "2048"}, {"d", "64"}, {"polynomial", "4"}, {"warpgroups", "3"}, {"causal", "1"}}};
class AttentionOnGpu : public ::testing::TestWithParam<int> {};

}  // namespace

TEST_P(AttentionOnGpu, right_and_repeatable_on_a_gpu) {
  expect_right_on_gpu(attention_entry(), {kOnGpu[GetParam()]});
}
INSTANTIATE_TEST_SUITE_P(problems, AttentionOnGpu, ::testing::Range(0, int(std::size(kOnGpu))));

TEST(attention, every_variant_assembles_without_spills) { expect_assembles(attention_entry()); }
