// SPDX-License-Identifier: Apache-2.0
// Rung 12: GPT-2 says something, greedily, and no Python is there.
//   A token costs what its weights cost to read, and launches: six a layer, each of which does all that can
//   be done on the way (a norm, a bias, GELU, an addition). Keys and values go to the pages of a cache, over
//   which attention runs as they lie. Prompts are read token by token, by the same step.
//     12_generate [device [model.safetensors [new tokens [token,token,...]]]]
//   takes the file that transformers' save_pretrained() writes for a GPT-2 with heads of 64 elements, and
//   runs it in bf16. Without a file: a small model of random numbers, whose every choice is checked by loops
//   on the host.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>

#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/kernels/decode/decode.h"
#include "cgp/kernels/decode_linear/decode_linear.h"
#include "cgp/kernels/kv_cache/qkv_append.h"
#include "examples/example.h"

namespace {

using namespace cgp;
using cgp::kernels::DecodeLinear;

struct Tensor {
  std::vector<std::uint64_t> shape;
  std::vector<bfloat16> values;
};
/// What save_pretrained() calls each tensor, without "transformer.".
using Model = std::map<std::string, Tensor>;

std::vector<std::uint64_t> numbers(std::string_view text, char end) {
  std::vector<std::uint64_t> out;
  std::string digits;
  for (char c : text) {
    if (c >= '0' && c <= '9')
      digits += c;
    else if (!digits.empty())
      out.push_back(std::strtoull(digits.c_str(), nullptr, 10)), digits.clear();
    if (c == end) return out;
  }
  if (!digits.empty()) out.push_back(std::strtoull(digits.c_str(), nullptr, 10));
  return out;
}

/// A safetensors file: the length of a header in JSON, the header, all tensors.
Model read(const std::string& path) {
  const std::string file = read_file(path);
  std::uint64_t header = 0;
  if (file.size() >= 8) std::memcpy(&header, file.data(), 8);
  if (file.size() < 8 || header > file.size() - 8) throw Error(path + " is no safetensors file");
  const std::string_view json = std::string_view(file).substr(8, header),
                         data = std::string_view(file).substr(8 + header);
  Model model;
  for (std::size_t at = 0; (at = json.find("{\"dtype\":\"", at)) != json.npos; ++at) {
    const auto of = [&](std::string_view key) { return json.substr(json.find(key, at) + key.size()); };
    const std::size_t quote = json.rfind('"', at - 1), begin = json.rfind('"', quote - 1) + 1;
    std::string name(json.substr(begin, quote - begin));
    if (name.starts_with("transformer.")) name.erase(0, 12);
    const std::string_view type = json.substr(at + 10, json.find('"', at + 10) - at - 10);
    const auto range = numbers(of("\"data_offsets\":["), ']');
    const std::size_t size = type == "F32" ? 4 : 2;
    if (type != "F32" && type != "F16" && type != "BF16") continue;  // masks of old files
    if (range.size() != 2 || range[0] > range[1] || range[1] > data.size())
      throw Error(path + ": " + name + " is not all there");
    Tensor t{numbers(of("\"shape\":["), ']'), {}};
    for (std::uint64_t b = range[0]; b + size <= range[1]; b += size) {
      float wide = 0;
      half narrow;
      bfloat16 brief;
      if (type == "F32") std::memcpy(&wide, data.data() + b, 4), brief = bfloat16(wide);
      if (type == "F16") std::memcpy(&narrow, data.data() + b, 2), brief = bfloat16(float(narrow));
      if (type == "BF16") std::memcpy(&brief, data.data() + b, 2);
      t.values.push_back(brief);
    }
    model[name] = std::move(t);
  }
  return model;
}

Model random_model(std::uint64_t layers, std::uint64_t width, std::uint64_t vocab, std::uint64_t positions) {
  SplitMix64 random(7);
  Model model;
  const auto make = [&](const std::string& name, std::vector<std::uint64_t> shape, double mean, double size) {
    Tensor t{shape, {}};
    std::uint64_t n = 1;
    for (auto extent : shape) n *= extent;
    for (std::uint64_t i = 0; i < n; ++i) t.values.push_back(bfloat16(float(mean + size * random.normal())));
    model[name] = std::move(t);
  };
  make("wte.weight", {vocab, width}, 0, 0.1), make("wpe.weight", {positions, width}, 0, 0.5);
  for (std::uint64_t l = 0; l < layers; ++l) {
    const std::string h = text::cat("h.", l, ".");
    for (const auto& [name, in, out] : {std::tuple{"attn.c_attn", width, 3 * width},
                                        {"attn.c_proj", width, width},
                                        {"mlp.c_fc", width, 4 * width},
                                        {"mlp.c_proj", 4 * width, width}})
      make(h + name + ".weight", {in, out}, 0, 0.2), make(h + name + ".bias", {out}, 0, 0.1);
    for (const char* name : {"ln_1", "ln_2"})
      make(h + name + ".weight", {width}, 1, 0.1), make(h + name + ".bias", {width}, 0, 0.1);
  }
  make("ln_f.weight", {width}, 1, 0.1), make("ln_f.bias", {width}, 0, 0.1);
  return model;
}

class Generator {
 public:
  static constexpr std::uint64_t head = 64, page = 64;

