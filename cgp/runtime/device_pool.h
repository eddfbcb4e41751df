// SPDX-License-Identifier: Apache-2.0
#pragma once
// Buffers out of one block of device memory that was allocated once: page_pool.h decides where they lie.
//
//   DevicePool pool(device, 1 << 30);
//   Buffer<float> a = pool.alloc<float>(n);          // returns its pages when destroyed: only after its work
//   is done Buffer<float> t = pool.alloc<float>(n, stream);  // may take over pages that `stream` itself has
//   given back pool.release(std::move(t), stream);              // now, although the stream still uses them
#include <memory>

#include "cgp/runtime/buffer.h"
#include "cgp/runtime/page_pool.h"
#include "cgp/runtime/stream.h"

namespace cgp::runtime {

class DevicePool {
 public:
  /// Thread-safe whatever `options` says.
  DevicePool(const Device& device, std::uint64_t bytes, PoolOptions options = {});

  template <class T>
  Buffer<T> alloc(std::size_t count) {
    return Buffer<T>(take(byte_count(count, sizeof(T)), nullptr), count);
  }
  /// For work on this stream only: pages it released are taken over without waiting, in stream order. When
  /// nothing else is left, waits for other streams' releases.
  template <class T>
  Buffer<T> alloc(std::size_t count, Stream& stream) {
    return Buffer<T>(take(byte_count(count, sizeof(T)), &stream), count);
  }
  /// Gives pages back in stream order: other users get them when the stream has passed this point.
  template <class T>
  void release(Buffer<T>&& buffer, Stream& stream) {
    release_memory(std::move(buffer).into_memory(), stream);
  }
  PoolStats stats() const;
  std::size_t pending() const;  ///< releases that no stream has passed yet, as far as looked

 private:
  class Source;
  static std::size_t byte_count(std::size_t count, std::size_t element_bytes);
  Memory take(std::size_t bytes, Stream* stream);
  void release_memory(Memory memory, Stream& stream);
  std::shared_ptr<Source> source_;
};

}  // namespace cgp::runtime
