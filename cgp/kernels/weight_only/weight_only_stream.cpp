// SPDX-License-Identifier: Apache-2.0
// weight_only, 1 to 32 rows of x, persistent: every byte of the weights once.
//   who      a cluster walks over tiles of 16 (or 2 x 16) columns of y. Its blocks cut K into parts, and `share` warps
//            of a block cut the block's part again, by tiles of 256 columns of K
//   memory   each warp copies its tiles ahead into a ring of its own (one lane: cp.async.bulk), in the order of the
//            fragments (weight_only_layout.h). The block's part of x lies in shared memory in the order of the
//            fragments, with the sums of x over each group
//   codes    integers in the mantissa (weight_only_fragments.h); a group's sum starts at what that and the zero point add.
//            Minima are a product of their own: [16, 8 groups] times the sums of x over the groups, in tf32, the sums
//            as two tf32 terms
//   one row  of x: the 8 columns of a fragment are the groups of a tile. Column b of the operand is x in the 32 columns b of
//            the tile and 0 elsewhere, so that all products of a tile go into one accumulator, scaled once
//   sync     none while weights stream: the parts of K lie in shared memory, and after `rounds` tiles of y they are
//            added in a fixed order
//   needs    sm_90: bulk copies, clusters. On sm_80 to sm_89 the lanes of a warp copy its tiles by cp.async, and there is
//            one block where else there is a cluster
#include <algorithm>
#include <optional>

#include "cgp/dsl/core/kernel_params.h"
#include "cgp/dsl/memory/ldmatrix.h"
#include "cgp/dsl/pipeline/async.h"
#include "cgp/dsl/pipeline/bulk_ring.h"
#include "cgp/kernels/activation/activation_code.h"
#include "cgp/kernels/weight_only/weight_only.h"
#include "cgp/kernels/weight_only/weight_only_fragments.h"
#include "cgp/kernels/weight_only/weight_only_params.h"

namespace cgp::kernels {
namespace {

using namespace dsl;
using weight_only_impl::PairTable;
using weight_only_impl::WeightTile;

/// The tile that is copied next: where it lies, its number among the warp's tiles of K, its tile of y.
struct NextTile {
  Val<u64> from;
  Val<u32> step, y;
  static auto carried() { return std::tuple(&NextTile::from, &NextTile::step, &NextTile::y); }
};

/// A warp's ring of tiles that one lane fills by bulk copies.
class BulkTiles {
 public:
  using Cursor = BulkRing::Cursor;
  BulkTiles(Warp& warp, int warps, int slots, int bytes) : warp_(warp), ring_(warp, warps, slots, bytes) {}
  /// `count` tiles of `bytes`, `apart` each other, where `there`.
  void fill(const Val<u32>& slot, const Val<pred>& there, const Val<u64>& from, int count, std::int64_t apart,
            int bytes) {
    warp_.one_thread([&](Thread&) {
      warp_.k.if_(there, [&] {
        ring_.expect(slot, Val<u32>(std::uint32_t(count) * std::uint32_t(bytes)));
        for (int i = 0; i < count; ++i)
          ring_.copy(slot, ring_.stage(slot, i * bytes), In<b8>(from).at(i * apart),
                     Val<u32>(std::uint32_t(bytes)), L2Hint::evict_first);
      });
    });
  }
  void wait(const Cursor& c) { ring_.wait(c); }
  Cursor next(const Cursor& c) const { return ring_.next(c); }
  Val<u32> base(const Val<u32>& slot) const { return ring_.stage(slot).base(); }

 private:
  Warp& warp_;
  BulkRing ring_;
};
/// The same by cp.async of all lanes: each filling is one group of each lane, an empty one at the end.
class AsyncTiles {
 public:
  class Cursor {
   public:
    Cursor() : stage_(Val<u32>(0)) {}
    const Val<u32>& stage() const { return stage_; }
    static auto carried() { return std::tuple(&Cursor::stage_); }

   private:
    friend class AsyncTiles;
    template <class S>
    friend struct dsl::Carry;
    explicit Cursor(const Val<u32>& stage) : stage_(stage) {}
    Val<u32> stage_;
  };
  AsyncTiles(Warp& warp, int warps, int slots, int bytes)
      : warp_(warp),
        lane_(warp.lane()),
        slots_(slots),
        bytes_(bytes),
        first_(warp.k.shared<b8>(warps * slots * bytes, 128).address() +
               warp.index * std::uint32_t(slots * bytes)) {}
  void fill(const Val<u32>& slot, const Val<pred>& there, const Val<u64>& from, int count, std::int64_t apart,
            int bytes) {
    warp_.k.if_(there, [&] {
      for (int i = 0; i < count; ++i)
        for (int at = 0; at < bytes; at += 512) {
          const Ptr<shared, b8> to(base(slot) + std::uint32_t(i * bytes + at) + lane_ * 16u);
          const auto source = In<b8>(from + to_bytes(lane_)).at(i * apart + at);
          const auto copy = [&] { cp_async<16, L2_128B>(to, source); };
          if (at + 512 <= bytes)
            copy();
          else
            warp_.k.if_(lane_ < std::uint32_t((bytes - at) / 16), copy);
        }
    });
    cp_async_commit(warp_.k);
  }
  void wait(const Cursor&) {
    cp_async_wait(warp_.k, slots_ - 1);
    warp_.sync();  // what other lanes copied
  }
  Cursor next(const Cursor& c) const {
    return Cursor(select(c.stage_ + 1u == std::uint32_t(slots_), Val<u32>(0), c.stage_ + 1u));
  }
  Val<u32> base(const Val<u32>& slot) const { return first_ + slot * std::uint32_t(bytes_); }

