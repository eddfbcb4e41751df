// SPDX-License-Identifier: Apache-2.0
#include "cgp/train/trainer.h"

#include <cmath>
#include <map>
#include <numbers>
#include <numeric>
#include <optional>

#include "cgp/base/error.h"
#include "cgp/base/random.h"
#include "cgp/base/text.h"
#include "cgp/kernels/activation/activation.h"
#include "cgp/kernels/attention/attention.h"
#include "cgp/kernels/attention/attention_backward.h"
#include "cgp/kernels/bias_gradient/bias_gradient.h"
#include "cgp/kernels/cross_entropy/cross_entropy.h"
#include "cgp/kernels/embedding/embedding.h"
#include "cgp/kernels/gemm/api/gemm.h"
#include "cgp/kernels/norm/norm.h"
#include "cgp/kernels/optimizer/optimizer.h"
#include "cgp/kernels/rope/rope.h"
#include "cgp/kernels/vecadd/vecadd.h"

namespace cgp::train {
namespace {

using kernels::View;
using runtime::Stream;

[[noreturn]] void refuse(std::string rule, std::string why) {
  throw ArgumentError({std::move(rule), "cgp::train::Trainer", std::move(why), {}});
}

TrainOptions checked(const TrainOptions& o, const TransformerShape& s) {
  if (o.type != DType::f32 && o.type != DType::bf16)
    refuse("type must be f32 or bf16", text::cat("it is ", name(o.type)));
  if (!o.batch || !o.micro_batches || !o.sequence || o.sequence > s.positions)
    refuse("batch and micro_batches must not be 0, and sequence must be 1 to the positions of the shape",
           text::cat(o.batch, ", ", o.micro_batches, " and ", o.sequence, " of ", s.positions));
  return o;
}

/// Gives out parts of one block of device memory: first they are counted, then they have addresses.
class Arena {
 public:
  void plan(View* v, std::uint64_t elements, DType type) {
    parts_.push_back({v, bytes_});
    *v = View(0, elements, type, true, nullptr);
    bytes_ += (elements * std::uint64_t(bytes(type)) + 255) / 256 * 256;
  }
  void allocate(const runtime::Device& device) {
    memory_ = device.alloc<std::uint8_t>(bytes_, "training");
    for (const auto& [v, offset] : parts_)
      *v = View(memory_.address() + offset, v->elements, v->dtype, true, device.backend().get());
    parts_.clear();
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  static std::uint64_t bytes(DType t) { return std::uint64_t(cgp::bytes(t)); }
  struct Part {
    View* view;
    std::uint64_t offset;
  };
  std::vector<Part> parts_;
  std::uint64_t bytes_ = 0;
  runtime::Buffer<std::uint8_t> memory_;
};

template <class T>
runtime::Slice<T> slice(const View& v) {
  return {const_cast<runtime::Backend*>(v.backend), v.address, std::size_t(v.elements)};
}
kernels::DeviceArray array(const View& v) { return {v.address, v.elements, v.dtype}; }
View part(const View& v, std::uint64_t first, std::uint64_t elements) {
  return View(v.address + first * std::uint64_t(bytes(v.dtype)), elements, v.dtype, true, v.backend);
}

/// What the backward pass of a layer needs of its forward pass.
struct LayerViews {
  View h;                   ///< [tokens, width]: the residual stream that the layer reads
  View normed, mean, rstd;  ///< its first norm
  View qkv, attended, lse;
  View h2, normed2, mean2, rstd2;  ///< behind the attention
  View up, activated;
};

}  // namespace

double Schedule::rate(std::uint64_t step) const {
  if (step < warmup) return peak * double(step + 1) / double(warmup);
  if (!steps) return peak;
  if (step >= steps || steps <= warmup) return floor;
  const double part = double(step - warmup) / double(steps - warmup);
  return floor + 0.5 * (peak - floor) * (1 + std::cos(std::numbers::pi * part));
}

struct Trainer::Impl {
  runtime::Device device;
  TransformerShape shape;
  TrainOptions options;
  std::vector<Parameter> list;
  std::map<std::string, std::size_t, std::less<>> index;
  std::uint64_t rows;  ///< tokens of a micro batch

