// SPDX-License-Identifier: Apache-2.0
// cp.async.bulk.tensor, cp.reduce.async.bulk.tensor and their prefetch: boxes of tensors described by a
// tensor map. PTX ISA 5.5 and 9.7.9.27. The rules on coordinates marked "measured" were found on an H200.
#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/emu/async/async_ops.h"
#include "cgp/emu/async/bulk_place.h"
#include "cgp/emu/async/tensor_map.h"
#include "cgp/emu/core/host_memory.h"
#include "cgp/emu/core/machine_impl.h"
#include "cgp/emu/decode/tensor_families.h"

namespace cgp::emu {
namespace {

using ptx::Inst;
using ptx::Mod;
using ptx::OperandKind;
using text::cat;
using text::hex;

enum class Direction : std::uint8_t { load, store, reduce, prefetch };
/// rows: .tile::gather4 and .tile::scatter4, four rows of a matrix named one by one.
enum class BoxMode : std::uint8_t { tile, rows, im2col };

struct TensorPlan {
  Direction direction = Direction::load;
  BoxMode mode = BoxMode::tile;
  int rank = 1;
  std::vector<Loc> offsets;  // im2col: added to W, H, D
  Address map, shared, barrier;
  std::vector<Loc> coordinates;
  Where shared_where = Where::shared_cluster;
  Loc ranks = kNoLoc;
  bool pair = false;  // .cta_group::2: the mbarrier may be in the peer of the destination's CTA
  Reduce how = Reduce::add;
};

/// One row of a box: `bytes` contiguous in the tensor, of which [begin, end) exist.
struct BoxRow {
  std::uint64_t address = 0;  // of the row's first existing byte
  std::byte* host = nullptr;  // nullptr: nothing of it exists
  std::uint32_t begin = 0, end = 0;
  std::uint32_t offset = 0;  // in the box as stored, before the swizzle
  bool initialised = true;
};

// Where a 16-byte piece of the box goes: the XOR of the map's swizzle on an address in shared memory.
std::uint32_t swizzled_place(const TensorMap& map, std::uint32_t address) {
  if (map.swizzle == TensorMapSwizzle::b128_atom32) return address ^ ((address >> 7 & 3) << 5);
  return swizzled(address, swizzle_bits(map.swizzle));
}

Mod reduce_type(TensorMapType t) {
  switch (t) {
    case TensorMapType::u32:
      return Mod::u32;
    case TensorMapType::s32:
      return Mod::s32;
    case TensorMapType::u64:
      return Mod::u64;
    case TensorMapType::s64:
      return Mod::s64;
    case TensorMapType::f16:
      return Mod::f16;
    case TensorMapType::bf16:
      return Mod::bf16;
    case TensorMapType::f32:
    case TensorMapType::f32_ftz:
      return Mod::f32;
    default:
      return Mod::b8;
  }
}

void fill_row(const TensorMap& map, std::byte* row, std::size_t bytes) {
  std::memset(row, 0, bytes);
  if (map.fill != TensorMapFill::nan) return;
  const auto element = std::size_t(cgp::emu::bytes(map.type));
  for (std::size_t i = 0; i < bytes; ++i) row[i] = std::byte(i % element == element - 1 ? 0x7f : 0xff);
}

struct TensorOp : BulkOp {
  TensorMap map;
  Direction direction = Direction::load;
  ReduceFn reduce = nullptr;
  Reduce how = Reduce::add;
  std::vector<BoxRow> rows;
  std::vector<SharedPlace> places;
  std::uint32_t row_bytes = 0;
  std::vector<std::byte> data;

