// SPDX-License-Identifier: Apache-2.0
// weight_only, 1 to 16 rows of x, persistent: every byte of the weights once, x once a block.
//   who      one block an SM walks over tiles of 16 columns of y; its warps share K: warp w has the tiles of 256 columns
//            of K number w, w + warps, ...
//   memory   each warp copies its tiles ahead into a ring of its own by cp.async, in the order of the fragments
//            (weight_only_layout.h); x lies in shared memory in the order of the fragments, with the sums of x over each
//            group
//   codes    become floats by bits: an integer q < 128 in the mantissa of 128 (bf16) or of 1024 (f16). What that adds is
//            taken off together with zero points and minima, as a product of its own: [16, groups] times the sums of x
//            over the groups, in tf32; the sums are split in two tf32 terms, scales are tf32 as they are
//   sync     one barrier a tile of y, where the sums of the warps are added in the order of the warps
//   needs    sm_90: shared memory for x
#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/core/kernel_params.h"
#include "cgp/dsl/mma/mma.h"
#include "cgp/dsl/pipeline/async.h"
#include "cgp/kernels/weight_only/weight_only.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr int kSmem = 227 * 1024;  // of a block on sm_90

template <template <class> class V>
struct WeightOnlyParams {
  V<u64> x, ldx, w, y, ldy;
  V<u32> m, n, k;
  V<u32> tiles;  ///< of 16 columns of y
};

/// Where the next copy comes from, and into which slot.
struct Cursor {
  Val<u64> from;
  Val<u32> step, left, slot;
  static auto carried() { return std::tuple(&Cursor::from, &Cursor::step, &Cursor::left, &Cursor::slot); }
};

/// Element i of the result is f(i, element i), a new register each.
template <class Sum, class F>
Sum map_elements(const Sum& sum, F&& f) {
  std::vector<Value> out;
  for (int i = 0; i < Sum::count; ++i) out.push_back(f(i, sum[i]));
  return Sum(AccRegs(std::move(out)));
}

template <class T, int N>
class Product {
 public:
  using Words = RegGroup<b32, 4>;
  using Sum = WarpAcc<f32, 16, N>;
  static constexpr bool kHalf = std::is_same_v<T, f16>;

  Product(Kernel& k, const WeightOnlyConfig& b, const WeightOnlyParams<Val>& p)
      : k_(k),
        b_(b),
        l_(layout(b.format)),
        p_(p),
        warp_(k.warp()),
        lane_(warp_.lane()),
        group_(lane_ / 4u),
        quad_(lane_ % 4u),
        ring_(k.shared<b32>(b.warps * b.slots * l_.tile_bytes() / 4, 128)),
        x_(k.shared<b32>(b.k_tiles * 128 * b.rows, 128)),
        sums_(k.shared<f32>(std::max(1, b.k_tiles * tile_sums()), 128)),
        partial_(k.shared<f32>(2 * b.warps * 16 * N, 128)),
        slot0_(ring_.base() + std::uint32_t(ring_.offset()) +
               warp_.index * std::uint32_t(b.slots * l_.tile_bytes())) {}

  void run() {
    // Tiles of y in rounds: a round of the grid is one tile for each `share` warps. Neighbours in number are on
    // different SMs, so that all have the same number of them, or one less.
    const auto at = k_.ctaid_x() + k_.nctaid_x() * (warp_.index / std::uint32_t(b_.share));
    const auto stride = k_.nctaid_x() * std::uint32_t(b_.warps / b_.share);
    const auto rounds = (p_.tiles + stride - 1u) / stride;
    const auto mine =
        select(at < p_.tiles, (p_.tiles - dsl::min(at, p_.tiles) + stride - 1u) / stride, Val<u32>(0));
    const auto zero = lane_ - lane_;
    Cursor c{p_.w + (to<u64>(at) * std::uint64_t(b_.k_tiles) + to<u64>(part())) * tile_bytes(), zero,
             mine * std::uint32_t(steps()), zero};
    across_.push_back(to<u64>(stride) * (std::uint64_t(b_.k_tiles) * tile_bytes()) -
                      std::uint64_t(steps() - 1) * std::uint64_t(b_.share) * tile_bytes());
    std::vector<Cursor> ahead{c};
    for (int i = 0; i + 1 < b_.slots; ++i) ahead.push_back(copy(ahead.back()));
    stage_x();
    k_.sync();
    using State = std::pair<Cursor, Val<u32>>;  // the copies, and the slot that is read
    k_.loop(rounds, std::pair(State(ahead.back(), zero), zero),
            [&](Val<u32> round, std::pair<State, Val<u32>> s) {
              const auto tile = at + round * stride;
              auto [state, sum] =
                  k_.loop(Val<u32>(std::uint32_t(steps())), std::pair(s.first, zeros<f32, 16, N>(warp_)),
                          [&](Val<u32> step, std::pair<State, Sum> now) {
                            return add_tile(tile, step, now.first, std::move(now.second));
                          });
              store(tile, sum, s.second);
              return std::pair(state, Val<u32>(1) - s.second);
            });
    cp_async_wait_all(k_);
  }

