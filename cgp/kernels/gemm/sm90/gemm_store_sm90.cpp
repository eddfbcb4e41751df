// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/gemm/sm90/gemm_store_sm90.h"

#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/kernels/gemm/api/any_element.h"
#include "cgp/kernels/schedule/grouped_tiles.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

// Half of 176 columns goes without a swizzle, an odd number of 16-byte parts, which do not meet in banks.
DynTile staging_tile(DType c, const Epilogue& e, int cols) {
  const int subtile = 128 / bytes(c), half = cols / 2;
  const auto type = *ptx::parse_mod(name(c));
  if (!e.empty() && e.pointwise() && cols % subtile && half * bytes(c) % 32 == 16)
    return DynTile::matrix(type, bytes(c), 64, half, Swizzle::none);
  return DynTile::matrix(type, bytes(c), 64, subtile, Swizzle::b128);
}

DynTmaOut declare_c(Kernel& k, const DynTile& t, bool ragged) {
  const int rows = t.layout.rows, cols = t.layout.cols;
  return DynTmaOut::declare(k, t,
                            ragged ? std::vector<int>{1, 1, rows, cols} : std::vector<int>{1, rows, cols});
}

}  // namespace

// What all elements of a thread in 64 rows share: its two rows, and its first column of C.
struct HopperStore::Lines {
  std::vector<EpilogueLine> rows;
  Val<u64> batch;
  Val<u32> c0, columns;
  Val<u64> wide_c0;
};

HopperStore::HopperStore(Kernel& k, DType c, const Epilogue& e, const Val<u32>& m, const Val<u32>& n,
                         int cols, bool ragged)
    : k_(k),
      type_(c),
      pairing_(e.pairing()),
      ragged_(ragged),
      m_(m),
      n_(n),
      map_(declare_c(k, staging_tile(c, e, cols), ragged)),
      program_(k, e) {}

void HopperStore::open(const Role<Warpgroup>& math, int buffers) {
  staging_.emplace(k_, math, map_.tile(), buffers);
  pending_.push_back(staging_->idle());
}

HopperStore::Lines HopperStore::lines(Warpgroup& wg, const TileCoord& at,
                                      const std::optional<Val<u32>>& left) const {
  const auto origin = DynAcc::origin(wg);
  const auto row = at.m0 + origin.row;
  const auto wide = to<u64>(row);
  const auto inside = [&](std::uint32_t more) {
    return ragged_ ? origin.row + more < *left : row + more < m_;
  };
  const auto c0 = (pairs() ? at.n0 / 2u : at.n0) + origin.col;
  return {{EpilogueLine(wide, 0, inside(0)), EpilogueLine(wide, 8, inside(8))},
          ragged_ ? Val<u64>(0) : to<u64>(at.batch),
          c0,
          pairs() ? n_ / 2u : n_,
          to<u64>(c0)};
}

std::vector<Value> HopperStore::apply(const DynAcc& acc, int col, const TileCoord& at,
                                      const Lines& shared) const {
  std::vector<Value> out;
  const auto& [rows, batch, c0, columns, wide] = shared;
  // Of the product: two halves of the tile hold the two elements of a pair.
  const auto line = [&, c = c0, all = columns, w = wide](int offset) {
    return EpilogueLine(w, offset, c + std::uint32_t(offset) < all);
  };
  for (int j = 0; j < map_.tile().layout.cols; j += 8) {
    const std::vector<EpilogueLine> to_c{line(col + j), line(col + j + 1)};
    std::vector<EpilogueLine> gate, up;
    for (int e = 0; e < 2 && pairs(); ++e) {
      const auto first = c0 + std::uint32_t(col + j + e);
      const auto inside = first < columns;
      const bool halves = pairing_ == Pairing::halves;
      gate.emplace_back(to<u64>(halves ? first : first * 2u), 0, inside);
      up.emplace_back(to<u64>(halves ? first + columns : first * 2u + 1u), 0, inside);
    }
    const auto i = std::size_t((col + j) / 8 * 4), second = i + std::size_t(acc.cols() / 2 / 8 * 4);
    for (int v = 0; v < 4; ++v) {
      const auto& r = rows[std::size_t(v / 2)];
      const auto& c = to_c[std::size_t(v % 2)];
      const auto inside = r.inside() & c.inside();
      const EpiloguePoint point{r, c, batch, inside};
      const auto x = acc.get<f32>(int(i) + v);
      const auto y = pairs() ? program_.apply(point, {r, gate[std::size_t(v % 2)], batch, inside},
                                              {r, up[std::size_t(v % 2)], batch, inside}, x,
                                              acc.get<f32>(int(second) + v))
                             : program_.apply(point, x);
      out.push_back(k_.copy(y));
    }
  }
  program_.finish({k_, batch, to<u64>(at.m0), to<u64>((pairs() ? at.n0 / 2u : at.n0) + std::uint32_t(col)),
                   /*whole_warp=*/true});
  return out;
}

// Columns col .. of the result: 64 rows of a staging tile.
DynAcc HopperStore::subtile(const DynAcc& acc, int col, const TileCoord& at,
                            const std::optional<Lines>& shared) const {
  const int cols = map_.tile().layout.cols;
  std::vector<Value> out;
  if (program_.empty())
    for (int i = 0; i < cols / 2; ++i) out.push_back(k_.copy(acc.values()[std::size_t(col / 2 + i)]));
  else
    out = apply(acc, col, at, *shared);
  DynAcc result(acc.type(), 64, cols, AccRegs(std::move(out)));
  if (type_ != DType::s8 && (type_ != DType::s32 || program_.empty())) return result;
  return std::move(result).map<f32>([&](int, const Val<f32>& x) { return nearest_integer(type_, x); });
}

void HopperStore::store(Warpgroup& wg, const DynAcc& acc, const TileCoord& at,
                        const std::optional<Val<u32>>& left, Here here) {
  const auto c0 = pairs() ? at.n0 / 2u : at.n0 + 0u;
  std::optional<Lines> shared;
  if (!program_.empty()) shared.emplace(lines(wg, at, left));
  std::optional<ClippedRows> clip;
  if (ragged_) clip.emplace(clipped(at.m0, *left, 64));
  const int all = pairs() ? acc.cols() / 2 : acc.cols(), cols = map_.tile().layout.cols;
  if (all < cols || (all % cols != 0 && !program_.empty()))
    throw BuildError("an epilogue sees each element once: tiles are whole subtiles of 128 bytes of C", here,
                     text::cat(all, " columns in subtiles of ", cols));
  for (int from = 0; from < all; from += cols) {
    const int col = std::min(from, all - cols);
    wg.converged("storing results", here);
    const auto x = [&] { return c0 + std::uint32_t(col); };
    pending_.push_back(staging_->store(
        wg, std::move(pending_.back()),
        [&] {
          return clip ? dsl::at(map_, Val<u32>(kClipWrap), clip->outer, clip->inner, x())
                      : dsl::at(map_, at.batch, at.m0, x());
        },
        [&](const DynSmemTile& tile) { store_tile(wg, subtile(acc, col, at, shared), tile, 0, here); },
        StoreOp::store, here));
  }
}

void HopperStore::drain(Warpgroup& wg, Here here) { std::move(pending_.back()).wait(wg, here); }

}  // namespace cgp::kernels
