// SPDX-License-Identifier: Apache-2.0
#include "cgp/engine/program/program.h"

#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::engine {
namespace {

using std::int64_t;
using text::cat;

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

/// Follows the program with what has been written so far, and keeps the first reason to refuse it.
class Checker {
 public:
  explicit Checker(const Program& p) : p_(p), written_(p.values.size(), false) {}

  std::string run() {
    for (const Weight& w : p_.weights)
      if (w.rows < 1 || w.cols < 1 || w.experts < 1 || w.first_row < 0 || w.first_col < 0)
        return cat("weight ", w.tensor, " has an extent below 1");
    for (std::size_t i = 0; i < p_.steps.size() && why_.empty(); ++i) {
      std::visit(*this, p_.steps[i].operation);
      if (!why_.empty()) why_ = cat("step ", i, ": ", why_);
    }
    if (why_.empty()) read(p_.logits);
    if (why_.empty() && p_.values[std::size_t(p_.logits)].rows != Rows::outputs)
      why_ = "logits are no outputs";
    return why_;
  }

  void operator()(const Embedding& o) {
    weight(o.table, -1, width(o.out));
    if (o.positions != kNone) weight(o.positions, -1, width(o.out));
    write(o.out);
  }
  void operator()(const RmsNorm& o) {
    read(o.in), weight(o.weight, 1, o.group), same(o.in, o.out);
    if (o.group < 1 || width(o.in) % o.group != 0) refuse("groups divide a row");
    write(o.out);
  }
  void operator()(const LayerNorm& o) {
    read(o.in), weight(o.weight, 1, width(o.in)), same(o.in, o.out);
    if (o.bias != kNone) weight(o.bias, 1, width(o.in));
    write(o.out);
  }
  void operator()(const Linear& o) {
    read(o.in);
    if (o.parts.empty() || (o.gated && o.parts.size() != 2) ||
        (o.residual != kNone && (o.parts.size() != 1 || o.activated)))
      return refuse("a gated product has two parts, one with a residual value has one and no activation");
    for (std::size_t i = 0; i < o.parts.size(); ++i) {
      const ValueId out = o.gated ? o.parts[0].out : o.parts[i].out;
      weight(o.parts[i].weight, width(out), width(o.in));
      if (o.parts[i].bias != kNone) weight(o.parts[i].bias, 1, width(out));
      if (out == o.in) refuse("a product does not overwrite its input");
      rows_agree(o.in, out);
    }
    if (o.residual != kNone) read(o.residual), same(o.residual, o.parts[0].out);
    for (std::size_t i = 0; i < (o.gated ? 1 : o.parts.size()); ++i) write(o.parts[i].out);
  }
  void operator()(const Rope& o) {
    read(o.value);
    if (o.table < 0 || std::size_t(o.table) >= p_.rope_tables.size())
      return refuse("no such table of frequencies");
    if (o.heads * o.head_dim != width(o.value) ||
        2 * int64_t(p_.rope_tables[std::size_t(o.table)].frequencies.size()) > o.head_dim)
      refuse("heads fill the value, and rotated dimensions lie in the head");
  }
  void operator()(const Attention& o) {
    read(o.q), read(o.k), read(o.v);
    if (o.kv_heads < 1 || o.heads % o.kv_heads != 0 || o.heads * o.head_dim != width(o.q) ||
        o.kv_heads * o.head_dim != width(o.k) || width(o.k) != width(o.v) || width(o.out) != width(o.q))
      refuse("heads fill q, k, v and out, and heads of the cache divide those of q");
    if (o.kv_heads != p_.kv_heads || o.head_dim != p_.head_dim || o.cache_layer < 0 ||
        o.cache_layer >= p_.cache_layers)
      refuse("the layer is one of the cache");
    if (o.window < 0 || o.softcap < 0) refuse("window and softcap are not negative");
    write(o.out);
  }
  void operator()(const Experts& o) {
    read(o.in), same(o.in, o.out);
    weight(o.router, o.experts, width(o.in));
    if (!why_.empty()) return;
    if (o.gate < 0 || std::size_t(o.gate) >= p_.weights.size()) return refuse("no such weight");
    const int64_t inner = p_.weights[std::size_t(o.gate)].rows;
    weight(o.gate, inner, width(o.in), o.experts), weight(o.up, inner, width(o.in), o.experts);
    weight(o.down, width(o.out), inner, o.experts);
    if (o.used < 1 || o.used > o.experts) refuse("at least one expert is used, at most all");
    if (o.out == o.in) refuse("experts do not overwrite their input");
    if (o.residual != kNone) read(o.residual), same(o.residual, o.out);
    write(o.out);
  }
  void operator()(const Add& o) { read(o.a), read(o.b), same(o.a, o.b), same(o.a, o.out), write(o.out); }
  void operator()(const Scale& o) {
    read(o.value);
    if (o.softcap < 0) refuse("softcap is not negative");
  }
  void operator()(const SelectRows& o) {
    read(o.in);
    if (width(o.in) != width(o.out)) refuse("widths agree");
    if (why_.empty() && (p_.values[std::size_t(o.in)].rows != Rows::tokens ||
                         p_.values[std::size_t(o.out)].rows != Rows::outputs))
      refuse("tokens are selected to outputs");
    write(o.out);
  }
  void operator()(const AllReduce& o) { read(o.value); }