 private:
  std::uint64_t tile_bytes() const { return std::uint64_t(l_.tile_bytes()); }
  int words() const { return l_.bits == 8 ? 8 : 4; }
  int steps() const { return (b_.k_tiles + b_.share - 1) / b_.share; }
  bool whole() const { return b_.k_tiles % b_.share == 0; }
  Val<u32> part() const { return warp_.index % std::uint32_t(b_.share); }
  int groups() const { return 256 / l_.group; }
  bool offsets() const { return l_.bits != 8 || kHalf; }
  float added() const { return kHalf ? 1024.f : 128.f; }
  // Of a tile of K for each 8 rows of x: for each 8 groups 32 lanes x (two terms of two groups).
  int tile_sums() const { return offsets() ? groups() / 8 * 128 * (N / 8) : 0; }

  // ------------------------------------------------------------ copies
  Val<u32> slot_at(const Val<u32>& slot) const { return slot0_ + slot * std::uint32_t(l_.tile_bytes()); }
  Cursor copy(const Cursor& c) {
    const int chunks = l_.tile_bytes() / 16;
    const Ptr<shared, b32> to_slot(slot_at(c.slot) + lane_ * 16u);
    const Ptr<global, const b32> from(c.from + to<u64>(lane_) * 16u);
    const Val<pred> more = c.left > 0u;
    const Val<pred> there =
        whole() ? more : more & (c.step * std::uint32_t(b_.share) + part() < std::uint32_t(b_.k_tiles));
    k_.if_(there, [&] {
      for (int i = 0; i < chunks / 32; ++i) cp_async<16>(to_slot.at(128 * i), from.at(128 * i));
      if (chunks % 32)
        k_.if_(lane_ < std::uint32_t(chunks % 32),
               [&] { cp_async<16>(to_slot.at(chunks / 32 * 128), from.at(chunks / 32 * 128)); });
    });
    cp_async_commit(k_);
    const auto last = c.step == std::uint32_t(steps() - 1);
    const auto inside = std::uint64_t(b_.share) * tile_bytes();
    return Cursor{c.from + select(last, across_[0], Val<u64>(inside)), select(last, Val<u32>(0), c.step + 1u),
                  select(c.left > 0u, c.left - 1u, Val<u32>(0)), next_slot(c.slot)};
  }
  Val<u32> next_slot(const Val<u32>& slot) const {
    return select(slot == std::uint32_t(b_.slots - 1), Val<u32>(0), slot + 1u);
  }

