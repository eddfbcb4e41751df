// SPDX-License-Identifier: Apache-2.0
#pragma once
// Stream: work in issue order. Host functions of kernels take a Stream&, put launches and copies on it, and
// return; the caller waits. typed_stream.h wraps one in a protocol the compiler checks.
//
//   void vecadd(Stream& s, const Buffer<float>& a, const Buffer<float>& b, Buffer<float>& c);
//   vecadd(s, a, b, c);  s.download(c, host);  s.wait();
//
// A GPU works while the host goes on. The emulator does each piece of work at once, in issue order; what it
// finds is thrown by wait(), as a GPU's errors are.
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "cgp/runtime/buffer.h"

namespace cgp::runtime {

class Queue;
class EventState;
class GraphState;
class Stream;

/// A point in a stream's work.
class Event {
 public:
  explicit Event(const Device& device);
  /// Milliseconds from `start` to this one, both recorded and complete (waits for them). Unsupported on the
  /// emulator, which has no clock.
  double milliseconds_since(const Event& start) const;
  void wait() const;         ///< blocks the host
  bool is_complete() const;  ///< true if never recorded
  const Device& device() const { return device_; }
  EventState& state() const { return *state_; }

 private:
  Device device_;
  std::shared_ptr<EventState> state_;
};

/// Recorded work that can be issued again with one call. Arguments and addresses are as they were recorded;
/// buffers it uses must outlive it.
class Graph {
 public:
  Graph() = default;
  Graph(Device device, std::shared_ptr<GraphState> state)
      : device_(std::move(device)), state_(std::move(state)) {}
  std::size_t size() const;  ///< pieces of work
  GraphState& state() const;

 private:
  Device device_;
  std::shared_ptr<GraphState> state_;
};

class Stream {
 public:
  explicit Stream(const Device& device);
  /// A stream (CUstream, null: the default one) that another library made in the device's primary context, as
  /// PyTorch's are. It must outlive this object, whose destruction does not wait for its work. Unsupported on
  /// the emulator.
  static Stream borrow(const Device& device, void* native);
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;
  ~Stream();  ///< waits; problems are logged (set_log), not thrown

  Device device() const;

  // ---- copies. Lengths must agree. Host memory must stay valid until wait().
  template <class T>
  Stream& upload(Slice<T> dst, std::type_identity_t<std::span<const T>> host) {
    detail::check_copy(dst.size(), host.size());
    return copy_to_device(dst.region(), host.data());
  }
  template <class T>
  Stream& upload(Buffer<T>& dst, std::type_identity_t<std::span<const T>> host) {
    return upload(dst.all(), host);
  }
  template <class T>
  Stream& download(const Slice<T>& src, std::span<std::remove_const_t<std::type_identity_t<T>>> host) {
    detail::check_copy(host.size(), src.size());
    return copy_to_host(host.data(), src.region());
  }
  template <class T>
  Stream& download(const Buffer<T>& src, std::type_identity_t<std::span<T>> host) {
    return download(src.all(), host);
  }
  template <class T>
  Stream& copy(Slice<T> dst, std::type_identity_t<Slice<const T>> src) {
    detail::check_copy(dst.size(), src.size());
    return copy_on_device(dst.region(), src.region());
  }
  template <class T>
  Stream& copy(Buffer<T>& dst, const Buffer<T>& src) {
    return copy(dst.all(), src.all());
  }
  /// Rows of `width` elements; pitches in elements, at least width.
  template <class T>
  Stream& copy_2d(Slice<T> dst, std::size_t dst_pitch, std::type_identity_t<Slice<const T>> src,
                  std::size_t src_pitch, std::size_t width, std::size_t height) {
    return copy_2d_bytes(dst.region(), nullptr, dst_pitch * sizeof(T), src.region(), nullptr,
                         src_pitch * sizeof(T), width * sizeof(T), height);
  }
  template <class T>
  Stream& upload_2d(Slice<T> dst, std::size_t dst_pitch, std::type_identity_t<std::span<const T>> src,
                    std::size_t src_pitch, std::size_t width, std::size_t height) {
    check_2d(src.size(), src_pitch, width, height);
    return copy_2d_bytes(dst.region(), nullptr, dst_pitch * sizeof(T), {}, const_cast<T*>(src.data()),
                         src_pitch * sizeof(T), width * sizeof(T), height);
  }
  template <class T>
  Stream& download_2d(const Slice<T>& src, std::size_t src_pitch,
                      std::span<std::remove_const_t<std::type_identity_t<T>>> dst, std::size_t dst_pitch,
                      std::size_t width, std::size_t height) {
    check_2d(dst.size(), dst_pitch, width, height);
    return copy_2d_bytes({}, dst.data(), dst_pitch * sizeof(T), src.region(), nullptr, src_pitch * sizeof(T),
                         width * sizeof(T), height);
  }
  template <class T>
  Stream& zero(Buffer<T>& dst) {
    return fill(dst.all().region(), 0);
  }
  template <class T>
  Stream& zero(const Slice<T>& dst) {
    return fill(dst.region(), 0);
  }
  Stream& fill(Region dst, std::uint8_t value);

