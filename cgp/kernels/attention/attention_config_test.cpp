// SPDX-License-Identifier: Apache-2.0
// Every configuration of attention has a name that is read back.
#include <gtest/gtest.h>

#include <set>

#include "cgp/base/error.h"
#include "cgp/kernels/attention/attention_backward.h"
#include "cgp/kernels/attention/attention_formula.h"

namespace cgp::kernels {
namespace {

TEST(attention_config, names_are_read_back) {
  const auto check = [](const AttentionConfig& c) {
    const auto back = parse_config<AttentionConfig>("attention", c.name());
    EXPECT_EQ(back.name(), c.name());
    EXPECT_EQ(back.tune.warpgroups, c.kind == AttentionKind::sm90 ? c.tune.warpgroups : 2);
    EXPECT_EQ(back.features.window_right, c.features.window_right);
  };
  for (const auto& c : attention_configs()) check(c);
  runtime::DeviceInfo h200, a100;
  h200.arch = "sm_90a", h200.cc_major = 9, a100.arch = "sm_80", a100.cc_major = 8;
  for (const auto& device : {h200, a100})
    for (DType type : {DType::f32, DType::f16, DType::bf16, DType::e4m3})
      for (std::uint64_t d : {32, 80, 128, 256})
        for (std::uint64_t n : {512, 2048, 16384})
          for (int f = 0; f < 64; ++f) {
            AttentionProblem p;
            p.type = type, p.n_q = p.n_kv = n, p.d_qk = d, p.causal = f & 1;
            if (f & 2) p.window_left = 7;
            if (f & 4) p.soft_cap = 3;
            p.alibi = f & 8, p.packed = f & 16;
            if (f & 32) p.modify = score_formula("score * 2");
            const AttentionAddresses at{
                .q = 16, .k = 16, .v = 16, .o = 16, .lse = std::uint64_t(f & 1 ? 16 : 0)};
            if (type == DType::e4m3 && device.arch != "sm_90a") continue;
            check(select_attention(p, at, device).config);
          }
}
TEST(attention_config, json_and_errors) {
  AttentionConfig c;
  c.kind = AttentionKind::sm90, c.d_qk = c.d_v = 128, c.columns = 176, c.features.window_right = true;
  EXPECT_EQ(c.name(), "attention_bf16_sm90_d128x128_tile128x176_s2_persistent_lazy_rescale_window_right");
  EXPECT_NE(config_json(c).find("\"tile\": [128, 176]"), std::string::npos) << config_json(c);
  try {
    (void)parse_config<AttentionConfig>("attention", "attention_bf16_sm91_d128x128");
    FAIL();
  } catch (const ArgumentError& e) {
    EXPECT_NE(std::string(e.what()).find("simt or mma or sm90"), std::string::npos) << e.what();
  }
}

TEST(attention_backward_config, names_are_read_back) {
  std::vector<AttentionBackwardConfig> all = attention_backward_simt(DType::f32, {});
  const auto add = [&](const AttentionBackwardChoice& c) {
    all.insert(all.end(), c.configs.begin(), c.configs.end());
  };
  for (DType type : {DType::f16, DType::bf16})
    for (std::uint64_t d : {32, 64, 96, 128, 192, 256})
      for (int f = 0; f < 16; ++f) {
        AttentionProblem p;
        p.type = type, p.n_q = p.n_kv = 9, p.d_qk = d;
        p.causal = f & 1, p.packed = f & 4;
        if (f & 2) p.window_left = 3;
        for (int cc : {80, 90}) add(choose_attention_backward(AttentionKind::mma, p, cc));
        add(choose_attention_backward_sm90(p, tune_attention_backward(p, f & 8)));
      }
  AttentionProblem p;
  p.n_q = p.n_kv = 9;
  for (AddOrder order : {AddOrder::any, AddOrder::first_stores, AddOrder::ordered})
    for (int partial : {1, 2})
      for (bool split : {false, true}) {
        AttentionBackwardSm90Tuning t;
        t.order = order, t.partial = partial, t.split = split;
        add(choose_attention_backward_sm90(p, t));
      }
  std::set<std::string> names;
  for (const auto& c : all) {
    const auto back = parse_config<AttentionBackwardConfig>("attention_backward", c.name());
    EXPECT_EQ(back.name(), c.name());
    EXPECT_EQ(back.step, c.step);
    names.insert(c.name());
  }
  EXPECT_GT(names.size(), 150u);
}

}  // namespace
}  // namespace cgp::kernels
