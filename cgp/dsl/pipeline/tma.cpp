// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/pipeline/tma.h"

#include <numeric>

namespace cgp::dsl::record {
using ptx::Mod;
using ptx::Op;
using ptx::Operand;

namespace {
constexpr int kMaxBox = 256;

Mod dimension_mod(std::size_t rank) {
  constexpr Mod mods[] = {Mod::d1d, Mod::d2d, Mod::d3d, Mod::d4d, Mod::d5d};
  return mods[rank - 1];
}
/// The cache policies that the driver's own kernels use; a createpolicy would make the same ones.
std::optional<Value> policy(L2Hint h) {
  switch (h) {
    case L2Hint::evict_normal:
      return Value::literal(0x1000000000000000ull, Mod::b64);
    case L2Hint::evict_first:
      return Value::literal(0x12F0000000000000ull, Mod::b64);
    case L2Hint::evict_last:
      return Value::literal(0x14F0000000000000ull, Mod::b64);
    default:
      return std::nullopt;
  }
}
Operand shared_operand(Kernel& k, const SharedAddress& a, int offset = 0) {
  return Operand::at(k.register_of(a.base), a.offset + offset);
}
Operand tensor_operand(Kernel& k, const TmaSource& s, const std::vector<Value>& coords) {
  Operand o = Operand::at(k.register_of(s.map.address));
  std::vector<Operand> list;
  for (std::size_t i = coords.size(); i-- > 0;) list.push_back(k.operand(coords[i]));  // PTX: innermost first
  o.elems.push_back(Operand::vec(std::move(list)));
  return o;
}
Value plus(const Value& a, const Value& b) { return Val<u32>(a) + Val<u32>(b); }
Value plus(const Value& a, int b) { return b == 0 ? a : plus(a, Val<u32>(b)); }

/// One instruction's share of a tile.
struct Part {
  std::vector<Value> coords;
  int offset;  ///< bytes in the tile
};
/// Calls f for each copy a tile needs: panel by panel, box by box down the rows of rows_from .. + rows.
template <class F>
void each_part(const TmaSource& s, const TileLayout& t, int box, int rows, F&& f) {
  const std::size_t rank = s.coords.size();
  for (int p = 0; p < t.panels(); ++p)
    for (int r = 0; r < rows; r += box) {
      std::vector<Value> coords;
      for (std::size_t d = 0; d < rank; ++d) {
        const int step = d + 1 == rank ? p * t.panel_cols() : d + 2 == rank ? r : 0;
        coords.push_back(plus(s.coords[d], step));
      }
      f(Part{std::move(coords), p * t.panel_bytes() + r * t.span()});
    }
}

struct Peers {
  std::optional<Value> slice;  ///< this block's index among those that share the tile
  std::optional<Value> mask;
};
Peers peers_of(Kernel& k, const TmaMap& m) {
  if (m.peers == 1) return {};
  const auto c = k.cluster_size();
  const int strides[] = {1, c[0], c[0] * c[1]};
  const int stride = strides[int(m.axis)];
  constexpr ptx::Sreg regs[] = {ptx::Sreg::cluster_ctaid_x, ptx::Sreg::cluster_ctaid_y,
                                ptx::Sreg::cluster_ctaid_z};
  const Val<u32> slice(k.special(regs[int(m.axis)], Uniform::cta));
  std::uint32_t pattern = 0;
  for (int i = 0; i < m.peers; ++i) pattern |= 1u << (i * stride);
  if (c[0] * c[1] * c[2] == m.peers) return {slice, Value::literal(pattern, Mod::u16)};
  const Val<u32> first = k.cluster_ctarank() - times(slice, stride);
  const Value mask = k.op(Op::shl, {Mod::b32}, Mod::u32, {Value::literal(pattern, Mod::u32), first});
  return {slice, k.op(Op::cvt, {Mod::u16, Mod::u32}, Mod::u16, {mask})};
}
// Where this block's slice of a shared tile begins.
TmaSource own_slice(const TmaSource& from, const Peers& peers) {
  if (!peers.slice) return from;
  const Val<u32> first = times(Val<u32>(*peers.slice), from.map.layout.rows / from.map.peers);
  std::vector<Value> coords;
  for (std::size_t d = 0; d < from.coords.size(); ++d)
    coords.push_back(d + 2 == from.coords.size() ? plus(from.coords[d], first) : from.coords[d]);
  return {from.map, std::move(coords)};
}
}  // namespace

int box_rows(const TileLayout& t, int peers, Here at) {
  // The hardware swizzles by addresses: rows of 128 bytes may be cut anywhere (a copy begins at a multiple of
  // 128 bytes), others at whole patterns.
  const int whole = t.swizzle == Swizzle::b128 && t.span() == 128 ? 1 : 8;
  if (t.rows % peers != 0 || (peers > 1 && t.rows / peers % whole != 0))
    throw BuildError("a multicast tile is cut into equal slices, of whole swizzle patterns below 128 bytes",
                     at,
                     text::cat(t.rows, " rows over ", peers, " blocks; each slice needs a multiple of ",
                               whole, whole == 1 ? " row" : " rows"));
  const int rows = t.rows / peers;
  if (rows <= kMaxBox) return rows;
  for (int box = kMaxBox; box >= 8; box -= 8)
    if (rows % box == 0) return box;
  throw BuildError("a tile of more than 256 rows is copied in equal boxes of a multiple of 8 rows", at,
                   text::cat(rows, " rows have no such divisor up to 256"));
}

TmaMap declare_tma(Kernel& k, Mod element, const TileLayout& t, std::span<const int> box, bool store) {
  const Here at = k.here();
  k.needs_sm(90, "a tensor map", at);
  TensorMapSchema s;
  s.element = element;
  s.rank = int(box.size());
  s.swizzle = t.swizzle;
  for (int d = 0; d < s.rank; ++d) s.box[std::size_t(s.rank - 1 - d)] = std::uint32_t(box[std::size_t(d)]);
  s.box[0] = std::uint32_t(t.panel_cols());
  const bool matrix = s.rank == 1 || int(s.box[1]) == t.rows;
  if (s.rank > 1 && matrix) s.box[1] = std::uint32_t(box_rows(t, 1, at));
  for (int d = 0; d < s.rank; ++d)
    if (s.box[std::size_t(d)] > kMaxBox)
      throw BuildError("a TMA box has at most 256 elements per dimension", at,
                       text::cat("dimension ", d, " (innermost is 0) has ", s.box[std::size_t(d)]),
                       "use a swizzle, smaller tiles, or more dimensions");
  if (t.span() % 16 != 0)
    throw BuildError("TMA moves rows of a multiple of 16 bytes", at, text::cat("the row has ", t.span()));
  ParamInfo i;
  i.kind = ParamInfo::Kind::tensor_map;
  i.type = element;
  i.size = 128;
  i.align = 64;
  i.reads = !store;
  i.writes = store;
  i.tensor_map = s;
  i.detail = text::cat(t.rows, "x", t.cols, " ", dsl::name(t.swizzle));
  const auto p = k.param(std::move(i));
  const Value here = k.fresh(Mod::u64, Uniform::grid);
  k.inst(Op::mov, {Mod::b64}, {Operand::of(here.reg()), Operand::sym(p)});
  const Value address = k.op(Op::cvta, {Mod::param, Mod::u64}, Mod::u64, {here});
  return {&k, p, address, t, s.rank};
}

TmaMap with_address(const TmaMap& m, const Value& address) {
  return {m.k, m.param, address, m.layout, m.rank, m.peers, m.axis, m.hint};
}

TmaMap share_tma(const TmaMap& m, Axis axis, Here at) {
  const auto c = m.k->cluster_size();
  const int peers = std::max(1, c[std::size_t(axis)]);
  if (peers == 1) return m;
  TmaMap out = m;
  out.peers = peers;
  out.axis = axis;
  auto& schema = *m.k->param_info(m.param).tensor_map;
  const int whole = box_rows(m.layout, 1, at), slice = box_rows(m.layout, peers, at);
  if (m.rank < 2 || (int(schema.box[1]) != whole && int(schema.box[1]) != slice))
    throw BuildError("a multicast tensor map is cut along the rows of its tile", at,
                     "the box's second dimension is not the tile's row count");
  schema.box[1] = std::uint32_t(slice);
  return out;
}

void tma_load(Kernel& k, const TmaSource& from, const SharedAddress& to, const SharedAddress& bar, Here at,
              bool pair) {
  k.at(at);
  const TmaMap& m = from.map;
  const TileLayout& t = m.layout;
  const auto peers = peers_of(k, m);
  const int rows = t.rows / m.peers;
  const auto& shape = k.param_info(m.param).tensor_map->box;
  int in_box = 1;  // rows that one copy brings, of all its dimensions
  for (int d = 1; d < m.rank; ++d) in_box *= int(shape[std::size_t(d)]);
  const bool several = int(shape[1]) < rows && in_box == rows;  // the tile's rows are spread over dimensions
  const bool by_rows = m.rank > 1 && int(shape[1]) <= rows && !several;
  const int box = by_rows ? int(shape[1]) : rows;
  if (by_rows && box != box_rows(t, m.peers, at))
    throw BuildError("one tensor map parameter is loaded either multicast or not", at,
                     "its box was cut for multicast, and this copy is not",
                     "use the map that multicast() returned");
  ptx::Mods mods{dimension_mod(from.coords.size()), Mod::shared_cluster, Mod::global, Mod::tile,
                 Mod::mbarrier_complete_tx_bytes};
  if (peers.mask) mods.push_back(Mod::multicast_cluster);
  if (pair) mods.push_back(Mod::cta_group_2);
  const auto hint = policy(m.hint);
  if (hint) mods.push_back(Mod::L2_cache_hint);
  const std::pair<TmaSource, SharedAddress> part{
      own_slice(from, peers),
      peers.slice ? SharedAddress{plus(to.base, times(Val<u32>(*peers.slice), rows * t.span())), to.offset}
                  : to};
  const Operand where = shared_operand(k, bar);
  each_part(part.first, t, by_rows ? box : rows, rows, [&](const Part& p) {
    std::vector<Operand> operands{shared_operand(k, part.second, p.offset),
                                  tensor_operand(k, part.first, p.coords), where};
    if (peers.mask) operands.push_back(k.operand(*peers.mask));
    if (hint) operands.push_back(k.operand(*hint));
    k.inst(Op::cp_async_bulk_tensor, mods, std::move(operands));
  });
}

namespace {
Mod reduce_mod(StoreOp op) {
  constexpr Mod mods[] = {Mod::add, Mod::add,  Mod::min, Mod::max, Mod::inc,
                          Mod::dec, Mod::and_, Mod::or_, Mod::xor_};
  return mods[int(op)];
}
}  // namespace

void tma_store(Kernel& k, const TmaSource& to, const SharedAddress& from, const TileLayout& layout,
               StoreOp op, Here at) {
  k.at(at);
  const TileLayout& t = to.map.layout;
  ptx::Mods mods{dimension_mod(to.coords.size()), Mod::global, Mod::shared_cta};
  if (op != StoreOp::store) mods.push_back(reduce_mod(op));
  mods.push_back(Mod::tile);
  mods.push_back(Mod::bulk_group);
  const auto hint = policy(to.map.hint);
  if (hint) mods.push_back(Mod::L2_cache_hint);
  const auto& schema = *k.param_info(to.map.param).tensor_map;
  const int box = to.map.rank > 1 && int(schema.box[1]) <= t.rows ? int(schema.box[1]) : t.rows;
  TileLayout source = layout;  // the staging tile may be a view: its panels lie further apart
  if (source.rows != t.rows || source.cols != t.cols || source.swizzle != t.swizzle ||
      source.element_bytes != t.element_bytes)
    throw BuildError("a tile is stored through a tensor map of the same tile type", at,
                     text::cat(source.rows, "x", source.cols, " ", dsl::name(source.swizzle), " through ",
                               t.rows, "x", t.cols, " ", dsl::name(t.swizzle)));
  each_part(to, source, box, t.rows, [&](const Part& p) {
    std::vector<Operand> operands{tensor_operand(k, to, p.coords), shared_operand(k, from, p.offset)};
    if (hint) operands.push_back(k.operand(*hint));
    k.inst(op == StoreOp::store ? Op::cp_async_bulk_tensor : Op::cp_reduce_async_bulk_tensor, mods,
           std::move(operands));
  });
}

void tma_prefetch(Kernel& k, const TmaSource& from, Here at) {
  k.at(at);
  const TileLayout& t = from.map.layout;
  const auto& schema = *k.param_info(from.map.param).tensor_map;
  const int box = from.map.rank > 1 && int(schema.box[1]) <= t.rows ? int(schema.box[1]) : t.rows;
  each_part(from, t, box, t.rows, [&](const Part& p) {
    k.inst(Op::cp_async_bulk_prefetch_tensor,
           {dimension_mod(from.coords.size()), Mod::L2, Mod::global, Mod::tile},
           {tensor_operand(k, from, p.coords)});
  });
}
void prefetch_tensormap(Kernel& k, const Value& map, Here at) {
  k.at(at);
  k.inst(Op::prefetch, {Mod::tensormap}, {Operand::at(k.register_of(map))});
}
void bulk_commit(Kernel& k, Here at) {
  k.at(at);
  k.inst(Op::cp_async_bulk_commit_group, {}, {});
}
void bulk_wait(Kernel& k, int pending, bool read, Here at) {
  k.at(at);
  ptx::Mods m;
  if (read) m.push_back(Mod::read);
  k.inst(Op::cp_async_bulk_wait_group, m, {Operand::integer(pending)});
}

namespace {
void check_bulk_bytes(const Value& bytes, Here at) {
  if (bytes.is_literal() && (bytes.bits() % 16 || bytes.bits() == 0))
    throw BuildError("a bulk copy moves a positive multiple of 16 bytes", at,
                     text::cat("got ", bytes.bits()));
}
}  // namespace

void bulk_load(Kernel& k, const SharedAddress& to, const record_impl::Address& from, const Value& bytes,
               const SharedAddress& bar, L2Hint hint, Here at) {
  k.at(at);
  k.needs_sm(90, "cp.async.bulk", at);
  check_bulk_bytes(bytes, at);
  ptx::Mods m{Mod::shared_cluster, Mod::global, Mod::mbarrier_complete_tx_bytes};
  const auto p = policy(hint);
  if (p) m.push_back(Mod::L2_cache_hint);
  std::vector<Operand> operands{shared_operand(k, to), record_impl::address_operand(k, from, 16, at),
                                k.operand(bytes), shared_operand(k, bar)};
  if (p) operands.push_back(k.operand(*p));
  k.inst(Op::cp_async_bulk, m, std::move(operands));
}

void bulk_store(Kernel& k, const record_impl::Address& to, const SharedAddress& from, const Value& bytes,
                StoreOp op, Mod type, L2Hint hint, Here at) {
  k.at(at);
  k.needs_sm(90, "cp.async.bulk", at);
  check_bulk_bytes(bytes, at);
  const auto p = policy(hint);
  ptx::Mods m{Mod::global, Mod::shared_cta, Mod::bulk_group};
  if (p) m.push_back(Mod::L2_cache_hint);
  if (op != StoreOp::store) {
    m.push_back(reduce_mod(op));
    if (op == StoreOp::add && (type == Mod::f16 || type == Mod::bf16)) m.push_back(Mod::noftz);
    m.push_back(type);
  }
  std::vector<Operand> operands{record_impl::address_operand(k, to, 16, at), shared_operand(k, from),
                                k.operand(bytes)};
  if (p) operands.push_back(k.operand(*p));
  k.inst(op == StoreOp::store ? Op::cp_async_bulk : Op::cp_reduce_async_bulk, m, std::move(operands));
}
void bulk_prefetch(Kernel& k, const record_impl::Address& from, const Value& bytes, Here at) {
  k.at(at);
  check_bulk_bytes(bytes, at);
  k.inst(Op::cp_async_bulk_prefetch, {Mod::L2, Mod::global},
         {record_impl::address_operand(k, from, 16, at), k.operand(bytes)});
}
void fence_proxy_async(Kernel& k, Mod space, Here at) {
  k.at(at);
  k.needs_sm(90, "fence.proxy.async", at);
  k.inst(Op::fence_proxy, {Mod::async, space}, {});
}

}  // namespace cgp::dsl::record
