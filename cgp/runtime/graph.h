// SPDX-License-Identifier: Apache-2.0
#pragma once
// Graphs built by hand: kernels, fills and copies with explicit dependencies, issued with one call. The other
// way to a Graph is Stream::capture. For work that is issued many times, like a decoder's token step.
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "cgp/runtime/launcher.h"
#include "cgp/runtime/stream.h"

namespace cgp::runtime {

class GraphBuilderState;

/// Whether a stream's work is being recorded for a graph, by Stream::capture or by the owner of a borrowed stream: nothing
/// may wait for it then.
bool is_capturing(const Stream& s);

class GraphBuilder {
 public:
  /// A piece of work that later ones can name as a dependency.
  struct Node {
    std::size_t index = 0;
  };
  using Nodes = std::vector<Node>;

  explicit GraphBuilder(const Device& device);
  ~GraphBuilder();

  /// Arguments are checked as in a launch, and kept by value.
  template <class... A>
  Node kernel(const LoadedKernel& fn, const Launch& launch, const Nodes& after, A&&... a) {
    const std::array<Arg, sizeof...(A)> args{arg(a)...};
    return kernel_args(fn, launch, after, args);
  }
  Node kernel_args(const LoadedKernel& fn, const Launch& launch, const Nodes& after,
                   std::span<const Arg> args);
  template <class T>
  Node copy(Slice<T> dst, std::type_identity_t<Slice<const T>> src, const Nodes& after = {}) {
    detail::check_copy(dst.size(), src.size());
    return copy_bytes(dst.region(), src.region(), after);
  }
  Node fill(Region dst, std::uint8_t value, const Nodes& after = {});
  /// The builder is empty afterwards.
  Graph finish();

 private:
  Node copy_bytes(Region dst, Region src, const Nodes& after);
  Device device_;
  std::unique_ptr<GraphBuilderState> state_;
};

}  // namespace cgp::runtime
