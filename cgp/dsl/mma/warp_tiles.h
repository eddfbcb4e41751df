// SPDX-License-Identifier: Apache-2.0
#pragma once
// mma.sync on tiles whose shape is a build-time value (TileLayout) instead of a type: kernels that choose tile
// sizes from a table. Elements are T, f16 or bf16; accumulators are vectors of 16 x 8 blocks.
//   DynWarpOperand<T> a(w, Operand::a, Major::k, layout, row0);   the rows that this warp multiplies
//   auto lanes = a.lanes(tile_address, offset);                   of one tile in shared memory
//   auto rows = a.rows(w, lanes, step, extent);                   fragments of one K step
//   auto cols = b.two_columns(w, lanes, n, step);                 of columns n to n + 15
//   acc[i] = mma(w, rows[m], cols[j], std::move(acc[i]));
// TileCopier: cp.async copies of such tiles by all threads of the block.
#include "cgp/dsl/mma/mma.h"
#include "cgp/dsl/pipeline/async.h"

namespace cgp::dsl {

/// `blocks` accumulator blocks of 16 x 8, zero.
inline std::vector<FragC<f32, 16, 8>> zero_blocks(Warp& w, int blocks, Here at = Here::now()) {
  std::vector<FragC<f32, 16, 8>> out;
  for (int i = 0; i < blocks; ++i) out.emplace_back(record::zero_registers(w.k, ptx::Mod::f32, 4, at));
  return out;
}

template <class T>
class DynWarpOperand {
  static_assert(T::bits == 16, "ldmatrix moves 16-bit elements");

 public:
  /// Rows (K-major) or columns (MN-major) from `from`.
  DynWarpOperand(Warp& w, Operand which, Major major, const TileLayout& layout, const Val<u32>& from)
      : which_(which),
        major_(major),
        layout_(layout),
        lane_offset_(record::operand_lane_offset(w.k, which, major, layout, from)) {}

  TileLanes lanes(const Val<u32>& tile, int offset) const {
    return TileLanes(layout_, tile + lane_offset_, offset);
  }
  /// Operand A: blocks of 16 of `extent` rows, K step `step` of 16.
  std::vector<FragA<T, 16, 16>> rows(Warp& w, TileLanes& lanes, int step, int extent,
                                     Here at = Here::now()) const {
    const auto regs = record::load_operand(w.k, which_, major_, 2, extent, step, lanes, at);
    std::vector<FragA<T, 16, 16>> out;
    for (std::size_t i = 0; i < regs.size(); i += 4)
      out.push_back(FragA<T, 16, 16>({regs[i], regs[i + 1], regs[i + 2], regs[i + 3]}, at));
    return out;
  }
  /// Operand B: columns n to n + 15.
  std::array<FragB<T, 16, 8>, 2> two_columns(Warp& w, TileLanes& lanes, int n, int step,
                                             Here at = Here::now()) const {
    const bool transposed = major_ == Major::mn;
    const auto [reg, offset] = transposed ? lanes.at(16 * step, n / 8) : lanes.at(n, 2 * step);
    const auto r = record::ldmatrix(w.k, 4, transposed, reg, offset, at);
    return {FragB<T, 16, 8>({r[0], r[1]}, at), FragB<T, 16, 8>({r[2], r[3]}, at)};
  }

 private:
  Operand which_;
  Major major_;
  TileLayout layout_;
  Val<u32> lane_offset_;
};

/// A row-major matrix in global memory, as the source of tiles: rows at and beyond `rows` and columns at and
/// beyond `cols` are zeros. Every row begins at a multiple of 16 bytes.
template <class T>
struct TileMatrix {
  Ptr<global, const T> data;
  Val<u32> pitch, rows, cols;  ///< elements
};
class TileCopier {
 public:
  /// All `threads` threads of the block take part; `thread` is this one's number.
  TileCopier(Kernel& k, const Val<u32>& thread, int threads) : k_(k), thread_(thread), threads_(threads) {}
  /// Issues the copy of the tile whose first element is (row, 0) to a shared address.
  template <class T>
  void copy(const TileMatrix<T>& from, const Val<u32>& row, const TileLayout& layout, const Val<u32>& to,
            int offset, Here at = Here::now()) const {
    record::copy_tile(k_, layout, record::plan_chunks(layout, threads_), thread_, to, offset,
                      {from.data.base(), from.data.offset()}, {from.pitch, from.rows, from.cols}, row,
                      Val<u32>(0), {}, at);
  }

 private:
  Kernel& k_;
  Val<u32> thread_;
  int threads_;
};

}  // namespace cgp::dsl