  // Visits the 16-byte pieces of the box: (offset in data, host place in shared memory).
  template <class F>
  void pieces(const SharedPlace& place, F&& f) {
    for (std::size_t r = 0; r < rows.size(); ++r)
      for (std::uint32_t c = 0; c < row_bytes; c += 16)
        f(r * row_bytes + c,
          place.cta->shared.get() + swizzled_place(map, place.offset + rows[r].offset + c));
  }
  void read() override {
    data.resize(rows.size() * row_bytes);
    if (direction == Direction::load) {
      for (std::size_t r = 0; r < rows.size(); ++r) {
        std::byte* row = data.data() + r * row_bytes;
        const BoxRow& x = rows[r];
        if (x.begin != 0 || x.end != row_bytes) fill_row(map, row, row_bytes);
        if (x.host) copy_from_device(row + x.begin, x.host, x.end - x.begin);
      }
    } else {
      pieces(places[0],
             [&](std::size_t at, const std::byte* from) { std::memcpy(data.data() + at, from, 16); });
    }
  }
  void poison() override {
    if (direction == Direction::load)
      for (const SharedPlace& place : places)
        pieces(place, [&](std::size_t, std::byte* to) { poison_bytes(to, 16); });
    if (direction == Direction::store)
      for (const BoxRow& x : rows)
        if (x.host) poison_bytes(x.host, x.end - x.begin);
  }
  void write() override {
    if (direction == Direction::load) {
      for (const SharedPlace& place : places) {
        pieces(place, [&](std::size_t at, std::byte* to) { std::memcpy(to, data.data() + at, 16); });
        for (const BoxRow& x : rows)
          for (std::uint32_t c = 0; x.initialised && c < row_bytes; c += 16)
            mark_written(*by.warp, Where::shared_cluster,
                         place.cta->shared_base() | swizzled_place(map, place.offset + x.offset + c), 16);
      }
      return;
    }
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const BoxRow& x = rows[r];
      if (!x.host) continue;
      const std::byte* row = data.data() + r * row_bytes + x.begin;
      const std::size_t n = x.end - x.begin;
      if (direction == Direction::store)
        copy_to_device(x.host, row, n);
      else
        reduce(how, x.host, row, n / std::size_t(cgp::emu::bytes(map.type)));
      mark_written(*by.warp, Where::global, x.address, n);
    }
  }
};

// ---------------------------------------------------------------- issue
bool load_map(Warp& w, const Op& op, int lane, std::uint64_t address, TensorMap& map) {
  const auto& p = op.data_as<TensorPlan>();
  const std::byte* host =
      resolve_one(w, op, Where::generic, address, TensorMap::kBytes, Access::read, lane, 64);
  w.unwritten = 0;
  if (!host) return false;
  std::string why;
  bool good =
      TensorMap::decode(std::span<const std::byte, TensorMap::kBytes>(host, TensorMap::kBytes), map, why);
  if (good && map.rank != p.rank) {
    why = cat("the instruction is ", p.rank, "-dimensional, the tensor map has rank ", map.rank);
    good = false;
  }
  if (good && map.im2col != (p.mode == BoxMode::im2col)) {
    why = map.im2col ? "it was encoded for im2col, the instruction is not" : "it was not encoded for im2col";
    good = false;
  }
  if (good && p.mode == BoxMode::rows && map.box[1] != 1) {
    why = cat("gather4 and scatter4 need a box of one row, not ", map.box[1]);
    good = false;
  }
  if (good && map.interleave != TensorMapInterleave::none) {
    why = "interleaved layouts are not modelled";
    good = false;
  }
  if (good && map.swizzle > TensorMapSwizzle::b128_atom32) {
    why = "of the 128-byte swizzles with larger atoms (sm_100) only the one of 32 bytes is modelled";
    good = false;
  }
  if (!good)
    w.fail(Check::bounds, "tensormap", op, lane_bit(lane), cat("tensor map at ", hex(address), ": ", why),
           "pass the map by value as a 64-byte aligned .param and use its generic address (cvta.param)");
  if (good && w.race && classify(w, address) == Where::global)
    race::map_use(w, op, lane, address, TensorMap::kBytes);
  return good;
}

bool check_coordinates(Warp& w, const Op& op, int lane, const TensorMap& map, const std::int32_t* c) {
  const auto& p = op.data_as<TensorPlan>();
  const std::int64_t inner = std::int64_t(c[0]) * bytes(map.type);
  if (inner % 16 != 0) {
    w.fail(Check::alignment, "misaligned", op, lane_bit(lane),
           cat("the innermost coordinate ", c[0], " times ", bytes(map.type), " bytes is ", inner,
               ", not a multiple of 16 (an illegal instruction on the card)"),
           "tile the innermost dimension in steps of 16 bytes");
    return false;
  }
  if (p.direction == Direction::load || p.direction == Direction::prefetch) return true;
  if (p.mode == BoxMode::im2col) return true;
  for (int d = 0; d < int(p.coordinates.size()); ++d)
    if (c[d] < 0) {
      w.fail(Check::bounds, "oob.global", op, lane_bit(lane),
             cat("a TMA store or reduction at coordinate ", c[d], " of dimension ", d,
                 " (negative ones are an illegal instruction on the card; only loads fill them)"),
             "clip the box before the start of the tensor");
      return false;
    }
  return true;
}

// One row of the box: box[0] elements from c0 on at the indices x of the other dimensions.
BoxRow box_row(Warp& w, const Op& op, int lane, const TensorMap& map, std::int32_t c0,
               const std::array<std::int64_t, 5>& x, std::uint32_t offset, Access access) {
  const auto element = std::uint32_t(bytes(map.type));
  const std::int64_t first = std::max<std::int64_t>(c0, 0);
  const std::int64_t last = std::min<std::int64_t>(std::int64_t(c0) + map.box[0], std::int64_t(map.dims[0]));
  BoxRow row;
  row.offset = offset;
  bool exists = first < last;
  std::uint64_t at = map.address;
  for (std::size_t d = 1; d < std::size_t(map.rank); ++d) {
    exists = exists && x[d] >= 0 && x[d] < std::int64_t(map.dims[d]);
    at += std::uint64_t(x[d]) * map.strides[d];
  }
  if (!exists) return row;
  row.begin = std::uint32_t(first - c0) * element;
  row.end = std::uint32_t(last - c0) * element;
  // Seen on an H200: a store writes whole groups of 16 bytes, so also what lies behind a dims[0] that ends
  // inside one.
  const bool store = access == Access::async_write && op.data_as<TensorPlan>().direction == Direction::store;
  if (store && std::int64_t(c0) * std::int64_t(element) % 16 == 0)
    row.end = std::min(map.box[0] * element, (row.end + 15) / 16 * 16);
  row.address = at + std::uint64_t(first) * element;
  w.unwritten = 0;
  row.host = resolve_one(w, op, Where::global, row.address, row.end - row.begin, access, lane);
  row.initialised = w.unwritten == 0;
  w.unwritten = 0;
  if (!row.host) row.begin = row.end = 0;
  return row;
}

// A column of pixels: from the given one along W, then H and D inside the pixel box, then N.
std::vector<BoxRow> im2col_rows(Warp& w, const Op& op, int lane, const TensorMap& map, const std::int32_t* c,
                                Access access) {
  const auto& p = op.data_as<TensorPlan>();
  const auto last = std::size_t(map.rank) - 1;  // N
  const std::uint32_t row_bytes = map.box[0] * std::uint32_t(bytes(map.type));
  std::array<std::int64_t, 5> at{}, x{};
  for (std::size_t d = 1; d <= last; ++d) at[d] = c[d];
  std::vector<BoxRow> rows;
  for (std::uint32_t k = 0; k < map.pixels; ++k) {
    x = at;
    for (std::size_t d = 0; d < p.offsets.size(); ++d)
      x[d + 1] += std::uint16_t(w.row<std::uint32_t>(p.offsets[d])[lane]);
    rows.push_back(box_row(w, op, lane, map, c[0], x, k * row_bytes, access));
    std::size_t d = 1;
    for (; d < last; ++d) {
      at[d] += map.element_strides[d];
      if (at[d] < std::int64_t(map.dims[d]) + map.upper[d - 1]) break;
      at[d] = map.lower[d - 1];
    }
    if (d == last) ++at[last];
  }
  return rows;
}

// The rows of the box at `c`; existing parts are resolved with `access`.
std::vector<BoxRow> box_rows(Warp& w, const Op& op, int lane, const TensorMap& map, const std::int32_t* c,
                             Access access) {
  const BoxMode mode = op.data_as<TensorPlan>().mode;
  if (mode == BoxMode::im2col) return im2col_rows(w, op, lane, map, c, access);
  const std::uint32_t row_bytes = map.box[0] * std::uint32_t(bytes(map.type));
  std::array<std::uint32_t, 5> count{1, 1, 1, 1, 1}, i{};
  std::size_t total = mode == BoxMode::rows ? 4 : 1;
  if (mode == BoxMode::tile)
    for (int d = 1; d < map.rank; ++d) total *= count[std::size_t(d)] = map.box_count(d);
  std::vector<BoxRow> rows(total);
  for (std::size_t r = 0; r < total; ++r) {
    std::array<std::int64_t, 5> x{};
    for (std::size_t d = 1; d < std::size_t(map.rank); ++d)
      x[d] = mode == BoxMode::rows ? std::int64_t(c[r + 1])
                                   : std::int64_t(c[d]) + std::int64_t(i[d]) * map.element_strides[d];
    rows[r] = box_row(w, op, lane, map, c[0], x, std::uint32_t(r) * row_bytes, access);
    for (std::size_t d = 1; d < std::size_t(map.rank) && ++i[d] == count[d]; ++d) i[d] = 0;
  }
  return rows;
}

// A map is encoded for one buffer: its base lies in an allocation, and no box leaves that one for another.
// Bytes in no allocation are found where they are read or written.
void check_buffer(Warp& w, const Op& op, int lane, const TensorMap& map, std::uint64_t at,
                  const std::vector<BoxRow>& rows) {
  Heap& heap = *w.worker->heap;
  const Allocation* a = heap.find(map.address, 1);
  if (a) {
    for (const BoxRow& r : rows) {
      if (!r.host || a->contains(r.address, r.end - r.begin)) continue;
      const Allocation* other = heap.at_or_below(r.address);
      w.report(Check::bounds, "oob.global", op, lane_bit(lane),
               cat("the box leaves '", a->name, "' (", a->size,
                   " bytes), the buffer of its tensor map, and touches '", other->name, "' + ",
                   r.address - other->base),
               "encode the map with the sizes and strides of its buffer", r.address, other->name,
               std::int64_t(r.address - other->base));
      return;
    }
    return;
  }
  const Allocation* near = heap.nearest(map.address);
  std::string where = "and there are no allocations";
  if (near && near->contains(map.address, 1))
    where = cat("in '", near->name, "', which was freed");
  else if (near && map.address < near->base)
    where = cat(near->base - map.address, " bytes before the start of '", near->name, "'");
  else if (near)
    where = cat(map.address - near->base - near->size, " bytes past the end of '", near->name, "' (",
                near->size, " bytes)");
  w.report(Check::bounds, "oob.global", op, lane_bit(lane),
           cat("the tensor map at ", hex(at), " has its base at ", hex(map.address), ", ", where),
           "encode the map with the address of the buffer itself and move the box by its coordinates",
           map.address, near ? near->name : std::string(), near ? std::int64_t(map.address - near->base) : 0);
}

// What the copy moves to or from shared memory.
std::uint64_t copied_bytes(const TensorPlan& p, const TensorMap& map) {
  return p.mode == BoxMode::rows ? 4 * map.box_bytes() : map.box_bytes();
}

bool check_shared(Warp& w, const Op& op, int lane, const TensorMap& map,
                  const std::vector<SharedPlace>& places) {
  for (const SharedPlace& p : places) {
    if (p.offset % 128) {
      w.fail(Check::alignment, "misaligned", op, lane_bit(lane),
             cat("the shared-memory address ", hex(p.offset), " of a tensor copy is not a multiple of 128"),
             "align the tile to 128 bytes (1024 for the 128-byte swizzle)");
      return false;
    }
    // The swizzle permutes the 16-byte pieces of 128-byte lines: the last line is touched whole.
    const std::uint64_t box = copied_bytes(op.data_as<TensorPlan>(), map),
                        span = map.swizzle != TensorMapSwizzle::none ? (box + 127) / 128 * 128 : box;
    if (!resolve_one(w, op, Where::shared_cluster, cluster_address(p), span, Access::address_only, lane))
      return false;
  }
  return true;
}

// The mbarriers that hear of the copy: in the CTA of each destination; with .cta_group::2 in the CTA of its
// pair that has the parity of the CTA that the operand names.
std::vector<SharedPlace> barriers(Warp& w, const Op& op, int lane, std::uint64_t address, Mask ranks,
                                  const std::vector<SharedPlace>& to) {
  const auto& p = op.data_as<TensorPlan>();
  const SharedPlace named = shared_place(w, p.shared_where, address);
  if (!named.cta) return {};
  if (p.pair && ranks) {
    std::vector<SharedPlace> all;
    for_lanes(ranks, [&](int r) {
      const std::size_t target = std::size_t((r & ~1) | int(named.cta->rank & 1));
      if (target < w.cta->cluster->ctas.size())
        all.push_back({w.cta->cluster->ctas[target].get(), named.offset});
    });
    return all;
  }
  if (!ranks && !to.empty() && to[0].cta != named.cta &&
      (!p.pair || (to[0].cta->rank ^ named.cta->rank) != 1))
    w.report(
        Check::bounds, "oob.shared", op, lane_bit(lane),
        cat("the data goes to CTA rank ", to[0].cta->rank, ", the mbarrier is in rank ", named.cta->rank),
        p.pair ? "with .cta_group::2 the mbarrier is in the CTA of the data or in its peer"
               : "data and mbarrier must be in the same CTA, but for pairs with .cta_group::2");
  return destinations(w, op, p.shared_where, address, ranks, lane);
}

// A swizzle permutes the pieces of lines that the box fills: the bytes touched are those of the box.
void note_race(TensorOp& t) {
  const BulkRace race(t);
  const bool load = t.direction == Direction::load;
  const race::Use use = t.direction == Direction::reduce ? race::Use::atomic : race::Use::write;
  const std::uint64_t box = t.rows.size() * t.row_bytes;
  for (std::size_t n = 0; n < t.places.size(); ++n)
    if (load)
      race.write(n, Where::shared_cluster, cluster_address(t.places[n]), box);
    else
      race.read(Where::shared_cluster, cluster_address(t.places[n]), box);
  for (const BoxRow& r : t.rows) {
    if (!r.host) continue;
    if (load)
      race.read(Where::global, r.address, r.end - r.begin);
    else
      race.write(0, Where::global, r.address, r.end - r.begin, use);
  }
  race::issued(*t.by.warp);
}

// A store of shared memory that was never written, at the first piece of a row in the tensor that has it.
void report_unwritten(const TensorOp& t) {
  const SharedPlace& from = t.places[0];
  if (from.cta->shared_init.empty()) return;
  for (const BoxRow& r : t.rows)
    for (std::uint32_t at = r.begin; r.host && at < r.end; at = (at / 16 + 1) * 16) {
      const std::uint32_t end = std::min((at / 16 + 1) * 16, r.end);
      const std::uint32_t offset = swizzled_place(t.map, from.offset + r.offset + at / 16 * 16) + at % 16;
      if (!is_written(*t.by.warp, Where::shared_cluster, from.cta->shared_base() | offset, end - at))
        return report_stored(*t.by.warp, *t.by.op, t.by.lane, *from.cta, offset);
    }
}

void issue(Warp& w, const Op& op, int lane, std::uint64_t map_address, std::uint64_t shared,
           std::uint64_t barrier) {
  const auto& p = op.data_as<TensorPlan>();
  auto t = std::make_unique<TensorOp>();
  t->by = {&w, &op, lane};
  if (!load_map(w, op, lane, map_address, t->map)) return;
  std::int32_t c[5] = {};
  for (std::size_t d = 0; d < p.coordinates.size(); ++d) c[d] = w.row<std::int32_t>(p.coordinates[d])[lane];
  if (!check_coordinates(w, op, lane, t->map, c)) return;
  t->direction = p.direction;
  t->row_bytes = t->map.box[0] * std::uint32_t(bytes(t->map.type));
  if (p.direction == Direction::prefetch) {
    check_buffer(w, op, lane, t->map, map_address, box_rows(w, op, lane, t->map, c, Access::address_only));
    return;
  }
  const Mask ranks = multicast_ranks(w, op, p.ranks, lane);
  t->places = destinations(w, op, p.shared_where, shared, ranks, lane);
  const bool placed = !t->places.empty() && check_shared(w, op, lane, t->map, t->places);
  const bool load = p.direction == Direction::load;
  if (load) {
    if (!find_mbarrier(w, op, p.shared_where, barrier, lane, false)) return;
    t->completion.barriers = barriers(w, op, lane, barrier, ranks, t->places);
    t->completion.bytes = copied_bytes(p, t->map);
  }
  if (p.direction == Direction::reduce) {
    t->how = p.how;
    t->reduce = reduce_function(reduce_type(t->map.type), p.how);
    if (!t->reduce)
      w.fail(Check::bounds, "tensormap", op, lane_bit(lane),
             "the element type of the tensor map has no such reduction");
  }
  if (!placed && p.shared_where != Where::global && t->places.empty())
    resolve_one(w, op, p.shared_where, shared, 16, Access::address_only, lane);  // for its finding
  if (placed) t->rows = box_rows(w, op, lane, t->map, c, load ? Access::read : Access::async_write);
  check_buffer(w, op, lane, t->map, map_address, t->rows);
  for (const BoxRow& r : t->rows) count_bulk(w, op, !load, r.address, r.end - r.begin);
  if (!placed) t->places.clear(), t->rows.clear();
  if (placed && !load) report_unwritten(*t);
  if (w.race && placed) note_race(*t);
  if (!placed && !load) return;
  submit_bulk(std::move(t));
}

void exec_tensor(Warp& w, const Op& op) {
  const auto& p = op.data_as<TensorPlan>();
  std::uint64_t map[kLanes], shared[kLanes] = {}, barrier[kLanes] = {};
  w.addresses(p.map, map);
  if (p.direction != Direction::prefetch) w.addresses(p.shared, shared);
  if (p.direction == Direction::load) w.addresses(p.barrier, barrier);
  Mask lanes = w.active;
  if (p.direction == Direction::store)
    lanes = distinct_stores(lanes, [&](int x, int y) {
      bool same = map[x] == map[y] && shared[x] == shared[y];
      for (const Loc c : p.coordinates) same = same && w.row<std::int32_t>(c)[x] == w.row<std::int32_t>(c)[y];
      return same;
    });
  for_lanes(lanes, [&](int lane) { issue(w, op, lane, map[lane], shared[lane], barrier[lane]); });
}

// ---------------------------------------------------------------- decode
void decode_map(Decoder& d, const ptx::Operand& o, TensorPlan& p) {
  if (o.elems.empty()) d.unsupported("a tensor address [map, {coordinates}] is needed");
  p.map = d.address(o);
  p.coordinates = d.sources(o.elems[0], Mod::s32);
  const std::size_t needed = p.mode == BoxMode::rows ? 5 : std::size_t(p.rank);
  if (p.coordinates.size() != needed)
    d.unsupported(cat(needed, " coordinates are needed, not ", p.coordinates.size()));
}

void decode_tensor(Decoder& d, const Inst& i, Op& op) {
  TensorPlan p;
  const std::pair<Mod, int> ranks[] = {
      {Mod::d1d, 1}, {Mod::d2d, 2}, {Mod::d3d, 3}, {Mod::d4d, 4}, {Mod::d5d, 5}};
  for (const auto& [m, n] : ranks)
    if (i.has(m)) p.rank = n;
  for (Mod m : {Mod::im2col_w, Mod::im2col_w_128})
    if (i.has(m))
      d.unsupported(
          cat("the .", ptx::name(m),
              " mode of tensor copies (sm_100): which pixels its halo holds is in figures only, and no "
              "public layout of its tensor maps exists; .tile, gather4, scatter4 and .im2col are executed"));
  if (i.has(Mod::tile_gather4) || i.has(Mod::tile_scatter4)) p.mode = BoxMode::rows;
  if (i.has(Mod::im2col) || i.has(Mod::im2col_no_offs)) p.mode = BoxMode::im2col;
  const bool offsets = i.has(Mod::im2col);
  p.pair = i.has(Mod::cta_group_2);
  if (i.op == ptx::Op::cp_async_bulk_prefetch_tensor) {
    p.direction = Direction::prefetch;
    decode_map(d, d.operand(i, 0), p);
    if (offsets) p.offsets = d.sources(d.operand(i, 1), Mod::u16);
  } else {
    const BulkSpaces s = bulk_spaces(d, i);
    if (s.destination == Where::global) {
      p.direction = i.op == ptx::Op::cp_reduce_async_bulk_tensor ? Direction::reduce : Direction::store;
      if (p.direction == Direction::reduce) p.how = reduce_of(d, i);
      decode_map(d, d.operand(i, 0), p);
      p.shared = d.address(d.operand(i, 1));
      p.shared_where = s.source;
    } else {
      p.shared = d.address(d.operand(i, 0));
      decode_map(d, d.operand(i, 1), p);
      p.barrier = d.address(d.operand(i, 2));
      p.shared_where = s.destination;
      if (offsets) p.offsets = d.sources(d.operand(i, 3), Mod::u16);
      if (i.has(Mod::multicast_cluster)) p.ranks = d.source(d.operand(i, offsets ? 4 : 3), Mod::u16);
    }
    if (i.has(Mod::L2_cache_hint)) d.source(i.operands.back(), Mod::b64);
  }
  op.data = d.keep(std::move(p));
  op.fn = exec_tensor;
}

}  // namespace

void add_tensor_copy(Table& t) {
  t.set(ptx::Op::cp_async_bulk_tensor, decode_tensor);
  t.set(ptx::Op::cp_reduce_async_bulk_tensor, decode_tensor);
  t.set(ptx::Op::cp_async_bulk_prefetch_tensor, decode_tensor);
}

}  // namespace cgp::emu