  Generator(const runtime::Device& device, const Model& model) : device_(device), model_(model) {
    for (const char* name : {"wte.weight", "wpe.weight", "ln_f.weight"})
      if (!model.contains(name)) throw Error(text::cat("the model has no ", name, ": it is no GPT-2"));
    width_ = model.at("wte.weight").shape.at(1), vocab_ = model.at("wte.weight").shape[0];
    positions_ = model.at("wpe.weight").shape.at(0), heads_ = width_ / head;
    while (model.contains(text::cat("h.", layers_, ".ln_1.weight"))) ++layers_;
    if (width_ % head)
      throw Unsupported(text::cat("rows of ", width_, " elements, which heads of 64 do not divide"));
    // All weights in one buffer, matrices of layers with the summed dimension contiguous.
    std::vector<bfloat16> all;
    for (const auto& [name, t] : model) {
      at_[name] = all.size();
      if (t.shape.size() == 2 && name.starts_with("h."))
        for (std::uint64_t j = 0; j < t.shape[1]; ++j)
          for (std::uint64_t i = 0; i < t.shape[0]; ++i) all.push_back(t.values[i * t.shape[1] + j]);
      else
        all.insert(all.end(), t.values.begin(), t.values.end());
      all.resize((all.size() + 127) / 128 * 128);
    }
    weights_ = device.upload<bfloat16>(all);
    x_ = device.zeros<bfloat16>(width_), qkv_ = device.zeros<bfloat16>(3 * width_),
    attended_ = device.zeros<bfloat16>(width_);
    wide_ = device.zeros<bfloat16>(4 * width_), logits_ = device.zeros<bfloat16>(vocab_);
    columns_ = (positions_ + page - 1) / page;
    std::vector<std::int32_t> table(columns_);
    for (std::size_t i = 0; i < columns_; ++i) table[i] = std::int32_t(i);
    table_ = device.upload<std::int32_t>(table), length_ = device.zeros<std::uint32_t>(1),
    error_flag_ = device.zeros<std::uint32_t>(1);
    cache_ = {.page_count = columns_, .page_size = page, .heads = heads_, .d = head};
    pool_ = device.zeros<bfloat16>(layers_ * cache_.elements());
    attention_.cache = cache_, attention_.heads_q = heads_, attention_.columns = columns_;
    attention_.pdl = device.info().cc() >= 90;
    workspace_ = device.zeros<std::uint8_t>(kernels::decode_workspace(attention_, device.info()));
  }

