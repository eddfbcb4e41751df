// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/row/row_kernel.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/pipeline/bulk_ring.h"
#include "cgp/kernels/row/row_exchange.h"

namespace cgp::kernels::row {

using namespace dsl;

std::string describe(const RowConfig& c) { return config_name("", c).substr(1); }

namespace {

// Byte offset of element `first` of row `row`.
template <class P>
Val<u64> offset(const RowsOf<P>& rows, const Val<u64>& row, const Val<u64>& first) {
  const auto size = std::uint64_t(cgp::bytes(rows.dtype));
  if (!rows.inner) return (row * rows.pitch + first) * size;
  const auto inner = to<u64>(*rows.inner);
  const auto group = row / inner, member = row - group * inner;
  return (group * *rows.outer + member * rows.pitch + first) * size;
}

// An access that is not aligned, by single elements.
template <class P>
Access gather(const Format& f, const P& from, const Val<pred>& inside) {
  const Format one{f.dtype, 1};
  Access alone, words;
  for (int i = 0; i < f.elements; ++i) alone.push_back(load(one, from, i, inside)[0]);
  if (f.dtype == DType::f32 || f.elements == 1) return alone;
  for (std::size_t i = 0; i < alone.size(); i += 2) words.push_back(alone[i] | alone[i + 1] << 16);
  return words;
}

}  // namespace

std::optional<Val<u32>> Values::zero(int use) const {
  if (use == 0 || !kept_) return {};
  return (*zeros_)[std::size_t(use - 1)];
}
Floats Values::at(int input, int j, int use) const {
  return floats(format(types_[std::size_t(input)], j), words(input, j), zero(use));
}
Floats Values::column(int which, int j, int use) const {
  const auto& c = (*columns_)[std::size_t(which)];
  const Format f = format(c.dtype, j);
  if (held_) return floats(f, (*held_)[std::size_t(which)][std::size_t(j)], zero(use));
  if (misaligned_columns_) {
    const auto at = index(j) * std::uint64_t(cgp::bytes(c.dtype));
    return floats(f, gather(f, c.base.at(at), inside(j)));
  }
  // Read again rather than kept: the second time from another address, as far as the compiler knows.
  const auto again = zero(use);
  const auto first = again ? first_ + to<u64>(*again) : first_;
  const auto own = c.base.at(first * std::uint64_t(cgp::bytes(c.dtype)));
  const int at = j * int(step_ / std::uint64_t(elements_));
  // Loads that may not move up across stores: all of them at once would take too many registers.
  return floats(f, again && j > 1 ? load<dsl::weak>(f, own, at, inside(j)) : load(f, own, at, inside(j)));
}
void Values::Target::store(int j, const Floats& v) const { store_packed(j, pack(format, v)); }
Values::Target Values::target(const OutRows& rows) const {
  std::optional<Out<b8>> edge;
  if (edge_) edge.emplace(rows.base.at(offset(rows, row_, edge_->column)));
  return {*this,
          {rows.dtype, elements_},
          rows.base.at(offset(rows, row_, first_)),
          int(step_ / std::uint64_t(elements_)),
          std::move(edge)};
}

std::vector<Val<b32>> RowOp::begin(Kernel&, const Val<u64>&, const Val<pred>&) { return {}; }

class RowKernel {
 public:
  RowKernel(Kernel& k, const RowConfig& c, const Val<u64>& rows, const Val<u64>& cols, RowOp& op)
      : k_(k),
        c_(c),
        op_(op),
        rows_(rows),
        cols_(cols),
        accesses_(cols / std::uint64_t(c.elements)),
        exchange_(k, c, op.fold) {
    // No matrix has 2^63 rows or columns, but the compiler does not know.
    zeros_.push_back(to<u32>(cols >> 63));
    zeros_.push_back(to<u32>(rows >> 63));
  }

  void registers() {
    const auto v = values(to<u64>(team()), row_part());
    (void)one(filled(v, load_inputs(v)), {}, {});
  }

