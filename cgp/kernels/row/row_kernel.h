// SPDX-License-Identifier: Apache-2.0
#pragma once
// The skeletons of kernels that work on rows: which thread has which elements, how they are loaded, how the
// threads of a row agree on its statistics. An operation is a RowOp; run_rows() records the kernel around it.
//   registers    the row's elements stay in registers, `loads` accesses for each of the row's threads
//   persistent   the same, but a block visits row after row and loads the next one while it works on this one
//                (for operations with accumulators: sums over rows, kept by the threads that own the columns)
//   ring         persistent blocks; bulk copies bring the next rows into shared memory (sm_90, 16-byte
//                aligned); with overlap_exchange a cluster finishes a row one row later and no block waits
//   two passes   rows of any length, read once for the statistics and again for the results
//   one pass     rows of any length, read once, for operations whose results are statistics; the next loads
//                are in flight while a thread works
#include <functional>
#include <optional>

#include "cgp/kernels/common/config.h"
#include "cgp/kernels/row/fold.h"

namespace cgp::kernels::row {

/// Build-time choices of a kernel on rows.
struct RowConfig {
  int elements = 1;         ///< per access
  int threads = 32;         ///< of a block that share a row: 8, 16, 32, or a multiple of 32
  int rows = 4;             ///< rows a block has at a time; 1 when threads > 32
  int loads = 1;            ///< accesses of a thread that cover the row (one pass: at a time); 0: two passes
  int cluster = 1;          ///< blocks that share a row (sm_90)
  int stages = 0;           ///< > 0: a ring of so many rows
  int min_blocks = 0;       ///< blocks an SM that registers must leave room for; 0: the assembler's choice
  bool persistent = false;  ///< blocks visit several rows without a ring
  bool hold_columns = false;  ///< persistent, ring: column vectors stay in registers
  /// Ring of 3 stages or more in a cluster: a row's statistics are exchanged while the next row's are computed;
  /// elements are read from their stage twice.
  bool overlap_exchange = false;
  bool one_pass = false;  ///< rows are any number of times `loads` accesses, for RowOp::once
  /// Misaligned rows: 16-byte accesses from the row's first 32-byte boundary on, single elements before and after
  /// them. The rows of all tensors begin at the same distance from such a boundary; threads >= 3 * elements. With
  /// hold_columns or sums over rows the rows of a team are a multiple of 2 * elements apart.
  bool edges = false;
  bool prefetch = false;  ///< ring: what belongs to a row as a whole is loaded a row ahead
  /// With edges, without a ring: rows of inputs begin anywhere, those of RowOp::aligned at other distances from a boundary.
  /// Accesses lie where they are aligned in the latter; of an input two aligned accesses are loaded and shifted together. Accesses of
  /// 16 bytes, threads >= 4 * elements.
  bool shift = false;

  bool visits_many() const { return persistent || stages > 0; }
  bool operator==(const RowConfig&) const = default;
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.extent("threads_x_rows", "", c.threads, c.rows);
    v.number("elements", "vec", c.elements, 1);
    v.number("loads", "loads", c.loads, 1);
    v.number("cluster", "cluster", c.cluster, 1);
    v.number("stages", "stages", c.stages, 0);
    v.number("min_blocks", "min_blocks", c.min_blocks, 0);
    v.flag("persistent", c.persistent);
    v.flag("hold_columns", c.hold_columns);
    v.flag("one_pass", c.one_pass);
    v.flag("overlap_exchange", c.overlap_exchange);
    v.flag("prefetch", c.prefetch);
    v.flag("edges", c.edges);
    v.flag("shift", c.shift);
  }
};
/// "512x1_vec8_loads8_cluster2_stages3_min_blocks1": fields with their default are left out.
std::string describe(const RowConfig& c);

/// Rows in global memory. With `inner` rows lie in groups of `inner`, `pitch` apart inside and `outer` apart
/// between groups (heads of a token, say).
template <class Pointer>
struct RowsOf {
  Pointer base;
  Val<u64> pitch;  ///< elements
  DType dtype;
  float outside = 0;  ///< inputs: the value of elements that are not there
  std::optional<Val<u64>> outer{};
  std::optional<Val<u32>> inner{};
};
using InRows = RowsOf<In<b8>>;
using OutRows = RowsOf<Out<b8>>;
/// One vector along the row, the same for all rows.
struct Column {
  In<b8> base;
  DType dtype;
};

