// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "cgp/emu/emu.h"
#include "cgp/runtime/backend_impl.h"

namespace cgp::runtime {

class EmuBackend;
class EmuCode;

/// Work that a stream, and the streams that joined it by events, would have done.
struct EmuCapture {
  std::vector<std::function<void()>> work;
  bool ended = false;
};

class EmuCode final : public Code {
 public:
  EmuCode(EmuBackend& b, const KernelImage& image, std::shared_ptr<const emu::Program> p,
          emu::InstanceHandle i, bool owns_instance);
  ~EmuCode() override;
  KernelAttributes attributes() const override;
  int blocks_per_sm(Dim3 block, std::uint32_t dynamic_smem) const override;
  int max_active_clusters(const Shape& shape) const override;
  int estimated_registers() const;
  /// The arguments' bytes as the entry lays out its parameters.
  std::vector<std::byte> pack(std::span<const Arg> args) const;

  const std::shared_ptr<const emu::Program> program;
  const emu::InstanceHandle instance;
  const emu::EntryInfo& entry;
  EmuBackend& owner;
  const bool owns_instance;
};

/// A kernel that is to run on `device`.
struct EmuLaunch {
  EmuBackend* device = nullptr;
  const EmuCode* code = nullptr;
  Shape shape;
  std::vector<std::byte> params;
};

/// The work of one launch_together() (emu_group.cpp).
class EmuGroup {
 public:
  static EmuGroup* of_issuer();  ///< nullptr: work is done at once
  static EmuGroup* of_runner();  ///< nullptr: kernels run at once
  using Fail = std::function<void(std::exception_ptr)>;
  /// `fail` takes what the stream's next wait throws.
  void keep(Queue& queue, std::function<void()> work, Fail fail);
  void hold(EmuLaunch launch);
  void drop(Queue& queue);  ///< it goes, and its work with it
  void run();

 private:
  struct Kept {
    Queue* queue = nullptr;
    std::deque<std::function<void()>> work;
    Fail fail;
    std::optional<EmuLaunch> next;
  };
  void advance(Kept& stream);
  std::vector<Kept> streams_;
  std::optional<EmuLaunch> held_;
};

class EmuBackend final : public Backend {
 public:
  explicit EmuBackend(std::string_view arch);
  ~EmuBackend() override;

  std::uint64_t alloc(std::size_t bytes, std::string_view name) override;
  void release(std::uint64_t address) noexcept override;
  MemoryUse memory() const override;
  void copy_to_device(std::uint64_t dst, const void* src, std::size_t bytes) override;
  void copy_to_host(void* dst, std::uint64_t src, std::size_t bytes) override;
  void copy(std::uint64_t dst, std::uint64_t src, std::size_t bytes) override;
  void fill(std::uint64_t dst, std::uint8_t value, std::size_t bytes) override;
  void* alloc_pinned(std::size_t bytes) override;
  void free_pinned(void* p) noexcept override;
  std::uint64_t alloc_managed(std::size_t bytes) override;
  bool copy_from_peer(std::uint64_t dst, Backend& peer, std::uint64_t src, std::size_t bytes) override;
  bool can_access_peer(const Backend& other) const override;
  void enable_peer(Backend& other) override;
  std::byte* host_pointer(std::uint64_t address, std::size_t bytes) override;
  void prefetch(Queue&, std::uint64_t, std::size_t, bool) override {}  // there is one memory
  void attach(Queue&, std::uint64_t) override {}
  void advise(std::uint64_t, std::size_t, MemoryAdvice) override {}

  std::unique_ptr<Queue> make_queue() override;
  std::shared_ptr<EventState> make_event() override;
  std::unique_ptr<GraphBuilderState> make_graph_builder() override;
  void sync() override;

  std::unique_ptr<Code> make_code(const KernelImage& image) override;
  std::shared_ptr<ModuleState> load_module(std::string ptx) override;
  LoadCounts load_counts() const override { return {}; }  // nothing is compiled here
  TensorMap encode(const TensorMapSpec& spec, std::uint64_t address) override;

  // Without a look at what is pending: queues use these.
  void write(std::uint64_t dst, const void* src, std::size_t bytes);
  void read(void* dst, std::uint64_t src, std::size_t bytes);
  void machine_copy(std::uint64_t dst, std::uint64_t src, std::size_t bytes);
  void machine_fill(std::uint64_t dst, std::uint8_t value, std::size_t bytes);
  void run(const EmuCode& code, const Shape& shape, const std::vector<std::byte>& params);
  /// The same kernel on different devices. Throws EmuFault for findings, as the first device's policy says.
  static void run_together(std::span<const EmuLaunch> all);
  emu::InstanceHandle place(const std::shared_ptr<const emu::Program>& p);
  void unplace(const emu::InstanceHandle& i) noexcept;
  std::optional<emu::Symbol> variable(const emu::InstanceHandle& i, std::string_view name);
  void forget(Queue* q);

  emu::Options options_;
  Device::Findings policy_ = Device::Findings::throw_at_wait;
  std::size_t keep_ = 1;
  std::vector<LaunchRecord> records_;

 private:
  void throw_pending();
  mutable std::recursive_mutex mutex_;  // a Machine is for one thread at a time
  emu::Machine machine_;
  std::map<std::uint64_t, std::uint64_t> sizes_;
  std::uint64_t used_ = 0;
  std::vector<Queue*> queues_;
};

}  // namespace cgp::runtime