  // A block visits row after row; the next row's loads are in flight while this one is worked on.
  void persistent() {
    const auto part = row_part();
    const auto first = to<u64>(team()), teams = to<u64>(this->teams());
    const auto columns = hold(values(first, part));
    struct State {
      std::vector<std::vector<Access>> words;
      Val<u32> visit;
      std::vector<Floats> acc;
      static auto carried() { return std::tuple(&State::words, &State::visit, &State::acc); }
    };
    const auto count = (rows_ + std::uint64_t(c_.rows - 1)) / std::uint64_t(c_.rows);
    auto end = k_.loop(range(first, count, teams),
                       State{load_inputs(values(first, part)), Val<u32>(0), zero_accumulators()},
                       [&](Val<u64> at, State s) {
                         auto v = filled(values(at, part), std::move(s.words));
                         v.held_ = columns ? &*columns : nullptr;
                         auto next = load_inputs(values(at + teams, part));
                         auto acc = one(v, s.visit, std::move(s.acc));
                         return State{std::move(next), exchange_.next(s.visit), std::move(acc)};
                       });
    store_accumulators(values(first, part), end.acc);
  }

  void ring() {
    const auto part = row_part();
    const auto first = to<u64>(team()), teams = to<u64>(this->teams());
    const auto columns = hold(values(first, part));
    const BulkRing ring(k_, c_.stages, stage_bytes());
    if (op_.counted) op_.counted->know(counts());
    for (int s = 0; s < c_.stages; ++s) fill(ring, first + teams * std::uint64_t(s), Val<u32>(s));
    const auto begin = [&](const Val<u64>& row) { return op_.begin(k_, row, row < rows_); };
    struct State {
      RingState ring;
      RowWords row_words;  // empty, or loaded a row ahead
      static auto carried() { return std::tuple(&State::ring, &State::row_words); }
    };
    auto end = k_.loop(
        range(first, rows_, teams),
        State{{Val<u32>(0), {}, zero_accumulators(), edges(first, teams, 0, part)},
              c_.prefetch ? begin(first) : RowWords()},
        [&](Val<u64> row, State t) {
          auto& s = t.ring;
          auto row_words = c_.prefetch ? std::move(t.row_words) : begin(row);
          auto next_words = c_.prefetch ? begin(row + teams) : RowWords();
          auto next_edges = edges(row, teams, 1, part);
          ring.wait(s.at);
          const auto v = staged(row, part, ring, s.at.stage(), columns, std::move(row_words), s.edges);
          const auto stat = statistics(
              v, s.visit, [&] { fill(ring, row + teams * std::uint64_t(c_.stages), s.at.stage()); });
          auto acc = op_.finish(k_, v, stat, std::move(s.acc));
          return State{{exchange_.next(s.visit), ring.next(s.at), std::move(acc), std::move(next_edges)},
                       std::move(next_words)};
        });
    store_accumulators(values(first, part), end.ring.acc);
  }

  // While the blocks of a cluster wait for each other's statistics of a row they work on the next one's. A
  // row's stage is free one row later than in ring(): where all threads have come to the row after the next.
  void overlapping_ring() {
    const auto part = row_part();
    const auto first = to<u64>(team()), teams = to<u64>(this->teams());
    const auto columns = hold(values(first, part));
    const BulkRing ring(k_, c_.stages, stage_bytes());
    if (op_.counted) op_.counted->know(counts());
    const auto others = std::uint32_t(c_.stages - 1);
    for (std::uint32_t s = 0; s < others; ++s) fill(ring, first + teams * std::uint64_t(s), Val<u32>(s));
    const auto begin = [&](const Val<u64>& row) { return op_.begin(k_, row, row < rows_); };
    const auto send = [&](const Val<u64>& row, const RowWords& row_words, const BulkRing::Cursor& at,
                          const Val<u32>& visit, const std::vector<Access>& edge,
                          const std::function<void()>& all_arrived) {
      k_.if_(row < rows_, [&] {
        ring.wait(at);
        exchange_.send(op_.part(k_, staged(row, part, ring, at.stage(), columns, row_words, edge)), visit,
                       all_arrived);
      });
    };
    struct State {
      RingState ring;
      RowWords row_words;
      std::vector<Access> next_edges;
      static auto carried() { return std::tuple(&State::ring, &State::row_words, &State::next_edges); }
    };
    const auto row_words = begin(first);
    const auto first_edges = edges(first, teams, 0, part);
    auto next_edges = edges(first, teams, 1, part);
    send(first, row_words, {}, Val<u32>(0), first_edges, [] {});
    auto end = k_.loop(
        range(first, rows_, teams),
        State{{Val<u32>(0), {}, zero_accumulators(), first_edges}, row_words, std::move(next_edges)},
        [&](Val<u64> row, State t) {
          auto& s = t.ring;
          const auto after = ring.next(s.at);
          const auto visit = exchange_.next(s.visit);
          auto next_words = begin(row + teams);
          auto after_next = edges(row, teams, 2, part);
          send(row + teams, next_words, after, visit, t.next_edges,
               [&] { fill(ring, row + teams * std::uint64_t(others), ring.previous(s.at)); });
          const auto v = staged(row, part, ring, s.at.stage(), columns, std::move(t.row_words), s.edges);
          const auto stat = exchange_.receive(s.visit);
          auto acc = op_.finish(k_, v, stat, std::move(s.acc));
          return State{{visit, after, std::move(acc), std::move(t.next_edges)},
                       std::move(next_words),
                       std::move(after_next)};
        });
    store_accumulators(values(first, part), end.ring.acc);
  }

