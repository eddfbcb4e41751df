// SPDX-License-Identifier: Apache-2.0
// An optimizer that owns its tables and states.
#include "cgp/kernels/optimizer/optimizer.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/optimizer/optimizer_code.h"

namespace cgp::kernels {
namespace {

[[noreturn]] void refuse(std::string rule, std::string what, std::string hint = {}) {
  throw ArgumentError({text::cat("optimizer: ", rule), {}, std::move(what), std::move(hint)});
}
std::uint64_t state_blocks(std::uint64_t elements) {
  return (elements + kOptimizerStateBlock - 1) / kOptimizerStateBlock;
}

}  // namespace

std::vector<double> optimizer_group_words(std::span<const OptimizerGroup> groups) {
  std::vector<double> words;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto& g = groups[i];
    const auto within = [&](std::string_view name, double value, double end) {
      if (!(value >= 0 && value < end))
        refuse(text::cat(name, " must be from 0 to ", end == 1 ? "below 1" : "infinity"),
               text::cat("group ", i, " has ", value));
    };
    constexpr double inf = std::numeric_limits<double>::infinity();
    within("lr", g.lr, inf), within("beta1", g.beta1, 1), within("beta2", g.beta2, 1);
    within("eps", g.eps, inf), within("weight_decay", g.weight_decay, inf);
    words.insert(words.end(), {g.lr, g.beta1, g.beta2, g.eps, g.weight_decay, double(g.maximize)});
  }
  return words;
}

Optimizer::Optimizer(const runtime::Device& device, const OptimizerOptions& o,
                     std::span<const OptimizerTensor> tensors, std::span<const OptimizerGroup> groups)
    : options_(o), groups_(std::uint32_t(groups.size())) {
  if (!(o.max_norm >= 0)) refuse("max_norm must be at least 0", text::cat("it is ", o.max_norm));
  if (!(o.loss_scale > 0)) refuse("loss_scale must be above 0", text::cat("it is ", o.loss_scale));
  if (!(o.growth >= 1 && o.backoff > 0 && o.backoff <= 1))
    refuse("the scale grows by at least 1 and falls by at most 1",
           text::cat("growth is ", o.growth, ", backoff ", o.backoff));
  checks_ = o.max_norm > 0 || o.growth_interval > 0 || o.skip_nonfinite;
  const row::Checker check{"optimizer"};
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& t = tensors[i];
    const auto name = text::cat("tensor ", i);
    check.present(text::cat(name, "'s weight"), t.weight, row::kFloats, true);
    check.present(text::cat(name, "'s gradient"), t.gradient, row::kFloats, false);
    if (t.master.given) check.present(text::cat(name, "'s master"), t.master, {DType::f32}, true);
    if (t.gradient.elements != t.weight.elements ||
        (t.master.given && t.master.elements != t.weight.elements))
      refuse("a weight, its gradient and its master have one length",
             text::cat(name, " has ", t.weight.elements, " weights, ", t.gradient.elements, " gradients"));
    if (t.weight.dtype != tensors[0].weight.dtype || t.gradient.dtype != tensors[0].gradient.dtype ||
        t.master.given != tensors[0].master.given)
      refuse("all tensors have the types of the first", text::cat(name, " differs"),
             "make one Optimizer for each pair of types");
    if (t.group >= groups.size())
      refuse("a tensor's group must exist", text::cat(name, " names ", t.group, " of ", groups.size()));
    lengths_.push_back(t.weight.elements), offsets_.push_back(total);
    total += state_blocks(t.weight.elements) * kOptimizerStateBlock;
  }
  types_.rule = o.rule, types_.rounding = o.rounding, types_.states8 = o.states8;
  if (!tensors.empty())
    types_.weight = tensors[0].weight.dtype, types_.gradient = tensors[0].gradient.dtype,
    types_.master = tensors[0].master.given;
  const std::uint64_t has[2] = {has_first_state(o.rule), has_second_state(o.rule)};
  const bool b8 = o.states8;
  first_ = device.zeros<float>(b8 ? 0 : has[0] * total),
  second_ = device.zeros<float>(b8 ? 0 : has[1] * total);
  for (int i = 0; i < 2; ++i) codes_[i] = device.zeros<std::uint8_t>(b8 ? has[i] * total : 0);
  scales_ = device.zeros<float>(b8 ? (has[0] + has[1]) * (total / kOptimizerStateBlock) : 0);
  steps_ = device.zeros<float>(tensors.size());
  std::vector<std::uint64_t> table(tensors.size() * kOptimizerRowWords);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& t = tensors[i];
    const auto state = [&](const runtime::Buffer<float>& f32, const runtime::Buffer<std::uint8_t>& codes) {
      return b8 ? codes.address() + offsets_[i] : f32.address() + offsets_[i] * 4;
    };
    const OptimizerRow row{t.weight.address,
                           t.gradient.address,
                           b8               ? state_scales(i, 0).address()
                           : t.master.given ? t.master.address
                                            : 0,
                           has[0] ? state(first_, codes_[0]) : 0,
                           has[1] ? state(second_, codes_[1]) : 0,
                           steps_.address() + i * 4,
                           lengths_[i],
                           t.group,
                           std::uint32_t(i)};
    std::memcpy(&table[i * kOptimizerRowWords], &row, sizeof row);
  }
  const auto chunks = optimizer_chunks(lengths_);
  table_ = device.upload<std::uint64_t>(table);
  chunks_ = device.upload<std::uint32_t>(chunks);
  partial_ = device.zeros<float>(checks_ ? chunks.size() / 2 : 0);
  rates_ = device.zeros<float>(tensors.size() * kOptimizerRateWords);
  group_data_ = device.upload<double>(optimizer_group_words(groups));
  control_ = device.zeros<std::uint32_t>(kOptimizerControlWords);
  restore({.loss_scale = float(o.loss_scale)});
}

