// SPDX-License-Identifier: Apache-2.0
#pragma once
// Thread block clusters (sm_90): the cluster barrier as a typestate, shared memory of other blocks, and
// stores into it that complete on the other block's mbarrier. k.cluster(x, y, z) sets the shape;
// k.cluster_ctarank() says which block this is. No block may exit while others still use its shared memory:
// end with a cluster barrier (rings that multicast do that themselves).
#include "cgp/dsl/pipeline/mbarrier.h"
#include "cgp/dsl/pipeline/tma.h"

namespace cgp::dsl {

/// This block has arrived at the cluster barrier and not yet waited.
class [[nodiscard]] ClusterArrived {
 public:
  ClusterArrived(ClusterArrived&& o) noexcept : k_(std::exchange(o.k_, nullptr)), at_(o.at_) {}
  ~ClusterArrived() {
    if (k_)
      k_->problem("the block arrived at the cluster barrier and never waited", at_,
                  "call std::move(arrived).wait(cta)");
  }
  /// Waits for every thread of the cluster; what they did before arriving is visible.
  void wait(Cta& cta, Here at = Here::now()) && {
    cta.converged("barrier.cluster.wait", at);
    cta.k.at(at);
    cta.k.inst(ptx::Op::barrier_cluster_wait, {ptx::Mod::acquire, ptx::Mod::aligned}, {});
    k_ = nullptr;
  }

 private:
  friend ClusterArrived cluster_arrive(Cta& cta, Here at);
  ClusterArrived(Kernel& k, Here at) : k_(&k), at_(at) {}
  Kernel* k_;
  Here at_;
};
ClusterArrived cluster_arrive(Cta& cta, Here at = Here::now());
inline void cluster_sync(Cta& cta, Here at = Here::now()) { cluster_arrive(cta, at).wait(cta, at); }

namespace record {
Value mapa(Kernel& k, const Value& shared_address, const Value& rank, Here at);
void st_async(Kernel& k, const record_impl::Address& to, ptx::Mod type, const std::vector<Value>& v,
              const Value& bar, Here at);
void red_async(Kernel& k, const record_impl::Address& to, ptx::Mod op, ptx::Mod type, const Value& v,
               const Value& bar, Here at);
void bulk_to_peer(Kernel& k, const record_impl::Address& to, const SharedAddress& from, const Value& bytes,
                  const Value& bar, Here at);
}  // namespace record

/// The same variable in block `rank` of the cluster: ld, st and atomics go there.
template <class T>
Ptr<shared_cluster, T> mapa(const Ptr<shared, T>& p, const Val<u32>& rank, Here at = Here::now()) {
  return Ptr<shared_cluster, T>(Val<u32>(record::mapa(*p.kernel(), p.address(at), rank, at)));
}
/// A byte-counting barrier of another block, for the asynchronous stores below.
struct PeerBarrier {
  Val<u32> address;
};
inline PeerBarrier mapa(const Mbarrier<ByBytes>& b, const Val<u32>& rank, Here at = Here::now()) {
  const Val<u32> mine = b.address();
  return {Val<u32>(record::mapa(*mine.kernel(), mine, rank, at))};
}

/// to[0] = v, counted in bytes on a barrier of the block that `to` lies in. T has 32 or 64 bits.
template <class T>
void st_async(const Ptr<shared_cluster, T>& to, const Val<T>& v, const PeerBarrier& bar,
              Here at = Here::now()) {
  static_assert(T::bits == 32 || T::bits == 64, "st.async stores 32- or 64-bit elements");
  record::st_async(*to.kernel(), {to.base(), to.offset()}, T::mod, {v}, bar.address, at);
}
template <class T, int N>
void st_async(const Ptr<shared_cluster, T>& to, const RegGroup<T, N>& v, const PeerBarrier& bar,
              Here at = Here::now()) {
  static_assert((N == 2 || N == 4) && (T::bits == 32 || (T::bits == 64 && N == 2)),
                "st.async stores 1, 2 or 4 elements, at most 16 bytes");
  record::st_async(*to.kernel(), {to.base(), to.offset()}, T::mod, v.values(), bar.address, at);
}
/// red_async<op::add>(to, v, bar): an integer reduction into another block's shared memory.
template <class Op, class T>
void red_async(const Ptr<shared_cluster, T>& to, const Val<T>& v, const PeerBarrier& bar,
               Here at = Here::now()) {
  static_assert(Integer<T> && (T::bits == 32 || (T::bits == 64 && std::is_same_v<Op, op::add>)),
                "red.async reduces 32-bit integers, and adds u64");
  record::red_async(*to.kernel(), {to.base(), to.offset()}, Op::mod, T::mod, v, bar.address, at);
}
/// One thread copies `bytes` bytes of its block's shared memory to another block's.
template <class T, class U>
void bulk_copy(Thread& t, const Ptr<shared_cluster, T>& to, const Ptr<shared, U>& from, const Val<u32>& bytes,
               const PeerBarrier& bar, Here at = Here::now()) {
  record::bulk_to_peer(t.k, {to.base(), to.offset()}, {from.base(), int(from.offset())}, bytes, bar.address,
                       at);
}

}  // namespace cgp::dsl
