// SPDX-License-Identifier: Apache-2.0
#include "cgp/engine/device/device_backend.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/engine/device/device_elements.h"
#include "cgp/engine/device/device_experts.h"
#include "cgp/engine/device/device_plan.h"
#include "cgp/engine/device/device_rank.h"
#include "cgp/engine/device/device_weights.h"
#include "cgp/kernels/activation/activation.h"
#include "cgp/kernels/argmax/argmax.h"
#include "cgp/kernels/attention/attention.h"
#include "cgp/kernels/collective/collective.h"
#include "cgp/kernels/decode/decode.h"
#include "cgp/kernels/decode_linear/decode_norm.h"
#include "cgp/kernels/embedding/embedding.h"
#include "cgp/kernels/kv_cache/kv_cache.h"
#include "cgp/kernels/kv_cache/qkv_append.h"
#include "cgp/kernels/norm/norm.h"
#include "cgp/kernels/rope/rope.h"
#include "cgp/kernels/row/element_kernel.h"
#include "cgp/quant/decode.h"
#include "cgp/runtime/host_memory.h"
#include "cgp/runtime/stream.h"

namespace cgp::engine {

using namespace device_plan;

namespace {

using kernels::View;
using std::int32_t;
using std::int64_t;
using std::uint64_t;
using text::cat;
using Bytes = runtime::Buffer<std::uint8_t>;

/// Sequences with at most so many rows in a step read the cache where it lies; longer ones gather its keys first.
constexpr int32_t kPagedRows = 8;

class DeviceBackend final : public DeviceRank {
 public:
  DeviceBackend(Program program, std::shared_ptr<const model::Source> file, const runtime::Device& device,
                const BackendOptions& o, const kernels::Communicator* all = nullptr, int rank = 0)
      : program_(std::move(program)),
        file_(std::move(file)),
        options_(o),
        estimate_(device_memory(program_, *file_, device, o)),
        all_(all),
        rank_(rank),
        device_(device),
        stream_(device),
        columns_(columns_of(program_, o)),
        control_(o, columns_, width(embedding_of(program_).out)),
        host_control_(device, control_.bytes),
        device_control_(device, control_.bytes, "step"),
        profile_(std::size_t(kRoles)) {
    require_room(estimate_, device);
    const auto shape = cache_shape(program_, o);
    layer_bytes_ = aligned(shape.bytes());
    cache_ = Bytes(device, layer_bytes_ * uint64_t(program_.cache_layers), "key-value cache");
    place_values();
    for (const RopeTable& t : program_.rope_tables) add_rope_table(t);
    error_ = device.zeros<std::uint32_t>(1, "error flag");
    loader_ = std::make_unique<WeightLoader>(device);
    for (step_ = 0; step_ < program_.steps.size(); ++step_) {
      const Step& s = program_.steps[step_];
      std::visit([&](const auto& op) { compile(s, op); }, s.operation);
    }
    flush_residual();
    loader_.reset();
    kernels::DecodeProblem widest = decode_problem(std::max<uint64_t>(1, uint64_t(o.max_sequences)), 1);
    widest.heads_q = 1;
    for (const Step& s : program_.steps)
      if (const auto* a = std::get_if<Attention>(&s.operation))
        widest.heads_q = std::max(widest.heads_q, uint64_t(a->heads));
    uint64_t decode_bytes = 0;
    for (uint64_t n_q = 1; n_q <= uint64_t(kPagedRows); ++n_q)
      for (uint64_t batch : {uint64_t(1), uint64_t(o.max_sequences)}) {
        auto p = widest;
        p.n_q = n_q, p.batch = batch;
        decode_bytes = std::max(decode_bytes, kernels::decode_workspace(p, device.info()));
      }
    decode_workspace_ = device.zeros<std::uint8_t>(decode_bytes, "attention's workspace");
    workspace_ = Bytes(device, workspace_bytes_, "products' workspace");
    greedy_ = runtime::Buffer<int32_t>(device, std::size_t(o.max_outputs), "greedy");
    greatest_ = runtime::Buffer<float>(device, std::size_t(o.max_outputs), "greatest logits");
    device.sync();
  }

  const Program& program() const override { return program_; }
  const BackendOptions& options() const override { return options_; }
  std::string name() const override { return cat(device_.info().name, " (f16 activations)"); }
  MemoryEstimate memory() const override { return estimate_; }
  void set_profile(bool on) override {
    profiled_ = on;
    if (on) std::fill(profile_.begin(), profile_.end(), RoleTime{});
  }
  std::vector<RoleTime> profile() const override { return profile_; }
  void leave_out(const std::vector<Role>& roles) override {
    left_out_ = 0;
    for (Role r : roles) left_out_ |= uint64_t(1) << unsigned(r);
    graphs_.clear();
  }

