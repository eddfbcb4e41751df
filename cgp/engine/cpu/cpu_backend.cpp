// SPDX-License-Identifier: Apache-2.0
#include "cgp/engine/cpu/cpu_backend.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/cpu/ops/attention.h"
#include "cgp/cpu/threads.h"
#include "cgp/engine/cpu/cpu_weights.h"

namespace cgp::engine {
namespace {

using std::int32_t;
using std::int64_t;
using text::cat;

cpu::CacheType cache_type(CacheType t) {
  return t == CacheType::f32   ? cpu::CacheType::f32
         : t == CacheType::f16 ? cpu::CacheType::f16
                               : cpu::CacheType::bf16;
}
int64_t bytes_of(CacheType t) { return t == CacheType::f32 ? 4 : 2; }
cpu::Activation activation(Activation a) { return cpu::Activation(int(a)); }

/// Of keys, or of values, in one layer.
int64_t page_bytes(const Program& p, const BackendOptions& o) {
  return o.page_tokens * p.kv_heads * p.head_dim * bytes_of(o.cache);
}

/// The widest result of a product that is added to something, and of what else needs a place of its own.
int64_t scratch_width(const Program& p) {
  int64_t widest = 1;
  for (const Step& s : p.steps) {
    if (const auto* o = std::get_if<Linear>(&s.operation))
      widest = std::max(widest, p.values[std::size_t(o->parts[0].out)].width);
    if (const auto* o = std::get_if<Embedding>(&s.operation))
      widest = std::max(widest, p.values[std::size_t(o->out)].width);
    if (const auto* o = std::get_if<Experts>(&s.operation)) {
      const Weight& gate = p.weights[std::size_t(o->gate)];
      widest = std::max(widest, 2 * gate.rows + 2 * p.values[std::size_t(o->out)].width + o->experts);
    }
  }
  return widest;
}

int64_t rows_of(const Value& v, const BackendOptions& o) {
  return v.rows == Rows::tokens ? o.max_rows : o.max_outputs;
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(Program program, std::shared_ptr<const model::Source> file, const BackendOptions& o)
      : program_(std::move(program)),
        options_(o),
        estimate_(cpu_memory(program_, *file, o)),
        weights_(program_, std::move(file), o) {
    for (const Value& v : program_.values) values_.emplace_back(std::size_t(v.width * rows_of(v, o)));
    const int64_t rows = std::max(o.max_rows, o.max_outputs);
    scratch_.resize(std::size_t(scratch_width(program_) * rows));
    for (const RopeTable& t : program_.rope_tables) {
      cosines_.emplace_back(2 * t.frequencies.size() * std::size_t(o.max_rows));
      sines_.emplace_back(cosines_.back().size());
    }
    positions_.resize(std::size_t(o.max_rows));
    for (const Step& s : program_.steps)
      if (const auto* e = std::get_if<Experts>(&s.operation))
        chosen_.resize(std::max(chosen_.size(), std::size_t(rows * e->used))),
            expert_rows_.resize(std::size_t(rows));
    cache_.at_least(std::size_t(o.pages * 2 * program_.cache_layers * page_bytes(program_, o)));
    blocks_.reserve(std::size_t(o.max_sequences * ((program_.context + o.page_tokens - 1) / o.page_tokens)));
    profile_.resize(std::size_t(kRoles));
  }

  const Program& program() const override { return program_; }
  const BackendOptions& options() const override { return options_; }
  std::string name() const override {
    const auto a = activations_of(options_.activations);
    return cat("cpu (", options_.threads ? options_.threads : cpu::processors(), " threads, ",
               a == cpu::Activations::f32    ? "f32"
               : a == cpu::Activations::int8 ? "int8"
                                             : "int16",
               " activations)");
  }
  MemoryEstimate memory() const override { return estimate_; }
  void set_profile(bool on) override {
    profiled_ = on;
    if (on) std::fill(profile_.begin(), profile_.end(), RoleTime{});
  }
  std::vector<RoleTime> profile() const override { return profile_; }

  void copy_page(int32_t from, int32_t to) override {
    const auto bytes = std::size_t(2 * program_.cache_layers * page_bytes(program_, options_));
    auto* const memory = cache_.as<std::byte>();
    std::memcpy(memory + std::size_t(to) * bytes, memory + std::size_t(from) * bytes, bytes);
  }

  void run(const Batch& batch, const Outputs& out) override {
    check(batch, out, program_, options_);
    batch_ = &batch;
    rows_ = int64_t(batch.tokens.size());
    for (const BatchSequence& s : batch.sequences)
      for (int32_t i = 0; i < s.rows; ++i) positions_[std::size_t(s.first_row + i)] = s.first_position + i;
    blocks_.clear();
    for (const BatchSequence& s : batch.sequences)
      for (int64_t p = 0; p * options_.page_tokens < s.first_position + s.rows; ++p)
        blocks_.push_back(std::int32_t(s.pages[std::size_t(p)] * 2 * program_.cache_layers));
    rotated_.assign(2 * program_.rope_tables.size(), false);
    for (const Step& s : program_.steps) {
      const auto start =
          profiled_ ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point();
      if (!batch.outputs.empty() || !is_output(s.operation))
        std::visit([this](const auto& o) { execute(o); }, s.operation);
      if (!profiled_) continue;
      RoleTime& t = profile_[std::size_t(s.role)];
      ++t.count;
      t.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    const auto logits = value(program_.logits);
    if (!out.logits.empty()) std::copy(logits.begin(), logits.end(), out.logits.begin());
    const std::size_t words = std::size_t(program_.values[std::size_t(program_.logits)].width);
    for (std::size_t i = 0; i < out.greedy.size(); ++i)
      out.greedy[i] = greatest(logits.subspan(i * words, words));
  }

 private:
  static int32_t greatest(std::span<const float> logits) {
    std::size_t best = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (std::isnan(logits[i])) return -1;
      if (logits[i] > logits[best]) best = i;
    }
    return int32_t(best);
  }

  int64_t rows(ValueId v) const {
    return program_.values[std::size_t(v)].rows == Rows::tokens ? rows_ : int64_t(batch_->outputs.size());
  }
  int64_t width(ValueId v) const { return program_.values[std::size_t(v)].width; }
  /// The rows of this step.
  std::span<float> value(ValueId v) {
    return std::span(values_[std::size_t(v)]).first(std::size_t(rows(v) * width(v)));
  }
  std::span<float> scratch(std::size_t size) { return std::span(scratch_).first(size); }
  cpu::OpOptions op() const { return {.threads = options_.threads}; }

  /// Whether it runs on outputs alone: without any it has no rows.
  bool is_output(const Operation& operation) const {
    const ValueId out = std::visit(
        [](const auto& o) -> ValueId {
          using O = std::decay_t<decltype(o)>;
          if constexpr (std::is_same_v<O, Linear>)
            return o.parts[0].out;
          else if constexpr (std::is_same_v<O, Rope> || std::is_same_v<O, Scale> ||
                             std::is_same_v<O, AllReduce>)
            return o.value;
          else
            return o.out;
        },
        operation);
    return program_.values[std::size_t(out)].rows == Rows::outputs;
  }

  void execute(const Embedding& o) {
    const auto out = value(o.out);
    weights_.rows(o.table, batch_->tokens, out);
    if (o.scale != 1)
      for (float& v : out) v *= o.scale;
    if (o.positions == kNone) return;
    const auto added = scratch(out.size());
    weights_.rows(o.positions, std::span(positions_).first(std::size_t(rows_)), added);
    add(added, out);
  }
  void execute(const RmsNorm& o) {
    cpu::rms_norm(value(o.in), weights_.vector(o.weight), o.epsilon, value(o.out), op());
  }
  void execute(const LayerNorm& o) {
    cpu::layer_norm(value(o.in), weights_.vector(o.weight), weights_.vector(o.bias), o.epsilon, value(o.out),
                    op());
  }
  void execute(const Linear& o) {
    const auto in = value(o.in);
    const int64_t n = rows(o.in);
    const auto product = [&](const Linear::Part& part, std::span<float> out) {
      weights_.multiply(part.weight, 0, n, in, out);
      add_bias(weights_.vector(part.bias), out);
    };
    if (o.gated) {
      const auto gate = value(o.parts[0].out), up = scratch(gate.size());
      product(o.parts[0], gate), product(o.parts[1], up);
      return cpu::activate(activation(o.activation), gate, up, gate, op());
    }
    if (o.residual != kNone) {
      const auto out = value(o.parts[0].out), residual = value(o.residual), added = scratch(out.size());
      product(o.parts[0], added);
      if (o.residual != o.parts[0].out) std::copy(residual.begin(), residual.end(), out.begin());
      return add(added, out);
    }
    for (const Linear::Part& part : o.parts) {
      const auto out = value(part.out);
      product(part, out);
      if (o.activated) cpu::activate(activation(o.activation), out, {}, out, op());
    }
  }
  void execute(const Rope& o) {
    const RopeTable& t = program_.rope_tables[std::size_t(o.table)];
    const auto pairs = o.halves ? cpu::RopePairs::halves : cpu::RopePairs::neighbours;
    const std::size_t size = 2 * t.frequencies.size() * std::size_t(rows_), table = std::size_t(o.table);
    const auto cosines = std::span(cosines_[table]).first(size), sines = std::span(sines_[table]).first(size);
    const std::size_t made = 2 * table + std::size_t(o.halves);
    if (!rotated_[made]) {
      cpu::rope_angles(pairs, std::span(positions_).first(std::size_t(rows_)), t.frequencies, t.magnitude,
                       cosines, sines);
      rotated_[made] = true, rotated_[made ^ 1] = false;
    }
    cpu::rotate(pairs, value(o.value), o.heads, o.head_dim, cosines, sines, op());
  }
  void execute(const Attention& o) {
    // A page of the cache is a block of keys and one of values for each layer: seen from its first block, a layer's pages
    // lie 2 * cache_layers blocks apart.
    const int64_t block = page_bytes(program_, options_),
                  blocks = (options_.pages - 1) * 2 * program_.cache_layers + 1;
    const std::span keys(cache_.as<std::byte>() + 2 * o.cache_layer * block, std::size_t(blocks * block));
    const std::span values(keys.data() + block, keys.size());
    store(value(o.k), keys), store(value(o.v), values);
    const auto q = value(o.q), out = value(o.out);
    std::span<const int32_t> left(blocks_);
    for (const BatchSequence& s : batch_->sequences) {
      const auto first = std::size_t(s.first_row * width(o.q)), count = std::size_t(s.rows * width(o.q));
      const auto pages = pages_of(s, left);
      const cpu::KvCache cache{keys,
                               values,
                               cache_type(options_.cache),
                               o.kv_heads,
                               o.head_dim,
                               options_.page_tokens,
                               pages,
                               s.first_position + s.rows};
      cpu::attention(q.subspan(first, count), s.rows, cache,
                     {.scale = o.scale, .softcap = o.softcap, .window = o.window}, out.subspan(first, count),
                     op());
    }
  }
  void execute(const Experts& o) {
    const auto in = value(o.in), out = value(o.out);
    const int64_t n = rows(o.in), in_width = width(o.in), out_width = width(o.out);
    const int64_t inner = program_.weights[std::size_t(o.gate)].rows;
    if (o.residual == kNone)
      std::fill(out.begin(), out.end(), 0.0f);
    else if (const auto residual = value(o.residual); o.residual != o.out)
      std::copy(residual.begin(), residual.end(), out.begin());
    // Parts of the scratch, each for as many rows as there are.
    float* at = scratch_.data();
    const auto part = [&](int64_t width) {
      const std::span<float> s(at, std::size_t(n * width));
      at += n * width;
      return s;
    };
    const auto scores = part(o.experts), gathered = part(std::max(in_width, out_width)), gate = part(inner),
               up = part(inner);
    weights_.multiply(o.router, 0, n, in, scores);
    cpu::softmax(scores, o.experts, 1, scores, op());
    for (int64_t i = 0; i < n; ++i)
      choose(scores.subspan(std::size_t(i * o.experts), std::size_t(o.experts)), o, i);
    for (int64_t e = 0; e < o.experts; ++e) {
      int64_t count = 0;
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < o.used; ++j)
          if (chosen_[std::size_t(i * o.used + j)].expert == e)
            expert_rows_[std::size_t(count++)] = {i, chosen_[std::size_t(i * o.used + j)].weight};
      if (count == 0) continue;
      const auto of = [&](std::span<float> s, int64_t width) { return s.first(std::size_t(count * width)); };
      for (int64_t r = 0; r < count; ++r)
        std::copy_n(in.begin() + expert_rows_[std::size_t(r)].row * in_width, in_width,
                    gathered.begin() + r * in_width);
      weights_.multiply(o.gate, e, count, of(gathered, in_width), of(gate, inner));
      weights_.multiply(o.up, e, count, of(gathered, in_width), of(up, inner));
      cpu::activate(activation(o.activation), of(gate, inner), of(up, inner), of(gate, inner), op());
      weights_.multiply(o.down, e, count, of(gate, inner), of(gathered, out_width));
      for (int64_t r = 0; r < count; ++r) {
        const ExpertRow& to = expert_rows_[std::size_t(r)];
        for (int64_t i = 0; i < out_width; ++i)
          out[std::size_t(to.row * out_width + i)] += to.weight * gathered[std::size_t(r * out_width + i)];
      }
    }
  }
  void execute(const Add& o) {
    const auto a = value(o.a), b = value(o.b), out = value(o.out);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = a[i] + b[i];
  }
  void execute(const Scale& o) {
    for (float& v : value(o.value))
      v = o.softcap > 0 ? o.softcap * std::tanh(v * o.factor / o.softcap) : v * o.factor;
  }
  void execute(const SelectRows& o) {
    const auto in = value(o.in), out = value(o.out);
    const int64_t n = width(o.in);
    for (std::size_t i = 0; i < batch_->outputs.size(); ++i)
      std::copy_n(in.begin() + batch_->outputs[i] * n, n, out.begin() + int64_t(i) * n);
  }

