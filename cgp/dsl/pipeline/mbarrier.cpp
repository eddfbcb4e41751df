// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/pipeline/mbarrier.h"

namespace cgp::dsl::record {
using ptx::Mod;
using ptx::Op;
using ptx::Operand;

namespace {
Operand at_address(Kernel& k, const SharedAddress& a) { return Operand::at(k.register_of(a.base), a.offset); }
void spin(Kernel& k, ptx::Mods mods, const SharedAddress& bar, const Value& until, Here at) {
  k.at(at);
  k.needs_sm(90, "mbarrier.try_wait", at);
  const auto again = k.new_label();
  const Operand where = at_address(k, bar), what = k.operand(until);
  k.place(again);
  const Value done = k.fresh(Mod::pred, Uniform::thread);
  k.inst(Op::mbarrier_try_wait, mods, {Operand::of(done.reg()), where, what});
  k.bra_if(done, false, again);
}
}  // namespace

void mbarrier_init(Kernel& k, const SharedAddress& bar, const Value& count, Here at) {
  k.at(at);
  k.needs_sm(80, "mbarrier", at);
  k.inst(Op::mbarrier_init, {Mod::shared_cta, Mod::b64}, {at_address(k, bar), k.operand(count)});
}
void fence_mbarrier_init(Kernel& k, Here at) {
  k.at(at);
  if (k.sm() >= 90) k.inst(Op::fence_mbarrier_init, {Mod::release, Mod::cluster}, {});
}
void mbarrier_inval(Kernel& k, const SharedAddress& bar, Here at) {
  k.at(at);
  k.inst(Op::mbarrier_inval, {Mod::shared_cta, Mod::b64}, {at_address(k, bar)});
}
void mbarrier_arrive(Kernel& k, const SharedAddress& bar, Here at) {
  k.at(at);
  k.inst(Op::mbarrier_arrive, {Mod::shared_cta, Mod::b64}, {Operand::none(), at_address(k, bar)});
}
Value mbarrier_arrive_token(Kernel& k, const SharedAddress& bar, Here at) {
  k.at(at);
  const Value token = k.fresh(Mod::b64, Uniform::thread);
  k.inst(Op::mbarrier_arrive, {Mod::shared_cta, Mod::b64}, {Operand::of(token.reg()), at_address(k, bar)});
  return token;
}
void mbarrier_arrive_drop(Kernel& k, const SharedAddress& bar, Here at) {
  k.at(at);
  k.inst(Op::mbarrier_arrive_drop, {Mod::shared_cta, Mod::b64}, {Operand::none(), at_address(k, bar)});
}
void mbarrier_arrive_cluster(Kernel& k, const SharedAddress& bar, Here at) {
  k.at(at);
  k.inst(Op::mbarrier_arrive, {Mod::release, Mod::cluster, Mod::shared_cluster, Mod::b64},
         {Operand::none(), at_address(k, bar)});
}
void mbarrier_free_peer(Kernel& k, const SharedAddress& bar, Here at) {
  k.at(at);
  k.inst(Op::mbarrier_arrive, {Mod::release, Mod::cta, Mod::shared_cluster, Mod::b64},
         {Operand::none(), at_address(k, bar)});
}
void mbarrier_arrive_expect_tx(Kernel& k, const SharedAddress& bar, const Value& bytes, Here at) {
  k.at(at);
  k.needs_sm(90, "mbarrier.arrive.expect_tx", at);
  k.inst(Op::mbarrier_arrive, {Mod::expect_tx, Mod::shared_cta, Mod::b64},
         {Operand::none(), at_address(k, bar), k.operand(bytes)});
}
void mbarrier_expect_tx(Kernel& k, const SharedAddress& bar, const Value& bytes, Here at) {
  k.at(at);
  k.needs_sm(90, "mbarrier.expect_tx", at);
  k.inst(Op::mbarrier_expect_tx, {Mod::relaxed, Mod::cta, Mod::shared_cta, Mod::b64},
         {at_address(k, bar), k.operand(bytes)});
}
void mbarrier_wait(Kernel& k, const SharedAddress& bar, const Value& parity, bool cluster, Here at) {
  ptx::Mods m{Mod::parity};
  if (cluster) {
    m.push_back(Mod::acquire);
    m.push_back(Mod::cluster);
  }
  m.push_back(Mod::shared_cta);
  m.push_back(Mod::b64);
  spin(k, m, bar, parity, at);
}
void mbarrier_wait_token(Kernel& k, const SharedAddress& bar, const Value& token, Here at) {
  spin(k, {Mod::shared_cta, Mod::b64}, bar, token, at);
}
Value mbarrier_test(Kernel& k, const SharedAddress& bar, const Value& parity, Here at) {
  k.at(at);
  k.needs_sm(80, "mbarrier.test_wait", at);
  const Value done = k.fresh(Mod::pred, Uniform::thread);
  k.inst(Op::mbarrier_test_wait, {Mod::parity, Mod::shared_cta, Mod::b64},
         {Operand::of(done.reg()), at_address(k, bar), k.operand(parity)});
  return done;
}
void cp_async_mbarrier_arrive(Kernel& k, const SharedAddress& bar, bool noinc, Here at) {
  k.at(at);
  k.needs_sm(80, "cp.async.mbarrier.arrive", at);
  ptx::Mods m;
  if (noinc) m.push_back(Mod::noinc);
  m.push_back(Mod::shared);
  m.push_back(Mod::b64);
  k.inst(Op::cp_async_mbarrier_arrive, m, {at_address(k, bar)});
}

bool has_cluster(const Kernel& k) {
  const auto c = k.cluster_size();
  return c[0] * c[1] * c[2] > 1;
}

void sync_cluster_or_block(Kernel& k, Here at) {
  if (!has_cluster(k)) return k.sync(at);
  k.collective("barrier.cluster", Uniform::cta, at);
  k.at(at);
  k.inst(Op::barrier_cluster_arrive, {Mod::aligned}, {});
  k.inst(Op::barrier_cluster_wait, {Mod::aligned}, {});
}

}  // namespace cgp::dsl::record
