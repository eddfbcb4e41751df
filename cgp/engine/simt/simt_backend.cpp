// SPDX-License-Identifier: Apache-2.0
#include "cgp/engine/simt/simt_backend.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/engine/simt/simt_model.h"

namespace cgp::engine {
namespace {

using std::int32_t;
using std::int64_t;
using std::uint64_t;

class SimtBackend final : public Backend {
 public:
  SimtBackend(Program program, std::shared_ptr<const model::Source> file, const runtime::Device& device,
              const BackendOptions& o)
      : device_(device),
        model_(std::move(program), std::move(file), device, o, SimtModel::Weights::uploaded) {
    model_.prepare(device_.stream());
    device_.sync();
    if (o.progress) o.progress(1);
  }
  const Program& program() const override { return model_.program(); }
  const BackendOptions& options() const override { return model_.options(); }
  std::string name() const override { return text::cat(device_.info().name, " (f32 activations)"); }
  MemoryEstimate memory() const override {
    MemoryEstimate m;
    for (const auto& w : model_.weights()) m.weights += int64_t(w.bytes.size());
    for (int64_t i = 0; i < program().cache_layers; ++i)
      m.cache += int64_t(const_cast<SimtModel&>(model_).cache(i).size());
    m.workspace = model_.memory() - m.weights - m.cache;
    return m;
  }
  void set_profile(bool on) override {
    profiled_ = on;
    if (on) profile_.assign(std::size_t(kRoles), {});
  }
  std::vector<RoleTime> profile() const override { return profile_; }

  void copy_page(int32_t from, int32_t to) override {
    for (int64_t layer = 0; layer < program().cache_layers; ++layer) {
      const auto all = model_.cache(layer);
      const uint64_t bytes = all.size() / uint64_t(options().pages);
      // Not in one copy: WebGPU has none inside one buffer.
      std::vector<std::uint8_t> page(bytes);
      all.slice(uint64_t(from) * bytes, bytes).download(page);
      all.slice(uint64_t(to) * bytes, bytes).upload(page);
    }
  }

  void run(const Batch& batch, const Outputs& out) override {
    check(batch, out, program(), options());
    upload(batch);
    auto& s = device_.stream();
    const bool greedy = !out.greedy.empty();
    const auto outputs = batch.outputs.size();
    const auto start = std::chrono::steady_clock::now();
    model_.issue(s, batch.sequences, int64_t(outputs), greedy);
    const auto* const backend = device_.backend().get();
    const auto download = [&]<class T>(uint64_t address, std::span<T> to) {
      if (!to.empty())
        s.download(runtime::Slice<const T>(const_cast<runtime::Backend*>(backend), address, to.size()), to);
    };
    std::vector<float> greatest(greedy ? outputs : 0);
    download(model_.logits(), out.logits);
    download(model_.greedy(), out.greedy), download(model_.greatest(), std::span(greatest));
    s.wait();
    for (std::size_t i = 0; i < greatest.size(); ++i)
      if (std::isnan(greatest[i])) out.greedy[i] = -1;
    if (!profiled_) return;
    RoleTime& t = profile_[std::size_t(Role::other)];
    ++t.count, t.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  void upload(const Batch& batch) {
    const auto& c = model_.control();
    std::vector<std::uint8_t> block(c.bytes);
    const auto put = [&](uint64_t at, std::size_t i, auto value) {
      std::memcpy(block.data() + at + i * sizeof(value), &value, sizeof(value));
    };
    for (std::size_t i = 0; i < batch.tokens.size(); ++i) put(c.tokens, i, batch.tokens[i]);
    for (std::size_t i = 0; i < batch.outputs.size(); ++i) put(c.outputs, i, batch.outputs[i]);
    for (std::size_t i = 0; i < batch.sequences.size(); ++i) {
      const BatchSequence& s = batch.sequences[i];
      put(c.lengths, i, std::uint32_t(s.first_position + s.rows));
      for (int32_t r = 0; r < s.rows; ++r) {
        const int32_t position = s.first_position + r;
        put(c.positions, std::size_t(s.first_row + r), position);
        put(c.slots, std::size_t(s.first_row + r),
            uint64_t(s.pages[0]) * uint64_t(options().page_tokens) + uint64_t(position));
      }
    }
    runtime::Slice<std::uint8_t>(device_.backend().get(), c.address, c.bytes).upload(block);
  }

  runtime::Device device_;
  SimtModel model_;
  bool profiled_ = false;
  std::vector<RoleTime> profile_{std::size_t(kRoles)};
};

}  // namespace

bool runs_simt(const runtime::DeviceInfo& d) {
  return d.kind == runtime::DeviceKind::vulkan || d.kind == runtime::DeviceKind::wgpu || d.cc() < 80;
}

int64_t simt_page_tokens(int64_t context) {
  return std::max<int64_t>(16, int64_t(std::bit_ceil(uint64_t(context))));
}

std::unique_ptr<Backend> make_simt_backend(Program program, std::shared_ptr<const model::Source> file,
                                           const runtime::Device& device, const BackendOptions& o) {
  return std::make_unique<SimtBackend>(std::move(program), std::move(file), device, o);
}

}  // namespace cgp::engine
