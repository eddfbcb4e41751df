// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs the profiler's commands as a user does, in a folder of the test's own. No GPU is needed.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cgp/base/file.h"

namespace cgp {

struct CommandOutcome {
  int code = -1;
  std::string out, err;
  nlohmann::json parsed() const { return nlohmann::json::parse(out); }
};

class Profiler : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "cgp_prof_" +
              testing::UnitTest::GetInstance()->current_test_info()->name() + "_" + std::to_string(getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  CommandOutcome cgp(const std::string& arguments, const std::string& environment = "") const {
    const std::string command = "cd '" + folder_ + "' && env CGP_LIBCUDA=/nonexistent " + environment + " '" +
                                std::string(CGP_BINARY) + "' " + arguments +
                                " >stdout.txt 2>stderr.txt </dev/null";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(path("stdout.txt")),
            read_file(path("stderr.txt"))};
  }
  /// A command line that prints a time: in each run the next of these milliseconds. The first is the run that
  /// does not count.
  std::string printing(const std::string& name, const std::vector<double>& milliseconds) const {
    std::string lines;
    for (double ms : milliseconds) lines += std::to_string(ms) + "\n";
    write_file(path(name), lines);
    std::filesystem::remove(path(name + ".at"));
    write_file(path("next.sh"),
               "at=$(cat \"$1.at\" 2>/dev/null || echo 0); at=$((at + 1)); echo $at >\"$1.at\"\n"
               "echo took $(sed -n \"${at}p\" \"$1\") ms\n");
    return "sh next.sh " + name;
  }
  std::string folder_;
};

inline constexpr const char* kTook = " --time-regex 'took ([0-9.]+) ms' ";

/// One run that does not count, and `n` within 2 % around `ms`, the same every time.
inline std::vector<double> around(double ms, int n, int seed) {
  std::vector<double> v{100 * ms};
  for (int i = 0; i < n; ++i) v.push_back(ms * (1 + 0.004 * ((i * 7 + seed) % 11 - 5)));
  return v;
}

}  // namespace cgp
