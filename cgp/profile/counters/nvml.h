// SPDX-License-Identifier: Apache-2.0
#pragma once
// Clocks, power and temperature of a GPU from NVIDIA's management library, loaded with dlopen: what a result
// must be read with. The library comes with the driver, but not into every container.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cgp/runtime/info.h"

namespace cgp::measure {

/// What the GPU says of itself now; absent is what it does not tell.
struct GpuState {
  std::optional<double> sm_mhz, memory_mhz, watts, limit_watts, celsius;
  std::optional<double> joules;                ///< since the driver was loaded
  std::optional<std::uint64_t> slowed;         ///< bits of NVML's clocks event reasons
  std::optional<double> pcie_gen, pcie_width;  ///< of the link now
  /// Bytes a second into and out of the device. NVML takes 20 ms for each: only GpuSampler asks.
  std::optional<double> pcie_in, pcie_out;
};
/// GB/s of one direction of a PCIe link, after its coding; 0 for a generation that is not known.
double pcie_gbps(double generation, double lanes);
/// "power cap, thermal": why clocks are below their maximum; empty for no reason (idle is none).
std::string slowed_text(std::uint64_t bits);

class Nvml {
 public:
  /// Loads libnvidia-ml ($CGP_NVML_LIB, else the loader's search path) and finds the device by its place on
  /// the bus. Throws Unsupported, saying what is missing.
  explicit Nvml(const runtime::DeviceInfo& device);
  ~Nvml();
  GpuState read(bool traffic = false) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Reads the state every few milliseconds in a thread of its own, while something is measured.
class GpuSampler {
 public:
  /// Without NVML it samples nothing, and absent() says why.
  explicit GpuSampler(const runtime::DeviceInfo& device, int milliseconds = 20);
  ~GpuSampler();
  const std::string& absent() const { return absent_; }
  /// Medians of clocks and power, the highest temperature and all reasons since the last call.
  GpuState take();

 private:
  struct Impl;
  std::string absent_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cgp::measure