  void two_passes() {
    const auto row = to<u64>(team());
    const auto part = row_part();
    const auto step = std::uint64_t(c_.threads) * std::uint64_t(c_.cluster);
    const auto place = frame(row);
    const auto accesses = range(to<u64>(part), place ? place->accesses : accesses_, Val<u64>(step));
    const Val<pred> valid = row < rows_;
    const auto of_row = op_.begin(k_, row, valid);
    std::optional<Values> edge;
    if (place) edge.emplace(at_edges(row, valid, *place, part, of_row));
    Stat stat;
    if (op_.fold) {
      Stat none;
      for (float x : op_.fold->nothing()) none.push_back(Val<f32>(x));
      const auto own = k_.loop(accesses, none, [&](Val<u64> i, Stat s) {
        const auto v = one_access(row, valid, i, of_row, place);
        return op_.fold->merge({s, op_.part(k_, v)});
      });
      stat = exchange_(edge ? op_.fold->merge({own, op_.part(k_, *edge)}) : own, {}, [] {});
    }
    k_.loop(accesses,
            [&](Val<u64> i) { (void)op_.finish(k_, one_access(row, valid, i, of_row, place), stat, {}); });
    if (edge) (void)op_.finish(k_, *edge, stat, {});
  }

  void one_pass() {
    const auto row = to<u64>(team());
    const auto part = row_part();
    const Val<pred> valid = row < rows_;
    const auto of_row = op_.begin(k_, row, valid);
    const auto stride = std::uint64_t(step()) * std::uint64_t(c_.loads);
    struct State {
      std::vector<std::vector<Access>> words;
      Stat stat;
      static auto carried() { return std::tuple(&State::words, &State::stat); }
    };
    Stat none;
    for (float x : op_.fold->nothing()) none.push_back(Val<f32>(x));
    const auto first = to<u64>(part);
    const auto place = frame(row);
    const auto here = [&](const Val<u64>& i) { return portion(row, valid, i, of_row, place); };
    const auto end = k_.loop(range(first, place ? place->accesses : accesses_, Val<u64>(stride)),
                             State{load_inputs(here(first)), none}, [&](Val<u64> i, State s) {
                               auto next = load_inputs(here(i + stride));
                               const auto v = filled(here(i), std::move(s.words));
                               return State{std::move(next), op_.fold->merge({s.stat, op_.part(k_, v)})};
                             });
    if (place) {
      const auto edge = at_edges(row, valid, *place, part, of_row);
      const auto stat = exchange_(op_.fold->merge({end.stat, op_.part(k_, edge)}), {}, [] {});
      (void)op_.finish(k_, edge, stat, {});
      return;
    }
    const auto stat = exchange_(end.stat, {}, [] {});
    (void)op_.finish(k_, here(first), stat, {});
  }

