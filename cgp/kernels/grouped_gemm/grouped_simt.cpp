// SPDX-License-Identifier: Apache-2.0
// grouped_gemm simt: every form, type, layout and alignment, no tensor cores.
//   who      persistent blocks of 256 threads walk over tiles of 64 x 64 of all groups, each thread 4 x 4;
//   each
//            warp finds the tiles on its own
//   memory   tiles of A and B as f32 in shared memory, 16 of K at a time, one element an access
//   needs    any device (bf16: sm_80)
#include "cgp/base/text.h"
#include "cgp/dsl/convert.h"
#include "cgp/kernels/grouped_gemm/grouped_gemm.h"
#include "cgp/kernels/grouped_gemm/grouped_walk.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr int kTile = 64, kDepth = 16, kThreads = 256, kPitch = kTile + 4;
constexpr int kLoads = kTile * kDepth / kThreads;

// op(X)[i, p] of one product at i * i_stride + p * p_stride.
template <class T>
struct Operand {
  Ptr<global, const T> src;
  Val<u64> i_stride, p_stride;
};
template <class T>
struct Product {
  Operand<T> a, b;
  Ptr<global, T> c;
  Val<u64> ldc;
  Val<u32> m, n, k;
};

// Threads run along i; stored [p][i] as f32.
template <class T, class Row>
void stage(Kernel& k, const Operand<T>& x, const Val<u32>& first, const Val<u32>& extent,
           const Val<u32>& from, const Val<u32>& depth, const Ptr<shared, f32>& tile, Row&& row) {
  for (int j = 0; j < kLoads; ++j) {
    const auto i = k.tid() % std::uint32_t(kTile),
               p = k.tid() / std::uint32_t(kTile) + std::uint32_t(j * (kThreads / kTile));
    const auto inside = (first + i < extent) & (from + p < depth);
    const auto at = row(first + i, inside) * x.i_stride + to<u64>(from + p) * x.p_stride;
    tile.st(p * std::uint32_t(kPitch) + i, to<f32>(x.src.ld_if(inside, at, Val<T>(0.f))[0]));
  }
}

// One tile of one product, by the whole block. row(i, inside): which row of A stands at i.
template <class T, class Row>
void multiply_tile(Kernel& k, const Product<T>& p, const Val<u32>& m0, const Val<u32>& n0,
                   const Ptr<shared, f32>& sa, const Ptr<shared, f32>& sb, const Val<f32>& alpha, Row&& row) {
  const auto tx = k.tid() % 16u, ty = k.tid() / 16u;
  using Sums = std::vector<Val<f32>>;
  const auto plain = [](const Val<u32>& i, const Val<pred>&) { return to<u64>(i); };
  const auto sums =
      k.loop(range(Val<u32>(0), p.k, Val<u32>(kDepth)), Sums(16, Val<f32>(0.f)), [&](Val<u32> from, Sums s) {
        k.sync();
        stage(k, p.a, m0, p.m, from, p.k, sa, row);
        stage(k, p.b, n0, p.n, from, p.k, sb, plain);
        k.sync();
        for (int q = 0; q < kDepth; ++q) {
          const auto x = sa.at(ty * 4u).at(q * kPitch).template ld<4>(),
                     y = sb.at(tx * 4u).at(q * kPitch).template ld<4>();
          Sums next;
          for (int i = 0; i < 4; ++i)
            for (int j = 0; j < 4; ++j) next.push_back(fma(x[i], y[j], s[std::size_t(i * 4 + j)]));
          s.swap(next);
        }
        return s;
      });
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) {
      const auto r = m0 + ty * 4u + std::uint32_t(i), col = n0 + tx * 4u + std::uint32_t(j);
      p.c.st_if((r < p.m) & (col < p.n), to<u64>(r) * p.ldc + to<u64>(col),
                to<T>(sums[std::size_t(i * 4 + j)] * alpha));
    }
}

template <class T>
struct Staged {
  Ptr<shared, f32> a, b;
  explicit Staged(Kernel& k) : a(k.shared<f32>(kDepth * kPitch)), b(k.shared<f32>(kDepth * kPitch)) {}
};

// Strides of op(B)[p, j] in a stored matrix: [k, n] or, transposed, [n, k].
template <class T>
Operand<T> operand_b(const Ptr<global, const T>& b, const Val<u64>& ld, bool trans) {
  return trans ? Operand<T>{b, ld, Val<u64>(1)} : Operand<T>{b, Val<u64>(1), ld};
}

// The block's walk over tiles: every warp finds them on its own, the same ones. body(tile).
template <class Source, class Body>
void walk_tiles(Kernel& k, const Source& source, Body&& body) {
  Warp w = k.warp();
  GroupWalk walk(k, source, Uniform::cta);
  walk.each(w, TileSupply{Out<u32>(Val<u64>(0)), false}, body);
}

