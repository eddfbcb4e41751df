// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/common/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cgp::kernels {
namespace {

using testing::HasSubstr;

enum class Order : std::uint8_t { none, ordered, ordered_twice };
struct Sample {
  DType type = DType::bf16;
  int m = 0, n = 0;
  int stages = 2, cluster = 0;
  Order order = Order::none;
  bool persistent = false;
  std::string rest;

  template <class Self, class V>
  static void visit(Self& c, V& v) {
    static constexpr std::string_view orders[] = {"", "ordered", "ordered_twice"};
    v.type("type", "", c.type), v.extent("tile", "tile", c.m, c.n), v.number("stages", "s", c.stages);
    v.number("cluster", "cluster", c.cluster, 0), v.choice("order", orders, c.order);
    v.flag("persistent", c.persistent), v.rest("modification", "mod_", c.rest);
  }
};
std::string error_of(std::string_view name) {
  try {
    (void)parse_config<Sample>("sample", name);
  } catch (const ArgumentError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(config, names_are_read_back) {
  for (DType t : {DType::f16, DType::e4m3})
    for (int n : {0, 64})
      for (int cluster : {0, 2})
        for (Order o : {Order::none, Order::ordered, Order::ordered_twice})
          for (bool p : {false, true})
            for (const char* rest : {"", "cap_30"}) {
              const Sample c{t, 2 * n, n, 3, cluster, o, p, rest};
              const auto name = config_name("sample", c);
              const auto back = parse_config<Sample>("sample", name);
              EXPECT_EQ(config_name("sample", back), name);
              EXPECT_TRUE(same_config(back, c));
              EXPECT_EQ(config_hash(back), config_hash(c));
              EXPECT_EQ(back.order, o);
            }
  EXPECT_EQ(config_name("sample", Sample{DType::f16, 128, 64, 4, 2, Order::ordered_twice, true, "x_1"}),
            "sample_f16_tile128x64_s4_cluster2_ordered_twice_persistent_mod_x_1");
}
TEST(config, absent_fields_have_their_defaults) {
  const auto c = parse_config<Sample>("sample", "sample_bf16_s3");
  EXPECT_EQ(c.stages, 3);
  EXPECT_TRUE(c.m == 0 && c.cluster == 0 && c.order == Order::none && !c.persistent && c.rest.empty());
}
TEST(config, errors_say_which_part_is_wrong_and_what_may_stand_there) {
  EXPECT_THAT(error_of("simple_bf16_s2"), HasSubstr("begins with sample"));
  EXPECT_THAT(error_of("sample_b16_s2"), HasSubstr("at _b16_s2, where one of these may stand: <type"));
  EXPECT_THAT(error_of("sample_bf16"), HasSubstr("the name ends"));
  EXPECT_THAT(error_of("sample_bf16_tile128_s2"), HasSubstr("at _tile128_s2"));
  EXPECT_THAT(
      error_of("sample_bf16_s2_persist"),
      HasSubstr("at _persist, where one of these may stand: cluster<cluster>, ordered or ordered_twice, "
                "persistent, mod_<modification>"));
  EXPECT_THAT(error_of("sample_bf16_s2_persistent_ordered"), HasSubstr("at _ordered"));
  EXPECT_THAT(error_of("sample_bf16_s2x"), HasSubstr("at _s2x"));
}
TEST(config, json_lists_every_field) {
  EXPECT_EQ(config_json(Sample{DType::f16, 128, 64, 4, 0, Order::ordered, true, ""}),
            "{\"type\": \"f16\", \"tile\": [128, 64], \"stages\": 4, \"cluster\": 0, \"order\": \"ordered\", "
            "\"persistent\": true, \"modification\": \"\"}");
}

}  // namespace
}  // namespace cgp::kernels
