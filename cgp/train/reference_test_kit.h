// SPDX-License-Identifier: Apache-2.0
#pragma once
// The transformer of transformer.h in double, as loops over any scalar; a scalar that records a tape, whose gradients are
// exact; and AdamW with clipping.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "cgp/base/text.h"
#include "cgp/train/transformer.h"

namespace cgp::train::reference {

/// A number whose gradient is wanted. Operations are appended to one tape.
class Var {
 public:
  struct Node {
    std::int32_t a, b;  ///< operands, -1: none
    double da, db;
  };
  static inline std::vector<Node> tape;

  Var(double v = 0) : value_(v) {}  // NOLINT: constants
  static Var leaf(double v) { return made(v, -1, 0, -1, 0); }
  double value() const { return value_; }
  std::int32_t at() const { return at_; }

  friend Var operator+(const Var& x, const Var& y) { return made(x.value_ + y.value_, x.at_, 1, y.at_, 1); }
  friend Var operator-(const Var& x, const Var& y) { return made(x.value_ - y.value_, x.at_, 1, y.at_, -1); }
  friend Var operator*(const Var& x, const Var& y) {
    return made(x.value_ * y.value_, x.at_, y.value_, y.at_, x.value_);
  }
  friend Var operator/(const Var& x, const Var& y) {
    return made(x.value_ / y.value_, x.at_, 1 / y.value_, y.at_, -x.value_ / (y.value_ * y.value_));
  }
  friend Var exp(const Var& x) { return made(std::exp(x.value_), x.at_, std::exp(x.value_), -1, 0); }
  friend Var log(const Var& x) { return made(std::log(x.value_), x.at_, 1 / x.value_, -1, 0); }
  friend Var sqrt(const Var& x) { return made(std::sqrt(x.value_), x.at_, 0.5 / std::sqrt(x.value_), -1, 0); }
  friend Var tanh(const Var& x) {
    const double t = std::tanh(x.value_);
    return made(t, x.at_, 1 - t * t, -1, 0);
  }
  /// d(this)/d(every node of the tape), valid until the next call.
  const std::vector<double>& gradients() const {
    static std::vector<double> g;
    g.assign(tape.size(), 0);
    g[std::size_t(at_)] = 1;
    for (std::size_t i = tape.size(); i-- > 0;) {
      if (tape[i].a >= 0) g[std::size_t(tape[i].a)] += g[i] * tape[i].da;
      if (tape[i].b >= 0) g[std::size_t(tape[i].b)] += g[i] * tape[i].db;
    }
    return g;
  }

 private:
  static Var made(double v, std::int32_t a, double da, std::int32_t b, double db) {
    Var x(v);
    x.at_ = std::int32_t(tape.size());
    tape.push_back({a, b, da, db});
    return x;
  }
  double value_;
  std::int32_t at_ = -1;
};

template <class T>
using Matrix = std::vector<std::vector<T>>;
template <class T>
using Weights = std::map<std::string, std::vector<T>>;

template <class T>
struct Model {
  using Rows = Matrix<T>;
  TransformerShape s;
  const Weights<T>& weights;

