// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/weight_only/weight_only_layout.h"

#include <algorithm>
#include <cstring>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/weight_only/weight_only_tile.h"

namespace cgp::kernels {
namespace {

constexpr WeightLayout kLayouts[] = {{"q4_0", 4, 32, false, false, 8, 32, 18},
                                     {"q8_0", 8, 32, false, false, 128, 32, 34},
                                     {"q4_k", 4, 32, true, true, 0, 256, 144},
                                     {"q5_k", 5, 32, true, true, 0, 256, 176},
                                     {"q6_k", 6, 16, true, false, 32, 256, 210},
                                     {"int4_g32", 4, 32, false, false, 0, 32, 0, true},
                                     {"int4_g64", 4, 64, false, false, 0, 64, 0, true},
                                     {"int4_g128", 4, 128, false, false, 0, 128, 0, true},
                                     {"nf4", 4, 64, false, false, 0, 64, 36, false, WeightTable::nf4},
                                     {"mxfp4", 4, 32, false, false, 0, 32, 17, false, WeightTable::e2m1},
                                     {"iq4_nl", 4, 32, false, false, 0, 32, 18, false, WeightTable::iq4}};

using Block = WeightBlock;  // of the file, or 256 columns

std::uint16_t u16(const std::uint8_t* p) { return std::uint16_t(p[0] | p[1] << 8); }

void scales_of_k(const std::uint8_t* s, Block& b) {  // 8 scales and minima of 6 bits each in 12 bytes
  for (int i = 0; i < 4; ++i) {
    b.scale[i] = s[i] & 63, b.min[i] = s[i + 4] & 63;
    b.scale[i + 4] = std::uint8_t((s[i + 8] & 15) | s[i] >> 6 << 4);
    b.min[i + 4] = std::uint8_t(s[i + 8] >> 4 | s[i + 4] >> 6 << 4);
  }
}

Block take_apart(WeightFormat f, const std::uint8_t* p) {
  Block b;
  switch (f) {
    case WeightFormat::q4_0:
    case WeightFormat::iq4_nl:
      b.d[0] = u16(p);
      for (int i = 0; i < 16; ++i) b.code[i] = p[2 + i] & 15, b.code[16 + i] = p[2 + i] >> 4;
      break;
    case WeightFormat::q8_0:
      b.d[0] = u16(p);
      for (int i = 0; i < 32; ++i) b.code[i] = std::uint8_t(p[2 + i] ^ 0x80);
      break;
    case WeightFormat::q4_k:
    case WeightFormat::q5_k: {
      const bool five = f == WeightFormat::q5_k;
      const std::uint8_t *high = p + 16, *low = p + (five ? 48 : 16);
      b.d[0] = u16(p), b.dmin = u16(p + 2);
      scales_of_k(p + 4, b);
      for (int s = 0; s < 8; ++s)
        for (int l = 0; l < 32; ++l) {
          const int nibble = low[32 * (s / 2) + l] >> (s % 2 * 4) & 15;
          b.code[32 * s + l] = std::uint8_t(nibble | (five ? (high[l] >> s & 1) << 4 : 0));
        }
      break;
    }
    case WeightFormat::q6_k:
      b.d[0] = u16(p + 208);
      for (int i = 0; i < 16; ++i) b.scale[i] = std::uint8_t(p[192 + i] ^ 0x80);
      for (int h = 0; h < 2; ++h)
        for (int t = 0; t < 4; ++t)
          for (int l = 0; l < 32; ++l) {
            const int nibble = p[64 * h + 32 * (t % 2) + l] >> (t / 2 * 4) & 15;
            b.code[128 * h + 32 * t + l] = std::uint8_t(nibble | (p[128 + 32 * h + l] >> (2 * t) & 3) << 4);
          }
      break;
    case WeightFormat::nf4:
      std::memcpy(b.absmax, p, 4);
      for (int i = 0; i < 64; ++i) b.code[i] = i % 2 ? p[4 + i / 2] & 15 : p[4 + i / 2] >> 4;
      break;
    case WeightFormat::mxfp4:  // half of 2^(p[0] - 127)
      b.d[0] = std::uint16_t(p[0] > 1 ? (p[0] - 1) << 7 : 0x20 << p[0]);
      for (int i = 0; i < 16; ++i) b.code[i] = p[1 + i] & 15, b.code[16 + i] = p[1 + i] >> 4;
      break;
    case WeightFormat::int4_g32:
    case WeightFormat::int4_g64:
    case WeightFormat::int4_g128:
      break;  // in no file
  }
  return b;
}

// 256 columns of a row as one block; columns and rows that are not there have codes and scales that give 0.
Block columns_of(WeightFormat f, const std::uint8_t* row, std::uint64_t k, std::uint64_t first) {
  const auto& l = layout(f);
  Block out;
  for (int i = 0; i < 256; ++i) out.code[i] = std::uint8_t(l.zero);
  for (int i = 0; i < 256 / l.file_block; ++i) {
    const std::uint64_t at = first + std::uint64_t(i * l.file_block);
    if (at >= k) break;
    const auto b = take_apart(f, row + at / std::uint64_t(l.file_block) * std::uint64_t(l.file_bytes));
    if (l.file_block == 256) return b;
    std::copy_n(b.code, l.file_block, out.code + i * l.file_block);
    out.d[i] = b.d[0];
    if (l.wide_scales()) out.absmax[i] = b.absmax[0];
  }
  return out;
}

struct TileWriter {
  const WeightLayout& l;
  std::uint8_t* to;