  // ------------------------------------------------------------ x
  int column(int i) const { return l_.group == 16 ? i / 4 * 16 + i % 4 : i; }
  // x as fragments: for each 32 columns [quad][row][16 bytes], and the sums of its groups. A thread takes 8 elements of
  // a row, four of them at a time: what it waits for is under way together.
  void stage_x() {
    const std::uint32_t each = std::uint32_t(b_.k_tiles) * 32, threads = std::uint32_t(32 * b_.warps);
    const std::uint32_t count = each * std::uint32_t(b_.rows);
    const int together = int(std::min(4u, (count + threads - 1) / threads));
    k_.loop(
        range(warp_.index * 32u, Val<u32>(count), Val<u32>(threads * std::uint32_t(together))),
        [&](Val<u32> first) {
          std::vector<std::vector<Val<b32>>> v;
          std::vector<Val<u32>> rows, units;
          for (int i = 0; i < together; ++i) {
            const auto unit = first + lane_ + std::uint32_t(i) * threads;
            rows.push_back(unit / each), units.push_back(unit % each);
            const In<b32> x(p_.x + to<u64>(rows.back()) * p_.ldx * 2u + to<u64>(units.back() / 4u) * 64u, 0,
                            true);
            const Val<pred> there = (rows.back() < p_.m) & (units.back() < p_.k / 8u);
            v.emplace_back();
            if (l_.group == 16) {
              for (int half = 0; half < 2; ++half)
                for (const auto& w : x.template ld_if<2>(there, quad_ + std::uint32_t(4 * half), Val<b32>(0)))
                  v.back().push_back(w);
            } else {
              for (const auto& w : x.template ld_if<4>(there, quad_, Val<b32>(0))) v.back().push_back(w);
            }
          }
          for (std::size_t i = 0; i < v.size(); ++i) {
            const auto block = units[i] / 4u;
            const Val<pred> inside = rows[i] < std::uint32_t(b_.rows);
            x_.template st_if<4>(inside, x_index(block, rows[i]), Words(v[i][0], v[i][1], v[i][2], v[i][3]));
            if (!offsets()) continue;
            const int parts = 32 / l_.group;
            for (int part = 0; part < parts; ++part) {
              std::vector<Val<f32>> s{Val<f32>(0)};
              for (int e = parts == 2 ? 2 * part : 0; e < (parts == 2 ? 2 * part + 2 : 4); ++e)
                for (const auto& x : unpack<T>(v[i][std::size_t(e)])) s.push_back(s.back() + to<f32>(x));
              const auto two = s.back() + shfl_xor(s.back(), 1), total = two + shfl_xor(two, 2);
              const auto high = bits<f32>(bits<b32>(total) & Val<b32>(0xffffe000u));
              // Group number g of 8 is element g % 4 of the lanes' quad, register g / 4.
              const auto g = block % 8u * std::uint32_t(parts) + std::uint32_t(part);
              const auto at = ((block / 8u * std::uint32_t(groups() / 8) + g / 8u) * std::uint32_t(N / 8) +
                               rows[i] / 8u) *
                                  128u +
                              (rows[i] % 8u * 4u + g % 4u) * 4u + g % 8u / 4u;
              k_.if_((quad_ == 0u) & inside, [&] { sums_.st(at, high), sums_.st(at + 2u, total - high); });
            }
          }
        });
  }
  Val<f32> shfl_xor(const Val<f32>& v, int mask) {
    return shfl<bfly>(warp_, v, Val<u32>(std::uint32_t(mask)));
  }
  Val<u32> x_index(const Val<u32>& block, const Val<u32>& row) const {  // in 16 bytes
    const std::uint32_t eight = std::uint32_t(std::min(b_.rows, 8));
    const auto in_block = quad_ * eight + (b_.rows > 8 ? row / 8u * 32u + row % 8u : row);
    return block * std::uint32_t(4 * b_.rows) + in_block;
  }

  // ------------------------------------------------------------ weights
  // 64 columns of a tile: what a lane holds of the codes, and the scales of rows g and g + 8 (in pairs).
  struct Step {
    std::vector<Words> low;      // one, or two of 8 bits
    std::vector<Val<b32>> high;  // one for each higher bit
    std::vector<Val<b32>> scales;
  };
  int step_words() const { return 32 * l_.step_words(); }
  int scales_at() const {  // words from the start of a tile
    return 4 * step_words() + (l_.super_scale ? l_.has_min ? 16 : 8 : 0);
  }
  Step read(const Val<u32>& base, const Val<u32>& s) {
    Step t;
    const auto at = base + s * std::uint32_t(4 * step_words());
    const Ptr<shared, b32> lanes(at + lane_ * 16u), one(at + lane_ * 4u);
    for (int i = 0; i < words() / 4; ++i) t.low.push_back(lanes.at(i * 128).template ld<4>());
    for (int b = 0; b < l_.high_bits(); ++b) t.high.push_back(one.at(words() * 32 + b * 32).ld());
    // Eight bytes of a row of groups: two groups of 32 columns, or four of 16.
    const Ptr<shared, b32> groups(base + group_ * 16u + s / 2u * 128u + s % 2u * 8u);
    for (const auto& v : groups.at(scales_at()).template ld<2>()) t.scales.push_back(v);
    return t;
  }

