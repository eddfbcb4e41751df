// SPDX-License-Identifier: Apache-2.0
#include "cgp/engine/simt/simt_model.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/engine/device/device_elements.h"
#include "cgp/engine/models/model.h"
#include "cgp/kernels/activation/activation.h"
#include "cgp/kernels/argmax/argmax.h"
#include "cgp/kernels/attention/attention.h"
#include "cgp/kernels/embedding/embedding.h"
#include "cgp/kernels/kv_cache/kv_cache.h"
#include "cgp/kernels/norm/norm.h"
#include "cgp/kernels/rope/rope.h"
#include "cgp/quant/decode.h"

namespace cgp::engine {
namespace {

using kernels::View;
using std::int64_t;
using std::uint64_t;
using text::cat;

constexpr uint64_t kUnbounded = ~0ull >> 8;  ///< elements of a view whose allocation is known elsewhere

kernels::Activation activation_of(Activation a) {
  return a == Activation::silu   ? kernels::Activation::silu
         : a == Activation::gelu ? kernels::Activation::gelu
                                 : kernels::Activation::gelu_tanh;
}

kernels::KvCacheShape cache_shape(const Program& p, const BackendOptions& o) {
  kernels::KvCacheShape c;
  c.type = c.pages = DType::f16;
  c.page_count = uint64_t(o.pages), c.page_size = uint64_t(o.page_tokens);
  c.heads = uint64_t(p.kv_heads), c.d = uint64_t(p.head_dim);
  return c;
}

[[noreturn]] void lacks(std::string what) {
  throw Unsupported(ErrorText{"kernels without tensor cores run every operation of the model",
                              {},
                              std::move(what),
                              "run it on the device \"cpu\", or on CUDA from sm_80 on"});
}

}  // namespace

void SimtModel::require_supported(const Program& p, const BackendOptions& o) {
  if (const std::string why = reject(p); !why.empty())
    throw ArgumentError(ErrorText{"a program is sound", {}, why, {}});
  if (o.pages < 1 || o.max_rows < 1 || o.max_sequences < 1 || o.max_outputs < 1)
    throw ArgumentError("pages, rows, sequences and outputs of a backend must be positive");
  if (o.page_tokens < p.context || !std::has_single_bit(uint64_t(o.page_tokens)))
    throw ArgumentError(ErrorText{"a page holds a whole sequence, and a power of two of tokens",
                                  "page_tokens",
                                  cat(o.page_tokens, " tokens, the context has ", p.context),
                                  {}});
  if (o.cache != CacheType::f16) lacks("the cache is f16 there");
  if (o.activations != ActivationType::automatic && o.activations != ActivationType::f32)
    lacks("activations are f32 there");
  if (const auto why = kernels::reject(cache_shape(p, o)); !why.empty()) lacks(why);
  for (const Step& s : p.steps) {
    if (std::holds_alternative<Experts>(s.operation)) lacks("the model is a mixture of experts");
    if (std::holds_alternative<AllReduce>(s.operation)) lacks("the model is shared by several GPUs");
    if (const auto* a = std::get_if<Attention>(&s.operation); a && a->head_dim > 256)
      lacks(cat("heads of ", a->head_dim, " elements; 256 are possible"));
  }
}

SimtModel::SimtModel(Program program, std::shared_ptr<const model::Source> file,
                     const runtime::Device& device, const BackendOptions& o, Weights weights)
    : program_(std::move(program)), file_(std::move(file)), options_(o), device_(device), how_(weights) {
  require_supported(program_, o);
  const auto control = [&](int64_t count, uint64_t size) {
    const uint64_t here = control_.bytes;
    control_.bytes += (uint64_t(count) * size + 255) / 256 * 256;
    return here;
  };
  control_.tokens = control(o.max_rows, 4), control_.positions = control(o.max_rows, 4);
  control_.slots = control(o.max_rows, 8), control_.lengths = control(o.max_sequences, 4);
  control_.outputs = control(o.max_outputs, 4);
  control_.address = allocate(control_.bytes, "step");

  const int64_t most_rows = std::max(o.max_rows, o.max_outputs);
  int64_t widest = 1, widest_q = 1;
  places_.resize(program_.values.size());
  for (const Step& s : program_.steps) {
    if (const auto* l = std::get_if<Linear>(&s.operation))
      for (const auto& part : l->parts)
        widest = std::max(widest, program_.weights[std::size_t(part.weight)].rows);
    if (const auto* a = std::get_if<Attention>(&s.operation)) {
      widest_q = std::max(widest_q, a->heads * a->head_dim);
      places_[std::size_t(a->out)].type = DType::f16;
    }
    if (const auto* r = std::get_if<SelectRows>(&s.operation))
      places_[std::size_t(r->out)].type = places_[std::size_t(r->in)].type;
  }
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const Value& v = program_.values[i];
    const int64_t rows = v.rows == Rows::tokens ? o.max_rows : o.max_outputs;
    places_[i].address = allocate(uint64_t(v.width * rows) * uint64_t(bytes(places_[i].type)), v.name);
  }
  for (uint64_t& s : scratch_) s = allocate(uint64_t(widest * most_rows) * 4, "products");
  const auto kv = uint64_t(program_.kv_heads * program_.head_dim * o.max_rows) * 2;
  q_ = allocate(uint64_t(widest_q * o.max_rows) * 2, "queries");
  k_ = allocate(kv, "keys"), v_ = allocate(kv, "values");
  for (int64_t i = 0; i < program_.cache_layers; ++i) {
    caches_.emplace_back(device_, cache_shape(program_, o).bytes(), "key-value cache");
    bytes_ += int64_t(caches_.back().size());
  }
  error_ = memory_.emplace_back(device_.zeros<std::uint8_t>(4, "error flag")).address();