  void copy_page(int32_t from, int32_t to) override {
    const uint64_t bytes = cache_shape(program_, options_).bytes() / uint64_t(options_.pages);
    for (int64_t layer = 0; layer < program_.cache_layers; ++layer) {
      const auto page = [&](int32_t i) {
        return cache_.all().slice(uint64_t(layer) * layer_bytes_ + uint64_t(i) * bytes, bytes);
      };
      stream_.copy<std::uint8_t>(page(to), page(from));
    }
    stream_.wait();
  }

  void run(const Batch& batch, const Outputs& out) override {
    check(batch, out, program_, options_);
    start(batch, !out.greedy.empty());
    queue();
    std::vector<float> greatest(out.greedy.size());
    finish(out, greatest);
    for (std::size_t i = 0; i < greatest.size(); ++i)
      if (std::isnan(greatest[i])) out.greedy[i] = -1;
  }

  void start(const Batch& batch, bool greedy) override {
    control_.fill(host_control_.data(), batch, program_, *file_, options_);
    rows_ = int64_t(batch.tokens.size()), outputs_ = int64_t(batch.outputs.size()), batch_ = &batch;
    greedy_wanted_ = greedy && outputs_, next_ = 0;
    const auto used = control_.embeddings + uint64_t(rows_ * width(embedding_of(program_).out)) * 4;
    stream_.upload(device_control_.all().slice(0, used), host_control_.span().first(used));
    // One token of each sequence: the first time as launches, which load their kernels, then as a graph.
    graph_ = nullptr;
    const bool list = rows_ == int64_t(batch.sequences.size()) && outputs_ == rows_;
    if (!list || device_.is_emulator() || profiled_ || !experts_.empty()) return;
    Recorded& r = graphs_[{rows_, greedy}];
    if (r.seen && !r.graph) r.graph = stream_.capture([&](runtime::Stream& s) { issue(s); });
    r.seen = true;
    if (r.graph) graph_ = &*r.graph;
  }
  void queue() override {
    if (graph_)
      stream_.replay(*graph_);
    else
      issue(stream_);
  }
  bool queue_own() override {
    for (; next_ < launches_.size(); ++next_) {
      const Launch& l = launches_[next_];
      if (!runs(l)) continue;
      if (l.role == Role::all_reduce) return true;
      queue_one(stream_, l);
    }
    find_greatest(stream_);
    return false;
  }
  void queue_collective() override { launches_[next_++].queue(stream_); }
  void wait() override { stream_.wait(); }
  void finish(const Outputs& out, std::span<float> greatest) override {
    if (!out.logits.empty()) {
      const Place& p = places_[std::size_t(program_.logits)];
      const runtime::Slice<const float> from(device_.backend().get(), p.address, out.logits.size());
      stream_.download(from, out.logits);
    }
    if (!out.greedy.empty()) {
      stream_.download(greedy_.all().slice(0, out.greedy.size()), out.greedy);
      stream_.download(greatest_.all().slice(0, greatest.size()), greatest);
    }
    stream_.wait();
  }

 private:
  struct Launch {
    Role role;
    bool on_outputs;  ///< it has no rows where no logits are wanted
    std::function<void(runtime::Stream&)> queue;
  };

  int64_t width(ValueId v) const { return program_.values[std::size_t(v)].width; }
  bool on_outputs(ValueId v) const { return program_.values[std::size_t(v)].rows == Rows::outputs; }
  uint64_t rows(ValueId v) const { return uint64_t(on_outputs(v) ? outputs_ : rows_); }
  const Place& place(ValueId v) const { return places_[std::size_t(v)]; }
  View view(const Place& p, bool writes = false) const {
    return {p.address, ~0ull >> 8, p.type, writes, device_.backend().get()};
  }
  View view(ValueId v, bool writes = false) const { return view(place(v), writes); }
  kernels::row::Layout layout(const Place& p) const { return {.pitch = uint64_t(p.pitch)}; }
  View control(uint64_t offset, DType type) const {
    return {device_control_.address() + offset, ~0ull >> 8, type, false, device_.backend().get()};
  }

  Bytes& memory(uint64_t bytes, std::string_view name) {
    return memory_.emplace_back(Bytes(device_, std::max<uint64_t>(bytes, 1), name));
  }