  void execute(const AllReduce&) {
    throw Unsupported(ErrorText{"ranks that share a model are GPUs", "cpu", {}, {}});
  }

  static void add(std::span<const float> what, std::span<float> to) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += what[i];
  }
  static void add_bias(std::span<const float> bias, std::span<float> rows) {
    for (std::size_t i = 0; !bias.empty() && i < rows.size(); i += bias.size())
      add(bias, rows.subspan(i, bias.size()));
  }

  /// The sequence's part of blocks_, whose rest is `left` afterwards.
  std::span<const int32_t> pages_of(const BatchSequence& s, std::span<const int32_t>& left) const {
    const int64_t tokens = s.first_position + s.rows;
    const auto count = std::size_t((tokens + options_.page_tokens - 1) / options_.page_tokens);
    const auto out = left.first(count);
    left = left.subspan(count);
    return out;
  }

  /// Rows of keys or values to the pages of their sequences.
  void store(std::span<const float> rows, std::span<std::byte> memory) {
    const int64_t n = program_.kv_heads * program_.head_dim, bytes = n * bytes_of(options_.cache);
    std::span<const int32_t> left(blocks_);
    for (const BatchSequence& s : batch_->sequences) {
      const auto pages = pages_of(s, left);
      for (int64_t i = 0; i < s.rows; ++i) {
        const int64_t position = s.first_position + i;
        const int64_t slot = pages[std::size_t(position / options_.page_tokens)] * options_.page_tokens +
                             position % options_.page_tokens;
        const auto row = rows.subspan(std::size_t((s.first_row + i) * n), std::size_t(n));
        std::byte* to = memory.data() + slot * bytes;
        if (options_.cache == CacheType::f32)
          std::memcpy(to, row.data(), std::size_t(bytes));
        else if (options_.cache == CacheType::f16)
          cpu::to_f16(row, {reinterpret_cast<std::uint16_t*>(to), std::size_t(n)});
        else
          cpu::to_bf16(row, {reinterpret_cast<std::uint16_t*>(to), std::size_t(n)});
      }
    }
  }

