// SPDX-License-Identifier: Apache-2.0
#pragma once
// How a lane turns the packed codes and scales of 16 rows of weights (weight_only_layout.h) into fragments of
// mma.m16n8k16 and into f32 scales.
//   codes    an integer q < 128 is or-ed into the mantissa of 128 (bf16), q < 1024 into that of 1024 (f16): exact, one
//            instruction for two. f16 has room for 16 q too, so that every other code needs no shift: an fma takes the 16
//            back, on a pipe that is free. Eight bits in bf16 are two such terms, 128 + (q & 127) and 128 + (q & 128). What that
//            adds, and the zero point, is offset(): the kernel starts each sum at -offset() * sum of x, times what zero_factor()
//            says where each group has a zero point of its own. With a table a code names one of 16 numbers of the type
//   E2M1     lies in the word so that a shift brings sign, exponent and mantissa of two codes to those of the type, whose
//            exponents a product with a power of two corrects: exact, with subnormal numbers
//   tables   of pairs of codes lie in shared memory, 256 words for each lane of a warp (PairTable), where there is room:
//            no two lanes meet in a bank. Else prmt looks numbers up
#include <optional>
#include <vector>

#include "cgp/base/float16.h"
#include "cgp/dsl/kernel.h"
#include "cgp/dsl/memory/tile.h"
#include "cgp/dsl/mma/mma.h"
#include "cgp/kernels/weight_only/weight_only_layout.h"
#include "cgp/quant/blocks.h"

namespace cgp::kernels::weight_only_impl {

using namespace dsl;

/// Two bytes 2^n + z of the type, z a byte of w below 2^n.
template <class T>
Val<b32> pair_of_byte(const Val<b32>& w, int byte) {
  const Val<b32> power(std::is_same_v<T, f16> ? 0x64646464u : 0x43434343u);
  return prmt(w, power, Val<u32>(0x4040u | std::uint32_t(byte) * 0x101u));
}
/// An unsigned byte of w, less `bias`, exact.
inline Val<f32> byte_to_float(const Val<b32>& w, int byte, float bias) {
  return bits<f32>(prmt(w, Val<b32>(0x4b000000u), Val<u32>(0x7440u | std::uint32_t(byte)))) -
         (8388608.0f + bias);
}
inline Val<f32> half_to_float(const Val<b32>& w, int which) { return to<f32>(unpack<f16>(w)[which]); }

/// A byte of each of four numbers of a table, from number `first` on.
template <class T>
Val<b32> table_word(WeightTable table, int first, int byte) {
  std::uint32_t w = 0;
  for (int i = 0; i < 4; ++i) {
    const float v = table == WeightTable::nf4    ? quant::kNf4[first + i]
                    : table == WeightTable::e2m1 ? float(quant::kE2m1Doubled[first + i])
                                                 : float(quant::kIq4[first + i]);
    const std::uint32_t number = std::is_same_v<T, f16> ? cgp::half(v).bits : cgp::bfloat16(v).bits;
    w |= (number >> (8 * byte) & 255u) << (8 * i);
  }
  return Val<b32>(w);
}
/// The numbers of the four codes in the lowest 16 bits: a prmt looks up a byte of eight numbers, another one chooses among
/// them and the other eight.
template <class T>
std::vector<Val<b32>> numbers_of(WeightTable table, const Val<b32>& codes) {
  const auto low = codes & Val<b32>(0x7777u),
             which = (shr(codes, Val<u32>(1)) & Val<b32>(0x4444u)) | Val<b32>(0x3210u);
  std::vector<Val<b32>> bytes;
  for (int byte = 0; byte < 2; ++byte) {
    std::vector<Val<b32>> eight;
    for (int first : {0, 8})
      eight.push_back(
          prmt(table_word<T>(table, first, byte), table_word<T>(table, first + 4, byte), bits<u32>(low)));
    bytes.push_back(prmt(eight[0], eight[1], bits<u32>(which)));
  }
  return {prmt(bytes[0], bytes[1], Val<u32>(0x5140u)), prmt(bytes[0], bytes[1], Val<u32>(0x7362u))};
}

/// The numbers of two codes, as a byte has them, for each lane of a warp: word e of lane l at 128 e + 4 l.
class PairTable {
 public:
  static constexpr int kBytes = 256 * 128;
  PairTable(Kernel& k, const Val<u32>& lane)
      : at_(k.shared<b32>(kBytes / 4, 128).address()), of_lane_(bits<b32>(lane * 4u)), lane_(lane) {}
  /// By threads `thread` of `threads` of a block, whole warps; a barrier must follow.
  template <class T>
  void fill(Kernel& k, WeightTable table, const Val<u32>& thread, std::uint32_t threads) const {
    k.loop(range(thread, Val<u32>(256u), Val<u32>(threads)), [&](Val<u32> e) {
      const auto both = numbers_of<T>(table, bits<b32>(e))[0];
      const RegGroup<b32, 4> four(both, both, both, both);
      for (std::uint32_t i = 0; i < 8; ++i)  // eight lanes meet all banks
        Ptr<shared, b32>(at_ + e * 128u + remainder(lane_ + i, 8) * 16u).template st<4>(0, four);
    });
  }
  /// Of byte `byte` of w.
  Val<b32> look_up(const Val<b32>& w, int byte) const {
    const int right = 8 * byte - 7;
    const auto at = lop3<0xea>(right < 0 ? shl(w, Val<u32>(7u)) : shr(w, Val<u32>(std::uint32_t(right))),
                               Val<b32>(0x7f80u), of_lane_);
    return Ptr<shared, b32>(at_ + bits<u32>(at)).ld();
  }

