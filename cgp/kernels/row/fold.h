// SPDX-License-Identifier: Apache-2.0
#pragma once
// How the statistics of partials of a row combine: in one thread, between lanes, between warps and blocks. The
// order is fixed by the shape, so results repeat bit by bit.
#include <optional>

#include "cgp/dsl/sync/warp.h"
#include "cgp/kernels/row/elements.h"

namespace cgp::kernels::row {

/// The statistics of a part of a row: a few f32 whose meaning the Fold knows.
using Stat = std::vector<Val<f32>>;

class Fold {
 public:
  virtual ~Fold() = default;
  /// The statistics of no elements.
  virtual std::vector<float> nothing() const = 0;
  /// Of several disjoint partials held by one thread.
  virtual Stat merge(const std::vector<Stat>& partials) const = 0;
  /// Of the partials that `width` neighbouring lanes hold; every one of them gets it.
  virtual Stat lanes(dsl::Warp& w, const Stat& part, int width) const = 0;
  /// Of the warps of a block, which as many lanes hold.
  virtual Stat warps(dsl::Warp& w, const Stat& part, int width) const { return lanes(w, part, width); }
  int size() const { return int(nothing().size()); }
};

/// `n` independent sums.
class SumFold : public Fold {
 public:
  explicit SumFold(int n) : n_(n) {}
  std::vector<float> nothing() const override;
  Stat merge(const std::vector<Stat>& partials) const override;
  Stat lanes(dsl::Warp& w, const Stat& part, int width) const override;

 private:
  int n_;
};

/// (maximum, sum of exp(v - maximum), then `more` plain sums). A part that is all -inf has sum 0, and a NaN
/// makes the sum NaN.
class MaxSum : public Fold {
 public:
  explicit MaxSum(int more = 0) : more_(more) {}
  std::vector<float> nothing() const override;
  Stat merge(const std::vector<Stat>& partials) const override;
  Stat lanes(dsl::Warp& w, const Stat& part, int width) const override;

 private:
  int more_;
};

/// (count, mean, sum of squared differences from the mean), combined as Chan, Golub and LeVeque do: no
/// cancellation, however far the mean is from 0.
class Moments : public Fold {
 public:
  std::vector<float> nothing() const override { return {0, 0, 0}; }
  Stat merge(const std::vector<Stat>& partials) const override;
  Stat lanes(dsl::Warp& w, const Stat& part, int width) const override;
};

/// How many elements the partials have that a thread combines, the same in every row.
struct PartCounts {
  Val<f32> thread, warp;  ///< of this thread and of its warp
  Val<f32> slot, block;   ///< of the warp whose statistics this lane gets, and of this block
  Val<f32> row;
  float of_block;  ///< of the blocks of a row, but for the last ones
};
/// (mean, sum of squared differences from it) of partials whose counts are known: no count travels, and means
/// need no division.
class CountedMoments : public Fold {
 public:
  void know(PartCounts c);
  const Val<f32>& of_thread() const { return constants_->of_thread; }  ///< 1 / elements; 0 without
  const Val<f32>& of_row() const { return constants_->of_row; }        ///< 1 / elements
  std::vector<float> nothing() const override { return {0, 0}; }
  Stat merge(const std::vector<Stat>& partials) const override;  ///< of the blocks of a row
  Stat lanes(dsl::Warp& w, const Stat& part, int width) const override;
  Stat warps(dsl::Warp& w, const Stat& part, int width) const override;

 private:
  struct Constants {
    PartCounts count;
    Val<f32> of_thread, of_warp, of_block, of_row;  // reciprocals
  };
  std::optional<Constants> constants_;
};

/// exp(v - m). The difference first: v * log2(e) would overflow for values that softmax has no trouble with.
Val<f32> exp_minus(const Val<f32>& v, const Val<f32>& m);
/// What a partial sum is relative to: 0 for a part that is all -inf, so that its sum is 0 and not NaN.
Val<f32> reference(const Val<f32>& m);
Val<f32> natural_log(const Val<f32>& v);

}  // namespace cgp::kernels::row