  bool llama() const { return s.family == Family::llama; }
  Rows normed(const Rows& x, const std::string& name) const {
    const auto& w = weights.at(name + ".weight");
    Rows out = x;
    for (auto& row : out) {
      T mean = 0, square = 0;
      if (!llama()) {
        for (const T& v : row) mean = mean + v;
        mean = mean / T(double(row.size()));
      }
      for (const T& v : row) square = square + (v - mean) * (v - mean);
      const T rstd = T(1) / sqrt(square / T(double(row.size())) + T(double(s.eps)));
      for (std::size_t i = 0; i < row.size(); ++i) {
        row[i] = (row[i] - mean) * rstd * w[i];
        if (!llama()) row[i] = row[i] + weights.at(name + ".bias")[i];
      }
    }
    return out;
  }
  Rows linear(const Rows& x, const std::string& name, std::uint64_t out) const {
    const auto& w = weights.at(name + ".weight");
    Rows y;
    for (const auto& row : x) {
      auto& to = y.emplace_back(out);
      for (std::uint64_t j = 0; j < out; ++j) {
        T sum = llama() ? T(0) : weights.at(name + ".bias")[j];
        for (std::uint64_t k = 0; k < row.size(); ++k)
          sum = sum + row[k] * (llama() ? w[j * row.size() + k] : w[k * out + j]);
        to[j] = sum;
      }
    }
    return y;
  }
  static void add(Rows& x, const Rows& y) {
    for (std::size_t i = 0; i < x.size(); ++i)
      for (std::size_t j = 0; j < x[i].size(); ++j) x[i][j] = x[i][j] + y[i][j];
  }
  void rotate(std::vector<T>& row, std::uint64_t first, std::uint64_t position) const {
    const std::uint64_t d = s.head_dim();
    for (std::uint64_t i = 0; i < d / 2; ++i) {
      const double angle = double(position) * std::pow(s.rope_base, -2.0 * double(i) / double(d));
      const T a = row[first + i], b = row[first + d / 2 + i];
      row[first + i] = a * T(std::cos(angle)) - b * T(std::sin(angle));
      row[first + d / 2 + i] = a * T(std::sin(angle)) + b * T(std::cos(angle));
    }
  }
  Rows attention(const Rows& q, const Rows& k, const Rows& v) const {
    const std::uint64_t d = s.head_dim(), shared = s.heads / s.kv_heads;
    Rows out(q.size(), std::vector<T>(s.width));
    for (std::uint64_t i = 0; i < q.size(); ++i)
      for (std::uint64_t h = 0; h < s.heads; ++h) {
        const std::uint64_t kv = h / shared * d;
        std::vector<T> share(i + 1);
        T sum = 0;
        for (std::uint64_t j = 0; j <= i; ++j) {
          T score = 0;
          for (std::uint64_t c = 0; c < d; ++c) score = score + q[i][h * d + c] * k[j][kv + c];
          share[j] = exp(score * T(1 / std::sqrt(double(d))));
          sum = sum + share[j];
        }
        for (std::uint64_t j = 0; j <= i; ++j)
          for (std::uint64_t c = 0; c < d; ++c)
            out[i][h * d + c] = out[i][h * d + c] + share[j] / sum * v[j][kv + c];
      }
    return out;
  }
  Rows activated(const Rows& gate, const Rows& up) const {
    Rows out = gate;
    for (std::size_t i = 0; i < out.size(); ++i)
      for (std::size_t j = 0; j < out[i].size(); ++j) {
        const T v = gate[i][j];
        out[i][j] = llama()
                        ? v / (T(1) + exp(T(0) - v)) * up[i][j]
                        : T(0.5) * v * (T(1) + tanh(T(std::sqrt(2 / M_PI)) * (v + T(0.044715) * v * v * v)));
      }
    return out;
  }
  /// The sum of the losses of one sequence.
  T loss(const std::vector<int>& tokens, const std::vector<int>& targets) const {
    const std::uint64_t w = s.width, kv = s.kv_heads * s.head_dim();
    const auto& table = weights.at(llama() ? "model.embed_tokens.weight" : "wte.weight");
    Rows x(tokens.size(), std::vector<T>(w));
    for (std::size_t i = 0; i < x.size(); ++i)
      for (std::size_t j = 0; j < w; ++j) {
        x[i][j] = table[std::size_t(tokens[i]) * w + j];
        if (!llama()) x[i][j] = x[i][j] + weights.at("wpe.weight")[i * w + j];
      }
    for (std::uint64_t l = 0; l < s.layers; ++l) {
      Rows q, k, v;
      const std::string h = text::cat(llama() ? "model.layers." : "h.", l, ".");
      const Rows y = normed(x, h + (llama() ? "input_layernorm" : "ln_1"));
      if (llama()) {
        q = linear(y, h + "self_attn.q_proj", w), k = linear(y, h + "self_attn.k_proj", kv),
        v = linear(y, h + "self_attn.v_proj", kv);
        for (std::size_t i = 0; i < q.size(); ++i) {
          for (std::uint64_t c = 0; c < w; c += s.head_dim()) rotate(q[i], c, i);
          for (std::uint64_t c = 0; c < kv; c += s.head_dim()) rotate(k[i], c, i);
        }
      } else {
        for (const auto& row : linear(y, h + "attn.c_attn", 3 * w)) {
          const auto at = row.begin();
          const auto n = std::ptrdiff_t(w);
          q.emplace_back(at, at + n), k.emplace_back(at + n, at + 2 * n),
              v.emplace_back(at + 2 * n, at + 3 * n);
        }
      }
      add(x, linear(attention(q, k, v), h + (llama() ? "self_attn.o_proj" : "attn.c_proj"), w));
      const Rows z = normed(x, h + (llama() ? "post_attention_layernorm" : "ln_2"));
      if (llama())
        add(x, linear(activated(linear(z, h + "mlp.gate_proj", s.hidden),
                                linear(z, h + "mlp.up_proj", s.hidden)),
                      h + "mlp.down_proj", w));
      else
        add(x, linear(activated(linear(z, h + "mlp.c_fc", s.hidden), {}), h + "mlp.c_proj", w));
    }
    const Rows y = normed(x, llama() ? "model.norm" : "ln_f");
    const auto& head = s.tied ? table : weights.at("lm_head.weight");
    T total = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      T sum = 0, chosen = 0;
      for (std::uint64_t t = 0; t < s.vocab; ++t) {
        T logit = 0;
        for (std::uint64_t j = 0; j < w; ++j) logit = logit + y[i][j] * head[t * w + j];
        sum = sum + exp(logit);
        if (int(t) == targets[i]) chosen = logit;
      }
      total = total + log(sum) - chosen;
    }
    return total;
  }
};

struct Result {
  double loss = 0;
  Weights<double> gradients;
};
/// The mean loss of sequences of `length` tokens, and its gradients.
inline Result gradients(const TransformerShape& s, const Weights<double>& weights,
                        const std::vector<int>& tokens, const std::vector<int>& targets, std::size_t length) {
  Result r;
  for (const auto& [name, v] : weights) r.gradients[name].resize(v.size());
  const double count = double(tokens.size());
  for (std::size_t first = 0; first < tokens.size(); first += length) {
    Var::tape.clear();
    Weights<Var> leaves;
    for (const auto& [name, v] : weights)
      for (double x : v) leaves[name].push_back(Var::leaf(x));
    const auto from = std::ptrdiff_t(first), to = std::ptrdiff_t(first + length);
    const Var loss = Model<Var>{s, leaves}.loss({tokens.begin() + from, tokens.begin() + to},
                                                {targets.begin() + from, targets.begin() + to});
    const auto& g = loss.gradients();
    r.loss += loss.value() / count;
    for (const auto& [name, v] : leaves)
      for (std::size_t i = 0; i < v.size(); ++i) r.gradients[name][i] += g[std::size_t(v[i].at())] / count;
  }
  return r;
}

}  // namespace cgp::train::reference
