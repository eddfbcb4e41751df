// SPDX-License-Identifier: Apache-2.0
#pragma once
// What benchmark binaries of kernels share: rows of contenders timed against each other, printed as they come
// and written as JSON; the device's own copy as the peer of memory-bound kernels.
#include <string>
#include <vector>

#include "cgp/prof/compare.h"

namespace cgp::kernels {

class BenchTable {
 public:
  /// Names that start with one of `prefixes` are wanted; all, when there are none.
  BenchTable(const runtime::Device& d, std::vector<std::string> prefixes, int rounds)
      : device_(d), prefixes_(std::move(prefixes)), rounds_(rounds) {}
  bool wanted(const std::string& name) const;
  /// A prefix that starts with `family` was given.
  bool asked(const std::string& family) const;
  /// The first contender is ours, the second the peer of the printed ratio. Rates are GB/s of `bytes`.
  /// Returns our median in milliseconds.
  double run(const std::string& name, const std::string& variant, double bytes,
             const std::vector<prof::Contender>& contenders, int rounds = 0);
  const runtime::Device& device() const { return device_; }
  /// Every sample of every row, with where it was measured.
  void write_json(const std::string& path, const std::vector<std::string>& words) const;

 private:
  struct Row {
    std::string name, variant;
    double bytes;
    std::vector<prof::Timing> timings;
  };
  runtime::Device device_;
  std::vector<std::string> prefixes_;
  int rounds_;
  std::vector<Row> rows_;
};

/// The driver's copy that moves `bytes` bytes in all, half read and half written.
class CopyPeer {
 public:
  CopyPeer(const runtime::Device& d, double bytes)
      : from_(d, std::size_t(bytes / 2)), to_(d, std::size_t(bytes / 2)) {
    from_.fill_bytes(7);
  }
  prof::Contender contender() {
    return {"copy", [this](runtime::Stream& s) { s.copy(to_, from_); }};
  }

 private:
  runtime::Buffer<std::uint8_t> from_, to_;
};

}  // namespace cgp::kernels
