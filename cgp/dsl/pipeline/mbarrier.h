// SPDX-License-Identifier: Apache-2.0
#pragma once
// mbarrier objects with their life cycle as types: memory -> init -> Mbarrier -> invalidate. Most kernels
// want a Ring (ring.h), which owns its barriers and derives counts, bytes and parities; this is the part it
// is made of. A fresh barrier: waiting for parity 1 succeeds at once, for parity 0 blocks until the first
// phase completes. PTX ISA, "Parallel synchronization and communication instructions: mbarrier".
#include "cgp/dsl/core/scope.h"
#include "cgp/dsl/memory/ptr.h"

namespace cgp::dsl {

namespace record {
/// A shared address: register plus immediate.
struct SharedAddress {
  Value base;
  int offset = 0;
};
void mbarrier_init(Kernel& k, const SharedAddress& bar, const Value& count, Here at);
void fence_mbarrier_init(Kernel& k, Here at);
void mbarrier_inval(Kernel& k, const SharedAddress& bar, Here at);
void mbarrier_arrive(Kernel& k, const SharedAddress& bar, Here at);
Value mbarrier_arrive_token(Kernel& k, const SharedAddress& bar, Here at);
void mbarrier_arrive_drop(Kernel& k, const SharedAddress& bar, Here at);
/// `bar` is a shared::cluster address (mapa).
void mbarrier_arrive_cluster(Kernel& k, const SharedAddress& bar, Here at);
/// The same for memory that was only read and may now be filled again by an asynchronous copy: no data of
/// this thread has to become visible, so the scope is the block. (At cluster scope the GPU waits for all its
/// earlier accesses to reach L2, every time: gemm with clusters ran at 0.4 to 0.7 of its speed.)
void mbarrier_free_peer(Kernel& k, const SharedAddress& bar, Here at);
void mbarrier_arrive_expect_tx(Kernel& k, const SharedAddress& bar, const Value& bytes, Here at);
void mbarrier_expect_tx(Kernel& k, const SharedAddress& bar, const Value& bytes, Here at);
/// Spins until the phase with this parity has completed. `cluster`: acquires at cluster scope.
void mbarrier_wait(Kernel& k, const SharedAddress& bar, const Value& parity, bool cluster, Here at);
void mbarrier_wait_token(Kernel& k, const SharedAddress& bar, const Value& token, Here at);
Value mbarrier_test(Kernel& k, const SharedAddress& bar, const Value& parity, Here at);
void cp_async_mbarrier_arrive(Kernel& k, const SharedAddress& bar, bool noinc, Here at);
/// barrier.cluster.arrive + wait where the kernel has clusters, else bar.sync 0.
void sync_cluster_or_block(Kernel& k, Here at);
bool has_cluster(const Kernel& k);
}  // namespace record

struct ByBytes {
};  ///< completes when its arrivals are in and the announced bytes have landed (TMA, bulk, st.async)
struct ByArrivals {};  ///< completes when its arrivals are in

template <class Kind>
class Mbarrier;

/// Shared memory for a barrier, not yet initialised: nothing but init() can be done with it.
template <class Kind>
class MbarrierMemory {
 public:
  explicit MbarrierMemory(Kernel& k, Here at = Here::now()) : k_(k), offset_(k.smem(8, 8, at)) {}
  MbarrierMemory(MbarrierMemory&&) = default;
  /// One thread initialises, then the block (the cluster, if there is one) synchronises.
  [[nodiscard]] Mbarrier<Kind> init(Cta& cta, int arrivals, Here at = Here::now()) &&;

 private:
  Kernel& k_;
  int offset_;
};
template <class Kind>
MbarrierMemory<Kind> mbarrier(Kernel& k, Here at = Here::now()) {
  return MbarrierMemory<Kind>(k, at);
}

/// What an arrival hands out; waiting with it waits for that very phase.
struct ArrivalToken {
  Val<b64> state;
};

template <class Kind>
class Mbarrier {
  static constexpr bool bytes = std::is_same_v<Kind, ByBytes>;

 public:
  Mbarrier(Mbarrier&&) = default;
  Val<u32> address() const { return k_.smem_addr(offset_); }

  void arrive(Here at = Here::now()) const { record::mbarrier_arrive(k_, bar(), at); }
  [[nodiscard]] ArrivalToken arrive_token(Here at = Here::now()) const {
    return {Val<b64>(record::mbarrier_arrive_token(k_, bar(), at))};
  }
  /// Arrives and will not take part in later phases.
  void arrive_drop(Here at = Here::now()) const { record::mbarrier_arrive_drop(k_, bar(), at); }
  /// Arrives at the same barrier of another block of the cluster.
  void arrive_at(const Val<u32>& cta_rank, Here at = Here::now()) const {
    const Value peer = k_.op(ptx::Op::mapa, {ptx::Mod::shared_cluster, ptx::Mod::u32}, ptx::Mod::u32,
                             {address(), cta_rank}, at);
    record::mbarrier_arrive_cluster(k_, {peer, 0}, at);
  }
  /// One arrival that also announces `n` bytes.
  void arrive_expect(Thread&, const Val<u32>& n, Here at = Here::now()) const requires bytes {
    record::mbarrier_arrive_expect_tx(k_, bar(), n, at);
  }
  void expect(Thread&, const Val<u32>& n, Here at = Here::now()) const requires bytes {
    record::mbarrier_expect_tx(k_, bar(), n, at);
  }
  /// This thread's cp.async copies so far count as one arrival when they have landed.
  void arrive_when_copied(Here at = Here::now()) const requires(!bytes) {
    record::cp_async_mbarrier_arrive(k_, bar(), true, at);
  }
  void wait(const Val<u32>& parity, Here at = Here::now()) const {
    record::mbarrier_wait(k_, bar(), parity, record::has_cluster(k_), at);
  }
  void wait(const ArrivalToken& t, Here at = Here::now()) const {
    record::mbarrier_wait_token(k_, bar(), t.state, at);
  }
  /// Has the phase with this parity completed? Does not block.
  Val<pred> test(const Val<u32>& parity, Here at = Here::now()) const {
    return Val<pred>(record::mbarrier_test(k_, bar(), parity, at));
  }
  /// Ends the barrier; its memory may be used for something else afterwards.
  void invalidate(Cta& cta, Here at = Here::now()) && {
    cta.sync(at);
    cta.one_thread([&](Thread&) { record::mbarrier_inval(k_, bar(), at); }, at);
    cta.sync(at);
  }

 private:
  friend class MbarrierMemory<Kind>;
  Mbarrier(Kernel& k, int offset) : k_(k), offset_(offset) {}
  record::SharedAddress bar() const { return {k_.smem_addr(0), offset_}; }
  Kernel& k_;
  int offset_;
};

template <class Kind>
Mbarrier<Kind> MbarrierMemory<Kind>::init(Cta& cta, int arrivals, Here at) && {
  if (arrivals < 1 || arrivals >= 1 << 20)
    throw BuildError("an mbarrier counts 1 to 2^20 - 1 arrivals", at, text::cat("got ", arrivals));
  cta.one_thread(
      [&](Thread&) {
        record::mbarrier_init(k_, {k_.smem_addr(0), offset_}, Val<u32>(arrivals), at);
        record::fence_mbarrier_init(k_, at);
      },
      at);
  record::sync_cluster_or_block(k_, at);
  return Mbarrier<Kind>(k_, offset_);
}

}  // namespace cgp::dsl
