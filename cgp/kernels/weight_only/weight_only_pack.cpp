// SPDX-License-Identifier: Apache-2.0
// A warp packs a tile. A lane builds the words that it feeds to mma later: two neighbouring codes of the file are one access
// of 16 bits, which is what blocks of every format are aligned to, and the two halves of a word.
#include "cgp/kernels/weight_only/weight_only_pack.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/core/kernel_params.h"
#include "cgp/dsl/kernel.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr std::uint32_t kWarps = 4;

template <template <class> class V>
struct WeightPackParams {
  V<u64> file, up, packed, row_bytes;
  V<u32> n, k, k_tiles, tiles;
};

class TilePacker {
 public:
  TilePacker(Kernel& k, Warp& warp, const WeightLayout& l, const WeightPackParams<Val>& p,
             const Val<u32>& tile)
      : k_(k),
        l_(l),
        p_(p),
        lane_(warp.lane()),
        y_(tile / p.k_tiles),
        x_(tile - y_ * p.k_tiles),
        to_(p.packed + to<u64>(tile) * std::uint64_t(l.tile_bytes())) {
    for (std::uint32_t h = 0; h < 2; ++h) rows_.push_back(row(lane_ / 4u, Val<u32>(k_.copy(Val<u32>(h)))));
  }

  void run() {
    for (int step = 0; step < 4; ++step) codes(step);
    if (l_.super_scale) super_scales();
    scales();
  }

 private:
  struct Row {
    Val<u64> at;  ///< its blocks of this tile
    Val<pred> there;
  };
  std::uint64_t blocks() const { return std::uint64_t(256 / l_.file_block); }
  Row row(const Val<u32>& g, const Val<u32>& h) {
    const Val<pred> two = p_.up != 0u;
    const auto i = select(two, y_ * 8u + g, y_ * 16u + g + h * 8u);
    const auto from = select(two & (h != 0u), p_.up, p_.file);
    return {from + to<u64>(i) * p_.row_bytes + to<u64>(x_) * (blocks() * std::uint64_t(l_.file_bytes)),
            y_ * 16u + g + h * 8u < p_.n};
  }
  /// Two bytes as the lower halves of a register's halves.
  Val<b32> two_bytes(const Row& r, const Val<u32>& at, const Val<pred>& there) {
    const auto v = In<u16>(r.at + to<u64>(at), 0, true).ld_if(there, 0, Val<u16>(0))[0];
    return prmt(bits<b32>(to<u32>(v)), Val<b32>(0u), Val<u32>(0x4140u));
  }
  static Val<b32> shifted(const Val<b32>& v, int left) {
    return left > 0   ? shl(v, Val<u32>(std::uint32_t(left)))
           : left < 0 ? shr(v, Val<u32>(std::uint32_t(-left)))
                      : v;
  }
  static void add(std::vector<Val<b32>>& word, const Val<b32>& v) {
    word.push_back(word.empty() ? v : word.back() | v);
  }
  void store(int at, const std::vector<std::vector<Val<b32>>>& w, std::size_t first) {
    Out<b32>(to_ + to<u64>(lane_ * 16u), at)
        .st<4>(0, RegGroup<b32, 4>(w[first].back(), w[first + 1].back(), w[first + 2].back(),
                                   w[first + 3].back()));
  }