  Arena arena;
  View weights, masters, gradients;
  View inputs, targets, positions;  ///< s32: those of all micro batches; [rows]
  View scale, losses, loss, errors;
  View branch, start, delta, h_last, normed_last, mean_last, rstd_last, logits;
  View d_h, d_h2, d_normed, d_wide, d_activated, d_qkv, d_attended, d_embedded;
  View norm_workspace, norm_d_weight, norm_d_bias, norm_dx_sum, bias_workspace, embedding_workspace,
      attention_workspace;
  std::vector<LayerViews> layers;
  std::optional<kernels::Optimizer> optimizer;
  std::optional<runtime::Graph> graph;
  bool warm = false;
  std::uint64_t logits_pitch;

  Impl(const runtime::Device& d, const TransformerShape& s, const TrainOptions& o, std::uint64_t seed)
      : device(d),
        shape(s.checked()),
        options(checked(o, shape)),
        list(train::parameters(shape)),
        rows(o.batch * o.sequence) {
    for (std::size_t i = 0; i < list.size(); ++i) index[list[i].name] = i;
    if (options.graph && device.is_emulator())
      throw Unsupported("a CUDA graph of a step needs a GPU, this is " + device.info().spec);
    plan();
    arena.allocate(device);
    first_values(seed);
    make_optimizer();
  }

  bool llama() const { return shape.family == Family::llama; }
  bool low() const { return options.type != DType::f32; }
  Stream& stream() const { return device.stream(); }

  // ---------------------------------------------------------------- memory
  void plan() {
    const auto t = options.type;
    const std::uint64_t all = parameter_elements(list), w = shape.width, micro = options.micro_batches;
    logits_pitch = (shape.vocab + 63) / 64 * 64;
    arena.plan(&weights, all, t), arena.plan(&gradients, all, DType::f32);
    if (low()) arena.plan(&masters, all, DType::f32);
    arena.plan(&inputs, rows * micro, DType::s32), arena.plan(&targets, rows * micro, DType::s32);
    arena.plan(&positions, rows, DType::s32);
    arena.plan(&scale, 1, DType::f32), arena.plan(&losses, rows, DType::f32),
        arena.plan(&loss, micro, DType::f32);
    arena.plan(&errors, 1, DType::u32);
    const auto activation = [&](View* v, std::uint64_t cols) { arena.plan(v, rows * cols, t); };
    const auto statistic = [&](View* v, std::uint64_t cols = 1) { arena.plan(v, rows * cols, DType::f32); };
    layers.resize(shape.layers);
    const std::uint64_t sets = options.checkpoint_layers ? 1 : shape.layers;
    for (std::uint64_t l = 0; l < shape.layers; ++l) {
      activation(&layers[l].h, w);
      if (l >= sets) continue;
      auto& a = layers[l];
      activation(&a.normed, w), activation(&a.qkv, shape.qkv_columns()), activation(&a.attended, w);
      activation(&a.h2, w), activation(&a.normed2, w), activation(&a.up, shape.up_columns());
      activation(&a.activated, shape.hidden), statistic(&a.lse, shape.heads);
      for (View* v : {&a.mean, &a.rstd, &a.mean2, &a.rstd2}) statistic(v);
    }
    for (View* v : {&branch, &start, &h_last, &normed_last, &d_h, &d_h2, &d_normed, &d_attended})
      activation(v, w);
    activation(&d_wide, shape.up_columns()), activation(&d_activated, shape.hidden);
    activation(&d_qkv, shape.qkv_columns()), activation(&logits, logits_pitch);
    statistic(&mean_last), statistic(&rstd_last), statistic(&delta, shape.heads),
        statistic(&d_embedded, low() ? w : 0);
    for (View* v : {&norm_d_weight, &norm_d_bias, &norm_dx_sum}) arena.plan(v, w, DType::f32);
    std::uint64_t sums = 0;
    for (const auto cols : {shape.qkv_columns(), shape.up_columns()})
      sums = std::max(sums, kernels::bias_gradient_workspace(t, rows, cols, device.info()));
    arena.plan(&bias_workspace, llama() ? 0 : sums, DType::f32);
    // Stand-ins have the types and sizes that the amounts of workspace follow from.
    kernels::NormBackward n;
    n.x = n.dy = n.dx = View::stand_in(t), n.weight = View::stand_in(t),
    n.dweight = View::stand_in(DType::f32);
    n.rstd = View::stand_in(DType::f32), n.rows = rows, n.cols = w, n.dsum = View::stand_in(t);
    if (!llama()) n.mean = View::stand_in(DType::f32), n.dbias = n.dx_sum = View::stand_in(DType::f32);
    arena.plan(&norm_workspace, kernels::norm_backward_workspace(n, !llama(), device.info()), DType::f32);
    arena.plan(&embedding_workspace,
               kernels::embedding_workspace(rows, std::max(shape.vocab, shape.positions)), DType::u32);
    arena.plan(&attention_workspace, kernels::attention_backward_workspace(attention_problem()), DType::u8);
  }

