// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/pipeline/tensor_map_edit.h"

namespace cgp::dsl::record {
using ptx::Mod;
using ptx::Op;
using ptx::Operand;

int tensor_map_copy(Kernel& k, const Value& map, Here at) {
  k.at(at);
  const int smem = k.smem(128, 128, at);
  const Val<u32> lane = k.laneid();
  const Value from = k.op(Op::mad, {Mod::wide, Mod::u32}, Mod::u64, {lane, Value::literal(4, Mod::u32), map});
  const Value word = k.fresh(Mod::b32, Uniform::thread);
  k.inst(Op::ld, {Mod::b32}, {Operand::of(word.reg()), Operand::at(k.register_of(from))});
  const Val<u32> to = k.smem_addr(smem, at) + (lane << Val<u32>(2));
  k.inst(Op::st, {Mod::shared, Mod::b32}, {Operand::at(k.register_of(to)), Operand::of(word.reg())});
  return smem;
}

void tensor_map_replace(Kernel& k, int smem, Mod field, int ordinal, const Value& v, Here at) {
  k.at(at);
  if (k.sm() < 90 || !k.arch_specific())
    throw BuildError("tensormap.replace needs an architecture-specific target from sm_90a on", at,
                     text::cat("the kernel is built for ", k.target()));
  const bool wide = ptx::type_bits(v.type()) == 64;
  std::vector<Operand> operands{Operand::at(k.register_of(k.smem_addr(smem, at)))};
  if (ordinal >= 0) operands.push_back(Operand::integer(ordinal));
  operands.push_back(k.in_register(v));
  const Val<pred> first = k.laneid() == Val<u32>(0);
  k.guarded(first, [&] {
    k.inst(Op::tensormap_replace, {Mod::tile, field, Mod::shared_cta, Mod::b1024, wide ? Mod::b64 : Mod::b32},
           std::move(operands));
  });
}

void tensor_map_publish(Kernel& k, int smem, const record_impl::Address& to, Here at) {
  k.at(at);
  k.collective("tensormap.cp_fenceproxy", Uniform::warp, at);
  k.inst(
      Op::tensormap_cp_fenceproxy,
      {Mod::global, Mod::shared_cta, Mod::tensormap_generic, Mod::release, Mod::gpu, Mod::sync, Mod::aligned},
      {record_impl::address_operand(k, to, 128, at), Operand::at(k.register_of(k.smem_addr(smem, at))),
       Operand::integer(128)});
}

Value tensor_map_acquire(Kernel& k, const record_impl::Address& map, Here at) {
  k.at(at);
  const Value in_global = map.offset == 0
                              ? map.base
                              : k.op(Op::add, {Mod::u64}, Mod::u64,
                                     {map.base, Value::literal(std::uint64_t(map.offset), Mod::u64)});
  const Value generic = k.op(Op::cvta, {Mod::global, Mod::u64}, Mod::u64, {in_global});
  k.inst(Op::fence_proxy, {Mod::tensormap_generic, Mod::acquire, Mod::gpu},
         {Operand::at(generic.reg()), Operand::integer(128)});
  return generic;
}

}  // namespace cgp::dsl::record