  void word(std::size_t at, std::uint32_t v) { std::memcpy(to + at, &v, 4); }
  static int column(int c, int i) { return i / 2 * 8 + 2 * c + i % 2; }

  // A code of E2M1 in 16 bits: shifts by 6, 3 and 0 bring sign and number of pairs 0 to 2 to bits 15 and 8 to 6, which are
  // those of bf16; pair 3 has the bits that remain.
  static std::uint32_t e2m1_placed(std::uint32_t q, int pair) {
    const std::uint32_t sign = q >> 3, number = q & 7;
    if (pair < 3) return (sign << 15 | number << 6) >> (6 - 3 * pair);
    return sign << 14 | number >> 1 << 10 | (number & 1) << 13;
  }

  void write(const Block (&rows)[16]) {
    const int words = l.bits == 8 ? 8 : 4;
    for (int step = 0; step < 4; ++step)
      for (int lane = 0; lane < 32; ++lane) {
        std::uint32_t w[8] = {}, high[2] = {};
        for (int j = 0; j < 2; ++j)
          for (int h = 0; h < 2; ++h)
            for (int i = 0; i < 8; ++i) {
              const auto q =
                  std::uint32_t(rows[lane / 4 + 8 * h].code[64 * step + 32 * j + column(lane % 4, i)]);
              const int pair = i / 2, half = i % 2, of = j * 2 + h;
              if (l.bits == 8) {
                // Codes 0 and 1 in bytes 0 and 2, 2 and 3 in bytes 1 and 3: both halves of a register at once.
                w[2 * of + i / 4] |= q << (8 * (i % 2 * 2 + i % 4 / 2));
                continue;
              }
              if (l.table == WeightTable::e2m1) {
                w[of] |= e2m1_placed(q, pair) << (16 * half);
                continue;
              }
              w[of] |= (q & 15) << (l.table != WeightTable::none ? 4 * i : 4 * pair + 16 * half);
              if (l.high_bits()) high[l.high_word(of)] |= (q >> 4) << (l.high_bit(of, pair) + 16 * half);
            }
        const std::size_t at = std::size_t(step) * std::size_t(128 * l.step_words());
        for (int i = 0; i < words; ++i)  // 8 bits: two accesses of 16 bytes
          word(at + std::size_t(i / 4 * 512 + lane * 16 + i % 4 * 4), w[i]);
        for (int b = 0; b < l.high_bits(); ++b)
          word(at + std::size_t(words * 128 + b * 128 + lane * 4), high[b]);
      }
    std::uint8_t* s = to + 4 * 128 * l.step_words();
    const auto put = [&](auto v) { std::memcpy(s, &v, sizeof v), s += sizeof v; };
    if (l.super_scale)
      for (int g = 0; g < 8; ++g)
        for (int h = 0; h < 2; ++h) {
          put(rows[g + 8 * h].d[0]);
          if (l.has_min) put(rows[g + 8 * h].dmin);
        }
    const int groups = l.groups(), unit = l.super_scale && !l.has_min ? 2 : 4,
              each = std::min(groups, l.wide_scales() ? 2 : 16 / unit);
    for (int first = 0; first < groups; first += each)
      for (int g = 0; g < 8; ++g)
        for (int i = first; i < first + each; ++i)
          for (int h = 0; h < 2; ++h) {
            const auto& r = rows[g + 8 * h];
            if (l.wide_scales()) {
              put(r.absmax[i]);
              continue;
            }
            if (!l.super_scale) {
              put(r.d[i]);
              continue;
            }
            *s++ = r.scale[i];
            if (l.has_min) *s++ = r.min[i];
          }
    for (int g = 0; l.has_zeros && g < 8; ++g)
      for (int i = 0; i < groups; ++i)
        for (int h = 0; h < 2; ++h) *s++ = rows[g + 8 * h].zero[i];
  }
};

std::uint64_t tiles_of(std::uint64_t n, std::uint64_t k) { return (n + 31) / 32 * 2 * ((k + 255) / 256); }

void require_fits(WeightFormat f, std::uint64_t n, std::uint64_t k, std::size_t bytes) {
  const auto& l = layout(f);
  if (!l.file_bytes) throw ArgumentError(text::cat("weights of ", l.name, " have no blocks in a file"));
  if (k % std::uint64_t(l.file_block))
    throw ArgumentError(text::cat("weights of ", l.name, ": k = ", k, " is no multiple of ", l.file_block));
  const std::uint64_t need = n * (k / std::uint64_t(l.file_block)) * std::uint64_t(l.file_bytes);
  if (bytes != need)
    throw ArgumentError(
        text::cat("weights of ", l.name, " [", n, ", ", k, "] have ", need, " bytes, not ", bytes));
}

}  // namespace

const WeightLayout& layout(WeightFormat f) { return kLayouts[int(f)]; }

std::uint64_t packed_bytes(WeightFormat f, std::uint64_t n, std::uint64_t k) {
  return tiles_of(n, k) * std::uint64_t(layout(f).tile_bytes());
}

void pack_weights(WeightFormat f, std::uint64_t n, std::uint64_t k, std::span<const std::byte> file,
                  std::span<std::byte> packed) {
  require_fits(f, n, k, file.size());
  const auto& l = layout(f);
  const std::uint64_t row_bytes = k / std::uint64_t(l.file_block) * std::uint64_t(l.file_bytes);
  const auto* from = reinterpret_cast<const std::uint8_t*>(file.data());
  pack_tiles(f, n, k, packed, [&](std::uint64_t row, std::uint64_t first) {
    return columns_of(f, from + row * row_bytes, k, first);
  });
}

void pack_tiles(WeightFormat f, std::uint64_t n, std::uint64_t k, std::span<std::byte> packed,
                const std::function<WeightBlock(std::uint64_t row, std::uint64_t first)>& columns) {
  if (packed.size() != packed_bytes(f, n, k))
    throw ArgumentError(
        text::cat("packed weights have ", packed_bytes(f, n, k), " bytes, not ", packed.size()));
  const auto& l = layout(f);
  auto* to = reinterpret_cast<std::uint8_t*>(packed.data());
  std::fill(to, to + packed.size(), std::uint8_t(0));
  for (std::uint64_t n0 = 0; n0 < (n + 31) / 32 * 32; n0 += 16)
    for (std::uint64_t k0 = 0; k0 < k; k0 += 256, to += l.tile_bytes()) {
      Block rows[16];
      for (std::uint64_t r = 0; r < 16; ++r)
        if (n0 + r < n) rows[r] = columns(n0 + r, k0);
      TileWriter{l, to}.write(rows);
    }
}

}  // namespace cgp::kernels