  View weight(const Parameter& p, std::uint64_t elements = 0) const {
    return part(weights, p.offset, elements ? elements : p.elements());
  }
  View gradient(const Parameter& p, std::uint64_t elements = 0) const {
    return part(gradients, p.offset, elements ? elements : p.elements());
  }
  View master(const Parameter& p) const { return part(low() ? masters : weights, p.offset, p.elements()); }
  const Parameter& named(std::string_view name) const { return list[index.find(name)->second]; }

  void set(const Parameter& p, std::span<const float> values) {
    slice<float>(master(p)).upload(values);
    if (low()) slice<bfloat16>(weight(p)).upload(std::vector<bfloat16>(values.begin(), values.end()));
  }

  void first_values(std::uint64_t seed) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      SplitMix64 random(SplitMix64(seed * 0x9E3779B9u + i).next());
      std::vector<float> values(list[i].elements());
      for (float& v : values)
        v = float(list[i].deviation > 0 ? list[i].mean + list[i].deviation * random.normal() : list[i].mean);
      set(list[i], values);
    }
    std::vector<std::int32_t> places(rows);
    for (std::uint64_t r = 0; r < rows; ++r) places[r] = std::int32_t(r % options.sequence);
    slice<std::int32_t>(positions).upload(places);
    slice<float>(scale).upload(std::vector<float>{float(1.0 / double(rows * options.micro_batches))});
    stream().zero(slice<std::uint32_t>(errors)).zero(slice<float>(bias_workspace));
  }

  // ---------------------------------------------------------------- optimizer
  std::vector<kernels::OptimizerGroup> groups(double rate) const {
    kernels::OptimizerGroup g;
    g.lr = rate, g.beta1 = options.beta1, g.beta2 = options.beta2, g.eps = options.eps;
    auto plain = g;
    g.weight_decay = options.weight_decay;
    return {g, plain};
  }
  void make_optimizer() {
    std::vector<kernels::OptimizerTensor> tensors;
    for (const auto& p : list) {
      kernels::OptimizerTensor t;
      t.weight = weight(p), t.gradient = gradient(p), t.group = p.decays ? 0 : 1;
      if (low()) t.master = master(p);
      tensors.push_back(t);
    }
    kernels::OptimizerOptions o;
    o.max_norm = options.max_norm, o.skip_nonfinite = true;
    optimizer.emplace(device, o, tensors, groups(0));
  }

