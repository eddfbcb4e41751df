// SPDX-License-Identifier: Apache-2.0
#include "cgp/engine/tensor_parallel/share.h"

#include <algorithm>
#include <map>
#include <utility>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/engine/models/model.h"

namespace cgp::engine {
namespace {

using std::int64_t;
using text::cat;

class Sharer {
 public:
  Sharer(const Program& whole, const model::Source& file, int rank, int ranks)
      : whole_(whole), file_(file), rank_(rank), ranks_(ranks), part_(whole) {}

  Program run() {
    for (const Step& s : whole_.steps)
      if (const auto* a = std::get_if<Attention>(&s.operation)) heads_of(*a);
    part_.kv_heads = heads(whole_.kv_heads, "heads of the cache").count;
    part_.steps.clear();
    for (Step s : whole_.steps) {
      std::visit([&](auto& o) { change(s.role, o); }, s.operation);
      part_.steps.push_back(s);
      if (summed_ == kNone) continue;
      part_.steps.push_back({AllReduce{std::exchange(summed_, kNone)}, Role::all_reduce, s.layer});
    }
    if (const auto why = reject(part_); !why.empty()) throw Error(cat("a rank's part is no program: ", why));
    return std::move(part_);
  }

 private:
  struct Part {
    int64_t first = 0, count = 0;
  };
  struct Heads {
    Part part;
    int64_t dim = 0;
  };

  [[noreturn]] void uneven(std::string where, std::string why) const {
    throw ArgumentError(ErrorText{cat("a model is shared evenly by ", ranks_, " ranks"), std::move(where),
                                  std::move(why), "use another number of GPUs"});
  }
  Part even(int64_t count, const std::string& what) const {
    if (count % ranks_) uneven(whole_.architecture, cat("it has ", count, " ", what));
    return {rank_ * (count / ranks_), count / ranks_};
  }
  Part heads(int64_t count, const std::string& what) const {
    return ranks_ % count == 0 ? Part{rank_ * count / ranks_, 1} : even(count, what);
  }
  void heads_of(const Attention& a) {
    const Part q = even(a.heads, "attention heads"), kv = heads(a.kv_heads, "heads of the cache");
    for (const ValueId v : {a.q, a.out}) heads_[v] = {q, a.head_dim}, narrow(v, q.count * a.head_dim);
    for (const ValueId v : {a.k, a.v}) heads_[v] = {kv, a.head_dim}, narrow(v, kv.count * a.head_dim);
  }
  void narrow(ValueId v, int64_t width) { part_.values[std::size_t(v)].width = width; }

  Weight& weight(WeightId id) { return part_.weights[std::size_t(id)]; }
  /// Only these rows, of each expert; of a vector, elements.
  void rows(WeightId id, Part p) {
    if (id == kNone) return;
    Weight& w = weight(id);
    w.first_row += p.first, (w.rows == 1 ? w.cols : w.rows) = p.count;
  }
  void columns(WeightId id, Part p) {
    Weight& w = weight(id);
    const auto& format = quant::info(format_of(w, file_));
    if (p.count % int64_t(format.elements))
      uneven(w.tensor, cat(format.name, " rows of ", w.cols, " values are blocks of ", format.elements));
    w.first_col += p.first, w.cols = p.count;
  }
  /// Of a product that is summed over the ranks.
  void once(ValueId& residual) const {
    if (rank_) residual = kNone;
  }

  void change(Role role, Linear& o) {
    if (role == Role::output_projection || role == Role::down_projection) {
      columns(o.parts[0].weight, even(weight(o.parts[0].weight).cols, "values to share"));
      once(o.residual), summed_ = o.parts[0].out;
      if (rank_) o.parts[0].bias = kNone;
      return;
    }
    for (auto& part : o.parts) {
      const ValueId out = o.gated ? o.parts[0].out : part.out;
      const int64_t all = whole_.weights[std::size_t(part.weight)].rows;
      Part p;
      if (const auto h = heads_.find(out); h != heads_.end()) {
        p = {h->second.part.first * h->second.dim, h->second.part.count * h->second.dim};
      } else if (role == Role::gate_up_projection) {
        p = even(all, "hidden values of its feed-forward layers");
      } else if (role == Role::lm_head && all % ranks_ == 0) {
        p = even(all, "words");
      } else {
        continue;
      }
      rows(part.weight, p), rows(part.bias, p), narrow(out, p.count);
    }
  }
  void change(Role, Experts& o) {
    const Part p = even(weight(o.gate).rows, "hidden values of each expert");
    rows(o.gate, p), rows(o.up, p), columns(o.down, p);
    once(o.residual), summed_ = o.out;
  }
  void change(Role, Rope& o) { o.heads = heads_.at(o.value).part.count; }
  void change(Role, Attention& o) {
    o.heads = heads_.at(o.q).part.count, o.kv_heads = heads_.at(o.k).part.count;
  }
  void change(Role, SelectRows& o) {
    const auto h = heads_.find(o.in);
    if (h != heads_.end()) heads_[o.out] = h->second, narrow(o.out, part_.values[std::size_t(o.in)].width);
  }
  void change(Role, auto&) {}

  const Program& whole_;
  const model::Source& file_;
  int rank_, ranks_;
  Program part_;
  std::map<ValueId, Heads> heads_;
  ValueId summed_ = kNone;  ///< by the step that was changed
};

}  // namespace

Program share(const Program& whole, const model::Source& file, int rank, int ranks) {
  return Sharer(whole, file, rank, ranks).run();
}

}  // namespace cgp::engine
