// SPDX-License-Identifier: Apache-2.0
#include "cgp/emu/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cgp::emu {
namespace {

using testing::HasSubstr;

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const ArgumentError& e) {
    return e.what();
  }
  return "no error";
}

TEST(policy, text_and_back) {
  for (const char* text : {"eager", "late", "random", "random:7"}) EXPECT_EQ(name(parse_async(text)), text);
  for (const char* text : {"fair", "diverge", "random", "random:18446744073709551615", "adversarial"})
    EXPECT_EQ(name(parse_schedule(text)), text);
  EXPECT_EQ(parse_async("random:7").policy, AsyncPolicy::random);
  EXPECT_EQ(parse_async("random:7").seed, 7u);
  EXPECT_EQ(parse_schedule("adversarial:3").policy, SchedulePolicy::adversarial);
  EXPECT_EQ(parse_schedule("adversarial:3").seed, 3u);
}

TEST(policy, what_is_wrong_is_said) {
  EXPECT_THAT(message_of([] { parse_async("lazy"); }), HasSubstr("eager, late, random"));
  EXPECT_THAT(message_of([] { parse_schedule("late"); }), HasSubstr("fair, diverge, random, adversarial"));
  EXPECT_THAT(message_of([] { parse_async("random:"); }), HasSubstr("whole number"));
  EXPECT_THAT(message_of([] { parse_async("random:-1"); }), HasSubstr("whole number"));
  EXPECT_THAT(message_of([] { parse_async("random:7x"); }), HasSubstr("whole number"));
  EXPECT_THAT(message_of([] { parse_async("late:7"); }), HasSubstr("takes no seed"));
}

TEST(policy, arguments_repeat_a_run) {
  Options o;
  parse_async("random:7").apply(o);
  parse_schedule("adversarial").apply(o);
  EXPECT_EQ(policy_arguments(o), "--async random:7 --schedule adversarial");
}

}  // namespace
}  // namespace cgp::emu
