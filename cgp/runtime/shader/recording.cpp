// SPDX-License-Identifier: Apache-2.0
#include "cgp/runtime/shader/recording.h"

#include <algorithm>
#include <cstring>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/runtime/shader/shader_backend_impl.h"

namespace cgp::runtime {
namespace {
using text::cat;

class RecordedCode final : public ShaderCode {
 public:
  RecordedCode(Backend& b, const KernelImage& image, std::unique_ptr<Code> emulated)
      : ShaderCode(b, image), emulated(std::move(emulated)), first(translate(options(), true)) {
    static_smem = first.needs.shared_bytes - std::min(first.needs.shared_bytes, options().dynamic_shared);
  }
  shader::Shader shader_for(const Shape& s, std::vector<std::uint32_t> buffers) const {
    shader::ShaderOptions o;
    o.block = {s.block.x, s.block.y, s.block.z};
    o.dynamic_shared = s.dynamic_smem;
    o.buffers = std::move(buffers);
    return translate(o, true);
  }
  std::vector<std::byte> block(std::span<const Arg> args) const { return pack(args, first.block_bytes); }
  const std::unique_ptr<Code> emulated;
  const shader::Shader first;  // as the image says; its parameters are those of all
};

class RecordingQueue final : public ShaderQueue {
 public:
  RecordingQueue(RecordingBackend& b, std::unique_ptr<Queue> q);
  void copy_to_device(std::uint64_t dst, const void* src, std::size_t n) override;
  void copy_to_host(void* dst, std::uint64_t src, std::size_t n) override;
  void copy(std::uint64_t dst, std::uint64_t src, std::size_t n) override;
  void copy_2d(const Copy2d& c) override;
  void fill(std::uint64_t dst, std::uint8_t value, std::size_t n) override;
  void launch(const Code& code, const Shape& shape, std::span<const Arg> args) override;
  void record(EventState& e) override { emulated_->record(e); }
  void wait_for(const EventState& e) override { emulated_->wait_for(e); }
  void wait() override { emulated_->wait(); }
  bool complete() override { return emulated_->complete(); }

 private:
  RecordingBackend& b_;
  const std::unique_ptr<Queue> emulated_;
};

}  // namespace

class RecordingBackend final : public ShaderBackend {
 public:
  RecordingBackend(Recorder::Runs runs, std::uint32_t threads)
      : emulator(open_emulator(kShaderArch)), runs(runs == Recorder::Runs::everything) {
    info_ = shader_device_info(DeviceKind::wgpu, {0, std::string(kShaderArch)});
    info_.name = "a recording";
    info_.memory_bytes = emulator->info().memory_bytes;
    info_.sm_count = 16;
    info_.max_threads_per_block = int(threads), info_.max_threads_per_sm = 1024;
    info_.max_block = {threads, threads, 64};
    info_.max_grid = {65535, 65535, 65535};
    info_.smem_per_block = info_.smem_per_block_optin = info_.smem_per_sm = 32 << 10;
  }
  ~RecordingBackend() override { drop_children(); }
  std::uint64_t alloc(std::size_t bytes, std::string_view name) override {
    const std::uint64_t address = emulator->alloc(bytes, name);
    live_.push_back(int(recorded.memory.size()));
    recorded.memory.push_back({address, bytes, {}, {}});
    written_.push_back(false);
    return address;
  }
  void release(std::uint64_t address) noexcept override {
    std::erase_if(live_, [&](int m) { return recorded.memory[std::size_t(m)].address == address; });
    emulator->release(address);
  }
  MemoryUse memory() const override { return emulator->memory(); }
  void copy_to_device(std::uint64_t dst, const void* src, std::size_t n) override {
    write(dst, src, n);
    emulator->copy_to_device(dst, src, n);
  }
  void copy_to_host(void* dst, std::uint64_t src, std::size_t n) override {
    read();
    emulator->copy_to_host(dst, src, n);
  }
  void copy(std::uint64_t dst, std::uint64_t src, std::size_t n) override {
    copied(dst, src, n);
    emulator->copy(dst, src, n);
  }
  void fill(std::uint64_t dst, std::uint8_t value, std::size_t n) override {
    filled(dst, value, n);
    emulator->fill(dst, value, n);
  }
  std::unique_ptr<Queue> make_queue() override {
    return std::make_unique<RecordingQueue>(*this, emulator->make_queue());
  }
  std::shared_ptr<EventState> make_event() override { return emulator->make_event(); }
  void sync() override { emulator->sync(); }
  std::unique_ptr<Code> make_code(const KernelImage& image) override {
    return std::make_unique<RecordedCode>(*this, image, emulator->make_code(image));
  }

  struct Place {
    int memory = -1;
    std::uint64_t offset = 0;
  };
  /// -1: in no allocation. An address at the end of one belongs to it.
  Place look_up(std::uint64_t address) const {
    for (const int m : live_) {
      const auto& a = recorded.memory[std::size_t(m)];
      if (address >= a.address && address - a.address <= a.bytes) return {m, address - a.address};
    }
    return {};
  }
  void write(std::uint64_t dst, const void* src, std::size_t n) {
    Recording::Command c;
    c.kind = Recording::Command::Kind::write;
    const auto* data = static_cast<const std::byte*>(src);
    c.block.assign(data, data + n);
    add(std::move(c), dst, n);
  }
  void filled(std::uint64_t dst, std::uint8_t value, std::size_t n) {
    const std::vector<std::uint8_t> bytes(n, value);
    write(dst, bytes.data(), n);
  }
  void copied(std::uint64_t dst, std::uint64_t src, std::size_t n) {
    const Place from = look_up(src);
    Recording::Command c;
    c.kind = Recording::Command::Kind::copy;
    c.from = from.memory, c.from_offset = from.offset, c.bytes = n;
    if (recording && (from.offset % 4 || from.memory == look_up(dst).memory))
      lacks("copies inside one buffer, or from the middle of a word");
    add(std::move(c), dst, n);
  }
  void read() const {
    if (recording) lacks("copies to the host while launches are recorded");
  }