  /// The experts of row i: the greatest probabilities, of equal ones the least index.
  void choose(std::span<float> p, const Experts& o, int64_t i) {
    const auto chosen = std::span(chosen_).subspan(std::size_t(i * o.used), std::size_t(o.used));
    float sum = 0;
    for (Chosen& c : chosen) {
      const auto best = std::max_element(p.begin(), p.end());
      c = {int64_t(best - p.begin()), *best};
      sum += *best;
      *best = -1;
    }
    for (Chosen& c : chosen)
      if (o.normalized) c.weight /= sum;
  }

  struct Chosen {
    int64_t expert;
    float weight;
  };
  struct ExpertRow {
    int64_t row;
    float weight;
  };

  Program program_;
  BackendOptions options_;
  MemoryEstimate estimate_;
  CpuWeights weights_;
  std::vector<std::vector<float>> values_, cosines_, sines_;
  std::vector<float> scratch_;
  std::vector<int32_t> positions_;
  std::vector<Chosen> chosen_;          ///< `used` of each row
  std::vector<ExpertRow> expert_rows_;  ///< of the expert that is at work
  std::vector<bool> rotated_;           ///< by table and kind of pairs: angles of this step are there
  cpu::AlignedBuffer cache_;            ///< [page][layer][keys, values][page_tokens][kv_heads][head_dim]
  std::vector<int32_t>
      blocks_;  ///< of the step's pages: their first blocks in the cache, sequence by sequence
  std::vector<RoleTime> profile_;
  bool profiled_ = false;
  const Batch* batch_ = nullptr;
  int64_t rows_ = 0;
};

