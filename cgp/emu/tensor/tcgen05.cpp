// SPDX-License-Identifier: Apache-2.0
#include "cgp/emu/tensor/tcgen05.h"

#include "cgp/base/text.h"
#include "cgp/emu/async/bulk_place.h"
#include "cgp/emu/decode/tensor_families.h"
#include "cgp/emu/race/race_tensor.h"
#include "cgp/ptx/target.h"

namespace cgp::emu {

using ptx::Inst;
using ptx::Mod;
using text::cat;

namespace {
constexpr std::uint32_t kPipelineSlot = std::uint32_t(ptx::Family::tcgen05);

std::uint64_t thread_key(const Warp& w, int lane) {
  return std::uint64_t(w.cta->rank) << 32 | std::uint64_t(w.index) << 5 | std::uint64_t(lane);
}

struct Pipelines {
  std::vector<TensorPipeline> of;  // by rank
};

struct PipelineOp : AsyncOp {
  TensorPipeline* pipeline = nullptr;
  std::uint64_t number = 0;
  void complete() override { pipeline->complete_until(number + 1); }
};
}  // namespace

void TensorPipeline::submit(std::unique_ptr<TensorStep> step, race::Agent agent) {
  Warp& w = *step->by.warp;
  auto x = std::make_unique<PipelineOp>();
  x->pipeline = this;
  x->number = first_ + queue_.size();
  last_[thread_key(w, step->by.lane)] = {x->number + 1, agent};
  race::issued(w);
  queue_.push_back(std::move(step));
  w.cta->cluster->async.submit(std::move(x));
}

TensorPipeline::Issued TensorPipeline::issued_by(const Warp& warp, int lane) const {
  const auto it = last_.find(thread_key(warp, lane));
  return it == last_.end() ? Issued{} : it->second;
}

void TensorPipeline::complete_until(std::uint64_t number) {
  while (first_ < number && !queue_.empty()) {
    const std::unique_ptr<TensorStep> step = std::move(queue_.front());
    queue_.pop_front();
    ++first_;
    step->run();
    note_change(*step->by.warp);
  }
}

void need_tensor_target(Decoder& d) {
  const auto t = ptx::parse_target(d.module().target);
  if (t && (ptx::satisfies(*t, {100, 'f'}) || ptx::satisfies(*t, {110, 'f'}))) return;
  d.unsupported(
      cat(".target ", d.module().target, " has no Tensor Memory; it needs sm_100a, sm_100f or sm_103a"));
}

int cta_group_of(const Inst& i) { return i.has(Mod::cta_group_2) ? 2 : 1; }

CtaPair cta_pair(Warp& w, const Op& op, int group) {
  CtaPair p;
  p.cta[0] = w.cta;
  if (group == 1) return p;
  auto& all = w.cta->cluster->ctas;
  const std::size_t leader = w.cta->rank & ~1u;
  if (leader + 1 >= all.size())
    w.fail(Check::bounds, "tcgen05.pair", op, w.active,
           cat(".cta_group::2 needs a pair of CTAs; CTA rank ", w.cta->rank, " of a cluster of ", all.size(),
               " has no peer"),
           "launch with a cluster whose size is a multiple of 2");
  p.cta[0] = all[leader].get();
  p.cta[1] = all[leader + 1].get();
  for (Cta* c : p.cta)
    if (c->done)
      w.fail(Check::lifetime, "lifetime.dsmem", op, w.active,
             cat("the peer CTA, rank ", c->rank, ", has exited"),
             "end with a cluster barrier so that both CTAs of a pair live until the last paired operation");
  return p;
}

TensorPipeline& tensor_pipeline(Cta& cta, int group) {
  auto& all = state_of<Pipelines>(*cta.cluster, kPipelineSlot).of;
  if (all.empty()) all = std::vector<TensorPipeline>(cta.cluster->ctas.size());
  return all[group == 2 ? cta.rank & ~1u : cta.rank];
}

std::uint32_t uniform_address(Warp& w, const Op& op, const Address& a, std::string_view what) {
  std::uint64_t all[kLanes];
  w.addresses(a, all);
  const std::uint64_t first = all[std::countr_zero(w.active)];
  Mask other = 0;
  for_lanes(w.active, [&](int l) { other |= all[l] != first ? lane_bit(l) : 0; });
  if (other)
    w.report(Check::barrier, "barrier.divergence", op, other,
             cat("the address operand of ", what, " differs between the lanes of warp ", w.index),
             "all threads of the warp must give the same address");
  return std::uint32_t(first);
}

// ---------------------------------------------------------------- operands in shared memory
const std::byte* SharedOperand::piece(std::uint32_t offset) {
  static const std::byte zeros[16] = {};
  if (offset + 16 > cta_.shared_bytes) {
    if (!out_)
      report(Check::bounds, "oob.shared", offset, cat("the block has ", cta_.shared_bytes, " bytes"),
             "check the descriptor's start address, leading and stride byte offsets");
    out_ = true;
    return zeros;
  }
  if (!cta_.shared_init.empty() && (cta_.shared_init[offset / 64] >> (offset % 64) & 0xffff) != 0xffff) {
    if (!unwritten_)
      report(Check::uninit, "uninit.shared", offset, "it was never written",
             "wait for the copy that fills the stage, and check the descriptor's layout");
    unwritten_ = true;
  }
  return cta_.shared.get() + offset;
}

void SharedOperand::report(Check check, std::string_view cls, std::uint32_t offset, std::string problem,
                           std::string hint) {
  by_.warp->report(
      check, cls, *by_.op, lane_bit(by_.lane),
      cat(what_, " reads shared memory at ", text::hex(offset),
          cta_.rank == by_.warp->cta->rank ? "" : cat(" of CTA rank ", cta_.rank), ": ", problem),
      std::move(hint), offset, "shared memory", offset);
}

OperandPieces::OperandPieces(const Issuer& by, race::Agent agent, Cta& cta)
    : by_(by), agent_(agent), cta_(cta), pieces_(by.warp->race ? cta.shared_bytes / 16 : 0) {}

OperandPieces::~OperandPieces() {
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (!pieces_[i]) continue;
    std::size_t end = i + 1;
    while (end < pieces_.size() && pieces_[end]) ++end;
    race::agent_access(*by_.warp, *by_.op, by_.lane, agent_, Where::shared_cluster,
                       cta_.shared_base() | (i * 16), (end - i) * 16, race::Use::read, race::Proxy::async);
    i = end;
  }
}

