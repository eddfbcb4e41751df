// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/pipeline/cluster.h"

namespace cgp::dsl {
using ptx::Mod;
using ptx::Op;

ClusterArrived cluster_arrive(Cta& cta, Here at) {
  cta.converged("barrier.cluster.arrive", at);
  cta.k.needs_sm(90, "barrier.cluster", at);
  cta.k.at(at);
  cta.k.inst(Op::barrier_cluster_arrive, {Mod::release, Mod::aligned}, {});
  return ClusterArrived(cta.k, at);
}

namespace record {
using ptx::Operand;

Value mapa(Kernel& k, const Value& shared_address, const Value& rank, Here at) {
  k.needs_sm(90, "mapa", at);
  const auto c = k.cluster_size();
  const int blocks = c[0] * c[1] * c[2];
  if (blocks == 0)
    throw BuildError("other blocks' shared memory exists in clusters only", at,
                     "the kernel has no cluster shape", "call k.cluster(x, y, z) first");
  if (rank.is_literal() && rank.bits() >= std::uint64_t(blocks))
    throw BuildError("a block of the cluster has a rank below the cluster's size", at,
                     text::cat("rank ", rank.bits(), " of ", blocks, " blocks"));
  return k.op(Op::mapa, {Mod::shared_cluster, Mod::u32}, Mod::u32, {shared_address, rank}, at);
}

namespace {
Operand peer(Kernel& k, const record_impl::Address& a) {
  return Operand::at(k.register_of(a.base), a.offset);
}
Mod async_type(Mod t) { return t == Mod::f32 || t == Mod::f64 ? t : bits_mod(ptx::type_bits(t)); }
}  // namespace

void st_async(Kernel& k, const record_impl::Address& to, Mod type, const std::vector<Value>& v,
              const Value& bar, Here at) {
  k.at(at);
  k.needs_sm(90, "st.async", at);
  ptx::Mods m{Mod::shared_cluster, Mod::mbarrier_complete_tx_bytes};
  if (v.size() > 1) m.push_back(v.size() == 2 ? Mod::v2 : Mod::v4);
  m.push_back(async_type(type));
  std::vector<Operand> list;
  for (const Value& x : v) list.push_back(k.in_register(x));
  const Operand values = v.size() == 1 ? list[0] : Operand::vec(list);
  k.inst(Op::st_async, m, {peer(k, to), values, Operand::at(k.register_of(bar))});
}

void red_async(Kernel& k, const record_impl::Address& to, Mod op, Mod type, const Value& v, const Value& bar,
               Here at) {
  k.at(at);
  k.needs_sm(90, "red.async", at);
  const bool bitwise = op == Mod::and_ || op == Mod::or_ || op == Mod::xor_;
  k.inst(Op::red_async,
         {Mod::relaxed, Mod::cluster, Mod::shared_cluster, Mod::mbarrier_complete_tx_bytes, op,
          bitwise ? Mod::b32 : type},
         {peer(k, to), k.in_register(v), Operand::at(k.register_of(bar))});
}

void bulk_to_peer(Kernel& k, const record_impl::Address& to, const SharedAddress& from, const Value& bytes,
                  const Value& bar, Here at) {
  k.at(at);
  k.needs_sm(90, "cp.async.bulk", at);
  k.inst(Op::cp_async_bulk, {Mod::shared_cluster, Mod::shared_cta, Mod::mbarrier_complete_tx_bytes},
         {peer(k, to), Operand::at(k.register_of(from.base), from.offset), k.operand(bytes),
          Operand::at(k.register_of(bar))});
}

}  // namespace record
}  // namespace cgp::dsl