 private:
  void refuse(std::string why) {
    if (why_.empty()) why_ = std::move(why);
  }
  bool is_value(ValueId v) {
    if (v >= 0 && std::size_t(v) < p_.values.size()) return true;
    refuse(cat("no value ", v));
    return false;
  }
  int64_t width(ValueId v) { return is_value(v) ? p_.values[std::size_t(v)].width : 0; }
  void read(ValueId v) {
    if (is_value(v) && !written_[std::size_t(v)])
      refuse(cat(p_.values[std::size_t(v)].name, " is read before it is written"));
  }
  void write(ValueId v) {
    if (is_value(v)) written_[std::size_t(v)] = true;
  }
  void rows_agree(ValueId a, ValueId b) {
    if (is_value(a) && is_value(b) && p_.values[std::size_t(a)].rows != p_.values[std::size_t(b)].rows)
      refuse(
          cat(p_.values[std::size_t(a)].name, " and ", p_.values[std::size_t(b)].name, " have other rows"));
  }
  void same(ValueId a, ValueId b) {
    if (width(a) != width(b)) refuse(cat("widths ", width(a), " and ", width(b), " differ"));
    rows_agree(a, b);
  }
  /// rows -1: any.
  void weight(WeightId w, int64_t rows, int64_t cols, int64_t experts = 1) {
    if (w < 0 || std::size_t(w) >= p_.weights.size()) return refuse(cat("no weight ", w));
    const Weight& there = p_.weights[std::size_t(w)];
    if ((rows != -1 && there.rows != rows) || there.cols != cols || there.experts != experts)
      refuse(cat("weight ", there.tensor, " is ", there.rows, " x ", there.cols, ", needed ", rows, " x ",
                 cols));
  }

  const Program& p_;
  std::vector<bool> written_;
  std::string why_;
};

}  // namespace

std::string_view name(Role role) {
  constexpr std::string_view names[kRoles] = {"embedding",
                                              "norm",
                                              "qkv_projection",
                                              "rope",
                                              "attention",
                                              "output_projection",
                                              "gate_up_projection",
                                              "down_projection",
                                              "experts",
                                              "residual",
                                              "lm_head",
                                              "all_reduce",
                                              "other"};
  return names[int(role)];
}

std::string reject(const Program& program) { return Checker(program).run(); }

Program without_lm_head(Program p) {
  const auto head = std::find_if(p.steps.begin(), p.steps.end(), [](const Step& s) {
    return s.role == Role::lm_head && std::holds_alternative<Linear>(s.operation);
  });
  if (head == p.steps.end())
    throw ArgumentError(
        ErrorText{"a program has a head to leave out", p.architecture, "no operation is one", {}});
  p.logits = std::get<Linear>(head->operation).in;
  p.values[std::size_t(p.logits)].type = ValueType::f32;
  p.steps.erase(head, p.steps.end());
  return p;
}

std::string text_of(const Program& p) {
  std::string out;
  const auto value = [&](ValueId v) {
    return cat(p.values[std::size_t(v)].name, "[", p.values[std::size_t(v)].width, "]");
  };
  const auto weight = [&](WeightId w) { return p.weights[std::size_t(w)].tensor; };
  for (const Step& s : p.steps)
    out += std::visit(
        Overloaded{
            [&](const Embedding& o) { return cat(value(o.out), " = embedding ", weight(o.table), "\n"); },
            [&](const RmsNorm& o) {
              return cat(value(o.out), " = rms_norm ", value(o.in), " ", weight(o.weight), "\n");
            },
            [&](const LayerNorm& o) {
              return cat(value(o.out), " = layer_norm ", value(o.in), " ", weight(o.weight), "\n");
            },
            [&](const Linear& o) {
              std::string line;
              for (const Linear::Part& part : o.parts)
                line += cat(line.empty() ? "" : ", ", part.out == kNone ? "" : value(part.out), " = linear ",
                            value(o.in), " ", weight(part.weight));
              return line + (o.gated ? " gated\n" : o.activated ? " activated\n" : "\n");
            },
            [&](const Rope& o) { return cat(value(o.value), " = rope\n"); },
            [&](const Attention& o) {
              return cat(value(o.out), " = attention ", value(o.q), " window ", o.window, "\n");
            },
            [&](const Experts& o) {
              return cat(value(o.out), " = experts ", value(o.in), " ", o.used, " of ", o.experts, "\n");
            },
            [&](const Add& o) { return cat(value(o.out), " = ", value(o.a), " + ", value(o.b), "\n"); },
            [&](const Scale& o) {
              return cat(value(o.value), " = scale ", o.factor, " softcap ", o.softcap, "\n");
            },
            [&](const SelectRows& o) { return cat(value(o.out), " = select_rows ", value(o.in), "\n"); },
            [&](const AllReduce& o) { return cat(value(o.value), " = all_reduce\n"); }},
        s.operation);
  return out;
}

}  // namespace cgp::engine
