// SPDX-License-Identifier: Apache-2.0
#include "cgp/runtime/stream.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/runtime/backend_impl.h"

namespace cgp::runtime {
namespace {

Backend& backend_of(const Device& d) {
  if (!d)
    throw ArgumentError(
        {"a stream, event or graph needs a device", {}, "the Device is empty", "Device::open(\"emu\")"});
  return *d.backend();
}
void check_device(const Backend* stream, const Region& r, const char* what) {
  if (r.bytes && r.backend != stream)
    throw ArgumentError({text::cat("the ", what, " of a stream's copy must be on the stream's device"),
                         {},
                         text::cat("the stream is on ", stream->info().spec, ", the buffer on ",
                                   r.backend ? r.backend->info().spec : "no device"),
                         "Buffer::copy_from copies between devices"});
}
std::string rows_text(std::size_t height, std::size_t width, std::size_t pitch) {
  return text::cat(height, " rows of ", width, " at a pitch of ", pitch);
}
void check_rows(std::size_t size, std::size_t pitch, std::size_t width, std::size_t height,
                const char* unit) {
  if (!width || !height) return;
  if (width > pitch)
    throw ArgumentError(
        {"the pitch of a 2-D copy must be at least its width", {}, rows_text(height, width, pitch), {}});
  if (width > size || (height - 1) > (size - width) / pitch)
    throw ArgumentError({"a 2-D copy must lie inside its memory",
                         {},
                         text::cat(rows_text(height, width, pitch), " in ", size, " ", unit),
                         {}});
}

}  // namespace

// ---------------------------------------------------------------- Event, Graph
Event::Event(const Device& device) : device_(device), state_(backend_of(device).make_event()) {}
double Event::milliseconds_since(const Event& start) const {
  if (device_ != start.device_)
    throw ArgumentError({"time passes between events of one device",
                         {},
                         text::cat(start.device_.info().spec, " and ", device_.info().spec),
                         {}});
  return state_->milliseconds_since(*start.state_);
}
void Event::wait() const { state_->wait(); }
bool Event::is_complete() const { return state_->complete(); }

std::size_t Graph::size() const { return state_ ? state_->size() : 0; }
GraphState& Graph::state() const {
  if (!state_) throw ArgumentError({"this Graph is empty", {}, {}, "record one with Stream::capture"});
  return *state_;
}

// ---------------------------------------------------------------- Stream
Stream::Stream(const Device& device)
    : backend_(&backend_of(device)), keep_(device.backend()), queue_(backend_->make_queue()) {}
Stream::Stream(Backend& owner, std::unique_ptr<Queue> queue) : backend_(&owner), queue_(std::move(queue)) {}
Stream Stream::borrow(const Device& device, void* native) {
  Stream s(backend_of(device), backend_of(device).borrow_queue(native));
  s.keep_ = device.backend();
  return s;
}
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&& o) noexcept {
  if (this == &o) return *this;
  release_scratch();
  queue_ = std::move(o.queue_);  // waits for what is on the old one, while its device still lives
  keep_ = std::move(o.keep_);
  backend_ = o.backend_;
  scratch_ = std::move(o.scratch_);
  scratch_source_ = std::move(o.scratch_source_);
  return *this;
}
Stream::~Stream() { release_scratch(); }

void Stream::release_scratch() noexcept {
  if (!scratch_) return;
  queue_.reset();  // waits for what uses the memory
  for (std::uint64_t a : scratch_->addresses) backend_->release(a);
  scratch_.reset();
}
void Stream::set_scratch_source(std::function<std::uint64_t(std::size_t)> source) {
  scratch_source_ = std::move(source);
}
std::uint64_t Stream::scratch(std::size_t bytes) {
  if (scratch_source_) return scratch_source_(bytes);
  if (!scratch_) scratch_ = std::make_unique<Scratch>();
  Scratch& s = *scratch_;
  if (s.bytes < bytes) {
    if (recording_)
      throw Unsupported({"a stream's scratch memory cannot grow while work is recorded",
                         {},
                         text::cat(bytes, " bytes are needed, there are ", s.bytes),
                         "run the work once, or call Stream::scratch(bytes), before Stream::capture"});
    wait();
    if (!s.recorded) {
      for (std::uint64_t a : s.addresses) backend_->release(a);
      s.addresses.clear();
      s.bytes = 0;
    }
    s.addresses.push_back(backend_->alloc(bytes, "scratch memory of a stream"));
    s.bytes = bytes, s.recorded = false;
  }
  s.recorded |= recording_;
  return s.addresses.empty() ? 0 : s.addresses.back();
}