 private:
  static Val<u64> to_bytes(const Val<u32>& lane) { return dsl::to<u64>(lane * 16u); }
  Warp& warp_;
  Val<u32> lane_;
  int slots_, bytes_;
  Val<u32> first_;
};

/// Element i of the result is f(i), a new register each.
template <class Sum, class F>
Sum make_sum(F&& f) {
  std::vector<Value> out;
  for (int i = 0; i < Sum::count; ++i) out.push_back(f(i));
  return Sum(AccRegs(std::move(out)));
}

template <class T, int Y, int N, class Tiles>
class Product {
 public:
  using Words = RegGroup<b32, 4>;
  using Sum = WarpAcc<f32, 16 * Y, N>;

  Product(Kernel& k, const WeightOnlyConfig& c, const WeightOnlyParams<Val>& p)
      : k_(k),
        c_(c),
        l_(layout(c.format)),
        p_(p),
        warp_(k.warp()),
        lane_(warp_.lane()),
        group_(divided(lane_, 4)),
        quad_(remainder(lane_, 4)),
        part_(c.share > 1 ? remainder(warp_.index, c.share) : zero()),
        rank_(c.cluster > 1 ? k.cluster_ctarank() : zero()),
        cluster_(c.cluster > 1 ? k.clusterid_x() : k.ctaid_x()),
        clusters_(c.cluster > 1 ? k.nclusterid_x() : k.nctaid_x()),
        x_(k.shared<b32>(c.block_tiles() * 128 * c.rows, 128)),
        start_(k.shared<f32>(c.block_tiles() * l_.parts() * (one_row() ? 1 : 2 * c.rows), 128)),
        sums_(k.shared<f32>(l_.has_min && !one_row() ? c.block_tiles() * tile_sums() : 4, 128)),
        zeros_(k.shared<b32>(one_row() ? 128 : 4, 128)),
        results_(k.shared<f32>(c.parts() > 1 ? c.buffers * c.rounds * c.warps * 32 * Sum::count : 4, 128)),
        x_lane_(x_.address() +
                x_index(Val<u32>(0), remainder(lane_, std::min(c.rows, 8)), divided(lane_, 8)) * 16u),
        zero_lane_(zeros_.address() + divided(lane_, 8) * 16u),
        squares_(k.shared<f32>(c.norm ? c.warps : 4, 16)),
        row_(k.shared<b32>(std::max(c.row_bytes() / 4, 4), 16)) {
    if (c.pairs) pairs_.emplace(k, lane_);
    if (const int rest = c.smem_kb * 1024 - c.smem_bytes(); rest > 0) k.smem(rest, 16);
  }

  void run() {
    multiply_all();
    if (c_.order == WeightOnlyOrder::beside) griddepcontrol_wait(k_);
  }