  void codes(int step) {
    const int words = l_.bits == 8 ? 8 : 4;
    std::vector<std::vector<Val<b32>>> w(static_cast<std::size_t>(words)), high(2);
    for (int j = 0; j < 2; ++j)
      for (int h = 0; h < 2; ++h)
        for (int pair = 0; pair < 4; ++pair) code_pair(step, j, h, pair, w, high);
    const int at = step * 128 * l_.step_words();
    for (int i = 0; i < words; i += 4) store(at + 128 * i, w, std::size_t(i));
    for (int b = 0; b < l_.high_bits(); ++b)
      Out<b32>(to_ + to<u64>(lane_ * 4u), at + words * 128 + b * 128).st(0, high[std::size_t(b)].back());
  }
  /// Columns 64 step + 32 j + 8 pair + 2 (lane % 4) and the next, of row lane / 4 + 8 h.
  void code_pair(int step, int j, int h, int pair, std::vector<std::vector<Val<b32>>>& w,
                 std::vector<std::vector<Val<b32>>>& high) {
    const Row& r = rows_[std::size_t(h)];
    const int of = 2 * j + h, part = 2 * step + j, block = part * l_.file_bytes;
    const auto byte = [&](int at) { return lane_ % 4u * 2u + std::uint32_t(at); };
    const auto number = [](std::uint32_t v) { return Val<b32>(v); };
    if (l_.file_block == 32) {
      const Val<pred> there = r.there & (x_ * 256u + std::uint32_t(32 * part) < p_.k);
      // Columns that are not there have codes of value 0, rows that are not there no codes at all.
      const auto given = [&](const Val<b32>& v, std::uint32_t zero) {
        return select(there, v, select(r.there, number(zero * 0x10001u), number(0)));
      };
      if (l_.bits == 8) {
        const auto v = two_bytes(r, byte(block + 2 + 8 * pair), there) ^ number(0x00800080u);
        add(w[std::size_t(2 * of + pair / 2)], shifted(given(v, 128), 8 * (pair % 2)));
      } else {
        const auto v = two_bytes(r, byte(block + 2 + 8 * (pair % 2)), there);
        const auto nibble = shifted(v, pair < 2 ? 0 : -4) & number(0x000f000fu);
        add(w[std::size_t(of)], shifted(given(nibble, 8), 4 * pair));
      }
      return;
    }
    const bool six = l_.bits == 6;
    const int low_at = six ? 64 * (step / 2) + 32 * j : (l_.bits == 5 ? 48 : 16) + 32 * step,
              low_bit = six ? 4 * (step % 2) : 4 * j;
    const auto low = two_bytes(r, byte(low_at + 8 * pair), r.there);
    add(w[std::size_t(of)], shifted(shifted(low, -low_bit) & number(0x000f000fu), 4 * pair));
    if (!l_.high_bits()) return;
    const int high_at = six ? 128 + 32 * (step / 2) : 16, file_bit = six ? 2 * (2 * (step % 2) + j) : part;
    const auto top = two_bytes(r, byte(high_at + 8 * pair), r.there);
    add(high[std::size_t(l_.high_word(of))],
        shifted(shifted(top, -file_bit) & number(six ? 0x00030003u : 0x00010001u), l_.high_bit(of, pair)));
  }

  int scales_at() const { return 512 * l_.step_words(); }
  Val<u32> half_at(const Row& r, int offset) {
    return to<u32>(In<u16>(r.at, 0, true).ld_if(r.there, offset / 2, Val<u16>(0))[0]);
  }
  /// d, and dmin behind it, of a row a lane.
  void super_scales() {
    k_.if_(lane_ < 16u, [&] {
      const auto r = row(lane_ / 2u, lane_ % 2u);
      const Out<u16> to(to_ + dsl::to<u64>(lane_ * (l_.has_min ? 4u : 2u)), scales_at());
      to.st(0, dsl::to<u16>(half_at(r, l_.bits == 6 ? 208 : 0)));
      if (l_.has_min) to.st(1, dsl::to<u16>(half_at(r, 2)));
    });
  }
  /// Of each group and row, in the order [some groups][g][group][h].
  void scales() {
    const std::uint32_t each = l_.bits == 6 ? 8 : 4;
    const int at = scales_at() + (l_.super_scale ? l_.has_min ? 64 : 32 : 0);
    for (std::uint32_t first = 0; first < std::uint32_t(l_.groups() * 16); first += 32) {
      const auto e = lane_ + first;
      const auto group = e / (16u * each) * each + e / 2u % each;
      const auto r = row(e / (2u * each) % 8u, e % 2u);
      if (!l_.super_scale) {
        const Val<pred> there = r.there & (x_ * 256u + group * 32u < p_.k);
        const auto d = In<u16>(r.at + to<u64>(group * std::uint32_t(l_.file_bytes)), 0, true)
                           .ld_if(there, 0, Val<u16>(0))[0];
        Out<u16>(to_ + to<u64>(e * 2u), at).st(0, d);
        continue;
      }
      const auto byte = [&](const Val<u32>& i) {
        return to<u32>(In<u8>(r.at + to<u64>(i), 0, true).ld_if(r.there, 0, Val<u8>(0))[0]);
      };
      if (!l_.has_min) {
        const auto scale = select(r.there, byte(group + 192u) ^ Val<u32>(0x80u), Val<u32>(0));
        Out<u8>(to_ + to<u64>(e), at).st(0, to<u8>(scale));
        continue;
      }
      // Six bits each: of groups 0 to 3 in a byte, of groups 4 to 7 in half a byte and the top of another.
      const Val<pred> upper = group >= 4u;
      const auto i = group % 4u;
      const auto scale = byte(i + 4u), minimum = byte(i + 8u), both = byte(i + 12u);
      const auto s = select(upper, (both & Val<u32>(15u)) | (scale >> 6u << 4u), scale & Val<u32>(63u));
      const auto m = select(upper, both >> 4u | (minimum >> 6u << 4u), minimum & Val<u32>(63u));
      Out<u16>(to_ + to<u64>(e * 2u), at).st(0, to<u16>(s | m << 8u));
    }
  }

