// SPDX-License-Identifier: Apache-2.0
#include "cgp/engine/cpu/cpu_weights.h"

#include <algorithm>

#include "cgp/quant/decode.h"

namespace cgp::engine {
namespace {

using std::int64_t;

/// What a step reads of each weight.
enum class Use : std::uint8_t { none, table, vector, product };

std::vector<Use> uses_of(const Program& p) {
  std::vector<Use> uses(p.weights.size(), Use::none);
  const auto set = [&](WeightId w, Use use) {
    if (w != kNone) uses[std::size_t(w)] = use;
  };
  for (const Step& s : p.steps) {
    if (const auto* o = std::get_if<Embedding>(&s.operation))
      set(o->table, Use::table), set(o->positions, Use::table);
    if (const auto* o = std::get_if<RmsNorm>(&s.operation)) set(o->weight, Use::vector);
    if (const auto* o = std::get_if<LayerNorm>(&s.operation))
      set(o->weight, Use::vector), set(o->bias, Use::vector);
    if (const auto* o = std::get_if<Linear>(&s.operation))
      for (const Linear::Part& part : o->parts) set(part.weight, Use::product), set(part.bias, Use::vector);
    if (const auto* o = std::get_if<Experts>(&s.operation))
      for (WeightId w : {o->router, o->gate, o->up, o->down}) set(w, Use::product);
  }
  return uses;
}

}  // namespace

cpu::Activations activations_of(ActivationType type) {
  switch (type) {
    case ActivationType::f32:
      return cpu::Activations::f32;
    case ActivationType::int8:
      return cpu::Activations::int8;
    default:
      return cpu::Activations::int16;
  }
}

int64_t CpuWeights::bytes_for(const Program& p, const model::Source& file, const BackendOptions& o) {
  const auto uses = uses_of(p);
  const bool packs = activations_of(o.activations) != cpu::Activations::f32;
  int64_t bytes = 0;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const Weight& w = p.weights[i];
    const quant::Format f = format_of(w, file);
    if (uses[i] == Use::vector) bytes += w.cols * 4;
    if (uses[i] == Use::product && packs && cpu::can_pack(f))
      bytes += w.experts * cpu::PackedWeights::bytes_for(f, w.rows, w.cols);
  }
  return bytes;
}

CpuWeights::CpuWeights(const Program& p, std::shared_ptr<const model::Source> file, const BackendOptions& o)
    : file_(std::move(file)),
      activations_(activations_of(o.activations)),
      threads_(o.threads),
      batch_invariant_(o.batch_invariant) {
  const auto uses = uses_of(p);
  matrices_.resize(p.weights.size());
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const Weight& w = p.weights[i];
    Matrix& m = matrices_[i];
    m.rows = w.rows, m.cols = w.cols;
    for (int64_t e = 0; e < w.experts; ++e) m.stored.push_back(data_of(w, *file_, e));
    const quant::Format format = m.stored[0].format;
    if (uses[i] == Use::vector) {
      m.values.resize(std::size_t(w.cols));
      quant::decode(format, m.stored[0].blocks, m.values);
    } else if (uses[i] == Use::product && activations_ != cpu::Activations::f32 && cpu::can_pack(format)) {
      for (const WeightData& one : m.stored)
        m.packed.emplace_back(format, one.blocks, w.rows, w.cols, threads_);
    }
    if (o.progress) o.progress(double(i + 1) / double(uses.size()));
  }
}

void CpuWeights::multiply(WeightId weight, int64_t expert, int64_t n, std::span<const float> x,
                          std::span<float> y) const {
  const Matrix& m = matrices_[std::size_t(weight)];
  // The tiles of AMX take the stored weights, some three times as fast.
  const bool tiles = n >= cpu::kPanelVectors && !batch_invariant_ && cpu::chosen_isa() >= cpu::Isa::amx;
  if (!m.packed.empty() && !tiles)
    return cpu::quant_matmul(m.packed[std::size_t(expert)], n, x, y,
                             {.activations = activations_, .threads = threads_});
  const WeightData& stored = m.stored[std::size_t(expert)];
  // From kPanelVectors rows on sums are made in another order.
  const int64_t most = batch_invariant_ ? std::min(n, cpu::kPanelVectors - 4) : n;
  for (int64_t i = 0, count; i < n; i += count) {
    count = std::min(most, n - i);
    cpu::quant_matmul(stored.format, stored.blocks, m.rows, count, m.cols,
                      x.subspan(std::size_t(i * m.cols), std::size_t(count * m.cols)),
                      y.subspan(std::size_t(i * m.rows), std::size_t(count * m.rows)),
                      {.activations = activations_, .threads = threads_});
  }
}

void CpuWeights::rows(WeightId weight, std::span<const std::int32_t> ids, std::span<float> out) const {
  const Matrix& m = matrices_[std::size_t(weight)];
  cpu::quant_rows(m.stored[0].format, m.stored[0].blocks, m.rows, m.cols, ids, out);
}

std::span<const float> CpuWeights::vector(WeightId weight) const {
  if (weight == kNone) return {};
  return matrices_[std::size_t(weight)].values;
}

}  // namespace cgp::engine
