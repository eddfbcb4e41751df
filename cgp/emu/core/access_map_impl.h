// SPDX-License-Identifier: Apache-2.0
#pragma once
// Counts of accesses by place, one recorder per worker, only with Options::access_map.
#include <unordered_map>
#include <vector>

#include "cgp/emu/core/machine_impl.h"

namespace cgp::emu {

class AccessRecorder {
 public:
  explicit AccessRecorder(const LaunchState& launch);
  void use(Heap* heap) { heap_ = heap; }  ///< addresses are looked up there
  void global(GlobalKind kind, std::uint32_t bytes, const std::uint64_t* addr, Mask lanes);
  void shared(SharedKind kind, std::uint32_t bytes, const std::uint32_t* offset, Mask lanes);
  /// A piece of global memory that a bulk copy moved.
  void bulk(bool store, std::uint64_t address, std::uint64_t bytes);

 private:
  friend std::vector<AccessMap> collect_accesses(const LaunchState& launch,
                                                 const std::vector<std::unique_ptr<Worker>>& workers);
  AccessMap* map_of(std::uint64_t address);
  Heap* heap_ = nullptr;
  std::unordered_map<const Allocation*, AccessMap> maps_;
  AccessMap shared_;
  AccessMap* last_ = nullptr;
};

}  // namespace cgp::emu
