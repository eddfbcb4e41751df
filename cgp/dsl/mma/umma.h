// SPDX-License-Identifier: Apache-2.0
#pragma once
// tcgen05.mma (sm_100a): one thread multiplies tiles of shared memory into tensor memory, as typestates.
//   Accumulators accs(k, tmem.template get<0>(), mma, drain);       slots of TmemAcc, their barriers
//   mma.one_thread([&](Thread& t) {
//     auto d = k.loop(k_tiles, accs.acquire(t),                     a slot nobody reads
//                     [&](Val<u32>, auto d) { return umma(t, std::move(d), ring.take(t)); });
//     std::move(d).commit(t);                                       the slot's barrier hears when it is done
//   });
//   drain.run([&](Warpgroup& wg) {
//     auto acc = accs.take(wg);                                     waits for that barrier, and fences
//     auto part = acc.template load<32>(wg, 0).wait(wg);            WarpAcc: 32 rows a warp, 32 columns
//     std::move(acc).release(wg);                                   the slot may be overwritten
//   });
// The first product after acquire overwrites, the others add. The descriptors follow from the types. For a
// pair of blocks the group is CtaPair and PairLeader (one_leader) stands for Thread.
// PTX ISA, "tcgen05.mma" and "tcgen05.commit".
#include <optional>
#include <tuple>

#include "cgp/dsl/mma/tmem.h"

namespace cgp::dsl {

namespace record {

/// One operand of a product: a tile in shared memory, or (A) a column of tensor memory.
struct UmmaOperand {
  std::optional<SharedAddress> shared;
  std::optional<Value> tmem;
  TileLayout tile;
  Major major = Major::k;
};
struct UmmaScales {
  Value a, b;                            ///< addresses in tensor memory
  int a_block_columns, b_block_columns;  ///< from one block of 4 scales along K to the next
  int per_step;                          ///< scales of one instruction along K: 1, 2 or 4
  bool ue8m0;
};
struct UmmaGroup {
  UmmaKind kind;
  InstructionDescriptor descriptor;
  bool pair;
  int steps;  ///< instructions along K
};
/// All products of one stage. The first overwrites where `accumulate` does not hold.
void umma_group(Kernel& k, const UmmaGroup& g, const Value& d, const UmmaOperand& a, const UmmaOperand& b,
                const Value& accumulate, const UmmaScales* scales, Here at);

/// Barriers and cursors of accumulator slots, without their types.
class SlotsCore {
 public:
  SlotsCore(Kernel& k, const Val<u32>& address, int slots, int columns, int drain_warps, bool pair, Here at);
  struct Slot {
    Val<u32> address;
    Val<u32> barrier;  ///< acquire: the full barrier here; take: the empty barrier (of the leader, in a pair)
  };
  Slot acquire(Here at);
  Slot take(Here at);
  void commit(const Val<u32>& full, Here at);
  /// The warp's reads are done; one arrival of each warp.
  void release(const Val<u32>& empty, Here at);
  bool pair() const { return pair_; }

 private:
  Kernel& k_;
  int slots_, columns_, bars_;
  bool pair_;
  Val<u32> address_;
  std::optional<Value> empty_base_, commit_mask_;
  std::optional<PhaseCursor> write_, read_;
};

}  // namespace record

/// An accumulator that the tensor core writes: products may be added, nothing can be read.
template <class AccT>
class [[nodiscard]] UmmaInFlight {
 public:
  using acc = AccT;
  using Issuer = IssuerOf<typename AccT::group>;
  UmmaInFlight(record::SlotsCore& core, record::SlotsCore::Slot slot, Value accumulate, Here at)
      : core_(&core),
        k_(slot.address.kernel()),
        slot_(std::move(slot)),
        accumulate_(std::move(accumulate)),
        at_(at) {}
  UmmaInFlight(UmmaInFlight&& o) noexcept
      : core_(std::exchange(o.core_, nullptr)),
        k_(o.k_),
        slot_(o.slot_),
        accumulate_(o.accumulate_),
        at_(o.at_) {}
  ~UmmaInFlight() {
    if (core_)
      k_->problem("an accumulator in tensor memory was acquired and never committed", at_,
                  "end with std::move(acc).commit(t): only then can it be read");
  }
  /// The slot's barrier completes when this thread's products so far are done.
  void commit(Issuer&, Here at = Here::now()) && { std::exchange(core_, nullptr)->commit(slot_.barrier, at); }

  const Val<u32>& address() const { return slot_.address; }
  const Value& accumulate() const { return accumulate_; }
  /// The same after a product: the next one adds.
  UmmaInFlight added(Here at) && {
    return UmmaInFlight(*std::exchange(core_, nullptr), slot_, Value::literal(1, ptx::Mod::pred), at);
  }

