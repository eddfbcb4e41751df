// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/row/row_kernel.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/row/row_exchange.h"
#include "cgp/kernels/row/row_ring.h"

namespace cgp::kernels::row {

using namespace dsl;

std::string describe(const RowTuning& t) {
  auto s = text::cat(t.lanes, "x", t.rows, t.loads ? text::cat("_l", t.loads) : std::string("_loop"), "_c",
                     t.cluster, "_e", t.elements);
  if (t.stages) text::append(s, text::cat("_s", t.stages));
  if (t.resident) text::append(s, text::cat("_r", t.resident));
  if (t.stay) text::append(s, "_stay");
  if (t.hold) text::append(s, "_hold");
  if (t.pass) text::append(s, "_pass");
  if (t.lag) text::append(s, "_lag");
  return s;
}

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

}  // namespace

std::optional<Val<u32>> Values::zero(int use) const {
  if (use == 0 || !kept_) return {};
  return (*zeros_)[std::size_t(use - 1)];
}
Floats Values::at(int input, int j, int use) const {
  return floats(formats_[std::size_t(input)], words(input, j), zero(use));
}
Floats Values::column(int which, int j, int use) const {
  const auto& c = (*columns_)[std::size_t(which)];
  const Format f{c.dtype, elements_};
  if (held_) return floats(f, (*held_)[std::size_t(which)][std::size_t(j)], zero(use));
  // Read again rather than kept: the second time from another address, as far as the compiler knows.
  const auto again = zero(use);
  const auto first = again ? first_ + to<u64>(*again) : first_;
  const auto mine = c.base.at(first * std::uint64_t(cgp::bytes(c.dtype)));
  const int at = j * int(step_ / std::uint64_t(elements_));
  // Loads that may not move up across stores: all of them at once would take too many registers.
  return floats(f, again && j > 1 ? load<dsl::weak>(f, mine, at, inside(j)) : load(f, mine, at, inside(j)));
}
void Values::Target::store(int j, const Floats& v) const { store_packed(j, pack(format, v)); }
Values::Target Values::target(const OutRows& rows) const {
  return {*this,
          {rows.dtype, elements_},
          rows.base.at(offset(rows, row_, first_)),
          int(step_ / std::uint64_t(elements_))};
}

std::vector<Val<b32>> RowOp::begin(Kernel&, const Val<u64>&, const Val<pred>&) { return {}; }

class RowKernel {
 public:
  RowKernel(Kernel& k, const RowTuning& t, const Val<u64>& rows, const Val<u64>& cols, RowOp& op)
      : k_(k),
        t_(t),
        op_(op),
        rows_(rows),
        cols_(cols),
        accesses_(cols / std::uint64_t(t.elements)),
        exchange_(k, t, op.fold) {
    // No matrix has 2^63 rows or columns, but the compiler does not know.
    zeros_.push_back(to<u32>(cols >> 63));
    zeros_.push_back(to<u32>(rows >> 63));
  }

  void registers() {
    const auto v = values(to<u64>(team()), row_part());
    (void)one(filled(v, load_inputs(v)), {}, {});
  }

  // Blocks visit row after row; the next row's loads are in flight while this one is worked on.
  void stay() {
    const auto part = row_part();
    const auto first = to<u64>(team()), teams = to<u64>(this->teams());
    const auto columns = hold(values(first, part));
    struct Turn {
      std::vector<std::vector<Access>> words;
      Val<u32> turn;
      std::vector<Floats> sums;
      static auto carried() { return std::tuple(&Turn::words, &Turn::turn, &Turn::sums); }
    };
    const auto count = (rows_ + std::uint64_t(t_.rows - 1)) / std::uint64_t(t_.rows);
    auto end =
        k_.loop(range(first, count, teams), Turn{load_inputs(values(first, part)), Val<u32>(0), no_sums()},
                [&](Val<u64> at, Turn s) {
                  auto v = filled(values(at, part), std::move(s.words));
                  v.held_ = columns ? &*columns : nullptr;
                  auto next = load_inputs(values(at + teams, part));
                  auto sums = one(v, s.turn, std::move(s.sums));
                  return Turn{std::move(next), (s.turn + 1) & 3, std::move(sums)};
                });
    store_sums(values(first, part), end.sums);
  }