  // ---------------------------------------------------------------- operations
  struct Operand {
    View view;
    bool transposed = false;
  };
  /// c[m, n] = a b (+ c), rows of c `ldc` apart.
  void product(const Operand& a, const Operand& b, const View& c, std::uint64_t m, std::uint64_t n,
               std::uint64_t k, bool accumulate = false, const View* bias = nullptr, std::uint64_t lda = 0,
               std::uint64_t ldc = 0) {
    kernels::GemmProblem p;
    p.type = a.view.dtype, p.type_c = c.dtype, p.trans_a = a.transposed, p.trans_b = b.transposed;
    p.m = m, p.n = n, p.k = k, p.lda = lda, p.ldc = ldc, p.beta = accumulate ? 1.f : 0.f;
    if (p.type == DType::f32 && options.fast_f32) p.precision = kernels::GemmPrecision::fast;
    if (bias) p.epilogue = kernels::epilogue::bias(array(*bias));
    kernels::gemm(stream(), p, array(a.view), array(b.view), array(c));
  }
  /// y = x W (+ b). gpt2 stores W [in, out], llama [out, in].
  void linear(const View& x, std::string_view name, const View& y, std::uint64_t in, std::uint64_t out) {
    const View w = weight(named(text::cat(name, ".weight")), in * out);
    View b;
    if (!llama()) b = weight(named(text::cat(name, ".bias")));
    product({x}, {w, llama()}, y, rows, out, in, false, b.given ? &b : nullptr);
  }
  enum class Bias : bool { here, by_norm };  ///< who sums dy up over the rows
  void linear_backward(const View& x, std::string_view name, const View& dy, const View& dx, std::uint64_t in,
                       std::uint64_t out, bool add, Bias bias) {
    const auto& p = named(text::cat(name, ".weight"));
    const View w = weight(p, in * out), dw = gradient(p, in * out);
    product({dy}, {w, !llama()}, dx, rows, in, out);
    if (llama())
      product({dy, true}, {x}, dw, out, in, rows, add);
    else
      product({x, true}, {dy}, dw, in, out, rows, add);
    if (llama() || bias == Bias::by_norm) return;
    kernels::BiasGradient b;
    b.dy = dy, b.out = gradient(named(text::cat(name, ".bias"))), b.workspace = bias_workspace;
    b.rows = rows, b.cols = out, b.accumulate = add;
    kernels::bias_gradient(stream(), b);
  }

  void norm(const View& x, const View* residual, const View* sum, std::string_view name, const View& y,
            const View& mean, const View& rstd) {
    kernels::Norm n;
    n.x = x, n.y = y, n.rstd = rstd, n.rows = rows, n.cols = shape.width, n.eps = shape.eps;
    n.weight = weight(named(text::cat(name, ".weight")));
    if (residual) n.residual = *residual, n.sum = *sum;
    if (llama()) return kernels::rms_norm(stream(), n);
    n.bias = weight(named(text::cat(name, ".bias"))), n.mean = mean;
    kernels::layer_norm(stream(), n);
  }
  /// `before`: the linear layer whose result was added to the residual stream before the norm; dx is its dy.
  void norm_backward(const View& x, std::string_view name, const View& dy, const View* dsum, const View& mean,
                     const View& rstd, const View& dx, bool add, std::string_view before) {
    kernels::NormBackward n;
    const auto& w = named(text::cat(name, ".weight"));
    n.x = x, n.dy = dy, n.dx = dx, n.rstd = rstd, n.rows = rows, n.cols = shape.width;
    if (dsum) n.dsum = *dsum;
    n.weight = weight(w), n.dweight = add ? norm_d_weight : gradient(w), n.workspace = norm_workspace;
    View d_bias, d_before;
    if (!llama() && !before.empty()) {
      d_before = gradient(named(text::cat(before, ".bias")));
      n.dx_sum = add ? norm_dx_sum : d_before;
    }
    if (!llama()) {
      d_bias = gradient(named(text::cat(name, ".bias")));
      n.mean = mean, n.dbias = add ? norm_d_bias : d_bias;
    }
    llama() ? kernels::rms_norm_backward(stream(), n) : kernels::layer_norm_backward(stream(), n);
    if (!add) return;
    const auto into = [&](const View& from, const View& to) {
      kernels::vecadd<float>(stream(), slice<float>(to), slice<float>(from), slice<float>(to));
    };
    into(norm_d_weight, gradient(w));
    if (!llama()) into(norm_d_bias, d_bias);
    if (d_before.given) into(norm_dx_sum, d_before);
  }