 private:
  Val<u32> at_;
  Val<b32> of_lane_;  ///< no bits of an entry's offset: one instruction makes both the word's place
  Val<u32> lane_;
};

template <class T>
class WeightTile {
 public:
  static constexpr bool kHalf = std::is_same_v<T, f16>;
  using Pair = std::conditional_t<kHalf, f16x2, bf16x2>;
  /// `base`: the tile in shared memory.
  WeightTile(const WeightLayout& l, const Val<u32>& base, const Val<u32>& lane,
             const std::optional<PairTable>& pairs = {})
      : l_(l), base_(base), lane_(lane), row_(divided(lane, 4)), pairs_(pairs) {
    if (!l_.super_scale) return;
    const Ptr<shared, b32> rows(base_ + row_ * (l_.has_min ? 8u : 4u));
    for (int h = 0; h < 2; ++h) {
      const auto w = rows.at(4 * step_words() + (l_.has_min ? h : 0)).ld();
      d_words_.push_back(w);
      d_.push_back(half_to_float(w, l_.has_min ? 0 : h));
      if (l_.has_min) dmin_.push_back(half_to_float(w, 1));
    }
  }

  static float offset(const WeightLayout& l) {
    if (l.table != WeightTable::none) return 0;
    const float added = kHalf ? 1024.f : l.bits == 8 ? 256.f : 128.f;
    return added + float(l.zero);
  }
  const std::vector<Val<f32>>& dmin() const { return dmin_; }  ///< of the lane's two rows, g and g + 8

  /// Loads the codes of a step of 64 columns; with steps that begin loaded_columns() their scales and zeros. The step before
  /// has been loaded.
  void load(int step) {
    load_codes(step);
    const int columns = l_.loaded_columns(),
              words = l_.super_scale || l_.wide_scales() ? 4 : columns / l_.group;
    if (step * 64 % columns) return;
    scales_ = row_words(scales_at() + step * 64 / columns * 32, 4 * words, words);
    if (l_.has_zeros) zeros_ = row_words(zeros_at() + step * 64 / columns * 2, 2 * l_.groups(), words / 2);
  }
  void load_codes(int step) {
    const Ptr<shared, b32> lanes(base_ + lane_ * 16u), one(base_ + lane_ * 4u);
    low_.clear(), high_.clear();
    for (int i = 0; i < words() / 4; ++i)
      for (const auto& v : lanes.at(step * step_words() + i * 128).template ld<4>()) low_.push_back(v);
    for (int b = 0; b < l_.high_bits(); ++b)
      high_.push_back(one.at(step * step_words() + words() * 32 + b * 32).ld());
    step_ = step;
  }