  // ---- order and time
  Stream& record(Event& event);
  Stream& wait_for(const Event& event);  ///< later work of this stream waits for the event; the host does not
  /// Blocks the host until all is done; throws the first thing that went wrong (EmuFault, DriverError).
  void wait();
  bool is_complete() const;  ///< never blocks; throws like wait() if something went wrong

  /// Device memory for the work that is put on this stream: `bytes` of it at a 256-byte boundary, shared by
  /// all who ask, in stream order. Growing waits for the stream, and is refused (Unsupported) while work is
  /// recorded: ask once before. Valid until the stream ends; a graph that uses it must be replayed on this
  /// stream.
  std::uint64_t scratch(std::size_t bytes);
  /// Scratch memory comes from here instead: called at every scratch(), it returns the address of `bytes`
  /// bytes at a 256-byte boundary that stay valid for what is put on the stream until the next call. For
  /// callers with an allocator of their own, and for graphs that they record.
  void set_scratch_source(std::function<std::uint64_t(std::size_t bytes)> source);

  // ---- graphs
  /// What `work` puts on this stream, and on streams that wait for its events, is recorded instead of done.
  /// Host memory of recorded copies is read or written at each replay.
  Graph capture(const std::function<void(Stream&)>& work);
  Stream& replay(const Graph& graph);

  // For the other parts of the runtime:
  /// The driver's handle (CUstream), for other libraries that queue work on it; the device's context is made
  /// current on the calling thread. Null on the emulator.
  void* native_handle() const;
  Queue& queue() const;
  const Backend* backend() const { return backend_; }

 private:
  Stream& copy_to_device(Region dst, const void* src);
  Stream& copy_to_host(void* dst, Region src);
  Stream& copy_on_device(Region dst, Region src);
  static void check_2d(std::size_t size, std::size_t pitch, std::size_t width, std::size_t height);
  Stream& copy_2d_bytes(Region dst, void* host_dst, std::size_t dst_pitch, Region src, void* host_src,
                        std::size_t src_pitch, std::size_t width, std::size_t height);
  friend class Backend;
  Stream(Backend& owner,
         std::unique_ptr<Queue> queue);  // a device's own stream does not keep the device alive
  struct Scratch {  // freed with the stream; graphs may use what later turned out too small
    std::vector<std::uint64_t> addresses;
    std::size_t bytes = 0;  ///< of the last
    bool recorded = false;
  };
  void release_scratch() noexcept;
  Backend* backend_ = nullptr;
  std::shared_ptr<Backend> keep_;
  std::unique_ptr<Queue> queue_;
  std::unique_ptr<Scratch> scratch_;
  std::function<std::uint64_t(std::size_t)> scratch_source_;
  bool recording_ = false;
};

}  // namespace cgp::runtime