 private:
  void multiply_all() {
    if (c_.pdl && c_.order != WeightOnlyOrder::first) griddepcontrol_launch_dependents(k_);
    const bool at_once = !c_.pdl || c_.order == WeightOnlyOrder::beside;
    Units first = units(warp_.index * 32u);
    if (at_once) stage_row(), load_x(first);
    Tiles ring(warp_, c_.warps, c_.slots, Y * l_.tile_bytes());
    const auto first_tile = cluster_ + clusters_ * divided(warp_.index, c_.share);
    const auto stride = clusters_ * std::uint32_t(c_.warps / c_.share);
    const auto steps = this->steps();
    const Walk walk{stride, steps,
                    to<u64>(stride) * (std::uint64_t(Y * c_.k_tiles) * tile_bytes()) -
                        to<u64>(steps) * (std::uint64_t(c_.share) * tile_bytes())};
    std::vector<NextTile> ahead{NextTile{p_.w + (to<u64>(first_tile) * std::uint64_t(Y * c_.k_tiles) +
                                                 to<u64>(rank_ * std::uint32_t(c_.block_tiles()) + part_)) *
                                                    tile_bytes(),
                                         zero(),
                                         whole() ? first_tile : select(steps > 0u, first_tile, p_.y_tiles)}};
    for (int i = 0; i < c_.slots; ++i)
      ahead.push_back(copy(ring, Val<u32>(std::uint32_t(i)), ahead.back(), walk));
    const auto count = [&](const Val<u32>& from) {
      return select(from < p_.y_tiles, (p_.y_tiles - dsl::min(from, p_.y_tiles) + stride - 1u) / stride,
                    Val<u32>(0));
    };
    const auto mine = count(first_tile), all = count(cluster_);
    if (!at_once) {
      griddepcontrol_wait(k_);
      if (c_.order == WeightOnlyOrder::first) griddepcontrol_launch_dependents(k_);
      stage_row(), load_x(first);
    }
    if (c_.norm) normalise(first);
    store_x(first);
    rest_of_x();
    if (one_row())
      k_.if_(warp_.index == 0u, [&] {
        zeros_.template st<4>(lane_, Words(Val<b32>(0), Val<b32>(0), Val<b32>(0), Val<b32>(0)));
      });
    if (pairs_) pairs_->fill<T>(k_, l_.table, warp_.index * 32u + lane_, threads());
    k_.sync();
    using State = std::pair<NextTile, typename Tiles::Cursor>;
    const auto multiply_rounds = [&](const Val<u32>& begin, const Val<u32>& rounds, const Val<u32>& buffer,
                                     State state) {
      return k_.loop(rounds, std::move(state), [&](Val<u32> round, State s) {
        auto [now, sum] = k_.loop(
            steps, std::pair(s, zeros<f32, 16 * Y, N>(warp_)), [&](Val<u32> step, std::pair<State, Sum> v) {
              ring.wait(v.first.second);
              const auto slot = v.first.second.stage();
              const auto base = ring.base(slot), tile = step * std::uint32_t(c_.share) + part_;
              auto sum = one_row() ? multiply_tile_by_row(base, tile, v.second)
                                   : multiply_tile(base, tile, std::move(v.second));
              warp_.sync();  // all lanes have read the slot before the next copy into it
              const auto after = copy(ring, slot, v.first.first, walk);
              return std::pair(State(after, ring.next(v.first.second)), std::move(sum));
            });
        const Sum done = one_row() ? sum_of_columns(sum) : std::move(sum);
        if (c_.parts() == 1)
          store_now(first_tile + stride * (begin + round), done);
        else
          keep(buffer * std::uint32_t(c_.rounds) + round, done);
        return now;
      });
    };
    if (c_.parts() == 1) {
      multiply_rounds(Val<u32>(0), mine, Val<u32>(0), State(ahead.back(), typename Tiles::Cursor()));
      return;
    }
    auto cta = k_.cta();
    const auto together = [&] {
      if (c_.cluster > 1)
        cluster_sync(cta);
      else
        k_.sync();
    };
    if (c_.buffers == 1) {
      multiply_rounds(Val<u32>(0), mine, Val<u32>(0), State(ahead.back(), typename Tiles::Cursor()));
      together();
      add_parts(Val<u32>(0), all, Val<u32>(0));
    } else {
      const auto most = std::uint32_t(c_.rounds);
      k_.loop((all + (most - 1)) / most, State(ahead.back(), typename Tiles::Cursor()),
              [&](Val<u32> chunk, State s) {
                const auto begin = chunk * most, buffer = remainder(chunk, 2);
                const auto left = [&](const Val<u32>& of) {
                  return dsl::min(of - dsl::min(begin, of), Val<u32>(most));
                };
                auto now = multiply_rounds(begin, left(mine), buffer, s);
                together();
                add_parts(begin, left(all), buffer);
                return now;
              });
    }
    if (c_.cluster > 1) cluster_sync(cta);  // the others have read this block's results
  }

  Val<u32> zero() const { return number(0); }
  Val<u32> number(std::uint32_t v) const { return Val<u32>(k_.copy(Val<u32>(v))); }  // in a register
  std::uint64_t tile_bytes() const { return std::uint64_t(l_.tile_bytes()); }
  bool one_row() const { return c_.rows == 1; }
  int tile_sums() const {
    return l_.groups() / 8 * 128 * (N / 8);
  }  // for each 8 groups 32 lanes x two terms of two groups

  bool whole() const { return c_.k_tiles % (c_.cluster * c_.share) == 0; }
  // How many tiles of K this warp has.
  Val<u32> steps() const {
    const auto share = std::uint32_t(c_.share);
    if (whole()) return number(std::uint32_t(c_.block_tiles()) / share);
    const auto first = rank_ * std::uint32_t(c_.block_tiles()) + part_;
    const auto end =
        dsl::min((rank_ + 1u) * std::uint32_t(c_.block_tiles()), Val<u32>(std::uint32_t(c_.k_tiles)));
    return select(first < end, (end - dsl::min(first, end) + (share - 1)) / share, Val<u32>(0));
  }

  // ------------------------------------------------------------ weights
  /// Of this warp: tiles of y between two of its own, tiles of K of each, bytes from the end of one to the next.
  struct Walk {
    Val<u32> stride, steps;
    Val<u64> across;
  };
  NextTile copy(Tiles& ring, const Val<u32>& slot, const NextTile& t, const Walk& walk) {
    ring.fill(slot, t.y < p_.y_tiles, t.from, Y, c_.k_tiles * std::int64_t(tile_bytes()), l_.tile_bytes());
    const auto last = t.step + 1u == walk.steps;
    return NextTile{t.from + std::uint64_t(c_.share) * tile_bytes() + select(last, walk.across, Val<u64>(0)),
                    select(last, Val<u32>(0), t.step + 1u), select(last, t.y + walk.stride, t.y)};
  }