  // The eight codes of (32 columns, half of the rows) in step s as four registers of two floats.
  std::vector<Val<b32>> floats(const Step& t, int of) {
    std::vector<Val<b32>> out;
    if (l_.bits == 8) {
      for (int pair = 0; pair < 4; ++pair) {
        const auto& w = t.low[std::size_t(of / 2)][2 * (of % 2) + pair / 2];
        const std::uint32_t first = std::uint32_t(pair % 2 * 2);
        if (kHalf) {
          out.push_back(prmt(w, Val<b32>(0x64646464u), Val<u32>(0x4040u | first | (first + 1) << 8)));
          continue;
        }
        const auto value = [&](std::uint32_t byte) {
          return bits<f32>(prmt(w, Val<b32>(0x4b000000u), Val<u32>(0x7440u | byte))) -
                 8388736.0f;  // 2^23 + 128
        };
        out.push_back(dsl::pack<T>(value(first), value(first + 1)));
      }
      return out;
    }
    const auto& w = t.low[0][of];
    const Val<b32> magic(kHalf ? 0x64006400u : 0x43004300u);
    for (int pair = 0; pair < 4; ++pair) {
      std::vector<Val<b32>> v{
          lop3<0xea>(pair ? shr(w, Val<u32>(std::uint32_t(4 * pair))) : w, Val<b32>(0x000f000fu), magic)};
      for (int b = 0; b < l_.high_bits(); ++b) {
        const auto& h = t.high[std::size_t(b)];
        const int from = 4 * of + pair, at = 4 + b;  // bit of h, bit of the code
        const auto moved = from == at  ? h
                           : from > at ? shr(h, Val<u32>(std::uint32_t(from - at)))
                                       : shl(h, Val<u32>(std::uint32_t(at - from)));
        v.push_back(lop3<0xea>(moved, Val<b32>(0x00010001u << at), v.back()));
      }
      out.push_back(v.back());
    }
    return out;
  }
  static Val<f32> half_of(const Val<b32>& w, int which) { return to<f32>(unpack<f16>(w)[which]); }
  static Val<f32> byte_of(const Val<b32>& w, int which, float bias) {  // an unsigned byte, less `bias`
    return bits<f32>(prmt(w, Val<b32>(0x4b000000u), Val<u32>(0x7440u | std::uint32_t(which)))) -
           (8388608.0f + bias);
  }
  // The scale of a group in a row (g, or g + 8), without d of K-quants.
  Val<f32> scale(const Step& t, int group, int h) {
    if (!l_.super_scale) return half_of(t.scales[std::size_t(group)], h);
    if (l_.has_min) return byte_of(t.scales[std::size_t(group)], 2 * h, 0);
    return byte_of(t.scales[std::size_t(group / 2)], group % 2 * 2 + h, 128);
  }
  // The fragment [16 rows, 8 groups] of scales (part 0) or minima (part 1): groups quad and quad + 4.
  FragA<tf32, 16, 8> scale_fragment(const Val<u32>& base, int eighth, int part) {
    std::vector<Value> out;
    const bool narrow = l_.super_scale && !l_.has_min;  // 8 groups in 16 bytes
    const Ptr<shared, b32> four(base + lane_ * 4u);
    const Ptr<shared, b16> two(base + group_ * 16u + quad_ * 2u);
    for (int i = 0; i < 2; ++i) {
      if (narrow) {
        const auto w = to<u32>(bits<u16>(two.at(2 * scales_at() + 64 * eighth + 4 * i).ld()));
        for (int h = 0; h < 2; ++h) out.push_back(bits<b32>(byte_of(bits<b32>(w), h, 128)));
        continue;
      }
      const auto w = four.at(scales_at() + 32 * (2 * eighth + i)).ld();
      for (int h = 0; h < 2; ++h)
        out.push_back(bits<b32>(l_.has_min ? byte_of(w, 2 * h + part, 0) : half_of(w, h)));
    }
    return FragA<tf32, 16, 8>({out[0], out[1], out[2], out[3]});
  }

