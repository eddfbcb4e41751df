// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "cgp/runtime/typed_stream.h"
using namespace cgp::runtime;

// The accepted twins of the stream_*, buffer_*, upload_* and launch_* refusals.
LaunchConfig<64, 16> c;
TypedStream<Idle> f(const Device& d, const LoadedKernel& k, Buffer<float>& b, std::vector<float>& v) {
  TypedStream<Recording> s = TypedStream<Idle>(d).begin();
  s.launch(k, Dim3{1}, b);
  b.upload(v);
  Buffer<float> moved = std::move(b);
  auto submitted = std::move(s).upload(moved, v).download(moved, v).submit();
  return std::move(submitted).wait();
}
