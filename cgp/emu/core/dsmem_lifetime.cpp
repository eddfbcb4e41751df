// SPDX-License-Identifier: Apache-2.0
#include "cgp/emu/core/dsmem_lifetime.h"

#include "cgp/base/text.h"
#include "cgp/emu/core/machine_impl.h"

namespace cgp::emu {

using text::cat;

namespace {
constexpr std::uint32_t kSlot = std::uint32_t(ptx::Family::barrier) + 192;

struct RemoteAccess {
  Warp* warp = nullptr;
  const Op* op = nullptr;
  int lane = 0;
  std::uint32_t offset = 0;
  std::uint64_t released = 0;  // when its block first released after it; 0: not yet
};
struct Remote {                  // of one block
  std::uint32_t unreleased = 0;  // ranks of blocks whose memory it used since it released
  std::uint64_t acquired = 0;
  std::vector<RemoteAccess> by;  // last access to this block's memory by the blocks of each rank
};
struct Events {  // of a cluster
  std::uint64_t now = 0;
};
}  // namespace

void note_remote_access(Warp& w, const Op& op, Cta& owner, int lane, std::uint32_t offset) {
  Remote& r = state_of<Remote>(owner, kSlot);
  if (r.by.empty()) r.by.resize(w.cta->cluster->ctas.size());
  r.by[w.cta->rank] = {&w, &op, lane, offset, 0};
  state_of<Remote>(*w.cta, kSlot).unreleased |= 1u << owner.rank;
}

void note_release(Warp& w) {
  if (w.cta->cluster->ctas.size() < 2) return;
  Remote& mine = state_of<Remote>(*w.cta, kSlot);
  if (!mine.unreleased) return;
  const std::uint64_t now = ++state_of<Events>(*w.cta->cluster, kSlot).now;
  for (auto& owner : w.cta->cluster->ctas)
    if (mine.unreleased >> owner->rank & 1) state_of<Remote>(*owner, kSlot).by[w.cta->rank].released = now;
  mine.unreleased = 0;
}

void note_acquire(Warp& w) {
  if (w.cta->cluster->ctas.size() < 2) return;
  state_of<Remote>(*w.cta, kSlot).acquired = ++state_of<Events>(*w.cta->cluster, kSlot).now;
}

void check_remote_accesses(Cta& cta) {
  if (cta.cluster->ctas.size() < 2 || cta.state.find(kSlot) == cta.state.end()) return;
  const Remote& mine = state_of<Remote>(cta, kSlot);
  for (const RemoteAccess& a : mine.by) {
    if (!a.warp || (a.released && mine.acquired > a.released)) continue;
    a.warp->report(
        Check::lifetime, "lifetime.dsmem", *a.op, lane_bit(a.lane),
        cat("uses ", place_of(*a.warp, Where::shared_cluster, cta.shared_base() | a.offset),
            " of a block that exits without waiting for it: ",
            a.released ? "that block performs no acquire after this block's release"
                       : "this block performs no release after the use",
            ", so the memory may be gone"),
        "end the kernel with barrier.cluster.arrive and wait, so that no block leaves while others use "
        "its memory",
        cta.shared_base() | a.offset, "shared memory", a.offset);
  }
}

}  // namespace cgp::emu
