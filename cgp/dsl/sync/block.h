// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a whole block does together, for kernels without tensor cores: reductions, and row-major matrices in
// shared memory with cooperative loads and stores. The block must be one-dimensional with a size that is
// known while building (k.block(n) first).
#include "cgp/dsl/core/arith.h"
#include "cgp/dsl/memory/ptr.h"
#include "cgp/dsl/sync/warp.h"

namespace cgp::dsl {

namespace record_impl {
/// The block's thread count; BuildError when k.block() was not called or the block is not one-dimensional.
int known_threads(Kernel& k, std::string_view what, Here at);
}  // namespace record_impl

/// f over v of all threads, in every thread: warps by butterfly, then their results through shared memory.
/// f(identity, x) == x. Two barriers; the order of combination is fixed.
template <IsVal A, class F>
auto reduce(Cta& c, const A& v, F&& f, const std::type_identity_t<Val<typename A::elem>>& identity,
            Here at = Here::now()) {
  using T = typename A::elem;
  Kernel& k = c.k;
  const int threads = record_impl::known_threads(k, "a block reduction", at);
  k.require(threads % 32 == 0, "a block reduction needs whole warps", text::cat(threads, " threads"), at);
  Warp w = k.warp(at);
  const Val<T> mine = reduce(w, v, f, 32, at);
  if (threads == 32) return Val<T>(mine.with(Uniform::cta));
  const int warps = threads / 32;
  const auto partial = k.shared<T>(warps, 0, at);
  const auto lane = k.laneid();
  partial.st_if(lane == 0, k.warp_index(), mine, at);
  k.sync(at);
  // Every warp combines all partial results: one round of shared loads instead of a broadcast and a third
  // barrier.
  const Val<T> other = partial.ld_if(lane < std::uint32_t(warps), lane, identity, at)[0];
  const Val<T> total = reduce(w, other, f, 32, at);
  k.sync(at);  // the partial results may be overwritten by the next reduction
  return Val<T>(total.with(Uniform::cta));
}

/// rows x cols elements in shared memory, `pitch` elements from row to row (choose cols + 1 or a multiple of
/// four plus four to keep columns out of each other's banks).
template <class T>
struct SharedMatrix {
  Ptr<mod::shared, T> data;
  int rows, cols, pitch;