  void ring() {
    const auto part = row_part();
    const auto first = to<u64>(team()), teams = to<u64>(this->teams());
    const auto columns = hold(values(first, part));
    BulkRing ring(k_, t_.stages, stage_bytes());
    for (int s = 0; s < t_.stages; ++s) fill(ring, first + teams * std::uint64_t(s), Val<u32>(s));
    auto end = k_.loop(
        range(first, rows_, teams), RingTurn{Val<u32>(0), {}, no_sums()}, [&](Val<u64> row, RingTurn s) {
          auto of_row = op_.begin(k_, row, row < rows_);
          ring.wait(s.at.stage, s.at.parity);
          const auto v = staged(row, part, ring, s.at.stage, columns, std::move(of_row));
          const auto stat =
              statistics(v, s.turn, [&] { fill(ring, row + teams * std::uint64_t(t_.stages), s.at.stage); });
          auto sums = op_.finish(k_, v, stat, std::move(s.sums));
          return RingTurn{(s.turn + 1) & 3, next(s.at), std::move(sums)};
        });
    store_sums(values(first, part), end.sums);
  }

  // While the blocks of a cluster wait for each other's statistics of a row they work on the next one's. A
  // row's stage is free one row later than in ring(): where all threads have come to the row after the next.
  void lagging_ring() {
    const auto part = row_part();
    const auto first = to<u64>(team()), teams = to<u64>(this->teams());
    const auto columns = hold(values(first, part));
    BulkRing ring(k_, t_.stages, stage_bytes());
    const auto others = std::uint32_t(t_.stages - 1);
    for (std::uint32_t s = 0; s < others; ++s) fill(ring, first + teams * std::uint64_t(s), Val<u32>(s));
    const auto begin = [&](const Val<u64>& row) { return op_.begin(k_, row, row < rows_); };
    const auto send = [&](const Val<u64>& row, const Whole& of_row, const Place& at, const Val<u32>& turn,
                          const std::function<void()>& all_here) {
      k_.if_(row < rows_, [&] {
        ring.wait(at.stage, at.parity);
        exchange_.send(op_.part(k_, staged(row, part, ring, at.stage, columns, of_row)), turn, all_here);
      });
    };
    struct Turn {
      RingTurn ring;
      Whole of_row;
      static auto carried() { return std::tuple(&Turn::ring, &Turn::of_row); }
    };
    const auto whole = begin(first);
    send(first, whole, {}, Val<u32>(0), [] {});
    auto end = k_.loop(range(first, rows_, teams), Turn{{Val<u32>(0), {}, no_sums()}, whole},
                       [&](Val<u64> row, Turn t) {
                         auto& s = t.ring;
                         const auto after = next(s.at);
                         const auto turn = (s.turn + 1) & (exchange_.turns() - 1);
                         auto of_next = begin(row + teams);
                         send(row + teams, of_next, after, turn, [&] {
                           const auto freed = select(s.at.stage == 0, Val<u32>(others), s.at.stage - 1);
                           fill(ring, row + teams * std::uint64_t(others), freed);
                         });
                         const auto v = staged(row, part, ring, s.at.stage, columns, std::move(t.of_row));
                         const auto stat = exchange_.receive(s.turn);
                         auto sums = op_.finish(k_, v, stat, std::move(s.sums));
                         return Turn{{turn, after, std::move(sums)}, std::move(of_next)};
                       });
    store_sums(values(first, part), end.ring.sums);
  }

  void loop() {
    const auto row = to<u64>(team());
    const auto part = row_part();
    const auto step = std::uint64_t(t_.lanes) * std::uint64_t(t_.cluster);
    const auto turns = range(to<u64>(part), accesses_, Val<u64>(step));
    const Val<pred> valid = row < rows_;
    const auto of_row = op_.begin(k_, row, valid);
    Stat stat;
    if (op_.fold) {
      Stat none;
      for (float x : op_.fold->nothing()) none.push_back(Val<f32>(x));
      const auto mine = k_.loop(turns, none, [&](Val<u64> i, Stat s) {
        const auto v = single(row, valid, i, of_row);
        return op_.fold->merge({s, op_.part(k_, v)});
      });
      stat = exchange_(mine, {}, [] {});
    }
    k_.loop(turns, [&](Val<u64> i) { (void)op_.finish(k_, single(row, valid, i, of_row), stat, {}); });
  }