  const std::shared_ptr<Backend> emulator;
  const bool runs;
  Recording recorded;
  bool recording = false;

  void begin() {
    for (const int m : live_) {
      auto& a = recorded.memory[std::size_t(m)];
      if (!written_[std::size_t(m)]) continue;
      a.start.resize(a.bytes);
      emulator->copy_to_host(a.start.data(), a.address, a.bytes);
      if (std::all_of(a.start.begin(), a.start.end(), [](std::byte b) { return b == std::byte(0); }))
        a.start.clear();
    }
    recording = true;
  }
  Recording end() {
    recording = false;
    Recording out = recorded;
    for (const int m : live_) {
      if (!runs) break;
      auto& a = out.memory[std::size_t(m)];
      a.end.resize(a.bytes);
      emulator->copy_to_host(a.end.data(), a.address, a.bytes);
    }
    return out;
  }

 private:
  void add(Recording::Command c, std::uint64_t dst, std::size_t n) {
    const Place to = look_up(dst);
    if (to.memory < 0 || n == 0) return;  // the emulator says what is wrong
    if (!recording) {
      written_[std::size_t(to.memory)] = true;
      return;
    }
    if (to.offset % 4 || n % 4) lacks("writes of parts of words while launches are recorded");
    c.to = to.memory, c.to_offset = to.offset;
    recorded.commands.push_back(std::move(c));
  }
  std::vector<int> live_;
  std::vector<bool> written_;
};

namespace {

RecordingQueue::RecordingQueue(RecordingBackend& b, std::unique_ptr<Queue> q)
    : ShaderQueue(b), b_(b), emulated_(std::move(q)) {}
void RecordingQueue::copy_to_device(std::uint64_t dst, const void* src, std::size_t n) {
  b_.write(dst, src, n);
  emulated_->copy_to_device(dst, src, n);
}
void RecordingQueue::copy_to_host(void* dst, std::uint64_t src, std::size_t n) {
  b_.read();
  emulated_->copy_to_host(dst, src, n);
}
void RecordingQueue::copy(std::uint64_t dst, std::uint64_t src, std::size_t n) {
  b_.copied(dst, src, n);
  emulated_->copy(dst, src, n);
}
void RecordingQueue::copy_2d(const Copy2d& c) {
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
void RecordingQueue::fill(std::uint64_t dst, std::uint8_t value, std::size_t n) {
  b_.filled(dst, value, n);
  emulated_->fill(dst, value, n);
}
void RecordingQueue::launch(const Code& code, const Shape& shape, std::span<const Arg> args) {
  const auto& c = static_cast<const RecordedCode&>(code);
  if (b_.runs) emulated_->launch(*c.emulated, shape, args);
  if (!b_.recording) return;
  Recording::Command d;
  d.grid = {shape.grid.x, shape.grid.y, shape.grid.z};
  d.block = c.block(args);
  // Pointers into one allocation share a binding: WebGPU allows no buffer twice if it is written.
  std::vector<RecordingBackend::Place> places;
  std::vector<std::uint32_t> buffers;
  for (const shader::Parameter& p : c.first.parameters) {
    if (p.kind != shader::Parameter::Kind::pointer) continue;
    std::uint64_t address = 0;
    std::memcpy(&address, d.block.data() + p.offset, 8);
    const auto place = address ? b_.look_up(address) : RecordingBackend::Place{};
    const auto same = std::find_if(places.begin(), places.end(),
                                   [&](const auto& q) { return q.memory >= 0 && q.memory == place.memory; });
    buffers.push_back(std::uint32_t(same - places.begin()));
    places.push_back(place);
  }
  shader::Shader s = c.shader_for(shape, std::move(buffers));
  std::size_t k = 0;
  for (const shader::Parameter& p : s.parameters) {
    if (p.kind != shader::Parameter::Kind::pointer) continue;
    const auto& place = places[k++];
    const std::uint32_t words[2] = {std::uint32_t(place.offset), place.memory >= 0};
    std::memcpy(d.block.data() + p.offset, words, 8);
    const bool bound = std::any_of(d.bindings.begin(), d.bindings.end(),
                                   [&](const auto& b) { return b.binding == p.binding; });
    if (p.binding && !bound) d.bindings.push_back({p.binding, place.memory});
  }
  auto& shaders = b_.recorded.shaders;
  const auto known =
      std::find_if(shaders.begin(), shaders.end(), [&](const auto& x) { return x.wgsl == s.wgsl; });
  d.shader = int(known - shaders.begin());
  if (known == shaders.end()) shaders.push_back(std::move(s));
  b_.recorded.commands.push_back(std::move(d));
}

}  // namespace

Recorder::Recorder(Runs runs, std::uint32_t threads)
    : backend_(std::make_shared<RecordingBackend>(runs, threads)), device_(backend_) {}
Recorder::~Recorder() = default;
void Recorder::begin() { backend_->begin(); }
std::size_t Recorder::commands() const { return backend_->recorded.commands.size(); }
Recording Recorder::end() { return backend_->end(); }

}  // namespace cgp::runtime
