// SPDX-License-Identifier: Apache-2.0
// packed_gemv: `share` warps have 16 rows of the weight, each every share-th tile of 256 columns; a lane has two rows and two of each
// eight columns, as packed. x lies in shared memory as f32, in the order in which lanes need it.
//   codes    are not shifted to bit 0: or-ed in place into the mantissa of 2^23, code j of a word is q 2^s(j); x has been
//            multiplied by 2^-s(j), exactly, when it was placed in shared memory
//   memory   the weight once, 16 bytes a lane; x from L2 for each 16 rows
//   needs    any device; shaders too
#include "cgp/kernels/quantized_matmul/packed_gemv.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "cgp/base/text.h"
#include "cgp/dsl/core/arith.h"
#include "cgp/dsl/sync/block.h"
#include "cgp/dsl/sync/warp.h"
#include "cgp/kernels/row/elements.h"
#include "cgp/launch/kernel_args.h"
#include "cgp/quant/blocks.h"

namespace cgp::kernels {
namespace {

using namespace dsl;
using Words = std::vector<Val<b32>>;
using Floats = std::vector<Val<f32>>;

constexpr std::uint64_t kMostRows = 4;
constexpr std::uint32_t kTwo23 = 0x4b000000;  // 2^23 as bits

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

template <template <class> class V>
struct PackedGemvParams {
  V<In<b8>> w, x;
  V<Out<b8>> y;
  V<u64> x_pitch, y_pitch;
  V<u32> n, k, k_tiles, y_tiles;
};

/// The power of two that the first code of pair p, columns 8 p and 8 p + 1 of a lane's 32, is multiplied by; the second's is the same.
int shift_of(const WeightLayout& l, int pair) {
  return l.looked_up() ? 0 : l.bits == 8 ? 8 * (pair % 2) : 4 * pair;
}
float power(int exponent) { return std::ldexp(1.f, exponent); }
Val<b32> shifted(const Val<b32>& v, int right) {
  return right > 0   ? shr(v, Val<u32>(std::uint32_t(right)))
         : right < 0 ? shl(v, Val<u32>(std::uint32_t(-right)))
                     : v;
}
/// A byte of w.
Val<f32> byte_of(const Val<b32>& w, int byte, float bias) {
  return bits<f32>(prmt(w, Val<b32>(kTwo23), Val<u32>(0x7440u | std::uint32_t(byte)))) - (8388608.f + bias);
}
Val<f32> half_of(const Val<b32>& w, int which) {
  return row::floats({DType::f16, 2}, {w})[std::size_t(which)];
}

/// 64 columns of 16 rows, a quarter of a tile: what a lane needs of it.
class Step {
 public:
  /// `of_tile`: 0 to 3.
  Step(const WeightLayout& l, const In<b8>& tile, const Val<u32>& of_tile, const Val<u32>& lane,
       const std::optional<Ptr<shared, f32>>& table)
      : l_(l), table_(table) {
    const int low = l.bits == 8 ? 2 : 1, step_bytes = 128 * l.step_words();
    const auto here = of_tile * std::uint32_t(step_bytes), row = lane / 4u;
    const auto at = [&](const Val<u32>& more, int bytes) {
      return tile.at(more).as<const b32>().at(bytes / 4);
    };
    for (int i = 0; i < low; ++i)
      for (const auto& v : at(here + lane * 16u, 512 * i).ld<4>(0)) codes_.push_back(v);
    for (int b = 0; b < l.high_bits(); ++b) high_.push_back(at(here + lane * 4u, 512 * low + 128 * b).ld(0));
    int from = 4 * step_bytes;
    if (l.has_min) {
      for (const auto& v : at(row * 8u, from).ld<2>(0)) d_.push_back(v);
      from += 64;
    } else if (l.super_scale) {
      d_.push_back(at(row * 4u, from).ld(0));
      from += 32;
    }
    if (l.loaded_columns() == 128) {  // 8 of 16 bytes
      const auto half = of_tile / 2u * 128u + of_tile % 2u * 8u;
      for (const auto& v : at(half + row * 16u, from).ld<2>(0)) scales_.push_back(v);
    } else {  // one word: of groups of 64, or of both steps of a group of 128
      const auto word = l.group == 64 ? of_tile * 4u + row * 16u : of_tile / 2u * 4u + row * 8u;
      scales_.push_back(at(word, from).ld(0));
    }
    if (!l.has_zeros) return;
    from += 32 * l.groups();
    if (l.group == 32)
      zeros_.push_back(at(of_tile * 4u + row * 16u, from).ld(0));
    else if (l.group == 64)
      zeros_.push_back(shr(at(of_tile / 2u * 4u + row * 8u, from).ld(0), of_tile % 2u * 16u));
    else
      zeros_.push_back(shr(at(row * 4u, from).ld(0), of_tile / 2u * 16u));
  }