  // ------------------------------------------------------------ x
  // As fragments: for each 32 columns [row][quad][16 bytes]. A thread takes 8 elements of a row; `kTogether` such
  // loads are under way at once.
  static constexpr int kTogether = 8;
  struct Units {
    std::vector<Val<u32>> row, unit;
    std::vector<std::vector<Val<b32>>> words;
    std::vector<std::vector<Val<f32>>> weights, values;  ///< with a norm
    std::vector<std::vector<Val<u32>>> columns;          ///< of x, where they are gathered
  };
  std::uint32_t row_units() const { return std::uint32_t(c_.block_tiles()) * 32; }
  std::uint32_t threads() const { return std::uint32_t(32 * c_.warps); }
  int together() const {
    const auto each = (row_units() * std::uint32_t(c_.rows) + threads() - 1) / threads();
    const auto batches = (each + kTogether - 1) / kTogether;
    return int((each + batches - 1) / batches);
  }
  Units units(const Val<u32>& first) {
    Units u;
    for (int i = 0; i < together(); ++i) {
      const auto at = first + lane_ + std::uint32_t(i) * threads();
      u.row.push_back(divided(at, int(row_units()))), u.unit.push_back(remainder(at, int(row_units())));
      if (c_.gather) {
        const auto unit = rank_ * row_units() + u.unit.back();
        u.columns.emplace_back();
        for (std::uint32_t half = 0; half < 2; ++half)
          for (const auto& v : In<u32>(p_.gather, 0, true)
                                   .template ld_if<4>(unit < divided(p_.k, 8), unit * 2u + half, Val<u32>(0)))
            u.columns.back().push_back(v);
      }
      if (c_.norm)
        u.weights.push_back(
            eight(In<f32>(p_.norm, 0, true), u.unit.back(), u.unit.back() < divided(p_.k, 8), false));
    }
    return u;
  }
  /// Columns 8 unit ... of a row of f32.
  static std::vector<Val<f32>> eight(const In<f32>& row, const Val<u32>& unit, const Val<pred>& there,
                                     bool past_l1) {
    std::vector<Val<f32>> out;
    for (int half = 0; half < 2; ++half) {
      const auto at = unit * 2u + std::uint32_t(half);
      const auto four = past_l1 ? row.template ld_if<4, relaxed, gpu>(there, at, Val<f32>(0))
                                : row.template ld_if<4>(there, at, Val<f32>(0));
      for (const auto& v : four) out.push_back(v);
    }
    return out;
  }
  void load_x(Units& u) {
    // Nothing that a launch `beside` waited for has made it drop what L1 has of an older x.
    const bool past_l1 = c_.order == WeightOnlyOrder::beside;
    for (std::size_t i = 0; i < u.row.size(); ++i) {
      const auto unit = rank_ * row_units() + u.unit[i];
      const Val<pred> there = (u.row[i] < p_.m) & (unit < divided(p_.k, 8));
      if (c_.norm) {
        u.values.push_back(
            eight(In<f32>(p_.x + to<u64>(u.row[i]) * p_.ldx * 4u, 0, false), unit, there, past_l1));
        continue;
      }
      if (c_.gather) {
        u.words.push_back(gathered(u.row[i], u.columns[i], there));
        continue;
      }
      const In<b32> x(p_.x + to<u64>(u.row[i]) * p_.ldx * 2u + to<u64>(divided(unit, 4)) * 64u, 0, !c_.pdl);
      u.words.emplace_back();
      auto& w = u.words.back();
      const auto words = past_l1 ? x.template ld_if<4, relaxed, gpu>(there, quad_, Val<b32>(0))
                                 : x.template ld_if<4>(there, quad_, Val<b32>(0));
      for (const auto& v : words) w.push_back(v);
    }
  }
  /// Columns of x by index: those that columns 8 unit ... of the weights multiply. One row lies in shared memory.
  std::vector<Val<b32>> gathered(const Val<u32>& row, const std::vector<Val<u32>>& columns,
                                 const Val<pred>& there) {
    const In<u16> x(p_.x + to<u64>(row) * p_.ldx * 2u, 0, !c_.pdl);
    const auto element = [&](std::size_t i) {
      if (!one_row()) return bits<b32>(to<u32>(x.ld_if(there, columns[i], Val<u16>(0))[0]));
      return bits<b32>(to<u32>(Ptr<shared, u16>(row_.address() + columns[i] * 2u).ld()));
    };
    std::vector<Val<b32>> words;
    for (std::size_t i = 0; i < 8; i += 2)
      words.push_back(select(there, prmt(element(i), element(i + 1), Val<u32>(0x5410u)), Val<b32>(0)));
    return words;
  }
  /// The row of x in the order of memory.
  void stage_row() {
    if (!c_.row_bytes()) return;
    const In<b32> x(p_.x, 0, !c_.pdl);
    k_.loop(range(warp_.index * 32u + lane_, divided(p_.k, 8), Val<u32>(threads())), [&](Val<u32> i) {
      const auto v = x.template ld<4>(i);
      row_.template st<4>(i, Words(v[0], v[1], v[2], v[3]));
    });
    k_.sync();
  }
  /// The block has the row of x in its registers: words become those of the normalised row.
  void normalise(Units& u) {
    std::vector<Val<f32>> squares{Val<f32>(0)};
    for (const auto& values : u.values)
      for (const auto& v : values) squares.push_back(fma(v, v, squares.back()));
    const auto add = [](const Val<f32>& a, const Val<f32>& b) { return a + b; };
    squares_.st(warp_.index, reduce(warp_, squares.back(), add));
    k_.sync();
    std::vector<Val<f32>> total;
    for (int w = 0; w < c_.warps; ++w) {
      const auto part = squares_.ld(w);
      total.push_back(w ? total.back() + part : part);
    }
    const auto scale = rsqrt<approx>(total.back() / to<f32>(p_.k) + p_.eps);
    for (std::size_t i = 0; i < u.values.size(); ++i) {
      const auto value = [&](std::size_t e) { return u.values[i][e] * scale * u.weights[i][e]; };
      u.words.emplace_back();
      for (std::size_t e = 0; e < 8; e += 2) u.words.back().push_back(pack<T>(value(e), value(e + 1)));
    }
  }
  void rest_of_x() {
    const std::uint32_t count = row_units() * std::uint32_t(c_.rows),
                        once = threads() * std::uint32_t(together());
    if (count > once)
      k_.loop(range(warp_.index * 32u + once, Val<u32>(count), Val<u32>(once)), [&](Val<u32> first) {
        Units u = units(first);
        load_x(u);
        store_x(u);
      });
  }
  void store_x(const Units& u) {
    for (std::size_t i = 0; i < u.words.size(); ++i) {
      const auto& w = u.words[i];
      const auto block = divided(u.unit[i], 4);
      const Val<pred> inside = u.row[i] < std::uint32_t(c_.rows);
      x_.template st_if<4>(inside, x_index(block, u.row[i], quad_), Words(w[0], w[1], w[2], w[3]));
      std::vector<Val<f32>> s{Val<f32>(0)};
      for (const auto& both : w)
        for (const auto& v : unpack<T>(both)) s.push_back(s.back() + to<f32>(v));
      s.push_back(s.back() + shfl<bfly>(warp_, s.back(), 1));
      const bool two = l_.group == 16;  // groups in the lanes' 32 columns
      if (!two) s.push_back(s.back() + shfl<bfly>(warp_, s.back(), 2));
      k_.if_((two ? remainder(quad_, 2) == 0u : quad_ == 0u) & inside,
             [&] { store_sum(u.row[i], two ? block * 2u + divided(quad_, 2) : block, s.back()); });
    }
  }
  void store_sum(const Val<u32>& row, const Val<u32>& group, const Val<f32>& sum) {
    const auto start = sum * -WeightTile<T>::offset(l_);
    if (one_row()) return start_.st(group, start);
    const auto at = start_index(group, divided(row, 2)) * 4u + remainder(row, 2);
    start_.st(at, start), start_.st(at + 2u, start);
    if (!l_.has_min) return;
    const auto high = bits<f32>(bits<b32>(sum) & Val<b32>(0xffffe000u));
    // Group g of 8 is element g % 4 of the lanes' quad, register g / 4.
    const auto to = (divided(group, 8) * std::uint32_t(N / 8) + divided(row, 8)) * 128u +
                    (remainder(row, 8) * 4u + remainder(group, 4)) * 4u + divided(remainder(group, 8), 4);
    sums_.st(to, high), sums_.st(to + 2u, sum - high);
  }
  // In 16 bytes: the starts of a group for two rows of x, twice.
  Val<u32> start_index(const Val<u32>& group, const Val<u32>& rows) const {
    return group * std::uint32_t(c_.rows / 2) + rows;
  }
  // In 16 bytes: columns 8 chunk ... of a block of 32. The swizzle gives the same chunk of eight rows, which ldmatrix reads
  // at once, banks of their own.
  Val<u32> x_index(const Val<u32>& block, const Val<u32>& row, const Val<u32>& chunk) const {
    return block * std::uint32_t(4 * c_.rows) + row * 4u + (chunk ^ remainder(divided(row, 2), 4));
  }

