// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/ring.h"

#include <algorithm>

namespace cgp::dsl::record {
using ptx::Mod;
using ptx::Op;

// ---------------------------------------------------------------- StageToken
StageToken::~StageToken() {
  if (k_)
    k_->problem("a stage of a ring was taken but never released", at_,
                "hand it to wgmma, or call std::move(stage).release(scope)");
}

void StageToken::release(Here at) && {
  Kernel& k = *std::exchange(k_, nullptr);
  k.at(at);
  k.guarded(releasing_, [&] {
    if (cluster_)
      mbarrier_arrive_cluster(k, {empty_, 0}, at);
    else
      mbarrier_arrive(k, {empty_, 0}, at);
  });
}

StageToken StageToken::home(Kernel& k) && {
  StageToken t(k.carry_home(empty_), releasing_, cluster_, at_);
  k_ = nullptr;
  return t;
}

StageToken StageToken::settle(Kernel& k, StageToken& next) {
  if (next.releasing_.reg() != releasing_.reg())
    throw BuildError("a stage carried round a loop comes from one ring", next.at_,
                     "the stage handed back belongs to another ring than the one received");
  (void)k.carry_settle(empty_, next.empty_);
  StageToken t(empty_, releasing_, cluster_, next.at_);
  k_ = nullptr;
  next.k_ = nullptr;
  return t;
}

// ---------------------------------------------------------------- RingCore
namespace {
constexpr int kBarrierPair = 16;  // full at +0, empty at +8

int rank_stride(const Kernel& k, Axis a) {
  const auto c = k.cluster_size();
  return a == Axis::x ? 1 : a == Axis::y ? c[0] : c[0] * c[1];
}
Val<u32> coordinate(Kernel& k, Axis a) {
  return a == Axis::x ? k.cluster_ctaid_x() : a == Axis::y ? k.cluster_ctaid_y() : k.cluster_ctaid_z();
}
}  // namespace

int block_warps(const Kernel& k, Here at) {
  const auto b = k.block_size();
  const int threads = b[0] * b[1] * b[2];
  if (threads == 0)
    throw BuildError("a ring must know how many warps free its stages", at, "the block size is free",
                     "call k.block(threads) first, or use roles");
  return threads / 32;
}

RingCore::RingCore(Kernel& k, Stages stages, int tile_bytes, int stage_bytes, int align, int consumer_warps,
                   const std::vector<Axis>& shared_axes)
    : k_(k), stages_(stages.count), tile_bytes_(tile_bytes), stage_bytes_(stage_bytes) {
  k.at(stages.at);
  k.needs_sm(90, "a TMA ring", stages.at);
  if (stages_ < 1) throw BuildError("a ring has at least one stage", stages.at, text::cat("got ", stages_));
  data_ = k.smem(stage_bytes * stages_, align, stages.at);
  bars_ = k.smem(kBarrierPair * stages_, 16, stages.at);
  for (Axis a : shared_axes)
    if (std::find(axes_.begin(), axes_.end(), a) == axes_.end()) axes_.push_back(a);
  cluster_ = !axes_.empty();
  // A stage may be overwritten by every block that shares a tile with this one, so each must hear of its
  // release.
  const auto c = k.cluster_size();
  int targets = 1;
  for (Axis a : axes_) targets += c[std::size_t(a)] - 1;
  fill_cursor_.emplace(
      make_cursor(1));  // a fresh barrier counts as "phase 1 completed": all stages are empty
  take_cursor_.emplace(make_cursor(0));
  const Val<u32> lane = k.laneid();
  releasing_.emplace(lane < Val<u32>(targets));
  const Val<u32> mine = k.smem_addr(bars_ + 8, stages.at);
  if (!cluster_) {
    empty_base_.emplace(mine);
  } else {
    // Lane i frees the i-th target: first the blocks along the first axis (this one included), then the
    // others of the second and third.
    const Val<u32> own = k.cluster_ctarank();
    std::optional<Val<u32>> rank;
    int first = 0;
    for (Axis a : axes_) {
      const int extent = c[std::size_t(a)], stride = rank_stride(k, a);
      const Val<u32> at = coordinate(k, a);
      const Val<u32> line = own - times(at, stride);
      if (!rank) {
        rank.emplace(line + times(lane, stride));
        first = extent;
      } else {
        const Val<u32> i = lane - Val<u32>(first);
        const Val<u32> skipped = i + select(i < at, Val<u32>(0), Val<u32>(1));
        const Val<u32> there = line + times(skipped, stride);
        const Val<u32> chosen = select(lane < Val<u32>(first), *rank, there);
        rank.emplace(chosen);
        first += extent - 1;
      }
    }
    const Val<u32> valid = select(Val<pred>(*releasing_), *rank, own);
    empty_base_.emplace(k.op(Op::mapa, {Mod::shared_cluster, Mod::u32}, Mod::u32, {mine, valid}));
    if (!k.cluster_exit_barrier) {
      k.cluster_exit_barrier = true;
      // No block may end while others still write to its memory or arrive on its barriers.
      k.at_end([&k] {
        k.inst(Op::barrier_cluster_arrive, {}, {});
        k.inst(Op::barrier_cluster_wait, {}, {});
      });
    }
  }
  k.if_(
      k.tid() == 0,
      [&] {
        for (int s = 0; s < stages_; ++s) {
          mbarrier_init(k, {k.smem_addr(0), bars_ + kBarrierPair * s}, Val<u32>(1), stages.at);
          mbarrier_init(k, {k.smem_addr(0), bars_ + kBarrierPair * s + 8}, Val<u32>(consumer_warps * targets),
                        stages.at);
        }
        fence_mbarrier_init(k, stages.at);
      },
      stages.at);
  sync_cluster_or_block(k, stages.at);
}

RingCore::Cursor RingCore::make_cursor(int parity) {
  return {k_.copy(Value::literal(0, Mod::u32)).with(Uniform::thread),
          k_.copy(Value::literal(std::uint64_t(parity), Mod::u32)).with(Uniform::thread)};
}

void RingCore::advance(Cursor& c, Here at) {
  k_.at(at);
  if (stages_ > 1) {
    k_.mov_op(c.stage, Op::add, {Mod::u32}, {c.stage, Value::literal(1, Mod::u32)});
    const Value wraps = k_.op(Op::setp, {Mod::eq, Mod::u32}, Mod::pred,
                              {c.stage, Value::literal(std::uint64_t(stages_), Mod::u32)});
    k_.guarded(wraps, [&] {
      k_.mov(c.stage, Value::literal(0, Mod::u32));
      k_.mov_op(c.parity, Op::xor_, {Mod::b32}, {c.parity, Value::literal(1, Mod::u32)});
    });
  } else {
    k_.mov_op(c.parity, Op::xor_, {Mod::b32}, {c.parity, Value::literal(1, Mod::u32)});
  }
}

Val<u32> RingCore::barrier(const Cursor& c) const {
  return k_.smem_addr(bars_) + times(Val<u32>(c.stage), kBarrierPair);
}

RingCore::Stage RingCore::begin_fill(Here at) {
  k_.at(at);
  const Cursor& c = *fill_cursor_;
  const Val<u32> bar = barrier(c);
  mbarrier_wait(k_, {bar, 8}, c.parity, cluster_, at);
  mbarrier_arrive_expect_tx(k_, {bar, 0}, Val<u32>(tile_bytes_), at);
  return {k_.smem_addr(data_) + times(Val<u32>(c.stage), stage_bytes_), {bar, 0}};
}

Val<u32> RingCore::begin_take(Here at) {
  k_.at(at);
  const Cursor& c = *take_cursor_;
  mbarrier_wait(k_, {barrier(c), 0}, c.parity, false, at);
  return k_.smem_addr(data_) + times(Val<u32>(c.stage), stage_bytes_);
}

StageToken RingCore::end_take(Here at) {
  Cursor& c = *take_cursor_;
  const Val<u32> empty = Val<u32>(*empty_base_) + times(Val<u32>(c.stage), kBarrierPair);
  advance(c, at);
  return StageToken(empty, *releasing_, cluster_, at);
}

void RingCore::check_peers(const TmaMap& m, Here at) const {
  if (m.peers > 1 && std::find(axes_.begin(), axes_.end(), m.axis) == axes_.end())
    throw BuildError(
        "a ring must know at construction which of its maps are multicast", at,
        "this source is multicast, the ring counts releases of this block only",
        "pass the maps to the ring: Ring<...> ring(k, stages, load, math, a, b.multicast(Axis::x))");
}

void RingCore::skip(const Val<u32>& n, Here at) {
  k_.at(at);
  const Cursor& c = *take_cursor_;
  const Val<u32> sum = Val<u32>(c.stage) + n;
  const Val<u32> wraps = divided(sum, stages_), stage = remainder(sum, stages_);
  k_.mov(c.stage, stage);
  k_.mov_op(c.parity, Op::xor_, {Mod::b32}, {c.parity, remainder(wraps, 2)});
}

// ---------------------------------------------------------------- TurnsCore
TurnsCore::TurnsCore(Kernel& k, int members, int warps_each, Here at) : k_(k), members_(members) {
  k.at(at);
  k.needs_sm(90, "taking turns", at);
  if (members < 2)
    throw BuildError("at least two members take turns", at, text::cat("the role has ", members));
  bars_ = k.smem(8 * members, 8, at);
  parity_.emplace(k.copy(Value::literal(0, Mod::u32)).with(Uniform::thread));
  k.if_(
      k.tid() == 0,
      [&] {
        for (int m = 0; m < members; ++m)
          mbarrier_init(k, {k.smem_addr(0), bars_ + 8 * m}, Val<u32>(warps_each), at);
        fence_mbarrier_init(k, at);
      },
      at);
  sync_cluster_or_block(k, at);
}

void TurnsCore::wait(const Val<u32>& member, Here at) {
  k_.at(at);
  // The first member waits for the phase before the first, which counts as completed: parity is inverted.
  const Val<u32> inverted = select(member == Val<u32>(0), Val<u32>(1), Val<u32>(0));
  mbarrier_wait(k_, {k_.smem_addr(bars_) + times(member, 8), 0}, Val<u32>(*parity_) ^ inverted, false, at);
  k_.mov_op(*parity_, Op::xor_, {Mod::b32}, {*parity_, Value::literal(1, Mod::u32)});
}

void TurnsCore::pass(const Val<u32>& member, Here at) {
  k_.at(at);
  const Val<u32> next = member + Val<u32>(1);
  const Val<u32> whose = select(next == Val<u32>(members_), Val<u32>(0), next);
  const Val<u32> bar = k_.smem_addr(bars_) + times(whose, 8);
  k_.inst(Op::bar_warp_sync, {}, {ptx::Operand::integer(-1)});
  k_.guarded(k_.laneid() == Val<u32>(0), [&] { mbarrier_arrive(k_, {bar, 0}, at); });
}

}  // namespace cgp::dsl::record
