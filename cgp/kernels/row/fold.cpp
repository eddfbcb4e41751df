// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/row/fold.h"

#include <limits>

namespace cgp::kernels::row {

using namespace dsl;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
Val<f32> add(Val<f32> a, Val<f32> b) { return a + b; }
Val<f32> larger(Val<f32> a, Val<f32> b) { return max(a, b); }

Floats each(const std::vector<Stat>& partials, std::size_t i) {
  Floats v;
  for (const auto& p : partials) v.push_back(p[i]);
  return v;
}

}  // namespace

Val<f32> exp_minus(const Val<f32>& v, const Val<f32>& m) {
  constexpr float log2e = 1.4426950408889634f;
  return ex2<approx, ftz>((v - m) * log2e);
}
Val<f32> reference(const Val<f32>& m) { return select(m == -kInf, Val<f32>(0.f), m); }
Val<f32> natural_log(const Val<f32>& v) {
  constexpr float ln2 = 0.6931471805599453f;
  return lg2<approx>(v) * ln2;
}

std::vector<float> SumFold::nothing() const { return std::vector<float>(std::size_t(n_), 0.f); }
Stat SumFold::merge(const std::vector<Stat>& partials) const {
  Stat s;
  for (std::size_t i = 0; i < std::size_t(n_); ++i) s.push_back(sum(each(partials, i)));
  return s;
}
Stat SumFold::lanes(Warp& w, const Stat& part, int width) const {
  Stat s;
  for (const auto& v : part) s.push_back(reduce(w, v, add, width));
  return s;
}

std::vector<float> MaxSum::nothing() const {
  std::vector<float> v(std::size_t(2 + more_), 0.f);
  v[0] = -kInf;
  return v;
}
Stat MaxSum::merge(const std::vector<Stat>& partials) const {
  const auto m = largest(each(partials, 0)), base = reference(m);
  Floats scaled;
  for (const auto& p : partials) scaled.push_back(p[1] * exp_minus(p[0], base));
  Stat s{m, sum(scaled)};
  for (std::size_t i = 2; i < std::size_t(2 + more_); ++i) s.push_back(sum(each(partials, i)));
  return s;
}
Stat MaxSum::lanes(Warp& w, const Stat& part, int width) const {
  const auto m = reduce(w, part[0], larger, width);
  const auto scaled = part[1] * exp_minus(part[0], reference(m));
  Stat s{m, reduce(w, scaled, add, width)};
  for (std::size_t i = 2; i < std::size_t(2 + more_); ++i) s.push_back(reduce(w, part[i], add, width));
  return s;
}

namespace {

// From the totals (count, sum) of the partials: the mean; and what each part adds to the squares about it.
Val<f32> mean_of(const Val<f32>& total, const Val<f32>& count) {
  return total / max(count, Val<f32>(1.f));  // no elements: 0
}
Val<f32> about(const Stat& part, const Val<f32>& mean) {
  const auto d = part[1] - mean;
  return fma(d * d, part[0], part[2]);
}

}  // namespace

Stat Moments::merge(const std::vector<Stat>& partials) const {
  Floats totals;
  for (const auto& p : partials) totals.push_back(p[0] * p[1]);
  const auto count = sum(each(partials, 0)), mean = mean_of(sum(totals), count);
  Floats squares;
  for (const auto& p : partials) squares.push_back(about(p, mean));
  return {count, mean, sum(squares)};
}
Stat Moments::lanes(Warp& w, const Stat& part, int width) const {
  const auto count = reduce(w, part[0], add, width);
  const auto mean = mean_of(reduce(w, part[0] * part[1], add, width), count);
  return {count, mean, reduce(w, about(part, mean), add, width)};
}

void CountedMoments::know(PartCounts c) {
  const auto reciprocal = [](const Val<f32>& n) { return select(n == 0.f, Val<f32>(0.f), rcp<rn>(n)); };
  const auto thread = reciprocal(c.thread), warp = reciprocal(c.warp), block = reciprocal(c.block),
             row = reciprocal(c.row);
  constants_.emplace(Constants{std::move(c), thread, warp, block, row});
}

namespace {

Stat counted(Warp& w, const Stat& part, const Val<f32>& count, const Val<f32>& of_all, int width) {
  const auto mean = reduce(w, part[0] * count, add, width) * of_all;
  const auto d = part[0] - mean;
  return {mean, reduce(w, fma(d * d, count, part[1]), add, width)};
}

}  // namespace

Stat CountedMoments::lanes(Warp& w, const Stat& part, int width) const {
  return counted(w, part, constants_->count.thread, constants_->of_warp, width);
}
Stat CountedMoments::warps(Warp& w, const Stat& part, int width) const {
  return counted(w, part, constants_->count.slot, constants_->of_block, width);
}
Stat CountedMoments::merge(const std::vector<Stat>& partials) const {
  const auto& c = constants_->count;
  Floats counts, totals, squares;
  for (std::size_t r = 0; r < partials.size(); ++r) {
    const auto left = r ? max(c.row - c.of_block * float(r), Val<f32>(0.f)) : c.row;
    counts.push_back(min(left, Val<f32>(c.of_block)));
    totals.push_back(partials[r][0] * counts.back());
  }
  const auto mean = sum(totals) * constants_->of_row;
  for (std::size_t r = 0; r < partials.size(); ++r) {
    const auto d = partials[r][0] - mean;
    squares.push_back(fma(d * d, counts[r], partials[r][1]));
  }
  return {mean, sum(squares)};
}

}  // namespace cgp::kernels::row