  for (const RopeTable& t : program_.rope_tables) {
    std::vector<float> cosines, sines;
    for (int64_t p = 0; p < program_.context; ++p)
      for (const float f : t.frequencies) {
        cosines.push_back(float(std::cos(double(p) * double(f))) * t.magnitude);
        sines.push_back(float(std::sin(double(p) * double(f))) * t.magnitude);
      }
    ropes_.emplace_back(device_.upload<float>(cosines, "cosines"), device_.upload<float>(sines, "sines"));
  }
  uint64_t weights_bytes = 0;
  for (const Weight& w : program_.weights) weights_bytes += data_of(w, *file_).blocks.size();
  const bool packs = how_ == Weights::uploaded && 4 * weights_bytes <= device_.info().memory_bytes;
  for (const Step& s : program_.steps) {
    if (const auto* l = std::get_if<Linear>(&s.operation))
      for (const auto& part : l->parts) {
        load(part.weight);
        if (packs) pack_later(part.weight);
        for (const int64_t m : {int64_t(1), most_rows}) {
          const auto x = View::stand_in(places_[std::size_t(l->in)].type);
          const auto p = product(part.weight, uint64_t(m), x, View::stand_in(DType::f32));
          workspace_bytes_ =
              std::max(workspace_bytes_, kernels::quantized_matmul_plan(p, device_.info()).workspace);
        }
      }
    if (const auto* e = std::get_if<Embedding>(&s.operation))
      for (const WeightId id : {e->table, e->positions})
        if (id != kNone) {
          load(id);
          const Weight& w = program_.weights[std::size_t(id)];
          tables_[id] = allocate(uint64_t(w.rows * w.cols) * 4, w.tensor);
        }
  }
  workspace_ = allocate(workspace_bytes_, "products' workspace");
  greedy_ = runtime::Buffer<std::int32_t>(device_, std::size_t(o.max_outputs), "greedy");
  greatest_ = runtime::Buffer<float>(device_, std::size_t(o.max_outputs), "greatest logits");
}

uint64_t SimtModel::logits() const { return places_[std::size_t(program_.logits)].address; }

uint64_t SimtModel::allocate(uint64_t bytes, std::string_view name) {
  bytes_ += int64_t(bytes);
  return memory_.emplace_back(device_.alloc<std::uint8_t>(std::max<uint64_t>(bytes, 4), name)).address();
}
View SimtModel::view(uint64_t address, DType type, bool writes) const {
  return {address, kUnbounded, type, writes, device_.backend().get()};
}
View SimtModel::view(ValueId v, bool writes) const {
  const Place& p = places_[std::size_t(v)];
  return view(p.address, p.type, writes);
}

