// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a device must be able to do; emu_device.cpp and cuda/device.cpp do it. Ownership: a Device, Buffer,
// Stream or LoadedKernel holds the Backend; the Backend owns the kernels it has cached and its own stream,
// which therefore point back without counting.
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "cgp/runtime/graph.h"
#include "cgp/runtime/host_memory.h"
#include "cgp/runtime/ipc/shared_memory.h"
#include "cgp/runtime/launcher.h"

namespace cgp::runtime {

void log(std::string_view line);

class EventState {
 public:
  virtual ~EventState() = default;
  virtual double milliseconds_since(const EventState& start) const = 0;
  virtual void wait() const = 0;
  virtual bool complete() const = 0;
};

class GraphState {
 public:
  virtual ~GraphState() = default;
  virtual std::size_t size() const = 0;
};

/// A launch with nothing left to defaults.
struct Shape {
  Dim3 grid, block, cluster;
  std::uint32_t dynamic_smem = 0;
  bool cooperative = false, programmatic = false;
  friend bool operator==(const Shape&, const Shape&) = default;
};

/// A kernel loaded into a backend.
class Code {
 public:
  Code(Backend& backend, KernelImage image) : backend(backend), image(std::move(image)) {}
  virtual ~Code() = default;
  virtual KernelAttributes attributes() const = 0;
  virtual int blocks_per_sm(Dim3 block, std::uint32_t dynamic_smem) const = 0;
  virtual int max_active_clusters(const Shape& shape) const = 0;

  Backend& backend;
  const KernelImage image;
  std::uint32_t static_smem = 0;
};

class ModuleState {
 public:
  virtual ~ModuleState() = default;
  virtual std::vector<std::string> entries() const = 0;
  virtual std::shared_ptr<const Code> kernel(std::string_view entry) = 0;
  virtual Slice<std::byte> variable(std::string_view name) = 0;
};

/// One side of a 2-D copy is host memory if its pointer is set.
struct Copy2d {
  std::uint64_t dst = 0, src = 0;
  void* host_dst = nullptr;
  const void* host_src = nullptr;
  std::size_t dst_pitch = 0, src_pitch = 0, width = 0, height = 0;  // bytes; height in rows
};

class Queue {
 public:
  virtual ~Queue() = default;  // must wait for its work, without throwing
  virtual void copy_to_device(std::uint64_t dst, const void* src, std::size_t bytes) = 0;
  virtual void copy_to_host(void* dst, std::uint64_t src, std::size_t bytes) = 0;
  virtual void copy(std::uint64_t dst, std::uint64_t src, std::size_t bytes) = 0;
  virtual void copy_2d(const Copy2d& c) = 0;
  virtual void fill(std::uint64_t dst, std::uint8_t value, std::size_t bytes) = 0;
  virtual void launch(const Code& code, const Shape& shape, std::span<const Arg> args) = 0;
  virtual void record(EventState& e) = 0;
  virtual void wait_for(const EventState& e) = 0;
  virtual void wait() = 0;
  virtual bool complete() = 0;
  virtual bool capturing() { return false; }
  virtual void begin_capture() = 0;
  virtual std::shared_ptr<GraphState> end_capture() = 0;
  virtual void abandon_capture() noexcept = 0;
  virtual void replay(GraphState& g) = 0;
  virtual void* native() { return nullptr; }  ///< the driver's stream, its context made current
};

class GraphBuilderState {
 public:
  virtual ~GraphBuilderState() = default;
  virtual std::size_t kernel(const Code& code, const Shape& shape, std::span<const Arg> args,
                             std::span<const std::size_t> after) = 0;
  virtual std::size_t copy(std::uint64_t dst, std::uint64_t src, std::size_t bytes,
                           std::span<const std::size_t> after) = 0;
  virtual std::size_t fill(std::uint64_t dst, std::uint8_t value, std::size_t bytes,
                           std::span<const std::size_t> after) = 0;
  virtual std::shared_ptr<GraphState> finish() = 0;
};

class Backend : public MemorySource, public std::enable_shared_from_this<Backend> {
 public:
  ~Backend() override;
  const DeviceInfo& info() const { return info_; }

