// SPDX-License-Identifier: Apache-2.0
// grouped_gemm simt: every form, type, layout, alignment, scale and epilogue, no tensor cores.
//   who      persistent blocks of 256 threads walk over tiles of 64 x 64 of all groups, each thread 4 x 4;
//   each
//            warp finds the tiles on its own
//   memory   tiles of A and B as f32 in shared memory, 16 of K at a time, one element an access; columns that
//            an epilogue pairs are neighbours there
//   math     fp32 fused multiply-adds; s8: 16 products at a time (exact), added up in s32
//   needs    any device (bf16: sm_80; results of 8-bit floats: sm_89)
#include "cgp/base/text.h"
#include "cgp/dsl/core/convert.h"
#include "cgp/kernels/gemm/api/any_element.h"
#include "cgp/kernels/grouped_gemm/grouped_gemm.h"
#include "cgp/kernels/schedule/grouped_tiles.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr int kTile = 64, kDepth = 16, kThreads = 256, kPitch = kTile + 4;
constexpr int kLoads = kTile * kDepth / kThreads;

// A stored matrix: element (i, p) of op(X) at i * i_stride + p * p_stride.
struct Operand {
  AnyIn src;
  Val<u64> i_stride, p_stride;
};
Operand operand(DType t, const Val<u64>& address, const Val<u64>& ld, bool k_contiguous) {
  return k_contiguous ? Operand{AnyIn(t, address, false), ld, Val<u64>(1)}
                      : Operand{AnyIn(t, address, false), Val<u64>(1), ld};
}

// One of the products. Rows and columns of C count from row0 and 0; its first row and column lie at `c`.
struct Product {
  Operand a, b;
  Val<u64> c, ldc, row0, batch;
  Val<u32> m, n, k;
  Val<u32> group;
};

// What all forms have: parameters behind their own, and tiles in shared memory.
class Tiles {
 public:
  Tiles(Kernel& k, const GroupedProblem& p)
      : k_(k),
        p_(p),
        alpha_(Param<Val<f32>>::make(k)),
        beta_(Param<Val<f32>>::make(k)),
        scale_a_(Param<In<f32>>::make(k)),
        scale_b_(Param<In<f32>>::make(k)),
        program_(k, p.epilogue),
        a_(k.shared<f32>(kDepth * kPitch)),
        b_(k.shared<f32>(kDepth * kPitch)) {}

  // One tile, by the whole block. row(i, inside): which row of A stands at i.
  template <class Row>
  void multiply(const Product& x, const Val<u32>& m0, const Val<u32>& n0, Row&& row) const {
    const auto tx = k_.tid() % 16u, ty = k_.tid() / 16u;
    const auto fetch = [&](const Val<u32>& from) {
      k_.sync();
      stage(
          x, x.a, m0, x.m, from, a_, [&](const Val<u32>& i, const Val<pred>& in) { return row(i, in); },
          true);
      stage(
          x, x.b, n0, x.n, from, b_, [&](const Val<u32>& j, const Val<pred>&) { return column(x, j); },
          false);
      k_.sync();
    };
    using Accumulators = std::vector<Val<f32>>;
    const auto products = [&](Accumulators s) {
      for (int q = 0; q < kDepth; ++q) {
        const auto u = a_.at(ty * 4u).at(q * kPitch).template ld<4>(),
                   v = b_.at(tx * 4u).at(q * kPitch).template ld<4>();
        Accumulators next;
        for (int i = 0; i < 4; ++i)
          for (int j = 0; j < 4; ++j) next.push_back(fma(u[i], v[j], s[std::size_t(i * 4 + j)]));
        s.swap(next);
      }
      return s;
    };
    const auto steps = range(Val<u32>(0), x.k, Val<u32>(kDepth));
    if (p_.type != DType::s8) {
      const auto accumulators =
          k_.loop(steps, Accumulators(16, Val<f32>(0.f)), [&](Val<u32> from, Accumulators s) {
            fetch(from);
            return products(std::move(s));
          });
      return finish(x, m0 + ty * 4u, n0 + tx * 4u, accumulators);
    }
    using Whole = std::vector<Val<s32>>;
    const auto accumulators = k_.loop(steps, Whole(16, Val<s32>(0)), [&](Val<u32> from, Whole s) {
      fetch(from);
      const auto sixteen = products(Accumulators(16, Val<f32>(0.f)));
      Whole next;
      for (std::size_t i = 0; i < s.size(); ++i) next.push_back(s[i] + cvt<rni, s32>(sixteen[i]));
      return next;
    });
    if (p_.type_c != DType::s32 || p_.alpha != 1 || p_.beta != 0 || p_.scaling != GemmScaling::none ||
        !program_.empty()) {
      Accumulators floats;
      for (const auto& s : accumulators) floats.push_back(to<f32>(s));
      return finish(x, m0 + ty * 4u, n0 + tx * 4u, floats);
    }
    for_each(x, m0 + ty * 4u, n0 + tx * 4u, [&](int i, int j, const Val<u64>& at, const Val<pred>& inside) {
      Ptr<global, s32>(x.c).st_if(inside, at, accumulators[std::size_t(4 * i + j)]);
    });
  }

