// SPDX-License-Identifier: Apache-2.0
// A Vulkan device: kernels as SPIR-V, buffers by device address, streams as batches of commands on one queue. Every
// batch begins behind the batches that were submitted before it, so streams run one after the other.
#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <thread>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/runtime/shader/matrix_probe.h"
#include "cgp/runtime/shader/shader_backend_impl.h"
#include "cgp/vulkan/device.h"

namespace cgp::runtime {
namespace {
using text::cat;
using vulkan::Location;

constexpr std::uint32_t kNvidia = 0x10de, kCpu = 4;
constexpr std::uint64_t kArenaBytes = 256 << 10, kArenaShare = 64 << 10;
constexpr int kCommandsOfBatch = 256;
constexpr std::size_t kBatchesInFlight = 8;

class VulkanBackend;

/// What a batch needs again and again.
struct Resources {
  explicit Resources(const vulkan::DevicePtr& d) : commands(d), arena(d, kArenaBytes, Location::upload) {}
  vulkan::Commands commands;
  vulkan::Buffer arena;  // parameter blocks and small uploads
};

struct Download {
  void* destination;
  const std::byte* source;
  std::size_t destination_pitch, width, height;
};

/// A stretch of a stream's work: being recorded, submitted, or done.
class Batch {
 public:
  Batch(const vulkan::DevicePtr& d, std::unique_ptr<Resources> r)
      : resources(r ? std::move(r) : std::make_unique<Resources>(d)) {
    resources->commands.begin();
  }
  void submit() {
    if (state != State::open) return;
    state = State::done;  // unless it works
    resources->commands.submit();
    state = State::submitted;
  }
  bool complete() {
    submit();
    if (state == State::submitted && resources->commands.done()) finish();
    return state == State::done;
  }
  void finish() {
    submit();
    if (state == State::done) return;
    state = State::done;
    resources->commands.wait();
    ticks = resources->commands.ticks();
    for (const Download& d : downloads)
      for (std::size_t row = 0; row < d.height; ++row)
        std::memcpy(static_cast<std::byte*>(d.destination) + row * d.destination_pitch,
                    d.source + row * d.width, d.width);
    downloads.clear();
    staging.clear();
  }
  enum class State : std::uint8_t { open, submitted, done } state = State::open;
  std::unique_ptr<Resources> resources;
  std::vector<std::unique_ptr<vulkan::Buffer>> staging;
  std::vector<Download> downloads;
  std::vector<std::uint64_t> ticks;
  std::uint64_t arena_used = 0;
  int commands = 0;
};

struct Place {
  vulkan::VkHandle buffer;
  std::uint64_t offset;
};

class VulkanCode final : public ShaderCode {
 public:
  VulkanCode(VulkanBackend& b, const KernelImage& image);
  struct Built {
    shader::Shader shader;
    std::unique_ptr<vulkan::Pipeline> pipeline;  // made at the first launch
  };
  const Built& built(const Shape& s) const;
  std::vector<std::byte> block(const Built& b, std::span<const Arg> args) const {
    return pack(args, b.shader.block_bytes);
  }

 private:
  bool multiplies(bool bf16) const;  ///< the kernel has products of the type on tensor cores
  shader::Shader checked(const shader::ShaderOptions& o) const;
  VulkanBackend& owner_;
  mutable std::map<std::array<std::uint32_t, 4>, Built> built_;  // by block and dynamic shared memory
};

class VulkanEvent final : public EventState {
 public:
  explicit VulkanEvent(VulkanBackend& b) : b_(b) {}
  double milliseconds_since(const EventState& start) const override;
  void wait() const override;
  bool complete() const override;
  std::shared_ptr<Batch> batch;
  std::uint32_t index = 0;