 private:
  using RowWords = std::vector<Val<b32>>;  // what begin() returns
  // The index of this thread's first access of the row.
  Val<u32> row_part() const {
    const auto threads = std::uint32_t(c_.threads);
    if (c_.cluster > 1) {
      // A ring's block has a contiguous part, which one bulk copy brings; otherwise blocks interleave.
      const std::uint32_t per_block = c_.stages ? threads * std::uint32_t(c_.loads) : threads;
      return k_.cluster_ctarank() * per_block + k_.tid();
    }
    return c_.rows == 1 ? k_.tid() : k_.tid() % threads;
  }
  int step() const { return c_.stages ? c_.threads : c_.threads * c_.cluster; }  // accesses
  Val<u32> team() const { return c_.cluster > 1 ? k_.clusterid_x() : k_.ctaid_x(); }
  Val<u32> teams() const { return c_.cluster > 1 ? k_.nclusterid_x() : k_.nctaid_x(); }

  // Row `at` (of teams of rows: rows * at + mine) without its elements.
  Values values(const Val<u64>& at, const Val<u32>& part) const {
    const auto row =
        c_.rows == 1 ? at : at * std::uint64_t(c_.rows) + to<u64>(k_.tid() / std::uint32_t(c_.threads));
    const Val<pred> valid = row < rows_;
    const auto e = std::uint32_t(c_.elements);
    const auto place = frame(row);
    const auto first = to<u64>(part) * std::uint64_t(e);
    Values v(row, valid, place ? first + place->left : first, c_.elements,
             std::uint64_t(step()) * std::uint64_t(e));
    v.columns_ = &op_.columns, v.zeros_ = &zeros_;
    const auto accesses = to<u32>(place ? place->accesses : accesses_);
    const auto left = select((part < accesses) & valid, accesses - part, Val<u32>(0));
    for (int j = 0; j < c_.loads; ++j) v.inside_.push_back(left > std::uint32_t(j * step()));
    if (place) add_edge(v, *place, part);
    return v;
  }
  // Where a row's aligned accesses begin and how many there are.
  struct Frame {
    Val<u64> left, accesses, right;  // elements, accesses, elements
  };
  std::optional<Frame> frame(const Val<u64>& row) const {
    if (!c_.edges) return {};
    if (c_.shift) return shifted_frame(row);
    const auto& in = op_.inputs[0];
    const auto size = std::uint64_t(cgp::bytes(in.dtype)), e = std::uint64_t(c_.elements);
    const auto from = in.base.at(offset(in, row, Val<u64>(0))).address();
    const auto left = min(((Val<u64>(0) - from) & (2 * e * size - 1)) / size, cols_);
    const auto rest = cols_ - left;
    return Frame{left, rest / e, rest & (e - 1)};
  }
  // An access more is left to the edges on either side, so that what is loaded around an access lies in the row.
  Frame shifted_frame(const Val<u64>& row) const {
    const auto& out = *op_.aligned;
    const auto size = std::uint64_t(cgp::bytes(out.dtype)), e = std::uint64_t(c_.elements);
    const auto from = out.base.at(offset(out, row, Val<u64>(0))).address();
    const auto left = min(((Val<u64>(0) - from) & (e * size - 1)) / size + e, cols_);
    const auto rest = cols_ - left;
    const auto accesses = max(rest / e, Val<u64>(1)) - 1u;
    return Frame{left, accesses, rest - accesses * e};
  }
  // Access `i` from `first` of a row on, of memory that is not aligned with it.
  Access load_shifted(const InRows& in, const Val<u64>& row, const Val<u64>& first, int i,
                      const Val<pred>& inside) const {
    const auto at = offset(in, row, first);
    const auto bytes = to<u32>((in.base.at(at).address()) & 15u);
    const auto from = in.base.at(at - to<u64>(bytes));
    Access w = load<nc>(format(in), from, i, inside, in.outside);
    for (const auto& more : load<nc>(format(in), from, i + 1, inside, in.outside)) w.push_back(more);
    const auto moved = [&](const Access& words, std::size_t by, const Val<pred>& when) {
      Access out;
      for (std::size_t j = 0; j + by < words.size(); ++j)
        out.push_back(select(when, words[j + by], words[j]));
      return out;
    };
    const auto two = moved(w, 2, (bytes & 8u) != 0u), one = moved(two, 1, (bytes & 4u) != 0u);
    Access out;
    for (std::size_t j = 0; j < 4; ++j)
      out.push_back(cgp::bytes(in.dtype) == 4
                        ? one[j]
                        : bits<b32>(shf<mod::r, mod::wrap>(bits<u32>(one[j]), bits<u32>(one[j + 1]),
                                                           (bytes & 2u) * 8u)));
    return out;
  }
  // The first 2 * elements threads of a row have a single element each of what is left of its accesses, the
  // next ones of what is right.
  void add_edge(Values& v, const Frame& f, const Val<u32>& part) const {
    const auto e = std::uint32_t(c_.elements);
    const auto on_right = part >= 2 * e;
    const auto own = select(on_right, part - 2 * e, part);
    const auto there = to<u64>(own) < select(on_right, f.right, f.left);
    const auto column = to<u64>(own) + select(on_right, cols_ - f.right, Val<u64>(0));
    v.misaligned_columns_ = true;
    v.edge_.emplace(Values::Edge{column, f.accesses, there, (part == 0) & v.valid_});
    v.inside_.push_back(there & v.valid_);
  }
  // For one or two passes: the edges alone, where there is nothing else to say about the row either.
  Values at_edges(const Val<u64>& row, const Val<pred>& valid, const Frame& f, const Val<u32>& part,
                  RowWords of_row) const {
    Values v(row, valid, f.left, c_.elements, 0);
    v.columns_ = &op_.columns, v.kept_ = false, v.of_row_ = std::move(of_row);
    add_edge(v, f, part);
    return filled(v, load_inputs(v));
  }
  // The words of the edges of the row that is `ahead` teams from `row`, loaded before that row is visited.
  std::vector<Access> edges(const Val<u64>& row, const Val<u64>& teams, int ahead,
                            const Val<u32>& part) const {
    if (!c_.edges) return {};
    std::vector<Access> words;
    const auto v = values(ahead ? row + teams * std::uint64_t(ahead) : row, part);
    for (const auto& in : op_.inputs) words.push_back(load_edge(in, v));
    return words;
  }
  Access load_edge(const InRows& in, const Values& v) const {
    return load<nc>(Format{in.dtype, 1}, in.base.at(offset(in, v.row(), v.edge_->column)), 0,
                    v.inside_.back(), in.outside);
  }
  // Part of a row whose first access is `i`.
  Values portion(const Val<u64>& row, const Val<pred>& valid, const Val<u64>& i, RowWords of_row,
                 const std::optional<Frame>& place) const {
    const auto e = std::uint64_t(c_.elements);
    Values v(row, valid, place ? i * e + place->left : i * e, c_.elements, std::uint64_t(step()) * e);
    v.misaligned_columns_ = place.has_value();
    v.columns_ = &op_.columns, v.kept_ = false, v.of_row_ = std::move(of_row);
    const auto& accesses = place ? place->accesses : accesses_;
    for (int j = 0; j < c_.loads; ++j)
      v.inside_.push_back((i + std::uint64_t(j) * std::uint64_t(step()) < accesses) & valid);
    return v;
  }
  Format format(const InRows& in) const { return {in.dtype, c_.elements}; }
  std::vector<std::vector<Access>> load_inputs(const Values& v) const {
    std::vector<std::vector<Access>> words;
    for (const auto& in : op_.inputs) {
      const auto own = in.base.at(offset(in, v.row(), v.first_));
      words.emplace_back();
      for (int j = 0; j < v.count() - int(v.edge_.has_value()); ++j)
        words.back().push_back(c_.shift ? load_shifted(in, v.row(), v.first_, j * step(), v.inside(j))
                                        : load<nc>(format(in), own, j * step(), v.inside(j), in.outside));
      if (v.edge_) words.back().push_back(load_edge(in, v));
    }
    return words;
  }
  Values filled(Values v, std::vector<std::vector<Access>> words) const {
    v.inputs_ = std::move(words);
    for (const auto& in : op_.inputs) v.types_.push_back(in.dtype);
    return v;
  }
  // One access of a row, for two passes.
  Values one_access(const Val<u64>& row, const Val<pred>& valid, const Val<u64>& i, RowWords of_row,
                    const std::optional<Frame>& place) const {
    const auto first = i * std::uint64_t(c_.elements);
    Values v(row, valid, place ? first + place->left : first, c_.elements, 0);
    v.misaligned_columns_ = place.has_value();
    v.columns_ = &op_.columns;
    v.kept_ = false;
    v.of_row_ = std::move(of_row);
    v.inside_.push_back(valid);
    std::vector<std::vector<Access>> words;
    for (const auto& in : op_.inputs)
      words.push_back(
          {c_.shift ? load_shifted(in, row, v.first_, 0, valid)
                    : load<nc>(format(in), in.base.at(offset(in, row, v.first_)), 0, valid, in.outside)});
    return filled(std::move(v), std::move(words));
  }