  SharedMatrix(Kernel& k, int rows, int cols, int pitch = 0, Here at = Here::now())
      : data(k.shared<T>(rows * (pitch ? pitch : cols), 16, at)),
        rows(rows),
        cols(cols),
        pitch(pitch ? pitch : cols) {
    k.require(this->pitch >= cols, "a matrix's pitch is at least its columns",
              text::cat("pitch ", pitch, ", ", cols, " columns"), at);
  }
  Val<T> ld(const Val<u32>& r, const Val<u32>& c, Here at = Here::now()) const {
    return data.ld(mad<lo>(r, pitch, c, at), at);
  }
  void st(const Val<u32>& r, const Val<u32>& c, const Val<T>& v, Here at = Here::now()) const {
    data.st(mad<lo>(r, pitch, c, at), v, at);
  }
};

namespace record_impl {
/// body(r, c, inside) for every element this thread moves: elements tid, tid + threads, ... of the tile.
template <class T, class Body>
void each_element(Kernel& k, const SharedMatrix<T>& m, Here at, Body&& body) {
  const int threads = known_threads(k, "a cooperative copy", at);
  const int total = m.rows * m.cols;
  const auto tid = k.tid();
  for (int first = 0; first < total; first += threads) {
    const auto e = tid + std::uint32_t(first);
    const auto move = [&] { body(e / std::uint32_t(m.cols), e % std::uint32_t(m.cols)); };
    if (first + threads <= total)
      move();
    else
      k.if_(e < std::uint32_t(total), move, at);
  }
}
}  // namespace record_impl

/// Fills the tile from a row-major matrix of `src_rows` x `src_cols` with `ld` elements per row, starting at
/// (row0, col0); outside the matrix zero. Call k.sync() before reading the tile.
template <class T, class P>
void load_tile_to_shared(Cta& c, const SharedMatrix<T>& tile, const P& src, const Val<u32>& row0,
                         const Val<u32>& col0, const Val<u32>& src_rows, const Val<u32>& src_cols,
                         const Val<u32>& ld, Here at = Here::now()) {
  Kernel& k = c.k;
  c.converged("load_tile_to_shared", at);
  record_impl::each_element(k, tile, at, [&](const Val<u32>& r, const Val<u32>& col) {
    const auto gr = row0 + r, gc = col0 + col;
    const auto inside = (gr < src_rows) & (gc < src_cols);
    const auto index = mad<wide>(gr, ld, to<u64>(gc, at), at);
    tile.st(r, col, src.ld_if(inside, index, Val<T>(0), at)[0], at);
  });
}
/// The reverse; elements outside the matrix are dropped. Call k.sync() between writing the tile and this.
template <class T, class P>
void store_tile_from_shared(Cta& c, const SharedMatrix<T>& tile, const P& dst, const Val<u32>& row0,
                            const Val<u32>& col0, const Val<u32>& dst_rows, const Val<u32>& dst_cols,
                            const Val<u32>& ld, Here at = Here::now()) {
  Kernel& k = c.k;
  c.converged("store_tile_from_shared", at);
  record_impl::each_element(k, tile, at, [&](const Val<u32>& r, const Val<u32>& col) {
    const auto gr = row0 + r, gc = col0 + col;
    const auto inside = (gr < dst_rows) & (gc < dst_cols);
    dst.st_if(inside, mad<wide>(gr, ld, to<u64>(gc, at), at), tile.ld(r, col, at), at);
  });
}
/// f over one row of the tile, by one warp; every lane gets the result.
template <class T, class F>
Val<T> row_reduce(Warp& w, const SharedMatrix<T>& tile, const Val<u32>& row, F&& f,
                  const std::type_identity_t<Val<T>>& identity, Here at = Here::now()) {
  Kernel& k = w.k;
  const auto lane = w.lane();
  std::vector<Val<T>> sum;
  for (int c0 = 0; c0 < tile.cols; c0 += 32) {
    const auto col = lane + std::uint32_t(c0);
    const auto index = mad<lo>(row, tile.pitch, col, at);
    const Val<T> v = c0 + 32 <= tile.cols
                         ? tile.data.ld(index, at)
                         : tile.data.ld_if(col < std::uint32_t(tile.cols), index, identity, at)[0];
    k.at(at);
    sum.push_back(sum.empty() ? v : f(sum.back(), v));
  }
  return reduce(w, sum.back(), f, 32, at);
}
template <class T>
Val<T> row_sum(Warp& w, const SharedMatrix<T>& tile, const Val<u32>& row, Here at = Here::now()) {
  return row_reduce(
      w, tile, row, [](const Val<T>& a, const Val<T>& b) { return a + b; }, Val<T>(0), at);
}
/// NaNs are ignored, as max ignores them; an empty maximum is -infinity.
template <class T>
Val<T> row_max(Warp& w, const SharedMatrix<T>& tile, const Val<u32>& row, Here at = Here::now()) {
  static_assert(std::is_same_v<T, f32>, "row_max is for f32 tiles");
  return row_reduce(
      w, tile, row, [](const Val<T>& a, const Val<T>& b) { return max(a, b); },
      Val<T>(-std::numeric_limits<float>::infinity()), at);
}

/// N zeros in registers.
template <class T, int N>
RegGroup<T, N> zeros() {
  return RegGroup<T, N>::splat(Val<T>(0));
}
/// acc[i, j] += sum over kk of a(row + i, kk) * b(kk, col + j): one thread's M x N outputs, row-major in acc.
/// The products over kk are unrolled; row and col are this thread's first row and column in the tiles.
template <int M, int N, class T>
RegGroup<T, M * N> gemm_shared(const SharedMatrix<T>& a, const SharedMatrix<T>& b,
                               const RegGroup<T, M * N>& acc, const Val<u32>& row, const Val<u32>& col,
                               Here at = Here::now()) {
  if (a.cols != b.rows)
    throw BuildError("the tiles of a product agree on its inner extent", at,
                     text::cat("A has ", a.cols, " columns, B has ", b.rows, " rows"));
  const auto a0 = a.data.at(mad<lo>(row, a.pitch, Val<u32>(0), at), at);
  const auto b0 = b.data.at(col, at);
  std::vector<Val<T>> sum(acc.begin(), acc.end());
  for (int kk = 0; kk < a.cols; ++kk) {
    std::vector<Val<T>> left, right, next;
    for (int i = 0; i < M; ++i) left.push_back(a0.ld(i * a.pitch + kk, at));
    for (int j = 0; j < N; ++j) right.push_back(b0.ld(kk * b.pitch + j, at));
    for (int i = 0; i < M; ++i)
      for (int j = 0; j < N; ++j)
        next.push_back(fma(left[std::size_t(i)], right[std::size_t(j)], sum[std::size_t(i * N + j)], at));
    sum.swap(next);
  }
  return RegGroup<T, M * N>::generate([&](int i) { return sum[std::size_t(i)]; });
}

}  // namespace cgp::dsl
