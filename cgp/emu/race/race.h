// SPDX-License-Identifier: Apache-2.0
#pragma once
// Happens-before race detection: what the instructions tell it. Findings race.shared, race.global,
// race.async, race.proxy, race.scope; the note race.same_value.
//
// HOW TO HOOK. All functions return at once when Check::race is off (w.race is nullptr).
//   * A handler that reads or writes memory for its lanes calls access() before it stores (or after it
//   loads),
//     with the addresses it gave to resolve() and the lanes that resolve() returned.
//   * An asynchronous operation is an agent. At issue, after resolving: `Agent a = ..._agent(...)`, then
//     agent_access(...) for each contiguous piece that it reads or writes, then issued(w). Nothing is called
//     when the bytes move: findings do not depend on the policy. What completes the operation tells who may
//     rely on it: complete_on_mbarrier() (with the phase), group waits (wait_groups), wgmma waits
//     (wait_agent).
//   * A synchronisation publishes what a thread knows (release) and lets others learn it (acquire): see the
//     functions below. Rendezvous of lanes (Warp::converge, Warp::meet) are noted by the machine.
//   * agent_access with Proxy::async reports generic writes that no fence.proxy.async covers.
#include <cstdint>
#include <memory>

#include "cgp/emu/core/machine.h"

namespace cgp::emu::race {

enum class Use : std::uint8_t { read, write, atomic };
/// tensor_map: a tensor copy reads its map. read_only: ld.global.nc, which sees no write of its own launch
/// for sure.
enum class Proxy : std::uint8_t { generic, async, tensor_map, read_only };

/// Whether what lane `lane` stores equals what is at `at` (other < 0), or what lane `other` stores.
using SameFn = bool (*)(Warp& w, const Op& op, int lane, int other, const std::byte* at);

void on_access(Warp& w, const Op& op, Where where, const std::uint64_t* addr, std::uint32_t bytes, Use use,
               Mask lanes, std::byte* const* host, SameFn same);
/// An access of the lanes themselves. `host` (from resolve) and `same` let writes of the same value be told
/// apart; without them a conflicting write counts as a different value.
inline void access(Warp& w, const Op& op, Where where, const std::uint64_t* addr, std::uint32_t bytes,
                   Use use, Mask lanes, std::byte* const* host = nullptr, SameFn same = nullptr) {
  if (w.race) on_access(w, op, where, addr, bytes, use, lanes, host, same);
}
/// Held while a strong access to global memory happens, so that its value and its order agree.
class Section {
 public:
  Section(Warp& w, const Op& op) {
    if (w.race) enter(w, op);
  }
  ~Section() {
    if (mutex_) leave();
  }
  Section(const Section&) = delete;
  Section& operator=(const Section&) = delete;

