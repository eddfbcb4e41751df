// SPDX-License-Identifier: Apache-2.0
// Streams, events and graphs of a GPU.
#include <algorithm>
#include <cstring>
#include <list>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/runtime/cuda/device_impl.h"
#include "cgp/runtime/cuda/group.h"

namespace cgp::runtime {
namespace {
using cuda::Api;
using text::cat;

// Below this the driver's own staging is as good; above, two chunks keep the bus and the host's memcpy busy.
constexpr std::size_t kStagingThreshold = 256 << 10, kStagingChunk = 4 << 20;

class CudaEvent final : public EventState, public std::enable_shared_from_this<CudaEvent> {
 public:
  explicit CudaEvent(CudaBackend& b) : b_(b), event_(cuda::make_event((b.context(), b.api_ptr()))) {}
  double milliseconds_since(const EventState& start) const override {
    wait();
    start.wait();
    float ms = 0;
    b_.api().call<&Api::cuEventElapsedTime>(&ms, static_cast<const CudaEvent&>(start).event_.get(),
                                            event_.get());
    return double(ms);
  }
  void wait() const override {
    b_.context();
    b_.api().call<&Api::cuEventSynchronize>(event_.get());
  }
  bool complete() const override {
    b_.context();
    const cuda::CUresult r = b_.api().cuEventQuery(event_.get());
    if (r == cuda::kNotReady) return false;
    b_.api().check(r, "cuEventQuery");
    return true;
  }
  cuda::CUevent get() const { return event_.get(); }

 private:
  CudaBackend& b_;
  cuda::Event event_;
};

class CudaGraph final : public GraphState, public std::enable_shared_from_this<CudaGraph> {
 public:
  CudaGraph(CudaBackend& b, cuda::Graph graph) : b_(b), graph_(std::move(graph)) {
    b_.api().call<&Api::cuGraphGetNodes>(graph_.get(), static_cast<cuda::CUgraphNode*>(nullptr), &size_);
    cuda::CUgraphExec e = nullptr;
    b_.api().call<&Api::cuGraphInstantiateWithFlags>(&e, graph_.get(), 0ull);
    exec_ = cuda::GraphExec(b_.api_ptr(), e);
  }
  std::size_t size() const override { return size_; }
  cuda::CUgraphExec exec(const CudaBackend& b) const {
    if (&b != &b_) throw ArgumentError("a graph is replayed on the device it was made for");
    return exec_.get();
  }

 private:
  CudaBackend& b_;
  cuda::Graph graph_;
  cuda::GraphExec exec_;
  std::size_t size_ = 0;
};

// Pointers to the arguments' values, as the driver wants them.
class Pointers {
 public:
  explicit Pointers(std::span<const Arg> args) {
    if (args.size() > kInline) {
      many_.resize(args.size());
      list_ = many_.data();
    }
    for (std::size_t i = 0; i < args.size(); ++i)
      list_[i] = const_cast<void*>(args[i].data ? args[i].data : static_cast<const void*>(&args[i].word));
  }
  void** get() { return list_; }

