// SPDX-License-Identifier: Apache-2.0
#pragma once
// The end of every gemm variant that stores from registers: c = alpha * sum + beta * c where the element is
// inside.
#include <algorithm>
#include <vector>

#include "cgp/dsl/core/convert.h"

namespace cgp::kernels {

template <class T>
struct GemmOutput {
  dsl::InOut<T> c;
  dsl::Val<dsl::u64> m, n, ldc;
  dsl::Val<dsl::f32> alpha, beta;

  /// One element.
  void put(dsl::Kernel& k, const dsl::Val<dsl::u64>& row, const dsl::Val<dsl::u64>& col,
           const dsl::Val<dsl::f32>& sum) const {
    using namespace dsl;
    k.if_((row < m) & (col < n), [&] {
      const auto at = row * ldc + col;
      const auto old = k.if_(
          beta == 0.f, [&] { return Val<f32>(0.f); }, [&] { return to<f32>(c.ld(at)) * beta; });
      c.st(at, to<T>(fma(sum, alpha, old)));
    });
  }
  /// Two neighbours of a row; `col` is even. Stored as one word where `paired` holds (n and ldc even, c
  /// aligned).
  void put_pair(dsl::Kernel& k, const dsl::Val<dsl::pred>& paired, const dsl::Val<dsl::u64>& row,
                const dsl::Val<dsl::u64>& col, const dsl::Val<dsl::f32>& lo,
                const dsl::Val<dsl::f32>& hi) const {
    using namespace dsl;
    static_assert(T::bits == 16);
    k.if_(
        paired,
        [&] {
          k.if_((row < m) & (col < n), [&] {
            const auto word = c.at(row * ldc + col).template as<b32>();
            const auto none = std::pair(Val<f32>(0.f), Val<f32>(0.f));
            const auto old = k.if_(
                beta == 0.f, [&] { return none; },
                [&] {
                  const auto h = unpack<T>(word.ld());
                  return std::pair(to<f32>(h[0]) * beta, to<f32>(h[1]) * beta);
                });
            word.st(0, pack<b32>(to<T>(fma(lo, alpha, old.first)), to<T>(fma(hi, alpha, old.second))));
          });
        },
        [&] {
          put(k, row, col, lo);
          put(k, row, col + 1, hi);
        });
  }

  /// Many pairs: where the old C counts, its words are asked for eight at a time.
  struct Pair {
    dsl::Val<dsl::u64> row, col;
    dsl::Val<dsl::f32> lo, hi;
  };
  void put_pairs(dsl::Kernel& k, const dsl::Val<dsl::pred>& paired, const std::vector<Pair>& all) const {
    using namespace dsl;
    k.if_(
        paired,
        [&] {
          const auto reads = beta != 0.f;
          for (std::size_t from = 0; from < all.size(); from += 8) {
            const std::size_t end = std::min(all.size(), from + 8);
            std::vector<Val<b32>> old;
            for (std::size_t i = from; i < end; ++i)
              old.push_back(c.at(all[i].row * ldc + all[i].col)
                                .template as<b32>()
                                .ld_if((all[i].row < m) & (all[i].col < n) & reads, 0, Val<b32>(0))[0]);
            for (std::size_t i = from; i < end; ++i) {
              const auto& p = all[i];
              const auto h = unpack<T>(old[i - from]);
              const auto word = pack<b32>(to<T>(fma(p.lo, alpha, to<f32>(h[0]) * beta)),
                                          to<T>(fma(p.hi, alpha, to<f32>(h[1]) * beta)));
              c.at(p.row * ldc + p.col).template as<b32>().st_if((p.row < m) & (p.col < n), 0, word);
            }
          }
        },
        [&] {
          for (const auto& p : all) put(k, p.row, p.col, p.lo), put(k, p.row, p.col + 1, p.hi);
        });
  }
};

}  // namespace cgp::kernels