 private:
  bool pairs() const { return p_.epilogue.pairing() != Pairing::none; }
  // Of the product: what stands at column j.
  Val<u64> column(const Product& x, const Val<u32>& j) const {
    if (p_.epilogue.pairing() != Pairing::halves) return to<u64>(j);
    return to<u64>(j / 2u + j % 2u * (x.n / 2u));
  }

  // Threads run along i; stored [p][i] as f32, times the scales of blocks.
  template <class Row>
  void stage(const Product& x, const Operand& o, const Val<u32>& first, const Val<u32>& extent,
             const Val<u32>& from, const Ptr<shared, f32>& tile, Row&& row, bool of_a) const {
    const auto blocks = to<u64>((x.k + 127u) / 128u);
    for (int j = 0; j < kLoads; ++j) {
      const auto i = k_.tid() % std::uint32_t(kTile),
                 p = k_.tid() / std::uint32_t(kTile) + std::uint32_t(j * (kThreads / kTile));
      const auto inside = (first + i < extent) & (from + p < x.k);
      const auto line = row(first + i, inside);
      const auto at = line * o.i_stride + to<u64>(from + p) * o.p_stride;
      auto v = o.src.load(at, 0, inside);
      if (p_.scaling == GemmScaling::block) {
        const auto block = to<u64>((from + p) / 128u);
        const auto of_b = to<u64>(x.group) * to<u64>((x.n + 127u) / 128u) + line / 128u;
        const auto& f = of_a ? scale_a_ : scale_b_;
        tile.st(p * std::uint32_t(kPitch) + i,
                v * f.ld_if(inside, (of_a ? line : of_b) * blocks + block, Val<f32>(0.f))[0]);
      } else {
        tile.st(p * std::uint32_t(kPitch) + i, v);
      }
    }
  }