// ---------------------------------------------------------------- commit
namespace {
struct CommitPlan {
  int group = 1;
  Address barrier;
  Where where = Where::generic;
  Loc ranks = kNoLoc;
};

struct Commit {
  Issuer by;
  std::uint64_t number = 0;  // of all commits of the cluster
  TensorPipeline* pipeline = nullptr;
  std::uint64_t needed = 0;
  std::vector<SharedPlace> barriers;
  race::ReleasedPtr released;
  void arrive() {
    pipeline->complete_until(needed);
    for (const SharedPlace& p : barriers) arrive_for(by, p, released);
    note_change(*by.warp);
  }
};

// Commits of one thread arrive in their order: each covers what the one before it covers.
struct CommitOrder {
  std::unordered_map<std::uint64_t, std::deque<Commit>> of;  // not yet arrived, by thread
  std::uint64_t issued = 0;
};
struct CommitOp : AsyncOp {
  std::deque<Commit>* thread = nullptr;
  std::uint64_t number = 0;
  void complete() override {
    while (!thread->empty() && thread->front().number <= number) {
      Commit c = std::move(thread->front());
      thread->pop_front();
      c.arrive();
    }
  }
};

void exec_commit(Warp& w, const Op& op) {
  const auto& p = op.data_as<CommitPlan>();
  std::uint64_t address[kLanes];
  w.addresses(p.barrier, address);
  cta_pair(w, op, p.group);
  TensorPipeline& pipeline = tensor_pipeline(*w.cta, p.group);
  for_lanes(w.active, [&](int lane) {
    const Mask ranks = multicast_ranks(w, op, p.ranks, lane);
    // The unit takes 32 bits of shared address: one that was not made generic arrives all the same (Triton's
    // kernels).
    const Where where =
        p.where == Where::generic && address[lane] >> 32 == 0 ? Where::shared_cluster : p.where;
    if (!find_mbarrier(w, op, where, address[lane], lane, false)) return;
    CommitOrder& order = state_of<CommitOrder>(*w.cta->cluster, kPipelineSlot + 128);
    auto x = std::make_unique<CommitOp>();
    x->thread = &order.of[thread_key(w, lane)];
    x->number = ++order.issued;
    Commit& c = x->thread->emplace_back();
    c.by = {&w, &op, lane};
    c.number = x->number;
    c.pipeline = &pipeline;
    const TensorPipeline::Issued mine = pipeline.issued_by(w, lane);
    c.needed = mine.number;
    c.barriers = destinations(w, op, where, address[lane], ranks, lane);
    c.released = race::agent_so_far(w, lane, mine.agent);
    w.cta->cluster->async.submit(std::move(x));
  });
  race::issued(w);
}
void decode_commit(Decoder& d, const Inst& i, Op& op) {
  need_tensor_target(d);
  CommitPlan p;
  p.group = cta_group_of(i);
  p.barrier = d.address(d.operand(i, 0));
  p.where = d.where(i);
  if (i.has(Mod::multicast_cluster)) p.ranks = d.source(d.operand(i, 1), Mod::u16);
  op.data = d.keep(std::move(p));
  op.fn = exec_commit;
}

// The machine issues in program order: only the race detector has something to note.
void exec_fence(Warp& w, const Op& op) { race::tensor_fence(w, op.kind); }
void decode_fence(Decoder& d, const Inst& i, Op& op) {
  need_tensor_target(d);
  op.kind = i.has(Mod::after_thread_sync);
  op.fn = exec_fence;
}
}  // namespace

void add_tcgen05_order(Table& t) {
  t.set(ptx::Op::tcgen05_commit, decode_commit);
  t.set(ptx::Op::tcgen05_fence, decode_fence);
}

}  // namespace cgp::emu