  /// The terms of columns 32 j + 16 half ... of the step: fragments whose sum is q + offset() - zero.
  std::vector<FragA<T, 16, 16>> codes(int j, int half) const {
    std::vector<FragA<T, 16, 16>> out;
    const auto top = floats(2 * j, half), bottom = floats(2 * j + 1, half);
    for (std::size_t t = 0; t < top.size(); t += 2)
      out.push_back(FragA<T, 16, 16>({top[t], bottom[t], top[t + 1], bottom[t + 1]}));
    return out;
  }

  /// The scale of a group of the step (number in the step) in row g + 8 h.
  Val<f32> scale(int group, int h) const {
    if (l_.wide_scales()) return bits<f32>(scales_[std::size_t(2 * loaded_group(group) + h)]);
    if (!l_.super_scale) return narrow_scale(scales_[std::size_t(loaded_group(group))], h);
    return integer_scale(group, h) * d_[std::size_t(h)];
  }
  /// The same without d; formats with a d of their own for 256 columns.
  Val<f32> integer_scale(int group, int h) const {
    const int of_pair = loaded_group(group);
    if (l_.has_min) return byte_to_float(scales_[std::size_t(of_pair)], 2 * h, 0);
    return byte_to_float(scales_[std::size_t(of_pair / 2)], of_pair % 2 * 2 + h, 128);
  }
  /// What the zero of a group of the step multiplies offset() by, in row g + 8 h: 1 + zero / offset(), exact.
  Val<f32> zero_factor(int group, int h) const {
    const int i = loaded_group(group);
    return zero_factor_of(zeros_[std::size_t(i / 2)], i % 2 * 2 + h);
  }
  /// f16, whose factors are made without f32: of a group of the step in row g + 8 h the scale, twice in a register, and the
  /// negated minimum, where there is one. Rounded once, as scale() and minimum() would be.
  bool has_half_factors() const {
    return kHalf && (l_.super_scale || (!l_.wide_scales() && l_.table != WeightTable::e2m1));
  }
  std::vector<Val<f16x2>> half_factors(int group, int h) const {
    const auto twice = [](const Val<f16x2>& v, int which) {
      const auto part = unpack<f16>(v)[which];
      return pack<f16x2>(part, part);
    };
    const int i = loaded_group(group);
    if (!l_.super_scale) return {twice(bits<f16x2>(scales_[std::size_t(i)]), h)};
    const Val<b32> power(0x64646464u);  // 1024 + a byte
    const auto number = [](std::uint32_t bits) { return dsl::bits<f16x2>(Val<b32>(bits * 0x10001u)); };
    if (!l_.has_min) {
      const auto scales =
          prmt(scales_[std::size_t(i / 2)], power, Val<u32>(i % 2 ? 0x4342u : 0x4140u));  // of rows g, g + 8
      return {twice((bits<f16x2>(scales) - number(0x6480)) * bits<f16x2>(d_words_[0]), h)};
    }
    const auto both = prmt(scales_[std::size_t(i)], power, Val<u32>(h ? 0x4342u : 0x4140u));
    const auto scaled =
        (bits<f16x2>(both) - number(0x6400)) * bits<f16x2>(d_words_[std::size_t(h)] ^ Val<b32>(0x80000000u));
    return {twice(scaled, 0), twice(scaled, 1)};
  }
  /// Scales, minima and zero_factor() of columns 64 c and 64 c + 32 (16 columns a group: of the four groups) of rows g and
  /// g + 8, without d and dmin.
  struct QuadScales {
    std::vector<Val<f32>> scale, minimum, zero_factor;  ///< [h][32 columns or group]
  };
  QuadScales quad_scales(const Val<u32>& quad) const {
    if (l_.has_zeros) return quad_scales_and_zeros(quad);
    const Ptr<shared, b32> here(base_ + row_ * 16u + divided(quad, 2) * 128u + remainder(quad, 2) * 8u);
    const auto w = here.at(scales_at()).template ld<2>();
    QuadScales s;
    for (int h = 0; h < 2; ++h)
      for (int i = 0; i < (l_.group == 16 ? 4 : 2); ++i) {
        if (l_.wide_scales())
          s.scale.push_back(bits<f32>(w[h]));
        else if (!l_.super_scale)
          s.scale.push_back(narrow_scale(w[i], h));
        else if (l_.has_min)
          s.scale.push_back(byte_to_float(w[i], 2 * h, 0)),
              s.minimum.push_back(byte_to_float(w[i], 2 * h + 1, 0));
        else
          s.scale.push_back(byte_to_float(w[i / 2], i % 2 * 2 + h, 128));
      }
    return s;
  }
  const std::vector<Val<f32>>& d() const { return d_; }  ///< as dmin()
  /// What row g + 8 h subtracts in a group of the step; formats that have minima.
  Val<f32> minimum(int group, int h) const {
    return byte_to_float(scales_[std::size_t(loaded_group(group))], 2 * h + 1, 0) * dmin_[std::size_t(h)];
  }
  /// q - zero (exact; of a table, its number) of columns 32 j + 16 half ... of the step in row g + 8 h: two registers.
  std::vector<Val<Pair>> integers(int j, int h, int half) const {
    std::vector<Val<Pair>> out;
    if (l_.bits == 8 && !kHalf) {
      // 128 + (q & 127), less 128 or, where bit 7 is not set, 256.
      const auto& w = low_[std::size_t(2 * (2 * j + h) + half)];
      for (const auto& v : {w, shr(w, Val<u32>(8))})
        out.push_back(bits<Pair>(lop3<0xea>(v, Val<b32>(0x007f007fu), Val<b32>(0x43004300u))) -
                      bits<Pair>(lop3<0x6a>(v, Val<b32>(0x00800080u), Val<b32>(0x43804380u))));
      return out;
    }
    if (l_.table != WeightTable::none) {
      for (const auto& v : floats(2 * j + h, half)) out.push_back(bits<Pair>(v));
      return out;
    }
    const int i = loaded_group(32 * j / l_.group);
    const Val<b32> zero = l_.has_zeros
                              ? pair_of_byte<T>(zeros_[std::size_t(i / 2)], i % 2 * 2 + h)
                              : Val<b32>(((kHalf ? 0x6400u : 0x4300u) + std::uint32_t(l_.zero)) * 0x10001u);
    if (kHalf && l_.bits < 8) {
      const auto all = shifted(2 * j + h, half);
      out.push_back(bits<Pair>(all[0]) - bits<Pair>(zero));
      const Val<Pair> less = l_.has_zeros
                                 ? bits<Pair>(Val<b32>(k960)) - bits<Pair>(zero)
                                 : bits<Pair>(Val<b32>(cgp::half(float(-64 - l_.zero)).bits * 0x10001u));
      out.push_back(fma(bits<Pair>(all[1]), bits<Pair>(Val<b32>(kSixteenth)), less));
      return out;
    }
    for (const auto& v : floats(2 * j + h, half)) out.push_back(bits<Pair>(v) - bits<Pair>(zero));
    return out;
  }
  /// [16 rows, 8 groups] of minima, without dmin: groups lane % 4 and lane % 4 + 4.
  FragA<tf32, 16, 8> minima() const {
    std::vector<Value> out;
    const Ptr<shared, b32> four(base_ + lane_ * 4u);
    for (int i = 0; i < 2; ++i) {
      const auto w = four.at(scales_at() + 32 * i).ld();
      for (int h = 0; h < 2; ++h) out.push_back(bits<b32>(byte_to_float(w, 2 * h + 1, 0)));
    }
    return FragA<tf32, 16, 8>({out[0], out[1], out[2], out[3]});
  }