  std::vector<std::vector<Val<b32>>> inputs(const Val<u32>& block) {
    std::vector<std::vector<Val<b32>>> out;
    for (int n = 0; n < N / 8; ++n) {
      std::vector<Val<b32>> v;
      if (b_.rows < 8) {
        for (const auto& w :
             x_.template ld_if<4>(group_ < std::uint32_t(b_.rows), x_index(block, group_), Val<b32>(0)))
          v.push_back(w);
      } else {
        for (const auto& w : x_.template ld<4>(x_index(block, group_ + std::uint32_t(8 * n)))) v.push_back(w);
      }
      out.push_back(std::move(v));
    }
    return out;
  }

  std::pair<std::pair<Cursor, Val<u32>>, Sum> add_tile(const Val<u32>& of_y, const Val<u32>& step,
                                                       std::pair<Cursor, Val<u32>> s, Sum sum) {
    const auto ahead = copy(s.first);
    cp_async_wait(k_, b_.slots - 1);
    warp_.sync();
    const auto tile = step * std::uint32_t(b_.share) + part();
    const Val<pred> inside = of_y < p_.tiles;
    const auto once =
        select(whole() ? inside : inside & (tile < std::uint32_t(b_.k_tiles)), Val<u32>(1), Val<u32>(0));
    std::vector<Sum> now;
    now.push_back(k_.loop(once, std::move(sum),
                          [&](Val<u32>, Sum v) { return multiply_tile(tile, s.second, std::move(v)); }));
    warp_.sync();  // all lanes have read the slot before the next copy into it
    return std::pair(std::pair(ahead, next_slot(s.second)), std::move(now.back()));
  }

  Sum multiply_step(const Step& t, const Val<u32>& block, Sum sum) {
    std::vector<Sum> sums;
    sums.push_back(std::move(sum));
    for (int j = 0; j < 2; ++j) {
      const auto x = inputs(block + std::uint32_t(j));
      const auto top = floats(t, 2 * j), bottom = floats(t, 2 * j + 1);
      const int parts = 32 / l_.group;
      for (int part = 0; part < parts; ++part) {
        std::vector<Sum> product;
        product.push_back(zeros<f32, 16, N>(warp_));
        for (int half = 0; half < 2; ++half) {
          if (parts == 2 && half != part) continue;
          const std::size_t i = std::size_t(2 * half);
          const std::vector<FragA<T, 16, 16>> a{
              FragA<T, 16, 16>({top[i], bottom[i], top[i + 1], bottom[i + 1]})};
          std::vector<FragB<T, 16, 8>> b;
          for (const auto& v : x) b.push_back(FragB<T, 16, 8>({v[i], v[i + 1]}));
          product.push_back(multiply<T>(warp_, std::move(product.back()), a, b));
        }
        const int group = j * parts + part;
        const Val<f32> scales[2] = {scale(t, group, 0), scale(t, group, 1)};
        sums.push_back(map_elements(sums.back(), [&](int i, const Val<f32>& v) {
          return fma(scales[(i >> 1) & 1], product.back()[i], v);
        }));
      }
    }
    return std::move(sums.back());
  }

