// SPDX-License-Identifier: Apache-2.0
#pragma once
// A program run again and again until its time is known: what `cgp time` does.
#include <functional>
#include <string>
#include <vector>

#include "cgp/profile/collect/timing_options.h"
#include "cgp/profile/contract/baseline_store.h"
#include "cgp/profile/view/document.h"

namespace cgp::profile {

struct BenchOptions {
  std::vector<std::string> command;
  TimingOptions timing;
  std::string prepare;                              ///< a shell's words before each run, not timed
  int warmup = 1;                                   ///< runs before those that count
  int runs = 0;                                     ///< 0: until the precision or the budget is reached
  double budget = 10;                               ///< seconds
  double precision = 0.01;                          ///< half the interval of the median, as a share of it
  bool count = false;                               ///< instructions too, by callgrind
  std::vector<std::string> counters, cuda_metrics;  ///< metrics, and counters of CUPTI, of a run of their own
  double flops = 0, bytes = 0;                      ///< of one run
  bool roofline = false;                            ///< the ceilings of one core beside the rates
  std::string baseline;                             ///< its name in the store
  double threshold = 0.05;                          ///< a smaller change is no regression
};
using Step = std::function<void(const std::string&)>;  ///< hears what is going on

/// Throws ArgumentError for a roofline without operations and bytes, ProgramFailure if the program crashes, Error if
/// it fails otherwise.
Document bench_program(const BenchOptions& o, const Step& step);
/// Adds what timing does not see: counts of the processor, counters of the GPU, and ceilings.
void look_closer(const BenchOptions& o, Document& d, const Step& step);

struct RegressionCheck {
  std::vector<FileDiff> rows;
  bool regressed = false, undecided = false;
};

/// `now` against the saved baseline.
RegressionCheck check_regression(const BenchOptions& o, const Document& now);

std::string bench_text(const Document& d);
/// What `names` asked for, and why what is not there is not.
std::string counters_text(const Document& d, const std::vector<std::string>& names, int width);
/// One row of a benchmark, with a header line in a new file; what is absent stays empty.
void write_csv(const Document& d, const std::string& path, bool append);

}  // namespace cgp::profile