 private:
  std::uint64_t tick() const;
  VulkanBackend& b_;
};

class VulkanQueue final : public ShaderQueue {
 public:
  explicit VulkanQueue(VulkanBackend& b);
  ~VulkanQueue() override;
  void copy_to_device(std::uint64_t dst, const void* src, std::size_t bytes) override;
  void copy_to_host(void* dst, std::uint64_t src, std::size_t bytes) override;
  void copy(std::uint64_t dst, std::uint64_t src, std::size_t bytes) override;
  void copy_2d(const Copy2d& c) override;
  void fill(std::uint64_t dst, std::uint8_t value, std::size_t bytes) override;
  void launch(const Code& code, const Shape& shape, std::span<const Arg> args) override;
  void record(EventState& e) override;
  void wait_for(const EventState& e) override;
  void wait() override;
  bool complete() override;

 private:
  Batch& batch();
  void retire();
  /// Host memory that commands of the open batch read; filled by the caller.
  struct Staged {
    Place place;
    std::byte* host;
    std::uint64_t address;
  };
  Staged stage(std::uint64_t bytes);
  void upload(const Place& to, const void* src, std::size_t bytes);
  VulkanBackend& b_;
  std::shared_ptr<Batch> open_;
  std::deque<std::shared_ptr<Batch>> submitted_;
  std::vector<std::unique_ptr<Resources>> free_;
};

class VulkanBackend final : public ShaderBackend {
 public:
  VulkanBackend(vulkan::DevicePtr device, DeviceInfo info) : device(std::move(device)) {
    info_ = std::move(info);
  }
  ~VulkanBackend() override {
    copies_.reset();
    drop_children();
  }
  std::uint64_t alloc(std::size_t bytes, std::string_view name) override {
    std::lock_guard lock(mutex);
    auto b = std::make_unique<vulkan::Buffer>(device, bytes, Location::device, std::string(name));
    const std::uint64_t address = b->address();
    used_ += bytes;
    buffers_.emplace(address, std::move(b));
    return address;
  }
  void release(std::uint64_t address) noexcept override {
    std::lock_guard lock(mutex);
    try {
      sync();  // work that uses it may be under way
    } catch (const std::exception& e) {
      log(cat("freeing memory of ", info_.spec, ": ", e.what()));
    }
    const auto it = buffers_.find(address);
    if (it == buffers_.end()) return;
    used_ -= it->second->bytes();
    buffers_.erase(it);
  }
  MemoryUse memory() const override {
    std::lock_guard lock(mutex);
    return {info_.memory_bytes - std::min(used_, info_.memory_bytes), info_.memory_bytes};
  }
  void copy_to_device(std::uint64_t dst, const void* src, std::size_t n) override {
    blocking([&](Queue& q) { q.copy_to_device(dst, src, n); });
  }
  void copy_to_host(void* dst, std::uint64_t src, std::size_t n) override {
    blocking([&](Queue& q) { q.copy_to_host(dst, src, n); });
  }
  void copy(std::uint64_t dst, std::uint64_t src, std::size_t n) override {
    blocking([&](Queue& q) { q.copy(dst, src, n); });
  }
  void fill(std::uint64_t dst, std::uint8_t value, std::size_t n) override {
    blocking([&](Queue& q) { q.fill(dst, value, n); });
  }
  std::unique_ptr<Queue> make_queue() override { return std::make_unique<VulkanQueue>(*this); }
  std::shared_ptr<EventState> make_event() override { return std::make_shared<VulkanEvent>(*this); }
  void sync() override {
    std::lock_guard lock(mutex);
    for (VulkanQueue* q : queues) q->wait();
  }
  std::unique_ptr<Code> make_code(const KernelImage& image) override {
    return std::make_unique<VulkanCode>(*this, image);
  }
  /// The buffer that `bytes` at `address` lie in.
  Place find(std::uint64_t address, std::uint64_t bytes) const {
    auto it = buffers_.upper_bound(address);
    if (it != buffers_.begin()) {
      --it;
      const std::uint64_t offset = address - it->first;
      if (offset <= it->second->bytes() && bytes <= it->second->bytes() - offset)
        return {it->second->handle(), offset};
    }
    throw ArgumentError({cat("a copy on ", info_.spec, " must lie inside one buffer"),
                         {},
                         cat(bytes, " bytes at ", text::hex(address)),
                         {}});
  }
  void count(double milliseconds) { ++counts_.jit_compilations, counts_.jit_milliseconds += milliseconds; }