  // ------------------------------------------------------------ product
  // Fewer than 8 rows of x repeat in the columns of a fragment: what the other columns hold is not stored.
  Val<u32> some_row() const { return c_.rows < 8 ? remainder(group_, c_.rows) : group_; }
  /// `x`: where the lane's row of the tile's x begins; `block`: of 32 columns in the tile.
  std::vector<std::vector<Val<b32>>> inputs(const Val<u32>& x, int block) {
    std::vector<std::vector<Val<b32>>> out;
    for (int n = 0; n < N / 8; ++n) {
      const auto words = ldmatrix<x4>(warp_, x, 64 * (block * c_.rows + 8 * n));
      out.emplace_back(words.begin(), words.end());
    }
    return out;
  }
  // -offset() * the sum of x over a part: for each n those of the lane's two rows of x, twice.
  std::vector<RegGroup<f32, 4>> starts(const Val<u32>& group) {
    std::vector<RegGroup<f32, 4>> out;
    const auto rows = std::uint32_t(c_.rows / 2);
    for (int n = 0; n < N / 8; ++n)
      out.push_back(start_.template ld<4>(
          start_index(group, rows >= 4 ? quad_ + std::uint32_t(4 * n) : remainder(quad_, int(rows)))));
    return out;
  }

  // Which of the lane's rows of weights (g and g + 8 of each y) element i of a sum belongs to.
  static int row_of(int i) { return i / (4 * (N / 8)) * 2 + (i >> 1 & 1); }
  // What the sum of the group that begins at a column of the tile starts at.
  Sum start_of_group(const std::vector<WeightTile<T>>& w, const Val<u32>& tile, int column) {
    std::vector<std::vector<RegGroup<f32, 4>>> parts;
    for (int part = column / l_.part(); part < (column + l_.group) / l_.part(); ++part)
      parts.push_back(starts(tile * std::uint32_t(l_.parts()) + std::uint32_t(part)));
    std::vector<Val<f32>> factors;
    if (l_.has_zeros)
      for (const auto& of_y : w)
        for (int h = 0; h < 2; ++h) factors.push_back(of_y.zero_factor(column % 64 / l_.group, h));
    return make_sum<Sum>([&](int i) {
      const auto of = [&](std::size_t part) {
        return Val<f32>(parts[part][std::size_t(i / 4 % (N / 8))][i % 4]);
      };
      std::vector<Val<f32>> sum{of(0)};
      for (std::size_t part = 1; part < parts.size(); ++part) sum.push_back(sum.back() + of(part));
      return l_.has_zeros ? sum.back() * factors[std::size_t(row_of(i))] : k_.copy(sum.back());
    });
  }
  Sum multiply_tile(const Val<u32>& base, const Val<u32>& tile, Sum sum) {
    std::vector<WeightTile<T>> w;
    for (int y = 0; y < Y; ++y)
      w.emplace_back(l_, base + std::uint32_t(y) * std::uint32_t(tile_bytes()), lane_, pairs_);
    std::vector<Sum> sums;
    sums.push_back(std::move(sum));
    const int part = l_.part();
    const auto x_here = x_lane_ + tile * std::uint32_t(512 * c_.rows);
    std::vector<Sum> scaled, product;  // of this tile, without d; of a group
    for (int step = 0; step < 4; ++step) {
      for (auto& of_y : w) of_y.load(step);
      for (int at = 0; at < 64; at += part) {
        const int column = 64 * step + at, group = at / l_.group, j = at / 32;
        if (at % 32 == 0) x_now_ = inputs(x_here, 2 * step + j);
        if (column % l_.group == 0) product.push_back(start_of_group(w, tile, column));
        const int first = part == 16 ? at / 16 % 2 : 0, last = part == 16 ? first : 1;
        for (int half = first; half <= last; ++half) {
          std::vector<FragB<T, 16, 8>> b;
          for (const auto& v : x_now_)
            b.push_back(FragB<T, 16, 8>({v[std::size_t(2 * half)], v[std::size_t(2 * half + 1)]}));
          std::vector<std::vector<FragA<T, 16, 16>>> terms;
          for (const auto& of_y : w) terms.push_back(of_y.codes(j, half));
          for (std::size_t t = 0; t < terms[0].size(); ++t) {
            std::vector<FragA<T, 16, 16>> a;
            for (const auto& of_y : terms) a.push_back(of_y[t]);
            product.push_back(multiply<T>(warp_, std::move(product.back()), a, b));
          }
        }
        if ((column + part) % l_.group) continue;
        std::vector<Val<f32>> scales;
        for (const auto& of_y : w)
          for (int h = 0; h < 2; ++h)
            scales.push_back(l_.super_scale ? of_y.integer_scale(group, h) : of_y.scale(group, h));
        const auto scale = [&](int i) { return scales[std::size_t(row_of(i))]; };
        if (!l_.super_scale)
          sums.push_back(
              make_sum<Sum>([&](int i) { return fma(scale(i), product.back()[i], sums.back()[i]); }));
        else if (scaled.empty())
          scaled.push_back(make_sum<Sum>([&](int i) { return scale(i) * product.back()[i]; }));
        else
          scaled.push_back(
              make_sum<Sum>([&](int i) { return fma(scale(i), product.back()[i], scaled.back()[i]); }));
      }
    }
    if (l_.super_scale)
      sums.push_back(make_sum<Sum>([&](int i) {
        const auto& d = w[std::size_t(row_of(i) / 2)].d();
        return fma(d[std::size_t(row_of(i) % 2)], scaled.back()[i], sums.back()[i]);
      }));
    return l_.has_min ? less_minima(w, tile, std::move(sums.back())) : std::move(sums.back());
  }
  /// The same with one row of x, where column c of the lane's sums is that of group c (of 16 columns: groups 2 c, 2 c + 1).
  Sum multiply_tile_by_row(const Val<u32>& base, const Val<u32>& tile, const Sum& sum) {
    WeightTile<T> w(l_, base, lane_, pairs_);
    const auto scales = w.quad_scales(quad_);
    const auto x_here = x_lane_ + tile * 512u, row = remainder(lane_, 8);
    const int chains = l_.group == 16 ? 2 : 1;
    // Where the lane's columns start: -offset() * the sum of x over the group.
    std::vector<Val<f32>> start;
    const auto first_group = tile * std::uint32_t(l_.parts()) + quad_ * std::uint32_t(2 * chains);
    for (int i = 0; i < 2 * chains; i += 2)
      for (const auto& v : start_.at(i).template ld<2>(divided(first_group, 2))) start.push_back(v);
    const auto start_of = [&](int chain, int column) { return start[std::size_t(column * chains + chain)]; };
    std::vector<std::vector<Sum>> totals(static_cast<std::size_t>(chains));
    for (int chain = 0; chain < chains; ++chain)
      totals[std::size_t(chain)].push_back(make_sum<Sum>([&](int i) {
        const auto begin = start_of(chain, i % 2);
        return l_.has_zeros ? begin * scales.zero_factor[std::size_t(i)] : k_.copy(begin);
      }));
    for (int step = 0; step < 4; ++step) {
      w.load_codes(step);
      for (int j = 0; j < 2; ++j) {
        const int block = 2 * step + j;
        const auto from = select(row == std::uint32_t(block), x_here, zero_lane_);
        const auto x = ldmatrix<x4>(warp_, from, 64 * block);
        for (int half = 0; half < 2; ++half) {
          auto& total = totals[std::size_t(half % chains)];
          const std::vector<FragB<T, 16, 8>> b{
              FragB<T, 16, 8>({x[std::size_t(2 * half)], x[std::size_t(2 * half + 1)]})};
          for (const auto& term : w.codes(j, half))
            total.push_back(multiply<T>(warp_, std::move(total.back()), std::vector{term}, b));
        }
      }
    }
    return make_sum<Sum>([&](int i) {
      const std::size_t h = std::size_t(i / 2), each = std::size_t(2 * chains);
      const auto scale = [&](int chain) {
        return scales.scale[h * each + std::size_t(i % 2 * chains + chain)];
      };
      const Val<f32> first = totals[0].back()[i];
      if (!l_.super_scale) return fma(scale(0), first, sum[i]);
      const auto scaled = scale(0) * first;
      if (chains == 2) return fma(w.d()[h], fma(scale(1), totals[1].back()[i], scaled), sum[i]);
      if (!l_.has_min) return fma(w.d()[h], scaled, sum[i]);
      const auto less = scales.minimum[h * each + std::size_t(i % 2)] * start_of(0, i % 2);
      const auto offset = w.dmin()[h] * (1.0f / WeightTile<T>::offset(l_));
      return fma(w.d()[h], scaled, fma(offset, less, sum[i]));
    });
  }
  /// Each lane gets the whole sums of its rows.
  Sum sum_of_columns(const Sum& sum) {
    std::vector<Val<f32>> rows;
    for (int h = 0; h < 2; ++h)
      rows.push_back(reduce(
          warp_, sum[2 * h] + sum[2 * h + 1], [](const Val<f32>& a, const Val<f32>& b) { return a + b; }, 4));
    return make_sum<Sum>([&](int i) { return k_.copy(rows[std::size_t(i / 2)]); });
  }
  Sum less_minima(const std::vector<WeightTile<T>>& w, const Val<u32>& tile, Sum sum) {
    std::vector<FragB<tf32, 8, 8>> high, low;
    for (int n = 0; n < N / 8; ++n) {
      const auto v = sums_.as<b32>().template ld<4>((tile * std::uint32_t(N / 8) + std::uint32_t(n)) * 32u +
                                                    some_row() * 4u + quad_);
      high.push_back(FragB<tf32, 8, 8>({v[0], v[1]})), low.push_back(FragB<tf32, 8, 8>({v[2], v[3]}));
    }
    std::vector<FragA<tf32, 16, 8>> a;
    for (const auto& of_y : w) a.push_back(of_y.minima());
    auto minima = multiply<tf32>(warp_, zeros<f32, 16 * Y, N>(warp_), a, high);
    const auto both = multiply<tf32>(warp_, std::move(minima), a, low);
    return make_sum<Sum>([&](int i) {
      return fma(-w[std::size_t(i / (4 * (N / 8)))].dmin()[std::size_t(i >> 1 & 1)], both[i], sum[i]);
    });
  }