  std::vector<Floats> one(Values v, const RowExchange::Visit& visit, std::vector<Floats> acc) {
    v.of_row_ = op_.begin(k_, v.row(), v.valid());
    const auto stat = statistics(v, visit, [] {});
    return op_.finish(k_, v, stat, std::move(acc));
  }
  Stat statistics(const Values& v, const RowExchange::Visit& visit,
                  const std::function<void()>& elements_read) {
    if (op_.fold) return exchange_(op_.part(k_, v), visit, elements_read);
    if (c_.stages) {  // nothing else tells that all warps have read the stage
      k_.sync();
      elements_read();
    }
    return {};
  }

  // Column vectors in registers for the whole launch.
  std::optional<std::vector<std::vector<Access>>> hold(const Values& v) const {
    if (!c_.hold_columns || op_.columns.empty()) return {};
    std::vector<std::vector<Access>> all;
    const auto accesses = to<u32>(v.edge_ ? v.edge_->accesses : accesses_);
    const auto part = v.edge_ ? row_part() : to<u32>(v.first_ / std::uint64_t(c_.elements));
    for (const auto& c : op_.columns) {
      const auto size = std::uint64_t(cgp::bytes(c.dtype));
      const auto own = c.base.at(v.first_ * size);
      const Format f{c.dtype, c_.elements};
      all.emplace_back();
      for (int j = 0; j < c_.loads; ++j) {
        const Val<pred> inside = part + std::uint32_t(j * step()) < accesses;
        all.back().push_back(v.edge_ ? gather(f, own.at(j * step() * f.bytes()), inside)
                                     : load(f, own, j * step(), inside));
      }
      if (v.edge_)
        all.back().push_back(load(Format{c.dtype, 1}, c.base.at(v.edge_->column * size), 0, v.edge_->there));
    }
    return all;
  }