View SimtModel::vector(WeightId id) {
  if (id == kNone) return {};
  auto [at, made] = vectors_.try_emplace(id);
  if (made) {
    const Weight& w = program_.weights[std::size_t(id)];
    const auto data = data_of(w, *file_);
    std::vector<float> values(std::size_t(w.cols));
    quant::decode(data.format, data.blocks, values);
    at->second = device_.upload<float>(values, w.tensor);
  }
  return std::as_const(at->second);
}

void SimtModel::load(WeightId id) {
  auto [at, made] = matrices_.try_emplace(id);
  if (!made) return;
  const Weight& w = program_.weights[std::size_t(id)];
  const auto data = data_of(w, *file_);
  at->second.format = kernels::quantized_format_named(quant::info(data.format).name);
  at->second.rows = uint64_t(w.rows), at->second.cols = uint64_t(w.cols);
  // The same rows of a file are loaded once: a table of embeddings is often the language model's head.
  const auto same = std::find_if(loaded_.begin(), loaded_.end(),
                                 [&](const Loaded& l) { return l.bytes.data() == data.blocks.data(); });
  uint64_t address = same == loaded_.end() ? 0 : same->address;
  if (same == loaded_.end()) {
    auto& buffer =
        memory_.emplace_back(device_.alloc<std::uint8_t>((data.blocks.size() + 3) / 4 * 4, w.tensor));
    bytes_ += int64_t(buffer.size()), address = buffer.address();
    if (how_ == Weights::uploaded)
      buffer.all()
          .slice(0, data.blocks.size())
          .upload({reinterpret_cast<const std::uint8_t*>(data.blocks.data()), data.blocks.size()});
    loaded_.push_back({address, data.blocks});
  }
  at->second.codes = View(address, data.blocks.size(), DType::u8, false, device_.backend().get());
}

// A second copy of a matrix, packed for products of few rows.
void SimtModel::pack_later(WeightId id) {
  const kernels::QuantizedWeight& w = matrix(id);
  const auto f = kernels::packed_format(w.format);
  if (!f || packed_.contains(w.codes.address)) return;
  packed_[w.codes.address] = {allocate(kernels::packed_bytes(*f, w.rows, w.cols), "packed weights"), id};
}

const kernels::QuantizedWeight& SimtModel::matrix(WeightId id) { return matrices_.at(id); }

kernels::QuantizedMatmul SimtModel::product(WeightId id, uint64_t m, const View& x, const View& y) {
  kernels::QuantizedMatmul p;
  p.weight = matrix(id), p.x = x, p.y = y, p.m = m;
  p.x_layout.pitch = p.weight.cols, p.y_layout.pitch = p.weight.rows;
  if (const auto packed = packed_.find(p.weight.codes.address); packed != packed_.end())
    p.packed = packed_view(packed->second.address, p.weight, false);
  if (workspace_) p.workspace = View(workspace_, workspace_bytes_, DType::u8, true, device_.backend().get());
  return p;
}

View SimtModel::packed_view(uint64_t address, const kernels::QuantizedWeight& w, bool writes) const {
  return {address, kernels::packed_bytes(*kernels::packed_format(w.format), w.rows, w.cols), DType::u8,
          writes, device_.backend().get()};
}

void SimtModel::prepare(runtime::Stream& s) {
  for (const auto& [codes, packed] : packed_) {
    const kernels::QuantizedWeight& w = matrix(packed.weight);
    kernels::pack_weight(s, w, packed_view(packed.address, w, true));
  }
  for (const auto& [id, address] : tables_) {
    kernels::Dequantize d;
    d.weight = matrix(id), d.rows = d.weight.rows, d.out = view(address, DType::f32, true);
    kernels::dequantize(s, d);
  }
}

void SimtModel::issue(runtime::Stream& s, std::span<const BatchSequence> sequences, int64_t outputs,
                      bool greedy) {
  sequences_ = sequences, outputs_ = outputs, rows_ = 0;
  for (const BatchSequence& one : sequences) rows_ += one.rows;
  for (const Step& step : program_.steps) std::visit([&](const auto& o) { run(s, o); }, step.operation);
  if (!greedy || !outputs_) return;
  kernels::ArgMax a;
  a.in = view(program_.logits), a.index = greedy_, a.values = greatest_;
  a.rows = uint64_t(outputs_), a.cols = uint64_t(width(program_.logits));
  kernels::argmax(s, a);
}

