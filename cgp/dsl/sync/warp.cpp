// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/sync/warp.h"

#include "cgp/dsl/sync/block.h"

namespace cgp::dsl {
using ptx::Mod;
using ptx::Op;
using ptx::Operand;

namespace record_impl {

int check_width(int width, Here at) {
  if (width < 1 || width > 32 || (width & (width - 1)))
    throw BuildError("a warp is split into segments of 1, 2, 4, 8, 16 or 32 lanes", at,
                     text::cat("width = ", width));
  return width;
}

void check_offset(Mod mode, const Value& lane, Here at) {
  if (lane.is_literal() && lane.bits() > 31)
    throw BuildError("a shuffle stays inside the warp: lanes and offsets are 0 to 31", at,
                     text::cat("shfl.", ptx::name(mode), " by ", lane.bits()));
}

Value shuffle32(Warp& w, Mod mode, const Value& v, const Value& lane, int width, Value* valid, Here at) {
  w.converged("shfl.sync", at);
  check_width(width, at);
  Kernel& k = w.k;
  k.at(at);
  // c operand: the clamp value in bits 0-4 and the segment mask in bits 8-12 (PTX ISA 9.7.9.6).
  const int clamp = (mode == Mod::up ? 0 : 31) | (32 - width) << 8;
  const Value d = k.fresh(v.type(), Uniform::thread);
  const Operand destination = valid ? Operand::dual(d.reg(), valid->reg()) : Operand::of(d.reg());
  const Operand source = k.in_register(v);
  k.inst(Op::shfl_sync, {mode, Mod::b32},
         {destination, source, k.operand(lane), Operand::integer(clamp), Operand::integer(-1)});
  return d;
}

Value warp_op(Warp& w, Op op, ptx::Mods m, Mod result, const Value& in, std::string_view what, Here at) {
  w.converged(what, at);
  Kernel& k = w.k;
  k.at(at);
  const Operand source = k.in_register(in);
  const Value d = k.fresh(result, Uniform::warp);
  k.inst(op, m, {Operand::of(d.reg()), source, Operand::integer(-1)});
  return d;
}

MatchAll match_all(Warp& w, const Value& v, int bits, Here at) {
  w.converged("match.all", at);
  Kernel& k = w.k;
  k.at(at);
  const Operand source = k.in_register(v);
  const Value mask = k.fresh(Mod::u32, Uniform::warp), same = k.fresh(Mod::pred, Uniform::warp);
  k.inst(Op::match_all_sync, {bits_mod(bits)},
         {Operand::dual(mask.reg(), same.reg()), source, Operand::integer(-1)});
  return {Val<u32>(mask), Val<pred>(same)};
}

int known_threads(Kernel& k, std::string_view what, Here at) {
  const auto b = k.block_size();
  const int threads = k.warps ? k.warps * 32 : b[0];
  if (threads == 0)
    throw BuildError(text::cat(what, " needs to know the block size"), at, {}, "call k.block(threads) first");
  if (b[1] > 1 || b[2] > 1)
    throw BuildError(text::cat(what, " needs a one-dimensional block"), at,
                     text::cat(b[0], " x ", b[1], " x ", b[2]));
  return threads;
}

}  // namespace record_impl

Val<u32> activemask(Kernel& k, Here at) {
  k.at(at);
  const Value d = k.fresh(Mod::u32, Uniform::thread);
  k.inst(Op::activemask, {Mod::b32}, {Operand::of(d.reg())});
  return Val<u32>(d);
}

}  // namespace cgp::dsl