 private:
  static constexpr std::size_t kInline = 32;
  void* few_[kInline];
  std::vector<void*> many_;
  void** list_ = few_;
};

// Arguments that outlive the call.
struct OwnedArgs {
  explicit OwnedArgs(std::span<const Arg> from) : args(from.begin(), from.end()) {
    for (Arg& a : args)
      if (a.data) {
        const auto* first = static_cast<const std::byte*>(a.data);
        a.data =
            data.emplace_back(std::make_shared<const std::vector<std::byte>>(first, first + a.bytes))->data();
      }
  }
  std::vector<Arg> args;
  std::vector<std::shared_ptr<const std::vector<std::byte>>> data;
};

class CudaQueue final : public Queue {
 public:
  explicit CudaQueue(CudaBackend& b)
      : b_(b), own_(cuda::make_stream((b.context(), b.api_ptr()))), stream_(own_.get()) {}
  CudaQueue(CudaBackend& b, cuda::CUstream borrowed) : b_(b), stream_(borrowed) {}
  ~CudaQueue() override {
    try {
      if (CudaGroup* group = CudaGroup::of_issuer()) group->flush(*this);
      if (!own_) return;  // who lent it may have destroyed it by now
      b_.context();
      const cuda::CUresult r = api().cuStreamSynchronize(stream_);
      if (r != cuda::kDeinitialized) api().check(r, "cuStreamSynchronize");
    } catch (const std::exception& e) {
      log(cat("a stream was destroyed before this was reported: ", e.what()));
    }
  }
  void* native() override {
    b_.context();
    return stream_;
  }
  void copy_to_device(std::uint64_t dst, const void* src, std::size_t n) override {
    if (CudaGroup* group = keeper()) return group->keep(*this, [=, this] { upload(dst, src, n); });
    upload(dst, src, n);
  }
  void upload(std::uint64_t dst, const void* src, std::size_t n) {
    b_.context();
    const bool pageable = check_host_memory(src, n);
    if (pageable && n >= kStagingThreshold) return staged_upload(dst, static_cast<const char*>(src), n);
    api().check(api().cuMemcpyHtoDAsync(dst, src, n, stream_), "cuMemcpyHtoDAsync", text::bytes(n));
  }
  void copy_to_host(void* dst, std::uint64_t src, std::size_t n) override {
    if (CudaGroup* group = keeper())
      return group->keep(
          *this, [=, this] { download(dst, src, n); }, CudaGroup::Host::waits);
    download(dst, src, n);
  }
  void download(void* dst, std::uint64_t src, std::size_t n) {
    b_.context();
    const bool pageable = check_host_memory(dst, n);
    if (pageable && n >= kStagingThreshold) return staged_download(static_cast<char*>(dst), src, n);
    api().check(api().cuMemcpyDtoHAsync(dst, src, n, stream_), "cuMemcpyDtoHAsync", text::bytes(n));
  }
  void copy(std::uint64_t dst, std::uint64_t src, std::size_t n) override {
    submit([=, this] {
      b_.context();
      api().check(api().cuMemcpyDtoDAsync(dst, src, n, stream_), "cuMemcpyDtoDAsync", text::bytes(n));
    });
  }
  void copy_2d(const Copy2d& c) override {
    if (CudaGroup* group = keeper())
      return group->keep(
          *this, [=, this] { copy_2d_now(c); },
          c.host_dst ? CudaGroup::Host::waits : CudaGroup::Host::goes_on);
    copy_2d_now(c);
  }
  void copy_2d_now(const Copy2d& c) {
    b_.context();
    cuda::Memcpy2d m{};
    m.src_type = c.host_src ? cuda::MemoryType::host : cuda::MemoryType::device;
    m.src_host = c.host_src;
    m.src_device = c.host_src ? 0 : c.src;
    m.src_pitch = c.src_pitch;
    m.dst_type = c.host_dst ? cuda::MemoryType::host : cuda::MemoryType::device;
    m.dst_host = c.host_dst;
    m.dst_device = c.host_dst ? 0 : c.dst;
    m.dst_pitch = c.dst_pitch;
    m.width_bytes = c.width;
    m.height = c.height;
    api().check(api().cuMemcpy2DAsync(&m, stream_), "cuMemcpy2DAsync",
                cat(c.height, " rows of ", c.width, " bytes"));
  }
  void fill(std::uint64_t dst, std::uint8_t value, std::size_t n) override {
    submit([=, this] {
      b_.context();
      api().check(api().cuMemsetD8Async(dst, value, n, stream_), "cuMemsetD8Async", text::bytes(n));
    });
  }
  void launch(const Code& code, const Shape& shape, std::span<const Arg> args) override {
    const auto& c = static_cast<const CudaCode&>(code);
    b_.context();
    const auto prepared = c.prepare(shape);
    if (CudaGroup* group = keeper())
      return group->keep(*this, [this, &c, prepared, own = OwnedArgs(args)] {
        b_.context();
        Pointers pointers(own.args);
        cuda::launch(api(), c.function, prepared, stream_, pointers.get());
      });
    Pointers pointers(args);
    cuda::launch(api(), c.function, prepared, stream_, pointers.get());
  }
  void record(EventState& e) override {
    submit([this, event = static_cast<CudaEvent&>(e).shared_from_this()] {
      b_.context();
      api().call<&Api::cuEventRecord>(event->get(), stream_);
    });
  }
  void wait_for(const EventState& e) override {
    submit([this, event = static_cast<const CudaEvent&>(e).shared_from_this()] {
      b_.context();
      api().call<&Api::cuStreamWaitEvent>(stream_, event->get(), 0u);
    });
  }
  void wait() override {
    if (keeper()) throw ArgumentError("nothing can be waited for inside launch_together()");
    b_.context();
    api().call<&Api::cuStreamSynchronize>(stream_);
  }
  bool complete() override {
    b_.context();
    const cuda::CUresult r = api().cuStreamQuery(stream_);
    if (r == cuda::kNotReady) return false;
    api().check(r, "cuStreamQuery");
    return true;
  }
  // A borrowed stream may be captured by its owner. What cannot be asked (the default stream while another is captured)
  // must not be waited for either.
  bool capturing() override {
    if (!api().cuStreamIsCapturing) return capturing_;
    b_.context();
    int status = 0;
    return api().cuStreamIsCapturing(stream_, &status) != cuda::kSuccess || status != 0;
  }
  void begin_capture() override {
    b_.context();
    api().call<&Api::cuStreamBeginCapture>(stream_, cuda::kCaptureRelaxed);
    capturing_ = true;
  }
  std::shared_ptr<GraphState> end_capture() override {
    b_.context();
    capturing_ = false;
    cuda::CUgraph g = nullptr;
    api().call<&Api::cuStreamEndCapture>(stream_, &g);
    return std::make_shared<CudaGraph>(b_, cuda::Graph(b_.api_ptr(), g));
  }
  void abandon_capture() noexcept override {
    capturing_ = false;
    cuda::CUgraph g = nullptr;
    if (api().cuStreamEndCapture(stream_, &g) == cuda::kSuccess && g) api().cuGraphDestroy(g);
  }
  void replay(GraphState& g) override {
    auto* graph = dynamic_cast<CudaGraph*>(&g);
    if (!graph) throw ArgumentError("a graph is replayed on the device it was made for");
    graph->exec(b_);
    submit([this, kept = graph->shared_from_this()] {
      b_.context();
      api().call<&Api::cuGraphLaunch>(kept->exec(b_), stream_);
    });
  }
  cuda::CUstream get() const { return stream_; }

