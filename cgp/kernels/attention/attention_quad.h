// SPDX-License-Identifier: Apache-2.0
#pragma once
// Rows of an accumulator on their way out: a quad of threads holds 8 columns of a row as four words of two;
// four such blocks are exchanged so that each thread stores 16 bytes.
#include "cgp/dsl/memory/ptr.h"
#include "cgp/dsl/mma/fragment.h"
#include "cgp/dsl/sync/warp.h"

namespace cgp::kernels::attention_impl {

/// Words of blocks 0 to 3 (columns 8b + 2t, + 1 in thread t) become the four words of block t.
inline dsl::RegGroup<dsl::b32, 4> exchange_in_quad(dsl::Warp& w,
                                                   const std::array<dsl::Val<dsl::b32>, 4>& in) {
  using namespace dsl;
  const auto odd = (w.lane() & 1u) != 0u, upper = (w.lane() & 2u) != 0u;
  struct Pair {
    Val<b32> lo, hi;
  };
  const auto swap = [&](const Val<b32>& a, const Val<b32>& b) {  // of two blocks: this thread's, both halves
    const auto got = shfl<bfly>(w, select(odd, a, b), 1);
    const auto kept = select(odd, b, a);
    return Pair{select(odd, got, kept), select(odd, kept, got)};
  };
  const Pair x = swap(in[0], in[1]), y = swap(in[2], in[3]);
  const auto got_lo = shfl<bfly>(w, select(upper, x.lo, y.lo), 2),
             got_hi = shfl<bfly>(w, select(upper, x.hi, y.hi), 2);
  return RegGroup<b32, 4>(select(upper, got_lo, x.lo), select(upper, got_hi, x.hi),
                          select(upper, y.lo, got_lo), select(upper, y.hi, got_hi));
}

/// One row of 16-bit elements from its first, `blocks` blocks of 8 columns: word(b) is this thread's pair of
/// block b. Stored are the columns below `cols` (a multiple of 8), where `there`.
template <class Word>
void store_row(dsl::Warp& w, const dsl::Out<dsl::b32>& row, const dsl::Val<dsl::pred>& there,
               const dsl::Val<dsl::u32>& cols, int blocks, Word&& word) {
  const auto quad = w.lane() & 3u;
  const auto base = row.at(quad * 4u);
  for (int j = 0; j < blocks; j += 4) {
    const auto words = exchange_in_quad(w, {word(j), word(j + 1), word(j + 2), word(j + 3)});
    base.template st_if<4>(there & (quad * 8u + std::uint32_t(8 * j) < cols), j, words);
  }
}

}  // namespace cgp::kernels::attention_impl
