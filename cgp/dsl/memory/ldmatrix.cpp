// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/memory/ldmatrix.h"

namespace cgp::dsl {
using ptx::Mod;
using ptx::Op;

namespace record {
namespace {
Mod count_mod(std::size_t n) { return n == 1 ? Mod::x1 : n == 2 ? Mod::x2 : Mod::x4; }
ptx::Mods matrix_mods(std::size_t count, bool transposed) {
  ptx::Mods m{Mod::sync, Mod::aligned, Mod::m8n8, count_mod(count)};
  if (transposed) m.push_back(Mod::trans);
  m.push_back(Mod::shared);
  m.push_back(Mod::b16);
  return m;
}
}  // namespace

std::vector<Value> ldmatrix(Kernel& k, int count, bool transposed, const Value& address, int offset,
                            Here at) {
  k.at(at);
  k.needs_sm(75, "ldmatrix", at);
  k.collective("ldmatrix", Uniform::warp, at);
  std::vector<Value> out;
  std::vector<ptx::Operand> list;
  for (int i = 0; i < count; ++i) {
    out.push_back(k.fresh(Mod::b32, Uniform::thread));
    list.push_back(ptx::Operand::of(out.back().reg()));
  }
  k.inst(Op::ldmatrix, matrix_mods(std::size_t(count), transposed),
         {ptx::Operand::vec(std::move(list)), ptx::Operand::at(k.register_of(address), offset)});
  return out;
}

void stmatrix(Kernel& k, bool transposed, const Value& address, int offset, std::span<const Value> regs,
              Here at) {
  k.at(at);
  k.needs_sm(90, "stmatrix", at);
  k.collective("stmatrix", Uniform::warp, at);
  std::vector<ptx::Operand> list;
  for (const Value& v : regs) list.push_back(k.in_register(v));
  k.inst(Op::stmatrix, matrix_mods(regs.size(), transposed),
         {ptx::Operand::at(k.register_of(address), offset), ptx::Operand::vec(std::move(list))});
}

Value movmatrix(Kernel& k, const Value& v, Here at) {
  k.at(at);
  k.needs_sm(75, "movmatrix", at);
  k.collective("movmatrix", Uniform::warp, at);
  return k.op(Op::movmatrix, {Mod::sync, Mod::aligned, Mod::m8n8, Mod::trans, Mod::b16}, Mod::b32, {v})
      .with(Uniform::thread);
}

Val<u32> operand_lane_offset(Kernel& k, Operand which, Major major, const TileLayout& layout,
                             const Val<u32>& from) {
  const Val<u32> lane = k.laneid();
  // Matrices 0..3 of an x4 load are, in register order: for A (rows 0-7, rows 8-15) x (K low, K high), for B
  // (K low, K high) x (columns 0-7, columns 8-15). Transposed loads see K along the rows of the tile.
  const Val<u32> low = lane & Val<u32>(7), second = remainder(divided(lane, 8), 2), third = divided(lane, 16);
  const Val<u32>& mn_half = which == Operand::a ? second : third;
  const Val<u32>& k_half = which == Operand::a ? third : second;
  const Val<u32> in_chunk(16 / layout.element_bytes);
  if (major == Major::k) return tile_offset(layout, from + (low + times(mn_half, 8)), k_half * in_chunk);
  return tile_offset(layout, low + times(k_half, 8), from + mn_half * in_chunk);
}

std::vector<Value> load_operand(Kernel& k, Operand which, Major major, int element_bytes, int extent,
                                int k_step, TileLanes& lanes, Here at) {
  std::vector<Value> out;
  (void)element_bytes;
  for (int from = 0; from < extent; from += 16) {
    const int count = extent - from >= 16 ? 4 : 2;  // a last n8 block alone: only B
    const auto [reg, offset] =
        major == Major::k ? lanes.at(from, 2 * k_step) : lanes.at(16 * k_step, from / 8);
    auto part = ldmatrix(k, which == Operand::a ? 4 : count, major == Major::mn, reg, offset, at);
    for (const Value& v : part) out.push_back(v);
  }
  return out;
}
}  // namespace record

TileLanes::TileLanes(const TileLayout& layout, const Val<u32>& lane_address, int offset)
    : layout_(layout), lane_(lane_address), offset_(offset) {}

std::pair<Value, int> TileLanes::at(int row, int chunk) {
  const int row_offset = offset_ + row * layout_.span();
  if (layout_.swizzle == Swizzle::none) return {lane_, row_offset + 16 * chunk};
  const int per_panel = layout_.chunks_per_panel();
  // Chunks inside a panel combine by XOR: the lane's own chunk and `chunk` share no bit (one is 0 or 1, or
  // has only the bits above the warp's part; the other is even and inside it), so a + b == a ^ b.
  const int inside = chunk % per_panel, panel = chunk / per_panel;
  const int offset = row_offset + panel * layout_.panel_bytes();
  if (inside == 0) return {lane_, offset};
  auto& reg = xored_[std::size_t(inside)];
  if (!reg) reg.emplace(lane_ ^ Val<u32>(16 * inside));
  return {*reg, offset};
}

}  // namespace cgp::dsl
