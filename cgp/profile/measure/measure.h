// SPDX-License-Identifier: Apache-2.0
#pragma once
// Times a function on this machine: finds how many calls make a sample that the clock can resolve, discards
// the warm-up, stops when the median is known well enough, keeps every sample. compare_functions() is what
// answers "is B slower than A": measuring each alone and comparing the results does not, on a machine that is
// shared.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cgp/profile/measure/paired.h"
#include "cgp/profile/measure/series.h"
#include "cgp/profile/measure/stats.h"

namespace cgp::measure {

/// Seconds of a clock that only goes forward.
double now();

struct MeasureOptions {
  double precision = 0.01;    ///< stop when half the 95 % interval of the median is within this share of it
  double min_seconds = 0.05;  ///< measured time before that may stop
  double max_seconds = 2;     ///< of the whole measurement, then it stops as it is
  std::size_t min_samples = 30, max_samples = 20000;
  double sample_seconds = 50e-6;  ///< calls are batched until a sample takes so long
  bool cold = false;              ///< walk through `flush_bytes` before each sample; samples are one call
  std::size_t flush_bytes = 64u << 20;  ///< more than the private caches of any processor there is
  std::function<double()> clock = now;  ///< seconds; tests bring their own
};

enum class Stop : std::uint8_t { precision, time, samples };
std::string_view name(Stop s);

struct Measurement {
  std::vector<double> seconds;   ///< per call, one per sample, warm-up left out
  std::vector<double> warmup;    ///< what was left out
  std::size_t calls = 1;         ///< per sample
  Summary summary;               ///< of `seconds`
  Interval interval;             ///< 95 % of the median
  Stop stop = Stop::precision;   ///< why it ended
  Steadiness steadiness{};       ///< of the whole series
  double precision = 0;          ///< reached: half the interval over the median
  std::int64_t preemptions = 0;  ///< involuntary context switches of this thread while measuring
};
/// Throws ArgumentError for options that cannot be met; whatever `f` throws.
Measurement measure(const std::function<void()>& f, const MeasureOptions& options = {});

struct LockstepOptions {
  PairedOptions paired;
  int samples = 9;  ///< of each side in a pair, alternating; the pair is the median of the ratios
  double sample_seconds = 100e-6;       ///< as in MeasureOptions; both sides run the same number of calls
  std::function<double()> clock = now;  ///< of the samples, as in MeasureOptions
};
/// A is the reference: a positive change means that B is slower.
PairedResult compare_functions(const std::function<void()>& a, const std::function<void()>& b,
                               const LockstepOptions& options = {});

/// Keeps a value that is computed and not used.
template <class T>
inline void keep(T const& value) {
  asm volatile("" : : "r,m"(value) : "memory");
}

}  // namespace cgp::measure
