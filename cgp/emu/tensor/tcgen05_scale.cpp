// SPDX-License-Identifier: Apache-2.0
// The block-scaled kinds of tcgen05.mma. Scale factors lie in Tensor Memory: the factor of row r of A (or of
// column n of B) in lane r % 32 of every group of 32 lanes, column r / 32, one byte per block of K (PTX ISA
// 9.7.16.10.7). The sums are in block_scale.cpp.
#include <algorithm>
#include <bit>
#include <cmath>

#include "cgp/emu/tensor/block_scale.h"
#include "cgp/emu/tensor/tcgen05_mma.h"

namespace cgp::emu {

using ptx::Mod;

namespace {

// The scales of one operand as each group of 32 lanes sees them: [group of lanes of the pair][row][block].
struct ScaleTable {
  int blocks = 1, rows = 0;
  std::vector<BlockScale> of;
  const BlockScale* at(int group, int row) const { return &of[std::size_t((group * rows + row) * blocks)]; }
};

class ScaleReader {
 public:
  ScaleReader(const MmaStep& s, TensorAddress at, int id, const char* what)
      : s_(s), at_(at), id_(id), what_(what) {}
  void read(int cta, int lane_group, int index, BlockScale* out, int blocks) {
    TensorMemory& t = tensor_memory(*s_.pair.cta[cta]);
    const int lane = at_.lane + lane_group * 32 + index % 32, column = at_.column + index / 32;
    if (!reported_ && !t.is_written(lane, column)) {
      reported_ = true;
      report_unwritten_tensor(s_.by, *s_.pair.cta[cta], lane, column, what_);
    }
    const std::uint32_t word = *t.row(lane, column);
    for (int b = 0; b < blocks; ++b) out[b] = decode_scale(word >> (8 * (id_ + b)) & 0xff, s_.what.ue8m0);
  }

 private:
  const MmaStep& s_;
  TensorAddress at_;
  int id_;
  const char* what_;
  bool reported_ = false;
};

struct Scales {
  ScaleTable a, b;
  int lane_group(const MmaStep& s, int row, int n) const {
    // Rows of the CTA in 32s; with 64 rows the second half of N is in lanes 64 to 127.
    const int mine = s.what.m / s.pair.count(), r = row % mine, cta = row / mine;
    return cta * 4 + r / 32 + (mine == 64 && n >= s.what.n / 2 ? 2 : 0);
  }
};

Scales read_scales(const MmaStep& s) {
  const int blocks = s.plan->form.scale_vector, ctas = s.pair.count(), mine = s.what.m / ctas;
  const bool folded = mine == 64;
  const int n_part = folded ? s.what.n / 2 : s.what.n;
  Scales t;
  t.a = {blocks, mine, std::vector<BlockScale>(std::size_t(ctas * 4 * mine * blocks))};
  t.b = {blocks, s.what.n, std::vector<BlockScale>(std::size_t(ctas * 4 * s.what.n * blocks))};
  ScaleReader a(s, s.sfa, s.what.sfa_id, "the scale factors of A are read from");
  ScaleReader b(s, s.sfb, s.what.sfb_id, "the scale factors of B are read from");
  for (int c = 0; c < ctas; ++c)
    for (int g = 0; g < 4; ++g) {
      const int first = folded ? g % 2 * 32 : g * 32;  // the rows that these lanes compute
      for (int r = first; r < first + 32; ++r)
        a.read(c, g, r, const_cast<BlockScale*>(t.a.at(c * 4 + g, r)), blocks);
      const int n0 = folded && g >= 2 ? n_part : 0;
      for (int n = 0; n < n_part; ++n)
        b.read(c, g, n, const_cast<BlockScale*>(t.b.at(c * 4 + g, n0 + n)), blocks);
    }
  return t;
}

}  // namespace

void multiply_scaled(const MmaStep& s, MatrixOperands& m, MatrixPrecision precision) {
  const Scales scales = read_scales(s);
  const InstructionDescriptor& w = s.what;
  const int blocks = s.plan->form.scale_vector, mine = w.m / s.pair.count();
  const auto elements = [&](Mod type, bool negate, auto&& bits) {
    ScaledElements e;
    for (int k = 0; k < w.k; ++k) e.add(type, bits(k), negate);
    return e;
  };
  std::vector<ScaledElements> b;
  for (int n = 0; n < w.n; ++n) b.push_back(elements(w.b, w.negate_b, [&](int k) { return m.b_bits(k, n); }));
  for (int row = 0; row < w.m; ++row) {
    const ScaledElements a = elements(w.a, w.negate_a, [&](int k) { return m.a_bits(row, k); });
    for (int n = 0; n < w.n; ++n) {
      const int g = scales.lane_group(s, row, n);
      m.d(row, n) = scaled_sum(a, b[std::size_t(n)], scales.a.at(g, row % mine), scales.b.at(g, n), blocks,
                               s.plan->form.kind != MmaKind::mxf8f6f4, m.d(row, n), precision);
    }
  }
}

}  // namespace cgp::emu
