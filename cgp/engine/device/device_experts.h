// SPDX-License-Identifier: Apache-2.0
#pragma once
// A mixture of experts on a device. The host chooses: it waits for the router's results, and queues the products of those
// experts that have tokens. Such a step is no fixed list of launches.
#include <memory>
#include <vector>

#include "cgp/engine/device/device_plan.h"
#include "cgp/engine/device/device_weights.h"
#include "cgp/runtime/host_memory.h"

namespace cgp::engine {

/// Memory that all mixtures of a program use one after the other.
class ExpertsWorkspace {
 public:
  ExpertsWorkspace(const Program& program, const runtime::Device& device, const BackendOptions& o);
  /// Device memory that the constructor asks for; 0: the program has no experts.
  static std::uint64_t bytes(const Program& program, const BackendOptions& o);

 private:
  friend class DeviceExperts;
  struct Sizes;
  runtime::Buffer<float> logits_, results_;
  runtime::Buffer<std::uint8_t> gathered_, hidden_, lists_;
  runtime::Pinned<float> host_logits_;
  runtime::Pinned<std::uint8_t> host_lists_;
};

class DeviceExperts {
 public:
  DeviceExperts(WeightLoader& loader, const runtime::Device& device, const Program& program,
                const model::Source& file, const Experts& o);
  /// Bytes that run() needs in `products`.
  std::uint64_t workspace(const runtime::Device& device, std::uint64_t rows) const;
  /// out, f32, gets the results of all tokens added; without a residual it is zeroed before. in: f16.
  void run(runtime::Stream& s, std::uint64_t rows, const device_plan::Place& in,
           const device_plan::Place& out, ExpertsWorkspace& w,
           const runtime::Buffer<std::uint8_t>& products) const;
  /// Weights of a program's experts on the device.
  static std::uint64_t bytes_for(const runtime::Device& device, const Program& program,
                                 const model::Source& file, const Experts& o);

 private:
  struct Choice {
    std::int64_t expert = 0;
    float weight = 0;
  };
  std::vector<Choice> choose(std::span<const float> logits) const;

  Experts o_;
  std::uint64_t inner_, width_in_, width_out_;
  std::vector<std::unique_ptr<DeviceMatrix>> gate_up_;  ///< one of both, or each
  std::unique_ptr<DeviceMatrix> router_, down_;
};

}  // namespace cgp::engine
