// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tensor memory (sm_100a): 128 lanes x 512 columns of 32 bits per SM, allocated before a body and freed after
// it.
//   with_tmem<TmemSlots<TmemAcc<f32, 128, 256>, 2>>(k, [&](auto& tmem) { ... tmem.template get<0>() ... });
// with_tmem emits the allocation and the release, so memory cannot leak or be used after it is freed. Its
// contents move by typestates:
//   TmemLoad     registers that tcgen05.ld is still writing: wait(wg) gives them
//   TmemStore    tcgen05.st under way: publish(cta) ends it and makes an operand of what was written
// Accumulators travel between the multiplying thread and the reading warps through umma.h.
// PTX ISA, "Tensor Memory" and "tcgen05 instructions".
#include <tuple>

#include "cgp/dsl/mma/fragment.h"
#include "cgp/dsl/mma/umma_types.h"
#include "cgp/dsl/pipeline/ring.h"

namespace cgp::dsl {

class PairLeader;
/// body(PairLeader&) on one thread of the role, in even blocks of the cluster.
template <class S, class Body>
void one_leader(const Role<S>& role, Body&& body, Here at = Here::now());

/// The thread of a pair's even block that issues tcgen05 for both. Made by one_leader().
class PairLeader : public Scope {
  explicit PairLeader(Kernel& k) : Scope(k, Uniform::thread, Val<u32>(0)) {}
  template <class S, class Body>
  friend void one_leader(const Role<S>& role, Body&& body, Here at);
};
namespace record {
Val<pred> leads_pair(Kernel& k, Here at);
}
template <class S, class Body>
void one_leader(const Role<S>& role, Body&& body, Here at) {
  Kernel& k = role.kernel();
  k.if_(
      record::leads_pair(k, at),
      [&] {
        role.one_thread(
            [&](Thread&) {
              PairLeader leader(k);
              body(leader);
            },
            at);
      },
      at);
}
/// The scope that issues tcgen05 of a group.
template <class Group>
using IssuerOf = std::conditional_t<std::is_same_v<Group, CtaPair>, PairLeader, Thread>;

/// `columns` of tensor memory from a run-time column.
template <class Region>
class TmemRef {
 public:
  using region = Region;
  explicit TmemRef(Val<u32> address) : address_(std::move(address)) {}
  const Val<u32>& address() const { return address_; }

 private:
  Val<u32> address_;
};

/// Which bit of tensor memory a register of tcgen05.ld and st holds (PTX ISA, "Data movement shape"). A warp
/// reads its quarter of the lanes: 32, or (16x..) the first 16 of them.
enum class TmemShape : std::uint8_t { lanes32x32, matrix16x64, matrix16x128, matrix16x256 };
/// Registers of one unit (.x1) and the columns it covers.
constexpr int tmem_registers(TmemShape s) {
  constexpr int n[] = {1, 1, 2, 4};
  return n[int(s)];
}
constexpr int tmem_unit_columns(TmemShape s) {
  constexpr int n[] = {1, 2, 4, 8};
  return n[int(s)];
}

namespace record {
void tmem_needs(const Kernel& k, Here at);
/// alloc, relinquish, publish; the address, read by every thread.
Val<u32> tmem_open(Kernel& k, int columns, bool pair, Here at);
void tmem_close(Kernel& k, const Val<u32>& address, int columns, bool pair, Here at);
constexpr int tmem_columns(int used) {
  int c = 32;
  while (c < used) c *= 2;
  return c;
}
std::vector<Value> tmem_load(Kernel& k, TmemShape shape, const Val<u32>& address, int registers,
                             ptx::Mod type, bool packed, Here at);
void tmem_store(Kernel& k, TmemShape shape, const Val<u32>& address, const std::vector<Value>& v, bool packed,
                Here at);
void tmem_wait(Kernel& k, bool stores, Here at);
/// The address for this warp's quarter of the lanes, `column` columns further.
Val<u32> tmem_of_warp(Kernel& k, const Val<u32>& address, int column);
/// Blocks of 128 rows x 4 scales from shared memory, replicated in the four quarters of the lanes.
struct ScaleCopy {
  int rows, scales;
  bool pair;
};
void tmem_copy_scales(Kernel& k, const ScaleCopy& c, const Val<u32>& to, const SharedAddress& from, Here at);
void tmem_shift(Kernel& k, const Val<u32>& address, bool pair, Here at);
}  // namespace record

/// Allocates the regions for body(Tmem&), which every thread of the block enters and leaves. Once a kernel.
template <class... Regions, class Body>
void with_tmem(Kernel& k, Body&& body, Here at = Here::now());

/// Tensor memory of a kernel while with_tmem's body is recorded.
template <class... Regions>
class Tmem {
 public:
  using group = typename std::tuple_element_t<0, std::tuple<Regions...>>::group;
  static constexpr int used = (Regions::columns + ...);
  static constexpr int columns = record::tmem_columns(used);  ///< allocated
  static_assert(used <= 512, "tensor memory has 512 columns");
  static_assert((std::is_same_v<typename Regions::group, group> && ...),
                "a kernel uses tensor memory of one block or of pairs (OneCta, CtaPair), not both");
  Tmem(const Tmem&) = delete;
  /// Region I of the list.
  template <int I>
  auto get() const {
    using R = std::tuple_element_t<I, std::tuple<Regions...>>;
    constexpr std::array<int, sizeof...(Regions)> sizes{Regions::columns...};
    int at = 0;
    for (int i = 0; i < I; ++i) at += sizes[std::size_t(i)];
    return TmemRef<R>(at ? address_ + at : address_);
  }