  // ------------------------------------------------------------ results
  // Block b of 16 x 8 results of a lane: rows of x 2 q and 2 q + 1 of 8, columns of y g and g + 8 of 16; or column g of
  // the gate and of up.
  void put_block(const Val<u32>& tile, const Val<u32>& y, const Val<u32>& n, const Val<u32>& g,
                 const Val<u32>& q, const std::vector<Val<f32>>& v) {
    const bool gate = c_.end == WeightOnlyEnd::gate;
    const auto first = (tile * std::uint32_t(Y) + y) * (gate ? 8u : 16u) + g;
    std::vector<Val<pred>> there;
    std::vector<Val<u64>> at;
    std::vector<Val<f32>> before;
    for (int i = 0; i < (gate ? 2 : 4); ++i) {
      const auto row = n * 8u + q * 2u + std::uint32_t(i % 2), column = first + std::uint32_t(i / 2 * 8);
      there.push_back((row < p_.m) & (column < (gate ? divided(p_.n, 2) : p_.n)));
      at.push_back(to<u64>(row) * p_.ldy + to<u64>(column));
      if (c_.end == WeightOnlyEnd::add_f32)
        before.push_back(Out<f32>(p_.y).ld_if(there.back(), at.back(), Val<f32>(0))[0]);
    }
    for (std::size_t i = 0; i < at.size(); ++i) {
      if (c_.end == WeightOnlyEnd::add_f32)
        Out<f32>(p_.y).st_if(there[i], at[i], before[i] + v[i]);
      else if (c_.end == WeightOnlyEnd::store_f32)
        Out<f32>(p_.y).st_if(there[i], at[i], v[i]);
      else
        Out<T>(p_.y).st_if(there[i], at[i],
                           to<T>(gate ? activation_code(c_.activation, v[i]) * v[i + 2] : v[i]));
    }
  }
  void store_now(const Val<u32>& tile, const Sum& sum) {
    for (int b = 0; b < Sum::count / 4; ++b)
      put_block(tile, Val<u32>(std::uint32_t(b / (N / 8))), Val<u32>(std::uint32_t(b % (N / 8))), group_,
                quad_, {sum[4 * b], sum[4 * b + 1], sum[4 * b + 2], sum[4 * b + 3]});
  }
  // results_: [place][warp][block][lane][4].
  Val<u32> result_index(const Val<u32>& place, const Val<u32>& warp, const Val<u32>& block) const {
    return ((place * std::uint32_t(c_.warps) + warp) * std::uint32_t(Sum::count / 4) + block) * 32u;
  }
  void keep(const Val<u32>& place, const Sum& sum) {
    const auto at = result_index(place, warp_.index, Val<u32>(0)) + lane_;
    for (int b = 0; b < Sum::count / 4; ++b)
      results_.template st<4>(at + std::uint32_t(32 * b),
                              RegGroup<f32, 4>(sum[4 * b], sum[4 * b + 1], sum[4 * b + 2], sum[4 * b + 3]));
  }
  // A thread adds the parts of what one lane has of a block of 16 x 8; the blocks of the cluster share that work.
  void add_parts(const Val<u32>& begin, const Val<u32>& rounds, const Val<u32>& buffer) {
    const int quads = std::clamp(c_.rows / 2, 1, 4), teams = c_.warps / c_.share, blocks = Sum::count / 4,
              each = teams * blocks * 8 * quads;
    const auto from = rank_ * threads() + warp_.index * 32u + lane_;
    const auto end = rounds * std::uint32_t(each);
    k_.loop(range(from, end, Val<u32>(threads() * std::uint32_t(c_.cluster))), [&](Val<u32> i) {
      const auto q = quads > 1 ? remainder(i, quads) : zero(), g = remainder(divided(i, quads), 8),
                 block = remainder(divided(i, quads * 8), blocks),
                 team = remainder(divided(i, quads * 8 * blocks), teams), round = divided(i, each);
      const auto tile = cluster_ + clusters_ * (team + (begin + round) * std::uint32_t(teams));
      k_.if_(tile < p_.y_tiles, [&] {
        std::vector<std::vector<Val<f32>>> sum;
        for (int b = 0; b < c_.cluster; ++b)
          for (int s = 0; s < c_.share; ++s) {
            const auto at = result_index(buffer * std::uint32_t(c_.rounds) + round,
                                         team * std::uint32_t(c_.share) + std::uint32_t(s), block) +
                            g * 4u + q;
            const auto here = results_.at(at * 4u);
            const auto v = c_.cluster > 1 ? mapa(here, Val<u32>(std::uint32_t(b))).template ld<4>(0)
                                          : here.template ld<4>(0);
            sum.emplace_back();
            for (int e = 0; e < 4; ++e)
              sum.back().push_back(sum.size() > 1 ? sum[sum.size() - 2][std::size_t(e)] + v[e]
                                                  : Val<f32>(v[e]));
          }
        put_block(tile, divided(block, N / 8), remainder(block, N / 8), g, q, sum.back());
      });
    });
  }