 private:
  friend struct Carry<UmmaInFlight<AccT>>;
  record::SlotsCore* core_;
  Kernel* k_;
  record::SlotsCore::Slot slot_;
  Value accumulate_;
  Here at_;
};
template <class AccT>
struct Carry<UmmaInFlight<AccT>> {
  using S = UmmaInFlight<AccT>;
  static S home(Kernel& k, S s) {
    return S(*std::exchange(s.core_, nullptr), s.slot_, k.carry_home(s.accumulate_), s.at_);
  }
  static S settle(Kernel& k, S& home, S next) {
    if (next.slot_.address.reg() != home.slot_.address.reg())
      throw BuildError("a body hands back the accumulator it received", next.at_,
                       "the one handed back was acquired inside the body",
                       "acquire and commit it both inside the body, or both outside");
    home.core_ = nullptr;
    const Value a = k.carry_settle(home.accumulate_, next.accumulate_);
    return S(*std::exchange(next.core_, nullptr), next.slot_, a, next.at_);
  }
  static S view(S& home) { return S(*home.core_, home.slot_, home.accumulate_, home.at_); }
};

/// A finished accumulator in tensor memory, readable by a warpgroup.
template <class AccT>
class [[nodiscard]] TmemReadable {
 public:
  using T = typename AccT::elem;
  TmemReadable(record::SlotsCore& core, record::SlotsCore::Slot slot, Here at)
      : core_(&core), k_(slot.address.kernel()), slot_(std::move(slot)), at_(at) {}
  TmemReadable(TmemReadable&& o) noexcept
      : core_(std::exchange(o.core_, nullptr)), k_(o.k_), slot_(o.slot_), at_(o.at_) {}
  ~TmemReadable() {
    if (core_)
      k_->problem("an accumulator in tensor memory was taken and never released", at_,
                  "call std::move(acc).release(wg)");
  }

  /// Rows (of this block) that this warp reads begin here; there are AccT::warp_rows.
  Val<u32> row(Warpgroup& wg) const {
    const Val<u32> w = wg.k.warp_index() & Val<u32>(AccT::folded ? 1 : 3);
    return record::times(w, AccT::warp_rows);
  }
  /// The column of the accumulator that column 0 of this warp is: 0, but half of N for the upper warps of a
  /// folded accumulator (a pair's M = 128), whose warps read AccT::columns columns each.
  Val<u32> column(Warpgroup& wg) const {
    if (!AccT::folded) return Val<u32>(0);
    return record::times((wg.k.warp_index() >> Val<u32>(1)) & Val<u32>(1), AccT::columns);
  }
  /// N columns from column `from` of this warp, as fragments of 16 x 8 (tcgen05.ld.16x256b).
  template <int N>
  TmemLoad<WarpAcc<T, AccT::warp_rows, N>> load(Warpgroup& wg, int from, Here at = Here::now()) const {
    static_assert(T::bits == 32, "16-bit accumulators are read with load_row");
    static_assert(N >= 8 && N <= 256 && (N & (N - 1)) == 0 && N * AccT::warp_rows / 32 <= 128,
                  "load 8 to 128 columns at a time, a power of two");
    check(wg, from, N, at);
    std::vector<Value> regs;
    for (int half = 0; half < AccT::warp_rows / 16; ++half) {
      const Val<u32> where = record::tmem_of_warp(wg.k, slot_.address, from + (half << 20));
      for (auto& v : record::tmem_load(wg.k, TmemShape::matrix16x256, where, N / 2, T::mod, false, at))
        regs.push_back(v);
    }
    using R = WarpAcc<T, AccT::warp_rows, N>;
    return TmemLoad<R>(wg.k, R(AccRegs(std::move(regs))), at);
  }
  /// N columns of one row a thread (tcgen05.ld.32x32b): row row(wg) + lane. A 16-bit accumulator gives pairs,
  /// N / 2 words.
  template <int N>
  auto load_row(Warpgroup& wg, int from, Here at = Here::now()) const {
    static_assert(AccT::warp_rows == 32, "accumulators of 64 rows are read with load");
    static_assert(N >= 1 && N <= 128 && (N & (N - 1)) == 0,
                  "load 1 to 128 columns at a time, a power of two");
    check(wg, from, N, at);
    const Val<u32> where = record::tmem_of_warp(wg.k, slot_.address, from);
    constexpr bool packed = T::bits == 16;
    using E = std::conditional_t<packed, b32, T>;
    constexpr int count = packed ? N / 2 : N;
    using R = RegGroup<E, count>;
    return TmemLoad<R>(
        wg.k, R::from(record::tmem_load(wg.k, TmemShape::lanes32x32, where, count, E::mod, packed, at)), at);
  }
  /// Repeat units of any shape, as tcgen05.ld spells it, from lane `lane` of this warp's quarter (0 or 16).
  template <TmemShape Shape, int Repeat>
  auto load_as(Warpgroup& wg, int from, int lane = 0, Here at = Here::now()) const {
    constexpr int count = Repeat * tmem_registers(Shape);
    static_assert(T::bits == 32, "16-bit accumulators are read with load_row");
    static_assert(Repeat >= 1 && (Repeat & (Repeat - 1)) == 0 && count <= 128,
                  "a load repeats its shape a power of two times, up to 128 registers");
    check(wg, from, Repeat * tmem_unit_columns(Shape), at);
    if (lane != 0 && (lane != 16 || Shape == TmemShape::lanes32x32))
      throw BuildError("a load of 16 lanes begins at lane 0 or 16 of the warp's quarter, one of 32 at 0", at,
                       text::cat("lane ", lane));
    const Val<u32> where = record::tmem_of_warp(wg.k, slot_.address, from + (lane << 16));
    using R = RegGroup<T, count>;
    return TmemLoad<R>(wg.k, R::from(record::tmem_load(wg.k, Shape, where, count, T::mod, false, at)), at);
  }
  /// The slot may be overwritten. Every load must have been waited for (each is a typestate of its own).
  void release(Warpgroup& wg, Here at = Here::now()) && {
    wg.converged("releasing an accumulator", at);
    std::exchange(core_, nullptr)->release(slot_.barrier, at);
  }