  kernels::AttentionProblem attention_problem() const {
    kernels::AttentionProblem p;
    const std::uint64_t d = shape.head_dim(), row = shape.qkv_columns();
    p.type = options.type, p.batch = options.batch, p.heads_q = shape.heads, p.heads_kv = shape.kv_heads;
    p.n_q = p.n_kv = options.sequence, p.d_qk = p.d_v = d, p.causal = true;
    p.q = p.k = p.v = {options.sequence * row, d, row};
    p.o = {options.sequence * shape.width, d, shape.width};
    return p;
  }
  /// Where q, k and v begin in a row of qkv.
  struct Qkv {
    std::uint64_t q, k, v;
  };
  Qkv qkv_addresses(const View& qkv) const {
    const std::uint64_t head = shape.head_dim() * std::uint64_t(bytes(qkv.dtype));
    return {qkv.address, qkv.address + shape.heads * head,
            qkv.address + (shape.heads + shape.kv_heads) * head};
  }
  kernels::AttentionAddresses attention_addresses(const LayerViews& a) const {
    const auto [q, k, v] = qkv_addresses(a.qkv);
    return {.q = q, .k = k, .v = v, .o = a.attended.address, .lse = a.lse.address};
  }
  /// Rotates q and k, or their gradients back, in place.
  void rope(const View& qkv, bool inverse) {
    kernels::Rope r;
    r.x = r.y = qkv, r.frequencies.base = shape.rope_base, r.tokens = rows, r.sequence = options.sequence;
    r.heads = shape.heads + shape.kv_heads, r.dim = shape.head_dim();
    r.x_token = r.y_token = shape.qkv_columns(), r.inverse = inverse;
    kernels::rope(stream(), r);
  }

  // ---------------------------------------------------------------- passes
  struct Names {
    std::string norm, qkv, out, norm2, up, down;
  };
  Names names(std::uint64_t l) const {
    if (!llama()) {
      const auto h = text::cat("h.", l, ".");
      return {h + "ln_1", h + "attn.c_attn", h + "attn.c_proj", h + "ln_2", h + "mlp.c_fc", h + "mlp.c_proj"};
    }
    const auto h = text::cat("model.layers.", l, ".");
    return {h + "input_layernorm",          h + "self_attn.q_proj", h + "self_attn.o_proj",
            h + "post_attention_layernorm", h + "mlp.gate_proj",    h + "mlp.down_proj"};
  }
  std::string last_norm() const { return llama() ? "model.norm" : "ln_f"; }
  const Parameter& table() const { return named(llama() ? "model.embed_tokens.weight" : "wte.weight"); }
  const Parameter& head() const { return shape.tied ? table() : named("lm_head.weight"); }
  /// With checkpoint_layers all layers share what the first one keeps.
  LayerViews kept(std::uint64_t l) const {
    if (!options.checkpoint_layers) return layers[l];
    LayerViews a = layers[0];
    a.h = layers[l].h;
    return a;
  }