  // ---- memory
  /// `name` is what the emulator's findings call the memory; may be empty.
  virtual std::uint64_t alloc(std::size_t bytes, std::string_view name) = 0;
  virtual MemoryUse memory() const = 0;
  /// These wait, and throw what went wrong before.
  virtual void copy_to_device(std::uint64_t dst, const void* src, std::size_t bytes) = 0;
  virtual void copy_to_host(void* dst, std::uint64_t src, std::size_t bytes) = 0;
  virtual void copy(std::uint64_t dst, std::uint64_t src, std::size_t bytes) = 0;
  virtual void fill(std::uint64_t dst, std::uint8_t value, std::size_t bytes) = 0;
  /// Device to device without the host; false: there is no such way.
  virtual bool copy_from_peer(std::uint64_t dst, Backend& peer, std::uint64_t src, std::size_t bytes);
  virtual bool can_access_peer(const Backend& other) const;
  virtual void enable_peer(Backend& other);
  /// True after enable_peer(other): a launch here may name memory of `other`.
  bool uses_peer(const Backend& other) const;
  /// For other processes: what they open, and where in it the address lies. Unsupported unless overridden.
  virtual SharedMemory share(std::uint64_t address);
  /// The address here of what another process shared; until close_shared.
  virtual std::uint64_t open_shared(const SharedMemory& memory);
  virtual void close_shared(std::uint64_t address, const SharedMemory& memory) noexcept;
  virtual void* alloc_pinned(std::size_t bytes) = 0;
  virtual void free_pinned(void* p) noexcept = 0;
  virtual std::uint64_t alloc_managed(std::size_t bytes) = 0;  ///< released like other memory
  /// Where the host sees managed memory.
  virtual std::byte* host_pointer(std::uint64_t address, std::size_t bytes) = 0;
  virtual void prefetch(Queue& q, std::uint64_t address, std::size_t bytes, bool to_host) = 0;
  virtual void attach(Queue& q, std::uint64_t address) = 0;
  virtual void advise(std::uint64_t address, std::size_t bytes, MemoryAdvice advice) = 0;

  // ---- work
  virtual std::unique_ptr<Queue> make_queue() = 0;
  virtual std::unique_ptr<Queue> borrow_queue(void* native);  ///< Unsupported unless overridden
  virtual std::shared_ptr<EventState> make_event() = 0;
  virtual std::unique_ptr<GraphBuilderState> make_graph_builder() = 0;
  virtual void sync() = 0;

  // ---- kernels
  virtual std::unique_ptr<Code> make_code(const KernelImage& image) = 0;
  virtual std::shared_ptr<ModuleState> load_module(std::string ptx) = 0;
  virtual LoadCounts load_counts() const = 0;
  virtual TensorMap encode(const TensorMapSpec& spec, std::uint64_t address) = 0;

  LoadedKernel load(const KernelImage& image);
  LoadedKernel load(std::string_view key, const std::function<KernelImage()>& build);
  Stream& stream();

 protected:
  /// Kernels and the own stream go while the derived class is still there: its destructor calls this first.
  void drop_children() noexcept;
  void note_peer(Backend& other);  ///< enable_peer succeeded
  std::vector<std::shared_ptr<Backend>> peers() const;
  DeviceInfo info_;

 private:
  LoadedKernel handle(const Code& code);
  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };
  std::recursive_mutex mutex_;
  // Images with equal entry and equal PTX share code; the text is compared, never only its hash.
  std::unordered_multimap<std::size_t, std::unique_ptr<Code>> by_text_;
  std::unordered_map<std::string, const Code*, TextHash, std::equal_to<>> by_key_;
  std::unique_ptr<Stream> stream_;
  mutable std::mutex peers_mutex_;  // launches ask on any thread
  std::vector<std::weak_ptr<Backend>> peers_;
};

/// Throws ArgumentError unless code, shape and arguments fit together and fit the queue's device.
Shape check_launch(const Code& code, const Backend* queue_device, const Launch& launch,
                   std::span<const Arg> args);

std::shared_ptr<Backend> open_emulator(std::string_view arch);
std::vector<std::string_view> emulator_archs();
/// Throws Unsupported with the reason where there is no driver or no such device.
std::shared_ptr<Backend> open_cuda(int ordinal);
std::vector<DeviceInfo> cuda_devices();  ///< empty without a driver

}  // namespace cgp::runtime