  void pass() {
    const auto row = to<u64>(team());
    const auto part = row_part();
    const Val<pred> valid = row < rows_;
    const auto of_row = op_.begin(k_, row, valid);
    const auto stride = std::uint64_t(step()) * std::uint64_t(t_.loads);
    struct Turn {
      std::vector<std::vector<Access>> words;
      Stat stat;
      static auto carried() { return std::tuple(&Turn::words, &Turn::stat); }
    };
    Stat none;
    for (float x : op_.fold->nothing()) none.push_back(Val<f32>(x));
    const auto first = to<u64>(part);
    const auto here = [&](const Val<u64>& i) { return portion(row, valid, i, of_row); };
    const auto end = k_.loop(range(first, accesses_, Val<u64>(stride)), Turn{load_inputs(here(first)), none},
                             [&](Val<u64> i, Turn s) {
                               auto next = load_inputs(here(i + stride));
                               const auto v = filled(here(i), std::move(s.words));
                               return Turn{std::move(next), op_.fold->merge({s.stat, op_.part(k_, v)})};
                             });
    const auto stat = exchange_(end.stat, {}, [] {});
    (void)op_.finish(k_, here(first), stat, {});
  }

 private:
  using Whole = std::vector<Val<b32>>;  // what begin() returns
  // The index of this thread's first access of the row.
  Val<u32> row_part() const {
    const auto lanes = std::uint32_t(t_.lanes);
    if (t_.cluster > 1) {
      // A ring's block has a contiguous part, which one bulk copy brings; otherwise blocks interleave.
      const std::uint32_t per_block = t_.stages ? lanes * std::uint32_t(t_.loads) : lanes;
      return k_.cluster_ctarank() * per_block + k_.tid();
    }
    return t_.rows == 1 ? k_.tid() : k_.tid() % lanes;
  }
  int step() const { return t_.stages ? t_.lanes : t_.lanes * t_.cluster; }  // accesses
  Val<u32> team() const { return t_.cluster > 1 ? k_.clusterid_x() : k_.ctaid_x(); }
  Val<u32> teams() const { return t_.cluster > 1 ? k_.nclusterid_x() : k_.nctaid_x(); }

  // Row `at` (of teams of rows: rows * at + mine) without its elements.
  Values values(const Val<u64>& at, const Val<u32>& part) const {
    const auto row =
        t_.rows == 1 ? at : at * std::uint64_t(t_.rows) + to<u64>(k_.tid() / std::uint32_t(t_.lanes));
    const Val<pred> valid = row < rows_;
    const auto e = std::uint32_t(t_.elements);
    Values v(row, valid, to<u64>(part) * std::uint64_t(e), t_.elements,
             std::uint64_t(step()) * std::uint64_t(e));
    v.columns_ = &op_.columns, v.zeros_ = &zeros_;
    const auto accesses = to<u32>(accesses_);
    const auto left = select((part < accesses) & valid, accesses - part, Val<u32>(0));
    for (int j = 0; j < t_.loads; ++j) v.inside_.push_back(left > std::uint32_t(j * step()));
    return v;
  }
  // Part of a row whose first access is `i`.
  Values portion(const Val<u64>& row, const Val<pred>& valid, const Val<u64>& i, Whole of_row) const {
    const auto e = std::uint64_t(t_.elements);
    Values v(row, valid, i * e, t_.elements, std::uint64_t(step()) * e);
    v.columns_ = &op_.columns, v.kept_ = false, v.of_row_ = std::move(of_row);
    for (int j = 0; j < t_.loads; ++j)
      v.inside_.push_back((i + std::uint64_t(j) * std::uint64_t(step()) < accesses_) & valid);
    return v;
  }
  Format format(const InRows& in) const { return {in.dtype, t_.elements}; }
  std::vector<std::vector<Access>> load_inputs(const Values& v) const {
    std::vector<std::vector<Access>> words;
    for (const auto& in : op_.inputs) {
      const auto mine = in.base.at(offset(in, v.row(), v.first_));
      words.emplace_back();
      for (int j = 0; j < t_.loads; ++j)
        words.back().push_back(load<nc, no_allocate>(format(in), mine, j * step(), v.inside(j), in.outside));
    }
    return words;
  }
  Values filled(Values v, std::vector<std::vector<Access>> words) const {
    v.inputs_ = std::move(words);
    for (const auto& in : op_.inputs) v.formats_.push_back(format(in));
    return v;
  }
  // One access of a row, for loop().
  Values single(const Val<u64>& row, const Val<pred>& valid, const Val<u64>& i, Whole of_row) const {
    Values v(row, valid, i * std::uint64_t(t_.elements), t_.elements, 0);
    v.columns_ = &op_.columns;
    v.kept_ = false;
    v.of_row_ = std::move(of_row);
    v.inside_.push_back(valid);
    std::vector<std::vector<Access>> words;
    for (const auto& in : op_.inputs)
      words.push_back({load<nc>(format(in), in.base.at(offset(in, row, v.first_)), 0, valid, in.outside)});
    return filled(std::move(v), std::move(words));
  }