  /// How cooperative matrices of the device lie, if they hold the registers of PTX: tried once.
  std::optional<shader::MatrixLayout> matrices(bool bf16) {
    auto& known = matrices_[bf16];
    if (!known) known = find_matrix_layout(device, bf16);
    return *known;
  }

  const vulkan::DevicePtr device;
  mutable std::recursive_mutex mutex;  // a vulkan::Device is for one thread at a time
  std::vector<VulkanQueue*> queues;

 private:
  template <class F>
  void blocking(F&& work) {
    std::lock_guard lock(mutex);
    sync();
    if (!copies_) copies_ = std::make_unique<VulkanQueue>(*this);
    work(*copies_);
    copies_->wait();
  }
  std::map<std::uint64_t, std::unique_ptr<vulkan::Buffer>> buffers_;
  std::uint64_t used_ = 0;
  std::optional<std::optional<shader::MatrixLayout>> matrices_[2];  // f16, bf16
  std::unique_ptr<VulkanQueue> copies_;
};

// ---------------------------------------------------------------- code
VulkanCode::VulkanCode(VulkanBackend& b, const KernelImage& image) : ShaderCode(b, image), owner_(b) {
  const shader::ShaderOptions o = options();
  shader::Shader s = checked(o);  // what cannot be translated is refused here, not at a launch
  static_smem = s.needs.shared_bytes - std::min(s.needs.shared_bytes, o.dynamic_shared);
  built_[{o.block[0], o.block[1], o.block[2], o.dynamic_shared}].shader = std::move(s);
}
bool VulkanCode::multiplies(bool bf16) const {
  const ptx::Function& f = *module_->find(image.entry);
  return std::any_of(f.body.begin(), f.body.end(), [&](const ptx::Inst& i) {
    return i.op == ptx::Op::mma && i.has(bf16 ? ptx::Mod::bf16 : ptx::Mod::f16);
  });
}
shader::Shader VulkanCode::checked(const shader::ShaderOptions& given) const {
  const vulkan::PhysicalDevice& p = owner_.device->physical;
  shader::ShaderOptions o = given;
  o.push_constants = p.max_push_constants;
  o.float16 = p.float16;
  o.wide_shared = p.wide_shared;
  o.narrow_shared = p.narrow_shared;
  // Subgroups of 32 that take threads in their order: NVIDIA's driver does so, and nobody promises it.
  const std::uint32_t operations = vulkan::kSubgroupVote | vulkan::kSubgroupBallot | vulkan::kSubgroupShuffle;
  if (p.vendor == kNvidia && p.subgroup_size == 32 && (p.subgroup_operations & operations) == operations)
    o.subgroup_size = 32;
  if (o.subgroup_size == 32) {
    if (multiplies(false)) o.matrix_f16 = owner_.matrices(false);
    if (multiplies(true)) o.matrix_bf16 = owner_.matrices(true);
  }
  shader::Shader s = translate(o, false);
  const char* lacking = s.needs.storage16 && !p.storage16 ? "storageBuffer16BitAccess"
                        : s.needs.storage8 && !p.storage8 ? "storageBuffer8BitAccess"
                                                          : nullptr;
  if (lacking)
    throw Unsupported({cat("kernel ", image.name, " needs ", lacking), p.name, "the device lacks it", {}});
  return s;
}
const VulkanCode::Built& VulkanCode::built(const Shape& s) const {
  const auto [it, fresh] = built_.try_emplace({s.block.x, s.block.y, s.block.z, s.dynamic_smem});
  Built& b = it->second;
  if (fresh) {
    shader::ShaderOptions o;
    o.block = {s.block.x, s.block.y, s.block.z};
    o.dynamic_shared = s.dynamic_smem;
    try {
      b.shader = checked(o);
    } catch (...) {
      built_.erase(it);
      throw;
    }
  }
  if (!b.pipeline) {
    const auto begin = std::chrono::steady_clock::now();
    b.pipeline = std::make_unique<vulkan::Pipeline>(owner_.device, b.shader.spirv, b.shader.entry,
                                                    b.shader.block_by_address ? 8 : b.shader.block_bytes);
    owner_.count(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  return b;
}

// ---------------------------------------------------------------- events
std::uint64_t VulkanEvent::tick() const {
  if (!batch) throw ArgumentError("time passes between events that were recorded");
  batch->finish();
  if (index >= batch->ticks.size())
    throw Unsupported(
        {cat(b_.info().spec, " has no timestamps"), {}, "its queue's timestampValidBits is 0", {}});
  return batch->ticks[index];
}
double VulkanEvent::milliseconds_since(const EventState& start) const {
  std::lock_guard lock(b_.mutex);
  const vulkan::PhysicalDevice& p = b_.device->physical;
  const std::uint64_t mask =
      p.timestamp_bits >= 64 ? ~std::uint64_t(0) : (std::uint64_t(1) << p.timestamp_bits) - 1;
  const std::uint64_t ticks = (tick() - static_cast<const VulkanEvent&>(start).tick()) & mask;
  return double(ticks) * p.timestamp_period * 1e-6;
}
void VulkanEvent::wait() const {
  std::lock_guard lock(b_.mutex);
  if (batch) batch->finish();
}
bool VulkanEvent::complete() const {
  std::lock_guard lock(b_.mutex);
  return !batch || batch->complete();
}

// ---------------------------------------------------------------- queue
VulkanQueue::VulkanQueue(VulkanBackend& b) : ShaderQueue(b), b_(b) {
  std::lock_guard lock(b_.mutex);
  b_.queues.push_back(this);
}
VulkanQueue::~VulkanQueue() {
  std::lock_guard lock(b_.mutex);
  std::erase(b_.queues, this);
  try {
    wait();
  } catch (const std::exception& e) {
    log(cat("a stream was destroyed before this was reported: ", e.what()));
  }
}
void VulkanQueue::retire() {
  while (!submitted_.empty() && submitted_.front()->state == Batch::State::done) {
    free_.push_back(std::move(submitted_.front()->resources));
    submitted_.pop_front();
  }
}
Batch& VulkanQueue::batch() {
  if (open_ && (open_->state != Batch::State::open || open_->commands >= kCommandsOfBatch)) {
    open_->submit();
    submitted_.push_back(std::move(open_));
    if (submitted_.size() > kBatchesInFlight) submitted_.front()->finish();
    retire();
  }
  if (!open_) {
    std::unique_ptr<Resources> r;
    if (!free_.empty()) r = std::move(free_.back()), free_.pop_back();
    open_ = std::make_shared<Batch>(b_.device, std::move(r));
  }
  ++open_->commands;
  return *open_;
}
VulkanQueue::Staged VulkanQueue::stage(std::uint64_t bytes) {
  Batch* b = &batch();
  if (bytes > kArenaShare) {
    b->staging.push_back(std::make_unique<vulkan::Buffer>(b_.device, bytes, Location::upload, "a copy"));
    const vulkan::Buffer& s = *b->staging.back();
    return {{s.handle(), 0}, s.host(), s.address()};
  }
  if (b->arena_used + bytes > kArenaBytes) {
    b->submit();
    b = &batch();
  }
  const vulkan::Buffer& arena = b->resources->arena;
  const std::uint64_t at = b->arena_used;
  b->arena_used += (bytes + 15) / 16 * 16;
  return {{arena.handle(), at}, arena.host() + at, arena.address() + at};
}
void VulkanQueue::upload(const Place& to, const void* src, std::size_t n) {
  const Staged s = stage(n);
  std::memcpy(s.host, src, n);
  const vulkan::BufferCopy region{s.place.offset, to.offset, n};
  open_->resources->commands.copy(s.place.buffer, to.buffer, {&region, 1});
}
void VulkanQueue::copy_to_device(std::uint64_t dst, const void* src, std::size_t n) {
  std::lock_guard lock(b_.mutex);
  upload(b_.find(dst, n), src, n);
}
void VulkanQueue::copy_to_host(void* dst, std::uint64_t src, std::size_t n) {
  copy_2d({0, src, dst, nullptr, n, n, n, 1});
}
void VulkanQueue::copy(std::uint64_t dst, std::uint64_t src, std::size_t n) {
  copy_2d({dst, src, nullptr, nullptr, n, n, n, 1});
}
void VulkanQueue::copy_2d(const Copy2d& c) {
  std::lock_guard lock(b_.mutex);
  std::vector<vulkan::BufferCopy> rows;
  const auto span = [&](std::size_t pitch) { return (c.height - 1) * pitch + c.width; };
  if (c.host_src) {
    const Place to = b_.find(c.dst, span(c.dst_pitch));
    const Staged s = stage(c.width * c.height);
    for (std::size_t r = 0; r < c.height; ++r) {
      std::memcpy(s.host + r * c.width, static_cast<const std::byte*>(c.host_src) + r * c.src_pitch, c.width);
      rows.push_back({s.place.offset + r * c.width, to.offset + r * c.dst_pitch, c.width});
    }
    open_->resources->commands.copy(s.place.buffer, to.buffer, rows);
    return;
  }
  const Place from = b_.find(c.src, span(c.src_pitch));
  Batch& b = batch();
  if (c.host_dst) {
    b.staging.push_back(
        std::make_unique<vulkan::Buffer>(b_.device, c.width * c.height, Location::download, "a copy"));
    const vulkan::Buffer& s = *b.staging.back();
    for (std::size_t r = 0; r < c.height; ++r)
      rows.push_back({from.offset + r * c.src_pitch, r * c.width, c.width});
    b.resources->commands.copy(from.buffer, s.handle(), rows);
    b.downloads.push_back({c.host_dst, s.host(), c.dst_pitch, c.width, c.height});
    return;
  }
  const Place to = b_.find(c.dst, span(c.dst_pitch));
  for (std::size_t r = 0; r < c.height; ++r)
    rows.push_back({from.offset + r * c.src_pitch, to.offset + r * c.dst_pitch, c.width});
  b.resources->commands.copy(from.buffer, to.buffer, rows);
}
void VulkanQueue::fill(std::uint64_t dst, std::uint8_t value, std::size_t n) {
  std::lock_guard lock(b_.mutex);
  const Place to = b_.find(dst, n);
  // vkCmdFillBuffer writes words; the bytes before the first and behind the last whole one are copied.
  const std::uint64_t begin = (to.offset + 3) / 4 * 4, end = (to.offset + n) / 4 * 4;
  const std::uint32_t bytes = 0x01010101u * value;
  if (begin >= end) {
    for (std::uint64_t at = 0; at < n; at += 4)
      upload({to.buffer, to.offset + at}, &bytes, std::min<std::size_t>(4, n - at));
    return;
  }
  if (begin > to.offset) upload(to, &bytes, begin - to.offset);
  batch().resources->commands.fill(to.buffer, begin, end - begin, value);
  if (to.offset + n > end) upload({to.buffer, end}, &bytes, to.offset + n - end);
}
void VulkanQueue::launch(const Code& code, const Shape& shape, std::span<const Arg> args) {
  std::lock_guard lock(b_.mutex);
  const auto& c = static_cast<const VulkanCode&>(code);
  const VulkanCode::Built& built = c.built(shape);
  const std::vector<std::byte> block = c.block(built, args);
  std::span<const std::byte> push = block;
  std::uint64_t address = 0;
  if (built.shader.block_by_address) {
    const Staged s = stage(block.size());
    std::memcpy(s.host, block.data(), block.size());
    address = s.address;
    push = std::as_bytes(std::span(&address, 1));
  } else {
    batch();
  }
  open_->resources->commands.dispatch(*built.pipeline, push, shape.grid.x, shape.grid.y, shape.grid.z);
}
void VulkanQueue::record(EventState& e) {
  std::lock_guard lock(b_.mutex);
  auto& event = static_cast<VulkanEvent&>(e);
  Batch* b = &batch();
  if (b->resources->commands.timestamps() == vulkan::Commands::kTimestamps) {
    b->submit();
    b = &batch();
  }
  if (b_.device->physical.timestamp_bits) event.index = b->resources->commands.timestamp();
  event.batch = open_;
}
void VulkanQueue::wait_for(const EventState& e) {
  std::lock_guard lock(b_.mutex);
  const auto& event = static_cast<const VulkanEvent&>(e);
  if (!event.batch || event.batch == open_) return;
  event.batch->submit();  // what this stream submits from now on runs behind it
}
void VulkanQueue::wait() {
  std::lock_guard lock(b_.mutex);
  if (open_) {
    auto last = std::move(open_);
    last->submit();
    submitted_.push_back(std::move(last));
  }
  while (!submitted_.empty()) {
    const auto oldest = submitted_.front();
    submitted_.pop_front();
    oldest->finish();
    free_.push_back(std::move(oldest->resources));
  }
}
bool VulkanQueue::complete() {
  std::lock_guard lock(b_.mutex);
  if (open_) {
    open_->submit();
    submitted_.push_back(std::move(open_));
  }
  while (!submitted_.empty() && submitted_.front()->complete()) retire();
  return submitted_.empty();
}

DeviceInfo describe(const vulkan::PhysicalDevice& p, const ShaderSpec& spec) {
  DeviceInfo i = shader_device_info(DeviceKind::vulkan, spec);
  i.name = p.name;
  i.memory_bytes = p.local_memory;
  i.max_threads_per_block = int(std::min<std::uint32_t>(p.max_block_threads, 1024));
  i.max_threads_per_sm = std::max(i.max_threads_per_block, 1024);
  // Grids that should fill the device are made from this number. Vulkan itself does not tell it.
  i.sm_count = p.sm_count       ? int(*p.sm_count)
               : p.type == kCpu ? std::max(1, int(std::thread::hardware_concurrency()))
                                : 16;
  i.max_block = {p.max_block[0], p.max_block[1], p.max_block[2]};
  i.max_grid = {p.max_grid[0], p.max_grid[1], p.max_grid[2]};
  i.smem_per_block = i.smem_per_block_optin = i.smem_per_sm = p.max_shared_memory;
  return i;
}

}  // namespace

std::shared_ptr<Backend> open_vulkan(const ShaderSpec& spec) {
  const auto api = vulkan::Api::get();
  const auto all = vulkan::physical_devices(*api);
  if (std::size_t(spec.ordinal) >= all.size())
    throw Unsupported({cat("there is no device vulkan:", spec.ordinal),
                       {},
                       cat("the Vulkan loader lists ", all.size()),
                       "cgp doctor lists devices; VK_ICD_FILENAMES names a driver's file"});
  const auto& p = all[std::size_t(spec.ordinal)];
  return std::make_shared<VulkanBackend>(std::make_shared<const vulkan::Device>(api, p), describe(p, spec));
}

std::vector<DeviceInfo> vulkan_devices() {
  std::vector<DeviceInfo> out;
  try {
    for (const auto& p : vulkan::physical_devices(*vulkan::Api::get()))
      out.push_back(describe(p, {int(out.size()), std::string(kShaderArch)}));
  } catch (const Error&) {  // no loader or no driver
  }
  return out;
}

}  // namespace cgp::runtime
