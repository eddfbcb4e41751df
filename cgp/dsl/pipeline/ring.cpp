// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/pipeline/ring.h"

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
  if (!k_)
    throw BuildError("a stage is released once", at, {},
                     "the stage was released or handed to a product before");
  Kernel& k = *std::exchange(k_, nullptr);
  k.at(at);
  k.guarded(releasing_, [&] {
    if (cluster_)
      mbarrier_free_peer(k, {empty_, 0}, at);
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

CommitToken::~CommitToken() {
  if (k_) k_->problem("a stage of a ring was taken but never released", at_, "hand it to umma");
}

void CommitToken::commit(Here at) && {
  umma_commit(*std::exchange(k_, nullptr), {empty_, 0}, mask_, pair_, at);
}

void umma_commit(Kernel& k, const SharedAddress& bar, const std::optional<Value>& mask, bool pair, Here at) {
  k.at(at);
  ptx::Mods m{pair ? Mod::cta_group_2 : Mod::cta_group_1, Mod::mbarrier_arrive_one, Mod::shared_cluster};
  if (mask) m.push_back(Mod::multicast_cluster);
  m.push_back(Mod::b64);
  std::vector<ptx::Operand> o{ptx::Operand::at(k.register_of(bar.base), bar.offset)};
  if (mask) o.push_back(k.in_register(*mask));
  k.inst(Op::tcgen05_commit, m, std::move(o));
}
void umma_fence_after(Kernel& k, Here at) {
  k.at(at);
  k.inst(Op::tcgen05_fence, {Mod::after_thread_sync}, {});
}
void umma_fence_before(Kernel& k, Here at) {
  k.at(at);
  k.inst(Op::tcgen05_fence, {Mod::before_thread_sync}, {});
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

int RingCore::count_targets(Here at) const {
  // A stage may be overwritten by every block that shares a tile with this one, so each must hear of its
  // release.
  const auto c = k_.cluster_size();
  int targets = 1;
  for (Axis a : axes_) targets += c[std::size_t(a)] - 1;
  if (rules_.pair) {
    if (c[0] % 2 != 0 || c[0] == 0)
      throw BuildError("pairs of blocks lie along x of a cluster", at,
                       text::cat("the cluster is ", c[0], " x ", c[1], " x ", c[2]),
                       "call k.cluster(2) first");
    if (std::find(axes_.begin(), axes_.end(), Axis::x) != axes_.end())
      throw BuildError("a ring of pairs multicasts along y or z", at,
                       "along x lie the two halves of a pair, which load different tiles");
  }
  return targets;
}

RingCore::RingCore(Kernel& k, Stages stages, int tile_bytes, int stage_bytes, int align, RingRules rules,
                   const std::vector<Axis>& shared_axes)
    : k_(k), rules_(rules), stages_(stages.count), tile_bytes_(tile_bytes), stage_bytes_(stage_bytes) {
  k.at(stages.at);
  k.needs_sm(rules.commit ? 100 : 90, rules.commit ? "a ring that umma frees" : "a TMA ring", stages.at);
  if (stages_ < 1) throw BuildError("a ring has at least one stage", stages.at, text::cat("got ", stages_));
  data_ = k.smem(stage_bytes * stages_, align, stages.at);
  bars_ = k.smem(kBarrierPair * stages_, 16, stages.at);
  for (Axis a : shared_axes)
    if (std::find(axes_.begin(), axes_.end(), a) == axes_.end()) axes_.push_back(a);
  cluster_ = !axes_.empty() || rules.pair;
  const int targets = count_targets(stages.at);
  fill_cursor_.emplace(k, stages_, 1);
  take_cursor_.emplace(k, stages_, 0);
  if (rules.commit)
    release_by_commit();
  else
    release_by_lanes(targets);
  if (cluster_ && !k.cluster_exit_barrier) {
    k.cluster_exit_barrier = true;
    // No block may end while others still write to its memory or arrive on its barriers.
    k.at_end([&k] {
      k.inst(Op::barrier_cluster_arrive, {}, {});
      k.inst(Op::barrier_cluster_wait, {}, {});
    });
  }
  if (!stages.by_producer) {
    init_barriers(targets, stages.at);
    return;
  }
  if (cluster_ || has_cluster(k) || rules.commit || rules.takers == 0)
    throw BuildError("a ring that its producer starts has roles that take it by threads, and no cluster",
                     stages.at);
  init_by_producer(stages.at);
}

void RingCore::release_by_lanes(int targets) {
  const auto c = k_.cluster_size();
  const Val<u32> lane = k_.laneid();
  releasing_.emplace(lane < Val<u32>(targets));
  const Val<u32> mine = k_.smem_addr(bars_ + 8, k_.here());
  if (!cluster_) {
    empty_base_.emplace(mine);
    return;
  }
  // Lane i frees the i-th target: first the blocks along the first axis (this one included), then the
  // others of the second and third.
  const Val<u32> own = k_.cluster_ctarank();
  std::optional<Val<u32>> rank;
  int first = 0;
  for (Axis a : axes_) {
    const int extent = c[std::size_t(a)], stride = rank_stride(k_, a);
    const Val<u32> at = coordinate(k_, a);
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
  empty_base_.emplace(k_.op(Op::mapa, {Mod::shared_cluster, Mod::u32}, Mod::u32, {mine, valid}));
}

// One commit reaches every block that shares a tile of the stage, and both halves of a pair.
void RingCore::release_by_commit() {
  empty_base_.emplace(k_.smem_addr(bars_ + 8, k_.here()));
  if (!cluster_) return;
  const auto c = k_.cluster_size();
  const Val<u32> rank = k_.cluster_ctarank();
  const std::uint32_t unit = rules_.pair ? 3 : 1;
  const Val<u32> own = rules_.pair ? rank & Val<u32>(0xfffffffeu) : rank;
  std::optional<Val<u32>> mask;
  for (Axis a : axes_) {
    const int extent = c[std::size_t(a)], stride = rank_stride(k_, a);
    std::uint32_t pattern = 0;
    for (int i = 0; i < extent; ++i) pattern |= unit << (i * stride);
    const Val<u32> line(k_.op(Op::shl, {Mod::b32}, Mod::u32,
                              {Value::literal(pattern, Mod::u32), own - times(coordinate(k_, a), stride)}));
    const Val<u32> both = mask ? *mask | line : line;
    mask.emplace(both);
  }
  if (!mask) mask.emplace(k_.op(Op::shl, {Mod::b32}, Mod::u32, {Value::literal(unit, Mod::u32), own}));
  commit_mask_.emplace(k_.op(Op::cvt, {Mod::u16, Mod::u32}, Mod::u16, {*mask}));
  if (!rules_.pair) return;
  leads_.emplace((rank & Val<u32>(1)) == Val<u32>(0));
  leader_full_.emplace(
      k_.op(Op::mapa, {Mod::shared_cluster, Mod::u32}, Mod::u32, {k_.smem_addr(bars_, k_.here()), own}));
}

void RingCore::init_each(int targets, Here at) {
  for (int s = 0; s < stages_; ++s) {
    mbarrier_init(k_, {k_.smem_addr(0), bars_ + kBarrierPair * s}, Val<u32>(1), at);
    mbarrier_init(k_, {k_.smem_addr(0), bars_ + kBarrierPair * s + 8}, Val<u32>(rules_.arrivals * targets),
                  at);
  }
  fence_mbarrier_init(k_, at);
}

void RingCore::init_barriers(int targets, Here at) {
  k_.if_(
      k_.tid() == 0, [&] { init_each(targets, at); }, at);
  sync_cluster_or_block(k_, at);
}

void RingCore::init_by_producer(Here at) {
  const int threads = 32 * (rules_.takers + 1);
  const int id = k_.named_barrier(threads, at).id();
  const auto barrier = [&](Op op) {
    k_.inst(op, {}, {ptx::Operand::integer(id), ptx::Operand::integer(threads)});
  };
  const Val<u32> warp = k_.warp_index();
  k_.if_(
      warp == Val<u32>(rules_.first_filler),
      [&] {
        k_.if_(
            k_.laneid() == Val<u32>(0), [&] { init_each(1, at); }, at);
        k_.inst(Op::bar_warp_sync, {}, {ptx::Operand::integer(-1)});
        barrier(Op::bar_arrive);
      },
      at);
  k_.if_(
      warp - Val<u32>(rules_.first_taker) < Val<u32>(rules_.takers), [&] { barrier(Op::bar_sync); }, at);
}

Val<u32> RingCore::barrier(const PhaseCursor& c) const {
  return k_.smem_addr(bars_) + times(c.stage(), kBarrierPair);
}

RingCore::Stage RingCore::begin_fill(Here at, int bytes) {
  k_.at(at);
  const PhaseCursor& c = *fill_cursor_;
  const Val<u32> bar = barrier(c);
  mbarrier_wait(k_, {bar, 8}, c.parity(), /*cluster=*/false, at);  // see mbarrier_free_peer
  const auto data = [&] { return k_.smem_addr(data_) + times(c.stage(), stage_bytes_); };
  if (!rules_.pair) {
    mbarrier_arrive_expect_tx(k_, {bar, 0}, Val<u32>(bytes ? bytes : tile_bytes_), at);
    return {data(), {bar, 0}};
  }
  // The bytes of both halves are counted on the leader's barrier.
  k_.guarded(*leads_, [&] { mbarrier_arrive_expect_tx(k_, {bar, 0}, Val<u32>(2 * tile_bytes_), at); });
  return {data(), {Val<u32>(*leader_full_) + times(c.stage(), kBarrierPair), 0}};
}

Val<u32> RingCore::begin_take(Here at) {
  k_.at(at);
  const PhaseCursor& c = *take_cursor_;
  mbarrier_wait(k_, {barrier(c), 0}, c.parity(), rules_.pair, at);
  if (rules_.commit) umma_fence_after(k_, at);
  return k_.smem_addr(data_) + times(c.stage(), stage_bytes_);
}

StageToken RingCore::end_take(Here at) {
  PhaseCursor& c = *take_cursor_;
  const Val<u32> empty = Val<u32>(*empty_base_) + times(c.stage(), kBarrierPair);
  c.advance(at);
  return StageToken(empty, *releasing_, cluster_, at);
}

CommitToken RingCore::end_take_commit(Here at) {
  PhaseCursor& c = *take_cursor_;
  const Val<u32> empty = Val<u32>(*empty_base_) + times(c.stage(), kBarrierPair);
  c.advance(at);
  return CommitToken(empty, commit_mask_, rules_.pair, at);
}

void RingCore::check_peers(const TmaMap& m, Here at) const {
  if (m.peers > 1 && std::find(axes_.begin(), axes_.end(), m.axis) == axes_.end())
    throw BuildError(
        "a ring must know at construction which of its maps are multicast", at,
        "this source is multicast, the ring counts releases of this block only",
        "pass the maps to the ring: Ring<...> ring(k, stages, load, math, a, b.multicast(Axis::x))");
}

// ---------------------------------------------------------------- PhaseCursor
PhaseCursor::PhaseCursor(Kernel& k, int stages, int parity)
    : k_(k),
      stages_(stages),
      stage_(k.copy(Value::literal(0, Mod::u32)).with(Uniform::thread)),
      parity_(k.copy(Value::literal(std::uint64_t(parity), Mod::u32)).with(Uniform::thread)) {}

void PhaseCursor::advance(Here at) {
  k_.at(at);
  const Value one = Value::literal(1, Mod::u32);
  if (stages_ == 1) {
    k_.mov_op(parity_, Op::xor_, {Mod::b32}, {parity_, one});
    return;
  }
  k_.mov_op(stage_, Op::add, {Mod::u32}, {stage_, one});
  const Value wraps = k_.op(Op::setp, {Mod::eq, Mod::u32}, Mod::pred,
                            {stage_, Value::literal(std::uint64_t(stages_), Mod::u32)});
  k_.guarded(wraps, [&] {
    k_.mov(stage_, Value::literal(0, Mod::u32));
    k_.mov_op(parity_, Op::xor_, {Mod::b32}, {parity_, one});
  });
}

void PhaseCursor::skip(const Val<u32>& n, Here at) {
  k_.at(at);
  const Val<u32> sum = stage() + n;
  const Val<u32> wraps = divided(sum, stages_), next = remainder(sum, stages_);
  k_.mov(stage_, next);
  k_.mov_op(parity_, Op::xor_, {Mod::b32}, {parity_, remainder(wraps, 2)});
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