  /// From the norm of the layer's input (which is there) to what it adds behind the attention, in `branch`.
  void layer_forward(std::uint64_t l, const LayerViews& a, bool whole) {
    const auto n = names(l);
    linear(a.normed, n.qkv, a.qkv, shape.width, shape.qkv_columns());
    if (llama()) rope(a.qkv, false);
    kernels::attention(stream(), attention_problem(), attention_addresses(a));
    linear(a.attended, n.out, branch, shape.width, shape.width);
    norm(branch, &a.h, &a.h2, n.norm2, a.normed2, a.mean2, a.rstd2);
    linear(a.normed2, n.up, a.up, shape.width, shape.up_columns());
    activation(a);
    if (whole) linear(a.activated, n.down, branch, shape.hidden, shape.width);
  }
  kernels::Gate gate(const LayerViews& a) const {
    kernels::Gate g;
    g.gate = a.up, g.up = a.up.from(shape.hidden), g.out = a.activated, g.rows = rows, g.cols = shape.hidden;
    g.gate_layout.pitch = g.up_layout.pitch = 2 * shape.hidden;
    return g;
  }
  void activation(const LayerViews& a) {
    if (llama()) return kernels::gated(stream(), gate(a));
    kernels::Activate f;
    f.activation = kernels::Activation::gelu_tanh, f.x = a.up, f.y = a.activated;
    f.rows = rows, f.cols = shape.hidden;
    kernels::activate(stream(), f);
  }
  void activation_backward(const LayerViews& a) {
    if (llama()) {
      kernels::GateBackward g;
      g.gate = a.up, g.up = a.up.from(shape.hidden), g.dout = d_activated;
      g.dgate = d_wide, g.dup = d_wide.from(shape.hidden), g.rows = rows, g.cols = shape.hidden;
      for (auto* layout : {&g.gate_layout, &g.up_layout, &g.dgate_layout, &g.dup_layout})
        layout->pitch = 2 * shape.hidden;
      return kernels::gated_backward(stream(), g);
    }
    kernels::ActivateBackward f;
    f.activation = kernels::Activation::gelu_tanh, f.x = a.up, f.dy = d_activated, f.dx = d_wide;
    f.rows = rows, f.cols = shape.hidden;
    kernels::activate_backward(stream(), f);
  }

  void embed(const View& tokens, const Parameter& p, const View& to) {
    kernels::Embedding e;
    e.indices = tokens, e.weight = weight(p), e.out = to, e.error_flag = errors;
    e.rows = rows, e.vocab = p.shape[0], e.cols = shape.width;
    kernels::embedding(stream(), e);
  }

  /// Loss of micro batch i; with `backward` logits become their gradients.
  void forward(std::uint64_t i, bool backward) {
    const View tokens = part(inputs, i * rows, rows), next = part(targets, i * rows, rows);
    const LayerViews first = kept(0);
    if (llama()) {
      embed(tokens, table(), first.h);
      norm(first.h, nullptr, nullptr, names(0).norm, first.normed, first.mean, first.rstd);
    } else {
      embed(tokens, table(), branch), embed(positions, named("wpe.weight"), start);
      norm(branch, &start, &first.h, names(0).norm, first.normed, first.mean, first.rstd);
    }
    for (std::uint64_t l = 0; l < shape.layers; ++l) {
      const LayerViews a = kept(l);
      layer_forward(l, a, true);
      if (l + 1 == shape.layers) {
        norm(branch, &a.h2, &h_last, last_norm(), normed_last, mean_last, rstd_last);
      } else {
        const LayerViews b = kept(l + 1);
        norm(branch, &a.h2, &b.h, names(l + 1).norm, b.normed, b.mean, b.rstd);
      }
    }
    product({normed_last}, {weight(head()), true}, logits, rows, shape.vocab, shape.width, false, nullptr, 0,
            logits_pitch);
    kernels::CrossEntropy c;
    c.logits = logits, c.targets = next, c.loss = losses, c.rows = rows, c.cols = shape.vocab;
    c.logits_layout.pitch = logits_pitch, c.error_flag = errors;
    if (backward) c.dlogits = logits, c.dlogits_layout.pitch = logits_pitch, c.scale = scale;
    kernels::cross_entropy(stream(), c);
    kernels::mean_loss(stream(), losses, View(), -100, View(), part(loss, i, 1));
  }

