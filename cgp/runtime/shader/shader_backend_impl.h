// SPDX-License-Identifier: Apache-2.0
#pragma once
// What devices that run translated kernels (cgp/shader) share: Vulkan and WebGPU. What they do not have throws Unsupported
// by name: graphs, tensor maps, managed memory, variables of modules.
#include <mutex>

#include "cgp/ptx/module.h"
#include "cgp/runtime/backend_impl.h"
#include "cgp/shader/shader.h"

namespace cgp::runtime {

/// The architecture that kernels are chosen for: the last whose kernels in our library use neither tensor cores nor asynchronous
/// copies.
inline constexpr std::string_view kShaderArch = "sm_75";

/// Splits "vulkan:1:sm_80" behind its kind: ordinal and architecture (default kShaderArch). Throws ArgumentError.
struct ShaderSpec {
  int ordinal = 0;
  std::string arch;
};
ShaderSpec parse_shader_spec(std::string_view spec, std::string_view kind);

/// What Device::info() says of every such device; the rest comes from the driver.
DeviceInfo shader_device_info(DeviceKind kind, const ShaderSpec& spec);

class ShaderCode : public Code {
 public:
  ShaderCode(Backend& b, const KernelImage& image);
  KernelAttributes attributes() const override;
  /// By threads and shared memory alone: the driver tells nothing of registers.
  int blocks_per_sm(Dim3 block, std::uint32_t dynamic_smem) const override;
  int max_active_clusters(const Shape& shape) const override;

 protected:
  /// The parameter block: the arguments at their PTX offsets, zero up to `bytes`.
  std::vector<std::byte> pack(std::span<const Arg> args, std::uint32_t bytes) const;
  /// Block and dynamic shared memory of the image, or what stands for them before the first launch.
  shader::ShaderOptions options() const;
  /// Translates; BuildError becomes Unsupported naming kernel and device. Compares what the shader needs of any device with
  /// the device's limits.
  shader::Shader translate(const shader::ShaderOptions& o, bool wgsl) const;
  const std::shared_ptr<const ptx::Module> module_;

 private:
  std::vector<std::uint32_t> offsets_;
};

class ShaderBackend : public Backend {
 public:
  void* alloc_pinned(std::size_t bytes) override;
  void free_pinned(void* p) noexcept override;
  std::uint64_t alloc_managed(std::size_t bytes) override;
  std::byte* host_pointer(std::uint64_t address, std::size_t bytes) override;
  void prefetch(Queue& q, std::uint64_t address, std::size_t bytes, bool to_host) override;
  void attach(Queue& q, std::uint64_t address) override;
  void advise(std::uint64_t address, std::size_t bytes, MemoryAdvice advice) override;
  std::unique_ptr<GraphBuilderState> make_graph_builder() override;
  std::shared_ptr<ModuleState> load_module(std::string ptx) override;
  LoadCounts load_counts() const override;
  TensorMap encode(const TensorMapSpec& spec, std::uint64_t address) override;
  /// Throws Unsupported: this device has no `what`.
  [[noreturn]] void lacks(std::string_view what, std::string hint = {}) const;

 protected:
  LoadCounts counts_;
};

/// The parts of a queue that such devices lack.
class ShaderQueue : public Queue {
 public:
  explicit ShaderQueue(const ShaderBackend& b) : lacks_(b) {}
  void begin_capture() override;
  std::shared_ptr<GraphState> end_capture() override;
  void abandon_capture() noexcept override {}
  void replay(GraphState& g) override;

 private:
  const ShaderBackend& lacks_;
};

/// Throws Unsupported with the reason where there is no loader, driver or such device.
std::shared_ptr<Backend> open_vulkan(const ShaderSpec& spec);
std::vector<DeviceInfo> vulkan_devices();  ///< empty without a loader
/// Throws Unsupported with the reason where there is no wgpu-native or no such adapter.
std::shared_ptr<Backend> open_wgpu(const ShaderSpec& spec);
std::vector<DeviceInfo> wgpu_devices();  ///< empty without wgpu-native

}  // namespace cgp::runtime
