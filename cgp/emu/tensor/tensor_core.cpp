// SPDX-License-Identifier: Apache-2.0
#include "cgp/emu/tensor/tensor_core.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>

#include "cgp/base/float16.h"
#include "cgp/base/text.h"
#include "cgp/emu/tensor/tensor_core_step.h"

namespace cgp::emu {
using ptx::Mod;

namespace {

std::atomic<bool> portable_only{false};
bool use_avx512() {
  static const bool have = have_avx512();
  return have && !portable_only.load(std::memory_order_relaxed);
}

struct SmallFloat {
  int exponent_bits, mantissa_bits;
};
SmallFloat small_float(Mod type) {
  switch (type) {
    case Mod::e5m2:
      return {5, 2};
    case Mod::e2m3:
      return {2, 3};
    case Mod::e3m2:
      return {3, 2};
    case Mod::e2m1:
      return {2, 1};
    default:
      return {4, 3};  // e4m3
  }
}

const std::array<Decoded, 256>& byte_table(Mod type) {
  static const auto make = [](Mod t) {
    std::array<Decoded, 256> table{};
    const auto [exponent_bits, mantissa_bits] = small_float(t);
    const int bias = (1 << (exponent_bits - 1)) - 1;
    for (int u = 0; u < 256; ++u) {
      const int e = u >> mantissa_bits & ((1 << exponent_bits) - 1), m = u & ((1 << mantissa_bits) - 1);
      const double sign = u >> (exponent_bits + mantissa_bits) & 1 ? -1 : 1;
      const double v = t == Mod::e4m3   ? double(float8_e4m3::from_bits(std::uint8_t(u)))
                       : t == Mod::e5m2 ? double(float8_e5m2::from_bits(std::uint8_t(u)))
                                        : sign * std::ldexp((e ? 1 << mantissa_bits : 0) + m,
                                                            std::max(e, 1) - bias - mantissa_bits);
      const int x = !std::isfinite(v) ? kSpecialExponent : v == 0 ? kZeroExponent : std::max(e, 1) - bias;
      table[std::size_t(u)] = {float(v), x};
    }
    return table;
  };
  static const std::array<Decoded, 256> e4m3 = make(Mod::e4m3), e5m2 = make(Mod::e5m2),
                                        e2m3 = make(Mod::e2m3), e3m2 = make(Mod::e3m2),
                                        e2m1 = make(Mod::e2m1);
  return type == Mod::e4m3   ? e4m3
         : type == Mod::e5m2 ? e5m2
         : type == Mod::e2m3 ? e2m3
         : type == Mod::e3m2 ? e3m2
                             : e2m1;
}

constexpr float kCanonicalNaN = std::bit_cast<float>(0x7fffffffu);

// Cut towards zero to `mantissa_bits`; beyond the largest f32 is infinity, subnormals keep f32's lowest bit.
float cut_to_f32(double v, int mantissa_bits) {
  const double magnitude = std::fabs(v);
  if (magnitude >= 0x1p128)
    return std::copysign(std::numeric_limits<float>::infinity(), float(v > 0 ? 1 : -1));
  const int drop = 52 - mantissa_bits;
  double cut = std::bit_cast<double>(std::bit_cast<std::uint64_t>(v) >> drop << drop);
  if (magnitude < 0x1p-126)
    cut = std::ldexp(std::trunc(std::ldexp(v, mantissa_bits + 126)), -mantissa_bits - 126);
  return float(cut);
}

float special_sum(const float* a, const float* b, int b_stride, int k, float c, bool f16_result) {
  // Infinities and NaN behave as in IEEE arithmetic whatever the order; only their presence matters.
  float sum = c;
  bool plus = c > std::numeric_limits<float>::max(), minus = c < -std::numeric_limits<float>::max();
  bool nan = c != c;
  for (int i = 0; i < k; ++i) {
    const double x = a[i], y = b[i * b_stride];
    if (std::isfinite(x) && std::isfinite(y)) continue;
    const double p = x * y;
    nan = nan || p != p;
    plus = plus || p > 0;
    minus = minus || p < 0;
  }
  if (nan || (plus && minus))
    sum = f16_result ? float(decode_float(0x7fff, 5, 10)) : kCanonicalNaN;
  else if (plus)
    sum = std::numeric_limits<float>::infinity();
  else
    sum = -std::numeric_limits<float>::infinity();
  return sum;
}

// magnitude * 2^(bits) cut towards zero, for any sign of bits.
std::int64_t shift_cut(std::int64_t magnitude, int bits) {
  if (bits >= 0) return magnitude << bits;
  return bits <= -63 ? 0 : magnitude >> -bits;
}

}  // namespace

const Decoded* byte_decoder(Mod type) { return byte_table(type).data(); }

Generation generation_of(std::string_view target) {
  int number = 0;
  for (char ch : target)
    if (ch >= '0' && ch <= '9') number = number * 10 + (ch - '0');
  if (number < 80) return Generation::turing;
  if (number < 89) return Generation::ampere;
  if (number == 89) return Generation::ada;
  return number < 100 ? Generation::hopper : Generation::blackwell;
}

FusedRule fused_rule(MatrixUnit unit, Mod element, Generation g, bool f16_result) {
  FusedRule r;
  r.f16_result = f16_result;
  const bool old = g == Generation::turing || g == Generation::ampere || g == Generation::ada;
  switch (element) {
    case Mod::f16:
    case Mod::bf16:
      r.fraction_bits = old ? 24 : 25;
      r.step = old ? 8 : 16;
      return r;
    case Mod::tf32:
      r.fraction_bits = old ? 24 : 25;
      r.step = old ? 4 : 8;
      return r;
    case Mod::e4m3:
    case Mod::e5m2:
      r.step = 32;
      if (unit == MatrixUnit::wgmma || g == Generation::ada) {
        r.fraction_bits = r.mantissa_bits = 13;
        if (unit == MatrixUnit::mma) r.step = 16;
      } else if (g == Generation::hopper) {
        r.widened_fp8 = true;
        r.step = 16;
      }
      return r;
    case Mod::e2m3:
    case Mod::e3m2:
    case Mod::e2m1:
      r.step = 32;
      if (g == Generation::blackwell) return r;
      [[fallthrough]];
    default:
      throw Unsupported(
          ErrorText{text::cat("a floating-point matrix multiply has no rule for .", ptx::name(element)), "",
                    "", "use f16, bf16, tf32, e4m3 or e5m2 operands"});
  }
}

Decoded decode_element(Mod type, std::uint32_t bits) {
  if (ptx::type_bits(type) <= 8) return byte_table(type)[bits & 0xff];
  Decoded d{};
  std::int16_t e = 0;
  const DecodeJob job{type, &bits, 1, &d.value, &e, nullptr};
  decode_portable(job);
  d.exponent = e;
  return d;
}

float fused_sum(const float* a, const std::int32_t* a_exponent, const float* b,
                const std::int16_t* b_exponent, int b_stride, int k, float c, const FusedRule& rule) {
  const std::uint32_t c_bits = std::bit_cast<std::uint32_t>(c) & 0x7fffffffu;
  bool special = c_bits >= 0x7f800000u;
  int top = c_bits == 0 ? kZeroExponent * 2 : std::max(int(c_bits >> 23), 1) - 127;
  for (int i = 0; i < k; ++i) {
    const int e = std::int16_t(a_exponent[i]) + b_exponent[i * b_stride];
    special = special || e > kSpecialExponent / 2;
    top = std::max(top, e);
  }
  // Zero times infinity: the marks' sum stays above half of kSpecialExponent.
  if (special) return special_sum(a, b, b_stride, k, c, rule.f16_result);
  if (top < kZeroExponent / 2) return 0.0f;
  const int f = rule.fraction_bits;
  std::int64_t sum = 0;
  if (c_bits) {
    const int e = std::max(int(c_bits >> 23), 1) - 127;
    const auto magnitude = std::int64_t((c_bits & 0x7fffff) | (c_bits >> 23 ? 0x800000 : 0));
    const std::int64_t cut = shift_cut(magnitude, f - 23 - (top - e));
    sum += std::signbit(c) ? -cut : cut;
  }
  for (int i = 0; i < k; ++i) {
    const int ea = std::int16_t(a_exponent[i]), eb = b_exponent[i * b_stride];
    if (ea == kZeroExponent || eb == kZeroExponent) continue;
    const auto ma = std::int64_t(std::ldexp(double(a[i]), 10 - ea));
    const auto mb = std::int64_t(std::ldexp(double(b[i * b_stride]), 10 - eb));
    const std::int64_t product = ma * mb;
    const std::int64_t cut = shift_cut(std::llabs(product), f - 20 - (top - ea - eb));
    sum += product < 0 ? -cut : cut;
  }
  const double v = std::ldexp(double(sum), top - f);
  if (rule.f16_result) return float(decode_float(encode_float(v, 5, 10), 5, 10)) + 0.0f;
  return cut_to_f32(v, rule.mantissa_bits);
}

void MatrixOperands::resize(int rows, int columns, int k) {
  rows_ = rows;
  columns_ = columns;
  padded_ = (columns + 15) / 16 * 16;
  k_ = k;
  const auto na = std::size_t(rows * k), nb = std::size_t(k * padded_), nd = std::size_t(rows * padded_);
  if (a_bits_.size() < na) {
    a_bits_.resize(na);
    a_.resize(na);
    a_exponent_.resize(na);
  }
  if (b_bits_.size() < nb) {
    b_bits_.resize(nb);
    b_.resize(nb);
    b_exponent_.resize(nb);
  }
  if (d_.size() < nd) {
    d_.resize(nd);
    d_int_.resize(nd);
  }
  if (padded_ != columns_) {
    std::fill_n(b_bits_.begin(), nb, 0u);
    std::fill_n(d_.begin(), nd, 0.0f);
    std::fill_n(d_int_.begin(), nd, 0);
  }
}

void MatrixOperands::use_wide() {
  a_wide_.resize(std::max(a_wide_.size(), std::size_t(rows_ * k_)));
  b_wide_.resize(std::max(b_wide_.size(), std::size_t(k_ * padded_)));
  d_f64_.resize(std::max(d_f64_.size(), std::size_t(rows_ * padded_)));
}

std::string_view MatrixCore::vector_code() { return use_avx512() ? "avx512" : "portable"; }
void MatrixCore::use_portable(bool on) { portable_only.store(on); }

namespace {

// sm_90's mma.sync sums the even and the odd runs of bytes along K in two steps on f16.
int widened_place(int i, int k, int run) {
  return 2 * run * (i % (k / 2) / run) + run * (i / (k / 2)) + i % run;
}

template <class T>
void widened_order(std::vector<T>& v, int outer, int k, int pitch, int run) {
  // [outer][k] when pitch == 1, [k][outer] when pitch == outer.
  std::vector<T> copy(v.begin(), v.begin() + std::ptrdiff_t(outer) * k);
  for (int o = 0; o < outer; ++o)
    for (int i = 0; i < k; ++i) {
      const int from = widened_place(i, k, run);
      const auto at = [&](int x) { return std::size_t(pitch == 1 ? o * k + x : x * pitch + o); };
      v[at(i)] = copy[at(from)];
    }
}

}  // namespace

void MatrixCore::multiply(MatrixOperands& m, Mod a, Mod b, const FusedRule& rule, MatrixPrecision precision,
                          int scale_a, int scale_b) {
  const auto decode = use_avx512() ? decode_avx512 : decode_portable;
  const int padded = m.padded_;
  decode({a, m.a_bits_.data(), m.rows_ * m.k_, m.a_.data(), nullptr, m.a_exponent_.data()});
  decode({b, m.b_bits_.data(), m.k_ * padded, m.b_.data(), m.b_exponent_.data(), nullptr});
  if (scale_a * scale_b < 0)
    for (int i = 0; i < m.rows_ * m.k_; ++i) m.a_[std::size_t(i)] = -m.a_[std::size_t(i)];
  if (precision == MatrixPrecision::f32) {
    (use_avx512() ? product_f32_avx512
                  : product_f32_portable)({m.rows_, padded, m.k_, m.a_.data(), m.b_.data(), m.d_.data()});
    if (rule.f16_result)
      for (int i = 0; i < m.rows_ * padded; ++i) {
        float& d = m.d_[std::size_t(i)];
        d = float(half(double(d)));
      }
    return;
  }
  std::vector<float> c;
  if (rule.widened_fp8) {
    widened_order(m.a_, m.rows_, m.k_, 1, rule.widened_run);
    widened_order(m.a_exponent_, m.rows_, m.k_, 1, rule.widened_run);
    widened_order(m.b_, padded, m.k_, padded, rule.widened_run);
    widened_order(m.b_exponent_, padded, m.k_, padded, rule.widened_run);
    c.assign(m.d_.begin(), m.d_.begin() + m.rows_ * padded);
    std::fill_n(m.d_.begin(), m.rows_ * padded, 0.0f);
  }
  const auto step = use_avx512() ? fused_step_avx512 : fused_step_portable;
  const int width = rule.widened_fp8 ? m.k_ / 2 : std::min(rule.step, m.k_);
  for (int k = 0; k < m.k_; k += width) {
    FusedStep s;
    s.rows = m.rows_;
    s.columns = padded;
    s.k = std::min(width, m.k_ - k);
    s.a = m.a_.data() + k;
    s.a_exponent = m.a_exponent_.data() + k;
    s.a_pitch = m.k_;
    s.b = m.b_.data() + k * padded;
    s.b_exponent = m.b_exponent_.data() + k * padded;
    s.b_pitch = padded;
    s.d = m.d_.data();
    s.rule = rule;
    step(s);
  }
  for (std::size_t i = 0; i < c.size(); ++i) {
    m.d_[i] += c[i];
    if (m.d_[i] != m.d_[i]) m.d_[i] = kCanonicalNaN;
    if (rule.f16_result) m.d_[i] = float(half(double(m.d_[i])));
  }
}

void MatrixCore::multiply_sparse(MatrixOperands& m, Mod a, Mod b, const FusedRule& rule,
                                 MatrixPrecision precision, const std::uint8_t* present, bool sparse_a,
                                 int scale_a, int scale_b) {
  const auto special = [](Mod t, const std::vector<std::uint32_t>& bits, int count) {
    for (int i = 0; i < count; ++i)
      if (decode_element(t, bits[std::size_t(i)]).exponent == kSpecialExponent) return true;
    return false;
  };
  const bool whole =
      sparse_a ? !special(b, m.b_bits_, m.k_ * m.padded_) : !special(a, m.a_bits_, m.rows_ * m.k_);
  if (whole || precision == MatrixPrecision::f32) return multiply(m, a, b, rule, precision, scale_a, scale_b);
  std::vector<float> va, vb;
  std::vector<std::int32_t> ea;
  std::vector<std::int16_t> eb;
  const float sign = scale_a * scale_b < 0 ? -1.0f : 1.0f;
  const int step = rule.widened_fp8 ? m.k_ / 2 : rule.step;
  for (int row = 0; row < m.rows_; ++row)
    for (int column = 0; column < m.columns_; ++column) {
      float& d = m.d(row, column);
      float sum = rule.widened_fp8 ? 0.0f : d;
      for (int first = 0; first < m.k_; first += step) {
        va.clear(), vb.clear(), ea.clear(), eb.clear();
        for (int i = first; i < std::min(first + step, m.k_); ++i) {
          const int k = rule.widened_fp8 ? widened_place(i, m.k_, rule.widened_run) : i;
          if (!present[sparse_a ? row * m.k_ + k : k * m.padded_ + column]) continue;
          const Decoded x = decode_element(a, m.a_bits(row, k)), y = decode_element(b, m.b_bits(k, column));
          va.push_back(sign * x.value), ea.push_back(x.exponent);
          vb.push_back(y.value), eb.push_back(std::int16_t(y.exponent));
        }
        sum = fused_sum(va.data(), ea.data(), vb.data(), eb.data(), 1, int(va.size()), sum, rule);
      }
      if (rule.widened_fp8) {
        sum += d;
        if (sum != sum) sum = kCanonicalNaN;
        if (rule.f16_result) sum = float(half(double(sum)));
      }
      d = sum;
    }
}

void MatrixCore::multiply_int(MatrixOperands& m, Mod a, Mod b, bool saturate) {
  const auto extend = [](Mod t, std::vector<std::uint32_t>& bits, int count) {
    const int unused = 32 - ptx::type_bits(t);
    const bool is_signed = t == Mod::s8 || t == Mod::s4;
    for (int i = 0; i < count; ++i) {
      std::uint32_t& u = bits[std::size_t(i)];
      u = is_signed ? std::uint32_t(std::int32_t(u << unused) >> unused) : u << unused >> unused;
    }
  };
  extend(a, m.a_bits_, m.rows_ * m.k_);
  extend(b, m.b_bits_, m.k_ * m.padded_);
  if (!saturate) {
    (use_avx512() ? product_int_avx512 : product_int_portable)(
        {m.rows_, m.padded_, m.k_, m.a_bits_.data(), m.b_bits_.data(), m.d_int_.data()});
    return;
  }
  for (int row = 0; row < m.rows_; ++row)
    for (int column = 0; column < m.columns_; ++column) {
      std::int64_t sum = m.d_int(row, column);
      for (int k = 0; k < m.k_; ++k)
        sum += std::int64_t(std::int32_t(m.a_bits(row, k))) * std::int32_t(m.b_bits(k, column));
      m.d_int(row, column) = std::int32_t(std::clamp<std::int64_t>(sum, INT32_MIN, INT32_MAX));
    }
}

void MatrixCore::multiply_bits(MatrixOperands& m, BitOperation operation) {
  for (int row = 0; row < m.rows_; ++row)
    for (int column = 0; column < m.columns_; ++column) {
      std::int32_t sum = 0;
      for (int k = 0; k < m.k_; ++k) {
        const std::uint32_t x = m.a_bits(row, k), y = m.b_bits(k, column);
        sum += std::popcount(operation == BitOperation::and_popc ? x & y : x ^ y);
      }
      m.d_int(row, column) = std::int32_t(std::uint32_t(m.d_int(row, column)) + std::uint32_t(sum));
    }
}

namespace {
// One step of the chain. A NaN goes on, made quiet: the B element's before the sum's before the A element's;
// here `a` is the element of B, as the problem is transposed (measured).
double f64_step(std::uint64_t a, std::uint64_t b, double sum) {
  const auto nan = [](std::uint64_t x) { return (x & ~0ull >> 1) > 0x7ff0000000000000ull; };
  const auto s = std::bit_cast<std::uint64_t>(sum);
  const std::uint64_t from = nan(a) ? a : nan(s) ? s : b;
  if (nan(from)) return std::bit_cast<double>(from | 1ull << 51);
  const double r = std::fma(std::bit_cast<double>(a), std::bit_cast<double>(b), sum);
  return r != r ? std::bit_cast<double>(0xfff8000000000000ull) : r;
}
}  // namespace

void MatrixCore::multiply_f64(MatrixOperands& m, Round rounding) {
  constexpr int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
  double (*volatile step)(std::uint64_t, std::uint64_t, double) = f64_step;  // not moved across fesetround
  std::fesetround(modes[int(rounding)]);
  for (int row = 0; row < m.rows_; ++row)
    for (int column = 0; column < m.columns_; ++column) {
      double sum = m.d_f64(row, column);
      for (int k = 0; k < m.k_; ++k) sum = step(m.a_bits64(row, k), m.b_bits64(k, column), sum);
      m.d_f64(row, column) = sum;
    }
  std::fesetround(FE_TONEAREST);
}

}  // namespace cgp::emu
