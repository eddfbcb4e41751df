// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/gemm/sm90/gemm_dynamic_sm90.h"

#include <algorithm>
#include <span>

namespace cgp::kernels {
namespace {

using namespace dsl;

TileLayout operand_tile(int element_bytes, Major major, int extent) {
  const int depth = 128 / element_bytes;
  if (major == Major::k) return {extent, depth, element_bytes, Swizzle::b128, extent};
  return {depth, (extent + 63) / 64 * 64, element_bytes, Swizzle::b128, depth};
}

record::TmaMap declare_operand(Kernel& k, ptx::Mod type, int element_bytes, Major major, int extent,
                               bool paired) {
  const auto t = operand_tile(element_bytes, major, extent);
  const int plain[] = {1, t.rows, t.cols}, halves[] = {1, 2, t.rows / 2, t.cols};
  return record::declare_tma(k, type, t, paired ? std::span<const int>(halves) : plain, false);
}

// Pieces of C: 64 rows by columns, or of a turned tile rows by 64 columns (128 bytes, the widest swizzle).
// Columns that are not 64 go without a swizzle, an odd number of 16-byte parts, which do not meet in banks.
TileLayout piece_tile(const ShapedTile& t) {
  const int piece = shaped_piece(t);
  if (t.turned) return {piece, 64, 2, Swizzle::b128, piece};
  return {64, piece, 2, piece == 64 ? Swizzle::b128 : Swizzle::none, 64};
}

record::TmaMap declare_results(Kernel& k, const ShapedTile& t, ptx::Mod type, bool reads = false) {
  const auto tile = piece_tile(t);
  const int box[] = {1, tile.rows, tile.cols};
  return record::declare_tma(k, type, tile, box, !reads);
}

int pieces(const ShapedTile& t) {
  const int piece = shaped_piece(t);
  return (t.group_cols() + piece - 1) / piece * (t.group_rows() / 64);
}

// Old results in a stage of the ring: bytes from one piece to the next, and pieces of each warpgroup.
int old_stride(const ShapedTile& t) { return (piece_tile(t).bytes() + 1023) / 1024 * 1024; }
int old_each(const ShapedTile& t) { return shaped_stage_bytes(t) / old_stride(t) / t.groups; }

// Rows of an operand, 128 bytes each in a stage, that one warpgroup alone reads.
int own_rows(const ShapedTile& t) { return t.by_columns() ? t.group_cols() : t.group_rows(); }

}  // namespace

// ---------------------------------------------------------------- shared memory
int shaped_piece(const ShapedTile& t) {
  const int cols = t.group_cols();
  if (t.single) return std::min(64, cols);
  if (cols % 64 == 0) return 64;
  if (!t.turned) {
    for (int c : {104, 88, 72, 56, 40, 24})
      if (cols % c == 0) return c;
    return 64;  // the last repeats a part of the one before
  }
  for (int c = 56; c >= 24; c -= 8)
    if (cols % c == 0) return c;
  for (int c : {104, 88})
    if (cols % c == 0) return c;
  return cols <= 152 ? cols : 64;
}
bool shaped_single_fits(const ShapedTile& t) {
  return (t.turned || t.group_cols() >= 64) && pieces(t) <= own_rows(t) / 64 * t.stages;
}
int shaped_old_slots(const ShapedTile& t) {
  const int each = old_each(t), slots = each ? (pieces(t) + each - 1) / each : 0;
  return slots <= t.stages ? slots : 0;
}
int shaped_staging_bytes(const ShapedTile& t, int buffers) {
  if (t.single) return 0;
  const auto tile = piece_tile(t);
  const int align = pattern_bytes(tile.swizzle);
  return (tile.bytes() + align - 1) / align * align * buffers * t.groups;
}
int shaped_buffers(const ShapedTile& t) {
  const int n = pieces(t);
  const int several = n % 2 == 0 ? 2 : n % 3 == 0 ? 3 : 1;
  // A fourth stage is worth more.
  return piece_tile(t).bytes() > 12 * 1024 || (shaped_stages(t, several) < 4 && shaped_stages(t, 1) >= 4)
             ? 1
             : several;
}
int shaped_stage_bytes(const ShapedTile& t) {
  const auto bytes = [&](Major major, int extent) {
    return operand_tile(t.element_bytes, major, extent).bytes();
  };
  return t.planes * (bytes(t.major_a, t.height()) + bytes(t.major_b, t.width()));
}
int shaped_stages(const ShapedTile& t, int buffers, int most) {
  return std::min(most, (227 * 1024 - 2048 - shaped_staging_bytes(t, buffers)) / shaped_stage_bytes(t));
}

// ---------------------------------------------------------------- operands
ShapedOperand::ShapedOperand(Kernel& k, ptx::Mod type, int element_bytes, Major major, int extent,
                             bool paired)
    : map_(declare_operand(k, type, element_bytes, major, extent, paired)), major_(major), paired_(paired) {}

ShapedOperand ShapedOperand::shared(Axis axis, Here at) const {
  return {record::share_tma(map_, axis, at), major_, paired_};
}
ShapedOperand ShapedOperand::hint(L2Hint h) const {
  auto m = map_;
  m.hint = h;
  return {std::move(m), major_, paired_};
}
record::TmaSource ShapedOperand::at(const Val<u32>& batch, const Val<u32>& row, const Val<u32>& k0) const {
  if (paired_) return {map_, {batch, Val<u32>(0), row / 2u, k0}};
  if (major_ == Major::k) return {map_, {batch, row, k0}};
  return {map_, {batch, k0, row}};
}
record::WgmmaOperand ShapedOperand::part(const Val<u32>& base, int offset,
                                         const std::optional<Val<u32>>& from) const {
  // A row has 128 bytes of K in its stage; so have 64 of them that lie contiguous in a panel.
  const Val<u32> start = from ? base + record::times(*from, 128) : base;
  return {{}, record::SharedAddress{start, offset}, map_.layout, major_};
}

// ---------------------------------------------------------------- products
namespace {

record::RingCore make_ring(Kernel& k, const ShapedTile& t, const Role<Warpgroup>& load,
                           const Role<Warpgroup>& math, const ShapedOperand& a, const ShapedOperand& b) {
  std::vector<Axis> axes;
  for (const auto* o : {&a, &b})
    if (o->map().peers > 1) axes.push_back(o->map().axis);
  const int bytes = t.planes * (a.bytes() + b.bytes());
  return record::RingCore(
      k, record::has_cluster(k) ? Stages(t.stages) : Stages::started_by_producer(t.stages), bytes, bytes,
      1024, {math.threads() / 32, false, false, load.first_warp(), math.first_warp(), math.threads() / 32},
      axes);
}

}  // namespace

ShapedProduct::ShapedProduct(Kernel& k, const ShapedTile& t, const Role<Warpgroup>& load,
                             const Role<Warpgroup>& math, const ShapedOperand& a, const ShapedOperand& b)
    : k_(k), tile_(t), a_(a), b_(b), ring_(make_ring(k, t, load, math, a, b)) {}

void ShapedProduct::fill(Thread&, const HopperPlace& at, const Val<u32>& k_tile,
                         const std::optional<Val<u32>>& batches, Here here) {
  const auto k0 = k_tile * std::uint32_t(128 / tile_.element_bytes);
  const auto stage = ring_.begin_fill(here);
  const auto load = [&](const ShapedOperand& o, const Val<u32>& row, int offset) {
    for (int p = 0; p < tile_.planes; ++p)
      record::tma_load(k_, o.at(p ? at.batch + *batches * std::uint32_t(p) : at.batch, row, k0),
                       {stage.data, offset + p * o.bytes()}, stage.full, here);
  };
  load(a_, at.m0, 0);
  load(b_, at.n0, tile_.planes * a_.bytes());
  ring_.end_fill(here);
}

void ShapedProduct::fill(Thread&, const HopperPlace& of_a, const HopperPlace& of_b, const Val<u32>& k_tile,
                         Here here) {
  const auto k0 = k_tile * std::uint32_t(128 / tile_.element_bytes);
  const auto stage = ring_.begin_fill(here);
  record::tma_load(k_, a_.at(of_a.batch, of_a.m0, k0), {stage.data, 0}, stage.full, here);
  record::tma_load(k_, b_.at(of_b.batch, of_b.n0, k0), {stage.data, a_.bytes()}, stage.full, here);
  ring_.end_fill(here);
}

Val<u32> ShapedProduct::spent(const Warpgroup& wg, int i) const {
  const int rows = own_rows(tile_), each = rows / 64;
  const bool of_b = tile_.by_columns() != tile_.turned;
  const auto base = k_.smem_addr(ring_.data() + i / each * shaped_stage_bytes(tile_) +
                                 (of_b ? tile_.planes * a_.bytes() : 0) + i % each * 64 * 128);
  return tile_.groups == 1 ? base : base + record::times(wg.index, rows * 128);
}

void ShapedProduct::skip(Warpgroup& wg, const Val<u32>& k_tiles, Here here) {
  wg.converged("skipping stages", here);
  k_.loop(
      k_tiles,
      [&](Val<u32>) {
        (void)ring_.begin_take(here);
        ring_.end_take(here).release(here);
      },
      here);
}

namespace {
// Planes of A and B that are multiplied, smallest products first: what is added to a large sum loses the
// most. Of three, the products above 2^-24.
std::vector<std::pair<int, int>> plane_products(int planes) {
  if (planes == 1) return {{0, 0}};
  return {{1, 1}, {2, 0}, {0, 2}, {1, 0}, {0, 1}, {0, 0}};
}
}  // namespace

ShapedProduct::Flight ShapedProduct::issue(Warpgroup& wg, const std::vector<Value>& sums, bool first,
                                           Here here, int part, int parts) {
  wg.converged("taking a stage", here);
  const auto data = ring_.begin_take(here);
  std::vector<record::StageToken> stages;
  if (part + 1 == parts) stages.push_back(ring_.end_take(here));
  std::optional<Val<u32>> row, col;
  if (tile_.groups > 1)
    (tile_.by_columns() ? col : row)
        .emplace(record::times(wg.index, tile_.by_columns() ? tile_.group_cols() : tile_.group_rows()));
  const int cols = tile_.group_cols() / parts, bits = 8 * tile_.element_bytes;
  std::size_t group = 0;
  for (const auto& [of_a, of_b] : plane_products(tile_.planes)) {
    const int at_a = of_a * a_.bytes(), at_b = tile_.planes * a_.bytes() + of_b * b_.bytes();
    auto x = (tile_.turned ? b_ : a_).part(data, tile_.turned ? at_b : at_a, row),
         y = (tile_.turned ? a_ : b_).part(data, tile_.turned ? at_a : at_b, col);
    y.address->offset += part * cols * 128;
    group = record::wgmma_group(k_,
                                {tile_.turned ? tile_.b : tile_.a, tile_.turned ? tile_.a : tile_.b,
                                 tile_.sum, tile_.group_rows(), cols, 1024 / bits, 256 / bits},
                                x, y, sums, {first, {}}, here);
    first = false;
  }
  return Flight({}, std::move(stages), group, here);
}

std::vector<Value> ShapedProduct::sums(Warpgroup& wg, const Val<u32>& k_tiles, Here here) {
  const auto sums = record::fresh_registers(k_, tile_.sum, tile_.group_rows() * tile_.group_cols() / 128);
  auto last = k_.loop(
      k_tiles - 1, issue(wg, sums, true, here),
      [&](Val<u32>, Flight busy) {
        auto next = issue(wg, sums, false, here);
        (void)std::move(busy).wait(wg, here);
        return next;
      },
      here);
  (void)std::move(last).wait(wg, here);
  return sums;
}

std::vector<Value> ShapedProduct::promoted_sums(Warpgroup& wg, const Val<u32>& k_tiles,
                                                const ShapedPromotion& how, Here here) {
  using Factors = std::vector<Val<f32>>;
  const int blocks = tile_.group_rows() / 64, row = tile_.group_cols() / 2, each = row / how.parts;
  const auto total = record::zero_registers(k_, ptx::Mod::f32, blocks * row, here);
  std::vector<std::vector<Value>> fresh;
  for (int i = 0; i < (how.overlapped ? 2 : 1); ++i)
    fresh.push_back(record::fresh_registers(k_, tile_.sum, blocks * each));
  const auto start = [&](int part, int set) {
    return issue(wg, fresh[std::size_t(set)], true, here, part, how.parts);
  };
  const auto add = [&](int part, int set, const Factors& f) {
    const auto& from = fresh[std::size_t(set)];
    for (int b = 0; b < blocks; ++b) {
      Factors both;  // of this thread's two rows
      for (int h = 0; h < 2 && !f.empty(); ++h)
        both.push_back(f[std::size_t(2 * b + h)] * f[std::size_t(2 * blocks + part)]);
      for (int i = 0; i < each; ++i) {
        const auto& to = total[std::size_t(b * row + part * each + i)];
        const auto& x = from[std::size_t(b * each + i)];
        if (f.empty())
          k_.mov_op(to, ptx::Op::add, {ptx::Mod::f32}, {to, x});
        else
          k_.mov_op(to, ptx::Op::fma, {ptx::Mod::rn, ptx::Mod::f32}, {x, both[std::size_t(i / 2 % 2)], to});
      }
    }
  };
  const auto factors = [&](const Val<u32>& k_tile) { return how.factors ? how.factors(k_tile) : Factors(); };
  // Parts of a stage, or (one part) two stages: the first is added up while the second is multiplied. All are
  // done at the end of an iteration: ptxas serialises what is under way across a loop's back edge and is read
  // there.
  const auto both = [&](int x, const Factors& of_x, int y, const Factors& of_y) {
    auto one = start(x, 0), two = start(y, 1);
    (void)std::move(one).wait(wg, here);
    add(x, 0, of_x);
    (void)std::move(two).wait(wg, here);
    add(y, 1, of_y);
  };
  const auto single = [&](int part, const Factors& f) {
    (void)start(part, 0).wait(wg, here);
    add(part, 0, f);
  };
  const auto last = k_tiles - 1;
  const auto ahead = [&](const Val<u32>& kt) {
    return factors(dsl::min(kt, last));
  };  // nothing behind the end
  if (how.parts == 1 && how.overlapped) {
    using Two = std::pair<Factors, Factors>;
    const auto end = k_.loop(
        k_tiles / 2u, Two(factors(k_tiles * 0u), ahead(k_tiles * 0u + 1u)),
        [&](Val<u32> half, Two now) {
          Two next(ahead(half * 2u + 2u), ahead(half * 2u + 3u));
          both(0, now.first, 0, now.second);
          return next;
        },
        here);
    k_.if_(k_tiles % 2u != 0u, [&] { single(0, end.first); });
    return total;
  }
  k_.loop(
      k_tiles, factors(k_tiles * 0u),
      [&](Val<u32> kt, Factors now) {
        auto next = ahead(kt + 1u);  // on their way while this is multiplied
        for (int p = 0; p < how.parts; p += how.overlapped ? 2 : 1)
          how.overlapped ? both(p, now, p + 1, now) : single(p, now);
        return next;
      },
      here);
  return total;
}

HopperPlace ShapedProduct::mine(const Warpgroup& wg, const HopperPlace& at) const {
  if (tile_.groups == 1) return at;
  const auto own = record::times(wg.index, tile_.by_columns() ? tile_.group_cols() : tile_.group_rows());
  return tile_.by_columns() == tile_.turned ? HopperPlace{at.batch, at.m0 + own, at.n0}
                                            : HopperPlace{at.batch, at.m0, at.n0 + own};
}

namespace {
// f(block of 64 of wgmma's rows, first of its columns, the place in C) for each piece of a warpgroup.
template <class F>
void over_pieces(const ShapedTile& t, const HopperPlace& at, F&& f) {
  const int cols = t.group_cols(), piece = shaped_piece(t);
  for (int block = 0; block < t.group_rows() / 64; ++block)
    for (int next = 0; next < cols; next += piece) {
      const int col = std::min(next, cols - piece);
      const auto rows = std::uint32_t(64 * block), from = std::uint32_t(col);
      f(block, col,
        t.turned ? HopperPlace{at.batch, at.m0 + from, at.n0 + rows}
                 : HopperPlace{at.batch, at.m0 + rows, at.n0 + from});
    }
}
}  // namespace

void ShapedProduct::fill_old(Thread&, const record::TmaMap& old, const HopperPlace& at, Here here) {
  const int each = old_each(tile_), stride = old_stride(tile_), bytes = piece_tile(tile_).bytes();
  std::vector<std::vector<HopperPlace>> all;  // of each piece, warpgroup by warpgroup
  for (int w = 0; w < tile_.groups; ++w) {
    const auto own = std::uint32_t(w * (tile_.by_columns() ? tile_.group_cols() : tile_.group_rows()));
    const bool below = tile_.by_columns() == tile_.turned;
    std::size_t i = 0;
    over_pieces(tile_, {at.batch, at.m0 + (below ? own : 0u), at.n0 + (below ? 0u : own)},
                [&](int, int, const HopperPlace& place) {
                  if (w == 0) all.emplace_back();
                  all[i++].push_back(place);
                });
  }
  for (int first = 0; first < int(all.size()); first += each) {
    const int count = std::min(each, int(all.size()) - first);
    const auto stage = ring_.begin_fill(here, count * tile_.groups * bytes);
    for (int i = 0; i < count * tile_.groups; ++i) {
      const auto& p = all[std::size_t(first + i / tile_.groups)][std::size_t(i % tile_.groups)];
      record::tma_load(k_, {old, {p.batch, p.m0, p.n0}}, {stage.data, i * stride}, stage.full, here);
    }
    ring_.end_fill(here);
  }
}

ShapedProduct::Old ShapedProduct::take_old(Warpgroup& wg, Here here) {
  wg.converged("taking old results", here);
  Old out;
  for (int i = 0; i < shaped_old_slots(tile_); ++i) {
    const auto base = ring_.begin_take(here);
    out.stages.push_back(tile_.groups == 1 ? base : base + record::times(wg.index, old_stride(tile_)));
    out.tokens.push_back(ring_.end_take(here));
  }
  return out;
}

// ---------------------------------------------------------------- results
ShapedResults::ShapedResults(Kernel& k, const ShapedTile& t, ptx::Mod type)
    : ShapedResults(k, t, type, false) {}
ShapedResults::ShapedResults(Kernel& k, const ShapedTile& t, ptx::Mod type, bool reads)
    : k_(k), tile_(t), type_(type), map_(declare_results(k, t, type)) {
  if (reads) old_.emplace(declare_results(k, t, type, true));
}

void ShapedResults::open(const Role<Warpgroup>& math, int buffers) {
  const auto t = piece_tile(tile_);
  staging_.emplace(k_, math.count(), buffers, tile_.single ? 0 : t.bytes(), pattern_bytes(t.swizzle),
                   Here::now());
}

void ShapedResults::store(Warpgroup& wg, const std::vector<Value>& sums, const HopperPlace& at,
                          const ShapedProduct* spent, Here here) {
  const auto tile = piece_tile(tile_);
  const auto each = std::ptrdiff_t(tile_.group_cols() / 2);
  int turn = 0;
  over_pieces(tile_, at, [&](int block, int col, const HopperPlace& place) {
    const std::vector<Value> regs(sums.begin() + block * each, sums.begin() + (block + 1) * each);
    const auto base = spent ? spent->spent(wg, turn) : staging_->begin(wg, turn % staging_->buffers(), here);
    ++turn;
    fill(base, regs, col, here);
    staging_->end(wg, {map_, {place.batch, place.m0, place.n0}}, base, tile, StoreOp::store, here);
  });
}

void ShapedResults::store(Warpgroup& wg, const std::vector<Value>& sums, const HopperPlace& at,
                          ShapedProduct::Old old, const Val<f32>& beta, Here here) {
  const auto tile = piece_tile(tile_);
  const auto each = std::ptrdiff_t(tile_.group_cols() / 2);
  const int in_stage = old_each(tile_), all = pieces(tile_);
  int turn = 0;
  over_pieces(tile_, at, [&](int block, int col, const HopperPlace& place) {
    const std::vector<Value> regs(sums.begin() + block * each, sums.begin() + (block + 1) * each);
    const auto from = old.stages[std::size_t(turn / in_stage)] +
                      std::uint32_t(turn % in_stage * tile_.groups * old_stride(tile_));
    const auto base = tile_.single ? from : staging_->begin(wg, turn % staging_->buffers(), here);
    const auto added = add_old(from, regs, col, beta, here);
    ++turn;
    if (tile_.single)
      staging_->barrier(wg, here);  // all have read
    else if (turn % in_stage == 0 || turn == all)
      std::move(old.tokens[std::size_t((turn - 1) / in_stage)]).release(here);
    fill(base, added, col, here);
    staging_->end(wg, {map_, {place.batch, place.m0, place.n0}}, base, tile, StoreOp::store, here);
  });
  if (tile_.single)
    for (auto& t : old.tokens) t.disarm();  // nothing is fetched any more
}

void ShapedResults::fill(const Val<u32>& base, const std::vector<Value>& sums, int col, Here at) {
  const int cols = tile_.group_cols();
  if (tile_.turned) return fill_turned(base, sums, col, at);
  const auto tile = piece_tile(tile_);
  record::store_accumulator(k_, {64, 64, cols, col, type_, ptx::Mod::f32}, sums, tile, base, 0, at);
}

// The sums with beta times the piece at `base`, read as fill() writes it.
std::vector<Value> ShapedResults::add_old(const Val<u32>& base, const std::vector<Value>& sums, int col,
                                          const Val<f32>& beta, Here at) {
  const auto tile = piece_tile(tile_);
  std::vector<std::optional<Value>> made(sums.size());
  const auto finished = [&] {
    std::vector<Value> out;
    for (std::size_t i = 0; i < sums.size(); ++i) out.push_back(made[i] ? *made[i] : sums[i]);
    return out;
  };
  const auto add = [&](std::size_t i, const Val<b32>& word) {
    const auto one = [&](std::size_t j, const Val<f32>& x) {
      made[j].emplace(fma(x, beta, Val<f32>(sums[j])));
    };
    const auto both = [&]<class T>(T) {
      const auto h = unpack<T>(word);
      one(i, to<f32>(h[0])), one(i + 1, to<f32>(h[1]));
    };
    type_ == ptx::Mod::f16 ? both(f16()) : both(bf16());
  };
  if (tile_.turned) {
    const auto address = turned_address(base);
    for (int c = 0; c < tile.rows; c += 16) {
      const int count = tile.rows - c >= 16 ? 4 : 2;
      const auto words = record::ldmatrix(k_, count, true, address, c * tile.span(), at);
      for (int j = 0; j < count; ++j)
        add(std::size_t((col + c + j / 2 * 8) / 8 * 4 + 2 * (j % 2)), Val<b32>(words[std::size_t(j)]));
    }
    return finished();
  }
  const auto origin = record::warpgroup_origin(k_);
  for (int half = 0; half < 2; ++half)
    for (int c = 0; c < tile.cols; c += 8) {
      const auto place = base + record::tile_offset(tile, origin.row + std::uint32_t(8 * half),
                                                    origin.col + std::uint32_t(c));
      add(std::size_t((col + c) / 8 * 4 + 2 * half), Ptr<shared, const b32>(place).ld());
    }
  return finished();
}

void ShapedResults::drain(Warpgroup& wg, Here here) {
  wg.converged("waiting for staged stores", here);
  const auto storing = record::remainder(k_.tid(), 128) == Val<u32>(0);  // as StagingCore has it
  k_.guarded(storing, [&] { record::bulk_wait(k_, 0, /*read=*/true, here); });
}

// Column `from` of the sums and on become rows of the piece. An 8 x 8 block of sums is a matrix of stmatrix:
// transposed, its columns are rows of 16 bytes. Lanes of a group of eight give the addresses of one matrix.
Val<u32> ShapedResults::turned_address(const Val<u32>& base) const {
  const auto lane = k_.laneid(), warp = record::remainder(record::divided(k_.tid(), 32), 4);
  const auto row = record::remainder(lane, 8) + record::times(record::divided(lane, 16), 8);
  const auto col = record::times(warp, 16) + record::times(record::remainder(record::divided(lane, 8), 2), 8);
  return base + record::tile_offset(piece_tile(tile_), row, col);
}

void ShapedResults::fill_turned(const Val<u32>& base, const std::vector<Value>& sums, int from, Here at) {
  const auto tile = piece_tile(tile_);
  const auto address = turned_address(base);
  const auto packed = type_ == ptx::Mod::bf16 ? ptx::Mod::bf16x2 : ptx::Mod::f16x2;
  for (int c = 0; c < tile.rows; c += 16) {
    std::vector<Value> regs;
    for (int j = c; j < std::min(c + 16, tile.rows); j += 8)
      for (int half = 0; half < 2; ++half) {
        const auto i = std::size_t((from + j) / 8 * 4 + 2 * half);
        regs.push_back(record::pack_pair(k_, packed, sums[i], sums[i + 1], at));
      }
    record::stmatrix(k_, true, address, c * tile.span(), regs, at);
  }
}

}  // namespace cgp::kernels