Device Stream::device() const { return Device(backend_->shared_from_this()); }
void* Stream::native_handle() const { return queue().native(); }
Queue& Stream::queue() const {
  if (!queue_) throw ArgumentError("this Stream was moved from");
  return *queue_;
}
Stream& Stream::copy_to_device(Region dst, const void* src) {
  check_device(backend_, dst, "destination");
  if (dst.bytes) queue().copy_to_device(dst.address, src, dst.bytes);
  return *this;
}
Stream& Stream::copy_to_host(void* dst, Region src) {
  check_device(backend_, src, "source");
  if (src.bytes) queue().copy_to_host(dst, src.address, src.bytes);
  return *this;
}
Stream& Stream::copy_on_device(Region dst, Region src) {
  check_device(backend_, dst, "destination");
  check_device(backend_, src, "source");
  if (dst.bytes) queue().copy(dst.address, src.address, dst.bytes);
  return *this;
}
void Stream::check_2d(std::size_t size, std::size_t pitch, std::size_t width, std::size_t height) {
  check_rows(size, pitch, width, height, "elements of host memory");
}
Stream& Stream::copy_2d_bytes(Region dst, void* host_dst, std::size_t dst_pitch, Region src, void* host_src,
                              std::size_t src_pitch, std::size_t width, std::size_t height) {
  if (!width || !height) return *this;
  if (!host_dst) {
    check_device(backend_, dst, "destination");
    check_rows(dst.bytes, dst_pitch, width, height, "bytes");
  }
  if (!host_src) {
    check_device(backend_, src, "source");
    check_rows(src.bytes, src_pitch, width, height, "bytes");
  }
  queue().copy_2d({dst.address, src.address, host_dst, host_src, dst_pitch, src_pitch, width, height});
  return *this;
}
Stream& Stream::fill(Region dst, std::uint8_t value) {
  check_device(backend_, dst, "destination");
  if (dst.bytes) queue().fill(dst.address, value, dst.bytes);
  return *this;
}
Stream& Stream::record(Event& event) {
  if (event.device().backend().get() != backend_)
    throw ArgumentError("an event is recorded by a stream of its own device");
  queue().record(event.state());
  return *this;
}
Stream& Stream::wait_for(const Event& event) {
  if (event.device().backend().get() != backend_) {
    event.wait();  // another device: the host carries the order
    return *this;
  }
  queue().wait_for(event.state());
  return *this;
}
void Stream::wait() { queue().wait(); }
bool Stream::is_complete() const { return queue().complete(); }
bool is_capturing(const Stream& s) { return s.queue().capturing(); }

Graph Stream::capture(const std::function<void(Stream&)>& work) {
  queue().begin_capture();
  recording_ = true;
  try {
    work(*this);
  } catch (...) {
    recording_ = false;
    queue().abandon_capture();
    throw;
  }
  recording_ = false;
  return Graph(device(), queue().end_capture());
}
Stream& Stream::replay(const Graph& graph) {
  queue().replay(graph.state());
  return *this;
}

// ---------------------------------------------------------------- GraphBuilder
namespace {
std::vector<std::size_t> indices(const GraphBuilder::Nodes& nodes) {
  std::vector<std::size_t> v;
  for (GraphBuilder::Node n : nodes) v.push_back(n.index);
  return v;
}
}  // namespace

GraphBuilder::GraphBuilder(const Device& device)
    : device_(device), state_(backend_of(device).make_graph_builder()) {}
GraphBuilder::~GraphBuilder() = default;
GraphBuilder::Node GraphBuilder::kernel_args(const LoadedKernel& fn, const Launch& launch, const Nodes& after,
                                             std::span<const Arg> args) {
  const Shape shape = check_launch(fn.code(), device_.backend().get(), launch, args);
  return {state_->kernel(fn.code(), shape, args, indices(after))};
}
GraphBuilder::Node GraphBuilder::copy_bytes(Region dst, Region src, const Nodes& after) {
  check_device(device_.backend().get(), dst, "destination");
  check_device(device_.backend().get(), src, "source");
  return {state_->copy(dst.address, src.address, dst.bytes, indices(after))};
}
GraphBuilder::Node GraphBuilder::fill(Region dst, std::uint8_t value, const Nodes& after) {
  check_device(device_.backend().get(), dst, "destination");
  return {state_->fill(dst.address, value, dst.bytes, indices(after))};
}
Graph GraphBuilder::finish() {
  Graph g(device_, state_->finish());
  state_ = device_.backend()->make_graph_builder();
  return g;
}

}  // namespace cgp::runtime