  // f(i, j, where in C, inside) for the thread's elements; of pairs only where j is even.
  template <class F>
  void for_each(const Product& x, const Val<u32>& r0, const Val<u32>& c0, F&& f) const {
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; j += pairs() ? 2 : 1) {
        const auto r = r0 + std::uint32_t(i), c = c0 + std::uint32_t(j);
        f(i, j, to<u64>(r) * x.ldc + to<u64>(pairs() ? c / 2u : c), (r < x.m) & (c < x.n));
      }
  }

  Val<f32> factor(const Product& x, const Val<u64>& a_row, const Val<u64>& col, const Val<pred>& in) const {
    const auto at = [&](const In<f32>& f, const Val<u64>& i) { return f.ld_if(in, i, Val<f32>(0.f))[0]; };
    if (p_.scaling == GemmScaling::tensor)
      return at(scale_a_, p_.form == GroupedForm::rows ? Val<u64>(0) : to<u64>(x.group)) *
             at(scale_b_, to<u64>(x.group));
    return at(scale_a_, a_row) * at(scale_b_, to<u64>(x.group) * to<u64>(x.n) + col);
  }

  void finish(const Product& x, const Val<u32>& r0, const Val<u32>& c0,
              const std::vector<Val<f32>>& accumulators) const {
    std::vector<EpilogueLine> rows, to_c, of_product;
    const auto columns = pairs() ? x.n / 2u : x.n;
    for (int i = 0; i < 4; ++i) {
      const auto r = r0 + std::uint32_t(i);
      rows.emplace_back(x.row0 + to<u64>(r), 0, r < x.m);
    }
    for (int j = 0; j < 4; ++j) {
      const auto c = c0 + std::uint32_t(j);
      of_product.emplace_back(column(x, c), 0, c < x.n);
      const auto out = pairs() ? c / 2u : c + 0u;
      to_c.emplace_back(to<u64>(out), 0, out < columns);
    }
    for_each(x, r0, c0, [&](int i, int j, const Val<u64>& at, const Val<pred>& inside) {
      const auto& row = rows[std::size_t(i)];
      const auto scaled = [&](int col) {
        auto v = accumulators[std::size_t(4 * i + col)] * alpha_;
        if (p_.scaling != GemmScaling::tensor && p_.scaling != GemmScaling::channel) return v;
        const auto local =
            p_.form == GroupedForm::rows ? row.index() : to<u64>(x.group) * to<u64>(x.m) + row.index();
        return v * factor(x, local, of_product[std::size_t(col)].index(), inside);
      };
      const auto old = [&](const Val<f32>& v) {
        return p_.beta == 0 ? v + 0.f : fma(AnyIn(*p_.type_c, x.c, true).load(at, 0, inside), beta_, v);
      };
      const EpiloguePoint point{row, to_c[std::size_t(j)], x.batch, inside};
      if (pairs()) {
        const auto place = [&](int col) {
          return EpiloguePoint{row, of_product[std::size_t(col)], x.batch, inside};
        };
        store_any(*p_.type_c, x.c, at, 0, inside,
                  old(program_.apply(point, place(j), place(j + 1), scaled(j), scaled(j + 1))));
      } else {
        store_any(*p_.type_c, x.c, at, 0, inside, program_.apply(point, old(scaled(j))));
      }
    });
  }

  Kernel& k_;
  const GroupedProblem& p_;
  Val<f32> alpha_, beta_;
  In<f32> scale_a_, scale_b_;
  EpilogueProgram program_;
  Ptr<shared, f32> a_, b_;
};

// The block's walk over tiles: every warp finds them on its own, the same ones. body(tile).
template <class Source, class Body>
void walk_tiles(Kernel& k, const Source& source, Body&& body) {
  Warp w = k.warp();
  GroupWalk walk(k, source, Uniform::cta);
  walk.each(w, TileSupply{Out<u32>(Val<u64>(0)), false}, body);
}

Val<u64> bytes_of(DType t, const Val<u64>& elements) { return elements * std::uint64_t(bytes(t)); }

void grouped_rows_simt(Kernel& k, GroupedProblem p, In<u32> ends, In<u32> index, Val<u32> indexed,
                       Val<u32> wide, Val<u32> groups, Val<u32> rows, Val<u32> a_rows, Val<u32> n,
                       Val<u32> kk, Val<u32> cols) {
  const Val<u64> a(array_parameter(k, p.type, true, false)), b(array_parameter(k, *p.type_b, true, false)),
      c(array_parameter(k, *p.type_c, p.beta != 0, true));
  k.block(kThreads);
  const Tiles tiles(k, p);
  const auto n64 = to<u64>(n), k64 = to<u64>(kk);
  const auto ldc = p.epilogue.pairing() == Pairing::none ? n64 : to<u64>(n / 2u);
  walk_tiles(k, RaggedRows{{ends, wide, groups, rows}, cols, kTile}, [&](const GroupTile& t) {
    const auto start = t.held[0], size = t.held[1];
    const auto at =
        grouped_raster(t.number, (size + std::uint32_t(kTile - 1)) / std::uint32_t(kTile), cols, 8);
    const auto first = to<u64>(start);
    const Product x{operand(p.type, a, k64, true),
                    operand(*p.type_b, b + bytes_of(*p.type_b, to<u64>(t.group) * n64 * k64),
                            p.trans_b ? k64 : n64, p.trans_b),
                    c + bytes_of(*p.type_c, first * ldc),
                    ldc,
                    first,
                    Val<u64>(0),
                    size,
                    n,
                    kk,
                    t.group};
    tiles.multiply(x, at.row * kTile, at.col * kTile, [&](const Val<u32>& i, const Val<pred>& in) {
      const auto row = start + i;
      const auto from = index.ld_if(in & (indexed != 0u), row, row)[0];
      return to<u64>(dsl::min(from, a_rows - 1));
    });
  });
}