 private:
  int words() const { return l_.bits == 8 ? 8 : 4; }
  int step_words() const { return 32 * l_.step_words(); }
  int scales_at() const { return 4 * step_words() + (l_.super_scale ? l_.has_min ? 16 : 8 : 0); }
  int zeros_at() const { return scales_at() + 8 * l_.groups(); }
  /// Of the groups whose scales are loaded, the number of a group of the step.
  int loaded_group(int group) const { return step_ * 64 % l_.loaded_columns() / l_.group + group; }
  /// 1, 2 or 4 words of the lane's rows, which have `bytes` each.
  std::vector<Val<b32>> row_words(int at, int bytes, int words) const {
    const auto from = Ptr<shared, b32>(base_ + row_ * std::uint32_t(bytes)).at(at);
    std::vector<Val<b32>> out;
    if (words == 4)
      for (const auto& v : from.template ld<4>()) out.push_back(v);
    else if (words == 2)
      for (const auto& v : from.template ld<2>()) out.push_back(v);
    else
      out.push_back(from.ld());
    return out;
  }
  /// One of the two scales of 16 bits in a word.
  Val<f32> narrow_scale(const Val<b32>& w, int h) const {
    if (l_.table != WeightTable::e2m1) return half_to_float(w, h);
    return bits<f32>(h ? w & Val<b32>(0xffff0000u) : shl(w, Val<u32>(16)));
  }
  Val<f32> zero_factor_of(const Val<b32>& w, int byte) const {
    const float added = offset(l_);
    return fma(bits<f32>(prmt(w, Val<b32>(0x4b000000u), Val<u32>(0x7440u | std::uint32_t(byte)))),
               Val<f32>(1 / added), Val<f32>(1 - 8388608.0f / added));
  }
  QuadScales quad_scales_and_zeros(const Val<u32>& quad) const {
    // A group has 1, 2 or 4 of the eight parts of 32 columns; the lane has parts 2 quad and 2 quad + 1.
    const int wide = l_.group / 32, each = wide == 1 ? 2 : 1;
    const auto group = wide == 1 ? quad * 2u : wide == 2 ? quad : divided(quad, 2);
    const auto row = base_ + std::uint32_t(4 * scales_at());
    std::vector<Val<b32>> d, z;
    if (wide == 1) {
      const Ptr<shared, b32> here(row + row_ * 16u + divided(quad, 2) * 128u + remainder(quad, 2) * 8u);
      for (const auto& v : here.template ld<2>()) d.push_back(v);
    } else {
      d.push_back(Ptr<shared, b32>(row + row_ * std::uint32_t(4 * l_.groups()) + group * 4u).ld());
    }
    const auto zeros = base_ + std::uint32_t(4 * zeros_at()) + row_ * std::uint32_t(2 * l_.groups());
    z.push_back(Ptr<shared, b32>(zeros + divided(group, 2) * 4u).ld());
    if (wide > 1) z.push_back(shr(z.back(), remainder(group, 2) * 16u));
    QuadScales s;
    for (int h = 0; h < 2; ++h)
      for (int i = 0; i < 2; ++i) {
        const int g = i % each;
        s.scale.push_back(half_to_float(d[std::size_t(g)], h));
        s.zero_factor.push_back(zero_factor_of(z.back(), g * 2 + h));
      }
    return s;
  }