 private:
  template <class... Rs, class Body>
  friend void with_tmem(Kernel& k, Body&& body, Here at);
  explicit Tmem(Val<u32> address) : address_(std::move(address)) {}
  Val<u32> address_;
};

template <class... Regions, class Body>
void with_tmem(Kernel& k, Body&& body, Here at) {
  static_assert(sizeof...(Regions) > 0, "name what is to lie in tensor memory: with_tmem<TmemAcc<...>>(...)");
  using M = Tmem<Regions...>;
  constexpr bool pair = std::is_same_v<typename M::group, CtaPair>;
  const Val<u32> address = record::tmem_open(k, M::columns, pair, at);
  k.push_region("with_tmem", Uniform::grid, at);
  // A copy of the region's own: addresses made from it do not live on behind the body.
  const M tmem(Val<u32>(k.copy(address)));
  body(tmem);
  k.pop_region();
  record::tmem_close(k, address, M::columns, pair, at);
}

/// Registers that tcgen05.ld is writing.
template <class Result>
class [[nodiscard]] TmemLoad {
 public:
  TmemLoad(Kernel& k, Result r, Here at) : k_(&k), result_(std::move(r)), at_(at) {}
  TmemLoad(TmemLoad&& o) noexcept
      : k_(std::exchange(o.k_, nullptr)), result_(std::move(o.result_)), at_(o.at_) {}
  ~TmemLoad() {
    if (k_)
      k_->problem("tensor memory was loaded and never waited for", at_,
                  "call std::move(load).wait(wg): it gives the registers");
  }
  /// Waits for all loads of this thread (tcgen05.wait::ld).
  [[nodiscard]] Result wait(Warpgroup& wg, Here at = Here::now()) && {
    wg.converged("tcgen05.wait::ld", at);
    record::tmem_wait(*std::exchange(k_, nullptr), false, at);
    return std::move(result_);
  }

 private:
  Kernel* k_;
  Result result_;
  Here at_;
};

/// Operand A in tensor memory that threads have written; umma may read it.
template <class Region>
class TmemFilled {
 public:
  using region = Region;
  explicit TmemFilled(Val<u32> address) : address_(std::move(address)) {}
  const Val<u32>& address() const { return address_; }

 private:
  Val<u32> address_;
};

/// tcgen05.st under way.
template <class Region>
class [[nodiscard]] TmemStore {
 public:
  TmemStore(Kernel& k, Val<u32> address, Here at) : k_(&k), address_(std::move(address)), at_(at) {}
  TmemStore(TmemStore&& o) noexcept : k_(std::exchange(o.k_, nullptr)), address_(o.address_), at_(o.at_) {}
  ~TmemStore() {
    if (k_)
      k_->problem("tensor memory was stored to and never published", at_,
                  "call std::move(stored).publish(wg, barrier, ...)");
  }
  /// Waits for the stores; then, at `bar`, for everybody who takes part: the operand may be multiplied.
  TmemFilled<Region> publish(Cta& cta, Here at = Here::now()) && {
    Kernel& k = *std::exchange(k_, nullptr);
    record::tmem_wait(k, true, at);
    record::umma_fence_before(k, at);
    cta.sync(at);
    record::umma_fence_after(k, at);
    return TmemFilled<Region>(address_);
  }

 private:
  Kernel* k_;
  Val<u32> address_;
  Here at_;
};

/// Writes operand A: registers(column) gives this thread's row (lane 32 w + l of the warpgroup) as packed
/// 32-bit words, N at a time: N * 32 / bits elements from `column` words on.
template <int N, class T, int M, int K, class Group, class F>
TmemStore<TmemOperand<T, M, K, Group>> store_rows(Warpgroup& wg,
                                                  const TmemRef<TmemOperand<T, M, K, Group>>& to,
                                                  F&& registers, Here at = Here::now()) {
  using R = TmemOperand<T, M, K, Group>;
  static_assert(R::columns % N == 0 && N >= 1 && N <= 128 && (N & (N - 1)) == 0,
                "store a power of two of words at a time that divides the operand's columns");
  wg.converged("tcgen05.st", at);
  for (int c = 0; c < R::columns; c += N) {
    const RegGroup<b32, N> words = registers(c);
    record::tmem_store(wg.k, TmemShape::lanes32x32, record::tmem_of_warp(wg.k, to.address(), c),
                       words.values(), false, at);
  }
  return TmemStore<R>(wg.k, to.address(), at);
}

/// Copies block scales to tensor memory; products of the same thread that follow read them (tcgen05.cp).
template <class S, int Rows, int Count, class Group, class Issuer, int P>
void copy_scales(Issuer& t, const TmemRef<TmemScales<S, Rows, Count, Group>>& to,
                 const SmemTile<ScaleTile<S, Rows, Count>, P>& from, Here at = Here::now()) {
  static_assert(std::is_same_v<Issuer, IssuerOf<Group>>,
                "tcgen05.cp is issued by a Thread, for a pair by its PairLeader");
  record::tmem_copy_scales(t.k, {Rows, Count, Group::ctas == 2}, to.address(), {from.base(), from.offset()},
                           at);
}
/// Moves 32-byte rows of a region down by one lane (tcgen05.shift), for convolutions.
template <class Region, class Issuer>
void shift_down(Issuer& t, const TmemRef<Region>& r, Here at = Here::now()) {
  static_assert(std::is_same_v<Issuer, IssuerOf<typename Region::group>>,
                "tcgen05.shift is issued by a Thread, for a pair by its PairLeader");
  record::tmem_shift(t.k, r.address(), Region::group::ctas == 2, at);
}

}  // namespace cgp::dsl
