// SPDX-License-Identifier: Apache-2.0
// A warp packs a tile of a format whose codes have 4 bits: lanes fetch each code of their words, wherever it lies.
#include <algorithm>

#include "cgp/dsl/core/kernel_params.h"
#include "cgp/dsl/kernel.h"
#include "cgp/kernels/weight_only/weight_only_pack.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr std::uint32_t kWarps = 4;

template <template <class> class V>
struct TensorPackParams {
  V<u64> codes, scales, zeros, packed;
  V<u32> n, k, k_tiles, tiles, minus_one;
};

class TensorPacker {
 public:
  TensorPacker(Kernel& k, Warp& warp, const WeightPackConfig& c, const TensorPackParams<Val>& p,
               const Val<u32>& tile)
      : k_(k),
        c_(c),
        l_(layout(c.format)),
        p_(p),
        lane_(warp.lane()),
        y_(tile / p.k_tiles),
        x_(tile - y_ * p.k_tiles),
        to_(p.packed + to<u64>(tile) * std::uint64_t(l_.tile_bytes())) {}

  void run() {
    k_.loop(range(Val<u32>(0), Val<u32>(4), Val<u32>(1)), [&](Val<u32> step) { codes(step); });
    scales();
    if (l_.has_zeros) zeros();
  }

 private:
  Val<u32> row(const Val<u32>& g, const Val<u32>& h) const { return y_ * 16u + g + h * 8u; }
  Val<u32> byte(const Val<u64>& base, const Val<u64>& at, const Val<pred>& there) {
    return to<u32>(In<u8>(base + at, 0, true).ld_if(there, 0, Val<u8>(0))[0]);
  }
  Val<u64> block(const Val<u32>& row, const Val<u32>& col) const {
    const auto blocks = to<u64>(row) * to<u64>(p_.k / std::uint32_t(l_.file_block));
    return (blocks + to<u64>(col / std::uint32_t(l_.file_block))) * std::uint64_t(l_.file_bytes);
  }
  static Val<u32> nibble(const Val<u32>& word, const Val<u32>& i) {
    return bits<u32>(shr(bits<b32>(word), i * 4u)) & Val<u32>(15u);
  }
  /// Of output i of eight in a word: AWQ has the even ones first.
  Val<u32> place(const Val<u32>& i) const {
    return c_.source == WeightSource::awq ? i % 2u * 4u + i / 2u : i + 0u;
  }
  Val<u32> code(const Val<u32>& row, const Val<u32>& col, const Val<pred>& there) {
    if (l_.has_zeros) {
      const bool awq = c_.source == WeightSource::awq;
      const auto at = awq ? (to<u64>(col) * to<u64>(p_.n) + to<u64>(row)) / 8u
                          : to<u64>(col / 8u) * to<u64>(p_.n) + to<u64>(row);
      const auto word = In<u32>(p_.codes + at * 4u, 0, true).ld_if(there, 0, Val<u32>(0))[0];
      return nibble(word, awq ? place(row % 8u) : col % 8u);
    }
    if (c_.source == WeightSource::bnb) {
      const auto at = to<u64>(row) * to<u64>(p_.k) + to<u64>(col);
      return nibble(byte(p_.codes, at / 2u, there), Val<u32>(1u) - col % 2u);  // k is even
    }
    if (c_.format == WeightFormat::nf4)
      return nibble(byte(p_.codes, block(row, col) + to<u64>(col % 64u / 2u) + 4u, there),
                    Val<u32>(1u) - col % 2u);
    const std::uint64_t head = std::uint64_t(l_.file_bytes - 16);
    return nibble(byte(p_.codes, block(row, col) + to<u64>(col % 16u) + head, there), col % 32u / 16u);
  }
  /// Code i of eight of a word, in its place (TileWriter).
  Val<b32> placed(const Val<u32>& q, int i) const {
    const int pair = i / 2, half = i % 2;
    const auto at = [&](const Val<u32>& v, int bit) {
      return shl(bits<b32>(v), Val<u32>(std::uint32_t(bit + 16 * half)));
    };
    if (l_.table == WeightTable::none) return at(q, 4 * pair);
    if (l_.looked_up()) return shl(bits<b32>(q), Val<u32>(std::uint32_t(4 * i)));
    const auto sign = q / 8u, number = q & Val<u32>(7u);
    if (pair < 3) return at(sign, 9 + 3 * pair) | at(number, 3 * pair);
    return at(sign, 14) | at(number / 2u, 10) | at(number & Val<u32>(1u), 13);
  }

  void codes(const Val<u32>& step) {
    std::vector<Val<b32>> words;
    for (int j = 0; j < 2; ++j)
      for (std::uint32_t h = 0; h < 2; ++h) {
        const auto r = row(lane_ / 4u, Val<u32>(h));
        std::vector<Val<b32>> word;
        for (int i = 0; i < 8; ++i) {
          const auto col =
              x_ * 256u + step * 64u + lane_ % 4u * 2u + std::uint32_t(32 * j + i / 2 * 8 + i % 2);
          const Val<pred> there = (r < p_.n) & (col < p_.k);
          const auto v = placed(select(there, code(r, col, there), Val<u32>(0)), i);
          word.push_back(word.empty() ? v : word.back() | v);
        }
        words.push_back(word.back());
      }
    Out<b32>(to_ + to<u64>(step * 512u + lane_ * 16u))
        .st<4>(0, RegGroup<b32, 4>(words[0], words[1], words[2], words[3]));
  }