void SimtModel::gather(runtime::Stream& s, const View& from, uint64_t table_rows, uint64_t indices,
                       ValueId out) {
  kernels::Embedding e;
  e.indices = view(control_.address + indices, DType::s32), e.weight = from, e.out = view(out, true);
  e.rows = rows(out), e.vocab = table_rows, e.cols = uint64_t(width(out));
  kernels::embedding(s, e);
}

void SimtModel::add(runtime::Stream& s, const View& a, const View& b, ValueId out) {
  static const auto kOp = std::make_shared<AddOp>();
  kernels::row::ElementProblem p;
  p.name = "add", p.op = kOp, p.rows = rows(out), p.cols = uint64_t(width(out));
  p.inputs = {{"a", a}, {"b", b}}, p.outputs = {{"out", view(out, true)}};
  if (p.rows) kernels::row::run_elements(s, p);
}

void SimtModel::run(runtime::Stream& s, const Embedding& o) {
  const auto rows_of = [&](WeightId id) { return uint64_t(program_.weights[std::size_t(id)].rows); };
  gather(s, view(tables_.at(o.table), DType::f32), rows_of(o.table), control_.tokens, o.out);
  if (o.scale != 1) run(s, Scale{o.out, o.scale, 0});
  if (o.positions == kNone) return;
  kernels::Embedding e;
  e.indices = view(control_.address + control_.positions, DType::s32);
  e.weight = view(tables_.at(o.positions), DType::f32), e.out = view(scratch_[0], DType::f32, true);
  e.rows = rows(o.out), e.vocab = rows_of(o.positions), e.cols = uint64_t(width(o.out));
  kernels::embedding(s, e);
  add(s, view(o.out), view(scratch_[0], DType::f32), o.out);
}

void SimtModel::run(runtime::Stream& s, const RmsNorm& o) {
  kernels::Norm n;
  n.x = view(o.in), n.y = view(o.out, true), n.weight = vector(o.weight), n.eps = o.epsilon;
  n.rows = rows(o.in) * uint64_t(width(o.in) / o.group), n.cols = uint64_t(o.group);
  if (n.rows) kernels::rms_norm(s, n);
}
void SimtModel::run(runtime::Stream& s, const LayerNorm& o) {
  kernels::Norm n;
  n.x = view(o.in), n.y = view(o.out, true), n.weight = vector(o.weight), n.bias = vector(o.bias);
  n.eps = o.epsilon, n.rows = rows(o.in), n.cols = uint64_t(width(o.in));
  if (n.rows) kernels::layer_norm(s, n);
}

void SimtModel::run(runtime::Stream& s, const Linear& o) {
  const uint64_t m = rows(o.in);
  if (m == 0) return;
  for (std::size_t i = 0; i < o.parts.size(); ++i) {
    const auto& part = o.parts[i];
    const bool direct = !o.gated && o.residual == kNone && part.out != o.in;
    const uint64_t cols = uint64_t(program_.weights[std::size_t(part.weight)].rows);
    const uint64_t at = scratch_[o.gated ? i : 0];
    const View to = direct ? view(part.out, true) : view(at, DType::f32, true);
    kernels::quantized_matmul(s, product(part.weight, m, view(o.in), to));
    const bool activates = o.activated && !o.gated, copies = !direct && !o.gated && o.residual == kNone;
    if (part.bias == kNone && !activates && !copies) continue;
    kernels::Activate a;
    a.activation = activates ? activation_of(o.activation) : kernels::Activation::identity;
    a.x = to, a.y = copies ? view(part.out, true) : to, a.bias = vector(part.bias);
    a.rows = m, a.cols = cols;
    kernels::activate(s, a);
  }
  const ValueId out = o.parts[0].out;
  if (o.gated) {
    kernels::Gate g;
    g.activation = activation_of(o.activation), g.rows = m, g.cols = uint64_t(width(out));
    g.gate = view(scratch_[0], DType::f32), g.up = view(scratch_[1], DType::f32), g.out = view(out, true);
    kernels::gated(s, g);
  }
  if (o.residual != kNone) add(s, view(o.residual), view(scratch_[0], DType::f32), out);
}