  Sum multiply_tile(const Val<u32>& tile, const Val<u32>& slot, Sum sum) {
    const auto base = slot_at(slot);
    std::vector<Sum> sums;  // over this tile: of K-quants without d
    if (l_.super_scale)
      sums.push_back(zeros<f32, 16, N>(warp_));
    else
      sums.push_back(Sum(AccRegs(sum.owned().alias())));
    k_.nounroll();
    sums.push_back(k_.loop(Val<u32>(4), std::move(sums.back()), [&](Val<u32> s, Sum v) {
      return multiply_step(read(base, s), tile * 8u + s * 2u, std::move(v));
    }));
    std::vector<Sum> minima;
    if (l_.has_min) minima.push_back(zeros<f32, 16, N>(warp_));
    std::vector<Sum> shifts;
    if (offsets()) {
      shifts.push_back(zeros<f32, 16, N>(warp_));
      for (int eighth = 0; eighth < groups() / 8; ++eighth) {
        std::vector<FragB<tf32, 8, 8>> high, low;
        for (int n = 0; n < N / 8; ++n) {
          const auto from =
              ((tile * std::uint32_t(groups() / 8) + std::uint32_t(eighth)) * std::uint32_t(N / 8) +
               std::uint32_t(n)) *
                  32u +
              lane_;
          const auto v = b_.rows < 8 ? sums_.as<b32>().template ld_if<4>(group_ < std::uint32_t(b_.rows),
                                                                         from, Val<b32>(0))
                                     : sums_.as<b32>().template ld<4>(from);
          high.push_back(FragB<tf32, 8, 8>({v[0], v[1]})), low.push_back(FragB<tf32, 8, 8>({v[2], v[3]}));
        }
        const std::vector a{scale_fragment(base, eighth, 0)};
        shifts.push_back(multiply<tf32>(warp_, std::move(shifts.back()), a, high));
        shifts.push_back(multiply<tf32>(warp_, std::move(shifts.back()), a, low));
        if (!l_.has_min) continue;
        const std::vector min{scale_fragment(base, eighth, 1)};
        minima.push_back(multiply<tf32>(warp_, std::move(minima.back()), min, high));
        minima.push_back(multiply<tf32>(warp_, std::move(minima.back()), min, low));
      }
    }
    const float less = -(added() + float(l_.zero));
    const auto of_tile = [&](int i) {
      return offsets() ? fma(shifts.back()[i], Val<f32>(less), sums.back()[i]) : sums.back()[i];
    };
    if (!l_.super_scale)
      return map_elements(sums.back(), [&](int i, const Val<f32>& v) {
        return offsets() ? fma(shifts.back()[i], Val<f32>(less), v) : v;
      });
    std::vector<Val<f32>> d, dmin;
    const Ptr<shared, b32> rows(base + group_ * (l_.has_min ? 8u : 4u));
    for (int h = 0; h < 2; ++h) {
      const auto w = rows.at(4 * step_words() + (l_.has_min ? h : 0)).ld();
      d.push_back(half_of(w, l_.has_min ? 0 : h));
      if (l_.has_min) dmin.push_back(-half_of(w, 1));
    }
    return map_elements(sum, [&](int i, const Val<f32>& v) {
      const std::size_t h = std::size_t(i >> 1 & 1);
      const auto with = fma(d[h], of_tile(i), v);
      return l_.has_min ? fma(dmin[h], minima.back()[i], with) : with;
    });
  }

  // ------------------------------------------------------------ results
  void store(const Val<u32>& tile, const Sum& sum, const Val<u32>& buffer) {
    const auto put = [&](const Val<u32>& column, const Val<u32>& place, const Val<f32>& v) {
      Out<T>(p_.y).st_if((column < p_.m) & (place < p_.n), to<u64>(column) * p_.ldy + to<u64>(place),
                         to<T>(v));
    };
    if (b_.share == 1) {
      for (int i = 0; i < Sum::count; ++i)
        put(quad_ * 2u + std::uint32_t(8 * (i / 4) + i % 2),
            tile * 16u + group_ + std::uint32_t(i / 2 % 2 * 8), sum[i]);
      return;
    }
    const auto at =
        (buffer * std::uint32_t(b_.warps) + warp_.index / std::uint32_t(b_.share) * std::uint32_t(b_.share)) *
        std::uint32_t(16 * N);
    for (int i = 0; i < Sum::count; ++i)
      partial_.st(at + (part() * std::uint32_t(Sum::count) + std::uint32_t(i)) * 32u + lane_, sum[i]);
    k_.sync();
    k_.loop(
        range(part() * 32u + lane_, Val<u32>(std::uint32_t(16 * N)), Val<u32>(std::uint32_t(32 * b_.share))),
        [&](Val<u32> output) {
          const auto row = output % 16u, column = output / 16u;
          const auto lane = row % 8u * 4u + column % 8u / 2u;
          const auto reg = column / 8u * 4u + row / 8u * 2u + column % 2u;
          std::vector<Val<f32>> all;
          for (int w = 0; w < b_.share; ++w) {
            const auto some = partial_.ld(at + (reg + std::uint32_t(w * Sum::count)) * 32u + lane);
            all.push_back(w ? all.back() + some : some);
          }
          put(column, tile * 16u + row, all.back());
        });
  }

