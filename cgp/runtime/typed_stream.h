// SPDX-License-Identifier: Apache-2.0
#pragma once
// A stream whose protocol the compiler checks:
//
//   TypedStream<Idle> --begin()--> <Recording> --submit()--> <Submitted> --wait()--> <Idle>
//                                  <Recording> --sync()----> <Idle>
//
// Each step consumes the stream (std::move it, or chain) and gives the next state; work can be added while
// Recording only. The states are empty types: a TypedStream is a Stream and nothing more. C++ cannot force a
// Submitted stream to be waited for: dropping one is a warning ([[nodiscard]]), and its destructor waits.
//
//   auto idle = TypedStream<Idle>(device).begin()
//                   .launch(fn, grid, a, b, n).download(b, host).submit().wait();
#include <utility>

#include "cgp/runtime/launcher.h"
#include "cgp/runtime/stream.h"

namespace cgp::runtime {

struct Idle {};
struct Recording {};
struct Submitted {};

template <class State>
class [[nodiscard]] TypedStream {
  static_assert(std::is_same_v<State, Idle> || std::is_same_v<State, Recording> ||
                    std::is_same_v<State, Submitted>,
                "a stream is Idle, Recording or Submitted");

 public:
  explicit TypedStream(const Device& device) requires std::is_same_v<State, Idle> : stream_(device) {}
  /// Takes over a stream; waits for what is on it.
  explicit TypedStream(Stream&& stream) requires std::is_same_v<State, Idle> : stream_(std::move(stream)) {
    stream_.wait();
  }
  TypedStream(TypedStream&&) noexcept = default;
  TypedStream& operator=(TypedStream&&) noexcept = default;
  Device device() const { return stream_.device(); }

  // ---- transitions
  TypedStream<Recording> begin() && requires std::is_same_v<State, Idle> { return as<Recording>(); }
  TypedStream<Submitted> submit() && requires std::is_same_v<State, Recording> { return as<Submitted>(); }
  TypedStream<Idle> sync() && requires std::is_same_v<State, Recording> {
    stream_.wait();
    return as<Idle>();
  }
  /// Throws what went wrong on the device since begin().
  TypedStream<Idle> wait() && requires std::is_same_v<State, Submitted> {
    stream_.wait();
    return as<Idle>();
  }
  bool is_complete() const requires std::is_same_v<State, Submitted> { return stream_.is_complete(); }
  /// The plain stream again.
  Stream release() && requires std::is_same_v<State, Idle> { return std::move(stream_); }

  // ---- work: on an rvalue it chains, on an lvalue it adds
  template <class Shape, class... A>
      TypedStream&& launch(const LoadedKernel& fn, const Shape& shape, A&&... a) && requires
      std::is_same_v<State, Recording> {
    fn(stream_, shape, a...);
    return std::move(*this);
  }
  template <class Shape, class... A>
      void launch(const LoadedKernel& fn, const Shape& shape, A&&... a) & requires
      std::is_same_v<State, Recording> {
    fn(stream_, shape, a...);
  }
  template <class Dst, class Src>
      TypedStream&& upload(Dst& dst, const Src& host) && requires std::is_same_v<State, Recording> {
    stream_.upload(dst, host);
    return std::move(*this);
  }
  template <class Dst, class Src>
      void upload(Dst& dst, const Src& host) & requires std::is_same_v<State, Recording> {
    stream_.upload(dst, host);
  }
  template <class Src, class Dst>
      TypedStream&& download(const Src& src, Dst&& host) && requires std::is_same_v<State, Recording> {
    stream_.download(src, host);
    return std::move(*this);
  }
  template <class Src, class Dst>
      void download(const Src& src, Dst&& host) & requires std::is_same_v<State, Recording> {
    stream_.download(src, host);
  }
  template <class Dst, class Src>
      TypedStream&& copy(Dst& dst, const Src& src) && requires std::is_same_v<State, Recording> {
    stream_.copy(dst, src);
    return std::move(*this);
  }
  template <class Dst>
      TypedStream&& zero(Dst& dst) && requires std::is_same_v<State, Recording> {
    stream_.zero(dst);
    return std::move(*this);
  }
  TypedStream&& record(Event& event) && requires std::is_same_v<State, Recording> {
    stream_.record(event);
    return std::move(*this);
  }
  /// Host functions of kernels take a Stream&: typed.with([&](Stream& s) { vecadd(s, a, b, c); }).
  template <class F>
      TypedStream&& with(F&& work) && requires std::is_same_v<State, Recording> {
    work(stream_);
    return std::move(*this);
  }

 private:
  template <class>
  friend class TypedStream;
  struct Adopt {};
  TypedStream(Adopt, Stream&& s) : stream_(std::move(s)) {}
  template <class Next>
  TypedStream<Next> as() {
    return TypedStream<Next>(typename TypedStream<Next>::Adopt{}, std::move(stream_));
  }
  Stream stream_;
};

static_assert(sizeof(TypedStream<Idle>) == sizeof(Stream) &&
                  sizeof(TypedStream<Recording>) == sizeof(Stream) &&
                  sizeof(TypedStream<Submitted>) == sizeof(Stream),
              "the state of a stream costs nothing");

}  // namespace cgp::runtime