  std::vector<Floats> zero_accumulators() const {
    return std::vector<Floats>(std::size_t(op_.accumulators),
                               Floats(std::size_t(c_.loads * c_.elements + c_.edges), Val<f32>(0.f)));
  }
  // partials[accumulator][team][column]
  void store_accumulators(const Values& v, const std::vector<Floats>& acc) const {
    if (!op_.accumulators) return;
    const auto own = c_.rows == 1 ? to<u64>(team())
                                  : to<u64>(k_.ctaid_x()) * std::uint64_t(c_.rows) +
                                        to<u64>(k_.tid() / std::uint32_t(c_.threads));
    const auto all = to<u64>(teams()) * std::uint64_t(c_.rows);
    const auto accesses = to<u32>(v.edge_ ? v.edge_->accesses : accesses_);
    const auto part = v.edge_ ? row_part() : to<u32>(v.first_ / std::uint64_t(c_.elements));
    const Format f{DType::f32, c_.elements};
    for (std::size_t a = 0; a < acc.size(); ++a) {
      const auto row = (all * std::uint64_t(a) + own) * cols_;
      const auto to_row = op_.partials->as<b8>().at((row + v.first_) * std::uint64_t(4));
      for (int j = 0; j < c_.loads; ++j) {
        const auto from = acc[a].begin() + j * c_.elements;
        const auto inside = [&]() -> Val<pred> { return part + std::uint32_t(j * step()) < accesses; };
        if (!v.edge_) {
          store(f, to_row, j * step(), inside(), pack(f, Floats(from, from + c_.elements)));
          continue;
        }
        for (int i = 0; i < c_.elements; ++i)
          op_.partials->st_if(inside(), row + v.first_ + std::uint64_t(j * step() * c_.elements + i),
                              from[i]);
      }
      if (v.edge_) op_.partials->st_if(v.edge_->there, row + v.edge_->column, acc[a].back());
    }
  }

