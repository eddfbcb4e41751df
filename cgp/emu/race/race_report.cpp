// SPDX-License-Identifier: Apache-2.0
// Findings of the race detector: which class, who the other was, what is missing between the two.
#include <chrono>
#include <thread>

#include "cgp/base/text.h"
#include "cgp/emu/race/race_state.h"
#include "cgp/emu/race/race_tensor.h"

namespace cgp::emu::race {

using text::cat;

namespace {
struct Where2 {
  Dim3 block, thread;
  std::uint32_t rank = 0, warp = 0;
  std::uint32_t device = 0;
  bool same_device = false, same_cluster = false, same_block = false, same_warp = false, same_thread = false;
};

// Block and thread behind a party.
Where2 who(const Accessor& a, int lane, std::uint32_t cluster, std::uint32_t id) {
  const ClusterState& c = *a.s.cluster;
  const cgp::emu::LaunchState& launch = *c.launch->launch;
  std::uint32_t low = id & kLowMask;
  if (kind_of(id) == kSlot) low = cluster == c.index && low < c.slot_thread.size() ? c.slot_thread[low] : 0;
  if (kind_of(id) == kUnit) {  // a warpgroup, the tensor unit, a warp's loads or stores of Tensor Memory
    const std::uint32_t unit = low & 1023;
    low = (low & ~1023u) | (unit < 8               ? unit * 128
                            : unit >= kTensorLoads ? (unit - kTensorLoads) % 32 * 32
                                                   : 0);
  }
  Where2 w;
  w.rank = low >> 10;
  w.warp = low >> 5;
  const std::uint32_t t = low & 1023;
  const Dim3 b = launch.launch.block, shape = launch.launch.cluster, g = launch.cluster_grid;
  w.thread = {t % b.x, t / b.x % b.y, t / b.x / b.y};
  w.same_cluster = cluster == c.index;
  w.device = std::uint32_t(cluster / launch.clusters);
  w.same_device = c.launch->same_device(cluster, c.index);
  cluster = std::uint32_t(cluster % launch.clusters);
  w.block = {cluster % g.x * shape.x + w.rank % shape.x,
             cluster / g.x % g.y * shape.y + w.rank / shape.x % shape.y,
             cluster / g.x / g.y * shape.z + w.rank / shape.x / shape.y};
  w.same_block = w.same_cluster && w.rank == a.rank;
  w.same_warp = w.same_block && w.warp == a.s.wid;
  w.same_thread = w.same_warp && (low & 31) == std::uint32_t(lane);
  return w;
}

std::string act(Use use, bool atomic, std::uint32_t bytes) {
  return cat(atomic             ? "updates "
             : use == Use::read ? "reads "
                                : "writes ",
             bytes, bytes == 1 ? " byte" : " bytes");
}

std::string agent_name(Kind k, const ptx::Inst& i) {
  if (k == kCopy) return "cp.async";
  if (k == kBulkRead || k == kBulkWrite) return "the bulk copy";
  return k == kUnit ? cat("the asynchronous ", ptx::name(i.op)) : cat("the asynchronous ", ptx::name(i.op));
}

struct Advice {
  std::string edge, hint;
};

Advice async_advice(const Where2& w, Kind mine, Kind other, bool other_reads) {
  switch (other) {
    case kCopy:
      if (w.same_thread)
        return {
            "no cp.async.wait_group of this thread covers the copy",
            "cp.async.commit_group after the copy and cp.async.wait_group (with the number of younger groups "
            "that may stay in flight) before the access"};
      return {"the copying thread's cp.async.wait_group and a barrier after it",
              "cp.async.wait_group in every copying thread, then bar.sync (__syncthreads), then the access"};
    case kBulkRead:
      return {"no cp.async.bulk.wait_group.read of the issuing thread, with a barrier for other threads",
              "cp.async.bulk.commit_group, then cp.async.bulk.wait_group.read 0 before the buffer is written "
              "again"};
    case kBulkWrite:
      return {"no cp.async.bulk.wait_group of the issuing thread",
              "cp.async.bulk.wait_group 0 (without .read) before the destination is used"};
    case kSlot:
      return {"no wait on the copy's mbarrier for the phase that it completes",
              "mbarrier.try_wait.parity in a loop, with the parity of the running phase (0 for the first), "
              "before "
              "the access"};
    case kUnit:
      return {
          "no wait for the matrix operation before its operands are overwritten",
          "wgmma.wait_group 0 (tcgen05: the mbarrier of tcgen05.commit) before the shared operands change"};
    case kThread:
      break;
  }
  if (other_reads)
    return {"the asynchronous write may overtake the read: nothing between them",
            "let the readers arrive on an 'empty' mbarrier, or at a barrier, and wait for it before the next "
            "copy "
            "into this buffer is issued"};
  return {mine == kBulkRead || mine == kUnit
              ? "no barrier between the writing threads and the one that issues the operation"
              : "nothing between the write and the asynchronous operation",
          "write, fence.proxy.async, bar.sync, then issue the operation"};
}

// What ends an operation on Tensor Memory.
Advice tensor_advice(ptx::Op other) {
  switch (other) {
    case ptx::Op::tcgen05_ld:
    case ptx::Op::tcgen05_ld_red:
      return {
          "no tcgen05.wait::ld in the loading warp, or no barrier after it",
          "tcgen05.wait::ld, tcgen05.fence::before_thread_sync, then a barrier or an mbarrier that the other "
          "thread waits for, and tcgen05.fence::after_thread_sync there"};
    case ptx::Op::tcgen05_st:
      return {
          "no tcgen05.wait::st in the storing warp, or no barrier after it",
          "tcgen05.wait::st, tcgen05.fence::before_thread_sync, then a barrier or an mbarrier that the other "
          "thread waits for, and tcgen05.fence::after_thread_sync there"};
    default:
      return {
          "no wait on the mbarrier of a tcgen05.commit that covers the operation",
          "tcgen05.commit by the thread that issued it, and a wait on its mbarrier (with the parity of the "
          "running phase) before the access"};
  }
}

Advice advice(const Where2& w, bool shared) {
  if (w.same_warp)
    return {"no bar.warp.sync between the two lanes (lanes of one warp do not run in step since sm_70)",
            "__syncwarp() between the two accesses"};
  if (w.same_block)
    return {"no barrier between the two warps", "bar.sync (__syncthreads()) between the two accesses"};
  if (w.same_cluster && shared)
    return {"no barrier.cluster between the two blocks",
            "barrier.cluster.arrive.release and barrier.cluster.wait.acquire between the two accesses"};
  if (!w.same_device)
    return {"no release and acquire at .sys scope between the two devices",
            "publish with st.release.sys or fence.acq_rel.sys (__threadfence_system()) before the flag, and "
            "read the "
            "flag with ld.acquire.sys or such a fence behind it"};
  return {"no release and acquire at .gpu scope between the two blocks",
          "give each block its own elements, use an atomic, or publish with fence.acq_rel.gpu "
          "(__threadfence()) and "
          "an atomic flag, and fence again after the flag was read"};
}

void name_place(Finding& f, const Accessor& a, const Spot& spot) {
  const cgp::emu::LaunchState& launch = *a.s.cluster->launch->launch;
  f.address = spot.address;
  if (spot.tensor) {
    f.buffer = "tensor memory";
    f.byte_offset = std::int64_t(spot.address & 0xffff);
    return;
  }
  if (spot.shared) {
    f.buffer = shared_variable(launch, std::uint32_t(spot.address), &f.byte_offset);
    f.address |= std::uint64_t(spot.rank) << kRankShift;
    return;
  }
  if (const Allocation* x = a.s.warp->worker->heap->at_or_below(spot.address)) {
    f.buffer = x->name;
    f.byte_offset = std::int64_t(spot.address - x->base);
  }
}

std::array<std::uint32_t, 7> place(const Finding& f) {
  return {f.device.value_or(0), f.block.z, f.block.y, f.block.x, f.thread.z, f.thread.y, f.thread.x};
}

// Counts a finding that is known already, unless this one comes earlier in the grid. A pair of instructions
// is one finding, whichever of the two came first.
bool counted(cgp::emu::LaunchState& launch, const Accessor& a, int lane, std::string_view cls,
             std::uint32_t other) {
  const std::string key = cat(cls, "#", other);
  std::lock_guard lock(launch.mutex);
  if (other != a.op.inst) {
    const auto reverse = launch.finding_of.find({other, cat(cls, "#", a.op.inst)});
    if (reverse != launch.finding_of.end()) {
      ++launch.findings[reverse->second].count;
      return true;
    }
  }
  const auto it = launch.finding_of.find({a.op.inst, key});
  if (it == launch.finding_of.end()) return launch.findings.size() >= launch.options.max_findings;
  Finding& f = launch.findings[it->second];
  Finding mine;
  mine.device = launch.device_number(a.s.warp->cta->cluster->device);
  mine.block = a.s.warp->cta->id;
  mine.thread = a.s.warp->thread(lane);
  if (place(mine) < place(f)) return false;
  ++f.count;
  return true;
}

// Whether the access stamped `x` is of this very instruction: two lanes at one address.
bool same_instruction(const Accessor& a, std::uint32_t cluster, Stamp x) {
  return cluster == a.s.cluster->index && !a.agent && id_of(x) >> 5 == a.s.wid && inst_of(x) == a.inst &&
         clock_of(x) == a.clock && (a.lanes >> (id_of(x) & 31) & 1);
}

bool same_value(const Accessor& a, int lane, std::uint32_t cluster, Stamp x) {
  if (!a.same || !a.host || a.use != Use::write) return false;
  const int other = int(id_of(x) & 31);
  if (same_instruction(a, cluster, x) && a.addr[other] == a.addr[lane])
    return a.same(*a.s.warp, a.op, lane, other, a.host[lane]);
  return a.same(*a.s.warp, a.op, lane, -1, a.host[lane]);
}

// The same, when the other block may run on another host thread: its stamp is there a moment before its
// value.
bool same_value_soon(const Accessor& a, int lane, std::uint32_t cluster, Stamp x, const Spot& spot) {
  if (same_value(a, lane, cluster, x)) return true;
  const LaunchState& l = *a.s.cluster->launch;
  if (spot.shared || !l.parallel || cluster == a.s.cluster->index || !a.same || !a.host ||
      a.use != Use::write)
    return false;
  {  // a pair that is known to store different values needs no patience
    std::lock_guard lock(l.launch->mutex);
    const auto& known = l.launch->finding_of;
    if (l.launch->findings.size() >= l.launch->options.max_findings ||
        known.count({a.op.inst, cat("race.global#", inst_of(x))}) ||
        known.count({inst_of(x), cat("race.global#", a.op.inst)}))
      return false;
  }
  for (int i = 0; i < 100; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    if (same_value(a, lane, cluster, x)) return true;
  }
  return false;
}

bool includes(const Trait& x, const Trait& y, const Where2& w) {
  const Level narrow = std::min(x.scope, y.scope);
  return narrow == Level::system || (narrow == Level::gpu       ? w.same_device
                                     : narrow == Level::cluster ? w.same_cluster
                                                                : w.same_block);
}

void emit(const Accessor& a, int lane, std::uint32_t cluster, Stamp other, Use other_use, const Spot& spot,
          std::string_view cls, const Advice& advice, std::string_view how) {
  cgp::emu::LaunchState& launch = *a.s.cluster->launch->launch;
  const std::uint32_t inst =
      std::min<std::uint32_t>(inst_of(other), std::uint32_t(launch.program->insts.size()) - 1);
  const std::string key = cat("#", inst);
  if (counted(launch, a, lane, cls, inst)) return;
  const Trait& t = a.s.cluster->launch->traits[inst];
  const Where2 w = who(a, lane, cluster, id_of(other));
  Finding f = make_finding(*a.s.warp, cls, a.op, lane_bit(lane), {});
  name_place(f, a, spot);
  f.access = act(a.use, a.trait.rmw, spot.bytes);
  f.other = make_other(launch, inst, w.device, w.block, w.thread);
  f.other->access = act(other_use, t.rmw, spot.bytes);
  const Kind mine = a.agent ? kind_of(a.id(lane)) : kThread, theirs = kind_of(id_of(other));
  const std::string me =
      mine == kThread ? std::string("this thread") : agent_name(mine, launch.program->inst(a.op.inst));
  const std::string they =
      theirs == kThread ? std::string("another thread") : agent_name(theirs, launch.program->inst(inst));
  const std::string at =
      spot.tensor ? cat("lanes from ", spot.address >> 16, ", column ", f.byte_offset, " of Tensor Memory")
                  : cat("bytes ", f.byte_offset, " to ", f.byte_offset + std::int64_t(spot.bytes) - 1,
                        " of '", f.buffer, "'");
  f.message = cat(me, " ", act(a.use, a.trait.rmw, spot.bytes), " (", at, ") that ", they, " (",
                  line_text(*launch.program, inst), ") ",
                  other_use == Use::read ? "reads"
                  : t.rmw                ? "updates"
                                         : "writes",
                  how);
  f.missing_edge = advice.edge;
  f.hint = advice.hint;
  add_finding(launch, a.op, std::move(f), key);
}
// Whether this warp has read a later write of the thread behind `other` from elsewhere: a flag that was meant to
// order `other`, and does not without fences. Remembers `other` for the accesses to come.
bool behind_flag(const Accessor& a, std::uint32_t cluster, Stamp other, const Spot& spot) {
  LaunchState& l = *a.s.cluster->launch;
  const std::lock_guard lock(l.observed_mutex);
  LaunchState::Seen& seen = l.seen[std::uint64_t(a.s.cluster->index) << kIdBits | a.s.wid]
                                  [std::uint64_t(cluster) << kIdBits | id_of(other)];
  const auto order = [](Stamp x) { return std::pair(clock_of(x), inst_of(x)); };
  if (seen.write && order(seen.write) > order(other))
    return seen.address != spot.address && seen.by != a.op.inst;
  seen = {other, spot.address, a.op.inst};
  return false;
}
}  // namespace

void conflict(const Accessor& a, int lane, std::uint32_t cluster, Stamp other, Use other_use,
              const Spot& spot) {
  const LaunchState& l = *a.s.cluster->launch;
  const Trait& t = l.traits[std::min<std::size_t>(inst_of(other), l.traits.size() - 1)];
  const Where2 w = who(a, lane, cluster, id_of(other));
  const bool strong = a.trait.strong && t.strong;
  if (strong && includes(a.trait, t, w)) {
    if (l.cached && !spot.shared && !a.agent && other_use == Use::write && a.use != Use::write &&
        behind_flag(a, cluster, other, spot) && (a.trait.cached || t.cached))
      emit(a, lane, cluster, other, other_use, spot, "race.flag",
           {"no fence or release behind the write, or no fence or acquire behind the read of the flag",
            "st.release.gpu (or __threadfence() and the store) for the flag, ld.acquire.gpu (or the load and "
            "__threadfence()) to read it"},
           ", ordered only by a flag that was read before it");
    return;
  }
  if (strong)
    return emit(a, lane, cluster, other, other_use, spot, "race.scope",
                {"both are atomic, but the scope of one does not include the other's thread",
                 w.same_cluster  ? "use .cluster scope or wider"
                 : w.same_device ? "use .gpu scope (no _block suffix) on both sides"
                                 : "use .sys scope (_system suffix) on both sides"},
                " at a scope that does not include both");
  if (t.strong && !a.agent && !spot.shared && !spot.tensor && observed(a, lane, cluster, other, spot.address))
    return;
  if (known(a.s.view[std::size_t(lane)]->wide.known, cluster, id_of(other)) >= clock_of(other))
    return emit(
        a, lane, cluster, other, other_use, spot, "race.scope",
        {"they are synchronised, at a scope that does not include both threads",
         w.same_cluster ? "use .cluster scope or wider for the fence and the flag"
         : w.same_device
             ? "use .gpu scope for the fence and the flag (__threadfence(), not __threadfence_block())"
             : "use .sys scope for the fence and the flag (__threadfence_system(), not __threadfence())"},
        "; they are synchronised at too narrow a scope");
  const Kind mine = a.agent ? kind_of(a.id(lane)) : kThread, theirs = kind_of(id_of(other));
  if (spot.tensor)
    return emit(a, lane, cluster, other, other_use, spot, "race.async",
                tensor_advice(l.launch->program->inst(inst_of(other)).op), ", and nothing orders the two");
  if (mine != kThread || theirs != kThread)
    return emit(a, lane, cluster, other, other_use, spot, "race.async",
                async_advice(w, mine, theirs, other_use == Use::read), ", and nothing orders the two");
  if (other_use == Use::write && same_value_soon(a, lane, cluster, other, spot)) {
    if (same_instruction(a, cluster, other)) return;  // one instruction, one value: nothing can come of it
    return emit(a, lane, cluster, other, other_use, spot, "race.same_value", advice(w, spot.shared),
                "; both store the same value");
  }
  emit(a, lane, cluster, other, other_use, spot, spot.shared ? "race.shared" : "race.global",
       advice(w, spot.shared), ", and nothing orders the two");
}

void check_firm(const Accessor& a, int lane, std::uint32_t cluster, Stamp other, Use other_use,
                const Spot& spot) {
  const LaunchState& l = *a.s.cluster->launch;
  const Trait& t = l.traits[std::min<std::size_t>(inst_of(other), l.traits.size() - 1)];
  if (known(a.s.view[std::size_t(lane)]->firm->known, cluster, id_of(other)) >= clock_of(other)) return;
  if (a.trait.strong && t.strong && includes(a.trait, t, who(a, lane, cluster, id_of(other)))) return;
  if (t.strong && observed(a, lane, cluster, other, spot.address)) return;
  emit(
      a, lane, cluster, other, other_use, spot, "race.flag",
      {"a thread of this block has read a flag with a relaxed load or atomic, and only a barrier follows it: "
       "no acquire, no fence",
       "ld.acquire.gpu for the flag, or fence.acq_rel.gpu (__threadfence()) between the loop that polls it "
       "and "
       "the barrier"},
      ", ordered only by a relaxed read of a flag and a barrier behind it");
}

void missing_proxy_fence(const Accessor& a, int lane, std::uint32_t cluster, Stamp other, const Spot& spot) {
  if (a.proxy == Proxy::tensor_map)
    return emit(a, lane, cluster, other, Use::write, spot, "race.proxy",
                {"no fence.proxy.tensormap::generic.acquire on this map after its change",
                 "fence.proxy.tensormap::generic.acquire.gpu [map], 128 in the thread that issues the copy, "
                 "behind what orders the change before it"},
                " through the generic proxy: tensor copies need not see it");
  if (a.proxy == Proxy::read_only)
    return emit(a, lane, cluster, other, Use::write, spot, "race.proxy",
                {"no fence or barrier makes a write visible to the non-coherent cache inside one launch",
                 "ld.global without .nc (no __ldg, no const __restrict__ on what the kernel writes), or the "
                 "reads in a launch of their own"},
                " in the same launch: ld.global.nc needs memory that nothing writes while the kernel runs");
  emit(a, lane, cluster, other, Use::write, spot, "race.proxy",
       {"no fence.proxy.async after the store and before the barrier that orders the two",
        "fence.proxy.async in the storing threads, then the barrier, then the asynchronous operation"},
       " through the generic proxy: the asynchronous proxy need not see it");
}

void missing_thread_fence(const Accessor& a, int lane, std::uint32_t cluster, Stamp other, Use other_use,
                          const Spot& spot, bool after) {
  if (after)
    return emit(a, lane, cluster, other, other_use, spot, "race.tensor_fence",
                {"no tcgen05.fence::after_thread_sync after the wait that orders the two",
                 "tcgen05.fence::after_thread_sync behind the wait or the barrier, before the operation"},
                "; the threads are ordered, but not their operations on Tensor Memory");
  emit(a, lane, cluster, other, other_use, spot, "race.tensor_fence",
       {"no tcgen05.fence::before_thread_sync between that operation's tcgen05.wait and the arrival or "
        "barrier "
        "that orders the two",
        "tcgen05.wait, tcgen05.fence::before_thread_sync, then the arrival or the barrier"},
       "; the threads are ordered, but not their operations on Tensor Memory");
}

}  // namespace cgp::emu::race
