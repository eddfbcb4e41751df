// SPDX-License-Identifier: Apache-2.0
// A WebGPU device: kernels as WGSL, launches as passes of one queue. WebGPU has no addresses: what stands for one is a place in a
// range of numbers that this file gives out, 256 bytes apart at least; a launch turns it into a binding and an offset.
// Copies to the host are done at once; WebGPU copies whole words, so edges of words are read, changed and written.
#include <algorithm>
#include <cstring>
#include <thread>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/runtime/shader/shader_backend_impl.h"
#include "cgp/wgpu/device.h"

namespace cgp::runtime {
namespace {
using text::cat;
using wgpu::Owned;

constexpr wgpu::Flags kMemory = wgpu::kStorage | wgpu::kCopySource | wgpu::kCopyDestination;
constexpr std::uint32_t kTimestamps = 64;
constexpr int kPassesOfBatch = 64;
constexpr std::uint64_t kFillBytes = 1 << 20;

class WgpuBackend;

std::uint64_t rounded(std::uint64_t n, std::uint64_t to) { return (n + to - 1) / to * to; }

struct Allocation {
  Owned buffer;
  std::uint64_t bytes = 0;  // as asked for; the buffer has the next multiple of 16
};

/// Commands until the next submission.
struct WgpuBatch {
  explicit WgpuBatch(const wgpu::Device& d) : encoder(d.encoder()) {}
  Owned encoder;  // empty: submitted
  Owned ticks;    // timestamps, once submitted
  std::uint32_t timestamps = 0;
  int passes = 0;
};

class WgpuCode final : public ShaderCode {
 public:
  WgpuCode(WgpuBackend& b, const KernelImage& image);
  struct Built {
    shader::Shader shader;
    Owned pipeline, layout;  // made at the first launch
  };
  /// `block`: the packed arguments, whose pointers become binding and offset; `entries`: what is bound.
  const Built& prepare(const Shape& s, std::vector<std::byte>& block,
                       std::vector<wgpu::BindGroupEntry>& entries, std::vector<Owned>& keep) const;
  std::vector<std::byte> arguments(std::span<const Arg> args) const { return pack(args, first_.block_bytes); }

 private:
  WgpuBackend& owner_;
  shader::Shader first_;  // as the image says; its parameters are those of all
  mutable std::map<std::vector<std::uint32_t>, Built> built_;  // by block, dynamic shared memory and buffers
};

class WgpuEvent final : public EventState {
 public:
  explicit WgpuEvent(WgpuBackend& b) : b_(b) {}
  double milliseconds_since(const EventState& start) const override;
  void wait() const override;
  bool complete() const override;
  std::shared_ptr<WgpuBatch> batch;
  std::uint32_t index = 0;

 private:
  std::uint64_t tick() const;
  WgpuBackend& b_;
};

class WgpuQueue final : public ShaderQueue {
 public:
  explicit WgpuQueue(WgpuBackend& b);
  ~WgpuQueue() override;
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
  void submit();