  // Four codes of half a row's 32 columns: two registers a term.
  std::vector<Val<b32>> floats(int of, int half) const {
    std::vector<Val<b32>> out;
    if (l_.bits == 8) {
      const auto& w = low_[std::size_t(2 * of + half)];
      if (kHalf)
        return {prmt(w, Val<b32>(0x64646464u), Val<u32>(0x4240u)),
                prmt(w, Val<b32>(0x64646464u), Val<u32>(0x4341u))};
      const auto odd = shr(w, Val<u32>(8));
      const Val<b32> one28(0x43004300u);
      for (const std::uint32_t mask : {0x007f007fu, 0x00800080u})
        for (const auto& v : {w, odd}) out.push_back(lop3<0xea>(v, Val<b32>(mask), one28));
      return out;
    }
    const auto& w = low_[std::size_t(of)];
    if (l_.table == WeightTable::e2m1) return {of_e2m1(w, 2 * half), of_e2m1(w, 2 * half + 1)};
    if (l_.table != WeightTable::none && pairs_)
      return {pairs_->look_up(w, 2 * half), pairs_->look_up(w, 2 * half + 1)};
    if (l_.table != WeightTable::none) return numbers_of<T>(l_.table, half ? shr(w, Val<u32>(16)) : w);
    if (kHalf) {
      const auto all = shifted(of, half);
      return {all[0], bits<b32>(fma(bits<Pair>(all[1]), bits<Pair>(Val<b32>(kSixteenth)),
                                    bits<Pair>(Val<b32>(k960))))};
    }
    for (int pair = 2 * half; pair < 2 * half + 2; ++pair)
      out.push_back(code(pair ? shr(w, Val<u32>(std::uint32_t(4 * pair))) : w, of, pair, 0));
    return out;
  }
  static constexpr std::uint32_t kSixteenth = 0x2c002c00u, k960 = 0x63806380u;  // two f16
  /// f16, fewer than 8 bits: 1024 + q of the first register of floats(), 1024 + 16 q of the second.
  std::vector<Val<b32>> shifted(int of, int half) const {
    const auto& w = low_[std::size_t(of)];
    const auto v = half ? shr(w, Val<u32>(8)) : w;
    return {code(v, of, 2 * half, 0), code(v, of, 2 * half + 1, 4)};
  }
  /// Two codes whose low four bits lie in v from bit `at` on, or-ed into a power of two there.
  Val<b32> code(const Val<b32>& v, int of, int pair, int at) const {
    const auto low = lop3<0xea>(v, Val<b32>(0x000f000fu << at), Val<b32>(kHalf ? 0x64006400u : 0x43004300u));
    if (!l_.high_bits()) return low;
    const auto& bits = high_[std::size_t(l_.high_word(of))];
    const int from = l_.high_bit(of, pair), to = at + 4;  // bit in `bits`, bit of the code
    const auto moved = from == to  ? bits
                       : from > to ? shr(bits, Val<u32>(std::uint32_t(from - to)))
                                   : shl(bits, Val<u32>(std::uint32_t(to - from)));
    return lop3<0xea>(moved, Val<b32>((l_.high_bits() == 2 ? 0x00030003u : 0x00010001u) << to), low);
  }