/// A thread's elements of one row: `count` accesses, access j at element first + j * step. With edges the last
/// access is a single element before or after the aligned part of the row.
class Values {
 public:
  int count() const { return int(inside_.size()); }
  int elements() const { return elements_; }  ///< of an access; the edge's has one
  int elements(int j) const { return at_edge(j) ? 1 : elements_; }
  const Val<pred>& inside(int j) const { return inside_[std::size_t(j)]; }
  const Val<u64>& row() const { return row_; }
  /// The first element's index in the row.
  Val<u64> index(int j) const {
    if (at_edge(j)) return edge_->column;
    return j ? first_ + std::uint64_t(j) * step_ : first_;
  }
  /// Of input rows. `use` counts the times: 0, 1, 2 (elements.h says why).
  Floats at(int input, int j, int use = 0) const;
  /// The same in registers as they came.
  Access words(int input, int j) const {
    return fetch_ ? fetch_(*this, input, j) : inputs_[std::size_t(input)][std::size_t(j)];
  }
  /// The zero of floats() for that use.
  std::optional<Val<u32>> zero(int use) const;
  Floats column(int which, int j, int use = 0) const;  ///< of a column vector
  /// This thread holds the row's first element: it writes what there is once a row.
  Val<pred> leader() const { return edge_ ? edge_->leader : (first_ == 0) & valid_; }
  const Val<pred>& valid() const { return valid_; }  ///< there is such a row
  /// What begin() returned for the row.
  const std::vector<Val<b32>>& of_row() const { return of_row_; }
  /// The same elements go to part() and finish(), so that what part() computed of them may be kept.
  bool kept() const { return kept_; }
  /// Stores access j of this row.
  class Target {
   public:
    void store(int j, const Floats& v) const;
    void store_packed(int j, const Access& a) const {
      if (values.at_edge(j))
        row::store(Format{format.dtype, 1}, *edge, 0, values.inside(j), a);
      else
        row::store(format, at, j * step, values.inside(j), a);
    }
    const Values& values;
    Format format;
    Out<b8> at;
    int step;
    std::optional<Out<b8>> edge;
  };
  Target target(const OutRows& rows) const;

 private:
  friend class RowKernel;
  Values(Val<u64> row, Val<pred> valid, Val<u64> first, int elements, std::uint64_t step)
      : elements_(elements), step_(step), row_(row), valid_(valid), first_(first) {}
  struct Edge {
    Val<u64> column, accesses;  ///< of the single element; the row's wide accesses
    Val<pred> there, leader;    ///< there is such an element, if there is such a row
  };
  bool at_edge(int j) const { return edge_ && j + 1 == count(); }
  Format format(DType t, int j) const { return {t, elements(j)}; }
  int elements_;
  bool kept_ = true;
  std::uint64_t step_;  ///< elements from one access to the next
  Val<u64> row_;
  Val<pred> valid_;
  Val<u64> first_;
  std::optional<Edge> edge_;
  bool misaligned_columns_ = false;  ///< column vectors are not aligned with the accesses
  std::vector<Val<pred>> inside_;
  std::vector<Val<b32>> of_row_;
  std::vector<std::vector<Access>> inputs_;               // [input][access]
  std::function<Access(const Values&, int, int)> fetch_;  // instead: read where they are used
  std::vector<DType> types_;
  const std::vector<Val<u32>>* zeros_ = nullptr;
  const std::vector<Column>* columns_ = nullptr;
  const std::vector<std::vector<Access>>* held_ = nullptr;  // [column][access]
};

/// What happens to a row: begin, part, finish, each recorded once for a row. With one or two passes part and finish
/// are recorded once for an access; with overlap_exchange the next row's begin and part come before finish.
class RowOp {
 public:
  virtual ~RowOp() = default;
  std::vector<InRows> inputs;
  std::vector<Column> columns;
  std::optional<OutRows> aligned;  ///< with RowConfig::shift: whose rows the accesses are aligned in
  /// How statistics combine; null: there are none.
  const Fold* fold = nullptr;
  /// The same where it needs element counts: rings without edges.
  CountedMoments* counted = nullptr;
  /// finish() reads no element of the row.
  bool once = false;
  /// Sums over rows: so many f32 per element of the row, handed to finish() and back. They end up in
  /// `partials`, one row of `cols` for each of the launch's row teams and accumulator.
  int accumulators = 0;
  std::optional<Out<f32>> partials;

  /// Loads what belongs to the row as a whole: words for Values::of_row().
  virtual std::vector<Val<b32>> begin(Kernel&, const Val<u64>& row, const Val<pred>& valid);
  /// Statistics of these elements.
  virtual Stat part(Kernel&, const Values&) = 0;
  /// Given the row's statistics: stores results; returns the accumulators, [accumulator][element].
  virtual std::vector<Floats> finish(Kernel&, const Values&, const Stat&, std::vector<Floats> acc) = 0;
};

/// Records the kernel: block and cluster size, loops, loads, exchange.
void run_rows(Kernel& k, const RowConfig& c, const Val<u64>& rows, const Val<u64>& cols, RowOp& op);

}  // namespace cgp::kernels::row
