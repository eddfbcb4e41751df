// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/pipeline/cluster_launch_control.h"

namespace cgp::dsl::record {
using ptx::Mod;
using ptx::Op;
using ptx::Operand;

namespace {
constexpr int kAnswers = 4;  // the thread that loads runs ahead of those that multiply and store
constexpr int kAnswerBytes = 16;
constexpr int kBarrierPair = 16;  // full at +0, empty at +8
}  // namespace

QueueCore::QueueCore(Kernel& k, int arrivals, int leader_arrivals, Here at)
    : k_(k), arrivals_(arrivals), leader_arrivals_(leader_arrivals), at_(at) {
  k.needs_sm(100, "clusterlaunchcontrol", at);
  k.at(at);
  const auto c = k.cluster_size();
  blocks_ = std::max(1, c[0] * c[1] * c[2]);
  if (c[1] > 1 || c[2] > 1)
    throw BuildError("a work queue counts clusters along x", at,
                     text::cat("the cluster is ", c[0], " x ", c[1], " x ", c[2]));
  if (blocks_ > 1 && !k.arch_specific())
    throw BuildError("answers to a whole cluster exist on sm_100a and its family only", at,
                     text::cat("the kernel is built for ", k.target()));
  data_ = k.smem(kAnswers * kAnswerBytes, 16, at);
  bars_ = k.smem(kAnswers * kBarrierPair, 16, at);
  ask_.emplace(k, kAnswers, 1);
  read_.emplace(k, kAnswers, 0);
  const Val<u32> mine = k.smem_addr(bars_ + 8, at);
  if (blocks_ > 1) {
    // Block 0 asks for all, so all tell it when an answer has been read.
    asks_.emplace(k.cluster_ctarank() == Val<u32>(0));
    empty_base_.emplace(
        k.op(Op::mapa, {Mod::shared_cluster, Mod::u32}, Mod::u32, {mine, Value::literal(0, Mod::u32)}));
    if (!k.cluster_exit_barrier) {
      k.cluster_exit_barrier = true;
      k.at_end([&k] {
        k.inst(Op::barrier_cluster_arrive, {}, {});
        k.inst(Op::barrier_cluster_wait, {}, {});
      });
    }
  } else {
    empty_base_.emplace(mine);
  }
  k.if_(
      k.tid() == 0,
      [&] {
        for (int s = 0; s < kAnswers; ++s) {
          mbarrier_init(k, {k.smem_addr(0), bars_ + kBarrierPair * s}, Val<u32>(1), at);
          mbarrier_init(k, {k.smem_addr(0), bars_ + kBarrierPair * s + 8},
                        Val<u32>(blocks_ * arrivals + blocks_ / 2 * leader_arrivals), at);
        }
        fence_mbarrier_init(k, at);
      },
      at);
  sync_cluster_or_block(k, at);
}

QueueCore::~QueueCore() {
  if (seen_ != arrivals_ || leader_seen_ != leader_arrivals_)
    k_.problem(text::cat("everybody in a work queue's list takes every piece: ", arrivals_ + leader_arrivals_,
                         " arrivals are expected in an even block, ", seen_ + leader_seen_, " were recorded"),
               at_,
               "the first role leads with one thread; a Warp role follows once, a Warpgroup role as whole "
               "warpgroups, leaders(role) with a PairLeader");
}

Val<u32> QueueCore::first(Here at) {
  k_.at(at);
  return blocks_ > 1 ? k_.clusterid_x() : k_.ctaid_x();
}

void QueueCore::ask(Here at) {
  k_.at(at);
  const Val<u32> slot = ask_->stage(), bar = k_.smem_addr(bars_) + times(slot, kBarrierPair);
  const Val<u32> data = k_.smem_addr(data_) + times(slot, kAnswerBytes);
  const auto request = [&] {
    mbarrier_wait(k_, {bar, 8}, ask_->parity(), blocks_ > 1, at);
    ptx::Mods m{Mod::async, Mod::shared_cta, Mod::mbarrier_complete_tx_bytes};
    if (blocks_ > 1) m.push_back(Mod::multicast_cluster_all);
    m.push_back(Mod::b128);
    k_.inst(Op::clusterlaunchcontrol_try_cancel, m,
            {Operand::at(k_.register_of(data)), Operand::at(k_.register_of(bar))});
  };
  mbarrier_arrive_expect_tx(k_, {bar, 0}, Val<u32>(kAnswerBytes), at);
  if (blocks_ > 1)
    k_.if_(Val<pred>(*asks_), request, at);
  else
    request();
  ask_->advance(at);
}

QueueCore::Answer QueueCore::answer(int warps, Here at) {
  k_.at(at);
  const Val<u32> slot = read_->stage(), bar = k_.smem_addr(bars_) + times(slot, kBarrierPair);
  const Val<u32> data = k_.smem_addr(data_) + times(slot, kAnswerBytes);
  mbarrier_wait(k_, {bar, 0}, read_->parity(), blocks_ > 1, at);
  const Value words = k_.fresh(Mod::b128, Uniform::thread);
  k_.inst(Op::ld, {Mod::shared, Mod::b128}, {Operand::of(words.reg()), Operand::at(k_.register_of(data))});
  const Value given = k_.fresh(Mod::pred, Uniform::thread);
  k_.inst(Op::clusterlaunchcontrol_query_cancel, {Mod::is_canceled, Mod::pred, Mod::b128},
          {Operand::of(given.reg()), k_.operand(words)});
  // Only an answer that gives a cluster has an index in it.
  const Value block = k_.copy(Value::literal(0, Mod::u32));
  k_.guarded(given, [&] {
    k_.inst(Op::clusterlaunchcontrol_query_cancel, {Mod::get_first_ctaid_x, Mod::b32, Mod::b128},
            {Operand::of(block.reg()), k_.operand(words)});
  });
  // The next answer is written by the asynchronous proxy.
  fence_proxy_async(k_, Mod::shared_cta, at);
  const Val<u32> empty = Val<u32>(*empty_base_) + times(slot, kBarrierPair);
  const auto arrive = [&] {
    if (blocks_ > 1)
      mbarrier_arrive_cluster(k_, {empty, 0}, at);
    else
      mbarrier_arrive(k_, {empty, 0}, at);
  };
  if (warps) {
    k_.inst(Op::bar_warp_sync, {}, {Operand::integer(-1)});
    k_.guarded(k_.laneid() == Val<u32>(0), arrive);
  } else {
    arrive();
  }
  read_->advance(at);
  return {Val<pred>(given), divided(Val<u32>(block), k_.cluster_size()[0] ? k_.cluster_size()[0] : 1)};
}

}  // namespace cgp::dsl::record