 private:
  const Api& api() const { return b_.api(); }
  CudaGroup* keeper() { return !CudaGroup::of_issuer() || capturing() ? nullptr : CudaGroup::of_issuer(); }
  template <class F>
  void submit(F&& work) {
    if (CudaGroup* group = keeper()) return group->keep(*this, std::forward<F>(work));
    work();
  }

  // Whether it is ordinary memory; during a capture that is refused, since the copy happens at each replay.
  bool check_host_memory(const void* p, std::size_t n) {
    if (n < kStagingThreshold && !capturing_) return true;
    int type = 0;
    const bool known = api().cuPointerGetAttribute &&
                       api().cuPointerGetAttribute(&type, cuda::kPointerMemoryType,
                                                   cuda::CUdeviceptr(reinterpret_cast<std::uintptr_t>(p))) ==
                           cuda::kSuccess &&
                       type != 0;
    if (!known && capturing_)
      throw ArgumentError(
          {"host memory of a captured copy must be pinned", {}, "this is ordinary memory", "use Pinned<T>"});
    return !known;
  }
  struct Chunk {
    cuda::PinnedMemory memory;
    cuda::Event free;  // recorded when the copy out of, or into, it is done
    bool used = false;
  };
  Chunk& chunk(std::size_t i) {
    Chunk& c = chunks_[i % 2];
    if (!c.memory) {
      c.memory = cuda::make_pinned(b_.api_ptr(), kStagingChunk);
      c.free = cuda::make_event(b_.api_ptr(), false);
    }
    if (c.used) api().call<&Api::cuEventSynchronize>(c.free.get());
    c.used = true;
    return c;
  }
  void staged_upload(std::uint64_t dst, const char* src, std::size_t n) {
    for (std::size_t at = 0, i = 0; at < n; at += kStagingChunk, ++i) {
      const std::size_t now = std::min(kStagingChunk, n - at);
      Chunk& c = chunk(i);
      std::memcpy(c.memory.get(), src + at, now);
      api().call<&Api::cuMemcpyHtoDAsync>(dst + at, static_cast<const void*>(c.memory.get()), now, stream_);
      api().call<&Api::cuEventRecord>(c.free.get(), stream_);
    }
  }
  void staged_download(char* dst, std::uint64_t src, std::size_t n) {
    const std::size_t count = (n + kStagingChunk - 1) / kStagingChunk;
    const auto size = [&](std::size_t i) { return std::min(kStagingChunk, n - i * kStagingChunk); };
    const auto issue = [&](std::size_t i) {
      Chunk& c = chunk(i);
      api().call<&Api::cuMemcpyDtoHAsync>(c.memory.get(), src + i * kStagingChunk, size(i), stream_);
      api().call<&Api::cuEventRecord>(c.free.get(), stream_);
    };
    issue(0);
    for (std::size_t i = 0; i < count; ++i) {
      if (i + 1 < count) issue(i + 1);
      std::memcpy(dst + i * kStagingChunk, chunk(i).memory.get(), size(i));
    }
  }
  CudaBackend& b_;
  cuda::Stream own_;
  cuda::CUstream stream_;
  Chunk chunks_[2];
  bool capturing_ = false;
};

class CudaGraphBuilder final : public GraphBuilderState {
 public:
  explicit CudaGraphBuilder(CudaBackend& b) : b_(b) {}
  std::size_t kernel(const Code& code, const Shape& shape, std::span<const Arg> args,
                     std::span<const std::size_t> after) override {
    const auto& c = static_cast<const CudaCode&>(code);
    const auto deps = dependencies(after);
    Pointers pointers(args);  // the driver copies the values when the node is made
    return add(cuda::add_kernel_node(b_.api(), graph(), deps.data(), deps.size(), c.function,
                                     c.prepare(shape), pointers.get()));
  }
  std::size_t copy(std::uint64_t dst, std::uint64_t src, std::size_t n,
                   std::span<const std::size_t> after) override {
    const auto deps = dependencies(after);
    cuda::Memcpy3d m{};
    m.src_type = m.dst_type = cuda::MemoryType::device;
    m.src_device = src;
    m.dst_device = dst;
    m.src_pitch = m.dst_pitch = m.width_bytes = n;
    m.src_height = m.dst_height = m.height = m.depth = 1;
    cuda::CUgraphNode node = nullptr;
    b_.api().call<&Api::cuGraphAddMemcpyNode>(&node, graph(), deps.data(), deps.size(), &m,
                                              b_.context().get());
    return add(node);
  }
  std::size_t fill(std::uint64_t dst, std::uint8_t v, std::size_t n,
                   std::span<const std::size_t> after) override {
    const auto deps = dependencies(after);
    const cuda::MemsetNodeParams m{dst, n, v, 1, n, 1};
    cuda::CUgraphNode node = nullptr;
    b_.api().call<&Api::cuGraphAddMemsetNode>(&node, graph(), deps.data(), deps.size(), &m,
                                              b_.context().get());
    return add(node);
  }
  std::shared_ptr<GraphState> finish() override {
    graph();
    nodes_.clear();
    return std::make_shared<CudaGraph>(b_, std::move(graph_));
  }

