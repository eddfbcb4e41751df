// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/fragment.h"

#include "cgp/dsl/core/special.h"
#include "cgp/dsl/memory/tile.h"

namespace cgp::dsl::record {
using ptx::Mod;
using ptx::Op;

std::vector<Value> fresh_registers(Kernel& k, Mod type, int count) {
  std::vector<Value> v;
  v.reserve(std::size_t(count));
  for (int i = 0; i < count; ++i) v.push_back(k.fresh(type, Uniform::thread));
  return v;
}

std::vector<Value> zero_registers(Kernel& k, Mod type, int count, Here at) {
  k.at(at);
  auto v = fresh_registers(k, type, count);
  for (const Value& r : v) k.mov(r, Value::literal(0, type));
  return v;
}

Value own(Kernel& k, const Value& next, std::size_t mark) {
  if (!next.is_literal() && std::size_t(next.reg()) >= mark) return next.with(Uniform::thread);
  return k.copy(next).with(Uniform::thread);
}

std::vector<Value> carry_home(Kernel& k, const std::vector<Value>& v) {
  for (const Value& r : v) k.adopt(r);  // owned registers stay where they are: no moves
  return v;
}

void carry_settle(Kernel& k, const std::vector<Value>& home, const std::vector<Value>& next) {
  for (std::size_t i = 0; i < home.size(); ++i) (void)k.carry_settle(home[i], next[i]);
}

namespace {
AccOrigin origin(Kernel& k, const Val<u32>& lane, const Val<u32>* warp) {
  const Val<u32> group = divided(lane, 4);
  const Val<u32> col = times(remainder(lane, 4), 2);
  if (!warp) return {group, col};
  (void)k;
  return {group + times(*warp, 16), col};
}
}  // namespace

AccOrigin warp_origin(Kernel& k) { return origin(k, k.laneid(), nullptr); }
AccOrigin warpgroup_origin(Kernel& k) {
  const Val<u32> warp = remainder(divided(k.tid(), 32), 4);
  return origin(k, k.laneid(), &warp);
}

Value pack_pair(Kernel& k, Mod packed, const Value& low, const Value& high, Here at) {
  k.at(at);
  return k.op(Op::cvt, {Mod::rn, packed, Mod::f32}, Mod::b32, {high, low});
}

}  // namespace cgp::dsl::record
