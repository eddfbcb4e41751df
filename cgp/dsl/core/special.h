// SPDX-License-Identifier: Apache-2.0
#pragma once
// The special registers as functions of Kernel, each with the scope over which it is uniform.
#include "cgp/dsl/core/val.h"

namespace cgp::dsl {

#define CGP_SPECIAL(function, sreg, uniform_over) \
  inline Val<u32> Kernel::function() { return Val<u32>(special(ptx::Sreg::sreg, Uniform::uniform_over)); }
CGP_SPECIAL(tid, tid_x, thread)
CGP_SPECIAL(tid_x, tid_x, thread)
CGP_SPECIAL(tid_y, tid_y, thread)
CGP_SPECIAL(tid_z, tid_z, thread)
CGP_SPECIAL(ntid, ntid_x, grid)
CGP_SPECIAL(ntid_x, ntid_x, grid)
CGP_SPECIAL(ntid_y, ntid_y, grid)
CGP_SPECIAL(ntid_z, ntid_z, grid)
CGP_SPECIAL(ctaid, ctaid_x, cta)
CGP_SPECIAL(ctaid_x, ctaid_x, cta)
CGP_SPECIAL(ctaid_y, ctaid_y, cta)
CGP_SPECIAL(ctaid_z, ctaid_z, cta)
CGP_SPECIAL(nctaid, nctaid_x, grid)
CGP_SPECIAL(nctaid_x, nctaid_x, grid)
CGP_SPECIAL(nctaid_y, nctaid_y, grid)
CGP_SPECIAL(nctaid_z, nctaid_z, grid)
CGP_SPECIAL(laneid, laneid, thread)
CGP_SPECIAL(warpid, warpid, thread)  // may change while a thread runs: warp_index() is what kernels want
CGP_SPECIAL(nwarpid, nwarpid, grid)
CGP_SPECIAL(smid, smid, thread)
CGP_SPECIAL(nsmid, nsmid, grid)
CGP_SPECIAL(lanemask_eq, lanemask_eq, thread)
CGP_SPECIAL(lanemask_lt, lanemask_lt, thread)
CGP_SPECIAL(lanemask_le, lanemask_le, thread)
CGP_SPECIAL(lanemask_gt, lanemask_gt, thread)
CGP_SPECIAL(lanemask_ge, lanemask_ge, thread)
CGP_SPECIAL(clusterid_x, clusterid_x, cluster)
CGP_SPECIAL(clusterid_y, clusterid_y, cluster)
CGP_SPECIAL(clusterid_z, clusterid_z, cluster)
CGP_SPECIAL(nclusterid_x, nclusterid_x, grid)
CGP_SPECIAL(nclusterid_y, nclusterid_y, grid)
CGP_SPECIAL(nclusterid_z, nclusterid_z, grid)
CGP_SPECIAL(cluster_ctaid_x, cluster_ctaid_x, cta)
CGP_SPECIAL(cluster_ctaid_y, cluster_ctaid_y, cta)
CGP_SPECIAL(cluster_ctaid_z, cluster_ctaid_z, cta)
CGP_SPECIAL(cluster_ctarank, cluster_ctarank, cta)
CGP_SPECIAL(cluster_nctarank, cluster_nctarank, cluster)
CGP_SPECIAL(cluster_nctaid_x, cluster_nctaid_x, cluster)
CGP_SPECIAL(cluster_nctaid_y, cluster_nctaid_y, cluster)
CGP_SPECIAL(cluster_nctaid_z, cluster_nctaid_z, cluster)
CGP_SPECIAL(dynamic_smem_size, dynamic_smem_size, grid)
CGP_SPECIAL(total_smem_size, total_smem_size, grid)
CGP_SPECIAL(clock, clock, thread)
#undef CGP_SPECIAL
inline Val<u64> Kernel::clock64() { return Val<u64>(special(ptx::Sreg::clock64, Uniform::thread)); }
inline Val<u64> Kernel::globaltimer() { return Val<u64>(special(ptx::Sreg::globaltimer, Uniform::thread)); }
inline Val<u32> Kernel::warp_index() {
  needs_full_warps(32, here_);
  return Val<u32>(Value(this, warp_index_reg_, ptx::Mod::u32, Uniform::warp));
}

inline void Kernel::exit(Here at) {
  here_ = at;
  effect(ptx::Op::exit, {}, {});
}
/// Ends the threads for which p holds; what follows is as divergent as p.
inline void Kernel::exit_if(const Val<pred>& p, Here at) {
  here_ = at;
  guarded(p, [&] { effect(ptx::Op::exit, {}, {}); });
  if (p.uniform() < regions_.back().uniform)
    regions_.back() = {"block of code after k.exit_if", p.uniform(), at, regions_.back().serial};
}
inline void Kernel::trap(Here at) {
  here_ = at;
  effect(ptx::Op::trap, {}, {});
}

inline void Kernel::trap_if(const Val<pred>& p, Here at) {
  here_ = at;
  guarded(p, [&] { effect(ptx::Op::trap, {}, {}); });
}

}  // namespace cgp::dsl