 private:
  cuda::CUgraph graph() {
    b_.context();
    if (!graph_) {
      cuda::CUgraph g = nullptr;
      b_.api().call<&Api::cuGraphCreate>(&g, 0u);
      graph_ = cuda::Graph(b_.api_ptr(), g);
    }
    return graph_.get();
  }
  std::vector<cuda::CUgraphNode> dependencies(std::span<const std::size_t> after) const {
    std::vector<cuda::CUgraphNode> v;
    for (std::size_t i : after) {
      if (i >= nodes_.size())
        throw ArgumentError({"a graph node depends on earlier nodes of its own builder",
                             {},
                             cat("node ", nodes_.size(), " names node ", i),
                             {}});
      v.push_back(nodes_[i]);
    }
    return v;
  }
  std::size_t add(cuda::CUgraphNode node) {
    nodes_.push_back(node);
    return nodes_.size() - 1;
  }
  CudaBackend& b_;
  cuda::Graph graph_;
  std::vector<cuda::CUgraphNode> nodes_;
};

}  // namespace

std::unique_ptr<Queue> make_cuda_queue(CudaBackend& b) { return std::make_unique<CudaQueue>(b); }
std::unique_ptr<Queue> borrow_cuda_queue(CudaBackend& b, void* stream) {
  return std::make_unique<CudaQueue>(b, static_cast<cuda::CUstream>(stream));
}
std::shared_ptr<EventState> make_cuda_event(CudaBackend& b) { return std::make_shared<CudaEvent>(b); }
std::unique_ptr<GraphBuilderState> make_cuda_graph_builder(CudaBackend& b) {
  return std::make_unique<CudaGraphBuilder>(b);
}
cuda::CUstream raw_stream(Queue& q) { return static_cast<CudaQueue&>(q).get(); }

}  // namespace cgp::runtime