// The items that the kernels with tensor cores leave: misaligned ones and those with k = 0; or all.
void grouped_problems_simt(Kernel& k, GroupedProblem p, In<u32> items, Val<u32> count, Val<u32> all) {
  k.block(kThreads);
  const Tiles tiles(k, p);
  walk_tiles(k, GroupedItems{items, count, GroupedItems::Take::rest, bytes(p.type), kTile, kTile, all != 0u},
             [&](const GroupTile& t) {
               const auto m = t.held[0], n = t.held[1], kk = t.held[2];
               const auto cols = (n + std::uint32_t(kTile - 1)) / std::uint32_t(kTile);
               const auto item = items.at(to<u64>(t.group) * std::uint64_t(12));
               const auto pointers = item.template as<u64>();
               const auto row = [&](int i) { return to<u64>(item.ld(9 + i)); };
               const Product x{operand(p.type, pointers.ld(0), row(0), !p.trans_a),
                               operand(*p.type_b, pointers.ld(1), row(1), p.trans_b),
                               pointers.ld(2),
                               row(2),
                               Val<u64>(0),
                               to<u64>(t.group),
                               m,
                               n,
                               kk,
                               t.group};
               tiles.multiply(x, t.number / cols * kTile, t.number % cols * kTile,
                              [](const Val<u32>& i, const Val<pred>&) { return to<u64>(i); });
             });
}

void grouped_depth_simt(Kernel& k, GroupedProblem p, In<u32> ends, Val<u32> wide, Val<u32> groups,
                        Val<u32> rows, Val<u32> m, Val<u32> n, Val<u32> tiles_m, Val<u32> tiles_n,
                        Val<u32> all) {
  const Val<u64> a(array_parameter(k, p.type, true, false)), b(array_parameter(k, *p.type_b, true, false)),
      c(array_parameter(k, *p.type_c, p.beta != 0, true));
  k.block(kThreads);
  const Tiles tiles(k, p);
  const RaggedEnds groups_end{ends, wide, groups, rows};
  const auto m64 = to<u64>(m), n64 = to<u64>(n);
  const auto ldc = p.epilogue.pairing() == Pairing::none ? n64 : to<u64>(n / 2u);
  k.loop(range(k.ctaid_x(), all, k.nctaid_x()), [&](Val<u32> tile) {
    const auto per_group = tiles_m * tiles_n, group = tile / per_group, in_group = tile % per_group;
    const auto span = groups_end.span(group);
    const Product x{operand(p.type, a + bytes_of(p.type, to<u64>(span.start) * m64), m64, false),
                    operand(*p.type_b, b + bytes_of(*p.type_b, to<u64>(span.start) * n64), n64, false),
                    c + bytes_of(*p.type_c, to<u64>(group) * m64 * ldc),
                    ldc,
                    Val<u64>(0),
                    to<u64>(group),
                    m,
                    n,
                    assume_uniform(span.size, Uniform::cta),
                    group};
    tiles.multiply(x, in_group / tiles_n * std::uint32_t(kTile), in_group % tiles_n * std::uint32_t(kTile),
                   [](const Val<u32>& i, const Val<pred>&) { return to<u64>(i); });
  });
}

}  // namespace

Variant grouped_simt(const GroupedProblem& q) {
  const auto p = q.whole();
  const GroupedConfig config{
      .a = p.type,
      .b = *p.type_b,
      .c = *p.type_c,
      .form = p.form,
      .kind = GroupedKind::simt,
      .layout = p.form == GroupedForm::depth ? GemmLayout::any : gemm_layout(p.trans_a, p.trans_b),
      .scaling = p.scaling,
      .alpha = p.type_c == DType::s32 && p.alpha != 1,  // else s32 results keep all bits
      .source_c = p.beta != 0,
      .epilogue = p.epilogue.name()};
  const auto is = [&](DType t) { return p.type == t || p.type_b == t || p.type_c == t; };
  const int sm = p.type_c == DType::e4m3 || p.type_c == DType::e5m2 ? 89 : is(DType::bf16) ? 80 : 75;
  switch (p.form) {
    case GroupedForm::rows:
      return grouped_variant(config, sm, grouped_rows_simt, p);
    case GroupedForm::depth:
      return grouped_variant(config, sm, grouped_depth_simt, p);
    default:
      return grouped_variant(config, sm, grouped_problems_simt, p);
  }
}
Variant grouped_simt(DType t, GroupedForm form, bool trans_b) {
  GroupedProblem p;
  p.type = t, p.form = form, p.trans_b = trans_b;
  return grouped_simt(p);
}

}  // namespace cgp::kernels