  Kernel& k_;
  const WeightLayout& l_;
  const WeightPackParams<Val>& p_;
  Val<u32> lane_, y_, x_;
  Val<u64> to_;
  std::vector<Row> rows_;
};

void weight_pack_kernel(Kernel& k, WeightPackConfig c, WeightPackParams<Val> p) {
  k.block(int(32 * kWarps));
  auto warp = k.warp();
  const auto tile = k.ctaid_x() * kWarps + warp.index;
  k.if_(tile < p.tiles, [&] { TilePacker(k, warp, layout(c.format), p, tile).run(); });
}

}  // namespace

std::string reject(const WeightPack& p) {
  const auto& l = layout(p.format);
  const bool tensors = p.source != WeightSource::blocks,
             fits = p.source == WeightSource::blocks ? !l.has_zeros
                    : p.source == WeightSource::bnb  ? p.format == WeightFormat::nf4
                                                     : l.has_zeros;
  if (!fits)
    return text::cat("format = ", l.name,
                     tensors ? ": source has other codes" : ": its codes and scales are tensors");
  if (!p.k || p.k % std::uint64_t(l.file_block) || p.k > 0x7fffff00)
    return text::cat("k = ", p.k, " is no multiple of ", l.file_block, " from there to 2^31 - 256");
  if (p.n > 0x7ffffff0) return text::cat("n = ", p.n, ": less than 2^31 - 16 is possible");
  if (p.up && p.n % 16) return text::cat("n = ", p.n, " of a gate and up is no multiple of 16");
  if (packed_bytes(p.format, p.n, p.k) / std::uint64_t(l.tile_bytes()) > 0x7fffffff)
    return "there are 2^31 tiles or more";
  if (p.up && (tensors || l.table != WeightTable::none)) return "up: a gate has blocks without a table";
  if (l.has_zeros && p.n % 8) return text::cat("n = ", p.n, " is no multiple of 8");
  if (tensors && (!p.scales || p.scales % 4 || (l.has_zeros && (!p.zeros || p.zeros % 4))))
    return "scales and zeros must be given and lie at multiples of 4 bytes";
  if (!p.file || p.file % 4 || p.up % 4) return "blocks must be given and lie at multiples of 4 bytes";
  if (!p.packed || p.packed % 16) return "packed must be given and lie at a multiple of 16 bytes";
  return {};
}

Variant weight_pack_variant(const WeightPackConfig& c) {
  if (c.source != WeightSource::blocks || layout(c.format).table != WeightTable::none)
    return weight_pack_tensors_variant(c);
  return variant(c.name(), 75, weight_pack_kernel, c);
}

void pack_weights(runtime::Stream& s, const WeightPack& p) {
  if (auto why = reject(p); !why.empty()) throw ArgumentError(text::cat("pack_weights: ", why));
  if (!p.n) return;
  const auto& l = layout(p.format);
  if (p.source != WeightSource::blocks || l.table != WeightTable::none) return pack_tensors(s, p);
  const std::uint64_t k_tiles = (p.k + 255) / 256, tiles = (p.n + 31) / 32 * 2 * k_tiles;
  const WeightPackParams<HostValue> n{
      .file = p.file,
      .up = p.up,
      .packed = p.packed,
      .row_bytes = p.k / std::uint64_t(l.file_block) * std::uint64_t(l.file_bytes),
      .n = std::uint32_t(p.n),
      .k = std::uint32_t(p.k),
      .k_tiles = std::uint32_t(k_tiles),
      .tiles = std::uint32_t(tiles)};
  load(s.device(), weight_pack_variant({p.format}))(
      s, runtime::Launch{.grid = {std::uint32_t((tiles + kWarps - 1) / kWarps)}}, n);
}

}  // namespace cgp::kernels