  Kernel& k_;
  const WeightOnlyConfig& b_;
  const WeightLayout& l_;
  const WeightOnlyParams<Val>& p_;
  Warp warp_;
  Val<u32> lane_, group_, quad_;
  Ptr<shared, b32> ring_, x_;
  Ptr<shared, f32> sums_, partial_;
  Val<u32> slot0_;
  std::vector<Val<u64>> across_;  // from the last tile of K to the first of the next tile of y
};

template <class T, int N>
void stream_kernel(Kernel& k, WeightOnlyConfig b, WeightOnlyParams<Val> p) {
  k.block(32 * b.warps);
  Product<T, N>(k, b, p).run();
}

/// Bytes of shared memory: x and the sums of its groups, the slots of the warps, their results.
int smem_bytes(const WeightOnlyConfig& c) {
  const auto& l = layout(c.format);
  const int columns = c.rows > 8 ? 16 : 8;
  return c.k_tiles * (512 * c.rows + 256 / l.group * 8 * columns) +
         c.warps * (c.slots * l.tile_bytes() + 2 * 16 * columns * 4) + 1024;
}

}  // namespace

WeightOnlyConfig weight_only_config(const WeightOnlyProblem& p, int sms) {
  WeightOnlyConfig c{p.type, p.format};
  c.k_tiles = int((p.k + 255) / 256);
  c.rows = p.m > 8 ? 16 : p.m > 4 ? 8 : p.m > 2 ? 4 : int(std::max<std::uint64_t>(p.m, 1));
  while (c.warps > 4 && smem_bytes(c) > kSmem) c.warps /= 2;
  // As few warps on a tile of y as still give every warp of the device a tile.
  const auto tiles = (p.n + 15) / 16;
  c.share = c.warps;
  while (c.share > 1 && tiles * std::uint64_t(c.share) > std::uint64_t(sms) * std::uint64_t(c.warps))
    c.share /= 2;
  return c;
}

std::string reject(const WeightOnlyProblem& p) {
  if (p.type != DType::f16 && p.type != DType::bf16)
    return text::cat("type = ", name(p.type), ": x and y are f16 or bf16");
  if (p.m > 16) return text::cat("m = ", p.m, ": at most 16 rows of x are possible");
  if (!p.k || p.k % 32 || p.k > 0x7fffff00)
    return text::cat("k = ", p.k, " is no multiple of 32 from 32 to 2^31 - 256");
  if (p.n > 0x7ffffff0) return text::cat("n = ", p.n, ": less than 2^31 - 16 is possible");
  if (p.x % 16 || p.ldx % 8) return "x and its rows must lie at multiples of 16 bytes";
  if (p.w % 16) return "packed weights must lie at a multiple of 16 bytes";
  if (const int need = smem_bytes(weight_only_config(p, 1)); need > kSmem)
    return text::cat("m = ", p.m, ", k = ", p.k, ": x and the rings need ", need,
                     " bytes of shared memory, a block has ", kSmem);
  return {};
}

Variant weight_only_variant(const WeightOnlyConfig& c) {
  const auto make = [&](auto fn) { return config_variant("weight_only", c, 90, fn); };
  if (c.type == DType::f16) return c.rows > 8 ? make(stream_kernel<f16, 16>) : make(stream_kernel<f16, 8>);
  return c.rows > 8 ? make(stream_kernel<bf16, 16>) : make(stream_kernel<bf16, 8>);
}

void weight_only_gemm(runtime::Stream& s, const WeightOnlyProblem& p) {
  if (auto why = reject(p); !why.empty()) throw Unsupported(text::cat("weight_only: ", why));
  if (!p.m || !p.n) return;
  const int sms = std::max(1, s.device().info().sm_count);
  const auto tiles = std::uint32_t((p.n + 15) / 16);
  const WeightOnlyParams<HostValue> n{.x = p.x,
                                      .ldx = p.ldx ? p.ldx : p.k,
                                      .w = p.w,
                                      .y = p.y,
                                      .ldy = p.ldy ? p.ldy : p.n,
                                      .m = std::uint32_t(p.m),
                                      .n = std::uint32_t(p.n),
                                      .k = std::uint32_t(p.k),
                                      .tiles = tiles};
  load(s.device(), weight_only_variant(weight_only_config(p, sms)))(
      s, runtime::Launch{.grid = {std::min(tiles, std::uint32_t(sms))}}, n);
}

}  // namespace cgp::kernels