  /// Results of one Linear lie side by side, so that weights of one format are one product.
  void place_values() {
    places_.resize(program_.values.size());
    for (const Step& s : program_.steps) {
      const auto* o = std::get_if<Linear>(&s.operation);
      if (!o || o->gated || o->parts.size() < 2 || place(o->parts[0].out).address) continue;
      int64_t all = 0;
      for (const auto& part : o->parts) all += width(part.out);
      const Value& first = program_.values[std::size_t(o->parts[0].out)];
      uint64_t at = memory(uint64_t(all * rows_of(first, options_)) * 2, first.name).address();
      for (const auto& part : o->parts) {
        places_[std::size_t(part.out)] = {at, all, DType::f16};
        at += uint64_t(width(part.out)) * 2;
      }
    }
    const ValueId embedded = embedding_of(program_).out;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const Value& v = program_.values[i];
      Place& p = places_[i];
      if (p.address) continue;
      p.type = v.type == ValueType::f32 || ValueId(i) == embedded ? DType::f32 : DType::f16,
      p.pitch = v.width;
      p.address = ValueId(i) == embedded
                      ? device_control_.address() + control_.embeddings
                      : memory(uint64_t(v.width * rows_of(v, options_)) * bytes(p.type), v.name).address();
    }
    const int64_t rows = std::max(options_.max_rows, options_.max_outputs), wide = widest_product(program_);
    scratch_ = {memory(uint64_t(wide * rows) * 2, "products").address(), wide, DType::f16};
    const auto gathered = uint64_t(program_.context * program_.kv_heads * program_.head_dim) * 2;
    gathered_keys_ = memory(gathered, "gathered keys").address();
    gathered_values_ = memory(gathered, "gathered values").address();
  }

  void add_rope_table(const RopeTable& t) {
    std::vector<float> cosines, sines;
    for (int64_t p = 0; p < program_.context; ++p)
      for (float f : t.frequencies) {
        cosines.push_back(float(std::cos(double(p) * double(f))) * t.magnitude);
        sines.push_back(float(std::sin(double(p) * double(f))) * t.magnitude);
      }
    ropes_.push_back({device_.upload<float>(cosines, "cosines"), device_.upload<float>(sines, "sines")});
  }

