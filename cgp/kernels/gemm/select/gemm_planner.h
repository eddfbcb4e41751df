// SPDX-License-Identifier: Apache-2.0
#pragma once
// Choices for a device, remembered: gemm() asks here, so that a problem is weighed once and not at each call.
#include <array>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "cgp/kernels/gemm/select/gemm_table.h"
#include "cgp/runtime/device.h"

namespace cgp::kernels {

enum class TuneMode : std::uint8_t { off, cached, full };  ///< gemm_autotune.h
struct GemmTuning {
  TuneMode mode = TuneMode::cached;
  double seconds =
      4;  ///< the most that one problem takes to compile and measure; what runs then is not cut off
};
/// CGP_TUNE (off, cached, full; empty is cached) and CGP_TUNE_SECONDS. ArgumentError for another word.
GemmTuning tuning_from_environment();

class GemmPlanner {
 public:
  /// Choices for `d`, with `table`'s winners.
  GemmPlanner(runtime::DeviceInfo d, GemmTable table, GemmTuning tuning = {})
      : device_(std::move(d)), table_(std::move(table)), tuning_(tuning) {}
  /// The one that gemm() uses on a device: with what ships for it and, on a GPU and unless CGP_TUNE=off, with the user's own
  /// winners, read once. A user's file that is not a table is logged (runtime::set_log) and left out.
  static GemmPlanner& of(const runtime::Device& device);

  /// select_gemm's choice with the table. Safe from several threads.
  std::shared_ptr<const GemmChoice> choose(const GemmProblem& p, const GemmAddresses& at);
  /// Other winners from now on, for instance those just measured.
  void set_table(GemmTable table);
  std::size_t remembered() const;

  // ---- tuning at first use
  const runtime::DeviceInfo& device() const { return device_; }
  const GemmTuning& tuning() const { return tuning_; }
  GemmTable table() const;
  /// Whether a product is yet to be measured, or found to have nothing to measure. False unless the mode is full.
  bool may_tune(const GemmProblem& dense, const GemmAddresses& at) const;
  /// May not be tuned any more.
  void settle(const GemmProblem& dense, const GemmAddresses& at);
  /// One more winner.
  void learn(std::string key, const GemmMeasured& winner);
  /// The right to measure, which one thread has at a time; empty while another has it.
  std::unique_lock<std::mutex> begin_tuning() { return std::unique_lock(tuning_mutex_, std::try_to_lock); }

 private:
  using Key = std::array<std::uint64_t, 12>;
  struct Hash {
    std::size_t operator()(const Key& k) const;
  };
  static Key key(const GemmProblem& p, const GemmAddresses& at);
  runtime::DeviceInfo device_;
  mutable std::mutex mutex_;
  GemmTable table_;
  GemmTuning tuning_;
  std::mutex tuning_mutex_;
  std::unordered_set<Key, Hash> settled_;
  std::unordered_map<Key, std::shared_ptr<const GemmChoice>, Hash> choices_;
};

}  // namespace cgp::kernels