 private:
  void check(Warpgroup& wg, int from, int count, Here at) const {
    wg.converged("tcgen05.ld", at);
    if (from < 0 || from + count > AccT::columns)
      throw BuildError("columns of an accumulator are read inside it", at,
                       text::cat("columns ", from, " to ", from + count - 1, " of ", AccT::columns));
  }
  record::SlotsCore* core_;
  Kernel* k_;
  record::SlotsCore::Slot slot_;
  Here at_;
};

/// Accumulators in turns: the multiplying thread writes one while the warps of a role read another.
template <class AccT, int Slots>
class Accumulators {
 public:
  using Issuer = IssuerOf<typename AccT::group>;
  static constexpr bool pair = std::is_same_v<typename AccT::group, CtaPair>;
  template <class S>
  Accumulators(Kernel& k, const TmemRef<TmemSlots<AccT, Slots>>& where, const Role<S>&,
               const Role<Warpgroup>& drain, Here at = Here::now())
      : core_(k, where.address(), Slots, AccT::columns, one_group(drain, at), pair, at) {}
  /// Without roles: one thread of the block multiplies, its one warpgroup reads.
  Accumulators(Kernel& k, const TmemRef<TmemSlots<AccT, Slots>>& where, Cta&, Here at = Here::now())
      : core_(k, where.address(), Slots, AccT::columns, 4, pair, at) {
    const auto b = k.block_size();
    if (b[0] != 128 || b[1] != 1 || b[2] != 1)
      throw BuildError("without roles one warpgroup reads the accumulators: a block has 128 threads", at,
                       text::cat("the block is ", b[0], " x ", b[1], " x ", b[2]), "call k.block(128) first");
  }
  Accumulators(const Accumulators&) = delete;

  /// Waits until the next slot has been read; the first product overwrites it.
  UmmaInFlight<AccT> acquire(Issuer&, Here at = Here::now()) {
    return UmmaInFlight<AccT>(core_, core_.acquire(at), Value::literal(0, ptx::Mod::pred), at);
  }
  /// Waits for the next slot's products.
  TmemReadable<AccT> take(Warpgroup& wg, Here at = Here::now()) {
    wg.converged("taking an accumulator", at);
    return TmemReadable<AccT>(core_, core_.take(at), at);
  }