template <class T, bool TransB>
void grouped_rows_simt(Kernel& k, In<T> a, In<T> b, Out<T> c, In<u32> ends, In<u32> index, Val<u32> indexed,
                       Val<u32> wide, Val<u32> groups, Val<u32> rows, Val<u32> a_rows, Val<u32> n,
                       Val<u32> kk, Val<u32> cols, Val<f32> alpha) {
  k.block(kThreads);
  const Staged<T> staged(k);
  const auto n64 = to<u64>(n), k64 = to<u64>(kk);
  walk_tiles(k, RaggedRows{{ends, wide, groups, rows}, cols, kTile}, [&](const GroupTile& t) {
    const auto start = t.held[0], size = t.held[1];
    const auto at = band_place(t.number, (size + std::uint32_t(kTile - 1)) / std::uint32_t(kTile), cols, 8);
    const Product<T> p{{a, k64, Val<u64>(1)},
                       operand_b<T>(b.at(to<u64>(t.group) * n64 * k64), TransB ? k64 : n64, TransB),
                       c.at(to<u64>(start) * n64),
                       n64,
                       size,
                       n,
                       kk};
    multiply_tile(k, p, at.row * kTile, at.col * kTile, staged.a, staged.b, alpha,
                  [&](const Val<u32>& i, const Val<pred>& in) {
                    const auto row = start + i;
                    const auto from = index.ld_if(in & (indexed != 0u), row, row)[0];
                    return to<u64>(dsl::min(from, a_rows - 1));
                  });
  });
}

// The items that the kernels with tensor cores leave: crooked ones and those with k = 0.
template <class T, bool TransB>
void grouped_problems_simt(Kernel& k, In<u32> items, Val<u32> count, Val<u32> all, Val<f32> alpha) {
  k.block(kThreads);
  const Staged<T> staged(k);
  walk_tiles(k, GroupedItems{items, count, GroupedItems::Take::rest, T::bits / 8, kTile, kTile, all != 0u},
             [&](const GroupTile& t) {
               const auto m = t.held[0], n = t.held[1], kk = t.held[2];
               const auto cols = (n + std::uint32_t(kTile - 1)) / std::uint32_t(kTile);
               const auto item = items.at(to<u64>(t.group) * std::uint64_t(12));
               const auto pointers = item.template as<u64>();
               const auto row = [&](int i) { return to<u64>(item.ld(9 + i)); };
               const Product<T> p{{Ptr<global, const T>(pointers.ld(0)), row(0), Val<u64>(1)},
                                  operand_b<T>(Ptr<global, const T>(pointers.ld(1)), row(1), TransB),
                                  Ptr<global, T>(pointers.ld(2)),
                                  row(2),
                                  m,
                                  n,
                                  kk};
               multiply_tile(k, p, t.number / cols * kTile, t.number % cols * kTile, staged.a, staged.b,
                             alpha, [](const Val<u32>& i, const Val<pred>&) { return to<u64>(i); });
             });
}

template <class T>
void grouped_depth_simt(Kernel& k, In<T> a, In<T> b, Out<T> c, In<u32> ends, Val<u32> wide, Val<u32> groups,
                        Val<u32> rows, Val<u32> m, Val<u32> n, Val<u32> tiles_m, Val<u32> tiles_n,
                        Val<u32> tiles, Val<f32> alpha) {
  k.block(kThreads);
  const Staged<T> staged(k);
  const RaggedEnds groups_end{ends, wide, groups, rows};
  const auto m64 = to<u64>(m), n64 = to<u64>(n);
  k.loop(range(k.ctaid_x(), tiles, k.nctaid_x()), [&](Val<u32> tile) {
    const auto per_group = tiles_m * tiles_n, group = tile / per_group, in_group = tile % per_group;
    const auto span = groups_end.span(group);
    const Product<T> p{{a.at(to<u64>(span.start) * m64), Val<u64>(1), m64},
                       {b.at(to<u64>(span.start) * n64), Val<u64>(1), n64},
                       c.at(to<u64>(group) * m64 * n64),
                       n64,
                       m,
                       n,
                       assume_uniform(span.size, Uniform::cta)};
    multiply_tile(k, p, in_group / tiles_n * std::uint32_t(kTile), in_group % tiles_n * std::uint32_t(kTile),
                  staged.a, staged.b, alpha, [](const Val<u32>& i, const Val<pred>&) { return to<u64>(i); });
  });
}

template <class T>
Variant make(const char* stem, int min_sm, GroupedForm form, bool trans_b) {
  if (form == GroupedForm::depth)
    return variant(text::cat("grouped_gemm_", stem, "_depth_simt"), min_sm, grouped_depth_simt<T>);
  auto name = text::cat("grouped_gemm_", stem, "_", kernels::name(form), "_simt_n", trans_b ? "t" : "n");
  if (form == GroupedForm::problems)
    return trans_b ? variant(std::move(name), min_sm, grouped_problems_simt<T, true>)
                   : variant(std::move(name), min_sm, grouped_problems_simt<T, false>);
  return trans_b ? variant(std::move(name), min_sm, grouped_rows_simt<T, true>)
                 : variant(std::move(name), min_sm, grouped_rows_simt<T, false>);
}

}  // namespace

Variant grouped_simt(DType t, GroupedForm form, bool trans_b) {
  return t == DType::f32   ? make<f32>("f32", 75, form, trans_b)
         : t == DType::f16 ? make<f16>("f16", 75, form, trans_b)
                           : make<bf16>("bf16", 80, form, trans_b);
}

}  // namespace cgp::kernels
