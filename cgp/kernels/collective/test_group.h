// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ranks for tests: each an emulated device, or all on one GPU.
#include <optional>
#include <string_view>
#include <vector>

#include "cgp/kernels/collective/communicator.h"
#include "cgp/runtime/launch_together.h"
#include "cgp/runtime/stream.h"

namespace cgp::testing {

struct Group {
  explicit Group(int n, std::uint64_t bytes = 1 << 20, std::string_view spec = "emu:sm_90a") {
    for (int r = 0; r < n; ++r) devices.push_back(runtime::Device::open(spec));
    for (auto& d : devices) streams.emplace_back(d);
    using Devices = kernels::Communicator::Devices;
    all.emplace(devices, bytes, spec.starts_with("emu") ? Devices::different : Devices::may_repeat);
  }
  /// issue(rank, its stream); then waits for all.
  template <class Issue>
  void together(Issue&& issue) {
    runtime::launch_together([&] {
      for (int r = 0; r < all->size(); ++r) issue(r, streams[std::size_t(r)]);
    });
    for (auto& s : streams) s.wait();
  }
  std::vector<runtime::Device> devices;
  std::vector<runtime::Stream> streams;
  std::optional<kernels::Communicator> all;
};

}  // namespace cgp::testing
