// SPDX-License-Identifier: Apache-2.0
// tensormap.replace and tensormap.cp_fenceproxy: tensor maps edited in shared or global memory. PTX ISA,
// "tensormap.replace". Fields are written as given; what a use of the map refuses is said there.
#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/emu/async/tensor_map.h"
#include "cgp/emu/decode/tensor_families.h"
#include "cgp/emu/race/race.h"

namespace cgp::emu {
namespace {

using ptx::Inst;
using ptx::Mod;
using text::cat;

struct Edit {
  TensorMapField field = TensorMapField::global_address;
  int ordinal = 0;
  Loc value = kNoLoc;
  bool wide = false;  // the value has 64-bit cells
};

void exec_replace(Warp& w, const Op& op) {
  const auto& e = op.data_as<Edit>();
  std::uint64_t address[kLanes];
  w.addresses(op, address);
  for_lanes(w.active, [&](int lane) {
    w.unwritten = 0;
    std::byte* host = resolve_one(w, op, op.where, address[lane], TensorMap::kBytes, Access::read, lane, 64);
    w.unwritten = 0;
    if (host) host = resolve_one(w, op, op.where, address[lane], TensorMap::kBytes, Access::write, lane, 64);
    if (!host) return;
    Mask before = w.active & (lane_bit(lane) - 1);  // several lanes that change one map do it once
    for_lanes(before, [&](int l) { before &= address[l] == address[lane] ? ~Mask(0) : ~lane_bit(l); });
    if (!before) race::access(w, op, op.where, address, TensorMap::kBytes, race::Use::write, lane_bit(lane));
    const std::uint64_t v =
        e.wide ? w.row<std::uint64_t>(e.value)[lane] : w.row<std::uint32_t>(e.value)[lane];
    const std::string why = TensorMap::replace(
        std::span<std::byte, TensorMap::kBytes>(host, TensorMap::kBytes), e.field, e.ordinal, v);
    if (!why.empty())
      w.fail(Check::bounds, "tensormap", op, lane_bit(lane),
             cat("tensor map at ", text::hex(address[lane]), ": ", why),
             "copy a tensor map made by the host to this place and let it be written before it is edited");
  });
}

void decode_replace(Decoder& d, const Inst& i, Op& op) {
  Edit e;
  static constexpr std::pair<Mod, TensorMapField> fields[] = {
      {Mod::global_address, TensorMapField::global_address},
      {Mod::rank, TensorMapField::rank},
      {Mod::box_dim, TensorMapField::box},
      {Mod::global_dim, TensorMapField::global_dim},
      {Mod::global_stride, TensorMapField::global_stride},
      {Mod::element_stride, TensorMapField::element_stride},
      {Mod::elemtype, TensorMapField::type},
      {Mod::interleave_layout, TensorMapField::interleave},
      {Mod::swizzle_mode, TensorMapField::swizzle},
      {Mod::fill_mode, TensorMapField::fill},
      {Mod::swizzle_atomicity, TensorMapField::swizzle_atom}};
  bool found = false;
  for (const auto& [m, f] : fields)
    if (i.has(m)) {
      e.field = f;
      found = true;
    }
  if (!found) d.unsupported("no field of a tensor map among its modifiers");
  e.wide = e.field == TensorMapField::global_address || e.field == TensorMapField::global_stride;
  if (i.operands.size() > 2) e.ordinal = int(d.immediate(d.operand(i, 1)));
  e.value = d.source(i.operands.back(), e.wide ? Mod::b64 : Mod::b32);
  d.set_address(d.operand(i, 0), op);
  op.where = d.where(i);
  op.data = d.keep(e);
  op.fn = exec_replace;
}

// One copy for the warp: all lanes name the same places.
struct Copy {
  Address to, from;
};
void exec_cp_fenceproxy(Warp& w, const Op& op) {
  if (!w.converge(op)) return;
  const auto& c = op.data_as<Copy>();
  std::uint64_t to[kLanes], from[kLanes];
  w.addresses(c.to, to);
  w.addresses(c.from, from);
  const int lane = std::countr_zero(w.active);
  Mask other = 0;
  for_lanes(w.active, [&](int l) { other |= to[l] != to[lane] || from[l] != from[lane] ? lane_bit(l) : 0; });
  if (other)
    w.report(Check::barrier, "barrier.divergence", op, other,
             "the addresses of tensormap.cp_fenceproxy differ between the lanes of the warp",
             "all lanes of the warp must name the same two places");
  w.unwritten = 0;
  const std::byte* source =
      resolve_one(w, op, Where::shared, from[lane], TensorMap::kBytes, Access::read, lane, 128);
  w.unwritten = 0;
  std::byte* target =
      resolve_one(w, op, Where::global, to[lane], TensorMap::kBytes, Access::write, lane, 128);
  if (!source || !target) return;
  std::memcpy(target, source, TensorMap::kBytes);
  race::access(w, op, Where::shared, from, TensorMap::kBytes, race::Use::read, lane_bit(lane));
  race::access(w, op, Where::global, to, TensorMap::kBytes, race::Use::write, lane_bit(lane));
  // .sync: the copy is there for the whole warp; .release: it goes out with what follows.
  if (w.race) w.note_rendezvous(w.active);
  race::fence(w, op);
}
void decode_cp_fenceproxy(Decoder& d, const Inst& i, Op& op) {
  Copy c;
  c.to = d.address(d.operand(i, 0));
  c.from = d.address(d.operand(i, 1));
  if (d.immediate(d.operand(i, 2)) != TensorMap::kBytes) d.unsupported("a size other than 128 bytes");
  op.data = d.keep(c);
  op.flags |= kSplits;
  op.fn = exec_cp_fenceproxy;
}

}  // namespace

void add_tensor_map(Table& t) {
  t.set(ptx::Op::tensormap_replace, decode_replace);
  t.set(ptx::Op::tensormap_cp_fenceproxy, decode_cp_fenceproxy);
}

}  // namespace cgp::emu
