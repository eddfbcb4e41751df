// SPDX-License-Identifier: Apache-2.0
#include "cgp/engine/device/device_experts.h"

#include <algorithm>
#include <cmath>

#include "cgp/kernels/decode_linear/moe_combine.h"
#include "cgp/kernels/embedding/embedding.h"

namespace cgp::engine {

using namespace device_plan;
using kernels::View;
using std::int64_t;
using std::uint64_t;

namespace {

View view(const runtime::Device& device, uint64_t address, DType type, bool writes) {
  return {address, ~0ull >> 8, type, writes, device.backend().get()};
}
bool one_format(const Program& p, const model::Source& file, WeightId a, WeightId b) {
  return format_of(p.weights[std::size_t(a)], file) == format_of(p.weights[std::size_t(b)], file);
}
/// Whether gate and up are rows of one packed matrix.
bool gated(const runtime::Device& device, const Program& p, const model::Source& file, const Experts& o) {
  const std::vector<WeightId> both{o.gate, o.up};
  return one_format(p, file, o.gate, o.up) && DeviceMatrix::packs(device, p, file, both);
}

}  // namespace

/// Elements, for as many tokens as a step has at most.
struct ExpertsWorkspace::Sizes {
  uint64_t logits = 0, pairs = 0, gathered = 0, hidden = 0, results = 0;
  Sizes(const Program& p, const BackendOptions& options) {
    const auto rows = uint64_t(std::max(options.max_rows, options.max_outputs));
    for (const Step& s : p.steps)
      if (const auto* o = std::get_if<Experts>(&s.operation)) {
        const uint64_t of = rows * uint64_t(o->used), inner = uint64_t(p.weights[std::size_t(o->gate)].rows);
        logits = std::max(logits, rows * uint64_t(o->experts)), pairs = std::max(pairs, of);
        gathered = std::max(gathered, of * uint64_t(p.values[std::size_t(o->in)].width));
        hidden = std::max(hidden, of * 3 * inner);
        results = std::max(results, of * uint64_t(p.values[std::size_t(o->out)].width));
      }
  }
};

uint64_t ExpertsWorkspace::bytes(const Program& program, const BackendOptions& o) {
  const Sizes n(program, o);
  return 4 * n.logits + 2 * n.gathered + 2 * n.hidden + 4 * n.results + 12 * n.pairs;
}

ExpertsWorkspace::ExpertsWorkspace(const Program& program, const runtime::Device& device,
                                   const BackendOptions& o)
    : host_logits_(device, Sizes(program, o).logits), host_lists_(device, 12 * Sizes(program, o).pairs) {
  const Sizes n(program, o);
  logits_ = runtime::Buffer<float>(device, n.logits, "logits of the router");
  results_ = runtime::Buffer<float>(device, n.results, "results of experts");
  gathered_ = runtime::Buffer<std::uint8_t>(device, 2 * n.gathered, "tokens of experts");
  hidden_ = runtime::Buffer<std::uint8_t>(device, 2 * n.hidden, "hidden values of experts");
  lists_ = runtime::Buffer<std::uint8_t>(device, 12 * n.pairs, "tokens by expert");
}

uint64_t DeviceExperts::bytes_for(const runtime::Device& device, const Program& p, const model::Source& file,
                                  const Experts& o) {
  const auto one = [&](WeightId id) { return DeviceMatrix::bytes_for(device, p, file, {&id, 1}); };
  const std::vector<WeightId> both{o.gate, o.up};
  return one(o.router) + one(o.down) +
         (gated(device, p, file, o) ? DeviceMatrix::bytes_for(device, p, file, both)
                                    : one(o.gate) + one(o.up));
}

DeviceExperts::DeviceExperts(WeightLoader& loader, const runtime::Device& device, const Program& p,
                             const model::Source& file, const Experts& o)
    : o_(o),
      inner_(uint64_t(p.weights[std::size_t(o.gate)].rows)),
      width_in_(uint64_t(p.values[std::size_t(o.in)].width)),
      width_out_(uint64_t(p.values[std::size_t(o.out)].width)) {
  const auto load = [&](std::vector<WeightId> weights, bool both) {
    return std::make_unique<DeviceMatrix>(loader, device, p, file, weights, both);
  };
  router_ = load({o.router}, false), down_ = load({o.down}, false);
  if (gated(device, p, file, o)) {
    gate_up_.push_back(load({o.gate, o.up}, true));
  } else {
    gate_up_.push_back(load({o.gate}, false));
    gate_up_.push_back(load({o.up}, false));
  }
}

uint64_t DeviceExperts::workspace(const runtime::Device& device, uint64_t rows) const {
  uint64_t most = std::max(router_->workspace(device, rows), down_->workspace(device, rows));
  for (const auto& m : gate_up_) most = std::max(most, m->workspace(device, rows));
  return most;
}

/// The `used` experts of a token with the greatest logits (of equal ones the least index), by index.
std::vector<DeviceExperts::Choice> DeviceExperts::choose(std::span<const float> logits) const {
  std::vector<int64_t> order(logits.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = int64_t(i);
  const auto used = std::size_t(o_.used);
  std::partial_sort(order.begin(), order.begin() + std::ptrdiff_t(used), order.end(),
                    [&](int64_t a, int64_t b) {
                      const float x = logits[std::size_t(a)], y = logits[std::size_t(b)];
                      return x != y ? x > y : a < b;
                    });
  const double most = double(logits[std::size_t(order[0])]);
  const auto power = [&](float v) { return std::exp(double(v) - most); };
  double sum = 0;
  if (o_.normalized)
    for (std::size_t j = 0; j < used; ++j) sum += power(logits[std::size_t(order[j])]);
  else
    for (float v : logits) sum += power(v);
  std::sort(order.begin(), order.begin() + std::ptrdiff_t(used));
  std::vector<Choice> out;
  for (std::size_t j = 0; j < used; ++j)
    out.push_back({order[j], float(power(logits[std::size_t(order[j])]) / sum)});
  return out;
}

void DeviceExperts::run(runtime::Stream& s, uint64_t rows, const Place& in, const Place& out,
                        ExpertsWorkspace& w, const runtime::Buffer<std::uint8_t>& products) const {
  const auto device = s.device();
  const uint64_t experts = uint64_t(o_.experts), used = uint64_t(o_.used), pairs = rows * used;
  router_->multiply(s, rows, in.address, uint64_t(in.pitch), w.logits_.address(), experts, products,
                    {.end = kernels::WeightOnlyEnd::store_f32});
  s.download(std::as_const(w.logits_).all().slice(0, rows * experts),
             w.host_logits_.span().first(rows * experts));
  s.wait();
  std::vector<std::vector<Choice>> chosen;
  std::vector<uint64_t> ends(experts + 1, 0);  // of each expert's tokens, shifted by one
  for (uint64_t i = 0; i < rows; ++i) {
    chosen.push_back(choose(std::span<const float>(w.host_logits_.span()).subspan(i * experts, experts)));
    for (const Choice& c : chosen.back()) ++ends[std::size_t(c.expert) + 1];
  }
  for (uint64_t e = 0; e < experts; ++e) ends[e + 1] += ends[e];
  // Tokens by expert; where a token's results are, and what they are multiplied by.
  auto* const tokens = reinterpret_cast<std::int32_t*>(w.host_lists_.data());
  auto* const places = reinterpret_cast<std::uint32_t*>(tokens + pairs);
  auto* const weights = reinterpret_cast<float*>(places + pairs);
  auto next = ends;
  for (uint64_t i = 0; i < rows; ++i)
    for (uint64_t j = 0; j < used; ++j) {
      const auto place = next[std::size_t(chosen[i][j].expert)]++;
      tokens[place] = std::int32_t(i);
      places[i * used + j] = std::uint32_t(place), weights[i * used + j] = chosen[i][j].weight;
    }
  s.upload(w.lists_.all().slice(0, 12 * pairs), w.host_lists_.span().first(12 * pairs));
  const uint64_t lists = w.lists_.address(), gathered = w.gathered_.address(), hidden = w.hidden_.address();
  kernels::Embedding gather;
  gather.indices = view(device, lists, DType::s32, false), gather.indices.elements = pairs;
  gather.weight = view(device, in.address, DType::f16, false);
  gather.out = view(device, gathered, DType::f16, true);
  gather.rows = pairs, gather.vocab = rows, gather.cols = width_in_;
  gather.weight_layout = {.pitch = uint64_t(in.pitch)}, gather.out_layout = {.pitch = width_in_};
  kernels::embedding(s, gather);
  const auto activation = activation_of(o_.activation);
  for (uint64_t e = 0; e < experts; ++e) {
    const uint64_t first = ends[e], count = ends[e + 1] - first;
    if (!count) continue;
    const uint64_t x = gathered + 2 * first * width_in_, h = hidden + 2 * first * 3 * inner_;
    if (gate_up_.size() == 1) {
      gate_up_[0]->multiply(s, count, x, width_in_, h, inner_, products,
                            {.end = kernels::WeightOnlyEnd::gate,
                             .activation = activation,
                             .first = 2 * e * inner_,
                             .rows = 2 * inner_});
    } else {
      // The gate and up behind each token's hidden values.
      const uint64_t both = h + 2 * count * inner_;
      for (uint64_t i = 0; i < 2; ++i)
        gate_up_[i]->multiply(s, count, x, width_in_, both + 2 * i * inner_, 2 * inner_, products,
                              {.first = e * inner_, .rows = inner_});
      kernels::Gate g;
      g.activation = activation, g.rows = count, g.cols = inner_;
      g.gate = view(device, both, DType::f16, false);
      g.up = view(device, both + 2 * inner_, DType::f16, false);
      g.out = view(device, h, DType::f16, true);
      g.gate_layout = g.up_layout = {.pitch = 2 * inner_}, g.out_layout = {.pitch = inner_};
      kernels::gated(s, g);
    }
    down_->multiply(s, count, h, inner_, w.results_.address() + 4 * first * width_out_, width_out_, products,
                    {.end = kernels::WeightOnlyEnd::store_f32, .first = e * width_out_, .rows = width_out_});
  }
  if (o_.residual == kNone) {
    const runtime::Slice<float> all(device.backend().get(), out.address, rows * uint64_t(out.pitch));
    s.zero(all);
  }
  kernels::moe_combine(s, {.tokens = rows,
                           .used = used,
                           .k = width_out_,
                           .y = w.results_.address(),
                           .rows = lists + 4 * pairs,
                           .weights = lists + 8 * pairs,
                           .out = out.address,
                           .ldo = uint64_t(out.pitch)});
}

}  // namespace cgp::engine
