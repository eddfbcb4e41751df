// SPDX-License-Identifier: Apache-2.0
#include "cgp/engine/tensor_parallel/tensor_parallel_backend.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "cgp/base/text.h"
#include "cgp/engine/device/device_backend.h"
#include "cgp/engine/device/device_rank.h"
#include "cgp/engine/tensor_parallel/share.h"
#include "cgp/runtime/launch_together.h"

namespace cgp::engine {
namespace {

using std::int64_t;

bool repeats(const std::vector<runtime::Device>& devices) {
  for (std::size_t i = 0; i < devices.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (!devices[i].is_emulator() && devices[i].info().spec == devices[j].info().spec) return true;
  return false;
}

/// Two slots for the longest sum, of f32.
std::uint64_t staging_bytes(const Program& p, const BackendOptions& o) {
  const Value& residual = p.values[std::size_t(std::get<Embedding>(p.steps.front().operation).out)];
  const auto bytes = std::uint64_t(2 * 4 * residual.width * std::max(o.max_rows, o.max_outputs));
  return std::clamp<std::uint64_t>((bytes + 4095) / 4096 * 4096, 1 << 20, 64 << 20);
}

class TensorParallelBackend final : public Backend {
 public:
  TensorParallelBackend(Program program, const std::shared_ptr<const model::Source>& file,
                        const std::vector<runtime::Device>& devices, const BackendOptions& o)
      : program_(std::move(program)),
        options_(o),
        all_(devices, staging_bytes(program_, o),
             repeats(devices) ? kernels::Communicator::Devices::may_repeat
                              : kernels::Communicator::Devices::different) {
    const int n = all_.size();
    for (int r = 0; r < n; ++r) {
      auto of_rank = o;
      if (o.progress) of_rank.progress = [&o, r, n](double part) { o.progress((r + part) / n); };
      ranks_.push_back(make_device_rank(share(program_, *file, r, n), file, all_, r, of_rank));
    }
    for (const Step& s : program_.steps) has_experts_ |= std::holds_alternative<Experts>(s.operation);
    shares_words_ = logits_of(ranks_[0]->program()) != logits_of(program_);
  }

  const Program& program() const override { return program_; }
  const BackendOptions& options() const override { return options_; }
  std::string name() const override { return text::cat(ranks_.size(), " x ", ranks_[0]->name()); }
  MemoryEstimate memory() const override {
    MemoryEstimate sum;
    for (const auto& r : ranks_) {
      const MemoryEstimate m = r->memory();
      sum.weights += m.weights, sum.cache += m.cache, sum.workspace += m.workspace;
    }
    return sum;
  }
  void set_profile(bool on) override {
    for (const auto& r : ranks_) r->set_profile(on);
    profiled_ = on;
    if (on) sums_ = {};
  }
  /// Of the first rank.
  std::vector<RoleTime> profile() const override {
    auto all = ranks_[0]->profile();
    all[std::size_t(Role::all_reduce)] = sums_;
    return all;
  }
  void leave_out(const std::vector<Role>& roles) override {
    for (const auto& r : ranks_) r->leave_out(roles);
  }
  void copy_page(std::int32_t from, std::int32_t to) override {
    for (const auto& r : ranks_) r->copy_page(from, to);
  }

  void run(const Batch& batch, const Outputs& out) override {
    check(batch, out, program_, options_);
    for (const auto& r : ranks_) r->start(batch, !out.greedy.empty());
    // Kernels of ranks differ where sums begin, experts wait for the host, and so does a profile.
    if (all_.device(0).is_emulator() || has_experts_ || profiled_)
      in_turns();
    else
      runtime::launch_together([&] {
        for (const auto& r : ranks_) r->queue();
      });
    collect(out);
  }

 private:
  static int64_t logits_of(const Program& p) { return p.values[std::size_t(p.logits)].width; }

  void in_turns() {
    for (;;) {
      bool sums = false;
      for (const auto& r : ranks_) sums = r->queue_own();
      if (!sums) return;
      if (profiled_)
        for (const auto& r : ranks_) r->wait();
      const auto start = std::chrono::steady_clock::now();
      runtime::launch_together([&] {
        for (const auto& r : ranks_) r->queue_collective();
      });
      if (!profiled_) continue;
      for (const auto& r : ranks_) r->wait();
      ++sums_.count;
      sums_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
  }

  /// Rank r has words [r * part, (r + 1) * part), or each has all.
  void collect(const Outputs& out) {
    const std::size_t outputs = out.greedy.empty() ? 0 : out.greedy.size();
    const auto part = std::size_t(logits_of(ranks_[0]->program())), words = std::size_t(logits_of(program_));
    logits_.resize(shares_words_ ? out.logits.size() / ranks_.size() : 0);
    greedy_.resize(outputs), greatest_.resize(outputs), best_.assign(outputs, -1.f);
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const bool wanted = shares_words_ || r == 0;
      if (!wanted) {
        ranks_[r]->wait();
        continue;
      }
      ranks_[r]->finish({shares_words_ ? std::span(logits_) : out.logits, greedy_}, greatest_);
      for (std::size_t i = 0; i * part < logits_.size(); ++i)
        std::copy_n(&logits_[i * part], part, &out.logits[i * words + r * part]);
      for (std::size_t i = 0; i < outputs; ++i) {
        if (r && (std::isnan(best_[i]) || greatest_[i] <= best_[i])) continue;
        best_[i] = greatest_[i],
        out.greedy[i] = std::isnan(best_[i]) ? -1 : greedy_[i] + std::int32_t(r * part);
      }
    }
  }

  Program program_;
  BackendOptions options_;
  kernels::Communicator all_;
  std::vector<std::unique_ptr<DeviceRank>> ranks_;
  bool has_experts_ = false, shares_words_ = false, profiled_ = false;
  RoleTime sums_;
  std::vector<float> logits_, greatest_, best_;
  std::vector<std::int32_t> greedy_;
};

}  // namespace

std::unique_ptr<Backend> make_tensor_parallel_backend(Program program,
                                                      std::shared_ptr<const model::Source> file,
                                                      const std::vector<runtime::Device>& devices,
                                                      const BackendOptions& o) {
  return std::make_unique<TensorParallelBackend>(std::move(program), file, devices, o);
}

}  // namespace cgp::engine