  View vector(WeightId id) {
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

  void add(const Step& s, ValueId out, std::function<void(runtime::Stream&)> queue) {
    launches_.push_back({s.role, on_outputs(out), std::move(queue)});
  }

  // ---- the program as launches, when it is loaded
  /// The last product's result that is not yet added to the residual stream: the norm that follows does it.
  void flush_residual() {
    if (pending_ == kNone) return;
    const ValueId to = std::exchange(pending_, kNone);
    launches_.push_back(
        {Role::residual, on_outputs(to), [this, to](runtime::Stream& s) { add_scratch(s, to); }});
  }
  void add_scratch(runtime::Stream& s, ValueId to) {
    kernels::row::ElementProblem p;
    static const auto kOp = std::make_shared<AddOp>();
    p.name = "add", p.op = kOp, p.rows = rows(to), p.cols = uint64_t(width(to));
    p.inputs = {{"a", view(to)}, {"b", view(scratch_)}}, p.outputs = {{"out", view(to, true)}};
    const kernels::row::Layout dense{.pitch = uint64_t(width(to))};
    p.input_layouts = {dense, dense}, p.output_layouts = {dense};
    kernels::row::run_elements(s, p);
  }
  bool reads_pending(ValueId v) const { return pending_ != kNone && v == pending_; }

  void compile(const Step&, const Embedding&) {}  // by the host, with the upload of the step
  void norm(const Step& step, ValueId in, WeightId weight, WeightId bias, float eps, int64_t group,
            ValueId out, bool layer) {
    const bool adds = reads_pending(in) && group == width(in);
    if (adds)
      pending_ = kNone;
    else if (pending_ != kNone)
      flush_residual();
    const View w = vector(weight), b = vector(bias);
    if (!layer && !adds && group == width(in) && place(in).type == DType::f32 &&
        place(out).type == DType::f16) {
      kernels::DecodeNorm n;
      n.k = uint64_t(group), n.x = place(in).address, n.ldx = uint64_t(place(in).pitch), n.weight = w.address;
      n.y = place(out).address, n.ldy = uint64_t(place(out).pitch), n.eps = eps, n.pdl = true;
      if (kernels::reject(n).empty()) {
        const bool fused = product_normalises(in, out, n);
        add(step, out, [=, this](runtime::Stream& s) mutable {
          n.rows = rows(in);
          if (fused && n.rows == 1) return;
          kernels::decode_norm(s, n);
        });
        return;
      }
    }
    add(step, out, [=, this](runtime::Stream& s) {
      const auto heads = uint64_t(width(in) / group);
      kernels::Norm n;
      n.x = view(in), n.y = view(out, true), n.weight = w, n.bias = b, n.eps = eps;
      n.rows = rows(in) * heads, n.cols = uint64_t(group);
      const auto rows_in = [&](const Place& p) {
        return kernels::row::Layout{.pitch = heads > 1 ? uint64_t(group) : uint64_t(p.pitch),
                                    .inner = heads,
                                    .outer = heads > 1 ? uint64_t(p.pitch) : 0};
      };
      n.x_layout = rows_in(place(in)), n.y_layout = rows_in(place(out));
      if (adds) {
        n.x = view(scratch_), n.x_layout = {.pitch = uint64_t(width(in))};
        n.residual = view(in), n.sum = view(in, true);
        n.residual_layout = n.sum_layout = rows_in(place(in));
      }
      layer ? kernels::layer_norm(s, n) : kernels::rms_norm(s, n);
    });
  }
  /// A norm that a product of the step does to one row itself.
  struct FusedNorm {
    std::size_t step;
    ValueId in;
    kernels::DecodeNorm norm;
  };
  /// Whether the products that follow read the norm's result alone, and normalise one row when they load it.
  bool product_normalises(ValueId in, ValueId out, const kernels::DecodeNorm& n) {
    norm_of_.reset();
    const Linear* reader = only_product(program_, step_ + 1, out);
    for (const Product& p : reader ? products_of(*reader, program_, *file_) : std::vector<Product>())
      if (!DeviceMatrix::normalises(device_, program_, *file_, p.weights)) return false;
    if (reader) norm_of_ = FusedNorm{step_ + 1, in, n};
    return reader;
  }
  struct Input {  ///< of the product that is compiled
    ValueId value = kNone;
    std::optional<FusedNorm> norm;
  };
  Input input_of(const Linear& o) const {
    return {o.in, norm_of_ && norm_of_->step == step_ ? norm_of_ : std::nullopt};
  }
  /// Of products that follow each other every other one is the larger.
  kernels::WeightOnlySpace next_space() {
    using enum kernels::WeightOnlySpace;
    if (device_.is_emulator()) return whole;  // launches do not overlap there
    return (larger_ = !larger_) ? larger : smaller;
  }
  void multiply(runtime::Stream& s, const DeviceMatrix& matrix, const Input& in, uint64_t y, int64_t ldy,
                DeviceMatrix::Options options) {
    const uint64_t m = rows(in.value);
    Place x = place(in.value);
    if (in.norm && m == 1) {
      x = place(in.norm->in);
      options.norm = in.norm->norm.weight, options.eps = in.norm->norm.eps;
    }
    matrix.multiply(s, m, x.address, uint64_t(x.pitch), y, uint64_t(ldy), workspace_, options);
  }
  void compile(const Step& s, const RmsNorm& o) {
    norm(s, o.in, o.weight, kNone, o.epsilon, o.group, o.out, false);
  }
  void compile(const Step& s, const LayerNorm& o) {
    norm(s, o.in, o.weight, o.bias, o.epsilon, width(o.in), o.out, true);
  }

  void bias_and_activation(runtime::Stream& s, const Place& x, const Place& y, uint64_t rows, uint64_t cols,
                           View bias, kernels::Activation a) {
    if (!bias.given && a == kernels::Activation::identity && x.address == y.address) return;
    kernels::Activate act;
    act.activation = a, act.x = view(x), act.y = view(y, true), act.bias = bias;
    act.rows = rows, act.cols = cols, act.x_layout = layout(x), act.y_layout = layout(y);
    kernels::activate(s, act);
  }

  const DeviceMatrix& load_matrix(std::span<const WeightId> weights, bool gated) {
    const auto& matrix = *matrices_.emplace_back(
        std::make_unique<DeviceMatrix>(*loader_, device_, program_, *file_, weights, gated));
    loaded(matrix.rows() * matrix.cols());
    return matrix;
  }

  /// A product that ends with the gate, with the sum of the residual stream or with f32 results; false: it does not.
  bool multiply_in_one_launch(const Step& step, const Linear& o) {
    const ValueId out = o.parts[0].out;
    const auto products = products_of(o, program_, *file_);
    const bool sum = o.residual != kNone && o.residual == out && place(out).type == DType::f32,
               f32 = o.residual == kNone && place(out).type == DType::f32 && o.parts.size() == 1;
    if (products.size() != 1 || !DeviceMatrix::packs(device_, program_, *file_, products[0].weights) ||
        (o.activated && !o.gated) || !(o.gated || sum || f32))
      return false;
    for (const auto& part : o.parts)
      if (part.bias != kNone || (o.gated && program_.weights[std::size_t(part.weight)].rows % 8))
        return false;
    const auto& matrix = load_matrix(products[0].weights, o.gated);
    const auto end = o.gated ? kernels::WeightOnlyEnd::gate
                     : sum   ? kernels::WeightOnlyEnd::add_f32
                             : kernels::WeightOnlyEnd::store_f32;
    const auto a = o.gated ? activation_of(o.activation) : kernels::Activation::identity;
    add(step, out, [=, this, &matrix, in = input_of(o), space = next_space()](runtime::Stream& s) {
      multiply(s, matrix, in, place(out).address, place(out).pitch,
               {.end = end, .activation = a, .space = space});
    });
    return true;
  }

  void compile(const Step& step, const Linear& o) {
    flush_residual();
    if (place(o.in).type != DType::f16)
      lacks("products of f32 values", program_.values[std::size_t(o.in)].name);
    const ValueId out = o.parts[0].out;
    if (multiply_in_one_launch(step, o)) return;
    int64_t columns = 0;
    for (const auto& part : o.parts) columns += program_.weights[std::size_t(part.weight)].rows;
    // Into the value itself, or on the way to it.
    const bool direct = !o.gated && o.residual == kNone && place(out).type == DType::f16;
    Place to = direct ? place(out) : scratch_;
    if (!direct) to.pitch = columns;
    const auto products = products_of(o, program_, *file_);
    const bool all_packed = std::all_of(products.begin(), products.end(), [&](const Product& p) {
      return DeviceMatrix::packs(device_, program_, *file_, p.weights);
    });
    const auto space = next_space();
    for (std::size_t i = 0; i < products.size(); ++i) {
      const Product& product = products[i];
      // They need the same value, and not each other.
      const auto order = !all_packed || products.size() == 1 ? kernels::WeightOnlyOrder::after
                         : i                                 ? kernels::WeightOnlyOrder::beside
                                                             : kernels::WeightOnlyOrder::first;
      const auto& matrix = load_matrix(product.weights, false);
      workspace_bytes_ =
          std::max(workspace_bytes_,
                   matrix.workspace(device_, uint64_t(rows_of(program_.values[std::size_t(out)], options_))));
      const uint64_t y = to.address + uint64_t(product.column) * 2;
      add(step, out, [this, &matrix, in = input_of(o), y, to, order, space](runtime::Stream& s) {
        multiply(s, matrix, in, y, to.pitch, {.order = order, .space = space});
      });
    }
    const auto a = o.activated && !o.gated ? activation_of(o.activation) : kernels::Activation::identity;
    int64_t column = 0;
    for (const auto& part : o.parts) {
      const uint64_t cols = uint64_t(program_.weights[std::size_t(part.weight)].rows);
      Place at = to;
      at.address += uint64_t(column) * 2, column += int64_t(cols);
      // f32 values without a residual are converted by the same launch.
      const Place target = direct || o.gated || o.residual != kNone ? at : place(part.out);
      const View bias = vector(part.bias);
      if (bias.given || a != kernels::Activation::identity || target.address != at.address)
        add(step, out,
            [=, this](runtime::Stream& s) { bias_and_activation(s, at, target, rows(out), cols, bias, a); });
    }
    if (o.gated)
      add(step, out,
          [this, to, out, half = uint64_t(columns / 2), f = activation_of(o.activation)](runtime::Stream& s) {
            kernels::Gate g;
            g.activation = f, g.rows = rows(out), g.cols = half;
            Place up = to;
            up.address += half * 2;
            g.gate = view(to), g.up = view(up), g.out = view(out, true);
            g.gate_layout = g.up_layout = layout(to), g.out_layout = layout(place(out));
            kernels::gated(s, g);
          });
    if (o.residual == kNone) return;
    if (o.residual != out)
      lacks("a residual that is not written in place", program_.values[std::size_t(out)].name);
    pending_ = out;
  }

  void compile(const Step& step, const Rope& o) {
    flush_residual();
    // Keys right behind queries are heads of the same rows.
    if (merged_rope_ && merged_rope_->table == o.table && merged_rope_->halves == o.halves &&
        merged_rope_->head_dim == o.head_dim &&
        place(o.value).address ==
            place(merged_rope_->value).address + uint64_t(width(merged_rope_->value)) * 2 &&
        place(o.value).pitch == place(merged_rope_->value).pitch && rope_launch_ + 1 == launches_.size()) {
      *rope_heads_ += o.heads;
      return;
    }
    merged_rope_ = o, rope_launch_ = launches_.size(), rope_heads_ = std::make_shared<int64_t>(o.heads);
    add(step, o.value, [this, o, heads = rope_heads_](runtime::Stream& s) {
      const auto& table = ropes_[std::size_t(o.table)];
      const Place& p = place(o.value);
      kernels::Rope r;
      r.x = view(p), r.y = view(p, true), r.cos = table.cosines, r.sin = table.sines;
      r.positions = control(control_.positions, DType::s32);
      r.frequencies.rotary = 2 * program_.rope_tables[std::size_t(o.table)].frequencies.size();
      r.tokens = uint64_t(rows_), r.heads = uint64_t(*heads), r.dim = uint64_t(o.head_dim);
      r.x_token = r.y_token = uint64_t(p.pitch), r.x_head = r.y_head = uint64_t(o.head_dim);
      r.interleaved = !o.halves;
      r.positions.elements = r.tokens;
      kernels::rope(s, r);
    });
  }

  kernels::DecodeProblem decode_problem(uint64_t batch, uint64_t n_q) const {
    kernels::DecodeProblem p;
    p.cache = cache_shape(program_, options_), p.batch = batch, p.n_q = n_q;
    p.columns = uint64_t(columns_), p.max_length = uint64_t(program_.context);
    return p;
  }

  /// Rotation and append to the cache in one launch, where the last launch rotates queries and keys whole and values lie right
  /// behind them: that launch goes. None: they are two.
  std::optional<kernels::QkvAppend> rotate_and_append(const Attention& o) {
    const Place &q = place(o.q), &k = place(o.k), &v = place(o.v);
    const int64_t d = o.head_dim;
    if (options_.cache != CacheType::f16 || !merged_rope_ || rope_launch_ + 1 != launches_.size() ||
        merged_rope_->value != o.q || merged_rope_->head_dim != d || *rope_heads_ != o.heads + o.kv_heads ||
        k.pitch != q.pitch || v.pitch != q.pitch || k.address != q.address + uint64_t(o.heads * d) * 2 ||
        v.address != k.address + uint64_t(o.kv_heads * d) * 2)
      return {};
    const auto table = std::size_t(merged_rope_->table);
    if (2 * int64_t(program_.rope_tables[table].frequencies.size()) != d) return {};
    kernels::QkvAppend a;
    a.cache = cache_shape(program_, options_), a.heads_q = uint64_t(o.heads);
    a.qkv = q.address, a.pitch = uint64_t(q.pitch), a.pdl = true;
    a.cos = ropes_[table].cosines.address(), a.sin = ropes_[table].sines.address();
    a.positions = uint64_t(program_.context), a.interleaved = !merged_rope_->halves;
    a.pool = cache_.address() + uint64_t(o.cache_layer) * layer_bytes_;
    a.slots = device_control_.address() + control_.slots;
    a.places = device_control_.address() + control_.positions;
    a.error_flag = error_.address();
    launches_.pop_back(), merged_rope_.reset();
    return a;
  }

  void compile(const Step& step, const Attention& o) {
    flush_residual();
    add(step, o.out, [this, o, rotated = rotate_and_append(o)](runtime::Stream& s) mutable {
      const Place &q = place(o.q), &k = place(o.k), &v = place(o.v), &to = place(o.out);
      const uint64_t pool = cache_.address() + uint64_t(o.cache_layer) * layer_bytes_,
                     d = uint64_t(o.head_dim), base = device_control_.address();
      if (k.pitch != v.pitch) throw Error("keys and values of a step lie side by side");
      if (rotated) {
        rotated->tokens = uint64_t(rows_);
        kernels::qkv_append(s, *rotated);
      } else {
        kernels::kv_append(
            s, cache_shape(program_, options_), pool,
            {.k = k.address, .v = v.address, .row = uint64_t(k.pitch), .head = d, .count = uint64_t(rows_)},
            base + control_.slots, error_.address());
      }
      const auto& all = batch_->sequences;
      for (std::size_t i = 0; i < all.size();) {
        const BatchSequence& first = all[i];
        std::size_t count = 1;
        while (i + count < all.size() && all[i + count].rows == first.rows && first.rows == 1) ++count;
        const uint64_t at = uint64_t(first.first_row), n_q = uint64_t(first.rows);
        const uint64_t q_at = q.address + at * uint64_t(q.pitch) * 2,
                       o_at = to.address + at * uint64_t(to.pitch) * 2;
        const kernels::AttentionStrides q_strides{n_q * uint64_t(q.pitch), d, uint64_t(q.pitch)},
            o_strides{n_q * uint64_t(to.pitch), d, uint64_t(to.pitch)};
        const uint64_t table = base + control_.table + uint64_t(int64_t(i) * columns_) * 4,
                       lengths = base + control_.lengths + i * 4;
        if (first.rows <= kPagedRows) {
          auto p = decode_problem(count, n_q);
          p.heads_q = uint64_t(o.heads), p.q = q_strides, p.o = o_strides, p.scale = o.scale, p.pdl = true;
          p.window_left = window_left(o), p.soft_cap = o.softcap;
          if (count == 1) p.smem_kb = 96;  // beside it there is room for a product's block
          kernels::decode(s, p,
                          {.q = q_at,
                           .pool = pool,
                           .table = table,
                           .lengths = lengths,
                           .o = o_at,
                           .workspace = decode_workspace_.address(),
                           .error_flag = error_.address()});
        } else {
          prefill(s, o, first, q_at, q_strides, o_at, o_strides, pool, table, lengths);
        }
        i += count;
      }
    });
  }

  /// Keys before a query's own; -1: all.
  int64_t window_left(const Attention& o) const {
    return o.window == 0 || o.window >= program_.context ? -1 : o.window - 1;
  }
  /// Many queries of one sequence: over this step's keys as they are, or over all of them gathered from their pages.
  void prefill(runtime::Stream& s, const Attention& o, const BatchSequence& sequence, uint64_t q,
               const kernels::AttentionStrides& q_strides, uint64_t out,
               const kernels::AttentionStrides& o_strides, uint64_t pool, uint64_t table, uint64_t lengths) {
    kernels::AttentionProblem p;
    p.type = DType::f16, p.heads_q = uint64_t(o.heads), p.heads_kv = uint64_t(o.kv_heads);
    p.n_q = uint64_t(sequence.rows), p.n_kv = uint64_t(sequence.first_position + sequence.rows);
    p.d_qk = p.d_v = uint64_t(o.head_dim), p.q = q_strides, p.o = o_strides, p.scale = o.scale,
    p.causal = true, p.window_left = window_left(o), p.soft_cap = o.softcap;
    kernels::AttentionAddresses at;
    at.q = q, at.o = out;
    if (sequence.first_position == 0) {
      const Place &k = place(o.k), &v = place(o.v);
      const auto strides = [&](const Place& x) {
        return kernels::AttentionStrides{p.n_kv * uint64_t(x.pitch), p.d_qk, uint64_t(x.pitch)};
      };
      p.k = strides(k), p.v = strides(v);
      at.k = k.address + uint64_t(sequence.first_row) * uint64_t(k.pitch) * 2;
      at.v = v.address + uint64_t(sequence.first_row) * uint64_t(v.pitch) * 2;
    } else {
      kernels::kv_gather(s, cache_shape(program_, options_), pool, table, uint64_t(columns_), lengths, 1,
                         p.n_kv, gathered_keys_, gathered_values_, error_.address());
      at.k = gathered_keys_, at.v = gathered_values_;
    }
    kernels::attention(s, p, at);
  }

  void compile(const Step& step, const Experts& o) {
    flush_residual();
    if ((o.residual != kNone && o.residual != o.out) || place(o.out).type != DType::f32 ||
        place(o.in).type != DType::f16)
      lacks("a mixture that is not added to the residual stream", program_.values[std::size_t(o.out)].name);
    if (!experts_workspace_) experts_workspace_.emplace(program_, device_, options_);
    const auto& experts =
        *experts_.emplace_back(std::make_unique<DeviceExperts>(*loader_, device_, program_, *file_, o));
    for (WeightId id : {o.gate, o.up, o.down}) {
      const Weight& w = program_.weights[std::size_t(id)];
      loaded(uint64_t(w.rows * w.cols * w.experts));
    }
    const auto rows_most = uint64_t(rows_of(program_.values[std::size_t(o.out)], options_));
    workspace_bytes_ = std::max(workspace_bytes_, experts.workspace(device_, rows_most));
    add(step, o.out, [this, &experts, in = o.in, out = o.out](runtime::Stream& s) {
      experts.run(s, rows(in), place(in), place(out), *experts_workspace_, workspace_);
    });
  }
  void compile(const Step& step, const Add& o) {
    flush_residual();
    add(step, o.out, [this, o](runtime::Stream& s) {
      kernels::row::ElementProblem p;
      static const auto kOp = std::make_shared<AddOp>();
      p.name = "add", p.op = kOp, p.rows = rows(o.out), p.cols = uint64_t(width(o.out));
      p.inputs = {{"a", view(o.a)}, {"b", view(o.b)}}, p.outputs = {{"out", view(o.out, true)}};
      p.input_layouts = {layout(place(o.a)), layout(place(o.b))}, p.output_layouts = {layout(place(o.out))};
      kernels::row::run_elements(s, p);
    });
  }
  void compile(const Step& step, const Scale& o) {
    flush_residual();
    add(step, o.value, [this, o](runtime::Stream& s) {
      if (o.softcap != 0) {
        kernels::row::ElementProblem p;
        p.name = "soft_cap", p.op = std::make_shared<SoftCapOp>(o.factor, o.softcap);
        p.form = cat(o.factor, "_", o.softcap);
        p.rows = rows(o.value), p.cols = uint64_t(width(o.value));
        p.inputs = {{"x", view(o.value)}}, p.outputs = {{"y", view(o.value, true)}};
        return kernels::row::run_elements(s, p);
      }
      kernels::Activate a;
      a.activation = kernels::Activation::identity, a.scale = o.factor;
      a.x = view(o.value), a.y = view(o.value, true), a.rows = rows(o.value),
      a.cols = uint64_t(width(o.value));
      kernels::activate(s, a);
    });
  }
  void compile(const Step& step, const SelectRows& o) {
    flush_residual();
    add(step, o.out, [this, o](runtime::Stream& s) {
      kernels::Embedding e;
      e.indices = control(control_.outputs, DType::s32), e.weight = view(o.in), e.out = view(o.out, true);
      e.rows = uint64_t(outputs_), e.vocab = uint64_t(rows_), e.cols = uint64_t(width(o.in));
      e.weight_layout = layout(place(o.in)), e.out_layout = layout(place(o.out));
      kernels::embedding(s, e);
    });
  }

  void compile(const Step& step, const AllReduce& o) {
    flush_residual();
    if (!all_ || place(o.value).pitch != width(o.value))
      lacks("a sum over ranks", program_.values[std::size_t(o.value)].name);
    add(step, o.value, [this, v = o.value](runtime::Stream& s) {
      View x = view(v, true);
      x.elements = rows(v) * uint64_t(width(v));
      kernels::all_reduce(s, *all_, rank_, x, x);
    });
  }

  void loaded(uint64_t weights) {
    if (!options_.progress) return;
    if (!all_weights_)
      for (const Step& s : program_.steps) {
        std::vector<WeightId> weights;
        if (const auto* o = std::get_if<Linear>(&s.operation))
          for (const auto& part : o->parts) weights.push_back(part.weight);
        if (const auto* o = std::get_if<Experts>(&s.operation)) weights = {o->gate, o->up, o->down};
        for (WeightId id : weights) {
          const Weight& w = program_.weights[std::size_t(id)];
          all_weights_ += uint64_t(w.rows) * uint64_t(w.cols * w.experts);
        }
      }
    loaded_weights_ += weights;
    options_.progress(double(loaded_weights_) / double(all_weights_));
  }

  // ---- a step
  bool runs(const Launch& l) const {
    return (!l.on_outputs || outputs_) && !(left_out_ >> unsigned(l.role) & 1);
  }
  void queue_one(runtime::Stream& s, const Launch& l) {
    if (!profiled_) return l.queue(s);
    s.wait();
    const auto start = std::chrono::steady_clock::now();
    l.queue(s);
    s.wait();
    RoleTime& t = profile_[std::size_t(l.role)];
    ++t.count;
    t.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  void find_greatest(runtime::Stream& s) {
    if (!greedy_wanted_) return;
    kernels::ArgMax a;
    a.in = view(program_.logits), a.index = greedy_, a.values = greatest_;
    a.rows = uint64_t(outputs_), a.cols = uint64_t(width(program_.logits));
    kernels::argmax(s, a);
  }
  void issue(runtime::Stream& s) {
    for (const Launch& l : launches_)
      if (runs(l)) queue_one(s, l);
    find_greatest(s);
  }

  struct Recorded {
    bool seen = false;
    std::optional<runtime::Graph> graph;
  };
  struct Table {
    runtime::Buffer<float> cosines, sines;
  };

  Program program_;
  std::shared_ptr<const model::Source> file_;
  BackendOptions options_;
  MemoryEstimate estimate_;
  const kernels::Communicator* all_;  ///< nullptr: it runs alone
  int rank_;
  runtime::Device device_;
  runtime::Stream stream_;
  int64_t columns_;  ///< of the table of pages
  Control control_;
  runtime::Pinned<std::uint8_t> host_control_;
  Bytes device_control_, cache_, decode_workspace_, workspace_;
  std::deque<Bytes> memory_;
  std::vector<Place> places_;
  Place scratch_;
  std::size_t step_ = 0;  ///< that is compiled
  uint64_t gathered_keys_ = 0, gathered_values_ = 0, layer_bytes_ = 0, workspace_bytes_ = 0, all_weights_ = 0,
           loaded_weights_ = 0;
  std::vector<Table> ropes_;
  std::map<WeightId, runtime::Buffer<float>> vectors_;
  std::vector<std::unique_ptr<DeviceMatrix>> matrices_;
  std::vector<std::unique_ptr<DeviceExperts>> experts_;
  std::optional<ExpertsWorkspace> experts_workspace_;
  std::unique_ptr<WeightLoader> loader_;  ///< while the program is compiled
  runtime::Buffer<std::uint32_t> error_;
  runtime::Buffer<int32_t> greedy_;
  runtime::Buffer<float> greatest_;
  std::vector<Launch> launches_;
  ValueId pending_ = kNone;
  std::optional<Rope> merged_rope_;
  std::size_t rope_launch_ = 0;
  std::shared_ptr<int64_t> rope_heads_;
  std::map<std::pair<int64_t, bool>, Recorded> graphs_;
  std::vector<RoleTime> profile_;
  std::optional<FusedNorm> norm_of_;
  uint64_t left_out_ = 0;  ///< a bit a Role
  bool larger_ = true;     ///< the last product's space
  bool profiled_ = false;
  // The step.
  const Batch* batch_ = nullptr;
  int64_t rows_ = 0, outputs_ = 0;
  bool greedy_wanted_ = false;
  std::size_t next_ = 0;  ///< launch, by queue_own()
  runtime::Graph* graph_ = nullptr;
};

}  // namespace

std::unique_ptr<Backend> make_device_backend(Program program, std::shared_ptr<const model::Source> file,
                                             const runtime::Device& device, const BackendOptions& o) {
  return std::make_unique<DeviceBackend>(std::move(program), std::move(file), device, o);
}

std::unique_ptr<DeviceRank> make_device_rank(Program program, std::shared_ptr<const model::Source> file,
                                             const kernels::Communicator& all, int rank,
                                             const BackendOptions& o) {
  return std::make_unique<DeviceBackend>(std::move(program), std::move(file), all.device(rank), o, &all,
                                         rank);
}

}  // namespace cgp::engine
