// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <atomic>
#include <map>
#include <mutex>
#include <vector>

#include "cgp/cuda/handles.h"
#include "cgp/runtime/backend_impl.h"
#include "cgp/runtime/jit_cache.h"

namespace cgp::runtime {

class CudaBackend;

class CudaCode final : public Code {
 public:
  CudaCode(CudaBackend& b, const KernelImage& image, std::shared_ptr<const cuda::Module> module);
  KernelAttributes attributes() const override;
  int blocks_per_sm(Dim3 block, std::uint32_t dynamic_smem) const override;
  int max_active_clusters(const Shape& shape) const override;
  /// Opts in to more than 48 KiB of shared memory and to clusters above 8, once, when a launch needs it.
  cuda::LaunchShape prepare(const Shape& shape) const;
  int attribute(cuda::FunctionAttribute a) const;

  CudaBackend& owner;
  const std::shared_ptr<const cuda::Module> module;
  cuda::CUfunction function = nullptr;

 private:
  mutable std::mutex mutex_;
  mutable std::uint32_t dynamic_smem_ = 0;  // opted in to
  mutable bool large_clusters_ = false;
  mutable std::atomic<bool> most_smem_{false};
};

class CudaBackend final : public Backend {
 public:
  CudaBackend(cuda::ApiPtr api, int ordinal);
  ~CudaBackend() override;

  std::uint64_t alloc(std::size_t bytes, std::string_view name) override;
  void release(std::uint64_t address) noexcept override;
  MemoryUse memory() const override;
  void copy_to_device(std::uint64_t dst, const void* src, std::size_t bytes) override;
  void copy_to_host(void* dst, std::uint64_t src, std::size_t bytes) override;
  void copy(std::uint64_t dst, std::uint64_t src, std::size_t bytes) override;
  void fill(std::uint64_t dst, std::uint8_t value, std::size_t bytes) override;
  bool copy_from_peer(std::uint64_t dst, Backend& peer, std::uint64_t src, std::size_t bytes) override;
  bool can_access_peer(const Backend& other) const override;
  void enable_peer(Backend& other) override;
  SharedMemory share(std::uint64_t address) override;
  std::uint64_t open_shared(const SharedMemory& memory) override;
  void close_shared(std::uint64_t address, const SharedMemory& memory) noexcept override;
  void* alloc_pinned(std::size_t bytes) override;
  void free_pinned(void* p) noexcept override;
  std::uint64_t alloc_managed(std::size_t bytes) override;
  std::byte* host_pointer(std::uint64_t address, std::size_t bytes) override;
  void prefetch(Queue& q, std::uint64_t address, std::size_t bytes, bool to_host) override;
  void attach(Queue& q, std::uint64_t address) override;
  void advise(std::uint64_t address, std::size_t bytes, MemoryAdvice advice) override;

  std::unique_ptr<Queue> make_queue() override;
  std::unique_ptr<Queue> borrow_queue(void* native) override;
  std::shared_ptr<EventState> make_event() override;
  std::unique_ptr<GraphBuilderState> make_graph_builder() override;
  void sync() override;

  std::unique_ptr<Code> make_code(const KernelImage& image) override;
  std::shared_ptr<ModuleState> load_module(std::string ptx) override;
  LoadCounts load_counts() const override;
  TensorMap encode(const TensorMapSpec& spec, std::uint64_t address) override;

  const cuda::Api& api() const { return *context_.api(); }
  const cuda::ApiPtr& api_ptr() const { return context_.api(); }
  /// The driver keeps the current context per thread; every entry into the driver says which it means.
  const cuda::Context& context() const {
    context_.make_current();
    return context_;
  }
  cuda::CUcontext raw_context() const { return context_.get(); }
  /// Cubin that came along, cached cubin, or compilation, in this order.
  std::shared_ptr<const cuda::Module> load_code(const std::string& ptx, const std::vector<Cubin>& cubins,
                                                const std::string& name);

 private:
  std::shared_ptr<const cuda::Module> compile(const std::string& ptx, const std::string& name);
  cuda::Context context_;
  JitCache cache_ = JitCache::from_environment();
  mutable std::mutex counts_mutex_;
  LoadCounts counts_;
};

/// Info from the driver without making a context.
DeviceInfo describe_cuda(const cuda::Api& api, int ordinal);

std::unique_ptr<Queue> make_cuda_queue(CudaBackend& b);
std::unique_ptr<Queue> borrow_cuda_queue(CudaBackend& b, void* stream);
std::shared_ptr<EventState> make_cuda_event(CudaBackend& b);
std::unique_ptr<GraphBuilderState> make_cuda_graph_builder(CudaBackend& b);
/// The driver's stream of a queue.
cuda::CUstream raw_stream(Queue& q);

}  // namespace cgp::runtime