  void layer_backward(std::uint64_t l, bool add) {
    const LayerViews a = kept(l);
    const auto n = names(l);
    if (options.checkpoint_layers && l + 1 != shape.layers) {
      norm(a.h, nullptr, nullptr, n.norm, a.normed, a.mean, a.rstd);
      layer_forward(l, a, false);
    }
    linear_backward(a.activated, n.down, d_h, d_activated, shape.hidden, shape.width, add, Bias::by_norm);
    activation_backward(a);
    linear_backward(a.normed2, n.up, d_wide, d_normed, shape.width, shape.up_columns(), add, Bias::here);
    norm_backward(a.h2, n.norm2, d_normed, &d_h, a.mean2, a.rstd2, d_h2, add, n.out);
    linear_backward(a.attended, n.out, d_h2, d_attended, shape.width, shape.width, add, Bias::by_norm);
    const auto [dq, dk, dv] = qkv_addresses(d_qkv);
    kernels::attention_backward(
        stream(), attention_problem(), attention_addresses(a),
        {.d_o = d_attended.address,
         .d_q = dq,
         .d_k = dk,
         .d_v = dv,
         .delta = delta.address,
         .workspace = attention_workspace.elements ? attention_workspace.address : 0});
    if (llama()) rope(d_qkv, true);
    linear_backward(a.normed, n.qkv, d_qkv, d_normed, shape.width, shape.qkv_columns(), add, Bias::here);
    norm_backward(a.h, n.norm, d_normed, &d_h2, a.mean, a.rstd, d_h, add, l ? names(l - 1).down : "");
  }

  void embed_backward(const View& tokens, const Parameter& p, const View& from, bool add) {
    kernels::EmbeddingBackward e;
    e.indices = tokens, e.dout = from, e.dweight = gradient(p), e.workspace = embedding_workspace;
    e.error_flag = errors, e.rows = rows, e.vocab = p.shape[0], e.cols = shape.width, e.accumulate = add;
    kernels::embedding_backward(stream(), e);
  }

  /// Gradients of micro batch i, added to those of the ones before.
  void backward(std::uint64_t i) {
    const bool add = i > 0;
    const View w = weight(head());
    product({logits}, {w}, d_normed, rows, shape.width, shape.vocab, false, nullptr, logits_pitch);
    product({logits, true}, {normed_last}, gradient(head()), shape.vocab, shape.width, rows, add, nullptr,
            logits_pitch);
    norm_backward(h_last, last_norm(), d_normed, nullptr, mean_last, rstd_last, d_h, add,
                  names(shape.layers - 1).down);
    for (std::uint64_t l = shape.layers; l-- > 0;) layer_backward(l, add);
    View from = d_h;
    if (low()) {  // tables of f32 take rows of f32
      kernels::Activate f;
      f.activation = kernels::Activation::identity, f.x = d_h, f.y = d_embedded, f.rows = rows,
      f.cols = shape.width;
      kernels::activate(stream(), f);
      from = d_embedded;
    }
    embed_backward(part(inputs, i * rows, rows), table(), from, add || shape.tied);
    if (!llama()) embed_backward(positions, named("wpe.weight"), from, add);
  }

  void queue_gradients() {
    for (std::uint64_t i = 0; i < options.micro_batches; ++i) forward(i, true), backward(i);
  }

