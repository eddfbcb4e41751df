// SPDX-License-Identifier: Apache-2.0
#pragma once
// Choices for a device, remembered: gemm() asks here, so that a problem is weighed once and not at each call.
#include <array>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "cgp/kernels/gemm/select/gemm_table.h"
#include "cgp/runtime/device.h"

namespace cgp::kernels {

class GemmPlanner {
 public:
  /// Choices for `d`, with `table`'s winners.
  GemmPlanner(runtime::DeviceInfo d, GemmTable table) : device_(std::move(d)), table_(std::move(table)) {}
  /// The one that gemm() uses on a device: with what ships for it and, on a GPU, with the user's own winners
  /// (`cgp tune gemm`), read once. A user's file that is not a table is logged (runtime::set_log) and left
  /// out.
  static GemmPlanner& of(const runtime::Device& device);

  /// select_gemm's choice with the table. Safe from several threads.
  std::shared_ptr<const GemmChoice> choose(const GemmProblem& p, const GemmAddresses& at);
  /// Other winners from now on, for instance those just measured.
  void set_table(GemmTable table);
  std::size_t remembered() const;

 private:
  using Key = std::array<std::uint64_t, 12>;
  struct Hash {
    std::size_t operator()(const Key& k) const;
  };
  static Key key(const GemmProblem& p, const GemmAddresses& at);
  runtime::DeviceInfo device_;
  mutable std::mutex mutex_;
  GemmTable table_;
  std::unordered_map<Key, std::shared_ptr<const GemmChoice>, Hash> choices_;
};

}  // namespace cgp::kernels