 private:
  static int one_group(const Role<Warpgroup>& drain, Here at) {
    if (drain.count() != 1)
      throw BuildError("one warpgroup reads the accumulators", at,
                       text::cat("the reading role has ", drain.count(), " members"));
    return 4;
  }
  record::SlotsCore core_;
};
template <class AccT, int Slots, class... A>
Accumulators(Kernel&, const TmemRef<TmemSlots<AccT, Slots>>&, A&&...) -> Accumulators<AccT, Slots>;

namespace record {
/// One argument of umma: what it is, and what it owns.
template <class O>
struct UmmaArg;
template <class TileT, int P>
struct UmmaArg<SmemTile<TileT, P>> {
  using elem = typename TileT::elem;
  static constexpr bool in_tmem = false;
  static constexpr int mn(Major m) { return m == Major::k ? TileT::rows : TileT::cols; }
  static constexpr int k(Major m) { return m == Major::k ? TileT::cols : TileT::rows; }
  static UmmaOperand operand(const SmemTile<TileT, P>& t, Major m) {
    constexpr TileLayout layout = SmemTile<TileT, P>::layout;
    static_assert(layout.swizzle != Swizzle::none || layout.span() == 16,
                  "umma reads swizzled tiles (b32, b64, b128) or 16-byte panels (b16), not plain rows");
    return {SharedAddress{t.base(), t.offset()}, {}, layout, m};
  }
  static void commit(const SmemTile<TileT, P>&, Here) {}
};
template <class R, class TileT>
struct UmmaArg<Filled<R, TileT>> : UmmaArg<SmemTile<TileT>> {
  static_assert(is_by_umma<R>, "umma takes stages of a ring that the tensor core frees: Ring<ByUmma, ...>");
  static UmmaOperand operand(const Filled<R, TileT>& t, Major m) {
    return UmmaArg<SmemTile<TileT>>::operand(t.template get<0>(), m);
  }
  static void commit(Filled<R, TileT>& t, Here at) { std::move(t).token().commit(at); }
};
template <class T, int M, int K, class Group>
struct UmmaArg<TmemFilled<TmemOperand<T, M, K, Group>>> {
  using elem = T;
  static constexpr bool in_tmem = true;
  static constexpr int mn(Major) { return M; }
  static constexpr int k(Major) { return K; }
  static UmmaOperand operand(const TmemFilled<TmemOperand<T, M, K, Group>>& t, Major) {
    return {{}, t.address(), {}, Major::k};
  }
  static void commit(const TmemFilled<TmemOperand<T, M, K, Group>>&, Here) {}
};

/// The products of A and B into an accumulator.
template <Major MA, Major MB, class AccT, class A, class B>
struct UmmaPlan {
  using ArgA = UmmaArg<A>;
  using ArgB = UmmaArg<B>;
  using TA = typename ArgA::elem;
  using TB = typename ArgB::elem;
  static constexpr int ctas = AccT::group::ctas;
  static constexpr bool nibbles = TA::mod == ptx::Mod::e2m1x2;
  static constexpr int k = ArgA::k(MA), k_inst = MA == Major::k ? 256 / TA::bits : 256 / TA::bits;
  static constexpr UmmaShape shape(ptx::Mod scale) {
    return {TA::mod, TB::mod, AccT::elem::mod, AccT::rows, AccT::cols, ctas, MA, MB, ArgA::in_tmem, scale};
  }
  template <ptx::Mod Scale>
  static constexpr UmmaGroup group() {
    static_assert(!ArgB::in_tmem, "only operand A may lie in tensor memory");
    static_assert(TA::bits == TB::bits, "both operands have elements of the same size in memory");
    static_assert(ArgA::k(MA) == ArgB::k(MB), "A and B tiles disagree on the K extent");
    static_assert(ArgA::mn(MA) == AccT::block_rows,
                  "the accumulator has the rows of the A tile (M), of a pair twice as many");
    static_assert(ArgB::mn(MB) * ctas == AccT::cols,
                  "the accumulator is as wide as the B tile has rows (N), of a pair twice as wide");
    static_assert(k % k_inst == 0, "the tiles' K extent must be whole instructions (32 bytes)");
    static_assert(!(ArgA::in_tmem && MA == Major::mn), "operand A in tensor memory is K-major");
    static_assert(umma_legal(shape(Scale)),
                  "umma has no such combination of element types, accumulator, M, N and major-ness");
    return {umma_kind(TA::mod, TB::mod, Scale), umma_descriptor(shape(Scale)), ctas == 2, k / k_inst};
  }
};
template <Major MA, Major MB, class Issuer, class AccT, class A, class B>
UmmaInFlight<AccT> umma_issue(Issuer& t, UmmaInFlight<AccT> acc, const A& a, const B& b, Here at) {
  static_assert(std::is_same_v<Issuer, IssuerOf<typename AccT::group>>,
                "umma is issued by one Thread, for a pair by its PairLeader");
  using Plan = UmmaPlan<MA, MB, AccT, A, B>;
  constexpr UmmaGroup g = Plan::template group<kNoScale>();
  umma_group(t.k, g, acc.address(), Plan::ArgA::operand(a, MA), Plan::ArgB::operand(b, MB), acc.accumulate(),
             nullptr, at);
  return std::move(acc).added(at);
}
}  // namespace record

/// acc + A * B over one stage that holds both tiles; the stage is freed when the products are done.
template <Major MA = Major::k, Major MB = Major::k, class Issuer, class AccT, class R, class TileA,
          class TileB>
UmmaInFlight<AccT> umma(Issuer& t, UmmaInFlight<AccT> acc, Filled<R, TileA, TileB> stage,
                        Here at = Here::now()) {
  static_assert(is_by_umma<R>, "umma takes stages of a ring that the tensor core frees: Ring<ByUmma, ...>");
  auto out =
      record::umma_issue<MA, MB>(t, std::move(acc), stage.template get<0>(), stage.template get<1>(), at);
  std::move(stage).token().commit(at);
  return out;
}
/// acc + A * B; each operand is a SmemTile, a stage that holds it, or (A) a TmemFilled. Tiles that threads
/// wrote need fence_async_shared and a barrier first.
template <Major MA = Major::k, Major MB = Major::k, class Issuer, class AccT, class A, class B>
requires(!std::is_same_v<B, Here>) UmmaInFlight<AccT> umma(Issuer& t, UmmaInFlight<AccT> acc, A a, B b,
                                                           Here at = Here::now()) {
  auto out = record::umma_issue<MA, MB>(t, std::move(acc), a, b, at);
  record::UmmaArg<A>::commit(a, at);
  record::UmmaArg<B>::commit(b, at);
  return out;
}

/// Where block scales of A and B lie in tensor memory.
template <class ScalesA, class ScalesB>
struct ScalePair {
  TmemRef<ScalesA> a;
  TmemRef<ScalesB> b;
};
template <class ScalesA, class ScalesB>
ScalePair(TmemRef<ScalesA>, TmemRef<ScalesB>) -> ScalePair<ScalesA, ScalesB>;

/// acc + (A * scales) * (B * scales) over a stage of four tiles: A, B, scales of A, scales of B. The scales
/// are copied to tensor memory first; ue8m0 for every 32 elements of K, ue4m3 (or ue8m0 of e2m1x2) as the
/// kind says: mxf8f6f4 and mxf4 one for 32, mxf4nvf4 one for 16.
template <class Issuer, class AccT, class R, class TileA, class TileB, class ScA, class ScB, class SA,
          class SB>
UmmaInFlight<AccT> umma_scaled(Issuer& t, UmmaInFlight<AccT> acc, Filled<R, TileA, TileB, ScA, ScB> stage,
                               const ScalePair<SA, SB>& scales, Here at = Here::now()) {
  static_assert(std::is_same_v<Issuer, IssuerOf<typename AccT::group>>,
                "umma is issued by one Thread, for a pair by its PairLeader");
  using Plan = record::UmmaPlan<Major::k, Major::k, AccT, SmemTile<TileA>, SmemTile<TileB>>;
  using Scale = typename ScA::scale;
  static_assert(std::is_same_v<Scale, typename ScB::scale>, "A and B have scales of one type");
  constexpr record::UmmaGroup g = Plan::template group<Scale::mod>();
  constexpr bool nibbles = Plan::nibbles;
  constexpr int per_step = !nibbles ? 1 : std::is_same_v<Scale, ue4m3> ? 4 : 2;
  static_assert(ScA::scales == g.steps * per_step && ScB::scales == ScA::scales,
                "one scale for every 32 elements of K (16 with ue4m3), for A and for B");
  static_assert(ScA::scaled_rows == AccT::block_rows, "the scales of A have the rows of A");
  static_assert(ScB::scaled_rows == (AccT::cols + 127) / 128 * 128,
                "the scales of B have the columns of the accumulator as rows, in whole blocks of 128");
  copy_scales(t, scales.a, stage.template get<2>(), at);
  copy_scales(t, scales.b, stage.template get<3>(), at);
  const record::UmmaScales where{scales.a.address(),   scales.b.address(), SA::scaled_rows / 32,
                                 SB::scaled_rows / 32, per_step,           std::is_same_v<Scale, ue8m0>};
  using Arg = record::UmmaArg<SmemTile<TileA>>;
  record::umma_group(t.k, g, acc.address(), Arg::operand(stage.template get<0>(), Major::k),
                     record::UmmaArg<SmemTile<TileB>>::operand(stage.template get<1>(), Major::k),
                     acc.accumulate(), &where, at);
  std::move(stage).token().commit(at);
  return std::move(acc).added(at);
}

}  // namespace cgp::dsl
