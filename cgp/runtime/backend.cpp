// SPDX-License-Identifier: Apache-2.0
// What every kind of device shares: the kernel cache, the log, opening by name.

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/runtime/backend_impl.h"
#include "cgp/runtime/shader/shader_backend_impl.h"

namespace cgp::runtime {
namespace {

std::mutex log_mutex;
std::function<void(std::string_view)>& log_sink() {
  static std::function<void(std::string_view)> sink;
  return sink;
}

bool same_code(const KernelImage& a, const KernelImage& b) {
  return a.entry == b.entry && a.block == b.block && a.cluster == b.cluster &&
         a.dynamic_smem == b.dynamic_smem && a.params.size() == b.params.size() &&
         (a.ptx == b.ptx || *a.ptx == *b.ptx);
}

void check_image(const KernelImage& image) {
  if (!image.ptx || image.entry.empty())
    throw ArgumentError({text::cat("kernel image ", image.name, " needs PTX text and the name of an entry"),
                         {},
                         image.ptx ? "the entry's name is empty" : "there is no PTX text",
                         "image_from_ptx() makes an image from foreign PTX"});
}

}  // namespace

void set_log(std::function<void(std::string_view)> sink) {
  std::lock_guard lock(log_mutex);
  log_sink() = std::move(sink);
}
void log(std::string_view line) {
  std::lock_guard lock(log_mutex);
  if (log_sink())
    log_sink()(line);
  else
    std::fprintf(stderr, "cgp: %.*s\n", int(line.size()), line.data());
}

Backend::~Backend() = default;
void Backend::drop_children() noexcept {
  stream_.reset();
  by_key_.clear();
  by_text_.clear();
}
bool Backend::copy_from_peer(std::uint64_t, Backend&, std::uint64_t, std::size_t) { return false; }
std::unique_ptr<Queue> Backend::borrow_queue(void*) {
  throw Unsupported({"only a GPU has streams that another library made",
                     {},
                     text::cat("the device is ", info().spec),
                     "make one with Stream(device)"});
}
bool Backend::can_access_peer(const Backend&) const { return false; }
void Backend::enable_peer(Backend& other) {
  throw Unsupported({text::cat(info_.spec, " cannot use memory of ", other.info().spec),
                     {},
                     "peer access needs two GPUs that are connected and support it",
                     "copy with Buffer::copy_from, which goes through the host"});
}
SharedMemory Backend::share(std::uint64_t) {
  throw Unsupported({text::cat(info_.spec, " cannot share memory with other processes"),
                     {},
                     "that needs GPUs with CUDA and a driver with cuIpcGetMemHandle",
                     "use devices of one process"});
}
std::uint64_t Backend::open_shared(const SharedMemory&) { return share(0).offset; }
void Backend::close_shared(std::uint64_t, const SharedMemory&) noexcept {}
void Backend::note_peer(Backend& other) {
  if (uses_peer(other)) return;
  std::lock_guard lock(peers_mutex_);
  std::erase_if(peers_, [](const std::weak_ptr<Backend>& p) { return p.expired(); });
  peers_.push_back(other.weak_from_this());
}
std::vector<std::shared_ptr<Backend>> Backend::peers() const {
  std::lock_guard lock(peers_mutex_);
  std::vector<std::shared_ptr<Backend>> all;
  for (const auto& p : peers_)
    if (auto alive = p.lock()) all.push_back(std::move(alive));
  return all;
}
bool Backend::uses_peer(const Backend& other) const {
  std::lock_guard lock(peers_mutex_);
  return std::any_of(peers_.begin(), peers_.end(),
                     [&](const std::weak_ptr<Backend>& p) { return p.lock().get() == &other; });
}

LoadedKernel Backend::handle(const Code& code) {
  return LoadedKernel(std::shared_ptr<const Code>(shared_from_this(), &code));
}
LoadedKernel Backend::load(const KernelImage& image) {
  check_image(image);
  std::lock_guard lock(mutex_);
  const std::size_t hash = std::hash<std::string>()(*image.ptx) ^ std::hash<std::string>()(image.entry) * 31;
  auto [first, last] = by_text_.equal_range(hash);
  for (auto it = first; it != last; ++it)
    if (same_code(it->second->image, image)) return handle(*it->second);
  return handle(*by_text_.emplace(hash, make_code(image))->second);
}
LoadedKernel Backend::load(std::string_view key, const std::function<KernelImage()>& build) {
  {
    std::lock_guard lock(mutex_);
    if (auto it = by_key_.find(key); it != by_key_.end()) return handle(*it->second);
  }
  LoadedKernel fn = load(build());  // building is the caller's code: not under our lock
  std::lock_guard lock(mutex_);
  by_key_.emplace(std::string(key), &fn.code());
  return fn;
}
Stream& Backend::stream() {
  std::lock_guard lock(mutex_);
  if (!stream_) stream_.reset(new Stream(*this, make_queue()));
  return *stream_;
}

// ---------------------------------------------------------------- Device
namespace {

int parse_ordinal(std::string_view spec, std::string_view digits) {
  int n = 0;
  auto r = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  if (r.ec != std::errc() || r.ptr != digits.data() + digits.size() || n < 0)
    throw ArgumentError(
        {text::cat("\"", spec, "\" is not a device"), {}, {}, "GPUs are \"cuda:0\", \"cuda:1\", ..."});
  return n;
}
Backend& need(const std::shared_ptr<Backend>& b) {
  if (!b) throw ArgumentError({"this Device is empty", {}, {}, "open one: Device::open(\"emu\")"});
  return *b;
}

}  // namespace

Device Device::open(std::string_view spec) {
  if (spec == "emu") return Device(open_emulator("sm_90a"));
  if (spec.starts_with("emu:")) return Device(open_emulator(spec.substr(4)));
  if (spec == "cuda") return Device(open_cuda(0));
  if (spec.starts_with("cuda:")) return Device(open_cuda(parse_ordinal(spec, spec.substr(5))));
  if (spec == "vulkan" || spec.starts_with("vulkan:"))
    return Device(open_vulkan(parse_shader_spec(spec, "vulkan")));
  if (spec == "wgpu" || spec.starts_with("wgpu:")) return Device(open_wgpu(parse_shader_spec(spec, "wgpu")));
  if (spec == "auto") return Device(!cuda_devices().empty() ? open_cuda(0) : open_emulator("sm_90a"));
  throw ArgumentError({text::cat("\"", spec, "\" is not a device"),
                       {},
                       {},
                       "\"emu\" or \"emu:sm_90a\" for the emulator, \"cuda\" or \"cuda:1\" for a GPU, "
                       "\"vulkan:0\" for a device of the "
                       "Vulkan loader, \"auto\" for the first GPU or else the emulator"});
}
const DeviceInfo& Device::info() const { return need(backend_).info(); }
MemoryUse Device::memory() const { return need(backend_).memory(); }
LoadedKernel Device::load(const KernelImage& image) const { return need(backend_).load(image); }
LoadedKernel Device::load(std::string_view key, const std::function<KernelImage()>& build) const {
  return need(backend_).load(key, build);
}
LoadedModule Device::load_module(std::string ptx) const {
  return LoadedModule(need(backend_).load_module(std::move(ptx)));
}
LoadCounts Device::load_counts() const { return need(backend_).load_counts(); }
Stream Device::make_stream() const { return Stream(*this); }
Stream& Device::stream() const { return need(backend_).stream(); }
void Device::sync() const { need(backend_).sync(); }
TensorMap Device::tensor_map(const TensorMapSpec& spec, std::uint64_t address) const {
  if (!info().tensor_maps)
    throw Unsupported(
        {"tensor maps (TMA) need sm_90 or later", {}, text::cat("this device is ", info().arch), {}});
  if (std::string why = reject(spec, address); !why.empty()) throw ArgumentError(why);
  return need(backend_).encode(spec, address);
}
bool Device::can_access_peer(const Device& other) const {
  return need(backend_).can_access_peer(need(other.backend_));
}
void Device::enable_peer(const Device& other) const { need(backend_).enable_peer(need(other.backend_)); }

}  // namespace cgp::runtime