  std::uint64_t scales_at() const { return std::uint64_t(512 * l_.step_words()); }
  /// In the order [some groups][g][group][h].
  void scales() {
    const std::uint32_t groups = std::uint32_t(l_.groups()),
                        each = std::min(groups, l_.wide_scales() ? 2u : 4u);
    for (std::uint32_t first = 0; first < groups * 16; first += 32) {
      const auto e = lane_ + first;
      const auto group = e / (16u * each) * each + e / 2u % each, r = row(e / (2u * each) % 8u, e % 2u);
      const auto col = x_ * 256u + group * std::uint32_t(l_.group);
      const Val<pred> there = (r < p_.n) & (col < p_.k);
      if (l_.wide_scales()) {
        const auto at = c_.source == WeightSource::bnb
                            ? p_.scales + (to<u64>(r) * to<u64>(p_.k / 64u) + to<u64>(col / 64u)) * 4u
                            : p_.codes + block(r, col);
        const auto v = In<u32>(at, 0, true).ld_if(there, 0, Val<u32>(0))[0];
        Out<u32>(to_ + to<u64>(e * 4u) + scales_at()).st(0, v);
        continue;
      }
      const auto of_group = to<u64>(col / std::uint32_t(l_.group)) * to<u64>(p_.n) + to<u64>(r);
      const auto narrow = [&](const Val<u64>& at) {
        return to<u32>(In<u16>(at, 0, true).ld_if(there, 0, Val<u16>(0))[0]);
      };
      const auto d = [&]() -> Val<u32> {
        if (l_.has_zeros) return narrow(p_.scales + of_group * 2u);
        if (c_.format == WeightFormat::iq4_nl) return narrow(p_.codes + block(r, col));
        const auto power = byte(p_.codes, block(r, col), there);  // half of 2^(power - 127), as bf16
        const auto normal = (power - 1u) * 128u, subnormal = select(power == 0u, Val<u32>(32), Val<u32>(64));
        return select(there, select(power > 1u, normal, subnormal), Val<u32>(0));
      }();
      Out<u16>(to_ + to<u64>(e * 2u) + scales_at()).st(0, to<u16>(d));
    }
  }
  /// A byte of each group and row, [g][group][h].
  void zeros() {
    const auto groups = std::uint32_t(l_.groups());
    for (std::uint32_t first = 0; first < groups * 16; first += 32) {
      const auto e = lane_ + first;
      const auto group = e / 2u % groups, r = row(e / (2u * groups), e % 2u);
      const auto col = x_ * 256u + group * std::uint32_t(l_.group);
      const Val<pred> there = (r < p_.n) & (col < p_.k);
      const auto at = (to<u64>(col / std::uint32_t(l_.group)) * to<u64>(p_.n) + to<u64>(r)) / 8u;
      const auto word = In<u32>(p_.zeros + at * 4u, 0, true).ld_if(there, 0, Val<u32>(0))[0];
      const auto zero = nibble(word, place(r % 8u)) + p_.minus_one;
      Out<u8>(to_ + to<u64>(e) + scales_at() + std::uint64_t(32 * groups))
          .st(0, to<u8>(select(there, zero, Val<u32>(0))));
    }
  }

  Kernel& k_;
  const WeightPackConfig& c_;
  const WeightLayout& l_;
  const TensorPackParams<Val>& p_;
  Val<u32> lane_, y_, x_;
  Val<u64> to_;
};

void pack_tensors_kernel(Kernel& k, WeightPackConfig c, TensorPackParams<Val> p) {
  k.block(int(32 * kWarps));
  auto warp = k.warp();
  const auto tile = k.ctaid_x() * kWarps + warp.index;
  k.if_(tile < p.tiles, [&] { TensorPacker(k, warp, c, p, tile).run(); });
}

}  // namespace

Variant weight_pack_tensors_variant(const WeightPackConfig& c) {
  return variant(c.name(), 75, pack_tensors_kernel, c);
}

void pack_tensors(runtime::Stream& s, const WeightPack& p) {
  const std::uint64_t k_tiles = (p.k + 255) / 256, tiles = (p.n + 31) / 32 * 2 * k_tiles;
  const TensorPackParams<HostValue> n{.codes = p.file,
                                      .scales = p.scales,
                                      .zeros = p.zeros,
                                      .packed = p.packed,
                                      .n = std::uint32_t(p.n),
                                      .k = std::uint32_t(p.k),
                                      .k_tiles = std::uint32_t(k_tiles),
                                      .tiles = std::uint32_t(tiles),
                                      .minus_one = std::uint32_t(p.zeros_minus_one)};
  load(s.device(), weight_pack_variant({p.format, p.source}))(
      s, runtime::Launch{.grid = {std::uint32_t((tiles + kWarps - 1) / kWarps)}}, n);
}

}  // namespace cgp::kernels
