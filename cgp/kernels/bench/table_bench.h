// SPDX-License-Identifier: Apache-2.0
#pragma once
// What benchmark binaries of kernels share: rows of contenders timed against each other, printed as they come
// and written as JSON; the device's own copy as the peer of memory-bound kernels.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cgp/profile/measure/compare.h"

namespace cgp::kernels {

struct BenchRow {
  std::string name, variant;
  double flops = 0, bytes = 0;
  std::vector<measure::Timing> timings;                ///< ours first
  std::vector<std::pair<std::string, double>> more{};  ///< further fields
};

/// One line: times, rates (TFLOP/s where there are flops, else GB/s) and the second contender's time over
/// ours.
void print_row(const BenchRow& r);
/// The file that scripts/result_tables.py reads: every sample of every row, with where it was measured.
/// `words` is the command line.
void write_results(const std::string& path, const runtime::DeviceInfo& device,
                   const std::vector<std::string>& words, const std::vector<BenchRow>& rows,
                   const std::string& method = "interleaved rounds, cold L2, random data, events");

class BenchTable {
 public:
  /// Names that start with one of `prefixes` are wanted; all, when there are none.
  BenchTable(const runtime::Device& d, std::vector<std::string> prefixes, int rounds)
      : device_(d), prefixes_(std::move(prefixes)), rounds_(rounds) {}
  bool wanted(const std::string& name) const;
  /// A prefix that starts with `family` was given.
  bool asked(const std::string& family) const;
  /// The first contender is ours, the second the peer of the printed ratio. Returns our median in
  /// milliseconds.
  double run(const std::string& name, const std::string& variant, double flops, double bytes,
             const std::vector<measure::Contender>& contenders, int rounds = 0);
  double run(const std::string& name, const std::string& variant, double bytes,
             const std::vector<measure::Contender>& contenders, int rounds = 0) {
    return run(name, variant, 0, bytes, contenders, rounds);
  }
  const runtime::Device& device() const { return device_; }
  const std::vector<std::string>& prefixes() const { return prefixes_; }
  const std::vector<BenchRow>& rows() const { return rows_; }

 private:
  runtime::Device device_;
  std::vector<std::string> prefixes_;
  int rounds_;
  std::vector<BenchRow> rows_;
};

/// Runs what a main() does; its exit code: 0, 1 an error, 3 no GPU. Errors go to stderr.
int guarded(const std::function<void()>& run);
/// main() of a benchmark: [--json FILE] [--rounds N] [PREFIX...]. Exit codes: 0, 1 an error, 2 usage, 3 no
/// GPU.
int bench_main(const std::string& program, int argc, char** argv, int rounds,
               const std::function<void(BenchTable&)>& run);

/// The driver's copy that moves `bytes` bytes in all, half read and half written.
class CopyPeer {
 public:
  CopyPeer(const runtime::Device& d, double bytes)
      : from_(d, std::size_t(bytes / 2)), to_(d, std::size_t(bytes / 2)) {
    from_.fill_bytes(7);
  }
  measure::Contender contender() {
    return {"copy", [this](runtime::Stream& s) { s.copy(to_, from_); }};
  }

 private:
  runtime::Buffer<std::uint8_t> from_, to_;
};

}  // namespace cgp::kernels