  /// One token more; -> the best next one.
  std::uint64_t step(std::uint64_t token) {
    if (token >= vocab_ || length_now_ >= positions_)
      throw ArgumentError({text::cat("token ", token, " at ", length_now_),
                           {},
                           text::cat(vocab_, " tokens, ", positions_, " places"),
                           {}});
    std::vector<bfloat16> x(width_);
    for (std::uint64_t i = 0; i < width_; ++i)
      x[i] = bfloat16(float(model_.at("wte.weight").values[token * width_ + i]) +
                      float(model_.at("wpe.weight").values[length_now_ * width_ + i]));
    x_.upload(x), length_.upload(std::vector<std::uint32_t>{std::uint32_t(++length_now_)});
    auto& s = device_.stream();
    for (std::uint64_t l = 0; l < layers_; ++l) {
      const std::string h = text::cat("h.", l, ".");
      const std::uint64_t pool = pool_.address() + l * cache_.bytes();
      linear(h + "attn.c_attn", x_, qkv_, 3 * width_, width_, h + "ln_1");
      kernels::qkv_append(s, {.cache = cache_,
                              .heads_q = heads_,
                              .qkv = qkv_.address(),
                              .pool = pool,
                              .table = table_.address(),
                              .columns = columns_,
                              .lengths = length_.address(),
                              .error_flag = error_flag_.address(),
                              .pdl = attention_.pdl});
      kernels::decode(s, attention_,
                      {.q = qkv_.address(),
                       .pool = pool,
                       .table = table_.address(),
                       .lengths = length_.address(),
                       .o = attended_.address(),
                       .workspace = workspace_.address(),
                       .error_flag = error_flag_.address()});
      linear(h + "attn.c_proj", attended_, x_, width_, width_, {}, x_.address());
      linear(h + "mlp.c_fc", x_, wide_, 4 * width_, width_, h + "ln_2", 0, kernels::Activation::gelu_tanh);
      linear(h + "mlp.c_proj", wide_, x_, width_, 4 * width_, {}, x_.address());
    }
    linear("wte", x_, logits_, vocab_, width_, "ln_f");
    s.wait();
    const auto logits = logits_.to_vector();
    return std::uint64_t(
        std::max_element(logits.begin(), logits.end(), [](auto a, auto b) { return float(a) < float(b); }) -
        logits.begin());
  }
  std::uint64_t positions() const { return positions_; }

 private:
  std::uint64_t weight(const std::string& name) const { return weights_.address() + 2 * at_.at(name); }
  void linear(const std::string& name, const runtime::Buffer<bfloat16>& x, const runtime::Buffer<bfloat16>& y,
              std::uint64_t n, std::uint64_t k, const std::string& norm = {}, std::uint64_t residual = 0,
              kernels::Activation f = kernels::Activation::identity) {
    DecodeLinear p;
    p.k = k, p.x = x.address(), p.y = y.address(), p.residual = residual, p.eps = 1e-5f, p.activation = f;
    p.pdl = attention_.pdl;
    p.weights = {{.address = weight(name + ".weight"),
                  .bias = at_.contains(name + ".bias") ? weight(name + ".bias") : 0,
                  .n = n}};
    if (!norm.empty())
      p.norm = kernels::DecodeLinearNorm::layer, p.norm_weight = weight(norm + ".weight"),
      p.norm_bias = weight(norm + ".bias");
    kernels::decode_linear(device_.stream(), p);
  }

