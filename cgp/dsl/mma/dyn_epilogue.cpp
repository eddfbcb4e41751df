// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/dyn_epilogue.h"

#include <algorithm>

#include "cgp/dsl/core/convert.h"

namespace cgp::dsl {
namespace {

void require_fits(const DynAcc& acc, int first_col, int cols, Here at) {
  if (acc.rows() != 64 || first_col < 0 || first_col % 8 || first_col + cols > acc.cols())
    throw BuildError("the stored columns lie inside 64 rows of the accumulator, from a multiple of 8", at,
                     text::cat("columns ", first_col, " to ", first_col + cols - 1, " of ", acc.rows(), " x ",
                               acc.cols()));
}

// Column c of the accumulator becomes row c of the tile. An 8 x 8 block of the accumulator is a matrix of
// stmatrix: transposed, its columns are rows of 16 bytes. Lanes of a group of eight give the addresses of one
// matrix.
Val<u32> transposed_address(Kernel& k, const DynSmemTile& tile) {
  const auto lane = k.laneid(), warp = record::remainder(record::divided(k.tid(), 32), 4);
  const auto row = record::remainder(lane, 8) + record::times(record::divided(lane, 16), 8);
  const auto col = record::times(warp, 16) + record::times(record::remainder(record::divided(lane, 8), 2), 8);
  return tile.base() + record::tile_offset(tile.tile().layout, row, col);
}

// Elements i and i + 1 of an accumulator, with factor times the two of a packed word.
class Adder {
 public:
  Adder(const DynAcc& acc, ptx::Mod type, const Val<f32>& factor)
      : acc_(acc), type_(type), factor_(factor), made_(std::size_t(acc.size())) {}
  void add(std::size_t i, const Val<b32>& word) {
    const auto both = [&]<class T>(T) {
      const auto h = unpack<T>(word);
      one(i, to<f32>(h[0])), one(i + 1, to<f32>(h[1]));
    };
    type_ == ptx::Mod::f16 ? both(f16()) : both(bf16());
  }
  DynAcc sum() const {
    std::vector<Value> out;
    for (std::size_t i = 0; i < made_.size(); ++i) out.push_back(made_[i] ? *made_[i] : acc_.values()[i]);
    return DynAcc(acc_.type(), acc_.rows(), acc_.cols(), AccRegs(std::move(out)));
  }

 private:
  void one(std::size_t j, const Val<f32>& x) { made_[j].emplace(fma(x, factor_, acc_.get<f32>(int(j)))); }
  const DynAcc& acc_;
  ptx::Mod type_;
  Val<f32> factor_;
  std::vector<std::optional<Value>> made_;
};

}  // namespace

void store_tile(Warpgroup& wg, const DynAcc& acc, const DynSmemTile& tile, int first_col, Here at) {
  const auto& t = tile.tile();
  require_fits(acc, first_col, t.layout.cols, at);
  if (!record::can_store(acc.type(), t.type))
    throw BuildError(
        "an f32 accumulator is stored as f32, bf16, f16, e4m3 or e5m2; s32 as s32 or (its low byte) s8", at,
        text::cat(ptx::name(acc.type()), " as ", ptx::name(t.type)));
  record::store_accumulator(wg.k, {64, 64, acc.cols(), first_col, t.type, acc.type()}, acc.values(), t.layout,
                            tile.base(), tile.offset(), at);
}

void store_tile_transposed(Warpgroup& wg, const DynAcc& acc, const DynSmemTile& tile, int first_col,
                           Here at) {
  const auto& t = tile.tile();
  require_fits(acc, first_col, t.layout.rows, at);
  const auto address = transposed_address(wg.k, tile);
  const auto packed = t.type == ptx::Mod::bf16 ? ptx::Mod::bf16x2 : ptx::Mod::f16x2;
  for (int c = 0; c < t.layout.rows; c += 16) {
    std::vector<Value> regs;
    for (int j = c; j < std::min(c + 16, t.layout.rows); j += 8)
      for (int half = 0; half < 2; ++half) {
        const auto i = std::size_t((first_col + j) / 8 * 4 + 2 * half);
        regs.push_back(record::pack_pair(wg.k, packed, acc.values()[i], acc.values()[i + 1], at));
      }
    record::stmatrix(wg.k, true, address, c * t.layout.span(), regs, at);
  }
}

DynAcc add_tile(Warpgroup& wg, const DynAcc& acc, const DynSmemTile& tile, const Val<f32>& factor,
                int first_col, Here at) {
  const auto& t = tile.tile();
  require_fits(acc, first_col, t.layout.cols, at);
  Adder adder(acc, t.type, factor);
  const auto origin = record::warpgroup_origin(wg.k);
  for (int half = 0; half < 2; ++half)
    for (int c = 0; c < t.layout.cols; c += 8) {
      const auto place = tile.base() + record::tile_offset(t.layout, origin.row + std::uint32_t(8 * half),
                                                           origin.col + std::uint32_t(c));
      adder.add(std::size_t((first_col + c) / 8 * 4 + 2 * half), Ptr<shared, const b32>(place).ld());
    }
  return adder.sum();
}

DynAcc add_tile_transposed(Warpgroup& wg, const DynAcc& acc, const DynSmemTile& tile, const Val<f32>& factor,
                           int first_col, Here at) {
  const auto& t = tile.tile();
  require_fits(acc, first_col, t.layout.rows, at);
  Adder adder(acc, t.type, factor);
  const auto address = transposed_address(wg.k, tile);
  for (int c = 0; c < t.layout.rows; c += 16) {
    const int count = t.layout.rows - c >= 16 ? 4 : 2;
    const auto words = record::ldmatrix(wg.k, count, true, address, c * t.layout.span(), at);
    for (int j = 0; j < count; ++j)
      adder.add(std::size_t((first_col + c + j / 2 * 8) / 8 * 4 + 2 * (j % 2)),
                Val<b32>(words[std::size_t(j)]));
  }
  return adder.sum();
}

PendingStore DynStaging::end(Warpgroup& wg, const DynTmaAt<DynTmaOut>& to, const DynSmemTile& tile, int next,
                             StoreOp op, Here at) {
  if (to.tile != tile.tile()) throw BuildError("a tile is stored through a map of its shape", at);
  core_.end(wg, to.place, tile.base(), to.tile.layout, op, at);
  return PendingStore(core_, k_, next, at);
}

}  // namespace cgp::dsl