  /// Codes of 32 columns `group`, 0 or 1, in row g + 8 h, less the zero point of the format, times 2^shift_of(): those of the first
  /// columns of the four pairs, then those of the second.
  Floats codes(int group, int h) const {
    const int of = 2 * group + h;
    Floats out;
    for (int second = 0; second < 2; ++second)
      for (int pair = 0; pair < 4; ++pair) {
        if (l_.looked_up()) {
          const auto at = shifted(codes_[std::size_t(of)], 8 * pair + 4 * second - 2) & Val<b32>(0x3cu);
          out.push_back(Ptr<shared, f32>(table_->address() + bits<u32>(at)).ld());
          continue;
        }
        const float less = 8388608.f + float(l_.zero) * power(shift_of(l_, pair));
        out.push_back(bits<f32>(code(of, pair, second)) - less);
      }
    return out;
  }
  /// The scale of columns 32 group + 16 half ... in row g + 8 h; of formats with a d of their own without it.
  Val<f32> scale(int group, int half, int h) const {
    if (l_.wide_scales()) return bits<f32>(scales_[std::size_t(h)]);
    if (l_.has_min) return byte_of(scales_[std::size_t(group)], 2 * h, 0);
    if (l_.super_scale) return byte_of(scales_[std::size_t(group)], half * 2 + h, 128);
    return half_of(scales_[std::size_t(l_.group == 32 ? group : 0)], h);
  }
  /// What the sum of x is multiplied by and subtracted: the minimum without dmin, or the zero of int4.
  Val<f32> less(int group, int h) const {
    if (l_.has_min) return byte_of(scales_[std::size_t(group)], 2 * h + 1, 0);
    return byte_of(zeros_[0], (l_.group == 32 ? 2 * group : 0) + h, 0);
  }
  Val<f32> d(int h) const { return half_of(d_[std::size_t(l_.has_min ? h : 0)], l_.has_min ? 0 : h); }
  Val<f32> dmin(int h) const { return half_of(d_[std::size_t(h)], 1); }

 private:
  /// q in its place, or-ed into 2^23.
  Val<b32> code(int of, int pair, int second) const {
    const auto part = [](const Val<b32>& v, std::uint32_t mask, const Val<b32>& onto) {
      return (v & Val<b32>(mask)) | onto;
    };
    const Val<b32> two23(kTwo23);
    if (l_.bits == 8)
      return part(shifted(codes_[std::size_t(2 * of + pair / 2)], 16 * second), 0xffu << (8 * (pair % 2)),
                  two23);
    const auto low = part(shifted(codes_[std::size_t(of)], 16 * second), 0xfu << (4 * pair), two23);
    if (!l_.high_bits()) return low;
    const int from = l_.high_bit(of, pair) + 16 * second, to = 4 * pair + 4;
    return part(shifted(high_[std::size_t(l_.high_word(of))], from - to),
                (l_.high_bits() == 2 ? 3u : 1u) << to, low);
  }