  // ---------------------------------------------------------------- ring
  PartCounts counts() const {
    const auto threads = std::uint32_t(c_.threads), part = std::uint32_t(part_accesses());
    const auto all = to<u32>(accesses_);
    const Val<u32> from = c_.cluster > 1 ? k_.cluster_ctarank() * part : Val<u32>(0);
    const auto own = min(select(all > from, all - from, Val<u32>(0)), Val<u32>(part));
    // Of the `width` neighbouring threads from `first` on.
    const auto of = [&](const Val<u32>& first, std::uint32_t width) {
      std::vector<Val<u32>> n{Val<u32>(0)};
      for (int j = 0; j < c_.loads; ++j) {
        const auto at = first + std::uint32_t(j) * threads;
        n.push_back(n.back() + min(select(own > at, own - at, Val<u32>(0)), Val<u32>(width)));
      }
      return n.back();
    };
    const auto elements = [&](const Val<u32>& n) { return to<f32>(n * std::uint32_t(c_.elements)); };
    const auto slot = k_.warp().lane() & std::uint32_t(slots() - 1);
    const auto of_slot = select(slot < threads / 32, of(slot * 32, 32), Val<u32>(0));
    return {elements(of(k_.tid(), 1)),
            elements(of(k_.warp_index() * 32, 32)),
            elements(of_slot),
            elements(own),
            elements(all),
            float(part) * float(c_.elements)};
  }
  // Lanes that a block's warps leave their statistics to (row_exchange.cpp).
  int slots() const {
    int width = 2;
    while (width < c_.threads / 32) width *= 2;
    return width;
  }
  struct RingState {
    Val<u32> visit;
    BulkRing::Cursor at;
    std::vector<Floats> acc;
    std::vector<Access> edges;
    static auto carried() {
      return std::tuple(&RingState::visit, &RingState::at, &RingState::acc, &RingState::edges);
    }
  };
  // A row whose stage is full.
  Values staged(const Val<u64>& row, const Val<u32>& part, const BulkRing& ring, const Val<u32>& stage,
                const std::optional<std::vector<std::vector<Access>>>& columns, RowWords of_row,
                const std::vector<Access>& edges) const {
    const auto place = values(row, part);
    auto v = filled(
        place, c_.overlap_exchange ? std::vector<std::vector<Access>>() : read_stage(place, ring, stage));
    for (std::size_t i = 0; i < v.inputs_.size() && c_.edges; ++i) v.inputs_[i].push_back(edges[i]);
    if (c_.overlap_exchange)  // nothing is kept, and all at once would take registers from the sums
      v.fetch_ = [this, &ring, stage, edges](const Values& of, int input, int j) {
        if (of.at_edge(j)) return edges[std::size_t(input)];
        return read_stage(of, ring, stage, std::size_t(input), j);
      };
    v.held_ = columns ? &*columns : nullptr;
    v.kept_ = !c_.overlap_exchange;
    v.of_row_ = std::move(of_row);
    return v;
  }
  void fill(const BulkRing& ring, const Val<u64>& row, const Val<u32>& stage) {
    auto cta = k_.cta();
    cta.one_thread([&](Thread&) { k_.if_(row < rows_, [&] { fill_stage(ring, row, stage); }); });
  }
  int part_accesses() const { return c_.threads * c_.loads; }
  int input_bytes(std::size_t i) const { return part_accesses() * format(op_.inputs[i]).bytes(); }
  int stage_bytes() const {
    int n = 0;
    for (std::size_t i = 0; i < op_.inputs.size(); ++i) n += input_bytes(i);
    return n;
  }
  void fill_stage(const BulkRing& ring, const Val<u64>& row, const Val<u32>& stage) {
    const auto place = frame(row);
    const auto accesses = to<u32>(place ? place->accesses : accesses_);
    if (c_.cluster > 1) {
      const auto from = k_.cluster_ctarank() * std::uint32_t(part_accesses());
      const auto left = select(accesses > from, accesses - from, Val<u32>(0));
      const auto capped = min(left, Val<u32>(part_accesses()));
      const auto first = to<u64>(from) * std::uint64_t(c_.elements);
      fill_part(ring, row, stage, capped, place ? first + place->left : first);
      return;
    }
    fill_part(ring, row, stage, accesses, place ? place->left : Val<u64>(0));
  }
  void fill_part(const BulkRing& ring, const Val<u64>& row, const Val<u32>& stage, const Val<u32>& accesses,
                 const Val<u64>& first) {
    int per_access = 0;
    for (const auto& in : op_.inputs) per_access += format(in).bytes();
    ring.expect(stage, accesses * std::uint32_t(per_access));
    k_.if_(accesses != 0, [&] {
      int at = 0;
      for (std::size_t i = 0; i < op_.inputs.size(); ++i) {
        const auto& in = op_.inputs[i];
        ring.copy(stage, ring.stage(stage, at), in.base.at(offset(in, row, first)),
                  accesses * std::uint32_t(format(in).bytes()));
        at += input_bytes(i);
      }
    });
  }
  Access read_stage(const Values& v, const BulkRing& ring, const Val<u32>& stage, std::size_t input,
                    int j) const {
    int at = 0;
    for (std::size_t i = 0; i < input; ++i) at += input_bytes(i);
    const auto& in = op_.inputs[input];
    const auto own = ring.stage(stage, at).at(k_.tid() * std::uint32_t(format(in).bytes()));
    return load(format(in), own, j * c_.threads, v.inside(j), in.outside);
  }
  std::vector<std::vector<Access>> read_stage(const Values& v, const BulkRing& ring,
                                              const Val<u32>& stage) const {
    std::vector<std::vector<Access>> words(op_.inputs.size());
    for (std::size_t i = 0; i < op_.inputs.size(); ++i)
      for (int j = 0; j < c_.loads; ++j) words[i].push_back(read_stage(v, ring, stage, i, j));
    return words;
  }