void check_options(const Program& p, const BackendOptions& o) {
  if (const std::string why = reject(p); !why.empty())
    throw ArgumentError(ErrorText{"a program is sound", {}, why, {}});
  if (o.cache == CacheType::e4m3)
    throw Unsupported(
        ErrorText{"the cache of a processor is f32, f16 or bf16", {}, "e4m3 is for GPUs", "use f16"});
  if (o.pages > INT32_MAX / std::max<int64_t>(2 * p.cache_layers, 1))
    throw ArgumentError(ErrorText{
        "a cache has fewer than 2^31 blocks", {}, cat(o.pages, " pages, ", p.cache_layers, " layers"), {}});
  if (o.pages < 1 || o.page_tokens < 1 || o.max_rows < 1 || o.max_sequences < 1 || o.max_outputs < 1 ||
      o.threads < 0)
    throw ArgumentError(
        ErrorText{"pages, rows, sequences and outputs of a backend are positive",
                  {},
                  cat(o.pages, " pages of ", o.page_tokens, ", ", o.max_rows, " rows, ", o.max_sequences,
                      " sequences, ", o.max_outputs, " outputs, ", o.threads, " threads"),
                  {}});
}

}  // namespace

MemoryEstimate cpu_memory(const Program& p, const model::Source& file, const BackendOptions& o) {
  check_options(p, o);
  MemoryEstimate out;
  out.weights = CpuWeights::bytes_for(p, file, o);
  out.cache = 2 * p.cache_layers * o.pages * page_bytes(p, o);
  for (const Value& v : p.values) out.workspace += v.width * rows_of(v, o) * 4;
  out.workspace += scratch_width(p) * std::max(o.max_rows, o.max_outputs) * 4;
  for (const RopeTable& t : p.rope_tables)
    out.workspace += int64_t(t.frequencies.size()) * 4 * o.max_rows * 4;
  return out;
}

std::unique_ptr<Backend> make_cpu_backend(Program program, std::shared_ptr<const model::Source> file,
                                          const BackendOptions& o) {
  return std::make_unique<CpuBackend>(std::move(program), std::move(file), o);
}

}  // namespace cgp::engine
