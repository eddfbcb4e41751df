// SPDX-License-Identifier: Apache-2.0
// In three steps. 1: for each sub-block the scale (and minimum) with the least squared error, by least squares from many starts and
// then in turns with nearest codes. 2: the block's scale covers the largest; the integers of sub-blocks are those with the least error
// around the nearest. 3: with all integers fixed the block's scales are solved for again, and kept where that is better.
#include "cgp/quant/encode_k_impl.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cgp/base/float16.h"

namespace cgp::quant {
namespace {

constexpr int kRefinements = 4;
constexpr double kWorst = std::numeric_limits<double>::infinity();

float wide(std::uint16_t bits) { return float(half::from_bits(bits)); }
/// The scale of a block, not 0 unless v is: integers of sub-blocks are small where v is.
std::uint16_t block_scale(float v) {
  const auto bits = narrow_scale(v);
  return v != 0 && (bits & 0x7fff) == 0 ? std::uint16_t(bits | 1) : bits;
}
float inverse(float v) { return v == 0 ? 0 : 1 / v; }
/// The nearest whole number in [lo, hi], ties to even.
float nearest(float v, float lo, float hi) {
  constexpr float kRound = 12582912;  // 1.5 * 2^23
  return std::min(std::max(v, lo), hi) + kRound - kRound;
}

/// x ~ scale * q - min, q from 0 to levels.
struct Affine {
  float scale = 0, min = 0;
  double error = kWorst;
};
/// One turn: codes nearest for a start, then least squares for those codes; min is not negative.
Affine fit_codes(const float* x, int n, float levels, float inverse_scale, float min) {
  double q1 = 0, q2 = 0, x1 = 0, x2 = 0, xq = 0;
  for (int i = 0; i < n; ++i) {
    const double q = double(nearest((x[i] + min) * inverse_scale, 0, levels)), v = double(x[i]);
    q1 += q, q2 += q * q, x1 += v, x2 += v * v, xq += v * q;
  }
  const double d = n * q2 - q1 * q1;
  double s = d > 0 ? (n * xq - x1 * q1) / d : 0, m = d > 0 ? (q1 * xq - q2 * x1) / d : -x1 / n;
  if (m < 0) m = 0, s = q2 > 0 ? xq / q2 : 0;
  if (s < 0) s = 0, m = std::max(0.0, -x1 / n);
  const double error = x2 + s * s * q2 + n * m * m - 2 * s * m * q1 - 2 * s * xq + 2 * m * x1;
  return {float(s), float(m), error};
}
Affine fit(const float* x, int n, float levels) {
  const auto [least, most] = std::minmax_element(x, x + n);
  const float lo = std::min(*least, 0.f), span = *most - lo;
  if (!(span > 0)) return {0, -lo, 0};
  if (!std::isfinite(span)) narrow_scale(span);  // throws
  Affine best;
  for (int step = -10; step <= 10; ++step) {
    const auto f = fit_codes(x, n, levels, (levels + 0.1f * float(step)) / span, -lo);
    if (f.error < best.error) best = f;
  }
  for (int turn = 0; turn < 2 * kRefinements; ++turn) {
    const auto f = fit_codes(x, n, levels, inverse(best.scale), best.min);
    if (!(f.error < best.error)) break;
    best = f;
  }
  return best;
}

double square(double v) { return v * v; }

/// Q2_K, Q4_K and Q5_K: sub-blocks of `size` with scale and min of integers up to `most`, codes up to `levels`.
struct MinsFormat {
  int size;
  float most, levels;
  int count() const { return 256 / size; }
};
struct Mins {
  std::uint16_t d = 0, dmin = 0;
  int scale[16] = {}, min[16] = {};
  double error = kWorst;
};
double error_of(const float* x, int n, float step, float base, float levels) {
  const float by = inverse(step);
  double error = 0;
  for (int i = 0; i < n; ++i) {
    const float q = nearest((x[i] + base) * by, 0, levels);
    error += square(double(step * q - base - x[i]));
  }
  return error;
}
/// The integers of every sub-block for given scales of the block, around those of the fits.
Mins choose(const float* x, const Affine (&fits)[16], const MinsFormat& f, std::uint16_t d,
            std::uint16_t dmin) {
  Mins m{d, dmin, {}, {}, 0};
  const float unit = wide(d), min_unit = wide(dmin);
  const int most = int(f.most);
  for (int s = 0; s < f.count(); ++s) {
    const int scale = int(nearest(fits[s].scale * inverse(unit), 0, f.most)),
              min = int(nearest(fits[s].min * inverse(min_unit), 0, f.most));
    double best = kWorst;
    for (int a = std::max(scale - 1, 0); a <= std::min(scale + 1, most); ++a)
      for (int b = std::max(min - 1, 0); b <= std::min(min + 1, most); ++b) {
        const double e = error_of(x + f.size * s, f.size, unit * float(a), min_unit * float(b), f.levels);
        if (e < best) best = e, m.scale[s] = a, m.min[s] = b;
      }
    m.error += best;
  }
  return m;
}
Mins search_mins(const float* x, const MinsFormat& f) {
  Affine fits[16];
  float scale = 0, min = 0;
  for (int s = 0; s < f.count(); ++s) {
    fits[s] = fit(x + f.size * s, f.size, f.levels);
    scale = std::max(scale, fits[s].scale), min = std::max(min, fits[s].min);
  }
  auto best = choose(x, fits, f, block_scale(scale / f.most), block_scale(min / f.most));
  for (int turn = 0; turn < kRefinements; ++turn) {
    double qq = 0, qm = 0, mm = 0, xq = 0, xm = 0;
    for (int i = 0; i < 256; ++i) {
      const int s = i / f.size;
      const float step = wide(best.d) * float(best.scale[s]), base = wide(best.dmin) * float(best.min[s]);
      const double q = double(nearest((x[i] + base) * inverse(step), 0, f.levels)) * best.scale[s],
                   m = best.min[s];
      qq += q * q, qm += q * m, mm += m * m, xq += double(x[i]) * q, xm += double(x[i]) * m;
    }
    const double det = qq * mm - qm * qm;
    if (!(det > 0)) break;
    const double d = (xq * mm - xm * qm) / det, dmin = (xq * qm - xm * qq) / det;
    if (!(d > 0) || !(dmin >= 0)) break;
    const auto again = choose(x, fits, f, block_scale(float(d)), block_scale(float(dmin)));
    if (!(again.error < best.error)) break;
    best = again;
  }
  return best;
}
/// put(sub-block, element of it, code) for all.
template <class Put>
void put_codes(const float* x, const MinsFormat& f, const Mins& m, const Put& put) {
  for (int i = 0; i < 256; ++i) {
    const int s = i / f.size;
    const float step = wide(m.d) * float(m.scale[s]), base = wide(m.dmin) * float(m.min[s]);
    put(s, i % f.size, int(nearest((x[i] + base) * inverse(step), 0, f.levels)));
  }
}

void put(BlockQ4K& b, int s, int e, int q) { b.qs[32 * (s / 2) + e] |= std::uint8_t(q << (4 * (s % 2))); }
void put(BlockQ5K& b, int s, int e, int q) {
  b.qs[32 * (s / 2) + e] |= std::uint8_t((q & 15) << (4 * (s % 2)));
  b.qh[e] |= std::uint8_t((q >> 4) << s);
}
template <class Block>
void encode_mins(const float* x, Block& b, float levels) {
  const MinsFormat f{32, 63, levels};
  const auto m = search_mins(x, f);
  b = {};
  b.d = m.d, b.dmin = m.dmin;
  for (int s = 0; s < 8; ++s) {
    const int sc = m.scale[s], mn = m.min[s];
    if (s < 4) {
      b.scales[s] |= std::uint8_t(sc), b.scales[s + 4] |= std::uint8_t(mn);
    } else {
      b.scales[s + 4] = std::uint8_t((sc & 15) | (mn & 15) << 4);
      b.scales[s - 4] |= std::uint8_t(sc >> 4 << 6), b.scales[s] |= std::uint8_t(mn >> 4 << 6);
    }
  }
  put_codes(x, f, m, [&](int s, int e, int q) { put(b, s, e, q); });
}

/// Q3_K and Q6_K: x ~ scale * q, q from -levels to levels - 1, sixteen sub-blocks of 16 with scales from -most to most - 1.
struct SignedFormat {
  float levels, most;
  float code(float v) const { return nearest(v, -levels, levels - 1); }
};
struct Linear {
  float scale = 0;
  double error = kWorst;
};
Linear fit_codes(const float* x, const SignedFormat& f, float inverse_scale) {
  double q2 = 0, xq = 0, x2 = 0;
  for (int i = 0; i < 16; ++i) {
    const double q = double(f.code(x[i] * inverse_scale)), v = double(x[i]);
    q2 += q * q, xq += v * q, x2 += v * v;
  }
  const double s = q2 > 0 ? xq / q2 : 0;
  return {float(s), x2 - s * xq};
}
Linear fit_signed(const float* x, const SignedFormat& format) {
  float extreme = x[0];
  for (int i = 1; i < 16; ++i)
    if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
  if (extreme == 0) return {0, 0};
  Linear best;
  for (int step = -10; step <= 10; ++step)
    for (const float sign : {-1.f, 1.f}) {
      const auto f = fit_codes(x, format, sign * (format.levels - 0.5f + 0.1f * float(step)) / extreme);
      if (f.error < best.error) best = f;
    }
  for (int turn = 0; turn < 2 * kRefinements; ++turn) {
    const auto f = fit_codes(x, format, inverse(best.scale));
    if (!(f.error < best.error)) break;
    best = f;
  }
  return best;
}
struct Signed {
  std::uint16_t d = 0;
  int scale[16] = {};
  double error = kWorst;
};
Signed choose(const float* x, const Linear (&fits)[16], const SignedFormat& f, std::uint16_t d) {
  Signed m{d, {}, 0};
  const float unit = wide(d);
  for (int s = 0; s < 16; ++s) {
    const int scale = int(nearest(fits[s].scale * inverse(unit), -f.most, f.most - 1));
    double best = kWorst;
    for (int a = std::max(scale - 1, -int(f.most)); a <= std::min(scale + 1, int(f.most) - 1); ++a) {
      const float step = unit * float(a), by = inverse(step);
      double e = 0;
      for (int i = 16 * s; i < 16 * s + 16; ++i) e += square(double(step * f.code(x[i] * by) - x[i]));
      if (e < best) best = e, m.scale[s] = a;
    }
    m.error += best;
  }
  return m;
}
Signed search_signed(const float* x, const SignedFormat& f) {
  Linear fits[16];
  float largest = 0;
  for (int s = 0; s < 16; ++s) {
    fits[s] = fit_signed(x + 16 * s, f);
    if (std::fabs(fits[s].scale) > std::fabs(largest)) largest = fits[s].scale;
  }
  auto best = choose(x, fits, f, block_scale(largest / -f.most));
  for (int turn = 0; turn < kRefinements; ++turn) {
    double qq = 0, xq = 0;
    for (int i = 0; i < 256; ++i) {
      const float step = wide(best.d) * float(best.scale[i / 16]);
      const double q = double(f.code(x[i] * inverse(step))) * best.scale[i / 16];
      qq += q * q, xq += double(x[i]) * q;
    }
    if (!(qq > 0)) break;
    const auto again = choose(x, fits, f, block_scale(float(xq / qq)));
    if (!(again.error < best.error)) break;
    best = again;
  }
  return best;
}

}  // namespace

void encode_k(const float* x, BlockQ4K& b) { encode_mins(x, b, 15); }
void encode_k(const float* x, BlockQ5K& b) { encode_mins(x, b, 31); }
void encode_k(const float* x, BlockQ2K& b) {
  const MinsFormat f{16, 15, 3};
  const auto m = search_mins(x, f);
  b = {};
  b.d = m.d, b.dmin = m.dmin;
  for (int s = 0; s < 16; ++s) b.scales[s] = std::uint8_t(m.scale[s] | m.min[s] << 4);
  put_codes(x, f, m, [&](int s, int e, int q) {
    const int i = 16 * s + e;
    b.qs[i / 128 * 32 + i % 32] |= std::uint8_t(q << (i % 128 / 32 * 2));
  });
}
void encode_k(const float* x, BlockQ3K& b) {
  const SignedFormat f{4, 32};
  const auto m = search_signed(x, f);
  b = {};
  b.d = m.d;
  for (int s = 0; s < 16; ++s) {
    const int sc = m.scale[s] + 32;
    b.scales[s % 8] |= std::uint8_t((sc & 15) << (s / 8 * 4));
    b.scales[8 + s % 4] |= std::uint8_t((sc >> 4) << (s / 4 * 2));
  }
  for (int i = 0; i < 256; ++i) {
    const float step = wide(b.d) * float(m.scale[i / 16]);
    const int q = int(f.code(x[i] * inverse(step))) + 4;
    b.qs[i / 128 * 32 + i % 32] |= std::uint8_t((q & 3) << (i % 128 / 32 * 2));
    b.hmask[i % 32] |= std::uint8_t((q >> 2) << (i / 32));
  }
}
void encode_k(const float* x, BlockQ6K& b) {
  const SignedFormat f{32, 128};
  const auto m = search_signed(x, f);
  b = {};
  b.d = m.d;
  for (int s = 0; s < 16; ++s) b.scales[s] = std::int8_t(m.scale[s]);
  for (int i = 0; i < 256; ++i) {
    const float step = wide(b.d) * float(b.scales[i / 16]);
    const int q = int(f.code(x[i] * inverse(step))) + 32, h = i / 128, t = i % 128 / 32, l = i % 32;
    b.ql[64 * h + 32 * (t % 2) + l] |= std::uint8_t((q & 15) << (4 * (t / 2)));
    b.qh[32 * h + l] |= std::uint8_t((q >> 4) << (2 * t));
  }
}

}  // namespace cgp::quant