  Kernel& k_;
  const RowConfig& c_;
  RowOp& op_;
  Val<u64> rows_, cols_, accesses_;
  RowExchange exchange_;
  std::vector<Val<u32>> zeros_;
};

void run_rows(Kernel& k, const RowConfig& c, const Val<u64>& rows, const Val<u64>& cols, RowOp& op) {
  if (c.overlap_exchange && (c.cluster < 2 || c.stages < 3 || !op.fold))
    throw ArgumentError({"overlap_exchange needs statistics, a cluster and a ring of at least 3 stages",
                         "config", text::cat("it is ", describe(c)), "leave it out"});
  if (c.one_pass && !(op.once && op.fold && c.loads && c.rows == 1 && !c.visits_many()))
    throw ArgumentError({"one_pass needs statistics that are the result, and a block or a cluster a row",
                         "config", text::cat("it is ", describe(c)), "leave it out"});
  if (c.edges && c.threads < 3 * c.elements)
    throw ArgumentError({"rows with edges need three threads for each element of an access", "config",
                         text::cat("it is ", describe(c)), "more threads"});
  if (c.shift && (!c.edges || c.stages || !op.aligned || c.threads < 4 * c.elements))
    throw ArgumentError(
        {"shift needs edges, no ring, an output to be aligned in and four threads for each element of an "
         "access",
         "config", text::cat("it is ", describe(c)), "leave it out"});
  k.block(c.threads * c.rows);
  if (c.cluster > 1) k.cluster(c.cluster);
  if (c.min_blocks) k.min_blocks(c.min_blocks);
  RowKernel kernel(k, c, rows, cols, op);
  if (c.one_pass)
    kernel.one_pass();
  else if (c.overlap_exchange)
    kernel.overlapping_ring();
  else if (c.stages)
    kernel.ring();
  else if (!c.loads)
    kernel.two_passes();
  else if (c.persistent)
    kernel.persistent();
  else
    kernel.registers();
}

}  // namespace cgp::kernels::row
