// SPDX-License-Identifier: Apache-2.0
#pragma once
// DynAcc: the accumulator of a warpgroup whose shape is a build-time value (Acc's twin), and its wgmma.
//   auto begun = wgmma(wg, fresh_accumulator(wg, ptx::Mod::f32, 64, 200), ring.take(wg), {{0, 1}});
//   auto last = k.loop(n - 1, std::move(begun), [&](Val<u32>, auto busy) {
//     return std::move(busy).then(wg, ring.take(wg), DynProducts{{0, 1}});
//   });
//   DynAcc acc = std::move(last).wait(wg);        only now is it readable
// What is under way is an InFlight<DynAcc, 1>: it has no elements, may go round a loop, and is waited for
// once.
#include <optional>

#include "cgp/dsl/mma/wgmma.h"
#include "cgp/dsl/pipeline/dyn_ring.h"

namespace cgp::dsl {

/// M x N elements in the registers of a warpgroup: blocks of 64 rows, as wgmma leaves them. Of each 64 x 8
/// a thread has four, of the rows r and r + 8 and the columns c and c + 1 (origin()). Move-only.
class DynAcc {
 public:
  DynAcc(ptx::Mod type, int rows, int cols, AccRegs regs, Here at = Here::now());
  template <class T, int M, int N>
  explicit DynAcc(Acc<T, M, N> acc) : DynAcc(Acc<T, M, N>::reg::mod, M, N, acc.owned().alias()) {}

  ptx::Mod type() const { return type_; }
  int rows() const { return rows_; }
  int cols() const { return cols_; }
  int size() const { return int(values().size()); }  ///< elements of a thread
  /// Elements of this thread: row block by row block, in each column block by column block.
  const std::vector<Value>& values() const;
  template <class T>
  Val<T> get(int i) const {
    return Val<T>(values().at(std::size_t(i)));
  }
  /// Row and column of this thread's first element; T and N do not matter.
  static record::AccOrigin origin(Warpgroup& wg) { return record::warpgroup_origin(wg.k); }

  /// Element i, x, becomes f(i, x): a Val of one type for all.
  template <class T, class F>
  DynAcc map(F&& f) && {
    std::vector<Value> out;
    for (int i = 0; i < size(); ++i) out.push_back(f(i, get<T>(i)));
    return replaced(std::move(out));
  }
  /// Its blocks of 64 rows.
  std::vector<DynAcc> row_blocks() &&;
  /// Adds `x`, of as many rows, to the columns from `first_col` on, in place. scale(i): the factor of x's
  /// element i, or none.
  void add_columns(const DynAcc& x, int first_col, const std::function<std::optional<Val<f32>>(int)>& scale);
  const AccRegs& owned() const { return regs_; }

 private:
  DynAcc replaced(std::vector<Value> values) const;
  ptx::Mod type_;
  int rows_, cols_;
  AccRegs regs_;
};

/// Undefined elements: only a product that overwrites them may come first.
class FreshDynAcc {
 public:
  FreshDynAcc(Warpgroup& wg, ptx::Mod type, int rows, int cols);
  /// The registers of an accumulator that is no longer needed.
  explicit FreshDynAcc(DynAcc used) : acc_(std::move(used)) {}

 private:
  friend struct DynWgmma;
  DynAcc acc_;
};
inline FreshDynAcc fresh_accumulator(Warpgroup& wg, ptx::Mod type, int rows, int cols) {
  return FreshDynAcc(wg, type, rows, cols);
}
DynAcc zero_accumulator(Warpgroup& wg, ptx::Mod type, int rows, int cols, Here at = Here::now());

/// Tiles of a stage that are multiplied: `a` and `b` count them. Of B's columns the accumulator has part
/// `part` of `parts`.
struct DynProduct {
  int a, b;
  int part = 0, parts = 1;
};
/// Products of one stage into one accumulator, in this order.
struct DynProducts {
  DynProducts(std::initializer_list<DynProduct> l) : list(l) {}
  explicit DynProducts(std::vector<DynProduct> l) : list(std::move(l)) {}
  std::vector<DynProduct> list;
};

/// An accumulator is updated in place: it stays in its registers round a loop.
template <>
struct Carry<DynAcc> {
  static DynAcc home(Kernel&, DynAcc s) { return s; }
  static DynAcc settle(Kernel& k, DynAcc& home, DynAcc next);
  static DynAcc view(DynAcc& home) {
    return DynAcc(home.type(), home.rows(), home.cols(), home.owned().alias());
  }
};

struct DynWgmma {
  static InFlight<DynAcc, 1> issue(Warpgroup& wg, DynAcc acc, bool overwrite, DynFilled stage,
                                   const DynProducts& products, Here at);
  static DynAcc release(FreshDynAcc acc) { return std::move(acc.acc_); }
};

/// acc + the products of the stage's tiles. Each operand has the accumulator's rows (columns), or as many for
/// each member of the ring's role, which then multiplies its own. The type of tiles says the majors.
template <Major = Major::k, Major = Major::k>
InFlight<DynAcc, 1> wgmma(Warpgroup& wg, DynAcc acc, DynFilled stage, DynProducts products,
                          Here at = Here::now()) {
  return DynWgmma::issue(wg, std::move(acc), false, std::move(stage), products, at);
}
/// The first of them overwrites the accumulator.
template <Major = Major::k, Major = Major::k>
InFlight<DynAcc, 1> wgmma(Warpgroup& wg, FreshDynAcc acc, DynFilled stage, DynProducts products,
                          Here at = Here::now()) {
  return DynWgmma::issue(wg, DynWgmma::release(std::move(acc)), true, std::move(stage), products, at);
}

}  // namespace cgp::dsl