  runtime::Device device_;
  const Model& model_;
  std::map<std::string, std::uint64_t> at_;  // elements before each tensor
  std::uint64_t width_ = 0, vocab_ = 0, positions_ = 0, heads_ = 0, layers_ = 0, columns_ = 0,
                length_now_ = 0;
  runtime::Buffer<bfloat16> weights_, x_, qkv_, attended_, wide_, logits_, pool_;
  runtime::Buffer<std::int32_t> table_;
  runtime::Buffer<std::uint32_t> length_, error_flag_;
  runtime::Buffer<std::uint8_t> workspace_;
  kernels::KvCacheShape cache_;
  kernels::DecodeProblem attention_;
};

/// The logits behind the last of the tokens, by loops in double.
std::vector<double> reference(const Model& model, const std::vector<std::uint64_t>& tokens) {
  using Rows = std::vector<std::vector<double>>;
  const std::uint64_t width = model.at("wte.weight").shape[1], n = tokens.size();
  const auto value = [&](const std::string& name, std::uint64_t i) {
    return double(float(model.at(name).values[i]));
  };
  const auto normed = [&](const Rows& x, const std::string& name) {
    Rows out = x;
    for (auto& row : out) {
      double mean = 0, square = 0;
      for (double v : row) mean += v / double(width);
      for (double v : row) square += (v - mean) * (v - mean) / double(width);
      for (std::uint64_t i = 0; i < width; ++i)
        row[i] = (row[i] - mean) / std::sqrt(square + 1e-5) * value(name + ".weight", i) +
                 value(name + ".bias", i);
    }
    return out;
  };
  const auto times = [&](const Rows& x, const std::string& name) {
    const std::uint64_t columns = model.at(name + ".weight").shape[1];
    Rows out;
    for (const auto& row : x) {
      auto& to = out.emplace_back(columns);
      for (std::uint64_t j = 0; j < columns; ++j) to[j] = value(name + ".bias", j);
      for (std::uint64_t k = 0; k < row.size(); ++k)
        for (std::uint64_t j = 0; j < columns; ++j)
          to[j] += row[k] * value(name + ".weight", k * columns + j);
    }
    return out;
  };
  const auto add = [](Rows& x, const Rows& y) {
    for (std::size_t i = 0; i < x.size(); ++i)
      for (std::size_t j = 0; j < x[i].size(); ++j) x[i][j] += y[i][j];
  };
  Rows x(n, std::vector<double>(width));
  for (std::uint64_t i = 0; i < n; ++i)
    for (std::uint64_t j = 0; j < width; ++j)
      x[i][j] = value("wte.weight", tokens[i] * width + j) + value("wpe.weight", i * width + j);
  for (std::uint64_t l = 0; model.contains(text::cat("h.", l, ".ln_1.weight")); ++l) {
    const std::string h = text::cat("h.", l, ".");
    const Rows qkv = times(normed(x, h + "ln_1"), h + "attn.c_attn");
    Rows attended(n, std::vector<double>(width));
    for (std::uint64_t i = 0; i < n; ++i)
      for (std::uint64_t first = 0; first < width; first += Generator::head) {
        std::vector<double> share(i + 1);
        double sum = 0;
        for (std::uint64_t j = 0; j <= i; ++j) {
          double score = 0;
          for (std::uint64_t d = first; d < first + Generator::head; ++d)
            score += qkv[i][d] * qkv[j][width + d];
          sum += share[j] = std::exp(score / std::sqrt(double(Generator::head)));
        }
        for (std::uint64_t j = 0; j <= i; ++j)
          for (std::uint64_t d = first; d < first + Generator::head; ++d)
            attended[i][d] += share[j] / sum * qkv[j][2 * width + d];
      }
    add(x, times(attended, h + "attn.c_proj"));
    Rows wide = times(normed(x, h + "ln_2"), h + "mlp.c_fc");
    for (auto& row : wide)
      for (double& v : row) v = 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
    add(x, times(wide, h + "mlp.c_proj"));
  }
  const auto last = normed({x.back()}, "ln_f")[0];
  std::vector<double> logits(model.at("wte.weight").shape[0]);
  for (std::uint64_t t = 0; t < logits.size(); ++t)
    for (std::uint64_t k = 0; k < width; ++k) logits[t] += last[k] * value("wte.weight", t * width + k);
  return logits;
}

bool run(const runtime::Device& device, const std::string& path, std::uint64_t more,
         std::vector<std::uint64_t> tokens) {
  example::needs(device, 80);
  const Model model = path.empty() ? random_model(2, 128, 50, 32) : read(path);
  Generator generator(device, model);
  if (tokens.size() + more > generator.positions() + 1)
    throw Unsupported(
        text::cat(tokens.size(), " + ", more, " tokens, the model has ", generator.positions(), " places"));
  std::uint64_t next = 0;
  for (auto token : tokens) next = generator.step(token);
  bool right = true;
  for (std::uint64_t i = 0; i < more; ++i) {
    if (path.empty()) {  // within rounding of the best: 2 layers in bf16, logits of some 10
      const auto logits = reference(model, tokens);
      const double best = *std::max_element(logits.begin(), logits.end());
      if (logits[next] < best - 0.15) {
        std::printf("token %" PRIu64 " of %zu has logit %g, the best has %g\n", next, tokens.size(),
                    logits[next], best);
        right = false;
      }
    }
    tokens.push_back(next);
    if (i + 1 < more) next = generator.step(next);
  }
  for (auto token : tokens) std::printf("%" PRIu64 " ", token);
  std::printf("\n%s", path.empty() ? "" : "a model from a file: nothing was checked\n");
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string path = argc > 2 ? argv[2] : "";
  const std::uint64_t more = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 6;
  const auto tokens = argc > 4 ? numbers(argv[4], '\0') : std::vector<std::uint64_t>{3, 1, 4, 1, 5};
  return example::main_on_device(
      argc, argv, [&](const runtime::Device& d) { return run(d, path, more, tokens); }, "emu:sm_90a");
}
