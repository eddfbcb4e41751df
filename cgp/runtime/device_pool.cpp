// SPDX-License-Identifier: Apache-2.0
#include "cgp/runtime/device_pool.h"

#include <list>

#include "cgp/base/text.h"
#include "cgp/runtime/backend_impl.h"

namespace cgp::runtime {
namespace {
PoolOptions shared(PoolOptions o) {
  o.thread_safe = true;
  return o;
}
}  // namespace

// Buffers hold the source, so the block lives until the last of them is gone.
class DevicePool::Source final : public MemorySource {
 public:
  Source(const Device& device, std::uint64_t bytes, PoolOptions o)
      : device(device),
        pages(bytes, shared(std::move(o))),
        block(Memory::alloc(device, pages.stats().pages, pages.page_bytes())) {}

  void release(std::uint64_t address) noexcept override {
    try {
      std::lock_guard lock(mutex);
      auto it = by_address.find(address);
      if (it == by_address.end()) throw ArgumentError("this address is not the pool's");
      const std::uint64_t id = it->second;
      by_address.erase(it);
      pages.free(id);
    } catch (const std::exception& e) {
      log(text::cat("returning memory to a pool: ", e.what()));
    }
  }

  std::uint64_t take(std::size_t bytes, const Queue* stream) {
    std::lock_guard lock(mutex);
    if (stream)
      if (const auto id = reuse(bytes, stream)) return *id;
    collect();
    while (true) {
      try {
        return pages.allocate(bytes).id;
      } catch (const PoolError& e) {
        const bool waiting_helps = e.kind() == PoolFailure::exhausted || e.kind() == PoolFailure::fragmented;
        if (!waiting_helps || later.empty()) throw;
        later.front().event.wait();
        collect();
      }
    }
  }

  struct Release {
    std::uint64_t id, pages;
    const Queue* stream;
    Event event;
  };
  // Pages of equal number that the same stream has given back: its later work comes after its earlier work.
  std::optional<std::uint64_t> reuse(std::size_t bytes, const Queue* stream) {
    const std::uint64_t count = bytes ? (bytes - 1) / pages.page_bytes() + 1 : 0;
    for (auto it = later.begin(); it != later.end(); ++it)
      if (it->stream == stream && it->pages == count) {
        const std::uint64_t id = it->id;
        later.erase(it);
        return id;
      }
    return std::nullopt;
  }
  void collect() {
    for (auto it = later.begin(); it != later.end();)
      if (it->event.is_complete()) {
        pages.free(it->id);
        it = later.erase(it);
      } else {
        ++it;
      }
  }

  Device device;
  PagePool pages;
  Memory block;
  std::mutex mutex;
  std::map<std::uint64_t, std::uint64_t> by_address;  // of live buffers
  std::list<Release> later;                           // oldest first
};

DevicePool::DevicePool(const Device& device, std::uint64_t bytes, PoolOptions options)
    : source_(std::make_shared<Source>(device, bytes, std::move(options))) {
  if (source_->block.address() % 256 || source_->pages.page_bytes() % 256)
    throw ArgumentError({"pages of a device pool are multiples of 256 bytes, as device allocations are",
                         {},
                         text::cat("page_bytes is ", source_->pages.page_bytes()),
                         {}});
}
std::size_t DevicePool::byte_count(std::size_t count, std::size_t element_bytes) {
  return detail::checked_bytes(count, element_bytes);
}
Memory DevicePool::take(std::size_t bytes, Stream* stream) {
  if (bytes == 0) return Memory(source_->device, source_, 0, 0);
  if (stream && stream->backend() != source_->device.backend().get())
    throw ArgumentError("a pool gives memory to streams of its own device");
  const std::uint64_t id = source_->take(bytes, stream ? &stream->queue() : nullptr);
  const PageAllocation a = source_->pages.find(id);
  const std::uint64_t address = source_->block.address() + a.offset;
  std::lock_guard lock(source_->mutex);
  source_->by_address[address] = id;
  return Memory(source_->device, source_, address, bytes);
}
void DevicePool::release_memory(Memory memory, Stream& stream) {
  if (memory.bytes() == 0) return;
  Event e(source_->device);
  stream.record(e);
  std::lock_guard lock(source_->mutex);
  auto it = source_->by_address.find(memory.address());
  if (it == source_->by_address.end()) throw ArgumentError("a pool takes back only what it gave");
  source_->later.push_back(
      {it->second, source_->pages.find(it->second).pages, &stream.queue(), std::move(e)});
  source_->by_address.erase(it);
  memory.disown();  // the page may be somebody else's from here on
}
PoolStats DevicePool::stats() const { return source_->pages.stats(); }
std::size_t DevicePool::pending() const {
  std::lock_guard lock(source_->mutex);
  return source_->later.size();
}

}  // namespace cgp::runtime
