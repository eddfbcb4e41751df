// SPDX-License-Identifier: Apache-2.0
// Tables of several programs: parameters, what prepares a run, and the times.
#include "cgp/profile/collect/time_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "cgp/base/error.h"
#include "cgp/base/file.h"

using namespace cgp;
using namespace cgp::profile;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(time_table, parameters_are_lists_and_ranges) {
  EXPECT_THAT(parse_parameter("n=1,two,3").values, ElementsAre("1", "two", "3"));
  EXPECT_THAT(parse_parameter("n=2..5").values, ElementsAre("2", "3", "4", "5"));
  EXPECT_THAT(parse_parameter("n=0..10..4").values, ElementsAre("0", "4", "8"));
  EXPECT_THAT(parse_parameter("n=-1..1").values, ElementsAre("-1", "0", "1"));
  for (const char* bad : {"", "n", "=1", "n=", "n=1,,2", "n=5..1", "n=1..9..0", "n=a..b", "n=1..100000"})
    EXPECT_THROW(parse_parameter(bad), ArgumentError) << bad;
}

TEST(time_table, commands_are_combined_with_parameters) {
  const auto all = expanded({{"prog", "-t", "{t}", "--size={n}"}, {"other"}}, "echo {t}",
                            {parse_parameter("t=1,2"), parse_parameter("n=7,8")});
  std::vector<std::string> labels;
  for (const auto& c : all) labels.push_back(c.label);
  EXPECT_THAT(labels, ElementsAre("prog -t 1 --size=7", "prog -t 1 --size=8", "prog -t 2 --size=7",
                                  "prog -t 2 --size=8", "other", "other"));
  EXPECT_EQ(all[2].prepare, "echo 2");
  EXPECT_THROW(expanded({{"prog"}}, "", {parse_parameter("t=1,2")}), ArgumentError);
}

TEST(time_table, rounds_rotate_and_each_run_is_prepared) {
  const std::string log = testing::TempDir() + "cgp_time_table_log";
  std::filesystem::remove(log);
  TimeTableOptions o;
  o.commands = expanded({{"sh", "-c", "echo run{n} >>" + log + "; echo took {n}.5"}},
                        "echo prepare{n} >>" + log, {parse_parameter("n=1..2")});
  o.timing.regex = "took ([0-9.]+)";
  o.runs = 2, o.warmup = 1;
  const Document d = time_table(o, [](const std::string&) {});
  EXPECT_EQ(
      read_file(log),
      "prepare1\nrun1\nprepare2\nrun2\nprepare2\nrun2\nprepare1\nrun1\nprepare1\nrun1\nprepare2\nrun2\n");
  ASSERT_EQ(d.more["table"].size(), 2u);
  EXPECT_EQ(d.more["table"][1]["median_us"], 2500);
  EXPECT_NEAR(d.more["table"][1]["ratio"].get<double>(), 2.5 / 1.5, 1e-9);
  EXPECT_TRUE(d.more["table"][1]["ratio_low"].is_null()) << "two rounds give no interval";
  const std::string text = time_table_text(d, 160);
  EXPECT_THAT(text, HasSubstr("the fastest"));
  EXPECT_THAT(text, HasSubstr("1.67 times (too few runs to know)"));
  o.commands[1].command = {"sh", "-c", "exit 3"};
  EXPECT_THROW(time_table(o, [](const std::string&) {}), Error);
  EXPECT_THROW(prepare_run("exit 1"), Error);
}