  std::vector<Floats> one(Values v, const std::optional<Val<u32>>& turn, std::vector<Floats> sums) {
    v.of_row_ = op_.begin(k_, v.row(), v.valid());
    const auto stat = statistics(v, turn, [] {});
    return op_.finish(k_, v, stat, std::move(sums));
  }
  Stat statistics(const Values& v, const std::optional<Val<u32>>& turn,
                  const std::function<void()>& elements_read) {
    if (op_.fold) return exchange_(op_.part(k_, v), turn, elements_read);
    if (t_.stages) {  // nothing else tells that all warps have read the stage
      k_.sync();
      elements_read();
    }
    return {};
  }

  // Column vectors in registers for the whole launch.
  std::optional<std::vector<std::vector<Access>>> hold(const Values& v) const {
    if (!t_.hold || op_.columns.empty()) return {};
    std::vector<std::vector<Access>> all;
    const auto accesses = to<u32>(accesses_);
    const auto part = to<u32>(v.first_ / std::uint64_t(t_.elements));
    for (const auto& c : op_.columns) {
      const auto mine = c.base.at(v.first_ * std::uint64_t(cgp::bytes(c.dtype)));
      all.emplace_back();
      for (int j = 0; j < t_.loads; ++j)
        all.back().push_back(
            load({c.dtype, t_.elements}, mine, j * step(), part + std::uint32_t(j * step()) < accesses));
    }
    return all;
  }

  std::vector<Floats> no_sums() const {
    return std::vector<Floats>(std::size_t(op_.accumulators),
                               Floats(std::size_t(t_.loads * t_.elements), Val<f32>(0.f)));
  }
  // partials[accumulator][team][column]
  void store_sums(const Values& v, const std::vector<Floats>& sums) const {
    if (!op_.accumulators) return;
    const auto mine = t_.rows == 1 ? to<u64>(team())
                                   : to<u64>(k_.ctaid_x()) * std::uint64_t(t_.rows) +
                                         to<u64>(k_.tid() / std::uint32_t(t_.lanes));
    const auto all = to<u64>(teams()) * std::uint64_t(t_.rows);
    const auto accesses = to<u32>(accesses_);
    const auto part = to<u32>(v.first_ / std::uint64_t(t_.elements));
    const Format f{DType::f32, t_.elements};
    for (std::size_t a = 0; a < sums.size(); ++a) {
      const auto to_row =
          op_.partials->as<b8>().at(((all * std::uint64_t(a) + mine) * cols_ + v.first_) * std::uint64_t(4));
      for (int j = 0; j < t_.loads; ++j) {
        const auto from = sums[a].begin() + j * t_.elements;
        store(f, to_row, j * step(), part + std::uint32_t(j * step()) < accesses,
              pack(f, Floats(from, from + t_.elements)));
      }
    }
  }