  // Two codes of E2M1 as TileWriter places them: sign, exponent and mantissa where the type has its own, times a power of two.
  Val<b32> of_e2m1(const Val<b32>& w, int pair) const {
    const auto moved = [&](int left) {
      return left > 0   ? shl(w, Val<u32>(std::uint32_t(left)))
             : left < 0 ? shr(w, Val<u32>(std::uint32_t(-left)))
                        : w;
    };
    const auto mask = [](std::uint32_t v) { return Val<b32>(v * 0x10001u); };
    std::vector<Val<b32>> v;
    const auto add = [&](int left, std::uint32_t bits) {
      v.push_back(v.empty() ? moved(left) & mask(bits) : lop3<0xea>(moved(left), mask(bits), v.back()));
    };
    const int left = 6 - 3 * pair;  // of pairs 0, 1 and 2
    if (pair == 3)
      add(1, 0x8000u), add(kHalf ? 0 : -3, kHalf ? 0x0c00u : 0x0180u),
          add(kHalf ? -4 : -7, kHalf ? 0x0200u : 0x0040u);
    else if (kHalf)
      add(left, 0x8000u), add(left + 3, 0x0e00u);
    else
      add(left, 0x81c0u);
    const Val<b32> power(kHalf ? 0x78007800u : 0x7f007f00u);  // 2^15, 2^127: twice the number
    if (!kHalf && base_.kernel()->sm() < 90)                  // mul.bf16x2 is of sm_90
      return bits<b32>(fma(bits<Pair>(v.back()), bits<Pair>(power), bits<Pair>(mask(0x8000u))));
    return bits<b32>(bits<Pair>(v.back()) * bits<Pair>(power));
  }

  const WeightLayout& l_;
  Val<u32> base_, lane_, row_;
  std::vector<Val<f32>> d_, dmin_;
  std::vector<Val<b32>> d_words_, low_, high_, scales_, zeros_;
  std::optional<PairTable> pairs_;
  int step_ = 0;
};

}  // namespace cgp::kernels::weight_only_impl
