// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/gemm/sm90/gemm_store_sm90.h"

#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/kernels/gemm/api/any_element.h"
#include "cgp/kernels/grouped_gemm/grouped_walk.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

// Half of 176 columns goes without a swizzle, an odd number of 16-byte parts, which do not meet in banks.
TileLayout staging_tile(DType c, const Epilogue& e, int cols) {
  const int piece = 128 / bytes(c), half = cols / 2;
  if (!e.empty() && e.pointwise() && cols % piece && half * bytes(c) % 32 == 16)
    return {64, half, bytes(c), Swizzle::none, 64};
  return {64, piece, bytes(c), Swizzle::b128, 64};
}

record::TmaMap declare_c(Kernel& k, DType c, const TileLayout& t, bool ragged) {
  const int plain[] = {1, t.rows, t.cols}, clipped[] = {1, 1, t.rows, t.cols};
  return record::declare_tma(k, *ptx::parse_mod(name(c)), t, ragged ? std::span<const int>(clipped) : plain,
                             true);
}

}  // namespace

// What all elements of a thread's 64 rows share: its two rows, and its first column of C.
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
      tile_(staging_tile(c, e, cols)),
      map_(declare_c(k, c, tile_, ragged)),
      program_(k, e) {}

void HopperStore::open(const Role<Warpgroup>& math, int buffers) {
  staging_.emplace(k_, math.count(), buffers, tile_.bytes(), pattern_bytes(tile_.swizzle), Here::now());
}

HopperStore::Lines HopperStore::lines(const HopperPlace& at, const std::optional<Val<u32>>& left) const {
  const auto origin = record::warpgroup_origin(k_);
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

std::vector<Value> HopperStore::apply(const std::vector<Value>& sums, int cols, int col,
                                      const HopperPlace& at, const Lines& shared) const {
  std::vector<Value> out;
  const auto& [rows, batch, c0, columns, wide] = shared;
  // Of the product: two halves of the tile hold the two elements of a pair.
  const auto line = [&, c = c0, all = columns, w = wide](int offset) {
    return EpilogueLine(w, offset, c + std::uint32_t(offset) < all);
  };
  for (int j = 0; j < tile_.cols; j += 8) {
    const std::vector<EpilogueLine> to_c{line(col + j), line(col + j + 1)};
    std::vector<EpilogueLine> gate, up;
    for (int e = 0; e < 2 && pairs(); ++e) {
      const auto first = c0 + std::uint32_t(col + j + e);
      const auto inside = first < columns;
      const bool halves = pairing_ == Pairing::halves;
      gate.emplace_back(to<u64>(halves ? first : first * 2u), 0, inside);
      up.emplace_back(to<u64>(halves ? first + columns : first * 2u + 1u), 0, inside);
    }
    const auto i = std::size_t((col + j) / 8 * 4), second = i + std::size_t(cols / 2 / 8 * 4);
    for (int v = 0; v < 4; ++v) {
      const auto& r = rows[std::size_t(v / 2)];
      const auto& c = to_c[std::size_t(v % 2)];
      const auto inside = r.inside() & c.inside();
      const EpiloguePoint point{r, c, batch, inside};
      const Val<f32> x(sums[i + std::size_t(v)]);
      const auto y = pairs() ? program_.apply(point, {r, gate[std::size_t(v % 2)], batch, inside},
                                              {r, up[std::size_t(v % 2)], batch, inside}, x,
                                              Val<f32>(sums[second + std::size_t(v)]))
                             : program_.apply(point, x);
      out.push_back(k_.copy(y));
    }
  }
  program_.finish({k_, batch, to<u64>(at.m0), to<u64>((pairs() ? at.n0 / 2u : at.n0) + std::uint32_t(col)),
                   /*whole_warp=*/true});
  return out;
}

// Columns col .. of the result, as registers of 64 x tile_.cols elements.
std::vector<Value> HopperStore::piece(const std::vector<Value>& sums, int cols, int col,
                                      const HopperPlace& at, const std::optional<Lines>& shared) const {
  std::vector<Value> out;
  const auto from = std::size_t(col / 8 * 4);
  if (program_.empty())
    for (std::size_t i = 0; i < std::size_t(tile_.cols / 2); ++i) out.push_back(k_.copy(sums[from + i]));
  else
    out = apply(sums, cols, col, at, *shared);
  if (type_ != DType::s8 && (type_ != DType::s32 || program_.empty())) return out;
  std::vector<Value> rounded;
  for (const auto& x : out) rounded.push_back(nearest_integer(type_, Val<f32>(x)));
  return rounded;
}

void HopperStore::store(Warpgroup& wg, const std::vector<Value>& sums, int cols, const HopperPlace& at,
                        const std::optional<Val<u32>>& left, Here here) {
  const bool integers = type_ == DType::s32 || type_ == DType::s8;
  const auto c0 = pairs() ? at.n0 / 2u : at.n0 + 0u;
  std::optional<Lines> shared;
  if (!program_.empty()) shared.emplace(lines(at, left));
  std::optional<ClippedRows> clip;
  if (ragged_) clip.emplace(clipped(at.m0, *left, 64));
  const int all = pairs() ? cols / 2 : cols;
  if (all < tile_.cols || (all % tile_.cols != 0 && !program_.empty()))
    throw BuildError("an epilogue sees each element once: tiles are whole pieces of 128 bytes of C", here,
                     text::cat(all, " columns in pieces of ", tile_.cols));
  for (int from = 0; from < all; from += tile_.cols) {
    const int col = std::min(from, all - tile_.cols);
    wg.converged("storing results", here);
    const auto base = staging_->begin(wg, turn_++ % staging_->buffers(), here);
    const auto regs = piece(sums, cols, col, at, shared);
    record::store_accumulator(
        k_, {64, 64, tile_.cols, 0, *ptx::parse_mod(name(type_)), integers ? ptx::Mod::s32 : ptx::Mod::f32},
        regs, tile_, base, 0, here);
    const auto x = c0 + std::uint32_t(col);
    const std::vector<Value> plain{at.batch, at.m0, x};
    staging_->end(wg,
                  {map_, clip ? std::vector<Value>{Val<u32>(kClipWrap), clip->outer, clip->inner, x} : plain},
                  base, tile_, record::StoreOp::store, here);
  }
}

void HopperStore::drain(Warpgroup& wg, Here here) { staging_->drain(wg, here); }

}  // namespace cgp::kernels
