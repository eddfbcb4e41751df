// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/collect/energy.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "cgp/base/file.h"

namespace cgp::profile {
namespace {

TEST(energy, joules_are_the_counters_difference_and_absent_ones_say_why) {
  const std::string folder = testing::TempDir() + "powercap";
  std::filesystem::create_directories(folder + "/intel-rapl:0");
  std::filesystem::create_directories(folder + "/intel-rapl:0:1");  // a part of the package: not added
  const std::string file = folder + "/intel-rapl:0/energy_uj";
  setenv("CGP_POWERCAP", folder.c_str(), 1);
  write_file(folder + "/intel-rapl:0:1/energy_uj", "900000000\n");

  const auto measured = [&](const char* before, const char* after) {
    write_file(file, before);
    const EnergyMeter meter;
    write_file(file, after);
    Document d = new_document("binary", "x");
    meter.stop(d);
    return d;
  };
  const Document d = measured("1000000\n", "13500000\n");
  EXPECT_DOUBLE_EQ(d.more.at("energy").at("package").at("joules").get<double>(), 12.5);
  if (d.more.at("energy").at("gpus").empty()) {
    EXPECT_DOUBLE_EQ(d.metrics[measure::Metric::joules_per_inference].number(), 12.5);
  }
  EXPECT_NE(energy_text(d).find("package 12.5 J"), std::string::npos) << energy_text(d);

  const Document round = measured("13500000\n", "1000000\n");  // the counter went round
  EXPECT_TRUE(round.more.at("energy").at("package").at("joules").is_null());
  EXPECT_NE(energy_text(round).find("began again"), std::string::npos);

  std::filesystem::remove_all(folder);
  const EnergyMeter none;
  Document absent = new_document("binary", "x");
  none.stop(absent);
  EXPECT_NE(energy_text(absent).find("package -: no RAPL counter"), std::string::npos) << energy_text(absent);
  if (absent.more.at("energy").at("gpus").empty()) {
    EXPECT_FALSE(absent.metrics.has(measure::Metric::joules_per_inference));
    EXPECT_NE(absent.metrics[measure::Metric::joules_per_inference].why_absent.find("RAPL"),
              std::string::npos);
  }
  unsetenv("CGP_POWERCAP");
}

}  // namespace
}  // namespace cgp::profile