 private:
  WgpuBatch& batch();
  WgpuBackend& b_;
  std::shared_ptr<WgpuBatch> open_;
};

class WgpuBackend final : public ShaderBackend {
 public:
  WgpuBackend(wgpu::DevicePtr device, DeviceInfo info) : device(std::move(device)) {
    info_ = std::move(info);
    if (this->device->adapter.timestamps) {
      wgpu::QuerySetDescriptor q;
      q.count = kTimestamps;
      queries = Owned(api().wgpuDeviceCreateQuerySet(this->device->handle, &q), api().wgpuQuerySetRelease);
      this->device->check("wgpuDeviceCreateQuerySet");
    }
  }
  ~WgpuBackend() override {
    copies_.reset();
    drop_children();
  }
  std::uint64_t alloc(std::size_t bytes, std::string_view name) override {
    std::lock_guard lock(mutex);
    if (bytes > device->adapter.max_buffer)
      throw Unsupported(
          {cat("a buffer of ", info_.spec, " has at most ", text::bytes(device->adapter.max_buffer)),
           {},
           cat(text::bytes(bytes), " wanted", name.empty() ? "" : cat(" for ", name)),
           {}});
    Allocation a{device->buffer(rounded(bytes, 16), kMemory, std::string(name)), bytes};
    const std::uint64_t address = next_;
    next_ += rounded(bytes, 256) + 256;
    used_ += bytes;
    allocations_.emplace(address, std::move(a));
    return address;
  }
  void release(std::uint64_t address) noexcept override {
    std::lock_guard lock(mutex);
    const auto it = allocations_.find(address);
    if (it == allocations_.end()) return;
    used_ -= it->second.bytes;
    allocations_.erase(it);  // WebGPU keeps what queued work uses
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
  std::unique_ptr<Queue> make_queue() override { return std::make_unique<WgpuQueue>(*this); }
  std::shared_ptr<EventState> make_event() override { return std::make_shared<WgpuEvent>(*this); }
  void sync() override {
    std::lock_guard lock(mutex);
    for (WgpuQueue* q : queues) q->submit();
    device->wait();
  }
  std::unique_ptr<Code> make_code(const KernelImage& image) override {
    return std::make_unique<WgpuCode>(*this, image);
  }

  struct Place {
    std::uint64_t base = 0;  // of the allocation
    const Allocation* allocation = nullptr;
    std::uint64_t offset = 0;
  };
  /// The allocation that `address` lies in or is the end of; null if there is none.
  Place look_up(std::uint64_t address) const {
    auto it = allocations_.upper_bound(address);
    if (it == allocations_.begin()) return {};
    --it;
    if (address - it->first > it->second.bytes) return {};
    return {it->first, &it->second, address - it->first};
  }
  Place find(std::uint64_t address, std::uint64_t bytes) const {
    const Place p = look_up(address);
    if (p.allocation && bytes <= p.allocation->bytes - p.offset) return p;
    throw ArgumentError({cat("a copy on ", info_.spec, " must lie inside one buffer"),
                         {},
                         cat(bytes, " bytes at ", text::hex(address)),
                         {}});
  }
  /// Submits the batch; its timestamps go into a buffer of its own.
  void submit(WgpuBatch& b) {
    if (!b.encoder) return;
    Owned encoder = std::move(b.encoder);
    if (b.timestamps) {
      const std::uint64_t bytes = 8 * b.timestamps;
      const Owned resolved = device->buffer(bytes, wgpu::kQueryResolve | wgpu::kCopySource);
      b.ticks = device->buffer(bytes, wgpu::kMapRead | wgpu::kCopyDestination);
      api().wgpuCommandEncoderResolveQuerySet(encoder.get(), queries.get(), 0, b.timestamps, resolved.get(),
                                              0);
      api().wgpuCommandEncoderCopyBufferToBuffer(encoder.get(), resolved.get(), 0, b.ticks.get(), 0, bytes);
      device->submit(std::move(encoder));
      return;
    }
    device->submit(std::move(encoder));
  }
  void count(double milliseconds) { ++counts_.jit_compilations, counts_.jit_milliseconds += milliseconds; }
  const wgpu::Api& api() const { return *device->api; }

  const wgpu::DevicePtr device;
  mutable std::recursive_mutex mutex;  // a wgpu::Device is for one thread at a time
  std::vector<WgpuQueue*> queues;
  Owned queries;  // one batch at a time writes them

 private:
  template <class F>
  void blocking(F&& work) {
    std::lock_guard lock(mutex);
    sync();
    if (!copies_) copies_ = std::make_unique<WgpuQueue>(*this);
    work(*copies_);
    copies_->wait();
  }
  std::map<std::uint64_t, Allocation> allocations_;
  std::uint64_t next_ = std::uint64_t(1) << 40, used_ = 0;
  std::unique_ptr<WgpuQueue> copies_;
};

// ---------------------------------------------------------------- code
WgpuCode::WgpuCode(WgpuBackend& b, const KernelImage& image) : ShaderCode(b, image), owner_(b) {
  const shader::ShaderOptions o = options();
  first_ = translate(o, true);  // what cannot be translated is refused here, not at a launch
  static_smem = first_.needs.shared_bytes - std::min(first_.needs.shared_bytes, o.dynamic_shared);
}
const WgpuCode::Built& WgpuCode::prepare(const Shape& shape, std::vector<std::byte>& block,
                                         std::vector<wgpu::BindGroupEntry>& entries,
                                         std::vector<Owned>& keep) const {
  const wgpu::Device& d = *owner_.device;
  // Pointers into one allocation share a binding: WebGPU allows no buffer twice if it is written.
  struct Pointer {
    std::uint64_t address;
    WgpuBackend::Place place;
  };
  std::vector<Pointer> pointers;
  shader::ShaderOptions o;
  o.block = {shape.block.x, shape.block.y, shape.block.z};
  o.dynamic_shared = shape.dynamic_smem;
  for (const shader::Parameter& p : first_.parameters) {
    if (p.kind != shader::Parameter::Kind::pointer) continue;
    Pointer q{};
    std::memcpy(&q.address, block.data() + p.offset, 8);
    if (q.address) q.place = owner_.look_up(q.address);
    std::uint32_t group = std::uint32_t(pointers.size());
    for (std::uint32_t k = 0; k < pointers.size() && q.place.allocation; ++k)
      if (pointers[k].place.allocation == q.place.allocation) {
        group = k;
        break;
      }
    pointers.push_back(q);
    o.buffers.push_back(group);
  }
  std::vector<std::uint32_t> key = o.buffers;
  key.insert(key.end(), {o.block[0], o.block[1], o.block[2], o.dynamic_shared});
  auto it = built_.find(key);
  if (it == built_.end()) {
    Built b;
    b.shader = translate(o, true);
    if (b.shader.needs.storage_buffers > d.adapter.max_storage_buffers)
      throw Unsupported({cat("kernel ", image.name, " does not run on ", owner_.info().spec),
                         {},
                         cat("it uses ", b.shader.needs.storage_buffers, " buffers, the device binds ",
                             d.adapter.max_storage_buffers),
                         {}});
    const auto begin = std::chrono::steady_clock::now();
    b.pipeline = d.pipeline(b.shader.wgsl, b.shader.entry);
    owner_.count(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
    b.layout = Owned(owner_.api().wgpuComputePipelineGetBindGroupLayout(b.pipeline.get(), 0),
                     owner_.api().wgpuBindGroupLayoutRelease);
    it = built_.emplace(std::move(key), std::move(b)).first;
  }
  const Built& b = it->second;

  std::size_t k = 0;
  for (const shader::Parameter& p : b.shader.parameters) {
    if (p.kind != shader::Parameter::Kind::pointer) continue;
    const Pointer& q = pointers[k];
    const std::uint32_t group = o.buffers[k++];
    std::uint32_t words[2] = {0, 0};
    wgpu::BindGroupEntry e;
    e.binding = p.binding;
    if (q.place.allocation) {
      // All of the allocation, or as much as a binding may have, from the lowest address that the launch names on.
      const std::uint64_t limit =
          std::min<std::uint64_t>(d.adapter.max_storage_binding, 0xfffffff0u) / 16 * 16;
      const std::uint64_t size = rounded(q.place.allocation->bytes, 16);
      std::uint64_t start = 0;
      if (size > limit) {
        start = q.place.offset;
        for (std::size_t j = 0; j < pointers.size(); ++j)
          if (o.buffers[j] == group) start = std::min(start, pointers[j].place.offset);
        start = start / 256 * 256;
      }
      e.buffer = q.place.allocation->buffer.get();
      e.offset = start;
      e.size = std::min(size - start, limit);
      words[0] = std::uint32_t(q.place.offset - start);
      words[1] = 1;
    } else if (p.binding) {
      keep.push_back(d.buffer(256, wgpu::kStorage));
      e.buffer = keep.back().get();
      e.size = 256;
    }
    std::memcpy(block.data() + p.offset, words, 8);
    const bool bound =
        std::any_of(entries.begin(), entries.end(), [&](const auto& x) { return x.binding == p.binding; });
    if (p.binding && !bound) entries.push_back(e);
  }
  return b;
}

// ---------------------------------------------------------------- events
std::uint64_t WgpuEvent::tick() const {
  if (!batch) throw ArgumentError("time passes between events that were recorded");
  b_.submit(*batch);
  if (!batch->ticks)
    throw Unsupported(
        {cat(b_.info().spec, " has no timestamps"), {}, "the adapter lacks timestamp-query", {}});
  std::vector<std::uint64_t> ticks(batch->timestamps);
  b_.device->read(batch->ticks.get(), std::as_writable_bytes(std::span(ticks)));
  return ticks[index];
}
double WgpuEvent::milliseconds_since(const EventState& start) const {
  std::lock_guard lock(b_.mutex);
  const std::uint64_t ticks = tick() - static_cast<const WgpuEvent&>(start).tick();
  return double(std::int64_t(ticks)) * b_.device->timestamp_period * 1e-6;
}
void WgpuEvent::wait() const {
  std::lock_guard lock(b_.mutex);
  if (!batch) return;
  b_.submit(*batch);
  b_.device->wait();
}
bool WgpuEvent::complete() const {
  wait();  // WebGPU tells only that all submitted work is done
  return true;
}

// ---------------------------------------------------------------- queue
WgpuQueue::WgpuQueue(WgpuBackend& b) : ShaderQueue(b), b_(b) {
  std::lock_guard lock(b_.mutex);
  b_.queues.push_back(this);
}
WgpuQueue::~WgpuQueue() {
  std::lock_guard lock(b_.mutex);
  std::erase(b_.queues, this);
  try {
    wait();
  } catch (const std::exception& e) {
    log(cat("a stream was destroyed before this was reported: ", e.what()));
  }
}
WgpuBatch& WgpuQueue::batch() {
  if (open_ && (!open_->encoder || open_->passes >= kPassesOfBatch)) submit();
  if (!open_) open_ = std::make_shared<WgpuBatch>(*b_.device);
  ++open_->passes;
  return *open_;
}
void WgpuQueue::submit() {
  std::lock_guard lock(b_.mutex);
  if (const auto batch = std::exchange(open_, nullptr)) b_.submit(*batch);
}
void WgpuQueue::copy_to_device(std::uint64_t dst, const void* src, std::size_t n) {
  std::lock_guard lock(b_.mutex);
  const auto to = b_.find(dst, n);
  submit();  // what the queue writes comes behind what was submitted
  const std::uint64_t begin = to.offset / 4 * 4, end = rounded(to.offset + n, 4);
  if (begin == to.offset && end == to.offset + n) {
    b_.api().wgpuQueueWriteBuffer(b_.device->queue, to.allocation->buffer.get(), begin, src, n);
  } else {
    std::vector<std::byte> words(end - begin);
    const std::uint64_t known = std::min(end, to.allocation->bytes) - begin;
    copy_to_host(words.data(), dst - (to.offset - begin), known);
    std::memcpy(words.data() + (to.offset - begin), src, n);
    b_.api().wgpuQueueWriteBuffer(b_.device->queue, to.allocation->buffer.get(), begin, words.data(),
                                  words.size());
  }
  b_.device->check("wgpuQueueWriteBuffer", text::bytes(n));
}
void WgpuQueue::copy_to_host(void* dst, std::uint64_t src, std::size_t n) {
  std::lock_guard lock(b_.mutex);
  const auto from = b_.find(src, n);
  const std::uint64_t begin = from.offset / 4 * 4, end = rounded(from.offset + n, 4);
  const Owned staging = b_.device->buffer(end - begin, wgpu::kMapRead | wgpu::kCopyDestination);
  b_.api().wgpuCommandEncoderCopyBufferToBuffer(batch().encoder.get(), from.allocation->buffer.get(), begin,
                                                staging.get(), 0, end - begin);
  submit();
  std::vector<std::byte> words(end - begin);
  b_.device->read(staging.get(), words);
  std::memcpy(dst, words.data() + (from.offset - begin), n);
}
void WgpuQueue::copy(std::uint64_t dst, std::uint64_t src, std::size_t n) {
  std::lock_guard lock(b_.mutex);
  const auto from = b_.find(src, n), to = b_.find(dst, n);
  if (from.offset % 4 == 0 && to.offset % 4 == 0 && n % 4 == 0 && from.allocation != to.allocation) {
    b_.api().wgpuCommandEncoderCopyBufferToBuffer(batch().encoder.get(), from.allocation->buffer.get(),
                                                  from.offset, to.allocation->buffer.get(), to.offset, n);
    return;
  }
  std::vector<std::byte> host(n);
  copy_to_host(host.data(), src, n);
  copy_to_device(dst, host.data(), n);
}
void WgpuQueue::copy_2d(const Copy2d& c) {
  std::lock_guard lock(b_.mutex);
  for (std::size_t row = 0; row < c.height; ++row) {
    const std::uint64_t d = c.dst + row * c.dst_pitch, s = c.src + row * c.src_pitch;
    if (c.host_src)
      copy_to_device(d, static_cast<const std::byte*>(c.host_src) + row * c.src_pitch, c.width);
    else if (c.host_dst)
      copy_to_host(static_cast<std::byte*>(c.host_dst) + row * c.dst_pitch, s, c.width);
    else
      copy(d, s, c.width);
  }
}
void WgpuQueue::fill(std::uint64_t dst, std::uint8_t value, std::size_t n) {
  std::lock_guard lock(b_.mutex);
  const auto to = b_.find(dst, n);
  const wgpu::Handle buffer = to.allocation->buffer.get();
  if (n < kFillBytes && (value || to.offset % 4 || n % 4)) {
    const std::vector<std::uint8_t> bytes(n, value);
    copy_to_device(dst, bytes.data(), n);
    return;
  }
  const std::uint64_t begin = rounded(to.offset, 4), end = (to.offset + n) / 4 * 4;
  if (begin > to.offset) fill(dst, value, begin - to.offset);
  if (value == 0) {
    b_.api().wgpuCommandEncoderClearBuffer(batch().encoder.get(), buffer, begin, end - begin);
  } else {
    const std::vector<std::byte> pattern(kFillBytes, std::byte(value));
    const Owned some = b_.device->buffer_of(pattern, wgpu::kCopySource);
    for (std::uint64_t at = begin; at < end; at += kFillBytes)
      b_.api().wgpuCommandEncoderCopyBufferToBuffer(batch().encoder.get(), some.get(), 0, buffer, at,
                                                    std::min(kFillBytes, end - at));
  }
  if (to.offset + n > end) fill(dst + (end - to.offset), value, to.offset + n - end);
}
void WgpuQueue::launch(const Code& code, const Shape& shape, std::span<const Arg> args) {
  std::lock_guard lock(b_.mutex);
  const auto& c = static_cast<const WgpuCode&>(code);
  const wgpu::Api& api = b_.api();
  std::vector<std::byte> block = c.arguments(args);
  std::vector<wgpu::BindGroupEntry> entries;
  std::vector<Owned> keep;
  const WgpuCode::Built& built = c.prepare(shape, block, entries, keep);
  if (!block.empty()) {
    keep.push_back(b_.device->buffer_of(block, wgpu::kUniform));
    wgpu::BindGroupEntry e;
    e.buffer = keep.back().get();
    e.size = block.size();
    entries.push_back(e);
  }
  wgpu::BindGroupDescriptor d;
  d.layout = built.layout.get();
  d.entry_count = entries.size();
  d.entries = entries.data();
  const Owned group(api.wgpuDeviceCreateBindGroup(b_.device->handle, &d), api.wgpuBindGroupRelease);
  b_.device->check("wgpuDeviceCreateBindGroup", c.image.name);
  const Owned pass(api.wgpuCommandEncoderBeginComputePass(batch().encoder.get(), nullptr),
                   api.wgpuComputePassEncoderRelease);
  api.wgpuComputePassEncoderSetPipeline(pass.get(), built.pipeline.get());
  api.wgpuComputePassEncoderSetBindGroup(pass.get(), 0, group.get(), 0, nullptr);
  api.wgpuComputePassEncoderDispatchWorkgroups(pass.get(), shape.grid.x, shape.grid.y, shape.grid.z);
  api.wgpuComputePassEncoderEnd(pass.get());
  b_.device->check("wgpuComputePassEncoderEnd", c.image.name);
}
void WgpuQueue::record(EventState& e) {
  std::lock_guard lock(b_.mutex);
  auto& event = static_cast<WgpuEvent&>(e);
  if (batch().timestamps == kTimestamps) submit(), batch();
  if (b_.queries) {
    // The other streams' batches write the same queries: those that have some go first.
    for (WgpuQueue* q : b_.queues)
      if (q != this && q->open_ && q->open_->timestamps) q->submit();
    event.index = open_->timestamps++;
    wgpu::PassTimestampWrites writes;
    writes.queries = b_.queries.get();
    writes.end = event.index;
    wgpu::ComputePassDescriptor d;
    d.timestamps = &writes;
    const Owned pass(b_.api().wgpuCommandEncoderBeginComputePass(open_->encoder.get(), &d),
                     b_.api().wgpuComputePassEncoderRelease);
    b_.api().wgpuComputePassEncoderEnd(pass.get());
    b_.device->check("wgpuCommandEncoderBeginComputePass");
  }
  event.batch = open_;
}
void WgpuQueue::wait_for(const EventState& e) {
  std::lock_guard lock(b_.mutex);
  const auto& event = static_cast<const WgpuEvent&>(e);
  if (event.batch && event.batch != open_)
    b_.submit(*event.batch);  // what this stream submits from now on runs behind it
}
void WgpuQueue::wait() {
  std::lock_guard lock(b_.mutex);
  submit();
  b_.device->wait();
}
bool WgpuQueue::complete() {
  wait();  // WebGPU tells only that all submitted work is done
  return true;
}

DeviceInfo describe(const wgpu::Adapter& a, const ShaderSpec& spec) {
  DeviceInfo i = shader_device_info(DeviceKind::wgpu, spec);
  i.name = a.name;
  i.memory_bytes = a.max_buffer;  // WebGPU does not tell how much there is
  i.max_threads_per_block = int(std::min<std::uint32_t>(a.max_block_threads, 1024));
  i.max_threads_per_sm = std::max(i.max_threads_per_block, 1024);
  i.sm_count = a.cpu ? std::max(1, int(std::thread::hardware_concurrency())) : 16;
  i.max_block = {a.max_block[0], a.max_block[1], a.max_block[2]};
  i.max_grid = {a.max_grid, a.max_grid, a.max_grid};
  i.smem_per_block = i.smem_per_block_optin = i.smem_per_sm = a.max_shared_memory;
  return i;
}

}  // namespace

std::shared_ptr<Backend> open_wgpu(const ShaderSpec& spec) {
  auto device = std::make_shared<const wgpu::Device>(wgpu::Api::get(), std::size_t(spec.ordinal));
  DeviceInfo info = describe(device->adapter, spec);
  return std::make_shared<WgpuBackend>(std::move(device), std::move(info));
}

std::vector<DeviceInfo> wgpu_devices() {
  std::vector<DeviceInfo> out;
  try {
    for (const auto& a : wgpu::adapters(*wgpu::Api::get()))
      out.push_back(describe(a, {int(out.size()), std::string(kShaderArch)}));
  } catch (const Error&) {  // no library
  }
  return out;
}

}  // namespace cgp::runtime