void Optimizer::step(runtime::Stream& s) {
  if (chunks_.size() == 0) return;
  const OptimizerTables t{table_, group_data_, control_, rates_};
  if (checks_) optimizer_norm(s, types_.gradient, table_, chunks_, partial_);
  optimizer_control(s,
                    {.rule = options_.rule,
                     .max_norm = float(options_.max_norm),
                     .growth = float(options_.growth),
                     .backoff = float(options_.backoff),
                     .growth_interval = options_.growth_interval},
                    t, checks_ ? View(partial_) : View());
  optimizer_update(s, types_, t, chunks_, options_.seed);
}

void Optimizer::set_groups(std::span<const OptimizerGroup> groups) {
  if (groups.size() != groups_)
    refuse("the number of groups stays", text::cat("there are ", groups_, ", given are ", groups.size()));
  group_data_.upload(optimizer_group_words(groups));
}

OptimizerStatus Optimizer::status() const {
  const auto c = control_.to_vector();
  return {c[kTaken], c[kSkipped], c[kGood], std::bit_cast<float>(c[kScale]), std::bit_cast<float>(c[kNorm])};
}
void Optimizer::restore(const OptimizerStatus& s) {
  std::vector<std::uint32_t> c(kOptimizerControlWords);
  c[kTaken] = s.step, c[kSkipped] = s.skipped, c[kGood] = s.good;
  c[kScale] = std::bit_cast<std::uint32_t>(s.loss_scale), c[kNorm] = std::bit_cast<std::uint32_t>(s.norm);
  control_.upload(c);
  steps_.upload(std::vector<float>(steps_.size(), float(s.step)));
}

runtime::Slice<float> Optimizer::first_state(std::size_t i) {
  return first_.size() ? first_.slice(offsets_.at(i), lengths_.at(i)) : runtime::Slice<float>();
}
runtime::Slice<float> Optimizer::second_state(std::size_t i) {
  return second_.size() ? second_.slice(offsets_.at(i), lengths_.at(i)) : runtime::Slice<float>();
}
runtime::Slice<std::uint8_t> Optimizer::state_codes(std::size_t i, int which) {
  auto& codes = codes_[which];
  return codes.size() ? codes.slice(offsets_.at(i), lengths_.at(i)) : runtime::Slice<std::uint8_t>();
}
runtime::Slice<float> Optimizer::state_scales(std::size_t i, int which) {
  const std::uint64_t states = has_second_state(options_.rule) ? 2 : 1, blocks = state_blocks(lengths_.at(i));
  if (!scales_.size() || which >= int(states)) return {};
  return scales_.slice(offsets_.at(i) / kOptimizerStateBlock * states + std::uint64_t(which) * blocks,
                       blocks);
}

}  // namespace cgp::kernels
