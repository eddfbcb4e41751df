// SPDX-License-Identifier: Apache-2.0
// Special registers, addresses of per-frame variables, and the end of a body.
#include <algorithm>

#include "cgp/emu/decode/decode_impl.h"

namespace cgp::emu {

// One nanosecond per warp instruction: a fiction that only has to grow.
std::uint64_t clock_of(Warp& w) {
  if (w.suspect) {
    w.spin.read_clock = true;
    w.worker->launch->spin.clock_read = true;
    return w.spin.time;
  }
  return w.steps + w.slept + w.worker->launch->skipped.load(std::memory_order_relaxed);
}

namespace {
// The same timer for all blocks: it never goes back from one reader to the next.
std::uint64_t timer_of(Warp& w) {
  std::atomic<std::uint64_t>& newest = w.worker->launch->timer;
  const std::uint64_t now = clock_of(w);
  if (w.suspect) return now;
  std::uint64_t seen = newest.load(std::memory_order_relaxed);
  while (seen < now && !newest.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
  }
  return std::max(seen, now);
}

// What a driver leaves in %envreg1 (high half) and %envreg2: where cooperative groups keep the state of the
// grid's barrier, {u32 size, u32 state}. Without a cooperative launch there is none: this_grid().sync() then
// traps.
std::uint64_t workspace_of(LaunchState& launch, std::uint32_t device) {
  if (!launch.launch.cooperative) return 0;
  DevicePart& d = launch.devices[device];
  std::call_once(d.workspace_once, [&] {
    Heap& heap = *d.machine->heap;
    d.workspace = heap.alloc(16, "grid workspace", 16);
    heap.find(d.workspace, 16)->mark(0, 16);
  });
  return d.workspace;
}

std::uint64_t uniform_value(Warp& w, ptx::Sreg s) {
  LaunchState& launch = *w.worker->launch;
  const Launch& l = launch.launch;
  const Cta& cta = *w.cta;
  const Cluster& cluster = *cta.cluster;
  const Dim3 c = cluster.shape;
  const DeviceProperties& device = *launch.properties;
  switch (s) {
    case ptx::Sreg::ntid_x:
      return l.block.x;
    case ptx::Sreg::ntid_y:
      return l.block.y;
    case ptx::Sreg::ntid_z:
      return l.block.z;
    case ptx::Sreg::ctaid_x:
      return cta.id.x;
    case ptx::Sreg::ctaid_y:
      return cta.id.y;
    case ptx::Sreg::ctaid_z:
      return cta.id.z;
    case ptx::Sreg::nctaid_x:
      return l.grid.x;
    case ptx::Sreg::nctaid_y:
      return l.grid.y;
    case ptx::Sreg::nctaid_z:
      return l.grid.z;
    case ptx::Sreg::clusterid_x:
      return cluster.id.x;
    case ptx::Sreg::clusterid_y:
      return cluster.id.y;
    case ptx::Sreg::clusterid_z:
      return cluster.id.z;
    case ptx::Sreg::nclusterid_x:
      return launch.cluster_grid.x;
    case ptx::Sreg::nclusterid_y:
      return launch.cluster_grid.y;
    case ptx::Sreg::nclusterid_z:
      return launch.cluster_grid.z;
    case ptx::Sreg::cluster_ctaid_x:
      return cta.rank % c.x;
    case ptx::Sreg::cluster_ctaid_y:
      return cta.rank / c.x % c.y;
    case ptx::Sreg::cluster_ctaid_z:
      return cta.rank / c.x / c.y;
    case ptx::Sreg::cluster_nctaid_x:
      return c.x;
    case ptx::Sreg::cluster_nctaid_y:
      return c.y;
    case ptx::Sreg::cluster_nctaid_z:
      return c.z;
    case ptx::Sreg::cluster_ctarank:
      return cta.rank;
    case ptx::Sreg::cluster_nctarank:
      return c.count();
    case ptx::Sreg::is_explicit_cluster:
      return c.count() > 1;
    case ptx::Sreg::warpid:
      return w.index;
    case ptx::Sreg::nwarpid:
      return std::uint64_t(device.max_warps_per_sm);
    case ptx::Sreg::smid:
      return cta.linear % std::uint64_t(device.sm_count);
    case ptx::Sreg::nsmid:
      return std::uint64_t(device.sm_count);
    case ptx::Sreg::gridid:
      return launch.devices[cluster.device].machine->launches;
    case ptx::Sreg::clock:
      return std::uint32_t(clock_of(w));
    case ptx::Sreg::globaltimer_lo:
      return std::uint32_t(timer_of(w));
    case ptx::Sreg::clock_hi:
      return clock_of(w) >> 32;
    case ptx::Sreg::globaltimer_hi:
      return timer_of(w) >> 32;
    case ptx::Sreg::clock64:
      return clock_of(w);
    case ptx::Sreg::globaltimer:
      return timer_of(w);
    case ptx::Sreg::dynamic_smem_size:
      return l.dynamic_smem;
    case ptx::Sreg::total_smem_size:
    case ptx::Sreg::aggr_smem_size:
      return launch.shared_bytes - launch.reserved_bytes;
    case ptx::Sreg::reserved_smem_offset_begin:
    case ptx::Sreg::reserved_smem_offset_0:
      return launch.reserved_offset;
    case ptx::Sreg::reserved_smem_offset_1:
      return launch.reserved_offset + launch.reserved_bytes / 2;
    case ptx::Sreg::reserved_smem_offset_end:
      return launch.reserved_offset + launch.reserved_bytes;
    case ptx::Sreg::reserved_smem_offset_cap:
      return launch.reserved_bytes;
    case ptx::Sreg::envreg1:
      return workspace_of(launch, cluster.device) >> 32;
    case ptx::Sreg::envreg2:
      return std::uint32_t(workspace_of(launch, cluster.device));
    default:
      return 0;  // pm, other envreg, current_graph_exec: a driver leaves them 0
  }
}

std::uint32_t lane_value(const Warp& w, ptx::Sreg s, int l) {
  const std::uint32_t bit = lane_bit(l);
  switch (s) {
    case ptx::Sreg::tid_x:
      return w.tid.x[std::size_t(l)];
    case ptx::Sreg::tid_y:
      return w.tid.y[std::size_t(l)];
    case ptx::Sreg::tid_z:
      return w.tid.z[std::size_t(l)];
    case ptx::Sreg::laneid:
      return std::uint32_t(l);
    case ptx::Sreg::lanemask_eq:
      return bit;
    case ptx::Sreg::lanemask_lt:
      return bit - 1;
    case ptx::Sreg::lanemask_le:
      return bit | (bit - 1);
    case ptx::Sreg::lanemask_gt:
      return ~(bit | (bit - 1));
    default:
      return ~(bit - 1);  // lanemask_ge
  }
}

bool per_lane(ptx::Sreg s) {
  switch (s) {
    case ptx::Sreg::tid_x:
    case ptx::Sreg::tid_y:
    case ptx::Sreg::tid_z:
    case ptx::Sreg::laneid:
    case ptx::Sreg::lanemask_eq:
    case ptx::Sreg::lanemask_lt:
    case ptx::Sreg::lanemask_le:
    case ptx::Sreg::lanemask_gt:
    case ptx::Sreg::lanemask_ge:
      return true;
    default:
      return false;
  }
}
}  // namespace

void exec_read_sreg(Warp& w, const Op& op) {
  const auto s = ptx::Sreg(op.kind);
  const bool lanes = per_lane(s);
  if (s == ptx::Sreg::clock || s == ptx::Sreg::clock64 || s == ptx::Sreg::globaltimer ||
      s == ptx::Sreg::globaltimer_lo)
    ++w.steps;  // two reads in a row must differ
  const std::uint64_t v = lanes ? 0 : uniform_value(w, s);
  if (op.bytes == 1) return w.set_pred(op.d, v ? ~Mask(0) : 0, w.active);
  for_lanes(w.active, [&](int l) {
    const std::uint64_t x = lanes ? lane_value(w, s, l) : v;
    if (op.bytes == 8)
      w.row<std::uint64_t>(op.d)[l] = x;
    else
      w.row<std::uint32_t>(op.d)[l] = std::uint32_t(x);
  });
}

void exec_frame_local(Warp& w, const Op& op) {
  const std::uint64_t x = w.frame->local_base + std::uint64_t(op.imm);
  for_lanes(w.active, [&](int l) {
    if (op.bytes == 8)
      w.row<std::uint64_t>(op.d)[l] = x;
    else
      w.row<std::uint32_t>(op.d)[l] = std::uint32_t(x);
  });
}

}  // namespace cgp::emu