  /// Copies the tokens of `micro` micro batches.
  void take(std::span<const std::int32_t> in, std::span<const std::int32_t> out, std::uint64_t micro) {
    if (in.size() != rows * micro || out.size() != rows * micro)
      refuse("a step takes [micro_batches][batch][sequence] tokens, and as many that follow them",
             text::cat("needed ", rows * micro, ", given ", in.size(), " and ", out.size()));
    for (const auto& tokens : {in, out})
      for (std::size_t i = 0; i < tokens.size(); ++i)
        if (tokens[i] < 0 || std::uint64_t(tokens[i]) >= shape.vocab)
          refuse("a token must be in the vocabulary",
                 text::cat("token ", i, " is ", tokens[i], " of ", shape.vocab));
    slice<std::int32_t>(part(inputs, 0, in.size())).upload(in);
    slice<std::int32_t>(part(targets, 0, out.size())).upload(out);
  }
  double mean_of(std::uint64_t micro) {
    stream().wait();
    const auto sums = slice<float>(part(loss, 0, micro)).to_vector();
    return std::accumulate(sums.begin(), sums.end(), 0.0) / double(rows * micro);
  }
};

Trainer::Trainer(const runtime::Device& device, const TransformerShape& shape, const TrainOptions& options,
                 std::uint64_t seed)
    : impl_(std::make_unique<Impl>(device, shape, options, seed)) {}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;

const TransformerShape& Trainer::shape() const { return impl_->shape; }
const TrainOptions& Trainer::options() const { return impl_->options; }
const std::vector<Parameter>& Trainer::parameters() const { return impl_->list; }
std::uint64_t Trainer::memory_bytes() const {
  return impl_->arena.bytes() + 8 * parameter_elements(impl_->list);
}
std::uint64_t Trainer::steps() const { return impl_->optimizer->status().step; }

StepResult Trainer::step(std::span<const std::int32_t> inputs, std::span<const std::int32_t> targets,
                         double rate) {
  auto& m = *impl_;
  m.take(inputs, targets, m.options.micro_batches);
  m.optimizer->set_groups(m.groups(rate));
  const auto skipped = m.optimizer->status().skipped;
  const auto work = [&m](Stream& s) {
    m.queue_gradients();
    m.optimizer->step(s);
  };
  // The first step loads kernels and grows the stream's scratch memory, which a recording cannot.
  if (m.options.graph && m.warm && !m.graph) m.graph = m.stream().capture(work);
  if (m.graph)
    m.stream().replay(*m.graph);
  else
    work(m.stream());
  m.warm = true;
  StepResult r;
  r.loss = m.mean_of(m.options.micro_batches);
  const auto status = m.optimizer->status();
  r.gradient_norm = double(status.norm), r.skipped = status.skipped != skipped;
  return r;
}

double Trainer::gradients(std::span<const std::int32_t> inputs, std::span<const std::int32_t> targets) {
  auto& m = *impl_;
  m.take(inputs, targets, m.options.micro_batches);
  m.queue_gradients();
  return m.mean_of(m.options.micro_batches);
}

double Trainer::evaluate(std::span<const std::int32_t> inputs, std::span<const std::int32_t> targets) {
  auto& m = *impl_;
  m.take(inputs, targets, 1);
  m.forward(0, false);
  return m.mean_of(1);
}

std::vector<float> Trainer::weight(std::size_t i) const {
  return slice<float>(impl_->master(impl_->list.at(i))).to_vector();
}
std::vector<float> Trainer::gradient(std::size_t i) const {
  return slice<float>(impl_->gradient(impl_->list.at(i))).to_vector();
}
void Trainer::set_weight(std::size_t i, std::span<const float> values) {
  const auto& p = impl_->list.at(i);
  if (values.size() != p.elements())
    refuse("a parameter keeps its size",
           text::cat(p.name, " has ", p.elements(), ", given are ", values.size()));
  impl_->set(p, values);
}
Trainer::State Trainer::state(std::size_t i) {
  return {impl_->optimizer->first_state(i).to_vector(), impl_->optimizer->second_state(i).to_vector()};
}
void Trainer::set_state(std::size_t i, const State& s) {
  impl_->optimizer->first_state(i).upload(s.first), impl_->optimizer->second_state(i).upload(s.second);
}
void Trainer::set_steps(std::uint64_t steps) { impl_->optimizer->restore({.step = std::uint32_t(steps)}); }

}  // namespace cgp::train
