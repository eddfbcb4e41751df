// SPDX-License-Identifier: Apache-2.0
// The block-scaled kinds of tcgen05.mma. Scale factors lie in Tensor Memory: the factor of row r of A (or of
// column n of B) in lane r % 32 of every group of 32 lanes, column r / 32, one byte per block of K (PTX ISA
// 9.7.16.10.7). Sums follow the published models of the unit: mxf8f6f4 is one fused sum at 25 fractional bits
// with the scales' exponents added to those of the products; mxf4 and mxf4nvf4 add groups of 16 products
// exactly, multiply by the scales and fuse the groups with C at 35 bits, aligned to the scales' exponents.
#include <algorithm>
#include <bit>
#include <cmath>

#include "cgp/emu/tcgen05_mma.h"
#include "cgp/emu/tensor_core_step.h"

namespace cgp::emu {

using ptx::Mod;

namespace {

constexpr int kFused = 25, kGrouped = 35;
constexpr float kNaN = std::bit_cast<float>(0x7fffffffu);

/// significand / 8 * 2^exponent
struct Scale {
  std::int32_t significand = 8;
  int exponent = 0;
  bool nan = false;
  double value() const { return std::ldexp(double(significand), exponent - 3); }
};
Scale decode_scale(std::uint32_t code, bool ue8m0) {
  if (ue8m0) return {8, int(code) - 127, code == 0xff};
  const int e = int(code >> 3 & 15), m = int(code & 7);  // the sign bit does not count
  return {e ? 8 + m : m, std::max(e, 1) - 7, (code & 0x7f) == 0x7f};
}

// The scales of one operand as each group of 32 lanes sees them: [group of lanes of the pair][row][block].
struct ScaleTable {
  int blocks = 1, rows = 0;
  std::vector<Scale> of;
  const Scale* at(int group, int row) const { return &of[std::size_t((group * rows + row) * blocks)]; }
};

class ScaleReader {
 public:
  ScaleReader(const MmaStep& s, TensorAddress at, int id, const char* what)
      : s_(s), at_(at), id_(id), what_(what) {}
  void read(int cta, int lane_group, int index, Scale* out, int blocks) {
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
  t.a = {blocks, mine, std::vector<Scale>(std::size_t(ctas * 4 * mine * blocks))};
  t.b = {blocks, s.what.n, std::vector<Scale>(std::size_t(ctas * 4 * s.what.n * blocks))};
  ScaleReader a(s, s.sfa, s.what.sfa_id, "the scale factors of A are read from");
  ScaleReader b(s, s.sfb, s.what.sfb_id, "the scale factors of B are read from");
  for (int c = 0; c < ctas; ++c)
    for (int g = 0; g < 4; ++g) {
      const int first = folded ? g % 2 * 32 : g * 32;  // the rows that these lanes compute
      for (int r = first; r < first + 32; ++r)
        a.read(c, g, r, const_cast<Scale*>(t.a.at(c * 4 + g, r)), blocks);
      const int n0 = folded && g >= 2 ? n_part : 0;
      for (int n = 0; n < n_part; ++n) b.read(c, g, n, const_cast<Scale*>(t.b.at(c * 4 + g, n0 + n)), blocks);
    }
  return t;
}

// ---------------------------------------------------------------- sums
struct Elements {                         // one row of A or column of B
  std::vector<std::int32_t> significand;  // value = significand / 8 * 2^exponent
  std::vector<int> exponent;
  std::vector<float> value;
  bool special = false;
};
Elements decode_elements(MatrixOperands& m, Mod type, int k, bool negate, int index, bool is_a) {
  const Decoded* table = byte_decoder(type);
  Elements e;
  e.significand.resize(std::size_t(k));
  e.exponent.resize(std::size_t(k));
  e.value.resize(std::size_t(k));
  for (int i = 0; i < k; ++i) {
    const Decoded d = table[(is_a ? m.a_bits(index, i) : m.b_bits(i, index)) & 0xff];
    const auto at = std::size_t(i);
    e.value[at] = negate ? -d.value : d.value;
    if (d.exponent == kSpecialExponent) {
      e.special = true;
    } else if (d.exponent != kZeroExponent) {
      e.exponent[at] = d.exponent;
      e.significand[at] = std::int32_t(std::ldexp(double(e.value[at]), 3 - d.exponent));
    }
  }
  return e;
}

float cut(double v) {
  if (std::fabs(v) >= 0x1p128)
    return std::copysign(std::numeric_limits<float>::infinity(), float(v > 0 ? 1 : -1));
  const float f = float(v);
  return std::fabs(double(f)) > std::fabs(v) ? std::nextafter(f, 0.0f) : f;
}
std::int64_t shifted(std::int64_t v, int bits) {
  const std::int64_t magnitude = v < 0 ? -v : v;
  const std::int64_t moved = bits >= 0 ? magnitude << bits : bits <= -63 ? 0 : magnitude >> -bits;
  return v < 0 ? -moved : moved;
}

struct Addend {  // significand * 2^(exponent - 23)
  std::int64_t significand = 0;
  int exponent = -100000;
};
Addend addend(float c) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(c);
  if (!(u & 0x7fffffffu)) return {};
  const int e = int(u >> 23 & 0xff);
  const auto m = std::int64_t((u & 0x7fffff) | (e ? 0x800000 : 0));
  return {u >> 31 ? -m : m, std::max(e, 1) - 127};
}

float fused(const Elements& a, const Elements& b, const Scale& sa, const Scale& sb, float c) {
  const int scale = sa.exponent + sb.exponent;
  const Addend x = addend(c);
  int top = x.exponent;
  const std::size_t k = a.significand.size();
  for (std::size_t i = 0; i < k; ++i)
    if (a.significand[i] && b.significand[i]) top = std::max(top, a.exponent[i] + b.exponent[i] + scale);
  if (top == -100000) return 0.0f;
  std::int64_t sum = shifted(x.significand, kFused - 23 - (top - x.exponent));
  for (std::size_t i = 0; i < k; ++i) {
    const std::int64_t p = std::int64_t(a.significand[i]) * b.significand[i];
    if (p) sum += shifted(p, kFused - 6 - (top - scale - a.exponent[i] - b.exponent[i]));
  }
  return cut(std::ldexp(double(sum), top - kFused));
}

float grouped(const Elements& a, const Elements& b, const Scale* sa, const Scale* sb, int blocks, float c) {
  constexpr int kGroup = 16, kGroups = 4;
  const Addend x = addend(c);
  int top = x.exponent;
  std::int64_t term[kGroups];
  int exponent[kGroups];
  for (int g = 0; g < kGroups; ++g) {
    std::int64_t s = 0;  // e2m1 in halves: products in quarters
    for (int i = g * kGroup; i < (g + 1) * kGroup; ++i) {
      const auto at = std::size_t(i);
      s += std::int64_t(a.value[at] * 2) * std::int64_t(b.value[at] * 2);
    }
    const Scale &p = sa[g * blocks / kGroups], &q = sb[g * blocks / kGroups];
    term[g] = s * p.significand * q.significand;
    exponent[g] = p.exponent + q.exponent;
    top = std::max(top, exponent[g]);
  }
  std::int64_t sum = shifted(x.significand, kGrouped - 23 - (top - x.exponent));
  for (int g = 0; g < kGroups; ++g) sum += shifted(term[g], kGrouped - 8 - (top - exponent[g]));
  return cut(std::ldexp(double(sum), top - kGrouped));
}

float plain(const Elements& a, const Elements& b, const Scale* sa, const Scale* sb, int blocks, float c) {
  const std::size_t k = a.value.size();
  bool nan = c != c;
  for (int i = 0; i < blocks; ++i) nan = nan || sa[i].nan || sb[i].nan;
  double sum = c;
  for (std::size_t i = 0; i < k; ++i) {
    const std::size_t block = i * std::size_t(blocks) / k;
    sum += double(a.value[i]) * b.value[i] * sa[block].value() * sb[block].value();
  }
  return nan || sum != sum ? kNaN : float(sum);
}

}  // namespace

void multiply_scaled(const MmaStep& s, MatrixOperands& m, MatrixPrecision precision) {
  const Scales scales = read_scales(s);
  const InstructionDescriptor& w = s.what;
  const int blocks = s.plan->form.scale_vector, mine = w.m / s.pair.count();
  std::vector<Elements> b;
  for (int n = 0; n < w.n; ++n) b.push_back(decode_elements(m, w.b, w.k, w.negate_b, n, false));
  for (int row = 0; row < w.m; ++row) {
    const Elements a = decode_elements(m, w.a, w.k, w.negate_a, row, true);
    for (int n = 0; n < w.n; ++n) {
      const int g = scales.lane_group(s, row, n);
      const Scale *sa = scales.a.at(g, row % mine), *sb = scales.b.at(g, n);
      bool special = a.special || b[std::size_t(n)].special || !std::isfinite(m.d(row, n));
      for (int i = 0; i < blocks; ++i) special = special || sa[i].nan || sb[i].nan;
      float& d = m.d(row, n);
      if (special || precision == MatrixPrecision::f32)
        d = plain(a, b[std::size_t(n)], sa, sb, blocks, d);
      else if (s.plan->form.kind == MmaKind::mxf8f6f4)
        d = fused(a, b[std::size_t(n)], sa[0], sb[0], d);
      else
        d = grouped(a, b[std::size_t(n)], sa, sb, blocks, d);
    }
  }
}

}  // namespace cgp::emu