 private:
  void enter(Warp& w, const Op& op);
  void leave();
  std::mutex* mutex_ = nullptr;
};

// ---------------------------------------------------------------- agents
/// The party that an asynchronous operation acts as, and when it was issued.
struct Agent {
  std::uint32_t id = 0, clock = 0;
  bool in_order = true;  ///< operations of this agent follow each other
  explicit operator bool() const { return id != 0; }
};
/// The reads and the writes of a lane's bulk groups (shared to global).
Agent bulk_read_agent(Warp& w, int lane);
Agent bulk_write_agent(Warp& w, int lane);
/// An operation that completes on an mbarrier: of its block `cta`, at `offset`.
Agent mbarrier_agent(Warp& w, Cta& cta, std::uint32_t offset);
/// Operations of a unit that executes in order, numbered by the caller (wgmma: the warpgroup's index; others
/// from 64): `cta` is the block it belongs to.
Agent unit_agent(Warp& w, std::uint32_t unit);

/// One contiguous piece. `where` and `address` as for resolve_one(); `lane` issues on behalf of its thread.
void agent_access(Warp& w, const Op& op, int lane, Agent agent, Where where, std::uint64_t address,
                  std::uint64_t bytes, Use use, Proxy proxy);
/// cp.async: each lane's copies are an agent of its own.
void copy_access(Warp& w, const Op& op, Where where, const std::uint64_t* addr, std::uint32_t bytes, Use use,
                 Mask lanes);
/// After the accesses of one instruction's agents, and after the arrivals of one instruction.
void issued(Warp& w);

/// Which of the agents of a lane a group instruction is about.
enum class Group : std::uint8_t { copy, bulk };
/// commit_group and wait_group of the lanes in w.active. keep < 0: wait_all. read_only: .read.
void commit_group(Warp& w, Group group);
void wait_group(Warp& w, Group group, std::int64_t keep, bool read_only = false);
/// Whether all lanes of both warps have learned the same from others.
bool same_knowledge(const Warp& a, const Warp& b);
/// The warp's active lanes learn that `agent` has done everything up to agent.clock.
void wait_agent(Warp& w, Agent agent);

// ---------------------------------------------------------------- synchronisation
/// Lanes met: each has what the others did before it. Called by Warp::converge and Warp::meet.
void on_rendezvous(Warp& w, Mask lanes);

/// bar / barrier: threads arrive; the generation completes; threads that waited go on.
void barrier_arrive(Warp& w, std::uint32_t id, Mask lanes, bool waits);
void barrier_complete(Cta& cta, std::uint32_t id, bool all_threads);
void barrier_leave(Warp& w, std::uint32_t id, Mask lanes);

/// barrier.cluster
void cluster_arrive(Warp& w, Mask lanes, bool relaxed);
void cluster_complete(Cluster& c);
void cluster_leave(Warp& w, Mask lanes, bool relaxed);

/// mbarrier: an arrival of `lane` in the running phase (call it before the phase may complete), the phase
/// completes, a wait that returned true.
void mbarrier_init(Warp& w, const Op& op, int lane, Cta& cta, std::uint32_t offset);
/// Any other use at issue: reports one that is not ordered behind the initialisation.
void mbarrier_use(Warp& w, const Op& op, int lane, Cta& cta, std::uint32_t offset);
void mbarrier_arrive(Warp& w, const Op& op, int lane, Cta& cta, std::uint32_t offset);
void mbarrier_complete(Warp& w, Cta& cta, std::uint32_t offset);
void mbarrier_acquire(Warp& w, const Op& op, Mask lanes, Cta& cta, std::uint32_t offset);
/// An asynchronous operation signals the running phase.
void complete_on_mbarrier(Warp& w, Agent agent, Cta& cta, std::uint32_t offset);
/// An arrival that comes later than its instruction (cp.async.mbarrier.arrive, tcgen05.commit): what the lane
/// knows and did at the instruction, and its copies or `agent`, released when the arrival happens.
using ReleasedPtr = std::shared_ptr<const struct Released>;
ReleasedPtr copies_so_far(Warp& w, int lane);
ReleasedPtr agent_so_far(Warp& w, int lane, Agent agent);
void arrive_with(Warp& w, const ReleasedPtr& released, Cta& cta, std::uint32_t offset);

/// fence, membar, fence.mbarrier_init: scope and order are those of the instruction.
void fence(Warp& w, const Op& op);
/// fence.proxy.async
void proxy_fence(Warp& w);
/// fence.proxy.tensormap::generic.acquire, by the active lanes: changes of the map at address[lane] that they
/// know of may be used.
void map_fence(Warp& w, const Op& op, const std::uint64_t* address);
/// A tensor copy of `lane` uses the map at `address` of global memory.
void map_use(Warp& w, const Op& op, int lane, std::uint64_t address, std::uint32_t bytes);

// ---------------------------------------------------------------- the machine
std::shared_ptr<LaunchState> make_launch(cgp::emu::LaunchState& launch, bool parallel);
void attach(Cluster& cluster);  ///< after its warps were made

}  // namespace cgp::emu::race