  const WeightLayout& l_;
  std::optional<Ptr<shared, f32>> table_;
  Words codes_, high_, d_, scales_, zeros_;
};

void packed_gemv_kernel(Kernel& k, PackedGemvConfig c, PackedGemvParams<DeviceArg> p) {
  const auto& l = layout(c.format);
  const bool totals = l.has_min || l.has_zeros;
  const int teams = c.warps / c.share, units = c.placed_units();
  k.block(32 * c.warps);
  Warp warp = k.warp();
  const auto lane = k.laneid(), thread = k.tid(), index = k.warp_index();
  const auto xs = k.shared<f32>(c.rows * units * 8, 16);
  const auto x_totals = k.shared<f32>(totals ? c.rows * units : 1);
  const auto partial = k.shared<f32>(c.warps * 16 * c.rows);
  std::optional<Ptr<shared, f32>> table;
  if (l.looked_up()) {
    std::vector<float> numbers;
    for (int i = 0; i < 16; ++i)
      numbers.push_back(l.table == WeightTable::nf4 ? quant::kNf4[i] : float(quant::kIq4[i]));
    const auto values = k.constant<f32>(numbers);
    table.emplace(k.shared<f32>(16));
    k.if_(thread < 16u, [&] { table->st(thread, values.ld(thread)); });
  }

  const auto team = index / std::uint32_t(c.share), part = index % std::uint32_t(c.share);
  const auto own = k.ctaid_x() * std::uint32_t(teams) + team;
  const auto y_tile = select(own < p.y_tiles, own, p.y_tiles - 1u);  // no warp stands aside
  const auto first_tile = to<u64>(y_tile) * to<u64>(p.k_tiles);
  const auto column = lane % 4u;

  // A unit is what one lane needs of 32 columns: 2 c and 2 c + 1 of each 8. A thread loads those of all its units before it places any.
  // Loads are not conditional, which shaders would branch for: columns that are not there are others, times 0.
  struct Unit {
    Val<u32> number;
    int last, row;  ///< the number of the last thread's; row of x
    Val<pred> there;
    std::vector<row::Access> pairs;
  };
  const int threads = 32 * c.warps, units_each = (units + threads - 1) / threads,
            at_once = std::max(1, 4 / c.rows);
  const auto load_units = [&](const Val<u32>& tiles_before, int from, int to) {
    std::vector<Unit> out;
    for (int u = from; u < to; ++u) {
      const auto number = thread + std::uint32_t(u * threads);
      const auto group = tiles_before * 256u + number / 4u * 32u;
      const Val<pred> there = group < p.k;
      const auto column_of_x = select(there, group, Val<u32>(0u)) + number % 4u * 2u;
      for (int r = 0; r < c.rows; ++r) {
        const auto row =
            p.x.at((p.x_pitch * std::uint64_t(r) + dsl::to<u64>(column_of_x)) * std::uint64_t(bytes(c.type)))
                .as<const b32>();
        std::vector<row::Access> pairs;
        for (int pair = 0; pair < 4; ++pair) {
          if (c.type != DType::f32) {
            pairs.push_back({row.ld(4 * pair)});
            continue;
          }
          const auto two = row.ld<2>(4 * pair);
          pairs.push_back({two[0], two[1]});
        }
        out.push_back({number, (u + 1) * threads - 1, r, there, pairs});
      }
    }
    return out;
  };
  const auto place = [&](const Unit& unit) {
    std::vector<Floats> halves(2);
    for (int pair = 0; pair < 4; ++pair) {
      const auto two = row::floats({c.type, 2}, unit.pairs[std::size_t(pair)]);
      for (std::size_t i = 0; i < 2; ++i) halves[i].push_back(select(unit.there, two[i], Val<f32>(0.f)));
    }
    if (totals) {
      Floats sum;
      for (const auto& half : halves)
        for (const auto& v : half) sum.push_back(sum.empty() ? v : sum.back() + v);
      x_totals.st(unit.number + std::uint32_t(units * unit.row), sum.back());
    }
    for (std::uint32_t i = 0; i < 2; ++i) {
      Floats v;
      for (int pair = 0; pair < 4; ++pair) {
        const auto& one = halves[i][std::size_t(pair)];
        const int shift = shift_of(l, pair);
        v.push_back(shift ? one * power(-shift) : one);
      }
      xs.at(unit.number / 4u * 32u + unit.number % 4u * 4u + (std::uint32_t(8 * units * unit.row) + 16u * i))
          .st<4>(0, RegGroup<f32, 4>(v[0], v[1], v[2], v[3]));
    }
  };
  // Adds the sums of a step at `of_chunk`, tiles before it in shared memory: of rows g of all rows of x, then of rows g + 8.
  const auto added = [&](const Floats& so_far, const Step& step, const Val<u32>& of_chunk,
                         const Val<u32>& of_tile) {
    std::vector<Floats> sum(std::size_t(2 * c.rows)), minima(std::size_t(2 * c.rows));
    const auto add = [](Floats& to, const Val<f32>& a, const Val<f32>& b) {
      to.push_back(to.empty() ? a * b : fma(a, b, to.back()));
    };
    const auto place = of_chunk * 4u + of_tile;
    for (int group = 0; group < 2; ++group) {
      std::vector<Floats> x;
      Floats x_sum;
      for (int r = 0; r < c.rows; ++r) {
        const auto at = xs.at(place * 64u + column * 4u).at(r * units * 8 + 32 * group);
        Floats eight;
        for (int i = 0; i < 2; ++i)
          for (const auto& v : at.at(16 * i).ld<4>(0)) eight.push_back(v);
        x.push_back(eight);
        if (totals) x_sum.push_back(x_totals.at(place * 8u + column).ld(r * units + 4 * group));
      }
      for (int h = 0; h < 2; ++h) {
        const auto codes = step.codes(group, h);
        const int halves = l.part() == 16 ? 2 : 1, pairs = 4 / halves;
        for (int half = 0; half < halves; ++half) {
          const auto scale = step.scale(group, half, h);
          for (int r = 0; r < c.rows; ++r) {
            Floats of_part;
            for (int second = 0; second < 2; ++second)
              for (int pair = half * pairs; pair < (half + 1) * pairs; ++pair)
                add(of_part, codes[std::size_t(4 * second + pair)],
                    x[std::size_t(r)][std::size_t(4 * second + pair)]);
            if (l.has_zeros)
              of_part.push_back(fma(-step.less(group, h), x_sum[std::size_t(r)], of_part.back()));
            add(sum[std::size_t(h * c.rows + r)], scale, of_part.back());
            if (l.has_min)
              add(minima[std::size_t(h * c.rows + r)], step.less(group, h), x_sum[std::size_t(r)]);
          }
        }
      }
    }
    Floats out;
    for (int h = 0; h < 2; ++h)
      for (int r = 0; r < c.rows; ++r) {
        const auto i = std::size_t(h * c.rows + r);
        const auto first =
            l.super_scale ? fma(step.d(h), sum[i].back(), so_far[i]) : so_far[i] + sum[i].back();
        out.push_back(l.has_min ? fma(-step.dmin(h), minima[i].back(), first) : first);
      }
    return out;
  };

  const auto place_all = [&](const Val<u32>& first) {
    for (int from = 0; from < units_each; from += at_once) {
      const auto some = load_units(first, from, std::min(from + at_once, units_each));
      if (!from) k.sync();  // what the turn before placed has been read
      for (const auto& unit : some)
        if (unit.last < units)
          place(unit);
        else
          k.if_(unit.number < std::uint32_t(units), [&] { place(unit); });
    }
    k.sync();
  };
  // A warp has the same quarter of each of its tiles.
  const std::uint32_t chunk = std::uint32_t(c.chunk), stride = std::uint32_t(c.share / 4);
  const auto of_tile = part % 4u;
  const auto total = k.loop(
      range(Val<u32>(0u), p.k_tiles, Val<u32>(chunk)), Floats(std::size_t(2 * c.rows), Val<f32>(0.f)),
      [&](Val<u32> first, Floats before) {
        const auto rest = p.k_tiles - first, tiles = select(rest < chunk, rest, Val<u32>(chunk));
        place_all(first);
        k.nounroll();
        return k.loop(
            range(part / 4u, tiles, Val<u32>(stride * std::uint32_t(c.ahead))), before,
            [&](Val<u32> i, Floats acc) {
              std::vector<Step> steps;
              std::vector<Val<u32>> at;
              for (int u = 0; u < c.ahead; ++u) {
                at.push_back(i + std::uint32_t(u) * stride);
                const auto tile = u ? select(at.back() < tiles, at.back(), i) : at.back();
                steps.emplace_back(
                    l, p.w.at((first_tile + to<u64>(first + tile)) * std::uint64_t(l.tile_bytes())), of_tile,
                    lane, table);
              }
              std::vector<Floats> chain{acc};
              for (int u = 0; u < c.ahead; ++u) {
                const auto more =
                    added(chain.back(), steps[std::size_t(u)],
                          u ? select(at[std::size_t(u)] < tiles, at[std::size_t(u)], i) : i, of_tile);
                Floats kept;
                for (std::size_t e = 0; e < more.size(); ++e)
                  kept.push_back(u ? select(at[std::size_t(u)] < tiles, more[e], chain.back()[e]) : more[e]);
                chain.push_back(kept);
              }
              return chain.back();
            });
      });

  for (int h = 0; h < 2; ++h)
    for (int r = 0; r < c.rows; ++r) {
      const auto all = reduce(
          warp, total[std::size_t(h * c.rows + r)], [](Val<f32> a, Val<f32> b) { return a + b; }, 4);
      partial.st_if(
          column == 0u,
          (index * std::uint32_t(c.rows) + std::uint32_t(r)) * 16u + lane / 4u + std::uint32_t(8 * h), all);
    }
  k.sync();
  // Thread 16 (team * rows + r) + row adds the parts of one number.
  const int numbers = teams * c.rows * 16;
  const auto finish = [&](const Val<u32>& number) {
    const auto row = number % 16u, r = number / 16u % std::uint32_t(c.rows),
               of = number / std::uint32_t(16 * c.rows);
    Floats sum;
    for (int i = 0; i < c.share; ++i) {
      const auto v = partial.ld(
          ((of * std::uint32_t(c.share) + std::uint32_t(i)) * std::uint32_t(c.rows) + r) * 16u + row);
      sum.push_back(sum.empty() ? v : sum.back() + v);
    }
    const auto to_row = (k.ctaid_x() * std::uint32_t(teams) + of) * 16u + row;
    row::store({c.type_y, 1}, p.y, p.y_pitch * to<u64>(r) + to<u64>(to_row), to_row < p.n,
               row::pack({c.type_y, 1}, {sum.back()}));
  };
  for (int from = 0; from < numbers; from += 32 * c.warps)
    k.if_(thread + std::uint32_t(from) < std::uint32_t(numbers),
          [&] { finish(thread + std::uint32_t(from)); });
}

}  // namespace

int PackedGemvConfig::shared_bytes() const {
  const auto& l = layout(format);
  return 4 * (rows * placed_units() * (8 + (l.has_min || l.has_zeros ? 1 : 0)) + 16 * warps * rows + 32);
}

std::string reject_packed_gemv(const QuantizedMatmul& p, const runtime::DeviceInfo& d) {
  const auto f = packed_format(p.weight);
  const std::uint64_t size = std::uint64_t(bytes(p.x.dtype));
  if (!f || layout(*f).table == WeightTable::e2m1)
    return text::cat("the packed GEMV has no ", name(p.weight.format));
  if (!p.packed.given) return "no packed weights";
  if (p.transposed) return "the GEMV sums over the columns of the weight";
  if (p.m > kMostRows) return text::cat("the GEMV has at most ", kMostRows, " rows");
  if (p.error_flag.given) return "scales are to be checked";
  if (p.weight.g_idx.given) return "inputs of a group lie anywhere";
  if (p.y.dtype == DType::bf16 && d.cc() < 80) return text::cat(d.arch, " does not round to bf16");
  if (!p.weight.cols || p.weight.cols % 32 || p.weight.cols % std::uint64_t(layout(*f).group))
    return "columns must be whole groups of at least 32";
  if (p.weight.cols >> 31 || p.weight.rows >> 31) return "the GEMV has less than 2^31 rows and columns";
  if (p.packed.address % 16) return "packed weights must lie at a multiple of 16 bytes";
  if (p.x.address % (2 * size) || (p.m > 1 && p.x_layout.pitch % 2)) return "x must lie in pairs";
  return {};
}

PackedGemvConfig packed_gemv_config(const QuantizedMatmul& p, const runtime::DeviceInfo& d) {
  PackedGemvConfig c{*packed_format(p.weight), p.x.dtype, p.y.dtype, int(p.m)};
  const int tiles = int(ceil_div(p.weight.cols, 256));
  // How many blocks an SM has at a time follows from their shared memory: little of it for formats that are slow to decode, while
  // others gain from fewer barriers. Browsers promise 256 threads and 16 KiB.
  const bool large = layout(c.format).bits == 8 && tiles >= 8 && d.max_threads_per_block >= 512 &&
                     d.kind != runtime::DeviceKind::wgpu;
  if (large) c.warps = 16;
  if (tiles == 1) c.share = 4;
  const int most = (large ? 20 : 10) << 10,
            room = d.smem_per_block ? std::min(most, int(d.smem_per_block)) : most;
  for (int chunks = 1;; ++chunks) {
    c.chunk = (tiles + chunks - 1) / chunks;
    if (c.shared_bytes() <= room || c.chunk <= c.share / 4) break;
  }
  c.ahead = c.chunk > c.share / 4 ? 2 : 1;
  return c;
}

Variant packed_gemv_variant(const PackedGemvConfig& c) {
  return config_variant("packed_gemv", c, c.type_y == DType::bf16 ? 80 : 75, packed_gemv_kernel);
}

void packed_gemv(runtime::Stream& s, const QuantizedMatmul& p) {
  packed_gemv(s, p, packed_gemv_config(p, s.device().info()));
}
void packed_gemv(runtime::Stream& s, const QuantizedMatmul& p, const PackedGemvConfig& c) {
  const auto tiles = std::uint32_t(ceil_div(p.weight.rows, 16)), teams = std::uint32_t(c.warps / c.share);
  launch::launch_kernel(
      s, load(s.device(), packed_gemv_variant(c)), runtime::Dim3{(tiles + teams - 1) / teams},
      PackedGemvParams<launch::HostArg>{.w = p.packed.arg(),
                                        .x = p.x.arg(),
                                        .y = p.y.arg(),
                                        .x_pitch = p.x_layout.pitch,
                                        .y_pitch = p.y_layout.pitch,
                                        .n = std::uint32_t(p.weight.rows),
                                        .k = std::uint32_t(p.weight.cols),
                                        .k_tiles = std::uint32_t(ceil_div(p.weight.cols, 256)),
                                        .y_tiles = tiles});
}

}  // namespace cgp::kernels