void SimtModel::run(runtime::Stream& s, const Rope& o) {
  const auto& [cosines, sines] = ropes_[std::size_t(o.table)];
  kernels::Rope r;
  r.x = view(o.value), r.y = view(o.value, true), r.cos = cosines, r.sin = sines;
  r.positions = view(control_.address + control_.positions, DType::s32),
  r.positions.elements = uint64_t(rows_);
  r.frequencies.rotary = 2 * program_.rope_tables[std::size_t(o.table)].frequencies.size();
  r.tokens = uint64_t(rows_), r.heads = uint64_t(o.heads), r.dim = uint64_t(o.head_dim);
  r.interleaved = !o.halves;
  kernels::rope(s, r);
}

void SimtModel::run(runtime::Stream& s, const Attention& o) {
  const auto shape = cache_shape(program_, options_);
  const uint64_t d = uint64_t(o.head_dim), q_cols = uint64_t(o.heads) * d, kv_cols = uint64_t(o.kv_heads) * d;
  const auto narrow = [&](ValueId from, uint64_t to, uint64_t cols) {
    kernels::Activate a;
    a.activation = kernels::Activation::identity;
    a.x = view(from), a.y = view(to, DType::f16, true), a.rows = uint64_t(rows_), a.cols = cols;
    kernels::activate(s, a);
  };
  narrow(o.q, q_, q_cols), narrow(o.k, k_, kv_cols), narrow(o.v, v_, kv_cols);
  const uint64_t pool = caches_[std::size_t(o.cache_layer)].address();
  kernels::kv_append(s, shape, pool, {.k = k_, .v = v_, .count = uint64_t(rows_)},
                     control_.address + control_.slots, error_);
  const Place& out = places_[std::size_t(o.out)];
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    const BatchSequence& one = sequences_[i];
    kernels::AttentionProblem p;
    p.type = DType::f16, p.heads_q = uint64_t(o.heads), p.heads_kv = uint64_t(o.kv_heads);
    p.n_q = uint64_t(one.rows), p.n_kv = uint64_t(program_.context), p.d_qk = p.d_v = d;
    p.q = p.o = {p.n_q * q_cols, d, q_cols};
    p.k = p.v = {shape.heads * shape.page_size * d, shape.page_size * d, d};
    p.scale = o.scale, p.causal = true, p.key_lengths = true, p.soft_cap = o.softcap;
    p.window_left = o.window == 0 || o.window >= program_.context ? -1 : o.window - 1;
    kernels::AttentionAddresses at;
    const uint64_t first = uint64_t(one.first_row) * q_cols * 2;
    const uint64_t page = pool + uint64_t(one.pages[0]) * shape.bytes() / shape.page_count;
    at.q = q_ + first, at.o = out.address + first;
    at.k = page, at.v = page + shape.heads * shape.page_size * d * 2;
    at.lengths = control_.address + control_.lengths + i * 4;
    kernels::attention(s, p, at);
  }
}

void SimtModel::run(runtime::Stream&, const Experts&) { lacks("the model is a mixture of experts"); }

void SimtModel::run(runtime::Stream& s, const Add& o) { add(s, view(o.a), view(o.b), o.out); }

void SimtModel::run(runtime::Stream& s, const Scale& o) {
  const uint64_t n = rows(o.value), cols = uint64_t(width(o.value));
  if (n == 0) return;
  if (o.softcap != 0) {
    kernels::row::ElementProblem p;
    p.name = "soft_cap", p.op = std::make_shared<SoftCapOp>(o.factor, o.softcap);
    p.form = cat(o.factor, "_", o.softcap), p.rows = n, p.cols = cols;
    p.inputs = {{"x", view(o.value)}}, p.outputs = {{"y", view(o.value, true)}};
    return kernels::row::run_elements(s, p);
  }
  kernels::Activate a;
  a.activation = kernels::Activation::identity, a.scale = o.factor;
  a.x = view(o.value), a.y = view(o.value, true), a.rows = n, a.cols = cols;
  kernels::activate(s, a);
}

void SimtModel::run(runtime::Stream& s, const SelectRows& o) {
  if (outputs_) gather(s, view(o.in), uint64_t(rows_), control_.outputs, o.out);
}

}  // namespace cgp::engine