  Kernel& k_;
  const WeightOnlyConfig& c_;
  const WeightLayout& l_;
  const WeightOnlyParams<Val>& p_;
  Warp warp_;
  Val<u32> lane_, group_, quad_, part_, rank_, cluster_, clusters_;
  Ptr<shared, b32> x_;
  Ptr<shared, f32> start_, sums_;
  Ptr<shared, b32> zeros_;  ///< 512 bytes, with one row of x
  Ptr<shared, f32> results_;
  Val<u32> x_lane_;     ///< the row and chunk that the lane names to ldmatrix, in the first 32 columns
  Val<u32> zero_lane_;  ///< 16 of the zeros
  Ptr<shared, f32> squares_;
  Ptr<shared, b32> row_;  ///< of x, where columns are gathered
  std::optional<PairTable> pairs_;
  std::vector<std::vector<Val<b32>>> x_now_;
};

template <class T, int Y, int N>
void stream_kernel(Kernel& k, WeightOnlyConfig c, WeightOnlyParams<Val> p) {
  k.block(32 * c.warps);
  k.require(!c.async || (c.cluster == 1 && !c.pdl), "what copies by cp.async has no clusters and no pdl");
  if (c.cluster > 1) k.cluster(c.cluster);
  if (c.min_blocks > 1) k.min_blocks(c.min_blocks);
  if (c.async)
    Product<T, Y, N, AsyncTiles>(k, c, p).run();
  else
    Product<T, Y, N, BulkTiles>(k, c, p).run();
}

}  // namespace

Variant weight_only_variant(const WeightOnlyConfig& c) {
  const auto make = [&](auto fn) { return config_variant("weight_only", c, c.async ? 80 : 90, fn); };
  const auto of_type = [&](auto t) {
    using T = decltype(t);
    if (c.y_tiles > 1)
      return c.rows > 16  ? make(stream_kernel<T, 2, 32>)
             : c.rows > 8 ? make(stream_kernel<T, 2, 16>)
                          : make(stream_kernel<T, 2, 8>);
    return c.rows > 16  ? make(stream_kernel<T, 1, 32>)
           : c.rows > 8 ? make(stream_kernel<T, 1, 16>)
                        : make(stream_kernel<T, 1, 8>);
  };
  return c.type == DType::f16 ? of_type(f16{}) : of_type(bf16{});
}

}  // namespace cgp::kernels
