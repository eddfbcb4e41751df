// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/tmem.h"

#include <algorithm>

namespace cgp::dsl::record {
using ptx::Mod;
using ptx::Op;
using ptx::Operand;

namespace {
Mod group_mod(bool pair) { return pair ? Mod::cta_group_2 : Mod::cta_group_1; }
constexpr int kLaneShift = 16;  // a tensor memory address: lane in bits 31-16, column in bits 15-0

Mod repeat(int n) {
  constexpr Mod mods[] = {Mod::x1, Mod::x2, Mod::x4, Mod::x8, Mod::x16, Mod::x32, Mod::x64, Mod::x128};
  int i = 0;
  while ((1 << i) < n) ++i;
  return mods[i];
}
Mod shape_mod(TmemShape s) {
  constexpr Mod mods[] = {Mod::s32x32b, Mod::s16x64b, Mod::s16x128b, Mod::s16x256b};
  return mods[int(s)];
}
/// Waits for the pair, or for the block.
void sync_group(Kernel& k, bool pair, Here at) {
  if (pair)
    sync_cluster_or_block(k, at);
  else
    k.sync(at);
}
Val<u32> plus(const Val<u32>& a, std::uint32_t b) { return b ? a + b : a; }
}  // namespace

void tmem_needs(const Kernel& k, Here at) {
  const int sm = k.sm();
  if (!k.arch_specific() || (sm != 100 && sm != 101 && sm != 103 && sm != 110))
    throw BuildError("tensor memory exists on sm_100a and its family only", at,
                     text::cat("the kernel is built for ", k.target()), "build it for sm_100a");
}

Val<pred> leads_pair(Kernel& k, Here at) {
  k.at(at);
  const auto c = k.cluster_size();
  if (c[0] == 0 || c[0] % 2 != 0)
    throw BuildError("pairs of blocks lie along x of a cluster", at,
                     text::cat("the cluster is ", c[0], " x ", c[1], " x ", c[2]), "call k.cluster(2) first");
  return (k.cluster_ctarank() & Val<u32>(1)) == Val<u32>(0);
}

Val<u32> tmem_open(Kernel& k, int columns, bool pair, Here at) {
  tmem_needs(k, at);
  k.collective("with_tmem", Uniform::cta, at);
  if (pair) (void)leads_pair(k, at);
  const auto& body = k.function().body;
  if (std::any_of(body.begin(), body.end(), [](const ptx::Inst& i) { return i.op == Op::tcgen05_alloc; }))
    throw BuildError("a kernel allocates tensor memory once", at,
                     "the permit to allocate is given back by the first with_tmem",
                     "name all regions in one with_tmem<...>");
  k.at(at);
  const int slot = k.smem(4, 4, at);
  k.if_(
      k.warp_index() == 0,
      [&] {
        k.inst(Op::tcgen05_alloc, {group_mod(pair), Mod::sync, Mod::aligned, Mod::shared_cta, Mod::b32},
               {Operand::at(k.register_of(k.smem_addr(0, at)), slot), Operand::integer(columns)});
        k.inst(Op::tcgen05_relinquish_alloc_permit, {group_mod(pair), Mod::sync, Mod::aligned}, {});
      },
      at);
  umma_fence_before(k, at);
  sync_group(k, pair, at);
  umma_fence_after(k, at);
  const Value address = k.fresh(Mod::u32, Uniform::cta);
  k.inst(Op::ld, {Mod::shared, Mod::u32},
         {Operand::of(address.reg()), Operand::at(k.register_of(k.smem_addr(0, at)), slot)});
  return Val<u32>(address);
}

void tmem_close(Kernel& k, const Val<u32>& address, int columns, bool pair, Here at) {
  k.at(at);
  umma_fence_before(k, at);
  k.inst(Op::bar_warp_sync, {}, {Operand::integer(-1)});
  sync_group(k, pair, at);
  umma_fence_after(k, at);
  k.if_(
      k.warp_index() == 0,
      [&] {
        k.inst(Op::tcgen05_dealloc, {group_mod(pair), Mod::sync, Mod::aligned, Mod::b32},
               {k.operand(address), Operand::integer(columns)});
      },
      at);
}

Val<u32> tmem_of_warp(Kernel& k, const Val<u32>& address, int column) {
  const Val<u32> quarter = k.warp_index() & Val<u32>(3);
  return plus(address + (quarter << Val<u32>(kLaneShift + 5)), std::uint32_t(column));
}

std::vector<Value> tmem_load(Kernel& k, TmemShape shape, const Val<u32>& address, int registers, Mod type,
                             bool packed, Here at) {
  k.at(at);
  ptx::Mods m{Mod::sync, Mod::aligned, shape_mod(shape), repeat(registers / tmem_registers(shape))};
  if (packed) m.push_back(Mod::pack_16b);
  m.push_back(Mod::b32);
  std::vector<Value> out;
  std::vector<Operand> list;
  for (int i = 0; i < registers; ++i) {
    out.push_back(k.fresh(type, Uniform::thread));
    list.push_back(Operand::of(out.back().reg()));
  }
  k.inst(Op::tcgen05_ld, m, {Operand::vec(std::move(list)), Operand::at(k.register_of(address))});
  return out;
}

void tmem_store(Kernel& k, TmemShape shape, const Val<u32>& address, const std::vector<Value>& v, bool packed,
                Here at) {
  k.at(at);
  ptx::Mods m{Mod::sync, Mod::aligned, shape_mod(shape), repeat(int(v.size()) / tmem_registers(shape))};
  if (packed) m.push_back(Mod::unpack_16b);
  m.push_back(Mod::b32);
  std::vector<Operand> list;
  for (const Value& x : v) list.push_back(k.in_register(x));
  k.inst(Op::tcgen05_st, m, {Operand::at(k.register_of(address)), Operand::vec(std::move(list))});
}

void tmem_wait(Kernel& k, bool stores, Here at) {
  k.at(at);
  k.inst(Op::tcgen05_wait, {stores ? Mod::st : Mod::ld, Mod::sync, Mod::aligned}, {});
}

void tmem_copy_scales(Kernel& k, const ScaleCopy& c, const Val<u32>& to, const SharedAddress& from, Here at) {
  k.at(at);
  // No swizzle; 8 rows of 16 bytes follow each other, 128 bytes from one such group to the next.
  const SmemDescriptor fixed{.stride = 128};
  const Value start = k.op(Op::bfe, {Mod::u32}, Mod::u32,
                           {from.base, Value::literal(4, Mod::u32), Value::literal(14, Mod::u32)});
  const Value wide = k.op(Op::cvt, {Mod::u64, Mod::u32}, Mod::u64, {start});
  const Value base =
      k.op(Op::or_, {Mod::b64}, Mod::u64, {wide, Value::literal(umma_smem_descriptor(fixed), Mod::u64)});
  const int across = c.rows / 128, along = c.scales / 4;
  for (int r = 0; r < across; ++r)
    for (int s = 0; s < along; ++s) {
      const std::uint64_t bytes = std::uint64_t(from.offset) + std::uint64_t(r * along + s) * 512;
      const Value d =
          bytes ? k.op(Op::add, {Mod::u64}, Mod::u64, {base, Value::literal(bytes >> 4, Mod::u64)}) : base;
      const Val<u32> column = plus(to, std::uint32_t((s * across + r) * 4));
      k.inst(Op::tcgen05_cp, {group_mod(c.pair), Mod::s32x128b, Mod::warpx4},
             {Operand::at(k.register_of(column)), k.in_register(d)});
    }
}

void tmem_shift(Kernel& k, const Val<u32>& address, bool pair, Here at) {
  k.at(at);
  k.inst(Op::tcgen05_shift, {group_mod(pair), Mod::down}, {Operand::at(k.register_of(address))});
}

}  // namespace cgp::dsl::record
