// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a device is and can do: the same numbers for the emulator and for a GPU. Selectors decide from this
// struct and from nothing else.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/runtime/launch.h"

namespace cgp::runtime {

enum class DeviceKind : std::uint8_t { emulator, cuda, vulkan, wgpu };
std::string_view name(DeviceKind k);  ///< "emulator", "cuda", "vulkan", "wgpu"

struct DeviceInfo {
  std::string spec;  ///< what Device::open takes to get it again: "cuda:0", "emu:sm_90a", "vulkan:0"
  std::string name;  ///< "NVIDIA H200", "PTX emulator (sm_90a)"
  DeviceKind kind = DeviceKind::emulator;
  std::string
      arch;  ///< the most specific PTX target it runs: "sm_90a", "sm_89". On Vulkan: the one that kernels
             ///< are chosen for, "sm_75" unless the spec says another
  int cc_major = 0, cc_minor = 0;
  int sm_count = 0;  ///< on Vulkan: by VK_NV_shader_sm_builtins, else the processor's threads, else 16
  std::uint64_t memory_bytes = 0;
  std::uint64_t l2_bytes = 0;
  int warp_size = 32;
  int max_threads_per_block = 1024;
  int max_threads_per_sm = 2048;
  int max_blocks_per_sm = 32;
  Dim3 max_block{1024, 1024, 64};
  Dim3 max_grid{0x7fffffff, 65535, 65535};
  int max_cluster = 1;                     ///< in blocks, above 8 is not portable; 1 = no clusters
  std::uint32_t smem_per_block = 0;        ///< bytes without opting in (48 KiB)
  std::uint32_t smem_per_block_optin = 0;  ///< bytes a block can have at most
  std::uint32_t smem_per_sm = 0;
  std::uint32_t smem_reserved_per_block = 0;
  std::uint32_t registers_per_sm = 65536;
  std::uint32_t registers_per_block = 65536;
  bool cooperative_launch = false;
  bool managed_memory = false;
  bool tensor_maps = false;  ///< TMA: sm_90 and later
  // Absent on the emulator, which has no clock and no bus.
  std::optional<int> clock_khz, memory_clock_khz, memory_bus_bits;
  std::optional<double>
      memory_bandwidth_gbps;  ///< derived: 2 * memory clock * bus width, 1e9 bytes per second
  std::optional<std::string> pci_bus_id;
  std::optional<int> driver_version;  ///< 13000 = CUDA 13.0

  int cc() const { return cc_major * 10 + cc_minor; }
};

/// Why code for PTX target `target` ("sm_80", "sm_90a", "sm_100f") does not run on an `arch` device; empty:
/// it does. Plain targets run on their own and later architectures, `f` targets within the family, `a`
/// targets on exactly that architecture.
std::string reject_target(std::string_view target, std::string_view arch);

/// The devices of this machine that run PTX: the GPUs in driver order, then the emulator's architectures. Never
/// throws for lack of a driver.
std::vector<DeviceInfo> devices();
/// Those that run translated kernels (cgp/shader), for which the Vulkan loader and its drivers are loaded. Empty without them.
std::vector<DeviceInfo> shader_devices();

}  // namespace cgp::runtime