  // ---------------------------------------------------------------- ring
  struct Place {
    Val<u32> stage{0u}, parity{0u};
    static auto carried() { return std::tuple(&Place::stage, &Place::parity); }
  };
  struct RingTurn {
    Val<u32> turn;
    Place at;
    std::vector<Floats> sums;
    static auto carried() { return std::tuple(&RingTurn::turn, &RingTurn::at, &RingTurn::sums); }
  };
  Place next(const Place& at) const {
    const auto wrap = at.stage + 1 == std::uint32_t(t_.stages);
    return {select(wrap, Val<u32>(0), at.stage + 1), select(wrap, at.parity ^ 1, at.parity)};
  }
  // A row whose stage is full.
  Values staged(const Val<u64>& row, const Val<u32>& part, const BulkRing& ring, const Val<u32>& stage,
                const std::optional<std::vector<std::vector<Access>>>& columns, Whole of_row) const {
    const auto place = values(row, part);
    auto v = filled(place, t_.lag ? std::vector<std::vector<Access>>() : read_stage(place, ring, stage));
    if (t_.lag)  // nothing is kept, and all at once would take registers from the sums
      v.fetch_ = [this, &ring, stage](const Values& of, int input, int j) {
        return read_stage(of, ring, stage, std::size_t(input), j);
      };
    v.held_ = columns ? &*columns : nullptr;
    v.kept_ = !t_.lag;
    v.of_row_ = std::move(of_row);
    return v;
  }
  void fill(const BulkRing& ring, const Val<u64>& row, const Val<u32>& stage) {
    auto cta = k_.cta();
    cta.one_thread([&](Thread& t) { k_.if_(row < rows_, [&] { fill_stage(t, ring, row, stage); }); });
  }
  int part_accesses() const { return t_.lanes * t_.loads; }
  int input_bytes(std::size_t i) const { return part_accesses() * format(op_.inputs[i]).bytes(); }
  int stage_bytes() const {
    int n = 0;
    for (std::size_t i = 0; i < op_.inputs.size(); ++i) n += input_bytes(i);
    return n;
  }
  void fill_stage(Thread& t, const BulkRing& ring, const Val<u64>& row, const Val<u32>& stage) {
    const auto accesses = to<u32>(accesses_);
    if (t_.cluster > 1) {
      const auto from = k_.cluster_ctarank() * std::uint32_t(part_accesses());
      const auto left = select(accesses > from, accesses - from, Val<u32>(0));
      const auto capped = min(left, Val<u32>(part_accesses()));
      fill_part(t, ring, row, stage, capped, to<u64>(from) * std::uint64_t(t_.elements));
      return;
    }
    fill_part(t, ring, row, stage, accesses, Val<u64>(0));
  }
  void fill_part(Thread& t, const BulkRing& ring, const Val<u64>& row, const Val<u32>& stage,
                 const Val<u32>& accesses, const Val<u64>& first) {
    int per_access = 0;
    for (const auto& in : op_.inputs) per_access += format(in).bytes();
    ring.expect(t, stage, accesses * std::uint32_t(per_access));
    k_.if_(accesses != 0, [&] {
      int at = 0;
      for (std::size_t i = 0; i < op_.inputs.size(); ++i) {
        const auto& in = op_.inputs[i];
        ring.copy(t, stage, at, in.base.at(offset(in, row, first)),
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
    const auto mine = ring.stage(stage, at).at(k_.tid() * std::uint32_t(format(in).bytes()));
    return load(format(in), mine, j * t_.lanes, v.inside(j), in.outside);
  }
  std::vector<std::vector<Access>> read_stage(const Values& v, const BulkRing& ring,
                                              const Val<u32>& stage) const {
    std::vector<std::vector<Access>> words(op_.inputs.size());
    for (std::size_t i = 0; i < op_.inputs.size(); ++i)
      for (int j = 0; j < t_.loads; ++j) words[i].push_back(read_stage(v, ring, stage, i, j));
    return words;
  }

  Kernel& k_;
  const RowTuning& t_;
  RowOp& op_;
  Val<u64> rows_, cols_, accesses_;
  RowExchange exchange_;
  std::vector<Val<u32>> zeros_;
};

void run_rows(Kernel& k, const RowTuning& t, const Val<u64>& rows, const Val<u64>& cols, RowOp& op) {
  if (t.lag && (t.cluster < 2 || t.stages < 3 || !op.fold))
    throw ArgumentError({"a lag needs statistics, a cluster and a ring of at least 3 stages", "tuning",
                         text::cat("it is ", describe(t)), "leave it out"});
  if (t.pass && !(op.once && op.fold && t.loads && t.rows == 1 && !t.persistent()))
    throw ArgumentError({"a pass needs statistics that are the result, and a block or a cluster a row",
                         "tuning", text::cat("it is ", describe(t)), "leave it out"});
  k.block(t.lanes * t.rows);
  if (t.cluster > 1) k.cluster(t.cluster);
  if (t.resident) k.min_blocks(t.resident);
  RowKernel kernel(k, t, rows, cols, op);
  if (t.pass)
    kernel.pass();
  else if (t.lag)
    kernel.lagging_ring();
  else if (t.stages)
    kernel.ring();
  else if (!t.loads)
    kernel.loop();
  else if (t.stay)
    kernel.stay();
  else
    kernel.registers();
}

}  // namespace cgp::kernels::row
